"""Runs a service: logging, sockets, TLS, and the end by a signal."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from diagnose.errors import DiagnoseError
from service.app import create_app
from service.doors import Doors
from service.opening import Opening
from service.runtime import Service
from service.scrubber import damage
from service.settings import Settings

_TURN_S = 0.0005
"""how long a thread may keep the interpreter while another wants it

A push gives it away at every system call. With the default it would then wait ten times as long for a busy scanner.
"""
_NEWCOMERS = 10_000, 20, 20
"""when Python looks for garbage: batches have thousands of rows, which are soon gone"""


log = logging.getLogger("diagnose.server")
_COMPLAINTS_S = 10.0


class _Lines(logging.Formatter):
    """Our own log: one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "from": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class _Seldom(logging.Filter):
    """Any stranger can make uvicorn complain, as often as they like: each complaint is written once in a while."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        words = str(record.msg)  # without what was filled in: there are few such texts
        if record.created - self._told.get(words, 0.0) < _COMPLAINTS_S:
            return False
        self._told[words] = record.created
        return True


def serve(settings: Settings, opening: Opening) -> None:
    """Serve until a signal ends it. ``opening`` has the socket, and answers until then."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    for noisy in ("alembic", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_Seldom())
    _many_files()
    sys.setswitchinterval(_TURN_S)
    opening.at("opening the database")
    service = _opened(settings)
    service.phase = opening.at
    app = create_app(service)
    address = opening.socket.getsockname()
    scheme = "https" if settings.tls_certificate else "http"
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        lifespan="on",
        http=Doors(settings, service.telemetry).protocol,  # type: ignore[arg-type]
        ws="none",
        backlog=2048,
    )
    server = _Server(config, f"{scheme}://{host}:{address[1]}", opening, service.events.close)
    service.end = lambda: setattr(server, "should_exit", True)
    # uvicorn raises the signal once more after a clean end, which would make a wanted end look like a crash.
    signal.signal(signal.SIGTERM, lambda *_: None)
    server.run(sockets=[opening.socket])
    if service.lost is not None:
        raise DiagnoseError(service.lost.what, where=str(settings.data), remedy="start it again once the other one has ended")
    if not server.started:
        why = service.scrubber.problem
        raise DiagnoseError(why or "the service could not start", remedy=None if why else "see its messages above")


def _opened(settings: Settings) -> Service:
    """The service. That its database is damaged is one sentence, not a traceback."""
    try:
        return Service(settings)
    except SQLAlchemyError as error:
        if (told := damage(error)) is None:
            raise
        raise DiagnoseError(told) from None


class _Server(uvicorn.Server):
    """Says where it listens once it does."""

    def __init__(self, config: uvicorn.Config, url: str, opening: Opening, leave: Callable[[], None]) -> None:
        super().__init__(config)
        self._url, self._opening, self._leave = url, opening, leave

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        with contextlib.suppress(SystemExit):  # so uvicorn ends where the service could not begin; ``serve`` says why
            await super().startup(sockets)
        self.should_exit = self.should_exit or not self.started
        if self.started:
            await asyncio.to_thread(self._opening.hand_over)
            _settle_in()
            sys.stdout.write(f"diagnose serves on {self._url}\n")
            sys.stdout.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._leave()  # else the end waits for streams that never end, and open pages believe that the service lives
        await super().shutdown(sockets)


def _settle_in() -> None:
    """What is in memory now will stay. To search it for garbage would stop all threads for a tenth of a second, again and
    again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_NEWCOMERS)


def _many_files() -> None:
    """Allow more open files: each client needs one, and so may the kept lines of a large job."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
