"""What the retries promise: what is tried again with success is no failure."""

from __future__ import annotations

import pytest

from tests.support.logs import job_of, report_of, steps

CANCELLED = "slurmstepd: error: *** JOB 4711 ON gpu014 CANCELLED AT 2026-01-02T03:04:05 ***\n"


def test_an_error_from_which_the_next_line_falls_back_is_overcome() -> None:
    log = (
        "ERROR - zorch: Failed to initialize the fast path\nINFO - zorch: Falling back to the slow path\n"
        + "INFO - working\n" * 12
    )
    assert report_of(log).outcome == "healthy"


def test_what_was_tried_again_with_success_is_no_failure() -> None:
    talk = "".join(f"served request {n} of client {n % 7} in {n % 5}.25 s\n" for n in range(200))
    failed = "Request timed out: HTTPConnectionPool(host='10.0.0.7', port=11500): Read timed out. (read timeout=600)\n"
    limit = "slurmstepd: error: *** JOB 4711 ON gpu014 CANCELLED AT 2026-01-02T00:45:57 DUE TO TIME LIMIT ***\n"
    assert report_of(talk + failed + "retrying due to an error\n" + talk + limit).diagnosis.reason == "preempted"
    assert report_of(talk + failed + "giving up\n").diagnosis.reason == "connection_error"


TRIED = "RuntimeError: no valid configuration for block {n}: out of resource: shared memory, Required: 245760, limit: 232448\n"


def test_what_helped_once_helps_again_where_its_line_was_folded_away() -> None:
    talk = "".join(f"benchmarked kernel {n} of {n % 7} in {n % 5}.25 ms\n" for n in range(200))
    tried = "".join(f"ERROR tune: {TRIED.format(n=n)}ERROR tune: Ignoring this choice.\n" for n in range(30))
    assert report_of(talk + tried + talk).outcome == "healthy"
    last = talk + tried + f"ERROR tune: {TRIED.format(n=31)}"
    assert report_of(last).outcome == "failed"
    assert report_of(last + "giving up\n").outcome == "failed"


ALIGN = "Error in rule align:\n    jobid: 3\n    output: out/a.bam\n"


@pytest.mark.parametrize(
    ("log", "outcome"),
    [
        ("Job 3: Aligning\n" + ALIGN + "Trying to restart job 3.\nFinished job 3.\n2 of 2 steps (100%) done\n", "healthy"),
        ("Job 3: Aligning\n" + ALIGN + "Shutting down, this might take some time.\n", "failed"),
        (
            "Time step failed, cutting dt from 0.1 to 0.05\nresidual 2.0\nStep 12 accepted\nSimulation finished at t = 1\n",
            "healthy",
        ),
        ("residual 2.0\nTime step failed, dt is below its least\n", "failed"),
        ("ERROR model not known, falling back to the generic one\n" + steps(1, 5), "healthy"),
        ("ERROR model not known\n", "failed"),
    ],
)
def test_what_is_done_in_another_way_is_no_end(log: str, outcome: str) -> None:
    assert report_of(log).outcome == outcome


@pytest.mark.parametrize(
    "line", ["FATAL: zorch: device 3 disabled by the driver", "FATAL: using default queue is not allowed, aborting"]
)
def test_the_end_of_a_program_is_not_taken_back_by_a_word(line: str) -> None:
    assert report_of(f"starting zorch\nloading the data\n{line}\nclosing\ncleaning up\ndone with it\n").outcome == "failed"


def test_a_warning_that_announces_the_next_try_is_softened_where_steps_are_made() -> None:
    tried = "WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after connection broken\n"
    job = job_of(steps(1, 40) + tried + steps(41, 60))
    (one,) = (one for one in job.finding(job.evidence()).weighed if one.reason == "connection_error")
    assert "softened" in one.signals
