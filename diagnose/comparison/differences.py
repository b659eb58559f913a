"""Two runs -> what differs: versions, settings, lines, pace, and where the loss parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from diagnose.comparison.runs import Line, Run

_ENOUGH = 4
"""points that both runs have, below which nothing is said of their course"""
_STAYS = 3
"""points in a row that are apart"""
_NOISES, _LEAST_SHARE = 6.0, 0.02
"""apart is what is this many times the usual difference, and this share of the value"""
_BEFORE = 8
"""points that say where a number was before it leapt"""
_NEAR = 0.02
"""a leap of the other run is the same one if it is no further away than this share of the steps"""
_LEAP = {"loss": 0.1, "val_loss": 0.1, "grad_norm": 1.0}
"""share by which it must rise, besides the noise: the norm of the gradient swings"""
_SAME_PACE = 0.05
_COUNTERS = ("consumed_", "total_")


@dataclass(frozen=True, slots=True)
class Changed:
    """A version or setting; None where a run does not tell it."""

    name: str
    good: str | None
    bad: str | None


@dataclass(frozen=True, slots=True)
class Level:
    """A number that both runs tell."""

    name: str
    good: float
    bad: float
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Leap:
    """Where a number rises by far more than it usually moves."""

    step: float
    before: float
    """about, in the points before"""
    value: float | None
    """None: it is no number"""


@dataclass(frozen=True, slots=True)
class Parting:
    """How the course of one number compares."""

    name: str
    equal_to: float | None
    """the last step up to which both print the same; None if they never do"""
    apart_from: float | None
    """the first step from which on they stay apart by more than their noise"""
    good: float | None = None
    """there"""
    bad: float | None = None
    common: float | None = None
    """the last step that both reach, if one of them goes on after it"""
    leap: Leap | None = None
    """where the bad run's leaps, if the good run's does not"""


@dataclass(frozen=True, slots=True)
class Regular:
    """Regular lines that only one run has."""

    rule: str
    about: str
    lines: int


@dataclass(frozen=True, slots=True)
class Differences:
    versions: list[Changed]
    settings: list[Changed]
    new: list[Line]
    """kept lines whose like the good run has not, failures first"""
    gone: list[Line]
    regular_new: list[Regular]
    regular_gone: list[Regular]
    levels: list[Level]
    """those that differ by more than 5 %"""
    partings: list[Parting]

    @property
    def any(self) -> bool:
        """Whether the runs differ in anything but the course of their numbers, or part or leap there."""
        parted = any(parting.apart_from is not None or parting.leap is not None for parting in self.partings)
        lists = (self.versions, self.settings, self.new, self.gone, self.regular_new, self.regular_gone, self.levels)
        return parted or any(lists)


def differences(good: Run, bad: Run) -> Differences:
    return Differences(
        versions=_changed(good.versions, bad.versions),
        settings=_changed(good.settings, bad.settings),
        new=_only(bad.lines, good.lines),
        gone=_only(good.lines, bad.lines),
        regular_new=_regular(bad.regular, good.regular),
        regular_gone=_regular(good.regular, bad.regular),
        levels=_levels(good, bad),
        partings=[
            parting
            for name in ("loss", "val_loss", "grad_norm")
            if name in good.metrics and name in bad.metrics
            if (parting := parting_of(name, good.metrics[name].points, bad.metrics[name].points)) is not None
        ],
    )


def _changed(good: Mapping[str, str], bad: Mapping[str, str]) -> list[Changed]:
    """Those that both tell first: what only one tells may only be said elsewhere."""
    both = [Changed(name, good[name], bad[name]) for name in sorted(good.keys() & bad.keys()) if good[name] != bad[name]]
    if not good or not bad:
        return both  # one run tells nothing of itself: all of the other's would be new
    one = [Changed(name, good.get(name), bad.get(name)) for name in sorted(good.keys() ^ bad.keys())]
    return both + one


def _only(ours: Mapping[str, Line], theirs: Mapping[str, Line]) -> list[Line]:
    return sorted((line for shape, line in ours.items() if shape not in theirs), key=lambda line: line.title is None)


def _regular(ours: Mapping[str, tuple[int, str]], theirs: Mapping[str, tuple[int, str]]) -> list[Regular]:
    return [Regular(name, about, lines) for name, (lines, about) in ours.items() if name not in theirs]


def _levels(good: Run, bad: Run) -> list[Level]:
    found = []
    for name in sorted(good.metrics.keys() & bad.metrics.keys()):
        if name.startswith(_COUNTERS) or name in ("epoch", "lr", "loss", "val_loss", "grad_norm"):
            continue
        ours, theirs = _middle(good.metrics[name].points), _middle(bad.metrics[name].points)
        if ours is None or theirs is None or abs(theirs - ours) <= _SAME_PACE * max(abs(ours), abs(theirs)):
            continue
        found.append(Level(name, ours, theirs, theirs / ours if ours else None))
    return found


def _middle(points: Sequence[Sequence[float | None]]) -> float | None:
    """The median of the means: a slow first step does not count."""
    values = [point[1] for point in points if point[1] is not None]
    return median(values) if values else None


def parting_of(name: str, good: Sequence[Sequence[float | None]], bad: Sequence[Sequence[float | None]]) -> Parting | None:
    """Where two curves of [step, mean, ...] part. None where they have too few steps in common."""
    ours, theirs = _curve(good), _curve(bad)
    pairs = _paired(ours, theirs)
    if len(pairs) < _ENOUGH:
        return None
    last = min(ours[-1][0], theirs[-1][0])
    common = last if max(ours[-1][0], theirs[-1][0]) > last else None
    known = [one.step for one in _leaps(name, ours)]
    near = _NEAR * (theirs[-1][0] - theirs[0][0])
    leap = next((one for one in _leaps(name, theirs) if all(abs(one.step - step) > near for step in known)), None)
    equal_to = None
    for step, one, other in pairs:
        if not math.isclose(one, other, rel_tol=1e-9):
            break
        equal_to = step
    noise = _noise([other - one for _, one, other in pairs])
    apart = [
        not math.isfinite(other) or abs(other - one) > max(_NOISES * noise, _LEAST_SHARE * abs(one)) for _, one, other in pairs
    ]
    for at in range(len(pairs)):
        if all(apart[at : at + _STAYS]) and sum(apart[at:]) >= 0.8 * len(apart[at:]):
            step, one, other = pairs[at]
            return Parting(name, equal_to, step, one, other if math.isfinite(other) else None, common, leap)
    return Parting(name, equal_to, None, common=common, leap=leap)


def _leaps(name: str, curve: Sequence[tuple[float, float]]) -> Iterator[Leap]:
    """The points that are above those before them by far more than the curve usually moves."""
    values = [value for _, value in curve]
    noise = _noise(values)
    for at in range(_BEFORE, len(curve)):
        known = [value for value in values[at - _BEFORE : at] if math.isfinite(value)]
        if not known:
            continue
        step, value = curve[at]
        before = median(known)
        if not math.isfinite(value) or value - before > max(_NOISES * noise, _LEAP[name] * abs(before)):
            yield Leap(step, before, value if math.isfinite(value) else None)


def _curve(points: Sequence[Sequence[float | None]]) -> list[tuple[float, float]]:
    """(step, value); a value that is no number counts as NaN."""
    return [(point[0], math.nan if point[1] is None else point[1]) for point in points if point[0] is not None]


def _paired(good: list[tuple[float, float]], bad: list[tuple[float, float]]) -> list[tuple[float, float, float]]:
    """(step, good, bad) at the steps of the coarser curve; the finer one's mean over the same stretch."""
    if not good or not bad:
        return []
    coarse, fine = (good, bad) if len(good) <= len(bad) else (bad, good)
    result, at = [], 0
    for (step, value), after in zip(coarse, [*(step for step, _ in coarse[1:]), math.inf], strict=True):
        while at < len(fine) and fine[at][0] < step:
            at += 1
        stretch = []
        while at < len(fine) and fine[at][0] < after:
            stretch.append(fine[at][1])
            at += 1
            if after == math.inf:
                break
        if stretch:
            mean = sum(stretch) / len(stretch)
            result.append((step, value, mean) if coarse is good else (step, mean, value))
    return result


def _noise(apart: Sequence[float]) -> float:
    """How far it usually jumps from one point to the next."""
    jumps = [abs(b - a) for a, b in pairwise(apart) if math.isfinite(b - a)]
    return median(jumps) if jumps else 0.0
