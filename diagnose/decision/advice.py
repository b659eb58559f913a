"""Finding -> the usual action, by this log alone. ``decide`` also looks at the past."""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnose.decision.checkpoints import newest, stretch
from diagnose.decision.history import Checkpoint
from diagnose.decision.policy import Policy
from diagnose.diagnosis.detectors.course import steps_of
from diagnose.diagnosis.finding import Finding
from diagnose.diagnosis.hypotheses import Hypothesis, captures
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.report import Action, RestartFrom

_OWN_NAME = re.compile(
    r"cannot import name [^(]{1,300} from [^(]{1,300}"
    r"\((?![^()]{0,1000}(?:site-packages|dist-packages|/lib/python))[^()]{0,1000}\)|partially initialized module"
)


_LOOP_BACK = re.compile(r"\b127\.0\.\d+\.\d+\b|\blocalhost\b")
_BUILT = re.compile(r"(?i)\bnot (?:compiled|built) with\b")
_IN_USE = re.compile(r"(?i)already in use|EADDRINUSE|errno: 98")
_BUS = re.compile(r"\bBus error\b|\bSIGBUS\b|shared memory \(shm\)")
_MISUSED = re.compile(r"(?i)\binvalid (?:argument|value|configuration|resource handle|device (?:ordinal|function|symbol))\b")
_INTERRUPTS = {"2", "SIGINT"}
_INTERRUPTED = re.compile(
    r"(?i)\breceived (?:Signals\.)?(?:SIGINT|2 death signal)\b|\bgot signal: 2\b|\bCtrl-?C\b|^SIGINT ended",
)


def advise(finding: Finding, policy: Policy, checkpoints: Sequence[Checkpoint] = ()) -> Action:
    """What to do about a finding, with the sentence that says why."""
    kind, why = _usual(finding, policy)
    kind, why = _from_the_line(finding, kind, why)
    if finding.root is not None and shipped_taxonomy().has(finding.reason, "witness") and len(finding.nodes) == 1:
        why += f" If it stalls again, look at {finding.nodes[0]} first."
    nodes: list[str] = []
    if kind == "isolate_and_restart":
        kind, why, nodes = _isolation(finding, why)
    skip = None
    start = None
    affected = steps_of(finding.root.detector if finding.root else None)
    if kind == "rollback_and_skip" and affected is not None:
        skip = stretch(*affected, policy.rollback)
        known = newest(checkpoints, skip[0])
        start = RestartFrom(step=known.step, path=known.path) if known else RestartFrom(step=skip[0])
    return Action(kind=kind, nodes=nodes, restart_from=start, skip_batches=skip, why=why)


def _usual(finding: Finding, policy: Policy) -> tuple[str, str]:
    """The policy's remedy for the reason, or the rule's own action."""
    remedy = policy.actions[finding.reason]
    rule = (finding.root.graver or finding.root).rule if finding.root else None
    kind, why = remedy.kind, remedy.why
    if rule is not None and rule.action is not None and rule.action != kind:
        kind = rule.action
        why = rule.title.rstrip(".") + "." if rule.title else why
    return kind, why


def _from_the_line(finding: Finding, kind: str, why: str) -> tuple[str, str]:
    """What the line itself decides: a signal, an address, a phase, or whose code raised the exception."""
    root = finding.root
    if root is None:
        return kind, why
    if root.killed_unsaid and finding.reason == "unknown":
        return (
            "restart",
            "It was killed amid its work, and nothing says by whom: if it comes again, look at the memory of the node.",
        )
    body = root.event.body if root.kind != "status" or root.detector is None else root.detector.sentence
    frames = root.traceback.frames if root.traceback else []
    if finding.reason == "import_error" and _OWN_NAME.search(body):
        return "fix_code", "The name is missing in the job's own code."
    if finding.reason == "runtime_error" and kind == "fix_code" and _BUILT.search(body):
        return "fix_config", "What is installed was built without it: install another build."
    if finding.reason == "value_error" and kind == "fix_code" and finding.step is None and frames and frames[-1].library:
        return (
            "fix_config",
            "A library refused a value before the first step: the configuration must be put right first.",
        )
    if finding.reason == "dataloader_killed" and kind == "restart" and _BUS.search(body):
        return "fix_config", "A bus error in a worker is shared memory that ran out: give the container a larger /dev/shm."
    starting = finding.step is None and finding.attempt == 1
    if finding.reason == "connection_error" and starting and _LOOP_BACK.search(body) and not _IN_USE.search(body):
        return "fix_config", "The job cannot reach itself at a loop-back address: the address or the launch is wrong."
    if finding.reason == "native_crash" and kind == "restart" and starting and finding.phase == "start-up" and not root.symptom:
        return (
            "fix_config",
            "It crashed before the first step, so it will crash there again: libraries or settings do not fit together.",
        )
    if finding.reason == "cuda_error" and kind == "isolate_and_restart" and _MISUSED.search(body):
        return (
            "fix_config",
            "A device refuses a call that makes no sense: the program or its libraries are at fault, no machine.",
        )
    interrupted = captures(root.rule, body).get("signal") in _INTERRUPTS or _INTERRUPTED.search(body) is not None
    if shipped_taxonomy().has(finding.reason, "stop") and interrupted:
        return "none", "A person interrupted the job."
    return kind, why


def _speaks_gently(one: Hypothesis, reason: str) -> bool:
    """Whether a line is about the same failure and asks for a restart on the same machines."""
    return one.reason == reason and one.rule is not None and one.rule.action == "restart" and not one.symptom


def _isolation(finding: Finding, why: str) -> tuple[str, str, list[str]]:
    """Which nodes to take out: only those that a fault of the machine names. Otherwise what to do instead.

    A connection has two ends, so the peer that the line names may be innocent. Before the first step of the first attempt,
    perhaps neither end is at fault.
    """
    root = finding.root
    assert root is not None
    of_network = root.layer == shipped_taxonomy().depth("network")
    said = captures(root.rule, root.event.body)
    other_end = any(said.get(name) for name in ("peer", "host")) or len(finding.nodes) > len(finding.own_nodes)
    two_ended = of_network and (other_end or len(finding.own_nodes) > 1)
    if two_ended and finding.step is None and finding.attempt == 1:
        return "fix_config", "Two nodes did not reach each other before the first step: check how they are connected first.", []
    if two_ended or (of_network and root.symptom):
        return "restart", "The line does not say which end of the connection is at fault: no node is taken out for it.", []
    if any(_speaks_gently(many.first, finding.reason) for many in (*finding.consequences, *finding.others)):
        return "restart", "Another line says that the machine itself still works: no node is taken out.", []
    if root.words is not None:
        return "isolate_and_restart", why + " No rule knows the line, so no node is named: run the node check first.", []
    if of_network and not finding.own_nodes:
        return "restart", "The line does not say whose network failed: if it comes again, run the node check.", []
    if not finding.own_nodes:
        return "isolate_and_restart", why + " The log does not name the node: run the node check before the restart.", []
    return "isolate_and_restart", why, finding.own_nodes
