"""Events -> who is who: rank, node, GPU.

The kept lines say it: summaries of launchers, messages of Slurm and NCCL, and any line that says which rank ran on which host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from diagnose.diagnosis.evidence import Event

_RANGES = re.compile(r"(?P<stem>[A-Za-z][\w.-]*?)\[(?P<ranges>[\d,-]+)\](?P<tail>[\w.-]*)|(?P<plain>[A-Za-z0-9][\w.-]*)")
_MOST_NODES = 4096
_MOST_ENDED = 4096


def expand(nodes: str) -> list[str]:
    """The nodes of a Slurm list: ``gpu-[01-03,07],login1``."""
    found: list[str] = []
    for match in _RANGES.finditer(nodes):
        if match["plain"]:
            found.append(match["plain"])
            continue
        for part in match["ranges"].split(","):
            first, _, last = part.partition("-")
            if not first.isdecimal() or (last and not last.isdecimal()):
                continue
            for number in range(int(first), min(int(last or first), int(first) + _MOST_NODES) + 1):
                found.append(f"{match['stem']}{number:0{len(first)}d}{match['tail']}")
        if len(found) > _MOST_NODES:
            break
    return found[:_MOST_NODES]


def numbers(text: str) -> list[int]:
    """The numbers in ``3,5-7``."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            found += range(int(first), min(int(last or first), int(first) + _MOST_ENDED) + 1)
    return found


@dataclass(frozen=True, slots=True)
class Ended:
    """What a launcher says of the end of one of its processes."""

    line: int
    source: int
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    exitcode: int | None = None
    how: str = ""
    """in the launcher's words"""
    first: bool = False
    """it stands under "Root Cause (first observed failure)"
    """


def stopped(end: Ended) -> bool:
    """Whether it was told to stop: by SIGHUP, SIGINT or SIGTERM."""
    return end.exitcode in (-1, -2, -15, 130, 143)


@dataclass(slots=True)
class Topology:
    """Who ran where, and who was said to have failed."""

    host_of: dict[int, str] = field(default_factory=dict)
    """rank -> host"""
    ended: list[Ended] = field(default_factory=list)
    described_node: str | None = None
    """the node of the pod that kubectl describes"""
    gpu_of: dict[int, str] = field(default_factory=dict)
    """rank -> PCI address, as 0000:8a:00"""

    def rank_of(self, host: str, pci: str) -> int | None:
        """The rank that runs on the GPU at a PCI address of a host."""
        address = plain_pci(pci)
        return next((rank for rank, gpu in self.gpu_of.items() if gpu == address and self.host_of.get(rank) == host), None)


def plain_pci(address: str) -> str:
    """A PCI address as domain:bus:device in small letters. Logs write it with and without domain and function."""
    text = address.lower().removeprefix("pci:").split(".")[0]
    parts = text.split(":")
    return ":".join(["0000" if len(parts) < 3 else parts[-3][-4:].rjust(4, "0"), *parts[-2:]])


_NCCL_WHO = re.compile(
    rb"(?<![\w.-])(?P<host>[\w.-]++):\d+:\d+ \[\d+\] NCCL INFO "
    rb".{0,300} rank (?P<rank>\d+) n[rR]anks (?P<size>\d+) .{0,300}busId (?P<bus>[0-9a-fA-F]+) "
)


_DEEPSPEED_WHO = re.compile(rb"'(?P<host>[\w.-]+)': \[(?P<ranks>[\d, ]*)\]")


def learn(topology: Topology, facts: Iterable[bytes]) -> None:
    """Add what NCCL says of its communicators, and DeepSpeed's launcher of its hosts.

    The largest communicator is the whole job, so its ranks are the job's.
    """
    largest = 0
    for text in facts:
        if b"global_rank_mapping=" in text:
            for entry in _DEEPSPEED_WHO.finditer(text):
                host = entry["host"].decode()
                topology.host_of.update(dict.fromkeys(numbers(entry["ranks"].decode()), host))
            continue
        found = _NCCL_WHO.search(text)
        if found is None or int(found["size"]) < largest:
            continue
        if int(found["size"]) > largest:
            largest = int(found["size"])
            topology.gpu_of.clear()
        rank, bus = int(found["rank"]), int(found["bus"], 16)
        topology.host_of[rank] = found["host"].decode()
        topology.gpu_of[rank] = f"{bus >> 20:04x}:{bus >> 12 & 0xFF:02x}:{bus >> 4 & 0xFF:02x}"


_ELASTIC_FIELD = re.compile(r"^ *(?P<key>host|rank|exitcode) *: (?P<value>.*)")
_ELASTIC_RANK = re.compile(r"(\d+) \(local_rank: (\d+)\)")
_ELASTIC_EXIT = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
_CODE = re.compile(r"-?\d{1,9}\b")
_SRUN = re.compile(r"srun: error: (?P<node>\S+?): tasks? (?P<tasks>[\d,-]+): (?P<how>.*)")
_CHILD = re.compile(r"\[rank: (\d+)\] Child process with PID \d+ terminated with code (-?\d+)")
_DESCRIBED = re.compile(r"^Node: +([A-Za-z][\w.-]*\d[\w.-]*)")
_RANK_HOST = re.compile(r"\brank[ =:]+(?P<rank>\d+)\b.{0,40}\bhost(?:name)?[ =:]+(?P<host>[\w.-]+)")


def read(events: Iterable[Event]) -> Topology:
    """What the events say of who is who."""
    reader = _Reader()
    for event in events:
        reader.take(event)
    return reader.topology


class _Reader:
    """The topology so far, and the entry of torchrun's summary that is being read: it takes several lines."""

    def __init__(self) -> None:
        self.topology = Topology()
        self._host: str | None = None
        self._rank: tuple[int, int] | None = None
        self._first = False

    def take(self, event: Event) -> None:
        body = event.body
        if "Root Cause (first observed" in body:
            self._first = True
        if (found := _ELASTIC_FIELD.match(body)) is not None:
            self._elastic(event, found["key"], found["value"].strip())
        elif "exitcode" in body and (found := _ELASTIC_EXIT.search(body)) is not None:
            self._ended(Ended(event.line, event.source, None, int(found[2]), None, int(found[1])))
        elif "Child process" in body and (found := _CHILD.search(body)) is not None:
            self._ended(Ended(event.line, event.source, int(found[1]), exitcode=int(found[2]), first=True))
        elif "srun: error" in body and (found := _SRUN.search(body)) is not None:
            self._slurm(event, expand(found["node"]), numbers(found["tasks"]), found["how"])
        elif body.startswith("Node:") and (found := _DESCRIBED.match(body)) is not None:
            self.topology.described_node = found[1]
        elif "host" in body and (found := _RANK_HOST.search(body)) is not None:
            self.topology.host_of.setdefault(int(found["rank"]), found["host"])

    def _elastic(self, event: Event, key: str, value: str) -> None:
        """A field of torchrun's summary. The exit code is the last that is read of an entry."""
        if key == "host":
            self._host = value
        elif key == "rank" and (ranks := _ELASTIC_RANK.match(value)):
            self._rank = (int(ranks[1]), int(ranks[2]))
            if self._host:
                self.topology.host_of[self._rank[0]] = self._host
        elif key == "exitcode" and self._rank is not None:
            code = _CODE.match(value)
            exitcode = int(code[0]) if code is not None else None
            self._ended(Ended(event.line, event.source, *self._rank, self._host, exitcode, first=self._first))
            self._host, self._rank, self._first = None, None, False

    def _slurm(self, event: Event, nodes: list[str], tasks: list[int], how: str) -> None:
        """Tasks that ``srun`` gives up. Which of several nodes a task ran on is not said."""
        if len(self.topology.ended) >= _MOST_ENDED:
            return
        host = nodes[0] if len(nodes) == 1 else None
        for task in tasks:
            if host is not None:
                self.topology.host_of.setdefault(task, host)
            self._ended(Ended(event.line, event.source, task, host=host, how=how))

    def _ended(self, end: Ended) -> None:
        self.topology.ended.append(end)
