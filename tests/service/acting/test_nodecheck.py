"""What node checks said, in the service: stored, a second signal for decisions, and told by the command line."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from diagnose.cli import nodes as command
from diagnose.decision.policy import ISOLATE, RELEASE
from diagnose.errors import DiagnoseError
from service.store import Store, nodechecks, pages, reading, training
from service.store.history import cluster
from service.store.nodechecks import Check, Checked
from tests.service.acting.test_actions import OPERATOR, Desk, failed, policy
from tests.service.store.test_store import report
from tests.support.servers import Server

HOUR = 3600.0
VERDICT: dict[str, Any] = {
    "schema": "diagnose.nodecheck/1",
    "kind": "verdict",
    "rounds": 2,
    "good": ["gpu-1", "gpu-2"],
    "faulty": ["gpu-3"],
    "slow": ["gpu-4"],
    "suspects": ["gpu-5"],
    "links": [["gpu-1", "gpu-2"]],
    "why": {"gpu-3": "failed twice, with gpu-1 and gpu-2", "gpu-4": "its matmul took 9 s", "gpu-5": "alone"},
    "notes": [],
}


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, policy(tmp_path, "mode: approve"))


def checked(desk: Desk, *nodes: Checked, at: float | None = None) -> None:
    when = desk.clock.now if at is None else at
    desk.run(desk.actions.take_check(Check(when, nodes, 2), "kim"))


def good(*names: str) -> list[Checked]:
    return [Checked(name, "good") for name in names]


def many(count: int = 30) -> list[Checked]:
    """So many that one may be taken out."""
    return good(*(f"n{number:02}" for number in range(count)))


def state(desk: Desk, node: str) -> str:
    found = desk.store.read(lambda connection: reading.node(connection, node))
    assert found is not None
    return str(found["state"])


def carried_out(desk: Desk, action: int) -> None:
    desk.clock.now += 60
    taken = desk.run(desk.actions.claim(action, "slurm"))
    desk.run(desk.actions.begin(action, "slurm", taken.fence))
    desk.run(desk.actions.finish(action, "slurm", taken.fence, True, "done"))


def test_a_faulty_node_is_proposed_for_isolation_once(desk: Desk) -> None:
    for _ in range(2):  # the answer to the first may have been lost
        checked(desk, *many(), Checked("bad", "faulty", "failed twice"), at=desk.clock.now)
    (row,) = desk.rows()
    assert (row["kind"], row["nodes"], row["state"], row["mode"]) == (ISOLATE, ["bad"], "proposed", "approve")
    assert "found it faulty" in row["why"]
    assert state(desk, "bad") == "suspect"
    (told,) = desk.store.read(lambda connection: nodechecks.of_node(connection, "bad"))
    assert (told["result"], told["why"], told["who"], told["tested"]) == ("faulty", "failed twice", "kim", 31)
    trail = desk.store.read(lambda connection: pages.actions.trail(connection, "node/bad"))
    assert trail[0]["what"] == "decided.isolate"
    assert trail[0]["detail"]["evidence"]["signals"][0]["name"] == "check-faulty"


def test_a_weak_word_of_a_check_needs_a_second_one(desk: Desk) -> None:
    checked(desk, *many(), Checked("slow", "slow", "its matmul took 9 s"))
    assert desk.rows() == []
    failed(desk, made=report("ecc_error", nodes=("slow",)))
    desk.clock.now += 60
    checked(desk, *many(), Checked("slow", "slow", "its matmul took 9 s"))
    assert [(row["kind"], row["nodes"]) for row in desk.rows() if row["kind"] == ISOLATE] == [(ISOLATE, ["slow"])]


def test_a_check_is_the_second_signal_of_a_diagnosis(desk: Desk) -> None:
    failed(desk, "first", made=report("ecc_error", nodes=("n01",)))
    checked(desk, *many(), Checked("n01x", "good"))
    checked(desk, *good("n00"), Checked("n01", "suspect", "alone"), at=desk.clock.now + 1)
    desk.clock.now += 60
    seen = desk.store.read(lambda connection: cluster(connection, desk.clock.now))
    assert [(one.node, one.result) for one in seen.checks if one.node == "n01" and one.result != "good"] == [("n01", "suspect")]
    desk.decide()
    evidence = desk.store.read(lambda connection: pages.actions.trail(connection, "job/first"))[0]["detail"]["evidence"]
    assert {one["name"] for one in evidence["signals"]} >= {"diagnosis", "check-suspect"}


def test_checks_together_keep_to_the_blast_radius(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, policy(tmp_path, "mode: auto"))
    bad = [Checked(f"bad{number}", "faulty", "failed twice") for number in range(20)]
    checked(desk, *many(80), *bad)
    rows = [row for row in desk.rows() if row["kind"] == ISOLATE]
    assert {row["state"] for row in rows} == {"approved"}
    assert len(rows) == desk.actions.policy.limits.isolations_per_hour


def test_a_node_that_passes_comes_back_when_its_time_has_come(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, policy(tmp_path, "mode: auto"))
    checked(desk, *many(), Checked("bad", "faulty", "failed twice"))
    (row,) = desk.rows()
    carried_out(desk, row["id"])
    assert state(desk, "bad") == "isolated"
    desk.clock.now += 60
    checked(desk, *good("n00", "n01", "bad"))
    assert len(desk.rows()) == 1  # it was taken out just now
    desk.clock.now += desk.actions.policy.limits.node_cool_down_s
    desk.run(desk.actions.decide_nodes())
    desk.run(desk.actions.decide_nodes())
    back = desk.rows()[0]
    assert (len(desk.rows()), back["kind"], back["state"]) == (2, RELEASE, "approved")
    carried_out(desk, back["id"])
    assert state(desk, "bad") == "ok"


def test_what_a_person_refused_is_asked_again_by_a_later_check_only(desk: Desk) -> None:
    checked(desk, *many(), Checked("bad", "faulty", "failed twice"))
    (row,) = desk.rows()
    desk.run(desk.actions.reject(row["id"], "kim", OPERATOR, "it is being repaired"))
    checked(desk, *many(), Checked("bad", "faulty", "failed twice"), at=desk.clock.now)
    assert len(desk.rows()) == 1
    desk.clock.now += HOUR
    checked(desk, *many(), Checked("bad", "faulty", "failed twice"))
    assert [one["state"] for one in desk.rows()] == ["proposed", "rejected"]


def test_a_check_clears_a_suspicion_that_is_older(desk: Desk) -> None:
    failed(desk, made=report("ecc_error", nodes=("n01",)))
    assert state(desk, "n01") == "suspect"
    checked(desk, *good("n00", "n01"), at=desk.clock.now - 60)
    assert state(desk, "n01") == "suspect"
    desk.clock.now += 60
    checked(desk, *good("n00", "n01"))
    assert state(desk, "n01") == "ok"


def test_what_the_pages_ask_both_databases_answer_alike(desk: Desk) -> None:
    opened = failed(desk, "first", made=report("ecc_error", nodes=("n01",)))
    desk.decide()
    checked(desk, *many(), Checked("bad", "faulty", "failed twice"))
    now = desk.clock.now
    values = {"step": 10, "path": "/c/10", "healthy": False, "at": now}
    desk.store.write(lambda connection: training.reports.checkpoint(connection, opened.attempt_id, **values))
    whole = pages.asked.Asked(now - HOUR, now + 1)
    every = [
        whole,
        *(replace(whole, **{name: value}) for name, value in (
            ("user", "kim"), ("category", "infrastructure"), ("reason", "ecc_error"), ("node", "n01"))),
    ]  # fmt: skip
    none = [replace(whole, **{name: "other"}) for name in ("cluster", "user", "category", "reason", "node")]

    def read(connection: Connection) -> list[Any]:
        job = reading.job(connection, "first")
        assert job is not None
        (lane,) = pages.timeline.lanes(connection, job["attempts"])
        return [
            [_shown(connection, asked) for asked in every],
            [_shown(connection, asked) for asked in none],
            [row["name"] for row in pages.nodes.some_nodes(connection, limit=9, name=None, state=None, check="faulty")],
            len(pages.nodes.some_nodes(connection, limit=99, name=None, state=None, check="none")),
            nodechecks.latest(connection)["bad"]["result"],
            [(mark.step, mark.state, mark.told_by) for mark in lane.marks],
            [
                (row["kind"], row["title"])
                for row in pages.actions.some_actions(connection, limit=9, state="proposed", before=None)
            ],
            pages.failures.reach(connection, 1),
            pages.jobs.suspects_of(connection, [opened.attempt_id]),
            pages.rules.explained(connection),
        ]

    found = desk.store.read(read)
    assert found[0] == [(1, 1, 2, 2, 1)] + [(1, 1, 1, 1, 1)] * 4
    assert found[1] == [(0, 0, 0, 0, 0)] * 5
    assert found[2:6] == [["bad"], 1, "faulty", [(10, "spoilt", "api")]]
    assert [kind for kind, _ in found[6]] == [ISOLATE, "restart"]  # one word against n01 is too few
    assert found[7:] == [{"job_count": 1, "user_count": 1, "node_count": 1}, {opened.attempt_id: ["n01"]}, {}]


def _shown(connection: Connection, asked: pages.asked.Asked) -> tuple[int, ...]:
    """(failures, open groups, actions that wait by figure and by list, reasons) of the overview."""
    figures = pages.totals.figures(connection, asked, 0.0)
    waiting = pages.actions.to_approve(connection, asked, 9)
    assert len(pages.failures.incidents(connection, asked, 9)) == figures.open
    return figures.failures, figures.open, figures.waiting, len(waiting), len(pages.totals.by_reason(connection, asked))


@pytest.mark.server
def test_over_http(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        at = time.time() - 60
        for _ in range(2):
            answer = server.client.post("/v1/nodes/checks", json={**VERDICT, "time": at, "later": "left aside"})
            assert answer.status_code == 201, answer.text
        assert answer.json() == {"at": at, "good": 2, "slow": ["gpu-4"], "suspect": ["gpu-5"], "faulty": ["gpu-3"]}
        checks = server.get("/v1/nodes/gpu-3")["checks"]
        assert [(one["at"], one["result"], one["why"]) for one in checks] == [(at, "faulty", VERDICT["why"]["gpu-3"])]
        assert "the way between" in server.get("/v1/nodes/gpu-1")["checks"][0]["why"]
        assert {row["name"]: row["state"] for row in server.get("/v1/nodes")["nodes"]} == {
            "gpu-1": "ok", "gpu-2": "ok", "gpu-3": "suspect", "gpu-4": "suspect", "gpu-5": "suspect",
        }  # fmt: skip
        hostile = {
            **VERDICT,
            "good": [],
            "links": [],
            "why": {"gpu-3": "\x00\x1b[2J password=hunter2secret \u202e"},
            "time": 9e11,
        }
        answer = server.client.post(
            "/v1/nodes/checks", content=json.dumps(hostile).encode(), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 201, answer.text
        assert answer.json()["at"] < time.time() + 1  # a clock that goes ahead is not believed
        assert "hunter2secret" not in server.get("/v1/nodes/gpu-3")["checks"][0]["why"]


@pytest.mark.server
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"schema": "diagnose.nodecheck.accuse/2"}, 422),
        ({"kind": "test"}, 422),
        ({"good": ["gpu-3"]}, 409),
        ({"good": [], "faulty": [], "slow": [], "suspects": []}, 409),
        ({"good": ["a\0b"]}, 422),
        ({"good": [""]}, 422),
        ({"time": -1}, 422),
    ],
)
def test_what_is_no_verdict_is_refused(server: Server, change: dict[str, Any], status: int) -> None:
    answer = server.client.post("/v1/nodes/checks", json={**VERDICT, **change})
    assert answer.status_code == status, answer.text
    assert answer.json()["remedy"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Server(tmp_path_factory.mktemp("checks") / "data") as running:
        yield running


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return parser.parse_args(["check", *words])


@pytest.mark.server
def test_the_command_tells_the_service(server: Server) -> None:
    told = {**VERDICT, "good": ["told-1"], "links": [], "why": {"gpu-3": "it said \udcff\x00"}}  # bytes that are no text
    command._tell(command.destination(arguments("--to", server.url)), told)
    assert server.get("/v1/nodes/told-1")["checks"][0]["result"] == "good"
    assert "it said" in server.get("/v1/nodes/gpu-3")["checks"][0]["why"]


@pytest.mark.server
def test_the_command_says_that_it_was_not_stored(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    gone = command.destination(arguments("--to", "http://127.0.0.1:9"))
    with pytest.raises(DiagnoseError, match="the check was not stored"):
        command._tell(gone, VERDICT)
    with pytest.raises(DiagnoseError, match="no node was tested"):
        command._tell(
            command.destination(arguments("--to", server.url)),
            {**VERDICT, "good": [], "faulty": [], "slow": [], "suspects": []},
        )
