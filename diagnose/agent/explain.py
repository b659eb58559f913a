"""A report -> the report after a model was asked: two witnesses, and what they say together.

The rules' report stands first. ``improve`` asks where ``gate`` says so, and gives back a report that both stand behind. What a
model says counts only so far as it passed all of:

1. **schema**: JSON with reasons of the taxonomy, nothing else;
2. **grounding**: a hypothesis' root line is one of those that the model was shown; evidence that was not shown, and nodes,
   ranks and GPUs that no shown line names, are dropped;
3. **vote**: samples are counted, and what never came or does not hold counts for nothing;
4. **belief**: ``witnesses`` weighs it against the rules' answer, by how often this model was right;
5. **policy**: the action is the policy's for that reason, and a node is isolated only where the rules had said so themselves.

Whatever the endpoint does, the rules' answer stands, and the report's notes say what was missing. See docs/agent.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.agent import gate
from diagnose.agent.facts import facts, trace
from diagnose.agent.incidents import Incident, Incidents, Similar, Vectors
from diagnose.agent.opinion import Believed, Opinion, Voices
from diagnose.agent.retrieval import Material, choose, likely
from diagnose.agent.window import window
from diagnose.agent.witnesses import HEALTHY, RULES, UNKNOWN, Record, by_rules, together
from diagnose.decision.policy_file import shipped_policy
from diagnose.diagnosis.evidence import Event, Evidence, normal
from diagnose.diagnosis.explain import group_of
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.likeness import heard
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.model import prompts
from diagnose.model.answers import Answer, Ask
from diagnose.model.model import Model
from diagnose.report import Action, AgentFigures, Alternative, Diagnosis, EvidenceLine, Report, Suspects, Witnesses
from diagnose.verification.rules import body_of

SAMPLES = 5
SHOWN_TOKENS, READ_TOKENS = 4000, 2500
"""for the lines that are shown at first, and for all that is read afterwards"""
ROUNDS, READS, READ_LINES = 2, 4, 30
"""times that a model may ask for more, reads each time, lines a read"""
_SMALL = 200
"""lines of a log that may be shown whole, with what was dropped"""
_CANDIDATES, _INCIDENTS = 24, 3
_ANSWER_TOKENS = 2048
_LEAST_ALTERNATIVE, _ALTERNATIVES = 0.02, 5
_MAJORITY = 0.5
"""the share of samples that must name an answer, and more, before it is followed"""
_PROVED = 0.5
"""the chance that a model has proved itself, from which on it may say that nothing failed"""
_AGREED = 0.6
"""the share of samples whose words and lines are taken where they agree with the rules"""
_WEAK = ("line", "echo", "generic", "quiet")
"""kinds of evidence of the rules beside which a model's line and words are the better ones"""


@dataclass(frozen=True, slots=True)
class Improved:
    """A report, and what came of the question to a model, if one was asked."""

    report: Report
    asked: bool = False
    why: str | None = None
    """why it was asked"""
    opinion: Opinion | None = None
    """what the model says by itself, whether the report follows it or not"""
    line: tuple[str, int] | None = None
    """the opinion's root line: (source, line)"""
    replaced: bool = False
    """whether the reason is another now"""


async def improve(
    report: Report,
    evidence: Evidence,
    model: Model,
    incidents: Incidents | None = None,
    *,
    samples: int = SAMPLES,
    whatever: bool = False,
    records: dict[str, Record] | None = None,
    may_be_healthy: bool = False,
) -> Improved:
    """``report``, improved by a model where it can be. Never raises for what an endpoint does.

    ``whatever``: ask also where there is no need, to measure with; the rules' answer stands then. ``records``: how often models
    were right, by name; what this case tells of the model is added. ``may_be_healthy``: nobody but the log says that the job
    failed. A model whose settings hide hosts cannot name nodes. Where there is a larger model, it is asked about what the first
    one leaves in doubt.
    """
    kind = gate.kind_of(report, evidence.rules)
    records = records if records is not None else {}
    why = gate.why_ask(report, evidence.rules)
    if why is None and not whatever:
        return Improved(report)
    if not whatever and gate.settled(report, kind, records):
        return Improved(_noted(report, ["No model was asked: models have agreed with this answer before."]), why=why)
    if not evidence.events:
        note = "A model was not asked: no line of the log was kept."
        return Improved(_noted(report, [note]), why=why)
    case = _Case(report, model, samples, kind, why, records)
    await case.prepare(evidence, incidents)
    opinion = await case.answer()
    if model.larger is not None and case.in_doubt(opinion):
        opinion = await case.second_opinion(model.larger, opinion)
    if opinion is None:
        return Improved(case.unimproved(), True, why, None)
    line = None
    if opinion.root is not None:
        event = case.material.events[opinion.root]
        line = evidence.sources[event.source].name, event.line
    improved = case.improved(opinion, may_be_healthy=may_be_healthy)
    return Improved(improved, True, why, opinion, line, improved.diagnosis.reason != report.diagnosis.reason)


class _Case:
    """One job that a model is asked about."""

    material: Material

    def __init__(
        self, report: Report, model: Model, samples: int, kind: str, why: str | None, records: dict[str, Record]
    ) -> None:
        self.report, self.model, self.samples, self.kind, self.records = report, model, samples, kind, records
        self.only_measured = why is None
        self.why = why or "asked to measure"
        self.shown: set[int] = set()
        self.whole = False
        """whether its files are shown whole"""
        self.read: list[str] = []
        """what came of requests to read"""
        self.similar: list[Similar] = []
        self.notes: list[str] = []
        self.doubts: list[str] = []
        self.versions: dict[str, str] = {}
        self.answers: list[Answer] = []
        self.speaker: str | None = None
        """the model whose opinion counts"""

    # --- what it is shown ----------------------------------------------------------------------------------------------------

    async def prepare(self, evidence: Evidence, incidents: Incidents | None) -> None:
        self.material = await asyncio.to_thread(Material, evidence, hosts=self.model.hides_hosts)
        scores = await asyncio.to_thread(likely, self.material)
        if incidents is not None and (found := await self._incidents(scores, incidents)):
            self.similar = [one for _, one in found]
            scores = await asyncio.to_thread(likely, self.material, found)
        weighed = [self.report.diagnosis.root_cause, *(other.line for other in self.report.diagnosis.alternatives)]
        roots = [number for line in weighed if (number := self._number_of(line)) is not None]
        self.shown = set(await asyncio.to_thread(choose, self.material, scores, SHOWN_TOKENS, roots))
        if not self._more_was_kept() and self._more_in_the_file():
            await asyncio.to_thread(self._show_files)

    def _show_files(self) -> None:
        """Show small files whole, with what was dropped: that costs less than to ask what of it should be read."""
        if self.report.compression.lines_in > _SMALL:
            return
        added: set[int] = set()
        for number, source in enumerate(self.material.evidence.sources):
            added.update(self.material.add(number, window(source, 1, _SMALL), 1))
        added -= self.shown
        if sum(map(self.material.tokens, added)) <= READ_TOKENS:
            self.shown |= added
            self.whole = True

    async def _incidents(self, scores: Sequence[float], incidents: Incidents) -> list[tuple[int, Similar]]:
        """(line, the past incident that it resembles), looked up by words, and by meaning where the endpoint has embeddings."""
        best = sorted(range(len(scores)), key=lambda number: (-scores[number], number))[:_CANDIDATES]
        # Not each by itself: a secret may be told by the line before it.
        lines = [body_of(self.material.plain[number]).decode("utf-8", "replace")[:1000] for number in best]
        vectors = None
        if incidents.incidents():
            rows = await self.model.embed([normal(line)[:400] for line in lines], job=self.report.job.id)
            vectors = Vectors(self.model.embedder or "", rows) if rows else None
        found = await asyncio.to_thread(incidents.similar, lines, vectors, _INCIDENTS)
        return [(best[one.line], one) for one in found if one.incident.id != incident_id(self.report)]

    def _number_of(self, line: EvidenceLine | None) -> int | None:
        return self.material.find(line.source, line.line) if line is not None else None

    # --- what it says --------------------------------------------------------------------------------------------------------

    async def answer(self) -> Opinion | None:
        """What the samples say. None if no answer can be believed."""
        if not await self._read():
            return None
        answer = await self._ask("failure-cause", self.samples, 0.7, {"lines": self.material.rows(self.shown)})
        if not answer.values:
            return None
        voices = Voices(self.material, self.shown)
        opinion = voices.opinion(answer)
        for note in voices.notes:
            self._note(note)
        if opinion is not None:
            self.speaker = answer.model
        return opinion

    def in_doubt(self, opinion: Opinion | None) -> bool:
        """Whether a model's opinion is worth another: there is none, it cannot tell, its samples differ, or it objects."""
        if opinion is None or opinion.reason == UNKNOWN or opinion.share < _AGREED:
            return True
        return opinion.reason != self.report.diagnosis.reason

    async def second_opinion(self, larger: Model, first: Opinion | None) -> Opinion | None:
        """What a larger model says, or the first one again if that says nothing."""
        smaller, self.model = self.model, larger
        speaker = self.speaker
        second = await self.answer()
        if second is None:
            self.model = smaller
            return first
        if first is not None:
            self.records.setdefault(speaker or "", Record()).tested_by(self.report, self.kind, first.chances)
            self._note(f"A smaller model says {self._words(first)}; that left doubt, so a larger one was asked.")
        return second

    async def _read(self) -> bool:
        """Let the model read more, for a few rounds. False if a recorded answer is missing that decides what is asked next."""
        room = READ_TOKENS
        for rounds in range(ROUNDS, 0, -1):
            if room <= 0 or not (self._more_was_kept() or self._more_in_the_file()):
                return True
            given = {
                "lines": self.material.rows(self.shown),
                "kept": len(self.material),
                "shown": len(self.shown),
                "rounds": rounds,
            }
            answer = await self._ask("failure-read", 1, 0.0, given)
            if not answer.values:
                return self.model.settings.replay is None
            before = len(self.shown)
            for read in answer.values[0]["reads"][:READS]:
                wanted = (await asyncio.to_thread(self._wanted, read))[:READ_LINES]
                had = len(self.shown)
                for number in wanted:
                    cost = self.material.tokens(number)
                    if number not in self.shown and cost <= room:
                        room -= cost
                        self.shown.add(number)
                self.read.append(trace(read, len(wanted), len(self.shown) - had))
            if len(self.shown) == before:
                return True
        return True

    def _more_was_kept(self) -> bool:
        """Whether there are kept lines that are not shown."""
        return not self.shown.issuperset(range(len(self.material)))

    def _more_in_the_file(self) -> bool:
        """Whether lines were dropped that can still be read, and the rules do not know the cause."""
        readable = any(source.path is not None for source in self.material.evidence.sources)
        figures = self.report.compression
        unseen = figures.lines_in - figures.dropped_by_kind.get("blank", 0) - len(self.shown)
        return readable and self.kind in _WEAK and unseen > 0 and not self.whole

    def _wanted(self, read: Mapping[str, Any]) -> list[int]:
        """The lines that one request to read is about. A request that makes no sense gets no lines."""
        kind = read["kind"]
        if kind == "search" and read["words"]:
            return self.material.search(read["words"], READ_LINES)
        if kind in ("around", "dropped") and read["line"]:
            number = self.material.number_of(read["line"])
            if number is None or number not in self.shown:
                return []
            if kind == "dropped":
                return self._dropped(number)
            lines = self.material.around(number, READ_LINES // 2, READ_LINES // 2)
            return sorted(lines, key=lambda other: abs(other - number))
        if kind == "rank" and read["rank"] is not None:
            return self.material.of_rank(read["rank"], READ_LINES)
        if kind == "file" and read["file"]:
            return self.material.end_of(read["file"], READ_LINES)
        return []

    def _dropped(self, number: int) -> list[int]:
        """The lines around a line, read from the file itself, so dropped lines are among them."""
        event = self.material.events[number]
        source = self.material.evidence.sources[event.source]
        first = event.line - 2 * READ_LINES // 3
        numbers = self.material.add(event.source, window(source, first, event.line + READ_LINES // 3), first)
        return sorted(numbers, key=lambda other: abs(self.material.events[other].line - event.line))

    async def _ask(self, name: str, samples: int, temperature: float, variables: dict[str, Any]) -> Answer:
        prompt = prompts.load(name)
        self.versions[name] = prompt.version
        known = facts(self.report, self.material, self.why, self.shown, self.read)
        messages = prompt.render(facts=known, incidents=[_told(one.incident) for one in self.similar], **variables)
        ask = Ask(name, prompt.version, messages, prompt.schema, samples, temperature, max_tokens=_ANSWER_TOKENS)
        answer = await self.model.ask(ask, job=self.report.job.id)
        self.answers.append(answer)
        for problem in answer.problems:
            self._note(f"The model: {problem}.")
        return answer

    # --- what is believed ----------------------------------------------------------------------------------------------------

    def improved(self, opinion: Opinion, *, may_be_healthy: bool) -> Report:
        """The report that both witnesses agree on."""
        before = self.report.diagnosis
        record = self.records.setdefault(self._model_name() or "", Record())
        trust, proved = record.trust(self.kind), record.proved
        record.tested_by(self.report, self.kind, opinion.chances)
        about = gate.subject(self.report, self.kind)
        if about is not None and opinion.reason != UNKNOWN:
            self.records.setdefault(RULES, Record()).note(about, right=opinion.reason == before.reason)
        said = self._words(opinion)
        if self.only_measured:
            self._note(f"A model was asked and says {said}; the rules' answer stands.")
            return self._finished(self.report, opinion)
        may_be_healthy = may_be_healthy and proved > _PROVED  # a failure that is called healthy is the worst mistake
        chances = together(by_rules(self.report, may_be_healthy=may_be_healthy), opinion.chances, trust, proved)
        answer = next(
            reason
            for reason in chances
            if reason == before.reason
            or (reason in opinion.believed and (proved > _PROVED or not self._gives_up(opinion.believed[reason].root)))
            or (reason == opinion.reason and (may_be_healthy or reason != HEALTHY))
        )
        if answer != before.reason and not (answer == opinion.reason and opinion.share <= _MAJORITY):
            self._note(f"By a model and not by a rule: {said}. Summary and help are its words.")
            self.doubts.append(self._objection())
            return self._finished(self._replaced(opinion, answer, chances), opinion)
        if opinion.reason == UNKNOWN:
            lacks = f" It would need: {opinion.needs}" if opinion.needs else ""
            self._note(f"A model was asked and does not know ({opinion.votes} of {opinion.of} samples).{lacks}")
        elif opinion.reason == before.reason:
            self._note(f"A model was asked and agrees ({opinion.votes} of {opinion.of} samples).")
            return self._finished(self._agreed(opinion, chances), opinion)
        else:
            self.doubts.append(f"A model that was asked says {said}.")
        return self._finished(self._stands(opinion, chances), opinion)

    def _words(self, opinion: Opinion) -> str:
        what = "that nothing failed" if opinion.reason == HEALTHY else opinion.reason
        where = f" at {self._place(opinion.root)}" if opinion.root is not None else ""
        return f"{what}{where} ({opinion.votes} of {opinion.of} samples)"

    def _objection(self) -> str:
        before = self.report.diagnosis
        if self.report.outcome == "healthy":
            return f"The rules say that nothing failed, and {self.why}."
        if before.reason == UNKNOWN:
            return "The rules do not know the cause: a model names it."
        return f"The rules say {before.reason} ({before.confidence:.0%} sure), but {self.why}."

    def _agreed(self, opinion: Opinion, chances: Mapping[str, float]) -> Report:
        """The report if both say the same: it takes the better line and the better words."""
        before = self.report.diagnosis
        changes: dict[str, Any] = {"confidence": self._confidence(before.reason, chances)}
        believed = opinion.believed.get(before.reason)
        root = None
        if believed is not None and self.kind in _WEAK and opinion.share >= _AGREED:
            changes["summary"] = believed.summary
            changes["mitigation"] = before.mitigation or believed.mitigation
            if not (before.suspects.nodes or before.suspects.ranks or before.suspects.gpus):
                changes["suspects"] = _suspects(believed)
            if believed.share >= _AGREED and not self._same_place(believed.root) and not self._gives_up(believed.root):
                root = believed.root
                self._note(f"The root line is the model's: the rules name {self._rules_place()}.")
            self._note("The summary is the model's words.")
        changes["alternatives"] = self._alternatives(before.reason, opinion, chances)
        report = self._with(changes)
        return self._at_root(report, root, believed.evidence if believed else ()) if root is not None else report

    def _stands(self, opinion: Opinion, chances: Mapping[str, float]) -> Report:
        """The rules' answer with less confidence, and the model's answer as an alternative."""
        before = self.report.diagnosis
        sure = (
            min(before.confidence, self._confidence(before.reason, chances)) if opinion.reason != UNKNOWN else before.confidence
        )
        return self._with({"confidence": sure, "alternatives": self._alternatives(before.reason, opinion, chances)})

    def _confidence(self, reason: str, chances: Mapping[str, float]) -> float:
        """The confidence from both together. A model never raises it for an answer that would isolate a node."""
        if reason == UNKNOWN:
            return 0.0
        before, both = self.report.diagnosis.confidence, round(chances.get(reason, 0.0), 2)
        agreed = reason == self.report.diagnosis.reason and both >= before
        return before if agreed and self.report.action.nodes else both

    def _replaced(self, opinion: Opinion, answer: str, chances: Mapping[str, float]) -> Report:
        before = self.report.diagnosis
        changes: dict[str, Any] = {
            "reason": answer,
            "confidence": self._confidence(answer, chances),
            "by": "agent",
            "rule": None,
            "alternatives": self._alternatives(answer, opinion, chances),
        }
        if answer in (HEALTHY, UNKNOWN):
            nothing = answer == HEALTHY
            changes |= {
                "category": "none" if nothing else UNKNOWN,
                "root_cause": None,
                "suspects": Suspects(),
                "culprits": [],
                "witnesses": Witnesses(),
                "summary": opinion.analysis or "The model says that nothing failed.",
                "mitigation": None,
                "group": None,
                "evidence": [self._demoted(line, None) for line in before.evidence],
            }
            action = Action(
                why="A model says that nothing failed." if nothing else "A model says that no line shows the cause."
            )
            changes["action"] = action
            return self._with(changes, outcome="healthy" if nothing else "failed")
        believed = opinion.believed[answer]
        fault = Hypothesis(self.material.events[believed.root], None, answer, 0, False, False)
        changes |= {
            "category": shipped_taxonomy().category_of[answer],
            "suspects": _suspects(believed),
            "culprits": [],  # a model accuses no machine
            "witnesses": Witnesses(),
            "summary": believed.summary,
            "mitigation": believed.mitigation,
            "group": group_of(answer, fault),
            "action": _action(answer, believed, self.report.action),
        }
        return self._at_root(self._with(changes, outcome="failed"), believed.root, believed.evidence)

    def _with(self, changes: Mapping[str, Any], *, outcome: str | None = None) -> Report:
        rest = {name: value for name, value in changes.items() if name != "action"}
        diagnosis = self.report.diagnosis.model_copy(update=rest)
        update: dict[str, Any] = {"diagnosis": diagnosis, "outcome": outcome or self.report.outcome}
        if "action" in changes:
            update["action"] = changes["action"]
        return self.report.model_copy(update=update)

    def _at_root(self, report: Report, number: int, cited: Sequence[int]) -> Report:
        """``report`` with another root line, and the old one in its new role."""
        root = self._line(number, "root_cause", number)
        others = [self._line(other, "context", number) for other in cited if other != number]
        known = {(line.source, line.line) for line in (root, *others)}
        rest = [self._demoted(line, number) for line in report.diagnosis.evidence if (line.source, line.line) not in known]
        diagnosis = report.diagnosis.model_copy(update={"root_cause": root, "evidence": [root, *others, *rest]})
        return report.model_copy(update={"diagnosis": diagnosis})

    def _alternatives(self, answer: str, opinion: Opinion, chances: Mapping[str, float]) -> list[Alternative]:
        """The other answers, the likeliest first, each with the line of the witness who named it."""
        before = self.report.diagnosis
        lines: dict[str, EvidenceLine | None] = {HEALTHY: None}
        lines |= {other.reason: other.line for other in before.alternatives}
        lines |= {reason: self._line(one.root, "context", one.root) for reason, one in opinion.believed.items()}
        lines[before.reason] = before.root_cause
        category_of = {**shipped_taxonomy().category_of, HEALTHY: "none"}
        others = [(reason, chance) for reason, chance in chances.items() if reason in lines and chance >= _LEAST_ALTERNATIVE]
        return [
            Alternative(category=category_of[reason], reason=reason, confidence=round(chance, 2), line=lines[reason])
            for reason, chance in others
            if reason not in (answer, UNKNOWN)
        ][:_ALTERNATIVES]

    def unimproved(self) -> Report:
        """The rules' report, with what came of the question."""
        if not any(answer.values for answer in self.answers):
            self._note("A model was asked and gave no usable answer; the rules' answer stands.")
        else:
            self._note("A model was asked and gave no answer that the lines support; the rules' answer stands.")
        return self._finished(self.report, None)

    def _finished(self, report: Report, opinion: Opinion | None) -> Report:
        figures = AgentFigures(
            model=self._model_name(),
            kind=self.kind,
            why=self.why,
            prompts=self.versions,
            samples=opinion.of if opinion else 0,
            agreed=opinion.votes if opinion else 0,
            said=opinion.reason if opinion else None,
            analysis=opinion.analysis if opinion else None,
            needs=opinion.needs if opinion else None,
            lines_shown=len(self.shown),
            redacted=dict(self.material.redacted(self.shown)),
            tokens_in=sum(answer.tokens_in for answer in self.answers),
            tokens_out=sum(answer.tokens_out for answer in self.answers),
            seconds=round(sum(answer.seconds for answer in self.answers), 3),
        )
        doubt = [*self.doubts, *report.diagnosis.doubt]
        told = report.model_copy(update={"agent": figures, "diagnosis": report.diagnosis.model_copy(update={"doubt": doubt})})
        return _noted(told, self.notes)

    def _model_name(self) -> str | None:
        return self.speaker or next((answer.model for answer in reversed(self.answers) if answer.model), None)

    def _line(self, number: int, role: str, root: int) -> EvidenceLine:
        event, evidence = self.material.events[number], self.material.evidence
        rule = evidence.rule(event)
        return EvidenceLine(
            source=evidence.sources[event.source].name,
            line=event.line,
            text=event.text,
            role="root_cause" if role == "root_cause" else "consequence" if self.material.after(number, root) else "context",
            rank=evidence.rank_of(event),
            node=evidence.node_of(event),
            time=event.time,
            rule=rule.name if rule else None,
        )

    def _demoted(self, line: EvidenceLine, root: int | None) -> EvidenceLine:
        """A line of the rules' evidence, in its new role."""
        if line.role != "root_cause":
            return line
        number = self._number_of(line)
        later = number is not None and root is not None and self.material.after(number, root)
        return line.model_copy(update={"role": "consequence" if later else "context"})

    def _same_place(self, number: int) -> bool:
        """Whether the rules name this line, or one of the same message."""
        theirs = self._number_of(self.report.diagnosis.root_cause)
        if theirs is None:
            return False
        one, other = self.material.events[theirs], self.material.events[number]
        return one is other or normal(one.body) == normal(other.body)

    def _gives_up(self, number: int) -> bool:
        """Whether a model would give up a line that tells of a failure for one that does not.

        One that guesses names any line, and one that repeats what the rules say has proved nothing about lines. But behind an
        echo the cause may stand in words that nobody knows.
        """
        theirs = self._number_of(self.report.diagnosis.root_cause)
        return theirs is not None and self.kind != "echo" and self._tells(theirs) and not self._tells(number)

    def _tells(self, number: int) -> bool:
        """Whether a line tells of a failure: a rule knows it, or it sounds so."""
        event = self.material.events[number]
        return self.material.evidence.rule(event) is not None or heard(event.text, event.body).sounds

    def _rules_place(self) -> str:
        root = self.report.diagnosis.root_cause
        return f"{root.source}:{root.line}" if root is not None else "none"

    def _place(self, number: int) -> str:
        event: Event = self.material.events[number]
        return f"{self.material.evidence.sources[event.source].name}:{event.line}"

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def incident_id(report: Report) -> str:
    """The same for the same failure of a job."""
    return f"{report.job.id}#{report.job.attempt}"


def _told(incident: Incident) -> str:
    advice = f" (then: {incident.mitigation})" if incident.mitigation else ""
    return f"{incident.reason}: {incident.line} — {incident.summary}{advice}"


def _suspects(believed: Believed) -> Suspects:
    return Suspects(nodes=list(believed.nodes), ranks=list(believed.ranks), gpus=list(believed.gpus))


def _action(reason: str, believed: Believed, before: Action) -> Action:
    """The policy's action for the reason. A model's word isolates no node: only those that the rules would isolate stay."""
    remedy = shipped_policy().actions[reason]
    isolates = remedy.kind == "isolate_and_restart"
    nodes = [node for node in before.nodes if isolates and node in believed.nodes]
    why = f"{remedy.why} A model says so, not a rule."
    if isolates and not nodes:
        why += " Nothing is isolated on its word: run the node check before the restart."
    return Action(kind=remedy.kind, nodes=nodes, why=why)


def _noted(report: Report, notes: Sequence[str]) -> Report:
    diagnosis: Diagnosis = report.diagnosis.model_copy(update={"notes": [*report.diagnosis.notes, *notes]})
    return report.model_copy(update={"diagnosis": diagnosis})
