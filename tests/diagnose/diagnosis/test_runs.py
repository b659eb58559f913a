"""Where the last run of a source begins."""

from __future__ import annotations

from diagnose.diagnosis.runs import last_start
from diagnose.matching.series import Column, Series
from tests.support.logs import report_of


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


def test_the_loss_of_the_run_before_is_no_measure() -> None:
    first = "".join(f"step {n} of 400 loss {2 + 6 / n:.4f}\n" for n in range(1, 401))
    second = "".join(f"step {n} of 400 loss {500 + 900 / n:.4f}\n" for n in range(1, 401))
    assert report_of(first + second).outcome == "healthy"
    assert report_of(first + second.replace("step ", "step 40")).diagnosis.reason == "loss_anomaly"
