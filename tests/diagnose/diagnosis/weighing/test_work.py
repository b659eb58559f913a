"""What the work promises: regular lines that count up are work, farewells are none."""

from __future__ import annotations

import pytest

from tests.support.logs import RAISED, report_of

_DEAD = RAISED.format(what="AttributeError: 'Reader' object has no attribute 'size'")


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("[train] it {n} of 900: took 3{n}.1 ms, cost {n}.7", "healthy"),
        ("[rank3]: [train] it {n} of 900: took 3{n}.1 ms, cost {n}.7", "failed"),
        ("[main] closed handler {n} of the web page, port 90{n}", "failed"),
        ("[train] worker {n} says goodbye after 31.5 s", "failed"),
        ("[main] 4711 waits, 12.5 s", "failed"),
    ],
    ids=["work", "ranks", "handlers", "workers", "waiting"],
)
def test_lines_that_count_up_behind_a_death_are_a_new_run_and_farewells_are_not(line: str, outcome: str) -> None:
    report = report_of(_DEAD + "".join(line.format(n=n) + "\n" for n in range(100, 400)))
    assert report.outcome == outcome


def test_work_that_ended_before_the_log_does_is_no_new_run() -> None:
    work = "".join(f"[train] it {n} of 900: took 3{n}.1 ms, cost {n}.7\n" for n in range(100, 200))
    assert report_of(_DEAD + work + "nothing more\n" * 20).outcome == "failed"


def test_a_job_whose_regular_lines_counted_up_did_not_fail_before_the_first_step() -> None:
    work = "".join(f"[train] it {n} of 900: took 3{n}.1 ms, cost {n}.7\n" for n in range(100, 200))
    assert report_of(work + _DEAD).diagnosis.phase == "training"
    assert "before the first step" not in report_of(work + _DEAD).diagnosis.summary
    assert report_of("loading\n" * 100 + _DEAD).diagnosis.phase == "start-up"
