"""A diagnosis and what is known of its nodes -> was it the node's fault: yes, no, or cannot tell, and because of what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from diagnose.report import Diagnosis

_SURE: Final = 0.5
_AGAIN: Final = 2
"""in so many other jobs a fault of the same kind is no chance"""
_OWN: Final = ("script", "framework")
"""categories whose causes go wherever the job goes"""
_EITHER: Final = ("loss_anomaly", "hang", "native_crash")
"""reasons of those categories that a bad machine has too: wrong numbers, a wait for ever, a crash"""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a node beside this failure."""

    name: str
    failures: int = 0
    """of other jobs, of the category infrastructure, that name it"""
    check: str | None = None
    """the result of its last node check after the failure"""
    checked_at: float | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """The answer."""

    answer: str
    """yes, no, cannot tell"""
    because: list[str]
    nodes: list[Known] = field(default_factory=list)


def fault(diagnosis: Diagnosis, known: Sequence[Known]) -> Fault:
    """What a check found counts most, then what the machine said of itself, then what other jobs met there."""
    bad = [one for one in known if one.check in ("faulty", "slow")]
    if bad:
        return Fault("yes", [f"a node check after it found {one.name} {one.check}" for one in bad], list(known))
    good = {one.name for one in known if one.check == "good"}
    if named := diagnosis.culprits:
        because = [f"{', '.join(named)} reported a fault of its own hardware ({diagnosis.reason.replace('_', ' ')})"]
        mended = [
            f"{name} has passed a check since: it was mended, or the fault comes and goes" for name in named if name in good
        ]
        return Fault("yes", [*because, *mended, *_met(known)], list(known))
    if diagnosis.category in _OWN and diagnosis.reason not in _EITHER and diagnosis.confidence >= _SURE:
        because = [f"a {diagnosis.reason.replace('_', ' ')} is the job's own ({diagnosis.category}): it fails on any node"]
        return Fault("no", because, list(known))
    suspects = diagnosis.suspects.nodes
    if suspects and set(suspects) <= good:
        return Fault("no", [f"a node check after it found {', '.join(suspects)} good"], list(known))
    often = [one for one in known if one.failures >= _AGAIN and one.name not in good]
    if often and diagnosis.category == "infrastructure":
        return Fault("yes", ["the same node failed other jobs", *_met(often)], list(known))
    return Fault("cannot tell", _missing(diagnosis, known), list(known))


def _met(known: Sequence[Known]) -> list[str]:
    return [
        f"{one.name} is named by {one.failures} infrastructure {'failure' if one.failures == 1 else 'failures'} of other jobs"
        for one in known
        if one.failures
    ]


def _missing(diagnosis: Diagnosis, known: Sequence[Known]) -> list[str]:
    """What is known, and what would answer it."""
    if not diagnosis.suspects.nodes:
        return ["no line names a node", "say which node each log comes from (--node, or the label node)"]
    untested = [one.name for one in known if one.check is None]
    said = [f"the lines name {', '.join(diagnosis.suspects.nodes[:4])}, and no machine reported a fault of its own"]
    said += _met(known) or ["no other job failed there"]
    if untested:
        said.append(
            f"no node check since then; it would tell: diagnose nodes check --nodes {','.join(untested[:4])},OTHER,OTHER"
        )
    return said


def known_of(
    names: Sequence[str], failures: Mapping[str, int], checks: Mapping[str, dict[str, Any]], since: float
) -> list[Known]:
    """The facts of each node. A check before ``since`` says nothing of this failure."""
    found = []
    for name in names:
        check = checks.get(name)
        later = check if check is not None and check["at"] >= since else None
        found.append(Known(name, failures.get(name, 0), later["result"] if later else None, later["at"] if later else None))
    return found
