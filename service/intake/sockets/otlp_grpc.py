"""OTLP over gRPC, by grpcio (the extra ``grpc``): the same messages as over HTTP, read by the same code.

OK means that it is on disk. UNAVAILABLE means that the sender must send again, any other status that it must not.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from diagnose.errors import DiagnoseError
from service.auth import Who
from service.errors import BadBody, Busy, Forbidden, Refused, TooLarge, Unauthorised, Unavailable
from service.intake.protocols import credentials, otlp
from service.intake.protocols.requests import Head
from service.intake.sockets.listener import PIECE, Connection, Listener, Parts
from service.intake.storing import Storing

if TYPE_CHECKING:
    import grpc.aio

_SERVICE = "opentelemetry.proto.collector.logs.v1.LogsService"
_AT_ONCE = 64
_GRACE_S = 5.0
_LONGEST_FOLDER = 90
"""bytes: a socket's whole path has 107 at most"""


class OtlpGrpc:
    """One port.

    gRPC takes connections as they come, does not tell whose they are, and closes none. So it listens on a socket that only we
    can reach, and a ``Listener`` with its limits is in front, which hands on what comes.
    """

    def __init__(self, port: int, parts: Parts) -> None:
        self._parts = parts
        self._listener = Listener("otlp-grpc", port, None, self._talk, parts, protocols=("h2",))
        self._server: Any = None
        self._folder: Path | None = None
        self._numbers = itertools.count(1)
        self._callers: dict[str, _Caller] = {}
        """who calls, by what gRPC calls the other end"""

    async def start(self) -> None:
        try:
            import grpc
            import grpc.aio
        except ImportError:
            raise DiagnoseError(
                "OTLP over gRPC needs grpcio", where="grpc_port", remedy="pip install 'diagnose-train[grpc]'"
            ) from None
        settings = self._parts.settings
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", settings.body_limit),
                ("grpc.max_metadata_size", settings.head_limit),
            ],
            maximum_concurrent_rpcs=_AT_ONCE,
        )
        # Without a deserializer: bytes in, bytes out. As a stream of messages, of which there is one: so we know who sends it
        # before it is read, and a stranger's takes no memory.
        handler = grpc.stream_unary_rpc_method_handler(self._export)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Export": handler}),))
        self._folder = _made_folder(settings.data)
        self._server.add_insecure_port(f"unix:{quote(str(self._folder / 'server'))}")  # gRPC reads it as a URI
        await self._server.start()
        await self._listener.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(_GRACE_S)
        await self._listener.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _talk(self, connection: Connection) -> None:
        """Hand on what is said on a connection, both ways. A stranger must show a token in time, whatever else is said."""
        assert self._folder is not None
        name = self._folder / str(next(self._numbers))
        async with asyncio.timeout(self._parts.settings.head_s) as limit:
            reader, writer = await _to(self._folder / "server", name)
            self._callers[f"unix:{name}"] = _Caller(connection, limit)
            onward = asyncio.create_task(_copy(connection.reader, writer))
            try:
                await _copy(reader, connection.writer)
            finally:
                del self._callers[f"unix:{name}"]
                onward.cancel()
                writer.transport.abort()
                with contextlib.suppress(OSError):
                    name.unlink()

    async def _export(self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        metadata = {
            str(key).lower(): str(value) for key, value in context.invocation_metadata() or () if isinstance(value, str)
        }
        head = Head({}, {**metadata, "content-type": otlp.PROTOBUF})
        caller = self._callers.get(unquote(context.peer()))
        if caller is None:
            await context.abort(_status(Unavailable("the connection has ended", remedy="connect again")))
            raise AssertionError("abort has raised")
        try:
            who = await caller.who(head)
            request = await self._only(messages)
            work = partial(otlp.decode, head, request, self._parts.identities)
            decoded = await asyncio.to_thread(work) if len(request) > 1 << 16 else work()
            storing = Storing(self._parts.ingest, self._parts.tokens, who)
            try:
                await storing.add(decoded.batches)
            finally:
                await storing.settle()
        except Refused as refused:
            caller.connection.complain(refused)
            await context.abort(_status(refused), str(refused))
        if storing.rejected:
            decoded.reject(storing.why or "", storing.rejected)
        count = self._parts.telemetry.socket_lines
        count.labels("otlp-grpc", "stored").inc(decoded.lines - decoded.rejected)
        if decoded.rejected:
            count.labels("otlp-grpc", "rejected").inc(decoded.rejected)
        return otlp.answer(otlp.PROTOBUF, decoded)

    async def _only(self, messages: AsyncIterator[bytes]) -> bytes:
        """The one message of a call. It must come in time: there may be few calls at once, and one that waits counts."""
        found: bytes | None = None
        try:
            async with asyncio.timeout(self._parts.settings.request_s):
                async for message in messages:
                    if found is not None:
                        raise BadBody("a call has one message", remedy="send each message with a call of its own")
                    found = message
        except TimeoutError:
            raise Unavailable("the message did not come in time", remedy="send it again") from None
        if found is None:
            raise BadBody("the call has no message")
        return found


class _Caller:
    """The other end of a connection."""

    def __init__(self, connection: Connection, limit: asyncio.Timeout) -> None:
        self.connection, self._limit = connection, limit

    async def who(self, head: Head) -> Who:
        """Each call shows its token. With the first that is good the connection is no stranger's any more."""
        scheme, _, shown = (credentials.bearer(head.headers.get("authorization")) or "").partition(" ")
        who = await self.connection.who(shown.strip() if scheme.lower() == "bearer" else None)
        with contextlib.suppress(RuntimeError):  # the connection may have ended meanwhile
            self._limit.reschedule(None)
        tenant = credentials.tenant(head)
        return who if tenant is None else who.within(tenant)


def _made_folder(data: Path) -> Path:
    """Nobody else may look into it. The data folder is ours alone, so what is there was left by a service that was killed.
    Where its path is too long for a socket, a temporary folder is.
    """
    made = data / "grpc"
    try:
        if len(os.fsencode(made)) > _LONGEST_FOLDER:
            made = Path(tempfile.mkdtemp(prefix="diagnose-grpc-"))
        else:
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir(mode=0o700)
    except OSError as error:
        raise DiagnoseError(
            f"OTLP over gRPC needs a folder of its own for its sockets: {error.strerror}",
            where=str(made),
            remedy="move away what is there, or give another folder with --data",
        ) from error
    if len(os.fsencode(made)) > _LONGEST_FOLDER:
        made.rmdir()
        raise DiagnoseError(
            "the path is too long for a socket, which OTLP over gRPC needs",
            where=str(made),
            remedy=f"give a folder whose path has at most {_LONGEST_FOLDER - len('/grpc')} bytes with --data",
        )
    return made


async def _to(server: Path, name: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to ``server`` that it calls ``name``."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.bind(str(name))
        await asyncio.get_running_loop().sock_connect(made, str(server))
        return await asyncio.open_unix_connection(sock=made, limit=PIECE)
    except BaseException:
        made.close()
        raise


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()
    writer.close()


def _status(refused: Refused) -> Any:
    import grpc

    match refused:
        case Busy() | Unavailable():
            return grpc.StatusCode.UNAVAILABLE
        case Unauthorised():
            return grpc.StatusCode.UNAUTHENTICATED
        case Forbidden():
            return grpc.StatusCode.PERMISSION_DENIED
        case TooLarge():
            return grpc.StatusCode.OUT_OF_RANGE
    return grpc.StatusCode.INVALID_ARGUMENT
