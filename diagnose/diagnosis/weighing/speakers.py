"""Who makes a statement: the kernel, a logger, a process."""

from __future__ import annotations

import re

from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.reading.prefixes import body_start

_BOOT = re.compile(r"(?:<\d{1,3}>)?\[ *[1-5]?\d\.\d{6}\] ")
_KERNEL = re.compile(r"\bkernel: |^(?:<\d{1,3}>)?\[ *\d{1,8}\.\d{6}\] |\bNVRM: |^\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ ")
_OF_PROGRAMS = {"user", "framework"}
"""layers of which a kernel knows nothing"""
_PADDED = re.compile(r"(?:<\d{1,3}>)?\[(?: {4}\d| {3}\d\d|  \d{3}| \d{4})\.\d{6}\] ")
"""as a kernel prints its clock for the first hours; what stamps the lines of a job pads nothing"""


def by_kernel(one: Hypothesis) -> bool:
    """Whether the kernel printed it. The kernel knows the machine better than any process."""
    return _KERNEL.search(one.event.text[:120]) is not None


def of_a_service(one: Hypothesis) -> bool:
    """Whether it stands among the kernel's lines and is about a program: some service of the machine printed it there."""
    return one.rule is not None and one.rule.layer in _OF_PROGRAMS and _PADDED.match(one.event.text) is not None


def at_boot(event: Event) -> bool:
    """Whether the kernel printed the line in its first minute."""
    return _BOOT.match(event.text) is not None


def speaker_of(event: Event) -> str:
    """The prefix of the line without its time."""
    return re.sub(r"[\d:.,TZ/-]{8,}", "", event.text[: event.start]).strip(" []")


def body_of(line: bytes) -> str:
    """What a line says, without its prefix."""
    return line[body_start(line) :].decode("utf-8", "replace")
