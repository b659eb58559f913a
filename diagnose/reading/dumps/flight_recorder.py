"""PyTorch's flight recorder: which collectives each rank has put on its queues, and which of them have not ended.

``of_data`` reads a dump. ``lines`` writes the essential part of it as a few lines, which the log of a job keeps.
``FlightReader`` reads those lines back. The fields are those of torch/csrc/distributed/c10d/FlightRecorder.hpp, versions 2.0 to
2.10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from diagnose.reading.dumps.stacks import Frame

MOST_OPEN: Final = 100
"""collectives of one rank that are reported: the first that have not ended"""
MOST_ENTRIES: Final = 200_000
MOST_GROUPS: Final = 2_000
MOST_RANKS: Final = 100_000
_FRAMES = 8
_WORD = 120
_SIZES = 160


class NoRecord(ValueError):
    """The data are not a flight recorder's."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective, or one message between two ranks, as a rank has it on its queue."""

    group: str
    number: int
    op: str
    sizes: str
    """of the inputs and the outputs, with their types"""
    state: str
    p2p: bool = False
    frames: tuple[Frame, ...] = ()
    line: int = 0

    @property
    def ended(self) -> bool:
        return self.state == "completed"


@dataclass(slots=True)
class Group:
    """A process group, as a rank knows it."""

    name: str
    description: str
    ranks: tuple[int, ...]
    """the members; empty if the dump does not say"""
    recorded: int | None = None
    """the last collective that the rank has put on its queue"""
    completed: int | None = None


@dataclass(slots=True)
class FlightRecord:
    """The dump of one rank."""

    rank: int | None
    version: str
    groups: dict[str, Group] = field(default_factory=dict)
    open: list[Collective] = field(default_factory=list)
    """not ended, in the order in which they were put on the queues"""
    last: Collective | None = None
    """the last of all that were recorded"""
    line: int = 0


# --- data -> record ----------------------------------------------------------------------------------------------------------


def of_data(data: Any, rank: int | None) -> FlightRecord:
    """The record in the data of a dump."""
    if not isinstance(data, dict) or not isinstance(data.get("entries", data.get("pg_config")), (list, dict)):
        raise NoRecord("this holds no entries of a flight recorder")
    record = FlightRecord(rank, _word(data.get("version", "")))
    for name, config in list(_items(data.get("pg_config")))[:MOST_GROUPS]:
        if isinstance(config, dict):
            word = _word(config.get("name", name))
            record.groups[word] = Group(word, _word(config.get("desc", "")), _ranks(config.get("ranks")))
    status = {str(number): one for number, one in _items(data.get("pg_status")) if isinstance(one, dict)}
    entries = data.get("entries")
    for entry in list(entries[-MOST_ENTRIES:]) if isinstance(entries, list) else []:
        if isinstance(entry, dict):
            _take(record, entry, status)
    record.open = [one for one in record.open if _stands_open(record, one)]
    record.open.sort(key=lambda one: one.line)
    del record.open[MOST_OPEN:]
    return record


def _take(record: FlightRecord, entry: Mapping[str, Any], status: Mapping[str, Mapping[str, Any]]) -> None:
    named = entry.get("process_group")
    name, description = (_word(part) for part in named) if _is_pair(named) else (_word(named or ""), "")
    group = _group(record, name, description)
    p2p = entry.get("is_p2p") is True
    number = _number(entry.get("p2p_seq_id" if p2p else "collective_seq_id", entry.get("seq_id")))
    if number is None:
        return
    state = _word(entry.get("state", ""))
    frames = entry.get("frames")
    one = Collective(
        group=name,
        number=number,
        op=_word(entry.get("profiling_name", "")),
        sizes=_sizes(entry),
        state=state,
        p2p=p2p,
        frames=tuple(_frames(frames[:64])) if isinstance(frames, list) else (),
        line=_number(entry.get("record_id", entry.get("id"))) or 0,
    )
    if not p2p:
        known = status.get(str(entry.get("pg_id")), {})
        group.recorded = _most(group.recorded, number, _number(known.get("last_enqueued_collective")))
        group.completed = _most(group.completed, number if one.ended else None, _number(known.get("last_completed_collective")))
    if record.last is None or one.line >= record.last.line:
        record.last = one
    if not one.ended and len(record.open) < MOST_ENTRIES:
        record.open.append(one)


def _most(*numbers: int | None) -> int | None:
    """The greatest that is known; -1 stands for none."""
    return max((number for number in numbers if number is not None and number >= 0), default=None)


def _stands_open(record: FlightRecord, one: Collective) -> bool:
    """Whether it has not ended. The group is asked too, because some back ends never mark their entries."""
    completed = record.groups[one.group].completed
    return one.p2p or completed is None or one.number > completed


def _group(record: FlightRecord, name: str, description: str) -> Group:
    if name not in record.groups:
        # A back end that was not told its name stores the members of its group without a name.
        nameless = record.groups.get("")
        ranks = nameless.ranks if nameless is not None else ()
        record.groups[name] = Group(name, description, ranks)
    return record.groups[name]


def _frames(frames: Sequence[Any]) -> Iterator[Frame]:
    for frame in frames:
        if isinstance(frame, dict):
            file = _word(frame.get("filename", "")).replace("(", "[").replace(")", "]")
            yield Frame(_word(frame.get("name", "")), file, _number(frame.get("line")))


def _sizes(entry: Mapping[str, Any]) -> str:
    sides = []
    for side in ("input", "output"):
        sizes, types = entry.get(f"{side}_sizes"), entry.get(f"{side}_dtypes")
        shown = _word(str(sizes), _SIZES) if isinstance(sizes, (list, tuple)) and len(sizes) <= 64 else "?"
        kinds = sorted({_word(kind, 20) for kind in types[:64]}) if isinstance(types, (list, tuple)) else []
        sides.append(f"{shown} {'/'.join(kinds)}".strip())
    return " -> ".join(sides)


def _ranks(ranks: Any) -> tuple[int, ...]:
    """The members of a group: a list, or one in words."""
    if isinstance(ranks, str):
        numbers = [int(number) for number in re.findall(r"\d{1,7}", ranks[: 8 * MOST_RANKS])]
    elif isinstance(ranks, (list, tuple)):
        numbers = [rank for rank in ranks if isinstance(rank, int)]
    else:
        numbers = []
    return tuple(numbers[:MOST_RANKS])


def _items(value: Any) -> Any:
    return value.items() if isinstance(value, dict) else ()


def _is_pair(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, (list, tuple)) and len(value) == 2


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None


def _word(value: Any, most: int = _WORD) -> str:
    """Foreign text, made safe to stand between quotes in a line."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, (int, float, tuple, list)) else ""
    return re.sub(r"[^ -~]|[\"\\]", "?", text[: 4 * most])[:most].strip()


# --- record -> lines -> record -----------------------------------------------------------------------------------------------

_HEAD = re.compile(r"PyTorch flight recorder of (?:rank=(?P<rank>\d{1,7})|an unknown rank), version (?P<version>\S*)")
_GROUP = re.compile(
    r"  group \"(?P<name>[^\"]*)\" \((?P<description>.*)\) of ranks (?P<ranks>[\d, -]*): "
    r"recorded up to #(?P<recorded>-?\d+|none), completed up to #(?P<completed>-?\d+|none)$"
)
_COLLECTIVE = re.compile(
    r"  (?P<kind>collective|message|last recorded|last message) #(?P<number>-?\d+) in group \"(?P<group>[^\"]*)\": "
    r"(?P<op>.*?) \| (?P<sizes>.*) \| (?P<state>.*)$"
)
_FRAME = re.compile(r"    (?P<function>.*) \((?P<file>[^()]*):(?P<line>\d+|\?)\)$")


def lines(record: FlightRecord) -> Iterator[str]:
    """What the log keeps of it."""
    of = f"rank={record.rank}" if record.rank is not None else "an unknown rank"
    yield f"PyTorch flight recorder of {of}, version {record.version.replace(' ', '_')}"
    told = {one.group for one in record.open} | ({record.last.group} if record.last is not None else set())
    for group in record.groups.values():
        if group.name in told or group.recorded is not None or not record.open:
            ends = ("none" if number is None else number for number in (group.recorded, group.completed))
            recorded, completed = ends
            yield (
                f'  group "{group.name}" ({group.description}) of ranks {in_words(group.ranks)}: recorded up to #{recorded}, '
                f"completed up to #{completed}"
            )
    for one in record.open:
        yield from _told("message" if one.p2p else "collective", one)
    if record.last is not None:
        yield from _told("last message" if record.last.p2p else "last recorded", record.last)


def _told(kind: str, one: Collective) -> Iterator[str]:
    yield f'  {kind} #{one.number} in group "{one.group}": {one.op} | {one.sizes} | {one.state}'
    for frame in one.frames[:_FRAMES]:
        yield f"    {frame.function} ({frame.file}:{frame.line if frame.line is not None else '?'})"


def in_words(ranks: Sequence[int], most: int | None = None) -> str:
    """``0-3, 7``; all of them, or the first ``most`` stretches."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:most]]
    return ", ".join(shown) + ("…" if len(shown) < len(runs) else "")


class FlightReader:
    """Takes the lines of one stream in order."""

    def __init__(self) -> None:
        self.records: list[FlightRecord] = []
        self._record: FlightRecord | None = None
        self._frames_of: tuple[str, Collective] | None = None

    def feed(self, line: int, text: str) -> bool:
        """Whether the line belongs to a recorder's dump."""
        if (found := _HEAD.match(text)) is not None:
            rank = int(found["rank"]) if found["rank"] else None
            self._record = FlightRecord(rank, found["version"], line=line)
            self._frames_of = None
            self.records.append(self._record)
            return True
        return self._record is not None and text.startswith("  ") and self._part(self._record, line, text)

    def _part(self, record: FlightRecord, line: int, text: str) -> bool:
        if (found := _GROUP.match(text)) is not None:
            group = Group(found["name"], found["description"], tuple(_of_words(found["ranks"])))
            group.recorded, group.completed = (
                None if found[end] == "none" else int(found[end]) for end in ("recorded", "completed")
            )
            if len(record.groups) < MOST_GROUPS:
                record.groups[group.name] = group
            return True
        if (found := _COLLECTIVE.match(text)) is not None:
            p2p = "message" in found["kind"]
            one = Collective(found["group"], int(found["number"]), found["op"], found["sizes"], found["state"], p2p, (), line)
            self._set(record, found["kind"], one)
            return True
        if self._frames_of is not None and (found := _FRAME.match(text)) is not None:
            kind, one = self._frames_of
            frame = Frame(found["function"], found["file"], None if found["line"] == "?" else int(found["line"][:9]))
            more = Collective(
                one.group, one.number, one.op, one.sizes, one.state, one.p2p, (*one.frames[:_FRAMES], frame), one.line
            )
            self._set(record, kind, more, again=True)
            return True
        return False

    def _set(self, record: FlightRecord, kind: str, one: Collective, *, again: bool = False) -> None:
        self._frames_of = kind, one
        if kind.startswith("last"):
            record.last = one
        elif again:
            record.open[-1] = one
        elif len(record.open) < MOST_OPEN:
            record.open.append(one)
        else:
            self._frames_of = None


def _of_words(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            begin, end = int(first[:7]), int((last or first)[:7])
            yield from range(begin, min(end, begin + MOST_RANKS) + 1)
