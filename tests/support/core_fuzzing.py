"""What the native core is given: lines, blocks, columns and states that were right, and were damaged at random.

Run by ``sanitized``, in whose core each access to memory is checked. Where the core has a plain twin, both must agree.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tests.support.sanitized  # noqa: F401  the core that is checked, before another one is imported
from diagnose.compression.folds import Folding, folds
from diagnose.compression.kept_log import Compression
from diagnose.diagnosis.likeness import sounds
from diagnose.knowledge.rules import load as shipped
from diagnose.matching.databases import core
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.matching.scan import Cursor
from diagnose.matching.shapes import shape
from diagnose.reading.lines import Block, clean
from tests.support.damage import damaged

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
_PIECE = 20_000
_TOKENS = (
    b"1", b"7", b"22", b"-3.5", b"0x1f", b"1e9", b"nan", b"inf", b"a", b"ab", b"word", b"deadbeef", b"x1y2z3", b"/a/b.pt",
    b"b/c.py", b"'some quoted words here'", b"2024-01-02 03:04:05", b"10.0.0.1:80", b"\xc3\xa9", b"\xe2\x96\x88", b"|", b"%",
    b"[", b"]", b"=", b"---", b"\xff", b"12%| |", b"loss:", b"error", b"3MB",
)  # fmt: skip
_BETWEEN = (b"", b" ", b",", b", ", b" a ", b",a,", b"-", b"/", b":", b"=", b" | ", b"\t")


class Material:
    """What is damaged, and by what chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        rules = shipped()
        self.logs = [path.read_bytes()[:200_000] for path in sorted(LOGS.rglob("*")) if path.is_file()]
        self.lines = sorted({line for log in self.logs for line in log.splitlines()[:400]})
        self.fast, self.plain = Matcher(rules, "core", reserved=EARLY), Matcher(rules, "plain", reserved=EARLY)
        self.folding = Folding(sounds)

    def line(self) -> bytes:
        return damaged(self.chance.choice(self.lines), self.lines, self.chance)

    def made(self) -> bytes:
        """Lines of a few signs again and again: lists, and what stands between their parts."""
        chance, lines = self.chance, []
        for _ in range(chance.randint(1, 9)):
            parts = chance.choices(_TOKENS, k=chance.randint(1, 6)) * chance.choice((1, 2, 12, 70))
            lines.append(chance.choice(_BETWEEN).join(parts) + b" " + b" ".join(chance.choices(_TOKENS, k=4)))
        return b"\n".join(chance.choices(lines, k=chance.randint(1, 60)))[:_PIECE]

    def log(self) -> bytes:
        if self.chance.random() < 0.3:
            return self.made()
        log = self.chance.choice(self.logs)
        at = self.chance.randrange(max(1, len(log) - _PIECE))
        piece = log[at : at + self.chance.randrange(_PIECE)]
        return damaged(piece, self.lines, self.chance) if self.chance.random() < 0.8 else piece

    def cuts(self, log: bytes) -> Iterator[bytes]:
        places = sorted(self.chance.randrange(len(log) + 1) for _ in range(self.chance.randrange(6)))
        for begin, end in itertools.pairwise([0, *places, len(log)]):
            yield log[begin:end]


def of_lines(material: Material) -> None:
    """What is asked of one line."""
    line = material.line()
    segment = line.replace(b"\n", b"").replace(b"\r", b"").replace(b"\0", b"")
    assert core.clean(segment) == clean(segment)
    assert {core.shape(line), *core.shape_ways(line, b""), *core.shape_ways(line, b"7\n\xff" * 9)} == {shape(line)}
    assert core.body_start(line) <= len(line)
    core.keyed(line)
    core.number(line)
    for mode in (0, 1, 2):
        core.masked(line, mode)
    words = tuple({piece for piece in (material.chance.choice(material.lines)[:5], line[-3:]) if len(piece) > 1})
    assert core.any_of(line, words) == any(word in line for word in words)
    assert sorted(core.Words(words).found(line)) == [number for number, word in enumerate(words) if word in line]
    size = len(line)
    places = [(material.chance.randrange(size + 1), material.chance.randrange(-1, size + 3)) for _ in range(3)]
    captures = [(number, 1.0, begin, end) for number, (begin, end) in enumerate(places)]
    _refused_or_done(lambda: core.readings(line, captures), IndexError)


def of_blocks(material: Material) -> None:
    """Verdicts, kept lines and numbers of a log, by the core and by its plain twin."""
    log = material.log()
    fast, plain = Compression(material.fast), Compression(material.plain)
    for chunk in material.cuts(log):
        fast.feed(0, chunk)
    plain.feed(0, log)
    fast.close(0)
    plain.close(0)
    assert _known(fast) == _known(plain), log


def _known(compression: Compression) -> Any:
    kept = [(line.line, line.rule, line.cut, line.text) for line in compression.kept]
    counts = compression.counts
    return kept, +counts.dropped, (counts.lines_in, counts.blank, counts.lines_kept), compression.series_names


def of_folds(material: Material) -> None:
    """Logs whose repeated lines fold, with the state written and read between any two chunks."""
    compression = Compression(material.fast, material.folding)
    for chunk in material.cuts(material.log() * 2):
        compression.feed(0, chunk)
        stream = compression.streams[0]
        stream.folds = folds(material.folding, stream.folds.state())
    compression.close(0)
    compression.folds()


def of_states(material: Material) -> None:
    """A damaged state of folds is refused, or is one that can be gone on from."""
    before = Compression(material.fast, material.folding)
    before.feed(0, material.log())
    state = before.streams[0].folds.state() if before.streams else b""
    for _ in range(20):
        broken = _broken(state, material)
        after = Compression(material.fast, material.folding)
        stream = after.stream(0)
        try:
            stream.folds = folds(material.folding, broken)
        except ValueError:
            continue
        with contextlib.suppress(IndexError):  # Python's half, which was not damaged, knows no such header
            after.feed(0, material.log()[:4000])
            after.close(0)
        after.folds()
        stream.folds.state()


def _broken(state: bytes, material: Material) -> bytes:
    """Most damage that matters keeps the length, or it would be refused at once."""
    chance = material.chance
    if not state or chance.random() < 0.2:
        return damaged(state, material.lines, chance)
    made = bytearray(state)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(made)) if chance.random() < 0.7 else chance.randrange(min(400, len(made)))
        value = chance.choice((0, 1, 0x7F, 0x80, 0xFF, made[at] ^ 1 << chance.randrange(8)))
        made[at : at + chance.choice((1, 1, 2, 4, 8))] = bytes([value]) * min(len(made) - at, chance.choice((1, 1, 2, 4, 8)))
    return bytes(made[: len(state)]).ljust(len(state), b"\0")


def of_facts(material: Material) -> None:
    """Kept lines from which facts leave, with records that were damaged."""
    chance = material.chance
    scan = material.fast.scan(Block(material.log().replace(b"\0", b"") + b"\n"), Cursor())
    facts = bytes(chance.randrange(2) for _ in range(chance.randrange(1, 2000)))
    block, begun = material.log(), chance.randrange(3)
    kept = _broken(scan.kept, material) if chance.random() < 0.8 else scan.kept
    _refused_or_done(lambda: core.aside(kept, scan.text, block, facts, begun, 9), IndexError)
    core.lines_of(block)


def of_columns(material: Material) -> None:
    """Numbers, with some that are none, and slices that are not there."""
    chance = material.chance
    size = chance.choice((0, 1, 7, 8, 9, 33, 500))
    values = array("d", [chance.choice((0.0, -0.0, 1e308, -1e308, float("nan"), float("inf"), chance.gauss(2, 1)))
                         for _ in range(size)])  # fmt: skip
    steps, lines = array("d", range(size)), array("Q", range(size + chance.randrange(-1, 2) if size else 0))
    start, end = chance.randrange(-2, size + 3), chance.randrange(-2, size + 3)
    _refused_or_done(lambda: core.summary(values, start, end), IndexError)
    _refused_or_done(lambda: core.rows(values, steps, lines, start, chance.randrange(-1, 70)), IndexError, ValueError)
    past = [chance.gauss(2, 1) for _ in range(chance.randrange(34))]
    _refused_or_done(lambda: core.stand_out(values, 3.0, past, chance.randrange(-1, 9), float("inf")), ValueError)
    narrow, short = array("I", range(size)), array("I", range(chance.randrange(size + 1)))
    _refused_or_done(
        lambda: core.merged((steps, values, lines, narrow, narrow), (steps, values, lines, narrow, short)), IndexError
    )
    core.sketch(chance.randbytes(chance.randrange(100)), chance.randbytes(chance.randrange(100)))


def _refused_or_done(call: Callable[[], object], *refusals: type[Exception]) -> None:
    try:
        call()
    except refusals:
        return


PARTS = (of_lines, of_blocks, of_folds, of_states, of_facts, of_columns)


def main(seconds: float, seed: int) -> int:
    material = Material(seed)
    for part in PARTS:
        end, rounds = time.monotonic() + seconds / len(PARTS), 0
        while time.monotonic() < end:
            part(material)
            rounds += 1
        print(f"{part.__name__:<12} {rounds:>9,} rounds, nothing found", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
