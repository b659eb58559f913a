"""When a diagnosis is due: soon after a burst, in any case soon after its first line, ever more seldom for who fails on."""

from __future__ import annotations

import pytest

from service.live.timers import Judging, Pauses, Timers


def test_the_next_is_the_earliest_that_is_set() -> None:
    timers = Timers()
    assert timers.next() == 0.0
    for number, name in enumerate(("hang", "end", "pause", "flush", "diagnose")):
        setattr(timers, name, 100.0 - number)
        assert timers.next() == 100.0 - number
    assert Timers(7.0).next() == 7.0


def test_before_the_next_try_nothing_is_next_also_not_what_is_overdue() -> None:
    timers = Timers()
    timers.diagnose, timers.retry = 5.0, 9.0
    assert timers.next() == 9.0
    timers.retry = 0.0
    assert timers.next() == 5.0


def test_lines_wait_for_a_second_after_the_last_bytes_of_their_source_and_for_five_in_all() -> None:
    pauses = Pauses()
    pauses.read(3, 10.0, True)
    pauses.read(1, 10.5, True)
    assert (pauses.next(), pauses.over(10.9)) == (11.0, [])
    pauses.read(3, 10.9, True)
    assert (pauses.over(11.5), pauses.next()) == ([1], pytest.approx(11.9))
    for tenth in range(110, 150, 5):
        pauses.read(3, tenth / 10, True)
    assert pauses.next() == 15.0
    assert pauses.over(15.0) == [3]
    pauses.read(3, 16.0, True)
    pauses.read(3, 16.1, False)
    assert (pauses.next(), pauses.over(99.0)) == (0.0, [])


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
    """From a diagnosis at ``at`` to the next one, while a line of a failure comes every tenth of a second."""
    timers.judged(at)
    now = at + 0.001
    timers.hit(now)
    while timers.diagnose > now:
        now += 0.1
        timers.hit(now)
    timers.judging()
    return now - at


def test_who_fails_on_waits_longer_each_time_up_to_a_minute_and_after_a_calm_no_more() -> None:
    timers = Timers()
    timers.hit(100.0)
    gaps = []
    at = 101.0
    for _ in range(10):
        gaps.append(gap(timers, at))
        timers.slower(0.0)
        at += gaps[-1]
    assert gaps == pytest.approx([0.3, 0.6, 1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 60.0, 60.0], abs=0.11)
    assert gap(timers, at + 21.0) == pytest.approx(0.6, abs=0.11), "20 seconds without a line of a failure"


def test_who_failed_for_long_gets_the_last_diagnosis_as_soon_as_it_says_no_more() -> None:
    timers = Timers()
    timers.hit(100.0)
    at = 101.0
    for _ in range(6):
        at += gap(timers, at)
        timers.slower(0.001)
    timers.judged(at)
    for now in (at + 1.0, at + 1.4):
        timers.hit(now)
    assert timers.diagnose == pytest.approx(at + 2.0)


def test_a_diagnosis_that_takes_long_is_made_seldom() -> None:
    timers = Timers()
    timers.hit(100.0)
    timers.slower(0.5)
    assert gap(timers, 101.0) == pytest.approx(10.0, abs=0.11)
    timers.judged(111.0)
    timers.hit(111.5)
    assert timers.diagnose == pytest.approx(121.0), "though it says no more"


def test_where_very_many_fail_each_is_diagnosed_less_often() -> None:
    timers = Timers()
    timers.hit(100.0)
    timers.slower(0.01, all_cost_s=4.0)
    timers.judged(101.0)
    timers.hit(101.5)
    assert timers.diagnose == pytest.approx(121.0)


def test_where_the_thread_has_nothing_to_read_who_says_no_more_is_diagnosed_at_once() -> None:
    timers = Timers()
    timers.hit(100.0)
    assert timers.leisure == 0.0, "the first diagnosis waits for nobody's leisure"
    timers.judging()
    timers.slower(0.01, all_cost_s=0.8)
    timers.judged(101.0)
    for now in (101.5, 101.7):
        timers.hit(now)
    assert timers.diagnose == pytest.approx(105.0)
    assert timers.leisure == pytest.approx(102.3)
    timers.judging()
    assert (timers.diagnose, timers.leisure) == (0.0, 0.0)
    timers.slower(2.0)
    timers.judged(110.0)
    timers.hit(110.5)
    assert timers.leisure == pytest.approx(118.0), "what takes long is made seldom even then"
    timers.judging()
    timers.slower(0.01, all_cost_s=8.0)
    timers.judged(120.0)
    timers.hit(120.5)
    assert timers.leisure == pytest.approx(132.0), "nor what very many need"


def test_what_one_diagnosis_of_each_costs_is_known_for_those_that_had_one_lately() -> None:
    judging = Judging()
    judging.took("a", 100.0, 0.5)
    judging.took("b", 101.0, 0.25)
    assert judging.cost_s == pytest.approx(0.75)
    judging.took("a", 102.0, 1.5)
    assert judging.cost_s == pytest.approx(1.75), "the last one of a counts"
    judging.took("c", 121.5, 1.0)
    assert judging.cost_s == pytest.approx(2.5), "b was long ago"
