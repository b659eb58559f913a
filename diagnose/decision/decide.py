"""Report, history, cluster, policy -> what is done, and why: values in, value out.

Read ``LOOKS`` first: the questions are asked in that order. Each has one function, which writes down what it found. Some choose
the action, some hold it back, and the last says who must approve it. The promises:

- Nothing is decided twice: the same case gives the same decision, and an attempt that was answered is not answered again.
- A node is isolated only if enough speaks against it, it is one of the job's, and the blast radius allows it. Else the job
  goes on without the node, and the node is tested.
- A limit only makes an action milder: auto becomes approve, isolation becomes avoidance, a restart becomes a stop.
- Every decision has its sentence, the line of the policy that made it, what would change it, and its evidence for the audit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Final

from diagnose.backoff import Backoff
from diagnose.decision.bursts import hold_s, incident
from diagnose.decision.case import Case
from diagnose.decision.checkpoints import newest, stretch
from diagnose.decision.clauses import MODES, Mode
from diagnose.decision.ending import Ending, ending_of_log, joined, stopped_by_somebody
from diagnose.decision.history import Checkpoint, Cluster, History, PastAction, PastAttempt
from diagnose.decision.holding import OF_THE_JOB, controller
from diagnose.decision.node import ended_well_beside_a_fault, node, radius
from diagnose.decision.policy import CHECK, HOLD, ISOLATE, Chosen, Policy
from diagnose.decision.policy_file import shipped_policy
from diagnose.decision.quiet_hours import quiet
from diagnose.decision.recurrence import alike_at_startup, fruitless, same_place
from diagnose.decision.result import RESTARTS, Decision, span
from diagnose.decision.signals import accuses, against
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.quantities import DAY_S, HOUR_S
from diagnose.report import Report, RestartFrom

_WHILE_RUNNING: Final = frozenset({"loss_anomaly", "hang"})
_OF_MEMORY: Final = re.compile(r"memory|\boom\b|oom[-_]?kill|cgroup|bad_?alloc", re.IGNORECASE)
_NEVER_DONE: Final = frozenset({"rejected", "withdrawn"})
_UNDER_WAY: Final = frozenset({"dispatched", "running", "succeeded", "failed", "expired"})


def decide(report: Report, history: History, cluster: Cluster | None, policy: Policy, now: float) -> Decision:
    """What to do about a report. ``now`` is in seconds since 1970; nothing here looks at a clock."""
    case = Case(joined(report, history.ending), history, cluster, policy, now)
    for look in LOOKS:
        look(case)
    return case.decision()


# --- the questions, in order -----------------------------------------------------------------------------------------------


def _usual(case: Case) -> None:
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
    # The line itself counts more than the table, unless the site's file or the job's class says otherwise.
    own = case.diagnosis.by != "agent" and remedy.kind == shipped_policy().remedy(reason).kind and advised.kind != remedy.kind
    kind, why = (advised.kind, advised.why) if own and advised.kind in shipped_taxonomy().actions else (remedy.kind, remedy.why)
    case.choose("usual", kind, why, remedy.where if not own else case.diagnosis.rule or "")
    case.wanted = kind
    if kind == "isolate_and_restart":
        case.nodes = list(dict.fromkeys(case.diagnosis.suspects.nodes))
    if kind == "rollback_and_skip":
        case.restart_from, case.skip = advised.restart_from, advised.skip_batches
    case.tell = "owner" if kind in OF_THE_JOB else "operator" if kind == "none" else "nobody"


def _scheduler(case: Case) -> None:
    """What does the scheduler say of how it ended?"""
    ending = case.history.ending or ending_of_log(case.report)
    if (ending is None or ending.by_hand) and case.kind in RESTARTS and stopped_by_somebody(case.report):
        said = "it was told to stop, and neither a scheduler nor its log says by whom: perhaps by a person"
        case.hold("who-stopped-it", said, "a person's yes, or the scheduler's word on how it ended", at_most="approve")
    if ending is None:
        return
    case.note("scheduler", ending.said)
    if ending.kind == "cancelled":
        why = f"{ending.said}: who cancelled it does not want it back."
        by_other = ending.by == "other"  # its user may wonder where it went
        case.choose("scheduler", "none", why, tell="owner" if by_other else "nobody")
        case.hold("cancelled", ending.said, f"{'ask who cancelled it, then ' if by_other else ''}submit the job again")
        case.settled = True
    elif ending.kind == "time_limit" and case.diagnosis.reason == "preempted":
        _after_the_time_limit(case, ending)
    elif ending.kind == "completed" and case.kind in RESTARTS:
        stood = case.diagnosis.reason == "hang"
        why = (
            "it ended, and only its log stood still"
            if stood
            else f"it ended well, though its log tells of {case.diagnosis.reason}"
        )
        case.choose("scheduler", "none", f"{ending.said}: {why}.", tell="nobody" if stood else "owner")
        case.settled = True
    elif ending.kind == "failed" and case.report.outcome == "healthy":
        case.choose("scheduler", "none", f"{ending.said}, and its log says nothing of a failure.", tell="operator")
        case.hold("unexplained", ending.said, "look where else the job wrote")


_UNSAID = ("unknown", "host_out_of_memory")
"""what may be said of an earlier attempt that was killed alike"""


def _killed(case: Case) -> None:
    """Did it die amid its work, and nothing says of what? The first time a restart costs less than a person."""
    reason, root, ending = case.diagnosis.reason, case.diagnosis.root_cause, case.history.ending
    if reason == "unknown":
        _of_nobody_knows_what(case, ending)
        return
    if case.settled or case.kind not in OF_THE_JOB or not shipped_taxonomy().has(reason, "kills") or root is None:
        return
    told = [root.text, *(line.text for line in case.diagnosis.evidence)]
    proven = any(_OF_MEMORY.search(text) for text in told) or (ending is not None and ending.kind == "out_of_memory")
    again = any(one.reason == reason for one in case.history.attempts)
    if proven or again or case.diagnosis.step is None:
        return
    why = "Something killed it, and nothing says that memory ran out: once may be luck, a second time is not."
    case.choose("killed", "restart", why, tell="nobody")
    case.wanted = "restart"


def _of_nobody_knows_what(case: Case, ending: Ending | None) -> None:
    """One restart of what had made steps, if the scheduler says that it failed, and not by a signal of a person."""
    # The report proposes a restart only after a SIGKILL amid the work.
    killed = case.kind == case.report.action.kind == "restart"
    told = ending is not None and ending.kind == "failed" and not ending.by_hand and case.report.outcome == "failed"
    ours = case.policy.remedy("unknown", case.job_class).why == shipped_policy().remedy("unknown").why
    failed = told and ours and case.diagnosis.step is not None
    if case.settled or not (killed or failed):
        return
    if any(one.reason in _UNSAID for one in case.history.attempts):
        how = "was killed" if killed else "failed"
        case.choose("killed", "none", f"It {how} again, and nothing says of what: a person should look.", tell="operator")
        case.wanted = "none"
    elif failed:
        why = "Nothing says why it failed amid its work: once may be luck, a second time is not."
        case.choose("killed", "restart", why, tell="owner")
        case.wanted, case.rests_on_diagnosis = "restart", False


def _after_the_time_limit(case: Case, ending: Ending) -> None:
    """Restart it only if the policy says so, and if it does not begin anew."""
    where, most = case.line("limits.after_time_limit"), case.policy.limits.after_time_limit
    known = (*case.history.checkpoints, *case.report.checkpoints)
    today = [one for one in case.own if one.kind in RESTARTS and one.reason == "preempted" and case.now - one.at < DAY_S]
    if len(today) < most and known:
        return
    if most == 0:
        said, change = "the policy restarts no job after its time limit", "limits.after_time_limit in the policy"
    elif not known:
        said, change = "no checkpoint is known: it would begin anew", "let the training report its checkpoints"
    else:
        said, change = f"it was restarted {len(today)} times in a day", "limits.after_time_limit in the policy"
    case.choose("scheduler", "none", f"{ending.said}: {said}.", where, tell="owner")
    case.hold("time-limit", said, f"submit the job again with more time, or {change}", where)
    case.settled = True


def _acted_already(case: Case) -> None:
    """Was an action for this attempt decided before?"""
    mine = [one for one in case.own if one.attempt == case.attempt and one.kind in RESTARTS]
    begun = [one for one in mine if one.state in _UNDER_WAY]
    if begun:
        last = max(begun, key=lambda one: one.at)
        named = set(case.diagnosis.suspects.nodes) if accuses(case.diagnosis.reason) else set()
        wrong = tuple(sorted({node for one in begun for node in one.nodes} - named))
        case.settled = True
        said = f"Attempt {case.attempt} was answered by {last.kind} ({last.state})."
        if wrong:
            case.release = wrong
            said += f" The diagnosis has changed since: nothing speaks for the isolation of {', '.join(wrong)} any more."
        case.choose(
            "acted-already", "none", said, tell="operator" if wrong or last.state in ("failed", "expired") else "nobody"
        )
        case.hold("acted-already", said, "a new attempt of the job gets its own decision")
        return
    if any(one.state == "rejected" for one in mine):
        case.settled = True
        case.choose("acted-already", "none", "A person said no to an action for this attempt.", tell="nobody")
        case.hold("rejected", "a person said no", "start the job by hand; a new attempt gets its own decision")
        return
    holds = [one for one in case.own if one.attempt == case.attempt and one.kind == HOLD]
    # Nobody took what expired untaken: nothing was done.
    if held := [one for one in holds if one.state in _UNDER_WAY and (one.state != "expired" or one.taken)]:
        last = max(held, key=lambda one: one.at)
        said = f"Attempt {case.attempt} was answered by hold ({last.state}){f': {last.said}' if last.said else ''}."
        case.settled = True
        if case.kind in OF_THE_JOB:
            case.note("acted-already", said)  # the advice stays
        else:
            case.choose("acted-already", "none", said, tell="operator")
        case.hold("acted-already", said, "let it go, as the hold's result says; a new attempt gets its own decision")
        return
    case.supersedes = tuple(one.key for one in (*mine, *holds) if one.state in ("proposed", "approved"))


def _burst(case: Case) -> None:
    """Do many jobs fail of this at once?"""
    if case.settled:
        return
    found = incident(case.job, case.attempt, case.diagnosis.reason, case.history, case.policy, case.now)
    if found is None:
        return
    case.incident = found
    where = case.line("bursts.jobs")
    bursts = case.policy.bursts
    said = f"{found.jobs} jobs failed of {bursts.family(case.diagnosis.reason)} within {span(bursts.within_s)}"
    if case.kind not in RESTARTS:
        case.note("burst", f"{said}: incident {found.key}", where)
    else:
        wait = hold_s(case.job, found.rounds, case.policy.bursts)
        case.not_before = case.now + wait
        why = f"{said}: one incident ({found.key}), not the job's fault and no node's. It goes on in {span(wait)}."
        case.choose("burst", "retry_later", why, where)
        change = f"fewer than {case.policy.bursts.jobs} jobs in {span(case.policy.bursts.within_s)}, or bursts in the policy"
        case.hold("circuit-breaker", f"incident {found.key}", change, where)
    # People get one message per incident: the first decision sends it.
    if case.kind not in OF_THE_JOB:
        case.tell = "operator" if found.first else "nobody"


def _startup(case: Case) -> None:
    """Does it fail in the same way at every start?"""
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


def _data(case: Case) -> None:
    """Does it fail at the same place in its data, or did the loss go wrong?"""
    if case.settled or case.incident or any(signal.name == "xid" for signal in case.signals):
        return
    earlier = same_place(case.attempts, case.policy)
    batches = _spoilt_batches(case, earlier)
    if batches is None:
        return
    onset, last = batches
    tried = [one for one in case.own if one.skip is not None and _covers(one.skip, onset)]
    if earlier is not None and case.kind != "rollback_and_skip" and not _blames_the_data(case, earlier, onset, bool(tried)):
        return
    budget = case.policy.budget("loss_anomaly", case.job_class)
    if len(tried) >= budget.attempts:
        why = f"The loss went wrong near step {onset:.0f} again after {len(tried)} roll-backs."
        case.choose("data", "none", why, budget.where, tell="operator")
        case.hold("rollbacks", why, "find the cause by hand; or raise attempts of loss_anomaly", budget.where)
        return
    case.skip = stretch(onset, last, case.policy.rollback, wider=len(tried))
    _go_back(case, case.skip[0], tried)


def _spoilt_batches(case: Case, earlier: PastAttempt | None) -> tuple[float, float | None] | None:
    """(where the bad data began, where it ended); None if nothing says that it is the data."""
    affected, step = case.diagnosis.affected, case.diagnosis.step
    batches: tuple[float, float | None]
    if case.kind == "rollback_and_skip" and affected is not None:
        batches = affected.first, affected.last
    elif earlier is not None and step is not None:
        batches = step, step + 1
    else:
        return None
    return batches if math.isfinite(batches[0]) and batches[0] >= 0 else None


def _blames_the_data(case: Case, earlier: PastAttempt, onset: float, left_out_before: bool) -> bool:
    """Two attempts failed in the same way at one step. Then the data is to blame, unless it was left out before."""
    where = case.line("rollback.same_step")
    if left_out_before:
        why = f"It failed at step {onset:.0f} again although those batches were left out: it is not the data."
        case.choose("data", "fix_code", why, where, tell="owner")
        return False
    why = f"Attempts {earlier.number} and {case.attempt} failed alike at step {onset:.0f}: it is the data at that place."
    case.choose("data", "rollback_and_skip", why, where)
    case.wanted, case.tell = "rollback_and_skip", "nobody"
    return True


def _go_back(case: Case, first: int, tried: Sequence[PastAction]) -> None:
    """The newest checkpoint before ``first`` that was not yet tried without success."""
    below = min((one.restart_step for one in tried if one.restart_step is not None), default=None)
    known = [*case.history.checkpoints, *(Checkpoint(c.step, c.path, complete=c.complete) for c in case.report.checkpoints)]
    start = newest(known, first, below)
    if start is None:
        case.restart_from = RestartFrom(step=first)
        change = "let the training report its checkpoints, or name one in the approval"
        case.hold("checkpoint-unknown", f"no checkpoint of step {first:,} or before is known", change, at_most="approve")
        return
    case.restart_from = RestartFrom(step=start.step, path=start.path)
    told = "" if start.complete else ", whose save was seen to begin, not to end"
    case.note("checkpoint", f"the newest checkpoint before step {first:,} is that of step {start.step:,}{told}")


def _covers(skip: tuple[int, int], step: float) -> bool:
    return skip[0] - 1 <= step <= skip[1] + 1


def _weigh(case: Case) -> None:
    """What speaks against which node?"""
    if case.settled and not ended_well_beside_a_fault(case):
        return
    signals = against(case.diagnosis, case.job, case.attempt, case.history, case.cluster, case.policy, case.now)
    case.signals = signals
    for signal in signals:
        case.note("signal", f"{signal.node}: {signal.said} ({signal.points})", case.line("signals"))


def _budget(case: Case) -> None:
    """Was it restarted often enough?"""
    if case.settled or case.kind not in RESTARTS or _restarted_all_day(case) or case.incident is not None:
        return
    budget = case.policy.budget(case.diagnosis.reason, case.job_class)
    count = fruitless(case.attempts, budget, case.now)
    if count > budget.attempts:
        said = f"{count} failures of {case.diagnosis.reason} in a row without progress between them"
        change = "progress of the job, a restart by hand, or more attempts for this reason"
        _no_further_restart(case, "budget", said, change, budget.where)
        return
    wait = Backoff(budget.backoff_s, budget.backoff_most_s).after(count)
    case.note("budget", f"failure {count} of {budget.attempts} without progress; wait {span(wait)}", budget.where)
    if wait:
        case.not_before = max(case.not_before or 0.0, case.now + wait)


def _restarted_all_day(case: Case) -> bool:
    """Whether it had all its restarts of this day, whatever the causes."""
    today = [
        one
        for one in case.own
        if one.kind in RESTARTS and one.state in ("dispatched", "running", "succeeded") and case.now - one.at < DAY_S
    ]
    if len(today) < case.policy.limits.restarts_per_day:
        return _owner_had_all_day(case)
    said = f"it was restarted {len(today)} times in a day"
    change = "restart it by hand, or raise limits.restarts_per_day"
    _no_further_restart(case, "restarts-per-day", said, change, case.line("limits.restarts_per_day"))
    return True


def _owner_had_all_day(case: Case) -> bool:
    """Whether all jobs of its owner together had all their restarts: a new name is no new budget."""
    owner, most = case.history.owner, case.policy.limits.restarts_of_owner
    if owner is None:
        return False
    done = ("dispatched", "running", "succeeded")
    today = sum(
        one.owner == owner and one.kind in RESTARTS and one.state in done and case.now - one.at < DAY_S
        for one in case.history.actions
    )
    if today < most:
        return False
    change = "restart it by hand, or raise limits.restarts_of_owner"
    said = f"jobs of {owner} were restarted {today} times in a day"
    _no_further_restart(case, "restarts-of-owner", said, change, case.line("limits.restarts_of_owner"))
    return True


def _no_further_restart(case: Case, name: str, said: str, change: str, where: str) -> None:
    case.choose("budget", "none", f"No further restart: {said}.", where, tell="operator")
    case.hold(name, said, change, where)
    case.avoid, case.check, case.not_before = [], [], None


def _cool_down(case: Case) -> None:
    """Did an action on this job just end?"""
    if case.settled or case.kind not in RESTARTS:
        return
    ended = [one.ended for one in case.own if one.ended is not None and one.ended <= case.now]
    until = max(ended, default=-math.inf) + case.policy.limits.job_cool_down_s
    if until > case.now:
        case.not_before = max(case.not_before or 0.0, until)
        case.note(
            "cool-down", f"an action on this job ended {span(case.now - max(ended))} ago", case.line("limits.job_cool_down")
        )


def _alarm(case: Case) -> None:
    """Does it still run? Then the alarm must have lasted."""
    if case.settled or case.report.outcome != "running" or case.kind not in RESTARTS:
        return
    mine = [one.at for one in case.own if one.attempt == case.attempt and one.key in case.supersedes]
    since, wait = min([case.now, *mine]), case.policy.alarms.lasts_s
    case.not_before = max(case.not_before or 0.0, since + wait)
    stood = " The stacks of its processes were read." if case.diagnosis.dumps is not None else ""
    case.note("alarm", f"the job still runs: the alarm must last {span(wait)}.{stood}", case.line("alarms.lasts"))


def _test_first(case: Case) -> None:
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


def _on_whose_word(case: Case) -> None:
    """Who must approve it?"""
    _go_on_meanwhile(case)
    # An isolation without a restart needs the word that one with a restart needs, unless the policy has one for it.
    kind = "isolate_and_restart" if case.kind == ISOLATE and ISOLATE not in case.policy.modes else case.kind
    kind = HOLD if case.holds else kind
    chosen = case.policy.mode_for(case.diagnosis.reason, kind, case.job_class)
    case.note("mode", f"{chosen.mode}, by {chosen.clause}", chosen.where)
    _narrow(case, chosen, kind)
    if case.mode != "auto" and case.tell == "nobody" and case.kind in RESTARTS:
        case.tell = "operator"


def _go_on_meanwhile(case: Case) -> None:
    """If only the isolation needs a person's yes, the job goes on at once without the node."""
    if case.settled or case.kind != "isolate_and_restart" or not case.nodes:
        return
    isolation = min(case.mode, _at_most(case, "isolate_and_restart"), key=MODES.index)
    if isolation != "approve" or _at_most(case, "restart") != "auto":
        return
    nodes, where = case.nodes, case.policy.mode_for(case.diagnosis.reason, case.kind, case.job_class).where
    told = ", ".join(nodes)
    case.choose("on-whose-word", "restart", f"It goes on at once without {told}. The isolation waits for a person.", where)
    case.isolate, case.mode = nodes, "auto"
    case.avoid = list(dict.fromkeys([*case.avoid, *nodes]))
    case.hold(
        "isolation-waits", f"the isolation of {told} needs a person's yes", f"a yes to the action isolate of {told}", where
    )
    case.tell = "operator"


def _at_most(case: Case, kind: str, *, by_confidence: bool = True) -> Mode:
    """How far an action of this kind may go without a person, as ``_narrow`` says with reasons."""
    chosen = case.policy.mode_for(case.diagnosis.reason, kind, case.job_class).mode
    hours = quiet(case.policy.quiet_hours, kind, case.now)
    asked = by_confidence and case.rests_on_diagnosis
    unsure = asked and case.diagnosis.confidence < case.policy.confidence_for(kind, case.job_class)
    doubted = unsure or case.history.unconfirmed is not None or case.diagnosis.by == "agent"
    limits = [chosen, hours.at_most if hours is not None else "auto", "approve" if doubted else "auto"]
    return MODES[min(map(MODES.index, limits))]


def _narrow(case: Case, chosen: Chosen, kind: str) -> None:
    case.mode = min(case.mode, chosen.mode, key=MODES.index)
    if case.kind != ISOLATE and not case.holds and (case.settled or case.kind not in RESTARTS):
        return
    if chosen.mode != "auto":
        said = "the policy only observes" if chosen.mode == "observe" else "the policy asks for a person's yes"
        case.hold("mode", said, f"modes: {{{kind}: auto}} in the policy", chosen.where, at_most=chosen.mode)
    if case.history.unconfirmed is not None:
        change = "a person's yes, or what the reason names: the scheduler's word, or a token that may speak for the job"
        case.hold("unconfirmed", f"not confirmed: {case.history.unconfirmed}", change, at_most="approve")
    if case.diagnosis.by == "agent":
        change = "a person's yes, or a rule that knows the line: diagnose rules"
        case.hold("agent", "the diagnosis is an agent's", change, at_most="approve")
    needed = case.policy.confidence_for("isolate_and_restart" if case.kind == ISOLATE else kind, case.job_class)
    if case.rests_on_diagnosis and case.diagnosis.confidence < needed:
        said = f"the diagnosis is {case.diagnosis.confidence:.0%} sure, {needed:.0%} are asked for"
        case.hold("confidence", said, "a person's yes", case.line("confidence"), at_most="approve")
    if (hours := quiet(case.policy.quiet_hours, kind, case.now)) is not None and MODES.index(hours.at_most) < MODES.index(
        chosen.mode
    ):
        said = f"quiet hours until {hours.said(case.now)}"
        case.hold("quiet-hours", said, f"{said}, or a person's yes", hours.where, at_most=hours.at_most)


def _test_alone(case: Case) -> None:
    """Which nodes are tested by orders of their own: those that are doubted, and that the job leaves alone meanwhile."""
    most, free = case.policy.limits.checks_per_hour, case.kind not in RESTARTS
    gone = case.cluster.isolated() if case.cluster is not None else set()
    nodes = [node for node in case.check if (free or node in case.avoid) and node not in gone]
    running = case.report.outcome == "running"
    if running or not most or case.incident is not None or len(nodes) > case.policy.signals.named_most:
        return
    where, hour = case.line("limits.checks_per_hour"), case.now - HOUR_S
    lately = [one for one in case.history.actions if one.kind == CHECK and one.at > hour and one.state not in _NEVER_DONE]
    since = case.history.ended if case.history.ended is not None else case.now
    under_test = {node for one in lately if one.ended is None or one.at >= since for node in one.nodes}
    nodes = [node for node in nodes if node not in under_test]
    room = max(0, most - len(lately))
    if left := nodes[room:]:
        said = f"{', '.join(left)}: not tested, {len(lately)} tests were ordered in the last hour, and {most} may be"
        change = "time passes, a node check by hand, or limits.checks_per_hour in the policy"
        case.hold("checks-per-hour", said, change, where)
    case.test = nodes[:room]
    if case.test:
        case.test_mode = _at_most(case, CHECK, by_confidence=False)
        told = f"{', '.join(case.test)}: to be tested with nodes that are proven good ({case.test_mode})"
        case.note("test-alone", told, where)


LOOKS: tuple[Callable[[Case], None], ...] = (
    _usual,
    _scheduler,
    _killed,
    _acted_already,
    _burst,
    _weigh,
    _startup,
    _data,
    node,
    radius,
    _budget,
    _cool_down,
    _alarm,
    _test_first,
    controller,
    _on_whose_word,
    _test_alone,
)
