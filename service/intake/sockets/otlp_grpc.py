"""OTLP over gRPC, by grpcio (the extra ``grpc``): the same messages as over HTTP, read by the same code.

OK means that it is on disk. UNAVAILABLE means that the sender must send again, any other status that it must not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

from diagnose.errors import DiagnoseError
from service.auth import Who
from service.errors import BadBody, Busy, Forbidden, Refused, TooLarge, Unauthorised, Unavailable
from service.intake.protocols import credentials, otlp
from service.intake.protocols.requests import Head
from service.intake.sockets.listener import Parts
from service.intake.storing import Storing

if TYPE_CHECKING:
    import grpc.aio

log = logging.getLogger("diagnose.sockets")

_SERVICE = "opentelemetry.proto.collector.logs.v1.LogsService"
_AT_ONCE = 64
_GRACE_S = 5.0


class OtlpGrpc:
    """One port."""

    def __init__(self, port: int, parts: Parts) -> None:
        self._asked, self._parts = port, parts
        self._server: Any = None
        self._port = 0

    async def start(self) -> None:
        try:
            import grpc
            import grpc.aio
        except ImportError:
            raise DiagnoseError(
                "OTLP over gRPC needs grpcio", where="grpc_port", remedy="pip install 'diagnose-train[grpc]'"
            ) from None
        settings = self._parts.settings
        most = settings.body_limit
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", most),
                ("grpc.max_metadata_size", settings.head_limit),
                ("grpc.server_handshake_timeout_ms", int(settings.head_s * 1000)),
                # Strangers may hold a connection without a call no longer than this. Nor may senders, as gRPC does not tell
                # them apart: they connect again by themselves.
                ("grpc.max_connection_idle_ms", int(settings.head_s * 1000)),
            ],
            maximum_concurrent_rpcs=_AT_ONCE,
        )
        # Without a deserializer: bytes in, bytes out. As a stream of messages, of which there is one: so we know who sends it
        # before it is read, and a stranger's takes no memory.
        handler = grpc.stream_unary_rpc_method_handler(self._export)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Export": handler}),))
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        try:
            self._port = self._bound(f"{host}:{self._asked}", grpc)
        except RuntimeError:
            raise DiagnoseError(
                "the port cannot be opened", where=f"otlp-grpc, {host}:{self._asked}", remedy="choose another port"
            ) from None
        await self._server.start()
        log.info("otlp-grpc listens on port %d", self._port)

    def _bound(self, address: str, grpc: Any) -> int:
        settings = self._parts.settings
        if settings.tls_certificate is None or settings.tls_key is None:
            return int(self._server.add_insecure_port(address))
        pair = settings.tls_key.read_bytes(), settings.tls_certificate.read_bytes()
        clients = settings.clients_ca.read_bytes() if settings.clients_ca is not None else None
        secure = grpc.ssl_server_credentials([pair], root_certificates=clients, require_client_auth=clients is not None)
        return int(self._server.add_secure_port(address, secure))

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(_GRACE_S)

    async def _export(self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        metadata = {
            str(key).lower(): str(value) for key, value in context.invocation_metadata() or () if isinstance(value, str)
        }
        head = Head({}, {**metadata, "content-type": otlp.PROTOBUF})
        try:
            who = await self._who(head, context.peer())
            request = await self._only(messages)
            work = partial(otlp.decode, head, request, self._parts.identities)
            decoded = await asyncio.to_thread(work) if len(request) > 1 << 16 else work()
            storing = Storing(self._parts.ingest, self._parts.tokens, who)
            try:
                await storing.add(decoded.batches)
            finally:
                await storing.settle()
        except Refused as refused:
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

    async def _who(self, head: Head, peer: str) -> Who:
        shown = credentials.bearer(head.headers.get("authorization"))
        await self._parts.tokens.meet(shown)
        who = self._parts.tokens.who(shown)
        if who.anybody and not self._ours(peer):
            raise Unauthorised("the service has no token yet", remedy="diagnose tokens create NAME --role ingest")
        if "ingest" not in who.may:
            raise Forbidden(f"the token {who.name!r} may not send logs", remedy="use one of the role ingest")
        tenant = credentials.tenant(head)
        return who if tenant is None else who.within(tenant)

    def _ours(self, peer: str) -> bool:
        """``peer`` is as gRPC writes it: ipv4:127.0.0.1:40000, ipv6:%5B::1%5D:40000."""
        kind, _, rest = peer.partition(":")
        address, _, port = rest.rpartition(":")
        if kind not in ("ipv4", "ipv6") or not port.isdecimal():
            return False
        address = address.replace("%5B", "").replace("%5D", "").strip("[]")
        return self._parts.owner((address, int(port)), ("::1" if kind == "ipv6" else "127.0.0.1", self._port))


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
