"""Nodes: which of them a failure speaks against, how many may be taken out at once, and what is done about a single node.

A node is isolated only if enough speaks against it, it is one of the job's, and the blast radius allows it. Else the job goes
on without the node, and the node is checked.
"""

from __future__ import annotations

import fnmatch
import math
from dataclasses import dataclass
from typing import Final

from diagnose.decision.action import UNDONE, key_of
from diagnose.decision.bursts import incident
from diagnose.decision.case import Case
from diagnose.decision.clauses import MODES, Mode
from diagnose.decision.history import Cluster, Failure, History, Isolation, PastAction
from diagnose.decision.policy import ISOLATE, REBOOT, RELEASE, Chosen, Policy
from diagnose.decision.quiet_hours import quiet
from diagnose.decision.result import Decision, Limit, Step, Tell, span
from diagnose.decision.signals import Signal, accuses, checked, of_machines, points
from diagnose.quantities import DAY_S, HOUR_S
from diagnose.report import Action

_MET_BEFORE: Final = frozenset({"seen-before", "recurrence", "check-suspect", "check-slow", "reported"})


# --- the nodes of a job that failed ----------------------------------------------------------------------------------------


def node(case: Case) -> None:
    """Is a node at fault, and is that certain enough to take it out?"""
    if ended_well_beside_a_fault(case):
        _without_a_restart(case)
        return
    if case.settled or case.incident or case.kind not in ("restart", "isolate_and_restart"):
        return
    named = list(dict.fromkeys(case.diagnosis.suspects.nodes))
    strong = [one for one in named if points(case.signals, one) >= case.policy.signals.needed]
    if case.kind == "restart":
        if not strong:
            _avoid_who_was_met_before(case, named)
            return
        _follows_the_node(case, strong)
    gone = _out_of_service(case)
    wanted = [one for one in case.nodes if one not in gone]
    case.nodes = [one for one in wanted if one in strong and _can_be_isolated(case, one)]
    cleared = _cleared(case, wanted)
    weak = [one for one in wanted if one not in strong and one not in cleared and _is_the_jobs(case, one)]
    _in_doubt(case, named, weak)
    if not case.nodes:
        _go_on(case, gone if not wanted else [])


def ended_well_beside_a_fault(case: Case) -> bool:
    """Whether the scheduler says that the job ended well, and its log speaks against nodes: a script may end with || true, and
    what holds the restart back says nothing of the node.
    """
    ending, reason = case.history.ending, case.diagnosis.reason
    well = case.decided_by == "scheduler" and ending is not None and ending.kind == "completed"
    return well and accuses(reason) and reason != "hang"


def _without_a_restart(case: Case) -> None:
    """The node's part alone: the nodes are isolated or to be checked as after a failure, and who operates them is told."""
    named, machine = list(dict.fromkeys(case.diagnosis.suspects.nodes)), of_machines(case.diagnosis.reason)
    gone = case.cluster.isolated() if case.cluster is not None else set()
    there = [one for one in named if one not in gone and _is_the_jobs(case, one)]
    isolated = _isolated_alone(case, there)
    told = {one.node for one in case.signals if one.name in _MET_BEFORE}
    cleared = {one.node for one in case.signals if one.name == "check-passed"}
    doubted = [one for one in there if one not in isolated and one not in cleared and (machine or one in told)]
    if machine and not named:
        doubted = list(case.history.nodes)
    if not isolated and not doubted and (named or not machine):
        return
    why = [case.why]
    if isolated:
        spoken = "; ".join(one.said for one in case.signals if one.node in isolated)
        why.append(f"{', '.join(isolated)} is to be taken out of service all the same: {spoken}.")
    if machine and not named:
        why.append("The log does not name the node.")
    if doubted:
        why.append(f"To be checked before another job meets it: {', '.join(doubted)}.")
    # Its log and the scheduler contradict each other: an operator hears of it if the log is believed.
    sure = case.diagnosis.confidence >= case.policy.confidence_for("isolate_and_restart", case.job_class)
    tell: Tell = "operator" if isolated or sure else "owner"
    case.choose("node", ISOLATE if isolated else "none", " ".join(why), case.line("signals.needed"), tell=tell)
    case.nodes, case.check, case.avoid = isolated, doubted, []


def _isolated_alone(case: Case, there: list[str]) -> list[str]:
    """Those of the nodes that may be isolated although no job is restarted: only those of which their own kernel says that they
    are broken, as the scheduler saw nothing. What was answered is not answered again.
    """
    burst = incident(case.job, case.attempt, case.diagnosis.reason, case.history, case.policy, case.now)
    answered = any(one.kind == ISOLATE and one.attempt == case.attempt and one.state not in UNDONE for one in case.own)
    said = {signal.node for signal in case.signals if signal.name == "xid"}
    strong = [one for one in there if one in said and points(case.signals, one) >= case.policy.signals.needed]
    if burst is not None or answered:
        return []
    strong = [one for one in strong if _can_be_isolated(case, one)]
    if not strong:
        return []
    allowed, limits = room(strong, case.history, case.cluster, case.policy, case.now)
    for limit in limits:
        at_most: Mode = "approve" if limit.name == "cluster-unknown" else "auto"
        case.hold(limit.name, limit.said, limit.change, limit.where, at_most=at_most)
    return allowed


def _avoid_who_was_met_before(case: Case, named: list[str]) -> None:
    """Soft evidence drains nothing, however often it comes; but the job need not meet the node again before it was tested."""
    told = {one.node for one in case.signals if one.name in _MET_BEFORE}
    cleared = {one.node for one in case.signals if one.name == "check-passed"}
    gone = case.cluster.isolated() if case.cluster is not None else set()
    doubted = [one for one in named if one in told - cleared - gone and _is_the_jobs(case, one)]
    if not doubted:
        return
    case.avoid = case.check = doubted
    said = f"time-outs, crashes and the like isolate nobody, however often they name {', '.join(doubted)}"
    case.hold(
        "soft-evidence", said, "a node check that finds it faulty, or a machine's fault that names it", case.line("signals")
    )
    _go_on(case, [])


def _follows_the_node(case: Case, strong: list[str]) -> None:
    """The usual action is a restart, but it would meet the same node again."""
    why = f"It follows the node: {'; '.join(one.said for one in case.signals if one.node == strong[0])}."
    case.choose("node", "isolate_and_restart", why, case.line("signals.needed"))
    case.wanted, case.nodes = "isolate_and_restart", strong


def _out_of_service(case: Case) -> list[str]:
    gone = [one for one in case.nodes if case.cluster is not None and case.cluster.nodes.get(one) in ("isolated", "gone")]
    if gone:
        case.note("node", f"{', '.join(gone)} is out of service already")
    return gone


def _cleared(case: Case, wanted: list[str]) -> list[str]:
    passed = {one.node for one in case.signals if one.name == "check-passed"}
    cleared = [one for one in wanted if one in passed]
    if cleared:
        case.note("node", f"{', '.join(cleared)} passed the node check")
    return cleared


def _in_doubt(case: Case, named: list[str], weak: list[str]) -> None:
    """What to do in doubt: the nodes are avoided and checked. No node is accused if too many are named, or none."""
    most = case.policy.signals.named_most
    if weak and len(weak) <= most:
        case.avoid = case.check = weak
        said = f"one weak signal against {', '.join(weak)} is not enough to isolate"
        change = "a node check that finds it faulty, an Xid of its kernel, or the same node named again"
        case.hold("weak-signal", said, change, case.line("signals.needed"))
    elif not named:
        case.check = list(case.history.nodes)
        change = "a log that names the node, or a node check that finds one"
        case.hold("node-unknown", "the log does not name the node", change)
    elif len(named) > most:
        said = f"{len(named)} nodes are named: that accuses none of them"
        case.hold("too-many-named", said, "a node check", case.line("signals.named_most"))
        case.check = [one for one in named if _is_the_jobs(case, one)]


def _go_on(case: Case, gone: list[str]) -> None:
    """No node is isolated, and the job is still restarted."""
    if gone:
        why = f"{', '.join(gone)} is out of service already: the job goes on elsewhere."
    elif case.avoid:
        why = f"{case.why} Nothing is isolated yet: the job goes on without {', '.join(case.avoid)} until it is checked."
    else:
        why = f"{case.why} No node is isolated: the job goes on."
    case.choose("node", "restart", why, case.line("signals.needed"))


def _can_be_isolated(case: Case, name: str) -> bool:
    """Whether ``name`` is a node that this decision may take out at all."""
    if not _is_the_jobs(case, name):
        case.hold("not-the-jobs", f"the job did not run on {name}", "a log of a job that did")
        return False
    if _never(name, case.policy):
        case.avoid.append(name)
        case.hold("never", f"{name} is never isolated", "limits.never in the policy", case.line("limits.never"))
        case.tell = "operator"
        return False
    return True


def _is_the_jobs(case: Case, name: str) -> bool:
    """Whether the job ran there, if that is known: a log may name any node."""
    if case.history.nodes and name not in case.history.nodes:
        return False
    return case.cluster is None or not case.cluster.nodes or name in case.cluster.nodes


def _never(name: str, policy: Policy) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in policy.limits.never)


# --- the blast radius ------------------------------------------------------------------------------------------------------


def radius(case: Case) -> None:
    """Would this take out too much of the cluster?"""
    if case.kind != "isolate_and_restart":
        return
    allowed, limits = room(case.nodes, case.history, case.cluster, case.policy, case.now)
    for limit in limits:
        at_most: Mode = "approve" if limit.name == "cluster-unknown" else "auto"
        case.hold(limit.name, limit.said, limit.change, limit.where, at_most=at_most)
    left = [one for one in case.nodes if one not in allowed]
    if left:
        case.avoid += [one for one in left if one not in case.avoid]
        case.tell = "operator"
        case.nodes = allowed
        if not allowed:
            case.choose("radius", "restart", f"{limits[0].said}; the job goes on without {', '.join(left)}.", limits[0].where)


def room(
    nodes: list[str], history: History, cluster: Cluster | None, policy: Policy, now: float
) -> tuple[list[str], list[Limit]]:
    """(which of ``nodes`` may still be isolated, what forbids the others)."""
    if cluster is None or not cluster.count:
        change = "let the service ask the scheduler (an executor), or say limits.cluster_nodes in the policy"
        return nodes, [Limit("cluster-unknown", "how many nodes there are is not known", change)]
    allowed, held = list(nodes), []
    for name, space, said, clause in _spaces(set(nodes), history, cluster, policy, now - HOUR_S, now):
        if len(allowed) > max(0, space):
            allowed = allowed[: max(0, space)]
            change = f"a person isolates by hand, time passes, nodes are released, or {clause} in the policy"
            held.append(Limit(name, f"Blast radius: {said}", change, policy.line(clause)))
    return allowed, held


def _spaces(
    asked: set[str], history: History, cluster: Cluster, policy: Policy, hour: float, now: float
) -> list[tuple[str, int, str, str]]:
    """For each limit of the blast radius: its name, how many nodes it still allows, its sentence, its clause."""
    limits = policy.limits
    recent = {one.node for one in cluster.isolations if one.by == "decision" and hour < one.at <= now}
    waiting = {
        name
        for one in history.actions
        if one.kind in ("isolate_and_restart", ISOLATE) and _may_take_out(one, hour)
        for name in one.nodes
    }
    isolated = cluster.isolated() | waiting
    return [
        (
            "nodes-at-once",
            limits.nodes_at_once,
            f"more than {limits.nodes_at_once} nodes at once",
            "limits.nodes_at_once",
        ),
        (
            "isolations-per-hour",
            limits.isolations_per_hour - len((recent | waiting) - asked),
            f"{len(recent | waiting)} nodes were isolated in the last hour",
            "limits.isolations_per_hour",
        ),
        (
            "isolated-share",
            _share(cluster.count, policy) - len(isolated - asked),
            f"{len(isolated)} of {cluster.count} nodes are isolated, and {_share(cluster.count, policy)} may be",
            "limits.isolated_share",
        ),
    ]


def _share(count: int, policy: Policy) -> int:
    """How many of so many nodes may be out at one time. Of a small cluster the share alone may be none."""
    limits = policy.limits
    least = limits.isolated_at_least if count >= limits.small_cluster_from else 0
    return max(least, math.floor(limits.isolated_share * count + 1e-9))


def _may_take_out(one: PastAction, hour: float) -> bool:
    """Whether an isolation is under way, or has just ended without a result."""
    if one.state in ("approved", "dispatched", "running"):
        return True
    return one.state == "expired" and one.taken and (one.ended or one.at) > hour


# --- a node by itself ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is done about a node, and why. With limits: what would have been done is held back."""

    kind: str
    why: str
    limits: tuple[Limit, ...] = ()
    tell: Tell = "nobody"


def decide_node(
    node: str, history: History, cluster: Cluster, policy: Policy, now: float, *, corrected: bool = False
) -> Decision:
    """What to do about a single node, after a node check or a corrected diagnosis: isolate it, give it back, or nothing.

    ``corrected``: the diagnosis that it was isolated for does not hold any more.
    """
    state = cluster.nodes.get(node)
    past = sorted((one for one in cluster.isolations if one.node == node), key=lambda one: one.at)
    last = past[-1] if past else None
    failed = [f for f in history.failures if node in f.suspects and f.by != "agent" and now - f.at <= policy.signals.within_s]
    since = last.at if last and last.released is None else max((f.at for f in failed), default=None)
    seen = checked(node, cluster, policy, now, since)
    answer = _Answer("none", "Nothing is to be done about the node.")
    if state == "isolated":
        answer = _give_back(past, seen, policy, now, corrected)
    elif state in ("ok", "suspect"):
        seen = [*seen, *_named_before(node, failed)]
        if points(seen, node) >= policy.signals.needed and not _never(node, policy):
            answer = _take_out(node, seen, history, cluster, policy, now)
    wanted = answer.kind
    if answer.limits:
        wanted = RELEASE if state == "isolated" else ISOLATE
    chosen, mode, quiet_limits = _on_whose_word(answer.kind, policy, now)
    stamp = f"{last.at:.0f}" if last else f"{since or 0:.0f}"
    return Decision(
        job="",
        attempt=0,
        group=stamp,
        reason="node",
        action=Action(kind=answer.kind, nodes=[node] if answer.kind != "none" else [], why=answer.why),
        wanted=wanted,
        mode=mode,
        decided_by="node",
        reasons=(
            *(Step("signal", f"{one.said} ({one.points})", policy.line("signals")) for one in seen),
            Step("node", answer.why, policy.line("limits"), decided=True),
            Step("mode", f"{chosen.mode}, by {chosen.clause}", chosen.where),
        ),
        limits=(*answer.limits, *quiet_limits),
        key=key_of("", 0, stamp, answer.kind, [node]),
        made_at=now,
        tell=answer.tell,
        evidence={
            "node": node,
            "state": state,
            "signals": [{"node": s.node, "name": s.name, "points": s.points, "said": s.said} for s in seen],
            "isolations": [[one.at, one.by, one.released] for one in past[-10:]],
        },
    )


def _named_before(node: str, failed: list[Failure]) -> list[Signal]:
    """A recent machine's fault that named the node, as a signal."""
    failed = [one for one in failed if node in one.culprits and of_machines(one.reason)]
    return [Signal(node, "recurrence", 1, f"a diagnosis named it, last that of {failed[-1].job}")] if failed else []


def _take_out(node: str, seen: list[Signal], history: History, cluster: Cluster, policy: Policy, now: float) -> _Answer:
    """Isolate the node, because enough speaks against it, if the blast radius allows it."""
    allowed, limits = room([node], history, cluster, policy, now)
    if not allowed:
        return _Answer("none", limits[0].said, tuple(limits), "operator")
    return _Answer(ISOLATE, f"{'; '.join(one.said for one in seen)}.", tuple(limits))


def _give_back(past: list[Isolation], seen: list[Signal], policy: Policy, now: float, corrected: bool) -> _Answer:
    """Whether an isolated node may come back."""
    rules = policy.limits
    last = past[-1] if past else None
    if last is None or last.by != "decision":
        who = last.by if last else "nobody knows who"
        return _only_a_person(
            "A person isolated the node: a person gives it back.",
            Limit("person", f"{who} isolated it", "who isolated it releases it"),
        )
    if now - last.at < rules.node_cool_down_s:
        left, ago = span(rules.node_cool_down_s - (now - last.at)), span(now - last.at)
        limit = Limit("cool-down", f"it was isolated {ago} ago", f"{left} more", policy.line("limits.node_cool_down"))
        return _Answer("none", "The node was isolated just now.", (limit,))
    if not corrected and not any(one.name == "check-passed" for one in seen):
        return _Answer(
            "none", "Nothing clears the node.", (Limit("check", "no node check since", "a node check that it passes"),)
        )
    if any(one.points for one in seen):
        limit = Limit("check", seen[0].said, "a repair, then a node check")
        return _Answer("none", "The node check speaks against it.", (limit,))
    if corrected:
        return _Answer(RELEASE, "The diagnosis behind the isolation does not hold any more.")
    often = sum(one.by == "decision" and now - one.at < 30 * DAY_S for one in past)
    if often >= rules.isolations_of_a_node:
        said = f"it was isolated {often} times in 30 days"
        change = "a repair, then a person releases it"
        return _only_a_person(
            f"The node passed its check, but {said}.",
            Limit("person", said, change, policy.line("limits.isolations_of_a_node")),
        )
    return _Answer(RELEASE, "The node passed its check.")


def _only_a_person(why: str, limit: Limit) -> _Answer:
    return _Answer("none", why, (limit,), "operator")


def _on_whose_word(kind: str, policy: Policy, now: float) -> tuple[Chosen, Mode, list[Limit]]:
    """The mode of the policy for it, or the milder one of quiet hours."""
    chosen = policy.mode_for("node", kind if kind != ISOLATE or ISOLATE in policy.modes else "isolate_and_restart")
    hours = quiet(policy.quiet_hours, kind, now)
    if hours is None or MODES.index(hours.at_most) >= MODES.index(chosen.mode):
        return chosen, chosen.mode, []
    return chosen, hours.at_most, [Limit("quiet-hours", f"quiet hours until {hours.said(now)}", "a person's yes", hours.where)]


def reboot_after_isolation(reason: str, policy: Policy, now: float) -> Mode:
    """Who must approve that a node is rebooted that was just isolated for this reason; observe: it is not asked for."""
    if not policy.remedy(reason).reboot:
        return "observe"
    hours = quiet(policy.quiet_hours, REBOOT, now)
    limits = [policy.mode_for(reason, REBOOT).mode, hours.at_most if hours is not None else "auto"]
    return MODES[min(map(MODES.index, limits))]
