"""A believable week for the dashboard: sample jobs, sent through the real ingestion and then moved back in time.

The logs are those of ``fixtures/``. A seed decides which of them are used, who ran them, on which nodes and for how long. Only
the time is made up afterwards: the service took in all jobs within seconds, so ``age`` moves what it stored to its place in the
week. Only the demonstration uses this module.
"""

from __future__ import annotations

import gzip
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from diagnose.decision.lost import lost, price, saved_step, steps_of, still_of
from diagnose.errors import DiagnoseError
from diagnose.knowledge import shipped
from diagnose.report import Report
from diagnose.shipping.destination import PIECE, Destination, Owner
from service.store import tables as t
from service.store.actions import aftermaths
from service.store.diagnoses import unpacked
from service.store.pages.shift import judged

WEEK_S = 7 * 86400.0
_USERS = "amara bo chen dmitri elif farah goro hana ines".split()
_TEAMS = ("speech", "vision", "language")
_IMAGE_S = 36 * 3600.0
"""so long ago jobs began to use another image"""
_CLUSTERS = ("alps", "delta")
_MODELS = ("llama-8b", "llama-70b", "moe-8x22b", "vit-g", "sft-7b", "rlhf-13b", "mamba-3b")
_NODE = re.compile(rb"\b(gpu-)(\d\d)\b")
_STEP = re.compile(rb"(?i)\b(?:step|iteration)[ =:]{1,3}(\d{1,7})\b")
_SAVES = 6
_NODES = 48
_SUITE = {
    "mmlu": ("acc", 0.31, 0.12, 0.004),
    "gsm8k": ("exact_match", 0.12, 0.15, 0.011),
    "hellaswag": ("acc_norm", 0.44, 0.13, 0.005),
    "arc_challenge": ("acc_norm", 0.29, 0.08, 0.013),
    "humaneval": ("pass@1", 0.18, 0.09, 0.026),
    "truthfulqa": ("acc", 0.38, 0.01, 0.015),
    "wikitext": ("word_perplexity", 16.2, -2.6, 0.08),
    "winogrande": ("acc", 0.56, 0.06, 0.014),
}
"""data set -> (score, at the first checkpoint, how it grows, its noise)"""
_SICK = (7, 23)
"""nodes whose hardware fails again and again"""
_DECIDED_S = 24 * 3600.0
_REPAIRED_S = 9 * 3600.0
_PEOPLE = ("night shift", "kim", "amara")
_START_UP_S = 260.0
"""from the start of an attempt to its first step"""


@dataclass(frozen=True, slots=True)
class Planned:
    """One attempt of a job."""

    job: str
    attempt: int
    labels: Mapping[str, str]
    sources: Mapping[str, bytes] = field(repr=False)
    started: float
    ended: float | None
    """None: it still runs"""
    exit_code: int

    def owner(self, source: str) -> Owner:
        """The owner of the bytes of ``source``."""
        named = _NODE.search(source.encode())
        return Owner(self.job, source, attempt=self.attempt, node=named[0].decode() if named else None, labels=self.labels)


def samples() -> dict[str, dict[str, bytes]]:
    """Sample -> file -> content. Names that begin with ``healthy`` are healthy runs."""
    folder = shipped.folder("fixtures") / "logs"
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted(folder.iterdir()):
        files = [path] if path.is_file() else sorted(path.iterdir())
        found[path.name.partition(".")[0]] = {file.name.removesuffix(".gz"): _read(file) for file in files}
    if not found:
        raise DiagnoseError("there are no sample logs", where=str(folder), remedy="install the package again")
    return found


def _read(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def week(seed: int, jobs: int, now: float) -> Iterator[Planned]:
    """The attempts of a week that ends ``now``, oldest first. The last ones still run."""
    dice = random.Random(seed)  # noqa: S311 - which sample comes next is no secret
    known = samples()
    well = [name for name in known if name.startswith(("healthy", "straggler"))]
    hard = [
        name
        for name in ("job123", "nvlink", "bus", "illegal", "node", "store", "quota", "peer", "port", "oomkill")
        if name in known
    ]
    rest = [name for name in known if name not in (*well, *hard, "restarted", "silent")]
    running = max(3, jobs // 12)
    for number in range(jobs):
        still = number >= jobs - running
        # More by day than by night.
        at = now - WEEK_S * (1 - (number + dice.random()) / jobs)
        kind = well if still else dice.choices((well, hard, rest), (30, 25, 45))[0]
        name = dice.choice(kind)
        gpus = dice.choice((64, 128, 256, 512, 1024) if kind is hard else (8, 8, 16, 32, 64, 256))
        hours = (
            dice.lognormvariate(1.8, 0.8)
            if kind is hard
            else dice.lognormvariate(1.2, 1.0)
            if kind is well
            else dice.lognormvariate(-1.5, 1.2)
        )
        user = dice.choice(_USERS)
        shift = dice.choice(_SICK) - 12 if kind is hard and dice.random() < 0.5 else dice.randrange(_NODES)
        labels = {
            "user": user,
            "cluster": dice.choice(_CLUSTERS),
            "gpus": str(gpus),
            "framework": dice.choice(("megatron", "deepspeed", "torchtitan", "nemo")),
            "team": _TEAMS[_USERS.index(user) % len(_TEAMS)],
            "image": "train:25.11" if at > now - _IMAGE_S else "train:25.10",
        }
        job = f"{dice.choice(_MODELS)}-{user}-{4100 + number}"
        attempts = dice.choices((1, 2, 3), (50, 35, 15))[0] if kind is hard else 1
        for attempt in range(1, attempts + 1):
            ended = at + hours * 3600 / attempts
            last = attempt == attempts
            sample = name if not last or attempts == 1 else dice.choice(well)
            runs = still or (last and ended > now)
            sources = {_moved(file.encode(), shift).decode(): _moved(content, shift) for file, content in known[sample].items()}
            yield Planned(job, attempt, labels, sources, at, None if runs else min(ended, now - 60), 0 if sample in well else 1)
            if ended > now - 600:
                break
            at = ended + dice.uniform(60, 900)


def _moved(content: bytes, shift: int) -> bytes:
    """The log of the same job on other nodes, or its name."""
    return _NODE.sub(lambda found: found[1] + b"%02d" % ((int(found[2]) + shift) % _NODES), content)


def send(service: Destination, planned: Planned, *, share: float = 1.0) -> None:
    """Send the logs of an attempt (the first ``share`` of them), and its end if it ended."""
    for name, content in planned.sources.items():
        until = content.rfind(b"\n", 0, int(len(content) * share)) + 1 if share < 1 else len(content)
        for start in range(0, until, PIECE):
            service.send(planned.owner(name), start, content[start : min(until, start + PIECE)])
    for report in _checkpoints(planned):
        service.checkpoint(planned.job, report)
    if planned.ended is not None:
        service.end(planned.job, planned.exit_code, planned.attempt)


def _checkpoints(planned: Planned) -> list[dict[str, Any]]:
    """What the training would have reported through ``diagnose.client``: checkpoints, up to the last step but one."""
    steps = [int(found[1]) for content in planned.sources.values() for found in _STEP.finditer(content)]
    first, last = min(steps, default=0), max(steps, default=0)
    every = (last - first) // _SAVES
    if every < 1:
        return []
    lasted = (planned.ended or time.time()) - planned.started
    return [
        {
            "attempt": planned.attempt,
            "step": step,
            "path": f"/ckpt/{planned.job}/step_{step}",
            "time": planned.started + lasted * (step - first) / (last - first),
        }
        for step in range(first + every, last, every)
    ]


def evaluate(service: Destination, plans: list[Planned]) -> None:
    """The scores of the checkpoints of the job that runs and has most of them, as ``diagnose evaluate --watch`` sends them."""
    running = [planned for planned in plans if planned.ended is None]
    if not running:
        return
    planned = max(running, key=lambda one: len(_checkpoints(one)))
    dice, reports = random.Random(7), _checkpoints(planned)  # noqa: S311 - made up
    for number, saved in enumerate(reports):
        about = {"step": saved["step"], "path": saved["path"], "attempt": saved["attempt"], "time": saved["time"] + 1500}
        for name, (metric, first, gain, noise) in _SUITE.items():
            score = first + gain * math.log1p(number) + dice.gauss(0, noise / 2)
            if name == "humaneval" and number == len(reports) - 1:
                score *= 0.3
            told = {"data_set": name, "metric": metric, "score": round(score, 4), "noise": noise}
            service.scores(planned.job, {**about, **told, "direction": "lower" if gain < 0 else "higher"})
        took = dice.uniform(1300, 1700)
        went = {"loading_s": took * 0.9, "metric_s": took, "failed_s": 70.0 if number == 2 else 0.0, "waiting_s": took * 0.6}
        cost = {"data_sets": len(_SUITE), "took_s": took, "expected_s": 1450.0, **went, "inference_s": took * 6.5}
        service.evaluated(planned.job, {**about, **cost})


def verdict(now: float) -> dict[str, Any]:
    """A node check of this morning: one of the two sick nodes fails, the other is slow."""
    bad, slow = (f"gpu-{number:02d}" for number in _SICK)
    names = [f"gpu-{number:02d}" for number in range(32)]
    return {
        "schema": "diagnose.nodecheck/1",
        "kind": "verdict",
        "rounds": 2,
        "good": [name for name in names if name not in (bad, slow)],
        "faulty": [bad],
        "slow": [slow],
        "why": {
            bad: "failed with gpu-06 and gpu-12, which passed with others: the matmul gave wrong numbers",
            slow: "its matmul took 0.91 s, the median is 0.38 s; again with gpu-30",
        },
        "time": now - 2 * 3600,
    }


def live(planned: Planned, share: float, service: Destination, pause: Callable[[], bool]) -> None:
    """Send the rest of a running attempt, some lines at a time, until ``pause`` says to stop."""
    name, content = next(iter(planned.sources.items()))
    at = content.rfind(b"\n", 0, int(len(content) * share)) + 1
    while pause():
        until = content.find(b"\n", min(len(content), at + 400)) + 1
        if not until:
            return
        service.send(planned.owner(name), at, content[at:until])
        at = until


def stored(connection: Connection, plans: list[Planned]) -> bool:
    """Whether every attempt that ended has its diagnosis."""
    a, d = t.attempts.c, t.diagnoses.c
    done = select(func.count()).select_from(t.attempts).join(t.diagnoses, d.attempt_id == a.id).where(d.final)
    return int(connection.execute(done).scalar_one()) >= sum(planned.ended is not None for planned in plans)


def age(connection: Connection, plans: list[Planned]) -> None:
    """Move what was stored to its place in the week."""
    for planned in plans:
        found = connection.execute(
            select(t.attempts.c.id, t.attempts.c.job_id)
            .join(t.jobs, t.jobs.c.id == t.attempts.c.job_id)
            .where(t.jobs.c.name == planned.job, t.attempts.c.number == planned.attempt)
        ).first()
        if found is not None and planned.ended is not None:
            _age_attempt(connection, found.id, found.job_id, planned, planned.ended)
        elif found is not None:
            connection.execute(update(t.attempts).where(t.attempts.c.id == found.id).values(started_at=planned.started))
        if found is not None:
            whole = (planned.ended or time.time()) - planned.started
            trained = planned.started + min(_START_UP_S, 0.2 * whole)
            a = t.attempts.c
            connection.execute(
                update(t.attempts).where(a.id == found.id, a.training_at.is_not(None)).values(training_at=trained)
            )
    _count_again(connection)


def _age_attempt(connection: Connection, attempt: int, job: int, planned: Planned, ended: float) -> None:
    a, j, o = t.attempts.c, t.jobs.c, t.occurrences.c
    connection.execute(
        update(t.attempts).where(a.id == attempt).values(started_at=planned.started, last_seen=ended, ended_at=ended)
    )
    if planned.attempt == 1:
        connection.execute(update(t.jobs).where(j.id == job).values(first_seen=planned.started))
    connection.execute(update(t.jobs).where(j.id == job, j.attempt == planned.attempt).values(last_seen=ended))
    connection.execute(update(t.diagnoses).where(t.diagnoses.c.attempt_id == attempt).values(made_at=ended))
    # A question to a model is about the diagnosis of that time: else it would be given up, as there is another.
    k = t.tasks.c
    asked = update(t.tasks).where(k.attempt_id == attempt, k.kind == "ask", k.state == "waiting")
    connection.execute(asked.values(detail={"made_at": ended}))
    connection.execute(
        update(t.occurrences).where(o.attempt_id == attempt).values(at=ended, **_cost(connection, attempt, planned))
    )
    nodes = t.occurrence_nodes
    connection.execute(update(nodes).where(nodes.c.attempt_id == attempt).values(at=ended))


def _cost(connection: Connection, attempt: int, planned: Planned) -> dict[str, Any]:
    """What the failure cost, had it run in its place of the week."""
    d, s = t.diagnoses.c, t.series.c
    packed = connection.execute(select(d.report).where(d.attempt_id == attempt)).scalar()
    if packed is None or planned.ended is None:
        return {}
    report = Report.model_validate(unpacked(packed))
    points = connection.execute(select(s.points).where(s.attempt_id == attempt).order_by(s.count.desc()).limit(1)).scalar()
    begins = unpacked(points)[0][0] if points is not None else None
    first, last = steps_of(report)
    whole = planned.ended - planned.started
    still = min(still_of(report), 0.5 * whole)
    found = lost(
        whole,
        start_up_s=min(_START_UP_S, 0.2 * whole),
        still_s=still,
        first=begins if first is None else first,
        last=last,
        saved=saved_step(report),
    )
    return asdict(price(found, int(planned.labels["gpus"])))


def forget_decisions(connection: Connection) -> None:
    """All jobs came within seconds, which looked like one great incident. So they are decided again, each at its place in the
    week.
    """
    connection.execute(delete(t.actions))
    connection.execute(delete(t.audit).where(t.audit.c.subject.like("action/%")))
    connection.execute(delete(t.decisions))


def age_decisions(connection: Connection, plans: list[Planned]) -> None:
    """Move the actions too. Old ones were decided and done by somebody long ago, where another attempt followed; the others
    were rejected, or nobody answered.
    """
    x = t.actions.c
    ended = {(planned.job, planned.attempt): planned.ended for planned in plans if planned.ended is not None}
    last = {planned.job: planned.attempt for planned in plans}
    rows = connection.execute(
        select(x.id, x.key, x.kind, x.nodes, t.jobs.c.name, t.attempts.c.number)
        .join(t.attempts, t.attempts.c.id == x.attempt_id)
        .join(t.jobs, t.jobs.c.id == t.attempts.c.job_id)
    ).all()
    for action in rows:
        at = ended.get((action.name, action.number))
        if at is None:
            continue
        values: dict[str, Any] = {"created": at, "changed": at}
        if at < time.time() - _DECIDED_S:
            values |= {"changed": at + 300, **_answer(action.id, followed=action.number < last[action.name])}
        connection.execute(update(t.actions).where(x.id == action.id).values(**values))
        if values.get("state") == "succeeded" and action.kind == "isolate_and_restart":
            out = {"at": at + 300, "released": at + 300 + _REPAIRED_S, "by": values["decided_by"], "key": action.key}
            connection.execute(insert(t.isolations), [{"node": node, **out} for node in action.nodes])
    _confirm(connection, [row.id for row in rows])


def _confirm(connection: Connection, actions: list[int]) -> None:
    """Where the next attempt went well, the diagnosis was right: with this the model's answers are compared."""
    helped = {action for action, after in aftermaths(connection, actions).items() if judged(after) == "right"}
    x = t.actions.c
    for row in connection.execute(select(x.id, x.attempt_id, x.changed).where(x.id.in_(helped), x.state == "succeeded")).all():
        task = {"kind": "confirm", "attempt_id": row.attempt_id, "ref": f"action/{row.id}", "state": "done", "detail": {}}
        connection.execute(insert(t.tasks).values(**task, created=row.changed, changed=row.changed))


def _answer(number: int, *, followed: bool) -> dict[str, Any]:
    who = _PEOPLE[number % len(_PEOPLE)]
    if followed:
        return {"state": "succeeded", "decided_by": who, "executor": "slurm"}
    return {"state": "rejected", "decided_by": who} if number % 3 == 0 else {"state": "expired", "decided_by": None}


def _count_again(connection: Connection) -> None:
    """Count again what groups and nodes count, from their occurrences."""
    o, g, n = t.occurrences.c, t.groups.c, t.occurrence_nodes.c
    totals = select(o.group_id, func.min(o.at), func.max(o.at), func.sum(o.gpu_seconds)).group_by(o.group_id)
    for group, first, last, spent in connection.execute(totals).all():
        values: dict[str, Any] = {"first_seen": first, "last_seen": last, "gpu_seconds_lost": spent}
        connection.execute(update(t.groups).where(g.id == group).values(**values))
    for node, last in connection.execute(select(n.node, func.max(n.at)).group_by(n.node)).all():
        connection.execute(update(t.nodes).where(t.nodes.c.name == node).values(last_failure=last, changed=last))
