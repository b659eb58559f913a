"""One source on several cores: threads judge the next blocks while this one folds, counts and keeps what they found.

To judge a block takes most of the time, and needs of the lines before it only how many they are. Everything else (folds,
numbers that stand out, series) is done in order. So the same comes out as from block after block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final

from diagnose.compression.kept_log import Compression, Stream
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import Cursor, Scan
from diagnose.reading.lines import Block

_AHEAD: Final = 3
"""blocks per thread that wait to be judged or taken"""


def feed_ahead(compression: Compression, source: int, chunks: Iterable[bytes], threads: int) -> Iterator[list[Scan]]:
    """``Compression.feed`` for each of the chunks, with this many threads. Rules that are added meanwhile do not count."""
    stream = compression.stream(source)
    matchers: SimpleQueue[Matcher] = SimpleQueue()
    for _ in range(threads):
        matchers.put(compression.matcher.twin())
    with ThreadPoolExecutor(threads, thread_name_prefix="scan") as pool:
        waiting = _Waiting(compression, stream, pool, matchers)
        try:
            for chunk in chunks:
                done: list[Scan] = []
                for block in compression.blocks(stream, chunk):
                    done += waiting.add(block, most=threads * _AHEAD)
                yield done
            yield waiting.finish()
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass(slots=True)
class _Waiting:
    """Blocks that are judged, or were, and are not taken yet."""

    compression: Compression
    stream: Stream
    pool: ThreadPoolExecutor
    matchers: SimpleQueue[Matcher]
    blocks: deque[tuple[Block, Cursor, Future[Scan]]] = field(default_factory=deque)
    line: int | None = None
    """where the next block begins; None: that is known when all before it are taken"""

    def add(self, block: Block, most: int) -> list[Scan]:
        """Have a block judged. Returns what could be taken, so that at most ``most`` wait."""
        done = self.finish() if self.line is None else []
        before = self.stream.cursor if self.line is None else Cursor(self.line)
        self.blocks.append((block, before, self.pool.submit(self._judge, block, before)))
        data = bytes(block.data)
        # Behind half a line the next block depends on what that half was.
        self.line = before.line + data.count(b"\n") if data.endswith(b"\n") else None
        while len(self.blocks) > most:
            done.append(self._take())
        return done

    def finish(self) -> list[Scan]:
        """Take all that wait."""
        return [self._take() for _ in range(len(self.blocks))]

    def _take(self) -> Scan:
        block, before, judged = self.blocks.popleft()
        return self.compression.take(self.stream, block, before, judged.result())

    def _judge(self, block: Block, before: Cursor) -> Scan:
        matcher = self.matchers.get()
        try:
            return matcher.scan(block, before)
        finally:
            self.matchers.put(matcher)
