"""One source on several cores: processes judge the next blocks while this one folds, counts and keeps what they found.

To judge a block takes most of the time, and needs of the lines before it only how many they are. Everything else (folds,
numbers that stand out, series) is done in order. So the same comes out as from block after block.

A block goes to the processes through memory that all share, and the first that is free takes it. What it found comes back as a
``Scan``. Threads would not do: what is judged in Python, such as rules with look-around, would stop all of them.
"""

from __future__ import annotations

import fcntl
import gc
import mmap
import os
import signal
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Final, cast

from diagnose.compression.kept_log import Compression, Stream
from diagnose.errors import DiagnoseError
from diagnose.matching.databases import core
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import Cursor, Scan
from diagnose.reading.lines import Block

_AHEAD: Final = 3
"""blocks per process that wait to be judged or taken"""
_ROOM: Final = 1 << 20
"""bytes of a block that goes to a process; a greater one is judged here"""
_SMALL: Final = 1 << 16
"""bytes of a block that is judged here, too: to give it away would cost as much"""
_TASK = struct.Struct("<IIQQ??i4x")
"""place in the shared memory, bytes, bytes that were cut, and the cursor; less than a pipe takes and gives at once"""


def _lines_of(data: bytes | memoryview) -> int:
    return core.lines_of(data) if core is not None else bytes(data).count(b"\n")


def feed_ahead(compression: Compression, source: int, chunks: Iterable[bytes], processes: int) -> Iterator[list[Scan]]:
    """``Compression.feed`` for each of the chunks, with so many processes that judge. They begin as copies of this one, which
    only Linux can do. Rules that are added meanwhile do not count.
    """
    waiting = _Waiting(compression, compression.stream(source), _Judges(compression.matcher, processes))
    try:
        for chunk in chunks:
            done: list[Scan] = []
            for block in compression.blocks(waiting.stream, chunk):
                done += waiting.add(block)
            yield done
        yield waiting.finish()
    finally:
        waiting.judges.close()


class _Judges:
    """Processes that judge blocks."""

    def __init__(self, matcher: Matcher, processes: int) -> None:
        room = processes * _AHEAD
        self.free = list(range(room))
        """pieces of the shared memory that hold no block"""
        self._shared = mmap.mmap(-1, room * _ROOM)
        self._found: dict[int, Scan] = {}
        self._processes: list[Any] = []
        self._answers: list[Any] = []
        tasks, self._tasks = os.pipe()
        context = get_context("fork")
        for _ in range(processes):
            answers, answer = context.Pipe(duplex=False)
            with suppress(OSError):
                fcntl.fcntl(answer.fileno(), fcntl.F_SETPIPE_SZ, _ROOM)
            arguments = (matcher, self._shared, tasks, answer, self._tasks, [*self._answers, answers])
            process = context.Process(target=_judge, args=arguments, daemon=True)
            process.start()
            answer.close()
            self._answers.append(answers)
            self._processes.append(process)
        os.close(tasks)

    def ask(self, data: bytes | memoryview, cut: int, before: Cursor) -> int:
        """Have a block judged; there must be a free piece. Returns its number."""
        number = self.free.pop()
        self._shared[number * _ROOM : number * _ROOM + len(data)] = data
        os.write(self._tasks, _TASK.pack(number, len(data), cut, *before))
        return number

    def answer(self, number: int) -> Scan:
        """What was found in that block. Its piece is then free."""
        while number not in self._found:
            for ready in wait(self._answers):
                try:
                    at, found = cast("Connection[Any, Any]", ready).recv()
                except EOFError:
                    raise DiagnoseError(
                        "a process that read logs was ended from outside",
                        remedy="if memory was short, use fewer with --cores 1",
                    ) from None
                if isinstance(found, BaseException):
                    raise found
                self._found[at] = cast("Scan", found)
        self.free.append(number)
        return self._found.pop(number)

    def close(self) -> None:
        os.close(self._tasks)
        for process, answers in zip(self._processes, self._answers, strict=True):
            process.terminate()
            process.join()
            answers.close()
        self._shared.close()


@dataclass(slots=True)
class _Waiting:
    """Blocks that are judged, or were, and are not taken yet."""

    compression: Compression
    stream: Stream
    judges: _Judges
    blocks: deque[tuple[Block, Cursor, int | None]] = field(default_factory=deque)
    """each with its number; None: this process will judge it"""
    line: int | None = None
    """where the next block begins; None: that is known when all before it are taken"""

    def add(self, block: Block) -> list[Scan]:
        """Have a block judged. Returns what was taken, to have room for it."""
        done = self.finish() if self.line is None else []
        before = self.stream.cursor if self.line is None else Cursor(self.line)
        number = None
        if _SMALL <= len(block.data) <= _ROOM:
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
        scan = self.compression.matcher.scan(block, before) if number is None else self.judges.answer(number)
        return self.compression.take(self.stream, block, before, scan)


def _judge(
    matcher: Matcher, shared: mmap.mmap, tasks: int, answer: Connection[Any, Any], unused_tasks: int, unused: list[Any]
) -> None:
    """What each process does, until there is nobody to tell. It closes what it does not use, so that others see who is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it silently
    gc.freeze()  # what came with the copy stays: to look at it would copy it in memory
    os.close(unused_tasks)
    for one in unused:
        one.close()
    memory = memoryview(shared)
    with suppress(BrokenPipeError):
        while task := os.read(tasks, _TASK.size):
            number, size, cut, *before = _TASK.unpack(task)
            found: Scan | BaseException
            try:
                found = matcher.scan(Block(memory[number * _ROOM : number * _ROOM + size], cut), Cursor(*before))
            except Exception as error:
                found = error
            answer.send((number, found))
