"""Finding -> the usual action: what one log alone speaks for. Nothing is looked back on; ``decision`` does that."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from diagnose.decision.checkpoints import newest, stretch
from diagnose.decision.history import Checkpoint
from diagnose.decision.policy import Policy
from diagnose.diagnosis.detectors.course import Anomaly
from diagnose.diagnosis.finding import Finding
from diagnose.report import Action, RestartFrom

_OWN_NAME = re.compile(
    r"cannot import name .* from .*\((?!.*(?:site-packages|dist-packages|/lib/python))[^)]*\)|partially initialized module"
)


def advise(finding: Finding, policy: Policy, checkpoints: Sequence[Checkpoint] = ()) -> Action:
    """What to do about a finding, with the sentence that says why."""
    remedy = policy.actions[finding.reason]
    rule = (finding.root.graver or finding.root).rule if finding.root else None
    kind, why = remedy.kind, remedy.why
    if rule is not None and rule.action is not None and rule.action != kind:
        kind = rule.action
        why = rule.title.rstrip(".") + "." if rule.title else why
    if finding.reason == "import_error" and finding.root is not None and _OWN_NAME.search(finding.root.event.body):
        kind, why = "fix_code", "The name is missing in the job's own code."
    frames = finding.root.traceback.frames if finding.root and finding.root.traceback else []
    if finding.reason == "value_error" and kind == "fix_code" and finding.step is None and frames and frames[-1].library:
        kind, why = "fix_config", "A library refused a value before the first step: the configuration must be put right first."
    if finding.reason == "nccl_timeout" and len(finding.nodes) == 1:
        why += f" If it stalls again, look at {finding.nodes[0]} first."
    nodes = finding.nodes if kind == "isolate_and_restart" else []
    if kind == "isolate_and_restart" and not nodes:
        why += " The log does not name the node: run the node check before the restart."
    skip = None
    start = None
    affected = steps_of(finding.root.detector if finding.root else None)
    if kind == "rollback_and_skip" and affected is not None:
        skip = stretch(*affected, policy.rollback)
        known = newest(checkpoints, skip[0])
        start = RestartFrom(step=known.step, path=known.path) if known else RestartFrom(step=skip[0])
    return Action(kind=kind, nodes=nodes, restart_from=start, skip_batches=skip, why=why)


def steps_of(anomaly: Anomaly | None) -> tuple[float, float | None] | None:
    """From which step to which one an anomaly lasted."""
    if anomaly is None or anomaly.step is None or not math.isfinite(anomaly.step):
        return None
    last = anomaly.last_step
    return anomaly.step, last if last is not None and math.isfinite(last) else None
