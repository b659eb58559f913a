"""Quiet hours: when less is done without a person, by the wall clock of a place.

The wall clock counts, not a number of hours, so that 22:00 is 22:00 before and after a change to summer time. The night is then
an hour shorter or longer, as it is for people.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo

from diagnose.decision.clauses import Mode
from diagnose.decision.written import IN_FILE, Actions, OneMode, Place, Written, objection, words

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ALL_DAYS = frozenset(range(7))
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def _days(found: object) -> frozenset[int]:
    names = words(found) or DAYS
    for name in names:
        if name not in DAYS:
            raise objection(f"{name!r} is no day", f"use {', '.join(DAYS)}")
    return frozenset(map(DAYS.index, names))


def _minutes(text: str) -> int | None:
    found = _TIME.fullmatch(text)
    return int(found[1]) * 60 + int(found[2]) if found else None


def _end(text: str) -> int | None:
    return 24 * 60 if text == "24:00" else _minutes(text)


def _not_the_begin(end: int, info: ValidationInfo) -> int:
    if end == info.data.get("begin"):
        raise objection("is the same as from", "for a whole day write from: '00:00', to: '24:00'")
    return end


def _zone(name: str) -> ZoneInfo | None:
    try:
        # The name of a zone is looked up as a file, so it must have the plain form of zone names.
        return ZoneInfo(name) if re.fullmatch(r"[A-Za-z][\w+-]*(?:/[\w+-]+){0,2}", name) else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _holds_back(mode: Mode) -> Mode:
    if mode == "auto":
        raise objection("auto holds nothing back", "use observe or approve")
    return mode


_IS_NO = "{value!r} is no {noun}"
_CLOCK = "write '22:00' in quotes"
_ZONES = "use a name such as UTC or Europe/Berlin; without tzdata on the machine only UTC works"


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From one time of the day to another, on some days. They last over midnight if the end is not later than the beginning."""

    __pydantic_config__ = IN_FILE
    begin: Annotated[int, Written("time", _CLOCK, _minutes, _IS_NO), Field(alias="from")]
    """minutes after midnight"""
    end: Annotated[int, Written("time", _CLOCK, _end, _IS_NO), AfterValidator(_not_the_begin), Field(alias="to")]
    zone: Annotated[ZoneInfo, Written("time zone", _ZONES, _zone, _IS_NO)]
    at_most: Annotated[OneMode, AfterValidator(_holds_back)]
    days: Annotated[frozenset[int], PlainValidator(_days)] = _ALL_DAYS
    """0 is Monday; the day on which they begin"""
    kinds: Annotated[Actions, Field(alias="actions")] = frozenset()
    """none: all actions"""
    where: Place = ""

    def contains(self, now: float) -> bool:
        """Whether they last at ``now`` (seconds since 1970)."""
        there = datetime.fromtimestamp(now, UTC).astimezone(self.zone)
        minute = there.hour * 60 + there.minute
        today, yesterday = there.weekday(), (there.weekday() - 1) % 7
        if self.begin < self.end:
            return today in self.days and self.begin <= minute < self.end
        return (today in self.days and minute >= self.begin) or (yesterday in self.days and minute < self.end)

    def until(self, now: float) -> float:
        """When they are over, if they last at ``now``. Days without a gap between them are one stretch."""
        at = now - now % 60
        for _ in range(8 * 24 * 4):  # quarters of an hour first: to try every minute of a week would be too slow
            if not self.contains(at):
                break
            at += 15 * 60
        while at - 60 > now and not self.contains(at - 60):
            at -= 60
        return at

    def said(self, now: float) -> str:
        """The end, in local time."""
        there = datetime.fromtimestamp(self.until(now), UTC).astimezone(self.zone)
        return f"{there:%Y-%m-%d %H:%M} {self.zone.key}"


def quiet(hours: Sequence[QuietHours], kind: str, now: float) -> QuietHours | None:
    """The strictest quiet hours that hold an action of this kind back now."""
    found = [one for one in hours if (not one.kinds or kind in one.kinds) and one.contains(now)]
    return min(found, key=lambda one: one.at_most != "observe", default=None)
