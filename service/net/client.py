"""How the service sends requests over HTTP: with limits for time and size, and certain of whether anything was sent.

A name is looked up once. The resulting address is checked and then connected to, so the name cannot mean another machine a
moment later. Redirects are not followed, and proxies of the environment are not used. A request runs on the event loop: if it
is given up before it is sent, it is never sent.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpcore

from diagnose import __version__

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_LATER = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_WITH_A_BODY = ("POST", "PUT", "PATCH")
_MOST_ADDRESSES = 4
_SENDING = "http11.send_request_headers.started"
_BROKEN = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError)


class Unreachable(Exception):
    """There was no whole answer. The sentence says why."""

    def __init__(self, what: str, *, sent: bool) -> None:
        super().__init__(what)
        self.sent = sent
        """the other side may have received the request; False if it certainly has not"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one request may cost."""

    whole_s: float
    most: int
    """bytes of the answer that are read"""
    silence_s: float | None = None
    """the longest wait for a connection, and between two pieces of the answer"""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a server."""

    status: int
    body: bytes
    retry_after_s: float | None = None
    """when the server wants to be asked again"""
    cut: bool = False
    """the answer was longer than ``most``"""

    def json(self) -> Any:
        """The body as JSON; None if it is not JSON."""
        try:
            return json.loads(self.body.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError):
            return None

    @property
    def text(self) -> str:
        """The body as one line, for people."""
        return " ".join(self.body[:2000].decode("utf-8", "replace").split())[:200]

    @property
    def may_go_better(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in _LATER


def anywhere(_: Address) -> bool:
    """Allows all addresses: for those that the operator has configured."""
    return True


class Client:
    """Asks servers. ``may_reach`` allows addresses. ``closed`` says what to do about one that is not allowed."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        may_reach: Callable[[Address], bool] = anywhere,
        closed: str = "",
        keeps: bool = False,
    ) -> None:
        """``tls``: needed for https. ``keeps``: keep connections open for the next request. The other side may close such a
        connection just when it is used.
        """
        self._tls = tls
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=100,
            max_keepalive_connections=None if keeps else 0,
            network_backend=_Checked(may_reach, closed),
        )

    async def ask(
        self, method: str, url: str, bounds: Bounds, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """The answer. Raises ``Unreachable`` if no whole answer came in time."""
        sending = _Sending()
        try:
            async with asyncio.timeout(bounds.whole_s):
                return await self._exchange(self._request(method, url, headers or {}, body), body, bounds, sending)
        except TimeoutError:
            raise Unreachable(f"no answer within {bounds.whole_s:g} s", sent=sending.begun) from None
        except _BROKEN as error:
            raise Unreachable(_why(error, bounds)[:300], sent=sending.begun) from error

    def _request(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> _Request:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or (parts.scheme == "https" and self._tls is None):
            raise ValueError("not an address that this client sends to")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        said = {"host": parts.netloc, "user-agent": f"diagnose/{__version__}"}
        if body is not None or method in _WITH_A_BODY:
            said["content-length"] = str(len(body or b""))
        said |= {name.lower(): value for name, value in headers.items()}
        return _Request(
            method.encode(),
            httpcore.URL(scheme=parts.scheme, host=parts.hostname, port=parts.port, target=target),
            [(name.encode(), value.encode("latin-1")) for name, value in said.items()],
        )

    async def _exchange(self, request: _Request, body: bytes | None, bounds: Bounds, sending: _Sending) -> Answer:
        spans = dict.fromkeys(("connect", "read", "write", "pool"), bounds.silence_s)
        more = {"timeout": spans, "trace": sending}
        async with self._pool.stream(
            request.method, request.url, headers=request.headers, content=body, extensions=more
        ) as answer:
            content = bytearray()
            async for part in answer.aiter_stream():
                content += part
                if len(content) > bounds.most:
                    break
            said = {name.lower(): value for name, value in answer.headers}
            wait = _seconds(said.get(b"retry-after", b""))
            return Answer(answer.status, bytes(content[: bounds.most]), wait, len(content) > bounds.most)

    async def close(self) -> None:
        """Close the connections that were kept open."""
        await self._pool.aclose()


@dataclass(frozen=True, slots=True)
class _Request:
    method: bytes
    url: httpcore.URL
    headers: list[tuple[bytes, bytes]]


class _Sending:
    """Notes when the first byte of a request is about to go out."""

    def __init__(self) -> None:
        self.begun = False

    async def __call__(self, event: str, _: Any) -> None:
        self.begun = self.begun or event == _SENDING


class _Checked(httpcore.AsyncNetworkBackend):
    """Connects only to addresses that were checked."""

    def __init__(self, may_reach: Callable[[Address], bool], closed: str) -> None:
        self._inner = httpcore.AnyIOBackend()
        self._may_reach, self._closed = may_reach, closed

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None, socket_options: Any = None
    ) -> httpcore.AsyncNetworkStream:  # fmt: skip
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host}: {getattr(error, 'strerror', None) or 'not a name'}") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        closed = [one for one in addresses if not self._may_reach(ipaddress.ip_address(one.partition("%")[0]))]
        if closed:
            raise httpcore.ConnectError(f"{host} is {closed[0]}, where requests may not go{self._closed}")
        failure: Exception = httpcore.ConnectError(f"{host}: it has no address")
        for one in addresses[:_MOST_ADDRESSES]:
            try:
                return await self._inner.connect_tcp(one, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError("not to sockets of this machine")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _why(error: BaseException, bounds: Bounds) -> str:
    """What broke, in the system's own words if there are any."""
    if isinstance(error, httpcore.TimeoutException):
        return f"no answer within {bounds.silence_s or bounds.whole_s:g} s"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) and cause.errno is not None and cause.errno > 0:
            return os.strerror(cause.errno)
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _seconds(text: bytes) -> float | None:
    """The seconds in a header. A date is ignored: callers have their own rhythm."""
    return float(text) if text.isdigit() and len(text) < 7 else None
