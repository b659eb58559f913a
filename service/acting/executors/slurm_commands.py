"""Slurm by its command line: ``scontrol``, ``scancel`` and ``sacct``, started directly, with limits for time and output.

There is no shell. Each argument is one of our own values or a name that was checked. Fields of a job are read one per line,
because the name of a job may contain what looks like a field.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

from service.acting.executors import processes
from service.acting.executors.executor import Problem
from service.acting.executors.hostlist import expand
from service.acting.executors.slurm import FOUND_DEAD, Canceller, Job, Moved, Node, Run, Unsupported

_LARGEST = 1 << 20
_UNKNOWN = ("Invalid job id specified", "Invalid node name specified", " not found")
_MOVED = ("Job has already finished", "Job/step already completing or completed")
_NO_NODE, _NO_RESERVATION = "diagnose-no-such-node", "diagnose-no-such-reservation"
_NO_SUCH_RESERVATION = "Requested reservation is invalid"
_FOR_NOW = (
    "Unable to contact",
    "timed out",
    "Connection refused",
    "try again",
    "is busy",
    "nodes are busy",
    "backup",
)
_UNUSED = frozenset({"IDLE", "RESERVED", "MAINTENANCE", "PLANNED", "CLOUD", "POWERED_DOWN"})
"""a node with any other state beside IDLE is in use, or cannot be used"""
_REMEDY = "Make the user an administrator of Slurm: sacctmgr modify user NAME set adminlevel=Administrator"
_WAITS_ALREADY = "Job is pending execution"
_NODE_STATE = re.compile(r"^ +State=([A-Z_+*~#%$@!^-]+)", re.MULTILINE)
_BOOTED = re.compile(r"^ +BootTime=(\S+)", re.MULTILINE)
_CANNOT_REBOOT = re.compile(r"^RebootProgram += \(null\)", re.MULTILINE)
_NODE_REASON = re.compile(r"^ +Reason=(.*?)(?: \[[^\]\n]*\])?$", re.MULTILINE)
_JOB_STATE = re.compile(r"^ +JobState=([A-Z_]+) Reason=(\S*)", re.MULTILINE)
_RESTARTS = re.compile(r"^ +Requeue=\d+ Restarts=(\d+)", re.MULTILINE)
_EXIT = re.compile(r"^ +Requeue=\d+ Restarts=\d+ .*\bExitCode=(\d+:\d+)", re.MULTILINE)
_OF_STEPS = re.compile(r"^ +DerivedExitCode=(\d+:\d+)", re.MULTILINE)
_EXCLUDED = re.compile(r"^ +ReqNodeList=\S* ExcNodeList=(\S+)", re.MULTILINE)
_NODE_COMMENT = re.compile(r"^ +Comment=(.*?) ?$", re.MULTILINE)
_RESERVED = re.compile(r"^ +Nodes=(\S*)", re.MULTILINE)
_COMMENT = re.compile(r"^ +AdminComment=(.*?) ?$", re.MULTILINE)
_OWNER = re.compile(r"^ +UserId=([^\s()]+)\((\d+)\) GroupId=", re.MULTILINE)
_NODES = re.compile(r"^ +NodeList=(\S*)", re.MULTILINE)
_BEGAN = re.compile(r"^ +StartTime=(\S+) EndTime=", re.MULTILINE)
_WITH_ACCOUNTING = re.compile(r"^AccountingStorageType += accounting_storage/slurmdbd", re.MULTILINE)
_SLURM_USER = re.compile(r"^SlurmUser += ([^\s()]+)\((\d+)\)", re.MULTILINE)
_CANCELLED = re.compile(r"CANCELLED(?: by (\d+))?$", re.MULTILINE)
_ACCOUNTING_S = 10.0
_ACCOUNTING_AGAIN_S = 60.0
"""where the accounting did not answer, it is not asked for so long"""
_HELD = {"JobHeldAdmin": "HELD", "JobHeldUser": "HELD", "job_requeued_in_held_state": "REQUEUE_HOLD"}


class Commands:
    """The door."""

    def __init__(self, *, folder: Path | None = None, configuration: Path | None = None, timeout_s: float = 30.0) -> None:
        self._folder, self._configuration, self._timeout_s = folder, configuration, timeout_s
        self._no_accounting_until = 0.0

    async def check(self) -> list[str]:
        if self._program("scontrol") is None:
            return ["scontrol is not installed here: install slurm-client, or give slurmrestd's address"]
        try:
            said = await self._run("scontrol", "ping")
        except Problem as problem:
            return [problem.what]
        if " is UP" not in said:
            return [f"slurmctld does not answer: {said.strip()[:200]}"]
        return [*await self._rights(), *await self._accounting()]

    async def lacks(self) -> list[str]:
        return []

    async def _rights(self) -> list[str]:
        """Slurm looks whether somebody may change nodes before it looks for the node: so this changes nothing, and tells."""

        async def drain(name: str) -> None:
            await self.drain(name, "a test of rights")

        async def reboot(name: str) -> None:
            await self.can_reboot()
            await self.reboot(name)

        for what, does in (("every order", drain), ("a reboot", reboot)):
            try:
                await does(_NO_NODE)
            except Problem as problem:
                if not any(text in problem.what for text in (*_UNKNOWN, "RebootProgram is not set")):
                    return [f"{what} would fail: {problem.what}. {_REMEDY}"]
        return []

    async def _accounting(self) -> list[str]:
        """Where there is one, it must answer. A site without one lacks nothing."""
        try:
            if _WITH_ACCOUNTING.search(await self._run("scontrol", "show", "config")):
                await self._run("sacct", "--noheader", "--allocations", "--jobs=1", "--format=State", timeout_s=_ACCOUNTING_S)
        except Problem as problem:
            return [f"who cancels a job stays unknown: {problem.what}"]
        return []

    async def node(self, name: str) -> Node | None:
        said = await self._shown("node", name)
        if said is None:
            return None
        found = said.partition(" ")[0].removeprefix("NodeName=")
        state, reason = _NODE_STATE.search(said), _NODE_REASON.search(said)
        if state is None:
            raise Problem(f"scontrol shows no state for {name}: {said[:80]!r}", may_retry=True)
        states = frozenset(part.rstrip("*~#%$@!^-") for part in state[1].split("+"))
        return Node(
            found, states, reason[1] if reason else "", _moment(booted[1]) if (booted := _BOOTED.search(said)) else None
        )

    async def nodes(self) -> tuple[str, ...]:
        said = await self._run("sinfo", "--all", "--noheader", "--Node", "--format=%N")
        return tuple(dict.fromkeys(said.split()))

    async def job(self, job_id: str) -> Job | None:
        said = await self._shown("job", job_id, "--details")
        if said is None:
            return None
        if (count := said.count("\nJobId=") + 1) > 1:
            raise Problem(f"{job_id} is {count} jobs: an array is restarted by its tasks, as {job_id}_0")
        state, restarts, excluded, comment = (one.search(said) for one in (_JOB_STATE, _RESTARTS, _EXCLUDED, _COMMENT))
        if state is None or restarts is None:
            raise Problem(f"scontrol shows no state for job {job_id}: {said[:80]!r}", may_retry=True)
        states = {state[1], *([_HELD[state[2]]] if state[2] in _HELD else [])}
        owner, uid, nodes, began = _whose(said)
        return Job(
            job_id,
            frozenset(states),
            int(restarts[1]),
            excluded[1] if excluded and excluded[1] != "(null)" else "",
            comment[1] if comment else "",
            owner,
            nodes,
            began,
            state[2] if state[2] != "(null)" else "",
            code[1] if (code := _EXIT.search(said)) else "",
            worst[1] if (worst := _OF_STEPS.search(said)) else "",
            uid,
        )

    async def drain(self, name: str, reason: str) -> None:
        await self._run("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")

    async def resume(self, name: str) -> None:
        await self._run("scontrol", "update", f"NodeName={name}", "State=RESUME")

    async def can_reboot(self) -> None:
        if _CANNOT_REBOOT.search(await self._run("scontrol", "show", "config")):  # slurmctld would wait for it in vain
            raise Problem("Slurm cannot reboot nodes: RebootProgram is not set in slurm.conf")

    async def reboot(self, name: str) -> None:
        await self._run("scontrol", "reboot", "ASAP", "nextstate=DOWN", name)

    async def note(self, job_id: str, comment: str) -> None:
        await self._run("scontrol", "update", f"JobId={job_id}", f"AdminComment={comment}")

    async def exclude(self, job_id: str, nodes: str) -> None:
        await self._run("scontrol", "update", f"JobId={job_id}", f"ExcNodeList={nodes}")

    async def requeue(self, job_id: str, *, hold: bool) -> None:
        try:
            await self._run("scontrol", "requeuehold" if hold else "requeue", job_id)
        except Problem as problem:
            if _WAITS_ALREADY not in problem.what:
                raise
            if hold:  # somebody was quicker
                raise Moved(problem.what) from None

    async def release(self, job_id: str) -> None:
        await self._run("scontrol", "release", job_id)

    async def reserved(self, reservation: str) -> tuple[str, ...] | None:
        said = await self._shown("reservation", reservation)
        found = _RESERVED.search(said) if said is not None else None
        return expand(found[1]) if found is not None else None

    async def reserve(self, reservation: str, nodes: tuple[str, ...]) -> None:
        if not nodes:  # Slurm would choose others
            raise Problem(f"no reservation can be empty: {reservation} is left as it is")
        await self._run("scontrol", "update", f"ReservationName={reservation}", f"Nodes={','.join(nodes)}")

    async def may_reserve(self) -> None:
        """As with nodes: Slurm looks at the rights before it looks for the reservation."""
        try:
            await self.reserve(_NO_RESERVATION, (_NO_NODE,))
        except Problem as problem:
            if _NO_SUCH_RESERVATION not in problem.what:
                raise Problem(f"no spare could be taken: {problem.what}. {_REMEDY}") from None

    async def unused(self, name: str) -> bool:
        node = await self.node(name)
        return node is not None and "IDLE" in node.states and node.states <= _UNUSED

    async def comment_of(self, name: str) -> str:
        found = _NODE_COMMENT.search(await self._shown("node", name) or "")
        return found[1] if found is not None else ""

    async def comment_on(self, name: str, comment: str) -> None:
        await self._run("scontrol", "update", f"NodeName={name}", f"Comment={comment}")

    async def cancel(self, job_id: str) -> None:
        await self._run("scancel", job_id)

    async def canceller(self, job: Job) -> Canceller | None:
        said = await self._accounted(f"--jobs={job.id}", "--format=State")
        if (found := _CANCELLED.match(said)) is None:
            return None
        if (by := found[1]) is None or not job.uid:
            raise Unsupported
        # Whose the job is, the accounting itself says rightly only after a while. Who has another number is not named: names of
        # this machine may be other people's. Slurm's own user slurmctld knows.
        if by == job.uid:
            return Canceller(job.owner, True)
        name = "root" if by == "0" else await self._own_user(by)
        return Canceller(name or f"uid {by}", False, daemons=name is not None)

    async def _own_user(self, uid: str) -> str | None:
        """The name of SlurmUser, if that is its number."""
        try:
            found = _SLURM_USER.search(await self._run("scontrol", "show", "config"))
        except Problem:
            return None
        return found[1] if found is not None and found[2] == uid else None

    async def runs(self, job_id: str) -> tuple[Run, ...]:
        said = await self._accounted("--duplicates", f"--jobs={job_id}", "--format=JobID,State,NodeList")
        rows = [line.split("|") for line in said.splitlines()]
        if any(len(row) != 3 or "+" in row[0] for row in rows):  # the parts of a heterogeneous job are no attempts
            return ()
        return tuple(Run(state.partition(" ")[0], expand(nodes)) for _, state, nodes in rows if nodes != "None assigned")

    async def down(self, names: tuple[str, ...]) -> tuple[str, ...]:
        listed = f"--nodes={','.join(names)}"
        said = await self._run("sinfo", "--all", "--noheader", "--Node", "--states=down", listed, "--format=%N|%E")
        rows = (line.partition("|") for line in said.splitlines())
        return tuple(dict.fromkeys(name for name, _, why in rows if name in names and why.startswith(FOUND_DEAD)))

    async def _accounted(self, *words: str) -> str:
        """What sacct says. Where it does not answer, it is not asked again for a while."""
        if self._program("sacct") is None or time.monotonic() < self._no_accounting_until:
            raise Unsupported
        words = "--noheader", "--parsable2", "--allocations", *words
        try:
            return await self._run("sacct", *words, timeout_s=min(_ACCOUNTING_S, self._timeout_s))
        except Problem:
            self._no_accounting_until = time.monotonic() + _ACCOUNTING_AGAIN_S
            raise Unsupported from None

    # --- running

    async def _shown(self, what: str, name: str, *more: str) -> str | None:
        try:
            said = await self._run("scontrol", *more, "show", what, name)
        except Problem as problem:
            if any(text in problem.what for text in _UNKNOWN):
                return None
            raise
        return None if said.startswith("Node ") and "not found" in said else said

    def _program(self, name: str) -> str | None:
        return shutil.which(name, path=str(self._folder) if self._folder else None)

    async def _run(self, name: str, *words: str, timeout_s: float | None = None) -> str:
        """The output. A command that fails has not done it. If it is interrupted, nobody knows."""
        program = self._program(name)
        if program is None:
            raise Problem(f"{name} is not installed here")
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
        configuration = self._configuration or os.environ.get("SLURM_CONF")
        if configuration:
            environment["SLURM_CONF"] = str(configuration)
        within_s = self._timeout_s if timeout_s is None else timeout_s
        ended = await processes.run([program, *words], environment=environment, timeout_s=within_s, largest=_LARGEST)
        if ended.code is None:
            raise Problem(
                f"{name} {words[0]} did not end in {within_s:g} s: the controller is slow or away",
                state="unknown",
                may_retry=True,
            )
        text = ended.out.decode("utf-8", "replace")
        if ended.code:
            said = " ".join((ended.problems or ended.out).decode("utf-8", "replace").split())[:300]
            if any(part in said for part in _MOVED):
                raise Moved(f"{name} {words[0]}: {said}")
            raise Problem(
                f"{name} {words[0]}: {said or f'ended by signal {-ended.code}'}",
                state="unknown" if ended.code < 0 else "failed",
                may_retry=ended.code < 0 or _passes(said),
            )
        return text


def _whose(said: str) -> tuple[str, str, str, float | None]:
    """(owner, the owner's number, nodes, begin). Each must have one line: a name or comment with a line end in it could forge
    another.
    """
    found = [one.findall(said) for one in (_OWNER, _NODES, _BEGAN)]
    if any(len(one) != 1 for one in found):
        return "", "", "", None  # the owner is uncertain
    ((owner, uid),), (nodes,), (began,) = found
    return owner, uid, nodes if nodes != "(null)" else "", _moment(began)


def _moment(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:  # Unknown, N/A, None
        return None


def _passes(said: str) -> bool:
    """Whether it may succeed later."""
    return any(part in said for part in _FOR_NOW)
