"""Lines of one connection -> the journal. While there is no room they wait, and so does the connection: nothing is dropped."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time

from service.auth import Tokens, Who
from service.errors import Busy, Unavailable
from service.intake.ingest import Ingest
from service.intake.protocols.gathering import Gathering
from service.intake.protocols.identity import Identities, Identity
from service.intake.protocols.requests import Head
from service.intake.storing import Storing
from service.telemetry import Telemetry

log = logging.getLogger("diagnose.sockets")

_QUIET_S = 10.0
_LONGEST_WAIT_S = 5.0


class Complaints:
    """Says now and then why lines were not stored, as the sender cannot be told."""

    def __init__(self, protocol: str) -> None:
        self._protocol, self._told, self._untold = protocol, float("-inf"), 0

    def note(self, peer: str, lines: int, why: str) -> None:
        self._untold += lines
        now = time.monotonic()
        if now - self._told >= _QUIET_S:
            log.warning("%s from %s: %d lines were not stored: %s", self._protocol, peer, self._untold, why)
            self._told, self._untold = now, 0


class Lines:
    """Add lines, then store them."""

    def __init__(
        self, protocol: str, peer: str, ingest: Ingest, tokens: Tokens, identities: Identities, telemetry: Telemetry,
        complaints: Complaints,
    ) -> None:  # fmt: skip
        self.identities = identities
        self._protocol, self._peer, self._ingest, self._tokens = protocol, peer, ingest, tokens
        self._telemetry, self._complaints = telemetry, complaints
        self._gathering = Gathering(Head(), identities)
        self._connection = secrets.token_bytes(16)
        self._stored = 0
        self.size = 0

    def add(self, identity: Identity, text: bytes, *, partial: bool = False) -> None:
        self.size += len(text) + 1
        self._gathering.add(identity, text, partial=partial)

    def reject(self, why: str, count: int = 1) -> None:
        """Lines that can never be stored."""
        if count:
            self._gathering.decoded.lines += count
            self._gathering.decoded.reject(why, count)

    async def store(self, who: Who, stamp: bytes | None = None) -> None:
        """All that was added is on disk, or was refused for ever, when this returns.

        ``stamp``: names what is stored, so that it counts once if it is sent again. Without it, nothing is a repetition.
        """
        self._stored += 1
        decoded = self._gathering.end(stamp if stamp is not None else self._connection + self._stored.to_bytes(8, "little"))
        self.size = 0
        storing = Storing(self._ingest, self._tokens, who)
        wait_s = 0.1
        while True:
            try:
                try:
                    await storing.add(decoded.batches)
                finally:
                    await storing.settle()
                break
            except (Busy, Unavailable) as later:
                storing = Storing(self._ingest, self._tokens, who)  # keys show what is stored already
                await asyncio.sleep(max(wait_s, min(later.retry_after_s or 0.0, _LONGEST_WAIT_S)))
                wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
        rejected = decoded.rejected + storing.rejected
        self._telemetry.socket_lines.labels(self._protocol, "stored").inc(decoded.lines - rejected)
        if rejected:
            self._telemetry.socket_lines.labels(self._protocol, "rejected").inc(rejected)
            self._complaints.note(self._peer, rejected, decoded.why or storing.why or "")
