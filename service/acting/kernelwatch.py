"""What a node's watch says of it -> findings: lines of its kernel, and how the site's own quick check ended.

The kernel's log holds words of users: names of programs, of control groups, of file systems. So a line counts only if its
message *begins* as the driver or the kernel itself writes it, and an Xid by its number alone. Its time must say its zone, or
count from 1970.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from diagnose.decision.history import KERNEL_WATCH, NodeFinding
from service.acting.findings import Found, When, add, over, seconds
from service.acting.nodecheck import Counted
from service.errors import TooLarge

HEALTH_CHECK = "health-check"
MOST_BYTES, MOST_LINES = 4 << 20, 2000
_LONGEST_LINE = 1000
"""characters of a line that are looked at"""
_TIME = r"(?:(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d))|(?P<unix>\d{9,10}(?:\.\d{1,9})?))"
_LINE = re.compile(rf"(?:{_TIME} +(?:\S{{1,255}} kernel: (?:\[ *\d+\.\d+\] )?)?)?(?P<message>\S.*)", re.ASCII)
"""``journalctl -o short-iso``, ``short-iso-precise`` and ``short-unix``; ``dmesg --time-format iso``"""
_PCI = r"[0-9a-fA-F:.]{4,20}"
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?{_PCI}\): (\d{{1,4}}), (.*)", re.ASCII)
_OF_THE_MACHINE = frozenset(
    {46, 48, *range(54, 65), 74, 79, 92, 94, 95, 109, 110, 119, 120, 136, 140, *range(143, 152), *range(155, 159)}
    | {160, 161, *range(166, 174)}
) - {55, 60}
"""Xids for which the shipped rules take a node out of service. Others are a program's, or nobody knows whose."""
_WENT_ON = re.compile(r"\w+ Nonfatal\b")
_SWITCH = re.compile(rf"nvidia-nvswitch\d*: SXid \(PCI:{_PCI}\): (\d{{1,5}}), Fatal\b", re.ASCII)
_KINDS = {
    "GpuFellOffBus": r"NVRM: (?:GPU [0-9a-fA-F:.]+: )?(?:GPU has fallen off the bus|fallen off the bus and is not responding)"
    r"|NVRM: .{0,60}GPU lost from the bus",
    "GpuMemory": r"NVRM: .{0,80}(?:Row Remapper Error:|Fatal error, unable to retire page)"
    rf"|amdgpu {_PCI}: (?:amdgpu: )?\d+ uncorrectable hardware errors detected",
    "NVLink": r"NVRM: .{0,80}NVLink: (?:fatal|Fatal) error|nvidia-nvswitch\d*: .{0,80}\bFatal\b",
    "GpuPCIe": rf"(?:nvidia|amdgpu) {_PCI}: (?:AER: (?:can't recover|Uncorrect(?:ed|able) \(Fatal\))"
    r"|PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Fatal\))",
    "MemoryECC": r"EDAC \S{1,20}: \d+ UE .{0,80} on |mce: Uncorrected hardware memory error",
    "MachineCheck": r"(?:mce: )?(?:\{\d+\})?\[Hardware Error\]: (?:CPU \d+: Machine Check(?: Exception)?: \w+ Bank \d+: [abef]"
    r"|event severity: (?:fatal|recoverable)|Machine check: )|Kernel panic - not syncing: Fatal (?:local )?[Mm]achine check",
}
"""by how a message begins that is not an Xid's"""
_MESSAGES = {name: re.compile(pattern, re.ASCII) for name, pattern in _KINDS.items()}


def of_kernel(node: str, body: bytes, now: float) -> Found:
    """Each line that speaks against the machine is a finding of its moment."""
    text = body.decode("utf-8", "replace")
    if text.count("\n") > MOST_LINES:
        raise TooLarge(f"there are more than {MOST_LINES:,} lines", remedy="send the lines since the last time")
    found = Found()
    known = set()
    for line in text.split("\n"):
        parts = _LINE.match(line[:_LONGEST_LINE].rstrip("\r"))
        if parts is None or (name := _named(parts["message"], found)) is None:
            continue
        at = _at(parts, now)
        if at is None:
            found.leave_out("a line has no time with a zone, as journalctl -o short-iso gives it")
        elif (name, at) not in known:
            known.add((name, at))
            add(found, NodeFinding(node, at, KERNEL_WATCH, name, at), parts["message"])
    return found


def _named(message: str, found: Found) -> str | None:
    """What a message names, if it speaks against the machine."""
    if (xid := _XID.match(message)) is not None:
        # Nothing else of such a line is looked at: it holds the name of a program.
        if int(xid[1]) in _OF_THE_MACHINE and not _WENT_ON.match(xid[2]):
            return f"Xid{int(xid[1])}"
        found.leave_out("an Xid that a program can cause, or that the GPU went on from")
        return None
    if message.startswith("NVRM: Xid"):
        return None
    if (switch := _SWITCH.match(message)) is not None:
        return f"SXid{int(switch[1])}"
    return next((name for name, pattern in _MESSAGES.items() if pattern.match(message)), None)


def _at(parts: re.Match[str], now: float) -> float | None:
    if parts["unix"] is not None:
        return min(float(parts["unix"]), now)
    if parts["iso"] is None:
        return None
    try:
        return min(seconds(datetime.fromisoformat(parts["iso"].replace(",", "."))), now)
    except (ValueError, OverflowError):
        return None


class HealthResult(BaseModel):
    """How a site's own check of a node ended."""

    model_config = ConfigDict(extra="forbid")
    status: Counted[Annotated[int, Field(ge=0, le=255, description="Its exit status: 0 is well")]]
    since: When
    said: str | None = Field(default=None, max_length=10_000, description="Its last line")


def of_check(node: str, result: HealthResult, now: float) -> Found:
    """A failure lasts until the check passes."""
    found = Found()
    finding = NodeFinding(node, min(seconds(result.since), now), HEALTH_CHECK, "HealthCheck")
    if result.status == 0:
        over(found, finding)
    else:
        add(found, finding, f"exit status {result.status}: {result.said or 'it printed nothing'}")
    return found
