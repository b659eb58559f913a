"""Live learning: rules come into a running job, nothing waits, and what is proposed survives."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose.job import Job
from diagnose.knowledge.rules import Example, Rule, load
from diagnose.learning import worker_process
from diagnose.learning.learned_rule import Counts, LearnedRule
from diagnose.learning.live import Learner
from diagnose.learning.rule_store import RuleFile, RuleStore
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.model.settings import Settings
from diagnose.reading.sources import Source


def job(*learned: Rule) -> Job:
    """One that is read with the shipped rules, and with ``learned`` beside them."""
    matcher = Matcher(load(), reserved=EARLY)
    matcher.add(learned)
    return Job("job", [Source("log", None)], matcher)


def lanes(first: int, count: int) -> bytes:
    return b"".join(b"lane keeper chose lane %d for bucket b%d\n" % (n, n % 7) for n in range(first, first + count))


def started(learner: Learner) -> subprocess.Popen[bytes]:
    """Its process, as soon as there is one."""
    deadline = time.monotonic() + 20
    while (child := learner._process._child) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return child


def test_a_rule_is_learned_while_the_job_runs_and_drops_its_lines_from_then_on(tmp_path: Path) -> None:
    running = job()
    learner = Learner(tmp_path / "b.db", running.compression.matcher, "job", lesson_s=1)
    deadline = time.monotonic() + 90
    at = 0
    while not learner.summary.active and time.monotonic() < deadline:
        learner.feed(running.feed(0, lanes(at, 250)))
        at += 250
        time.sleep(0.2)
    before = running.compression.counts.lines_kept
    running.feed(0, lanes(at, 500))
    assert running.compression.counts.lines_kept == before
    summary = learner.close(running.compression.counts.dropped)
    (name,) = summary.active
    assert summary.missed == 0
    (known,) = RuleStore(RuleFile(tmp_path / "b.db")).rules("active")
    assert known.rule.id == name
    assert known.matched >= 500


def test_an_active_rule_that_meets_evidence_is_taken_out(tmp_path: Path) -> None:
    store = RuleStore(RuleFile(tmp_path / "b.db"))
    bad = Rule("bad", "filters", r"^lane keeper \d+ .*$", kind="debug", matches=(Example("lane keeper 3 is up"),))
    store.add(LearnedRule(bad, "active", "global"))
    running = job(bad)
    running.feed(0, b"lane keeper 1 is up\n")
    assert running.compression.counts.lines_kept == 0
    learner = Learner(tmp_path / "b.db", running.compression.matcher, "job")
    learner.feed(running.feed(0, b"lane keeper 2 CUDA error: an illegal memory access was encountered\n"))
    summary = learner.close()
    assert summary.retired == ["bad"]
    kept = running.compression.counts.lines_kept
    running.feed(0, b"lane keeper 3 is up\n")
    assert running.compression.counts.lines_kept == kept + 1


def test_a_rule_of_another_workload_does_not_act_before_it_was_clean_here(tmp_path: Path) -> None:
    store = RuleStore(RuleFile(tmp_path / "b.db"))
    theirs = Rule("theirs", "filters", r"^lane keeper \d+ is up$", kind="debug", matches=(Example("lane keeper 3 is up"),))
    everyone = Rule("everyone", "filters", r"^stray keeper \d+$", kind="debug", matches=(Example("stray keeper 3"),))
    store.add(LearnedRule(theirs, "active", workloads={"a": Counts(5, 0, 1, time.time())}, changed=time.time()))
    store.add(LearnedRule(everyone, "active", "global", changed=time.time()))
    running = job()
    learner = Learner(tmp_path / "b.db", running.compression.matcher, "job", workload="b", lesson_s=0.2)

    def until(*names: str) -> None:
        deadline = time.monotonic() + 60
        while learner.summary.active != list(names):
            assert time.monotonic() < deadline, learner.summary
            time.sleep(0.1)

    until("everyone")
    learner.feed(running.feed(0, b"lane keeper 4 is up\n"))
    until("everyone", "theirs")
    assert learner.close().problems == []


def test_a_full_queue_drops_and_counts_and_never_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_MOST_BYTES", 4000)
    running = job()
    learner = Learner(tmp_path / "b.db", running.compression.matcher, "job")
    for number in range(50):
        learner.feed(running.feed(0, lanes(number * 1000, 1000)))
    summary = learner.close()
    assert summary.lines == 50_000
    assert summary.missed == 50_000


def test_a_worker_that_died_does_not_stop_the_job(tmp_path: Path) -> None:
    running = job()
    learner = Learner(tmp_path / "b.db", running.compression.matcher, "job")
    child = started(learner)
    child.kill()
    child.wait()
    for number in range(20):
        learner.feed(running.feed(0, lanes(number * 1000, 1000)))
    assert learner.close().problems == ["the worker ended before the job did"]


def test_the_end_of_a_job_does_not_wait_for_a_model(tmp_path: Path) -> None:
    running = job()
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = Settings(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", timeout_s=60)
        learner = Learner(tmp_path / "b.db", running.compression.matcher, "job", settings)
        learner.feed(running.feed(0, lanes(0, 200)))
        began = time.monotonic()
        summary = learner.close(patience_s=1)
        assert time.monotonic() - began < 20
    assert "the last lesson took more than 1 s" in summary.problems[0]


def test_follow_learns(diagnose: Any, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(lanes(0, 300))
    done = diagnose("replay", "job.log", "--follow", "--idle", "1", "--learn", "--learned", "b.db", "--json")
    assert "learned from 300 kept lines" in done.stderr
    # A busy machine may not judge it in the time that the end of a job has; then the next run does.
    (known,) = RuleStore(RuleFile(tmp_path / "b.db")).rules("proposed", "shadow")
    assert known.rule.pattern.startswith("^lane +keeper")
    done = diagnose("replay", "job.log", "--learn")
    assert (done.returncode, "needs --follow" in done.stderr) == (2, True)
