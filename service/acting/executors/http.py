"""JSON over HTTP to the programs that carry out our orders: bounded, without redirects, and exact about what may have been
done.

A request that was never sent was not carried out. One that was sent and not answered may have been: ``unknown``.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from diagnose.errors import DiagnoseError
from service.acting.executors.executor import Problem
from service.net.client import Answer, Bounds, Client, Unreachable
from service.net.guarded import shown


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
            _ = parts.port
        except ValueError:
            raise DiagnoseError("not a port", where=shown(url), remedy="give it as https://host:port") from None
        self.shown = f"{parts.scheme}://{parts.netloc}"
        self._url = self.shown + parts.path.rstrip("/")
        # A server that sends single bytes is never silent for long, so the whole answer has a limit too.
        self._bounds = Bounds(timeout_s * 2, largest, timeout_s)
        tls = None
        if parts.scheme == "https":
            try:
                tls = ssl.create_default_context(cafile=str(ca) if ca else None)
                if certificate:
                    tls.load_cert_chain(str(certificate), str(key) if key else None)
            except (OSError, ssl.SSLError) as error:
                raise DiagnoseError(
                    f"the certificates cannot be read: {error}", where=self.shown, remedy="see ca, certificate and key"
                ) from None
        # If the other side closed a kept connection just then, "failed" would become "unknown". So each request has its own.
        self._client = Client(tls=tls)

    async def ask(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """The answer. Raises Problem if there is no whole one in time."""
        try:
            answer = await self._client.ask(method, self._url + path, self._bounds, headers, body)
        except Unreachable as error:
            raise self._unanswered(method, str(error), error.sent) from error
        if answer.cut:
            raise self._unanswered(method, f"its answer is longer than {self._bounds.most:,} bytes")
        if 300 <= answer.status < 400:
            raise self._unanswered(method, f"it points elsewhere ({answer.status}): give that address")
        return answer

    def _unanswered(self, method: str, what: str, sent: bool = True) -> Problem:
        maybe = sent and method != "GET"
        return Problem(f"{self.shown} does not answer: {what[:200]}", state="unknown" if maybe else "failed", may_retry=True)


def secret(path: Path | None, environment: str | None, what: str, read: Mapping[str, str]) -> str:
    """A credential from a file or from the environment. It is read at each use, because it may be renewed."""
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
