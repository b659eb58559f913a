"""The worker process from within: its school for filters, and how it holds jobs against failure rules. On a real database."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from diagnose.agent.incidents import Incident
from diagnose.errors import DiagnoseError
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.learning.learned_rule import Counts, LearnedRule, followed, promoted
from diagnose.learning.rule_store import RuleStore
from diagnose.matching.scan import KEPT
from diagnose.report import Report
from service.learning.worker import ServiceWorker
from service.live.matchers import Matchers
from service.store import Store, tasks
from service.store import tables as t
from service.store.incidents import StoreIncidents
from service.store.tasks import Wanted
from tests.service.store.test_store import begin, judge, report
from tests.support.live import store_in

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
    made = store_in(tmp_path)
    yield made
    made.close()


def scan(*lines: str, rule: int = -1) -> tuple[bytes, bytes]:
    """Kept lines as a scanner sends them."""
    records = text = b""
    for number, line in enumerate(lines, 1):
        records += KEPT.pack(number, len(text), len(line), rule, 0, 0, 0)
        text += line.encode()
    return records, text


def worker(store: Store) -> ServiceWorker:
    return ServiceWorker({"database": store.url, "model": None, "learn": True, "redact": False, "lesson_s": 0})


def state(store: Store, rule: str) -> str:
    known = RuleStore(store).find(rule)
    assert known is not None
    return known.state


def begun(store: Store, wanted: Wanted, made: Report | None = None) -> dict[str, Any]:
    """A task about an attempt, which went well if no report says otherwise, as the worker process is given it."""
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
    known = RuleStore(store).find(rule)
    assert known is not None
    return known.counts


# --- rules that do not compile here: learned by another build of Hyperscan, or promoted by hand


def test_a_failure_rule_that_does_not_compile_here_keeps_no_other_from_its_jobs(store: Store) -> None:
    rule_store = RuleStore(store)
    rule_store.add(LearnedRule(UNCLOSED_FAILURE, "active", scope="global"))
    rule_store.add(LearnedRule(LEASE, "shadow", scope="global"))
    rule_store.add(LearnedRule(LANES, "active"))
    asyncio.run(worker(store)._watch(begun(store, WATCH)))
    assert counts(store, "lease").jobs == 1


def test_matchers_take_the_rules_beside_one_whose_number_does_not_compile(store: Store) -> None:
    rule_store = RuleStore(store)
    rule_store.add(LearnedRule(BAD_NUMBER, "active", scope="global"))
    rule_store.add(LearnedRule(LANES, "active", scope="global"))
    matchers = Matchers(RuleSet.of([]), rule_store, most_workloads=1)
    assert matchers.refresh().active == ["lanes"]


@pytest.mark.parametrize("wanted", [WATCH, HEALTHY], ids=["watch", "healthy"])
def test_a_task_that_was_cut_off_after_its_counts_were_stored_counts_no_job_twice(store: Store, wanted: Wanted) -> None:
    rule_store = RuleStore(store)
    rule_store.add(LearnedRule(LEASE, "shadow", scope="global"))
    rule_store.add(LearnedRule(LANES, "active"))
    task = begun(store, wanted)
    for _ in range(3):  # its end was not heard
        done = asyncio.run(getattr(worker(store), f"_{wanted.kind}")(task))
        store.write(tasks.cut_off)
        store.write(lambda connection: tasks.begin(connection, ("watch", "confirm"), 8))
    assert "problem" not in done["result"]
    assert (counts(store, "lease").jobs, state(store, "lease")) == (1, "shadow")
    assert counts(store, "lanes").matched == (5 if wanted is WATCH else 0)


def test_what_an_action_confirmed_is_not_learned_with_a_reason_that_came_after(store: Store) -> None:
    here, one, other = (
        worker(store),
        *(Wanted("confirm", {"by": "action", "reason": name}) for name in ("ecc_error", "unknown")),
    )
    done = asyncio.run(here._confirm(begun(store, one, report("storage_error"))))
    assert done["result"] == {"why": "there is another diagnosis by now"}
    assert here.incidents.incidents() == []
    with pytest.raises(DiagnoseError, match="'unknown' explains nothing"):  # the same as it was: it goes on to learn from it
        asyncio.run(here._confirm(begun(store, other, report("unknown"))))


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
    here = worker(store).school
    said = ("shelf {} is away", "shard {} came up short", "lane keeper chose lane {}")
    here._lesson_s = 0
    here.take("job", "kind", *scan(*(line.format(n) for line in said for n in range(10))))
    here.tick()
    assert here._lesson is not None
    here._lesson.join(200)
    found = {known.rule.matches[0].line.split()[0]: (known.state, known.why or "") for known in here.store.rules()}
    assert {name: state for name, (state, _) in found.items()} == {"shelf": "retired", "shard": "retired", "lane": "shadow"}
    assert all(why.startswith("drops-evidence") for state, why in found.values() if state == "retired")


def test_what_a_database_refuses_is_not_begun_again_and_again(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """A count of a rule that nobody knows: it would be refused the next time, too."""
    asyncio.run(worker(store).do(begun(store, WATCH)))
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"begun": 1}
    assert last["done"] == 1
    assert last["result"]["problem"].startswith("the database: FOREIGN KEY constraint failed")


# --- projects


def test_what_one_project_teaches_acts_for_its_own_jobs(store: Store) -> None:
    rules = RuleStore(store)
    lanes, wide = (Rule(name, "filters", rf"^{name} keeper chose lane \d+$", kind="debug") for name in ("lanes", "wide"))
    lease = LearnedRule(LEASE, "active", "project", {"project": "apes"})
    met = {"apes~k": Counts(1), "bees~k": Counts(1)}
    rules.add(LearnedRule(lanes, "active", provenance={"project": "apes"}, workloads=met))
    rules.add(LearnedRule(wide, "active", "global"))
    rules.add(lease)
    matchers = Matchers(RuleSet.of([]), rules, most_workloads=8)
    matchers.open(0)
    kinds = (None, "k", "apes~", "apes~k", "apes~other", "bees~", "bees~k")
    for kind in kinds:  # a matcher is made once it was asked for
        matchers.of(0, kind)
    matchers.refresh()
    lines = {"lanes": b"lanes keeper chose lane 4", "wide": b"wide keeper chose lane 4", "lease": b"FlashStore refused lease 4"}
    acting = {kind: {rule for rule, line in lines.items() if matchers.of(0, kind).matches(line)} for kind in kinds}
    assert acting == {
        None: {"wide"},
        "k": {"wide"},
        "apes~": {"wide", "lease"},
        "apes~k": {"wide", "lease", "lanes"},
        "apes~other": {"wide", "lease"},
        "bees~": {"wide"},
        "bees~k": {"wide"},
    }
    assert not lease.acts_for(None)
    assert promoted(lease, "an administrator said so", 1.0).acts_for("bees~k")


def test_a_rule_that_is_clean_in_many_workloads_stays_in_its_project() -> None:
    for project, scope in ((None, "global"), ("apes", "project")):
        about = {"project": project} if project else {}
        met = {f"{project or ''}~{number}": Counts(1, last=1.0) for number in range(3)}
        assert followed(LearnedRule(LANES, "active", provenance=about, workloads=met), 1.0).scope == scope


def test_the_school_counts_for_a_rule_what_its_own_project_says(store: Store) -> None:
    rules = RuleStore(store)
    rules.add(LearnedRule(LANES, "shadow", provenance={"project": "apes"}))
    school = worker(store).school
    school.take("bees~job", "bees~k", *scan("lane keeper chose lane 1", rule=3))  # evidence of failure, if it counted
    school.tick()
    assert state(store, "lanes") == "shadow"
    school.take("apes~job", "apes~k", *scan("lane keeper chose lane 1"))
    school.tick()
    assert state(store, "lanes") == "active"
    for number in range(30):
        school.take("apes~job", "apes~k", *scan(f"a door opened for visitor {number} of the day"))
    school.finish()
    (made,) = [one for one in rules.rules(family="filters") if one.rule.id != "lanes"]
    assert (made.project, made.provenance["jobs"]) == ("apes", ["apes~job"])


def test_a_past_incident_is_told_in_its_own_project(store: Store) -> None:
    line = "FlashStore refused lease of the quarterly volume"
    for job in ("job", "apes~job", "bees~job"):
        StoreIncidents(store).remember(Incident(f"{job}#1", "storage_error", f"{line} {job}", "s"))
    for project, job in ((None, "job"), ("apes", "apes~job"), ("bees", "bees~job")):
        mine = StoreIncidents(store, project)
        assert [one.id for one in mine.incidents()] == [f"{job}#1"]
        assert [one.incident.id for one in mine.similar([line], None, 5)] == [f"{job}#1"]
    assert len(StoreIncidents(store, "apes").roots()) == 3, "what anybody's failure began with is never dropped"
