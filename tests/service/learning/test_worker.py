"""The agent's process from within: its school for filters, and how it holds jobs against failure rules. On a real database."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert
from sqlalchemy.exc import OperationalError

from diagnose.agent.incidents import Incident
from diagnose.errors import DiagnoseError
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.learning.learned_rule import Counts, Learned
from diagnose.learning.miner import Template
from diagnose.learning.write_filters import Written
from diagnose.matching.scan import KEPT
from diagnose.report import Report
from service.learning.worker import Agent, School, Workable
from service.live.matchers import Matchers
from service.store import Store, tasks
from service.store import tables as t
from service.store.incidents import StoreIncidents
from service.store.learned_rules import StoreBook
from service.store.tasks import Wanted
from tests.service.store.test_store import begin, judge, report

LANES = Rule("lanes", "filters", r"^lane keeper chose lane \d+$", kind="debug")
UNCLOSED = Rule("unclosed", "filters", r"^lane (keeper chose lane \d+$", kind="debug")
BAD_NUMBER = Rule("bad-number", "filters", r"^loss \d+$", kind="metric", metrics=(("loss", r"loss ((\d+)"),))
LEASE = Rule("lease", "failures", r"FlashStore refused lease \d+", reason="storage_error", layer="storage", title="A lease")
UNCLOSED_FAILURE = Rule(
    "unclosed-failure", "failures", r"FlashStore (refused", reason="storage_error", layer="storage", title="x"
)


WATCH = Wanted("watch", {"well": True, "dropped": {"lanes": 5}, "workload": "kind"})
HEALTHY = Wanted("confirm", {"by": "person", "reason": "healthy"})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(f"sqlite:///{tmp_path / 'x.db'}")
    made.migrate()
    yield made
    made.close()


def scan(*lines: str, rule: int = -1) -> tuple[bytes, bytes]:
    """Kept lines as a scanner sends them."""
    records = text = b""
    for number, line in enumerate(lines, 1):
        records += KEPT.pack(number, len(text), len(line), rule, 0, 0, 0)
        text += line.encode()
    return records, text


def agent(store: Store) -> Agent:
    return Agent({"database": store.url, "model": None, "learn": True, "redact": False, "lesson_s": 0})


def state(store: Store, rule: str) -> str:
    known = StoreBook(store).find(rule)
    assert known is not None
    return known.state


def begun(store: Store, wanted: Wanted, made: Report | None = None) -> dict[str, Any]:
    """A task about an attempt, which went well if no report says otherwise, as the agent's process is given it."""
    opened = begin(store, f"job{time.time_ns()}")
    judge(store, opened, 1, made or report(outcome="healthy"))
    store.write(lambda connection: tasks.enter(connection, opened.attempt_id, wanted, 1.0))
    (task,) = store.write(lambda connection: tasks.begin(connection, (wanted.kind,), 8))
    return {"id": task.id, "task": task.kind, "attempt_id": task.attempt_id, "detail": task.detail}


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def counts(store: Store, rule: str) -> Counts:
    known = StoreBook(store).find(rule)
    assert known is not None
    return known.counts


# --- rules that do not compile here: learned by another build of Hyperscan, or promoted by hand


@pytest.mark.parametrize("bad", [UNCLOSED, BAD_NUMBER])
def test_a_rule_that_does_not_compile_here_is_said_once_and_the_others_are_counted(
    store: Store, bad: Rule, capsys: pytest.CaptureFixture[str]
) -> None:
    book = StoreBook(store)
    book.add(Learned(bad, "active", scope="global"))
    book.add(Learned(LANES, "shadow"))
    school = School(book, Workable(), redacts=False, lesson_s=0)
    school.take("job", "kind", *scan("lane keeper chose lane 7"))
    school.tick()
    school.tick()
    assert state(store, "lanes") == "active"
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (problem,) = [problem for one in said for problem in one.get("problems", [])]
    assert problem.startswith(f"the learned rule {bad.id} does nothing here: ")


def test_a_failure_rule_that_does_not_compile_here_keeps_no_other_from_its_jobs(store: Store) -> None:
    book = StoreBook(store)
    book.add(Learned(UNCLOSED_FAILURE, "active", scope="global"))
    book.add(Learned(LEASE, "shadow", scope="global"))
    book.add(Learned(LANES, "active"))
    asyncio.run(agent(store)._watch(begun(store, WATCH)))
    assert counts(store, "lease").jobs == 1


def test_matchers_take_the_rules_beside_one_whose_number_does_not_compile(store: Store) -> None:
    book = StoreBook(store)
    book.add(Learned(BAD_NUMBER, "active", scope="global"))
    book.add(Learned(LANES, "active", scope="global"))
    matchers = Matchers(RuleSet.of([]), book, most_workloads=1)
    assert matchers.refresh().active == ["lanes"]


# --- lessons


def test_a_rule_that_meets_evidence_is_retired_while_a_lesson_goes_on(store: Store) -> None:
    book = StoreBook(store)
    book.add(Learned(LANES, "active"))
    school = School(book, Workable(), redacts=False, lesson_s=0)
    over, asked = threading.Event(), []

    def slowly(templates: Sequence[Template], job: str, segment: int) -> Written:
        asked.append(segment)
        assert over.wait(30)
        raise OperationalError("commit", {}, Exception("the lesson is no matter here"))

    school.ask = slowly
    unknown = [f"bucket b{number} was swept in {number} ms" for number in range(40)]
    try:
        for line in (*unknown, *unknown):
            school.take("job", "kind", *scan(line))
            school.tick()
        until(lambda: asked)
        school.take("job", "kind", *scan("lane keeper chose lane 7", rule=0))
        school.tick()
        assert state(store, "lanes") == "retired"
        assert asked == [1], "one lesson after the other"
    finally:
        over.set()
        until(lambda: not any(thread.name == "lesson" for thread in threading.enumerate()))


class Locked(StoreBook):
    """A book in a database that is locked when the first count is to be stored."""

    locked = True

    def count(self, rule_id: str, workload: str, counts: Counts) -> None:
        if self.locked:
            self.locked = False
            raise OperationalError("update", {}, Exception("database is locked"))
        super().count(rule_id, workload, counts)


def test_counts_that_could_not_be_stored_are_stored_later(store: Store) -> None:
    book = Locked(store)
    book.add(Learned(LANES, "active"))
    school = School(book, Workable(), redacts=False, lesson_s=0)
    school.take("job", "kind", *scan("lane keeper chose lane 7", rule=0))
    with pytest.raises(OperationalError):
        school.tick()
    school.take("job", "kind", *scan("lane keeper chose lane 8"))
    school.tick()
    assert (counts(store, "lanes").matched, counts(store, "lanes").dirty, state(store, "lanes")) == (2, 1, "retired")


# --- jobs that have ended


@pytest.mark.parametrize("wanted", [WATCH, HEALTHY], ids=["watch", "healthy"])
def test_a_task_that_was_cut_off_after_its_counts_were_stored_counts_no_job_twice(store: Store, wanted: Wanted) -> None:
    book = StoreBook(store)
    book.add(Learned(LEASE, "shadow", scope="global"))
    book.add(Learned(LANES, "active"))
    task = begun(store, wanted)
    for _ in range(3):  # its end was not heard
        done = asyncio.run(getattr(agent(store), f"_{wanted.kind}")(task))
        store.write(tasks.cut_off)
        store.write(lambda connection: tasks.begin(connection, ("watch", "confirm"), 8))
    assert "problem" not in done["result"]
    assert (counts(store, "lease").jobs, state(store, "lease")) == (1, "shadow")
    assert counts(store, "lanes").matched == (5 if wanted is WATCH else 0)


def test_what_an_action_confirmed_is_not_learned_with_a_reason_that_came_after(store: Store) -> None:
    desk, one, other = agent(store), *(Wanted("confirm", {"by": "action", "reason": name}) for name in ("ecc_error", "unknown"))
    done = asyncio.run(desk._confirm(begun(store, one, report("storage_error"))))
    assert done["result"] == {"why": "there is another diagnosis by now"}
    assert desk.incidents.incidents() == []
    with pytest.raises(DiagnoseError, match="'unknown' explains nothing"):  # the same as it was: it goes on to learn from it
        asyncio.run(desk._confirm(begun(store, other, report("unknown"))))


# --- what known failures began with


def group(store: Store, root: str, by: str, attempt_id: int) -> None:
    """A failure as the service groups it, with one diagnosis."""
    words = {"category": "unknown", "reason": "unknown", "rule": None}
    about = {**words, "fingerprint": root, "title": root, "root_text": root, "state": "open"}
    times = {"first_seen": 1.0, "last_seen": 2.0, "count": 1}
    made = {**words, "attempt_id": attempt_id, "made_at": 1.0, "final": True, "outcome": "failed", "confidence": 0.0, "by": by}

    def work(connection: Connection) -> None:
        known = connection.execute(insert(t.groups).values(**about, **times).returning(t.groups.c.id)).scalar_one()
        connection.execute(insert(t.diagnoses).values(**made, summary="", report=b"", group_id=known))

    store.write(work)


def test_no_filter_is_learned_for_a_line_that_a_failure_began_with(store: Store) -> None:
    group(store, "2026-01-02 03:04:05 shelf 3 is away", "rule", begin(store, "job1").attempt_id)
    group(store, "lane keeper chose lane 3", "detector", begin(store, "job2").attempt_id)
    StoreIncidents(store).remember(Incident("job1", "storage_error", "shard 9 came up short", "It was lost."))
    here = agent(store).school
    said = ("shelf {} is away", "shard {} came up short", "lane keeper chose lane {}")
    here._lesson_s = 0
    here.take("job", "kind", *scan(*(line.format(n) for line in said for n in range(10))))
    here.tick()
    assert here._lesson is not None
    here._lesson.join(60)
    found = {known.rule.matches[0].line.split()[0]: (known.state, known.why or "") for known in here.book.rules()}
    assert {name: state for name, (state, _) in found.items()} == {"shelf": "retired", "shard": "retired", "lane": "shadow"}
    assert all(why.startswith("drops-evidence") for state, why in found.values() if state == "retired")


def test_what_a_database_refuses_is_not_begun_again_and_again(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """A count of a rule that nobody knows: it would be refused the next time, too."""
    asyncio.run(agent(store)._do(begun(store, WATCH)))
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"begun": 1}
    assert last["done"] == 1
    assert last["result"]["problem"].startswith("the database: FOREIGN KEY constraint failed")
