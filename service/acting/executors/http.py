"""JSON over HTTP to what carries out our orders: bounded, no redirects, and honest about what may have been done.

A request that was never sent was not done. One that was sent and not answered may have been: ``unknown``.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from diagnose import __version__
from diagnose.errors import DiagnoseError
from service.acting.executors.executor import Problem
from service.net.guarded import shown

_LATER = frozenset({408, 409, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a server."""

    status: int
    body: bytes
    retry_after_s: float | None = None
    """when it wants to be asked again"""

    def json(self) -> Any:
        """None if it is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def text(self) -> str:
        """For people: one line."""
        return " ".join(self.body[:2000].decode("utf-8", "replace").split())[:200]

    @property
    def may_go_better(self) -> bool:
        return self.status in _LATER


class Server:
    """Where requests go."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30.0,
        ca: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        largest: int = 64 << 20,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
            raise DiagnoseError(
                "not an address", where=shown(url), remedy="give it as https://host:port/path, without a password"
            )
        try:
            self._host, self._port = parts.hostname, parts.port
        except ValueError:
            raise DiagnoseError("not a port", where=shown(url), remedy="give it as https://host:port") from None
        self.shown = f"{parts.scheme}://{parts.netloc}"
        self._path = parts.path.rstrip("/")
        self._timeout_s, self._largest = timeout_s, largest
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=str(ca) if ca else None)
                if certificate:
                    self._tls.load_cert_chain(str(certificate), str(key) if key else None)
            except (OSError, ssl.SSLError) as error:
                raise DiagnoseError(
                    f"the certificates cannot be read: {error}", where=self.shown, remedy="see ca, certificate and key"
                ) from None

    async def ask(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """Raises Problem if there is no whole answer in time."""
        call = _Call()
        try:
            async with asyncio.timeout(self._timeout_s * 2):  # a server that drips bytes outlasts a socket's time-out
                return await asyncio.to_thread(self._exchange, method, path, dict(headers or {}), body, call)
        except (TimeoutError, asyncio.CancelledError) as error:
            call.give_up()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise self._unanswered(method, call, f"no answer in {self._timeout_s:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unanswered(method, call, str(error) or type(error).__name__) from error

    def _unanswered(self, method: str, call: _Call, what: str) -> Problem:
        maybe = call.sent and method != "GET"
        return Problem(f"{self.shown} does not answer: {what[:200]}", state="unknown" if maybe else "failed", may_retry=True)

    def _exchange(self, method: str, path: str, headers: dict[str, str], body: bytes | None, call: _Call) -> Answer:
        if self._tls:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_s, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.connect()
            call.begin(connection.sock)
            connection.request(method, self._path + path, body, {"User-Agent": f"diagnose/{__version__}", **headers})
            response = connection.getresponse()
            content = response.read(self._largest + 1)
        finally:
            connection.close()
        if len(content) > self._largest:
            raise http.client.HTTPException(f"its answer is longer than {self._largest:,} bytes")
        if 300 <= response.status < 400:
            raise http.client.HTTPException(f"it points elsewhere ({response.status}): give that address")
        return Answer(response.status, content, _seconds(response.getheader("Retry-After")))


class _Call:
    """One request: given up before it was sent, it is not sent any more, however late its thread comes to it."""

    def __init__(self) -> None:
        self.sent = False
        self._given_up = False
        self._socket: socket.socket | None = None
        self._deciding = threading.Lock()

    def begin(self, connected: socket.socket) -> None:
        """From here on the other side may have it."""
        with self._deciding:
            if self._given_up:
                raise OSError("given up before it was sent")
            self.sent, self._socket = True, connected

    def give_up(self) -> None:
        with self._deciding:
            self._given_up = True
            if self._socket is not None:  # so that the thread ends too
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)


def _seconds(text: str | None) -> float | None:
    """A date instead of seconds is as good as none: whoever waits has a rhythm of their own."""
    return float(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 6 else None


def secret(path: Path | None, environment: str | None, what: str, read: Mapping[str, str]) -> str:
    """A credential from a file or from the environment. It is read again at each use, because it may be renewed."""
    if path is not None:
        try:
            text = path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Problem(
                f"{what} cannot be read from {path}: {getattr(error, 'strerror', None) or error}", may_retry=True
            ) from None
    elif environment is not None:
        text = read.get(environment, "").strip()
        if not text:
            raise Problem(f"{environment} is not set: it should hold {what}")
    else:
        raise Problem(f"{what} is not configured")
    if not text or not text.isprintable() or " " in text:
        raise Problem(f"{what} in {path or environment} is not one printable word")
    return text
