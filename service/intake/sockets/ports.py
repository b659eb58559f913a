"""Settings -> the ports that are wanted, each with its protocol."""

from __future__ import annotations

from typing import Protocol

from diagnose.errors import DiagnoseError
from service.intake.sockets import syslog
from service.intake.sockets.listener import Listener, Parts


class Port(Protocol):
    """Something that listens."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def wanted(parts: Parts) -> list[Port]:
    """None are open yet. A package that is missing is an error here, before anything is."""
    settings = parts.settings
    found: list[Port] = []
    if settings.syslog_port is not None:
        found.append(Listener("syslog", settings.syslog_port, settings.syslog_as, syslog.talk, parts))
    if settings.forward_port is not None:
        try:
            from service.intake.sockets import forward
        except ImportError:
            raise DiagnoseError(
                "the forward protocol needs msgpack", where="forward_port", remedy="pip install 'diagnose-train[forward]'"
            ) from None
        found.append(Listener("forward", settings.forward_port, settings.forward_as, forward.talk, parts))
    if settings.grpc_port is not None:
        from service.intake.sockets.otlp_grpc import OtlpGrpc

        found.append(OtlpGrpc(settings.grpc_port, parts))
    return found
