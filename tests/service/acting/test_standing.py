"""What an action rests on: what the scheduler confirms, what it puts off, and what happens when it never answers.

A scheduler that is away, or whose job is just ending, cannot be had at will, so its answers are made here. What real
ones answer is tested in ``test_attacks`` and ``test_attacks_kubernetes``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.decision.policy import Policy
from service.acting.actions import Actions
from service.acting.authority import Authority
from service.acting.executors.claim import Confirmed, Unconfirmed
from service.acting.executors.executor import Order
from service.store import Store
from tests.service.acting.test_actions import Desk, broken, failed, of_the_code, policy

AWAY = Unconfirmed("slurm does not answer", for_now=True)
ENDS = Unconfirmed("the job is completing", ending_now=True)
FOREIGN = Unconfirmed("the job is another user's")
PATIENCE_S = 300.0
AUTO = "mode: auto\nbudgets: {cuda_error: {backoff: 0s}}\nconfidence: {restart: 0}"


class Answers(Authority):
    """Gives the answer that a test has set."""

    def __init__(self) -> None:
        super().__init__(())
        self.answer: Confirmed | Unconfirmed = FOREIGN
        self.asked: list[Order] = []

    async def confirm(self, order: Order) -> Confirmed | Unconfirmed:
        self.asked.append(order)
        return self.answer

    async def nodes(self) -> tuple[str, ...] | None:
        return tuple(f"n{number}" for number in range(1, 41))


def desk_of(store: Store, chosen: Policy) -> tuple[Desk, Answers]:
    desk, answers = Desk(store, chosen), Answers()
    desk.actions = Actions(store, desk.events, chosen, desk.clock, 2.0, answers)
    return desk, answers


def put_off(desk: Desk) -> None:
    desk.run(desk.actions.decide_put_off())


def test_an_action_that_names_no_node_needs_a_yes_too(store: Store, tmp_path: Path) -> None:
    desk, answers = desk_of(store, policy(tmp_path, AUTO))
    failed(desk)
    desk.decide()
    (row,) = desk.rows()
    assert (row["kind"], row["state"], row["unconfirmed"]) == ("restart", "proposed", FOREIGN.why)
    assert [order.kind for order in answers.asked] == ["restart"]


def test_what_the_scheduler_confirms_goes_on_by_itself(store: Store, tmp_path: Path) -> None:
    desk, answers = desk_of(store, policy(tmp_path, AUTO))
    answers.answer = Confirmed("17", "kim", ("n1",))
    failed(desk)
    desk.decide()
    (row,) = desk.rows()
    assert (row["state"], row["unconfirmed"], row["owner"]) == ("approved", None, "default/kim")


def test_a_scheduler_that_is_away_is_asked_again_and_then_a_person_is(store: Store, tmp_path: Path) -> None:
    desk, answers = desk_of(store, policy(tmp_path, AUTO))
    answers.answer = AWAY
    failed(desk)
    desk.decide()
    assert desk.rows() == []
    desk.clock.now += PATIENCE_S - 1
    put_off(desk)
    assert desk.rows() == []
    desk.clock.now += 2
    put_off(desk)
    (row,) = desk.rows()
    assert (row["state"], row["unconfirmed"]) == ("proposed", AWAY.why)
    asked = len(answers.asked)
    put_off(desk)
    assert len(answers.asked) == asked, "it is decided"


def test_where_a_person_decides_anyway_nobody_waits_for_a_scheduler_that_is_away(store: Store, tmp_path: Path) -> None:
    desk, answers = desk_of(store, policy(tmp_path, "mode: approve"))
    answers.answer = AWAY
    failed(desk)
    desk.decide()
    (row,) = desk.rows()
    assert (row["state"], row["unconfirmed"]) == ("proposed", AWAY.why)


@pytest.mark.parametrize("mode", ["approve", "auto"])
def test_a_job_that_is_just_ending_is_waited_for(store: Store, tmp_path: Path, mode: str) -> None:
    desk, answers = desk_of(store, policy(tmp_path, f"mode: {mode}"))
    answers.answer = ENDS
    failed(desk)
    desk.decide()
    assert desk.rows() == []
    answers.answer = FOREIGN
    put_off(desk)
    assert [row["unconfirmed"] for row in desk.rows()] == [FOREIGN.why]


def test_nobody_waits_for_a_yes_to_nothing(store: Store, tmp_path: Path) -> None:
    desk, answers = desk_of(store, policy(tmp_path, AUTO))
    answers.answer = AWAY
    failed(desk, made=of_the_code())
    desk.decide()
    assert all(row["unconfirmed"] is None for row in desk.rows())
    asked = len(answers.asked)
    put_off(desk)
    assert len(answers.asked) == asked


def test_a_node_is_not_taken_out_on_the_word_of_an_unconfirmed_log(store: Store, tmp_path: Path) -> None:
    desk, _ = desk_of(store, policy(tmp_path, AUTO))
    failed(desk, made=broken())
    desk.decide()
    assert {row["state"] for row in desk.rows()} == {"proposed"}
    assert {row["unconfirmed"] for row in desk.rows()} == {FOREIGN.why}
