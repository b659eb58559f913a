"""What a history adds up to."""

from __future__ import annotations

import random
from typing import Any

import pytest

from diagnose.study.chance import at_least, interval
from diagnose.study.runs import Run, State
from diagnose.study.tables import study

HOUR = 3600.0


def run(job: str, state: State = "completed", hours: float = 1.0, at: float = 100.0, **more: Any) -> Run:
    begun = at * HOUR
    given = {"name": job, "user": "kim", "raw": job, "gpus": 8, "nodes": ("n1",), "waits_since": begun - 60} | more
    return Run(job, state, started=begun, ended=begun + hours * HOUR, elapsed_s=hours * HOUR, **given)


def test_the_hours_add_up_to_the_whole() -> None:
    hours = study(
        [
            run("a"),
            run("b", "failed", 2.0, reason="ecc_error", by_log=True, steps=(1.0, 1000.0, 750.0)),
            run("c", "cancelled", 0.5),
            run("d", "time_limit", 4.0),
        ]
    )["hours"]
    assert hours["all"] == 60.0
    assert (hours["useful"], hours["lost_work"], hours["lost_whole_runs"], hours["cancelled"]) == (20.0, 4.0, 32.0, 4.0)
    assert hours["queued"] == pytest.approx(4 * 8 / 60, abs=0.01)


def test_what_nothing_explains_comes_first_and_a_log_takes_it_away() -> None:
    before = study([run("a", "failed"), run("b", "node_failure")])
    assert before["unknown"] == {"count": 1, "share": 0.5, "share_of_gpu_hours": 0.5}
    after = study([run("a", "failed", reason="key_error", by_log=True), run("b", "node_failure")])
    assert after["unknown"]["count"] == 0
    assert {(row["reason"], row["category"], row["by_log"]) for row in after["reasons"]} == {
        ("key_error", "script", 1),
        ("node_failure", "infrastructure", 0),
    }


def test_a_bad_node_is_found_and_its_neighbours_are_not() -> None:
    dice = random.Random(5)
    runs = []
    for number in range(6000):
        first = dice.randrange(40)
        nodes = tuple(f"n{place}" for place in range(first, first + 2))
        bad = dice.random() < (0.6 if "n7" in nodes else 0.05)
        runs.append(run(f"j{number}", "node_failure" if bad else "completed", at=number / 3, nodes=nodes, gpus=16))
    found = study(runs)["nodes"]
    assert [row["node"] for row in found["suspicious"]] == ["n7"]
    assert found["nodes"] == 41


def test_a_broken_script_accuses_no_node() -> None:
    well = [run(f"w{number}", at=number, nodes=(f"n{number % 20}",)) for number in range(400)]
    broken = [run("broken", "failed", 0.1, at=300 + number / 5, nodes=("n3",)) for number in range(60)]
    assert study(well + broken)["nodes"]["suspicious"] == []


def test_retries_of_what_cannot_succeed_are_counted() -> None:
    tries = [
        run(str(number), "failed", 0.1, at=100 + number, name="sft", reason="import_error", by_log=True) for number in range(3)
    ]
    found = study([*tries, run("9", at=104, name="sft")])
    assert (found["retries"]["chains"], found["retries"]["in_vain"], found["retries"]["tries_until_success"]) == (1, 2, 4)
    (row,) = found["reasons"]
    assert (row["restarted"], row["time_to_restart_s"]) == (3, 0.9 * HOUR)
    assert {"retries"} <= {saving["what"] for saving in found["savings"]}


def test_a_requeued_run_is_one_chain_and_the_tasks_of_an_array_are_none() -> None:
    array = [run(f"5_{task}", "failed", at=100 + 2 * task, name="array") for task in range(4)]
    again = [run("6", "requeued", at=100, name="r"), run("6", at=102, name="r")]
    found = study(array + again)["retries"]
    assert (found["chains"], found["succeeded"]) == (1, 1)


def test_early_failures_hours_and_days() -> None:
    found = study([run("a", "failed", 0.1, at=9), run("b", "failed", 2, at=24), run("c", at=24)])
    assert found["early"]["count"] == 1
    assert found["hours_of_day"][9] == found["hours_of_day"][2] == 1
    assert found["days_of_week"][3] == found["days_of_week"][4] == 1  # Thursday and Friday
    assert [(row["day"], row["runs"], row["failures"]) for row in found["days"]] == [("1970-01-01", 1, 1), ("1970-01-02", 2, 1)]


def test_time_between_failures_has_an_interval_also_where_nothing_failed() -> None:
    (row,) = study([run("a", hours=10.0)])["between_failures"]
    assert row["all"]["hours_between"] is None
    assert row["all"]["from_hours"] == pytest.approx(10 / 3.689, abs=0.01)
    assert row["all"]["to_hours"] is None


def test_chance_agrees_with_the_tables_of_poisson() -> None:
    assert at_least(3, 1.0) == pytest.approx(0.0803, abs=1e-4)
    assert at_least(10, 20.0) == pytest.approx(0.9950, abs=1e-4)
    assert at_least(0, 5.0) == 1.0
    assert at_least(1, 0.0) == 0.0
    assert interval(10) == pytest.approx((4.795, 18.39), abs=0.01)


def test_nothing_is_no_error() -> None:
    assert study([])["failures"] == 0
