"""Lines that only say who is who leave the kept ones, and their text is set aside.

Such lines may be most of what a block keeps. So the native core does this; ``aside`` is the same in Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from diagnose.matching.databases import core
from diagnose.matching.scan import KEPT, Cursor, Scan
from diagnose.reading.lines import Block

MOST = 16_384
"""texts that are set aside for a job; any more are only dropped and counted"""


def set_aside(scan: Scan, block: Block, before: Cursor, facts: bytes, room: int) -> Sequence[bytes]:
    """Move these lines from the kept to the dropped. Returns the texts of the first ``room``.

    ``facts`` has one byte for each rule, which is not 0 if its lines say who is who.
    """
    begun, length = before.line if before.content else 0, len(scan.text)
    scan.kept, scan.text, words, dropped = _aside(scan.kept, scan.text, block.data, facts, begun, room)
    if dropped:
        scan.lines_kept -= sum(lines for _, lines in dropped)
        scan.bytes_kept -= length - len(scan.text)
        scan.dropped = sorted((Counter(dict(scan.dropped)) + Counter(dict(dropped))).items())
    return words


def aside(
    kept: bytes, text: bytes, block: bytes | memoryview, facts: bytes, begun: int, room: int
) -> tuple[bytes, bytes, list[bytes], list[tuple[int, int]]]:
    """(the kept that stay, their text, texts that left, (rule, lines that left)). ``begun``: a line that began before it.

    A line of several segments stays, because how it counts may depend on the next block.
    """
    records = list(KEPT.iter_unpack(kept))
    shared = Counter(record[0] for record in records)
    dropped: Counter[int] = Counter()
    rest, stay = bytearray(), []
    words: list[bytes] = []
    for line, offset, length, rule, cut, start, end in records:
        its = text[offset : offset + length]
        whole = end < len(block) and block[end] == 10 and (start == 0 or block[start - 1] == 10)
        if 0 <= rule < len(facts) and facts[rule] and whole and line != begun and shared[line] == 1:
            dropped[rule] += 1
            if len(words) < room:
                words.append(its)
        else:
            stay.append(KEPT.pack(line, len(rest), length, rule, cut, start, end))
            rest += its + b"\n"
    return b"".join(stay), bytes(rest), words, sorted(dropped.items())


_aside = core.aside if core is not None else aside
