"""What NCCL's RAS network says of a job's communicators, as ``ncclras`` prints it.

``RasReader`` reads the text, ``lines`` writes the JSON of ``ncclras -f json`` as that text. Messages as in
src/ras/client_support.cc of NCCL 2.24 to 2.31.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

MOST_RANKS: Final = 100_000
_PATIENCE = 12

_BEGIN = re.compile(r"Communicators\.\.\. ?(?:\(|obtained|$)|RAS Monitor Mode|NCCL RAS (?:report|status)")
_SECTION = re.compile(r"(?P<id>#\d+-\d+) \([0-9a-fA-F]+\) (?P<what>[A-Z]+)\s*$")
_OF_JOB = re.compile(r"(?P<what>INCOMPLETE|DEAD|TIMEOUT)\s*$")
_DIFFERENT = re.compile(
    r"\s+Communicator ranks have different (?:(?P<op>\w+) operation counts|collective operation counts|status)"
)
_MANY = re.compile(
    r"\s+(?P<count>\d+) ranks have (?:launched up to operation (?P<number>\d+)|(?P<none>not launched any operations))"
)
_ONE = re.compile(
    r"\s+Rank (?P<rank>\d+) has (?:launched up to operation (?P<number>\d+)|(?P<none>not launched any operations))"
    r"(?: -- (?P<who>.*))?"
)
_MEMBER = re.compile(r"\s+Rank (?P<rank>\d+) -- (?P<who>.*)")
_MISSING = re.compile(r"\s+The missing ranks?: (?P<ranks>[\d, -]+)")
_WHO = re.compile(r"GPUs? (?P<gpu>[\d,]+) managed by process (?P<pid>\d+) on node (?P<node>[^\s\"]{1,120})")
_PROCESS = re.compile(r"\s+Process (?P<pid>\d+) on node (?P<node>[^\s\"]{1,120}) managing GPUs? (?P<gpu>[\d,]+)")
_EVENT = re.compile(
    r".{0,40}\b(?P<what>PEER_DEAD|PEER_DISCONNECTED): Process (?P<pid>\d+) on node (?P<node>\S{1,120}) managing"
)
_PART = re.compile(r"\s{1,8}\S|Errors$|Warnings$|={3,}$|Group +Comms|-{3,}$")


class NoReport(ValueError):
    """The data do not come from RAS."""


@dataclass(slots=True)
class Communicator:
    """What RAS reports about one communicator. Ranks are those of the communicator."""

    name: str
    what: str
    """INCOMPLETE, MISMATCH, ERROR"""
    line: int
    op: str = ""
    missing: list[int] = field(default_factory=list)
    """ranks that do not answer"""
    launched: dict[int, int] = field(default_factory=dict)
    """rank -> the last operation that it launched, if RAS names the rank"""
    counts: dict[int, int] = field(default_factory=dict)
    """operation -> how many ranks launched up to it"""
    node_of: dict[int, str] = field(default_factory=dict)

    @property
    def behind(self) -> list[int]:
        """The ranks that launched fewer operations than the others, if they are the minority."""
        if not self.counts:
            return []
        furthest = max(self.counts)
        named = [rank for rank, number in self.launched.items() if number < furthest]
        return sorted(named) if 2 * len(named) <= sum(self.counts.values()) else []


@dataclass(slots=True)
class RasReport:
    """One answer of RAS."""

    line: int
    communicators: list[Communicator] = field(default_factory=list)
    silent: list[tuple[int, str]] = field(default_factory=list)
    """(pid, node) of processes that do not answer"""
    dead: list[tuple[int, str]] = field(default_factory=list)


class RasReader:
    """Takes the lines of one stream in order."""

    def __init__(self) -> None:
        self.reports: list[RasReport] = []
        self._report: RasReport | None = None
        self._of: Communicator | None = None
        self._what = ""
        self._number: int | None = None
        self._foreign = 0

    def feed(self, line: int, text: str) -> bool:
        """Whether the line belongs to what RAS says."""
        text = text[:4_000].rstrip()
        if _BEGIN.match(text):
            self._begin(line)
            return True
        if (found := _EVENT.match(text)) is not None:
            report = self._report or self._begin(line)
            (report.dead if found["what"] == "PEER_DEAD" else report.silent).append((int(found["pid"][:9]), found["node"]))
            return True
        if (found := _SECTION.match(text)) is not None:
            report = self._report or self._begin(line)
            self._of, self._what, self._number, self._foreign = Communicator(found["id"], found["what"], line), "", None, 0
            if len(report.communicators) < MOST_RANKS:
                report.communicators.append(self._of)
            return True
        if self._report is None:
            return False
        return self._part(self._report, text)

    def _begin(self, line: int) -> RasReport:
        self._report = RasReport(line)
        self._of, self._what, self._number, self._foreign = None, "", None, 0
        self.reports.append(self._report)
        return self._report

    def _part(self, report: RasReport, text: str) -> bool:
        if not text.strip():
            return False
        if not _PART.match(text) and not _OF_JOB.match(text):
            self._foreign += 1
            if self._foreign > _PATIENCE:
                self._report = self._of = None
            return False
        self._foreign = 0
        if (found := _OF_JOB.match(text)) is not None:
            self._of, self._what = None, found["what"]
        elif (found := _PROCESS.match(text)) is not None:
            (report.dead if self._what == "DEAD" else report.silent).append((int(found["pid"][:9]), found["node"]))
        elif self._of is not None:
            self._of_communicator(self._of, text)
        return True

    def _of_communicator(self, of: Communicator, text: str) -> None:
        if (found := _DIFFERENT.match(text)) is not None:
            if of.counts:
                return  # counts of a second kind of operation: the first kind is reported
            of.op, self._number = found["op"] or "", None
        elif (found := _MANY.match(text)) is not None:
            self._number = 0 if found["none"] else int(found["number"][:18])
            of.counts[self._number] = of.counts.get(self._number, 0) + min(int(found["count"][:7]), MOST_RANKS)
        elif (found := _ONE.match(text)) is not None:
            number = 0 if found["none"] else int(found["number"][:18])
            of.counts[number] = of.counts.get(number, 0) + 1
            self._member(of, int(found["rank"][:7]), found["who"] or "", number)
        elif (found := _MEMBER.match(text)) is not None:
            self._member(of, int(found["rank"][:7]), found["who"], self._number)
        elif (found := _MISSING.match(text)) is not None:
            of.missing += [int(rank) for rank in re.findall(r"\d{1,7}", found["ranks"])][:MOST_RANKS]

    def _member(self, of: Communicator, rank: int, who: str, number: int | None) -> None:
        if len(of.node_of) + len(of.missing) > MOST_RANKS:
            return
        if (found := _WHO.match(who)) is not None:
            of.node_of[rank] = found["node"]
        if of.what == "INCOMPLETE":
            of.missing.append(rank)
        elif number is not None:
            of.launched[rank] = number


# --- JSON -> the same text ---------------------------------------------------------------------------------------------------


def lines(value: Any) -> Iterator[str]:
    """What ``ncclras`` would have printed of it, if it reports a problem."""
    communicators = value.get("communicators") if isinstance(value, dict) else None
    if not isinstance(communicators, list):
        raise NoReport("this holds no communicators")
    yield "Communicators... (ncclras -f json)"
    for number, one in enumerate(communicators):
        if isinstance(one, dict):
            yield from _communicator(number, one)


def _communicator(number: int, one: dict[str, Any]) -> Iterator[str]:
    digits = re.sub(r"[^0-9a-fA-F]", "", str(one.get("hash", "")).removeprefix("0x"))[:16] or "0"
    missing = [rank for rank in _list(one.get("missing_ranks")) if isinstance(rank.get("rank"), int)]
    if missing:
        yield f"#{number}-0 ({digits}) INCOMPLETE"
        yield f"  Missing communicator data from {len(missing)} ranks"
        for rank in missing:
            yield f"  Rank {rank['rank']} -- {_who(rank)}"
    counts: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for rank in _list(one.get("ranks")):
        found = rank.get("collective_counts")
        if isinstance(rank.get("rank"), int) and isinstance(found, dict):
            for op, count in list(found.items())[:32]:
                if isinstance(count, int):
                    counts[re.sub(r"\W", "", str(op))[:40]][count].append(rank)
    for op, groups in counts.items():
        if len(groups) > 1:
            yield f"#{number}-0 ({digits}) MISMATCH"
            yield f"  Communicator ranks have different {op} operation counts"
            for count, ranks in sorted(groups.items(), key=lambda row: -len(row[1])):
                yield f"  {len(ranks)} ranks have launched up to operation {count}"
                if 2 * len(ranks) < sum(map(len, groups.values())):
                    for rank in ranks:
                        yield f"  Rank {rank['rank']} -- {_who(rank)}"


def _list(value: Any) -> list[dict[str, Any]]:
    return [one for one in value[:MOST_RANKS] if isinstance(one, dict)] if isinstance(value, list) else []


def _who(rank: dict[str, Any]) -> str:
    host = re.sub(r"[^\w.:-]", "?", str(rank.get("host", "?")))[:120]
    return f"GPU {_plain(rank.get('cuda_dev'))} managed by process {_plain(rank.get('pid'))} on node {host}"


def _plain(value: Any) -> int:
    return value if isinstance(value, int) else 0
