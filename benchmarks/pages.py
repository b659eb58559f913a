"""How long does a page take, and how large is it, with a full database? ``python -m benchmarks.pages``.

A database is filled (10,000 jobs, 5,000 failures, half of them in one group, a million kept lines), a service is started on it,
and each page is requested over HTTP. Printed are

- the server's time: median and 95th percentile, from sending the request to the last byte; other work on the machine counts
  too;
- the processor time that the service took for it, which other work hardly changes;
- the transfer; and the goals: 300 ms and 300 kB.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from benchmarks.measure import table
from diagnose.report import Action, CompressionFigures, Diagnosis, EvidenceLine, JobIdentity, Report, Suspects
from service.store import Store
from service.store import tables as t
from service.store.diagnoses import packed

GOAL_S, GOAL_BYTES = 0.3, 300_000
_REASONS = (("infrastructure", "ecc_error"), ("infrastructure", "nccl_timeout"), ("framework", "out_of_memory"),
            ("script", "key_error"), ("script", "import_error"), ("unknown", "unknown"))  # fmt: skip
_WEEK = 7 * 86400.0


def fill(store: Store, jobs: int, failures: int, lines: int, groups: int, nodes: int, now: float) -> None:
    """Rows as the service writes them."""
    dice = random.Random(1)
    each = lines // jobs
    with store.engine.begin() as connection:
        known: list[dict[str, Any]] = [
            {
                "id": number + 1,
                "fingerprint": f"g{number}",
                "category": _REASONS[number % 6][0],
                "reason": _REASONS[number % 6][1],
                "title": f"What failed in the way of group {number}",
                "root_text": f"RuntimeError: CUDA error: case {number}",
                "mitigation": "Look.",
                "first_seen": now - 90 * 86400.0,
                "last_seen": now - number,
                "count": 0,
                "gpu_seconds_lost": 3600.0 * number,
                "state": "open",
                "regressed": False,
            }
            for number in range(groups)
        ]
        names = [f"gpu-{number:04d}" for number in range(nodes)]
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in (
            "jobs", "attempts", "sources", "kept", "diagnoses", "occurrences", "blamed", "series", "actions", "decisions",
            "checkpoints")}  # fmt: skip
        for number in range(1, jobs + 1):
            failed = number > jobs - failures
            # Half of all failures are of one kind.
            group = known[0 if dice.random() < 0.5 else dice.randrange(groups)] if failed else None
            running = not failed and number <= 60
            # Running jobs have just said something: else the service would end them as silent during the measurement.
            at = now - dice.random() * (60 if running else 4 * _WEEK)
            found["jobs"].append(_job(number, at, group, running))
            found["attempts"].append(_attempt(number, at, failed, running, each))
            found["sources"].append(
                {
                    "attempt_id": number,
                    "number": 0,
                    "name": "rank0.log",
                    "rank": 0,
                    "node": dice.choice(names),
                    "received": 1,
                    "last_seen": at,
                }
            )
            found["kept"] += [_line(number, order) for order in range(each)]
            if group is not None:
                group["count"] += 1
                node = dice.choice(names)
                found["diagnoses"].append(_diagnosis(number, at, group, node))
                found["occurrences"].append(_occurrence(number, at, group))
                found["blamed"].append({"attempt_id": number, "node": node, "group_id": group["id"], "at": at})
                found["actions"].append(_action(number, at, group, node))
                found["decisions"].append(_decision(number, at))
                found["checkpoints"] += [
                    {"attempt_id": number, "step": step, "path": f"/ckpt/{step}", "healthy": None, "at": at}
                    for step in range(50, 200, 50)
                ]
            points = [[float(step), 5 / (step + 1), 4 / (step + 1), 6 / (step + 1)] for step in range(200)]
            found["series"].append(
                {
                    "attempt_id": number,
                    "name": "loss",
                    "count": 200,
                    "last": 1.0,
                    "at_step": 200.0,
                    "least": 0.0,
                    "most": 5.0,
                    "points": packed(json.dumps(points).encode()),
                }
            )
        connection.execute(insert(t.groups), known)
        connection.execute(
            insert(t.nodes),
            [
                {
                    "name": name,
                    "state": "suspect" if dice.random() < 0.02 else "ok",
                    "first_seen": now,
                    "last_seen": now,
                    "last_failure": now,
                    "failures": dice.randrange(9),
                }
                for name in names
            ],
        )
        tables = (
            t.jobs,
            t.attempts,
            t.sources,
            t.kept_lines,
            t.diagnoses,
            t.occurrences,
            t.occurrence_nodes,
            t.series,
            t.actions,
            t.decisions,
            t.checkpoints,
        )
        connection.execute(
            insert(t.node_checks),
            [
                {
                    "node": name,
                    "at": now - 86400 * day,
                    "result": "good",
                    "why": None,
                    "who": "kim",
                    "tested": nodes,
                    "rounds": 1,
                }
                for name in names
                for day in range(5)
            ],
        )
        for rows, into in zip(found.values(), tables, strict=True):
            for start in range(0, len(rows), 50_000):
                connection.execute(insert(into), rows[start : start + 50_000])
    with store.engine.connect() as connection:
        connection.exec_driver_sql("analyze")


def _job(number: int, at: float, group: dict[str, Any] | None, running: bool) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"job-{number}",
        "cluster": "alps" if number % 2 else "delta",
        "user": f"user{number % 40}",
        "gpus": 64,
        "labels": {},
        "attempt": 1,
        "state": "running" if running else "ended",
        "outcome": "failed" if group else "running" if running else "healthy",
        "category": group["category"] if group else None,
        "reason": group["reason"] if group else None,
        "group_id": group["id"] if group else None,
        "first_seen": at,
        "last_seen": at + 60,
    }


def _attempt(number: int, at: float, failed: bool, running: bool, lines: int) -> dict[str, Any]:
    return {
        "id": number,
        "job_id": number,
        "number": 1,
        "state": "running" if running else "ended",
        "outcome": "failed" if failed else "running" if running else "healthy",
        "started_at": at - 3600,
        "last_seen": at,
        "ended_at": None if running else at,
        "lsn": 0,
        "lines_in": lines * 20,
        "bytes_in": lines * 2000,
        "lines_kept": lines,
        "bytes_kept": lines * 100,
        "dropped": {"metric": lines * 10, "init": lines * 9},
        "step": 200.0,
        "loss": 2.0,
    }


def _line(number: int, order: int) -> dict[str, Any]:
    return {
        "attempt_id": number,
        "ord": order,
        "source": 0,
        "line": order * 20 + 1,
        "text": f"[rank{order % 8}]: RuntimeError: something about {order} that is as long as lines of logs mostly are",
        "rule": "py-runtime-error" if order % 9 == 0 else None,
        "cut": 0,
        "rank": order % 8,
        "node": "gpu-0001",
    }


def _diagnosis(number: int, at: float, group: dict[str, Any], node: str) -> dict[str, Any]:
    root = EvidenceLine(source="rank0.log", line=41, text="[rank2]: RuntimeError: something about 2", role="root_cause", rank=2)
    diagnosis = Diagnosis(
        category=group["category"],
        reason=group["reason"],
        confidence=0.9,
        by="rule",
        rule="x",
        root_cause=root,
        evidence=[root] * 12,
        suspects=Suspects(nodes=[node], ranks=[2]),
        summary="It failed.",
        mitigation="Look.",
        group=group["fingerprint"],
        step=200.0,
    )
    report = Report(
        schema="diagnose.report/1",
        job=JobIdentity(id=f"job-{number}", sources=["rank0.log"]),
        outcome="failed",
        diagnosis=diagnosis,
        action=Action(kind="restart", why="It may pass."),
        compression=CompressionFigures(lines_in=1, bytes_in=1, lines_kept=1, bytes_kept=1, ratio=1.0, dropped_by_kind={}),
    )
    return {
        "attempt_id": number,
        "made_at": at,
        "final": True,
        "outcome": "failed",
        "category": group["category"],
        "reason": group["reason"],
        "confidence": 0.9,
        "by": "rule",
        "rule": "x",
        "summary": "It failed.",
        "group_id": group["id"],
        "report": packed(report.as_json().encode()),
    }


def _occurrence(number: int, at: float, group: dict[str, Any]) -> dict[str, Any]:
    return {
        "attempt_id": number,
        "group_id": group["id"],
        "job_id": number,
        "at": at,
        "category": group["category"],
        "reason": group["reason"],
        "user": f"user{number % 40}",
        "cluster": "alps" if number % 2 else "delta",
        "gpu_seconds": 230_400.0,
    }


def _action(number: int, at: float, group: dict[str, Any], node: str) -> dict[str, Any]:
    return {
        "key": f"k{number}",
        "attempt_id": number,
        "group_id": group["id"],
        "kind": "restart",
        "nodes": [node],
        "why": "It may pass.",
        "state": "proposed" if number % 50 == 0 else "succeeded",
        "mode": "approve",
        "fence": 1,
        "created": at,
        "changed": at,
        "not_before": 0.0,
        "claims": 0,
        "late": False,
    }


def _decision(number: int, at: float) -> dict[str, Any]:
    """A decision for each failure: else the service would decide about all of them during the measurement."""
    action: dict[str, Any] = {"kind": "restart", "nodes": [], "why": "It may pass.", "restart_from": None, "skip_batches": None}
    evidence: dict[str, Any] = {
        "diagnosis": None,
        "root_cause": None,
        "signals": [],
        "incident": None,
        "isolated": None,
        "nodes": 1000,
    }
    decision = {"action": action, "mode": "approve", "reasons": [], "limits": [], "evidence": evidence}
    return {"attempt_id": number, "about": at, "made_at": at, "decision": decision}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--failures", type=int, default=5_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        store = Store.in_folder(data)
        store.migrate()
        fill(store, chosen.jobs, chosen.failures, chosen.lines, 400, 1000, time.time())
        store.close()
        last = f"job-{chosen.jobs}"
        pages = [
            *(
                "",
                "?range=90d",
                "?node=gpu-0001",
                "shift",
                "breakdowns",
                "breakdowns?by=team&range=90d",
                "failures",
                "failures?q=case+17",
                "failures/1",
                "jobs",
                "jobs?q=99",
            ),
            *("jobs?state=failed", f"jobs/{last}", f"jobs/{last}/log", f"jobs/{last}/log?q=about+7", "nodes", "nodes/gpu-0001"),
            *("actions", f"actions/{chosen.failures}", "rules", "rules?q=nccl"),
        ]
        words = [sys.executable, "-m", "diagnose", "serve", "--data", str(data), "--port", "0", "--log-level", "error"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
            try:
                assert process.stdout is not None
                port = int(process.stdout.readline().rpartition(":")[2])
                rows, worst = [], 0.0
                for page in pages:
                    asked(port, page, 1)  # loads templates and fills caches
                    began = _processor_s(process.pid)
                    times, size = asked(port, page, chosen.rounds)
                    took = (_processor_s(process.pid) - began) / chosen.rounds
                    p95 = sorted(times)[int(len(times) * 0.95)]
                    worst = max(worst, p95 / GOAL_S, size / GOAL_BYTES)
                    milliseconds = (f"{1000 * value:.0f}" for value in (statistics.median(times), p95, took))
                    rows.append((f"/ui/{page}", *milliseconds, f"{size / 1000:.0f}"))
            finally:
                process.terminate()
        print(table(("page", "median ms", "p95 ms", "CPU ms", "kB"), rows))
        print(f"\nworst of all against the goals (300 ms, 300 kB): {worst:.2f}")
    return 1 if worst > 1 else 0


def _processor_s(process: int) -> float:
    """What a process and all its threads have used of the processor."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def asked(port: int, page: str, rounds: int) -> tuple[list[float], int]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times, size = [], 0
    for _ in range(rounds):
        began = time.perf_counter()
        connection.request("GET", f"/ui/{page}")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{page}: {answer.status} {body[:300]!r}")
        times.append(time.perf_counter() - began)
        size = len(body)
    connection.close()
    return times, size


if __name__ == "__main__":
    sys.exit(main())
