"""A month of a cluster, simulated: the real decision code, compared with a person for every failure and with restarts only.

    python -m benchmarks.simulation [--seeds 40] [--days 30] [--storm] [--sensitivity] [--json]

Failures, GPUs, times to failure and times to restart are those of the Acme study (NSDI'24, table 3). How often a diagnosis is
wrong, and how sure it is then, comes from docs/accuracy.md. All else is an assumption, and is in ``World``. Nothing here
decides: ``diagnose.decision.decide`` does, with the shipped policy in mode auto. It gets no more than a service knows.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import json
import math
import random
import statistics
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from diagnose.decision.action import key_of
from diagnose.decision.decide import decide
from diagnose.decision.ending import Ending
from diagnose.decision.history import (
    Checkpoint,
    Cluster,
    Failure,
    History,
    Isolation,
    NodeCheck,
    NodeState,
    PastAction,
    PastAttempt,
)
from diagnose.decision.node import decide_node
from diagnose.decision.policy import Policy
from diagnose.decision.policy_file import shipped_policy
from diagnose.decision.result import Decision
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.report import SCHEMA, Action, CompressionFigures, Diagnosis, EvidenceLine, JobIdentity, Report, Suspects

Truth = Literal["node", "outage", "passing", "job"]
HOUR, DAY = 3600.0, 86400.0
BEGIN = 1_767_225_600.0  # 2026-01-01
MONTHS = 6
"""months that the study's table covers"""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the study's table, and our assumption about its causes."""

    reason: str
    count: int
    gpus: float
    failure_mean_min: float
    failure_median_min: float
    restart_mean_min: float
    truths: tuple[tuple[Truth, float], ...]
    """assumed: the causes, with their shares"""


_NODE: tuple[tuple[Truth, float], ...] = (("node", 1.0),)
_JOB: tuple[tuple[Truth, float], ...] = (("job", 1.0),)
STUDY = (
    Row("nvlink_error", 54, 800, 868.1, 155.3, 95.6, _NODE),
    Row("cuda_error", 21, 847, 923.2, 586.0, 78.3, (("node", 0.7), ("passing", 0.3))),
    Row("node_failure", 16, 712, 1288.8, 535.8, 102.8, _NODE),
    Row("ecc_error", 12, 680, 1303.4, 1192.3, 2.8, _NODE),
    Row("network_error", 12, 758, 549.6, 310.1, 592.1, (("node", 0.5), ("passing", 0.5))),
    Row("connection_error", 147, 29, 51.9, 0.5, 0.8, (("passing", 0.9), ("job", 0.1))),
    Row("storage_error", 10, 422, 2317.8, 202.2, 6.2, (("outage", 1.0),)),
    Row("nccl_timeout", 6, 596, 159.7, 48.1, 66.7, (("passing", 0.7), ("node", 0.3))),
    Row("nccl_remote_error", 3, 1152, 50.5, 22.6, 0.4, (("passing", 1.0),)),
    Row("dataloader_killed", 6, 445, 1580.6, 961.4, 115.1, (("passing", 0.7), ("job", 0.3))),
    Row("attribute_error", 67, 228, 67.8, 1.2, 2.4, _JOB),
    Row("out_of_memory", 14, 572, 323.8, 14.5, 122.7, _JOB),
    Row("runtime_error", 65, 441, 66.4, 3.9, 10.9, _JOB),
    Row("assertion_error", 105, 413, 41.7, 3.0, 185.9, _JOB),
    Row("value_error", 33, 387, 9.9, 3.7, 27.4, _JOB),
    Row("zero_division_error", 5, 499, 14.5, 15.6, 2.5, _JOB),
    Row("model_loading_error", 104, 8, 2.6, 2.6, 0.0, _JOB),
    Row("dataset_loading_error", 5, 1, 1.6, 1.6, 0.0, _JOB),
    Row("file_not_found_error", 568, 21, 14.2, 0.4, 0.4, _JOB),
    Row("os_error", 266, 8, 9.6, 0.8, 0.3, _JOB),
    Row("type_error", 620, 18, 0.9, 0.3, 0.2, _JOB),
    Row("name_error", 18, 247, 3.2, 0.5, 2.9, _JOB),
    Row("permission_error", 7, 438, 4.3, 0.8, 2.4, _JOB),
    Row("import_error", 111, 93, 1.1, 0.4, 0.7, _JOB),
    Row("key_error", 260, 7, 3.0, 1.6, 0.1, _JOB),
    Row("syntax_error", 10, 391, 0.7, 0.6, 1.7, _JOB),
    Row("argument_error", 3, 344, 0.7, 0.7, 2.7, _JOB),
    Row("called_process_error", 4, 256, 0.2, 0.2, 11.7, _JOB),
    Row("index_error", 23, 6, 1.6, 0.9, 0.0, _JOB),
)


@dataclass(frozen=True, slots=True)
class World:
    """What the study's table does not say. These are assumptions; change any that you doubt."""

    nodes: int = 302
    """of eight GPUs, as in the larger cluster of the study"""
    days: int = 30
    restart_s: float = 300.0
    """from the order to restart until the first step"""
    checkpoint_s: float = 1800.0
    response_mean_s: float = 1800.0
    """until a person who is paged has begun; the study's restart time is added"""
    owner_notices_s: float = 8 * HOUR
    """until somebody stops a job that is restarted for ever"""
    refail_mean_s: float = HOUR
    """a job on a node with a fault fails after this"""
    left_mean_s: float = 12 * HOUR
    """the work that a job still has to do after the fault"""
    outage_median_s: float = 1800.0
    passing_again: float = 0.05
    """a passing fault comes back at the restart"""
    repair_s: float = 24 * HOUR
    check_s: float = 600.0
    check_finds: float = 0.9
    """a node check finds a fault that is there"""
    check_blames: float = 0.0005
    """a node check blames a good node"""
    xid_share: tuple[tuple[str, float], ...] = (("ecc_error", 0.8), ("cuda_error", 0.3), ("nvlink_error", 0.0))
    """of the node's faults, those that show as an Xid of the strong ones"""
    misread: float = 0.0
    """of the strong Xids, those whose line was read as another node's; there are none in the labelled cases"""
    users: int = 40
    kinds_of_a_user: int = 3
    """kinds of jobs that each of them submits"""
    healthy_jobs: int = 2000
    false_alarms: float = 0.005
    """of healthy jobs, those that are called failed; there are none in the labelled cases"""
    scheduler_asked: float = 0.98
    """of attempts, those of which the scheduler says how they ended"""
    fresh: bool = False
    """diagnoses are as wrong as on logs that nobody had seen, not as on the labelled cases"""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """What docs/accuracy.md says of logs that were not written by us."""

    reason: dict[str, float]
    """category -> share of reasons that are right"""
    suspects: float
    """of the named nodes, those that are right"""
    named: float
    """of the cases with suspects, those in which a right one is named"""
    right: tuple[tuple[float, float], ...]
    """(confidence, weight) of right diagnoses"""
    wrong: tuple[tuple[float, float], ...]
    confused: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class First:
    """A log that nobody had seen, and what the first diagnosis of it said."""

    labelled: str
    said: str
    confidence: float


FRESH = Path(__file__).parent / "fresh.tsv"
"""logs of the latest blind rows of docs/accuracy.md; an ambiguous one has the label that its reader put first"""


@functools.cache
def fresh() -> dict[str, tuple[First, ...]]:
    """Category of the label -> the logs that failed."""
    taxonomy = shipped_taxonomy()
    found: defaultdict[str, list[First]] = defaultdict(list)
    for line in FRESH.read_text("utf-8").splitlines()[1:]:
        _, labelled, _, said, confidence = line.split("\t")
        if labelled not in ("healthy", "unknown"):
            found[taxonomy.category_of[labelled]].append(First(labelled, said, float(confidence)))
    return {category: tuple(logs) for category, logs in found.items()}


@functools.cache
def accuracy() -> Accuracy:
    """Read from the page that ``diagnose eval`` made: the section of the short cases, the hardest of the three."""
    page = (Path(__file__).parent.parent / "docs" / "accuracy.md").read_text("utf-8")
    section = next(part for part in page.split("\n## ") if part.partition("\n")[0].strip().endswith("cases"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
    by_category = {row[0]: row for row in cells if len(row) == 10 and row[1].isdigit()}
    reason = {}
    for category, row in by_category.items():
        cases = int(row[1])
        # None wrong in so few cases is not never: add one more case that is wrong half the time.
        reason[category] = min(_share(row[3]), (cases + 0.5) / (cases + 1))
    levels = [(_share(row[2]), int(row[1]), _share(row[3])) for row in cells if len(row) == 5 and row[1].isdigit()]
    confused: defaultdict[str, list[str]] = defaultdict(list)
    for row in cells:
        if len(row) == 3 and row[2].isdigit():
            confused[row[0]] += [row[1]] * int(row[2])
    said = next(line for line in section.splitlines() if line.startswith("Of the suspects"))
    return Accuracy(
        reason=reason,
        suspects=float(said.split("said, ")[1].split("%")[0]) / 100,
        named=_share(by_category["infrastructure"][7]),
        right=tuple((level, count * share) for level, count, share in levels),
        wrong=tuple((level, count * (1 - share)) for level, count, share in levels if share < 1),
        confused={labelled: tuple(said) for labelled, said in confused.items()},
    )


def _share(cell: str) -> float:
    return float(cell.rstrip("%")) / 100


@dataclass(slots=True)
class Job:
    """A job that a fault strikes, and what became of it."""

    name: str
    row: Row
    truth: Truth
    gpus: int
    bad_node: str | None
    group: str
    over_at: float = 0.0
    """of an outage"""
    attempt: int = 1
    nodes: tuple[str, ...] = ()
    started: float = 0.0
    step: float = 0.0
    first_step: float = 0.0
    left_s: float = 0.0
    struck_at: float | None = None
    """since when it does not run; None: it runs"""
    attempts: list[PastAttempt] = field(default_factory=list)
    restarts: int = 0


@dataclass(slots=True)
class Outcome:
    """The result of a month."""

    failures: int = 0
    recoverable: int = 0
    """of them, those that the job's owner need not repair"""
    interventions: int = 0
    interventions_recoverable: int = 0
    owners_told: int = 0
    gpu_hours: float = 0.0
    isolations: int = 0
    wrong_isolations: int = 0
    missed: int = 0
    most_in_an_hour: int = 0
    most_at_once: int = 0
    released: int = 0
    incidents: int = 0
    recovery_min: list[float] = field(default_factory=list)
    decisions: int = 0
    decision_ms: list[float] = field(default_factory=list)
    why: Counter[str] = field(default_factory=Counter)


class Month:
    """One month under one way to answer failures."""

    def __init__(self, world: World, seed: int, policy: Policy) -> None:
        self.world, self.policy = world, policy
        self.chance = random.Random(seed)
        self.accuracy = accuracy()
        self.names = [f"gpu-{n:04}" for n in range(world.nodes)]
        self.faulty: dict[str, Row] = {}
        self.state: dict[str, NodeState] = dict.fromkeys(self.names, "ok")
        self.isolations: list[Isolation] = []
        self.checks: list[NodeCheck] = []
        self.failures: list[Failure] = []
        self.actions: list[PastAction] = []
        self.out = Outcome()
        self.now = BEGIN
        self.queue: list[tuple[float, int, Callable[[], object]]] = []
        self.told: set[str] = set()
        self.number = 0

    # --- the machinery -------------------------------------------------------------------------------------------------------

    def at(self, when: float, what: Callable[[], object]) -> None:
        self.number += 1
        heapq.heappush(self.queue, (when, self.number, what))

    def run(self) -> Outcome:
        end = BEGIN + self.world.days * DAY
        while self.queue and self.queue[0][0] < end:
            self.now, _, what = heapq.heappop(self.queue)
            what()
        return self.out

    # --- what happens --------------------------------------------------------------------------------------------------------

    def ordinary(self) -> None:
        """The study's failures of a month, and the noise of healthy jobs."""
        for row in STUDY:
            for _ in range(self._poisson(row.count / MONTHS * self.world.days / 30)):
                begin = BEGIN + self.chance.random() * self.world.days * DAY
                self.at(begin, functools.partial(self.begin, row))
        for _ in range(self._poisson(self.world.healthy_jobs * self.world.false_alarms * self.world.days / 30)):
            self.at(BEGIN + self.chance.random() * self.world.days * DAY, self.false_alarm)

    def begin(self, row: Row, truth: Truth | None = None, fails_in_s: float | None = None, over_at: float | None = None) -> Job:
        """A job starts that the fault of this row will strike."""
        self.number += 1
        truth = truth or self.chance.choices([t for t, _ in row.truths], [share for _, share in row.truths])[0]
        gpus = min(self.world.nodes * 4, max(1, round(self._lognormal(row.gpus * 0.6, row.gpus))))
        job = Job(f"job-{self.number}", row, truth, gpus, None, f"{row.reason}-{self.number}")
        job.left_s = self.chance.expovariate(1 / self.world.left_mean_s)
        self.place(job, ())
        life = self._lognormal(row.failure_median_min, row.failure_mean_min) * 60 if fails_in_s is None else fails_in_s
        if truth == "node":
            job.bad_node = self.chance.choice(job.nodes)
        fails_at = self.now + min(life, 5 * DAY)
        if truth == "outage":
            job.over_at = (
                over_at or fails_at + self._lognormal(self.world.outage_median_s / 60, self.world.outage_median_s / 40) * 60
            )
        self.at(fails_at, functools.partial(self.strike, job, row, True))
        return job

    def place(self, job: Job, without: Sequence[str]) -> None:
        """Nodes for a job: any that are in service. Other jobs are not in the way."""
        free = [node for node in self.names if self.state[node] != "isolated" and node not in without]
        job.nodes = tuple(self.chance.sample(free, min(len(free), math.ceil(job.gpus / 8))))
        job.started = self.now
        job.first_step = job.step

    def strike(self, job: Job, row: Row, first: bool) -> None:
        """An attempt fails."""
        ran = self.now - job.started
        if job.truth == "node" and first:
            assert job.bad_node is not None
            if self.state[job.bad_node] == "isolated":
                job.bad_node = self.chance.choice(job.nodes)
            self.faulty[job.bad_node] = row
        job.step = job.first_step + ran // 10
        self.out.failures += 1
        if job.truth != "job":
            self.out.recoverable += 1
        again = min(ran, self.chance.random() * self.world.checkpoint_s)  # the work since the last checkpoint
        self.lose(job, again)
        if not first:
            job.left_s -= ran - again
        if job.struck_at is None:
            job.struck_at = self.now
        self.answer(job, row)

    def again(self, job: Job) -> tuple[Row, float] | None:
        """Whether the attempt that begins now will fail, from what, and after how long."""
        bad = next((node for node in job.nodes if node in self.faulty), None)
        if bad is not None:
            job.bad_node = bad
            return self.faulty[bad], self.chance.expovariate(1 / self.world.refail_mean_s)
        if job.truth == "job":
            return job.row, 60 + self.chance.random() * 120
        if job.truth == "outage" and self.now < job.over_at:
            return job.row, 60 + self.chance.random() * 120
        if job.truth == "passing" and self.chance.random() < self.world.passing_again:
            return job.row, self.chance.expovariate(1 / self.world.refail_mean_s)
        return None

    def restart(self, job: Job, without: Sequence[str] = (), same_nodes: bool = False) -> None:
        """Order a restart. The first step comes a while later."""
        if job.struck_at is None:
            return
        job.restarts += 1
        job.attempt += 1
        if same_nodes:
            job.started, job.first_step = self.now, job.step
        else:
            self.place(job, without)
        self.at(self.now + self.world.restart_s, functools.partial(self.running, job))

    def running(self, job: Job) -> None:
        found = self.again(job)
        job.started = self.now
        if found is not None and found[1] < 300:
            self.at(self.now + found[1], functools.partial(self.strike, job, found[0], False))
            return
        self.recovered(job)
        if found is not None and found[1] < job.left_s:
            self.at(self.now + found[1], functools.partial(self.strike, job, found[0], False))

    def recovered(self, job: Job) -> None:
        if job.struck_at is not None:
            self.out.recovery_min.append((self.now - job.struck_at) / 60)
            self.lose(job, self.now - job.struck_at)
            job.struck_at = None

    def lose(self, job: Job, seconds: float) -> None:
        self.out.gpu_hours += job.gpus * seconds / HOUR

    def person(self, job: Job, row: Row, why: str) -> None:
        """Somebody is paged, comes, and does the right thing. It takes them the study's time to restart."""
        self.out.interventions += 1
        self.out.interventions_recoverable += job.truth != "job"
        self.out.why[why] += 1
        takes = (
            self.chance.expovariate(1 / self.world.response_mean_s)
            + self._lognormal(max(0.1, row.restart_mean_min * 0.6), max(0.2, row.restart_mean_min)) * 60
        )
        self.at(self.now + takes, functools.partial(self.mended, job))

    def mended(self, job: Job) -> None:
        bad = job.bad_node if job.bad_node in self.faulty else None
        if bad is not None:
            self.take_out(bad, "person")
        if job.truth == "job":
            return self.give_up(job)
        job.truth = "passing" if job.truth != "outage" else "outage"
        return self.restart(job)

    def give_up(self, job: Job) -> None:
        """The owner has it now. Others get its GPUs."""
        if job.struck_at is not None:
            self.lose(job, self.now - job.struck_at)
            job.struck_at = None

    # --- nodes ---------------------------------------------------------------------------------------------------------------

    def take_out(self, node: str, by: str, key: str | None = None) -> None:
        if self.state[node] == "isolated":
            return
        self.state[node] = "isolated"
        self.isolations.append(Isolation(node, self.now, by, key))
        if by == "decision":
            self.out.isolations += 1
            self.out.wrong_isolations += node not in self.faulty
            recent = sum(one.by == "decision" and self.now - one.at < HOUR for one in self.isolations)
            self.out.most_in_an_hour = max(self.out.most_in_an_hour, recent)
            self.at(self.now + HOUR, functools.partial(self.inspect, node))
        else:
            self.at(self.now + self.world.repair_s, functools.partial(self.bring_back, node))
        self.out.most_at_once = max(self.out.most_at_once, sum(state == "isolated" for state in self.state.values()))

    def bring_back(self, node: str) -> None:
        self.faulty.pop(node, None)
        self.state[node] = "ok"
        self.isolations = [
            replace(one, released=one.released or self.now) if one.node == node else one for one in self.isolations
        ]

    def check(self, node: str) -> None:
        """A node check reports."""
        if node in self.faulty:
            result: Any = "faulty" if self.chance.random() < self.world.check_finds else "good"
        else:
            result = "faulty" if self.chance.random() < self.world.check_blames else "good"
        self.checks.append(NodeCheck(node, self.now, result))
        if self.state[node] != "isolated":
            self.state[node] = "ok"
        self.node_decision(node)

    def inspect(self, node: str) -> None:
        """An isolated node is looked at: it is repaired if it is bad, then checked."""
        if node in self.faulty:
            self.at(self.now + self.world.repair_s, functools.partial(self.repaired, node))
        else:
            self.check(node)

    def repaired(self, node: str) -> None:
        self.faulty.pop(node, None)
        self.check(node)

    def node_decision(self, node: str) -> None:
        decision = decide_node(node, self.history(None), self.cluster(), self.policy, self.now)
        if decision.action.kind == "isolate" and decision.mode == "auto":
            self.take_out(node, "decision", decision.key)
        elif decision.action.kind == "release" and decision.mode == "auto":
            self.out.released += 1
            self.bring_back(node)
        elif decision.tell == "operator":
            self.out.interventions += 1
            self.out.why[f"node: {decision.limits[0].name}"] += 1
            if self.state[node] == "isolated":
                self.at(self.now + 4 * HOUR, functools.partial(self.bring_back, node))

    # --- the answer ----------------------------------------------------------------------------------------------------------

    def answer(self, job: Job, row: Row) -> None:
        raise NotImplementedError

    def false_alarm(self) -> None:
        """A job that ended well. Most ways of answering do not even notice it."""

    def history(self, job: Job | None) -> History:
        week = self.now - 7 * DAY
        common: dict[str, Any] = {
            "failures": tuple(one for one in self.failures if one.at >= week),
            "actions": tuple(one for one in self.actions if one.at >= week),
        }
        if job is None:
            return History(**common)
        ran = self.now - job.started
        user, kind = self.user_and_kind(job)
        return History(
            user=user,
            workload=kind,
            gpus=job.gpus,
            nodes=job.nodes,
            started=job.started,
            ended=self.now,
            first_step=job.first_step,
            progress_s=ran if ran > 300 else 0.0,
            attempts=tuple(job.attempts),
            checkpoints=(Checkpoint(int(job.step)),),
            ending=self.ending(job),
            **common,
        )

    def ending(self, job: Job) -> Ending | None:
        """What the scheduler says of this attempt, if it was asked: the same whenever it is."""
        if zlib.crc32(f"{job.name} {job.attempt}".encode()) / 2**32 >= self.world.scheduler_asked:
            return None
        well = job.name.startswith("healthy")
        return Ending("completed", "Slurm says COMPLETED") if well else Ending("failed", "Slurm says FAILED (exit code 1)")

    def user_and_kind(self, job: Job) -> tuple[str, str]:
        """Whose job it is, and what kind of job, the same whenever it is asked."""
        drawn = zlib.crc32(job.name.encode())
        user = f"user-{drawn % self.world.users}"
        return user, f"{user}-{drawn // self.world.users % self.world.kinds_of_a_user}"

    def cluster(self) -> Cluster:
        return Cluster(
            dict(self.state),
            isolations=tuple(self.isolations),
            checks=tuple(one for one in self.checks if self.now - one.at < 8 * DAY),
        )

    # --- chance --------------------------------------------------------------------------------------------------------------

    def _poisson(self, mean: float) -> int:
        count, limit, product = 0, math.exp(-mean) if mean < 500 else 0.0, self.chance.random()
        if mean >= 500:
            return max(0, round(self.chance.gauss(mean, math.sqrt(mean))))
        while product > limit:
            count += 1
            product *= self.chance.random()
        return count

    def _lognormal(self, median: float, mean: float) -> float:
        """A random number with this median and mean. If the mean is the smaller one, the median."""
        sigma = math.sqrt(2 * math.log(mean / median)) if mean > median > 0 else 0.3
        return float(self.chance.lognormvariate(math.log(max(median, 1e-3)), sigma))


class PagePerson(Month):
    """A person is paged for every failure, and is always right."""

    def answer(self, job: Job, row: Row) -> None:
        self.person(job, row, "paged")


class AlwaysRestart(Month):
    """Every failure is answered by a restart on the same nodes, until somebody notices that it does not help."""

    def answer(self, job: Job, row: Row) -> None:
        assert job.struck_at is not None
        if self.now - job.struck_at <= self.world.owner_notices_s:
            self.restart(job, same_nodes=True)
        elif job.truth == "job":
            self.out.owners_told += 1
            self.give_up(job)
        else:
            self.person(job, row, "noticed")


class Diagnosed(Month):
    """The real decision code, with diagnoses that are wrong as often as in the labelled cases."""

    def answer(self, job: Job, row: Row) -> None:
        report = self.report(job, row)
        began = time.thread_time()
        decision = decide(report, self.history(job), self.cluster(), self.policy, self.now)
        self.out.decision_ms.append((time.thread_time() - began) * 1000)
        self.out.decisions += 1
        self.remember(job, report, decision)
        self.act(job, row, decision)

    def remember(self, job: Job, report: Report, decision: Decision) -> None:
        diagnosis = report.diagnosis
        suspects = tuple(diagnosis.suspects.nodes)
        user, kind = self.user_and_kind(job)
        at = (job.name, job.attempt, self.now, diagnosis.reason, diagnosis.group, "rule", suspects)
        self.failures.append(Failure(*at, culprits=tuple(diagnosis.culprits), user=user, workload=kind))
        ran = self.now - job.started
        job.attempts.append(
            PastAttempt(
                number=job.attempt,
                started=job.started,
                ended=self.now,
                reason=diagnosis.reason,
                group=diagnosis.group,
                phase=diagnosis.phase,
                nodes=job.nodes,
                suspects=suspects,
                first_step=job.first_step,
                last_step=diagnosis.step,
                progress_s=ran if ran > 300 else 0.0,
            )
        )
        state = "succeeded" if decision.mode == "auto" and decision.acts else "proposed"
        self.actions.append(
            PastAction(
                key=decision.key,
                job=job.name,
                attempt=job.attempt,
                kind=decision.action.kind,
                state=state,
                at=self.now,
                nodes=tuple(decision.action.nodes),
                ended=self.now if state == "succeeded" else None,
                reason=diagnosis.reason,
                incident=decision.incident,
            )
        )
        if decision.incident is not None and decision.incident not in self.told:
            self.told.add(decision.incident)
            self.out.incidents += 1

    def act(self, job: Job, row: Row, decision: Decision) -> None:
        """What an executor, an operator and an owner do about it."""
        if decision.acts and decision.mode == "auto":
            for node in decision.action.nodes:
                self.take_out(node, "decision", decision.key)
            for node in decision.check if len(decision.check) <= 4 else ():
                if self.state[node] == "ok":
                    self.state[node] = "suspect"
                self.at(self.now + self.world.check_s, functools.partial(self.check, node))
            whole_job = decision.check if len(decision.check) > 4 else ()
            wait = max(0.0, (decision.not_before or 0.0) - self.now)
            if whole_job:  # the log named nobody: the nodes are tested before the job goes on
                wait = max(wait, self.world.check_s)
                for node in whole_job:
                    if node in self.faulty or self.chance.random() < self.world.check_blames:
                        self.at(self.now + self.world.check_s - 1, functools.partial(self.check, node))
            self.at(self.now + wait, functools.partial(self.restart, job, (*decision.avoid, *decision.action.nodes)))
            if decision.tell == "operator":
                self.out.interventions += 1
                self.out.interventions_recoverable += job.truth != "job"
                self.out.why["told: incident" if decision.incident else f"told: {decision.decided_by}"] += 1
            return
        if decision.tell == "operator":
            self.person(job, row, f"{decision.decided_by}: {decision.limits[0].name if decision.limits else decision.reason}")
        elif job.truth == "job":
            self.out.owners_told += 1
            self.give_up(job)
        elif job.name.startswith("healthy"):
            self.out.owners_told += 1  # who sees that the job is done, and leaves it
        else:  # the owner is told that it is the job's fault; it is not, so the owner calls somebody
            self.person(job, row, "owner told wrongly")

    def false_alarm(self) -> None:
        """A healthy job that is called failed. It may name a good node."""
        row = self.chance.choice([row for row in STUDY for _ in range(row.count)])
        self.number += 1
        job = Job(f"healthy-{self.number}", row, "passing", 64, None, f"alarm-{self.number}", left_s=0.0)
        self.place(job, ())
        job.started, job.struck_at = self.now - HOUR, self.now
        self.answer(job, row)

    def report(self, job: Job, row: Row) -> Report:
        """The diagnosis of it: right as often as in the labelled cases."""
        taxonomy = shipped_taxonomy()
        reason, right, confidence = self.said_fresh(row) if self.world.fresh else self.said(row)
        if reason in ("healthy", "unknown"):
            reason, confidence = "unknown", 0.0  # the exit code says that it failed
        node, root = self.named(job, row, reason)
        remedy = shipped_policy().remedy(reason)
        ran = self.now - job.started
        steps = ran > 300
        nodes = [node] if node else []
        return Report(
            schema=SCHEMA,
            job=JobIdentity(id=job.name, sources=["log"], attempt=job.attempt),
            outcome="failed",
            diagnosis=Diagnosis(
                category=taxonomy.category_of[reason],
                reason=reason,
                confidence=confidence,
                by="none" if reason == "unknown" else "rule",
                root_cause=root,
                suspects=Suspects(nodes=nodes),
                culprits=nodes if remedy.kind == "isolate_and_restart" else [],
                group=f"{reason}-{job.row.reason}" if right else key_of(job.name, job.attempt, reason, "", ()),
                phase="training" if steps else "start-up",
                step=job.step if steps else None,
            ),
            action=Action(kind=remedy.kind, nodes=nodes if remedy.kind == "isolate_and_restart" else [], why=remedy.why),
            compression=CompressionFigures(lines_in=1, bytes_in=1, lines_kept=1, bytes_kept=1, ratio=1.0, dropped_by_kind={}),
        )

    def said(self, row: Row) -> tuple[str, bool, float]:
        """(reason, whether it is right, confidence), as often right as in the labelled cases."""
        taxonomy = shipped_taxonomy()
        reason, right = row.reason, True
        if self.chance.random() > self.accuracy.reason[taxonomy.category_of[row.reason]]:
            right = False
            confused = self.accuracy.confused.get(reason)
            reason = self.chance.choice(confused or self.others(reason))
        level = self.accuracy.right if right else self.accuracy.wrong
        return reason, right, self.chance.choices([one for one, _ in level], [weight for _, weight in level])[0]

    def said_fresh(self, row: Row) -> tuple[str, bool, float]:
        """The same, as of one of the logs of its category that nobody had seen."""
        logs = fresh()[shipped_taxonomy().category_of[row.reason]]
        drawn = self.chance.randrange(len(logs) + 1)
        if drawn == len(logs):  # none called so in so few logs is not never: one more is wrong half the time, in any way
            right = self.chance.random() < 0.5
            return row.reason if right else self.chance.choice(self.others(row.reason)), right, 0.95
        one = logs[drawn]
        if one.said == one.labelled:
            return row.reason, True, one.confidence
        return one.said if one.said != row.reason else one.labelled, False, one.confidence

    def others(self, reason: str) -> tuple[str, ...]:
        return tuple(one for one in shipped_taxonomy().category_of if one not in (reason, "healthy"))

    def named(self, job: Job, row: Row, reason: str) -> tuple[str | None, EvidenceLine | None]:
        """The node that the diagnosis names, and the line that shows it."""
        names_nodes = shipped_policy().remedy(reason).kind == "isolate_and_restart" or reason == "nccl_timeout"
        if not names_nodes or self.chance.random() > self.accuracy.named:
            return None, None
        truth = job.bad_node if job.bad_node in self.faulty else None
        strong = truth is not None and self.chance.random() < dict(self.world.xid_share).get(row.reason, 0.0)
        wrong = self.chance.random() > self.accuracy.suspects
        node = self.chance.choice(job.nodes) if wrong or truth is None else truth
        if not strong or reason != row.reason:
            return node, None
        assert truth is not None
        printed_by = truth
        if self.chance.random() < self.world.misread:
            node = printed_by = self.chance.choice(job.nodes)
        text = f"{printed_by} kernel: NVRM: Xid (PCI:0000:8a:00): 48, pid=4105, name=python, DBE"
        return node, EvidenceLine(source=f"node:{printed_by}/kern.log", line=1, text=text, role="root_cause", node=printed_by)


class Storm(Diagnosed):
    """A file system, a fabric and a forger: a hundred jobs each, at once."""

    JOBS = 100

    def storm(self) -> None:
        row = {one.reason: one for one in STUDY}
        quarter = BEGIN + self.world.days * DAY / 4
        self.at(quarter, functools.partial(self.hit, replace(row["storage_error"], gpus=16), "outage", quarter + 2 * HOUR))
        self.at(2 * quarter - BEGIN, functools.partial(self.hit, replace(row["network_error"], gpus=16), "outage", 0.0))
        self.at(3 * quarter - 2 * BEGIN, self.forged)

    def hit(self, row: Row, truth: Truth, over_at: float) -> None:
        over_at = over_at or self.now + HOUR
        for _ in range(self.JOBS):
            self.begin(row, truth, self.chance.random() * 300, over_at)

    def forged(self) -> None:
        """A hundred logs that each claim an Xid 79 of one of their own nodes. All are false."""
        row = next(one for one in STUDY if one.reason == "ecc_error")
        for _ in range(self.JOBS):
            job = self.begin(replace(row, gpus=16), "passing", self.chance.random() * 300)
            job.group = "forged"

    def named(self, job: Job, row: Row, reason: str) -> tuple[str | None, EvidenceLine | None]:
        if job.group != "forged" or job.attempt > 1:
            return super().named(job, row, reason)
        node = job.nodes[0]
        text = f"{node} kernel: NVRM: Xid (PCI:0000:8a:00): 79, pid=1, name=x, GPU has fallen off the bus."
        return node, EvidenceLine(source="job.out", line=1, text=text, role="root_cause", node=node)


@functools.cache
def auto() -> Policy:
    """The shipped policy in mode auto, as it is meant to run once a site trusts it."""
    return replace(shipped_policy(), mode="auto")


WAYS: dict[str, type[Month]] = {
    "a person for every failure": PagePerson,
    "always restart": AlwaysRestart,
    "diagnose": Diagnosed,
}


def month(way: type[Month], seed: int, world: World) -> Outcome:
    """One month of one way."""
    one = way(world, seed, auto())
    one.ordinary()
    return one.run()


def storm(seed: int, world: World) -> Outcome:
    """The storms alone: what they do to the cluster, without the rest of the month."""
    one = Storm(world, seed, auto())
    one.storm()
    return one.run()


def _spread(values: Sequence[float], digits: int = 0) -> str:
    """The mean, and the least and the greatest of the seeds."""
    return f"{statistics.mean(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def table(outcomes: dict[str, list[Outcome]]) -> list[tuple[str, ...]]:
    """The figures of the ways, over all seeds."""
    rows: list[tuple[str, ...]] = [("a month", *outcomes)]
    figures: list[tuple[str, Callable[[Outcome], float], int]] = [
        ("failures", lambda o: o.failures, 0),
        ("of them not the job's own", lambda o: o.recoverable, 0),
        ("interventions of operators", lambda o: o.interventions, 1),
        ("of them for failures not the job's own", lambda o: o.interventions_recoverable, 1),
        ("told to the job's owner, nobody paged", lambda o: o.owners_told, 0),
        ("GPU hours lost", lambda o: o.gpu_hours, 0),
        ("nodes isolated by decision", lambda o: o.isolations, 1),
        ("of them wrongly", lambda o: o.wrong_isolations, 2),
        ("most isolated in an hour", lambda o: o.most_in_an_hour, 0),
    ]
    for name, figure, digits in figures:
        rows.append((name, *(_spread([figure(one) for one in many], digits) for many in outcomes.values())))
    for name, share in (("median", 0.5), ("90th percentile", 0.9)):
        pooled = [_quantile([m for one in many for m in one.recovery_min], share) for many in outcomes.values()]
        rows.append((f"minutes to recovery, {name}", *(f"{minutes:,.0f}" for minutes in pooled)))
    return rows


def _sums(outcomes: dict[str, list[Outcome]]) -> dict[str, float]:
    paged, ours = outcomes["a person for every failure"], outcomes["diagnose"]
    isolations = sum(one.isolations for one in ours)
    took = [ms for one in ours for ms in one.decision_ms]
    fewer = [1 - b.interventions / a.interventions for a, b in zip(paged, ours, strict=True)]
    own = [1 - b.interventions_recoverable / a.interventions_recoverable for a, b in zip(paged, ours, strict=True)]
    strict = [1 - (b.interventions + b.owners_told) / a.interventions for a, b in zip(paged, ours, strict=True)]
    return {
        "interventions fewer": statistics.mean(fewer),
        "interventions fewer, worst seed": min(fewer),
        "interventions fewer, failures not the job's own": statistics.mean(own),
        "interventions fewer, failures not the job's own, worst seed": min(own),
        "interventions fewer, counting what owners are told": statistics.mean(strict),
        "isolations": isolations,
        "wrong isolations": sum(one.wrong_isolations for one in ours),
        "wrong isolations share": sum(one.wrong_isolations for one in ours) / max(1, isolations),
        "decisions": len(took),
        "decision ms, median": _quantile(took, 0.5),
        "decision ms, 99th percentile": _quantile(took, 0.99),
        "decision ms, most": max(took),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--storm", action="store_true", help="the storms instead of the month")
    parser.add_argument("--sensitivity", action="store_true", help="what the assumptions about wrong suspects are worth")
    parser.add_argument("--fresh", action="store_true", help="diagnoses as wrong as on logs that nobody had seen")
    parser.add_argument("--nodes", type=int, default=World().nodes, help="the size of the cluster")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(argv)
    world = World(nodes=asked.nodes, days=asked.days, fresh=asked.fresh)
    seeds = range(asked.first, asked.first + asked.seeds)
    if asked.storm:
        many = [storm(seed, replace(world, days=8)) for seed in seeds]
        limits = auto().limits
        room = limits.isolated_share * world.nodes
        print(f"most isolated in an hour   {_spread([o.most_in_an_hour for o in many])}  of {limits.isolations_per_hour}")
        print(f"most isolated at once      {_spread([o.most_at_once for o in many])}  of {room:.0f}")
        print(f"failures                   {_spread([o.failures for o in many])}")
        print(f"incidents                  {_spread([o.incidents for o in many])}")
        print(f"interventions              {_spread([o.interventions for o in many])}")
        return
    if asked.sensitivity:
        for misread in (0.0, 0.01, 0.05):
            for blames in (0.0005, 0.005, 0.05):
                many = [month(Diagnosed, seed, replace(world, misread=misread, check_blames=blames)) for seed in seeds]
                wrong, all_ = sum(o.wrong_isolations for o in many), sum(o.isolations for o in many)
                doubt = f"Xids read as another node's {misread:5.1%}, node check blames {blames:6.2%}"
                print(f"{doubt}: {wrong} of {all_} wrong, {wrong / all_:.2%}")
        return
    from benchmarks import scenes  # it is made of these months

    outcomes = {name: [month(way, seed, world) for seed in seeds] for name, way in WAYS.items()}
    sums, people = _sums(outcomes), scenes.rows(scenes.play(seeds, world))
    if asked.json:
        print(json.dumps({"world": asdict(world), "sums": sums, "scenes": dict(people)}))
        return
    rows = table(outcomes)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if row is rows[0]:
            print("| " + " | ".join("---".ljust(width) for width in widths) + " |")
    print()
    for name, value in sums.items():
        share = "share" in name or "fewer" in name
        print(f"{name}: {value:.2%}" if share else f"{name}: {value:,.4g}")
    why = Counter[str]()
    for one in outcomes["diagnose"]:
        why.update(one.why)
    print("\nwith people in it (benchmarks/scenes.py):")
    for name, said in people:
        print(f"{name}: {said}")
    print("\nwhy operators are called, a month:", ", ".join(f"{w} {n / len(seeds):.1f}" for w, n in why.most_common(12)))


if __name__ == "__main__":
    main()
