"""Checks every request before anything else: its ``Host`` and its origin. Adds headers to the answer, and counts it.

- ``Host`` must be a name of ours. Else a foreign page could make its own name lead to this machine, and use a service that
  needs no token here, or the viewer's own address.
- ``Origin`` and ``Sec-Fetch-Site``: pages of other sites may not change anything. A browser sends a post of plain text anywhere
  without asking, and only these headers show it.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import time
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.settings import LOOPBACK, Settings
from service.telemetry import Telemetry

log = logging.getLogger("diagnose.edge")

_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; connect-src 'self'; font-src 'self'; "
        b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"cache-control", b"no-store"),
]
_ONLY_HTTPS = (b"strict-transport-security", b"max-age=31536000")
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})
_PROBES = frozenset({"/healthz", "/readyz"})
_QUIET_S = 1.0


class Edge:
    """The outermost part of the application."""

    def __init__(self, app: ASGIApp, settings: Settings, telemetry: Telemetry) -> None:
        self._app, self._telemetry = app, telemetry
        self._hosts = Hosts(settings)
        self._told = 0.0
        self._untold = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 500
        more = [*_HEADERS, _ONLY_HTTPS] if scope["scheme"] == "https" else _HEADERS

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *((name, value) for name, value in more if name not in given)]
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await _answer(refusal, send_with_headers)
            else:
                await self._app(scope, receive, send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._telemetry.requests.labels(route, status).inc()
            if route != "/v1/events":
                self._telemetry.request_s.labels(route).observe(time.monotonic() - began)
            if self._telemetry.traces.on:
                self._trace(scope, route, status, began)
            if status == 401:
                self._note_sign_in(scope)

    def _trace(self, scope: Scope, route: str, status: int, began: float) -> None:
        now = time.time()
        parent = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"traceparent"), None)
        self._telemetry.traces.add(
            f"{scope['method']} {route}",
            now - (time.monotonic() - began),
            now,
            kind="server",
            parent=parent,
            failed=str(status) if status >= 500 else None,
            route=route,
            status=status,
            job=scope.get("path_params", {}).get("job"),
        )

    def _refusal(self, scope: Scope) -> tuple[int, str, str, str] | None:
        """(status, error, what, remedy) if the request is not for us, or comes from another site."""
        host, origin, site = "", None, None
        for name, value in scope["headers"]:
            if name == b"host":
                host = value.decode("latin-1")
            elif name == b"origin":
                origin = value.decode("latin-1")
            elif name == b"sec-fetch-site":
                site = value.decode("latin-1")
        if not self._hosts.ours(host) and scope["path"] not in _PROBES:
            shown = host[:80] if host.isprintable() else "this"
            remedy = "use its address, or have the service allow the name: diagnose serve --allowed-hosts NAME"
            return 421, "wrong_host", f"this service does not go by the name {shown!r}", remedy
        if scope["method"] in _HARMLESS:
            return None
        if site == "same-origin":  # the browser itself says so, and only over https or to this machine
            return None
        if site in ("cross-site", "same-site") or (origin is not None and not self._is_own(origin, host)):
            return 403, "forbidden", "this was sent by a page of another site", "use the service's own pages, or a program"
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return bool(parts.netloc) and (parts.netloc.lower() == host.lower() or self._hosts.named(parts.netloc))

    def _note_sign_in(self, scope: Scope) -> None:
        """Count a failed sign-in and log where it came from; in a flood, once per second."""
        shown = any(name in (b"authorization", b"cookie") for name, _ in scope["headers"]) or scope["method"] == "POST"
        self._telemetry.sign_ins_failed.labels("wrong" if shown else "none").inc()
        now = time.monotonic()
        if now - self._told < _QUIET_S:
            self._untold += 1
            return
        client = scope.get("client")
        more = f", and {self._untold} more before" if self._untold else ""
        log.warning(
            "refused a sign-in from %s: %s %s%s", client[0] if client else "?", scope["method"], scope["path"][:200], more
        )
        self._told, self._untold = now, 0


class Hosts:
    """The names and addresses of the service."""

    def __init__(self, settings: Settings) -> None:
        named = [one.strip().lower().strip("[]") for one in settings.allowed_hosts.split(",") if one.strip()]
        self._any = "*" in named
        self._named = {one for one in named if not one.startswith(".")}
        self._endings = tuple(one for one in named if one.startswith("."))
        self._known = {*self._named, *LOOPBACK, settings.host.lower()}
        self._addresses = not settings.on_loopback
        """any IP address is accepted: nobody can make a page whose name is an address lead here"""
        if self._addresses:
            self._known |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def ours(self, host: str) -> bool:
        """Whether a ``Host`` header names this service. A request of HTTP/1.0 may have none."""
        if self._any or not host:
            return True
        name = _name(host)
        return name in self._known or self._matches(name) or (self._addresses and _is_address(name))

    def named(self, host: str) -> bool:
        """Whether the operator gave this name."""
        name = _name(host)
        return name in self._named or self._matches(name)

    def _matches(self, name: str) -> bool:
        return bool(self._endings) and name.endswith(self._endings)


def _name(host: str) -> str:
    """``host`` without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _answer(refusal: tuple[int, str, str, str], send: Send) -> None:
    status, error, what, remedy = refusal
    body = json.dumps({"error": error, "what": what, "remedy": remedy}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
