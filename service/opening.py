"""The port while the service gets ready: it is bound before anything large is imported, and answers meanwhile.

Imports take a second or two. To compile rules for another version of the engine takes up to a minute. To read a large journal
again takes longer still. Meanwhile a request is told so, and a push is told when to come back.

Only a small part of the standard library is imported here, so that it is quick.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

from diagnose.errors import DiagnoseError

if TYPE_CHECKING:
    import ssl

    from service.settings import Settings

_LARGEST_HEAD = 16_384
_WAIT_S = 10.0
_MOST = 1024
"""connections at a time"""
_BACKLOG = 2048
_AGAIN_S = 0.5
_HANDED_OVER_S = 5.0
_LINGER_S = 2.0
_NOT_YET: Mapping[str, object] = {
    "database": False,
    "journal": False,
    "scanners": False,
    "raw_logs": None,
    "raw_logs_problem": None,
    "lost_bytes": 0,
    "damaged_segments": 0,
    "rules": False,
    "queued_bytes": 0,
    "live_jobs": 0,
    "model": None,
    "model_problem": None,
}
"""the other fields of ``/readyz``, as the service has them later"""


class Opening:
    """A bound socket, and a thread that answers on it until the service does."""

    def __init__(self, settings: Settings) -> None:
        _check(settings)
        self.socket = _listen(settings)
        self.phase = "loading the program"
        """what the service is doing, for people"""
        self._context = _tls(settings)
        self._connections: set[_Connection] = set()
        self._arriving: set[asyncio.Task[object]] = set()
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._handed_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="opening", daemon=True)

    def __enter__(self) -> Self:
        self.socket.listen(_BACKLOG)
        self._thread.start()
        address = self.socket.getsockname()
        _tell(f"diagnose listens at {address[0]} port {address[1]}, and gets ready")
        return self

    def __exit__(self, *_: object) -> None:
        self.hand_over()
        self._tell_loop(self._drop_all)
        self._thread.join(_HANDED_OVER_S)
        self.socket.close()

    def at(self, phase: str) -> None:
        """The service is now busy with ``phase``."""
        self.phase = phase
        _tell(f"  {phase} …")

    def hand_over(self) -> None:
        """The service accepts from now on. The socket stays open, with all that wait at it.

        Who was accepted before is still answered here: a client that is slow to ask must not lose its connection.
        """
        if self._thread.is_alive():
            self._tell_loop(self._stopped.set)
            self._handed_over.wait(_HANDED_OVER_S)

    def _tell_loop(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # it ended by itself
            self._loop.call_soon_threadsafe(call)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._answer())
        finally:
            self._handed_over.set()
            self._loop.close()

    async def _answer(self) -> None:
        self.socket.setblocking(False)
        self._loop.add_reader(self.socket, self._accept)
        await self._stopped.wait()
        self._loop.remove_reader(self.socket)
        self._handed_over.set()
        while self._arriving or self._connections:
            await asyncio.sleep(0.02)

    def _accept(self) -> None:
        """Take all that wait. Each is known here from the moment on that it is taken, so that none can be forgotten."""
        for _ in range(_BACKLOG):
            try:
                accepted, _address = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # files are short
                self._loop.remove_reader(self.socket)
                self._loop.call_later(_AGAIN_S, self._listen_again)
                return
            accepted.setblocking(False)
            task: asyncio.Task[object] = self._loop.create_task(self._arrive(accepted))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    def _listen_again(self) -> None:
        if not self._stopped.is_set():
            self._loop.add_reader(self.socket, self._accept)

    async def _arrive(self, accepted: socket.socket) -> None:
        wait_s = _WAIT_S if self._context is not None else None
        with contextlib.suppress(OSError, asyncio.TimeoutError):  # a handshake that failed is the client's matter
            await self._loop.connect_accepted_socket(
                lambda: _Connection(self), accepted, ssl=self._context, ssl_handshake_timeout=wait_s
            )

    def _drop_all(self) -> None:
        for task in self._arriving:
            task.cancel()
        for connection in list(self._connections):
            connection.drop()

    def entered(self, connection: _Connection) -> bool:
        self._connections.add(connection)
        return len(self._connections) <= _MOST

    def left(self, connection: _Connection) -> None:
        self._connections.discard(connection)

    def answer_to(self, path: bytes) -> bytes:
        """The answer to a request for ``path``."""
        if path == b"/healthz":
            return _response("200 OK", {"status": "ok"})
        what = f"the service gets ready: {self.phase}"
        if path == b"/readyz":
            return _response("503 Service Unavailable", {"ready": False, "problems": [what], **_NOT_YET})
        remedy = "send it again in a moment; nothing of it was stored"
        return _response("503 Service Unavailable", {"error": "unavailable", "what": what, "remedy": remedy})


class _Connection(asyncio.Protocol):
    """One request, answered once its head is here."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._head = b""
        self._answered = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(_WAIT_S, self.drop)
        if not self._opening.entered(self):
            self.drop()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self._answered:
            return
        self._head += data[:_LARGEST_HEAD]
        if b"\r\n\r\n" in self._head:
            target = self._head.partition(b" ")[2].partition(b" ")[0]
            self._transport.write(self._opening.answer_to(target.partition(b"?")[0]))
            self._close()
        elif len(self._head) > _LARGEST_HEAD:
            self.drop()

    def _close(self) -> None:
        """Close only our side at first: to close while a body is still coming would destroy the answer."""
        assert self._transport is not None
        assert self._timer is not None
        self._answered = True
        if not self._transport.can_write_eof():
            self._transport.close()
            return
        self._transport.write_eof()
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_LINGER_S, self.drop)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._opening.left(self)

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _tell(words: str) -> None:
    """For people who watch. A program reads ``/readyz``, and the service's own log is JSON."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{words}\n")


def _response(status: str, told: Mapping[str, object]) -> bytes:
    body = json.dumps(told).encode()
    again = "" if status.startswith("200") else "retry-after: 2\r\n"
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{again}"
    return head.encode() + b"connection: close\r\n\r\n" + body


def _check(settings: Settings) -> None:
    """Refuse a bad file (policy, executors and so on) before anything is bound. What has no file is not imported."""
    if settings.policy is not None:
        from diagnose.decision.policy_file import over_shipped

        over_shipped(settings.policy)
    if settings.executors is not None:
        from service.acting.executors import configuration
        from service.net.guarded import networks

        configuration.load(settings.executors, networks(settings.webhooks_to))
    if settings.identities is not None:
        from service.intake.protocols import identity

        identity.load(settings.identities)


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_certificate is None:
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except OSError as error:  # OpenSSL also raises this for a file that is none
        raise DiagnoseError(
            f"the certificate cannot be used: {error.strerror or error}",
            where=str(settings.tls_certificate),
            remedy="give a certificate and its private key in PEM, without a password",
        ) from None
    return context


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise DiagnoseError(
            f"cannot listen: {error.strerror}", where=f"{settings.host}:{settings.port}", remedy="choose another --port"
        ) from None
    listening.set_inheritable(True)
    return listening
