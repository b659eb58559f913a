"""Report, history, cluster, policy -> what is done, and why: values in, value out.

Read ``LOOKS`` first: the questions are asked in that order, each by one function, and each writes down what it found. Some
choose the action, some hold it back, the last says on whose word it is done. The promises:

- Nothing is decided twice: the same case gives the same decision, and an attempt that was answered is not answered again.
- A node is isolated only if enough speaks against it, it is one of the job's, and the blast radius allows it; else the job
  goes on without the node and the node is checked.
- What holds an action back makes it milder, never wilder: auto becomes approve, isolation becomes avoidance, a restart a stop.
- Every decision has its sentence, the line of the policy that made it, what would change it, and its evidence for the audit.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from diagnose.decision.action import key_of
from diagnose.decision.bursts import Incident, hold_s, incident
from diagnose.decision.checkpoints import newest, stretch
from diagnose.decision.clauses import MODES, Mode
from diagnose.decision.history import Checkpoint, Cluster, History, Isolation, PastAction
from diagnose.decision.policy import ISOLATE, RELEASE, Chosen, JobClass, Policy, Remedy, shipped_policy
from diagnose.decision.quiet_hours import quiet
from diagnose.decision.recurrence import alike_at_startup, attempts_of, fruitless, same_place
from diagnose.decision.signals import MACHINES, SOFT, Signal, against, checked, points
from diagnose.diagnosis.detectors.course import duration
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.report import Action, Report, RestartFrom

Tell = Literal["nobody", "owner", "operator"]
RESTARTS: Final = frozenset({"restart", "isolate_and_restart", "rollback_and_skip", "retry_later"})
_OF_THE_JOB: Final = frozenset({"fix_code", "fix_config"})
_WHILE_RUNNING: Final = frozenset({"loss_anomaly", "hang"})
_DAY_S: Final = 86400.0
_UNDER_WAY: Final = frozenset({"dispatched", "running", "succeeded", "failed", "expired"})
_TEXT: Final = 500


@dataclass(frozen=True, slots=True)
class Step:
    """One question and its answer."""

    name: str
    said: str
    where: str = ""
    """file and line of the policy"""
    decided: bool = False
    """it chose the action, or changed it"""


@dataclass(frozen=True, slots=True)
class Limit:
    """What held the action back, and what would let it go."""

    name: str
    said: str
    change: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done about one attempt of a job, or about a node."""

    job: str
    attempt: int
    group: str | None
    reason: str
    action: Action
    wanted: str
    """the action before anything held it back"""
    mode: Mode
    decided_by: str
    """the name of the step that chose the action"""
    reasons: tuple[Step, ...]
    limits: tuple[Limit, ...]
    key: str
    made_at: float
    job_class: str | None = None
    not_before: float | None = None
    avoid: tuple[str, ...] = ()
    """nodes to leave out of the restart, without isolating them"""
    check: tuple[str, ...] = ()
    """nodes to test: the restart does not wait for those that it avoids"""
    check_first: tuple[str, ...] = ()
    """nodes that are tested against each other before the restart, which goes without those that are found faulty"""
    release: tuple[str, ...] = ()
    """nodes that were isolated on a diagnosis that does not hold any more"""
    supersedes: tuple[str, ...] = ()
    """keys of actions for the same attempt that nobody has taken yet"""
    tell: Tell = "nobody"
    """whom to wake or write to, whatever the mode"""
    incident: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """for the audit: all that was counted"""

    @property
    def changes(self) -> tuple[str, ...]:
        """What would change the decision, most effective first."""
        return tuple(dict.fromkeys(limit.change for limit in self.limits))

    @property
    def acts(self) -> bool:
        """Whether there is anything to do for an executor."""
        return self.action.kind in RESTARTS or self.action.kind in (ISOLATE, RELEASE)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "job": self.job,
            "attempt": self.attempt,
            "group": self.group,
            "reason": self.reason,
            "action": self.action.model_dump(mode="json"),
            "wanted": self.wanted,
            "mode": self.mode,
            "decided_by": self.decided_by,
            "reasons": [{"name": s.name, "said": s.said, "where": s.where, "decided": s.decided} for s in self.reasons],
            "limits": [{"name": li.name, "said": li.said, "change": li.change, "where": li.where} for li in self.limits],
            "changes": list(self.changes),
            "key": self.key,
            "made_at": self.made_at,
            "class": self.job_class,
            "not_before": self.not_before,
            "avoid": list(self.avoid),
            "check": list(self.check),
            "check_first": list(self.check_first),
            "release": list(self.release),
            "supersedes": list(self.supersedes),
            "tell": self.tell,
            "incident": self.incident,
            "evidence": dict(self.evidence),
        }


def decide(report: Report, history: History, cluster: Cluster | None, policy: Policy, now: float) -> Decision:
    """What to do about a report. ``now`` is in seconds since 1970; nothing here looks at a clock."""
    case = _Case(report, history, cluster, policy, now)
    for look in LOOKS:
        look(case)
    return case.decision()


class _Case:
    """A decision in the making."""

    def __init__(self, report: Report, history: History, cluster: Cluster | None, policy: Policy, now: float) -> None:
        self.report, self.history, self.cluster, self.policy, self.now = report, history, cluster, policy, now
        self.job, self.attempt, self.diagnosis = report.job.id, report.job.attempt, report.diagnosis
        self.job_class: JobClass | None = policy.class_of(self.job, history.labels, history.gpus)
        self.own = tuple(one for one in history.actions if one.job == self.job)
        """the actions on this job: of a busy cluster's many, so that each is looked at once"""
        self.attempts = attempts_of(self.attempt, report.diagnosis, history, self.own, now)
        self.kind, self.why, self.wanted = "none", "", "none"
        self.nodes: list[str] = []
        self.avoid: list[str] = []
        self.check: list[str] = []
        self.check_first: list[str] = []
        self.restart_from: RestartFrom | None = None
        self.skip: tuple[int, int] | None = None
        self.not_before: float | None = None
        self.release: tuple[str, ...] = ()
        self.supersedes: tuple[str, ...] = ()
        self.incident: Incident | None = None
        self.signals: list[Signal] = []
        self.tell: Tell = "nobody"
        self.mode: Mode = "auto"
        self.steps: list[Step] = []
        self.limits: list[Limit] = []
        self.decided_by = "usual"
        self.settled = False
        """nothing may be done about it any more"""

    def choose(self, name: str, kind: str, why: str, where: str = "", tell: Tell | None = None) -> None:
        """This is the action now, and this is why."""
        self.kind, self.why, self.decided_by = kind, why, name
        self.steps.append(Step(name, why, where, decided=True))
        if tell is not None:
            self.tell = tell
        if kind != "isolate_and_restart":
            self.nodes = []
        if kind != "rollback_and_skip":
            self.restart_from = self.skip = None

    def note(self, name: str, said: str, where: str = "") -> None:
        self.steps.append(Step(name, said, where))

    def hold(self, name: str, said: str, change: str, where: str = "", at_most: Mode = "auto") -> None:
        """This holds the action back."""
        self.limits.append(Limit(name, said, change, where))
        self.mode = min(self.mode, at_most, key=MODES.index)

    def line(self, clause: str) -> str:
        return self.policy.line(clause)

    def decision(self) -> Decision:
        action = Action(kind=self.kind, nodes=self.nodes, restart_from=self.restart_from, skip_batches=self.skip, why=self.why)
        return Decision(
            job=self.job,
            attempt=self.attempt,
            group=self.diagnosis.group,
            reason=self.diagnosis.reason,
            action=action,
            wanted=self.wanted,
            mode=self.mode,
            decided_by=self.decided_by,
            reasons=tuple(self.steps),
            limits=tuple(self.limits),
            key=key_of(self.job, self.attempt, self.diagnosis.group, self.kind, self.nodes),
            made_at=self.now,
            job_class=self.job_class.name if self.job_class else None,
            not_before=self.not_before,
            avoid=tuple(self.avoid),
            check=tuple(self.check),
            check_first=tuple(self.check_first),
            release=self.release,
            supersedes=self.supersedes,
            tell=self.tell,
            incident=self.incident.key if self.incident else None,
            evidence=self.evidence(),
        )

    def evidence(self) -> dict[str, Any]:
        root = self.diagnosis.root_cause
        return {
            "diagnosis": {
                "reason": self.diagnosis.reason,
                "by": self.diagnosis.by,
                "rule": self.diagnosis.rule,
                "confidence": self.diagnosis.confidence,
                "suspects": list(self.diagnosis.suspects.nodes),
                "step": self.diagnosis.step,
                "phase": self.diagnosis.phase,
            },
            "root_cause": {"source": root.source, "line": root.line, "text": root.text[:_TEXT], "node": root.node}
            if root
            else None,
            "signals": [{"node": s.node, "name": s.name, "points": s.points, "said": s.said} for s in self.signals],
            "attempts": [[a.number, a.reason, a.group, a.last_step] for a in self.attempts[-10:]],
            "isolated": sorted(self.cluster.isolated())[:100] if self.cluster else None,
            "nodes": len(self.cluster.nodes) if self.cluster else None,
            "incident": [self.incident.key, self.incident.jobs, self.incident.rounds] if self.incident else None,
        }


# --- the questions, in order -----------------------------------------------------------------------------------------------


def _usual(case: _Case) -> None:
    """What is usually done about this reason?"""
    report, policy = case.report, case.policy
    reason = case.diagnosis.reason
    if report.outcome == "healthy" or (report.outcome == "running" and reason not in _WHILE_RUNNING):
        healthy = report.outcome == "healthy"
        case.choose("usual", "none", "Nothing failed." if healthy else "The job is running.")
        case.settled = True
        return
    remedy = policy.remedy(reason, case.job_class)
    advised = report.action
    # What one log said of its own counts more than the table, unless the site or the class says otherwise.
    own = case.diagnosis.by != "agent" and remedy.kind == _shipped(reason).kind and advised.kind != remedy.kind
    kind, why = (advised.kind, advised.why) if own and advised.kind in shipped_taxonomy().actions else (remedy.kind, remedy.why)
    case.choose("usual", kind, why, remedy.where if not own else case.diagnosis.rule or "")
    case.wanted = kind
    if kind == "isolate_and_restart":
        case.nodes = list(dict.fromkeys(case.diagnosis.suspects.nodes))
    if kind == "rollback_and_skip":
        case.restart_from, case.skip = advised.restart_from, advised.skip_batches
    case.tell = "owner" if kind in _OF_THE_JOB else "operator" if kind == "none" else "nobody"


def _acted_already(case: _Case) -> None:
    """Was this attempt answered before?"""
    mine = [one for one in case.own if one.attempt == case.attempt and one.kind in RESTARTS]
    begun = [one for one in mine if one.state in _UNDER_WAY]
    if begun:
        last = max(begun, key=lambda one: one.at)
        named = set(case.diagnosis.suspects.nodes) if case.diagnosis.reason in MACHINES | SOFT else set()
        wrong = tuple(sorted({node for one in begun for node in one.nodes} - named))
        case.settled = True
        said = f"Attempt {case.attempt} was answered by {last.kind} ({last.state})."
        if wrong:
            case.release = wrong
            said += f" The diagnosis has changed since: nothing speaks for the isolation of {', '.join(wrong)} any more."
        case.choose(
            "acted-already", "none", said, tell="operator" if wrong or last.state in ("failed", "expired") else "nobody"
        )
        case.hold("acted-already", said, "a new attempt of the job is decided anew")
        return
    if any(one.state == "rejected" for one in mine):
        case.settled = True
        case.choose("acted-already", "none", "A person said no to an action for this attempt.", tell="nobody")
        case.hold("rejected", "a person said no", "start the job by hand; a new attempt is decided anew")
        return
    case.supersedes = tuple(one.key for one in mine if one.state in ("proposed", "approved"))


def _burst(case: _Case) -> None:
    """Do many jobs fail of this at once?"""
    if case.settled:
        return
    found = incident(case.job, case.attempt, case.diagnosis.reason, case.history, case.policy, case.now)
    if found is None:
        return
    case.incident = found
    where = case.line("bursts.jobs")
    bursts = case.policy.bursts
    said = f"{found.jobs} jobs failed of {bursts.family(case.diagnosis.reason)} within {_span(bursts.within_s)}"
    if case.kind not in RESTARTS:
        case.note("burst", f"{said}: incident {found.key}", where)
    else:
        wait = hold_s(case.job, found.rounds, case.policy.bursts)
        case.not_before = case.now + wait
        why = f"{said}: one incident ({found.key}), not the job's fault and no node's. It goes on in {_span(wait)}."
        case.choose("burst", "retry_later", why, where)
        change = f"fewer than {case.policy.bursts.jobs} jobs in {_span(case.policy.bursts.within_s)}, or bursts in the policy"
        case.hold("circuit-breaker", f"incident {found.key}", change, where)
    # One cause, one message: the first decision in the incident's name carries it, whatever comes after.
    if case.kind not in _OF_THE_JOB:
        case.tell = "operator" if found.first else "nobody"


def _startup(case: _Case) -> None:
    """Does it fail alike at every start?"""
    if case.settled or case.incident or case.kind not in RESTARTS:
        return
    budget = case.policy.budget(case.diagnosis.reason, case.job_class)
    count = alike_at_startup(case.attempts)
    if count < budget.at_startup:
        return
    machine = shipped_taxonomy().category_of.get(case.diagnosis.reason, "infrastructure") == "infrastructure"
    why = f"The same failure before the first step, {count} times in a row: another start would end the same way."
    case.choose("startup", "none" if machine else "fix_config", why, budget.where, tell="operator" if machine else "owner")
    case.hold("startup", why, "mend the cause; or raise at_startup of this reason", budget.where)


def _data(case: _Case) -> None:
    """Does it fail at the same place in its data, or did the loss go wrong?"""
    if case.settled or case.incident:
        return
    if any(signal.name == "xid" for signal in case.signals):
        return
    rollback = case.policy.rollback
    affected = case.diagnosis.affected
    earlier = same_place(case.attempts, case.policy)
    if case.kind == "rollback_and_skip" and affected is not None:
        onset, last = affected.first, affected.last
    elif earlier is not None and case.diagnosis.step is not None:
        onset, last = case.diagnosis.step, case.diagnosis.step + 1
    else:
        return
    if not (math.isfinite(onset) and onset >= 0):
        return
    tried = [one for one in case.own if one.skip is not None and _covers(one.skip, onset)]
    budget = case.policy.budget("loss_anomaly", case.job_class)
    if earlier is not None and case.kind != "rollback_and_skip":
        if tried:
            why = f"It failed at step {onset:.0f} again although those batches were left out: it is not the data."
            case.choose("data", "fix_code", why, case.line("rollback.same_step"), tell="owner")
            return
        why = f"Attempts {earlier.number} and {case.attempt} failed alike at step {onset:.0f}: it is the data at that place."
        case.choose("data", "rollback_and_skip", why, case.line("rollback.same_step"))
        case.wanted, case.tell = "rollback_and_skip", "nobody"
    if len(tried) >= budget.attempts:
        why = f"The loss went wrong near step {onset:.0f} again after {len(tried)} roll-backs."
        case.choose("data", "none", why, budget.where, tell="operator")
        case.hold("rollbacks", why, "find the cause by hand; or raise attempts of loss_anomaly", budget.where)
        return
    case.skip = stretch(onset, last, rollback, wider=len(tried))
    below = min((one.restart_step for one in tried if one.restart_step is not None), default=None)
    known = [*case.history.checkpoints, *(Checkpoint(c.step, c.path, complete=c.complete) for c in case.report.checkpoints)]
    start = newest(known, case.skip[0], below)
    if start is not None:
        case.restart_from = RestartFrom(step=start.step, path=start.path)
        told = "" if start.complete else ", whose save was seen to begin, not to end"
        case.note("checkpoint", f"the newest checkpoint before step {case.skip[0]:,} is that of step {start.step:,}{told}")
    else:
        case.restart_from = RestartFrom(step=case.skip[0])
        said = f"no checkpoint of step {case.skip[0]:,} or before is known"
        change = "let the training report its checkpoints, or name one in the approval"
        case.hold("checkpoint-unknown", said, change, at_most="approve")


def _weigh(case: _Case) -> None:
    """What speaks against which node?"""
    if case.settled:
        return
    signals = against(case.diagnosis, case.job, case.attempt, case.history, case.cluster, case.policy, case.now)
    case.signals = signals
    for signal in signals:
        case.note("signal", f"{signal.node}: {signal.said} ({signal.points})", case.line("signals"))


def _node(case: _Case) -> None:
    """Is it a node's, and is that certain enough to take it out?"""
    if case.settled or case.incident or case.kind not in ("restart", "isolate_and_restart"):
        return
    policy = case.policy
    named = list(dict.fromkeys(case.diagnosis.suspects.nodes))
    strong = [node for node in named if points(case.signals, node) >= policy.signals.needed]
    if case.kind == "restart":
        if not strong:
            return
        why = f"It follows the node: {'; '.join(s.said for s in case.signals if s.node == strong[0])}."
        case.choose("node", "isolate_and_restart", why, case.line("signals.needed"))
        case.wanted, case.nodes = "isolate_and_restart", strong
    wanted = case.nodes
    gone = [node for node in wanted if case.cluster is not None and case.cluster.nodes.get(node) in ("isolated", "gone")]
    if gone:
        case.note("node", f"{', '.join(gone)} is out of service already")
        wanted = [node for node in wanted if node not in gone]
    case.nodes = [node for node in wanted if node in strong and _can_be_isolated(case, node)]
    if cleared := [node for node in wanted if any(s.node == node and s.name == "check-passed" for s in case.signals)]:
        case.note("node", f"{', '.join(cleared)} passed the node check")
    weak = [node for node in wanted if node not in strong and node not in cleared and _is_the_jobs(case, node)]
    if weak and len(weak) <= policy.signals.named_most:
        case.avoid, case.check = weak, weak
        said = f"one weak signal against {', '.join(weak)} is not enough to isolate"
        change = "a node check that finds it faulty, an Xid of its kernel, or the same node named again"
        case.hold("weak-signal", said, change, case.line("signals.needed"))
    elif not named:
        case.check = list(case.history.nodes)
        change = "a log that names the node, or a node check that finds one"
        case.hold("node-unknown", "the log does not name the node", change)
    elif len(named) > policy.signals.named_most:
        said = f"{len(named)} nodes are named: that accuses none of them"
        case.hold("too-many-named", said, "a node check", case.line("signals.named_most"))
        case.check = [node for node in named if _is_the_jobs(case, node)]
    if not case.nodes and case.kind == "isolate_and_restart":
        if gone and not wanted:
            why = f"{', '.join(gone)} is out of service already: the job goes on elsewhere."
        elif case.avoid:
            why = f"{case.why} Nothing is isolated yet: the job goes on without {', '.join(case.avoid)} until it is checked."
        else:
            why = f"{case.why} No node is isolated: the job goes on."
        case.choose("node", "restart", why, case.line("signals.needed"))


def _radius(case: _Case) -> None:
    """Would it take out too much of the cluster?"""
    if case.kind != "isolate_and_restart":
        return
    allowed, limits = room(case.nodes, case.history, case.cluster, case.policy, case.now)
    for limit in limits:
        case.hold(
            limit.name, limit.said, limit.change, limit.where, at_most="approve" if limit.name == "cluster-unknown" else "auto"
        )
    left = [node for node in case.nodes if node not in allowed]
    if left:
        case.avoid += [node for node in left if node not in case.avoid]
        case.tell = "operator"
        case.nodes = allowed
        if not allowed:
            case.choose("radius", "restart", f"{limits[0].said}; the job goes on without {', '.join(left)}.", limits[0].where)


def _budget(case: _Case) -> None:
    """Was it restarted often enough?"""
    if case.settled or case.kind not in RESTARTS:
        return
    limits = case.policy.limits
    today = [
        one
        for one in case.own
        if one.kind in RESTARTS and one.state in ("dispatched", "running", "succeeded") and case.now - one.at < _DAY_S
    ]
    if len(today) >= limits.restarts_per_day:
        said = f"it was restarted {len(today)} times in a day"
        where = case.line("limits.restarts_per_day")
        case.choose("budget", "none", f"No further restart: {said}.", where, tell="operator")
        case.hold("restarts-per-day", said, "restart it by hand, or raise limits.restarts_per_day", where)
        case.avoid, case.check, case.not_before = [], [], None
        return
    if case.incident is not None:
        return
    budget = case.policy.budget(case.diagnosis.reason, case.job_class)
    count = fruitless(case.attempts, budget, case.now)
    if count > budget.attempts:
        said = f"{count} failures of {case.diagnosis.reason} in a row without progress between them"
        case.choose("budget", "none", f"No further restart: {said}.", budget.where, tell="operator")
        change = "progress of the job, a restart by hand, or more attempts for this reason"
        case.hold("budget", said, change, budget.where)
        case.avoid, case.check, case.not_before = [], [], None
        return
    wait = min(budget.backoff_s * 2 ** min(count - 1, 32), budget.backoff_most_s)
    case.note("budget", f"failure {count} of {budget.attempts} without progress; wait {_span(wait)}", budget.where)
    if wait:
        case.not_before = max(case.not_before or 0.0, case.now + wait)


def _cool_down(case: _Case) -> None:
    """Did an action on this job end just now?"""
    if case.settled or case.kind not in RESTARTS:
        return
    ended = [one.ended for one in case.own if one.ended is not None and one.ended <= case.now]
    until = max(ended, default=-math.inf) + case.policy.limits.job_cool_down_s
    if until > case.now:
        case.not_before = max(case.not_before or 0.0, until)
        case.note(
            "cool-down", f"an action on this job ended {_span(case.now - max(ended))} ago", case.line("limits.job_cool_down")
        )


def _test_first(case: _Case) -> None:
    """Are the job's nodes to be tested before it starts again?"""
    remedy = case.policy.remedy(case.diagnosis.reason, case.job_class)
    if case.settled or case.incident is not None or case.kind not in RESTARTS or not remedy.check_nodes:
        return
    away = set(case.nodes) | (case.cluster.isolated() if case.cluster is not None else set())
    nodes = [node for node in case.history.nodes if node not in away]
    if len(nodes) < 2:
        case.note("test-first", "there are no two nodes to test against each other", remedy.where)
        return
    case.check_first = nodes
    case.note("test-first", f"{len(nodes)} nodes are tested against each other first", remedy.where)


def _on_whose_word(case: _Case) -> None:
    """Who says yes?"""
    chosen = case.policy.mode_for(case.diagnosis.reason, case.kind, case.job_class)
    case.note("mode", f"{chosen.mode}, by {chosen.clause}", chosen.where)
    _narrow(case, chosen)
    if case.mode != "auto" and case.tell == "nobody" and case.kind in RESTARTS:
        case.tell = "operator"


def _narrow(case: _Case, chosen: Chosen) -> None:
    case.mode = min(case.mode, chosen.mode, key=MODES.index)
    if case.settled or case.kind not in RESTARTS:
        return
    if chosen.mode != "auto":
        said = "the policy only observes" if chosen.mode == "observe" else "the policy asks for a person's yes"
        case.hold("mode", said, f"modes: {{{case.kind}: auto}} in the policy", chosen.where, at_most=chosen.mode)
    if case.diagnosis.by == "agent":
        change = "a person's yes, or a rule that knows the line: diagnose rules"
        case.hold("agent", "the diagnosis is an agent's", change, at_most="approve")
    needed = case.policy.confidence_for(case.kind, case.job_class)
    if case.diagnosis.confidence < needed:
        said = f"the diagnosis is {case.diagnosis.confidence:.0%} sure, {needed:.0%} are asked for"
        case.hold("confidence", said, "a person's yes", case.line("confidence"), at_most="approve")
    if (hours := quiet(case.policy.quiet_hours, case.kind, case.now)) is not None and MODES.index(hours.at_most) < MODES.index(
        chosen.mode
    ):
        said = f"quiet hours until {hours.said(case.now)}"
        case.hold("quiet-hours", said, f"{said}, or a person's yes", hours.where, at_most=hours.at_most)


LOOKS: tuple[Callable[[_Case], None], ...] = (
    _usual,
    _acted_already,
    _burst,
    _weigh,
    _startup,
    _data,
    _node,
    _radius,
    _budget,
    _cool_down,
    _test_first,
    _on_whose_word,
)


# --- nodes -----------------------------------------------------------------------------------------------------------------


def room(
    nodes: list[str], history: History, cluster: Cluster | None, policy: Policy, now: float
) -> tuple[list[str], list[Limit]]:
    """Which of ``nodes`` may still be isolated, and what stands against the others."""
    limits = policy.limits
    if cluster is None or not cluster.nodes:
        change = "let the service know the cluster's nodes"
        return nodes, [Limit("cluster-unknown", "how many nodes there are is not known", change)]
    hour = now - 3600
    recent = {one.node for one in cluster.isolations if one.by == "decision" and hour < one.at <= now}
    waiting = {
        node
        for one in history.actions
        if one.kind in ("isolate_and_restart", ISOLATE) and _may_take_out(one, hour)
        for node in one.nodes
    }
    isolated = cluster.isolated() | waiting
    spaces = [
        (
            "nodes-at-once",
            limits.nodes_at_once,
            f"more than {limits.nodes_at_once} nodes at once",
            "limits.nodes_at_once",
        ),
        (
            "isolations-per-hour",
            limits.isolations_per_hour - len((recent | waiting) - set(nodes)),
            f"{len(recent | waiting)} nodes were isolated in the last hour",
            "limits.isolations_per_hour",
        ),
        (
            "isolated-share",
            math.floor(limits.isolated_share * len(cluster.nodes) + 1e-9) - len(isolated - set(nodes)),
            f"{len(isolated)} of {len(cluster.nodes)} nodes are isolated",
            "limits.isolated_share",
        ),
    ]
    allowed, held = list(nodes), []
    for name, space, said, clause in spaces:
        if len(allowed) > max(0, space):
            allowed = allowed[: max(0, space)]
            change = f"a person isolates by hand, time passes, nodes are released, or {clause} in the policy"
            held.append(Limit(name, f"Blast radius: {said}", change, policy.line(clause)))
    return allowed, held


def _may_take_out(one: PastAction, hour: float) -> bool:
    """Whether an isolation is under way, or ended lately without a word of what was done."""
    if one.state in ("approved", "dispatched", "running"):
        return True
    return one.state == "expired" and one.taken and (one.ended or one.at) > hour


def decide_node(
    node: str, history: History, cluster: Cluster, policy: Policy, now: float, *, corrected: bool = False
) -> Decision:
    """What to do about a node by itself, after a node check or a corrected diagnosis: isolate it, give it back, or nothing.

    ``corrected``: the diagnosis that it was isolated on does not hold any more.
    """
    state = cluster.nodes.get(node)
    past = sorted((one for one in cluster.isolations if one.node == node), key=lambda one: one.at)
    last = past[-1] if past else None
    failed = [f for f in history.failures if node in f.suspects and f.by != "agent" and now - f.at <= policy.signals.within_s]
    since = last.at if last and last.released is None else max((f.at for f in failed), default=None)
    seen = checked(node, cluster, policy, now, since)
    limits: list[Limit] = []
    steps = [Step("signal", f"{one.said} ({one.points})", policy.line("signals")) for one in seen]
    kind, why = "none", "Nothing is to be done about the node."
    tell: Tell = "nobody"
    if state == "isolated":
        kind, why, limits = _give_back(last, past, seen, policy, now, corrected)
    elif state in ("ok", "suspect"):
        if failed:
            seen.append(Signal(node, "recurrence", 1, f"a diagnosis named it, last that of {failed[-1].job}"))
            steps.append(Step("signal", f"{seen[-1].said} (1)", policy.line("signals")))
        if points(seen, node) >= policy.signals.needed and not _never(node, policy):
            kind, why = ISOLATE, f"{'; '.join(one.said for one in seen)}."
            allowed, limits = room([node], history, cluster, policy, now)
            if not allowed:
                kind, why, tell = "none", limits[0].said, "operator"
    wanted = kind if not limits else (RELEASE if state == "isolated" else ISOLATE)
    steps.append(Step("node", why, policy.line("limits"), decided=True))
    chosen = policy.mode_for("node", kind if kind != ISOLATE or ISOLATE in policy.modes else "isolate_and_restart")
    steps.append(Step("mode", f"{chosen.mode}, by {chosen.clause}", chosen.where))
    mode = chosen.mode
    if (hours := quiet(policy.quiet_hours, kind, now)) is not None and MODES.index(hours.at_most) < MODES.index(mode):
        mode = hours.at_most
        limits.append(Limit("quiet-hours", f"quiet hours until {hours.said(now)}", "a person's yes", hours.where))
    if any(limit.name == "person" for limit in limits):
        tell = "operator"
    stamp = f"{last.at:.0f}" if last else f"{since or 0:.0f}"
    return Decision(
        job="",
        attempt=0,
        group=stamp,
        reason="node",
        action=Action(kind=kind, nodes=[node] if kind != "none" else [], why=why),
        wanted=wanted,
        mode=mode,
        decided_by="node",
        reasons=tuple(steps),
        limits=tuple(limits),
        key=key_of("", 0, stamp, kind, [node]),
        made_at=now,
        tell=tell,
        evidence={
            "node": node,
            "state": state,
            "signals": [{"node": s.node, "name": s.name, "points": s.points, "said": s.said} for s in seen],
            "isolations": [[one.at, one.by, one.released] for one in past[-10:]],
        },
    )


def _give_back(
    last: Isolation | None, past: list[Isolation], seen: list[Signal], policy: Policy, now: float, corrected: bool
) -> tuple[str, str, list[Limit]]:
    """Whether an isolated node may come back."""
    rules = policy.limits
    if last is None or last.by != "decision":
        who = last.by if last else "nobody knows who"
        limit = Limit("person", f"{who} isolated it", "who isolated it releases it")
        return "none", "A person isolated the node: a person gives it back.", [limit]
    if now - last.at < rules.node_cool_down_s:
        left = _span(rules.node_cool_down_s - (now - last.at))
        limit = Limit(
            "cool-down", f"it was isolated {_span(now - last.at)} ago", f"{left} more", policy.line("limits.node_cool_down")
        )
        return "none", "The node was isolated just now.", [limit]
    passed = any(one.name == "check-passed" for one in seen)
    if not passed and not corrected:
        return "none", "Nothing clears the node.", [Limit("check", "no node check since", "a node check that it passes")]
    if any(one.points for one in seen):
        return "none", "The node check speaks against it.", [Limit("check", seen[0].said, "a repair, then a node check")]
    often = sum(one.by == "decision" and now - one.at < 30 * _DAY_S for one in past)
    if often >= rules.isolations_of_a_node and not corrected:
        said = f"it was isolated {often} times in 30 days"
        limit = Limit("person", said, "a repair, then a person releases it", policy.line("limits.isolations_of_a_node"))
        return "none", f"The node passed its check, but {said}.", [limit]
    return (
        RELEASE,
        "The diagnosis behind the isolation does not hold any more." if corrected else "The node passed its check.",
        [],
    )


# --- small words -----------------------------------------------------------------------------------------------------------


def _can_be_isolated(case: _Case, node: str) -> bool:
    """Whether ``node`` is one that this decision may take out at all."""
    if not _is_the_jobs(case, node):
        case.hold("not-the-jobs", f"the job did not run on {node}", "a log of a job that did")
        return False
    if _never(node, case.policy):
        case.avoid.append(node)
        case.hold("never", f"{node} is never isolated", "limits.never in the policy", case.line("limits.never"))
        case.tell = "operator"
        return False
    return True


def _is_the_jobs(case: _Case, node: str) -> bool:
    """Whether the job ran there, as far as that is known: a log may name whomever it likes."""
    if case.history.nodes and node not in case.history.nodes:
        return False
    return case.cluster is None or not case.cluster.nodes or node in case.cluster.nodes


def _never(node: str, policy: Policy) -> bool:
    return any(fnmatch.fnmatchcase(node, pattern) for pattern in policy.limits.never)


def _covers(skip: tuple[int, int], step: float) -> bool:
    return skip[0] - 1 <= step <= skip[1] + 1


def _shipped(reason: str) -> Remedy:
    return shipped_policy().remedy(reason)


def _span(seconds: float) -> str:
    return duration(max(0.0, seconds))
