"""What Slurm's executor makes of a job as it finds it: the next attempt is nobody's to restart twice.

The controller here is as much of slurmctld as our orders touch; that the real one is so is for ``test_slurm`` to show.
"""

from __future__ import annotations

import asyncio
import re

import pytest

from service.acting.executors.claim import Confirmed
from service.acting.executors.executor import Order, Outcome, Problem
from service.acting.executors.slurm import Canceller, Job, Moved, Node, Run, Slurm, Unsupported

KEY = "0123456789abcdef0123456789abcdef"


class Killed(Exception):
    """Nobody waits for an answer any more."""


class Controller:
    """Slurm, with one job."""

    def __init__(self, state: str = "RUNNING", restarts: int = 0, held: str = "", comment: str = "") -> None:
        self.state, self.restarts, self.held = state, restarts, held
        self.excluded, self.comment = "", comment
        self.reasons: dict[str, str] = {}
        """of nodes that are drained"""
        self.done: list[str] = []
        self.after: tuple[int, Exception] | None = None
        """what comes in the place of the answer to that deed"""

    async def node(self, name: str) -> Node | None:
        drained = name in self.reasons
        return Node(name, frozenset({"IDLE", "DRAIN"} if drained else {"IDLE"}), self.reasons.get(name, ""))

    async def job(self, job_id: str) -> Job | None:
        if not self.state:
            return None
        return Job(job_id, frozenset(filter(None, (self.state, self.held))), self.restarts, self.excluded, self.comment)

    async def drain(self, name: str, reason: str) -> None:
        self.reasons[name] = reason
        self._did(f"drain {name}")

    async def resume(self, name: str) -> None:
        self._did(f"resume {name}")

    async def note(self, job_id: str, comment: str) -> None:
        assert self.state not in ("FAILED", "COMPLETING"), "Job has already finished"
        self.comment = comment
        self._did("note")

    async def exclude(self, job_id: str, nodes: str) -> None:
        assert self.state == "PENDING", "Job is no longer pending execution"
        self.excluded = ",".join(dict.fromkeys(nodes.split(",")))
        self._did("exclude")

    async def requeue(self, job_id: str, *, hold: bool) -> None:
        assert self.state != "PENDING", "Job is pending execution"
        self.state, self.restarts, self.held = "PENDING", self.restarts + 1, "REQUEUE_HOLD" if hold else ""
        self._did("requeue")

    async def release(self, job_id: str) -> None:
        self.held = ""
        self._did("release")

    async def cancel(self, job_id: str) -> None:
        raise AssertionError("no order here cancels a job")

    async def canceller(self, job: Job) -> Canceller | None:
        raise AssertionError("no order here was cancelled")

    async def runs(self, job_id: str) -> tuple[Run, ...]:
        raise Unsupported

    async def down(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    async def lacks(self) -> list[str]:
        return []

    async def check(self) -> list[str]:
        return []

    def _did(self, what: str) -> None:
        self.done.append(what)
        if self.after is not None and len(self.done) == self.after[0]:
            raise self.after[1]


def carry_out(controller: Controller, order: Order) -> Outcome:
    return asyncio.run(Slurm([controller]).carry_out(order))


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "FAILED", "COMPLETED", "NODE_FAIL"])
def test_an_attempt_after_the_one_that_was_decided_about_is_left_alone(state: str) -> None:
    controller = Controller(state, restarts=1)

    outcome = carry_out(controller, Order(KEY, "restart", "7", 1))

    assert (outcome.state, controller.done) == ("succeeded", []), outcome
    assert "job 7 was restarted since" in outcome.what


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_the_attempt_that_was_decided_about_is_requeued(state: str) -> None:
    controller = Controller(state, restarts=1)

    outcome = carry_out(controller, Order(KEY, "restart", "7", 2))

    assert (outcome.state, controller.restarts) == ("succeeded", 2), outcome


RESTART = Order(KEY, "restart", "7", 1)
ELSEWHERE = Order(KEY, "restart", "7", 1, avoid=("gpu-3",))
TESTED = Order(KEY, "restart", "7", 1, check=("gpu-3", "gpu-4"))
"""after a crash: what the test found is forgotten"""


@pytest.mark.parametrize(
    ("held", "comment", "order"),
    [
        pytest.param("REQUEUE_HOLD", "", RESTART, id="requeued-held-by-a-person"),
        pytest.param("HELD", "", ELSEWHERE, id="held-after-a-person-requeued-it"),
        pytest.param("HELD", f"diagnose {KEY} @0", RESTART, id="held-after-we-requeued-it"),
        pytest.param("REQUEUE_HOLD", f"diagnose {KEY} @0", RESTART, id="we-hold-nothing-without-nodes-to-avoid"),
        pytest.param("HELD", f"diagnose {KEY} @0 without gpu-3", ELSEWHERE, id="held-after-we-let-it-go"),
    ],
)
def test_a_persons_hold_stays(held: str, comment: str, order: Order) -> None:
    controller = Controller("PENDING", 1, held, comment)

    outcome = carry_out(controller, order)

    assert (outcome.state, controller.held, controller.done) == ("succeeded", held, []), outcome
    assert re.search("h[eo]ld", outcome.what)


@pytest.mark.parametrize("order", [ELSEWHERE, TESTED], ids=["avoid", "check"])
def test_a_hold_that_may_be_a_persons_or_ours_stays_and_is_said(order: Order) -> None:
    controller = Controller("PENDING", 1, "REQUEUE_HOLD")

    outcome = carry_out(controller, order)

    assert (outcome.state, outcome.may_retry, controller.done) == ("unknown", False, [])
    assert outcome.what.endswith("to do so: scontrol release 7")


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
@pytest.mark.parametrize("deeds", [1, 2, 3, 4])
def test_killed_after_any_deed_the_job_never_starts_on_a_node_that_was_found_faulty(state: str, deeds: int) -> None:
    controller = Controller(state)
    controller.after = (deeds, Killed())
    with pytest.raises(Killed):
        carry_out(controller, ELSEWHERE)
    between = (controller.state, controller.comment) == ("PENDING", "")  # requeued, and it could not be marked before

    outcome = carry_out(controller, TESTED)

    assert controller.restarts == 1
    assert controller.held or controller.excluded == "gpu-3"
    assert bool(controller.held) == between, outcome
    assert outcome.state == ("unknown" if between else "succeeded")


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
@pytest.mark.parametrize("order", [RESTART, ELSEWHERE], ids=["anywhere", "elsewhere"])
@pytest.mark.parametrize("deeds", [1, 2, 3, 4])
def test_whatever_answer_is_lost_the_next_try_goes_on(state: str, order: Order, deeds: int) -> None:
    controller = Controller(state)
    controller.after = (deeds, Problem("slurmctld is slow", state="unknown", may_retry=True))
    slurm = Slurm([controller])
    first = asyncio.run(slurm.carry_out(order))

    outcome = asyncio.run(slurm.carry_out(order)) if first.may_retry else first

    assert outcome.state == "succeeded", outcome
    assert (controller.restarts, controller.held, controller.excluded) == (1, "", ",".join(order.avoid))


def test_what_others_requeued_while_ours_was_refused_is_theirs() -> None:
    controller = Controller("FAILED")
    slurm = Slurm([controller])
    controller.after = (1, Problem("slurmctld is busy", may_retry=True))
    asyncio.run(slurm.carry_out(ELSEWHERE))  # it says that it did not; who requeued it is not known
    controller.done.clear()

    outcome = asyncio.run(slurm.carry_out(ELSEWHERE))

    assert (outcome.state, controller.held, controller.done) == ("unknown", "REQUEUE_HOLD", [])


class Meddled(Controller):
    """A person does something as soon as the job is marked. While a job ends, Slurm does not say how."""

    def __init__(self, then: str, restarts: int = 0, held: str = "") -> None:
        super().__init__()
        self.then = then, restarts, held

    async def note(self, job_id: str, comment: str) -> None:
        await super().note(job_id, comment)
        if self.done == ["note"]:
            self.state, self.restarts, self.held = self.then


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.acting.executors.slurm._ANOTHER_LOOK_S", 0.0)


@pytest.mark.parametrize(
    ("last", "state", "may_retry", "deeds"),
    [
        pytest.param("CANCELLED", "failed", False, ["note"], id="cancelled-stays-away"),
        pytest.param("FAILED", "succeeded", False, ["note", "requeue"], id="failed-by-itself-comes-back"),
        pytest.param("COMPLETING", "failed", True, ["note"], id="nobody-knows-yet"),
    ],
)
def test_a_marked_job_that_is_just_ending_waits_for_slurms_last_word(
    monkeypatch: pytest.MonkeyPatch, last: str, state: str, may_retry: bool, deeds: list[str]
) -> None:
    at_once(monkeypatch)
    controller = Meddled("COMPLETING")
    slurm = Slurm([controller])

    first = asyncio.run(slurm.carry_out(RESTART))
    controller.state = last
    again = asyncio.run(slurm.carry_out(RESTART))

    assert (first.state, first.may_retry, "is just ending" in first.what) == ("failed", True, True), first
    assert (again.state, again.may_retry, controller.done) == (state, may_retry, deeds), again


def test_whoever_finds_the_mark_of_an_order_on_a_job_that_is_just_ending_waits_too() -> None:
    controller = Controller("COMPLETING", comment=f"diagnose {KEY} @0")

    outcome = carry_out(controller, RESTART)

    assert (outcome.state, outcome.may_retry, controller.done) == ("failed", True, []), outcome


def test_a_job_that_ends_while_it_is_marked_is_not_requeued_unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)

    class Ends(Controller):
        async def note(self, job_id: str, comment: str) -> None:
            self.state = "COMPLETING"
            raise Moved("Job has already finished")

    controller = Ends()
    outcome = carry_out(controller, RESTART)

    assert (outcome.state, outcome.may_retry, controller.done) == ("failed", True, []), outcome


@pytest.mark.parametrize("order", [RESTART, ELSEWHERE], ids=["anywhere", "elsewhere"])
@pytest.mark.parametrize(
    ("state", "held"), [("PENDING", ""), ("PENDING", "REQUEUE_HOLD"), ("RUNNING", "")], ids=["waits", "held", "runs-again"]
)
def test_what_a_person_requeues_after_our_mark_is_theirs(
    monkeypatch: pytest.MonkeyPatch, order: Order, state: str, held: str
) -> None:
    at_once(monkeypatch)
    controller = Meddled(state, restarts=1, held=held)

    outcome = carry_out(controller, order)

    assert (outcome.state, controller.restarts, controller.held, controller.excluded) == ("succeeded", 1, held, ""), outcome
    assert controller.comment == ""
    assert "job 7 was restarted since" in outcome.what


def test_what_a_person_requeues_while_our_requeue_is_refused_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)

    class Quicker(Controller):
        async def requeue(self, job_id: str, *, hold: bool) -> None:
            await super().requeue(job_id, hold=True)
            raise Moved("Job is pending execution")

    controller = Quicker(comment="ask Ann")
    outcome = carry_out(controller, ELSEWHERE)

    assert (outcome.state, controller.restarts, controller.held) == ("succeeded", 1, "REQUEUE_HOLD"), outcome
    assert controller.comment == "ask Ann"


ISOLATE = Order(KEY, "isolate_and_restart", "7", 1, nodes=("gpu-1", "gpu-2"))


def test_what_was_drained_before_the_rest_failed_is_told() -> None:
    controller = Controller("FAILED")
    controller.reasons["gpu-2"] = "fan change"
    controller.after = (2, Problem("Requested operation is presently disabled"))  # as of a job with --no-requeue

    outcome = carry_out(controller, ISOLATE)

    assert (outcome.state, controller.done) == ("failed", ["drain gpu-1", "requeue"])
    assert outcome.isolated == ("gpu-1",)


def test_what_was_drained_before_a_cut_off_is_told_also_when_the_job_is_gone() -> None:
    controller = Controller("FAILED")
    controller.after = (2, Killed())
    with pytest.raises(Killed):
        carry_out(controller, ISOLATE)
    controller.state = ""

    outcome = carry_out(controller, ISOLATE)

    assert (outcome.state, outcome.isolated) == ("failed", ("gpu-1", "gpu-2"))
    assert "knows no job 7 any more" in outcome.what


def test_what_others_drained_is_not_ours_where_nothing_was_done() -> None:
    controller = Controller("")
    controller.reasons["gpu-1"] = f"diagnose {'f' * 32}: another order"

    assert carry_out(controller, ISOLATE).isolated == ()


def test_a_dry_run_takes_nothing_out() -> None:
    controller = Controller("FAILED")

    outcome = asyncio.run(Slurm([controller]).carry_out(ISOLATE, dry_run=True))

    assert (outcome.state, outcome.isolated, controller.done) == ("succeeded", (), [])


def test_all_nodes_that_a_check_found_faulty_are_left_out() -> None:
    controller = Controller("FAILED")
    faulty = tuple(f"gpu-{number}" for number in range(100))

    outcome = carry_out(controller, Order(KEY, "restart", "7", 1, avoid=faulty))

    assert (outcome.state, controller.held) == ("succeeded", ""), outcome
    assert controller.excluded == ",".join(faulty)


def test_no_order_takes_so_many_nodes_out() -> None:
    controller = Controller("FAILED")

    outcome = carry_out(controller, Order(KEY, "isolate", nodes=tuple(f"gpu-{number}" for number in range(100))))

    assert (outcome.state, controller.done) == ("failed", [])


class Accounted(Controller):
    """One that knows the attempts of its job, of which two lost a node; gpu-1 is down now."""

    async def runs(self, job_id: str) -> tuple[Run, ...]:
        return Run("NODE_FAIL", ("gpu-1", "gpu-2")), Run("NODE_FAIL", ("gpu-1", "gpu-3")), Run("RUNNING", ("gpu-4",))

    async def down(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name == "gpu-1")


@pytest.mark.parametrize(("attempt", "named"), [(1, ()), (2, ("gpu-1",))])
def test_a_node_that_is_down_now_is_named_for_the_attempt_before_alone(attempt: int, named: tuple[str, ...]) -> None:
    found = asyncio.run(Slurm([Accounted(restarts=2)]).confirm(Order(KEY, "restart", "7", attempt)))
    assert isinstance(found, Confirmed)
    assert found.ending is not None
    assert (found.ending.kind, found.ending.nodes) == ("node_failure", named)
