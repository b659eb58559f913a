"""Quiet hours by the wall clock of a place, on both sides of summer time."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from pydantic import TypeAdapter

from diagnose.decision.quiet_hours import QuietHours, quiet
from diagnose.decision.written import Known

BERLIN = ZoneInfo("Europe/Berlin")


def hours(
    begin: str = "22:00", end: str = "07:00", days: list[str] | None = None, zone: str = "Europe/Berlin", **more: object
) -> QuietHours:
    value = {"days": days, "from": begin, "to": end, "zone": zone, "at_most": "approve", **more}
    known = Known({}, ("restart", "isolate", "isolate_and_restart"))
    return TypeAdapter(QuietHours).validate_python({k: v for k, v in value.items() if v is not None}, context=known)


def at(text: str, zone: ZoneInfo = BERLIN, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp()


@pytest.mark.parametrize(
    ("when", "quiet"),
    [
        pytest.param("2026-11-20T21:59", False, id="a-minute-before"),
        pytest.param("2026-11-20T22:00", True, id="they-begin"),
        pytest.param("2026-11-21T03:00", True, id="after-midnight"),
        pytest.param("2026-11-21T06:59", True, id="the-last-minute"),
        pytest.param("2026-11-21T07:00", False, id="over"),
    ],
)
def test_over_midnight(when: str, quiet: bool) -> None:
    assert hours().contains(at(when)) == quiet


@pytest.mark.parametrize(
    ("when", "quiet"),
    [
        pytest.param("2026-11-21T00:30", False, id="friday-night-belongs-to-friday"),
        pytest.param("2026-11-21T22:30", True, id="saturday"),
        pytest.param("2026-11-22T06:30", True, id="the-morning-after-saturday"),
        pytest.param("2026-11-22T22:30", False, id="sunday"),
    ],
)
def test_a_night_belongs_to_the_day_on_which_it_begins(when: str, quiet: bool) -> None:
    assert hours(days=["sat"]).contains(at(when)) == quiet


@pytest.mark.parametrize(
    ("begins", "inside", "ends", "length_h"),
    [
        pytest.param("2026-03-28T22:00", "2026-03-29T03:30", "2026-03-29T07:00", 8, id="to-summer-time-an-hour-less"),
        pytest.param("2026-10-24T22:00", "2026-10-25T02:30", "2026-10-25T07:00", 10, id="from-summer-time-an-hour-more"),
        pytest.param("2026-11-20T22:00", "2026-11-21T02:30", "2026-11-21T07:00", 9, id="an-ordinary-night"),
    ],
)
def test_the_wall_clock_counts(begins: str, inside: str, ends: str, length_h: int) -> None:
    night = hours()
    assert not night.contains(at(begins) - 60)
    assert night.contains(at(inside))
    assert night.contains(at(inside, fold=1))
    assert night.until(at(begins)) == at(ends)
    assert (night.until(at(begins)) - at(begins)) / 3600 == length_h


def test_the_end_stands_in_an_hour_that_does_not_exist() -> None:
    night = hours(end="02:30")
    assert night.contains(at("2026-03-29T01:59"))
    assert night.until(at("2026-03-29T01:00")) == at("2026-03-29T03:00")  # 02:30 was left out that night


def test_an_hour_that_comes_twice_is_quiet_twice() -> None:
    night = hours(begin="02:00", end="02:30")
    assert night.contains(at("2026-10-25T02:15"))
    assert not night.contains(at("2026-10-25T02:45"))
    assert night.contains(at("2026-10-25T02:15", fold=1))


def test_the_place_counts_not_where_the_service_runs() -> None:
    tokyo = hours(zone="Asia/Tokyo")
    assert tokyo.contains(at("2026-11-20T23:00", ZoneInfo("Asia/Tokyo")))
    assert not tokyo.contains(at("2026-11-20T23:00"))


def test_whole_days_end_with_the_week_end() -> None:
    week_end = hours("00:00", "24:00", ["sat", "sun"])
    assert week_end.until(at("2026-11-21T10:00")) == at("2026-11-23T00:00")
    assert week_end.said(at("2026-11-21T10:00")) == "2026-11-23 00:00 Europe/Berlin"


def test_hours_that_never_end_are_said_to_last_a_week() -> None:
    now = at("2026-11-20T10:00")
    assert hours("00:00", "24:00").until(now) >= now + 7 * 86400


def test_the_strictest_of_those_that_hold_this_action_back() -> None:
    night, nothing = hours(), hours(at_most="observe", actions=["isolate_and_restart"])
    now = at("2026-11-20T23:00")
    assert quiet((night, nothing), "restart", now) is night
    assert quiet((night, nothing), "isolate_and_restart", now) is nothing
    assert quiet((night, nothing), "restart", at("2026-11-20T12:00")) is None


def test_a_day_may_end_at_midnight() -> None:
    evening = hours(begin="18:00", end="24:00")
    assert evening.contains(at("2026-11-20T23:59"))
    assert not evening.contains(at("2026-11-21T00:00"))
    assert evening.until(at("2026-11-20T19:00")) == at("2026-11-21T00:00")
