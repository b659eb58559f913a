"""Clients: what they send, and what they hear of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

from benchmarks.service import Connection
from tests.support.servers import Server


class Sender:
    """Pushes of some clients, each on a connection of its own, as fast as the answers come."""

    def __init__(self, server: Server, connections: int) -> None:
        self._connections = [Connection(server.port) for _ in range(connections)]
        self.times: list[float] = []

    async def send(self, requests: Iterator[tuple[str, bytes, str]]) -> float:
        """Send (path, body, kind of body) until there are no more. Returns the seconds that it took."""
        began = time.monotonic()

        async def one(connection: Connection) -> None:
            for path, body, kind in requests:  # shared: each request is taken by one of them
                sent = time.monotonic()
                status, answer = await connection.post(path, body, kind)
                while status == 429:
                    await asyncio.sleep(0.05)
                    status, answer = await connection.post(path, body, kind)
                assert status in (200, 204), answer
                self.times.append(time.monotonic() - sent)

        await asyncio.gather(*[one(connection) for connection in self._connections])
        return time.monotonic() - began

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()


def push(job: str, source: str, offset: int, data: bytes) -> tuple[str, bytes, str]:
    return f"/v1/jobs/{job}/logs?source={source}&offset={offset}", data, "text/plain"


def step_lines(first: int, count: int) -> bytes:
    return b"".join(
        f" iteration {step:8d}/ 500000 | elapsed time per iteration (ms): 512.3 | lm loss: {8 / (step + 1):.6f} |\n".encode()
        for step in range(first, first + count)
    )


def told(server: Server, name: str) -> float:
    """One of the service's own numbers."""
    text = server.client.get("/metrics").text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.partition(" ")[0].partition("{")[0] == name)


async def read(server: Server, size: int) -> None:
    """Wait until so many bytes were read."""
    while await asyncio.to_thread(told, server, "diagnose_read_bytes_total") < size:
        await asyncio.sleep(0.1)


async def diagnosed(server: Server, heard: dict[str, float]) -> None:
    """Note when each job was diagnosed, the last time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wanted = False
    try:
        while line := await reader.readline():
            if line.startswith(b"event: "):
                wanted = line[7:].strip() == b"job.diagnosed"
            elif wanted and line.startswith(b"data: "):
                heard[json.loads(line[6:])["job"]] = time.monotonic()
    finally:
        writer.close()
