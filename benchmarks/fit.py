"""Fit the weights and the confidence of the diagnosis to labelled logs: ``python -m benchmarks.fit CORPUS...``.

Each log is one choice among its hypotheses, of which the label names the right ones (a conditional logit). The weights start
from those in ``diagnose/diagnosis/signals.py``, are pulled back to them (ridge), and keep their sign. Everything is
deterministic.

The printed answers come from weights that were fitted without the source of the log: labels whose notes name one repository, or
whose files are of one family, are left out together. The confidence is fitted on those answers, not on those of the final
weights.

Each log counts twice: as it is, and (for less) with the failure rules switched off that match in it, like a log of software
without rules. Otherwise the weights would not learn the worth of general words, and the confidence not how often those are
right.

    python -m benchmarks.fit fixtures ../shared/corpus/cases ../shared/corpus/whole          # fit and write rules/weights.json
    python -m benchmarks.fit --check fixtures ../shared/corpus/cases                         # only print
    python -m benchmarks.fit --onto rules/weights.json NEW...    # pull back to these weights, whose logs are no longer at hand
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.measure import ROOT
from benchmarks.unknown import without_rules
from diagnose.accuracy import Label, job_of, labels, placed
from diagnose.diagnosis.calibration import KINDS, Calibration, log_odds
from diagnose.diagnosis.candidates import candidates
from diagnose.diagnosis.evidence import Evidence
from diagnose.diagnosis.explain import answer_kind, by_reason, said_reason
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.signals import SIGNALS
from diagnose.diagnosis.weighing import Weighing
from diagnose.diagnosis.weights import Weights, read, spread
from diagnose.job import Job
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import Matcher

Numbers = npt.NDArray[np.float64]
NAMES = [signal.name for signal in SIGNALS]
PRIOR = np.array([signal.weight for signal in SIGNALS])
FILE = ROOT / "rules" / "weights.json"
FOLDS = 10
_RIDGE = 2.0
"""the pull towards the starting weights; with a larger one, logs must say more before a weight moves"""
_ROUNDS = 600
_RATE = 0.25
_FIXTURES = 0.3
"""weight of our own logs, which show what rules were written for"""
_UNKNOWN = 0.2
"""weight of a log whose rules are switched off: most software that is met is known"""
_UNKNOWN_SURE = 0.6
"""the same for the confidence, which matters most where no rule knows the software"""
_CALIBRATION_RIDGE = 0.5
_REPOSITORY = re.compile(r"\b([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?=[\s:,;@]|$)")
_INDEX = re.compile(r"(?:index|file) id (\d+)")


@dataclass(slots=True)
class Choice:
    """One labelled log: its hypotheses, and which of them are right."""

    label: Label
    group: str
    weight: float
    weighed: list[Hypothesis]
    signals: Numbers
    right: npt.NDArray[np.bool_]
    known: bool = True
    """its rules are switched on"""


def group_of(label: Label) -> str:
    """The source of a log: logs of one source are never on both sides of a fold."""
    found = _REPOSITORY.search(label.note) or _INDEX.search(label.note)
    return found[1] if found else re.sub(r"[-_]?\d+\D*$", "", label.file) + ":" + label.file


def choices(corpus: Path, matcher: Matcher) -> Iterator[Choice]:
    """The labelled logs of a corpus as choices."""
    for label in labels(corpus):
        if "AMBIGUOUS" in label.note:
            continue
        job = job_of(corpus, label, matcher)
        weight = _FIXTURES if "fixtures" in str(corpus) else 1.0
        yield _choice(label, job, job.evidence(), weight, known=True)
        evidence = job.evidence()
        if without_rules(evidence) or label.reason == "healthy":
            yield _choice(label, job, evidence, _UNKNOWN * weight, known=False)
        job.compression.kept.close()


def _choice(label: Label, job: Job, evidence: Evidence, weight: float, *, known: bool) -> Choice:
    weighed = Weighing(candidates(evidence, job.compression), evidence, job.compression).weigh()
    signals = np.array([[one.signals.get(name, 0.0) for name in NAMES] for one in weighed])
    return Choice(label, group_of(label), weight, weighed, signals, _right(label, weighed, job.sources), known)


def _right(label: Label, weighed: Sequence[Hypothesis], sources: Sequence[object]) -> npt.NDArray[np.bool_]:
    """The hypotheses that the label names: by reason and line, else by reason; if none has the reason, the honest one."""
    reasons = np.array([said_reason(one) == label.reason for one in weighed])
    if label.root_cause_line is not None:
        nameless = np.array([said_reason(one) == "unknown" for one in weighed])
        lines = np.array(
            [
                one.kind != "healthy"
                and asked  # to find a line's place takes long
                and placed(label, (sources[one.event.source].name, one.event.line), sources)  # type: ignore[attr-defined,arg-type]
                for one, asked in zip(weighed, reasons | nameless, strict=True)
            ]
        )
        if (reasons & lines).any():
            return np.asarray(reasons & lines)
        if not reasons.any() and (lines & nameless).any():
            return np.asarray(lines & nameless)
    if reasons.any():
        return reasons
    honest = np.array([said_reason(one) == "unknown" for one in weighed])
    return honest if honest.any() else np.array([one.kind != "healthy" for one in weighed])


def fit(data: Sequence[Choice], ridge: float = _RIDGE, pulled_to: Numbers = PRIOR) -> Numbers:
    """The weights: gradient steps (Adam) on the likelihood of the right choices, within the signs of ``PRIOR``."""
    data = [one for one in data if one.right.any() and not one.right.all()]
    rows = [np.unique(np.column_stack([one.signals, one.right]), axis=0, return_counts=True) for one in data]
    sizes = [len(found) for found, _ in rows]
    x = np.concatenate([found[:, :-1] for found, _ in rows])
    right = np.concatenate([found[:, -1] for found, _ in rows]) > 0
    often = np.log(np.concatenate([times for _, times in rows]))
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    of = np.repeat(np.arange(len(data)), sizes)
    counts = np.array([one.weight for one in data])
    w = pulled_to.copy()
    first, second = np.zeros_like(w), np.zeros_like(w)
    for step in range(1, _ROUNDS + 1):
        score = x @ w + often
        score -= np.maximum.reduceat(score, starts)[of]
        p = np.exp(score)
        p /= np.add.reduceat(p, starts)[of]
        good = np.where(right, p, 0.0)
        good /= np.maximum(np.add.reduceat(good, starts), 1e-12)[of]
        slope = x.T @ ((p - good) * counts[of]) + ridge * (w - pulled_to)
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        rate = _RATE * (1 - step / (_ROUNDS + 1))
        w = w - rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        w = np.where(PRIOR > 0, np.maximum(w, 0.0), np.minimum(w, 0.0))
    return w


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a log from weights that never saw its source."""

    choice: Choice
    reason: str
    probability: float
    kind: str
    right: bool
    second: bool
    """right in the first two guesses"""
    line: bool | None
    missed: bool
    """a failure called healthy"""


def answers(data: Sequence[Choice], w: Numbers) -> Iterator[Answer]:
    weights = Weights(dict(zip(NAMES, w.tolist(), strict=True)), Calibration())
    for choice in data:
        spread(choice.weighed, weights)
        ranked = by_reason(choice.weighed)
        best = max(choice.weighed, key=lambda one: one.probability)
        reason = said_reason(best)
        two = list(dict.fromkeys([reason, *ranked]))[:2]
        at = choice.weighed.index(best)
        wanted = choice.label.reason
        line = bool(choice.right[at]) if choice.label.root_cause_line is not None else None
        missed = reason == "healthy" and wanted != "healthy"
        yield Answer(choice, reason, ranked[reason][0], answer_kind(best), reason == wanted, wanted in two, line, missed)


def out_of_fold(data: Sequence[Choice], folds: int, ridge: float, pulled_to: Numbers) -> list[Answer]:
    """Answers to each log by weights that were fitted without its source."""
    fold = [zlib.crc32(one.group.encode()) % folds for one in data]
    found: list[Answer] = []
    for number in range(folds):
        rest = [one for one, at in zip(data, fold, strict=True) if at != number]
        held = [one for one, at in zip(data, fold, strict=True) if at == number]
        found += answers(held, fit(rest, ridge, pulled_to))
    return found


def calibrate(found: Sequence[Answer]) -> Calibration:
    """The slope and the offsets: logistic regression with a ridge, by Newton's steps. The slope stays above 0."""
    rows = [one for one in found if one.reason != "unknown"]
    x = np.array([[log_odds(one.probability), *(float(one.kind == kind) for kind in KINDS)] for one in rows])
    y = np.array([float(one.right) for one in rows])
    counts = np.array([one.choice.weight * (1.0 if one.choice.known else _UNKNOWN_SURE / _UNKNOWN) for one in rows])
    ridge = np.diag([0.01, *([_CALIBRATION_RIDGE] * len(KINDS))])
    b = np.zeros(1 + len(KINDS))
    b[0] = 0.5
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ b))
        slope = x.T @ (counts * (p - y)) + ridge @ b
        curve = (x.T * (counts * p * (1 - p))) @ x + ridge
        b = b - np.linalg.solve(curve, slope)
        b[0] = max(b[0], 0.05)
    return Calibration(round(float(b[0]), 3), {k: round(float(v), 3) for k, v in zip(KINDS, b[1:], strict=True)}, 0.98)


def told(found: Sequence[Answer], calibration: Calibration) -> str:
    """The results of the answers, as text."""
    real = [one for one in found if one.choice.known and one.choice.weight == 1.0]
    unknown = [one for one in found if not one.choice.known]
    return _told("without the log's source", real, calibration) + "\n" + _told("and without its rules", unknown, calibration)


def _told(what: str, found: Sequence[Answer], calibration: Calibration) -> str:
    rows = [(calibration.confidence(one.probability, one.kind), one.right) for one in found if one.reason != "unknown"]
    lined = [one for one in found if one.line is not None]
    failed = [one for one in found if one.choice.label.reason != "healthy"]
    well = [one for one in found if one.choice.label.reason == "healthy"]
    sure = [right for confidence, right in rows if confidence >= 0.9]
    error = 0.0
    bins = []
    for low in np.arange(0, 1, 0.1):
        inside = [(c, r) for c, r in rows if low <= c < low + 0.1 or (c >= 1.0 and low >= 0.9)]
        if inside:
            said, was = sum(c for c, _ in inside) / len(inside), sum(r for _, r in inside) / len(inside)
            error += abs(said - was) * len(inside) / len(rows)
            bins.append(f"  {low:.1f} to {low + 0.1:.1f}: {len(inside):4} logs, said {said:.2f}, right {was:.2f}")
    return "\n".join(
        [
            f"{what}: {len(found)} logs of {len({one.choice.group for one in found})} sources",
            f"  reason right {_share(found, 'right')}, in the first two {_share(found, 'second')},"
            f" line {_share(lined, 'line')}",
            f"  failures called healthy {sum(one.missed for one in failed)} of {len(failed)},"
            f" alarms {sum(not one.right for one in well)} of {len(well)}",
            f"  said 0.9 or more: {len(sure)}, right {100 * sum(sure) / max(1, len(sure)):.1f} %;"
            f" expected calibration error {error:.3f}",
            *bins,
        ]
    )


def _share(found: Sequence[Answer], name: str) -> str:
    return f"{100 * sum(bool(getattr(one, name)) for one in found) / max(1, len(found)):.1f} %"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", metavar="CORPUS")
    parser.add_argument("--check", action="store_true", help="print, and write nothing")
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--ridge", type=float, default=_RIDGE)
    parser.add_argument("--wrong", action="store_true", help="list the logs that come out wrong without their source")
    parser.add_argument("--onto", metavar="FILE", type=Path, help="weights to start from, and to be pulled back to")
    chosen = parser.parse_args(arguments)
    pulled_to = PRIOR
    if chosen.onto is not None:
        pulled_to = np.array([read(chosen.onto).of[name] for name in NAMES])
    matcher = Matcher(load())
    data = [choice for corpus in chosen.corpora for choice in choices(Path(corpus), matcher)]
    found = out_of_fold(data, chosen.folds, chosen.ridge, pulled_to)
    calibration = calibrate(found)
    print(told(found, calibration))
    if chosen.wrong:
        for one in found:
            if not one.right:
                label = one.choice.label
                print(f"  {label.file:32} {label.reason:22} {one.reason:22} {one.probability:.2f}")
    w = fit(data, chosen.ridge, pulled_to)
    own = list(answers([one for one in data if one.weight == 1.0], w))
    print(f"with the final weights: reason right {_share(own, 'right')}")
    if not chosen.check:
        made = {
            "made_by": "python -m benchmarks.fit"
            + (f" --onto {chosen.onto.name}" if chosen.onto else "")
            + f" --ridge {chosen.ridge:g}",
            "corpora": ["/".join(Path(corpus).parts[-2:]) for corpus in chosen.corpora],
            "logs": len(data),
            "weights": {name: round(float(value), 2) for name, value in zip(NAMES, w, strict=True)},
            "calibration": {
                "slope": calibration.slope,
                "offsets": dict(calibration.offsets),
                "ceiling": calibration.ceiling,
            },
        }
        FILE.write_text(json.dumps(made, indent=1) + "\n", "utf-8")
        print(f"written: {FILE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
