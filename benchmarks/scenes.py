"""What else happens in a month: jobs that hang or are cancelled, soft failures that come together, and people who act too.

``benchmarks.simulation`` plays it beside its own months and prints it below them. Decisions are those of ``decide``. Restarts
and drains go through the real executor of Slurm, with a Slurm of a few lines behind its door. It keeps what is dangerous there:
a requeue also takes a job that was cancelled a moment ago, and a drain takes the place of another's reason.
"""

from __future__ import annotations

import asyncio
import functools
import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from benchmarks.simulation import BEGIN, DAY, HOUR, STUDY, Diagnosed, Job, Row, World, auto
from diagnose.decision.decide import decide
from diagnose.decision.ending import Ending
from diagnose.decision.history import History
from diagnose.decision.policy import Policy
from diagnose.decision.result import RESTARTS, Decision
from diagnose.report import EvidenceLine, Report
from service.acting.executors import slurm
from service.acting.executors.executor import Order, Problem

Deed = Literal["cancels it", "requeues it", "requeues and holds it", "drains its node"]
DEEDS: tuple[Deed, ...] = ("cancels it", "requeues it", "requeues and holds it", "drains its node")
_THEIRS = "kim: to be looked at"
_STOPPED = ("connection_error", "runtime_error", "nccl_remote_error", "called_process_error", "native_crash", "key_error")
"""what a program prints that is told to stop: the last one is a bug of its handler, and looks like one of the job"""
_ROW = next(row for row in STUDY if row.reason == "nccl_timeout")
"""times to failure and to restart of what the study does not have"""
_SOFT = ("nccl_timeout", "native_crash", "connection_error", "nccl_remote_error")


@dataclass(frozen=True, slots=True)
class People:
    """What the study does not tell either. These are assumptions."""

    hangs: int = 30
    hang_s: float = 900.0
    """silence after which there is an alarm"""
    late_s: float = 120.0
    """so long after alarm and patience an order is in time"""
    cancelled: int = 60
    unasked: float = 0.25
    """of the cancelled jobs, those of which no scheduler was asked; of the others it was, as often as of all attempts"""
    prints: float = 0.5
    """of the cancelled jobs, those that print an error when they are told to stop"""
    coincidences: int = 10
    soft_failures: int = 4
    """of one user on the same node within a day; a good node"""
    of_two_users: float = 0.3
    """of these coincidences, those that another user's job joins"""
    meddles: float = 0.1
    """of the restarts, those of which somebody does something between decision and order, or while it is carried out"""
    order_s: float = 2.0
    """from the decision to the executor, on average"""
    call_s: float = 0.02
    """for each call of Slurm"""


@dataclass(slots=True)
class Told:
    """What is counted in a month."""

    hangs: int = 0
    """but for those that a person stopped meanwhile"""
    restarted_in_time: int = 0
    cancelled: int = 0
    unasked: int = 0
    ordered: int = 0
    """restarts that were ordered for jobs that their users had cancelled, where the scheduler said so"""
    ordered_unasked: int = 0
    """the same where nobody said so"""
    brought_back: int = 0
    coincidences: int = 0
    isolated: int = 0
    wrong: int = 0
    wrong_soft: int = 0
    """of the nodes that were isolated wrongly, those with soft failures that came together"""
    orders: int = 0
    meddled: Counter[Deed] = field(default_factory=Counter)
    twice: int = 0
    against: Counter[Deed] = field(default_factory=Counter)


class Person:
    """Who does something to a job, or to its node, at a moment."""

    def __init__(self, deed: Deed, at: float) -> None:
        self.deed, self.at, self.done = deed, at, False


class Scheduler:
    """The door to a Slurm that knows one job and its nodes."""

    def __init__(self, job: slurm.Job, nodes: Sequence[str], person: Person | None, now: float, call_s: float) -> None:
        self.the_job = job
        self.the_nodes = {name: slurm.Node(name, frozenset({"MIXED"}), "") for name in nodes}
        self.before, self.person, self.now, self.call_s = job.restarts, person, now, call_s

    def _call(self) -> None:
        self.now += self.call_s
        self.meet()

    def meet(self) -> None:
        """The person acts, if it is time."""
        one = self.person
        if one is None or one.done or self.now < one.at:
            return
        one.done = True
        if one.deed == "cancels it":
            self.the_job = replace(self.the_job, states=frozenset({"CANCELLED"}))
        elif one.deed == "drains its node":
            name = next(iter(self.the_nodes))
            self.the_nodes[name] = slurm.Node(name, frozenset({"MIXED", "DRAIN"}), _THEIRS)
        elif not self.the_job.states & {"PENDING"}:
            states = {"PENDING"} | ({"HELD"} if "holds" in one.deed else set())
            self.the_job = replace(self.the_job, states=frozenset(states), restarts=self.the_job.restarts + 1)
        else:  # our order was quicker
            one.done, self.person = False, None

    async def node(self, name: str) -> slurm.Node | None:
        self._call()
        return self.the_nodes.get(name)

    async def nodes(self) -> tuple[str, ...]:
        return tuple(self.the_nodes)

    async def job(self, job_id: str) -> slurm.Job | None:
        self._call()
        return self.the_job

    async def drain(self, name: str, reason: str) -> None:
        self._call()
        self.the_nodes[name] = slurm.Node(name, frozenset({"MIXED", "DRAIN"}), reason)

    async def resume(self, name: str) -> None:
        raise AssertionError("no order gives a node back here")

    async def can_reboot(self) -> None: ...

    async def reboot(self, name: str) -> None:
        raise AssertionError("no order reboots a node here")

    async def note(self, job_id: str, comment: str) -> None:
        self._call()
        self.the_job = replace(self.the_job, comment=comment)

    async def exclude(self, job_id: str, nodes: str) -> None:
        self._call()
        self.the_job = replace(self.the_job, excluded=nodes)

    async def requeue(self, job_id: str, *, hold: bool) -> None:
        self._call()
        if "PENDING" in self.the_job.states:
            raise Problem("Requested operation is presently disabled")
        states = frozenset({"PENDING", "REQUEUE_HOLD"} if hold else {"PENDING"})
        self.the_job = replace(self.the_job, states=states, restarts=self.the_job.restarts + 1)

    async def release(self, job_id: str) -> None:
        self._call()
        self.the_job = replace(self.the_job, states=self.the_job.states - {"REQUEUE_HOLD", "HELD"})

    async def cancel(self, job_id: str) -> None:
        raise AssertionError("no order cancels a job here")

    async def canceller(self, job: slurm.Job) -> slurm.Canceller | None:
        raise slurm.Unsupported  # it has no accounting

    async def runs(self, job_id: str) -> tuple[slurm.Run, ...]:
        raise slurm.Unsupported

    async def down(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    async def check(self) -> list[str]:
        return []

    async def lacks(self) -> list[str]:
        return []


async def carry_out(order: Order, door: Scheduler) -> None:
    """As the dispatcher does: what may be tried again is, a few times."""
    executor = slurm.Slurm([door])
    for _ in range(4):
        outcome = await executor.carry_out(order)
        if outcome.state != "failed" or not outcome.may_retry:
            return


class Scenes(Diagnosed):
    """A month with people in it."""

    def __init__(self, world: World, seed: int, policy: Policy, people: People) -> None:
        super().__init__(world, seed, policy)
        self.people = people
        self.scenes = Told()
        self.folk = random.Random(seed + 1_000_003)
        """their chance is their own, so that the jobs of a month do not depend on them"""
        self.decided: dict[str, Decision] = {}
        self.endings: dict[str, Ending | None] = {}
        self.printed: dict[str, tuple[str, str | None]] = {}
        """job -> the reason that its log gives, and the node that it names, where the scene says so"""
        self.users: dict[str, str] = {}
        self.soft: set[str] = set()
        self.stopped: set[str] = set()
        """jobs that a person stopped while an order was on its way: what becomes of them is theirs"""

    def ordinary(self) -> None:
        super().ordinary()
        people, month = self.people, self.world.days / 30
        for many, scene in (
            (people.hangs, self.hang),
            (people.cancelled, self.cancel),
            (people.coincidences, self.coincide),
        ):
            for _ in range(round(many * month)):
                self.at(BEGIN + self.folk.random() * (self.world.days - 2) * DAY, scene)

    def _job(self, reason: str, *, nodes: int = 4) -> Job:
        row = replace(_ROW, reason=reason, gpus=nodes * 8)
        self.number += 1
        job = Job(f"job-{self.number}", row, "passing", nodes * 8, None, f"scene-{self.number}")
        job.left_s = 12 * HOUR
        self.place(job, ())
        job.started, job.step = self.now - 2 * HOUR, 720
        job.struck_at = self.now
        return job

    # --- a job that hangs

    def hang(self) -> None:
        """It has been silent for so long that there is an alarm."""
        job = self._job("nccl_timeout")
        self.printed[job.name] = ("hang", None)
        self.endings[job.name] = None
        report = self.report(job, job.row)
        if report.diagnosis.reason == "hang":
            report = report.model_copy(update={"outcome": "running"})
        decision = decide(report, self.history(job), self.cluster(), self.policy, self.now)
        self.remember(job, report, decision)
        waits = max(0.0, (decision.not_before or 0.0) - self.now)
        orders = decision.acts and decision.mode == "auto" and decision.action.kind in RESTARTS
        limit = self.people.hang_s + self.policy.alarms.lasts_s + self.people.late_s
        self.scenes.hangs += 1
        took = self.people.hang_s + waits + self.folk.expovariate(1 / self.people.order_s)
        if not orders:
            return
        self.decided[job.name] = decision
        again = self._order(job, decision.avoid, states="RUNNING", waits=waits)
        self.scenes.restarted_in_time += again and took <= limit
        self.scenes.hangs -= job.name in self.stopped and not again

    # --- a job that its user cancels

    def cancel(self) -> None:
        """Its log is read like any other. Where the scheduler was not asked, nobody says that a person did it."""
        prints = self.folk.random() < self.people.prints
        job = self._job("connection_error")
        self.printed[job.name] = (self.folk.choice(_STOPPED) if prints else "preempted", None)
        asked = self.folk.random() >= self.people.unasked and self.folk.random() < self.world.scheduler_asked
        self.endings[job.name] = Ending("cancelled", "Slurm says CANCELLED by 1017") if asked else None
        self.scenes.cancelled += 1
        self.scenes.unasked += not asked
        report = self.report(job, job.row)
        decision = decide(report, self.history(job), self.cluster(), self.policy, self.now)
        self.remember(job, report, decision)
        if decision.acts and decision.mode == "auto" and decision.action.kind in RESTARTS:
            self.scenes.ordered += asked
            self.scenes.ordered_unasked += not asked
            self.decided[job.name] = decision
            self.scenes.brought_back += self._order(job, decision.avoid, states="CANCELLED", waits=0.0)

    # --- soft failures that come together

    def coincide(self) -> None:
        """The jobs of one user fail on one good node, again and again, and each time the log names it."""
        self.scenes.coincidences += 1
        node = self.folk.choice([name for name in self.names if self.state[name] == "ok" and name not in self.faulty])
        self.soft.add(node)
        first = f"user-{self.folk.randrange(self.world.users)}"
        other = f"user-{self.folk.randrange(self.world.users)}" if self.folk.random() < self.people.of_two_users else first
        reason = self.folk.choice(_SOFT)
        for number in range(self.people.soft_failures):
            user = other if number == self.people.soft_failures - 1 else first
            self.at(
                self.now + number * self.folk.random() * 8 * HOUR, functools.partial(self._soft_failure, reason, node, user)
            )

    def _soft_failure(self, reason: str, node: str, user: str) -> None:
        if self.state[node] == "isolated":
            return
        job = self._job(reason, nodes=2)
        job.nodes = (node, *(one for one in job.nodes if one != node))
        self.printed[job.name], self.users[job.name] = (reason, node), user
        self.answer(job, job.row)

    # --- what a report and a history say of them

    def named(self, job: Job, row: Row, reason: str) -> tuple[str | None, EvidenceLine | None]:
        if job.name in self.printed:
            return self.printed[job.name][1], None
        return super().named(job, row, reason)

    def report(self, job: Job, row: Row) -> Report:
        if job.name in self.printed:
            row = replace(row, reason=self.printed[job.name][0])
        return super().report(job, row)

    def history(self, job: Job | None) -> History:
        found = super().history(job)
        if job is not None and job.name in self.endings:
            found = replace(found, ending=self.endings[job.name])
            if found.ending is None and self.printed[job.name][0] == "hang":
                found = replace(found, ended=None)
        return found

    def user_and_kind(self, job: Job) -> tuple[str, str]:
        user, kind = super().user_and_kind(job)
        return (self.users[job.name], f"{self.users[job.name]}-0") if job.name in self.users else (user, kind)

    # --- orders, and people

    def take_out(self, node: str, by: str, key: str | None = None) -> None:
        fresh = self.state[node] != "isolated" and by == "decision"
        super().take_out(node, by, key)
        if fresh:
            self.scenes.isolated += 1
            wrong = node not in self.faulty
            self.scenes.wrong += wrong
            self.scenes.wrong_soft += wrong and node in self.soft

    def act(self, job: Job, row: Row, decision: Decision) -> None:
        if decision.acts and decision.mode == "auto" and decision.action.kind in RESTARTS:
            self.decided[job.name] = decision
        super().act(job, row, decision)

    def restart(self, job: Job, without: Sequence[str] = (), same_nodes: bool = False) -> None:
        """What we decided goes through the executor; what a person restarts does not."""
        if job.struck_at is None:
            return
        if job.name in self.decided and not self._order(job, without, states="FAILED", waits=0.0):
            self.give_up(job)
            return
        super().restart(job, without, same_nodes)

    def _order(self, job: Job, without: Sequence[str], *, states: str, waits: float) -> bool:
        """Carry out what was decided, while somebody may do something too. Returns whether the job will run again."""
        decision = self.decided.pop(job.name)
        takes = self.people.order_s * (0.5 + self.folk.random())
        begins = self.now + waits + takes
        person = None
        if states != "CANCELLED" and self.folk.random() < self.people.meddles:
            at = self.now + self.folk.random() * (waits + takes + 10 * self.people.call_s)
            person = Person(self.folk.choice(DEEDS), at)
        number = job.name.rpartition("-")[2]
        known = slurm.Job(number, frozenset({states}), job.attempt - 1, "", "", "kim", ",".join(job.nodes), job.started)
        door = Scheduler(
            known, tuple(dict.fromkeys([*job.nodes, *without, *decision.action.nodes])), person, begins, self.people.call_s
        )
        door.meet()
        held_back = [node for node in without if node not in decision.action.nodes]
        order = Order(
            decision.key,
            decision.action.kind,
            number,
            job.attempt,
            {},
            tuple(decision.action.nodes),
            tuple(held_back),
            why="simulated",
        )
        asyncio.run(carry_out(order, door))
        self.scenes.orders += 1
        after = door.the_job
        again = bool(after.states & {"PENDING", "RUNNING"}) and not after.states & {"HELD", "REQUEUE_HOLD"}
        if person is not None and person.done:
            self._judge(person, door)
            if person.deed in ("cancels it", "requeues and holds it"):
                self.stopped.add(job.name)
        return again and (after.restarts > door.before)

    def _judge(self, person: Person, door: Scheduler) -> None:
        """Whether the person's word was taken."""
        self.scenes.meddled[person.deed] += 1
        after = door.the_job
        self.scenes.twice += after.restarts > door.before + 1
        self.scenes.against[person.deed] += {
            "cancels it": "CANCELLED" not in after.states,
            "requeues it": False,
            "requeues and holds it": "HELD" not in after.states,
            "drains its node": all(node.reason != _THEIRS for node in door.the_nodes.values()),
        }[person.deed]


def month(seed: int, world: World, people: People | None = None) -> Told:
    """One month with people in it."""
    slurm._ANOTHER_LOOK_S = 0.0  # nobody waits here
    one = Scenes(world, seed, auto(), people or People())
    one.ordinary()
    one.run()
    return one.scenes


def rows(many: Sequence[Told]) -> list[tuple[str, str]]:
    """What happened, a month on average, and in all months."""

    def figure(name: str, count: Callable[[Told], float]) -> tuple[str, str]:
        counts = [count(one) for one in many]
        return name, f"{statistics.mean(counts):,.1f} ({sum(counts):,.0f} in all)"

    def share(name: str, part: Callable[[Told], float], whole: Callable[[Told], float]) -> tuple[str, str]:
        some, all_ = sum(part(one) for one in many), sum(whole(one) for one in many)
        return name, f"{some:,.0f} of {all_:,.0f}" + (f", {some / all_:.1%}" if all_ else "")

    found = [
        share("hangs that were ended and run again within their limit", lambda o: o.restarted_in_time, lambda o: o.hangs),
        share("jobs that their users cancelled: a restart was ordered", lambda o: o.ordered, lambda o: o.cancelled - o.unasked),
        share("the same, where no scheduler was asked before", lambda o: o.ordered_unasked, lambda o: o.unasked),
        share("cancelled jobs brought back", lambda o: o.brought_back, lambda o: o.cancelled),
        share("nodes isolated wrongly", lambda o: o.wrong, lambda o: o.isolated),
        share("good nodes isolated for soft failures that came together", lambda o: o.wrong_soft, lambda o: o.coincidences),
        figure("restarts ordered", lambda o: o.orders),
        share("restarts that were done twice", lambda o: o.twice, lambda o: sum(o.meddled.values())),
    ]
    for deed in DEEDS:
        found.append(
            share(f"a person {deed}: done against it", lambda o, d=deed: o.against[d], lambda o, d=deed: o.meddled[d])  # type: ignore[misc]
        )
    return found


def play(seeds: Sequence[int], world: World, people: People | None = None) -> list[Told]:
    return [month(seed, world, people) for seed in seeds]
