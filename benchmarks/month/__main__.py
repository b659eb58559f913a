"""``python -m benchmarks.month [--seed N]``: plays ``scenario.yaml`` on real Slurm daemons and counts what was done right.

Needs munge, slurmctld, slurmd and slurmrestd (Debian: slurm-wlm, slurmrestd), and root, as jobs belong to several users. The
service runs with its defaults: what is not confirmed by Slurm waits for a person. The scripts of ``deploy/slurm`` report the
ends of jobs, as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measure import ROOT
from tests.support.servers import Server
from tests.support.slurm import Slurm

HERE = Path(__file__).resolve().parent
HOPELESS = frozenset({"key_error", "import_error", "cuda_oom"})
_MOST_S = 1500.0


@dataclass(frozen=True, slots=True)
class Job:
    """One job of the month."""

    fate: str
    user: str
    nodes: int
    steps: int
    fabric: bool
    gap_s: float


def plan(scenario: dict[str, Any], chance: random.Random) -> list[Job]:
    """The jobs, in the order in which they are submitted."""
    fates, weights = zip(*scenario["fates"].items(), strict=True)
    jobs = []
    for fate in chance.choices(fates, weights, k=scenario["jobs"]):
        nodes = 2 if chance.random() < scenario["wide"] else 1
        fabric = nodes > 1 and fate == "healthy" and chance.random() < scenario["flaky_fabric"]
        steps = chance.randint(*scenario["steps"])
        jobs.append(
            Job(fate, chance.choice(scenario["users"]), nodes, steps, fabric, chance.expovariate(1 / scenario["gap_s"]))
        )
    return jobs


class Month:
    """The cluster, the service, and what happened to each job."""

    def __init__(self, scenario: dict[str, Any], seed: int, folder: Path) -> None:
        self.scenario, self.chance, self.folder = scenario, random.Random(seed), folder
        self.nodes = tuple(f"gpu-{number}" for number in range(1, scenario["nodes"] + 1))
        picked = self.chance.sample(self.nodes, len(scenario["bad_nodes"]))
        self.bad = dict(zip(picked, scenario["bad_nodes"], strict=True))
        self.jobs: dict[str, Job] = {}
        self.cancelled: dict[str, float] = {}

    def play(self) -> dict[str, Any]:
        shutil.copytree(ROOT / "deploy" / "slurm", self.folder / "slurm")
        told = f"DIAGNOSE_TOKEN_FILE={self.folder}/shippers\nDIAGNOSE_RUN={self.folder}/run\n"
        self.cluster = Slurm(
            self.nodes, more=lambda _: [f"EpilogSlurmctld={self.folder}/slurm/epilogslurmctld.sh", "MinJobAge=86400"]
        )
        (self.folder / "policy.yaml").write_text(self.scenario["policy"])
        check = f"[bash, {HERE}/check.sh, {self.folder}, '{{nodes}}', '{{count}}']"
        (self.folder / "executors.yaml").write_text(
            "executors: [{name: month, type: slurm, nodes: ['gpu-*'], patience: 2m, "
            f"commands: {{configuration: {self.cluster.configuration}}}, check: {{timeout: 5m, command: {check}}}}}]\n"
        )
        words = "--policy", str(self.folder / "policy.yaml"), "--executors", str(self.folder / "executors.yaml")
        settings = {"SLURM_CONF": str(self.cluster.configuration), "DIAGNOSE_SERVE_HANG_S": str(self.scenario["hang_s"])}
        tokens = {"shippers": ("ingest", "--user", "*"), "node": ("node", "--node", "gpu-*"), "reader": ("admin",)}
        made = {name: self._token(name, *words) for name, words in tokens.items()}
        (self.folder / "shippers").write_text(made["shippers"])
        with Server(self.folder / "data", *words, **settings) as service:
            service.client.headers["Authorization"] = f"Bearer {made['reader']}"
            # Where slurm.conf lies in its usual place, the address is all that this file needs.
            slurm = f"export SLURM_CONF={self.cluster.configuration}\n"
            (self.folder / "slurm" / "diagnose.env").write_text(f"DIAGNOSE_URL={service.url}\n{told}{slurm}")
            (self.folder / "month.env").write_text(
                f"url={service.url}\ntoken={made['shippers']}\nnode_token={made['node']}\nSLURM_CONF={self.cluster.configuration}\n"
                f"export SLURM_CONF\ncheck_finds={int(100 * self.scenario['check_finds'])}\n"
            )
            shutil.copy(HERE / "probe.sh", self.folder / "probe")
            (self.folder / "probe").chmod(0o755)
            # Not a link: who starts Python by a link outside of its environment does not find what is installed there.
            (self.folder / "python").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n')
            (self.folder / "python").chmod(0o755)
            lines = [f"{node} {one['kind']} {int(100 * one['chance'])}\n" for node, one in self.bad.items()]
            (self.folder / "bad").write_text("".join(lines))
            for name in ("deaths", "hangs", "met"):
                (self.folder / name).touch()
                (self.folder / name).chmod(0o666)
            try:
                self.cluster.start()
                self._submit()
                self._wait(service)
                return self._count(service)
            finally:
                self.log = service.log
                self.cluster.stop()

    def _token(self, name: str, role: str, *words: str) -> str:
        command = [sys.executable, "-m", "diagnose", "tokens", "create", "--data", str(self.folder / "data"), "--role", role]
        done = subprocess.run(
            [*command, *words, name], check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        return done.stdout.split()[-1]

    # --- the month

    def _submit(self) -> None:
        for job in plan(self.scenario, self.chance):
            time.sleep(job.gap_s)
            self._cancel_those_due()
            words = f"{job.fate} {job.steps} {int(job.fabric)} {self.folder}"
            number = self.cluster.run(
                "sbatch", "--parsable", f"--uid={job.user}", f"--nodes={job.nodes}", "--output=/dev/null", "--chdir=/tmp",
                f"--job-name={job.fate}", str(HERE / "job.sh"), *words.split(),
            ).strip()  # fmt: skip
            self.jobs[number] = job

    def _cancel_those_due(self) -> None:
        """Users cancel what has run for some seconds."""
        for number, job in self.jobs.items():
            if job.fate == "cancelled" and number not in self.cancelled and self.cluster.job(number)["JobState"] == "RUNNING":
                begun = self.folder / f"seen-{number}"
                if begun.exists():
                    self.cluster.run("scancel", number)
                    self.cancelled[number] = time.time()
                begun.touch()

    def _wait(self, service: Server) -> None:
        """Until nothing runs or waits any more, in Slurm and among the orders."""
        deadline, calm = time.monotonic() + _MOST_S, 0
        while calm < 8:
            self._cancel_those_due()
            left = self.cluster.run("squeue", "-h", "-o", "%i %T").split()
            latest = service.get("/v1/actions", limit=50)["actions"]
            left += [str(one["id"]) for one in latest if one["state"] in ("approved", "dispatched", "running")]
            calm = 0 if left else calm + 1
            if time.monotonic() > deadline:
                print(f"still there after {_MOST_S:.0f} s: {left}", file=sys.stderr)
                return
            time.sleep(1)

    # --- what was done

    def _count(self, service: Server) -> dict[str, Any]:
        states = self._states()
        actions, before = [], None
        while page := service.get("/v1/actions", limit=200, **({"before": before} if before else {})):
            actions += page["actions"]
            if (before := page["next"]) is None:
                break
        isolated = {node for one in actions if one["state"] == "succeeded" for node in one["nodes"] if "isolate" in one["kind"]}
        met = Counter(line.split()[2] for line in (self.folder / "met").read_text().splitlines())
        hurt = {line.split()[0] for line in (self.folder / "met").read_text().splitlines()}
        restarts = {number: int(state["Restarts"]) for number, state in states.items()}
        well = {number for number, state in states.items() if state["JobState"] == "COMPLETED"}
        fates = {number: job.fate for number, job in self.jobs.items()}
        recoverable = {
            number
            for number, job in self.jobs.items()
            if job.fate not in HOPELESS | {"cancelled"} and (job.fate != "healthy" or job.fabric or number in hurt)
        }
        hopeless = [number for number, fate in fates.items() if fate in HOPELESS]
        orders = {(one["job"], one["attempt"]): one for one in reversed(actions) if one["job"]}
        return {
            "jobs": len(self.jobs),
            "attempts": len(self.jobs) + sum(restarts.values()),
            "bad nodes": {
                node: {"kind": one["kind"], "met": met[node], "isolated": node in isolated} for node, one in self.bad.items()
            },
            "isolated wrongly": sorted(isolated - set(self.bad)),
            "node checks": Counter(one["result"]["said"][:80] for one in actions if one["kind"] == "check" and one["result"]),
            "cancelled": len(self.cancelled),
            "cancelled, brought back": sum(states[number]["JobState"] != "CANCELLED" for number in self.cancelled),
            "hopeless": len(hopeless),
            "hopeless, restarted": sum(restarts[number] > 0 and number not in hurt for number in hopeless),
            "hopeless, most restarts": max((restarts[number] for number in hopeless if number not in hurt), default=0),
            "recoverable": len(recoverable),
            "recoverable, ended well": len(recoverable & well),
            "not recovered": {
                number: [fates[number], states[number]["JobState"], restarts[number]] for number in sorted(recoverable - well)
            },
            "healthy, restarted": sum(
                restarts[n] > 0 for n, job in self.jobs.items() if job.fate == "healthy" and n not in recoverable
            ),
            "hangs": self._hangs(well, orders),
            "death to order, s": self._delays(orders),
        }

    def _states(self) -> dict[str, dict[str, str]]:
        """What Slurm says of each job, asked once."""
        said = (line.split() for line in self.cluster.run("scontrol", "-o", "show", "job").splitlines())
        jobs = [{name: value for name, _, value in (word.partition("=") for word in words)} for words in said]
        return {job["JobId"]: job for job in jobs if job.get("JobId") in self.jobs}

    def _hangs(self, well: set[str], orders: dict[tuple[str, int], Any]) -> dict[str, Any]:
        hung = {line.split()[0]: float(line.split()[1]) for line in (self.folder / "hangs").read_text().splitlines()}
        took = [orders[number, 1]["created"] - at for number, at in hung.items() if (number, 1) in orders]
        return {"hung": len(hung), "ended well": len(well & set(hung)), "alarm after, s": _middle(took)}

    def _delays(self, orders: dict[tuple[str, int], Any]) -> dict[str, float] | None:
        took = []
        for line in (self.folder / "deaths").read_text().splitlines():
            number, _, rest = line.partition(" ")
            attempt, _, at = rest.partition(" ")
            if at and (order := orders.get((number, int(attempt)))) is not None:
                took.append(max(0.0, order["created"] - float(at)))
        return _middle(took)


def _middle(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"number": len(values), "median": round(statistics.median(values), 2), "longest": round(max(values), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.month", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, help="fewer jobs than the scenario has, to try it out")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the service's data and log")
    arguments = parser.parse_args()
    scenario = yaml.safe_load((HERE / "scenario.yaml").read_text())
    scenario["jobs"] = arguments.jobs or scenario["jobs"]
    folder = Path(tempfile.mkdtemp(prefix="diagnose-month-", dir="/tmp"))
    folder.chmod(0o755)
    began = time.monotonic()
    try:
        found = Month(scenario, arguments.seed, folder).play()
        print(json.dumps({"seed": arguments.seed, **found, "minutes": round((time.monotonic() - began) / 60, 1)}, indent=2))
    finally:
        if arguments.keep:
            print(folder, file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
