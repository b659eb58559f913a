"""Where the last run of a source begins."""

from __future__ import annotations

import math

import pytest

from diagnose.diagnosis.runs import last_start
from diagnose.matching.databases import core
from diagnose.matching.series import Column, Series
from tests.support.logs import RAISED as UNCAUGHT
from tests.support.logs import job_of, report_of, said


def steps(*values: float) -> Series:
    column = Column.empty()
    for line, value in enumerate(values, 1):
        column.append(value, value, line, 0, 1)
    series = Series()
    series.extend(column)
    return series


def test_steps_that_fall_back_to_the_beginning() -> None:
    assert last_start(None) == 0
    assert last_start(steps(*range(60))) == 0
    assert last_start(steps(*range(60), *range(60), *range(40))) == 121
    assert last_start(steps(*range(60), *range(40, 90))) == 0  # from a checkpoint: the same run goes on
    assert last_start(steps(*range(60), 0)) == 0  # too little to be one
    assert last_start(None, start=30) == 30  # nothing counts on


def test_the_loss_of_the_run_before_is_no_measure() -> None:
    first = "".join(f"step {n} of 400 loss {2 + 6 / n:.4f}\n" for n in range(1, 401))
    second = "".join(f"step {n} of 400 loss {500 + 900 / n:.4f}\n" for n in range(1, 401))
    assert report_of(first + second).outcome == "healthy"
    assert report_of(first + second.replace("step ", "step 40")).diagnosis.reason == "loss_anomaly"


def test_epochs_count_where_no_step_is_told() -> None:
    def trained(level: float) -> str:
        return "".join(f"Epoch {n}: Train Loss {level + 1 / (n + 20):.4f}\n" for n in range(100))

    assert report_of(trained(0.01) + trained(3.0)).outcome == "healthy"
    assert report_of(trained(0.01) + trained(3.0).replace("Epoch ", "Epoch 20")).diagnosis.reason == "loss_anomaly"


def test_epochs_that_begin_anew_again_and_again_are_rounds_of_one_training() -> None:
    rounds = [epoch for _ in range(6) for epoch in range(20)]
    column, epochs = Column.empty(), Series()
    for line, epoch in enumerate(rounds, 1):
        column.append(math.nan, float(epoch), line, 0, 1)
    epochs.extend(column)
    assert last_start(None, None, epochs) == 0
    assert last_start(None, None, epochs.since(81)) == 101


def test_losses_that_get_steps_are_another_programs() -> None:
    losses = Series()
    column = Column.empty()
    for line in range(1, 21):
        column.append(math.nan if line <= 8 else 10.0 * line, 2.5, line, 0, 1)
    losses.extend(column)
    assert last_start(None, losses) == 9
    assert last_start(None, steps(*range(60))) == 0


STEP = "srun: error: gpu-11: task 0: Exited with exit code 1\nsrun: Terminating StepId={}\n"
AGENT = """============================================================
/work/train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : {time}
  host      : {host}
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4100)
  error_file: <N/A>
============================================================
"""
RAISED = 'Traceback (most recent call last):\n  File "/work/train.py", line {}, in <module>\n    main()\n{}\n'
FIRST, SECOND = RAISED.format(7, "ValueError: bad shape"), RAISED.format(9, "NameError: name 'x' is not defined")


@pytest.mark.parametrize(
    ("over", "over_again"),
    [
        (STEP.format("881234.0"), STEP.format("881234.0")),
        (STEP.format("881234.0"), STEP.format("881240.0")),
        (AGENT.format(time="2026-03-04_05:06:10", host="gpu-1"), AGENT.format(time="2026-03-04_07:00:00", host="gpu-1")),
    ],
    ids=["requeued", "another job", "the same host's agent"],
)
def test_of_appended_runs_the_last_one_is_the_answer(over: str, over_again: str) -> None:
    report = report_of(FIRST + over + SECOND + over_again)
    assert (report.diagnosis.reason, report.job.attempt) == ("name_error", 2)
    assert report_of(SECOND + over + FIRST + over_again).diagnosis.reason == "value_error"


@pytest.mark.parametrize(
    ("over", "over_again"),
    [
        (STEP.format("881234.0"), STEP.format("881234.1")),
        (AGENT.format(time="2026-03-04_05:06:10", host="gpu-1"), AGENT.format(time="2026-03-04_05:36:10", host="gpu-2")),
        (AGENT.format(time="2026-03-04_05:06:10", host="gpu-1"), AGENT.format(time="2026-03-04_05:06:10", host="gpu-1")),
    ],
    ids=["the next stage of a job", "another host", "the same summary twice"],
)
def test_of_one_run_the_first_failure_is_the_answer(over: str, over_again: str) -> None:
    report = report_of(FIRST + over + SECOND + over_again)
    assert (report.diagnosis.reason, report.job.attempt) == ("value_error", 1)


PROLOG = """Preparing wheel of garden {job}
host gpu-{job} has 8 devices
arguments: width=512 depth=12 seed=7
vocabulary of 50257 words
"""
WORK = "".join(f"stride {n} of 9000 its wear is {2 - n / 1000}\n" for n in range(1, 150))
LINES = (PROLOG + WORK).count("\n")
needs_folds = pytest.mark.skipif(core is None, reason="the native core knows the first lines of a source")


@needs_folds
def test_the_last_run_is_the_answer_and_those_before_it_are_attempts() -> None:
    ends = [FIRST, SECOND, FIRST, SECOND, FIRST, RAISED.format(11, "KeyError: 'depth'")]
    report = report_of(
        "".join(PROLOG.format(job=12345 + n) + WORK[: 3000 + 500 * n] + "\n" + end for n, end in enumerate(ends))
    )
    assert (report.diagnosis.reason, report.job.attempt) == ("key_error", 6)
    assert {line.title for line in report.diagnosis.recovered} >= {
        "ValueError: bad shape",
        "NameError: name 'x' is not defined",
    }
    assert any("The log holds 6 runs" in note for note in report.diagnosis.notes)


@needs_folds
@pytest.mark.parametrize("end", [FIRST, "slurmstepd: error: *** JOB 91 ON gpu-1 CANCELLED AT 2026-03-04T05:06:07 ***\n"])
def test_a_run_that_went_on_for_long_is_the_answer_though_it_did_not_fail(end: str) -> None:
    assert report_of(PROLOG.format(job=1) + WORK + end + PROLOG.format(job=2) + WORK * 2).outcome == "healthy"


@needs_folds
def test_good_runs_behind_those_that_failed_are_the_answer() -> None:
    good = PROLOG.format(job=3) + WORK + "all is done\n"
    failed = PROLOG.format(job=1) + WORK[:4000] + "\n" + FIRST + PROLOG.format(job=2) + WORK[:5000] + "\n" + SECOND
    report = report_of(failed + good * 3)
    assert (report.outcome, report.job.attempt) == ("healthy", 3)
    third = report_of(failed + good * 3 + PROLOG.format(job=4) + WORK[:4500] + "\n" + RAISED.format(11, "KeyError: 'depth'"))
    assert (third.outcome, third.diagnosis.reason) == ("failed", "key_error")


@needs_folds
def test_all_of_very_many_runs_are_counted() -> None:
    report = report_of("".join(PROLOG.format(job=n) + WORK[: 3000 + 37 * n % 900] + "\n" + FIRST for n in range(80)))
    assert report.job.attempt == 80
    assert any("The log holds 80 runs" in note for note in report.diagnosis.notes)


@needs_folds
def test_a_run_that_has_just_begun_is_no_answer() -> None:
    report = report_of(PROLOG.format(job=1) + WORK + FIRST + PROLOG.format(job=2) + WORK[:300])
    assert (report.diagnosis.reason, report.job.attempt) == ("value_error", 1)


@needs_folds
def test_a_short_run_that_went_on_for_minutes_is_the_answer() -> None:
    last = PROLOG.format(job=2) + "2026-03-04 05:{}:07 INFO looked at the garden\n2026-03-04 05:{}:09 INFO counted the beds\n"
    before = PROLOG.format(job=1) + WORK + FIRST
    assert report_of(before + last.format("01", "09")).outcome == "healthy"
    assert report_of(before + last.format("01", "01")).diagnosis.reason == "value_error"
    again = report_of(before + last.format("01", "09") + SECOND)
    assert (again.diagnosis.reason, again.job.attempt) == ("name_error", 2)


@needs_folds
def test_steps_of_an_earlier_run_are_none_of_the_last_one() -> None:
    steps_ = "".join(f"step {n} of 400 loss {2 + 6 / n:.4f}\n" for n in range(1, 401))
    report = report_of(PROLOG.format(job=1) + steps_ + SECOND + PROLOG.format(job=2) + "reading words\n" * 9 + FIRST)
    assert (report.diagnosis.reason, report.diagnosis.step, report.diagnosis.phase) == ("value_error", None, "start-up")


def test_two_jobs_of_slurm_that_were_cancelled_are_two_runs() -> None:
    over = "slurmstepd: error: *** JOB {} ON gpu-1 CANCELLED AT 2026-03-0{}T05:06:07 DUE TO TIME LIMIT ***\n"
    report = report_of(FIRST + over.format(91, 4) + SECOND + over.format(92, 5))
    assert report.job.attempt == 2
    assert report.diagnosis.reason != "value_error"


MODULES = """Loaded module: python3/3.11.5
Loaded dependency [cudnn/v8.9.2-prod-cuda-12.1]: cuda/12.1
Loaded module: cudnn/v8.9.2-prod-cuda-12.1
"""


@pytest.mark.parametrize("fold_after", [3, 0])
def test_runs_whose_first_lines_are_dropped_by_filters(fold_after: int) -> None:
    """The modules of a job script are what these runs say, before they fail."""
    ends = ["ValueError: bad shape", "KeyError: 'depth'", "TypeError: list indices must be integers"]
    log = "".join(MODULES + UNCAUGHT.format(what=end) for end in ends)
    report = job_of(log, fold_after=fold_after).report()
    assert (report.diagnosis.reason, report.job.attempt) == ("type_error", 3)
    one_run = job_of(MODULES + UNCAUGHT.format(what=ends[0]) * 2, fold_after=fold_after).report()
    assert (one_run.diagnosis.reason, one_run.job.attempt) == ("value_error", 1)


def test_runs_of_a_file_whose_beginning_is_missing() -> None:
    cancelled = "slurmstepd: error: *** JOB {} ON gpu-1 CANCELLED AT 2026-03-04T05:06:07 ***\n"
    log = "".join(PROLOG.format(job=n) + WORK + cancelled.format(n) for n in (91, 91, 91))
    tail = "".join(log.splitlines(keepends=True)[70:])
    report = report_of(tail)
    assert report.diagnosis.reason == "preempted"
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.line == tail.count("\n")


def test_what_begins_again_behind_a_failure_that_ended_nothing_is_no_run() -> None:
    handled = "2026-03-04 05:06:07 ERROR ValueError: bad shape\n"
    job = job_of((MODULES + WORK + handled) * 3)
    assert job.compression.begins(0)[0] == 2
    assert job.report().job.attempt == 1


@pytest.mark.parametrize(
    "dress",
    ["{line}", "2026-03-04T05:06:{n:02d}.123Z {line}", "2026-03-04 05:06:{n:02d},123 - launcher - WARNING - {line}"],
    ids=["plain", "a time", "a logger"],
)
def test_ranks_that_raise_one_after_the_other_are_one_run_whatever_stands_before_their_frames(dress: str) -> None:
    frames = "".join(
        f'  File "/app/part{n}.py", line {n}, in do_{n}\n    do_{n + 1}(the_model, the_batch)\n' for n in range(12)
    )
    raised = f"Traceback (most recent call last):\n{frames}AssertionError: Sequence length grew beyond the cache: 2851 > 2560\n"
    log = "the words are read\nthe model is built of 12 parts\n" + 2 * raised
    dressed = "".join(dress.format(n=n % 60, line=line) + "\n" for n, line in enumerate(log.splitlines()))
    assert said(dressed) == ("assertion_error", 2 + 26)
    assert not any("runs" in note for note in report_of(dressed).diagnosis.notes)


@needs_folds
@pytest.mark.parametrize(
    "prefix", ["2026-03-04T05:06:07.123456Z  INFO ", "2026-03-04 05:06:07  "], ids=["tracing", "two blanks"]
)
def test_runs_are_known_where_two_blanks_stand_before_each_message(prefix: str) -> None:
    log = ""
    for number, end in enumerate([FIRST, SECOND, RAISED.format(11, "KeyError: 'depth'")]):
        run = PROLOG.format(job=12345 + number) + WORK[: 3000 + 500 * number]
        log += "".join(f"{prefix}{line}\n" for line in run.splitlines()) + end
    report = report_of(log)
    assert (report.diagnosis.reason, report.job.attempt) == ("key_error", 3)
