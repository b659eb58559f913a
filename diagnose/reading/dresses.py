"""What all lines of a source share: a number, quotes, the columns of a table, a key of JSON, a wrapper's head.

A *dress* is a change that something on the way made to every line of a source. One line alone does not show it, so ``learned``
finds it in a few lines together. ``undressed`` takes it off each line. A dress is a list of plain values, so that it can be
stored.
"""

from __future__ import annotations

import ast
import csv
import functools
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from diagnose.reading.prefixes import body_start
from diagnose.reading.records import MESSAGES, composed, fields_of, strings

Dress = list[Any]
"""the name of its kind, then what was learned"""

_STAMP = re.compile(rb"\"?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\"?\Z")
_LEVEL = re.compile(r"(?i)(?:debug|info|notice|warn|warning|error|err|critical|fatal|stdout|stderr)\Z")
_NUMBERINGS = {
    "columns": re.compile(rb"(?=[ ]*[0-9]{1,18}\t)[ 0-9]{6,}\t"),  # cat -n, nl
    "lines": re.compile(
        rb"(?:[^\s:\"'{]{1,120}[A-Za-z/_.][^\s:\"'{]{0,80}:)?[0-9]{1,18}[:-]"
    ),  # grep -n, with the file's name or not
}
_NUMBER = re.compile(rb"(?:.*:)?[ ]*([0-9]{1,18})[:\t-]\Z")
_QUOTED = re.compile(rb"\s*[bu]?(?P<quote>[\"']).*(?P=quote),?\s*\Z", re.DOTALL)
_HEADER_WORDS = frozenset(word.lower() for word in MESSAGES)
_IN_HEADERS = tuple(word.encode() for word in _HEADER_WORDS)


def may_be_dressed(line: bytes) -> bool:
    """Whether ``line`` is a reason to look at the next lines too."""
    start = line[:1]
    if start in b"\"'bu " and start and _QUOTED.match(line):
        return True
    for numbering in _NUMBERINGS.values():
        if numbering.match(line):
            return True
    if start == b"{":
        fields = fields_of(line)
        return fields is not None and any(" " in text for _, text in strings(fields))
    return _table(line) is not None


def learned(lines: Sequence[bytes]) -> Dress | None:
    """The dress that (nearly) all ``lines``, none of them blank, have in common."""
    if len(lines) < 2:
        return None
    return _numbering(lines) or _quotes(lines) or _key(lines) or _columns(lines)


def undressed(line: bytes, dress: Dress) -> bytes | None:
    """The line as it was printed. None if ``line`` does not have the dress."""
    return _OFF[dress[0]](line, dress)


def _nearly_all(count: int, lines: Sequence[bytes]) -> bool:
    return count >= len(lines) - len(lines) // 10


# --- numbers -------------------------------------------------------------------------------------------------------------


def _numbering(lines: Sequence[bytes]) -> Dress | None:
    """A dress of line numbers, which only grow. The numbers of ``srun -l`` and of clocks repeat."""
    for name, numbering in _NUMBERINGS.items():
        last, found, spaced = 0, 0, 0
        for line in lines:
            match = numbering.match(line)
            said = _NUMBER.match(match[0]) if match else None
            if match is None or said is None:
                continue
            number = int(said[1])
            if number <= last:
                break
            last = number
            found += 1
            spaced += line[match.end() : match.end() + 1] in (b" ", b"")
        else:
            if _nearly_all(found, lines) and (name == "columns" or spaced < found):
                return ["numbered", name]
    return None


def _off_numbers(line: bytes, dress: Dress) -> bytes | None:
    match = _NUMBERINGS[dress[1]].match(line)
    return line[match.end() :] if match else None


# --- quotes --------------------------------------------------------------------------------------------------------------


def _quotes(lines: Sequence[bytes]) -> Dress | None:
    cells = sum(b'","' in line for line in lines)
    quoted = sum(_QUOTED.match(line) is not None for line in lines)
    return ["quoted"] if _nearly_all(quoted, lines) and not _nearly_all(cells, lines) else None


def _off_quotes(line: bytes, dress: Dress) -> bytes | None:
    found = _QUOTED.match(line)
    if found is None:
        return None
    text = line.strip().removesuffix(b",")
    try:
        value = json.loads(text) if text.startswith(b'"') else ast.literal_eval(text.decode())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = text[text.index(found["quote"]) + 1 : -1]
    if isinstance(value, str):
        value = value.encode("utf-8", "replace")
    return value.rstrip(b"\r\n").replace(b"\n", b"\r") if isinstance(value, bytes) else None


# --- a key of JSON -------------------------------------------------------------------------------------------------------


def _key(lines: Sequence[bytes]) -> Dress | None:
    """The key of JSON with the longest texts that differ from line to line."""
    rows = [fields for line in lines if line.startswith(b"{") and (fields := fields_of(line)) is not None]
    if not rows or not _nearly_all(len(rows), lines):
        return None
    texts: dict[str, list[str]] = {}
    for fields in rows:
        for key, text in strings(fields):
            texts.setdefault(key, []).append(text)
    for key in MESSAGES:
        if _nearly_all(len(texts.get(key, ())), lines):
            return ["key", key]
    likely = [
        (sum(map(len, found)), key)
        for key, found in texts.items()
        if _nearly_all(len(found), lines)
        and len(set(found)) * 2 > len(found)
        and sum(" " in text for text in found) * 2 >= len(found)
    ]
    return ["key", max(likely)[1]] if likely else None


def _off_key(line: bytes, dress: Dress) -> bytes | None:
    fields = fields_of(line) if line.startswith(b"{") else None
    if fields is None:
        return None
    outer, _, inner = dress[1].partition("\0")
    found = fields.get(outer)
    if inner:
        found = found.get(inner) if isinstance(found, dict) else None
    return composed(found, fields) if isinstance(found, str) else None


# --- the columns of a table ----------------------------------------------------------------------------------------------


def _table(line: bytes) -> str | None:
    """What separates the cells, if ``line`` may be a row: it begins with a time or a quote, or is a header."""
    named: bool | None = None
    for separator in b",;\t":
        if separator not in line:
            continue
        mark = bytes([separator])
        first, _, rest = line.partition(mark)
        if separator != 9 and _STAMP.match(first) and not (mark == b"," and re.match(rb"\d{3,6}\b(?!,)", rest)):
            return mark.decode()
        if first.startswith(b'"'):
            return mark.decode()
        if named is None:
            named = len(line) < 300 and _has(line.lower(), _IN_HEADERS)
        if named and not _HEADER_WORDS.isdisjoint(_header(line, mark)):
            return mark.decode()
    return None


def _has(text: bytes, words: Sequence[bytes]) -> bool:
    """Whether one of the words stands in ``text``."""
    for word in words:  # noqa: SIM110 - any() takes twice as long, and this is asked of each line
        if word in text:
            return True
    return False


def _header(line: bytes, separator: bytes) -> list[str]:
    return [cell.strip(b'" \r').lower().decode("utf-8", "replace") for cell in line.split(separator)]


def _cells(line: bytes, separator: str) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8", "surrogateescape").rstrip("\r")], delimiter=separator), [])
    except csv.Error:
        return []


def _columns(lines: Sequence[bytes]) -> Dress | None:
    separator = next((mark for line in lines if (mark := _table(line)) is not None), None)
    if separator is None:
        return None
    rows = [_cells(line, separator) for line in lines]
    (width, count), *_ = Counter(map(len, rows)).most_common(1)
    if width < 2 or not _nearly_all(count, lines):
        return None
    rows = [row for row in rows if len(row) == width]
    names = [cell.strip().lower() for cell in rows[0]]
    named = next((index for index, name in enumerate(names) if name in _HEADER_WORDS), None)
    if named is not None and len(rows) > 1:
        return ["columns", separator, width, named, names]
    return _columns_without_names(lines, rows, separator)


def _columns_without_names(lines: Sequence[bytes], rows: Sequence[Sequence[str]], separator: str) -> Dress | None:
    """The message is the column that holds most text; those that are a time or a level in all rows are known by that."""
    width = len(rows[0])
    quoted = sum(b'"' in line for line in lines) * 2 >= len(lines)
    timed = all(_STAMP.match(row[0].encode("utf-8", "replace")) for row in rows)
    level = next((index for index in range(width) if all(_LEVEL.match(row[index]) for row in rows)), None)
    if not quoted and (not timed or level is None):
        return None
    lengths = [sum(len(row[index]) for row in rows) for index in range(width)]
    column = max((index for index in range(width) if index != level and not (timed and index == 0)), key=lengths.__getitem__)
    names = ["time" if timed and index == 0 else "level" if index == level else "" for index in range(width)]
    return ["columns", separator, width, column, names]


def _off_columns(line: bytes, dress: Dress) -> bytes | None:
    _, separator, width, column, names = dress
    row = _cells(line, separator)
    if len(row) != width:
        return None
    fields: dict[str, Any] = {name: cell for name, cell in zip(names, row, strict=True) if name}
    return composed(row[column].encode("utf-8", "surrogateescape").decode("utf-8", "replace"), fields)


# --- what a wrapper writes before all that a job prints ---------------------------------------------------------------------

# It begins with a set of letters, because Python's search is quick only then.
_SAYS_LEVEL = re.compile(
    rb"[DINWECFSdinwecfs](?<![A-Za-z].)(?i:(?<=d)ebug|(?<=i)nfo|(?<=n)otice|(?<=w)arn(?:ing)?|(?<=e)rror|(?<=c)ritical|(?<=f)atal"
    rb"|(?<=s)td(?:out|err))(?![A-Za-z])",
    re.DOTALL,
)
_LEVELS = (b"ebug", b"info", b"otice", b"warn", b"rror", b"ritical", b"fatal", b"stdout", b"stderr")
"""one of these stands in what ``_SAYS_LEVEL`` finds, in small letters"""
_ENDS = re.compile(rb"[^\w({<.]")
"""what a head may end with, and brackets, which must be closed in it"""
_RUNS = re.compile(rb"[0-9]+")
_LONGEST_PREFIX, _LONGEST_HEAD = 400, 100
_PIPED = re.compile(rb"(?:stdout|stderr)[\])]?(?:[:|>]|[ ]-)[:|>-]*[ ]?\Z")
_HEADER = b"Traceback (most recent call last)"
_FRAME = re.compile(rb'  File "[^"]+", line \d+')
_FROM_TOP = re.compile(rb", in (?:<module>|_run_module_as_main|_bootstrap)\s*\Z")
_ANOTHER = re.compile(
    rb"\[(?:rank|default)\d+\]:|\([A-Za-z_]\w* pid=\d+"  # another launcher's mark
    rb"|\[?[IWEF]\d{4} \d\d:\d\d:\d\d"  # glog
    rb"|\[ *\d+\.\d{6}\] "  # the kernel
    rb"|[A-Za-z0-9][\w.-]*:\d+:\d+ \[\d+\] NCCL "
    rb"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]+:|\[(?:DEBUG|INFO|WARNING|ERROR)\b"
    rb"|\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}\]"  # dmesg -T
    rb"|(?:Aborted|Segmentation fault|Killed|Bus error|Terminated|Floating point exception)(?: +\(core dumped\))?\s*\Z"
    rb"|terminate called |  what\(\):  |frame #\d+: |Fatal Python error: |Exception raised from \w"  # C++, faulthandler
    rb"|(?:slurmstepd|srun|mpirun|bash|sh): (?:error|line)\b|\S+\.py: error: |usage: \S+\.py "
    rb"|\S+\.cuh?:\d+: .{0,200}: block: \["  # an assertion in a kernel
)
_RAISED = re.compile(rb"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): ")
"""what the interpreter prints last, and what programs sometimes log"""
_TIME = re.compile(rb"\[?\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d")


def heads(line: bytes) -> list[bytes]:
    """All possible heads of a wrapper: beginnings of the body with a level. Each number in them is one digit."""
    if not _has(line[: _LONGEST_PREFIX + _LONGEST_HEAD].lower(), _LEVELS):
        return []  # most lines, and this is much faster than to look for a body
    start = body_start(line[:_LONGEST_PREFIX])
    body = _RUNS.sub(b"0", line[start : start + _LONGEST_HEAD].partition(b"\r")[0])
    said = _SAYS_LEVEL.search(body)
    if said is None:
        return []
    begin, found = said.end(), []
    depth = body.count(b"[", 0, begin) - body.count(b"]", 0, begin)
    for one in _ENDS.finditer(body, begin):
        sign = one[0]
        depth += (sign == b"[") - (sign == b"]")
        if depth == 0 and sign != b"[":
            found.append(body[: one.end()])
    return found


def warns(head: bytes) -> bool:
    """Whether a head calls its line a warning. A wrapper seldom does so, and who handled an exception does. So only lines
    that surely come from another program show that it is a wrapper's.
    """
    said = _SAYS_LEVEL.search(head)
    return said is not None and said[0].lower().startswith(b"warn")


def piped(found: list[bytes]) -> bytes | None:
    """Of the possible heads of a line the one that names the stream that a job's output came from."""
    if not found or b"std" not in found[-1]:
        return None
    return next((head for head in reversed(found) if _PIPED.search(head)), None)


def off_head(line: bytes, head: re.Pattern[bytes]) -> bytes | None:
    """``line`` without the wrapper's head. The parts that say who printed it, and when, stay."""
    start = body_start(line[:_LONGEST_PREFIX])
    found = head.match(line, start)
    return line[:start] + line[found.end() :] if found else None


def behind(line: bytes, head: re.Pattern[bytes]) -> bytes:
    """What follows a head in ``line``. Empty if it has none."""
    found = head.match(line, body_start(line[:_LONGEST_PREFIX]))
    return line[found.end() :] if found else b""


@functools.lru_cache(256)
def pattern_of(head: bytes) -> re.Pattern[bytes]:
    """A pattern that finds a head again. The blank at its end is missing if an editor removed it from an empty line."""
    text = rb"[0-9]+".join(re.escape(part) for part in head.removesuffix(b" ").split(b"0"))
    return re.compile(text + (rb"(?:[ ]|\s*\Z)" if head.endswith(b" ") else b""))


def surely_tells(payload: bytes, line: bytes) -> bool:
    """Whether another program surely wrote what follows a head in ``line``: nobody gives such a line to their own logger."""
    if _FRAME.match(payload) is not None or _ANOTHER.match(payload) is not None:
        return True
    return _TIME.match(payload) is not None and _TIME.search(line, 0, len(line) - len(payload)) is not None


def tells(payload: bytes, line: bytes) -> bool:
    """The same question with weaker signs, for a head that many lines share."""
    return surely_tells(payload, line) or _RAISED.match(payload) is not None


def ends_program(payload: bytes, line: bytes) -> bool:
    """The same question with the strongest signs only: another program's own prefix, or a traceback that nobody caught."""
    if _FRAME.match(payload) is not None:
        return _FROM_TOP.search(payload) is not None
    return surely_tells(payload, line)


def begins_traceback(payload: bytes) -> bool:
    return payload.startswith(_HEADER)


_OFF = {"numbered": _off_numbers, "quoted": _off_quotes, "key": _off_key, "columns": _off_columns}
