"""One source on several cores: processes judge the next blocks while this one folds, counts and keeps what they found.

To judge a block takes most of the time, and needs of the lines before it only how many they are. Everything else (folds,
numbers that stand out, series) is done in order. So the same comes out as from block after block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from diagnose.compression.judges import ROOM, Judges
from diagnose.compression.kept_log import Compression, Stream
from diagnose.matching.databases import core
from diagnose.matching.scan import Cursor, Scan
from diagnose.reading.lines import Block

_SMALL: Final = 1 << 16
"""bytes of a block that is judged here, too: to give it away would cost as much"""


def _lines_of(data: bytes | memoryview) -> int:
    return core.lines_of(data) if core is not None else bytes(data).count(b"\n")


def feed_ahead(compression: Compression, source: int, chunks: Iterable[bytes], processes: int) -> Iterator[list[Scan]]:
    """``Compression.feed`` for each of the chunks, with so many processes that judge. They begin as copies of this one, which
    only Linux can do. Rules that are added meanwhile do not count.
    """
    waiting = _Waiting(compression, compression.stream(source), Judges(compression.matcher, processes))
    try:
        for chunk in chunks:
            done: list[Scan] = []
            for block in compression.blocks(waiting.stream, chunk):
                done += waiting.add(block)
            yield done
        yield waiting.finish()
    finally:
        waiting.judges.close()


@dataclass(slots=True)
class _Waiting:
    """Blocks that are judged, or were, and are not taken yet."""

    compression: Compression
    stream: Stream
    judges: Judges
    blocks: deque[tuple[Block, Cursor, int | None]] = field(default_factory=deque)
    """each with its number; None: this process will judge it"""
    line: int | None = None
    """where the next block begins; None: that is known when all before it are taken"""

    def add(self, block: Block) -> list[Scan]:
        """Have a block judged. Returns what was taken, to have room for it."""
        done = self.finish() if self.line is None else []
        before = self.stream.cursor if self.line is None else Cursor(self.line)
        number = None
        if _SMALL <= len(block.data) <= ROOM:
            while not self.judges.free:
                done.append(self._take())
            number = self.judges.ask(block.data, block.cut, before)
        self.blocks.append((block, before, number))
        # Behind half a line the next block depends on what that half was.
        self.line = before.line + _lines_of(block.data) if block.data[-1] == 10 else None
        return done

    def finish(self) -> list[Scan]:
        """Take all that wait."""
        return [self._take() for _ in range(len(self.blocks))]

    def _take(self) -> Scan:
        block, before, number = self.blocks.popleft()
        scan = self.judges.answer(number) if number is not None else None
        if scan is None:
            scan = self.compression.matcher.scan(block, before)
        scan = self.compression.take(self.stream, block, before, scan)
        if number is not None:
            scan.numbers = {}  # they lie in memory that the next block gets
            self.judges.give_back(number)
        return scan
