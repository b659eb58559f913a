"""Jobs that fail on a real Slurm cluster while somebody meddles -> what was done, and what of it was wrong.

A round is one job that fails once, and one thing that a person or a machine does within seconds of it. Rounds of one batch run
side by side, on one cluster and one service.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.servers import Server
from tests.support.slurm import Slurm

NODES = tuple(f"gpu-{number}" for number in range(1, 17))
BY_PERSON = ("nothing", "cancel", "cancel again", "drain", "requeue", "hold")
BY_MACHINE = ("nothing", "service killed", "controller restarted")
"""A controller that is killed forgets what people have told it for some seconds; one that is stopped does not."""
_POLICY = """\
mode: auto
bursts: {jobs: 1000}
limits: {isolated_share: 100%, isolations_per_hour: 100, job_cool_down: 0s}
budgets: {default: {backoff: 0s}, storage_error: {backoff: 0s}, gpu_fell_off_bus: {backoff: 0s}}
"""
_JOB = """\
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then echo "again ${SLURM_RESTART_COUNT}"; sleep 1; exit 0; fi
trap 'exit 1' TERM
echo begun
while [ ! -e %s ]; do sleep 0.1; done
exit 3
"""
_STEPS = "".join(f"step {step}/1000 | loss 2.{99 - step} | grad_norm 0.5\n" for step in range(1, 12))
_STORAGE = "OSError: [Errno 5] Input/output error: '/lustre/ckpt/step_100/model.safetensors'\n"
_XID = "Mar 04 07:09:47 {node} kernel: [81.2] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
_OVER = ("COMPLETED", "CANCELLED", "FAILED", "NODE_FAIL", "TIMEOUT")
_SPREAD_S = 3.0
_MOST_S = 150.0


@dataclass(slots=True)
class Round:
    """One job and what somebody did to it."""

    job: str
    person: str
    node: str
    xid: bool
    wait_s: float
    did: bool = False
    """Slurm has taken the person's word"""
    at_restart: int = 0
    """how often the job had been started again before the person's word"""


@dataclass(slots=True)
class Found:
    """What was done in all rounds, and what was wrong."""

    rounds: Counter[str] = field(default_factory=Counter)
    took: Counter[str] = field(default_factory=Counter)
    """of these, those in which Slurm took the person's word"""
    restarts: int = 0
    drained: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        self.rounds += other.rounds
        self.took += other.took
        self.restarts += other.restarts
        self.drained += other.drained
        self.wrong += other.wrong


class Batch:
    """As many jobs as there are nodes, a service of their own, and one thing that goes down meanwhile."""

    def __init__(self, cluster: Slurm, folder: Path, seed: int, machine: str) -> None:
        self.cluster, self.folder, self.machine = cluster, folder, machine
        self.dice = random.Random(seed)
        folder.mkdir(parents=True)
        (folder / "policy.yaml").write_text(_POLICY)
        (folder / "executors.yaml").write_text(
            "executors: [{name: races, type: slurm, nodes: ['gpu-*'], "
            f"commands: {{configuration: {cluster.configuration}}}}}]\n"
        )
        words = "--authority", "labels", "--policy", str(folder / "policy.yaml"), "--executors", str(folder / "executors.yaml")
        self.service = Server(folder / "data", *words, SLURM_CONF=str(cluster.configuration))

    def play(self) -> Found:
        self.cluster.reset()
        with self.service:
            rounds = self._begin()
            meddlers = [threading.Thread(target=self._meddle, args=(one,)) for one in rounds]
            meddlers.append(threading.Thread(target=self._fail, args=(rounds,)))
            for one in meddlers:
                one.start()
            self._break()
            for one in meddlers:
                one.join()
            self._settle(rounds)
            return self._judge(rounds)

    # --- what happens

    def _begin(self) -> list[Round]:
        """All jobs run, their logs are there, and each person has something in mind."""
        rounds = []
        for _ in self.cluster.nodes:
            job, person = self.cluster.submit(_JOB % (self.folder / "go"), "--requeue"), self.dice.choice(BY_PERSON)
            rounds.append(Round(job, person, "", self.dice.random() < 0.4, self.dice.uniform(0, _SPREAD_S)))
        for one in rounds:
            self.cluster.wait_for(one.job, "begun")
            one.node = self.cluster.job(one.job)["NodeList"]
            self.service.push(one.job, (_STEPS + ("" if one.xid else _STORAGE)).encode(), source="rank0", node=one.node)
            if one.xid:
                kernel = _XID.format(node=one.node) + "RuntimeError: CUDA error: unspecified launch failure\n"
                self.service.push(one.job, kernel.encode(), source=f"node:{one.node}/kernel", node=one.node)
        return rounds

    def _fail(self, rounds: list[Round]) -> None:
        """All jobs end, and the service hears of it, sooner or later."""
        time.sleep(self.dice.uniform(0, _SPREAD_S / 2))
        (self.folder / "go").touch()
        for one in rounds:
            until = time.monotonic() + _MOST_S
            while time.monotonic() < until:
                try:
                    self.service.end(one.job, 3)
                    break
                except Exception:
                    time.sleep(0.2)

    def _meddle(self, one: Round) -> None:
        """What a person does at a moment that chance says."""
        words = {
            "cancel": ("scancel", one.job),
            "cancel again": ("scancel", one.job),
            "drain": ("scontrol", "update", f"NodeName={one.node}", "State=DRAIN", "Reason=a person"),
            "requeue": ("scontrol", "requeue", one.job),
            "hold": ("scontrol", "hold", one.job),
        }.get(one.person)
        if words is None:
            return
        time.sleep(one.wait_s)
        begun = ("PENDING",) if one.person in ("hold", "cancel again") else ("RUNNING", "PENDING", "FAILED", "COMPLETED")
        until = time.monotonic() + 40
        while (before := self._job(one.job)) is None or before["JobState"] not in begun:
            if time.monotonic() > until:
                return
            time.sleep(0.1)
        one.at_restart = int(before["Restarts"])
        self.cluster.run(*words, check=False)
        after = self._job(one.job)
        one.did = {
            "cancel": before["JobState"] in ("RUNNING", "PENDING") and after is not None and after["JobState"] != "FAILED",
            "cancel again": before["JobState"] == "PENDING" and after is not None and after["JobState"] != "FAILED",
            "drain": "a person" in self._reason(one.node),
            "requeue": after is not None and int(after["Restarts"]) > one.at_restart,
            "hold": after is not None and after["JobState"] == "PENDING" and after["Priority"] == "0",
        }[one.person]

    def _break(self) -> None:
        time.sleep(self.dice.uniform(0.2, _SPREAD_S))
        if self.machine == "service killed":
            self.service.kill()
            time.sleep(self.dice.uniform(0, 1))
            self.service.start()
        elif self.machine == "controller restarted":
            self.cluster.end("slurmctld")
            time.sleep(self.dice.uniform(0, 2))
            self.cluster.start_controller()

    def _job(self, job: str) -> dict[str, str] | None:
        """None while nobody answers."""
        found = self.cluster.run("scontrol", "-o", "show", "job", job, check=False).split()
        return {name: value for name, _, value in (word.partition("=") for word in found)} if found else None

    def _reason(self, node: str) -> str:
        return self.cluster.run("scontrol", "-o", "show", "node", node, check=False).partition(" Reason=")[2]

    def _settle(self, rounds: list[Round]) -> None:
        """Until no order is under way, and no job goes on by itself."""
        calm, until = 0, time.monotonic() + _MOST_S
        while calm < 6 and time.monotonic() < until:
            open_ = [one for one in self._actions() if one["state"] in ("approved", "dispatched", "running")]
            jobs = [self.cluster.job(one.job) for one in rounds]
            moving = [
                job
                for job in jobs
                if job["JobState"] not in _OVER and not (job["JobState"] == "PENDING" and job["Priority"] == "0")
            ]
            calm = 0 if open_ or moving else calm + 1
            time.sleep(0.5)

    # --- what must hold

    def _actions(self) -> list[dict[str, Any]]:
        return list(self.service.get("/v1/actions", limit=200)["actions"])

    def _judge(self, rounds: list[Round]) -> Found:
        found, actions = Found(), self._actions()
        for one in rounds:
            job, name = self.cluster.job(one.job), f"{one.person}, {self.machine}"
            found.rounds[name] += 1
            found.took[name] += one.did
            restarts, state = int(job["Restarts"]), job["JobState"]
            found.restarts += restarts
            for wrong in self._wrong(one, state, restarts, job, actions):
                found.wrong.append(f"job {one.job} ({name}{', Xid' if one.xid else ''}): {wrong}; {state}, {restarts} restarts")
        for node in self.cluster.nodes:
            found.drained += "diagnose " in self._reason(node)
        return found

    def _wrong(self, one: Round, state: str, restarts: int, job: dict[str, str], actions: list[dict[str, Any]]) -> list[str]:
        wrong = []
        mine = [action for action in actions if action["job"] == one.job]
        done = [action for action in mine if action["attempt"] == 1 and action["state"] == "succeeded"]
        people = one.did and one.person == "requeue"
        if restarts > 1 + people or len(done) > 1:
            wrong.append("started again twice")
        if one.did and one.person.startswith("cancel") and (state != "CANCELLED" or restarts > one.at_restart):
            wrong.append("cancelled by a person and brought back")
        if one.did and one.person == "hold" and job["Priority"] != "0":
            wrong.append("held by a person and let go")
        if one.did and one.person == "drain" and "a person" not in self._reason(one.node):
            wrong.append("a person's drain is gone")
        if not one.xid and "diagnose " in self._reason(one.node):
            wrong.append("drained without a fault of the node")
        if not mine and one.person in ("nothing", "drain"):
            wrong.append("nothing was decided")
        if one.person in ("nothing", "drain") and (state, restarts) != ("COMPLETED", 1):
            wrong.append("not recovered")
        return wrong
