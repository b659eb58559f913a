"""Two witnesses, the rules and a model -> one answer, with what is left for the others.

Each witness gives every answer a probability. The rules' are calibrated. A model's are what its samples say, tempered by
its ``Record``: how often it agreed where the rules were sure, or where a person or a later run told what was right.

Where both say the same, or the model is new, the two are multiplied, answer by answer, as for witnesses who have not talked
to each other. So agreement raises confidence, and a model that has often been wrong, or whose samples differ, moves nothing.

But a model is shown what the rules say. One that has mostly agreed where they are sure has read the lines, and where it
objects all the same it has a reason: on 125 fresh logs a strong model objected to 30 answers; it was right in 26 of them,
and the rules in none (``diagnose eval LOGS --llm URL``, see docs/agent.md). So the objection of a model that has proved
itself is heard by its own confidence. Both stay in the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.report import Report

RULES: Final = "*"
"""under this name, which no model has, stands the record of the rules: how often models agreed with each"""
HEALTHY: Final = "healthy"
UNKNOWN: Final = "unknown"

_PRIOR_RIGHT, _PRIOR_WRONG = 4.0, 1.0
"""what is thought of a model that nobody has seen yet: right four times of five, as if from five cases"""
_PROVED_AT = 0.65
"""a model that agrees more often than this with sure rules has proved itself"""
_NOT_YET = 3.0
"""cases that count against a model before anything is known of it, so that a lucky beginning proves nothing"""
_HEARD = 0.8
"""what the objection of such a model weighs; the rest is the rules'"""
_POOLED = 6.0
"""how many cases the record over all kinds weighs within one kind"""
SURE: Final = 0.95
"""an answer of the rules that is this sure is a test of the model"""
_SETTLED, _FOR_EACH_OBJECTION = 3, 12
"""so often models agreed with a rule that they are asked no more about what it is sure of, and so often more for each time that
one objected: a model is wrong now and then
"""
_BY_A_PERSON = 10.0
"""what a person's correction of a rule weighs, in objections of a model"""
_LEAST = 0.002
"""what every reason of a failed job gets from the rules, for they may not know it"""
_STAYS_UNKNOWN = 0.5
"""of the rules' "unknown": the share that stays, for the log may not show the cause at all"""
_FURTHEST = 0.98
"""no answer that a model takes part in is surer"""


@dataclass(slots=True)
class Record:
    """How often a model was right, by the kind of evidence that the rules' answer rested on."""

    seen: dict[str, list[float]] = field(default_factory=dict)
    """kind -> [right, wrong]"""

    def trust(self, kind: str) -> float:
        """The chance that the model is right about a case of this kind."""
        right, wrong = self._counts()
        pooled = (_PRIOR_RIGHT + right) / (_PRIOR_RIGHT + _PRIOR_WRONG + right + wrong)
        own = self.seen.get(kind, [0.0, 0.0])
        return (_POOLED * pooled + own[0]) / (_POOLED + own[0] + own[1])

    @property
    def proved(self) -> float:
        """The chance that the model has proved itself."""
        right, wrong = self._counts()
        return _chance_above(_PROVED_AT, right, wrong + _NOT_YET)

    def _counts(self) -> tuple[float, float]:
        """How often it was right, and how often wrong, over all kinds."""
        seen = self.seen.values()
        return sum(counts[0] for counts in seen), sum(counts[1] for counts in seen)

    def note(self, kind: str, *, right: bool, weight: float = 1.0) -> None:
        """Count one more case whose right answer is known."""
        self.seen.setdefault(kind, [0.0, 0.0])[0 if right else 1] += weight

    def tested_by(self, report: Report, kind: str, said: Mapping[str, float]) -> None:
        """Where the rules are sure, their answer tells whether the model is right. (``said``: what the model says.)"""
        diagnosis = report.diagnosis
        if diagnosis.confidence >= SURE and kind in ("specific", "well"):
            best = max(said, key=lambda reason: said[reason], default=UNKNOWN)
            self.note(kind, right=best == diagnosis.reason, weight=diagnosis.confidence)

    def settled(self, rule: str) -> bool:
        """Whether nothing more is learned from a question about an answer of this rule. Only of the record of rules."""
        right, wrong = self.seen.get(rule, [0.0, 0.0])
        return right >= _SETTLED + _FOR_EACH_OBJECTION * wrong

    def as_dict(self) -> dict[str, list[float]]:
        return {kind: [round(count, 3) for count in counts] for kind, counts in self.seen.items()}

    @staticmethod
    def of(data: Mapping[str, Sequence[Any]]) -> Record:
        return Record({str(kind): [float(counts[0]), float(counts[1])] for kind, counts in data.items()})


def person_knows(records: dict[str, Record], report: Report, reason: str) -> None:
    """Somebody knows the reason, which shows whether the model that was asked was right, and whether the rule was.

    A person's correction weighs as much as ten objections of a model: what was wrong is asked about again, for long.
    """
    asked, diagnosis = report.agent, report.diagnosis
    if asked is not None and asked.said is not None:
        records.setdefault(asked.model or "", Record()).note(asked.kind, right=asked.said == reason)
    for name in (diagnosis.rule, f"group {diagnosis.group}" if diagnosis.group is not None else None):
        if name is not None:
            right = diagnosis.reason == reason
            records.setdefault(RULES, Record()).note(name, right=right, weight=1.0 if right else _BY_A_PERSON)


def by_rules(report: Report, *, may_be_healthy: bool = False) -> dict[str, float]:
    """answer -> its probability by the rules alone. ``may_be_healthy``: nobody but the log says that the job failed."""
    diagnosis = report.diagnosis
    said = {diagnosis.reason: diagnosis.confidence}
    for other in diagnosis.alternatives:
        said[other.reason] = said.get(other.reason, 0.0) + other.confidence
    left = max(0.0, 1.0 - sum(said.values()))
    if diagnosis.reason == UNKNOWN:
        said[UNKNOWN] += left  # that nothing explains it has no confidence, but it is the answer
        left = 0.0
    if (unknown := said.get(UNKNOWN, 0.0)) > 0.0:
        said[UNKNOWN] = unknown * _STAYS_UNKNOWN
        left += unknown * (1.0 - _STAYS_UNKNOWN)
    without = (UNKNOWN,) if may_be_healthy else (HEALTHY, UNKNOWN)
    reasons = [reason for reason in shipped_taxonomy().category_of if reason not in without]
    for reason in reasons:
        said[reason] = max(_LEAST, said.get(reason, 0.0) + left / len(reasons))
    return _whole(said)


def together(rules: Mapping[str, float], model: Mapping[str, float], trust: float, proved: float = 0.0) -> dict[str, float]:
    """answer -> its probability when both have spoken, the likeliest first.

    ``model`` may sum to less than one: samples that never came, or doubt. What the rules exclude, as "healthy" of a job
    that the scheduler says failed, stays excluded. ``proved``: the chance that the model has proved itself.
    """
    said = {answer: chance for answer, chance in model.items() if answer in rules}
    even = (1.0 - trust * min(1.0, sum(said.values()))) / len(rules)
    found = _whole({answer: chance * (trust * said.get(answer, 0.0) + even) for answer, chance in rules.items()})
    if said and _best(said) != _best(rules):
        heard = proved * _HEARD * min(1.0, sum(said.values()))
        weight = heard / sum(said.values())
        found = {answer: weight * said.get(answer, 0.0) + (1.0 - heard) * chance for answer, chance in found.items()}
    return dict(sorted(((answer, min(_FURTHEST, chance)) for answer, chance in found.items()), key=lambda one: -one[1]))


def _best(chances: Mapping[str, float]) -> str:
    return max(chances, key=lambda answer: chances[answer])


def _chance_above(rate: float, right: float, wrong: float) -> float:
    """The chance that who was right and wrong so often is right at more than this rate: with nothing known before, a beta law.

    Summed over a grid, which is exact enough and needs no library.
    """
    grid = [(step + 0.5) / _GRID for step in range(_GRID)]
    weights = [at**right * (1.0 - at) ** wrong for at in grid]
    return float(sum(weight for at, weight in zip(grid, weights, strict=True) if at > rate) / sum(weights))


_GRID = 200


def _whole(chances: Mapping[str, float]) -> dict[str, float]:
    total = sum(chances.values()) or 1.0
    return {answer: chance / total for answer, chance in chances.items()}
