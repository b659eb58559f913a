"""The NVIDIA resiliency extension's questions, over a real socket: its fields, its answers, and nothing outside the root."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.nvrx import recommendation
from tests.conftest import ROOT
from tests.support.servers import Server

pytestmark = pytest.mark.server
LOGS = ROOT / "fixtures" / "logs"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that both sides see."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def server(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("nvrx") / "data", "--nvrx-root", str(shared)) as running:
        yield running


def ask(server: Server, path: Path | str, **params: Any) -> tuple[int, Any]:
    answer = server.client.get("/logs", params={"log_path": str(path), **params}, timeout=150)
    return answer.status_code, answer.json()


def submit(server: Server, path: Path | str, **more: Any) -> tuple[int, Any]:
    answer = server.client.post("/logs", json={"log_path": str(path), **more})
    return answer.status_code, answer.json()


@pytest.mark.parametrize(
    ("log", "action", "reason"),
    [
        ("type.log", "RESTART", "type_error"),
        ("argument.log", "RESTART", "argument_error"),
        ("job123/gpu-13.log", "RESTART", "ecc_error"),
        ("healthy-torchtitan.log", "CONTINUE", "healthy"),
    ],
)
def test_a_log_from_progressive_to_the_verdict(server: Server, shared: Path, log: str, action: str, reason: str) -> None:
    folder = shared / log.replace("/", "-")
    folder.mkdir()
    path = folder / "train_cycle0.log"
    job = f"nvrx-{reason.replace('_', '-')}"
    assert submit(server, path, job_id=job, cycle_id=0, analysis_intent="progressive", user="kim") == (200, {
        "submitted": True, "normalized_path": str(path), "mode": "single", "logs_dir": None, "sched_restarts": 0,
        "files_analyzed": 0,
    })  # fmt: skip
    status, answer = ask(server, path, wait="false")
    assert (status, answer["status"], answer["recommendation"]["action"]) == (200, "pending", "UNKNOWN")
    whole = (LOGS / log).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    time.sleep(1.5)
    with open(path, "ab") as file:
        file.write(whole[len(whole) // 2 :])
    assert submit(server, path, job_id=job, cycle_id=0, analysis_intent="terminal")[0] == 200
    status, answer = ask(server, path)
    assert (status, answer["status"]) == (200, "completed")
    assert answer["recommendation"]["action"] == action
    assert answer["recommendation"]["source"] == "deterministic"
    assert answer["result"]["diagnosis"]["reason"] == reason
    assert {
        "wl_restart",
        "wl_restart_count",
        "fr_dump_path",
        "fr_analysis",
        "llm_merged_summary",
        "candidate_recommendation",
    } <= set(answer)
    row = server.get("/v1/jobs/" + job)
    assert (row["attempt"], row["user"], row["attempts"][0]["state"]) == (1, "kim", "ended")
    listed = server.get("/jobs")[job]
    assert listed == [{"cycle_id": 0, "log_path": str(path), "status": "completed", "progressive_phase": "completed"}]


def test_it_is_answered_within_two_seconds_of_the_end(server: Server, shared: Path) -> None:
    path = shared / "quick.log"
    shutil.copy(LOGS / "key.log", path)
    began = time.monotonic()
    submit(server, path, analysis_intent="terminal")
    assert ask(server, path)[1]["status"] == "completed"
    assert time.monotonic() - began < 10  # 0.7 s on an idle machine; theirs takes 15


def test_the_same_again_changes_nothing_and_a_job_has_one_path_a_cycle(server: Server, shared: Path) -> None:
    path = shared / "same_cycle2.log"
    path.write_bytes(b"KeyError: 'x'\n")
    for _ in "12":
        assert submit(server, path, job_id="same")[0] == 200
    other = shared / "more_cycle2.log"
    other.write_bytes(b"x\n")
    assert submit(server, other, job_id="same")[1]["error_code"] == "invalid_parameter"
    assert ask(server, path, wait="true")[1]["status"] == "pending"  # only a terminal POST begins the analysis
    assert submit(server, path, job_id="other")[0] == 200
    assert [one["log_path"] for one in server.get("/jobs")["other"]] == [str(path)]


def test_a_mended_job_is_not_stopped_for_what_it_did_before(server: Server, shared: Path) -> None:
    def say(path: Path, log: str, cycle: int, mode: str = "wb") -> str:
        with open(path, mode) as file:
            file.write((LOGS / log).read_bytes())
        assert submit(server, path, job_id="mended", cycle_id=cycle, analysis_intent="terminal")[0] == 200
        return str(ask(server, path)[1]["recommendation"]["action"])

    first, second = (shared / f"mended_cycle{cycle}.log" for cycle in range(2))
    assert [say(first, "type.log", 0), say(second, "type.log", 1)] == ["RESTART", "STOP"]
    # The code is mended, the job has its number and its paths still: now it fails of something else.
    first.write_bytes(b"")
    assert submit(server, first, job_id="mended", cycle_id=0, analysis_intent="progressive")[0] == 200
    assert ask(server, first, wait="false")[1]["status"] == "pending"
    assert say(first, "argument.log", 0) == "RESTART"
    assert say(second, "key.log", 1, "ab") == "RESTART", "its log went on"
    assert sorted(row["number"] for row in server.get("/v1/jobs/mended")["attempts"]) == [1, 2, 3, 4]
    assert server.get("/v1/jobs/mended/report", attempt=4)["diagnosis"]["reason"] == "key_error"


def test_a_log_that_comes_late_is_waited_for(server: Server, shared: Path) -> None:
    begun, empty, absent = (shared / f"late-{name}.log" for name in ("begun", "empty", "absent"))
    begun.write_bytes(b"step 1 | loss 2.0\n")
    empty.write_bytes(b"")
    for path in (begun, empty, absent):
        assert submit(server, path, analysis_intent="terminal")[0] == 200
    time.sleep(1.5)  # longer than a log that shows a failure is read
    for path in (begun, empty, absent):
        with open(path, "ab") as file:
            file.write((LOGS / "key.log").read_bytes())
    for path in (begun, empty, absent):
        answer = ask(server, path)[1]
        assert (answer["status"], answer["recommendation"]["action"]) == ("completed", "RESTART"), path


def test_a_cycle_is_over_when_the_next_begins(server: Server, shared: Path) -> None:
    first, second = (shared / f"went-on_cycle{cycle}.log" for cycle in range(2))
    shutil.copy(LOGS / "key.log", first)
    for cycle, path in enumerate((first, second)):
        assert submit(server, path, job_id="went-on", cycle_id=cycle, analysis_intent="progressive")[0] == 200
    deadline = time.monotonic() + 30
    while ask(server, first, wait="false")[1]["status"] != "completed":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert ask(server, second, wait="false")[1]["status"] == "pending"


def test_the_fields_that_their_monitor_prints(server: Server, shared: Path) -> None:
    path = shared / "printed.log"
    shutil.copy(LOGS / "key.log", path)
    submit(server, path, analysis_intent="terminal")
    result = ask(server, path)[1]["result"]
    assert (result["module"], result["state"], len(result["result_id"])) == ("diagnose", "complete", 16)
    assert result["result"].startswith(result["diagnosis"]["summary"])


def test_what_lies_outside_is_not_there(server: Server, shared: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret.log"
    outside.write_text("secret\n")
    (shared / "link.log").symlink_to(outside)
    (shared / "folder").symlink_to(tmp_path)
    os.mkfifo(shared / "pipe.log")
    (shared / "inner.log").write_bytes(b"x\n")
    (shared / "inner-link.log").symlink_to(shared / "inner.log")
    twin = Path(f"{shared}-twin")
    twin.mkdir()
    (twin / "a.log").write_text("x\n")
    cases = {
        "outside_root": (403, [outside, shared / "link.log", shared / "folder" / "secret.log", f"{shared}/../{tmp_path.name}/a",
                               "/etc/passwd", f"{shared}/x/../../../etc/passwd", twin / "a.log", "/proc/self/environ"]),
        "invalid_path": (400, ["", "relative.log", "a\0b", "/x" * 4000]),
        "not_regular": (400, [shared / "pipe.log", shared]),
        "not_found": (404, [shared / "none" / "none.log"]),
    }  # fmt: skip
    for code, (status, paths) in cases.items():
        for path in paths:
            got, answer = submit(server, path, analysis_intent="terminal")
            assert (got, answer["error_code"]) == (status, code), path
            assert "secret" not in server.client.get("/print", params={"log_path": str(path)}).text.replace("secret.log", "")
    assert submit(server, shared / "inner-link.log")[1]["normalized_path"] == str(shared / "inner.log")
    assert ask(server, shared / "never.log")[1]["message"] == "attempt has not been submitted"
    assert server.client.get("/print", params={"log_path": str(shared / "inner.log")}).text == "x\n"


def test_a_link_that_is_put_in_the_way_later_is_not_followed(server: Server, shared: Path, tmp_path: Path) -> None:
    path = shared / "swapped.log"
    path.write_bytes(b"harmless\n")
    assert submit(server, path, analysis_intent="progressive", job_id="swapped")[0] == 200
    deadline = time.monotonic() + 30
    while server.client.get("/v1/jobs/swapped").status_code != 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    (tmp_path / "secret").write_text("secret\n" * 100)
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    time.sleep(1.5)
    answer = server.client.get("/logs", params={"log_path": str(path), "wait": "false"})
    assert (answer.status_code, answer.json()["error_code"]) == (403, "outside_root")
    assert all("secret" not in line["text"] for line in server.lines("swapped"))


@pytest.mark.parametrize(
    "body", [{}, {"log_path": 7}, {"log_path": "/x", "cycle_id": "1"}, {"log_path": "/x", "analysis_intent": "now"}], ids=str
)
def test_bad_bodies(server: Server, body: dict[str, Any]) -> None:
    assert server.client.post("/logs", json=body).status_code == 422


def test_health_stats_and_flight(server: Server) -> None:
    health = server.get("/healthz")
    assert (health["status"], health["backend"]) == ("ok", "lib")
    assert set(health["restart_agent"]["attempts"]) == {"registered", "analyzing", "completed", "failed"}
    assert server.get("/inflight") == {"count": 0, "paths": []}
    assert server.client.get("/stats", params={"pretty": "true"}).text.startswith('{\n  "backend": "lib"')


def test_the_first_time_is_worth_a_restart_and_the_same_again_is_not(server: Server, shared: Path) -> None:
    answers = []
    for cycle, log in enumerate(("type.log", "type.log", "argument.log")):
        path = shared / f"again_cycle{cycle}.log"
        shutil.copy(LOGS / log, path)
        assert submit(server, path, job_id="again", cycle_id=cycle, analysis_intent="terminal")[0] == 200
        answers.append(ask(server, path)[1]["recommendation"]["action"])
    assert answers == ["RESTART", "STOP", "RESTART"], "another failure begins anew"


def test_without_a_job_the_cycles_of_one_path_are_one_job(server: Server, shared: Path) -> None:
    answers = []
    for name in ("nameless_cycle0", "nameless_cycle1", "stranger_cycle1"):
        path = shared / f"{name}.log"
        shutil.copy(LOGS / "type.log", path)
        assert submit(server, path, analysis_intent="progressive")[0] == 200
        assert submit(server, path, analysis_intent="terminal")[0] == 200
        answers.append(ask(server, path)[1]["recommendation"]["action"])
    assert answers == ["RESTART", "STOP", "RESTART"]


def test_any_text_names_a_job(server: Server, shared: Path) -> None:
    path = shared / "odd_cycle0.log"
    shutil.copy(LOGS / "type.log", path)
    assert submit(server, path, job_id="team a/run #7", analysis_intent="terminal")[0] == 200
    assert ask(server, path)[1]["status"] == "completed"
    assert [one["status"] for one in server.get("/jobs")["team a/run #7"]] == ["completed"]


def test_more_open_logs_than_are_read_at_once_close_the_oldest(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--nvrx-root", str(tmp_path)) as server:
        (tmp_path / "last.log").write_bytes((LOGS / "key.log").read_bytes())
        for number in range(1000):
            assert submit(server, tmp_path / f"{number}.log", analysis_intent="progressive")[0] == 200
        assert submit(server, tmp_path / "last.log", analysis_intent="terminal")[0] == 200
        assert ask(server, tmp_path / "last.log")[1]["recommendation"]["action"] == "RESTART"
        assert server.get("/stats")["restart_agent"]["progressive"]["state_evictions"] == 1
        assert ask(server, tmp_path / "0.log", wait="false")[1]["status"] != "pending"


def test_what_was_submitted_outlives_a_kill(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    done, later = shared / "done.log", shared / "later.log"
    for path in (done, later):
        shutil.copy(LOGS / "type.log", path)
    with Server(tmp_path / "data", "--nvrx-root", str(shared)) as server:
        submit(server, done, analysis_intent="terminal")
        assert ask(server, done)[1]["recommendation"]["action"] == "RESTART"
        submit(server, later, analysis_intent="progressive")
        server.kill()
        server.start()
        assert ask(server, done, wait="false")[1]["recommendation"]["action"] == "RESTART"
        submit(server, later, analysis_intent="terminal")
        assert ask(server, later)[1]["recommendation"]["action"] == "RESTART"


def test_other_networks_need_a_token(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--nvrx-root", str(tmp_path), "--nvrx-from", "10.0.0.0/8") as server:
        assert server.client.get("/stats").status_code == 200  # no token exists, and it listens on loopback
        import subprocess
        import sys

        subprocess.run(
            [sys.executable, "-m", "diagnose", "tokens", "create", "--data", str(tmp_path / "data"), "--role", "read", "a"],
            check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        server.stop()
        server.start()
        assert server.client.get("/stats").status_code == 401
        assert submit(server, tmp_path / "x.log")[0] == 401


def test_without_the_flag_there_is_nothing(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        assert server.client.post("/logs", json={"log_path": "/etc/passwd"}).status_code == 404
        assert "backend" not in server.get("/healthz")


@pytest.mark.parametrize(
    ("kind", "outcome", "action"),
    [
        ("fix_code", "failed", "STOP"),
        ("fix_config", "failed", "STOP"),
        ("restart", "failed", "RESTART"),
        ("isolate_and_restart", "failed", "RESTART"),
        ("rollback_and_skip", "failed", "RESTART"),
        ("retry_later", "failed", "RESTART"),
        ("none", "failed", "UNKNOWN"),
        ("none", "healthy", "CONTINUE"),
        ("fix_code", "running", "CONTINUE"),
    ],
)
def test_stop_is_said_only_where_a_restart_is_pointless(kind: str, outcome: str, action: str) -> None:
    report = {"outcome": outcome, "diagnosis": {"by": "rule", "summary": "s"}, "action": {"kind": kind, "why": "w"}}
    assert recommendation(report, came_back=True) == {"action": action, "reason": "s w", "source": "deterministic"}
    first = recommendation(report, came_back=False)["action"]
    assert first == ("RESTART" if action == "STOP" else action)


def test_no_report_is_no_advice() -> None:
    assert recommendation(None, came_back=False)["action"] == "UNKNOWN"
