"""A real receiver of webhooks for tests: it keeps what comes, and answers as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """Listens on loopback until ``close``. ``answers`` is asked for each request: (status, headers)."""

    answers: Callable[[int], tuple[int, dict[str, str]]] = lambda number: (204, {})
    slow_s: float = 0.0
    port: int = 0
    got: list[tuple[float, dict[str, str], bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append((time.time(), {name.lower(): value for name, value in self.headers.items()}, body))
                time.sleep(receiver.slow_s)
                status, headers = receiver.answers(len(receiver.got))
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("content-length", "0")
                    self.end_headers()
                except OSError:
                    pass

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/secret-path"

    def wait(self, count: int, within_s: float = 20.0) -> list[tuple[float, dict[str, str], bytes]]:
        """Until so many came."""
        deadline = time.monotonic() + within_s
        while len(self.got) < count:
            assert time.monotonic() < deadline, f"{len(self.got)} of {count} came: {[body for _, _, body in self.got]}"
            time.sleep(0.05)
        return self.got

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
