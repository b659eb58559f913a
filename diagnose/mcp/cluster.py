"""A service's API, read with the token of whoever asks. What a token may see, the service decides."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpcore

from diagnose import __version__
from diagnose.errors import DiagnoseError

_LARGEST = 32 << 20
_TIMES_S = {"connect": 5.0, "read": 60.0, "write": 10.0, "pool": 30.0}


class Refused(DiagnoseError):
    """The service said no, or did not answer."""

    def __init__(self, status: int, what: str, *, where: str, remedy: str | None = None) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.status = status
        """503 also where nothing answered"""


class Cluster:
    """The service at ``url``."""

    def __init__(self, url: str, token: str | None = None, *, ca: str | None = None) -> None:
        """``token``: of whoever asks without one of their own."""
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise DiagnoseError("not the address of a service", where=url, remedy="give it as https://host:8321")
        self._token = token
        context = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
        self._pool = httpcore.ConnectionPool(ssl_context=context, max_connections=16, keepalive_expiry=30.0, retries=1)

    def get(self, *path: str, token: str | None = None, query: Mapping[str, object] | None = None) -> dict[str, Any]:
        """The answer to GET /v1/<path>. ``token`` is what the asker sent; "" sends none."""
        told = {name: str(value) for name, value in (query or {}).items() if value not in (None, "")}
        asked = "/".join(quote(part, safe="") for part in path)
        address = f"{self.url}/v1/{asked}{'?' if told else ''}{urlencode(told, quote_via=quote)}"
        headers: dict[bytes | str, bytes | str] = {"User-Agent": f"diagnose-mcp/{__version__}", "Accept": "application/json"}
        given = self._token if token is None else token
        if given:
            headers["Authorization"] = f"Bearer {given}"
        try:
            with self._pool.stream("GET", address, headers=headers, extensions={"timeout": _TIMES_S}) as response:
                body = b""
                for piece in response.iter_stream():
                    body += piece
                    if len(body) > _LARGEST:
                        raise Refused(502, "the answer is too large", where=self.url, remedy="ask for less")
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
            what = f"the service does not answer ({error or type(error).__name__})"
            raise Refused(503, what, where=self.url, remedy="ask again in a moment") from None
        return self._understood(response.status, body)

    def _understood(self, status: int, body: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if status == 200 and isinstance(answer, dict):
            return answer
        told = answer if isinstance(answer, dict) else {}
        what = told.get("what") or f"the service answered {status}"
        raise Refused(status, str(what), where=self.url, remedy=told.get("remedy"))
