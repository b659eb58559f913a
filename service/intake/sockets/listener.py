"""A port for a protocol that is no HTTP: TLS if the service has a certificate, so many connections, and who sends on them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from diagnose.errors import DiagnoseError
from service.auth import Tokens, Who
from service.errors import Forbidden, Refused, Unauthorised
from service.intake.ingest import Ingest
from service.intake.protocols.identity import Identities
from service.intake.sockets.lines import Complaints, Lines
from service.net.crowd import Crowd, Proxies, place_of
from service.net.handshakes import Certificate, Handshakes
from service.settings import Settings
from service.telemetry import Telemetry

log = logging.getLogger("diagnose.sockets")

PIECE = 64 << 10
_FRESH_S = 2.0
"""a younger connection is not closed in favour of another one: its token is on the way"""
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


@dataclass(slots=True, eq=False)
class Connection:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    lines: Lines
    complaints: Complaints
    parts: Parts
    speaks_as: str | None
    address: str
    place: str
    """which addresses count together"""
    task: asyncio.Task[None]
    since: float = field(default_factory=time.monotonic)
    known: bool = False
    """whether somebody was let in"""
    admitted: bool = False
    """whether by a token that the connection has shown"""
    silent_since: float | None = None
    """since when we wait for what comes next; None: something came, and is worked on"""

    async def read(self) -> bytes:
        """What comes next. A sender has as long to become known as a request for its head, however it uses that time."""
        self.silent_since = time.monotonic()
        left_s = self.since + self.parts.settings.head_s - self.silent_since
        async with asyncio.timeout(None if self.known else max(left_s, 0.0)):
            data = await self.reader.read(PIECE)
        self.silent_since = None
        return data

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
        self.known, self.admitted = True, self.admitted or shown is not None
        return who

    def complain(self, refused: Refused) -> None:
        """Say now and then why nothing is taken, and count who came with a wrong token, or with none."""
        self.complaints.note(self.address, 0, str(refused))
        if isinstance(refused, Unauthorised):
            self.parts.telemetry.sign_ins_failed.labels("wrong").inc()


Talk = Callable[[Connection], Awaitable[None]]


class Listener:
    """One port. ``talk`` reads a connection to its end, and says what is to be said."""

    def __init__(
        self, name: str, port: int, speaks_as: str | None, talk: Talk, parts: Parts, *, protocols: Sequence[str] = ()
    ) -> None:
        """``protocols``: what is spoken behind TLS, for clients that ask."""
        self._name, self._port, self._speaks_as, self._talk, self._parts = name, port, speaks_as, talk, parts
        self._server: asyncio.Server | None = None
        self._open: dict[Connection, None] = {}
        """the oldest first"""
        self._complaints = Complaints(name)
        self._handshakes = _handshakes(parts, protocols)
        self._proxies = Proxies(parts.settings.trusted_proxies)

    async def start(self) -> None:
        settings = self._parts.settings
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._protocol, settings.host, self._port, backlog=512)
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
        tasks = [one.task for one in self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _protocol(self) -> asyncio.BaseProtocol:
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(PIECE, loop), self._entered, loop)
        return protocol if self._handshakes is None else self._handshakes.before(protocol)

    async def _entered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # senders may vanish
        peer = writer.get_extra_info("peername")
        address = str(peer[0]) if peer else "?"
        parts = self._parts
        if not self._make_room(address):
            parts.telemetry.connections_refused.labels("too_many").inc()
            writer.transport.abort()
            return
        lines = Lines(
            self._name, address, parts.ingest, parts.tokens, parts.identities, parts.telemetry, self._complaints
        )  # fmt: skip
        connection = Connection(
            reader, writer, lines, self._complaints, parts, self._speaks_as, address, place_of(address), task
        )
        self._open[connection] = None
        parts.telemetry.socket_connections.labels(self._name).inc()
        try:
            await self._talk(connection)
        except Refused as refused:
            connection.complain(refused)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except Exception:
            log.exception("%s", self._name)
        finally:
            self._open.pop(connection, None)
            parts.telemetry.socket_connections.labels(self._name).dec()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _make_room(self, address: str) -> bool:
        """For a newcomer, in place of one that has shown no token. False: there is none that may be closed."""
        settings = self._parts.settings
        crowd = [one for one in self._open if not one.admitted]
        place = place_of(address)
        here = [one for one in crowd if one.place == place]
        if address not in self._proxies and len(here) >= settings.most_strangers_address:
            crowd = here
        elif len(crowd) < settings.most_strangers:
            return True
        least = _least(crowd, settings.head_s)
        if least is None:
            return False
        self._parts.telemetry.connections_refused.labels("too_many").inc()
        del self._open[least]
        least.task.cancel()
        return True


def _least(crowd: list[Connection], silent_s: float) -> Connection | None:
    """The oldest of those that have had time to say who they are. If there is none, the one that has been silent longest, and
    for ``silent_s``: where a setting names in whose name they speak, strangers are let in at once.
    """
    now = time.monotonic()
    oldest = next((one for one in crowd if not one.known), None)
    if oldest is not None and now - oldest.since >= _FRESH_S:
        return oldest
    silent = [(one.silent_since, one) for one in crowd if one.known and one.silent_since is not None]
    since, one = min(silent, key=lambda pair: pair[0], default=(now, None))
    return one if now - since >= silent_s else None


def _handshakes(parts: Parts, protocols: Sequence[str]) -> Handshakes | None:
    """With a certificate all ports use it. ``clients_ca``: and ask the other end for one."""
    settings = parts.settings
    if settings.tls_certificate is None:
        return None
    few = settings.most_strangers, settings.most_strangers_address, settings.trusted_proxies
    crowd = Crowd(*few, parts.telemetry.connections_refused.labels("too_many").inc)
    certificate = Certificate(settings.tls_certificate, settings.tls_key, settings.clients_ca, protocols)
    return Handshakes(certificate, crowd, settings.head_s)
