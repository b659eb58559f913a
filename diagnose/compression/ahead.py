"""One source on several cores: processes judge the next blocks while this one folds, counts and keeps what they found.

To judge a block takes most of the time, and needs of the lines before it only how many they are. Everything else (folds,
numbers that stand out, series) is done in order. So the same comes out as from block after block.

A block goes to its process through memory that both share, and what was found comes back as a ``Scan``. Threads would not do:
what is judged in Python, such as rules with look-around, would stop all of them.
"""

from __future__ import annotations

import mmap
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Final

from diagnose.compression.kept_log import Compression, Stream
from diagnose.errors import DiagnoseError
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import Cursor, Scan
from diagnose.reading.lines import Block

_AHEAD: Final = 3
"""blocks per process that wait to be judged or taken"""
_ROOM: Final = 1 << 20
"""bytes of a block that goes to a process; greater ones go in pieces"""
_SMALL: Final = 1 << 16
"""bytes of a block that is judged here: to give it away would cost as much"""

_matcher: Matcher
_shared: mmap.mmap


def feed_ahead(compression: Compression, source: int, chunks: Iterable[bytes], processes: int) -> Iterator[list[Scan]]:
    """``Compression.feed`` for each of the chunks, with so many processes that judge. They begin as copies of this one, which
    only Linux can do. Rules that are added meanwhile do not count.
    """
    stream = compression.stream(source)
    room = processes * _AHEAD
    shared = mmap.mmap(-1, room * _ROOM)
    pool = ProcessPoolExecutor(
        processes, mp_context=get_context("fork"), initializer=_begin, initargs=(compression.matcher, shared)
    )  # fmt: skip
    waiting = _Waiting(compression, stream, pool, shared, list(range(room)))
    try:
        for chunk in chunks:
            done: list[Scan] = []
            for block in compression.blocks(stream, chunk):
                done += waiting.add(block)
            yield done
        yield waiting.finish()
    except BrokenProcessPool:
        raise DiagnoseError(
            "a process that read logs was ended from outside", remedy="if memory was short, use fewer with --cores 1"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
        shared.close()


@dataclass(slots=True)
class _Waiting:
    """Blocks that are judged, or were, and are not taken yet."""

    compression: Compression
    stream: Stream
    pool: ProcessPoolExecutor
    shared: mmap.mmap
    free: list[int]
    """pieces of the shared memory that hold no block"""
    blocks: deque[tuple[Block, Cursor, int, Future[Scan]] | tuple[Block, Cursor]] = field(default_factory=deque)
    """the last two are missing where this process will judge"""
    line: int | None = None
    """where the next block begins; None: that is known when all before it are taken"""

    def add(self, block: Block) -> list[Scan]:
        """Have a block judged. Returns what was taken, to have room for it."""
        done = self.finish() if self.line is None else []
        before = self.stream.cursor if self.line is None else Cursor(self.line)
        data = bytes(block.data)
        if _SMALL <= len(data) <= _ROOM:
            while not self.free:
                done.append(self._take())
            at = self.free.pop()
            self.shared[at * _ROOM : at * _ROOM + len(data)] = data
            self.blocks.append((block, before, at, self.pool.submit(_judge, at * _ROOM, len(data), block.cut, before)))
        else:
            self.blocks.append((block, before))
        # Behind half a line the next block depends on what that half was.
        self.line = before.line + data.count(b"\n") if data.endswith(b"\n") else None
        return done

    def finish(self) -> list[Scan]:
        """Take all that wait."""
        return [self._take() for _ in range(len(self.blocks))]

    def _take(self) -> Scan:
        block, before, *judged = self.blocks.popleft()
        if judged:
            at, found = judged
            scan = found.result()
            self.free.append(at)
        else:
            scan = self.compression.matcher.scan(block, before)
        return self.compression.take(self.stream, block, before, scan)


def _begin(matcher: Matcher, shared: mmap.mmap) -> None:
    global _matcher, _shared
    _matcher, _shared = matcher, shared
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it silently


def _judge(start: int, size: int, cut: int, before: Cursor) -> Scan:
    return _matcher.scan(Block(_shared[start : start + size], cut), before)
