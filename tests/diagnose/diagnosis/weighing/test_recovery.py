"""What the recovery promises: a thing that is back is no failure."""

from __future__ import annotations

import pytest

from tests.support.logs import job_of, report_of, steps

RETRIED = "zorch: push failed: connection refused\nzorch: push failed: connection refused\n"


def test_a_thing_that_is_back_is_no_failure() -> None:
    log = "WARN zorch: connection to shard-0007 was lost\n" + "INFO working\n" * 3 + "INFO zorch: shard-0007 reconnected\n"
    assert report_of(log + "INFO working\n" * 3).outcome == "healthy"
    other = job_of(log.replace("shard-0007 reconnected", "shard-0009 reconnected") + "INFO working\n" * 3)
    assert "well_again" not in {name for one in other.finding(other.evidence()).weighed for name in one.signals}


def test_a_node_that_says_it_was_taken_for_dead_by_mistake_stays_in() -> None:
    dead = "The node with node id: 9b1c22 and address: 10.1.0.14 and node name: 10.1.0.14 has been marked dead"
    dead += " because the detector has missed too many heartbeats from it.\n"
    alive = "[Timeout] Exiting because this node manager has mistakenly been marked as dead by the GCS: health check failed\n"
    assert report_of(dead).action.nodes == ["10.1.0.14"]
    assert report_of(dead + alive).action.nodes == []


def test_a_node_of_a_list_that_responds_again_is_back() -> None:
    lost = "[2026-01-02 03:04:05] error: Nodes gpu[017,019] not responding\n"
    back = "[2026-01-02 03:05:05] Node gpu019 now responding\n"
    assert report_of(lost + back + steps(1, 3)).outcome == "healthy"
    assert report_of(lost + back.replace("019", "021")).outcome == "failed"


def test_what_succeeds_later_did_not_fail_the_job() -> None:
    assert report_of("up\n" * 5 + RETRIED + "zorch: push succeeded\nwaiting for work\nwaiting for more\n").outcome == "healthy"
    assert report_of("up\n" * 5 + RETRIED + "zorch: pull succeeded\nwaiting for work\nwaiting for more\n").outcome == "failed"
    assert report_of("up\n" * 5 + RETRIED + "zorch: push succeeded 0 times, error\n").outcome == "failed"
    calm = "waiting for work\nwaiting for more\n"
    assert report_of("up\n" * 5 + RETRIED + "zorch: push succeeded on 0 of 8 and never finished\n" + calm).outcome == "failed"


@pytest.mark.parametrize(
    ("later", "outcome"),
    [("trial 5 finished", "healthy"), ("part 5 finished", "failed"), ("trial 5 never finished", "failed")],
)
def test_of_trials_another_one_may_succeed_but_not_of_parts(later: str, outcome: str) -> None:
    noun = later.split()[0]
    report = report_of("up\n" * 5 + f"{noun} 4 failed: cannot open file x\n{later}\nlooking at the best\nwaiting\n")
    assert report.outcome == outcome
