"""What Slurm's executor makes of a job as it finds it: the next attempt is nobody's to restart twice.

The controller here is as much of slurmctld as our orders touch; that the real one is so is for ``test_slurm`` to show.
"""

from __future__ import annotations

import asyncio

import pytest

from service.executors.executor import Order, Outcome
from service.executors.slurm import Job, Node, Slurm

KEY = "0123456789abcdef0123456789abcdef"


class Controller:
    """Slurm, with one job."""

    def __init__(self, state: str = "RUNNING", restarts: int = 0) -> None:
        self.state, self.restarts, self.held = state, restarts, ""
        self.excluded, self.comment = "", ""
        self.done: list[str] = []

    async def node(self, name: str) -> Node | None:
        return Node(name, frozenset({"IDLE"}), "")

    async def job(self, job_id: str) -> Job | None:
        return Job(job_id, frozenset(filter(None, (self.state, self.held))), self.restarts, self.excluded, self.comment)

    async def drain(self, name: str, reason: str) -> None:
        self.done.append(f"drain {name}")

    async def resume(self, name: str) -> None:
        self.done.append(f"resume {name}")

    async def note(self, job_id: str, comment: str) -> None:
        assert self.state != "FAILED", "Job has already finished"
        self.comment = comment
        self.done.append("note")

    async def exclude(self, job_id: str, nodes: str) -> None:
        assert self.state == "PENDING", "Job is no longer pending execution"
        self.excluded = nodes
        self.done.append("exclude")

    async def requeue(self, job_id: str, *, hold: bool) -> None:
        assert self.state != "PENDING", "Job is pending execution"
        self.state, self.restarts, self.held = "PENDING", self.restarts + 1, "REQUEUE_HOLD" if hold else ""
        self.done.append("requeue")

    async def release(self, job_id: str) -> None:
        self.held = ""
        self.done.append("release")

    async def cancel(self, job_id: str) -> None:
        raise NotImplementedError

    async def check(self) -> list[str]:
        return []


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
