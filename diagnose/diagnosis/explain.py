"""Evidence -> why the job failed, or that it did not. Of this package, read this module first.

1. ``candidates``: everything that may be why the job failed becomes a hypothesis.
2. ``weighing``: each gets signals. A signal has a name and speaks for or against it, or says which other one explains it.
3. ``weights``: the weights of the signals give each a probability. "Nothing failed" is one of them.
4. The likeliest is the answer, and the others are alternatives. ``calibration`` says how sure the answer is, and ``doubt`` what
   speaks against it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from functools import cached_property

from diagnose.compression.kept_log import Compression
from diagnose.diagnosis.candidates import Candidates, candidates, is_generic
from diagnose.diagnosis.doubt import doubts
from diagnose.diagnosis.evidence import Evidence, normal
from diagnose.diagnosis.finding import Alternative, Finding, Many
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.likeness import likeness
from diagnose.diagnosis.silence import first_silent
from diagnose.diagnosis.stacks import Picture, picture
from diagnose.diagnosis.status import Told, ended
from diagnose.diagnosis.subjects import about
from diagnose.diagnosis.suspects import suspects
from diagnose.diagnosis.topology import Topology, learn
from diagnose.diagnosis.topology import read as read_topology
from diagnose.diagnosis.weighing import Weighing
from diagnose.diagnosis.weights import Weights, shipped_weights, spread
from diagnose.knowledge.taxonomy import shipped_taxonomy

_LAST_WORDS = 20
_ALTERNATIVES = 5
_HALF = 0.5
_LEAST_ALTERNATIVE = 0.02
_OTHER_READING, _UNPROVED = 0.2, 0.02
"""how likely it is that the words of a line say better than its rule what failed; that a line without a reason names one"""
_MEMORY = re.compile(r"(?i)\b(?:oom|out[- ]of[- ]memory|allocate|memory|mem|rss|ram|swap|shm)\b|MemoryError|bad_alloc")
_KILLERS = (("host_out_of_memory", 0.6), ("preempted", 0.25))
"""who else may have sent a SIGKILL that nobody explains: the kernel, or a person or a scheduler"""


def prepare() -> None:
    """Work out what all explanations need, before the first one asks."""
    about("any line")


def explain(
    evidence: Evidence,
    log: Compression,
    known: Collection[str] = (),
    *,
    running: bool = False,
    told: Told | None = None,
    weights: Weights | None = None,
) -> Finding:
    """Why the job failed, or that it did not.

    ``known``: lines (as ``normal`` gives them) of runs that went well. ``told``: what a caller knows who says that the job
    failed. Then "nothing failed" cannot be the answer.
    """
    return _Case(evidence, log, known, running, weights or shipped_weights()).explain(told)


def answer_kind(one: Hypothesis) -> str:
    """The kind of evidence that the answer rests on. Calibration depends on it."""
    if one.kind == "healthy":
        if "ended_well" in one.signals:
            return "well"
        return "silent" if "no_progress" in one.signals and "good_end" not in one.signals else "quiet"
    if one.words is not None:
        return "vague" if not one.words.plain else "contested" if one.contested else "plain"
    if one.kind == "line" or one.reason == "unknown" or "warned" in one.signals:
        return "line"
    if one.detector is not None:
        return "detector"
    if one.symptom:
        # A signal or a status says that something was killed; why, is a guess.
        return "killed" if one.reason == "host_out_of_memory" else "echo"
    if one.rule is not None and not is_generic(one.rule):
        return "noted" if "noted" in one.signals else "specific"
    return "nameless" if shipped_taxonomy().has(one.reason, "nameless") else "generic"


def other_reading(root: Hypothesis, answers: Collection[str]) -> str | None:
    """What the words of the line would say without its rule, if that is another reason.

    Some failures could be called by two reasons of the list: a command that is not found is a file that is missing, too. A
    failure that nothing explains could be called an error of the program itself.
    """
    if said_reason(root) == "unknown":
        named = root.reason if root.reason != "unknown" else "runtime_error"
        return None if named in answers else named
    if root.words is not None and root.reason == "out_of_memory" and "host_out_of_memory" not in answers:
        return "host_out_of_memory"  # few say whose memory it was
    if root.rule is None or (told := about(root.event.body)) is None or not told.plain:
        return None
    return told.reason if told.reason != root.reason and told.reason not in answers else None


def by_reason(weighed: Sequence[Hypothesis]) -> dict[str, tuple[float, Hypothesis]]:
    """reason -> (its probability, its likeliest hypothesis), the likeliest first."""
    found: dict[str, tuple[float, Hypothesis]] = {}
    for one in sorted(weighed, key=lambda one: -one.probability):
        reason = said_reason(one)
        sum_, best = found.get(reason, (0.0, one))
        found[reason] = sum_ + one.probability, best
    return found


def said_reason(one: Hypothesis) -> str:
    """The reason that the report gives. An exit status of 1 alone explains nothing, nor does a SIGKILL amid the work."""
    if one.killed_unsaid:
        return "unknown"
    explains_nothing = one.symptom and one.reason == "called_process_error" and one.traceback is None
    return "unknown" if explains_nothing else one.reason


class _Case:
    def __init__(self, evidence: Evidence, log: Compression, known: Collection[str], running: bool, weights: Weights) -> None:
        self.evidence, self.log, self.weights = evidence, log, weights
        self.topology: Topology = read_topology(evidence.events)
        learn(self.topology, (text for _, text in log.facts))
        self.picture: Picture | None = picture(log, evidence.sources, self.topology.host_of)
        self.found: Candidates = candidates(evidence, log, self.picture, running=running)
        self.weighing = Weighing(self.found, evidence, log, known)
        self.scene = self.weighing.scene
        self.end: Hypothesis | None = None
        """how the job ended, where a caller knows that and the log gives no reason"""

    def explain(self, told: Told | None) -> Finding:
        weighed = self.weighing.weigh()
        for one in weighed:
            one.killed_unsaid = self._killed_unsaid(one)
        spread(weighed, self.weights)
        weighed.sort(key=lambda one: -one.probability)
        told = told if self._unsaid(weighed[0]) else None  # what the log says is surer
        corrected = told is not None
        if told is not None:
            weighed = self._as_told(told, weighed)
        best = self._likeliest(weighed)
        finding = self._healthy(best, failed=corrected) if best.kind == "healthy" else self._failed(best)
        finding.told = told if finding.root is None or best is self.end else None
        finding.weighed = weighed
        finding.picture = self.picture
        answers = {} if corrected and finding.root is None else by_reason(weighed)
        finding.confidence = self._confidence(answers, finding.reason, best)
        finding.alternatives = self._alternatives(answers, finding)
        finding.recovered = self._folded([one for one in self.weighing.all if one.recovered])
        finding.attempt = self._attempt()
        in_summary = finding.told is not None and finding.reason == "unknown"
        said = [f"The caller says that {told.end}."] if told is not None and not in_summary else []
        finding.notes = [*self.found.notes, *said]
        finding.doubt = doubts(finding, best, self.evidence.skipped)
        return finding

    def _unsaid(self, best: Hypothesis) -> bool:
        """Whether the log gives no reason of weight: it looks healthy, or only a line that no rule knows sounds like one."""
        plain = best.words is not None and best.words.plain
        return best.kind == "healthy" or (best.kind == "line" and not plain and not best.like.loud)

    def _as_told(self, told: Told, weighed: list[Hypothesis]) -> list[Hypothesis]:
        """The hypotheses that are left where a caller knows that the job failed, with the end itself as one of them.

        What a signal did is surer than lines that only sound like a failure. What a rule or a traceback says is surer still.
        """
        standing = [one for one in weighed if one.kind != "healthy" and not one.recovered]
        self.end = end = ended(told, self.evidence, self.log, self.found.unclaimed)
        if end is not None and end.kind == "status" and all(self._unsaid(one) for one in standing):
            end.killed_unsaid = end.reason == "host_out_of_memory" and self._amid_work(end)
            return [end]
        if not standing:
            return [end] if end is not None else weighed
        spread(standing, self.weights)
        return sorted(standing, key=lambda one: -one.probability)

    def _killed_unsaid(self, one: Hypothesis) -> bool:
        """Whether a SIGKILL came amid the work, and nothing in the log speaks of memory."""
        return one.kind != "healthy" and answer_kind(one) == "killed" and self._amid_work(one)

    def _amid_work(self, one: Hypothesis) -> bool:
        """Whether the job was at work, and nothing in the log speaks of memory.

        At the start, when models and data are loaded, a SIGKILL is mostly the memory of the host.
        """
        course = self.scene.courses[one.event.source]
        at_work = course.signs_after(0) > course.signs_after(one.event.line) or self.weighing.work.before(one)
        return at_work and not self._speaks_of_memory

    @cached_property
    def _speaks_of_memory(self) -> bool:
        return any(_MEMORY.search(event.body) for event in self.evidence.events)

    def _likeliest(self, weighed: Sequence[Hypothesis]) -> Hypothesis:
        """The likeliest hypothesis. That nothing failed must be likelier than all failures together."""
        best = weighed[0]
        if best.kind == "healthy" and best.probability < _HALF and len(weighed) > 1:
            best = next((one for one in weighed if one.kind != "healthy" and not one.recovered), best)
        if best.kind == "healthy" or said_reason(best) == "unknown":
            return best
        # Several lines may point to one reason, each of them less likely than a line that points elsewhere.
        named = {reason: row for reason, row in by_reason(weighed).items() if reason not in ("healthy", "unknown")}
        reason = max(named, key=lambda reason: named[reason][0])
        return best if reason == said_reason(best) else named[reason][1]

    def _confidence(self, answers: dict[str, tuple[float, Hypothesis]], reason: str, best: Hypothesis) -> float:
        if reason == "unknown":
            return 0.0  # nothing is explained, so there is nothing to be sure of
        if best.kind == "status":
            return best.probability
        return self.weights.calibration.confidence(answers[reason][0], answer_kind(best))

    def _alternatives(self, answers: dict[str, tuple[float, Hypothesis]], finding: Finding) -> list[Alternative]:
        others = [
            (p, one, reason) for reason, (p, one) in answers.items() if reason != finding.reason and p >= _LEAST_ALTERNATIVE
        ]
        if finding.root is not None and finding.root.killed_unsaid:
            others += [(finding.root.probability * share, finding.root, reason) for reason, share in _KILLERS]
        elif finding.root is not None and (reading := other_reading(finding.root, answers)) is not None:
            share = _UNPROVED if finding.reason == "unknown" else _OTHER_READING
            others.append((finding.root.probability * share, finding.root, reading))
        others.sort(key=lambda row: -row[0])
        left = max(0.0, 1.0 - finding.confidence)
        total = sum(p for p, _, _ in others)
        return [
            Alternative(
                "none" if one.kind == "healthy" else self._category(one, reason),
                reason,
                round(min(p, left * p / total), 2),
                None if one.kind == "healthy" else one,
            )
            for p, one, reason in others[:_ALTERNATIVES]
        ]

    def _category(self, one: Hypothesis, reason: str) -> str:
        if reason == one.reason:
            return one.category
        return shipped_taxonomy().category_of[reason]

    # --- the answer --------------------------------------------------------------------------------------------------------

    def _healthy(self, best: Hypothesis, *, failed: bool) -> Finding:
        if failed:
            return Finding(True, "unknown", 0.0, "none")
        return Finding(False, "healthy", 0.0, "none", "none", ended_well="ended_well" in best.signals)

    def _failed(self, root: Hypothesis) -> Finding:
        reason = said_reason(root)
        standing = [one for one in self.weighing.all if not one.recovered]
        same = [root, *root.same]
        mine = {id(one) for one in same}
        rest = [one for one in standing if id(one) not in mine and self._tells(one)]
        if reason == "unknown" and root.kind == "rule" and not root.killed_unsaid:
            root = self._last_words(root)
        by = "none" if reason == "unknown" or root.words is not None else "detector" if root.detector else "rule"
        category = root.category if reason == root.reason else "unknown"
        finding = Finding(True, reason, 0.0, by, category, root)  # type: ignore[arg-type]
        follows: list[Hypothesis] = []
        others: list[Hypothesis] = []
        for one in rest:
            (follows if one.symptom or self._follows(one, root) else others).append(one)
        finding.consequences = self._folded(follows, root)
        finding.others = self._folded(others, root)
        finding.step = self._step(root)
        finding.phase = phase_of(root, at_work=finding.step is not None or self.weighing.work.before(root))
        who = suspects(root, same, self.weighing.all, self.evidence, self.topology)
        finding.nodes, finding.ranks, finding.gpus = who.nodes, who.ranks, who.gpus
        finding.own_nodes = who.own
        finding.witness_nodes, finding.witness_ranks = who.witness_nodes, who.witness_ranks
        if waited_for(root):
            self._whom_they_wait_for(finding, root)
        finding.group = group_of(reason, root)
        return finding

    def _whom_they_wait_for(self, finding: Finding, root: Hypothesis) -> None:
        """Whom the ranks wait for: from the dumps, else from the silence of some ranks. Neither accuses a machine."""
        seen = self.picture
        if seen is not None and (seen.late or root.kind == "dump"):
            late, nodes = seen.late, seen.nodes
        elif (silent := first_silent(self.evidence, self.log)) is not None:
            self.found.notes.append(silent.sentence)
            late, nodes = list(silent.ranks), self._nodes_of_ranks()
        else:
            return
        finding.ranks = list(late)
        finding.nodes = list(dict.fromkeys(nodes[rank] for rank in late if rank in nodes))
        finding.own_nodes = []
        finding.witness_ranks = [rank for rank in finding.witness_ranks if rank not in late]
        finding.witness_nodes = [node for node in finding.witness_nodes if node not in finding.nodes]

    def _nodes_of_ranks(self) -> dict[int, str]:
        named = (source.origin for source in self.evidence.sources)
        return {
            **{one.rank: one.node for one in named if one.rank is not None and one.node is not None},
            **self.topology.host_of,
        }

    def _tells(self, one: Hypothesis) -> bool:
        """Whether to report it beside the answer: a rule, a traceback or a detector knows it as a failure."""
        return one.kind != "line" and "warned" not in one.signals and (one.rule is None or one.rule.severity != "warning")

    def _last_words(self, end: Hypothesis) -> Hypothesis:
        """The last line before the end that no rule knows, rather one that sounds like an end. A person should begin there."""
        unknown = [
            event
            for event in self.found.unclaimed
            if event.source == end.event.source and event.rule == -1 and 0 < end.event.line - event.line <= _LAST_WORDS
        ]
        if not unknown:
            return end
        loud = [event for event in unknown if likeness(event.text, event.body).loud]
        return Hypothesis((loud or unknown)[-1], None, "unknown", end.layer, False, False, kind="line", timed=False)

    def _attempt(self) -> int:
        """Which attempt of the job the log ends with: each process that died before later steps was an earlier one, and so was
        each run whose launcher said that it was over before another one began, or behind which the log begins anew.
        """
        attempt = 1
        last: tuple[int, int] | None = None
        for one in self.weighing.all:
            if not (one.recovered and one.fatal):
                continue
            at = one.event.source, self.scene.courses[one.event.source].signs_after(one.event.line)
            if at[1] and (last is None or (last[0] == at[0] and last[1] - at[1] >= 2)):
                attempt += 1
                last = at
        return max(attempt, 1 + len(self.weighing.survival.restarts.over), self.found.runs.count)

    def _folded(self, hypotheses: Sequence[Hypothesis], root: Hypothesis | None = None) -> list[Many]:
        """One entry per kind."""
        kinds: dict[tuple[str, str], list[Hypothesis]] = {}
        for one in hypotheses:
            if self._tells(one):
                kinds.setdefault((one.reason, one.rule.id if one.rule else ""), []).append(one)
        return [
            Many(
                many[0],
                len(many),
                sorted({rank for f in many[:4096] if (rank := self.evidence.rank_of(f.event)) is not None}),
                many[0].moment - root.moment if root and root.moment is not None and many[0].moment is not None else None,
            )
            for many in kinds.values()
        ]

    def _step(self, root: Hypothesis) -> float | None:
        """The last step before the failure: from its own source, else from the job."""
        course, line = self.scene.courses[root.event.source], root.event.line
        start = self.found.runs.last(root.event.source)
        if start and course.signs_after(start) == course.signs_after(line):
            return None  # those before it were made by an earlier run
        step = course.step_at(line)
        if step is None and self.weighing.survival.flushed_behind(root):
            step = course.step_at(self.scene.ends[root.event.source])
        return step if step is not None or len(self.evidence.sources) == 1 else self.log.last_step

    def _follows(self, one: Hypothesis, root: Hypothesis) -> bool:
        return (one.layer >= root.layer or one.reason == root.reason) and not self.scene.before(one, root)


def waited_for(root: Hypothesis) -> bool:
    """Whether the answer is that ranks wait. Then dumps can say for whom."""
    return root.kind == "dump" or root.reason == "hang" or shipped_taxonomy().has(root.reason, "witness")


def phase_of(root: Hypothesis, *, at_work: bool) -> str:
    """What the job was doing when it failed."""
    names = " ".join(frame.function for frame in root.traceback.frames) if root.traceback else ""
    for phase, words in _PHASES:
        if re.search(words, names):
            return phase
    return "training" if at_work else "start-up"


_PHASES = (
    ("save a checkpoint", r"\bsave_(?:checkpoint|pretrained|model|state)|_save\b|\bdump_checkpoint"),
    ("load a checkpoint", r"\bload_(?:checkpoint|state_dict|pretrained)|from_pretrained|resume"),
    ("load data", r"\b(?:load_dataset|get_dataset|build_dataset|__getitem__|collate|_worker_loop|download_and_prepare)\b"),
    ("evaluate", r"\b(?:evaluate|evaluation_loop|validate|eval_step|predict)\b"),
)


def group_of(reason: str, root: Hypothesis) -> str:
    """A name for the failure that stays the same if it happens again, elsewhere or later, at another step or version."""
    message = normal(root.event.body)
    if root.traceback is not None:
        frame = root.traceback.own_frame
        message = (
            f"{root.traceback.type.rpartition('.')[2]} {normal(root.traceback.message)[:120]} {frame.function if frame else ''}"
        )
    elif root.rule is not None and root.layer <= shipped_taxonomy().depth("host"):
        message = root.rule.id  # a message from a machine is named by its rule: the rest of it are addresses
    return hashlib.sha256(f"{reason}\n{message}".encode()).hexdigest()[:12]
