"""Requests to addresses that a person typed in. They only go to networks that the operator allows."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterable
from urllib.parse import urlsplit

from diagnose.errors import DiagnoseError
from service.net.client import Address, Answer, Bounds, Client

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_TIMEOUT_S = 10.0
_ANSWER = 2_000
_CLOSED = ": see --webhooks-to"


def networks(text: str) -> tuple[Network, ...]:
    """``10.0.0.0/8,127.0.0.0/8`` as networks."""
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise DiagnoseError(
            str(error), where="--webhooks-to", remedy="give networks, such as 10.20.0.0/16,127.0.0.0/8"
        ) from None


class Outgoing:
    """Sends all such requests. ``private``: networks that are not public and are allowed."""

    def __init__(self, private: Iterable[Network] = ()) -> None:
        self._private = tuple(private)
        self._encrypted = Client(tls=ssl.create_default_context(), may_reach=self.may_reach, closed=_CLOSED, keeps=True)
        # Unencrypted requests stay in the operator's own networks.
        self._plain = Client(may_reach=self._is_private, closed=_CLOSED, keeps=True)

    def may_reach(self, address: Address) -> bool:
        """Whether a request may go to this address."""
        return self._is_private(address) or _public(address)

    def _is_private(self, address: Address) -> bool:
        return any(address in network for network in self._private if network.version == address.version)

    def check(self, url: str) -> None:
        """Refuse a URL that can never be allowed. Its name is looked up later, when something is sent."""
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
        """The answer, with its first ``most`` bytes. Raises ``Unreachable`` if none came in time."""
        client = self._encrypted if url.startswith("https:") else self._plain
        return await client.ask("POST", url, Bounds(timeout_s, most), headers, body)

    async def close(self) -> None:
        """Close the connections that were kept open."""
        await self._encrypted.close()
        await self._plain.close()


def _public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _public(inner)
        if address.is_site_local:  # abolished long ago, and still used in some private networks
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _literal(host: str) -> Address | None:
    """The address that ``host`` is, also in the odd forms that C libraries read (127.1, 0x7f000001)."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


def shown(url: str) -> str:
    """``url`` without what may be secret: in Slack's, the path is a password."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…" if parts.netloc else "…"
    except ValueError:
        return "…"
