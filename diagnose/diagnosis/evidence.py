"""Kept lines -> events: the lines that diagnosis reads, in order, and not more than ``MOST``.

If there are more kept lines, events are the first and the last, and of the middle the first of each failure rule in each source
with the lines after them. ``Evidence.skipped`` counts the others. The kept lines are read once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from diagnose.compression.kept_log import KeptLog
from diagnose.knowledge.rules import Rule
from diagnose.matching.databases import core
from diagnose.memory import remembered
from diagnose.reading.prefixes import Origin, body_start, origin
from diagnose.reading.sources import Source

MOST = 12_000
_HEAD, _TAIL = 5_000, 3_000
_FIRSTS, _FOLLOWING = 3, 80
"""of each failure rule in each source, after the head: so many lines, each with so many lines after it"""


@dataclass(slots=True, eq=False)
class Event:
    """A kept line, as diagnosis sees it."""

    order: int
    source: int
    line: int
    text: str
    rule: int
    """number of the failure rule; -1 if none; NOTABLE for a metric line that stands out"""
    start: int
    """where the body begins in ``text``"""
    cut: int = 0
    body: str = field(init=False)
    """the message without its prefix"""
    _origin: Origin | None = None

    def __post_init__(self) -> None:
        self.body = self.text[self.start :]

    @property
    def rank(self) -> int | None:
        return self._who().rank

    @property
    def node(self) -> str | None:
        return self._who().node

    @property
    def gpu(self) -> str | None:
        return self._who().gpu

    @property
    def time(self) -> str | None:
        return self._who().time

    def _who(self) -> Origin:
        if self._origin is None:
            self._origin = _origin_of(self.text)
        return self._origin


@remembered
def _origin_of(text: str) -> Origin:
    return origin(text.encode("utf-8", "replace"))


@dataclass(slots=True)
class Evidence:
    """What diagnosis knows of the lines of one job."""

    events: list[Event]
    rules: Sequence[Rule]
    sources: Sequence[Source]
    skipped: int = 0
    _launched: dict[int, int] | None = None

    def by_source(self) -> Iterator[list[Event]]:
        """The events of each source, in order."""
        groups: dict[int, list[Event]] = {}
        for event in self.events:
            groups.setdefault(event.source, []).append(event)
        yield from groups.values()

    def rule(self, event: Event) -> Rule | None:
        return self.rules[event.rule] if event.rule >= 0 else None

    def rank_of(self, event: Event) -> int | None:
        return event.rank if event.rank is not None else self.rank_of_source(event.source)

    def rank_of_source(self, number: int) -> int | None:
        """Whose log it is, by its sender, its name, or the folders that torchrun makes."""
        rank = self.sources[number].origin.rank
        if rank is None and self._launched is None:
            self._launched = _ranks_of_folders(self.events, self.sources)
        return self._launched.get(number) if rank is None and self._launched else rank

    def node_of(self, event: Event) -> str | None:
        return event.node or self.sources[event.source].origin.node


_TORCHRUN = re.compile(r"(?P<run>(?:^|.*/)attempt_\d+)/(?P<local>\d{1,4})/std(?:out|err)\.log$")


_OWN = re.compile(r"\[(?P<who>rank|default)(?P<number>\d+)\]:")


@dataclass(slots=True)
class _Run:
    """What the lines in the folders of one run say: by how much a rank differs from the folder's number -> which folders."""

    most: int = 0
    """the greatest number of a folder"""
    prefixed: dict[int, set[int]] = field(default_factory=dict)
    worded: dict[int, set[int]] = field(default_factory=dict)

    def enter(self, event: Event, local: int) -> None:
        own = _OWN.search(event.text, 0, event.start)
        if own is None and event.rank is not None:
            self.worded.setdefault(event.rank - local, set()).add(local)
        elif own is not None and own["who"] == "rank":  # torchrun's "default" counts on the machine, as its folders do
            self.prefixed.setdefault(int(own["number"]) - local, set()).add(local)

    def apart(self) -> int | None:
        """None if that is in doubt. The words of a line may name another rank than its writer's: two folders have to agree.
        Ranks of a later machine begin behind as many as a machine has; what is nearer is a neighbour that each of them names.
        """
        said = self.prefixed or self.worded
        if len(said) != 1:
            return None
        ((by, folders),) = said.items()
        sure = bool(self.prefixed) or (len(folders) > 1 and (by == 0 or by > self.most))
        return by if sure and by >= 0 else None


def _ranks_of_folders(events: Sequence[Event], sources: Sequence[Source]) -> dict[int, int]:
    """source -> rank, in the folders of ``torchrun --log-dir``. They have numbers on their machine: it takes lines with a rank
    to know by how much the ranks of a run differ from those, and without such lines nobody is numbered.
    """
    found = {number: match for number, source in enumerate(sources) if (match := _TORCHRUN.fullmatch(source.name))}
    runs: dict[str, _Run] = {}
    for match in found.values():
        run = runs.setdefault(match["run"], _Run())
        run.most = max(run.most, int(match["local"]))
    for event in events:
        if (of := found.get(event.source)) is not None:
            runs[of["run"]].enter(event, int(of["local"]))
    apart = {name: by for name, run in runs.items() if (by := run.apart()) is not None}
    return {number: int(match["local"]) + apart[match["run"]] for number, match in found.items() if match["run"] in apart}


def gather(kept: KeptLog, rules: Sequence[Rule], sources: Sequence[Source]) -> Evidence:
    """The events among the kept lines."""
    count = kept.lines
    if count <= MOST:
        return Evidence([_event(order, *row) for order, row in enumerate(kept.rows())], rules, sources)
    seen: Counter[tuple[int, int]] = Counter()
    room = MOST - _HEAD - _TAIL
    following = 0

    def choose(order: int, source: int, rule: int) -> bool:
        nonlocal room, following
        if order < _HEAD or order >= count - _TAIL:
            return True
        if rule != -1 and room > 0:
            key = source, rule
            seen[key] += 1
            if seen[key] <= _FIRSTS:
                following = _FOLLOWING
        if not following or not room:
            return False
        following -= 1
        room -= 1
        return True

    def among(first: int, end: int) -> bool:
        return room > 0 or first < _HEAD or end > count - _TAIL

    events = [_event(order, *line) for order, line in kept.chosen(choose, among)]
    return Evidence(events, rules, sources, count - len(events))


_LONGEST = 4000
_body_start: Callable[[bytes], int] = core.body_start if core is not None else body_start


def _event(order: int, source: int, line: int, text: bytes, rule: int, cut: int) -> Event:
    if len(text) > _LONGEST:
        cut += len(text) - _LONGEST
        text = text[:_LONGEST]
    return Event(order, source, line, text.decode("utf-8", "replace"), rule, _body_start(text), cut)


_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|[0-9]+")
_PATH = re.compile(r"(?:[A-Za-z]:)?(?:/[\w.+@=-]+)+/?")
_HOST = re.compile(r"\b[a-z][\w-]{0,100}\d[\w-]*(?:\.[\w-]+)*\b|\b\d+(?:\.\d+){3}\b")


@remembered
def normal(text: str) -> str:
    """``text`` without what changes from run to run: folders of paths, numbers, hosts."""
    done = core.normal(text) if core is not None else None
    return done if done is not None else normal_by_patterns(text)


def normal_by_patterns(text: str) -> str:
    """The same as ``normal``. The native core is faster, and reads ASCII only."""
    text = _PATH.sub(lambda found: "/" + found[0].rstrip("/").rpartition("/")[2], text)
    return " ".join(_NUMBER.sub("#", _HOST.sub("#", text)).split())
