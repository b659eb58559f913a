"""When a diagnosis is due: soon after a burst, in any case soon after its first line, ever more seldom for who fails on."""

from __future__ import annotations

import pytest

from service.live.timers import Timers


def test_the_next_is_the_earliest_that_is_set() -> None:
    timers = Timers()
    assert timers.next() == 0.0
    for number, name in enumerate(("hang", "retry", "end", "flush", "diagnose")):
        setattr(timers, name, 100.0 - number)
        assert timers.next() == 100.0 - number
    assert Timers(7.0).next() == 7.0


def test_soon_after_the_last_of_a_burst_and_not_later_than_soon_after_its_first() -> None:
    timers = Timers()
    for now, due in ((10.0, 10.2), (10.1, 10.3), (10.3, 10.5), (10.5, 10.6), (10.59, 10.6)):
        timers.hit(now)
        assert timers.diagnose == pytest.approx(due)
    timers.judging()
    assert timers.diagnose == 0.0
    timers.hit(11.0)
    assert timers.diagnose == pytest.approx(11.2), "the next burst has a first of its own"


def gap(timers: Timers, at: float) -> float:
    """From a diagnosis at ``at`` to the next that a line right behind it makes due."""
    timers.judged(at)
    timers.hit(at + 0.001)
    due = timers.diagnose
    timers.judging()
    return due - at


def test_who_fails_on_waits_longer_each_time_up_to_a_minute_and_after_a_calm_no_more() -> None:
    timers = Timers()
    timers.hit(100.0)
    gaps = []
    at = 101.0
    for _ in range(10):
        gaps.append(gap(timers, at))
        timers.slower(0.0)
        at += 19.0
    assert gaps == pytest.approx([0.3, 0.6, 1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 60.0, 60.0])
    assert gap(timers, at + 1.5) == pytest.approx(0.3), "20 seconds without a line of a failure"


def test_a_diagnosis_that_takes_long_is_made_seldom() -> None:
    timers = Timers()
    timers.hit(100.0)
    timers.slower(0.5)
    assert gap(timers, 101.0) == pytest.approx(10.0)
