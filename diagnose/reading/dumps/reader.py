"""Lines of one stream in; all dumps among them out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from diagnose.reading.dumps import text as stack_text
from diagnose.reading.dumps.flight_recorder import FlightReader, FlightRecord
from diagnose.reading.dumps.ras import RasReader, RasReport
from diagnose.reading.dumps.stacks import StackDump
from diagnose.reading.dumps.text import StackReader

MARKS: Final = re.compile(
    stack_text.MARKS.pattern + rb"|PyTorch flight recorder of |Communicators\.\.\. ?(?:\(|obtained)"
    rb"|#\d+-\d+ \([0-9a-fA-F]+\) [A-Z]{4}|PEER_D[A-Z]+: Process"
)
"""bytes without any of these hold no dump"""
_HINTS = (
    b"(most recent call first)",
    b"Thread ",
    b"(LWP ",
    b"TID ",
    b"#0 ",
    b"flight recorder of ",
    b"Full thread dump",
    b"Communicators...",
    b"PEER_D",
)
"""one of them stands in all that MARKS finds; a word is found much sooner than a pattern is not"""


def may_hold(text: bytes) -> bool:
    """Whether a dump may begin in these lines."""
    return (any(hint in text for hint in _HINTS) or b" INCOMPLETE" in text or b" MISMATCH" in text) and bool(MARKS.search(text))


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
        """All that were read by now."""
        return Dumps([dump for dump in self._stacks.dumps if dump.threads], self._recorder.records, self._ras.reports)
