"""TLS before a protocol: a certificate that is read again when it was renewed, and a bound for those who do not shake hands.

asyncio's own servers tell of a connection when its handshake is done. Until then nobody would count it, and strangers who say
nothing would be as many as they like, for a minute each.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import ssl
import time
from asyncio import sslproto
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from service.net.crowd import Crowd

log = logging.getLogger("diagnose.certificate")

_LOOK_S = 2.0


class Certificate:
    """A certificate and its key, as they are on disk now."""

    def __init__(self, file: Path, key: Path | None, clients: Path | None = None, protocols: Sequence[str] = ()) -> None:
        """``clients``: the authority that signs the certificates of the other ends, which must show one. ``protocols``: what is
        spoken behind it (ALPN).
        """
        self._file, self._key = file, key
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(file, key)
        if clients is not None:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(clients)
        if protocols:
            self._context.set_alpn_protocols(list(protocols))
        self._times, self._looked = self._written(), time.monotonic()

    def context(self) -> ssl.SSLContext:
        """For a new connection. Open connections keep the certificate that they began with."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            self._renew()
        return self._context

    def _renew(self) -> None:
        times = self._written()
        if times == self._times:
            return
        try:
            self._context.load_cert_chain(self._file, self._key)
        except OSError as error:  # half of it may be written; the next look finds the rest
            log.warning("the new certificate cannot be used yet: %s", error.strerror or error)
            return
        self._times = times
        log.info("the certificate was read again")

    def _written(self) -> list[float]:
        with contextlib.suppress(OSError):
            return [os.stat(file).st_mtime for file in (self._file, self._key) if file is not None]
        return []


class Handshakes:
    """Those of one port that are not done."""

    def __init__(self, certificate: Certificate, crowd: Crowd, limit_s: float) -> None:
        self._certificate, self._crowd, self._limit_s = certificate, crowd, math.ceil(limit_s)

    def before(self, protocol: asyncio.Protocol) -> asyncio.BaseProtocol:
        """What a server makes for a new connection, so that ``protocol`` begins when the handshake is done."""
        return _Handshake(self._crowd, protocol, self._certificate.context(), self._limit_s)


class _Handshake(sslproto.SSLProtocol):
    answering = False

    def __init__(self, crowd: Crowd, protocol: asyncio.Protocol, context: ssl.SSLContext, limit_s: int) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        done.add_done_callback(self._is_over)
        super().__init__(loop, protocol, context, done, server_side=True, ssl_handshake_timeout=limit_s)
        self._crowd = crowd
        self.address, self.since = "", time.monotonic()
        self._below: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        self._below = transport
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        enters = self._crowd.enter(self)
        super().connection_made(transport)
        if not enters:
            self.drop()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._crowd.leave(self)
        super().connection_lost(exc)

    def drop(self) -> None:
        if self._below is not None:
            self._below.abort()

    def _is_over(self, done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()  # it is of no interest: strangers fail as they like
        self._crowd.leave(self)
