"""What the service can carry: ``python -m benchmarks.service throughput | latency | failing | storage | learning | raw |
doors``.

Server, client and PostgreSQL share this machine's cores. Every ratio is of one run.

- ``throughput`` sends a log over HTTP and reads the same log in process, in turns.
- ``latency`` has many jobs push at a steady rate.
- ``failing`` lets jobs fail in the same second, and takes the time from a job's last byte to the event that its diagnosis is
  stored.
- ``storage`` sends the healthy logs of a corpus, and measures the size of the database.
- ``learning`` sends the same log to services without a model, with one that takes 30 s per answer, and with one that is down,
  in turns.
- ``raw`` sends the same log with and without raw logs, in turns.
- ``doors`` asks for ``/healthz``, each time on a new connection: alone, while two strangers write a header without an end, and
  while 2,000 connections have sent the beginning of a request and nothing more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import http.client
import json
import os
import resource
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.learning import Slow
from benchmarks.measure import ROOT, run
from benchmarks.mixed import log as mixed
from tests.support.servers import Postgres, Server

_CACHE = ROOT / "benchmarks" / ".cache"


class Connection:
    """A minimal client for HTTP/1.1: it shares the cores with the server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, kind: str = "text/plain") -> tuple[int, bytes]:
        if self._streams is None or self._streams[0].at_eof():  # the server closes what says nothing for long
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        reader, writer = self._streams
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        answer = await reader.readuntil(b"\r\n\r\n")
        status = int(answer.split(b" ", 2)[1])
        lengths = (int(line[15:]) for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        length = next(lengths, 0)  # 204 has no body
        return status, await reader.readexactly(length)

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


def resident_mb(pid: int) -> float:
    """The memory of a process now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_mb(pid: int) -> float:
    """The most memory that a process had."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cpu_s(server: Server) -> float:
    """The processor time of the server so far."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Neighbours:
    """What the rest of the machine used meanwhile: a share of all cores, without server and client."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before = self._now()
        self._client = time.process_time()
        self._began = time.monotonic()

    def told(self) -> dict[str, float]:
        took = time.monotonic() - self._began
        all_, ours = (after - before for after, before in zip(self._now(), self._before, strict=True))
        client = time.process_time() - self._client
        cores = os.cpu_count() or 1
        return {
            "server_cpu_s": round(ours, 2),
            "client_cpu_s": round(client, 2),
            "neighbours_share": round(max(0.0, all_ - ours - client) / took / cores, 2),
        }

    def _now(self) -> tuple[float, float]:
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:])
        return (user + nice + system + sum(rest[:2])) / os.sysconf("SC_CLK_TCK"), cpu_s(self._server)


class Bench:
    """Where files are, and which database to use."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.folder = Path(tempfile.mkdtemp(prefix="diagnose-bench-", dir=os.environ.get("DIAGNOSE_BENCH_DIR")))
        self.cluster: Postgres | None = None
        self._count = 0

    def server(self, **environment: str) -> Server:
        """A server as it is shipped. Those of the tests fold nothing, unless a test wants it."""
        self._count += 1
        words: list[str] = []
        if self.kind == "postgresql":
            if self.cluster is None:
                self.cluster = Postgres().start()
            words = ["--database", self.cluster.database(f"bench{self._count}")]
        server = Server(self.folder / f"data{self._count}", *words)
        server.environment = environment
        return server

    def close(self) -> None:
        if self.cluster is not None:
            self.cluster.stop()
            self.cluster.remove()


# --- throughput


def throughput(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """Bytes per second over HTTP until all is durable and until all is stored; and bytes per second of ``diagnose replay``'s
    loop.
    """
    path = _log(options.log, options.mb)
    data = path.read_bytes()
    rounds = []
    for number in range(options.repeat):
        told = run([sys.executable, "-m", "benchmarks.service", "--in-process", str(path)]).told
        replay = told["wall_s"]
        with bench.server() as server:
            before = cpu_s(server)
            durable, stored = asyncio.run(send_all(server, data, f"job{number}", options.jobs))
            peak, spent = peak_mb(server.pid), cpu_s(server) - before
        rounds.append(
            {
                "replay_mb_s": len(data) / 1e6 / replay,
                "durable_mb_s": len(data) / 1e6 / durable,
                "stored_mb_s": len(data) / 1e6 / stored,
                "durable_share": replay / durable,
                "stored_share": replay / stored,
                "cpu_share": told["cpu_s"] / spent,
                "peak_mb": peak,
            }
        )
    middle = sorted(rounds, key=lambda one: one["stored_share"])[len(rounds) // 2]
    return {"bytes": len(data), "jobs": options.jobs, "rounds": rounds, "median": middle}


def burst(mb: float) -> bytes:
    """So much of the mixed log."""
    return _log(None, mb).read_bytes()


def _log(path: Path | None, mb: float) -> Path:
    path = path or _CACHE / f"service-{mb}.log"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        mixed.make(path, mb, 7)
    return path


def raw_logs(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """What raw logs cost: the same log with and without, in turns; and their size on disk."""
    data = _log(options.log, options.mb).read_bytes()
    rounds = []
    for number in range(options.repeat):
        told: dict[str, Any] = {}
        for name in ("without", "with"):
            raw = bench.folder / f"raw{number}"
            with bench.server(**({"DIAGNOSE_SERVE_RAW_LOGS": str(raw)} if name == "with" else {})) as server:
                before = cpu_s(server)
                durable, stored = asyncio.run(send_all(server, data, f"job{number}", options.jobs))
                if name == "with":
                    for job in range(options.jobs):  # when this is answered, all of it is there
                        server.get(f"/v1/jobs/job{number}-{job}/raw/sources")
                    told["on_disk"] = sum(part.stat().st_size for part in raw.rglob("*.zst")) / len(data)
                told[name] = {"durable_s": durable, "stored_s": stored, "cpu_s": cpu_s(server) - before}
        told |= {f"{what}_ratio": told["with"][what] / told["without"][what] for what in ("durable_s", "stored_s", "cpu_s")}
        rounds.append(told)
    return {"bytes": len(data), "jobs": options.jobs, "rounds": rounds}


async def send_all(server: Server, data: bytes, job: str, jobs: int) -> tuple[float, float]:
    """(seconds until all is on disk, until all is scanned and in the database)."""
    began = time.monotonic()

    async def one(number: int) -> None:
        connection = Connection(server.port)
        part = data[len(data) * number // jobs : len(data) * (number + 1) // jobs]
        at = 0
        while at < len(part):
            piece = part[at : at + (4 << 20)]
            status, body = await connection.post(f"/v1/jobs/{job}-{number}/logs?source=s&offset={at}", piece)
            if status == 429:
                at = json.loads(body).get("next_offset") or at
                await asyncio.sleep(0.05)
                continue
            assert status == 200, body
            at += len(piece)
        await connection.close()

    await asyncio.gather(*[one(number) for number in range(jobs)])
    durable = time.monotonic() - began

    def settled() -> None:
        for number in range(jobs):
            while True:
                found = server.get(f"/v1/jobs/{job}-{number}")["attempts"][0]["bytes_in"]
                if found == len(data) * (number + 1) // jobs - len(data) * number // jobs:
                    break
                time.sleep(0.1)

    await asyncio.to_thread(settled)
    return durable, time.monotonic() - began


def in_process(path: str) -> None:
    """What ``diagnose replay`` does, without its start and its report: compress the bytes of a file."""
    from diagnose.job import Job
    from diagnose.knowledge.rules import load
    from diagnose.matching.matcher import Matcher
    from diagnose.reading.sources import Source

    source = Source(path, Path(path))
    job = Job("x", [source], Matcher(load()))
    began, cpu_began = time.monotonic(), time.process_time()
    for chunk in source.chunks():
        job.feed(0, chunk)
    job.close(0)
    print(json.dumps({"wall_s": time.monotonic() - began, "cpu_s": time.process_time() - cpu_began}))


# --- latency


def latency(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """Pushes of many jobs at a steady rate."""
    with bench.server() as server:
        neighbours = Neighbours(server)
        found = asyncio.run(_steady(server, options))
        found |= neighbours.told()
        found["resident_mb"] = resident_mb(server.pid)
        found["peak_mb"] = peak_mb(server.pid)
    return found


async def _steady(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    times: list[float] = []
    later: list[float] = []
    """without each job's first push, which opens the job"""
    busy = 0
    step_s = options.every
    lines = max(1, round(options.lines * step_s))
    end = time.monotonic() + options.seconds

    async def one(number: int) -> int:
        nonlocal busy
        connection = Connection(server.port)
        step = sent = offset = 0
        due = time.monotonic() + step_s * number / options.jobs
        while due < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due += step_s
            text = []
            for _ in range(lines):
                step += 1
                text.append(
                    f" iteration {step:8d}/ 500000 | consumed samples: {step * 512} | elapsed time per iteration (ms): 512"
                    f" | learning rate: 1.5E-04 | lm loss: {8 / (1 + step / 1000):.6f} | grad norm: 0.{step % 900 + 100} |\n"
                )
            if step % 50 == 0:
                text.append(f"custom remark of job {number} at {step}\n")
            body = "".join(text).encode()
            began = time.monotonic()
            status, answer = await connection.post(f"/v1/jobs/steady-{number}/logs?source=rank0&offset={offset}", body)
            if status == 429:
                busy += 1
                continue
            assert status == 200, answer
            offset += len(body)
            sent += lines
            times.append(time.monotonic() - began)
            if offset > len(body):
                later.append(times[-1])
        await connection.close()
        return sent

    began = time.monotonic()
    sent = sum(await asyncio.gather(*[one(number) for number in range(options.jobs)]))
    took = time.monotonic() - began
    return {
        "jobs": options.jobs,
        "seconds": round(took, 1),
        "pushes": len(times),
        "busy": busy,
        "lines_s": round(sent / took),
        "lines_s_asked": round(options.jobs * options.lines),
        "p50_ms": round(1000 * percentile(times, 0.5), 1),
        "p99_ms": round(1000 * percentile(times, 0.99), 1),
        "p99_ms_but_the_first_of_a_job": round(1000 * percentile(later, 0.99), 1),
        "most_ms": round(1000 * max(times), 1),
    }


# --- failing


def failing(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """Jobs that run, and then all fail within a second, without saying that they end."""
    folder = ROOT / "fixtures" / "logs" / "job123"
    tail = (folder / "gpu-13.log").read_bytes()
    with bench.server() as server:
        return asyncio.run(_fail(server, options.jobs, tail))


async def _fail(server: Server, jobs: int, tail: bytes) -> dict[str, Any]:
    running = b"".join(
        f" iteration {step:8d}/ 500000 | elapsed time per iteration (ms): 512.3 | lm loss: {8 / step:.6f} |\n".encode()
        for step in range(1, 2001)
    )
    connections = [Connection(server.port) for _ in range(jobs)]
    for number, connection in enumerate(connections):
        status, body = await connection.post(f"/v1/jobs/doomed-{number}/logs?source=s&offset=0", running)
        assert status == 200, body
    known: dict[str, float] = {}
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")

    async def listen() -> None:
        kind = ""
        while True:
            line = (await reader.readline()).decode()
            if line.startswith("event: "):
                kind = line[7:].strip()
            if line.startswith("data: ") and kind == "job.diagnosed":
                event = json.loads(line[6:])
                if event["reason"] == "ecc_error":
                    known.setdefault(event["job"], time.monotonic())

    listener = asyncio.create_task(listen())
    await asyncio.sleep(3)
    sent: dict[str, float] = {}
    """when the last byte of a job was given to the socket"""

    async def timed(number: int) -> None:
        await asyncio.sleep(number / jobs)
        sent[f"doomed-{number}"] = time.monotonic()
        status, body = await connections[number].post(f"/v1/jobs/doomed-{number}/logs?source=s&offset={len(running)}", tail)
        assert status == 200, body

    await asyncio.gather(*[timed(number) for number in range(jobs)])
    deadline = time.monotonic() + 60
    while len(known) < jobs and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    listener.cancel()
    writer.close()
    times = [known[job] - at for job, at in sent.items() if job in known]
    return {
        "jobs": jobs,
        "diagnosed": len(times),
        "p50_s": round(percentile(times, 0.5), 3),
        "p99_s": round(percentile(times, 0.99), 3),
        "most_s": round(max(times), 3),
    }


# --- learning


def learning(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """What a model costs ingestion: processor time of the service, and time on the clock, relative to none."""
    model = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    model.daemon_threads = True
    threading.Thread(target=model.serve_forever, daemon=True).start()
    on = {"DIAGNOSE_SERVE_LEARN": "1", "DIAGNOSE_SERVE_AGENT_TIMEOUT_S": "120"}
    ways = {
        "off": {},
        "30 s an answer": {**on, "DIAGNOSE_SERVE_LLM": f"http://127.0.0.1:{model.server_port}/v1"},
        "down": {**on, "DIAGNOSE_SERVE_LLM": "http://127.0.0.1:9/v1"},
    }
    data = _log(options.log, options.mb).read_bytes()
    rounds: list[dict[str, tuple[float, ...]]] = []
    fed: dict[str, list[str]] = {}
    for number in range(options.repeat):
        names = list(ways)
        rounds.append({})
        for way in names[number % 3 :] + names[: number % 3]:
            with bench.server(**ways[way]) as server:
                asyncio.run(send_all(server, data[: len(data) // 20], "first", options.jobs))  # its process has started
                before = cpu_s(server)
                durable, stored = asyncio.run(send_all(server, data, "job", options.jobs))
                rounds[-1][way] = durable, stored, cpu_s(server) - before
                text = server.client.get("/metrics").text
                fed[way] = [line for line in text.splitlines() if line.startswith("diagnose_learning_lines_total")]
    model.shutdown()
    told = ("durable", "stored", "own_work")
    shares = {
        way: {
            name: round(statistics.median(one[way][place] / one["off"][place] for one in rounds), 3)
            for place, name in enumerate(told)
        }
        for way in ways
    }
    return {"bytes": len(data), "rounds": rounds, "fed": fed, "to_off": shares}


# --- storage


def storage(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """The size of the database for the healthy logs of a corpus."""
    corpus: Path = options.corpus
    rows = [line.split("\t") for line in (corpus / "labels.tsv").read_text().splitlines()]
    at = {name: number for number, name in enumerate(rows[0])}
    healthy = [row[at["file"]] for row in rows[1:] if row[at["reason"]] == "healthy"]
    raw = 0
    with bench.server() as server:
        empty = _size(server)
        for name in healthy:
            path = corpus / name
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            raw += len(data)
            job = quote(path.name.split(".")[0])
            for start in range(0, len(data), 4 << 20):
                while True:
                    answer = server.client.post(
                        f"/v1/jobs/{job}/logs",
                        params={"source": "log", "offset": start},
                        content=data[start : start + (4 << 20)],
                    )
                    if answer.status_code == 200:
                        break
                    time.sleep(0.1)
            server.end(job, 0)
            server.get(f"/v1/jobs/{job}/report")
        lines = server.get("/v1/jobs", limit=1000)["jobs"]
        server.stop()
        full = _size(server)
    return {
        "logs": len(healthy),
        "raw_bytes": raw,
        "kept_bytes": sum(job["bytes_kept"] for job in lines),
        "database_bytes": full - empty,
        "share": (full - empty) / raw,
    }


def _size(server: Server) -> int:
    import sqlite3

    with sqlite3.connect(server.data / "diagnose.db") as base:
        base.execute("pragma wal_checkpoint(truncate)")
        (pages,), (free,), (size,) = (
            base.execute(f"pragma {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


# --- doors


def doors(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """How long ``/healthz`` takes while strangers take what they can. The service has the settings that it comes with."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    told: dict[str, Any] = {}
    with bench.server() as server:
        crowds: dict[str, Callable[[Server], contextlib.AbstractContextManager[None]]]
        crowds = {"alone": lambda _: contextlib.nullcontext(), "endless_head": _endless_head, "half_open": _half_open}
        for name, crowd in crowds.items():
            with crowd(server):
                took = _health(server, 200)
            told[name] = {"median_ms": statistics.median(took), "p95_ms": percentile(took, 0.95), "worst_ms": max(took)}
    return {"load": os.getloadavg()[0], **told}


def _health(server: Server, times: int) -> list[float]:
    took = []
    for _ in range(times):
        began = time.monotonic()
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
        took.append((time.monotonic() - began) * 1000)
        time.sleep(0.01)
    return took


@contextlib.contextmanager
def _endless_head(server: Server) -> Iterator[None]:
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=20) as made:
                made.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-endless: ")
                while not stop.is_set():
                    made.sendall(b"a" * 65536)

    threads = [threading.Thread(target=flood) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def _half_open(server: Server) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        for _ in range(2000):
            made = held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            with contextlib.suppress(OSError):
                made.sendall(b"POST /v1/jobs/x/logs HTTP/1.1\r\nhost: localhost\r\n")
        yield


PARTS = {
    "throughput": throughput,
    "latency": latency,
    "failing": failing,
    "storage": storage,
    "learning": learning,
    "raw": raw_logs,
    "doors": doors,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--mb", type=float, default=100, help="throughput: size of the mixed log")
    parser.add_argument("--log", type=Path, help="throughput: this log instead of the mixed one")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--lines", type=float, default=100, help="latency: lines a second of one job")
    parser.add_argument("--every", type=float, default=5, help="latency: seconds between two pushes of one job")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--in-process", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_process:
        in_process(options.in_process)
        return 0
    if options.part is None or (options.part == "storage" and options.corpus is None):
        parser.error("name a part; storage needs --corpus")
    options.jobs = options.jobs or {"throughput": 4, "raw": 4, "learning": 4, "latency": 200}.get(options.part, 100)
    bench = Bench(options.database)
    try:
        print(json.dumps({"part": options.part, "database": options.database, **PARTS[options.part](bench, options)}, indent=2))
    finally:
        bench.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
