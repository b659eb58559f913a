"""Where a source was started again, by what it says behind a failure: also where filters drop those lines, and in a tail.

A program that is started again says its first lines again. Folds see it (``_folds.h``), as far as these lines reach them: a
filter may drop all of them, and in a file whose beginning is missing they are not the first ones. So the lines behind each
failure, up to the next one, are looked at as they came, whatever was made of them. If lines stand there that also stand at the
beginning of the source or behind an earlier failure, in their order, each of them once, and said by the same rank and node, the
program began anew.

What a dying program and its launcher say comes behind each failure, too. So what stands behind a failure is only remembered
where no other one follows soon. The diagnosis asks besides whether anything ended there (``diagnosis/runs.py``). Only the lines
behind failures are read here, so this needs neither folds nor the native core, and costs little.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence, Set
from itertools import islice
from typing import Any, Final, NamedTuple
from zlib import crc32

from diagnose.matching.scan import KEPT, Cursor, Scan
from diagnose.reading.lines import Block, clean
from diagnose.reading.prefixes import body_start, speaker

SOURCES: Final = 64
"""so many sources of a job are looked at: with more of them, each is one rank or pod, and the job's end is in few"""
_WINDOW: Final = 120
"""lines behind a failure that are looked at, if some in the first half are known"""
_SPAN, _LINES, _LEAST = 60, 12, 3
"""a program begins with so many lines at most, in so many; fewer tell nothing"""
_FIRST: Final = 3
"""one of so many first lines of a beginning comes again; else it only goes on where a failure interrupted it"""
_OPENINGS: Final = 8
"""beginnings that are remembered beside that of the source: the latest"""
_OFTEN: Final = 2
"""a short run may follow another one without a failure between them; what the source says more often is no beginning"""
_BEGINS: Final = 64
"""the latest that are remembered"""
_TOLD: Final = 256
"""so many beginnings are told at once and cost nothing of the budget. A source with more of them crashes again and again"""
_BUDGET, _SHARE = 1500, 1000
"""so many lines are looked at besides, and one in so many more: of a source that tells of failures all the time"""
_DIGITS: Final = b"0123456789"
_WHO: Final = 16
"""bits for who says a line, behind those for what it says"""
_NO_START: Final = re.compile(
    rb"[ \t]|Traceback \(most|During handling of the above|The above exception was"
    rb"|frame #|#\d|@ |\*\*\*|\d+:? +0x|\[<?[0-9a-f]{6}|at [\w.$<>/]+\(|\S+\+0x"
)
"""frames and dumps, and what each traceback says"""
_FRAME: Final = re.compile(rb"Traceback \(most recent call last|File \"[^\"]*\", line \d")
"""a line of a traceback whatever stands before it: behind a time, nobody sees that it is indented. Its code comes next"""
_WORDS: Final = re.compile(rb"(?<![A-Za-z])[A-Za-z]{2,}+[^A-Za-z]++[A-Za-z]{2}")
_FRAMES: Final = (b'File "', b"Traceback (most")
"""one of these stands in what ``_FRAME`` finds: to look for them is much faster"""
_LONG: Final = 400
_LINE: Final = re.compile(rb"([^\n\r\0]{0,%d}+)[^\n]*+" % _LONG)
"""a line, and what is looked at of its first segment"""
_RULE_AT: Final = 4
"""where the rule stands in a record, in words of four bytes"""
_LINE_OF: Final = struct.Struct("<Q")
"""how a record begins"""


class Begin(NamedTuple):
    """The source says behind a failure what it said before."""

    line: int
    """the first of those lines"""
    failure: int
    """the line of the failure"""
    first: bool
    """whether they are the first lines of the source"""


class _Failure(NamedTuple):
    line: int
    start: int
    end: int
    """where it stands in its block"""
    ends: bool
    """whether it is more than a warning"""


class Starts:
    """The starts of one source, while it is read."""

    def __init__(self) -> None:
        self.begins: list[Begin] = []
        self.count = 0
        """of all, also of those that are no longer remembered"""
        self._known: list[list[int]] = []
        """beginnings: that of the source, then those behind failures; what is said, and who says it"""
        self._keys: set[int] = set()
        """all that is said in them, by whomever"""
        self._failure, self._open, self._until = 0, True, _WINDOW
        """the line of the last failure (0: none yet), whether the lines behind it are looked at, and up to which line"""
        self.looked, self._before = 0, 0
        """how many lines were looked at, without those of the first beginnings; how many before the last failure"""
        self._seems = False
        """whether a beginning that is known seems to stand there: what it says once more is none"""
        self._within = False
        """whether the last block ended within a line"""
        self._framed = False
        """whether the line before is a frame of a traceback"""
        self._said: dict[int, list[int]] = {}
        """what stands there -> [its first line, how often it stands there, who says it first], in the order of the lines"""

    @property
    def state(self) -> list[Any]:
        """All that the next block depends on."""
        said = [[key, *values] for key, values in self._said.items()]
        window = [self._failure, self._open, self._until, self._seems, self._within, self._framed, self.looked, self._before]
        return [self.begins, self.count, self._known, window, said]

    @state.setter
    def state(self, state: list[Any]) -> None:
        begins, self.count, self._known, window, said = state
        self._failure, self._open, self._until, self._seems, self._within, self._framed, self.looked, self._before = window
        self.begins = [Begin(*one) for one in begins]
        self._said = {key: values for key, *values in said}
        self._keys = {key >> _WHO for known in self._known for key in known}

    def see(self, block: Block, before: Cursor, scan: Scan, ends: Set[int]) -> list[int]:
        """Look at what a block holds. ``ends``: the rules whose lines are failures, and not only warnings.

        Returns the lines at which it seems that another run has begun: they depend on the lines before them alone.
        """
        within, self._within = self._within, block.data[-1:] != b"\n"
        rules = memoryview(scan.kept).cast("i")[_RULE_AT :: KEPT.size // 4].tolist()
        if not self._open:
            if ends.isdisjoint(rules):
                return []
            last = next(number for number in range(len(rules) - 1, -1, -1) if rules[number] in ends)
            (failure,) = _LINE_OF.unpack_from(scan.kept, last * KEPT.size)
            if not self._may_look(failure):  # then none before it may be looked behind either
                self._failure = failure
                return []
        data, decided = block.data, []
        failures = _failures(scan, rules, ends)
        line, at = (before.line + 1, _line_at(data, 0)[1]) if within else (before.line, 0)
        failed = next(failures, None)
        while self._open or failed is not None:
            if failed is not None and (failed.line <= line or not self._open):
                if failed.line >= line:
                    if self._open and failed.start > at and self._look(_line_at(data, at)[0], line):
                        decided.append(line)  # it is not in the first segment
                    line, at = failed.line + 1, _line_at(data, failed.end)[1]
                if failed.ends and failed.line != self._failure:
                    self._close(cut=True)
                    self._failure, self._open, self._until = failed.line, self._may_look(failed.line), failed.line + _WINDOW
                    self._before = self.looked
                failed = next(failures, None)
            elif line > self._until or (line == self._failure + _SPAN + 1 and self._keys.isdisjoint(self._said)):
                self._close(cut=False)
            elif at >= len(data):
                break
            else:
                raw, at = _line_at(data, at)
                if self._look(raw, line):
                    decided.append(line)
                line += 1
        return decided

    def all(self) -> tuple[int, list[Begin]]:
        """(how many there are, the latest of them), with the one that the last lines tell of."""
        begin = self._found() if self._open else None
        return self.count + (begin is not None), [*self.begins, *([begin] if begin is not None else [])][-_BEGINS:]

    def _look(self, raw: bytes, line: int) -> bool:
        """Look at the first segment of a line. Returns whether a beginning is known with it."""
        self.looked += 1
        code, self._framed = self._framed, (_FRAMES[0] in raw or _FRAMES[1] in raw) and _FRAME.search(raw) is not None
        if code or self._framed:
            return False
        said = raw.translate(None, _DIGITS)  # this is asked of every line here: what takes longer comes behind it
        key = crc32(said) << 9 | len(said)
        if (known := self._said.get(key)) is not None:
            known[1] += 1
            return False
        comes_again = key in self._keys
        if not (comes_again or self._telling(line)) or not _says(raw):
            return False
        self._said[key] = [line, 1, _who(raw)]
        if not comes_again or self._seems or self._found() is None:
            return False
        self._seems = True
        return self.count < _TOLD

    def _may_look(self, failure: int) -> bool:
        return self.looked <= _BUDGET + failure // _SHARE

    def _telling(self, line: int) -> bool:
        """Whether a line may be one of those that a program begins with."""
        first = next(iter(self._said.values()), None)
        return first is None or (line - first[0] < _SPAN and len(self._said) < _LINES)

    def _close(self, *, cut: bool) -> None:
        """The lines behind a failure were looked at; ``cut``: up to another one."""
        if not self._open:
            return
        begin = self._found()
        if begin is not None:
            self.begins = [*self.begins, begin][-_BEGINS:]
            self.count += 1
            if self.count <= _TOLD:
                self.looked = self._before
        else:
            self._remember(cut=cut)
        self._said, self._open, self._seems, self._framed = {}, False, False, False

    def _found(self) -> Begin | None:
        """The beginning that stands behind the last failure, if it is one that is known."""
        if not self._failure or len(self._keys & self._said.keys()) < _LEAST:
            return None
        said = {key << _WHO | who: (line, times) for key, (line, times, who) in self._said.items()}
        for number, known in enumerate(self._known):
            often = _OFTEN if number == 0 else 1
            here = {key: at for at, key in enumerate(known) if key in said and said[key][1] <= often}
            if len(here) < _LEAST or 2 * len(here) < len(known):
                continue
            place, came, first = -1, 0, 0
            for key, (line, _) in said.items():
                if here.get(key, -1) > place:
                    place = here[key]
                    if not came and place >= _FIRST:
                        break  # it goes on with its beginning, which a failure interrupted
                    came += 1
                    first = first or line
            if came >= _LEAST and 2 * came >= len(known):
                return Begin(first, self._failure, number == 0)
        return None

    def _remember(self, *, cut: bool) -> None:
        source = not self._known
        if cut and not source:
            return  # its last words, perhaps
        often = _OFTEN if source else 1
        told = [key << _WHO | who for key, (_, times, who) in self._said.items() if times <= often]
        own = list(islice(told, _LINES))
        if source:
            self._known.append(own if len(own) >= _LEAST else [])
        elif len(own) >= _LEAST:
            self._known = [self._known[0], *self._known[1:][-_OPENINGS + 1 :], own]
        self._keys = {key >> _WHO for known in self._known for key in known}


def _who(raw: bytes) -> int:
    """The rank and the node that say a line, in ``_WHO`` bits: another rank that says its first lines is no new run."""
    return crc32(repr(speaker(clean(raw))).encode()) & ((1 << _WHO) - 1)


def _says(raw: bytes) -> bool:
    """Whether a line says something: two words, which are no frame."""
    text = clean(raw)
    body = text[body_start(text) :]
    return _NO_START.match(body) is None and _WORDS.search(body) is not None


def _failures(scan: Scan, rules: Sequence[int], ends: Set[int]) -> Iterator[_Failure]:
    """The lines that failure rules know, in a block."""
    for number, rule in enumerate(rules):
        if rule >= 0:
            line, _, _, _, _, start, end = KEPT.unpack_from(scan.kept, number * KEPT.size)
            yield _Failure(line, start, end, rule in ends)


def _line_at(data: bytes | memoryview, at: int) -> tuple[bytes, int]:
    """(what is looked at of the line that begins at ``at``, where the next one begins). Blocks are not copied for this."""
    found = _LINE.match(data, at)
    return (found[1], found.end() + 1) if found is not None else (b"", at + 1)
