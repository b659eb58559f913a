"""A port for a protocol that is no HTTP: TLS if the service has a certificate, so many connections, and who sends on them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from diagnose.errors import DiagnoseError
from service.auth import Tokens, Who
from service.errors import Forbidden, Refused, Unauthorised
from service.intake.ingest import Ingest
from service.intake.protocols.identity import Identities
from service.intake.sockets.lines import Complaints, Lines
from service.settings import Settings
from service.telemetry import Telemetry

log = logging.getLogger("diagnose.sockets")

PIECE = 64 << 10
Owner = Callable[[tuple[str, int], tuple[str, int]], bool]
"""whether the other end of a connection is of our user, by (its address, ours)"""


@dataclass(frozen=True, slots=True)
class Parts:
    """What of the service the sockets need."""

    settings: Settings
    ingest: Ingest
    tokens: Tokens
    identities: Identities
    telemetry: Telemetry
    owner: Owner


@dataclass(slots=True)
class Connection:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    lines: Lines
    parts: Parts
    speaks_as: str | None

    async def read(self, *, known: bool) -> bytes:
        """What comes next. A sender that is not known yet has as long as for the head of a request."""
        async with asyncio.timeout(None if known else self.parts.settings.head_s):
            return await self.reader.read(PIECE)

    async def who(self, shown: str | None) -> Who:
        """The sender: the holder of the token that was shown, else of the one that the setting names."""
        tokens, authorization = self.parts.tokens, f"Bearer {shown}" if shown is not None else None
        await tokens.meet(authorization)
        who = tokens.holder_of(self.speaks_as) if shown is None and self.speaks_as else tokens.who(authorization)
        ends = self.writer.get_extra_info("peername"), self.writer.get_extra_info("sockname")
        if who.anybody and not self.parts.owner(ends[0][:2], ends[1][:2]):
            raise Unauthorised("the service has no token yet", remedy="diagnose tokens create NAME --role ingest")
        if "ingest" not in who.may:
            raise Forbidden(f"the token {who.name!r} may not send logs", remedy="use one of the role ingest")
        return who


Talk = Callable[[Connection], Awaitable[None]]


class Listener:
    """One port. ``talk`` reads a connection to its end, and says what is to be said."""

    def __init__(self, name: str, port: int, speaks_as: str | None, talk: Talk, parts: Parts) -> None:
        self._name, self._port, self._speaks_as, self._talk, self._parts = name, port, speaks_as, talk, parts
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._at: Counter[str] = Counter()
        self._complaints = Complaints(name)

    async def start(self) -> None:
        settings = self._parts.settings
        try:
            self._server = await asyncio.start_server(
                self._entered, settings.host, self._port, ssl=tls(settings), limit=PIECE, backlog=512
            )
        except OSError as error:
            raise DiagnoseError(
                f"the port cannot be opened: {error.strerror or error}",
                where=f"{self._name}, {settings.host}:{self._port}",
                remedy="choose another port",
            ) from None
        log.info("%s listens on port %d", self._name, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Take no more connections, and end those that are open. What they have sent and we have read is stored."""
        if self._server is None:
            return
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _entered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer = writer.get_extra_info("peername")
        address = str(peer[0]) if peer else "?"
        parts = self._parts
        settings = parts.settings
        if len(self._open) >= settings.most_strangers or self._at[address] >= settings.most_strangers_address:
            parts.telemetry.connections_refused.labels("too_many").inc()
            writer.transport.abort()
            return
        lines = Lines(
            self._name, address, parts.ingest, parts.tokens, parts.identities, parts.telemetry, self._complaints
        )  # fmt: skip
        self._open.add(task)
        self._at[address] += 1
        parts.telemetry.socket_connections.labels(self._name).inc()
        try:
            await self._talk(Connection(reader, writer, lines, parts, self._speaks_as))
        except Refused as refused:
            self._complaints.note(address, 0, str(refused))
            if isinstance(refused, Unauthorised):
                parts.telemetry.sign_ins_failed.labels("wrong").inc()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except Exception:
            log.exception("%s", self._name)
        finally:
            self._open.discard(task)
            self._at[address] -= 1
            self._at += Counter()  # forgets who has none
            parts.telemetry.socket_connections.labels(self._name).dec()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def tls(settings: Settings) -> ssl.SSLContext | None:
    """With a certificate all ports use it. ``clients_ca``: and ask the other end for one."""
    if settings.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    if settings.clients_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(settings.clients_ca)
    return context
