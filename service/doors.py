"""Connections whose sender is not known yet: how much and how long they may take, and how many there may be.

uvicorn parses a request as it comes, without limits for the size of its head or for the time. So a head without an end could
take the event loop and the memory, and silent connections would stay for ever. ``Door`` is uvicorn's protocol with these
limits. A sender that has shown a token, or needs none, is no stranger any more, and has the limits of its rights instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import struct
import time
from collections import Counter
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.auth import ADMIT, OWNER
from service.net.crowd import Crowd
from service.net.handshakes import Certificate, Handshakes
from service.net.owners import owner
from service.settings import Settings
from service.telemetry import Telemetry

log = logging.getLogger("diagnose.doors")

_TICK_S = 0.5
_LEFTOVER_S = 10.0
"""how long a body may go on after it was answered"""
_SCRAP, _MOST_SCRAPS = 1024, 1000
"""how small a piece is a scrap, and how many scraps may still come of a body that was answered already: the rest of an honest
request comes in larger pieces, and in few
"""
_LOG_S = 10.0
_WORDS = {
    "head_too_large": (431, "Request Header Fields Too Large", "the head of the request is too large"),
    "head_too_slow": (408, "Request Timeout", "the head of the request did not come in time"),
    "request_too_slow": (408, "Request Timeout", "the request did not come in time"),
    "body_not_wanted": (400, "Bad Request", "the body went on after it was answered"),
}


class Doors:
    """All connections of one server."""

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        self.head_limit, self.head_s, self.request_s = settings.head_limit, settings.head_s, settings.request_s
        self._telemetry = telemetry
        self._all: set[Door] = set()
        few = settings.most_strangers, settings.most_strangers_address, settings.trusted_proxies
        self._strangers = Crowd(*few, partial(self.refuse, "too_many"))
        self._handshakes: Handshakes | None = None
        if settings.tls_certificate is not None:
            certificate = Certificate(settings.tls_certificate, settings.tls_key)
            self._handshakes = Handshakes(certificate, self._strangers, settings.head_s)
        self._ticking = False
        self._refused: Counter[str] = Counter()
        self._told = 0.0

    def protocol(self, *values: Any, **named: Any) -> asyncio.BaseProtocol:
        """For uvicorn: the protocol of a new connection."""
        door = Door(self, *values, **named)
        return door if self._handshakes is None else self._handshakes.before(door)

    def enter(self, door: Door) -> bool:
        """A new connection. False: there are too many."""
        self._all.add(door)
        if not self._ticking:
            self._ticking = True
            door.loop.call_later(_TICK_S, partial(self._tick, door.loop))
        return self._strangers.enter(door)

    def admit(self, door: Door) -> None:
        """It has shown who it is."""
        self._strangers.leave(door)

    def leave(self, door: Door) -> None:
        self._all.discard(door)
        self.admit(door)

    def refuse(self, why: str) -> None:
        """Count it, and sometimes log it: a flood of connections must not flood the log."""
        self._telemetry.connections_refused.labels(why).inc()
        self._refused[why] += 1
        now = time.monotonic()
        if now - self._told > _LOG_S:
            self._told = now
            log.warning("refused connections: %s", ", ".join(f"{why} {count}" for why, count in sorted(self._refused.items())))
            self._refused.clear()

    def _tick(self, loop: Any) -> None:
        now = time.monotonic()
        for door in list(self._all):
            why = door.overdue(now, stranger=door in self._strangers)
            if why is not None:
                self.refuse(why)
                door.shut(why)
        self._telemetry.strangers.set(len(self._strangers))
        self._ticking = bool(self._all)
        if self._ticking:
            loop.call_later(_TICK_S, partial(self._tick, loop))


class Door(HttpToolsProtocol):
    """One connection."""

    def __init__(self, doors: Doors, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        self._doors = doors
        self.since = self._waiting_since = time.monotonic()
        """when it came; and since when its head, or then its body, is awaited (0: nothing is)"""
        self._in_head = True
        self._head_size = 0
        """bytes since the request began; behind its head, bytes since the last piece of its body: what is written between the
        chunks of a body, and behind them
        """
        self._pieces: list[bytes] = []
        self._scraps = 0
        self._closed = False
        self.address = ""
        self._ours: bool | None = None

    # --- from the server -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self._doors.enter(self):
            self._doors.refuse("too_many")
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._doors.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        if not self._waiting_since:
            self._waiting_since = time.monotonic()
        while data and not self._closed and not self.transport.is_closing():
            room = self._doors.head_limit - self._head_size if self._in_head else len(data)
            if not room:
                self._too_large()
                return
            self._feed(data[:room])
            data = data[room:]

    def _feed(self, data: bytes) -> None:
        """The parser tells of a field, or of a chunk, when it is whole: so what it gets is counted, not what it tells."""
        self._head_size += len(data)
        super().data_received(data)
        self._hand_on()
        if self._closed or self.transport.is_closing():
            return
        if self._head_size > self._doors.head_limit:
            self._too_large()
        elif self._scraps > _MOST_SCRAPS:
            self._doors.refuse("body_not_wanted")
            self.shut("body_not_wanted")

    def _too_large(self) -> None:
        self._doors.refuse("head_too_large")
        self.shut("head_too_large")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Fields behind a body (trailers) are left out: nothing here asks for them."""
        if self._in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """A body may come in chunks of a byte: to add each to those before would copy them all again and again."""
        self._head_size = 0
        if self.answering:
            self._pieces.append(body)
        else:
            self._scraps += len(body) < _SCRAP

    def _hand_on(self) -> None:
        if self._pieces:
            body = b"".join(self._pieces)
            self._pieces.clear()
            super().on_body(body)

    def on_headers_complete(self) -> None:
        self._in_head, self._head_size, self._scraps = False, 0, 0
        self._waiting_since = time.monotonic()
        self.scope[ADMIT] = partial(self._doors.admit, self)  # type: ignore[literal-required]
        self.scope[OWNER] = self.is_ours  # type: ignore[literal-required]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._hand_on()
        self._in_head, self._head_size, self._waiting_since = True, 0, 0.0
        super().on_message_complete()

    def is_ours(self) -> bool:
        """Whether it comes from the user that runs the service, or from root."""
        if self._ours is None:
            server = self.server
            self._ours = (
                self.client is None or server is None or server[1] is None or owner_is_ours(self.client, (server[0], server[1]))
            )
        return self._ours

    # --- from the doors ------------------------------------------------------------------------------------------------------

    @property
    def answering(self) -> bool:
        """Whether a request is here and its answer is not sent yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def overdue(self, now: float, *, stranger: bool) -> str | None:
        """Why it must be closed now, if so."""
        waited = now - self._waiting_since if self._waiting_since else 0.0
        if self._in_head:
            return "head_too_slow" if waited > self._doors.head_s else None
        if self._waiting_since and not self.answering and waited > _LEFTOVER_S:
            return "request_too_slow"
        return "request_too_slow" if stranger and waited > self._doors.request_s else None

    def shut(self, why: str) -> None:
        """Say why, and close."""
        if self._closed:
            return
        self._closed = True
        status, phrase, words = _WORDS[why]
        if not self.answering and self._in_head:
            head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: text/plain\r\ncontent-length: {len(words)}\r\n"
            self.transport.write(f"{head}connection: close\r\n\r\n{words}".encode())
            self.transport.close()
        else:
            self.transport.abort()

    def drop(self) -> None:
        """Close it without an answer: there are too many to answer."""
        self._closed = True
        self.transport.abort()


def owner_is_ours(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Whether the other end of a connection within this machine belongs to our user, or to root, by what Linux says.

    A sender that has closed its end already has no owner any more, and counts as a stranger. Other systems do not say: there
    everybody on the machine is let in.
    """
    with contextlib.suppress(OSError):  # no Linux, or a sandbox that forbids to ask
        found = owner(client, server)
        return found is not None and found.inode != 0 and found.user in (0, os.geteuid())
    return _is_ours_by_the_tables(client, server)


def _is_ours_by_the_tables(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """The same, slowly."""
    told = False
    for name, size in (("tcp", 4), ("tcp6", 16)):
        with contextlib.suppress(OSError), open(f"/proc/net/{name}", encoding="ascii") as table:
            told = True
            ends = _as_told(client, size), _as_told(server, size)
            for line in table:
                field = line.split()
                if (field[1], field[2]) == ends:
                    return field[9] != "0" and int(field[7]) in (0, os.geteuid())
    return not told


def _as_told(end: tuple[str, int], size: int) -> str:
    """An address and port as the kernel's tables have them: words of four bytes in the order of this machine."""
    found = ipaddress.ip_address(end[0].partition("%")[0])
    packed = found.packed
    if len(packed) == 4 and size == 16:
        packed = bytes(10) + b"\xff\xff" + packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{end[1]:04X}"
