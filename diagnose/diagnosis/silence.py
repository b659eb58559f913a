"""Logs of several ranks -> the ranks that fell silent first, while the others went on for a while.

A rank that waits in a collective speaks again when its watchdog does. A rank that hangs elsewhere says nothing more. This needs
one log per rank, with clocks or steps. It says who is late, not why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diagnose.compression.kept_log import Compression
from diagnose.diagnosis.detectors.course import duration
from diagnose.diagnosis.evidence import Evidence
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.reading.dumps.flight_recorder import in_words
from diagnose.reading.prefixes import clock, origin

_LEAST_RANKS = 3
LEAST_S = 60.0
"""so much earlier than the others is silent first, and not only printed at another moment"""
_STRETCHES = 6


@dataclass(frozen=True, slots=True)
class Silent:
    """The ranks that fell silent first."""

    ranks: tuple[int, ...]
    sentence: str


def first_silent(evidence: Evidence, log: Compression) -> Silent | None:
    """Who fell silent first: by the steps that the ranks reached, else by their clocks."""
    sources = {n: rank for n in range(len(evidence.sources)) if (rank := evidence.rank_of_source(n)) is not None}
    if len(set(sources.values())) < _LEAST_RANKS:
        return None
    return _by_step(sources, log) or _by_clock(sources, evidence, log)


def _by_step(sources: Mapping[int, int], log: Compression) -> Silent | None:
    steps: dict[int, float] = {}
    for number, rank in sources.items():
        found = log.streams[number].series.get("step") if number in log.streams else None
        if found is not None and found.count:
            steps[rank] = max(found.last, steps.get(rank, found.last))
    few = few_below(steps)
    if few is None:
        return None
    ranks, rest = few
    reached = max(steps[rank] for rank in ranks)
    return Silent(
        tuple(ranks),
        f"{_ranks(ranks)} reached step {reached:,.0f}, the other {len(rest)} ranks step {min(rest.values()):,.0f}.",
    )


def _by_clock(sources: Mapping[int, int], evidence: Evidence, log: Compression) -> Silent | None:
    taxonomy = shipped_taxonomy()
    last: dict[int, float] = {}
    for number, rank in sources.items():
        progress = log.progress(number).last
        time = origin(progress).time if progress else None
        if time and (moment := clock(time)) is not None:
            last[rank] = max(moment, last.get(rank, moment))
    for event in evidence.events:
        rule = evidence.rule(event)
        if event.source not in sources or (rule is not None and taxonomy.has(rule.reason or "unknown", "stop")):
            continue  # a rank that is told to stop may answer, even if it hung
        if event.time and (moment := clock(event.time)) is not None:
            rank = sources[event.source]
            last[rank] = max(moment, last.get(rank, moment))
    few = few_below(last, LEAST_S)
    if few is None:
        return None
    ranks, rest = few
    gap = min(rest.values()) - max(last[rank] for rank in ranks)
    verb = "falls" if len(ranks) == 1 else "fall"
    return Silent(
        tuple(ranks), f"{_ranks(ranks)} {verb} silent first, {duration(gap)} before any of the other {len(rest)} ranks."
    )


def few_below(values: Mapping[int, float], gap: float = 0.0) -> tuple[list[int], dict[int, float]] | None:
    """(the few ranks that are more than ``gap`` below all others, the others)."""
    if len(values) < _LEAST_RANKS:
        return None
    ordered = sorted(values, key=lambda rank: (values[rank], rank))
    most = max(1, len(ordered) // 4)
    steps = [(values[ordered[cut]] - values[ordered[cut - 1]], cut) for cut in range(1, most + 1)]
    widest, cut = max(steps, key=lambda step: (step[0], -step[1]))
    if widest <= gap:
        return None
    return sorted(ordered[:cut]), {rank: values[rank] for rank in ordered[cut:]}


def _ranks(ranks: list[int]) -> str:
    return f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {in_words(ranks, _STRETCHES)}"
