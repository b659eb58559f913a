"""Requests to addresses that a person typed in. They go only to networks that the operator allows.

A name is looked up once, and what it stands for is checked and then connected to, so it cannot mean another machine a moment
later. Redirects are not followed, proxies of the environment not used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpcore

from diagnose.errors import DiagnoseError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_TIMEOUT_S = 10.0
_ANSWER = 2_000


class Unreachable(Exception):
    """It was not answered; the sentence says why."""

    def __init__(self, what: str, *, sent: bool = True) -> None:
        super().__init__(what)
        self.sent = sent
        """whether the other side may have had it: False where there was no connection"""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    retry_after_s: float | None
    text: str


def networks(text: str) -> tuple[Network, ...]:
    """``10.0.0.0/8,127.0.0.0/8`` as networks."""
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise DiagnoseError(
            str(error), where="--webhooks-to", remedy="give networks, such as 10.20.0.0/16,127.0.0.0/8"
        ) from None


class Outgoing:
    """Sends all such requests. ``private``: networks that are not public and may be reached all the same."""

    def __init__(self, private: Iterable[Network] = ()) -> None:
        self._private = tuple(private)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(), max_connections=100, network_backend=_Guarded(self.may_reach)
        )
        # What is not encrypted stays in the operator's own networks.
        self._plain = httpcore.AsyncConnectionPool(max_connections=100, network_backend=_Guarded(self._is_private))

    def may_reach(self, address: Address) -> bool:
        """Whether a request may go there."""
        return self._is_private(address) or _public(address)

    def _is_private(self, address: Address) -> bool:
        return any(address in network for network in self._private if network.version == address.version)

    def check(self, url: str) -> None:
        """Refuse what can never be sent to; names are looked up when something is sent."""
        remedy = "give https://HOST/PATH; http and private addresses only where --webhooks-to allows their network"
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise DiagnoseError("not a URL", where=shown(url), remedy=remedy) from None
        bad = len(url) > 2000 or not url.isascii() or not url.isprintable() or " " in url or "\\" in url
        if bad or not host or not url.startswith(("https://", "http://")) or parts.fragment:
            raise DiagnoseError("nothing can be sent to this URL", where=shown(url), remedy=remedy)
        if parts.username is not None or parts.password is not None:
            raise DiagnoseError("the URL has a name or a password in it", where=shown(url), remedy=remedy)
        if parts.scheme == "http" and not self._private:
            raise DiagnoseError("over plain http, others could read what is sent", where=shown(url), remedy=remedy)
        address = _literal(host)
        if address is not None and not self.may_reach(address):
            raise DiagnoseError("the address is not public", where=shown(url), remedy=remedy)

    async def post(
        self, url: str, headers: dict[str, str], body: bytes, timeout_s: float = _TIMEOUT_S, most: int = _ANSWER
    ) -> Answer:
        """What was answered, the first ``most`` bytes of it; ``Unreachable`` if nothing was, in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._post(url, headers, body, timeout_s, most)
        except TimeoutError:
            raise Unreachable(f"no answer within {timeout_s:g} s") from None
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise Unreachable(f"{type(error).__name__}: {error}"[:300], sent=False) from None
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
            raise Unreachable(f"{type(error).__name__}: {error}"[:300]) from None

    async def _post(self, url: str, headers: dict[str, str], body: bytes, timeout_s: float, most: int) -> Answer:
        sent = [(b"host", _host(url)), *((name.encode(), value.encode()) for name, value in headers.items())]
        text = b""
        pool = self._pool if url.startswith("https:") else self._plain
        spans = {"timeout": {"connect": timeout_s * 0.9}}  # sooner than the whole: it is known then that nothing was sent
        async with pool.stream("POST", url, headers=sent, content=body, extensions=spans) as answer:
            async for part in answer.aiter_stream():
                text += part
                if len(text) >= most:
                    break
            said = {name.lower(): value for name, value in answer.headers}
            after = said.get(b"retry-after", b"").decode("latin-1")
            wait = float(after) if after.isascii() and after.isdecimal() and len(after) < 7 else None
            return Answer(answer.status, wait, text[:most].decode("utf-8", "replace"))

    async def close(self) -> None:
        await self._pool.aclose()
        await self._plain.aclose()


class _Guarded(httpcore.AsyncNetworkBackend):
    """Connects to addresses that were checked."""

    def __init__(self, may_reach: Any) -> None:
        self._inner = httpcore.AnyIOBackend()
        self._may_reach = may_reach

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
            raise httpcore.ConnectError(f"{host} is {closed[0]}, where requests may not go: see --webhooks-to")
        failure: Exception = httpcore.ConnectError(f"{host}: it has no address")
        for one in addresses[:4]:
            try:
                return await self._inner.connect_tcp(one, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError("not to sockets of this machine")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _public(inner)
        if address.is_site_local:  # given up long ago, and still in use behind some walls
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _literal(host: str) -> Address | None:
    """The address that ``host`` is, also in the odd ways in which C libraries read one (127.1, 0x7f000001)."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


def _host(url: str) -> bytes:
    return urlsplit(url).netloc.encode()


def shown(url: str) -> str:
    """``url`` without what may be secret in it: the path of Slack's is a password."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…" if parts.netloc else "…"
    except ValueError:
        return "…"
