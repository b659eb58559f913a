"""What a shell script goes on from: a helper that failed, or a line that the shell cannot do."""

from __future__ import annotations

import re

from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.weighing.scene import LAST_LINES, PAST_LINES, Scene

_HELPER = re.compile(
    r"^(?:\S+: line \d+: )?(?:mkdir|rmdir|cp|mv|ln|rm|touch|tee|cat|chmod|chown|chgrp|ls|find|tar|rsync|tput|stty|ulimit|which"
    r"|grep|head|tail|wc|date|hostname|module|source|lscpu|lspci|numactl|nvidia-smi|ifconfig|ibstat|git)"
    r"(?:: |\b.*: command not found)"
)
"""what a script calls beside its program; without ``set -e`` it goes on where they fail"""
_COMPLAINT = re.compile(r"(?:\S+/)?[\w.-]+: line \d+: (?! *\d+ )|(?:-?bash|\S*sh): (?!line)\S+: ")
"""how a shell says that it could not do a line of a script"""
_BACKGROUND = re.compile(
    r"(?:\S+: line \d+: +\d+|\[\d+\][+-]? +(?:\d+ +)?) ?(?:Terminated|Killed|Hangup)\b[\s\d(:]++(?:\S*/)?(?:nvidia-smi|rocm-smi"
    r"|npu-smi|dcgmi|tail|sleep|top|htop|nvtop|tee|watch|vmstat|iostat|mpstat|sar|dstat|nmon|free"
    r"|ping|tcpdump|tensorboard|ssh (?:-\w+ )*-\w*N)"
    r"(?=[\s;|&>)]|$)"
)
"""how a shell tells of the end of what it ran in the background: here a program that only watches"""
_STARTUP = re.compile(
    r"\S*(?:/\.?(?:bash|z|tcsh|c|k)(?:rc|_profile|_login|env)|/\.profile|/etc/profile\S*|/etc/bash\S*): line "
)
"""a file that a shell reads when it starts; what fails in it ends no job"""
_WENT_ON = 20
"""so many lines later, what failed is no part of the shell's complaint"""


def went_on(one: Hypothesis, scene: Scene) -> bool:
    """Whether a shell could not do a line of a script, and the script went on: to a program that failed by itself, or past
    its start-up files.
    """
    source, line, body = one.event.source, one.event.line, one.event.body
    if one.kind not in ("rule", "line") or one.fatal:
        return False
    if _STARTUP.match(body) is not None or _HELPER.match(body) is not None:
        return scene.ends[source] - line > LAST_LINES
    if _COMPLAINT.match(body) is None:
        return False
    return any(
        other.event.source == source and other.event.line - line >= _WENT_ON and _ends_by_itself(other, scene)
        for other in scene.found.hypotheses
    )


def _ends_by_itself(one: Hypothesis, scene: Scene) -> bool:
    stop = one.symptom or scene.taxonomy.has(one.reason, "stop")
    return one.traceback is not None and one.ends_process and not one.recovered and not stop


def went_past(one: Hypothesis, scene: Scene) -> bool:
    """Whether a helper of the script failed, and the script went on for long, without another failure; or what only watched
    the job was ended, and the script went on.
    """
    source, line = one.event.source, one.event.line
    if one.kind in ("rule", "line") and _BACKGROUND.match(one.event.body) is not None:
        return scene.ends[source] > line
    plain = one.kind in ("rule", "line") and not one.fatal
    if not plain or _HELPER.match(one.event.body) is None or scene.ends[source] - line < PAST_LINES:
        return False
    return not any(fails(event, scene) for event in scene.evidence.events if event.source == source and event.line > line)


def fails(event: Event, scene: Scene) -> bool:
    """Whether a rule knows the line as a failure of more than a helper."""
    rule = scene.evidence.rule(event)
    return rule is not None and rule.severity != "warning" and rule.reason != "healthy" and not _HELPER.match(event.body)
