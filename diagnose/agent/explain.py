"""An unexplained failure -> a cause with evidence: what rules do not explain is put to a model, and little of it is believed.

The rules' report stands first. ``improve`` asks when it explains nothing, or only weakly (``weakness``), and gives back a
report that is the rules' own, or the model's answer where that passed all of:

1. **schema**: JSON with a reason of the taxonomy, nothing else;
2. **grounding**: the root line is one of those that the model was shown; evidence that was not shown, and nodes, ranks and GPUs
   that no shown line names, are dropped; the category follows from the reason;
3. **vote**: more than half of the samples name the same reason at the same line (four fifths, to overrule a weak finding);
4. **policy**: the action is the policy's for that reason, and a node is isolated only where the rules had said so themselves.

Whatever the endpoint does, the rules' answer stands, and the report's notes say what was missing. See docs/agent.md.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.agent.incidents import Incident, Incidents, Similar, Vectors
from diagnose.agent.retrieval import Material, choose, likely
from diagnose.decision.policy_file import shipped_policy
from diagnose.diagnosis.evidence import Event, Evidence, normal
from diagnose.diagnosis.explain import group_of
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.model import prompts
from diagnose.model.answers import Answer, Ask
from diagnose.model.model import Model
from diagnose.redaction.text import redact
from diagnose.report import Action, AgentFigures, Diagnosis, EvidenceLine, Report, Suspects
from diagnose.verification.rules import body_of

SAMPLES = 5
SHOWN_TOKENS, READ_TOKENS = 5000, 2500
"""for the lines that are shown at first, and for all that is read afterwards"""
ROUNDS, READS, READ_LINES = 2, 4, 30
"""times that a model may ask for more, reads each time, lines a read"""
_CANDIDATES, _INCIDENTS, _CITED = 24, 3, 12
_MAJORITY, _OVERRULES = 0.5, 0.8
"""the share of samples that must agree: more than the first where nothing explains a failure, the second to overrule"""
_SURE = 0.75
"""confidence of a unanimous answer: below every rule that knows a cause"""
_RANKS = re.compile(r"(?i)\b(?:rank|task|proc(?:ess)?|worker)s?[ =:_#\[]{0,3}(\d{1,6})\b")


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the samples agreed on."""

    reason: str
    root: int | None
    """number of the line in the material; None: the model does not know"""
    votes: int
    of: int
    evidence: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()
    summary: str = ""
    mitigation: str | None = None

    @property
    def share(self) -> float:
        return self.votes / self.of if self.of else 0.0


@dataclass(frozen=True, slots=True)
class Improved:
    """A report after a model was asked, or was not."""

    report: Report
    asked: bool = False
    why: str | None = None
    """why it was asked"""
    opinion: Opinion | None = None
    """what the model says by itself, whether the report follows it or not"""
    line: tuple[str, int] | None = None
    """the opinion's root line: (source, line)"""
    replaced: bool = False


def weakness(report: Report, evidence: Evidence) -> str | None:
    """Why the rules' answer is worth a question, by the kind of its evidence; None where it is not."""
    diagnosis = report.diagnosis
    if report.outcome != "failed":
        return None
    if diagnosis.reason == "unknown" or diagnosis.by == "none":
        return "nothing explains the failure"
    if diagnosis.by == "detector":
        return None
    rule = next((rule for rule in evidence.rules if rule.name == diagnosis.rule), None)
    if rule is None:
        return "no rule knows the exception"
    if rule.symptom:
        return "only an echo of a fault elsewhere tells of it"
    if rule.severity == "warning":
        return "only a warning tells of it"
    return None


async def improve(
    report: Report,
    evidence: Evidence,
    model: Model,
    incidents: Incidents | None = None,
    *,
    samples: int = SAMPLES,
    whatever: bool = False,
    hosts: bool = False,
) -> Improved:
    """``report``, improved by a model where it can be. Never raises for what an endpoint does.

    ``whatever``: ask also where the rules are sure, to measure with; their answer stands then. ``hosts``: host names and
    addresses are redacted too; then the model cannot name nodes.
    """
    why = weakness(report, evidence)
    if why is None and not whatever:
        return Improved(report)
    if not evidence.events:
        note = "A model was not asked: no line of the log was kept."
        return Improved(_noted(report, [note]), why=why)
    case = _Case(report, model, samples, why)
    await case.prepare(evidence, incidents, hosts=hosts)
    opinion = await case.answer()
    if opinion is None:
        return Improved(case.unimproved(), True, why, None)
    line = None
    if opinion.root is not None:
        event = case.material.events[opinion.root]
        line = evidence.sources[event.source].name, event.line
    improved = case.improved(opinion)
    return Improved(improved or case.unimproved(opinion), True, why, opinion, line, improved is not None)


class _Case:
    """One failure that is put to a model."""

    material: Material

    def __init__(self, report: Report, model: Model, samples: int, weakness: str | None) -> None:
        self.report, self.model, self.samples = report, model, samples
        self.sure = weakness is None
        self.why = weakness or "asked to measure"
        self.shown: set[int] = set()
        self.similar: list[Similar] = []
        self.notes: list[str] = []
        self.versions: dict[str, str] = {}
        self.answers: list[Answer] = []

    # --- what it is shown ----------------------------------------------------------------------------------------------------

    async def prepare(self, evidence: Evidence, incidents: Incidents | None, *, hosts: bool) -> None:
        self.material = await asyncio.to_thread(Material, evidence, hosts=hosts)
        scores = await asyncio.to_thread(likely, self.material)
        if incidents is not None and (found := await self._incidents(scores, incidents)):
            self.similar = [one for _, one in found]
            scores = await asyncio.to_thread(likely, self.material, found)
        self.shown = set(await asyncio.to_thread(choose, self.material, scores, SHOWN_TOKENS))

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

    def facts(self) -> list[str]:
        """What is known besides the lines, as the rules have it."""
        diagnosis, figures = self.report.diagnosis, self.report.compression
        step = f"{diagnosis.step:.0f}" if diagnosis.step is not None else "none"
        facts = [
            f"outcome: {self.report.outcome}, phase: {diagnosis.phase or 'unknown'}, last step: {step}",
            f"log: {len(self.report.job.sources)} files, {figures.lines_in} lines, {figures.lines_kept} kept as not regular",
        ]
        root = diagnosis.root_cause
        number = self._number_of(root)
        at = f" at {self.material.id_of(number)}" if number is not None else ""
        if not self.sure:
            said = f"{diagnosis.reason}{at}, but " if root is not None and diagnosis.reason != "unknown" else ""
            facts.append(f"rules: {said}{self.why}")
        if self.report.job.attempt > 1:
            facts.append(f"this is attempt {self.report.job.attempt} within the log")
        facts += [f"went wrong and was overcome: {line.title or line.text}" for line in diagnosis.recovered[:4]]
        loss = self.report.metrics.get("loss")
        if loss is not None:
            facts.append(f"loss: last {loss.last}, least {loss.min}, {loss.not_finite} values not finite")
        return [redact(fact).text for fact in facts]

    def _number_of(self, line: EvidenceLine | None) -> int | None:
        if line is None:
            return None
        sources = self.material.evidence.sources
        return next(
            (n for n, e in enumerate(self.material.events) if e.line == line.line and sources[e.source].name == line.source),
            None,
        )

    # --- what it says --------------------------------------------------------------------------------------------------------

    async def answer(self) -> Opinion | None:
        """What the samples agree on; None where there is no answer to believe."""
        if not await self._read():
            return None
        answer = await self._ask("failure-cause", self.samples, 0.7, {"lines": self.material.rows(self.shown)})
        if not answer.values:
            return None
        return self._voted(answer)

    async def _read(self) -> bool:
        """Let the model read more, for a few rounds. False: a recorded answer that decides what is asked next is missing."""
        room = READ_TOKENS
        for rounds in range(ROUNDS, 0, -1):
            if len(self.shown) == len(self.material) or room <= 0:
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
                for number in self._wanted(read)[:READ_LINES]:
                    cost = self.material.tokens(number)
                    if number not in self.shown and cost <= room:
                        room -= cost
                        self.shown.add(number)
            if len(self.shown) == before:
                return True
        return True

    def _wanted(self, read: Mapping[str, Any]) -> list[int]:
        """The lines that one read is about. What makes no sense reads nothing."""
        if read["kind"] == "search" and read["words"]:
            return self.material.search(read["words"], READ_LINES)
        if read["kind"] == "around" and read["line"]:
            number = self.material.number_of(read["line"])
            if number in self.shown:
                lines = self.material.around(number, READ_LINES // 2, READ_LINES // 2)
                return sorted(lines, key=lambda other: abs(other - number))
        if read["kind"] == "rank" and read["rank"] is not None:
            return self.material.of_rank(read["rank"], READ_LINES)
        return []

    async def _ask(self, name: str, samples: int, temperature: float, variables: dict[str, Any]) -> Answer:
        prompt = prompts.load(name)
        self.versions[name] = prompt.version
        facts = self.facts()
        messages = prompt.render(facts=facts, incidents=[_told(one.incident) for one in self.similar], **variables)
        ask = Ask(name, prompt.version, messages, prompt.schema, samples, temperature)
        answer = await self.model.ask(ask, job=self.report.job.id)
        self.answers.append(answer)
        for problem in answer.problems:
            self._note(f"The model: {problem}.")
        return answer

    def _voted(self, answer: Answer) -> Opinion | None:
        """What most samples say. One that is not grounded, does not fit or never came counts, for nothing."""
        groups: dict[tuple[str, str], list[tuple[int | None, Mapping[str, Any]]]] = {}
        for value in answer.values:
            root = self._root(value)
            if value["reason"] != "unknown" and root is None:
                cited = "no line" if value["root_line"] is None else "a line that it was not shown"
                self._note(f"An answer of the model was dropped: it cites {cited} as the root cause.")
                continue
            root = None if value["reason"] == "unknown" else root
            message = normal(self.material.events[root].body) if root is not None else ""
            groups.setdefault((value["reason"], message), []).append((root, value))
        if not groups:
            return None
        (reason, _), most = max(groups.items(), key=lambda group: len(group[1]))
        roots = [root for root, _ in most if root is not None]
        first = min(roots) if roots else None
        nodes, ranks, gpus, summary, mitigation = self._grounded(next(value for root, value in most if root == first))
        lines = dict.fromkeys(self._shown(line) for _, value in most for line in value["evidence_lines"])
        evidence = tuple(number for number in lines if number is not None and number != first)
        return Opinion(reason, first, len(most), answer.of, evidence[:_CITED], nodes, ranks, gpus, summary, mitigation)

    def _root(self, value: Mapping[str, Any]) -> int | None:
        return self._shown(value["root_line"]) if value["root_line"] is not None else None

    def _shown(self, line: str) -> int | None:
        """The line that an id cites, if the model was shown it."""
        number = self.material.number_of(line)
        return number if number in self.shown else None

    def _grounded(self, value: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...], str, str | None]:
        """Suspects that shown lines name, and the words for people."""
        texts = "\n".join(self.material.texts[number] for number in self.shown)
        evidence, events = self.material.evidence, self.material.events
        ranks = {int(found) for found in _RANKS.findall(texts)}
        ranks |= {rank for number in self.shown if (rank := evidence.rank_of(events[number])) is not None}
        said = value["suspects"]
        nodes = tuple(dict.fromkeys(node for node in said["nodes"] if _occurs(node, texts)))
        gpus = tuple(dict.fromkeys(gpu for gpu in said["gpus"] if _occurs(gpu, texts)))
        known = tuple(sorted({rank for rank in said["ranks"] if rank in ranks}))
        if (dropped := len(said["nodes"]) + len(said["ranks"]) + len(said["gpus"]) - len(nodes) - len(gpus) - len(known)) > 0:
            self._note(f"{dropped} suspects of the model were dropped: no line that it was shown names them.")
        return nodes, known, gpus, _plain(value["summary"]), _plain(value["mitigation"]) or None

    # --- what is believed ----------------------------------------------------------------------------------------------------

    def improved(self, opinion: Opinion) -> Report | None:
        """The report with the model's answer in the place of the rules'; None where it may not stand there."""
        before = self.report.diagnosis
        if opinion.root is None:
            self._note(f"A model was asked and does not know ({opinion.votes} of {opinion.of} samples).")
            return None
        if opinion.reason == before.reason:
            self._note(f"A model was asked and agrees ({opinion.votes} of {opinion.of} samples).")
            return None
        explained = before.reason != "unknown"
        enough = opinion.share >= _OVERRULES if explained else opinion.share > _MAJORITY
        said = f"{opinion.reason} at {self._place(opinion.root)} ({opinion.votes} of {opinion.of} samples)"
        if self.sure:
            self._note(f"A model was asked and says {said}; the rules' answer stands.")
            return None
        if not enough:
            self._note(f"A model was asked; its samples do not agree enough to be followed: {said}.")
            return None
        if explained and not self._before_the_rules(opinion.root):
            self._note(f"A model was asked and is not followed: {said}, which is after what the rules go by.")
            return None
        self._note(f"By a model, not by a rule: {opinion.votes} of {opinion.of} samples agree. Summary and help are its words.")
        if explained:
            self._note(f"The rules said {before.reason}, but {self.why}.")
        return self._with(opinion)

    def _before_the_rules(self, root: int) -> bool:
        """Whether the model's root line stands at the rules' one or before it: what comes later cannot be what it echoes."""
        number = self._number_of(self.report.diagnosis.root_cause)
        return number is None or root <= number

    def _with(self, opinion: Opinion) -> Report:
        before = self.report.diagnosis
        assert opinion.root is not None
        root = self._line(opinion.root, "root_cause", opinion.root)
        cited = [self._line(number, "context", opinion.root) for number in opinion.evidence]
        known = {(line.source, line.line) for line in (root, *cited)}
        rest = [self._again(line, opinion.root) for line in before.evidence if (line.source, line.line) not in known]
        fault = Hypothesis(self.material.events[opinion.root], None, opinion.reason, 0, False, False)
        category = shipped_taxonomy().category_of[opinion.reason]
        diagnosis = before.model_copy(
            update={
                "category": category,
                "reason": opinion.reason,
                "confidence": round(_SURE * opinion.share, 2),
                "by": "agent",
                "rule": None,
                "root_cause": root,
                "evidence": [root, *cited, *rest],
                "suspects": Suspects(nodes=list(opinion.nodes), ranks=list(opinion.ranks), gpus=list(opinion.gpus)),
                "summary": opinion.summary,
                "mitigation": opinion.mitigation,
                "group": group_of(opinion.reason, fault),
            }
        )
        action = _action(opinion, self.report.action)
        report = self.report.model_copy(update={"outcome": "failed", "diagnosis": diagnosis, "action": action})
        return self._finished(report, opinion)

    def unimproved(self, opinion: Opinion | None = None) -> Report:
        """The rules' report, with what came of the question."""
        if opinion is None and not any(answer.values for answer in self.answers):
            self._note("A model was asked and gave no usable answer; the rules' answer stands.")
        elif opinion is None:
            self._note("A model was asked and gave no answer that its lines bear out; the rules' answer stands.")
        return self._finished(self.report, opinion)

    def _finished(self, report: Report, opinion: Opinion | None) -> Report:
        figures = AgentFigures(
            model=next((answer.model for answer in reversed(self.answers) if answer.model), None),
            why=self.why,
            prompts=self.versions,
            samples=opinion.of if opinion else 0,
            agreed=opinion.votes if opinion else 0,
            lines_shown=len(self.shown),
            redacted=dict(self.material.redacted(self.shown)),
            tokens_in=sum(answer.tokens_in for answer in self.answers),
            tokens_out=sum(answer.tokens_out for answer in self.answers),
            seconds=round(sum(answer.seconds for answer in self.answers), 3),
        )
        return _noted(report.model_copy(update={"agent": figures}), self.notes)

    def _line(self, number: int, role: str, root: int) -> EvidenceLine:
        event, evidence = self.material.events[number], self.material.evidence
        rule = evidence.rule(event)
        return EvidenceLine(
            source=evidence.sources[event.source].name,
            line=event.line,
            text=event.text,
            role="root_cause" if role == "root_cause" else "consequence" if number > root else "context",
            rank=evidence.rank_of(event),
            node=evidence.node_of(event),
            time=event.time,
            rule=rule.name if rule else None,
        )

    def _again(self, line: EvidenceLine, root: int) -> EvidenceLine:
        """A line of the rules' evidence, in its new role."""
        if line.role != "root_cause":
            return line
        number = self._number_of(line)
        later = number is not None and number > root
        return line.model_copy(update={"role": "consequence" if later else "context"})

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


def _action(opinion: Opinion, before: Action) -> Action:
    """The policy's action for the reason. A model's word isolates no node: only those that the rules would isolate stay."""
    remedy = shipped_policy().actions[opinion.reason]
    isolates = remedy.kind == "isolate_and_restart"
    nodes = [node for node in before.nodes if isolates and node in opinion.nodes]
    why = f"{remedy.why} A model says so, not a rule."
    if isolates and not nodes:
        why += " Nothing is isolated on its word: run the node check before the restart."
    return Action(kind=remedy.kind, nodes=nodes, why=why)


def _noted(report: Report, notes: Sequence[str]) -> Report:
    diagnosis: Diagnosis = report.diagnosis.model_copy(update={"notes": [*report.diagnosis.notes, *notes]})
    return report.model_copy(update={"diagnosis": diagnosis})


def _occurs(name: str, texts: str) -> bool:
    """Whether the name stands in the texts as a whole word."""
    return len(name.strip()) > 0 and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", texts) is not None


def _plain(text: str) -> str:
    """A model's words on one line, without what a terminal acts upon."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
