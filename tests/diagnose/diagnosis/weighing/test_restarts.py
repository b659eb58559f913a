"""What the restarts promise: lines of a run that stand again are another run."""

from __future__ import annotations

import pytest

from tests.support.logs import RAISED, job_of, report_of, said, steps

RUN = "\n".join(f"Architecture of the network, part {name}" for name in "ABCDEFGHIJ") + "\n"


AGAIN = "\n".join(f"what is evaluated, {name}" for name in "ABCDEFGH") + "\n"


ENDED = RAISED.format(what="AssertionError: Given dir x/best.pdparams not exist.")


def test_what_good_runs_print_too_begins_no_attempt() -> None:
    lost = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    job = job_of(steps(1, 30) + lost)
    assert job.report().diagnosis.reason == "gpu_fell_off_bus"
    job.learn(job_of(steps(1, 30) + lost))
    report = job.report()
    assert (report.outcome, report.job.attempt) == ("healthy", 1)


@pytest.mark.parametrize(
    ("log", "outcome"),
    [
        (RUN + ENDED + RUN + AGAIN, "healthy"),
        (RUN + ENDED + AGAIN, "failed"),
        (RUN + RUN + ENDED + RUN + AGAIN, "failed"),
        ("[rank0]: " + RUN + ENDED + RUN + AGAIN, "failed"),
    ],
    ids=["called again", "went on elsewhere", "two ranks in one file", "ranks are named"],
)
def test_a_run_whose_own_lines_stand_again_behind_its_failure_was_started_anew(log: str, outcome: str) -> None:
    assert report_of(log).outcome == outcome


LAST_WORDS = [
    "ModuleNotFoundError: No module named 'apex'",
    "bash: ./run.sh: Permission denied",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'",
    "hydra.errors.ConfigCompositionException: Could not load 'x'",
    "E0123 failed to initialise the frobnicator",
    "run.sh: line 12: torchrunn: command not found",
    "train.py: error: unrecognized arguments: --foo",
]


def one_run(number: int, lines: int, last: str) -> str:
    """A program that says its first lines, works, and ends with a last word."""
    begin = "".join(f"the {part} of zorch is made ready for this run\n" for part in ("mill", "kiln", "lathe", "press"))
    work = "".join(f"{number}{n % 10} pieces of {word} are cut\n" for n in range(lines // 3) for word in ("oak", "ash", "elm"))
    return f"zorch 4.2 begins with run {number}\n{begin}{work}{last}\n"


@pytest.mark.parametrize("last", LAST_WORDS)
def test_a_last_run_that_fails_in_the_words_of_the_one_before_has_failed(last: str) -> None:
    once = report_of(one_run(1, 120, last)).diagnosis.reason
    job = job_of(one_run(1, 120, last) + one_run(2, 150, last))
    report = job.report()
    assert len(job.compression.runs(0)) == 1
    assert (report.outcome, report.diagnosis.reason) == ("failed", once)
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.line > 120


CONDOR = (
    "000 (012.000.000) 2024-05-01 10:00:00 Job submitted from host: <10.0.0.1:9618>\n"
    "001 (012.000.000) 2024-05-01 10:01:00 Job executing on host: <10.0.0.2:9618>\n"
)
EVICTED = "004 (012.000.000) 2024-05-01 11:00:00 Job was evicted.\n\t(0) CPU times\n"
HELD = "007 (012.000.000) 05/01 10:01:00 Shadow exception!\n012 (012.000.000) 05/01 10:01:01 Job was held.\n"
RELEASED = "013 (012.000.000) 05/01 10:20:00 Job was released.\n"
EXECUTES = "001 (012.000.000) 2024-05-01 11:10:00 Job executing on host: <10.0.0.3:9618>\n"
OF_ANOTHER = EXECUTES.replace("012.", "013.")


@pytest.mark.parametrize(
    ("log", "outcome"),
    [
        (CONDOR + EVICTED + EXECUTES, "healthy"),
        (CONDOR + HELD + RELEASED + EXECUTES, "healthy"),
        (CONDOR + EVICTED, "failed"),
        (CONDOR + EVICTED + OF_ANOTHER, "failed"),
        (CONDOR + EVICTED + EXECUTES + EVICTED, "failed"),
    ],
    ids=["runs again", "released", "evicted", "another job runs", "evicted twice"],
)
def test_a_job_that_a_batch_system_runs_again_has_not_failed(log: str, outcome: str) -> None:
    assert report_of(log).outcome == outcome


BANNER = "Starting run of the crystal field at Mon May  6 1{0}:00:00 UTC 2024\nFetching the tables of the lattice\n"
NO_APEX = RAISED.format(what="ModuleNotFoundError: No module named 'apex'")
NO_MEMORY = RAISED.format(what="torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB")


def test_of_two_short_runs_that_both_failed_the_last_one_counts() -> None:
    """Near misses: two ranks that begin before one fails, a program that only goes on, and the stages of a script."""
    assert said(BANNER.format(0) + NO_APEX + BANNER.format(1) + NO_MEMORY)[0] == "out_of_memory"
    assert said(BANNER.format(0) * 2 + NO_APEX + NO_MEMORY)[0] == "import_error"
    assert said(BANNER.format(0) + NO_APEX + BANNER.format(1))[0] == "import_error"
    assert said(BANNER.format(0) + NO_APEX + BANNER.format(0) + NO_MEMORY)[0] == "import_error"
    assert said(BANNER.format(0) + NO_APEX + BANNER.format(0) + NO_APEX.replace("apex", "xformers")) == ("import_error", 10)


def test_another_job_that_executes_is_no_new_start() -> None:
    first = "05/01/2024 10:00:00;0008;PBS_Server;Job;11.pbs;Job Run at request of Scheduler@pbs\n"
    raised = "Traceback (most recent call last):\n  File \"train.py\", line 7, in <module>\n    main()\nKeyError: 'depth'\n"
    assert report_of(first + raised + first.replace("11.pbs", "12.pbs") + "all is well\n").outcome == "failed"
    assert report_of(first + raised + first + "all is well\n").outcome == "healthy"
