"""The model's side of the running service: a real process, a real socket, an endpoint that says what a test wants."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnose.knowledge.rules import Example, Rule
from diagnose.learning.learned_rule import LearnedRule
from diagnose.learning.rule_store import RuleStore
from service.store import Store
from service.store.quotas import limit
from tests.conftest import Run
from tests.diagnose.agent.test_explain import LAUNCHER, NOTHING_MORE, STALE, UNEXPLAINED, asked, cause
from tests.diagnose.model.test_model import Endpoint, Fault, endpoint  # noqa: F401 - a fixture
from tests.support.servers import Server

pytestmark = pytest.mark.server


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres").database(f"brain{time.time_ns()}"))
    return f"sqlite:///{tmp_path / 'x.db'}"


def serving(tmp_path: Path, database: str, *words: str) -> Server:
    quick = {"DIAGNOSE_SERVE_LESSON_S": "0.5", "DIAGNOSE_LLM_KEY": "none"}
    return Server(tmp_path / "data", "--database", database, *words, **quick)


def until(what: Callable[[], Any], within_s: float = 60.0) -> Any:
    """What it is as soon as it is something."""
    deadline = time.monotonic() + within_s
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
    return found


def lanes(first: int, count: int) -> bytes:
    return b"".join(b"lane keeper chose lane %d for bucket b%d\n" % (n, n % 7) for n in range(first, first + count))


def learned(server: Server, state: str) -> list[Any]:
    return list(server.get("/v1/rules", state=state)["rules"])


def says(body: dict[str, Any], k: int) -> str:
    return NOTHING_MORE if asked(body) == "failure-read" else cause(body, "came up short")


# --- rules of regular output


def test_a_rule_is_learned_from_a_live_job_and_no_line_is_lost_or_doubled(tmp_path: Path, database: str) -> None:
    with serving(tmp_path, database, "--learn") as server:
        at, block = 0, 3000
        data = b""

        def push() -> bool:
            nonlocal at, data
            piece = lanes(at, block)
            server.push("run", piece, source="log", offset=len(data))
            at += block
            data += piece
            time.sleep(0.3)
            return bool(learned(server, "active"))

        until(push)
        (rule,) = learned(server, "active")
        assert rule["provenance"]["by"] == "miner"
        server.push("run", b"KeyError: 'a line that is no lane'\n", source="log", offset=len(data))
        data += b"KeyError: 'a line that is no lane'\n"

        def dropped() -> bool:
            before = server.get("/v1/jobs/run")["attempts"][0]
            push()
            after = server.get("/v1/jobs/run")["attempts"][0]
            return bool(after["lines_in"] == before["lines_in"] + block and after["lines_kept"] == before["lines_kept"])

        until(dropped)
        server.kill()
        server.start()
        sent = server.get("/v1/jobs/run/sources")["sources"][0]["received"]
        assert sent == len(data)
        push()
        server.end("run", 1)
        until(lambda: server.get("/v1/jobs/run")["attempts"][0]["ended_at"])
        attempt = server.get("/v1/jobs/run")["attempts"][0]
        assert attempt["lines_in"] == data.count(b"\n")
        assert attempt["lines_kept"] + sum(attempt["dropped"].values()) == attempt["lines_in"]
        kept = [line["line"] for line in server.lines("run")]
        assert len(kept) == len(set(kept)) == attempt["lines_kept"]
        assert "no lane" in server.get("/v1/jobs/run/report")["diagnosis"]["root_cause"]["text"]
        # Another job of this kind has the rule as soon as it is known to be one.
        again = b""

        def has_it() -> bool:
            nonlocal again
            piece = lanes(len(again), 8000)
            server.push("again", piece, source="log", offset=len(again))
            again += piece
            time.sleep(0.5)
            return bool(server.get("/v1/jobs/again")["attempts"][0]["dropped"])

        until(has_it)
        metrics = server.client.get("/metrics").text
        assert 'diagnose_learning_lines_total{result="fed"}' in metrics


def test_rules_are_promoted_and_retired_by_administrators_and_at_work_at_once(tmp_path: Path, database: str) -> None:
    store = Store(database)
    store.migrate()
    shown, missed = (Example("lane keeper chose lane 3 for bucket b3"),), (Example("lane keeper chose lane 3"),)
    pattern = r"^lane keeper chose lane \d+ for bucket b\d+$"
    shape = Rule("lanes", "filters", pattern, kind="debug", matches=shown, misses=missed)
    RuleStore(store).add(LearnedRule(shape, "shadow"))
    RuleStore(store).add(LearnedRule(replace(shape, id="wide", pattern="^.*$"), "retired"))
    store.close()
    with serving(tmp_path, database) as server:

        def kept(job: str) -> int:
            server.push(job, lanes(0, 100), source="log", offset=0)
            return int(server.get(f"/v1/jobs/{job}/report")["compression"]["lines_kept"])

        assert kept("before") == 100
        row = server.client.post("/v1/rules/lanes/promote", json={"why": "I know them"}).json()
        assert (row["state"], row["scope"], row["why"]) == ("active", "global", "I know them")
        assert kept("during") == 0
        assert server.client.post("/v1/rules/lanes/retire").json()["state"] == "retired"
        assert kept("after") == 100
        assert server.client.post("/v1/rules/lanes/promote").json()["why"] == "promoted by local"
        server.kill()
        server.start()
        assert kept("restarted") == 0
        assert server.client.post("/v1/rules/nothing/retire").status_code == 404
        refused = server.client.post("/v1/rules/wide/promote")
        assert (refused.status_code, "catch-all" in refused.text) == (409, True)
    store = Store(database)
    from service.store import tables as t

    what = store.read(lambda c: [row.what for row in c.execute(t.audit.select().order_by(t.audit.c.id))])
    store.close()
    assert what == ["rule.promoted", "rule.retired", "rule.promoted"]


# --- causes


def fail(server: Server, job: str, text: str = UNEXPLAINED) -> None:
    server.push(job, text.encode(), source="log", offset=0)
    server.end(job, 1)


def test_the_rules_answer_comes_first_and_the_agents_when_it_comes(
    tmp_path: Path,
    database: str,
    endpoint: Endpoint,  # noqa: F811
) -> None:
    endpoint.text = says
    endpoint.always = Fault(hang=True)
    with serving(tmp_path, database, "--llm", endpoint.url) as server:
        began = time.monotonic()
        # Not the log of another run of this test: its answer may be in the cache.
        fail(server, "odd", UNEXPLAINED.replace("bye", f"bye {time.time_ns()}"))
        first = server.get("/v1/jobs/odd/report")
        assert time.monotonic() - began < 10, "it did not wait for the model"
        assert (first["diagnosis"]["reason"], first["diagnosis"]["by"]) == ("unknown", "none")
        until(endpoint.arrived.is_set)
        server.kill()  # in the middle of the question
        endpoint.always = None
        store = Store(database)
        store.write(lambda connection: limit(connection, "poor", {"tokens": 0}))
        store.close()
        server.start()
        second = until(lambda: (r := server.get("/v1/jobs/odd/report"))["diagnosis"]["by"] == "agent" and r)
        assert second["diagnosis"]["reason"] == "storage_error"
        assert second["diagnosis"]["root_cause"]["text"] == STALE
        assert second["agent"]["model"] == "tiny"
        assert second["metrics"]["loss"]["count"] == first["metrics"]["loss"]["count"]
        assert second["metrics"]["loss"]["points"] == first["metrics"]["loss"]["points"]
        rules = server.get("/v1/jobs/odd/report", version="rules")
        assert rules["diagnosis"] == first["diagnosis"]
        (group,) = [one for one in server.get("/v1/failures")["failures"] if one["count"]]
        assert (group["reason"], group["count"]) == ("storage_error", 1)
        assert server.get("/v1/jobs")["jobs"][0]["reason"] == "storage_error"
        # Exit code 1 and a log that looks well: asked about too.
        fail(server, "quiet", f"step 1\nFlashStore came up short {time.time_ns()}\nall is well\n")
        until(lambda: server.get("/v1/jobs/quiet/report")["diagnosis"]["by"] == "agent")
        # What rules are sure of is asked about too, and stands against a model that nobody has seen before.
        fail(server, "sure", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
        sure = until(lambda: found if (found := server.get("/v1/jobs/sure/report"))["agent"] else None)
        assert (sure["diagnosis"]["by"], sure["diagnosis"]["reason"]) == ("rule", "gpu_fell_off_bus")
        # A project whose budget is used up keeps the rules' answer.
        fail(server, "poor~odd", UNEXPLAINED)
        until(lambda: 'diagnose_project_refused_total{project="poor",quota="tokens"} 1.0' in server.client.get("/metrics").text)
        assert server.get("/v1/jobs/poor~odd/report")["diagnosis"]["by"] == "none"
        metrics = server.client.get("/metrics").text
        assert 'diagnose_agent_questions_total{result="replaced"} 2.0' in metrics
        assert 'diagnose_project_model_tokens_total{project="default"}' in metrics


def test_an_endpoint_that_is_down_leaves_the_rules_answer(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'x.db'}"
    with serving(tmp_path, database, "--llm", "http://127.0.0.1:9/v1", "--learn") as server:
        fail(server, "odd")
        assert server.get("/v1/jobs/odd/report")["diagnosis"]["reason"] == "unknown"
        report = until(lambda: (r := server.get("/v1/jobs/odd/report"))["agent"] and r)
        assert report["diagnosis"]["reason"] == "unknown"
        assert any("gave no usable answer" in note for note in report["diagnosis"]["notes"])


# --- what persons say


def test_a_correction_becomes_a_rule_that_knows_the_failure_the_next_time(tmp_path: Path, database: str, diagnose: Run) -> None:
    failure = f"step 1\nFlashStore refused lease 4711 on vol7: epoch behind\nbye\n{LAUNCHER}\n"
    with serving(tmp_path, database) as server:
        fail(server, "one", failure)
        assert server.get("/v1/jobs/one/report")["diagnosis"]["reason"] == "unknown"
        told = {"category": "infrastructure", "reason": "storage_error", "source": "log", "line": 2, "note": "a\tb"}
        assert server.client.post("/v1/jobs/one/corrections", json=told).status_code == 201
        server.kill()  # before anything was learned, or in the middle of it
        server.start()
        lesson = until(lambda: server.get("/v1/corrections")["corrections"][0]["lesson"])
        (rule,) = learned(server, "shadow")
        assert lesson["rule"] == rule["id"]
        assert (rule["reason"], rule["provenance"]["confirmed"]) == ("storage_error", "person")
        for number in range(3):  # it must keep silent on jobs that go well
            server.push(f"well{number}", b"step 1\nall went well\n", source="log", offset=0)
            server.end(f"well{number}", 0)
        until(lambda: learned(server, "active"))
        again = failure.replace("4711", "42").replace("vol7", "vol9")

        def known() -> bool:
            job = f"two{time.time_ns()}"
            fail(server, job, again)
            diagnosis = server.get(f"/v1/jobs/{job}/report")["diagnosis"]
            return bool(diagnosis["reason"] == "storage_error" and diagnosis["by"] == "rule" and diagnosis["rule"])

        until(known)
        # A run that went well with such a line in it speaks against the rule.
        server.push("fine", again.replace(f"{LAUNCHER}\n", "").encode(), source="log", offset=0)
        server.end("fine", 0)
        server.client.post("/v1/jobs/fine/corrections", json={"category": "none", "reason": "healthy"})
        until(lambda: not learned(server, "active"))

        with tarfile.open(fileobj=io.BytesIO(server.client.get("/v1/corrections/corpus").content)) as tar:
            tar.extractall(tmp_path / "corpus")  # our own; the argument filter came with 3.11.4
    labels = (tmp_path / "corpus" / "labels.tsv").read_text().splitlines()
    assert [line.split("\t")[2] for line in labels[1:]] == ["healthy", "storage_error"]
    done = diagnose("eval", "--json", str(tmp_path / "corpus"))
    assert json.loads(done.stdout)["whole"]["cases"] == 2, done.stdout[:500]
