"""One service: pieces of sources over HTTP, its answers, and when to try again.

Three things can go wrong, and there are three exceptions: the service is away or busy (``Away``: try again later), it wants
other bytes (``Mismatch``), it will never take this (``Refusal``).
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import zstandard

from diagnose import __version__
from diagnose.errors import DiagnoseError

PIECE = 2 << 20
"""bytes of one request, before compression"""
_LARGEST_ANSWER = 1 << 20


@dataclass(frozen=True, slots=True)
class Owner:
    """What the bytes belong to: job, attempt, source and more."""

    job: str
    source: str
    attempt: int | None = None
    rank: int | None = None
    node: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def query(self) -> dict[str, str]:
        said: dict[str, object] = {"source": self.source, "attempt": self.attempt, "rank": self.rank, "node": self.node}
        said |= {f"label.{name}": value for name, value in self.labels.items()}
        return {name: str(value) for name, value in said.items() if value is not None}


class Away(DiagnoseError):
    """The service does not answer, or is busy. Nothing was stored; try again later."""

    def __init__(self, what: str, *, where: str, retry_after_s: float | None = None, remedy: str | None = None) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.retry_after_s = retry_after_s


class Mismatch(DiagnoseError):
    """What was sent does not continue what the service has.

    ``expected`` is the offset that it wants; None if its source begins with other bytes.
    """

    def __init__(self, what: str, *, where: str, expected: int | None) -> None:
        super().__init__(what, where=where)
        self.expected = expected


class Refusal(DiagnoseError):
    """The service will never take this."""


class Destination:
    """A connection that is kept open, and opened again after it broke."""

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = 30.0, ca: str | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DiagnoseError("not the address of a service", where=url, remedy="give it as https://host:8321")
        if parts.username or parts.password:
            raise DiagnoseError(
                "the address has a password in it", where=parts.hostname, remedy="give a token with --token-file"
            )
        try:
            port = parts.port
        except ValueError:
            raise DiagnoseError("not a port", where=url, remedy="give the address as https://host:8321") from None
        self.shown = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._path = parts.path.rstrip("/")
        self._token = token
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._fresh = True
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=ca)
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, port, timeout=timeout_s, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, port, timeout=timeout_s)

    def send(self, owner: Owner, offset: int, data: bytes) -> int:
        """Send one piece. Returns how far the service has received the source; it has all of the piece then."""
        query = urlencode({**owner.query(), "offset": str(offset)}, quote_via=quote)
        headers = {"Content-Type": "text/plain", "Content-Encoding": "zstd"}
        answer = self._post(f"/v1/jobs/{quote(owner.job, safe='')}/logs?{query}", self._compressor.compress(data), headers)
        received = answer.get("next_offset")
        if not isinstance(received, int) or received < offset + len(data):
            raise Away("the service took less than was sent, and did not say why", where=self.shown)
        return received

    def end(self, job: str, exit_code: int, attempt: int | None = None) -> None:
        """Report that the job has ended."""
        body: dict[str, object] = {"exit_code": exit_code}
        if attempt is not None:
            body["attempt"] = attempt
        self._tell(f"/v1/jobs/{quote(job, safe='')}/end", body)

    def wants_stacks(self, job: str, attempt: int | None) -> bool:
        """Whether the job seems to stand still, and where it stands would say why."""
        query = "" if attempt is None else f"?attempt={attempt}"
        try:
            answer = self._get(f"/v1/jobs/{quote(job, safe='')}/stacks{query}")
        except DiagnoseError:  # an older service, or one that is away: the log says that
            return False
        return answer.get("wanted") is True

    def checkpoint(self, job: str, report: Mapping[str, object]) -> None:
        """Report a checkpoint of the job."""
        self._tell(f"/v1/jobs/{quote(job, safe='')}/checkpoints", report)

    def checkpoints(self, job: str) -> list[dict[str, Any]]:
        """The checkpoints that the job reported, and which of them are good."""
        rows = self._get(f"/v1/jobs/{quote(job, safe='')}/checkpoints").get("checkpoints")
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def scores(self, job: str, report: Mapping[str, object]) -> None:
        """Report what an evaluation says of a checkpoint."""
        self._tell(f"/v1/jobs/{quote(job, safe='')}/checkpoints/scores", report)

    def evaluated(self, job: str, report: Mapping[str, object]) -> None:
        """Report what an evaluation of a checkpoint took."""
        self._tell(f"/v1/jobs/{quote(job, safe='')}/checkpoints/evaluations", report)

    def node_check(self, verdict: Mapping[str, object]) -> dict[str, Any]:
        """Report the result of a node check."""
        return self._tell("/v1/nodes/checks", verdict)

    def close(self) -> None:
        self._connection.close()
        self._fresh = True

    def _tell(self, path: str, what: Mapping[str, object]) -> dict[str, Any]:
        return self._post(path, json.dumps(what).encode(), {"Content-Type": "application/json"})

    def _get(self, path: str) -> dict[str, Any]:
        return self._asked("GET", path, b"", {})

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        return self._asked("POST", path, body, headers)

    def _asked(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        headers = {**headers, "User-Agent": f"diagnose/{__version__}"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            response, content = self._exchange(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Away(f"the service does not answer ({error or type(error).__name__})", where=self.shown) from None
        return self._understood(response, content)

    def _exchange(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        while True:
            fresh, self._fresh = self._fresh, False
            try:
                self._connection.request(method, self._path + path, body, headers)
                response = self._connection.getresponse()
                content = response.read(_LARGEST_ANSWER)
                if response.length:  # longer than any of our answers
                    self.close()
                return response, content
            except (ConnectionError, http.client.RemoteDisconnected, http.client.CannotSendRequest):
                # A kept connection may have been closed meanwhile. A new one gets no second try.
                self.close()
                if fresh:
                    raise

    def _understood(self, response: http.client.HTTPResponse, content: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(content) if content else {}
        except ValueError:
            answer = {}
        answer = answer if isinstance(answer, dict) else {}
        if 200 <= response.status < 300:
            return answer
        what = str(answer.get("what") or answer.get("detail") or content[:200].decode("utf-8", "replace") or response.reason)
        where = f"{self.shown} ({response.status})"
        remedy = answer["remedy"] if isinstance(answer.get("remedy"), str) else None
        if response.status in (408, 425, 429) or response.status >= 500:
            raise Away(what, where=where, retry_after_s=_seconds(response.getheader("Retry-After")))
        if response.status in (401, 403):
            # A token can be repaired while we wait; the logs cannot.
            raise Away(
                what, where=where, retry_after_s=30.0, remedy=remedy or "give a token with the role ingest, with --token-file"
            )
        if response.status == 409:
            expected = answer.get("expected_offset")
            raise Mismatch(what, where=where, expected=expected if isinstance(expected, int) else None)
        if 300 <= response.status < 400:
            remedy = f"give the address that it points at: {response.getheader('Location')}"
        raise Refusal(what, where=where, remedy=remedy)


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text) if text else None
    except ValueError:
        return None  # a date: wait as if nothing was said
    return seconds if seconds is not None and 0 <= seconds < 3600 else None
