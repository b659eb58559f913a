"""Dumps of a job's processes -> stack groups, and which rank is where.

Equal stacks are counted together, whatever their line numbers. A rank that waits for the others is a witness: it waits for the
few that stand elsewhere. Those are late. This does not say that their machines are broken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from diagnose.compression.kept_log import Compression
from diagnose.diagnosis.collectives import Standing, first_late, standing
from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.places import WORKER, Place, place_of
from diagnose.reading.dumps.flight_recorder import FlightRecord, in_words
from diagnose.reading.dumps.ras import Communicator, RasReport
from diagnose.reading.dumps.reader import DumpReader
from diagnose.reading.dumps.stacks import Frame, StackDump, Thread
from diagnose.reading.prefixes import body_start, speaker
from diagnose.reading.sources import Source

MOST_LINES = 1_000_000
"""at most so many kept lines are read for dumps"""
_MOST_SHOWN_FRAMES = 12
_FEW = 8
_MOST_LATE_TOLD = 4
_WHERE = 160
_STRETCHES = 6
_BEHIND = 1 << 62


@dataclass(slots=True)
class Process:
    """One process, as its last dump shows it."""

    source: int
    rank: int | None
    node: str | None
    dump: StackDump
    thread: Thread
    place: Place

    @property
    def line(self) -> int:
        """The line of the frame that shows where it stands."""
        return self.thread.lines[self.place.at]

    @property
    def name(self) -> str:
        if self.rank is not None:
            return f"rank {self.rank}" + (f" ({self.node})" if self.node else "")
        if self.dump.pid is not None:
            return f"process {self.dump.pid}"
        return "the process"


@dataclass(slots=True)
class StackGroup:
    """Processes whose stacks are equal."""

    processes: list[Process]

    @property
    def first(self) -> Process:
        return self.processes[0]

    @property
    def place(self) -> Place:
        return self.first.place

    @property
    def ranks(self) -> list[int]:
        return sorted({process.rank for process in self.processes if process.rank is not None})

    @property
    def frames(self) -> list[str]:
        """The innermost frames, in words."""
        return [_frame(frame) for frame in self.first.thread.frames[:_MOST_SHOWN_FRAMES]]


@dataclass(slots=True)
class Picture:
    """What all dumps of a job show together."""

    groups: list[StackGroup]
    standing: list[Standing]
    sentence: str
    """who waits where, and who is elsewhere"""
    event: Event
    """the line to look at first"""
    late: list[int] = field(default_factory=list)
    """ranks for which others wait"""
    nodes: dict[int, str] = field(default_factory=dict)
    """their nodes, if a dump names them"""
    stood: bool = False
    """a dump was taken of a process that stood still; it was not printed by one that died"""
    apart: bool = False
    """some wait, and others are known to be elsewhere"""
    together: bool = False
    """all that are known wait in one collective, or the device of a rank hangs: no program is late"""
    inside: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """source -> ranges of lines that belong to dumps; they are not messages"""

    def covers(self, source: int, line: int) -> bool:
        """Whether the line belongs to a dump."""
        ranges = self.inside.get(source, [])
        at = bisect_right(ranges, (line, _BEHIND)) - 1
        return at >= 0 and line <= ranges[at][1]


@dataclass(slots=True)
class _Read:
    """The dumps, with who wrote them."""

    processes: dict[tuple[object, ...], Process] = field(default_factory=dict)
    records: list[tuple[int, int | None, FlightRecord]] = field(default_factory=list)
    reports: list[tuple[int, RasReport]] = field(default_factory=list)
    texts: dict[tuple[int, int], tuple[int, str]] = field(default_factory=dict)
    """(source, line) -> (order, text) of the lines of dumps"""
    inside: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    stood: bool = False


def picture(log: Compression, sources: Sequence[Source], host_of: Mapping[int, str]) -> Picture | None:
    """What the dumps in a job's log show; None if there are none."""
    read = _read(log, sources, host_of)
    if not read.processes and not read.records and not read.reports:
        return None
    return _Drawing(read, sources, host_of).draw()


# --- reading -----------------------------------------------------------------------------------------------------------------


def _read(log: Compression, sources: Sequence[Source], host_of: Mapping[int, str]) -> _Read:
    read = _Read()
    readers: dict[tuple[int, int | None], DumpReader] = {}
    for count, (order, kept) in enumerate(log.kept.with_dumps()):
        if count >= MOST_LINES:
            break
        start = body_start(kept.text)
        rank = speaker(kept.text)[0] if start else None
        reader = readers.setdefault((kept.source, rank), DumpReader())
        text = kept.text[start:].decode("utf-8", "replace")
        if reader.feed(kept.line, text):
            read.texts[kept.source, kept.line] = order, kept.text[:4000].decode("utf-8", "replace")
            ranges_ = read.inside.setdefault(kept.source, [])
            if ranges_ and kept.line - ranges_[-1][1] <= 1:
                ranges_[-1] = ranges_[-1][0], kept.line
            else:
                ranges_.append((kept.line, kept.line))
    for (source, rank), reader in readers.items():
        origin = sources[source].origin
        of = rank if rank is not None else origin.rank
        node = origin.node or (host_of.get(of) if of is not None else None)
        for dump in reader.dumps.stacks:
            _take(read, source, of, node, dump)
        read.records += [(source, record.rank if record.rank is not None else of, record) for record in reader.dumps.records]
        read.reports += [(source, report) for report in reader.dumps.reports]
    return read


def _take(read: _Read, source: int, rank: int | None, node: str | None, dump: StackDump) -> None:
    thread = dump.main
    place = place_of(thread) if thread is not None else None
    if thread is None or place is None:
        return
    read.stood = read.stood or not dump.crashed
    own = dump.pid if dump.pid is not None else thread.ident
    # A later dump of the same process replaces an earlier one.
    key = (rank, own) if rank is not None else (source, own)
    read.processes[key] = Process(source, rank, node, dump, thread, place)


# --- the picture -------------------------------------------------------------------------------------------------------------


class _Drawing:
    def __init__(self, read: _Read, sources: Sequence[Source], host_of: Mapping[int, str]) -> None:
        self.read, self.sources, self.host_of = read, sources, dict(host_of)
        self.processes = [one for one in read.processes.values() if one.place.kind.name != WORKER] or list(
            read.processes.values()
        )
        self.by_rank = {one.rank: one for one in self.processes if one.rank is not None}
        self.groups = grouped(list(read.processes.values()))
        records = {rank: record for _, rank, record in read.records if rank is not None}
        self.record_of = {rank: (source, record) for source, rank, record in read.records if rank is not None}
        self.standing = standing(records)

    def draw(self) -> Picture:
        for one in self.processes:
            if one.rank is not None and one.node:
                self.host_of.setdefault(one.rank, one.node)
        for ask in (self._by_recorders, self._by_ras, self._by_stacks):
            found = ask()
            if found is not None:
                break
        else:
            found = self._nothing()
        found.inside = self.read.inside
        found.nodes = {**{rank: self.host_of[rank] for rank in found.late if rank in self.host_of}, **found.nodes}
        return found

    def _picture(self, sentence: str, place: tuple[int, int], **more: object) -> Picture:
        return Picture(self.groups, self.standing, sentence, self._event(*place), **more)  # type: ignore[arg-type]

    def _event(self, source: int, line: int) -> Event:
        order, text = self.read.texts.get((source, line), (0, ""))
        return Event(order, source, line, text, -1, body_start(text.encode("utf-8", "replace")))

    # --- flight recorders ----------------------------------------------------------------------------------------------------

    def _by_recorders(self) -> Picture | None:
        if not self.standing:
            return None
        one = self.standing[0]
        late, behind = first_late(self.standing)
        words = f"{_share(one.waiting, one.members)} in {one.name}"
        if one.differing:
            brought = "; ".join(f"{_these(ranks)}: {what}" for what, ranks in list(one.differing.items())[:3])
            fewest = min(one.differing.values(), key=len)
            sentence = f"{words}, but they do not bring the same ({brought})"
            suspects = sorted(fewest) if 2 * len(fewest) < len(one.waiting) else []
            return self._picture(sentence, self._of_record(suspects or one.waiting), late=suspects, stood=True, apart=True)
        if behind and not late:
            sentence = f"{words}; the {'device' if len(behind) == 1 else 'devices'} of {_these(behind, self.host_of)} "
            sentence += "has" if len(behind) == 1 else "have"
            sentence += " not ended what the others have ended"
            more = self._elsewhere(behind)
            sentence += f" ({more})" if more else ""
            return self._picture(sentence, self._of_record(behind), late=behind, stood=True, apart=True, together=True)
        late = sorted({*late, *behind})
        if late:
            elsewhere = self._elsewhere(late)
            sentence = f"{words}; " + (
                elsewhere or f"{_these(late, self.host_of)} {_have(late)} not come to it{self._last(late)}"
            )
            return self._picture(sentence, self._of_record(late), late=late, stood=True, apart=True)
        if one.unseen and len(one.unseen) <= len(one.members) // 2:
            elsewhere = self._elsewhere(one.unseen)
            sentence = f"{words}; " + (elsewhere or f"of {_these(one.unseen, self.host_of)} there is no dump")
            return self._picture(sentence, self._of_record(one.waiting), late=list(one.unseen), stood=True, apart=True)
        sentence = f"{words}, and nobody is known to be elsewhere: what carries it does not go on"
        if one.unseen:
            sentence = f"{words}; of the other {len(one.unseen)} ranks of the group there is no dump"
        return self._picture(sentence, self._of_record(one.waiting), stood=True, together=not one.unseen)

    def _of_record(self, ranks: Sequence[int]) -> tuple[int, int]:
        """The best line for the first of these ranks: of its stack, else of its last collective."""
        rank = ranks[0]
        if rank in self.by_rank and not self.by_rank[rank].place.kind.waits:
            return self.by_rank[rank].source, self.by_rank[rank].line
        source, record = self.record_of.get(rank) or next(iter(self.record_of.values()))
        if record.open:
            return source, record.open[0].line
        return source, record.last.line if record.last is not None else record.line

    def _last(self, late: Sequence[int]) -> str:
        """Where the late ranks started their last collective."""
        if len(late) > _FEW or late[0] not in self.record_of:
            return ""
        last = self.record_of[late[0]][1].last
        own = next((frame for frame in last.frames if not frame.library), None) if last is not None else None
        if last is None or own is None:
            return ""
        return f" (the last of {'it' if len(late) == 1 else f'rank {late[0]}'} is {last.op} #{last.number} in {_place(own)})"

    # --- NCCL's RAS ----------------------------------------------------------------------------------------------------------

    def _by_ras(self) -> Picture | None:
        if not self.read.reports:
            return None
        source, report = self.read.reports[-1]
        nodes = {rank: node for one in report.communicators for rank, node in one.node_of.items()}
        self.host_of = {**nodes, **self.host_of}
        silent = next((one for one in report.communicators if one.missing), None)
        gone = report.dead or report.silent
        if silent is not None or gone:
            return self._unanswered(source, report, silent, gone)
        uneven = next((one for one in report.communicators if one.behind), None)
        if uneven is None:
            return None
        late = uneven.behind
        least, most = min(uneven.launched[rank] for rank in late), max(uneven.counts)
        what = f"{uneven.op} operation" if uneven.op else "operation"
        told = self._elsewhere(late) or f"{_these(late, self.host_of)} {_have(late)} launched up to {what} {least:,}"
        sentence = f"{uneven.counts[most]} ranks of communicator {uneven.name} have launched up to {what} {most:,}; {told}"
        return self._picture(sentence, (source, uneven.line), late=late, stood=True, apart=True)

    def _unanswered(self, source: int, report: RasReport, silent: Communicator | None, gone: list[tuple[int, str]]) -> Picture:
        late = sorted(set(silent.missing)) if silent is not None else []
        node = gone[0][1] if gone else None
        if node is not None and len(late) == 1:
            self.host_of.setdefault(late[0], node)
        verb = "is" if (len(late) or len(gone)) == 1 else "are"
        state = f"{verb} dead" if report.dead else f"{'does' if verb == 'is' else 'do'} not answer"
        who = _these(late, self.host_of) if late else f"process {gone[0][0]} on {gone[0][1]}"
        sentence = f"NCCL's RAS network finds that {who} {state}"
        if late and gone and len(gone) == 1:
            sentence += f" (process {gone[0][0]})"
        elsewhere = self._elsewhere(late)
        sentence += f"; {elsewhere}" if elsewhere else ""
        line = silent.line if silent is not None else report.line
        return self._picture(sentence, (source, line), late=late, stood=True, apart=True)

    # --- stacks ----------------------------------------------------------------------------------------------------------

    def _by_stacks(self) -> Picture | None:
        if not self.processes:
            return None
        groups = [group for group in self.groups if group.place.kind.name != WORKER] or self.groups
        waiting = [group for group in groups if group.place.kind.waits]
        elsewhere = [group for group in groups if not group.place.kind.waits]
        count = len(self.processes)
        many = sum(len(group.processes) for group in waiting)
        stood = self.read.stood
        if count == 1:
            one = self.processes[0]
            return self._picture(_told(one), (one.source, one.line), stood=stood)
        if waiting and elsewhere and 2 * (count - many) <= count:
            few = [process for group in elsewhere for process in group.processes]
            late = sorted({one.rank for one in few if one.rank is not None})
            sentence = f"{many} of {count} {self._sort()} {_waiting(waiting)}; {_they(elsewhere)}"
            first = few[0]
            return self._picture(sentence, (first.source, first.line), late=late, stood=stood, apart=True)
        ops = {group.place.op for group in waiting if group.place.op}
        biggest = groups[0]
        line = biggest.first.source, biggest.first.line
        if waiting and not elsewhere:
            if len(ops) > 1:
                fewest = min((group for group in waiting if group.place.op), key=lambda group: len(group.processes))
                late = fewest.ranks if 2 * len(fewest.processes) < many else []
                sentence = f"all {count} {self._sort()} wait, but not in the same collective: {_they(waiting)}"
                return self._picture(sentence, (fewest.first.source, fewest.first.line), late=late, stood=stood, apart=True)
            missing = self._missing()
            told = f"; of {_these(missing, self.host_of)} there is no dump" if missing else ", and nobody is elsewhere"
            sentence = f"all {count} {self._sort()} {_waiting(waiting)}{told}"
            return self._picture(sentence, line, late=missing, stood=stood, apart=bool(missing), together=not missing)
        sentence = f"{count} {self._sort()}: {_they(groups)}"
        return self._picture(sentence, line, stood=stood)

    def _nothing(self) -> Picture:
        """The picture if all collectives of the recorders have ended, or NCCL's RAS reports nothing wrong."""
        if self.read.records:
            source, _, record = self.read.records[0]
            return self._picture("no collective stands in the dumps of the flight recorder", (source, record.line))
        source, report = self.read.reports[-1]
        return self._picture("NCCL's RAS network objects to nothing", (source, report.line))

    def _sort(self) -> str:
        return "ranks" if len(self.by_rank) == len(self.processes) else "processes"

    def _missing(self) -> list[int]:
        """The few ranks without a dump, if all others have one."""
        if len(self.by_rank) < len(self.processes) or len(self.by_rank) < 2:
            return []
        most = max(max(self.by_rank), max(self.host_of, default=0))
        missing = sorted(set(range(most + 1)) - set(self.by_rank))
        return missing if len(missing) <= min(_FEW, len(self.by_rank) // 2) else []

    def _elsewhere(self, ranks: Sequence[int]) -> str:
        """Where the stacks show these ranks, if they do."""
        known = [self.by_rank[rank] for rank in ranks if rank in self.by_rank]
        if not known or len(known) < len(ranks):
            return ""
        return _they(grouped(known))


def grouped(processes: Sequence[Process]) -> list[StackGroup]:
    """Equal stacks together, the most common first."""
    found: dict[tuple[object, ...], list[Process]] = defaultdict(list)
    for one in processes:
        frames = tuple((frame.function, frame.file.rpartition("/")[2]) for frame in one.thread.frames)
        found[(one.place.kind.name, frames)].append(one)
    groups = [StackGroup(sorted(many, key=_by_rank)) for many in found.values()]
    return sorted(groups, key=lambda group: -len(group.processes))


def _by_rank(one: Process) -> tuple[bool, int, int, int]:
    return one.rank is None, one.rank or 0, one.source, one.dump.line


# --- words -------------------------------------------------------------------------------------------------------------------


def _waiting(groups: Sequence[StackGroup]) -> str:
    """``wait in ALLREDUCE at train.py:88``."""
    ops = sorted({group.place.op for group in groups if group.place.op})
    first = next((group for group in groups if group.place.op), groups[0])
    own = first.place.own
    at = f" at {_place(own)}" if own is not None else ""
    if ops:
        return f"wait in {' or '.join(ops[:3])}{at}"
    words = {"GPU": "wait for the GPU", "store": "wait for the other ranks at the store"}
    return words.get(first.place.kind.name, "wait") + at


def _they(groups: Iterable[StackGroup]) -> str:
    """Who is where."""
    shown = list(groups)
    told = [_of_group(group) for group in shown[:_MOST_LATE_TOLD]]
    if len(shown) > _MOST_LATE_TOLD:
        left = sum(len(group.processes) for group in shown[_MOST_LATE_TOLD:])
        told.append(f"{left} more are elsewhere")
    return ", ".join(told)


def _of_group(group: StackGroup) -> str:
    if len(group.processes) == 1:
        return _told(group.first)
    ranks = group.ranks
    who = f"ranks {in_words(ranks, _STRETCHES)}" if len(ranks) == len(group.processes) else f"{len(group.processes)} processes"
    return f"{who} {_verb(group.place, many=True)}"


def _told(one: Process) -> str:
    end = "; the JVM itself found a deadlock" if one.dump.deadlock else ""
    return f"{one.name} {_verb(one.place, many=False)}{end}"


def _verb(place: Place, *, many: bool) -> str:
    where = place.where[:_WHERE]
    op = f" ({place.op})" if place.op else ""
    words = place.kind.words
    if many:
        for one, more in (("is ", "are "), ("waits ", "wait "), ("compiles ", "compile "), ("sleeps", "sleep"),
                          ("imports ", "import "), ("collects ", "collect ")):  # fmt: skip
            if words.startswith(one):
                words = more + words[len(one) :].replace("its own", "their own")
                break
    return f"{words}{op}" + (f": {where}" if where else "")


def _share(waiting: Sequence[int], members: Sequence[int]) -> str:
    if len(members) == 2 and len(waiting) == 1:
        return f"rank {waiting[0]} waits"
    return f"{len(waiting)} of {len(members)} ranks wait"


def _these(ranks: Sequence[int], host_of: Mapping[int, str] | None = None) -> str:
    if len(ranks) == 1:
        node = (host_of or {}).get(ranks[0])
        return f"rank {ranks[0]}" + (f" ({node})" if node else "")
    return f"ranks {in_words(ranks, _STRETCHES)}"


def _have(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _place(frame: Frame) -> str:
    return f"{frame.file.rpartition('/')[2]}:{frame.line}"


def _frame(frame: Frame) -> str:
    at = f" ({frame.file}:{frame.line})" if frame.line is not None else f" ({frame.file})" if frame.file else ""
    return f"{frame.function}{at}"
