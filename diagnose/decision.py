"""Diagnosis -> action: values in, value out.

So far a decision looks at one diagnosis and the policy's table. History, limits and approval come with the service.
"""

from __future__ import annotations

import re

from diagnose.diagnosis import Finding
from diagnose.policy import Policy
from diagnose.report import Action, RestartFrom

_OWN_NAME = re.compile(
    r"cannot import name .* from .*\((?!.*(?:site-packages|dist-packages|/lib/python))[^)]*\)|partially initialized module"
)
_BACK = 0.02
"""how far before the onset of an anomaly to skip from, as a share of the steps so far"""


def decide(finding: Finding, policy: Policy) -> Action:
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
    anomaly = finding.root.detector if finding.root else None
    skip = None
    start = None
    if kind == "rollback_and_skip" and anomaly is not None and anomaly.step is not None and anomaly.step == anomaly.step:
        onset = int(anomaly.step)
        last = int(anomaly.last_step) if anomaly.last_step is not None and anomaly.last_step == anomaly.last_step else onset
        first = max(0, onset - max(1, int(onset * _BACK)))
        skip, start = (first, max(onset, last)), RestartFrom(step=first)
    return Action(kind=kind, nodes=nodes, restart_from=start, skip_batches=skip, why=why)
