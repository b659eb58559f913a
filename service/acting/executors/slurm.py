"""Slurm: drain nodes with a reason, give them back, requeue jobs on other nodes.

The order of steps: nodes go out of service first, so that the job cannot come back to them. Then the job is marked with the key
of the order and its count of restarts, and requeued. If the order comes again, it finds the mark and a higher count, and leaves
the job alone. While Slurm says COMPLETING, nobody knows whether the job failed or was cancelled, so nothing is requeued, marked
or not. A job that must avoid nodes is requeued held, and the mark names the nodes. So after a crash nobody releases it
with those nodes. Any other hold was made by a person, and stays.

The orders go through a door: ``slurm_rest`` (slurmrestd), ``slurm_commands`` (scontrol), or the one and then the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from diagnose.decision.ending import Ending, cancelled_by, ending_of_slurm, failed_nodes
from service.acting.executors.claim import Confirmed, Unconfirmed
from service.acting.executors.executor import (
    KINDS,
    MOST_AVOIDED,
    REBOOT,
    RESTARTS,
    TAKES_OUT,
    Order,
    Outcome,
    Problem,
    mark,
    node_names,
)
from service.acting.executors.hostlist import expand
from service.acting.executors.slurm_spares import Spares

T = TypeVar("T")
_JOB = re.compile(r"[1-9][0-9]{0,9}(?:_[0-9]{1,9})?")
_LABELS = ("slurm.job_id", "slurm_job_id", "SLURM_JOB_ID")
_OURS = "diagnose "
_WITHOUT = " without "
_OF_DAEMONS: Final = ("root", "slurm")
"""in whose name Slurm's own daemons end jobs"""
FOUND_DEAD: Final = ("Not responding", "Node unexpectedly rebooted")
"""slurmctld's own reasons for a node that is down"""
_LOOKS = 3
_ANOTHER_LOOK_S = 0.5
_ACCOUNTING_LOOKS = 12
_QUEUED: Final = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING"})
_ON: Final = frozenset({"RUNNING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING"})
_STOPPED: Final = frozenset({"SUSPENDED", "STOPPED"})
"""it is silent because somebody said so"""
_REBOOTING: Final = frozenset({"REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED"})
_BUSY: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_OVER: Final = frozenset(
    {"BOOT_FAIL", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "PREEMPTED", "COMPLETING"}
)


@dataclass(frozen=True, slots=True)
class Node:
    """A node as Slurm sees it."""

    name: str
    states: frozenset[str]
    reason: str
    booted: float | None = None

    @property
    def drained(self) -> bool:
        """Whether it is out of service because somebody said so. An isolated one is down after a reboot, with our reason."""
        return bool(self.states & {"DRAIN", "DRAINED", "DRAINING"}) or ("DOWN" in self.states and self.ours)

    @property
    def ours(self) -> bool:
        return self.reason.startswith(_OURS)

    @property
    def rebooting(self) -> bool:
        return bool(self.states & _REBOOTING)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as Slurm sees it."""

    id: str
    states: frozenset[str]
    restarts: int
    excluded: str
    """in Slurm's form: a list expression"""
    comment: str
    """the administrators' comment"""
    owner: str = ""
    nodes: str = ""
    """where it runs, or ran last; also a list expression"""
    began: float | None = None
    reason: str = ""
    """why it is in that state"""
    exit_code: str = ""
    """in Slurm's form: code and signal"""
    of_steps: str = ""
    """the highest one of its steps, in the same form"""
    uid: str = ""
    """the owner's number"""

    @property
    def ending(self) -> Ending | None:
        """How it ended; None if it is not over, or waits or runs again."""
        if self.states & (_QUEUED | _ON | {"COMPLETING"}):
            return None
        said = (ending_of_slurm(state, self.reason, self.exit_code, self.of_steps) for state in sorted(self.states))
        return next(filter(None, said), None)

    @property
    def requeued_held(self) -> bool:
        """Whether our requeue holds it. A hold that came later was made by somebody else."""
        return "REQUEUE_HOLD" in self.states

    @property
    def held(self) -> bool:
        return self.requeued_held or "HELD" in self.states

    @property
    def over(self) -> bool:
        return bool(self.states & _OVER) and not self.states & (_QUEUED | _ON)


@dataclass(frozen=True, slots=True)
class Canceller:
    """Who cancelled a job."""

    name: str
    own: bool
    """the job's own user"""
    daemons: bool = False
    """Slurm's daemons run as this user"""


@dataclass(frozen=True, slots=True)
class Run:
    """What the accounting says of one attempt of a job."""

    state: str
    nodes: tuple[str, ...]


class Unsupported(Exception):
    """This door cannot do that. Another one may."""


class Moved(Problem):
    """The job changed after it was read. Nothing was done; the next look decides."""

    def __init__(self, what: str) -> None:
        super().__init__(what, may_retry=True)


class Door(Protocol):
    """A way to reach Slurm. Each method raises Problem, or Unsupported before anything was done."""

    async def node(self, name: str) -> Node | None: ...

    async def nodes(self) -> tuple[str, ...]:
        """The names of all nodes."""

    async def job(self, job_id: str) -> Job | None: ...

    async def drain(self, name: str, reason: str) -> None: ...

    async def resume(self, name: str) -> None: ...

    async def can_reboot(self) -> None:
        """Raise Problem where Slurm has no program for it."""

    async def reboot(self, name: str) -> None:
        """Reboot it as soon as no job runs there. It is out of service after that, and keeps its reason."""

    async def note(self, job_id: str, comment: str) -> None:
        """Set the administrators' comment of a job."""

    async def exclude(self, job_id: str, nodes: str) -> None:
        """Set the nodes that a waiting job may not run on."""

    async def requeue(self, job_id: str, *, hold: bool) -> None: ...

    async def release(self, job_id: str) -> None:
        """Let a held job go."""

    async def cancel(self, job_id: str) -> None: ...

    async def canceller(self, job: Job) -> Canceller | None:
        """Who cancelled a job; None: the accounting has not heard of its end yet. slurmctld itself does not say it."""

    async def runs(self, job_id: str) -> tuple[Run, ...]:
        """All attempts of a job that were begun, in order."""

    async def down(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the nodes that Slurm itself has found dead. What a person has set down is none of them."""

    async def check(self) -> list[str]:
        """Why it is closed, or what the user may not do there."""

    async def lacks(self) -> list[str]:
        """What an open door cannot do."""


class Slurm:
    """The executor."""

    kinds = KINDS | {REBOOT}

    def __init__(self, doors: Sequence[Door], spares: Spares | None = None) -> None:
        self._doors, self._spares = tuple(doors), spares
        self._unmarked: dict[str, str] = {}
        """key -> mark of a job that we have requeued, and that Slurm did not let us mark yet"""
        self._unsent: set[str] = set()
        """keys of orders that have marked their job, and did not requeue it: if its count grows, somebody else did that"""
        self._resumed: set[tuple[str, str]] = set()
        """(key, node) of releases that are not over: if the node is out again, another order did that"""

    async def check(self) -> list[str]:
        """Nothing, if each door is open and one of them can do everything; else what each lacks."""
        problems, lacks = [], []
        for door in self._doors:
            shut = await door.check()
            problems += shut
            lacks.append(shut or await door.lacks())
        nobody = all(lacks)
        if self._spares is not None and not problems:
            problems += await self._spares.check()
        return [*problems, *(one for each in lacks for one in each if nobody and one not in problems)]

    async def cancel(self, job_id: str) -> None:
        """End a job. No order asks for it; tests and sites may."""
        await self._ask("cancel jobs", lambda door: door.cancel(job_id))

    async def _ask(self, what: str, ask: Callable[[Door], Awaitable[T]]) -> T:
        """Ask the first door that can do it. If one is closed and did nothing, ask the next."""
        shut: Problem | None = None
        for door in self._doors:
            try:
                return await ask(door)
            except Unsupported:
                continue
            except Problem as problem:
                if problem.state == "unknown" or not problem.may_retry:
                    raise
                shut = shut or problem
        if shut is not None:
            raise shut
        raise Problem(f"no way to {what}: this slurmrestd cannot, and commands are not allowed; set commands: true")

    async def carry_out(self, order: Order, *, dry_run: bool = False) -> Outcome:
        done: list[str] = []
        out: list[str] = []
        try:
            if order.kind not in self.kinds:
                raise Problem(f"the Slurm executor cannot carry out {order.kind[:40]!r}")
            nodes = [await self._known_node(name) for name in node_names(order.nodes)]
            if order.kind in TAKES_OUT or order.kind == REBOOT:
                out += [node.name for node in nodes if node.drained and node.reason.startswith(mark(order.key))]
            job = await self._known_job(order) if order.kind in RESTARTS else None
            if job is not None:
                if self._is_ending(order, job):
                    raise Moved(f"job {job.id} is just ending")
                self._check(order, job, [node.name for node in nodes if node.name not in out])
            avoid = [await self._known_node(name) for name in node_names(order.avoid, MOST_AVOIDED)]
            later = await self._turn_all(order, nodes, avoid, done, out, dry_run)
            if job is not None:
                await self._restart_as_it_is(order, job, [node.name for node in avoid], done, dry_run)
        except Problem as problem:
            if not problem.may_retry:
                self._forget(order)
            return problem.outcome(done, out)
        if not later:
            self._forget(order)
        said = ("would have: " if dry_run else "") + "; ".join(done)
        return Outcome(
            "succeeded",
            said,
            later,
            details={"done": done},
            isolated=() if dry_run else tuple(out) if order.kind == REBOOT else None,
        )

    # --- what Slurm itself says

    async def inventory(self) -> tuple[str, ...]:
        return await self._ask("list nodes", lambda door: door.nodes())

    async def confirm(self, order: Order) -> Confirmed | Unconfirmed:
        try:
            job = await self._job_of(order)
            if (ended := job.ending) is not None and ended.kind == "cancelled":
                return Confirmed(job.id, job.owner, (), await self._with_canceller(job, ended))
            if job.held:
                return Unconfirmed(f"job {job.id} is held by somebody")
            if job.states & _STOPPED:
                return Unconfirmed(f"job {job.id} is suspended by somebody")
            if (why := self._objection(order, job)) is not None:
                return why
            if self._went_on(order, job):
                return await self._before(order, job)
            nodes = expand(job.nodes)
            return Confirmed(job.id, job.owner, nodes, await self._with_nodes(ended, nodes))
        except Problem as problem:
            return Unconfirmed(problem.what, problem.may_retry or problem.state == "unknown")

    async def _with_canceller(self, job: Job, ended: Ending) -> Ending:
        """Without an accounting nobody knows who it was."""
        found = await self._accounted(lambda door: door.canceller(job))
        if found is None:
            return ended
        daemons = found.daemons or found.name in _OF_DAEMONS
        name = f"{found.name} (or Slurm itself)" if daemons and not found.own else found.name
        return cancelled_by(ended, name, own=found.own)

    async def _accounted(self, ask: Callable[[Door], Awaitable[T | None]]) -> T | None:
        """slurmctld tells the accounting of an end some seconds after it says it itself. None: nobody knows."""
        for look in range(_ACCOUNTING_LOOKS):
            if look:
                await asyncio.sleep(_ANOTHER_LOOK_S)
            try:
                found = await self._ask("ask the accounting", ask)
            except Problem:
                return None
            if found is not None:
                return found
        return None

    async def _before(self, order: Order, job: Job) -> Confirmed:
        """What was of an attempt after which the job went on: slurmctld has forgotten it, and only an accounting knows."""
        number = order.attempt

        async def ended(door: Door) -> Run | None:
            runs = await door.runs(job.id)
            if number is None or len(runs) > job.restarts + 1:
                raise Unsupported
            run = runs[number - 1] if len(runs) >= number else None
            return run if run is not None and run.state not in _ON else None

        run = await self._accounted(ended)
        if run is None or (order.claim is not None and order.claim.not_the_same(None, run.nodes) is not None):
            return Confirmed(job.id, job.owner, ())
        ending = ending_of_slurm(run.state)
        if number == job.restarts:  # of one that ended longer ago, who is down now says nothing
            ending = await self._with_nodes(ending, run.nodes)
        return Confirmed(job.id, job.owner, run.nodes, ending)

    async def _with_nodes(self, ended: Ending | None, nodes: tuple[str, ...]) -> Ending | None:
        """If a node failed: which."""
        if ended is None or ended.kind != "node_failure" or not nodes:
            return ended
        try:
            return failed_nodes(ended, await self._ask("list nodes", lambda door: door.down(nodes)))
        except Problem:
            return ended

    def _check(self, order: Order, job: Job, isolate: Sequence[str]) -> None:
        """Raise Problem if Slurm does not confirm what the order rests on. An order that was begun was confirmed before."""
        if order.claim is None or self._begun(order, job):
            return
        if (why := self._objection(order, job)) is not None:
            raise Problem(f"not confirmed by Slurm: {why.why}", may_retry=why.for_now)
        others = [name for name in isolate if name not in expand(job.nodes)]
        if others:
            raise Problem(f"not confirmed by Slurm: {', '.join(others[:3])} is not one of the nodes of job {job.id}")

    def _objection(self, order: Order, job: Job) -> Unconfirmed | None:
        """Why Slurm does not confirm the order, if so."""
        claim = order.claim
        if claim is None:
            return None
        if not job.owner:
            return Unconfirmed(f"job {job.id}: Slurm does not tell whose it is")
        if "COMPLETING" in job.states:  # whether it failed or was cancelled is only known when it has ended
            return Unconfirmed(f"job {job.id} is just ending", for_now=True, ending_now=True)
        said = claim.against_user(job.owner)
        if said is None and not self._went_on(order, job):  # else nothing will be done about it
            said = claim.not_the_same(job.began, expand(job.nodes))
        return Unconfirmed(f"job {job.id}: {said}") if said is not None else None

    # --- nodes

    async def _known_node(self, name: str) -> Node:
        node = await self._ask("show nodes", lambda door: door.node(name))
        if node is None or node.name != name:
            raise Problem(f"Slurm knows no node {name}: its name came from a log")
        return node

    async def _turn_all(
        self, order: Order, nodes: list[Node], avoid: list[Node], done: list[str], out: list[str], dry_run: bool
    ) -> bool:
        """Do what the order wants of its nodes. Returns whether something beside it has to wait."""
        if order.kind not in TAKES_OUT | {"release", REBOOT}:
            return False
        if not nodes:
            raise Problem(f"the order {order.kind} names no node")
        if order.kind == "release":
            later = [await self._release(order, node.name, done, dry_run) for node in nodes]
            return any(later)
        for node in nodes:
            if order.kind == REBOOT:
                await self._reboot(order, node.name, done, out, dry_run)
            elif await self._turn(order, node.name, done, dry_run):
                out.append(node.name)
        if self._spares is not None and order.kind in TAKES_OUT:
            others = {node.name for node in (*nodes, *avoid)}
            for name in [node.name for node in nodes if not node.drained] if dry_run else dict.fromkeys(out):
                done.append(await self._spares.swap_in(order.key, name, others, dry_run))
        return False

    async def _turn(self, order: Order, name: str, done: list[str], dry_run: bool) -> bool:
        """Take a node out of service. Returns whether it was taken out now.

        It is looked at just before that: a drain with our reason would take the place of one that a person made meanwhile.
        """
        node = await self._steady_node(order, name)
        if node.drained:
            whose = "by this order" if node.reason.startswith(mark(order.key)) else f"before: {node.reason[:80]!r}"
            done.append(f"{node.name} was drained {whose}")
        else:
            if not dry_run:
                await self._ask("drain nodes", lambda door: door.drain(node.name, order.reason))
            done.append(f"drained {node.name}")
            return not dry_run
        return False

    async def _steady_node(self, order: Order, name: str) -> Node:
        node = await self._known_node(name)
        if node.rebooting and not node.reason.startswith(mark(order.key)):  # what is changed now is lost when it is up again
            raise Problem(f"{node.name} is just being rebooted", may_retry=True)
        return node

    async def _release(self, order: Order, name: str, done: list[str], dry_run: bool) -> bool:
        """Give a node back, and then its spare. Returns whether that has to wait."""
        node = await self._steady_node(order, name)
        if not node.drained:
            done.append(f"{name} is in service already")
        elif (order.key, name) in self._resumed:
            done.append(f"{name} was given back, and was taken out again since")
            return False
        elif not node.ours:
            raise Problem(f"{name} was drained by others: {node.reason[:80]!r}; resume it by hand")
        else:
            if not dry_run:
                await self._ask("resume nodes", lambda door: door.resume(name))
                self._resumed.add((order.key, name))
            done.append(f"resumed {name}")
        if self._spares is None:
            return False
        said, later = await self._spares.hand_back(name, dry_run)
        done += [said] if said is not None else []
        return later

    async def _reboot(self, order: Order, name: str, done: list[str], out: list[str], dry_run: bool) -> None:
        """Slurm itself waits until no job runs there. It does not say who asked for a reboot that is over, but when it was.

        A node in service is drained first, and stays out. If Slurm brought it back by itself, it would also undo a drain that a
        person makes while it waits for its jobs, and nobody could tell.
        """
        node = await self._known_node(name)
        if node.rebooting:
            done.append(f"{name} is being rebooted")
            return
        if order.last_seen is not None and node.booted is not None and node.booted > order.last_seen:
            done.append(f"{name} was rebooted since")
            return
        _ours_or_in_service(node)
        if not dry_run:
            await self._ask("reboot nodes", lambda door: door.can_reboot())
            node = await self._known_node(name)  # as in _turn
            _ours_or_in_service(node)
            if not node.drained:
                await self._ask("drain nodes", lambda door: door.drain(name, order.reason))
                out.append(name)
                node = await self._known_node(name)
                _ours_or_in_service(node)
            await self._ask("reboot nodes", lambda door: door.reboot(name))
        when = "as soon as no job runs there" if node.states & _BUSY else "now"
        done.append(f"Slurm reboots {name} {when}, and it stays out of service after that")

    # --- jobs

    async def _known_job(self, order: Order) -> Job:
        job = await self._job_of(order)
        if "CANCELLED" in job.states:
            raise Problem(f"job {job.id} was cancelled by somebody else, and was not started again")
        return job

    async def _job_of(self, order: Order) -> Job:
        name = order.subject or next((order.labels[label] for label in _LABELS if label in order.labels), order.job or "")
        if not _JOB.fullmatch(name):
            raise Problem(f"{name[:80]!r} is not the id of a Slurm job")
        job = await self._ask("show jobs", lambda door: door.job(name))
        if job is None:
            raise Problem(f"Slurm knows no job {name} any more: submit it again, and see MinJobAge in slurm.conf")
        return job

    def _begun(self, order: Order, job: Job) -> str | None:
        """The mark of this order on the job."""
        marks = (one for one in job.comment.split("; ") if one.startswith(mark(order.key) + " @"))
        return next(marks, None) or self._unmarked.get(order.key)

    async def _restart_as_it_is(self, order: Order, job: Job, avoid: list[str], done: list[str], dry_run: bool) -> None:
        """Often a job whose log says that it failed is just about to end."""
        for _ in range(_LOOKS - 1):
            try:
                await self._restart(order, job, avoid, done, dry_run)
                return
            except Moved:
                await asyncio.sleep(_ANOTHER_LOOK_S)
                job = await self._known_job(order)
        await self._restart(order, job, avoid, done, dry_run)

    async def _restart(self, order: Order, job: Job, avoid: list[str], done: list[str], dry_run: bool) -> None:
        if self._is_ending(order, job):
            raise Moved(f"job {job.id} is just ending")
        begun = self._begun(order, job)
        if begun is None and self._went_on(order, job):
            if job.requeued_held and job.restarts == order.attempt and (avoid or order.check):
                raise Problem(
                    f"job {job.id} is held, by somebody or since this order was cut off before it could mark it: "
                    f"not let go; to do so: scontrol release {job.id}",
                    state="unknown",
                )
            done.append(_restarted(job))
            return
        if begun is None and job.states & _STOPPED:
            raise Problem(f"job {job.id} is suspended by somebody: resume it, or requeue it by hand")
        ours = begun or _mark(order, job.restarts, avoid)
        before, without = _read(ours)
        without = list(dict.fromkeys([*without, *avoid]))  # after a crash, the order lacks what a node check found
        requeued = job.restarts > before
        if requeued and order.key in self._unsent:
            if not dry_run:
                await self._unmark(job, ours)
            done.append(_restarted(job))
            return
        if requeued and not (without and job.requeued_held and job.restarts == before + 1):
            done.append(f"job {job.id} was requeued by this order{', and is held by somebody' if job.held else ''}")
            return
        if not job.states & (_QUEUED | _ON | _OVER):
            raise Problem(f"job {job.id} is {_said(job)}: nothing to requeue", may_retry=True)
        if not dry_run and not requeued:
            await self._requeue(order, job, ours, hold=bool(without))
        elif not dry_run:
            await self._mark_it(job, ours)
        done.append(f"requeued job {job.id}")
        if without:
            await self._let_go(job, without, done, dry_run)

    async def _let_go(self, job: Job, without: list[str], done: list[str], dry_run: bool) -> None:
        """A requeued job that we hold: it cannot start before its new exclusions are set."""
        if not dry_run:
            excluded = ",".join(filter(None, [job.excluded, *without]))
            await self._ask("exclude nodes", lambda door: door.exclude(job.id, excluded))
            await self._ask("release jobs", lambda door: door.release(job.id))
        done.append(f"it goes without {', '.join(without)}")

    async def _requeue(self, order: Order, job: Job, ours: str, *, hold: bool) -> None:
        """Mark a job, and requeue it. Slurm changes nothing in a job that is over: it is marked as soon as it waits again."""
        if self._begun(order, job) is None and not job.over:
            self._unsent.add(order.key)
        if not job.over:
            await self._mark_it(job, ours)
        now = await self._known_job(order)
        if (now.states, now.restarts) != (job.states, job.restarts):  # Slurm also requeues what somebody has just cancelled
            raise Moved(f"job {job.id} has changed meanwhile")
        if job.over:
            self._unmarked[order.key] = ours
        unsent = order.key in self._unsent
        self._unsent.discard(order.key)
        try:
            await self._ask("requeue jobs", lambda door: door.requeue(job.id, hold=hold))
        except Problem as problem:
            if problem.state == "failed":  # it was not done: if it waits at the next look, somebody else did that
                self._unmarked.pop(order.key, None)
                if unsent:
                    self._unsent.add(order.key)
            raise
        if job.over:
            await self._mark_it(job, ours)

    async def _mark_it(self, job: Job, ours: str) -> None:
        """Put our mark in the administrators' comment, in the place of older ones. Others' words stay."""
        words = job.comment.split("; ")
        if ours not in words:
            comment = "; ".join([*(one for one in words if one and not one.startswith(_OURS)), ours])
            await self._ask("mark jobs", lambda door: door.note(job.id, comment))

    async def _unmark(self, job: Job, ours: str) -> None:
        """Take our mark off a job that others requeued. If Slurm refuses, it stays: no later order takes it for its own."""
        comment = "; ".join(one for one in job.comment.split("; ") if one and one != ours)
        with contextlib.suppress(Problem):
            await self._ask("mark jobs", lambda door: door.note(job.id, comment))

    def _forget(self, order: Order) -> None:
        self._unmarked.pop(order.key, None)
        self._unsent.discard(order.key)
        self._resumed = {one for one in self._resumed if one[0] != order.key}

    def _is_ending(self, order: Order, job: Job) -> bool:
        """Whether the attempt that the order is about is ending, and Slurm does not say yet how: it may have been cancelled."""
        begun = self._begun(order, job)
        again = self._went_on(order, job) or (begun is not None and job.restarts > _read(begun)[0])
        return "COMPLETING" in job.states and not again

    @staticmethod
    def _went_on(order: Order, job: Job) -> bool:
        """Whether somebody, or Slurm itself, already restarted it. Whatever came of that attempt has its own decision."""
        return bool(job.states & _QUEUED) or (order.attempt is not None and job.restarts >= order.attempt)


def _ours_or_in_service(node: Node) -> None:
    """Raise Problem if others have taken it out."""
    if (node.drained or "DOWN" in node.states) and not node.ours:
        raise Problem(f"{node.name} was taken out by others: {node.reason[:80]!r}; reboot it by hand")


def _mark(order: Order, restarts: int, avoid: list[str]) -> str:
    """The text in the administrators' comment: which order, how many restarts before, without which nodes."""
    return f"{mark(order.key)} @{restarts}{_WITHOUT + ','.join(avoid) if avoid else ''}"


def _read(ours: str) -> tuple[int, list[str]]:
    """(count of restarts, nodes) in a mark. If others damaged the count, there is none."""
    text, _, nodes = ours.rpartition("@")[2].partition(_WITHOUT)
    count = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    return count, list(node_names(tuple(nodes.split(",")), MOST_AVOIDED)) if nodes else []


def _restarted(job: Job) -> str:
    """By others, or by Slurm itself."""
    return f"job {job.id} was restarted since: it is {_said(job)} after {job.restarts} restarts"


def _said(job: Job) -> str:
    return "+".join(sorted(job.states)).lower()[:80]
