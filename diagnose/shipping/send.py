"""Sends a whole source once, from where the service has it to its end."""

from __future__ import annotations

import time
from collections.abc import Callable

from diagnose.backoff import Backoff
from diagnose.errors import DiagnoseError
from diagnose.reading.sources import Source
from diagnose.shipping.destination import PIECE, Away, Destination, Mismatch, Owner

HEAD = 256
_BACKOFF = Backoff(0.5, 15.0, spread=0.5)


class Sending:
    """Sends sources to one service, and waits while it is away."""

    def __init__(
        self,
        destination: Destination,
        *,
        patience_s: float = 300.0,
        progress: Callable[[int], None] = lambda size: None,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._destination, self._patience_s = destination, patience_s
        self._progress, self._say = progress, say
        self._clock, self._sleep = clock, sleep
        self.sent = 0
        self.known = 0
        """bytes that the service already had"""

    def send(self, source: Source, owner: Owner) -> None:
        """Send all of ``source``. Its first bytes go first: the answer says how far the service has the rest."""
        position = received = 0
        held = bytearray()
        asked = False
        for chunk in source.chunks():
            held += chunk
            if not asked and len(held) >= HEAD:
                received, asked = self._piece(owner, 0, bytes(held[:HEAD])), True
                self.known += max(0, received - HEAD)
            while asked:
                # Skip what the service has.
                skipped = min(max(received - position, 0), len(held))
                del held[:skipped]
                position += skipped
                if len(held) < PIECE:
                    break
                received = self._piece(owner, position, bytes(held[:PIECE]))
            self._progress(source.bytes_read)
        if not asked:
            received = self._piece(owner, 0, bytes(held))
            if received > len(held):
                raise _longer(source, owner, received, len(held))
        else:
            if held:
                received = self._piece(owner, position, bytes(held))
            if received > position + len(held):
                raise _longer(source, owner, received, position + len(held))
        if source.problem is not None:
            raise DiagnoseError(source.problem, where=source.name, remedy="check the file; what could be read was sent")

    def end(self, job: str, exit_code: int, attempt: int | None) -> None:
        self._patiently(lambda: self._destination.end(job, exit_code, attempt))

    def _piece(self, owner: Owner, offset: int, data: bytes) -> int:
        received: list[int] = []
        try:
            self._patiently(lambda: received.append(self._destination.send(owner, offset, data)))
        except Mismatch as mismatch:
            remedy = "give it another name with --source, or another attempt with --attempt"
            if mismatch.expected is not None:
                remedy = "the service lost what it had of it: run the same command again"
            raise DiagnoseError(mismatch.what, where=owner.source, remedy=remedy) from None
        self.sent += len(data)
        return received[0]

    def _patiently(self, do: Callable[[], None]) -> None:
        began = self._clock()
        failures = 0
        while True:
            try:
                do()
                return
            except Away as away:
                if self._clock() - began > self._patience_s:
                    raise DiagnoseError(
                        away.what,
                        where=away.where,
                        remedy=away.remedy or "run the same command again: it goes on where it stopped",
                    ) from None
                failures += 1
                wait = (away.retry_after_s or 0.0) + _BACKOFF.after(failures)
                self._say(f"{away.where}: {away.what}; again in {wait:.1f} s")
                self._sleep(wait)


def _longer(source: Source, owner: Owner, received: int, size: int) -> DiagnoseError:
    return DiagnoseError(
        f"the service has {received:,} bytes of {owner.source}, and this file has {size:,}: another or a shortened file",
        where=source.name,
        remedy="give it another name with --source, or another attempt with --attempt",
    )
