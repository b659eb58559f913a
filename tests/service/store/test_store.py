"""The store: migrations make what the tables say, on both databases; what is taken in is taken in once."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, delete, func, select, text, update

from diagnose.checkpoints.when import Between, between_failures
from diagnose.compression.workload import Fingerprint
from diagnose.decision.checkpoints import newest
from diagnose.decision.lost import Ran
from diagnose.decision.scores import Score
from diagnose.errors import DiagnoseError
from diagnose.knowledge.rules import Rule
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.learning.learned_rule import Counts, LearnedRule
from diagnose.learning.rule_store import RuleStore
from diagnose.learning.rule_store import metadata as rule_metadata
from diagnose.report import Action, CompressionFigures, Diagnosis, EvidenceLine, JobIdentity, MetricFigures, Report, Suspects
from service.store import Store, diagnoses, history, nodechecks, reading, training
from service.store import tables as t
from service.store.attempts import (
    Asked,
    ended_badly,
    find_attempt,
    open_attempt,
    open_attempts,
    state_of,
    taking_in,
)
from service.store.flush import Flush, JudgedReport, KeptRow, SourceState
from service.store.tokens import create, listed, revoke
from tests.support.servers import Postgres


def test_migrations_make_what_the_tables_say(store: Store) -> None:
    store.migrate()  # once more changes nothing

    def differences(connection: Connection) -> list[Any]:
        return list(compare_metadata(MigrationContext.configure(connection), [t.metadata, rule_metadata]))

    assert store.read(differences) == []


def test_a_database_of_another_version_is_refused_in_one_sentence_and_left_as_it_is(store: Store) -> None:
    store.write(lambda connection: connection.exec_driver_sql("update alembic_version set version_num = '9999'"))

    with pytest.raises(DiagnoseError, match=r"made by another version of diagnose .*9999.*install the version that made it"):
        store.migrate()

    assert store.read(lambda c: c.exec_driver_sql("select version_num from alembic_version").scalar()) == "9999"


def test_a_folder_may_have_signs_that_mean_something_in_a_url(tmp_path: Path) -> None:
    folder = tmp_path / "a b%20c#d"
    folder.mkdir()
    store = Store.in_folder(folder)
    store.migrate()
    again = Store(store.url)  # as processes beside the service open it
    assert again.read(lambda connection: connection.execute(select(func.count()).select_from(t.jobs)).scalar()) == 0
    assert (folder / "diagnose.db").is_file()
    store.close()
    again.close()


def test_only_the_connection_that_writes_keeps_much_of_the_database_in_memory(tmp_path: Path) -> None:
    """SQLite's own memory is per connection, and a dozen of them read: it grew with the jobs that a service had seen."""
    store = Store.in_folder(tmp_path)
    store.migrate()

    def most(connection: Connection) -> int:
        """KiB"""
        return -int(connection.exec_driver_sql("pragma cache_size").scalar_one())

    reads = [store.read(most), store.read(most, frozenset({"theirs"}))]
    assert max(reads) <= 8_000 < store.write(most)
    first = store.write(lambda connection: connection.connection.dbapi_connection)
    assert store.write(lambda connection: connection.connection.dbapi_connection) is first
    store.close()


def test_no_key_is_given_twice(tmp_path: Path) -> None:
    """SQLite would give the key of what was deleted to what comes next: whoever holds on to it would act on another job."""
    store = Store(f"sqlite:///{tmp_path / 'x.db'}")
    store.migrate()

    def fill(connection: Connection) -> None:
        for job in (1, 2):
            opened = open_attempt(connection, f"job{job}", None, {}, 1.0)
            columns = "(key, attempt_id, kind, nodes, why, state, fence, created, changed)"
            values = f"('k{job}', {opened.attempt_id}, 'restart', '[]', 'because', 'proposed', 0, 1.0, 1.0)"
            connection.exec_driver_sql(f"insert into actions {columns} values {values}")

    def ids(connection: Connection) -> list[list[int]]:
        return [sorted(connection.execute(select(table.c.id)).scalars()) for table in (t.jobs, t.attempts, t.actions)]

    try:
        store.write(fill)
        assert store.read(ids) == [[1, 2]] * 3
        store.write(lambda connection: connection.exec_driver_sql("delete from jobs where id = 2"))
        assert store.read(ids) == [[1]] * 3, "foreign keys are looked after again"
        assert store.write(lambda connection: open_attempt(connection, "job3", None, {}, 1.0)).attempt_id == 3
    finally:
        store.close()


def report(
    reason: str = "ecc_error", *, group: str | None = "g", nodes: tuple[str, ...] = (), outcome: Any = "failed"
) -> Report:
    root = EvidenceLine(source="s", line=1, text="DUE TO PREEMPTION" if reason == "preempted" else "boom")
    return Report(
        schema="diagnose.report/1",
        job=JobIdentity(id="j", sources=["s"]),
        outcome=outcome,
        diagnosis=Diagnosis(
            category="infrastructure",
            reason=reason,
            root_cause=root,
            group=group,
            suspects=Suspects(nodes=list(nodes)),
            culprits=list(nodes) if shipped_taxonomy().has(reason, "machine") else [],
        ),
        action=Action(kind="restart", why="because"),
        compression=CompressionFigures(lines_in=1, bytes_in=5, lines_kept=1, bytes_kept=5, ratio=1.0, dropped_by_kind={}),
    )


def flush(opened: Any, lsn: int, rows: int = 0, first: int = 0, judged: JudgedReport | None = None) -> Flush:
    return Flush(
        opened.job_id,
        opened.attempt_id,
        opened.number,
        lsn,
        f"snapshot {lsn}".encode(),
        [KeptRow(first + n, 0, n + 1, f"line {first + n} ä", None, "rule", 0, 3, "n1") for n in range(rows)],
        {"last_seen": 5.0, "state": "ended" if judged else "running"},
        [SourceState(0, "s", 3, "n1", 10 * lsn, b"head", b"", 5.0)],
        judged=judged,
    )


def begin(store: Store, job: str = "j", number: int | None = None) -> Any:
    return store.write(lambda connection: open_attempt(connection, job, number, {"user": "kim", "gpus": "8"}, 1.0))


def test_what_is_taken_in_comes_back(store: Store) -> None:
    opened = begin(store)
    store.write(taking_in([flush(opened, 7, rows=3)]))
    snapshot, lines = store.read(lambda connection: state_of(connection, opened.attempt_id))
    assert snapshot == b"snapshot 7"
    assert [(line.line, line.text.decode(), line.rule) for line in lines] == [(n + 1, f"line {n} ä", "rule") for n in range(3)]
    again = store.read(lambda connection: find_attempt(connection, "j", None))
    assert again is not None
    assert (again.lsn, again.sources[0].received, again.sources[0].head) == (7, 70, b"head")
    assert store.read(lambda connection: reading.job(connection, "j"))["user"] == "kim"  # type: ignore[index]


def test_many_are_opened_as_each_would_be(store: Store) -> None:
    begin(store, "known", 2)
    asked = [
        Asked("new", None, {"user": "kim", "gpus": "8"}, 3.0),
        Asked("known", None, {}, 3.0),
        Asked("known", 3, {}, 3.0),
        Asked("fifth", 5, {}, 4.0),
        Asked("new", 2, {}, 5.0),
    ]
    opened = store.write(lambda connection: open_attempts(connection, asked))
    assert [one.number for one in opened] == [1, 2, 3, 5, 2]
    assert [one.latest for one in opened] == [1, 2, 3, 5, 2]
    for one in (0, 3):  # as the database has them, but for what is the latest by now
        found = store.read(lambda connection, one=one: find_attempt(connection, asked[one].job, opened[one].number))  # type: ignore[misc]
        assert found is not None
        assert replace(found, latest=opened[one].latest, made=True) == opened[one]
    assert store.read(lambda connection: reading.job(connection, "new"))["user"] == "kim"  # type: ignore[index]


def test_a_flush_whose_answer_was_lost_is_not_taken_in_twice(store: Store) -> None:
    opened = begin(store)
    one = flush(opened, 7, rows=3)
    store.write(taking_in([one]))
    store.write(taking_in([one]))
    store.write(taking_in([flush(opened, 9, rows=2, first=3)]))
    assert store.read(lambda connection: connection.execute(select(func.count()).select_from(t.kept_lines)).scalar()) == 5


@pytest.mark.server
def test_services_that_share_a_database_write_one_after_the_other(postgres: Postgres) -> None:
    """Webhooks read the audit trail on from where they were: an entry that came late with a lower id would never be told."""
    url = postgres.database(f"t{time.time_ns()}")
    first, second = Store(url), Store(url)
    inside = threading.Event()

    def slowly(connection: Connection) -> None:
        reading.record(connection, "first", "x", "y", {}, 1.0)
        inside.set()
        time.sleep(0.3)

    def seen(connection: Connection) -> list[str]:
        reading.record(connection, "second", "x", "y", {}, 1.0)
        return list(connection.execute(select(t.audit.c.who).order_by(t.audit.c.id)).scalars())

    try:
        first.migrate()
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(first.write, slowly)
            assert inside.wait(10)
            assert second.write(seen) == ["first", "second"]
            writing.result(10)
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize(
    ("end", "badly"),
    [
        ({"ended_by": "exit", "exit_code": 0}, False),
        ({"ended_by": "silence"}, False),
        ({"ended_by": "exit", "exit_code": 1}, True),
        ({"ended_by": "exit", "signal": 9}, True),
        ({"ended_by": "scheduler"}, True),
    ],
    ids=["exit 0", "silence", "exit 1", "signal", "scheduler"],
)
def test_who_else_than_the_log_says_that_an_attempt_failed(store: Store, end: dict[str, Any], badly: bool) -> None:
    opened = begin(store)
    this = update(t.attempts).where(t.attempts.c.id == opened.attempt_id)
    store.write(lambda connection: connection.execute(this.values(**end)))
    assert store.read(lambda connection: ended_badly(connection, opened.attempt_id)) is badly


def test_what_fails_in_the_middle_leaves_nothing(store: Store) -> None:
    opened = begin(store)
    good, bad = flush(opened, 7, rows=3), flush(opened, 8, rows=1)  # the same ord once more: refused
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        store.write(taking_in([good, bad]))
    found = store.read(lambda connection: find_attempt(connection, "j", None))
    assert found is not None
    assert found.lsn == 0
    assert store.read(lambda connection: connection.execute(select(func.count()).select_from(t.kept_lines)).scalar()) == 0


def test_one_transaction_takes_in_many_each_in_its_own_way(store: Store) -> None:
    """With a report and without, with labels and without, known already, and deleted meanwhile."""
    plain, failed, healthy, again, gone = (begin(store, name) for name in ("plain", "failed", "healthy", "again", "gone"))
    store.write(taking_in([flush(again, 4, rows=2)]))
    store.write(lambda connection: connection.execute(delete(t.attempts).where(t.attempts.c.id == gone.attempt_id)))
    flushes = [
        flush(plain, 5, rows=1),
        flush(gone, 6, rows=1, judged=JudgedReport(report(), True, 5.0)),
        flush(failed, 7, rows=2, judged=JudgedReport(report(nodes=("n7",)), True, 5.0)),
        flush(again, 4, rows=2),
        flush(healthy, 8, judged=JudgedReport(report(outcome="healthy"), True, 5.0)),
    ]
    flushes[0].labels = {"user": "eve", "gpus": "16"}
    store.write(taking_in(flushes))
    jobs = {job["name"]: job for job in store.read(lambda connection: reading.jobs(connection, limit=9))}
    assert {name: job["outcome"] for name, job in jobs.items() if name != "gone"} == {
        "plain": "running",
        "failed": "failed",
        "healthy": "healthy",
        "again": "running",
    }
    assert (jobs["plain"]["user"], jobs["plain"]["gpus"], jobs["failed"]["user"]) == ("eve", 16, "kim")
    assert {name: job["state"] for name, job in jobs.items() if name in ("plain", "failed")} == {
        "plain": "running",
        "failed": "ended",
    }
    lines = select(t.kept_lines.c.attempt_id, func.count()).group_by(t.kept_lines.c.attempt_id)
    counts = {row[0]: row[1] for row in store.read(lambda connection: connection.execute(lines).all())}
    assert counts == {plain.attempt_id: 1, failed.attempt_id: 2, again.attempt_id: 2}
    assert flushes[2].group_id is not None
    assert flushes[1].group_id is None
    assert store.read(lambda connection: reading.node(connection, "n7"))["state"] == "suspect"  # type: ignore[index]


MINUTE = Ran(60.0, 1)


def judge(store: Store, opened: Any, lsn: int, made: Report, at: float = 5.0, ran: Ran | None = MINUTE) -> Flush:
    one = flush(opened, lsn, judged=JudgedReport(made, True, at, ran))
    store.write(taking_in([one]))
    return one


def test_groups_count_each_attempt_once_and_follow_a_changed_mind(store: Store) -> None:
    first, second = begin(store, "a"), begin(store, "b")
    judge(store, first, 1, report(nodes=("n1", "n2")))
    judge(store, first, 2, report(nodes=("n1",)))
    number = judge(store, second, 3, report(nodes=("n1",)), at=9.0).group_id
    assert number is not None
    group = store.read(lambda connection: reading.group(connection, number))
    assert group is not None
    assert (group["count"], group["last_seen"], group["gpu_seconds_lost"]) == (2, 9.0, 120.0)
    assert [(one["node"], one["count"]) for one in group["nodes"]] == [("n1", 2)]
    assert store.read(lambda connection: reading.node(connection, "n2"))["state"] == "ok"  # type: ignore[index]
    assert store.read(lambda connection: reading.node(connection, "n1"))["failures"] == 2  # type: ignore[index]
    judge(store, second, 4, report("storage_error", group="other"))
    assert store.read(lambda connection: reading.group(connection, number))["count"] == 1  # type: ignore[index]
    judge(store, first, 5, report(outcome="healthy"))
    assert store.read(lambda connection: reading.group(connection, number))["count"] == 0  # type: ignore[index]
    assert [one["reason"] for one in store.read(lambda connection: reading.groups(connection, limit=9))] == ["storage_error"]


def test_a_later_answer_about_a_failure_is_no_later_failure(store: Store) -> None:
    """A model's answer or a correction of the next day: the failure is as old as it was, whatever its group is then."""
    one = begin(store, "a")
    judge(store, one, 1, report(), at=5.0)
    for lsn, made in ((2, report()), (3, report("storage_error", group="other"))):
        number = judge(store, one, lsn, made, at=90_000.0).group_id
        assert number is not None
        group = store.read(lambda connection, number=number: reading.group(connection, number))  # type: ignore[misc]
        assert (group["count"], group["first_seen"], group["last_seen"]) == (1, 5.0, 5.0)


def resolved(store: Store, opened: Any, lsn: int, at: float = 6.0, group: str = "g") -> int:
    """A group whose only failure was at ``at`` - 1, and that was resolved at ``at``."""
    number = judge(store, opened, lsn, report(group=group), at=at - 1.0).group_id
    assert number is not None
    change = {"state": "resolved"}
    assert store.write(lambda connection: reading.change_group(connection, number, change, "kim", at))
    return number


def told_of_regressions(store: Store) -> int:
    query = select(func.count()).select_from(t.audit).where(t.audit.c.what == "failure.regressed")
    return store.read(lambda connection: connection.execute(query).scalar_one())


def test_an_old_failure_that_a_late_answer_moves_into_a_resolved_group_does_not_bring_it_back(store: Store) -> None:
    number = resolved(store, begin(store, "a"), 1, at=6.0)
    old = begin(store, "b")
    judge(store, old, 2, report("storage_error", group="other"), at=5.5)
    late = judge(store, old, 3, report(), at=90_000.0)
    assert (late.group_id, late.regressed) == (number, False)
    group = store.read(lambda connection: reading.group(connection, number))
    assert group is not None
    assert (group["state"], group["regressed"], group["state_changed"], group["count"]) == ("resolved", False, 6.0, 2)
    assert told_of_regressions(store) == 0


@pytest.mark.parametrize(("resolved_at", "back"), [(6.0, False), (4.0, True)])
def test_an_answer_that_gives_a_failure_its_first_group_is_as_old_as_the_failure(
    store: Store, resolved_at: float, back: bool
) -> None:
    """What no rule explains is in no group until the model answers: the attempt was last heard of at 5.0."""
    number = resolved(store, begin(store, "a"), 1, at=resolved_at)
    unknown = begin(store, "b")
    judge(store, unknown, 2, report("unknown", group=None), at=5.0)
    found = store.write(lambda c: diagnoses.improve(c, unknown.attempt_id, report(nodes=("n1",)), 5.0, 90_000.0))
    assert found is not None
    assert (found[0].group_id, found[0].regressed) == (number, back)
    group = store.read(lambda connection: reading.group(connection, number))
    node = store.read(lambda connection: reading.node(connection, "n1"))
    assert group is not None
    assert node is not None
    assert (group["state"], group["last_seen"], node["last_failure"]) == ("open" if back else "resolved", 5.0, 5.0)
    assert told_of_regressions(store) == int(back)


def check(store: Store, at: float, node: str = "n1") -> None:
    one = nodechecks.Check(at, (nodechecks.Checked(node, "good"),), 1)
    store.write(lambda connection: nodechecks.enter(connection, one, "kim", at))


@pytest.mark.parametrize("checked_first", [True, False])
def test_a_node_that_passed_a_check_since_it_failed_is_not_suspected_by_a_late_answer(
    store: Store, checked_first: bool
) -> None:
    one = begin(store, "a")
    judge(store, one, 1, report(), at=5.0)
    if checked_first:
        check(store, 50.0)
    judge(store, one, 2, report(nodes=("n1",)), at=90_000.0)
    if not checked_first:  # carried out before the answer, and reported after it
        check(store, 50.0)
    node = store.read(lambda connection: reading.node(connection, "n1"))
    assert node is not None
    assert (node["state"], node["failures"], node["last_failure"]) == ("ok", 1, 5.0)
    named = select(t.occurrence_nodes.c.at)
    assert store.read(lambda connection: connection.execute(named).scalars().all()) == [5.0]


def test_a_late_answer_about_an_old_failure_leaves_a_later_one_as_the_last(store: Store) -> None:
    old = begin(store, "a")
    judge(store, old, 1, report(), at=5.0)
    judge(store, begin(store, "b"), 2, report(nodes=("n1",)), at=70.0)
    check(store, 60.0)
    judge(store, old, 3, report(nodes=("n1",)), at=90_000.0)
    node = store.read(lambda connection: reading.node(connection, "n1"))
    assert node is not None
    assert (node["state"], node["failures"], node["last_failure"]) == ("suspect", 2, 70.0)


def test_a_failure_costs_what_came_after_the_scripts_last_good_checkpoint(store: Store) -> None:
    one = begin(store, "a")
    for step, healthy in ((250, None), (750, True), (900, False)):
        store.write(lambda c, step=step, healthy=healthy: training.reports.checkpoint(  # type: ignore[misc]
            c, one.attempt_id, step=step, path=f"/c/{step}", healthy=healthy, at=1.0))  # fmt: skip
    figures = MetricFigures(count=2, first=2.0, last=1.0, at_step=1000.0, min=1.0, min_at_step=1000.0, max=2.0, max_at_step=1.0,
                            not_finite=0, source="x", points=[[1.0, 2.0, 2.0, 2.0], [1000.0, 1.0, 1.0, 1.0]])  # fmt: skip
    made = report().model_copy(update={"metrics": {"loss": figures}})
    number = judge(store, one, 1, made, ran=Ran(1200.0, 8, start_up_s=100.0, still_s=100.0)).group_id
    assert number is not None

    def cost() -> Any:
        return store.read(lambda connection: reading.group(connection, number))["gpu_seconds_lost"]  # type: ignore[index]

    assert cost() == (250 + 100 + 100) * 8
    judge(store, one, 2, made, ran=None)  # the agent's version of it
    assert cost() == (250 + 100 + 100) * 8
    (run,) = store.read(history.runs)
    assert run.lost is not None
    assert (run.lost.work_s, run.lost.whole, run.reason) == (250, False, "ecc_error")


def test_a_decision_sees_which_checkpoints_are_doubted(store: Store) -> None:
    one = begin(store, "a")

    def work(connection: Any) -> Any:
        for step in (100, 200, 300):
            training.reports.checkpoint(connection, one.attempt_id, step=step, path=f"/c/{step}", healthy=True, at=step)
        for step, value in ((100, 0.6), (200, 0.3)):
            score = Score(1, step, "arc", "accuracy", value, 0.01)
            training.scores.enter(connection, one.attempt_id, score, 1.0)
        return history.Lately(connection, 1000.0).of(one.attempt_id).checkpoints

    known = store.write(work)
    assert [(saved.step, saved.healthy, saved.doubt is not None) for saved in known] == [
        (100, True, False),
        (200, None, True),
        (300, True, False),
    ]
    found = newest(known, 250)
    assert found is not None
    assert found.step == 100


def test_the_past_of_jobs_is_counted_by_size(store: Store) -> None:
    def work(connection: Any) -> tuple[Any, Any, Any]:
        now = time.time()
        for number, (gpus, outcome, begun) in enumerate(
            [(8, "failed", True), (8, "healthy", True), (64, "failed", True), (64, "failed", False), (None, "failed", True)]
        ):
            opened = open_attempt(connection, f"p{number}", 1, {}, now)
            connection.execute(update(t.jobs).where(t.jobs.c.id == opened.job_id).values(gpus=gpus))
            ran = {"started_at": now - 7200, "ended_at": now, "training_at": now - 7000 if begun else None}
            connection.execute(update(t.attempts).where(t.attempts.c.id == opened.attempt_id).values(outcome=outcome, **ran))
        first = training.rates.latest(connection, "p0")
        unknown = training.rates.latest(connection, "p4")
        return training.rates.past(connection, now), first.job_id, unknown.job_id

    found, first, second = store.write(work)
    clock = [1.0]
    rates = training.rates.Rates(steady=lambda: clock[0])
    known, unknown = asyncio.run(rates.of_job(store, first)), asyncio.run(rates.of_job(store, second))
    assert sorted((one.gpus, round(one.hours, 3), one.failures) for one in found) == [(8, 4.0, 1), (64, 2.0, 1)]
    assert unknown is None, "nobody said how many GPUs it has"
    assert known == between_failures(8, found)
    store.write(lambda connection: connection.execute(update(t.jobs).where(t.jobs.c.id == second).values(gpus=8)))
    clock[0] += 20.0
    assert asyncio.run(rates.of_job(store, second)) == known, "its label came later"


def test_the_interval_is_that_between_saves_and_not_between_verdicts(store: Store) -> None:
    one = begin(store, "a")

    def work(connection: Any) -> Any:
        for step in (100, 200, 300):
            save = {"step": step, "path": f"/c/{step}"}
            training.reports.checkpoint(connection, one.attempt_id, **save, healthy=None, at=6.0 * step, cost_s=2.0)
            training.reports.checkpoint(connection, one.attempt_id, **save, healthy=True, at=9000.0, why="it went on")
        return training.rates.present_of(connection, one.attempt_id, Between(86400.0, ""))

    found = store.write(work)
    assert (found.interval_s, found.cost_s, found.cost_known) == (600.0, 2.0, True)


def test_a_resolved_group_regresses(store: Store) -> None:
    number = resolved(store, begin(store, "a"), 1, at=6.0)
    again = judge(store, begin(store, "b"), 2, report(), at=7.0)
    assert again.regressed
    assert told_of_regressions(store) == 1
    group = store.read(lambda connection: reading.group(connection, number))
    assert group is not None
    assert (group["state"], group["regressed"]) == ("open", True)


def test_tokens_are_kept_as_hashes(store: Store) -> None:
    secret = store.write(lambda connection: create(connection, "ci", "ingest"))
    (token,) = store.read(listed)
    assert secret not in repr(token)
    assert token.valid(time.time())
    store.write(lambda connection: revoke(connection, "ci"))
    assert not store.read(listed)[0].valid(time.time())
    for name, role in (("ci", "ingest"), ("", "read"), ("x", "root")):
        with pytest.raises(DiagnoseError):
            store.write(lambda connection, name=name, role=role: create(connection, name, role))


def test_the_database_keeps_learned_rules(store: Store) -> None:
    rule_store = RuleStore(store)
    rule = Rule(id="r1", family="filters", pattern="^x", kind="debug", file="learned")
    known = LearnedRule(rule, "proposed", provenance={"by": "miner"}, lines=("x 1",), created=1.0, changed=1.0)
    assert rule_store.add(known)
    assert not rule_store.add(known)
    rule_store.count("r1", "w", Counts(3, 0, 1, 2.0))
    rule_store.count("r1", "w", Counts(2, 1, 1, 1.0))
    found = rule_store.find("r1")
    assert found is not None
    assert found.workloads == {"w": Counts(5, 1, 2, 2.0)}
    assert (found.rule.pattern, found.lines, found.provenance) == ("^x", ("x 1",), {"by": "miner"})
    assert rule_store.known("^x", "filters") == found
    assert rule_store.known("^x", "failures") is None
    assert [one.rule.id for one in rule_store.rules("proposed", "shadow")] == ["r1"]
    assert not rule_store.write(known, "active")


def test_workloads_are_entered_once(store: Store) -> None:
    rule_store = RuleStore(store)
    first = Fingerprint((("framework", "megatron"),), (1, 2**64 - 1))
    rule_store.enrol("w", first)
    rule_store.enrol("w", Fingerprint((), ()))
    assert rule_store.workloads() == {"w": first}


_PAGES = {
    "jobs by state": "select * from jobs where state = 'running' order by last_seen desc, id desc limit 50",
    "jobs by reason": "select * from jobs where reason = 'x' order by last_seen desc, id desc limit 50",
    "lines of an attempt": "select * from kept_lines where attempt_id = 1 and ord > 7 order by ord limit 200",
    "occurrences of a group": "select * from occurrences where group_id = 1 order by at desc limit 50",
    "history of a node": "select * from occurrence_nodes where node = 'x' order by at desc limit 50",
    "actions by state": "select * from actions where state = 'succeeded' order by id desc limit 50",
    "actions that wait": "select * from actions where state = 'proposed' order by created desc limit 50",
}


@pytest.mark.parametrize("query", _PAGES.values(), ids=_PAGES)
def test_what_pages_ask_has_an_index(tmp_path: Path, query: str) -> None:
    store = Store(f"sqlite:///{tmp_path / 'x.db'}")
    store.migrate()
    plan = store.read(lambda connection: [row.detail for row in connection.execute(text(f"explain query plan {query}"))])
    store.close()
    assert not [step for step in plan if step.startswith("SCAN") or "TEMP B-TREE" in step], plan
