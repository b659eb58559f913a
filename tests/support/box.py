"""A receiver that keeps the contract of ``POST /v1/jobs/{job}/logs`` over a real socket, and can be told to misbehave."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import zstandard


class Box:
    """Received bytes by (job, source); ends by job."""

    def __init__(self, port: int = 0) -> None:
        self.received: dict[tuple[str, str], bytearray] = {}
        self.said: dict[tuple[str, str], dict[str, str]] = {}
        self.ends: list[tuple[str, dict[str, Any]]] = []
        self.requests = 0
        self.tokens: list[str | None] = []
        self.faults: list[Any] = []
        """for the next requests: a status, (status, headers, body), "drop" before or "forget" after it is stored"""
        self.connections: set[socket.socket] = set()
        self.port = port
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def text(self, source: str, job: str = "run7") -> bytes:
        return bytes(self.received.get((job, source), b""))

    def start(self) -> Box:
        box = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                return

            def setup(self) -> None:
                super().setup()
                box.connections.add(self.connection)

            def finish(self) -> None:
                box.connections.discard(self.connection)
                with contextlib.suppress(OSError):
                    super().finish()

            def handle(self) -> None:
                with contextlib.suppress(OSError):  # who was killed says no good-bye
                    super().handle()

            def do_POST(self) -> None:
                box.answer(self)

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            for connection in list(self.connections):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._server = None

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests += 1
        self.tokens.append(handler.headers.get("Authorization"))
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        fault = self.faults.pop(0) if self.faults else None
        if fault == "drop":
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
            return
        if isinstance(fault, int | tuple):
            status, headers, content = fault if isinstance(fault, tuple) else (fault, {}, b'{"what": "told to"}')
            self._write(handler, status, content, headers)
            return
        status, content = self._take(handler, body)
        if fault == "forget":
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
            return
        self._write(handler, status, json.dumps(content).encode(), {})

    def _take(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(handler.path)
        _, _, _, job, verb = parts.path.split("/")
        if verb == "end":
            self.ends.append((unquote(job), json.loads(body)))
            return 200, {}
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        key = unquote(job), query["source"]
        packed = handler.headers.get("Content-Encoding") == "zstd"
        data = zstandard.ZstdDecompressor().decompressobj().decompress(body) if packed else body
        had = self.received.setdefault(key, bytearray())
        self.said[key] = query
        offset = int(query.get("offset", len(had)))
        if offset > len(had):
            return 409, {"error": "offset_gap", "what": "bytes are missing", "expected_offset": len(had)}
        if offset == 0 and had and data[:256] != had[: len(data[:256])]:
            return 409, {"error": "conflict", "what": "the source began with other bytes"}
        had += data[len(had) - offset :]
        return 200, {"next_offset": len(had)}

    def _write(self, handler: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str]) -> None:
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)
