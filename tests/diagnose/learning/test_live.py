"""Live learning: rules come into a running job, nothing waits, and what is proposed survives."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose.job import Job
from diagnose.knowledge.rules import Example, Rule, RuleSet, load
from diagnose.learning import live as module
from diagnose.learning.learned_rule import Counts, Learned
from diagnose.learning.live import Learner
from diagnose.learning.sqlite import SqliteBook
from diagnose.matching.matcher import Matcher
from diagnose.model.settings import Settings
from diagnose.reading.sources import Source

FAILURES = RuleSet.of(rule for rule in load() if rule.family == "failures")


def job() -> Job:
    return Job("job", [Source("log", None)], Matcher(FAILURES))


def lanes(first: int, count: int) -> bytes:
    return b"".join(b"lane keeper chose lane %d for bucket b%d\n" % (n, n % 7) for n in range(first, first + count))


def test_a_rule_is_learned_while_the_job_runs_and_drops_its_lines_from_then_on(tmp_path: Path) -> None:
    running = job()
    learner = Learner(str(tmp_path / "b.db"), running.compression.matcher, "job")
    deadline = time.monotonic() + 90
    at = 0
    while not learner.heard.active and time.monotonic() < deadline:
        learner.feed(running.feed(0, lanes(at, 50)))
        at += 50
        time.sleep(0.2)
    before = running.compression.counts.lines_kept
    running.feed(0, lanes(at, 500))
    assert running.compression.counts.lines_kept == before
    heard = learner.close(running.compression.counts.dropped)
    (name,) = heard.active
    assert heard.missed == 0
    (known,) = SqliteBook(tmp_path / "b.db").rules("active")
    assert known.rule.id == name
    assert known.matched >= 500


def test_an_active_rule_that_meets_evidence_is_taken_out(tmp_path: Path) -> None:
    book = SqliteBook(tmp_path / "b.db")
    bad = Rule("bad", "filters", r"^lane keeper \d+ .*$", kind="debug", matches=(Example("lane keeper 3 is up"),))
    book.add(Learned(bad, "active", "global"))
    running = Job("job", [Source("log", None)], Matcher(RuleSet.of([*FAILURES, bad])))
    running.feed(0, b"lane keeper 1 is up\n")
    assert running.compression.counts.lines_kept == 0
    learner = Learner(str(tmp_path / "b.db"), running.compression.matcher, "job")
    learner.feed(running.feed(0, b"lane keeper 2 CUDA error: an illegal memory access was encountered\n"))
    heard = learner.close()
    assert heard.retired == ["bad"]
    for thread in threading.enumerate():
        if thread.name == "absorb-rules":
            thread.join()
    kept = running.compression.counts.lines_kept
    running.feed(0, b"lane keeper 3 is up\n")
    assert running.compression.counts.lines_kept == kept + 1


def test_a_rule_of_another_workload_is_not_sent_before_it_was_clean_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = SqliteBook(tmp_path / "b.db")
    theirs = Rule("theirs", "filters", r"^lane keeper \d+ is up$", kind="debug", matches=(Example("lane keeper 3 is up"),))
    everyone = Rule("everyone", "filters", r"^stray keeper \d+$", kind="debug", matches=(Example("stray keeper 3"),))
    book.add(Learned(theirs, "active", workloads={"a": Counts(5, 0, 1, time.time())}, changed=time.time()))
    book.add(Learned(everyone, "active", "global", changed=time.time()))
    school = module._School({"book": str(book.path), "job": "job", "settings": None, "workload": "b", "at_work": []})

    def sent() -> list[str]:
        school.settle()
        return [row[0] for line in capsys.readouterr().out.splitlines() for row in json.loads(line)["active"]]

    assert sent() == ["everyone"]
    for scan in job().feed(0, b"lane keeper 4 is up\n"):
        school.take(scan.kept, scan.text)
    assert sent() == ["theirs"]


def test_lines_that_redaction_changes_are_no_lesson(tmp_path: Path) -> None:
    school = module._School({"book": str(tmp_path / "b.db"), "job": "job", "settings": None, "workload": "", "at_work": []})
    for scan in job().feed(0, b"lane keeper of alice@example.com\n- name: HF_PASSWORD\n  value: CorrectHorse\n" + lanes(0, 3)):
        school.take(scan.kept, scan.text)
    assert (school.new, sorted(school.miner._shapes)) == (4, ["- name: HF_PASSWORD", "lane keeper chose lane 0 for bucket b0"])


def test_a_full_queue_drops_and_counts_and_never_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 4000)
    running = job()
    learner = Learner(str(tmp_path / "b.db"), running.compression.matcher, "job")
    for number in range(50):
        learner.feed(running.feed(0, lanes(number * 1000, 1000)))
    heard = learner.close()
    assert heard.lines == 50_000
    assert heard.missed == 50_000


def test_a_learner_whose_child_died_does_not_stop_the_job(tmp_path: Path) -> None:
    running = job()
    learner = Learner(str(tmp_path / "b.db"), running.compression.matcher, "job")
    learner._child.kill()
    learner._child.wait()
    for number in range(20):
        learner.feed(running.feed(0, lanes(number * 1000, 1000)))
    assert learner.close().problems == ["the learner ended before the job did"]


def test_the_end_of_a_job_does_not_wait_for_a_model(tmp_path: Path) -> None:
    running = job()
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = Settings(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", timeout_s=60)
        learner = Learner(str(tmp_path / "b.db"), running.compression.matcher, "job", settings)
        learner.feed(running.feed(0, lanes(0, 200)))
        began = time.monotonic()
        heard = learner.close(patience_s=3)
        assert time.monotonic() - began < 20
    assert "the last lesson took more than 3 s" in heard.problems[0]


def test_follow_learns(diagnose: Any, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(lanes(0, 300))
    done = diagnose("replay", "job.log", "--follow", "--idle", "1", "--learn", "--learned", "b.db", "--json")
    assert "learned from 300 kept lines" in done.stderr
    # A busy machine may not judge it in the time that the end of a job has; then the next run does.
    (known,) = SqliteBook(tmp_path / "b.db").rules("proposed", "shadow")
    assert known.rule.pattern.startswith("^lane +keeper")
    done = diagnose("replay", "job.log", "--learn")
    assert (done.returncode, "needs --follow" in done.stderr) == (2, True)
