"""What the service notices by itself while logs come in, or no more do; what it says when its disk or database is away."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from service.store import Store
from service.store import tables as t
from tests.support.servers import Postgres, Server

pytestmark = pytest.mark.server


def steps(first: int, last: int, loss: Callable[[int], float] = lambda step: 4 - step / 1000) -> bytes:
    return "".join(
        f"iteration {step}/9000 | lm loss: {loss(step):.4f} | grad norm: 1.0\n" for step in range(first, last)
    ).encode()


def until(true: Callable[[], Any], within_s: float = 25.0) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for which a second is long."""
    short = {"hang_s": "1", "silence_s": "8", "settle_s": "0.3", "flush_s": "0.2"}
    settings = {f"DIAGNOSE_SERVE_{name.upper()}": value for name, value in short.items()}
    with Server(tmp_path_factory.mktemp("live") / "data", **settings) as running:
        yield running


def job(server: Server, name: str) -> Any:
    found = server.get("/v1/jobs", name=name)["jobs"][0]
    return {**found, "attempt": server.get(f"/v1/jobs/{name}")["attempts"][0]}


def alarms(server: Server, name: str) -> list[str]:
    """The reasons of the alarms that the audit trail has, which webhooks are told of."""
    store = Store.in_folder(server.data)
    query = select(t.audit.c.detail).where(t.audit.c.what == "job.alarm", t.audit.c.subject == f"job/{name}")
    try:
        return [detail["reason"] for (detail,) in store.read(lambda connection: connection.execute(query).all())]
    finally:
        store.close()


def test_a_job_that_made_steps_and_says_nothing_hangs_and_in_the_end_has_ended(server: Server) -> None:
    server.push("hangs", steps(1, 50), source="s")
    until(lambda: alarms(server, "hangs") == ["hang"])
    server.push("hangs", steps(50, 52), source="s")  # it was only slow: then it hangs again
    until(lambda: alarms(server, "hangs") == ["hang", "hang"])
    found = until(lambda: (one := job(server, "hangs"))["state"] == "ended" and one)
    assert found["attempt"]["ended_by"] == "silence"
    assert server.get("/v1/jobs/hangs/report")["outcome"] == "failed"
    assert found["attempt"]["ended_at"] == found["attempt"]["last_seen"] < time.time() - 7


def test_hang_and_silence_are_noticed_also_over_a_restart(server: Server) -> None:
    server.push("steps", steps(1, 50), source="s")
    server.push("silent", b"hello\n", source="s")
    for name in ("steps", "silent"):
        server.get(f"/v1/jobs/{name}/report")
    server.stop()
    server.start()
    for name in ("steps", "silent"):
        found = until(lambda name=name: (one := job(server, name))["state"] == "ended" and one)
        assert found["attempt"]["ended_by"] == "silence"
    assert set(alarms(server, "steps")) == {"hang"}
    assert alarms(server, "silent") == [], "who never made a step does not hang"


def test_a_loss_that_is_no_number_any_more_is_an_alarm_while_the_job_runs(server: Server) -> None:
    server.push("sick", steps(1, 200) + steps(200, 230, lambda step: float("nan")), source="s")
    until(lambda: "loss_anomaly" in alarms(server, "sick"))


@pytest.mark.parametrize(
    ("name", "line", "by", "outcome"),
    [
        (
            "cancelled",
            b"slurmstepd: error: *** JOB 8812 ON gpu001 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n",
            "scheduler",
            "failed",
        ),
        ("well", b"Training completed. Do not forget to share your model on huggingface.co/models =)\n", "log", "healthy"),
    ],
    ids=["cancelled", "well"],
)
def test_what_the_log_says_of_the_end_ends_the_job(server: Server, name: str, line: bytes, by: str, outcome: str) -> None:
    server.push(name, steps(1, 20) + line, source="s")
    found = until(lambda: (one := job(server, name))["state"] == "ended" and one)
    assert (found["attempt"]["ended_by"], found["outcome"]) == (by, outcome)
    if by == "scheduler":  # it goes on after all: not if it ended well by its own word and time
        time.sleep(0.5)
        server.push(name, steps(20, 25), source="s")
        until(lambda: job(server, name)["state"] == "running")


def test_an_end_in_the_future_is_now(server: Server) -> None:
    server.push("early", b"hello\n", source="s")
    server.end("early", 0, at=time.time() + 1e6)
    server.get("/v1/jobs/early/report")
    assert abs(job(server, "early")["attempt"]["ended_at"] - time.time()) < 30


def test_a_token_keeps_to_its_quota_and_others_do_not_feel_it(tmp_path: Path, diagnose: Any) -> None:
    data = str(tmp_path / "data")
    slow = diagnose("tokens", "create", "slow", "--role", "ingest", "--quota", "10000", "--data", data).stdout.strip()
    quick = diagnose("tokens", "create", "quick", "--role", "ingest", "--data", data).stdout.strip()
    with Server(tmp_path / "data") as running:

        def push(secret: str) -> Any:
            headers = {"authorization": f"Bearer {secret}"}
            return running.client.post("/v1/jobs/j/logs?source=s", content=b"x" * 15_000 + b"\n", headers=headers)

        answers = [push(slow) for _ in range(4)]
        assert answers[0].status_code == 200
        refused = [one for one in answers if one.status_code != 200]
        assert refused
        assert refused[0].status_code == 429
        assert refused[0].json()["error"] == "busy"
        assert "'slow' has used up" in refused[0].json()["what"]
        assert int(refused[0].headers["retry-after"]) >= 1
        assert push(quick).status_code == 200


def test_a_full_disk_is_said_and_nothing_that_was_accepted_is_lost(tmp_path: Path) -> None:
    """A limit on the size of files, set from outside while it runs: the kernel fails writes of the journal and of SQLite."""
    with Server(tmp_path / "data", DIAGNOSE_SERVE_FLUSH_S="0.1") as running:
        text = steps(1, 400)
        half = len(text) // 2
        running.push("job", text[:half], source="s", offset=0)
        running.get("/v1/jobs/job/report")
        before = resource.prlimit(running.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            answer = running.client.post("/v1/jobs/job/logs", params={"source": "s", "offset": str(half)}, content=text[half:])
            assert answer.status_code == 503, answer.text
            assert "could not be written to disk" in answer.json()["what"]
            assert int(answer.headers["retry-after"]) >= 1
            assert running.client.get("/healthz").status_code == 200
        finally:
            resource.prlimit(running.pid, resource.RLIMIT_FSIZE, before)
        assert running.push("job", text[half:], source="s", offset=half)["next_offset"] == len(text)
        running.end("job", 0)
        assert until(lambda: running.get("/v1/jobs/job/report")["compression"]["lines_in"] == 399)


def test_without_its_database_it_goes_on_with_what_it_knows(tmp_path: Path, postgres: Postgres) -> None:
    with Server(tmp_path / "data", "--database", postgres.database("gone"), DIAGNOSE_SERVE_FLUSH_S="0.1") as running:
        running.push("known", steps(1, 50), source="s", offset=0)
        running.get("/v1/jobs/known/report")
        postgres.stop()
        more = steps(50, 90) + b"RuntimeError: CUDA error: an illegal memory access was encountered\n"
        assert running.push("known", more, source="s", offset=len(steps(1, 50)))["duplicate"] is False
        running.end("known", 1)
        new = running.client.post("/v1/jobs/new/logs?source=s", content=b"hello\n")
        assert (new.status_code, new.json()["error"]) == (503, "unavailable")
        assert running.client.get("/v1/jobs/known").status_code == 503
        ready = running.client.get("/readyz")
        assert (ready.status_code, ready.json()["database"]) == (503, False)
        assert "diagnose_database_up 0.0" in running.client.get("/metrics").text
        postgres.start()
        until(lambda: running.client.get("/readyz").status_code == 200)
        report = until(lambda: (one := running.get("/v1/jobs/known/report"))["outcome"] == "failed" and one)
        assert (report["diagnosis"]["reason"], report["compression"]["lines_in"]) == ("cuda_error", 90)
        running.push("new", b"hello\n", source="s")
