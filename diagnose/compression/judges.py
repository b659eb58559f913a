"""Processes that judge blocks of one source, each beside the others.

A block goes to them through memory that all share, and the first that is free takes it. What was found comes back through the
same memory: the numbers of a block may be a quarter of its bytes, and to send them through a pipe would copy them five times.
Threads would not do: what is judged in Python, such as rules with look-around, would stop all of them.
"""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import select
import signal
import struct
from contextlib import suppress
from multiprocessing import get_context
from typing import Any, Final

from diagnose.errors import DiagnoseError
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import Cursor, Scan
from diagnose.matching.series import Column
from diagnose.reading.lines import Block

ROOM: Final = 1 << 21
"""bytes of a block that can be given to a process"""
MOST: Final = 8
"""more processes would only wait: what is left to do in order takes longer than an eighth of the judging"""
_FOUND: Final = 1 << 22
"""bytes for what was found in a block; if it is more, the block is judged again where it is needed"""
_PIECES: Final = 8
"""blocks that wait to be judged or taken; enough for two processes to go on while one block takes long"""
_TASK = struct.Struct("<IIQQ??i4x")
"""piece of the shared memory, bytes, bytes that were cut, and the cursor; less than a pipe takes and gives at once"""
_ANSWER = struct.Struct("<II")
"""piece of the shared memory, and the bytes at its beginning that say what else is there; 0: what was found has no room"""
_PARTS: Final = 5
"""of a column"""


class Judges:
    """So many processes. They begin as copies of this one, which only Linux can do."""

    def __init__(self, matcher: Matcher, processes: int) -> None:
        processes = min(processes, MOST)
        pieces = max(_PIECES, 3 * processes)
        self.free = list(range(pieces))
        """pieces of the shared memory that hold no block"""
        self._memory = memoryview(mmap.mmap(-1, pieces * (ROOM + _FOUND)))
        self._answered: dict[int, int] = {}
        """piece -> bytes that say what was found"""
        self._processes: list[Any] = []
        self._answers: list[int] = []
        self._ready = select.poll()
        tasks, self._tasks = os.pipe()
        context = get_context("fork")
        for _ in range(processes):
            answers, answer = os.pipe()
            self._answers.append(answers)
            self._ready.register(answers, select.POLLIN)
            arguments = (matcher, self._memory, tasks, answer, [self._tasks, *self._answers])
            process = context.Process(target=_judge, args=arguments, daemon=True)
            process.start()
            os.close(answer)
            self._processes.append(process)
        os.close(tasks)

    def place(self, number: int) -> memoryview:
        """Where the block of that piece goes."""
        return _places(self._memory, number)[0]

    def ask(self, number: int, size: int, cut: int, before: Cursor) -> None:
        """Have the block judged that lies in that piece."""
        try:
            os.write(self._tasks, _TASK.pack(number, size, cut, *before))
        except BrokenPipeError:  # nobody is left who would read it
            raise _ended() from None

    def answer(self, number: int) -> Scan | None:
        """What was found in that block; None if it has no room. Its numbers are gone when its piece is given back."""
        while number not in self._answered:
            for ready, _ in self._ready.poll():
                told = os.read(ready, _ANSWER.size)
                if not told:
                    raise _ended()
                at, size = _ANSWER.unpack(told)
                self._answered[at] = size
        size = self._answered.pop(number)
        return taken_up(_places(self._memory, number)[1], size) if size else None

    def give_back(self, number: int) -> None:
        """The block of that piece, and what was found in it, are not needed any more."""
        self.free.append(number)

    def close(self) -> None:
        os.close(self._tasks)
        for process, answers in zip(self._processes, self._answers, strict=True):
            process.terminate()
            process.join()
            os.close(answers)


def _ended() -> DiagnoseError:
    return DiagnoseError(
        "a process that read logs was ended from outside", remedy="if memory was short, use fewer with --cores 1"
    )


def _places(memory: memoryview, number: int) -> tuple[memoryview, memoryview]:
    """Where a piece has its block, and what was found in it."""
    start = number * (ROOM + _FOUND)
    return memory[start : start + ROOM], memory[start + ROOM : start + ROOM + _FOUND]


def _judge(matcher: Matcher, memory: memoryview, tasks: int, answer: int, unused: list[int]) -> None:
    """What each process does, until there is nobody to tell. It closes what it does not use, so that others see who is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it silently
    gc.freeze()  # what came with the copy stays: to look at it would copy it in memory
    for one in unused:
        os.close(one)
    with suppress(BrokenPipeError):
        while task := os.read(tasks, _TASK.size):
            number, size, cut, *before = _TASK.unpack(task)
            block, room = _places(memory, number)
            try:
                told = laid_down(matcher.scan(Block(block[:size], cut), Cursor(*before)), room)
            except Exception as error:
                raised = pickle.dumps(error)
                room[: len(raised)] = raised
                told = len(raised)
            os.write(answer, _ANSWER.pack(number, told))


def laid_down(scan: Scan, room: memoryview) -> int:
    """Put a scan into ``room``: what is said about its parts, and its parts, one behind the other. Returns the length of what
    is said; 0 if there is no room.
    """
    parts = [scan.text, scan.kept, *(part for column in scan.numbers.values() for part in column.parts)]
    lengths = [memoryview(part).nbytes for part in parts]
    counts = (scan.dropped, scan.lines, scan.blank, scan.lines_kept, scan.bytes_kept)
    said = pickle.dumps((tuple(scan.cursor), list(scan.numbers), lengths, counts))
    at = _aligned(len(said))
    if at + sum(map(_aligned, lengths)) > len(room):
        return 0
    room[: len(said)] = said
    for part, length in zip(parts, lengths, strict=True):
        if length:
            room[at : at + length] = memoryview(part).cast("B")
        at += _aligned(length)
    return len(said)


def taken_up(room: memoryview, size: int) -> Scan:
    """The scan that lies in ``room``. Its numbers stay there, all else is copied. An error is raised."""
    said = pickle.loads(room[:size])  # noqa: S301 - from a copy of this process
    if isinstance(said, BaseException):
        raise said
    cursor, names, lengths, counts = said
    at = _aligned(size)
    parts: list[memoryview] = []
    for length in lengths:
        parts.append(room[at : at + length])
        at += _aligned(length)
    text, kept, *rest = parts
    numbers = {name: Column.of_bytes(*rest[_PARTS * at : _PARTS * (at + 1)]) for at, name in enumerate(names)}
    return Scan(Cursor(*cursor), bytes(text), bytes(kept), numbers, *counts)


def _aligned(length: int) -> int:
    """Up to where the next number may begin."""
    return -(-length // 8) * 8
