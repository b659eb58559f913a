"""What the restarts promise: lines of a run that stand again are another run."""

from __future__ import annotations

import pytest

from tests.support.logs import RAISED, job_of, report_of, steps

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
