"""From a stored diagnosis to an action that is done once: over a real store, and over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import zstandard
from sqlalchemy import Connection, update

from diagnose.decision import action as life
from diagnose.decision.action import Record
from diagnose.decision.policy import ISOLATE, REBOOT, RELEASE, Policy
from diagnose.decision.policy_file import over_shipped
from diagnose.report import Action, EvidenceLine, Report, Steps
from service.acting.actions import Actions
from service.acting.executors.executor import Order
from service.acting.executors.http import Server as Http
from service.acting.remote import Remote
from service.errors import Conflict, Forbidden, Unknown
from service.events import Event, Events
from service.store import Store, pages, reading, tables
from service.store import actions as stored
from service.store.flush import JudgedReport
from service.store.history import Lately, cluster
from service.store.nodechecks import Check, Checked
from tests.service.store.test_store import begin, flush, judge, report, taking_in
from tests.support.logs import report_of, steps
from tests.support.servers import Server

T = TypeVar("T")
MONDAY = 1_800_000_000.0
OPERATOR = frozenset({"read", "operate"})


class Clock:
    def __init__(self) -> None:
        self.now = MONDAY

    def __call__(self) -> float:
        return self.now


class Desk:
    """Actions with a clock that the test moves, and what was published."""

    def __init__(self, base: Store, policy: Policy, *, beat_s: float = 15.0, sweep_s: float = 2.0) -> None:
        self.store, self.clock, self.events = base, Clock(), Events(beat_s)
        self.actions = Actions(base, self.events, policy, self.clock, sweep_s)

    def run(self, what: Awaitable[T]) -> T:
        async def go() -> T:
            return await what

        return asyncio.run(go())

    def told(self, after: Event) -> list[tuple[str, dict[str, Any]]]:
        """(kind, what it says) of the events behind ``after``."""
        last = self.events.publish("nodes.checked")

        async def read() -> list[Event]:
            found: list[Event] = []
            async for event in self.events.listen(after.id):
                if event is None or event.id == last.id:
                    break
                found.append(event)
            return found

        return [(event.kind, event.data) for event in self.run(read())]

    def decide(self) -> int:
        return self.run(self.actions.decide_all())

    def rows(self, **asked: Any) -> list[dict[str, Any]]:
        return self.store.read(lambda connection: reading.actions(connection, limit=50, **asked))

    def record(self, action_id: int) -> Record:
        found = self.store.read(lambda connection: stored.find(connection, action_id))
        assert found is not None
        return found


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, policy(tmp_path, "mode: approve"))


def policy(folder: Path, text: str) -> Policy:
    path = folder / "policy.yaml"
    path.write_text(text)
    return over_shipped(path)


def failed(desk: Desk, job: str = "a", lsn: int = 1, made: Report | None = None, number: int | None = None) -> Any:
    """An attempt of ``job`` that failed of something that a restart may mend."""
    opened = begin(desk.store, job, number)
    judge(desk.store, opened, lsn, made or report("cuda_error"), at=desk.clock.now)
    return opened


def broken(confidence: float = 0.97) -> Report:
    """A fault that the kernel of n1 printed itself."""
    made = report("ecc_error", nodes=("n1",))
    text = "Mar 04 07:09:47 n1 kernel: [81.2] NVRM: Xid (PCI:0000:8a:00): 48, pid=4105, name=python, x"
    root = EvidenceLine(source="n1.log", line=7, text=text, role="root_cause", node="n1")
    diagnosis = made.diagnosis.model_copy(update={"root_cause": root, "confidence": confidence, "by": "rule"})
    action = Action(kind="isolate_and_restart", nodes=["n1"], why="because")
    return made.model_copy(update={"diagnosis": diagnosis, "action": action})


def of_the_code() -> Report:
    """A diagnosis that leaves nothing to an executor."""
    return report("syntax_error", group="other").model_copy(update={"action": Action(kind="fix_code", why="because")})


def test_a_diagnosis_becomes_one_action(desk: Desk) -> None:
    opened = failed(desk)
    assert desk.decide() == 1
    assert desk.decide() == 0
    (row,) = desk.rows()
    assert (row["job"], row["kind"], row["state"], row["reason"]) == ("a", "restart", "proposed", "cuda_error")
    found = desk.store.read(lambda connection: stored.decision_of(connection, opened.attempt_id))
    assert found is not None
    assert found["key"] == row["key"]
    trail = desk.store.read(lambda connection: pages.actions.trail(connection, "job/a"))
    assert [entry["what"] for entry in trail] == ["decided.restart", "job.failed"]
    assert trail[0]["detail"]["evidence"]["diagnosis"]["reason"] == "cuda_error"


def test_an_action_keeps_what_it_was_decided_on(desk: Desk) -> None:
    failed(desk)
    desk.decide()
    (first,) = desk.rows()
    desk.clock.now += 60
    healthy = report("healthy", outcome="healthy", group=None)
    failed(desk, lsn=2, made=healthy)
    desk.decide()
    found = desk.store.read(lambda connection: pages.actions.action(connection, first["id"]))
    assert found is not None
    assert found["basis"]["decision"]["evidence"]["diagnosis"]["reason"] == "cuda_error"
    assert found["basis"]["report_made_at"] == MONDAY


def test_a_restart_goes_on_while_the_isolation_waits_for_its_yes(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, policy(tmp_path, "mode: auto\nmodes: {isolate_and_restart: approve}\nlimits: {isolated_share: 100%}"))
    failed(desk, made=broken())
    desk.decide()
    isolation, restart = desk.rows()
    assert (restart["kind"], restart["state"]) == ("restart", "approved")
    assert (isolation["kind"], isolation["state"], isolation["nodes"]) == ("isolate", "proposed", ["n1"])
    assert isolation["why"] == "job a, attempt 1: ecc error"
    (order,) = desk.run(desk.actions.orders())
    assert (order["kind"], order["nodes"], order["avoid"], order["link"]) == ("restart", [], ["n1"], None)
    shown = Actions(store, desk.events, desk.actions.policy, desk.clock, shown_at="https://logs.example.org")
    assert desk.run(shown.orders())[0]["link"] == f"https://logs.example.org/ui/actions/{order['id']}"

    desk.run(desk.actions.reject(isolation["id"], "eve", OPERATOR, "not this node"))
    desk.clock.now += 60
    failed(desk, lsn=2, made=broken(0.9))
    desk.decide()
    assert [row["kind"] for row in desk.rows()] == ["isolate", "restart"], "who said no is not asked again"


def test_a_hopeless_job_is_held_where_the_policy_says_so_and_the_advice_stays(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, policy(tmp_path, "modes: {hold: approve}"))
    opened = failed(desk, made=of_the_code())
    named = update(tables.jobs).where(tables.jobs.c.name == "a").values(labels={"namespace": "ml"})
    store.write(lambda connection: connection.execute(named))

    desk.decide()

    (row,) = desk.rows()
    assert (row["kind"], row["state"], row["nodes"]) == ("hold", "proposed", [])
    found = store.read(lambda connection: stored.decision_of(connection, opened.attempt_id))
    assert found is not None
    assert (found["action"]["kind"], found["hold"], found["key"]) == ("fix_code", True, row["key"])
    desk.run(desk.actions.approve(row["id"], "ann", OPERATOR))
    taken = desk.run(desk.actions.claim_next("x", ["hold"]))
    assert taken is not None
    assert (taken.order["kind"], taken.order["job"]) == ("hold", "a")
    desk.run(desk.actions.begin(taken.id, "x", taken.fence))
    desk.run(desk.actions.finish(taken.id, "x", taken.fence, True, "held"))
    desk.clock.now += 60
    failed(desk, lsn=2, made=of_the_code())
    desk.decide()
    assert [(one["kind"], one["state"]) for one in desk.rows()] == [("hold", "succeeded")], "once for each attempt"
    desk.clock.now += 60
    failed(desk, lsn=3)
    desk.decide()
    found = store.read(lambda connection: stored.decision_of(connection, opened.attempt_id))
    assert found is not None
    assert (found["action"]["kind"], found["action"]["why"]) == ("none", "Attempt 1 was answered by hold (succeeded): held.")


def test_what_became_of_the_job_stands_with_the_action(desk: Desk) -> None:
    def shown() -> Any:
        found = desk.store.read(lambda connection: pages.actions.action(connection, action["id"]))
        assert found is not None
        return found["aftermath"]

    def at(opened: Any, **columns: Any) -> None:
        where = tables.attempts.c.id == opened.attempt_id
        desk.store.write(lambda connection: connection.execute(update(tables.attempts).where(where).values(**columns)))

    first = failed(desk)
    at(first, step=400, started_at=MONDAY, ended_at=MONDAY + 100, state="ended", outcome="failed")
    desk.decide()
    (action,) = desk.rows()
    assert shown() is None

    second = begin(desk.store, "a", 2)
    at(second, step=401, started_at=MONDAY + 160, state="running")
    came = shown()
    assert (came["attempt"], came["state"], came["passed"], came["away_s"]) == (2, "running", True, 60)
    judge(desk.store, second, 1, report("cuda_error"), at=MONDAY + 200)
    at(second, step=400, state="ended", outcome="failed")
    came = shown()
    assert (came["state"], came["reason"], came["passed"]) == ("failed_alike", "cuda_error", False)


def test_an_action_is_undone(store: Store, tmp_path: Path) -> None:
    """What nobody began is rejected, what was taken out is given back, and there is no third."""
    desk = Desk(store, policy(tmp_path, "mode: auto\nlimits: {isolated_share: 100%}"))
    failed(desk, made=broken())
    desk.decide()
    (action,) = desk.rows()
    taken = desk.run(desk.actions.claim(action["id"], "slurm"))
    desk.run(desk.actions.begin(action["id"], "slurm", taken.fence))
    with pytest.raises(Conflict, match="nothing to undo"):
        desk.run(desk.actions.undo(action["id"], "eve", OPERATOR))
    desk.run(desk.actions.finish(action["id"], "slurm", taken.fence, True, "drained n1"))

    assert desk.run(desk.actions.undo(action["id"], "eve", OPERATOR)) == "return"
    release = desk.rows()[0]
    assert (release["kind"], release["nodes"], release["state"]) == (RELEASE, ["n1"], "approved")
    assert release["why"] == f"action {action['id']} is undone"
    assert desk.run(desk.actions.undo(release["id"], "eve", OPERATOR)) == "rejected"


def test_what_takes_the_place_of_a_roll_back_keeps_its_step_and_batches(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, policy(tmp_path, "mode: approve"))
    made = report("loss_anomaly")
    diagnosis = made.diagnosis.model_copy(update={"affected": Steps(first=100, last=120), "step": 130})
    failed(desk, made=made.model_copy(update={"diagnosis": diagnosis, "action": Action(kind="rollback_and_skip", why="x")}))
    desk.decide()
    (first,) = desk.rows()
    assert first["kind"] == "rollback_and_skip"
    desk.clock.now += 60
    failed(desk, lsn=2)
    desk.decide()
    second, first = desk.rows()
    assert (second["kind"], first["state"], first["replaced_by"]) == ("restart", "rejected", second["id"])
    assert first["restart_from"] is not None
    assert (second["restart_from"], second["skip_batches"]) == (first["restart_from"], first["skip_batches"])


def test_what_the_policy_replaced_itself_no_person_has_refused(desk: Desk) -> None:
    failed(desk)
    desk.decide()
    for lsn, made in ((2, of_the_code()), (3, None)):
        desk.clock.now += 60
        failed(desk, lsn=lsn, made=made)
        desk.decide()
    opened = failed(desk, lsn=4)
    desk.decide()
    decision = desk.store.read(lambda connection: stored.decision_of(connection, opened.attempt_id))
    assert decision is not None
    assert "A person said no" not in str(decision)


WATCHDOG = (
    "[rank{0}]:[E304 05:16:07.890123456 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=4011, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600041 milliseconds before "
    "timing out.\n"
)
CRASH = "[gpu-3:4105 :0:4105] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x18)\n"


@pytest.mark.parametrize(
    ("logs", "most"),
    [
        pytest.param([steps(1, 9) + WATCHDOG.format(rank) for rank in range(4)], "restart", id="time-outs-on-every-node"),
        pytest.param([steps(1, 9) + CRASH], "restart", id="crashes-of-one-script"),
    ],
)
def test_soft_failures_of_a_week_isolate_nobody(store: Store, tmp_path: Path, logs: list[str], most: str) -> None:
    """As they are read, diagnosed, stored and decided: the second of its kind within a week must not drain a node."""
    desk = Desk(store, policy(tmp_path, "mode: auto\nlimits: {isolated_share: 100%, nodes_at_once: 8}"))
    for number, job in enumerate(("monday", "tuesday", "friday")):
        desk.clock.now = MONDAY + number * 86400.0
        made = report_of(*logs, names=tuple(f"gpu-{n + 3}_rank_{n}.log" for n in range(len(logs))))
        seen = {*made.diagnosis.suspects.nodes, *made.diagnosis.witnesses.nodes}
        assert (made.outcome, "gpu-3" in seen) == ("failed", True)
        failed(desk, job, lsn=number + 1, made=made)
        desk.store.write(lambda connection: connection.execute(update(tables.sources).values(node=None)))
        desk.decide()
    assert [row["kind"] for row in desk.rows()] == [most] * 3
    assert all(not row["nodes"] for row in desk.rows())


def test_an_alarm_must_last_and_who_goes_on_is_left_alone(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, policy(tmp_path, "mode: auto\nalarms: {lasts: 90s}\nbudgets: {hang: {backoff: 0s}}"))
    stands = report("hang", outcome="running", group="hang-silent")
    stands = stands.model_copy(update={"diagnosis": stands.diagnosis.model_copy(update={"confidence": 0.6, "by": "detector"})})
    opened = begin(desk.store, "a")

    def say(lsn: int, made: Report) -> None:
        judged = JudgedReport(made, False, desk.clock.now, None)
        desk.store.write(taking_in([flush(opened, lsn, judged=judged)]))
        desk.decide()

    say(1, stands)
    (first,) = desk.rows()
    assert (first["kind"], first["state"], first["not_before"]) == ("restart", "approved", MONDAY + 90)
    assert desk.run(desk.actions.orders()) == []
    desk.clock.now += 60
    say(2, report("unknown", outcome="running", group=None))
    assert [row["state"] for row in desk.rows()] == ["rejected"]
    desk.clock.now += 3600
    say(3, stands)
    again, _ = desk.rows()
    assert (again["state"], again["not_before"]) == ("approved", MONDAY + 3750)
    desk.clock.now += 60
    say(4, stands.model_copy(update={"diagnosis": stands.diagnosis.model_copy(update={"group": "hang-train.py"})}))
    latest = desk.rows()[0]
    assert (latest["state"], latest["not_before"]) == ("approved", MONDAY + 3750), "stacks make an alarm no younger"
    desk.clock.now += 30
    (order,) = desk.run(desk.actions.orders())
    assert order["id"] == latest["id"]


def test_what_was_cut_off_is_decided_by_the_next_service(desk: Desk) -> None:
    failed(desk)
    second = Desk(desk.store, desk.actions.policy)
    assert second.decide() == 1
    assert desk.decide() == 0
    assert len(desk.rows()) == 1


def test_what_failed_lately_is_read_once_and_knows_what_was_decided_since(desk: Desk) -> None:
    for job in "abc":
        failed(desk, job)
    now = desk.clock.now

    def look(connection: Connection) -> None:
        past = Lately(connection, now)
        (failures, actions) = (past.anywhere().failures, past.anywhere().actions)
        assert (len(failures), actions) == (3, ())
        record = life.propose("key", "a", 1, "restart", "approve", now, desk.actions.policy.life, now)
        entered = stored.enter(connection, record, None, None, nodes=["n1"], why="because")
        assert past.anywhere().actions == ()
        past.decided([entered])
        assert past.anywhere() == Lately(connection, now).anywhere()
        after = life.reject(record, "kim", "no", now, desk.actions.policy.life)
        stored.save(connection, entered, record, after, "kim", now)
        past.decided([entered])
        assert [one.state for one in past.anywhere().actions] == ["rejected"]
        assert past.anywhere() == Lately(connection, now).anywhere()

    desk.store.write(look)


def test_several_are_decided_about_in_one_transaction(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for job in "abcdef":
        failed(desk, job)
    writes: list[object] = []
    write = desk.store.write
    monkeypatch.setattr(desk.store, "write", lambda work: (writes.append(work), write(work))[1])
    assert desk.decide() == 6
    assert len(writes) < 6
    assert {row["job"] for row in desk.rows()} == set("abcdef")


def test_one_that_cannot_be_decided_holds_up_no_other(desk: Desk) -> None:
    bad = failed(desk, "bad")
    failed(desk, "good")
    d = tables.diagnoses
    torn = update(d).where(d.c.attempt_id == bad.attempt_id).values(report=b"torn")
    desk.store.write(lambda connection: connection.execute(torn))
    with pytest.raises(zstandard.ZstdError):
        desk.decide()
    assert [row["job"] for row in desk.rows()] == ["good"]


def test_two_services_decide_once(desk: Desk) -> None:
    opened = failed(desk)
    second = Desk(desk.store, desk.actions.policy)
    # Both found it waiting before either had decided.
    desk.run(desk.actions._decide_each([opened.attempt_id]))
    second.run(second.actions._decide_each([opened.attempt_id]))
    assert len(desk.rows()) == 1


def test_a_later_diagnosis_takes_the_place_of_what_nobody_took(desk: Desk) -> None:
    opened = failed(desk)
    desk.decide()
    desk.clock.now += 60
    judge(desk.store, opened, 2, report("connection_error", group="other"), at=desk.clock.now)
    desk.decide()
    assert [(row["reason"], row["state"]) for row in desk.rows()] == [
        ("connection_error", "proposed"),
        ("cuda_error", "rejected"),
    ]


def test_an_action_under_way_is_not_replaced(desk: Desk) -> None:
    opened = failed(desk)
    desk.decide()
    (row,) = desk.rows()
    desk.run(desk.actions.approve(row["id"], "kim", OPERATOR))
    desk.clock.now += 120  # the pause before a restart
    desk.run(desk.actions.claim(row["id"], "slurm"))
    judge(desk.store, opened, 2, report("connection_error", group="other"), at=desk.clock.now)
    desk.decide()
    assert [(one["kind"], one["state"]) for one in desk.rows()] == [("restart", "dispatched")]


def test_from_yes_to_done(desk: Desk) -> None:
    failed(desk)
    desk.decide()
    action = desk.rows()[0]["id"]
    desk.run(desk.actions.approve(action, "kim", OPERATOR))
    desk.clock.now += 120
    taken = desk.run(desk.actions.claim(action, "slurm"))
    assert (taken.order["job"], taken.order["kind"], taken.order["labels"]) == ("a", "restart", {"user": "kim", "gpus": "8"})
    with pytest.raises(Conflict):
        desk.run(desk.actions.claim(action, "another"))
    desk.run(desk.actions.begin(action, "slurm", taken.fence))
    desk.run(desk.actions.finish(action, "slurm", taken.fence, True, "requeued"))
    desk.run(desk.actions.finish(action, "slurm", taken.fence, True, "requeued"))  # the answer was lost: told again
    record = desk.record(action)
    assert (record.state, record.result, record.decided_by) == ("succeeded", "requeued", "kim")
    trail = desk.store.read(lambda connection: pages.actions.trail(connection, f"action/{action}"))
    said = [entry["what"].removeprefix("action.") for entry in reversed(trail)]
    assert said == ["proposed", "approved", "dispatched", "running", "succeeded"]


def test_an_order_tells_when_its_attempt_was_last_heard_of(desk: Desk) -> None:
    opened = failed(desk)
    desk.decide()
    action = desk.rows()[0]["id"]

    def told() -> float | None:
        here = Order.of(desk.store.read(lambda connection: stored.order(connection, action)))
        return Order.of(here.as_dict()).last_seen  # as a program of the site has it

    def heard(at: float) -> None:
        change = update(tables.attempts).where(tables.attempts.c.id == opened.attempt_id).values(last_seen=at)
        desk.store.write(lambda connection: connection.execute(change))

    heard(desk.clock.now - 90)
    assert told() == desk.clock.now - 90
    heard(desk.clock.now + 90)  # of a job that somebody has submitted again
    assert told() == desk.clock.now


def test_a_lapsed_lease_is_handed_out_anew_and_the_old_fence_is_refused(desk: Desk) -> None:
    failed(desk)
    desk.decide()
    action = desk.rows()[0]["id"]
    desk.run(desk.actions.approve(action, "kim", OPERATOR))
    desk.clock.now += 120
    first = desk.run(desk.actions.claim(action, "one"))
    desk.clock.now += desk.actions.policy.life.lease_s + 1
    desk.run(desk.actions.tick_all())
    assert desk.record(action).state == "approved"
    second = desk.run(desk.actions.claim_next("two", ["restart"]))
    assert second is not None
    assert second.fence > first.fence
    with pytest.raises(Conflict):
        desk.run(desk.actions.begin(action, "one", first.fence))
    desk.run(desk.actions.begin(action, "two", second.fence))


def test_there_is_nothing_to_claim_of_other_kinds(desk: Desk) -> None:
    failed(desk)
    desk.decide()
    desk.run(desk.actions.approve(desk.rows()[0]["id"], "kim", OPERATOR))
    desk.clock.now += 120
    assert desk.run(desk.actions.claim_next("x", ["isolate"])) is None


def test_nobody_says_yes_to_what_is_only_observed(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, policy(tmp_path, "mode: observe"))
    failed(desk)
    desk.decide()
    with pytest.raises(Conflict, match="only observes"):
        desk.run(desk.actions.approve(desk.rows()[0]["id"], "kim", OPERATOR))


def test_who_may_not_decide_is_refused(desk: Desk) -> None:
    failed(desk)
    desk.decide()
    with pytest.raises(Forbidden):
        desk.run(desk.actions.approve(desk.rows()[0]["id"], "guest", frozenset({"read"})))
    assert desk.rows()[0]["state"] == "proposed"


def test_a_no_stays_a_no(desk: Desk) -> None:
    opened = failed(desk)
    desk.decide()
    desk.run(desk.actions.reject(desk.rows()[0]["id"], "kim", OPERATOR, "we move the job"))
    judge(desk.store, opened, 2, report("connection_error", group="other"), at=desk.clock.now + 5)
    desk.decide()
    assert [row["state"] for row in desk.rows()] == ["rejected"]


def test_nobody_answers(desk: Desk) -> None:
    failed(desk)
    desk.decide()
    desk.clock.now += desk.actions.policy.life.approve_within_s + 7200
    desk.run(desk.actions.tick_all())
    assert desk.rows()[0]["state"] == "expired"


def test_what_was_taken_back_can_be_asked_for_again_at_the_same_moment(desk: Desk) -> None:
    judge(desk.store, begin(desk.store), 1, report(nodes=("n1",)))
    first = desk.run(desk.actions.ask_for_node(ISOLATE, "n1", "kim", "fans are broken"))
    desk.run(desk.actions.reject(first, "kim", OPERATOR, "the other node"))
    again = desk.run(desk.actions.ask_for_node(ISOLATE, "n1", "kim", "this node after all"))
    assert (desk.record(first).state, desk.record(again).state) == ("rejected", "approved")


def test_a_node_is_taken_out_and_given_back(desk: Desk) -> None:
    opened = begin(desk.store)
    judge(desk.store, opened, 1, report(nodes=("n1",)))
    isolate = desk.run(desk.actions.ask_for_node(ISOLATE, "n1", "kim", "fans are broken"))
    with pytest.raises(Conflict):
        desk.run(desk.actions.ask_for_node(ISOLATE, "n1", "lee", "again"))
    assert node(desk)["state"] != "isolated"  # asked for is not done
    done(desk, isolate)
    assert (node(desk)["state"], node(desk)["why"]) == ("isolated", "fans are broken")
    done(desk, desk.run(desk.actions.ask_for_node(RELEASE, "n1", "kim", "new fans")))
    assert node(desk)["state"] == "ok"
    trail = desk.store.read(lambda connection: pages.actions.trail(connection, "node/n1"))
    assert [(entry["what"], entry["who"]) for entry in trail] == [("node.ok", "kim"), ("node.isolated", "kim")]
    with pytest.raises(Unknown):
        desk.run(desk.actions.ask_for_node(ISOLATE, "never-heard-of", "kim", "why not"))


def test_a_reboot_is_for_nodes_that_are_isolated_or_doubted_and_changes_neither(desk: Desk) -> None:
    judge(desk.store, begin(desk.store), 1, report(nodes=("n1",)))
    done(desk, desk.run(desk.actions.ask_for_node(ISOLATE, "n1", "kim", "fans are broken")))
    done(desk, desk.run(desk.actions.ask_for_node(REBOOT, "n1", "kim", "it may help")))
    assert node(desk)["state"] == "isolated"
    done(desk, desk.run(desk.actions.ask_for_node(RELEASE, "n1", "kim", "new fans")))
    with pytest.raises(Conflict, match="nothing speaks against it"):
        desk.run(desk.actions.ask_for_node(REBOOT, "n1", "kim", "for fun"))


@pytest.mark.parametrize(
    ("clauses", "state"),
    [
        pytest.param("mode: auto", None, id="not-unless-the-policy-says-so"),
        pytest.param("mode: auto\nactions: {ecc_error: {reboot: true}}", "approved", id="by-itself"),
        pytest.param("mode: auto\nmodes: {reboot: approve}\nactions: {ecc_error: {reboot: true}}", "proposed", id="with-a-yes"),
        pytest.param("mode: auto\nmodes: {reboot: observe}\nactions: {ecc_error: {reboot: true}}", None, id="observed"),
    ],
)
def test_a_node_that_was_isolated_is_rebooted_where_that_is_the_remedy(
    store: Store, tmp_path: Path, clauses: str, state: str | None
) -> None:
    desk = Desk(store, policy(tmp_path, f"{clauses}\nlimits: {{isolated_share: 100%}}"))
    failed(desk, made=broken())
    desk.decide()
    (isolation,) = desk.rows()
    assert isolation["kind"] == "isolate_and_restart"
    desk.clock.now += 120
    done(desk, isolation["id"])
    asked = [(row["nodes"], row["state"], row["why"]) for row in desk.rows() if row["kind"] == REBOOT]
    assert asked == ([(["n1"], state, f"isolated for ecc error by action {isolation['id']}")] if state else [])


def test_a_node_whose_isolation_waited_for_a_yes_is_rebooted_too(store: Store, tmp_path: Path) -> None:
    clauses = "mode: auto\nmodes: {isolate_and_restart: approve}\nactions: {ecc_error: {reboot: true}}"
    desk = Desk(store, policy(tmp_path, f"{clauses}\nlimits: {{isolated_share: 100%}}"))
    failed(desk, made=broken())
    desk.decide()
    (isolation,) = (row for row in desk.rows() if row["kind"] == ISOLATE)
    desk.run(desk.actions.approve(isolation["id"], "kim", OPERATOR))
    done(desk, isolation["id"])
    asked = [(row["nodes"], row["state"], row["why"]) for row in desk.rows() if row["kind"] == REBOOT]
    assert asked == [(["n1"], "approved", f"isolated for ecc error by action {isolation['id']}")]


def test_a_node_that_its_reboot_took_out_of_service_is_isolated(desk: Desk) -> None:
    judge(desk.store, begin(desk.store), 1, report(nodes=("n1",)))
    doubt = update(tables.nodes).where(tables.nodes.c.name == "n1").values(state="suspect")
    desk.store.write(lambda connection: connection.execute(doubt))
    action = desk.run(desk.actions.ask_for_node(REBOOT, "n1", "kim", "it may help"))
    taken = desk.run(desk.actions.claim(action, "slurm"))
    desk.run(desk.actions.begin(action, "slurm", taken.fence))
    desk.run(desk.actions.finish(action, "slurm", taken.fence, True, "done", ("n1",)))
    assert node(desk)["state"] == "isolated"


def isolated_with_a_reboot(store: Store, tmp_path: Path, mode: str) -> tuple[Desk, int]:
    """n1 is isolated; the reboot that the policy asks for."""
    clauses = f"mode: auto\nmodes: {{reboot: {mode}}}\nactions: {{ecc_error: {{reboot: true}}}}"
    desk = Desk(store, policy(tmp_path, f"{clauses}\nlimits: {{isolated_share: 100%}}"))
    failed(desk, made=broken())
    desk.decide()
    done(desk, desk.rows()[0]["id"])
    (reboot,) = (row["id"] for row in desk.rows() if row["kind"] == REBOOT)
    return desk, reboot


@pytest.mark.parametrize("mode", ["approve", "auto"])
def test_a_reboot_is_withdrawn_when_its_node_is_given_back(store: Store, tmp_path: Path, mode: str) -> None:
    desk, reboot = isolated_with_a_reboot(store, tmp_path, mode)
    done(desk, desk.run(desk.actions.ask_for_node(RELEASE, "n1", "kim", "new fans")))
    assert (desk.record(reboot).state, desk.record(reboot).result) == ("rejected", "the node was given back")


@pytest.mark.parametrize("so_far", ["proposed", "approved", "dispatched"])
def test_no_node_in_service_is_rebooted_however_it_came_back(store: Store, tmp_path: Path, so_far: str) -> None:
    desk, reboot = isolated_with_a_reboot(store, tmp_path, "approve" if so_far == "proposed" else "auto")
    taken = desk.run(desk.actions.claim(reboot, "slurm")) if so_far == "dispatched" else None
    back = update(tables.nodes).where(tables.nodes.c.name == "n1").values(state="ok")
    store.write(lambda connection: connection.execute(back))
    step: Awaitable[object]
    if so_far == "proposed":
        step = desk.actions.approve(reboot, "kim", OPERATOR)
    elif taken is None:
        step = desk.actions.claim(reboot, "slurm")
    else:
        step = desk.actions.begin(reboot, "slurm", taken.fence)
    with pytest.raises(Conflict, match="nothing speaks against it"):
        desk.run(step)
    assert desk.record(reboot).state == so_far


@pytest.mark.parametrize("ends", ["failed", "expired", "told-late"])
def test_a_node_that_was_taken_out_counts_however_the_action_ends(desk: Desk, ends: str) -> None:
    judge(desk.store, begin(desk.store), 1, report(nodes=("n1",)))
    action = desk.run(desk.actions.ask_for_node(ISOLATE, "n1", "kim", "fans are broken"))
    taken = desk.run(desk.actions.claim(action, "slurm"))
    desk.run(desk.actions.begin(action, "slurm", taken.fence))
    if ends != "failed":
        desk.clock.now += 3600
        desk.run(desk.actions.tick_all())
        assert desk.record(action).state == "expired"
    for _ in range(2):  # the answer was lost: told again
        if ends != "expired":
            told = ("n1", "login-1")
            desk.run(desk.actions.finish(action, "slurm", taken.fence, False, "drained, and then it failed", told))

    out = desk.store.read(lambda connection: cluster(connection, desk.clock.now))
    assert desk.record(action).state == ("expired" if ends == "expired" else "failed")
    assert out.isolated() == (set() if ends == "expired" else {"n1"})
    assert [one.key for one in out.isolations] == ([] if ends == "expired" else [desk.record(action).key])
    past = desk.store.read(lambda connection: Lately(connection, desk.clock.now).anywhere()).actions
    assert [(one.state, one.taken) for one in past] == [(desk.record(action).state, True)]


def test_of_a_success_only_what_was_taken_out_is(desk: Desk) -> None:
    judge(desk.store, begin(desk.store), 1, report(nodes=("n1",)))
    action = desk.run(desk.actions.ask_for_node(ISOLATE, "n1", "kim", "fans are broken"))
    taken = desk.run(desk.actions.claim(action, "slurm"))
    desk.run(desk.actions.begin(action, "slurm", taken.fence))
    desk.run(desk.actions.finish(action, "slurm", taken.fence, True, "it was replaced already", ()))
    assert node(desk)["state"] != "isolated"


def test_what_nobody_took_is_taken_back_when_a_later_diagnosis_asks_for_nothing(desk: Desk) -> None:
    opened = failed(desk)
    desk.decide()
    judge(desk.store, opened, 2, of_the_code(), at=desk.clock.now + 5)
    desk.decide()
    assert [(row["reason"], row["state"]) for row in desk.rows()] == [("cuda_error", "rejected")]


def test_a_node_that_was_taken_out_on_a_wrong_diagnosis_is_offered_back(store: Store, tmp_path: Path) -> None:
    """A person says yes to that: the decision itself gives no node back."""
    desk = Desk(store, policy(tmp_path, "mode: approve\nlimits: {isolated_share: 100%}"))
    begun = begin(desk.store)
    second_word = Check(desk.clock.now, (Checked("n1", "suspect", "alone"), Checked("n2", "good")), 2)
    desk.run(desk.actions.take_check(second_word, "kim"))
    judge(desk.store, begun, 1, report(nodes=("n1",)), at=desk.clock.now)
    desk.decide()
    (isolation,) = desk.rows()
    assert (isolation["kind"], isolation["nodes"]) == ("isolate_and_restart", ["n1"])
    desk.run(desk.actions.approve(isolation["id"], "kim", OPERATOR))
    desk.clock.now += 120
    done(desk, isolation["id"])
    assert node(desk)["state"] == "isolated"
    judge(desk.store, begun, 2, of_the_code(), at=desk.clock.now)
    desk.decide()
    desk.decide()
    offered = [(row["kind"], row["nodes"], row["state"]) for row in desk.rows() if row["id"] != isolation["id"]]
    assert offered == [(RELEASE, ["n1"], "proposed")]
    assert node(desk)["state"] == "isolated"


def test_listeners_are_told_of_each_change_and_of_no_sign_of_life(desk: Desk) -> None:
    begin_of_all = desk.events.publish("job.started")
    failed(desk)
    desk.decide()
    desk.run(desk.actions.approve(desk.rows()[0]["id"], "kim", OPERATOR))
    desk.clock.now += 120
    taken = desk.run(desk.actions.claim(desk.rows()[0]["id"], "slurm"))
    desk.run(desk.actions.begin(taken.id, "slurm", taken.fence))
    desk.run(desk.actions.renew(taken.id, "slurm", taken.fence))
    desk.run(desk.actions.finish(taken.id, "slurm", taken.fence, True, "requeued"))
    told = desk.told(begin_of_all)
    assert [(kind, facts["state"], facts["by"]) for kind, facts in told] == [
        ("action.proposed", "proposed", None),
        ("action.changed", "approved", "kim"),
        ("action.changed", "dispatched", "kim"),
        ("action.changed", "running", "kim"),
        ("action.changed", "succeeded", "kim"),
    ]
    assert {(facts["id"], facts["action"], facts["job"], facts["attempt"]) for _, facts in told} == {
        (taken.id, "restart", "a", 1)
    }


def test_what_is_done_to_a_node_is_told_without_a_job(desk: Desk) -> None:
    judge(desk.store, begin(desk.store), 1, report(nodes=("n1",)))
    before = desk.events.publish("job.started")
    action = desk.run(desk.actions.ask_for_node(ISOLATE, "n1", "kim", "fans are broken"))
    ((kind, facts),) = desk.told(before)
    assert (kind, facts["id"], facts["action"], facts["state"]) == ("action.changed", action, ISOLATE, "approved")
    assert (facts["job"], facts["attempt"]) == (None, None)


def test_what_time_does_to_an_action_is_told_once(desk: Desk) -> None:
    failed(desk)
    desk.decide()
    before = desk.events.publish("job.started")
    desk.run(desk.actions.tick_all())
    assert desk.told(before) == []
    desk.clock.now += desk.actions.policy.life.approve_within_s + 7200
    desk.run(desk.actions.tick_all())
    desk.run(desk.actions.tick_all())
    assert [(kind, facts["state"]) for kind, facts in desk.told(before) if kind.startswith("action")] == [
        ("action.changed", "expired")
    ]


def test_a_diagnosis_is_decided_as_soon_as_it_is_told(store: Store, tmp_path: Path) -> None:
    """Long before the next sweep, and also when nothing was told for some time."""
    desk = Desk(store, policy(tmp_path, "mode: approve"), beat_s=0.01, sweep_s=3600)

    async def proposed(news: AsyncIterator[Event | None]) -> str:
        async for event in news:
            if event is not None and event.kind == "action.proposed":
                return str(event.data["job"])
        raise AssertionError("nothing was proposed")

    async def run() -> list[str]:
        news = desk.events.listen()
        desk.actions.start()
        try:
            async with asyncio.timeout(20):
                first = await proposed(news)
                for _ in range(5):  # beats: the first sweep is over
                    await anext(news)
                failed(desk, "second")
                desk.events.publish("job.diagnosed")
                return [first, await proposed(news)]
        finally:
            await desk.actions.stop()

    failed(desk, "first")
    assert asyncio.run(run()) == ["first", "second"]


def node(desk: Desk) -> dict[str, Any]:
    found = desk.store.read(lambda connection: reading.node(connection, "n1"))
    assert found is not None
    return found


def done(desk: Desk, action: int) -> None:
    taken = desk.run(desk.actions.claim(action, "slurm"))
    desk.run(desk.actions.begin(action, "slurm", taken.fence))
    desk.run(desk.actions.finish(action, "slurm", taken.fence, True, "done"))


def test_the_same_failure_again_and_again_stops(desk: Desk) -> None:
    """The service's history reaches the decision: a restart that never gets anywhere is not tried for ever."""
    kinds = []
    for number in range(1, 7):
        failed(desk, "a", 1, number=number)
        desk.decide()
        kinds.append(desk.rows()[0]["kind"] if desk.rows() and desk.rows()[0]["attempt"] == number else "none")
        desk.clock.now += 600
    assert kinds[0] == "restart"
    assert kinds[-1] == "none"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("actions")
    (folder / "policy.yaml").write_text("mode: approve\nbudgets:\n  default: {backoff: 0s}\n  cuda_error: {backoff: 0s}\n")
    with Server(folder / "data", "--policy", str(folder / "policy.yaml")) as running:
        yield running


@pytest.mark.server
def test_over_http(server: Server) -> None:
    server.push("one", b"step 1 loss 2.0\nRuntimeError: CUDA error: an illegal memory access was encountered\n")
    server.end("one", 1)
    action = wait_for(server, "one")
    assert action["state"] == "proposed"
    assert server.get("/v1/jobs/one/decision")["action"]["kind"] == "restart"
    assert post(server, f"/v1/actions/{action['id']}/approve").json()["state"] == "approved"
    nothing = post(server, "/v1/actions/claim", executor="r", kinds=["isolate"])
    assert nothing.status_code == 204
    taken = post(server, "/v1/actions/claim", executor="r", kinds=["restart"]).json()
    assert taken["order"]["job"] == "one"
    fence = {"executor": "r", "fence": taken["fence"]}
    assert post(server, f"/v1/actions/{action['id']}/start", **fence).json()["state"] == "running"
    server.kill()
    server.start()
    told = post(server, f"/v1/actions/{action['id']}/result", **fence, succeeded=True, said="requeued").json()
    assert (told["state"], told["result"]) == ("succeeded", {"said": "requeued"})
    late = post(server, f"/v1/actions/{action['id']}/claim", executor="other")
    assert (late.status_code, late.json()["error"]) == (409, "conflict")


@pytest.mark.server
def test_a_node_that_was_taken_out_counts_over_http_too(server: Server) -> None:
    server.push("three", b"hello\n", source="gpu-7", node="gpu-7")
    until(lambda: server.client.get("/v1/nodes/gpu-7").status_code == 200, server)
    action = post(server, "/v1/nodes/gpu-7/isolate", why="ECC").json()["id"]
    remote = Remote(Http(server.url), lambda: None, "r")

    async def act() -> None:
        taken = await remote.claim(action, "r")
        await remote.begin(action, "r", taken.fence)
        await remote.finish(action, "r", taken.fence, False, "drained, and then it failed", ["gpu-7"])

    asyncio.run(act())

    assert server.get(f"/v1/actions/{action}")["state"] == "failed"
    assert server.get("/v1/nodes/gpu-7")["state"] == "isolated"


@pytest.mark.server
def test_what_is_not_there_over_http(server: Server) -> None:
    assert post(server, "/v1/actions/999/approve").status_code == 404
    assert post(server, "/v1/nodes/none/isolate", why="because").status_code == 404
    assert server.client.get("/v1/jobs/none/decision").status_code == 404


def post(server: Server, path: str, **body: Any) -> Any:
    return server.client.post(path, json=body) if body else server.client.post(path)


def wait_for(server: Server, job: str) -> dict[str, Any]:
    return dict(until(lambda: server.get("/v1/actions", job=job)["actions"], server)[0])


def until(found: Callable[[], Any], server: Server) -> Any:
    deadline = time.monotonic() + 30
    while not (what := found()):
        assert time.monotonic() < deadline, server.log[-2000:]
        time.sleep(0.1)
    return what
