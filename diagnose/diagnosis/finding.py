"""The answer of the diagnosis. Report, advice and sentences are made from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.stacks import Picture
from diagnose.diagnosis.status import Told

Role = Literal["root_cause", "consequence", "context"]


@dataclass(slots=True)
class Many:
    """Hypotheses of one kind."""

    first: Hypothesis
    count: int
    ranks: list[int]
    later_s: float | None = None
    """time from the root cause to the first of them"""


@dataclass(slots=True)
class Alternative:
    """Another answer that was weighed."""

    category: str
    reason: str
    confidence: float
    best: Hypothesis | None
    """None: nothing failed"""


@dataclass(slots=True)
class Finding:
    """The answer."""

    failed: bool
    reason: str
    confidence: float
    by: Literal["rule", "detector", "none"]
    category: str = "unknown"
    root: Hypothesis | None = None
    consequences: list[Many] = field(default_factory=list)
    others: list[Many] = field(default_factory=list)
    """independent failures, in order"""
    recovered: list[Many] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    own_nodes: list[str] = field(default_factory=list)
    """those of the nodes that the lines of the fault itself name"""
    ranks: list[int] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    witness_nodes: list[str] = field(default_factory=list)
    """nodes of those that waited for somebody else"""
    witness_ranks: list[int] = field(default_factory=list)
    phase: str | None = None
    step: float | None = None
    attempt: int = 1
    group: str | None = None
    notes: list[str] = field(default_factory=list)
    ended_well: bool = False
    told: Told | None = None
    """what a caller says of the end, if the answer rests on that alone"""
    alternatives: list[Alternative] = field(default_factory=list)
    """other answers, the likeliest first"""
    doubt: list[str] = field(default_factory=list)
    """sentences: what speaks against the answer, and what is missing"""
    picture: Picture | None = None
    """where the processes stood, by the dumps in the log"""
    weighed: list[Hypothesis] = field(default_factory=list)
    """all hypotheses that were weighed, the likeliest first; one of them is that nothing failed"""
