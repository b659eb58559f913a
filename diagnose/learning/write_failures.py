"""A confirmed diagnosis -> a failure rule that knows its root line the next time.

A model writes the pattern if there is one (``prompts/failure-rule.md``). Else, or if all its patterns are refused, the root
line is the pattern: its words, escaped, with typed placeholders for what varies. The reason is the confirmed one in both cases.
Both must pass the same checks: everything in ``proposals.judged``, and silence on the lines of runs that went well and on every
past incident with another reason. Then the rule is in shadow. Each job that went well, and on which it was silent, counts for
it. One match on such a job retires it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.agent.explain import incident_id
from diagnose.agent.incidents import Incident, Incidents, Vectors, in_common, words
from diagnose.diagnosis.evidence import normal
from diagnose.errors import DiagnoseError, nearest
from diagnose.knowledge.rules import Example, Rule, RuleSet, load
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.learning.learned_rule import BY_ANSWER, Counts, LearnedRule, moved
from diagnose.learning.rule_store import RuleStore, settle, usable
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.model import prompts
from diagnose.model.answers import Ask
from diagnose.model.model import Model
from diagnose.redaction.text import Redactor, redact
from diagnose.report import Report
from diagnose.verification.proposals import Refusal, judged
from diagnose.verification.rules import body_of

_SAMPLES = 3
_SAME_WORDS = 0.6
"""a past incident's line is the same failure from this share of words in common on"""
_MOST_SAME, _MOST_HEALTHY, _LONGEST = 8, 12, 1200

_TYPES = re.compile(
    r"(?P<code>(?i:\b(?:code|error|errno|xid|status|signal|rc)\b\W{0,3})\d+)"
    r"|(?P<path>(?:(?<![A-Za-z])[A-Za-z]++:/)?(?:/[\w.+@=%~-]+)+/?)"
    r"|(?P<host>\b\d+(?:\.\d+){3}(?::\d+)?\b|\b[a-z][\w-]{0,100}\d[\w-]*(?:\.[\w-]+)*\b)"
    r"|(?P<hex>0x[0-9a-fA-F]+|\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{8,}\b)"
    r"|(?P<number>\d+)|(?P<blank>\s+)"
)
_PLACEHOLDERS = {"path": r"\S+", "host": r"[\w.:-]+", "hex": "(?:0x)?[0-9a-fA-F]+", "number": r"\d+", "blank": r"\s+"}


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a confirmed diagnosis led to."""

    rule: Rule | None = None
    """now in shadow"""
    known: str | None = None
    """the rule that already knows the failure"""
    refused: tuple[tuple[Rule, Refusal], ...] = ()
    notes: tuple[str, ...] = ()


async def confirm(
    report: Report,
    store: RuleStore,
    incidents: Incidents,
    now: float,
    *,
    model: Model | None = None,
    healthy: Sequence[str] = (),
    reason: str | None = None,
    by: str = "person",
    project: str | None = None,
    rules: RuleSet | None = None,
) -> Confirmation:
    """Remember a confirmed failure, and learn a rule from it.

    ``healthy``: lines of runs that went well. ``reason``: the right one, if the report's is not. ``by``: who confirmed it, a
    person or a successful action. ``project``: for whose jobs the rule acts; None: for all. ``rules``: those that are there,
    with their examples, if they are not the shipped ones.
    """
    diagnosis = report.diagnosis
    reason = reason or diagnosis.reason
    taxonomy = shipped_taxonomy()
    where = f"the report of {report.job.id}"
    if report.outcome != "failed" or diagnosis.root_cause is None:
        raise DiagnoseError("the report has no failure to learn from", where=where, remedy="give a report with a root cause")
    if reason not in taxonomy.category_of or reason in ("unknown", "healthy"):
        near = nearest(reason, taxonomy.category_of)
        meant = f"did you mean {near}? " if near is not None and near != reason else ""
        remedy = f"{meant}say the right one with --reason; diagnose rules list shows them"
        raise DiagnoseError(f"the reason {reason!r} explains nothing", where=where, remedy=remedy)
    root = body_of(diagnosis.root_cause.text).decode("utf-8", "replace")
    confirmed = _Confirmed(report, root, reason, [one for one in incidents.incidents() if one.id != incident_id(report)])
    if by != BY_ANSWER:  # what nobody has confirmed is no past incident
        await confirmed.remember(incidents, model, by)
    for filter_ in _dropping(store, root):
        store.write(moved(filter_, "retired", f"it matches the root line of {report.job.id}", now), filter_.state)
    shipped = load(examples=True) if rules is None else rules
    known = next(
        (rule for rule in _knowing(shipped, root) if rule.reason == reason and rule.severity != "warning" and not rule.symptom),
        None,
    )
    if known is not None:
        return Confirmation(known=known.name)
    proposals, notes = await confirmed.proposals(model, healthy, shipped)
    refused: list[tuple[Rule, Refusal]] = []
    for rule, provenance in proposals:
        entered = LearnedRule(
            rule,
            "proposed",
            # Why a machine or a program fails does not depend on whose job it is, but whom to believe does.
            scope="global" if project is None else "project",
            provenance={**provenance, "job": report.job.id, "confirmed": by, **({"project": project} if project else {})},
            lines=(root, *confirmed.same),
            created=now,
            changed=now,
        )
        if not store.add(entered):
            before = store.known(rule.pattern, "failures")
            if before is not None and before.unconfirmed and by != BY_ANSWER and before.rule.reason == reason:
                store.count(before.rule.id, "", Counts(1, 0, 0, now))  # somebody says that the answer was right
            notes.append(f"the pattern {rule.pattern!r} is known and {before.state if before else 'of another family'}")
            continue
        # Kept lines do not have what learned filters drop, so shadow cannot see an alarm on it.
        dropped = [example.line for one in store.rules("shadow", "active", family="filters") for example in one.rule.matches]
        refusal = confirmed.judge(rule, [*healthy, *dropped], shipped)
        if refusal is None:
            store.write(moved(entered, "shadow", f"confirmed by {by}", now), "proposed")
            return Confirmation(rule, None, tuple(refused), tuple(notes))
        store.write(moved(entered, "retired", f"{refusal.name}: {refusal.what}", now), "proposed")
        refused.append((rule, refusal))
    return Confirmation(None, None, tuple(refused), tuple(notes))


def watch(store: RuleStore, bodies: Iterable[str], now: float, *, well: bool, workload: str = "") -> list[LearnedRule]:
    """Match the failure rules in shadow and the active ones with a job's kept lines. Returns those whose state changed.

    ``well``: the job ended well, so whatever matches speaks against its rule.
    """
    waiting = usable(store.rules("shadow", "active", family="failures"))
    waiting = [known for known in waiting if well or not known.unconfirmed]  # of failures ``compare`` says more
    if not waiting:
        return []
    matcher = Matcher(RuleSet.of(known.rule for known in waiting), "plain")
    hits: Counter[int] = Counter()
    for body in bodies:
        hits.update(matcher.matches(body.encode("utf-8", "replace")))
    for number, rule in enumerate(matcher.rules):
        found = hits[number]
        if well or found:
            store.count(rule.id, workload, Counts(found, found if well else 0, int(well), now if found else None))
    return settle(store, now)


async def teach(
    report: Report,
    store: RuleStore,
    incidents: Incidents,
    now: float,
    *,
    healthy: Sequence[str] = (),
    project: str | None = None,
    rules: RuleSet | None = None,
) -> Confirmation:
    """A rule of an answer that no rule had: it passes the same door, made of the root line, and then waits in shadow.

    It acts only after a later failure had its line and the same reason, and runs that went well had not.
    """
    return await confirm(report, store, incidents, now, healthy=healthy, by=BY_ANSWER, project=project, rules=rules)


def taught(report: Report) -> bool:
    """Whether a model said something that the rules did not know, and enough of its samples agree."""
    asked, diagnosis = report.agent, report.diagnosis
    if (
        asked is None
        or diagnosis.root_cause is None
        or report.outcome != "failed"
        or diagnosis.reason in ("unknown", "healthy")
    ):
        return False
    agree = asked.said == diagnosis.reason and asked.samples > 0 and asked.agreed / asked.samples >= _ENOUGH
    return agree and (diagnosis.by == "agent" or asked.kind in ("line", "echo"))


def compare(store: RuleStore, report: Report, bodies: Iterable[str], now: float, *, workload: str = "") -> list[LearnedRule]:
    """Hold the rules that nobody has confirmed against a failure whose reason is known by now. Returns those that changed.

    One that matches is right if the reason is its own, and wrong if it is another.
    """
    waiting = [known for known in usable(store.rules("shadow", family="failures")) if known.unconfirmed]
    waiting = [known for known in waiting if known.provenance.get("job") != report.job.id]
    if not waiting or report.outcome != "failed" or report.diagnosis.reason == "unknown":
        return []
    matcher = Matcher(RuleSet.of(known.rule for known in waiting), "plain")
    hits: Counter[int] = Counter()
    for body in bodies:
        hits.update(matcher.matches(body.encode("utf-8", "replace")))
    for number, rule in enumerate(matcher.rules):
        if found := hits[number]:
            wrong = rule.reason != report.diagnosis.reason
            store.count(rule.id, workload, Counts(found, found if wrong else 0, 0, now))
    return settle(store, now)


_ENOUGH = 0.6
"""the share of a model's samples that must say the same before a rule is made of it"""


class _Confirmed:
    """One confirmed failure."""

    def __init__(self, report: Report, root: str, reason: str, past: Sequence[Incident]) -> None:
        self.report, self.root, self.reason, self.past = report, root, reason, past
        self.safe_root = redact(root[:_LONGEST]).text
        mine = words(root)
        self.same = [one.line for one in past if one.reason == reason and in_common(mine, words(one.line)) >= _SAME_WORDS][
            :_MOST_SAME
        ]

    async def remember(self, incidents: Incidents, model: Model | None, by: str) -> None:
        diagnosis = self.report.diagnosis
        told = redact(f"{diagnosis.summary}\n{diagnosis.mitigation or ''}").text.split("\n", 1)
        incident = Incident(
            incident_id(self.report), self.reason, self.safe_root, told[0], told[1] or None, diagnosis.group, by
        )
        rows = await model.embed([normal(self.safe_root)[:400]], job=self.report.job.id) if model is not None else None
        incidents.remember(incident, Vectors(model.embedder or "", rows) if rows and model is not None else None)

    async def proposals(
        self, model: Model | None, healthy: Sequence[str], shipped: RuleSet
    ) -> tuple[list[tuple[Rule, dict[str, Any]]], list[str]]:
        """(possible rules with their provenance, the likely ones first; what was missing)."""
        notes: list[str] = []
        if model is not None:
            answer, prompt = await self._asked(model, healthy)
            notes += [f"the model: {problem}" for problem in answer.problems]
            if answer.values:
                votes = Counter(value["pattern"] for value in answer.values)
                if votes[None] * 2 > len(answer.values):
                    return [], [*notes, "the model says that the root line alone does not tell this failure from others"]
                made = []
                for pattern, count in votes.most_common():
                    if pattern is None:
                        continue
                    value = next(value for value in answer.values if value["pattern"] == pattern)
                    source = {"by": "model", "model": answer.model, "prompt": prompt.name, "version": prompt.version}
                    made.append((self._rule(value), {**source, "votes": f"{count} of {len(answer.values)}"}))
                # If the checks refuse all of the model's patterns, the root line itself may do.
                last = {"by": "template", "because": "the model's rules were refused"}
                return [*made, (self._rule(self._template(shipped)), last)], notes
            notes.append("the model gave no usable answer; the rule is made of the root line")
        return [(self._rule(self._template(shipped)), {"by": "template"})], notes

    async def _asked(self, model: Model, healthy: Sequence[str]) -> tuple[Any, prompts.Prompt]:
        diagnosis = self.report.diagnosis
        prompt = prompts.load("failure-rule")
        mine = words(self.root)
        # Redacted before the nearest are chosen: the line before may show what is secret.
        redactor = Redactor(hosts=model.hides_hosts)
        safe = dict.fromkeys(redactor.lines([line[:_LONGEST] for line in healthy]))
        near = sorted(safe, key=lambda line: -in_common(mine, words(line)))[:_MOST_HEALTHY]
        category = shipped_taxonomy().category_of[self.reason]
        told = [
            f"reason: {self.reason} ({category})",
            f"summary: {diagnosis.summary}",
            f"mitigation: {diagnosis.mitigation or 'none'}",
        ]
        messages = prompt.render(
            diagnosis=[redactor.redact(line).text for line in told],
            root=[redactor.redact(self.safe_root).text],
            same=[redactor.redact(line).text for line in self.same],
            healthy=near,
        )
        ask = Ask(prompt.name, prompt.version, messages, prompt.schema, _SAMPLES, 0.5)
        return await model.ask(ask, job=self.report.job.id), prompt

    def _template(self, shipped: RuleSet) -> dict[str, Any]:
        """What a model would answer, made from the root line."""
        layers = Counter(rule.layer for rule in shipped if rule.reason == self.reason and not rule.symptom)
        words_said = " ".join(self.safe_root.split())
        return {
            "pattern": template(self.root),
            "layer": next((layer for layer, _ in layers.most_common(1)), None) or "user",
            "severity": "error",
            "symptom": False,
            "title": words_said if len(words_said) <= 100 else words_said[:99] + "…",
            "mitigation": self.report.diagnosis.mitigation or "See what was done the last time.",
            # A line that was cut off: whatever the pattern is, it wants the rest.
            "misses": [self.safe_root[: max(3, len(self.safe_root) // 2)]],
        }

    def _rule(self, value: Mapping[str, Any]) -> Rule:
        name = hashlib.sha256(f"{self.reason}\n{value['pattern']}".encode()).hexdigest()[:10]
        return Rule(
            id=f"learned-{self.reason.replace('_', '-')}-{name}",
            family="failures",
            pattern=value["pattern"],
            file="learned",
            title=" ".join(redact(value["title"]).text.split()),
            reason=self.reason,
            layer=value["layer"],
            severity=value["severity"],
            symptom=value["symptom"],
            mitigation=redact(value["mitigation"]).text,
            matches=(Example(self.safe_root),),
            misses=tuple(Example(line) for line in dict.fromkeys(value["misses"])),
        )

    def judge(self, rule: Rule, healthy: Sequence[str], shipped: RuleSet) -> Refusal | None:
        """Why the rule may not even be tried in shadow."""
        well = [
            *healthy,
            *(example.line for other in shipped if other.family == "filters" for example in other.matches),
            *(example.line for other in shipped if other.reason == "healthy" for example in other.matches),
        ]
        lines = (self.root, *self.same)
        refused = judged([rule], {rule.id: lines}, beside=shipped, healthy=well)
        if rule.id in refused:
            return refused[rule.id]
        others = [one for one in self.past if one.reason != self.reason]
        matcher = Matcher(RuleSet.of([rule]), "plain")
        for one in others:
            if matcher.matches(body_of(one.line)):
                return Refusal("alarms-on-another-failure", f"it matches the root line of {one.id}: {one.reason}", one.line)
        return None


def template(body: str) -> str:
    """A pattern for a message with other values: its words as they are, and a placeholder for each path, host and number.

    A number behind the word code, error, status, signal or Xid is the message, not a value.
    """
    parts = []
    at = 0
    body = body[:_LONGEST].strip()
    for found in _TYPES.finditer(body):
        parts.append(_escaped(body[at : found.start()]))
        kind = found.lastgroup or ""
        parts.append(_escaped(found[0]) if kind == "code" else _PLACEHOLDERS[kind])
        at = found.end()
    parts.append(_escaped(body[at:]))
    return re.sub(r"(?:\\s\+)+\Z", "", "".join(parts))


def _escaped(text: str) -> str:
    return re.sub(r"([.^$*+?()\[\]{}|\\])", r"\\\1", text)


def _dropping(store: RuleStore, root: str) -> list[LearnedRule]:
    """The learned filters that match the root line of a failure, or will when they act."""
    known = {one.rule.id: one for one in usable(store.rules("shadow", "active", family="filters"))}
    return [known[rule.id] for rule in _knowing(RuleSet.of(one.rule for one in known.values()), root)]


def _knowing(rules: RuleSet, body: str) -> list[Rule]:
    matcher = Matcher(RuleSet.of(rules), "plain", reserved=EARLY)  # so the shipped ones come compiled with the package
    return [matcher.rules[number] for number in matcher.matches(body.encode("utf-8", "replace"))]
