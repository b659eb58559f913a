"""Groups of unknown lines -> filter rules, by asking a model; the miner's own template where it has no answer.

What a model says is only a proposal: nothing here lets a rule act. A group is asked about with a few of its lines, redacted;
the samples of the answer are counted as votes, a second call decides where they differ, and what comes out goes to the one
door, ``proposals.judged``, with lines of the group that the model never saw. Lines that speak of failure are not among them:
failure rules know those, by plain words if by nothing else, and they are left to the diagnosis.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from diagnose.knowledge.rules import Example, Rule
from diagnose.learning.miner import Template, rule_of
from diagnose.matching import shapes
from diagnose.model import prompts
from diagnose.model.answers import Ask
from diagnose.model.model import Model
from diagnose.redaction.text import Redactor

_GROUPS_AN_ASK = 6
_LINES_SHOWN = 4
_TOKENS_A_GROUP = 260
_SEARCH_S = 0.05
_FINAL = ("error-like", "instruction")
"""refusals that hold: such lines are for the diagnosis, and no template of the miner may take them either"""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A rule with the lines it must stand for, and where it comes from."""

    rule: Rule
    lines: tuple[str, ...]
    provenance: dict[str, Any]


@dataclass(slots=True)
class Written:
    """The result of asking about groups of lines."""

    proposals: list[Proposal] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """groups that are forwarded to the diagnosis, by why"""
    forwarded: list[Proposal] = field(default_factory=list)
    """what the miner would make of them: to be remembered, and proposed by nobody"""
    problems: list[str] = field(default_factory=list)
    """what the model could not do; the miner's templates stand in"""
    redacted: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Candidate:
    pattern: str
    kind: str
    title: str
    captures: tuple[tuple[str, str], ...]


class LogAgent:
    """Asks a model for filter rules."""

    def __init__(self, model: Model, *, samples: int = 3) -> None:
        self._model = model
        self._samples = samples
        self._rules = prompts.load("filter-rules")
        self._judge = prompts.load("filter-judge")

    async def write(self, templates: Sequence[Template], job: str, segment: int = 0, frameworks: Sequence[str] = ()) -> Written:
        """A proposal for each template, by the model or else by the miner."""
        written = Written()
        redactor = Redactor(hosts=self._model.hides_hosts)
        for start in range(0, len(templates), _GROUPS_AN_ASK):
            part = templates[start : start + _GROUPS_AN_ASK]
            shown = [[redactor.redact(line).text for line in _shown(template)] for template in part]
            await self._ask(part, shown, written, {"job": job, "segment": segment}, frameworks)
        written.redacted = redactor.counts
        return written

    async def _ask(
        self,
        templates: Sequence[Template],
        shown: Sequence[list[str]],
        written: Written,
        about: dict[str, Any],
        frameworks: Sequence[str],
    ) -> None:
        groups: list[dict[str, Any]] = [
            {"id": f"G{number}", "count": template.count, "lines": lines}
            for number, (template, lines) in enumerate(zip(templates, shown, strict=True), 1)
        ]
        ask = Ask(
            self._rules.name,
            self._rules.version,
            self._rules.render(groups=groups, frameworks=list(frameworks)),
            self._rules.schema,
            n=self._samples,
            max_tokens=_TOKENS_A_GROUP * len(groups),
        )
        answer = await self._model.ask(ask, job=about["job"])
        written.problems += answer.problems
        for group, template in zip(groups, templates, strict=True):
            votes, refusals = _votes(answer.values, group["id"])
            about = {**about, "group": rule_of(template).id}
            source = {"by": "model", "model": answer.model, "prompt": ask.prompt, "version": ask.version, **about}
            if not votes and not refusals:
                self._fall_back(template, written, about, "the model gave no answer")
                continue
            winner, said = self._counted(template, votes, refusals, len(answer.values))
            if winner is None and said is None:
                winner, said = await self._decided(template, group["lines"], votes, refusals, written, about["job"])
                source["judge"] = self._judge.version
            if winner is not None:
                source["votes"] = f"{votes.get(winner, 0)} of {len(answer.values)}"
                written.proposals.append(Proposal(_rule(winner, template), _claimed(template), source))
            elif said in _FINAL:
                written.refused[said] += 1
                written.forwarded.append(Proposal(rule_of(template), (), source | {"forwarded": said}))
            else:
                self._fall_back(template, written, about, f"the model said {said}")

    def _counted(
        self, template: Template, votes: Counter[_Candidate], refusals: Counter[str], samples: int
    ) -> tuple[_Candidate | None, str | None]:
        """The candidate that most samples agree on, or the refusal; neither where they differ.

        Two patterns agree if they match the same of the group's lines, held-back ones included.
        """
        for why, count in refusals.items():
            if 2 * count > samples:
                return None, why
        if any(why in refusals for why in _FINAL):
            return None, None
        alike: dict[tuple[bool, ...], list[_Candidate]] = {}
        for candidate in votes:
            if (matched := _matched(candidate.pattern, template)) is not None:
                alike.setdefault(matched, []).append(candidate)
        for matched, candidates in alike.items():
            if all(matched) and 2 * sum(votes[one] for one in candidates) > samples:
                # Of those that agree the one that says most; the door decides whether it says too much.
                return max(candidates, key=lambda one: (votes[one], shapes.letters(one.pattern))), None
        return None, None

    async def _decided(
        self,
        template: Template,
        lines: list[str],
        votes: Counter[_Candidate],
        refusals: Counter[str],
        written: Written,
        job: str,
    ) -> tuple[_Candidate | None, str | None]:
        """The samples differ: a second call chooses."""
        worst = next((why for why in _FINAL if why in refusals), None)
        usable = [one for one in votes if (matched := _matched(one.pattern, template)) is not None and all(matched)]
        if not usable:
            return None, worst or "nothing that matches its lines"
        candidates = [{"kind": one.kind, "pattern": one.pattern} for one in usable]
        messages = self._judge.render(group={"count": template.count, "lines": lines}, candidates=candidates)
        ask = Ask(self._judge.name, self._judge.version, messages, self._judge.schema, temperature=0.0, max_tokens=200)
        answer = await self._model.ask(ask, job=job)
        written.problems += answer.problems
        choice = answer.values[0]["choice"] if answer.values else "none"
        number = int(choice[1:]) if choice != "none" else 0
        if 0 < number <= len(usable):
            return usable[number - 1], None
        return None, worst or "none of its candidates"

    def _fall_back(self, template: Template, written: Written, about: dict[str, Any], why: str) -> None:
        written.proposals.append(Proposal(rule_of(template), _claimed(template), {"by": "miner", "because": why, **about}))


def _shown(template: Template) -> list[str]:
    return list(dict.fromkeys(template.samples))[:_LINES_SHOWN]


def _claimed(template: Template) -> tuple[str, ...]:
    return (*template.samples, *template.held)


def _votes(values: Sequence[dict[str, Any]], group: str) -> tuple[Counter[_Candidate], Counter[str]]:
    """What the samples say of a group. One that both proposes and refuses refuses."""
    votes: Counter[_Candidate] = Counter()
    refusals: Counter[str] = Counter()
    for value in values:
        refused = next((entry["why"] for entry in value["refused"] if entry["group"] == group), None)
        if refused is not None:
            refusals[refused] += 1
            continue
        found = next((entry for entry in value["rules"] if entry["group"] == group), None)
        if found is not None and not _unreadable(found["pattern"]):
            numbers = found["captures"] if found["kind"] in ("metric", "progress") else []
            captures = tuple((entry["name"], entry["pattern"]) for entry in numbers)
            votes[_Candidate(found["pattern"], found["kind"], found["title"], captures)] += 1
    return votes, refusals


def _unreadable(pattern: str) -> bool:
    import regex

    try:
        regex.compile(pattern.encode())
        shapes.letters(pattern)
    except (regex.error, shapes.Unreadable, ValueError, RecursionError):
        return True
    return False


def _matched(pattern: str, template: Template) -> tuple[bool, ...] | None:
    """Which lines of the group a pattern matches; None if it takes too long to say."""
    import regex

    expression = regex.compile(pattern.encode())
    try:
        return tuple(
            expression.search(line.encode("utf-8", "replace"), timeout=_SEARCH_S) is not None for line in _claimed(template)
        )
    except TimeoutError:
        return None


def _rule(candidate: _Candidate, template: Template) -> Rule:
    mined = rule_of(template)
    return replace(
        mined,
        id=f"asked-{hashlib.sha256(candidate.pattern.encode()).hexdigest()[:10]}",
        pattern=candidate.pattern,
        title=candidate.title,
        kind=candidate.kind,
        metrics=tuple(dict(candidate.captures).items()),
        matches=tuple(Example(line) for line in template.samples[:3]),
    )
