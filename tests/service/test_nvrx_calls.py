"""All calls of the attribution service of NVIDIA's resiliency extension, and what is answered: status, keys and code.

What is expected was written down from their own service (backend ``lib``, commit d8686d9c of August 2026), asked the same.
Their wire says ``errorcode.not_found`` where their documents say ``not_found``.
We say what is documented, and so does this table.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support.servers import Server

pytestmark = pytest.mark.server
LOG = ROOT / "fixtures" / "logs" / "type.log"

SUBMITTED = {"submitted", "normalized_path", "mode", "logs_dir", "sched_restarts", "files_analyzed"}
ANSWERED = {
    "result", "status", "wl_restart", "wl_restart_count", "fr_dump_path", "fr_analysis", "llm_merged_summary",
    "recommendation", "candidate_recommendation",
    "recommendation.action", "recommendation.reason", "recommendation.source",
    "candidate_recommendation.action", "candidate_recommendation.reason", "candidate_recommendation.source",
}  # fmt: skip
WRONG = {"error_code", "message", "details"}
INVALID = {"detail", "detail[].type", "detail[].loc", "detail[].msg", "detail[].input"}
COUNTS = {f"restart_agent.attempts.{stage}" for stage in ("registered", "analyzing", "completed", "failed")}
CONFIG = {"config_id", "config_version", "config_fingerprint"}
HEALTH = {"status", "backend", "issues", "restart_agent", *COUNTS, *(f"restart_agent.{word}" for word in CONFIG)}
STATS = {
    "backend",
    *COUNTS,
    *(f"restart_agent.config.{word}" for word in CONFIG),
    *(
        f"restart_agent.{word}"
        for word in (
            "deterministic_ready", "route_complete", "execution_errors", "registry_evictions", "history_record_count",
            "terminal_timing", "progressive", "progressive.policy", "progressive.states", "progressive.active_state_count",
            "progressive.state_evictions", "progressive.bytes_ingested", "progressive.bytes_reread",
        )
    ),
}  # fmt: skip
TIMED = {
    *STATS,
    *(
        f"restart_agent.terminal_timing.{word}"
        for word in (
            "job_id", "cycle_id", "drain_wall_clock_s", "l0a_ready_wall_clock_s", "deterministic_ready_wall_clock_s",
            "first_route_ready_wall_clock_s", "analysis_completed_wall_clock_s",
        )
    ),
}  # fmt: skip
LISTED = {"cycle_id", "log_path", "status", "progressive_phase"}


@dataclass(frozen=True)
class Call:
    """One request, and what their service answers."""

    method: str
    where: str
    given: dict[str, Any]
    """the body of a POST, the parameters of a GET; a path that begins with ``@`` lies in the folder that both sides see"""
    status: int
    keys: frozenset[str]
    code: str | None = None
    ours: tuple[int, set[str], str | None] | None = None
    """what we answer instead, on purpose"""

    def __str__(self) -> str:
        return f"{self.method} {self.where} {self.given}"


Ours = tuple[int, set[str], str | None] | None


def post(status: int, keys: set[str], code: str | None = None, ours: Ours = None, **given: Any) -> Call:
    return Call("POST", "/logs", given, status, frozenset(keys), code, ours)


def get(where: str, status: int, keys: set[str], code: str | None = None, ours: Ours = None, **given: Any) -> Call:
    return Call("GET", where, given, status, frozenset(keys), code, ours)


ANOTHER = (200, SUBMITTED, None)
"""a job may be started again with another number and the same paths: that begins a new attempt, and is no mistake"""
NOT_REGULAR = (400, WRONG, "not_regular")
"""their documents have this code; their service takes such a path and fails later"""
BROKEN = (400, WRONG, "invalid_path")
"""their service fails inside"""

CALLS = [
    get("/healthz", 200, HEALTH),
    get("/healthz", 200, HEALTH, pretty="true"),
    get("/healthz", 200, HEALTH, indent=4),
    get("/stats", 200, STATS),
    get("/stats", 200, STATS, pretty="true"),
    get("/inflight", 200, {"count", "paths"}),
    get("/inflight", 200, {"count", "paths"}, indent=1),
    get("/jobs", 200, set()),
    get("/openapi.json", 200, {"openapi", "info", "paths", "components"}),
    # What was not submitted, or cannot be asked.
    get("/logs", 404, WRONG, "not_found", log_path="@a.log"),
    get("/logs", 404, WRONG, "not_found", log_path="@a.log", wait="false"),
    get("/logs", 404, WRONG, "not_found", log_path="@absent.log"),
    get("/logs", 422, INVALID),
    get("/logs", 422, INVALID, log_path=""),
    get("/logs", 400, WRONG, "invalid_path", log_path="a.log"),
    get("/logs", 403, WRONG, "outside_root", log_path="/etc/passwd"),
    get("/logs", 422, INVALID, log_path="@a.log", wait="maybe"),
    get("/logs", 400, WRONG, "invalid_parameter", log_path="@a.log", file="x"),
    get("/logs", 400, WRONG, "invalid_parameter", log_path="@a.log", wl_restart=0),
    get("/logs", 422, INVALID, log_path="@a.log", wl_restart=-1),
    # Only tracked.
    post(200, SUBMITTED, log_path="@a.log"),
    post(200, SUBMITTED, log_path="@a.log"),
    get("/jobs", 200, {"unknown", *(f"unknown[].{word}" for word in LISTED)}),
    get("/logs", 200, ANSWERED, log_path="@a.log", wait="false"),
    get("/logs", 200, ANSWERED, log_path="@a.log", wait="true"),
    get("/logs", 400, WRONG, "invalid_parameter", log_path="@a.log", file="x"),
    post(200, SUBMITTED, log_path="@a.log", job_id=""),
    post(200, SUBMITTED, log_path="@a.log", extra=1),
    post(400, WRONG, "invalid_parameter", ANOTHER, log_path="@a.log", job_id="17"),
    post(400, WRONG, "invalid_parameter", ANOTHER, log_path="@a.log", job_id="18"),
    post(400, WRONG, "invalid_parameter", ANOTHER, log_path="@a.log", job_id="18", cycle_id=4),
    # Progressive.
    post(200, SUBMITTED, log_path="@b_cycle3.log", job_id="pj", analysis_intent="progressive", user="kim"),
    get("/logs", 200, ANSWERED, log_path="@b_cycle3.log", wait="false"),
    post(400, WRONG, "invalid_parameter", log_path="@c_cycle0.log", job_id="pj", cycle_id=3),
    post(200, SUBMITTED, log_path="@later_cycle4.log", job_id="pj", analysis_intent="progressive"),
    get("/logs", 200, ANSWERED, log_path="@later_cycle4.log", wait="false"),
    post(404, WRONG, "not_found", log_path="@no/later.log", analysis_intent="progressive"),
    # Terminal.
    post(200, SUBMITTED, log_path="@slurm-771.out", analysis_intent=" Terminal "),
    get("/logs", 200, ANSWERED, log_path="@slurm-771.out", wait="false"),
    post(200, SUBMITTED, log_path="@slurm-771.out", analysis_intent="terminal"),
    get("/logs", 200, ANSWERED, log_path="@slurm-771.out"),
    get("/logs", 200, ANSWERED, log_path="@slurm-771.out", wait="false"),
    get("/stats", 200, TIMED),
    get("/healthz", 200, HEALTH),
    get("/jobs", 200, {"771", *(f"771[].{word}" for word in LISTED), "pj", *(f"pj[].{word}" for word in LISTED)}),
    post(200, SUBMITTED, log_path="@slurm-771.out", analysis_intent="terminal"),
    post(200, SUBMITTED, log_path="@slurm-771.out"),
    get("/logs", 200, ANSWERED, log_path="@slurm-771.out", wait="false"),
    # Paths that are none.
    *(
        call
        for path, status, code, ours in (
            ("a.log", 400, "invalid_path", None),
            ("", 400, "invalid_path", None),
            ("/etc/passwd", 403, "outside_root", None),
            ("@../../../../../../etc/passwd", 403, "outside_root", None),
            ("@link.log", 403, "outside_root", None),
            ("@a.log/x.log", 400, "invalid_path", None),
            ("@dir", 200, None, NOT_REGULAR),
            ("@pipe.log", 200, None, NOT_REGULAR),
            ("@.", 200, None, NOT_REGULAR),
            ("@a\0b", 500, "internal_error", BROKEN),
        )
        for call in (
            post(status, SUBMITTED if status == 200 else WRONG, code, ours, log_path=path),
            post(status, SUBMITTED if status == 200 else WRONG, code, ours, log_path=path, analysis_intent="terminal"),
        )
    ),
    post(200, SUBMITTED, log_path="@empty.log"),
    post(200, SUBMITTED, log_path="@empty.log", analysis_intent="terminal"),
    # Bodies that are none.
    post(422, INVALID),
    post(422, INVALID, log_path=7),
    post(422, INVALID, log_path="@a.log", cycle_id="1"),
    post(422, INVALID, log_path="@a.log", cycle_id=True),
    post(422, INVALID, log_path="@a.log", analysis_intent="now"),
    post(422, INVALID, log_path="@a.log", user=None),
    # A cycle is a count: attempts are numbered by it.
    post(200, SUBMITTED, None, (422, INVALID, None), log_path="@n.log", cycle_id=-1),
    # Any text may name a job.
    post(200, SUBMITTED, log_path="@odd.log", job_id="a b/c"),
    post(200, SUBMITTED, log_path="@long.log", job_id="x" * 300),
    # The beginning of a log, as text.
    get("/print", 200, set(), log_path="@a.log"),
    get("/print", 200, set(), log_path="@empty.log"),
    get("/print", 404, WRONG, "not_found", log_path="@absent.log"),
    get("/print", 400, WRONG, "invalid_path", log_path="a.log"),
    get("/print", 400, WRONG, "invalid_path", log_path=""),
    get("/print", 400, WRONG, "invalid_path", log_path="@a\0b"),
    get("/print", 403, WRONG, "outside_root", log_path="/etc/passwd"),
    get("/print", 403, WRONG, "outside_root", log_path="@link.log"),
    get("/print", 400, WRONG, "not_regular", log_path="@dir"),
    get("/print", 400, WRONG, "not_regular", log_path="@pipe.log"),
    get("/print", 400, WRONG, "not_regular", log_path="@."),
    get("/print", 422, INVALID),
]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The folder that both sides see."""
    folder = tmp_path / "shared"
    (folder / "dir").mkdir(parents=True)
    for name in ("a.log", "b_cycle3.log", "c_cycle0.log", "slurm-771.out"):
        shutil.copy(LOG, folder / name)
    (folder / "empty.log").touch()
    (folder / "link.log").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe.log")
    return folder


@pytest.fixture
def server(shared: Path, tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", "--nvrx-root", str(shared)) as running:
        yield running


def answered(server: Server, shared: Path, call: Call) -> tuple[int, Any]:
    given = {key: f"{shared}/{value[1:]}" if str(value).startswith("@") else value for key, value in call.given.items()}
    if call.method == "POST":
        answer = server.client.post(call.where, json=given, timeout=100)
    else:
        answer = server.client.get(call.where, params=given, timeout=100)
    kind = answer.headers["content-type"].split(";")[0]
    assert kind == ("text/plain" if call.where == "/print" and answer.status_code == 200 else "application/json"), call
    return answer.status_code, answer.json() if kind == "application/json" else answer.text


def keys_of(body: Any, before: str = "") -> set[str]:
    """All keys, with those above them: ``detail[].loc``."""
    found: set[str] = set()
    if isinstance(body, dict):
        for key, value in body.items():
            name = f"{before}.{key}" if before else key
            found |= {name, *keys_of(value, name)}
    elif isinstance(body, list):
        for value in body:
            found |= keys_of(value, f"{before}[]")
    return found


def test_all_calls_are_answered_as_theirs_are(server: Server, shared: Path) -> None:
    differ = []
    for call in CALLS:
        status, keys, code = call.ours or (call.status, call.keys, call.code)
        got, body = answered(server, shared, call)
        missing = sorted(keys - keys_of(body))
        said = body.get("error_code") if isinstance(body, dict) else None
        if (got, said) != (status, code) or missing:
            differ.append(f"{call}: {got} {said}, not {status} {code}; without {missing}")
    assert not differ, "\n".join(differ)
    assert sum(call.ours is None for call in CALLS) >= 0.8 * len(CALLS)
