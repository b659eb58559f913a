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
from diagnose.reading.sources import Source

_SMALL: Final = 1 << 16
"""bytes of a block that is judged here, too: to give it away would cost as much"""


def _lines_of(data: bytes | memoryview) -> int:
    return core.lines_of(data) if core is not None else bytes(data).count(b"\n")


def feed_ahead(
    compression: Compression,
    number: int,
    pieces: Iterable[bytes | memoryview],
    processes: int,
    source: Source | None = None,
) -> Iterator[list[Scan]]:
    """``Compression.feed`` for each of the pieces, with so many processes that judge. They begin as copies of this one, which
    only Linux can do. Rules that are added meanwhile do not count.

    ``source``: where the pieces come from. Then it reads them to where they are judged, which saves a copy of all of them.
    """
    waiting = _Waiting(compression, compression.stream(number), Judges(compression.matcher, processes))
    if source is not None:
        source.room = waiting.room
    try:
        for piece in pieces:
            waiting.add(piece)
            yield waiting.taken()
        waiting.finish()
        yield waiting.taken()
    finally:
        if source is not None:
            source.room = None
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
    done: list[Scan] = field(default_factory=list)
    """what was taken and not handed on yet"""
    offered: int | None = None
    """the free piece that the next bytes may be read to"""

    def room(self) -> memoryview:
        """Where the next bytes may be read to."""
        if self.offered is None:
            self.offered = self._free()
        return self.judges.place(self.offered)

    def add(self, piece: bytes | memoryview) -> None:
        """Have the blocks judged that are complete with these bytes. They may be where they can be judged: in ``room``."""
        number, self.offered = self.offered, None
        if number is None:
            self._split(bytes(piece))
        elif len(piece) < _SMALL or not self.compression.passes(self.stream, piece):
            copied = bytes(piece)
            self.judges.give_back(number)
            self._split(copied)
        else:
            self._ask(Block(piece), number)

    def taken(self) -> list[Scan]:
        """What was taken since this was asked last."""
        done, self.done = self.done, []
        return done

    def finish(self) -> None:
        """Take all that wait."""
        while self.blocks:
            self._take()

    def _split(self, chunk: bytes) -> None:
        for block in self.compression.blocks(self.stream, chunk):
            size, number = len(block.data), None
            if _SMALL <= size <= ROOM:
                number = self._free()
                self.judges.place(number)[:size] = block.data
            self._ask(block, number)

    def _ask(self, block: Block, number: int | None) -> None:
        if self.line is None:
            self.finish()
        before = self.stream.cursor if self.line is None else Cursor(self.line)
        if number is not None:
            self.judges.ask(number, len(block.data), block.cut, before)
        self.blocks.append((block, before, number))
        # Behind half a line the next block depends on what that half was.
        self.line = before.line + _lines_of(block.data) if block.data[-1] == 10 else None

    def _free(self) -> int:
        while not self.judges.free:
            self._take()
        return self.judges.free.pop()

    def _take(self) -> None:
        block, before, number = self.blocks.popleft()
        scan = self.judges.answer(number) if number is not None else None
        if scan is None:
            scan = self.compression.matcher.scan(block, before)
        scan = self.compression.take(self.stream, block, before, scan)
        self.done.append(scan)
        if number is not None:
            scan.numbers = {}  # they lie in memory that the next block gets
            self.judges.give_back(number)
