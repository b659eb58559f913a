"""What speaks against a node, in points: only hard evidence counts, and one weak signal alone takes no node out of service.

A *witness* only tells of a failure. A *suspect* is pointed at. A *culprit* is a suspect that a machine's fault names itself.
Each signal is a sentence with its points. The weights stand in the policy's comment (``signals``); the reasons are here:

- Only culprits get points from a diagnosis. A time-out, a crash or a refused connection is as often a program's, and two of
  them are no better than one: such a node is avoided and tested, however often it was met.
- A diagnosis may be wrong, so it is one point, and none if an agent made it: text that a job wrote may have talked it into it.
- Some Xids are two. The driver itself says that the GPU takes no work before a reset, no program can cause them, and the
  kernel's line stands in the node's own log. A line that names another node than the one that printed it is one point.
- An earlier failure is one point if it is another's word: that of another user's job, or of another kind of job; where
  programs cause such faults too, of a kind of job that is known to be another. Else it follows the program, not the node.
- Failures in a burst are nobody's: what they have in common is not the node.
- What others found of a node (an alert that fires, a condition of Kubernetes) is one point in all, however much they found: it
  may be about something else, and it isolates nobody alone. What its kernel said counts once: a diagnosis that stands on a line
  of the kernel is not confirmed by the same kernel's watch.
- A node check after the failure outweighs weak signals, both ways. One that a node passed takes back one earlier accusation,
  not two; a release after an isolation takes back all before it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

from diagnose.decision.bursts import burst_at
from diagnose.decision.history import KERNEL_WATCH, Cluster, Failure, History, latest_check
from diagnose.decision.policy import Policy
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.report import Diagnosis

XID = re.compile(r"NVRM: .{0,80}?Xid \((?:PCI:)?[0-9a-fA-F:.]+\): (\d{1,4})\b")
_KERNELS_LINE = re.compile(r"\bkernel: |\bNVRM: ")
_NODE = "node:"
"""what a node's own runner sends is named so"""
_NAMED_MOST = 5
_OFTEN = 2
"""so many accusations count although a node check cleared each: there are faults that a check does not find"""


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing that speaks against a node, or for it."""

    node: str
    name: str
    points: int
    said: str


def accuses(reason: str) -> bool:
    """Whether a failure of this reason makes suspects of the nodes that it points at."""
    taxonomy = shipped_taxonomy()
    return taxonomy.has(reason, "machine") or taxonomy.has(reason, "soft")


def of_machines(reason: str) -> bool:
    """Whether a failure of this reason is a machine's: nothing else makes a culprit."""
    return shipped_taxonomy().has(reason, "machine")


def against(
    diagnosis: Diagnosis, job: str, attempt: int, history: History, cluster: Cluster | None, policy: Policy, now: float
) -> list[Signal]:
    """All signals about the nodes that the diagnosis names."""
    named = list(dict.fromkeys(diagnosis.suspects.nodes))
    if not accuses(diagnosis.reason) or not named or len(named) > policy.signals.named_most:
        return []
    found: list[Signal] = []
    for node in named:
        if history.believed is not None and node not in history.believed:
            said = f"the diagnosis {diagnosis.reason} names it, by senders who may not accuse it"
            found.append(Signal(node, "unbelieved", 0, said))
            found += checked(node, cluster, policy, now, history.ended)
            continue
        found += _said_now(node, diagnosis, policy)
        found += _said_before(node, diagnosis, job, attempt, history, cluster, policy, now)
        found += _said_by_others(node, diagnosis, history, cluster, policy, now)
        found += checked(node, cluster, policy, now, history.ended)
    return found


def points(signals: Sequence[Signal], node: str) -> int:
    """The points against a node. A check that it passed removes weak signals, but not those of a kernel log."""
    own = [signal for signal in signals if signal.node == node]
    if any(signal.name == "check-passed" for signal in own):
        own = [signal for signal in own if signal.name == "xid"]
    return sum(signal.points for signal in own)


def _said_now(node: str, diagnosis: Diagnosis, policy: Policy) -> list[Signal]:
    if diagnosis.by == "agent":
        return [Signal(node, "agent", 0, "an agent's word alone is no evidence against a node")]
    if not of_machines(diagnosis.reason):
        return [
            Signal(node, "suspect", 0, f"{diagnosis.reason} points at it, which is as often a program's fault as a machine's")
        ]
    if node not in diagnosis.culprits:
        return [Signal(node, "suspect", 0, f"it is named next to the {diagnosis.reason}, not by it")]
    root = diagnosis.root_cause
    xid = XID.search(root.text) if root is not None else None
    if root is not None and xid is not None and int(xid[1]) in policy.signals.strong_xids:
        if root.node != node:
            return [Signal(node, "diagnosis", 1, f"Xid {xid[1]} is reported of it, but not by its own kernel")]
        if any(fnmatch.fnmatchcase(root.source, pattern) for pattern in policy.signals.kernel_sources) and (
            not root.source.startswith(_NODE) or root.source.startswith(f"{_NODE}{node}/")  # one node's kernel is not another's
        ):
            return [Signal(node, "xid", 2, f"its kernel reports Xid {xid[1]}: that GPU takes no work before a reset")]
        return [
            Signal(node, "diagnosis", 1, f"Xid {xid[1]} stands in {root.source}, which is not believed in the kernel's name")
        ]
    return [Signal(node, "diagnosis", 1, f"the diagnosis {diagnosis.reason} names it")]


def _said_before(
    node: str,
    diagnosis: Diagnosis,
    job: str,
    attempt: int,
    history: History,
    cluster: Cluster | None,
    policy: Policy,
    now: float,
) -> list[Signal]:
    back = (
        max((one.released for one in cluster.isolations if one.node == node and one.released), default=0.0) if cluster else 0.0
    )
    begin = max(now - policy.signals.within_s, back)  # what was before an isolation was answered by it
    earlier = [
        failure
        for failure in history.failures
        if node in failure.suspects
        and begin <= failure.at <= now
        and (failure.job, failure.attempt) != (job, attempt)
        and failure.by != "agent"
        and accuses(failure.reason)
        and len(set(failure.suspects)) <= policy.signals.named_most
        and not burst_at(failure, history.failures, policy)
    ]
    passed = [check.at for check in cluster.checks if check.node == node and check.result == "good"] if cluster else []
    cleared = max((at for at in passed if at <= now), default=0.0)
    hard = node in diagnosis.culprits and of_machines(diagnosis.reason)
    confirming = [one for one in earlier if hard and node in one.culprits and _is_anothers_word(one, diagnosis, job, history)]
    found = confirming or earlier
    fresh = [failure for failure in found if failure.at > cleared]
    if not found or (not fresh and len(found) < _OFTEN):
        return []
    last = max(found, key=lambda failure: failure.at)
    how = f"{len(found)} times" if len(found) > 1 else "once"
    although = "" if fresh else " although it passed a node check since"
    said = f"it was named {how} before, last by {last.job} ({last.reason}){although}"
    if confirming:
        return [Signal(node, "recurrence", 1, said)]
    return [Signal(node, "seen-before", 0, f"{said}: not by another's job and a machine's fault, which alone confirm it")]


def _said_by_others(
    node: str, diagnosis: Diagnosis, history: History, cluster: Cluster | None, policy: Policy, now: float
) -> list[Signal]:
    """What was found of the node while the job ran on it, or shortly before, and was not over when it began."""
    same = _by_a_kernel(node, diagnosis)
    begin = now - policy.signals.check_within_s
    until = history.ended if history.ended is not None else now
    started = history.started if history.started is not None else begin
    found = [
        one
        for one in (cluster.findings if cluster is not None else ())
        if one.node == node
        and begin <= one.at <= until
        and (one.ended is None or one.ended >= started)
        and not (same and one.source == KERNEL_WATCH)
    ]
    if not found:
        return []
    said = ", ".join(dict.fromkeys(f"{one.source} says {one.name}" for one in found[-_NAMED_MOST:]))
    sources = {f"{_NODE}{node}/{one.source}" for one in found}
    if not any(fnmatch.filter(sources, pattern) for pattern in policy.signals.kernel_sources):
        return [Signal(node, "unbelieved", 0, f"{said}, which signals.kernel_sources does not believe")]
    return [Signal(node, "reported", 1, said)]


def _by_a_kernel(node: str, diagnosis: Diagnosis) -> bool:
    """Whether the diagnosis stands on the node's kernel already: its lines are one witness, by whichever way they came."""
    root = diagnosis.root_cause
    return root is not None and (root.source.startswith(f"{_NODE}{node}/") or _KERNELS_LINE.search(root.text) is not None)


def _is_anothers_word(failure: Failure, diagnosis: Diagnosis, job: str, history: History) -> bool:
    """Whether an earlier machine's fault was told by somebody who has nothing to do with this job, its user or its program."""
    if not of_machines(failure.reason) or failure.job == job:
        return False
    if failure.subject is not None and failure.subject == history.subject:
        return False  # this job, under another name
    another_user = _differ(failure.user, history.user)
    another_program = _differ(failure.workload, history.workload)
    if another_user is False or (another_program is False and another_user is None):
        return False
    taxonomy = shipped_taxonomy()
    if any(taxonomy.has(reason, "also_programs") for reason in (failure.reason, diagnosis.reason)):
        return another_program is True
    return another_user is True or another_program is True


def _differ(one: str | None, other: str | None) -> bool | None:
    """None if that is not known."""
    return one != other if one is not None and other is not None else None


def checked(node: str, cluster: Cluster | None, policy: Policy, now: float, failed_at: float | None) -> list[Signal]:
    """What a node check says. That it passed counts only if the check came after the failure."""
    check = latest_check(cluster, node, now - policy.signals.check_within_s, now) if cluster else None
    if check is None or (check.result == "good" and (failed_at is None or check.at < failed_at)):
        return []
    return [
        {
            "faulty": Signal(node, "check-faulty", 2, "the node check found it faulty"),
            "suspect": Signal(node, "check-suspect", 1, "the node check could not clear it"),
            "slow": Signal(node, "check-slow", 1, "the node check found it slow"),
            "good": Signal(node, "check-passed", 0, "it passed the node check"),
        }[check.result]
    ]
