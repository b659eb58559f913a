"""Orders are carried out once: whoever crashes, however often the same is asked, whatever the clock says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from diagnose.backoff import Backoff
from diagnose.decision.lost import Ran
from diagnose.decision.policy import CHECK, ISOLATE, Policy
from diagnose.report import Action
from service.acting.actions import Actions
from service.acting.dispatch import Dispatch, Pace, name_in
from service.acting.executors.configuration import Configured, Which
from service.acting.executors.executor import KINDS, Order, Outcome
from service.acting.executors.nodecheck import NodeCheck
from service.errors import Conflict, Refused, Unavailable
from service.events import Events
from service.store import Store
from service.store.attempts import taking_in
from service.store.flush import JudgedReport, SourceState
from tests.service.acting.test_actions import OPERATOR, Desk, failed, node, policy
from tests.service.store.test_store import begin, flush, judge, report
from tests.support.live import store_in
from tests.support.servers import Server

FAST = Pace(sweep_s=0.05, backoff=Backoff(0.02, 0.1, spread=0.2), leave_s=0.2)


@dataclass
class Cluster:
    """A small real one: it remembers what was done under which key, and an order takes two deeds."""

    deeds: list[tuple[str, str]] = field(default_factory=list)
    says: list[Outcome | BaseException] = field(default_factory=list)
    """answers in the place of deeds, the next first"""
    asked: list[tuple[str, bool]] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    looks: bool = True
    slow_s: float = 0.0
    at_once: int = 0
    most_at_once: int = 0
    step: Callable[[], Awaitable[None]] | None = None
    kinds: frozenset[str] = KINDS

    async def carry_out(self, order: Order, *, dry_run: bool = False) -> Outcome:
        self.asked.append((order.key, dry_run))
        self.orders.append(order)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.slow_s)
            if self.says:
                said = self.says.pop(0)
                if isinstance(said, BaseException):
                    raise said
                return said
            for deed in ("drained", "requeued"):
                if not dry_run and not (self.looks and (order.key, deed) in self.deeds):
                    self.deeds.append((order.key, deed))
                if self.step:
                    await self.step()
            return Outcome("succeeded", "would have: drained; requeued" if dry_run else "drained; requeued")
        finally:
            self.at_once -= 1

    async def check(self) -> list[str]:
        return []


def by(cluster: Cluster, **more: Any) -> Configured:
    return Configured("own", "test", cluster, **{"kinds": KINDS, "patience_s": 5.0, **more})


@contextlib.asynccontextmanager
async def dispatching(
    desk: Any, *executors: Configured, name: str = "service-1", events: Events | None = None
) -> AsyncIterator[Dispatch]:
    dispatch = Dispatch(desk, executors, name, events=events, pace=FAST)
    await dispatch.recover()
    dispatch.start()
    try:
        yield dispatch
    finally:
        await dispatch.stop()


async def until(done: Callable[[], object], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.01)


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Store]:
    made = store_in(tmp_path)
    yield made
    made.close()


@pytest.fixture
def desk(base: Store, tmp_path: Path) -> Desk:
    return Desk(base, auto(tmp_path))


def auto(folder: Path, more: str = "") -> Policy:
    return policy(folder, f"mode: auto\nconfidence: {{restart: 0, isolate_and_restart: 0, default: 0}}\n{more}")


def approved(desk: Desk, jobs: int = 1) -> list[int]:
    """Restarts that may be begun now."""
    for number in range(jobs):
        opened = begin(desk.store, f"j{number}")
        judge(desk.store, opened, number + 1, report("preempted", group=f"g{number}"), at=desk.clock.now)
    while desk.decide():
        pass
    desk.clock.now += 600
    rows = [row for row in desk.rows() if row["state"] == "approved"]
    assert len(rows) == jobs, [(row["state"], row["why"]) for row in desk.rows()]
    return sorted(row["id"] for row in rows)


def isolation(desk: Desk) -> int:
    judge(desk.store, begin(desk.store), 1, report(nodes=("n1",)))
    return desk.run(desk.actions.ask_for_node(ISOLATE, "n1", "kim", "fans are broken"))


def state(desk: Desk, action: int) -> str:
    return desk.record(action).state


def test_an_approved_order_is_carried_out(desk: Desk) -> None:
    action, cluster = isolation(desk), Cluster()

    async def go() -> None:
        async with dispatching(desk.actions, by(cluster)):
            await until(lambda: state(desk, action) == "succeeded")

    asyncio.run(go())
    record = desk.record(action)
    assert (record.claimed_by, record.result, record.fence) == ("service-1.own", "drained; requeued", 1)
    assert cluster.deeds == [(record.key, "drained"), (record.key, "requeued")]
    assert node(desk)["state"] == "isolated"


def test_it_is_begun_as_soon_as_somebody_says_yes(desk: Desk) -> None:
    desk.actions.policy = replace(desk.actions.policy, mode="approve")
    failed(desk)
    desk.decide()
    desk.clock.now += 600
    action, cluster = desk.rows()[0]["id"], Cluster()

    async def go() -> float:
        dispatch = Dispatch(desk.actions, [by(cluster)], "service-1", events=desk.events, pace=replace(FAST, sweep_s=30.0))
        dispatch.start()
        await asyncio.sleep(0.3)
        assert cluster.asked == []
        said = time.monotonic()
        await desk.actions.approve(action, "kim", OPERATOR)
        await until(lambda: cluster.deeds)
        took = time.monotonic() - said
        await dispatch.stop()
        return took

    assert asyncio.run(go()) < 5


def test_a_dry_run_is_no_success(desk: Desk) -> None:
    action, cluster = isolation(desk), Cluster()

    async def go() -> None:
        async with dispatching(desk.actions, by(cluster, dry_run=True)):
            await until(lambda: state(desk, action) == "failed")

    asyncio.run(go())
    assert desk.record(action).result == "dry run: would have: drained; requeued"
    assert (cluster.asked, cluster.deeds) == ([(desk.record(action).key, True)], [])
    assert node(desk)["state"] != "isolated"


@pytest.mark.parametrize(
    ("says", "how", "isolated"),
    [
        pytest.param([Outcome("failed", "no requeue", isolated=("n1",))], {}, True, id="half-done"),
        pytest.param(
            [Outcome("failed", "busy", True, isolated=("n1",)), *[Outcome("unknown", "away", True)] * 999],
            {"patience_s": 0.2}, True, id="before-the-cluster-was-away",
        ),
        pytest.param([Outcome("failed", "busy", True), Outcome("failed", "gone")], {}, False, id="not-done"),
        pytest.param([Outcome("failed", "no requeue", isolated=("n1",))], {"dry_run": True}, False, id="dry-run"),
    ],
)  # fmt: skip
def test_a_node_that_was_taken_out_is_isolated_however_the_order_ends(
    desk: Desk, says: Any, how: dict[str, Any], isolated: bool
) -> None:
    action = isolation(desk)

    async def go() -> None:
        async with dispatching(desk.actions, by(Cluster(says=says), **how)):
            await until(lambda: state(desk, action) == "failed")

    asyncio.run(go())
    assert (node(desk)["state"] == "isolated") == isolated


@pytest.mark.parametrize(
    ("then", "result"),
    [
        pytest.param([Outcome("succeeded", "the spare is back")], "the spare is back", id="done"),
        pytest.param([Outcome("failed", "away", True), Outcome("succeeded", "back")], "back", id="done-later"),
        pytest.param([Outcome("failed", "it is gone")], "drained; the spare is in use", id="never"),
        pytest.param([Outcome("unknown", "away", True)] * 999, "drained; the spare is in use", id="nobody-knows"),
    ],
)
def test_what_is_left_beside_a_success_is_tried_again_and_undoes_nothing(desk: Desk, then: list[Any], result: str) -> None:
    action, cluster = isolation(desk), Cluster(says=[Outcome("succeeded", "drained; the spare is in use", True), *then])

    async def go() -> None:
        async with dispatching(desk.actions, by(cluster, patience_s=1.0)):
            await until(lambda: state(desk, action) in ("succeeded", "failed"))

    asyncio.run(go())
    record = desk.record(action)
    assert (record.state, record.result, node(desk)["state"]) == ("succeeded", result, "isolated")
    assert len(cluster.asked) > 1


def test_what_is_nobodys_is_left_for_others(desk: Desk) -> None:
    (action,) = approved(desk)
    others = by(Cluster(), which=Which(labels={"cluster": "alps"})), by(Cluster(), kinds=frozenset({"isolate"}))

    async def go() -> None:
        async with dispatching(desk.actions, *others):
            await asyncio.sleep(0.3)

    asyncio.run(go())
    assert (state(desk, action), desk.record(action).claims) == ("approved", 0)


def test_two_services_carry_each_order_out_once(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, auto(tmp_path))
    actions = approved(desk, 12)
    second = Desk(Store(desk.store.url), desk.actions.policy)
    second.clock = desk.clock
    second.actions = Actions(second.store, second.events, desk.actions.policy, desk.clock)
    here, there = Cluster(looks=False, slow_s=0.01), Cluster(looks=False, slow_s=0.01)

    async def go() -> None:
        async with dispatching(desk.actions, by(here)), dispatching(second.actions, by(there), name="service-2"):
            await until(lambda: all(state(desk, action) == "succeeded" for action in actions))

    asyncio.run(go())
    second.store.close()
    deeds = [*here.deeds, *there.deeds]
    assert len(deeds) == len(set(deeds)) == 24
    assert {desk.record(action).fence for action in actions} == {1}


class Killed:
    """A desk whose process dies at its n-th step: from then on nothing that it asks for happens."""

    def __init__(self, actions: Actions, at: int) -> None:
        self._actions, self._left = actions, at
        self.dead = asyncio.Event()

    async def step(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.dead.set()
            await asyncio.Event().wait()

    def __getattr__(self, name: str) -> Any:
        async def call(*words: Any) -> Any:
            if name == "orders":
                return await self._actions.orders()
            await self.step()
            result = await getattr(self._actions, name)(*words)
            await self.step()
            return result

        return call


async def cut_off_at(step: int, desk: Desk, cluster: Cluster, executor: Configured) -> bool:
    """Whether it came so far. What it had begun stays as it is."""
    killed = Killed(desk.actions, step)
    cluster.step = killed.step
    dispatch = Dispatch(killed, [executor], "service-1", pace=replace(FAST, leave_s=0.0))  # type: ignore[arg-type]
    dispatch.start()
    over = ("succeeded", "failed")
    await until(lambda: killed.dead.is_set() if step < STEPS else all(row["state"] in over for row in desk.rows()))
    await dispatch.stop()
    cluster.step = None
    return killed.dead.is_set()


STEPS = 8  # claim, begin, two deeds, finish: before and after each


@pytest.mark.parametrize("step", range(STEPS + 1))
@pytest.mark.parametrize("looks", [pytest.param(True, id="looks"), pytest.param(False, id="cannot-look")])
def test_cut_off_anywhere_nothing_is_done_twice(desk: Desk, step: int, looks: bool) -> None:
    (action,) = approved(desk)
    cluster = Cluster(looks=looks)
    executor = by(cluster, repeatable=looks)
    died = asyncio.run(cut_off_at(step, desk, cluster, executor))
    assert died == (step < STEPS)
    desk.clock.now += 5  # the service is up again before anybody has noticed

    async def again() -> None:
        async with dispatching(desk.actions, executor):
            await until(lambda: state(desk, action) in ("succeeded", "failed"))

    asyncio.run(again())
    record = desk.record(action)
    assert len(cluster.deeds) == len(set(cluster.deeds))
    if looks or step in (0, 1, 2, STEPS - 1, STEPS):  # before it began, or after it was told
        assert (record.state, len(cluster.deeds)) == ("succeeded", 2)
    else:
        assert record.state == "failed"
        assert "nobody knows whether it was done" in str(record.result)


def test_another_service_does_not_go_on_with_what_is_not_its_own(desk: Desk) -> None:
    (action,) = approved(desk)
    cluster = Cluster()
    asyncio.run(cut_off_at(4, desk, cluster, by(cluster)))

    async def other() -> None:
        async with dispatching(desk.actions, by(cluster), name="service-2"):
            await asyncio.sleep(0.2)
            desk.clock.now += 3600
            await desk.actions.tick_all()
            await asyncio.sleep(0.2)

    asyncio.run(other())
    assert (state(desk, action), len(cluster.asked)) == ("expired", 1)


def test_what_was_left_for_too_long_is_a_persons(desk: Desk) -> None:
    (action,) = approved(desk)
    cluster = Cluster()
    asyncio.run(cut_off_at(4, desk, cluster, by(cluster)))
    desk.clock.now += 3 * 86400

    async def again() -> None:
        async with dispatching(desk.actions, by(cluster)):
            await desk.actions.tick_all()

    asyncio.run(again())
    assert (state(desk, action), len(cluster.asked)) == ("expired", 1)


def test_stopped_in_the_middle_it_is_gone_on_with_at_the_next_start(desk: Desk) -> None:
    (action,) = approved(desk)
    slow = Cluster(slow_s=60)

    async def go() -> None:
        async with dispatching(desk.actions, by(slow)):
            await until(lambda: slow.asked)
        assert state(desk, action) == "running"
        slow.slow_s = 0
        async with dispatching(desk.actions, by(slow)):
            await until(lambda: state(desk, action) == "succeeded")

    asyncio.run(go())
    assert desk.record(action).fence == 2
    assert len(slow.deeds) == 2


def test_what_fails_for_now_is_tried_again_and_its_lease_kept(base: Store, tmp_path: Path) -> None:
    desk = Desk(base, auto(tmp_path, "life: {lease: 1s}"))
    (action,) = approved(desk)
    away = Outcome("failed", "slurmctld is away", True)
    cluster = Cluster(says=[away, Outcome("unknown", "cut off", True)] + [away] * 30)

    async def go() -> None:
        began, jumped = time.monotonic(), desk.clock.now
        async with dispatching(desk.actions, by(cluster, patience_s=60)):
            while state(desk, action) not in ("succeeded", "expired"):
                desk.clock.now = jumped + (time.monotonic() - began) / 2  # a busy machine may stand for a second
                await desk.actions.tick_all()
                await asyncio.sleep(0.02)

    asyncio.run(go())
    assert (state(desk, action), len(cluster.asked)) == ("succeeded", 33)


@pytest.mark.parametrize(
    ("said", "repeatable", "tries", "result"),
    [
        pytest.param(Outcome("failed", "no such job"), True, 1, "no such job", id="failed"),
        pytest.param(Outcome("failed", "it is away", True), True, None, "it is away", id="away-for-good"),
        pytest.param(Outcome("failed", "busy", True), False, None, "busy", id="not-done-so-again"),
        pytest.param(Outcome("unknown", "cut off", True), True, None, "nobody knows whether it was done", id="never-known"),
        pytest.param(Outcome("unknown", "cut off", True), False, 1, "nobody knows whether it was done", id="who-cannot-look"),
        pytest.param(Outcome("unknown", "a page"), True, 1, "nobody knows whether it was done", id="unknown-for-good"),
        pytest.param(RuntimeError("secret"), False, 1, "own failed at it: RuntimeError", id="it-breaks-its-promise"),
    ],
)
def test_when_it_is_given_up(desk: Desk, said: Any, repeatable: bool, tries: int | None, result: str) -> None:
    action, cluster = isolation(desk), Cluster(says=[said] * 1000)

    async def go() -> None:
        async with dispatching(desk.actions, by(cluster, patience_s=0.4, repeatable=repeatable)):
            await until(lambda: state(desk, action) == "failed")

    asyncio.run(go())
    assert result in str(desk.record(action).result)
    assert "secret" not in str(desk.record(action).result)
    assert len(cluster.asked) == tries if tries else len(cluster.asked) > 2
    assert node(desk)["state"] != "isolated"


def test_who_asks_for_time_gets_it(desk: Desk) -> None:
    action = isolation(desk)
    cluster = Cluster(says=[Outcome("failed", "busy", True, {"retry_after_s": 1.0})])

    async def go() -> float:
        began = time.monotonic()
        async with dispatching(desk.actions, by(cluster)):
            await until(lambda: state(desk, action) == "succeeded")
        return time.monotonic() - began

    assert asyncio.run(go()) >= 1


@pytest.mark.parametrize("seconds", [86400.0, -86400.0])
def test_the_clock_jumps_while_it_is_under_way(desk: Desk, seconds: float) -> None:
    action, cluster = isolation(desk), Cluster(slow_s=0.5)

    async def go() -> None:
        async with dispatching(desk.actions, by(cluster)):
            await until(lambda: cluster.asked)
            desk.clock.now += seconds
            await desk.actions.tick_all()
            await until(lambda: state(desk, action) == "succeeded")

    asyncio.run(go())
    assert len(cluster.asked) == 1
    assert node(desk)["state"] == "isolated"
    assert desk.record(action).late == (seconds > 0)


class Odd:
    """A desk where something happens in between."""

    def __init__(self, actions: Actions, **refusals: list[Exception]) -> None:
        self._actions, self._refusals = actions, refusals
        self.before: dict[str, Callable[[], Awaitable[Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        async def call(*words: Any) -> Any:
            if before := self.before.pop(name, None):
                await before()
            if self._refusals.get(name):
                raise self._refusals[name].pop(0)
            return await getattr(self._actions, name)(*words)

        return call


def test_a_no_in_the_last_moment(desk: Desk) -> None:
    (action,) = approved(desk)
    odd, cluster = Odd(desk.actions), Cluster()
    odd.before["claim"] = lambda: desk.actions.reject(action, "kim", OPERATOR, "stop")

    async def go() -> None:
        async with dispatching(odd, by(cluster)):
            await until(lambda: state(desk, action) == "rejected")
            await asyncio.sleep(0.2)

    asyncio.run(go())
    assert cluster.asked == []


def test_the_database_is_away_for_a_while(desk: Desk) -> None:
    (action,) = approved(desk)
    away = [Unavailable("the database does not answer") for _ in range(2)]
    odd, cluster = Odd(desk.actions, orders=away[:1], claim=away[:1], begin=list(away), finish=list(away)), Cluster()

    async def go() -> None:
        async with dispatching(odd, by(cluster)):
            await until(lambda: state(desk, action) == "succeeded")

    asyncio.run(go())
    assert len(cluster.asked) == 1


def test_whose_lease_is_lost_tries_nothing_more(base: Store, tmp_path: Path) -> None:
    desk = Desk(base, auto(tmp_path, "life: {lease: 1s}"))
    (action,) = approved(desk)
    odd, cluster = Odd(desk.actions, renew=[Conflict("not yours")]), Cluster(says=[Outcome("failed", "away", True)] * 10_000)

    async def go() -> None:
        async with dispatching(odd, by(cluster, patience_s=60)):
            await until(lambda: state(desk, action) == "failed")

    asyncio.run(go())
    assert desk.record(action).result == "away"


def test_one_slow_cluster_does_not_hold_up_another(desk: Desk) -> None:
    actions = approved(desk, 8)
    slow, quick = Cluster(slow_s=60), Cluster()
    executors = (
        by(slow, which=Which(job="j[0-4]"), at_once=2),
        replace(by(quick, which=Which(job="j[5-7]")), name="quick"),
    )

    async def go() -> None:
        async with dispatching(desk.actions, *executors):
            await until(lambda: len(quick.deeds) == 6)
            await until(lambda: slow.at_once == 2)
            await asyncio.sleep(0.2)

    asyncio.run(go())
    assert slow.most_at_once == 2
    assert sorted(state(desk, action) for action in actions) == ["approved"] * 3 + ["running"] * 2 + ["succeeded"] * 3


def test_an_executor_that_is_not_configured_any_more(desk: Desk) -> None:
    (action,) = approved(desk)
    cluster = Cluster()
    asyncio.run(cut_off_at(4, desk, cluster, by(cluster)))

    async def go() -> None:
        async with dispatching(desk.actions, replace(by(Cluster()), name="other")):
            await asyncio.sleep(0.1)

    asyncio.run(go())
    assert state(desk, action) == "running"  # until its lease lapses; then a person looks


def test_a_new_name_is_on_disk_before_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut the service had another name, and waited a minute for itself."""
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", lambda file: synced.append(os.fstat(file).st_ino))
    name_in(tmp_path, "service")
    assert synced == [(tmp_path / "executor-name").stat().st_ino, tmp_path.stat().st_ino]


def test_the_name_stays(tmp_path: Path) -> None:
    name = name_in(tmp_path, "service")
    assert name.startswith("service-")
    assert name_in(tmp_path, "service") == name
    (tmp_path / "executor-name").write_bytes(b"\xff\x00")
    assert name_in(tmp_path, "service") != name


# --- nodes that are tested first

VERDICT = {"schema": "diagnose.nodecheck/1", "kind": "verdict", "good": ["n1", "n3"], "faulty": ["n2"], "rounds": 2}
WANTED = "actions: {preempted: {check_nodes: true}}\nlimits: {isolated_share: 40%}\n"


def ran_on_three_nodes(desk: Desk) -> int:
    opened = begin(desk.store, "j0")
    made = flush(opened, 1, judged=JudgedReport(report("preempted"), True, desk.clock.now, Ran(60.0, 1)))
    sources = [SourceState(n, f"s{n}", n, f"n{n + 1}", 10, b"", b"", 5.0) for n in range(3)]
    desk.store.write(taking_in([replace(made, sources=sources)]))
    desk.decide()
    desk.clock.now += 600
    return int(desk.rows()[0]["id"])


def a_check(folder: Path, more: str = "") -> NodeCheck:
    script = f"echo \"$1\" >> {folder}/tested; {more} echo '{json.dumps(VERDICT)}'"
    return NodeCheck(["/bin/sh", "-c", script, "check", "{nodes}"])


def test_the_restart_goes_without_the_node_that_a_test_found_faulty(base: Store, tmp_path: Path) -> None:
    desk, cluster = Desk(base, auto(tmp_path, WANTED)), Cluster()
    action = ran_on_three_nodes(desk)

    async def go() -> None:
        async with dispatching(desk.actions, by(cluster, kinds=frozenset({"restart"}), check=a_check(tmp_path))):
            await until(lambda: state(desk, action) == "succeeded")

    asyncio.run(go())
    assert (tmp_path / "tested").read_text() == "n1,n2,n3\n"
    assert (cluster.orders[-1].avoid, cluster.orders[-1].check) == (("n2",), ())
    assert desk.record(action).result == "drained; requeued; 3 nodes were tested: faulty: n2"
    isolation = next(row for row in desk.rows() if row["kind"] == "isolate")
    assert (isolation["nodes"], isolation["state"]) == (["n2"], "approved")


def test_a_service_that_is_away_hears_of_the_test_later(base: Store, tmp_path: Path) -> None:
    desk, cluster = Desk(base, auto(tmp_path, WANTED)), Cluster()
    action = ran_on_three_nodes(desk)
    odd = Odd(desk.actions, checked=[Unavailable("the database does not answer") for _ in range(3)])

    async def go() -> None:
        async with dispatching(odd, by(cluster, kinds=frozenset({"restart"}), check=a_check(tmp_path))):
            await until(lambda: state(desk, action) == "succeeded")

    asyncio.run(go())
    assert [row["nodes"] for row in desk.rows() if row["kind"] == "isolate"] == [["n2"]]


def test_a_verdict_that_nobody_wants_is_not_told_for_ever(base: Store, tmp_path: Path) -> None:
    desk, cluster = Desk(base, auto(tmp_path, WANTED)), Cluster()
    action = ran_on_three_nodes(desk)
    odd = Odd(desk.actions, checked=[Refused("no verdict")])

    async def go() -> None:
        async with dispatching(odd, by(cluster, kinds=frozenset({"restart"}), check=a_check(tmp_path))):
            await until(lambda: state(desk, action) == "succeeded")

    asyncio.run(go())
    assert [row for row in desk.rows() if row["kind"] == "isolate"] == []


def test_a_test_that_cannot_be_made_holds_nothing_up(base: Store, tmp_path: Path) -> None:
    desk, cluster = Desk(base, auto(tmp_path, WANTED)), Cluster()
    action = ran_on_three_nodes(desk)

    async def go() -> None:
        async with dispatching(desk.actions, by(cluster, check=a_check(tmp_path, "exit 9;"))):
            await until(lambda: state(desk, action) == "succeeded")

    asyncio.run(go())
    assert cluster.orders[-1].avoid == ()
    assert "not tested: /bin/sh ended with 9 and no verdict" in str(desk.record(action).result)


@pytest.mark.parametrize(
    ("text", "configured", "dry_run"),
    [
        pytest.param("", True, False, id="the-policy-does-not-want-it"),
        pytest.param(WANTED, False, False, id="nobody-knows-how"),
        pytest.param(WANTED, True, True, id="dry-run"),
    ],
)
def test_when_nothing_is_tested(base: Store, tmp_path: Path, text: str, configured: bool, dry_run: bool) -> None:
    desk, cluster = Desk(base, auto(tmp_path, text)), Cluster()
    action = ran_on_three_nodes(desk)
    executor = by(cluster, check=a_check(tmp_path) if configured else None, dry_run=dry_run)

    async def go() -> None:
        async with dispatching(desk.actions, executor):
            await until(lambda: state(desk, action) in ("succeeded", "failed"))

    asyncio.run(go())
    assert not (tmp_path / "tested").exists()
    assert ("would have tested n1, n2, n3" in str(desk.record(action).result)) == dry_run


def test_after_a_crash_nodes_are_not_tested_under_a_job_that_may_run(base: Store, tmp_path: Path) -> None:
    desk, cluster = Desk(base, auto(tmp_path, WANTED)), Cluster()
    action = ran_on_three_nodes(desk)
    executor = by(cluster, kinds=frozenset({"restart"}), check=a_check(tmp_path))
    assert asyncio.run(cut_off_at(6, desk, cluster, executor))

    async def again() -> None:
        async with dispatching(desk.actions, executor):
            await until(lambda: state(desk, action) == "succeeded")

    asyncio.run(again())
    assert (tmp_path / "tested").read_text() == "n1,n2,n3\n"
    assert len(cluster.deeds) == 2


def test_whose_lease_lapsed_during_the_test_does_nothing(base: Store, tmp_path: Path) -> None:
    desk, cluster = Desk(base, auto(tmp_path, WANTED + "life: {lease: 1s}\n")), Cluster()
    action = ran_on_three_nodes(desk)
    odd = Odd(desk.actions, renew=[Conflict("not yours")])

    async def go() -> None:
        async with dispatching(odd, by(cluster, kinds=frozenset({"restart"}), check=a_check(tmp_path, "sleep 1;"))):
            await until(lambda: state(desk, action) == "failed")

    asyncio.run(go())
    assert cluster.asked == []
    assert "not begun, its lease lapsed meanwhile" in str(desk.record(action).result)


# --- nodes that are doubted, tested by themselves


def doubted(desk: Desk) -> tuple[int, int]:
    """A restart that leaves n2 alone, and the order to test n2."""
    opened = begin(desk.store, "j0")
    said = report("nvlink_error", nodes=("n2",))
    said = said.model_copy(update={"action": Action(kind="isolate_and_restart", nodes=["n2"], why="because")})
    made = flush(opened, 1, judged=JudgedReport(said, True, desk.clock.now, Ran(60.0, 1)))
    sources = [SourceState(n, f"s{n}", n, f"n{n + 1}", 10, b"", b"", 5.0) for n in range(3)]
    desk.store.write(taking_in([replace(made, sources=sources)]))
    desk.decide()
    desk.clock.now += 600
    found = {row["kind"]: row for row in desk.rows()}
    assert (found["restart"]["avoid"], found[CHECK]["nodes"]) == (["n2"], ["n2"])
    return int(found["restart"]["id"]), int(found[CHECK]["id"])


TESTS = "limits: {checks_per_hour: 6, isolated_share: 40%}\n"
ABLE = frozenset({"restart", CHECK})


def test_a_node_that_is_doubted_is_tested_while_the_job_goes_on(base: Store, tmp_path: Path) -> None:
    desk, cluster = Desk(base, auto(tmp_path, TESTS)), Cluster()
    restart, test = doubted(desk)

    async def go() -> None:
        async with dispatching(desk.actions, by(cluster, kinds=ABLE, at_once=1, check=a_check(tmp_path, "sleep 1;"))):
            await until(lambda: state(desk, restart) == "succeeded")
            assert state(desk, test) == "running"
            await until(lambda: state(desk, test) == "succeeded")

    asyncio.run(go())
    assert (tmp_path / "tested").read_text() == "n2\n"
    assert [order.kind for order in cluster.orders] == ["restart"]
    assert desk.record(test).result == "n2 was tested: faulty: n2"
    assert [row["nodes"] for row in desk.rows() if row["kind"] == "isolate"] == [["n2"]]


def test_a_node_that_is_in_use_is_tested_later(base: Store, tmp_path: Path) -> None:
    desk, cluster = Desk(base, auto(tmp_path, TESTS)), Cluster()
    _, test = doubted(desk)
    busy = f"[ -e {tmp_path}/free ] || {{ touch {tmp_path}/free; echo busy >&2; exit 1; }};"

    async def go() -> None:
        async with dispatching(desk.actions, by(cluster, kinds=ABLE, check=a_check(tmp_path, busy))):
            await until(lambda: state(desk, test) == "succeeded")

    asyncio.run(go())
    assert (tmp_path / "tested").read_text() == "n2\nn2\n"


@pytest.mark.parametrize(
    ("more", "dry_run", "said"),
    [
        pytest.param("exit 9;", False, "not tested: /bin/sh ended with 9 and no verdict", id="always-in-use"),
        pytest.param("", True, "dry run: would have tested n2", id="dry-run"),
    ],
)
def test_a_node_that_was_not_tested_is_accused_of_nothing(
    base: Store, tmp_path: Path, more: str, dry_run: bool, said: str
) -> None:
    desk, cluster = Desk(base, auto(tmp_path, TESTS)), Cluster()
    _, test = doubted(desk)
    executor = by(cluster, kinds=ABLE, check=a_check(tmp_path, more), patience_s=0.2, dry_run=dry_run)

    async def go() -> None:
        async with dispatching(desk.actions, executor):
            await until(lambda: state(desk, test) == "failed")

    asyncio.run(go())
    assert desk.record(test).result == said
    assert not [row for row in desk.rows() if row["kind"] == "isolate"]


def test_a_test_of_other_nodes_is_not_repeated(base: Store, tmp_path: Path) -> None:
    desk, cluster = Desk(base, auto(tmp_path, TESTS)), Cluster()
    _, test = doubted(desk)
    others = json.dumps({**VERDICT, "good": ["n8", "n9"], "faulty": []})
    program = NodeCheck(["/bin/sh", "-c", f"echo \"$1\" >> {tmp_path}/tested; echo '{others}'", "check", "{nodes}"])

    async def go() -> None:
        async with dispatching(desk.actions, by(cluster, kinds=ABLE, check=program)):
            await until(lambda: state(desk, test) == "failed")

    asyncio.run(go())
    assert (tmp_path / "tested").read_text() == "n2\n"
    assert desk.record(test).result == "not tested: /bin/sh tested others"


def test_a_test_is_made_again_after_a_crash(base: Store, tmp_path: Path) -> None:
    desk, cluster = Desk(base, auto(tmp_path, TESTS)), Cluster()
    _, test = doubted(desk)
    executor = by(cluster, kinds=frozenset({CHECK}), repeatable=False, check=a_check(tmp_path))
    odd = Odd(desk.actions, finish=[Unavailable("away") for _ in range(10_000)])

    async def cut_off() -> None:
        async with dispatching(odd, executor):
            await until(lambda: (tmp_path / "tested").exists() and state(desk, test) == "running")
            await until(lambda: [row for row in desk.rows() if row["kind"] == "isolate"])

    async def again() -> None:
        async with dispatching(desk.actions, executor):
            await until(lambda: state(desk, test) == "succeeded")

    asyncio.run(cut_off())
    asyncio.run(again())
    assert (tmp_path / "tested").read_text() == "n2\nn2\n"
    assert [row["nodes"] for row in desk.rows() if row["kind"] == "isolate"] == [["n2"]]


def test_an_executor_that_lost_its_check_tests_nothing(base: Store, tmp_path: Path) -> None:
    desk, cluster = Desk(base, auto(tmp_path, TESTS)), Cluster()
    _, test = doubted(desk)

    async def go() -> None:
        async with dispatching(desk.actions, by(cluster, kinds=frozenset({CHECK}))):
            await until(lambda: state(desk, test) == "failed")

    asyncio.run(go())
    assert desk.record(test).result == "own has no check any more"


# --- the real service, killed


SCRIPT = """#!/bin/sh
cd "$1"
cat >> asked
echo >> asked
[ -e done ] && { echo "was done"; exit 0; }
touch begun
while [ ! -e go ]; do sleep 0.05; done
touch done
echo "did it"
"""
CANCELLED = b"slurmstepd: error: *** JOB 8812 ON gpu-1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***\n"


@pytest.fixture
def acting(tmp_path: Path) -> Iterator[Server]:
    """A service whose executors are a program that looks before it acts, and one that cannot."""
    script = tmp_path / "act"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    text = "executors:\n"
    for name, looks in (("looks", "true"), ("cannot", "false")):
        (tmp_path / name).mkdir()
        text += f"  - {{name: {name}, type: command, jobs: {{job: {name}}}, repeatable: {looks}, "
        text += f"command: [{script}, {tmp_path / name}]}}\n"
    (tmp_path / "executors.yaml").write_text(text)
    (tmp_path / "policy.yaml").write_text("mode: auto\nbudgets: {preempted: {backoff: 0s}}\n")
    words = "--authority", "labels", "--policy", str(tmp_path / "policy.yaml"), "--executors", str(tmp_path / "executors.yaml")
    with Server(tmp_path / "data", *words) as server:
        yield server


@pytest.mark.server
def test_a_service_that_is_killed_while_it_acts(acting: Server, tmp_path: Path) -> None:
    names = ("looks", "cannot")
    for name in names:
        acting.push(name, b"step 1 loss 2.0\n" + CANCELLED)
        acting.end(name, 143)
    wait(lambda: all((tmp_path / name / "begun").exists() for name in names), acting)
    acting.kill()
    time.sleep(0.3)
    for name in names:
        (tmp_path / name / "go").touch()
    time.sleep(0.3)
    assert not any((tmp_path / name / "done").exists() for name in names), "what it had started went on without it"
    acting.start()
    wait(lambda: not {one["state"] for one in acting.get("/v1/actions")["actions"]} - {"succeeded", "failed"}, acting)
    done = {one["job"]: one for one in acting.get("/v1/actions")["actions"]}
    asked = {
        name: [json.loads(line)["order"]["key"] for line in (tmp_path / name / "asked").read_text().splitlines() if line]
        for name in names
    }
    assert (done["looks"]["state"], asked["looks"]) == ("succeeded", [done["looks"]["key"]] * 2)
    assert (done["cannot"]["state"], asked["cannot"]) == ("failed", [done["cannot"]["key"]])
    assert "nobody knows whether it was done" in done["cannot"]["result"]["said"]
    assert 'diagnose_orders_total{executor="looks",result="succeeded"} 1.0' in acting.client.get("/metrics").text


def wait(done: Callable[[], object], server: Server, within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline, server.log[-3000:]
        time.sleep(0.05)


@pytest.mark.server
def test_a_service_with_a_bad_file_says_which_line(tmp_path: Path) -> None:
    (tmp_path / "executors.yaml").write_text("executors:\n  - {name: a, type: pbs}\n")
    server = Server(tmp_path / "data", "--executors", str(tmp_path / "executors.yaml"))
    with pytest.raises(AssertionError, match=r"executors.yaml:2: executors.0.type: 'pbs' is no type"):
        server.start()
    assert not (tmp_path / "data").exists()
