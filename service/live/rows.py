"""Kept segments of a scan -> rows for the table of kept lines, and what they mean for the attempt."""

from __future__ import annotations

from typing import NamedTuple

from diagnose.compression.kept_log import NOTABLE
from diagnose.compression.snapshot import NOTABLE_ID
from diagnose.job import Job
from diagnose.matching.scan import KEPT, Scan
from diagnose.reading.prefixes import speaker
from service.live.stream import Reading
from service.store.flush import KeptRow

_ROW_WEIGHT = 300
"""about so many bytes of memory per row, besides its text"""


class Signs(NamedTuple):
    """What kept lines say."""

    hit: bool = False
    """evidence of a failure"""
    ended: str | None = None
    """what says that the job has ended: ``log`` (all went well) or ``scheduler`` (it was stopped)"""


_NOTHING = Signs()


class Rows:
    """Rows that are not stored yet. Owned by the scanner."""

    def __init__(self, *, redact: bool) -> None:
        self._redact = redact
        self._rows: list[KeptRow] = []
        self.next_ord = 0
        self.weight = 0
        """about how many bytes of memory they take"""

    def take(self) -> tuple[list[KeptRow], int]:
        """All rows, to be stored, and their weight."""
        taken = self._rows, self.weight
        self._rows, self.weight = [], 0
        return taken

    def add(self, job: Job, reading: Reading, scan: Scan) -> tuple[Signs, int]:
        """(what the lines say, their weight)."""
        if not scan.kept:
            return _NOTHING, 0
        rules = job.compression.matcher.rules
        named = job.sources[reading.number].origin
        told = reading.definition.node or named.node
        redact, rows = self._redact, self._rows
        hit, ended, weight, order = False, None, 0, self.next_ord
        ascii_ = scan.text.decode("ascii") if scan.text.isascii() else None  # nearly always, and fast
        for line, at, length, number, cut, _, _ in KEPT.iter_unpack(scan.kept):
            raw = scan.text[at : at + length]
            text = ascii_[at : at + length] if ascii_ is not None else raw.decode("utf-8", "replace")
            if redact:
                text = reading.secrets.line(text, line)
                raw = text.encode()
            exact = None if ascii_ is not None or text.encode() == raw else raw
            rule: str | None = None
            if number == NOTABLE:
                rule, hit = NOTABLE_ID, True
            elif number >= 0:
                found = rules[number]
                rule = found.id
                if found.reason == "healthy":
                    ended = "log"
                elif found.severity != "warning":
                    hit = True
                    if found.layer == "scheduler":
                        ended = "scheduler"
            rank, node = speaker(raw)
            whose = rank if rank is not None else named.rank
            rows.append(KeptRow(order, reading.number, line, text, exact, rule, cut, whose, node or told))
            order += 1
            weight += len(raw) + _ROW_WEIGHT
        self.next_ord = order
        self.weight += weight
        return Signs(hit, ended), weight
