"""What does learning cost a running job? ``python -m benchmarks.learning``.

The mixed log is fed to a job in chunks, in turns: without a learner, with one whose model takes 30 s per answer (a local HTTP
server), and with one whose model is down (a closed port). The feeding is timed from the first chunk to the last. Printed are
two ratios to the run without a learner, each from the best round: processor time of the job's own process (what learning costs
it), and time on the clock (what it costs if the learner's process shares the machine).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.measure import table
from benchmarks.mixed.log import Log
from diagnose.job import Job
from diagnose.knowledge.rules import load
from diagnose.learning.live import Learner
from diagnose.matching.matcher import Matcher
from diagnose.model.settings import Settings
from diagnose.reading.sources import Source

CHUNK = 1 << 20
WITHIN = 0.05


class Slow(BaseHTTPRequestHandler):
    """A model that thinks for a long time and then has nothing to say."""

    seconds = 30.0

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": "slow", "object": "model"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.seconds)
        message = {"role": "assistant", "content": '{"rules": [], "refused": []}'}
        self._send({"choices": [{"index": n, "finish_reason": "stop", "message": message} for n in range(3)]})

    def _send(self, value: object) -> None:
        body = json.dumps(value).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # the learner was stopped before the answer came
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        return


def fed(chunks: list[bytes], settings: Settings | None) -> tuple[float, float, int, int]:
    """(seconds, processor seconds, lines that the learner got, lines that it had no room for)."""
    matcher = Matcher(load())
    job = Job("benchmark", [Source("log", None)], matcher)
    with tempfile.TemporaryDirectory() as folder:
        learner = Learner(Path(folder) / "b.db", matcher, "benchmark", settings) if settings else None
        if learner is not None:
            time.sleep(2)  # so that the child has started: a job runs for days
        began, worked = time.perf_counter(), time.process_time()
        for chunk in chunks:
            scans = job.feed(0, chunk)
            if learner is not None:
                learner.feed(scans)
        took, work = time.perf_counter() - began, time.process_time() - worked
        summary = learner.close(patience_s=0.5) if learner is not None else None
    job.compression.kept.close()
    return took, work, summary.lines if summary else 0, summary.missed if summary else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args(arguments)
    data = b"".join(Log().blocks(int(chosen.mb * 1e6)))
    chunks = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ways = {
        "off": None,
        "30 s an answer": Settings(f"http://127.0.0.1:{server.server_port}/v1", timeout_s=120, cache=False),
        "down": Settings("http://127.0.0.1:9/v1", retries=1, cache=False),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    works: dict[str, list[float]] = {way: [] for way in ways}
    figures = {}
    for number in range(chosen.rounds):
        names = list(ways)
        for way in names[number % 3 :] + names[: number % 3]:
            took, work, *figures[way] = fed(chunks, ways[way])
            times[way].append(took)
            works[way].append(work)
    rows, worst = [], 0.0
    for way, seconds in times.items():
        work = statistics.median(work / off for work, off in zip(works[way], works["off"], strict=True))
        clock = min(seconds) / min(times["off"])
        worst = max(worst, work - 1, clock - 1)
        speed = len(data) / 1e6 / min(seconds)
        rows.append((way, f"{speed:,.0f}", f"{work:.3f}", f"{clock:.3f}", *(f"{count:,}" for count in figures[way])))
    print(table(("learner", "MB/s", "own work", "on the clock", "lines fed", "no room"), rows))
    server.shutdown()
    return 1 if worst > WITHIN else 0


if __name__ == "__main__":
    sys.exit(main())
