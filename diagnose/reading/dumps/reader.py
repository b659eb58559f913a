"""Lines of one stream in; all dumps among them out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from diagnose.reading.dumps.flight_recorder import FlightReader, FlightRecord
from diagnose.reading.dumps.ras import RasReader, RasReport
from diagnose.reading.dumps.stacks import StackDump
from diagnose.reading.dumps.text import StackReader

_WORDS: Final = (b"(most recent call first)", b"Full thread dump ", b"PyTorch flight recorder of ", b"PEER_DEAD: Process")
_PATTERNS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rb"Thread (?:0x[0-9a-fA-F]+|\d+) \(",
        rb"\(LWP \d",
        rb"TID \d+(?: [^:\n]{0,200})?:\s",
        rb"#0 +0x",
        rb"Communicators\.\.\. ?(?:\(|obtained)",
        rb"PEER_DISCONNECTED: Process",
    )
)
"""each begins with plain letters: to search for those is faster than to try all patterns at once"""
BEGINNINGS: Final = (
    *_WORDS,
    *(b"Thread ", b"(LWP ", b"TID ", b"#0 ", b"Communicators...", b"PEER_DISCONNECTED: Process", b" INCOMPLETE", b" MISMATCH"),
)
"""text without any of these cannot hold a dump; to look for them natively is faster still"""
_OF_RAS: Final = re.compile(rb"#\d+-\d+ \([0-9a-fA-F]+\) (?:INCOMPLETE|MISMATCH|ERROR)")


def may_hold(text: bytes) -> bool:
    """Whether a dump may begin in these lines."""
    if any(word in text for word in _WORDS) or any(pattern.search(text) for pattern in _PATTERNS):
        return True
    return (b" INCOMPLETE" in text or b" MISMATCH" in text) and _OF_RAS.search(text) is not None


@dataclass(slots=True)
class Dumps:
    """The dumps of one stream."""

    stacks: list[StackDump] = field(default_factory=list)
    records: list[FlightRecord] = field(default_factory=list)
    reports: list[RasReport] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.stacks or self.records or self.reports)


class DumpReader:
    """Takes the lines of one stream in order."""

    def __init__(self) -> None:
        self._stacks, self._recorder, self._ras = StackReader(), FlightReader(), RasReader()

    def feed(self, line: int, text: str) -> bool:
        """Whether the line belongs to a dump."""
        return self._recorder.feed(line, text) or self._stacks.feed(line, text) or self._ras.feed(line, text)

    @property
    def dumps(self) -> Dumps:
        """All that were read so far."""
        return Dumps([dump for dump in self._stacks.dumps if dump.threads], self._recorder.records, self._ras.reports)
