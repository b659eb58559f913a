"""The output of a command, sent to two places: where it would have gone, and a source of whole lines."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from diagnose.shipping.destination import Owner
from diagnose.shipping.tails import Piece

_MOST_HELD = 8 << 20
_MOST_PARTIAL = 64 << 10
_MOST_AT_ONCE = 64 << 10
_MOST_AHEAD = 1 << 20
"""a pipe holds at most so much, unless somebody made it larger"""
_IDLE_S = 1.0


class Pipe:
    """Standard output and standard error of one process as one source. Lines stay whole.

    The process never waits for the service. What fits neither into memory nor onto disk is dropped, and a line says so.
    """

    def __init__(self, owner: Owner, clock: Callable[[], float] = time.monotonic) -> None:
        self._owner, self._clock = owner, clock
        self._lock = threading.Lock()
        self._held = bytearray()
        self._partial: dict[int, bytearray] = {}
        self._partial_since: dict[int, float] = {}
        self._offset = 0
        self._dropped = 0
        self._written = clock()
        self._diverted: tuple[Pipe, float] | None = None

    def divert(self, other: Pipe, seconds: float) -> None:
        """What comes within this time goes to ``other``: it is an answer to a signal, and no sign of life."""
        self._diverted = other, self._clock() + seconds

    def write(self, channel: int, data: bytes) -> None:
        """The process printed ``data`` on ``channel``."""
        if self._diverted is not None:
            other, until = self._diverted
            if self._clock() < until:
                other.write(channel, data)
                return
            self._diverted = None
        self._written = self._clock()
        with self._lock:
            partial = self._partial.setdefault(channel, bytearray())
            if not partial:
                self._partial_since[channel] = self._clock()
            partial += data
            end = max(partial.rfind(b"\n"), partial.rfind(b"\r")) + 1
            if not end and len(partial) > _MOST_PARTIAL:
                end = len(partial)
            self._hold(channel, end)

    def close(self, channel: int) -> None:
        """``channel`` has ended."""
        with self._lock:
            self._hold(channel, len(self._partial.get(channel, b"")))

    def _hold(self, channel: int, end: int) -> None:
        if not end:
            return
        partial = self._partial[channel]
        data = bytes(partial[:end])
        del partial[:end]
        self._partial_since[channel] = self._clock()
        if len(self._held) + len(data) > _MOST_HELD:
            self._dropped += len(data)
            return
        if self._dropped:
            self._held += b"[diagnose runner: %d bytes were printed here and could not be kept]\n" % self._dropped
            self._dropped = 0
        self._held += data

    def read(self, size: int) -> Piece | None:
        with self._lock:
            for channel, since in self._partial_since.items():
                if self._clock() - since > _IDLE_S:  # a prompt or a progress bar: no line end for a while
                    self._hold(channel, len(self._partial[channel]))
            data = bytes(self._held[:size])
            return Piece(self._owner, self._offset, data, None) if data else None

    def commit(self, piece: Piece) -> None:
        with self._lock:
            del self._held[: len(piece.data)]
            self._offset += len(piece.data)

    @property
    def quiet_s(self) -> float:
        """For how long the process has printed nothing."""
        return self._clock() - self._written

    @property
    def owner(self) -> Owner:
        return self._owner

    def rename(self, owner: Owner, renamed: Owner, offset: int) -> None:
        with self._lock:
            if self._owner == owner:
                self._owner = renamed
                self._offset -= offset


class _Channel:
    """One of the two outputs of a process."""

    def __init__(self, source: BinaryIO, descriptor: int, pipe: Pipe) -> None:
        self._source, self._descriptor, self._pipe = source, descriptor, pipe
        self._read_there = True
        self.open = True
        os.set_blocking(source.fileno(), False)

    def fileno(self) -> int:
        return self._source.fileno()

    def read(self, most: int = _MOST_AT_ONCE) -> bytes:
        """What stands in it now, up to about ``most`` bytes."""
        found = bytearray()
        while self.open and len(found) < most:
            try:
                data = os.read(self._source.fileno(), _MOST_AT_ONCE)
            except BlockingIOError:
                break
            self.open = bool(data)
            found += data
        return bytes(found)

    def pass_on(self, data: bytes) -> None:
        """Into the pipe, and to where the process would have printed it."""
        if data:
            self._pipe.write(self._descriptor, data)
        view = memoryview(data)
        while self._read_there and view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except OSError:
                self._read_there = False  # nobody reads it there any more; the logs are still sent

    def close(self) -> None:
        self._pipe.close(self._descriptor)
        with contextlib.suppress(OSError):
            self._source.close()


def pump(stdout: BinaryIO, stderr: BinaryIO, pipe: Pipe) -> threading.Thread:
    """Copy what a process prints to where it would have gone, and into ``pipe``, until both channels end.

    A process that dies prints its last steps on one channel, and then its traceback on the other. If the traceback was passed
    on first, the steps would look like work that went on. So what stands in standard output once standard error has been read
    goes before it.
    """
    out, errors = _Channel(stdout, 1, pipe), _Channel(stderr, 2, pipe)

    def run() -> None:
        watched = [out, errors]
        with selectors.DefaultSelector() as selector:
            for channel in watched:
                selector.register(channel, selectors.EVENT_READ)
            while watched:
                ready = [key.fileobj for key, _ in selector.select()]
                later = errors.read(1) if errors in ready else b""
                out.pass_on(out.read(_MOST_AHEAD if later else 1))
                errors.pass_on(later)
                for channel in [one for one in watched if not one.open]:
                    selector.unregister(channel)
                    channel.close()
                    watched.remove(channel)

    thread = threading.Thread(target=run, name="pump", daemon=True)
    thread.start()
    return thread
