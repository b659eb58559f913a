"""The parts: each loads one server in its own way, and says what that cost."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from collections.abc import Awaitable, Callable, Iterator

from benchmarks.carried.figures import Figure, Figures
from benchmarks.carried.sender import Sender, diagnosed, push, read, step_lines, told
from benchmarks.measure import ROOT
from benchmarks.service import burst, cpu_s, percentile, resident_mb, send_all
from tests.support.servers import Server

_LOGS = ROOT / "fixtures" / "logs"
_FAILING = ("nvlink/gpu-11.log", "nvlink/gpu-12.log")
_CALM_S = 3.0
"""when nothing was diagnosed for so long, nothing more comes"""


async def failing(server: Server, options: argparse.Namespace) -> Figures:
    """Jobs whose logs are failures from one end to the other, in pieces: each piece is a reason to judge."""
    jobs, piece = options.jobs, options.piece
    logs = [(_LOGS / name).read_bytes() for name in _FAILING]
    size = sum(len(log) + 4 * log.count(b"gpu-1") for log in logs)
    places = [(number, at) for number, log in enumerate(logs) for at in range(0, len(log) + 4 * log.count(b"gpu-1"), piece)]
    sender = Sender(server, 8)
    await sender.send(iter([push(f"doomed-{job}", "s0", 0, b"") for job in range(jobs)]))
    last: dict[str, float] = {}
    """when the last piece of a job was given to the socket"""

    def requests() -> Iterator[tuple[str, bytes, str]]:
        for number, at in places:
            for job in range(jobs):
                own = logs[number].replace(b"gpu-1", b"gpu-%04d-" % job)  # no other job has such lines
                data = own[at : at + piece]
                last[f"doomed-{job}"] = time.monotonic()
                yield push(f"doomed-{job}", f"s{number}", at, data)

    heard: dict[str, float] = {}
    listener = asyncio.create_task(diagnosed(server, heard))
    await asyncio.sleep(0.5)
    before = cpu_s(server)
    took = await sender.send(requests())
    sent_by = cpu_s(server) - before
    await read(server, jobs * size)
    all_sent = time.monotonic()
    while time.monotonic() - max(heard.values(), default=all_sent) < _CALM_S:
        await asyncio.sleep(0.1)
    cpu = cpu_s(server) - before
    listener.cancel()
    await sender.close()
    reports = await asyncio.to_thread(told, server, "diagnose_reports_total")
    late = [heard[job] - at for job, at in last.items() if job in heard]
    assert len(late) == jobs, f"{jobs - len(late)} jobs were never diagnosed"
    mb = jobs * size / 1e6
    return {
        "failing: MB per s of processor time": Figure(mb / cpu, "MB/s", True),
        "failing: the same until the last answer": Figure(mb / sent_by, "MB/s", True),
        "failing: MB per s by the clock": Figure(mb / took, "MB/s", True),
        "failing: reports per job": Figure(reports / jobs, ""),
        "failing: last verdict after the last byte, p99": Figure(percentile(late, 0.99), "s"),
        "failing: push, p99": Figure(1000 * percentile(sender.times[jobs:], 0.99), "ms"),
    }


async def bursts(server: Server, options: argparse.Namespace) -> Figures:
    """The mixed log from four clients as fast as they can, until all is scanned, judged and in the database."""
    data = burst(options.mb)
    before = cpu_s(server)
    durable, stored = await send_all(server, data, "burst", 4)
    spent = cpu_s(server) - before
    mb = len(data) / 1e6
    return {
        "burst: MB per s of processor time": Figure(mb / spent, "MB/s", True),
        "burst: MB per s by the clock, until durable": Figure(mb / durable, "MB/s", True),
        "burst: the same, until stored": Figure(mb / stored, "MB/s", True),
    }


async def pushes(server: Server, options: argparse.Namespace) -> Figures:
    """1 kB each, to jobs that go well."""
    jobs, each = options.jobs, max(1, options.pushes // options.jobs)
    sender = Sender(server, 16)
    body = step_lines(0, 14)[:1023] + b"\n"
    await sender.send(iter([push(f"well-{job}", "s", 0, body) for job in range(jobs)]))
    await read(server, jobs * len(body))
    sender.times.clear()
    before = cpu_s(server)
    took = await sender.send(
        push(f"well-{job}", "s", number * len(body), body) for number in range(1, each + 1) for job in range(jobs)
    )
    spent = cpu_s(server) - before
    await sender.close()
    count = jobs * each
    return {
        "pushes of 1 kB per s of processor time": Figure(count / spent, "1/s", True),
        "pushes of 1 kB per s by the clock": Figure(count / took, "1/s", True),
        "pushes: p99": Figure(1000 * percentile(sender.times, 0.99), "ms"),
    }


async def opening(server: Server, options: argparse.Namespace) -> Figures:
    """New jobs over four connections."""
    line = "starting the trainer on 8 ranks\n"
    figures: Figures = {}
    at = str(time.time_ns())

    def single() -> Iterator[tuple[str, bytes, str]]:
        for job in range(options.jobs):
            yield push(f"single-{job}", "s", 0, line.encode())

    def grouped() -> Iterator[tuple[str, bytes, str]]:
        for first in range(0, 4 * options.jobs, 100):
            streams = [{"stream": {"job": f"grouped-{first + one}"}, "values": [[at, line]]} for one in range(100)]
            yield "/loki/api/v1/push", json.dumps({"streams": streams}).encode(), "application/json"

    for name, requests, count in (
        ("one per request", single, options.jobs),
        ("100 per request", grouped, 4 * options.jobs // 100 * 100),
    ):
        sender = Sender(server, 4)
        before = cpu_s(server)
        took = await sender.send(requests())
        spent = cpu_s(server) - before
        await sender.close()
        figures[f"jobs opened per s of processor time, {name}"] = Figure(count / spent, "1/s", True)
        figures[f"jobs opened per s by the clock, {name}"] = Figure(count / took, "1/s", True)
    return figures


async def memory(server: Server, options: argparse.Namespace) -> Figures:
    """Short jobs in waves that fail and end, each wave after the one before has left the memory; then jobs that go on."""
    log = (_LOGS / _FAILING[0]).read_bytes()
    sender = Sender(server, 8)
    sizes = []
    for wave in range(4):
        names = [f"short-{wave}-{job}" for job in range(options.jobs)]
        await sender.send(iter([push(name, "s", 0, log) for name in names]))
        await sender.send(iter([(f"/v1/jobs/{name}/end", b'{"exit_code": 1}', "application/json") for name in names]))
        while await asyncio.to_thread(told, server, "diagnose_live_jobs"):
            await asyncio.sleep(1)
        sizes.append(resident_mb(server.pid))
    before = resident_mb(server.pid)
    names = [f"long-{job}" for job in range(options.jobs)]
    steps = step_lines(0, 200)
    await sender.send(iter([push(name, "s", 0, steps) for name in names]))
    await read(server, 4 * options.jobs * len(log) + options.jobs * len(steps))
    await asyncio.sleep(5)
    live = resident_mb(server.pid)
    await sender.close()
    return {
        "memory: what stays of a job that ended": Figure(1000 * (sizes[-1] - sizes[1]) / (2 * options.jobs), "kB"),
        "memory: a live job of 200 lines": Figure(1000 * (live - before) / options.jobs, "kB"),
        "memory: after the last wave": Figure(sizes[-1], "MB"),
    }


async def stop(server: Server, options: argparse.Namespace) -> Figures:
    """With many live jobs, which have just sent something."""
    sender = Sender(server, 16)
    jobs = 5 * options.jobs
    for first in (0, 20):
        steps, at = step_lines(first, 20), len(step_lines(0, first))
        await sender.send(iter([push(f"live-{job}", "s", at, steps) for job in range(jobs)]))
    await sender.close()
    spent = cpu_s(server)
    began = time.monotonic()
    children = _children_s()
    status = await asyncio.to_thread(server.stop)
    took = time.monotonic() - began
    assert status == 0, status
    return {
        f"stop with {jobs:,} live jobs, by the clock": Figure(took, "s"),
        "stop: processor time": Figure(_children_s() - children - spent, "s"),
    }


def _children_s() -> float:
    """The processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def sources(server: Server, options: argparse.Namespace) -> Figures:
    """Each source begins and makes steps; then one fails."""
    count = options.sources
    sender = Sender(server, 16)
    steps = step_lines(0, 3)
    tail = (_LOGS / "job123" / "gpu-13.log").read_bytes()
    heard: dict[str, float] = {}
    before = cpu_s(server)
    took = await sender.send(iter([push("wide", f"rank{number}&rank={number}", 0, steps) for number in range(count)]))
    await read(server, count * len(steps))
    spent = cpu_s(server) - before
    again = cpu_s(server)
    for step in (3, 6):  # one push of each, as the job goes on
        more = step_lines(step, 3)
        at = len(step_lines(0, step))
        await sender.send(iter([push("wide", f"rank{number}", at, more) for number in range(0, count, 10)]))
    goes_on = cpu_s(server) - again
    size = resident_mb(server.pid)
    listener = asyncio.create_task(diagnosed(server, heard))
    await asyncio.sleep(3)
    failed = time.monotonic()
    await sender.send(iter([push("wide", "dying", 0, tail)]))
    while "wide" not in heard and time.monotonic() - failed < 60:
        await asyncio.sleep(0.02)
    listener.cancel()
    await sender.close()
    return {
        f"{count:,} sources: entering one": Figure(1000 * spent / count, "ms of processor"),
        "sources: entering one, by the clock": Figure(1000 * took / count, "ms"),
        "sources: a further push": Figure(1000 * goes_on / (2 * len(range(0, count, 10))), "ms of processor"),
        "sources: from the failure to the verdict": Figure(heard.get("wide", float("inf")) - failed, "s"),
        "sources: memory of the service": Figure(size, "MB"),
    }


PARTS: dict[str, Callable[[Server, argparse.Namespace], Awaitable[Figures]]] = {
    "failing": failing,
    "burst": bursts,
    "pushes": pushes,
    "opening": opening,
    "memory": memory,
    "stop": stop,
    "sources": sources,
}
