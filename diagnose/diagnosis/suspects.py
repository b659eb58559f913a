"""Root cause -> whom it concerns: ranks, nodes and GPUs of its line, of lines that say the same, and those that others waited
for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from diagnose.diagnosis.evidence import Evidence
from diagnose.diagnosis.hypotheses import Hypothesis, captures
from diagnose.diagnosis.ring import between
from diagnose.diagnosis.topology import Ended, Topology, expand, numbers, stopped
from diagnose.knowledge.taxonomy import shipped_taxonomy

_FEW = 8
"""more ranks than this are everybody"""
_MOST_NAMED = 2048
_AROUND = 2
"""lines before and after a fault that may still belong to its message"""
_ENDED_BY = {"host_out_of_memory": ("Out Of Memory", "Killed"), "native_crash": ("Segmentation fault", "Aborted", "Bus error")}
_ENQUEUED = re.compile(r"last enqueued (?:NCCL )?work: (\d+)")
_PCI = re.compile(
    r"\b(?:[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?|[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])(?![\w:])"
)
_GPU = re.compile(r"\b(?:GPU|gpu|device|Device|NPU)[ #:_]?(\d{1,3}|node-\d+)\b")
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
_NODE_SAID = re.compile(r"\bnode/([A-Za-z0-9][\w.-]*)|\bnode \(IP: ([\w.:-]+)|\bnode with (?:IP|ip) ([\w.:-]+)")
_TASK_SAID = re.compile(r"/task:(\d+)")
_LOOP_BACK = re.compile(r"127\.\d+\.\d+\.\d+|::1$|localhost\b|0\.0\.0\.0")
"""such a name means the speaker itself, not a node that others know"""
_PORT = re.compile(r"[<:]\d+>?$")


@dataclass(slots=True)
class Suspects:
    """Who is to be looked at."""

    nodes: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    """nodes that the lines of the fault itself name, or on which they were printed; not those from lines nearby"""
    witness_nodes: list[str] = field(default_factory=list)
    """nodes of those that only waited for somebody else"""
    witness_ranks: list[int] = field(default_factory=list)

    def fill(self, other: Suspects) -> None:
        """Take from ``other`` what is not known yet."""
        self.nodes = self.nodes or other.nodes
        self.ranks = self.ranks or other.ranks
        self.gpus = self.gpus or other.gpus

    def sort(self) -> None:
        """Remove doubles: nodes and GPUs in the order found, ranks sorted."""
        self.nodes = list(dict.fromkeys(self.nodes))
        self.ranks = sorted(set(self.ranks))
        self.gpus = list(dict.fromkeys(self.gpus))
        self.witness_nodes = [node for node in dict.fromkeys(self.witness_nodes) if node not in self.nodes]
        self.witness_ranks = sorted(set(self.witness_ranks) - set(self.ranks))


def suspects(
    root: Hypothesis, same: Sequence[Hypothesis], faults: Sequence[Hypothesis], evidence: Evidence, topology: Topology
) -> Suspects:
    """Who is to be looked at for ``root``. ``same`` are the faults that say the very same, ``faults`` are all."""
    taxonomy = shipped_taxonomy()
    depth = {layer: number for number, layer in enumerate(taxonomy.layers)}
    alike = [fault for fault in faults if fault.reason == root.reason and not fault.recovered]
    if root.symptom and (taxonomy.has(root.reason, "witness") or _tells_of_a_peer(root)):
        return _waited_for(root, alike, faults, evidence, topology)
    found = named(same, evidence, depth)
    if not found.nodes:
        found.nodes = _said_to_be([root, *same])
    found.nodes = [node for node in found.nodes if not _LOOP_BACK.match(node)]
    found.fill(named(alike, evidence, depth))
    if not found.ranks:
        ended = _ended(root, topology)
        found.ranks = [rank for end in ended if (rank := end.rank if end.rank is not None else end.local_rank) is not None]
        found.nodes = found.nodes or [end.host for end in ended if end.host]
    found.sort()
    if taxonomy.category_of.get(root.reason) == "infrastructure":
        _mapped(found, topology)
    if taxonomy.has(root.reason, "course"):
        # The ranks that reported it are not the cause, save one that was told to stop before its launcher told the others.
        found.ranks = _first_to_be_stopped(root, faults, topology)
    if not found.nodes and root.layer <= depth["scheduler"] and topology.described_node:
        found.nodes = [topology.described_node]
    own = [node for node in found.nodes if not _ADDRESS.fullmatch(node) or root.layer != depth["network"]]
    _around(found, [root, *alike[:4]], evidence, root.layer, depth)
    found.nodes = [node for node in found.nodes if not _LOOP_BACK.match(node)]
    found.sort()
    found.own = [node for node in found.nodes if node in own]
    return found


def _tells_of_a_peer(root: Hypothesis) -> bool:
    """Whether the line tells that the other side of a connection went: whoever prints it has outlived the other."""
    return root.rule is not None and any(f"(?P<{name}>" in root.rule.pattern for name in ("host", "peer"))


def _waited_for(
    root: Hypothesis, alike: Sequence[Hypothesis], faults: Sequence[Hypothesis], evidence: Evidence, topology: Topology
) -> Suspects:
    """Whom those who tell of a failure waited for. Where that is not told they are witnesses, and nobody is suspected."""
    found = Suspects()
    for fault in [root, *alike][:_MOST_NAMED]:
        words = captures(fault.rule, fault.event.body)
        for name in ("node", "host", "peer"):
            found.nodes += expand(_PORT.sub("", words[name])) if words.get(name) else []
        found.ranks += numbers(words.get("missing", ""))
        if (node := evidence.node_of(fault.event)) is not None:
            found.witness_nodes.append(node)
        if (rank := evidence.rank_of(fault.event)) is not None:
            found.witness_ranks.append(rank)
        else:
            found.witness_ranks += numbers(words.get("rank", ""))
    if not found.witness_ranks:
        ended = (end.rank if end.rank is not None else end.local_rank for end in _ended(root, topology))
        found.witness_ranks = [rank for rank in ended if rank is not None]
    found.nodes = found.nodes or _said_to_be([root, *root.same])
    _around(found, [root, *alike[:4]], evidence, root.layer, {layer: n for n, layer in enumerate(shipped_taxonomy().layers)})
    spoke, known = _complained(found, faults, evidence), _known(evidence, topology)
    found.ranks = (
        found.ranks
        or _lagging(faults, evidence)
        or _silent(spoke, known, 1 if _tells_of_a_peer(root) else _FEW)
        or between([root, *alike], spoke, known, evidence)
    )
    if not found.nodes and len(found.ranks) <= _FEW:
        found.nodes = [topology.host_of[rank] for rank in found.ranks if rank in topology.host_of]
    found.nodes = [node for node in found.nodes if not _LOOP_BACK.match(node)]
    found.sort()
    return found


def _said_to_be(told: Sequence[Hypothesis]) -> list[str]:
    """The nodes that these lines call a node."""
    found: list[str] = []
    for one in told[:_MOST_NAMED]:
        found += [name for said in _NODE_SAID.findall(one.event.body) for name in said if name]
    return found


def named(faults: Sequence[Hypothesis], evidence: Evidence, depth: dict[str, int]) -> Suspects:
    """Whom these lines name, or who printed them."""
    found = Suspects()
    for fault in faults[:_MOST_NAMED]:
        event = fault.event
        words = captures(fault.rule, event.body)
        for name in ("node", "host", "peer"):
            if words.get(name) and len(found.nodes) < _MOST_NAMED:
                found.nodes += expand(_PORT.sub("", words[name]))
        if not words.get("node") and (node := evidence.node_of(event)) is not None:
            found.nodes.append(node)
        if ranks := numbers(words.get("rank", "")):
            found.ranks += ranks
        elif (rank := evidence.rank_of(event)) is not None:
            found.ranks.append(rank)
        found.gpus += [words[name] for name in ("pci", "gpu") if words.get(name)]
        if not found.gpus and (fault.layer <= depth["network"] or fault.reason == "out_of_memory"):
            found.gpus += _gpus_in(event.body)
        if not found.nodes and fault.layer <= depth["network"]:
            found.nodes += _ADDRESS.findall(event.body)[:1]
        if event.gpu is not None and fault.layer <= depth["driver"]:
            found.gpus.append(event.gpu)
    return found


def _gpus_in(text: str) -> list[str]:
    """The first GPU in a message about a machine, if no group of the rule captures one."""
    return _PCI.findall(text)[:1] or _GPU.findall(text)[:1]


def _first_to_be_stopped(root: Hypothesis, faults: Sequence[Hypothesis], topology: Topology) -> list[int]:
    """The rank with which it began, if only processes below the launcher were told to stop."""
    of_workers = all(fault.symptom or fault.recovered or fault.reason != root.reason for fault in faults)
    if not (root.symptom and of_workers):
        return []
    return [end.rank for end in topology.ended if end.first and stopped(end) and end.rank is not None][:1]


def _ended(root: Hypothesis, topology: Topology) -> list[Ended]:
    """The processes whose end is the root cause, or that a launcher blames."""
    here = [end for end in topology.ended if (end.source, end.line) == (root.event.source, root.event.line)]
    if here:
        return here
    words = _ENDED_BY.get(root.reason, ())
    if so := [end for end in topology.ended if any(word in end.how for word in words)]:
        return so
    return [end for end in topology.ended if end.first] if root.traceback is not None or root.symptom else []


def _mapped(found: Suspects, topology: Topology) -> None:
    """Find the rank from node and GPU, or the node from the rank, if NCCL printed who is who."""
    if not found.ranks and len(found.nodes) * len(found.gpus) <= _FEW**2:
        ranks = (topology.rank_of(node, gpu) for node in found.nodes for gpu in found.gpus if ":" in gpu)
        found.ranks = [rank for rank in ranks if rank is not None]
    if not found.nodes and len(found.ranks) <= _FEW:
        found.nodes = [topology.host_of[rank] for rank in found.ranks if rank in topology.host_of]


def _around(found: Suspects, told: Sequence[Hypothesis], evidence: Evidence, layer: int, depth: dict[str, int]) -> None:
    """Add what the lines next to the message name."""
    for event in evidence.events:
        if not any(event.source == f.event.source and abs(event.line - f.event.line) <= _AROUND for f in told):
            continue
        if not found.gpus and layer <= depth["driver"]:
            found.gpus = _gpus_in(event.body)
        if not found.nodes and (said := _NODE_SAID.search(event.body)) is not None:
            found.nodes = [name for name in said.groups() if name]
        if not found.ranks and layer <= depth["runtime"]:
            found.ranks = [int(task) for task in _TASK_SAID.findall(event.text)[:_FEW]]


def _lagging(faults: Sequence[Hypothesis], evidence: Evidence) -> list[int]:
    """The few ranks whose watchdogs count fewer enqueued collectives than the others."""
    enqueued: dict[int, int] = {}
    for fault in faults:
        found = _ENQUEUED.search(fault.event.body) if fault.reason == "nccl_timeout" else None
        rank = evidence.rank_of(fault.event)
        if found and rank is not None:
            enqueued[rank] = min(int(found[1]), enqueued.get(rank, int(found[1])))
    most = max(enqueued.values(), default=0)
    behind = sorted(rank for rank, work in enqueued.items() if work < most)
    return behind if len(behind) <= min(_FEW, len(enqueued) // 2) else []


def _complained(found: Suspects, faults: Sequence[Hypothesis], evidence: Evidence) -> list[int]:
    """The ranks that told that they waited for others, or lost them: where one gives up, its neighbours lose a connection."""
    waits = [one for one in faults if one.symptom and (shipped_taxonomy().has(one.reason, "witness") or _tells_of_a_peer(one))]
    ranks = (evidence.rank_of(one.event) for fault in waits for one in (fault, *fault.same))
    return [*found.witness_ranks, *(rank for rank in ranks if rank is not None)]


def _known(evidence: Evidence, topology: Topology) -> set[int]:
    """The ranks that have a log of their own, or whose end a launcher tells."""
    own = {evidence.rank_of_source(number) for number in range(len(evidence.sources))} | {end.rank for end in topology.ended}
    return {rank for rank in own if rank is not None}


def _silent(spoke: Sequence[int], known: set[int], most: int) -> list[int]:
    """The few ranks that did not complain when all others did: the others waited for them.

    When a connection is lost, ranks that a launcher ends do not complain either, so of several silent ones nobody knows.
    """
    whole = len(known) > 1 and known == set(range(len(known)))
    if known == {0, 1} and len(set(spoke)) == 1:
        return sorted(known.difference(spoke))  # who waits can only wait for the other
    if len(set(spoke)) < (2 if whole else 3):
        return []
    silent = sorted(known.union(range(max(spoke) + 1)) - set(spoke))
    return silent if len(silent) <= min(most, len(set(spoke)) // 2) else []
