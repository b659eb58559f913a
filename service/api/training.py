"""For training scripts (``diagnose.client``): what they report, and where their next attempt starts. See docs/client.md."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query

from diagnose.decision.checkpoints import judged, start
from diagnose.decision.scores import Score, fallen
from service.api import bodies
from service.api.common import REFUSALS, Asking, Here, JobName, Reader, Sender
from service.errors import Unknown
from service.intake.batch import check_may_write
from service.live.inbox import Moved
from service.names import storable
from service.store import attempts
from service.store.training import alarms, evaluations, rates, reports, scores, word
from service.store.training import checkpoints as saved_ones

router = APIRouter(route_class=Asking, tags=["training"], responses=REFUSALS)
_MOST_SCORES = 200
"""per checkpoint, in an answer"""
_DECIDED = ("approved", "dispatched", "running", "succeeded")


@router.post("/v1/jobs/{job}/checkpoints", response_model=bodies.Reported, summary="A checkpoint was saved")
async def checkpoint(job: JobName, service: Here, who: Sender, saved: Annotated[bodies.Saved, Body()]) -> dict[str, Any]:
    """If a checkpoint is reported again for the same step and attempt, the last report counts."""
    storable(saved.path, "path")
    if saved.why is not None:
        storable(saved.why, "why")
    check_may_write(job, who.grant)
    attempt = await service.ingest.open(job, saved.attempt, None, who.grant)
    at = saved.time if saved.time is not None else time.time()
    await service.store.awrite(
        lambda connection: reports.checkpoint(
            connection,
            attempt.id,
            step=saved.step,
            path=saved.path,
            healthy=saved.healthy,
            at=at,
            why=saved.why,
            cost_s=saved.cost_s,
        )
    )
    return {"job": job, "attempt": attempt.number, "stored": True}


@router.get("/v1/jobs/{job}/checkpoints", response_model=bodies.Checkpoints, summary="Its checkpoints, and which are good")
async def checkpoints(job: JobName, service: Here, who: Reader) -> dict[str, Any]:
    """What the training reported, judged by its own verdicts, its scores, and the roll-backs that were decided."""

    latest = await service.store.aread(lambda connection: rates.latest(connection, job))
    if latest is None:
        raise Unknown("there is no such job", where=job, remedy="send its log first")
    between = await service.failure_rates.of_job(service.store, latest.job_id)

    def work(connection: Any) -> dict[str, Any]:
        decided = [rollback for _, rollback in saved_ones.rollbacks(connection, job, _DECIDED)]
        found = judged(saved_ones.of_job(connection, job), decided)
        of_each = scores.by_checkpoint(connection, job)
        pace = rates.present_of(connection, latest.id, between)
        return {
            "job": job,
            "pace": dataclasses.asdict(pace) if pace is not None else None,
            "checkpoints": [
                {**dataclasses.asdict(one), "scores": of_each.get((one.attempt, one.step), [])[:_MOST_SCORES]} for one in found
            ],
        }

    return await service.store.aread(work)


@router.post(
    "/v1/jobs/{job}/checkpoints/scores", response_model=bodies.Scored, summary="A checkpoint was evaluated on a data set"
)
async def scored(job: JobName, service: Here, who: Sender, told: Annotated[bodies.Score, Body()]) -> dict[str, Any]:
    """If a score is told again, the last report counts. The answer says what the checkpoint is held for now."""
    for name, text in (("data_set", told.data_set), ("metric", told.metric), ("path", told.path)):
        if text is not None:
            storable(text, name)
    check_may_write(job, who.grant)
    at = told.time if told.time is not None else time.time()

    def work(connection: Any) -> dict[str, Any] | None:
        found = scores.attempt_of(connection, job, told.attempt, told.step, told.path)
        if found is None:
            return None
        key, number = found
        score = Score(number, told.step, told.data_set, told.metric, told.score, told.noise, higher=told.direction == "higher")
        scores.enter(connection, key, score, at)
        decided = [rollback for _, rollback in saved_ones.rollbacks(connection, job, _DECIDED)]
        held = judged(saved_ones.of_job(connection, job), decided)
        its = next((one for one in held if (one.attempt, one.step) == (number, told.step)), None)
        fell = fallen(scores.known_of(connection, job)).get((number, told.step))
        alarms.of_score(connection, job, told.step, its.path if its is not None else told.path, fell, at)
        return {
            "job": job,
            "attempt": number,
            "stored": True,
            "good": its.good if its is not None else None,
            "why": its.why if its is not None else "no such checkpoint was reported yet",
        }

    answer = await service.store.awrite(work)
    if answer is None:
        raise Unknown(
            "there is no such job, or no such attempt", where=job, remedy="let the training report its checkpoint first"
        )
    return answer


@router.post(
    "/v1/jobs/{job}/checkpoints/evaluations", response_model=bodies.Reported, summary="What an evaluation of a checkpoint took"
)
async def evaluated(job: JobName, service: Here, who: Sender, told: Annotated[bodies.Evaluated, Body()]) -> dict[str, Any]:
    """Its scores are told one by one (`/v1/jobs/{job}/checkpoints/scores`)."""
    if told.path is not None:
        storable(told.path, "path")
    check_may_write(job, who.grant)
    at = told.time if told.time is not None else time.time()
    one = evaluations.Evaluation(**told.model_dump(exclude={"path", "attempt", "time"}), at=at)

    def work(connection: Any) -> int | None:
        found = scores.attempt_of(connection, job, told.attempt, told.step, told.path)
        if found is not None:
            evaluations.enter(connection, found[0], one)
        return found[1] if found is not None else None

    number = await service.store.awrite(work)
    if number is None:
        raise Unknown(
            "there is no such job, or no such attempt", where=job, remedy="let the training report its checkpoint first"
        )
    return {"job": job, "attempt": number, "stored": True}


@router.post("/v1/jobs/{job}/progress", response_model=bodies.Progressed, summary="A step is done")
async def progress(job: JobName, service: Here, who: Sender, done: Annotated[bodies.Progress, Body()]) -> dict[str, Any]:
    """Only the latest report is kept. The answer says whether a checkpoint is wanted, and whether something went wrong."""
    check_may_write(job, who.grant)
    attempt = await service.ingest.open(job, done.attempt, None, who.grant)
    attempt.tell(Moved(time.time()))
    at = done.time if done.time is not None else time.time()

    def work(connection: Any) -> dict[str, Any]:
        reports.progress(connection, attempt.id, step=done.step, loss=done.loss, loss_is=done.loss_is, at=at)
        return word.asked(connection, attempt.id)

    between = await service.failure_rates.of_job(service.store, attempt.job_id)
    said = await service.store.awrite(work)
    return {
        "job": job,
        "attempt": attempt.number,
        "stored": True,
        **said,
        "between_failures_s": between.seconds if between is not None else None,
    }


@router.get(
    "/v1/jobs/{job}/stacks", response_model=bodies.StacksWanted, summary="Whether the stacks of its processes are wanted"
)
async def stacks(
    job: JobName,
    service: Here,
    who: Sender,
    attempt: Annotated[int | None, Query(ge=0, le=1_000_000, description="The run of this job; the latest if left out")] = None,
) -> dict[str, Any]:
    """True while it runs and seems to stand still. A runner then takes them, and sends them as the source `SOURCE/stacks`."""
    number = attempt
    if number is None:
        number = await service.store.aread(lambda connection: attempts.latest_attempt(connection, job))
    if number is None:
        raise Unknown("there is no such job", where=job, remedy="send its log first")
    live = service.jobs.live(job, number)
    return {"job": job, "attempt": number, "wanted": live is not None and live.seen.stands}


@router.get(
    "/v1/jobs/{job}/resume", response_model=bodies.Resume, summary="Where the next attempt starts, and what it leaves out"
)
async def resume(
    job: JobName,
    service: Here,
    who: Sender,
    proposed: Annotated[bool, Query(description="Take roll-backs that nobody has approved yet, too")] = False,
) -> dict[str, Any]:
    """The newest checkpoint that is not spoilt by a decided roll-back, and the batches of those roll-backs."""
    await service.jobs.fresh(job, report=True)

    def work(connection: Any) -> dict[str, Any] | None:
        latest = attempts.latest_attempt(connection, job)
        if latest is None:
            return None
        taken = saved_ones.rollbacks(connection, job, _DECIDED)
        waiting = saved_ones.rollbacks(connection, job, ("proposed",))
        if proposed:
            taken, waiting = [*taken, *waiting], []
        found = start(saved_ones.of_job(connection, job), [rollback for _, rollback in taken])
        return {
            "job": job,
            "attempt": latest,
            "step": found.step,
            "path": found.path,
            "skip_batches": found.skip,
            "why": found.why,
            "actions": [action for action, _ in taken],
            "proposed": [action for action, _ in waiting],
            "progress": reports.latest_progress(connection, job),
        }

    answer = await service.store.aread(work)
    if answer is None:
        raise Unknown("there is no such job", where=job, remedy="a first attempt starts at its beginning")
    return answer
