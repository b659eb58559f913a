"""Quiet hours: when less is done without a person, by the wall clock of a place.

The wall clock is asked, not a count of hours, so that 22:00 is 22:00 on both sides of a change to summer time: the night
is an hour shorter or longer then, as it is for people.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    from diagnose.decision.clauses import Clauses

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From one time of the day to another, on some days; over midnight if the end is not later than the begin."""

    days: frozenset[int]
    """0 is Monday; the day on which they begin"""
    begin: int
    """minutes after midnight"""
    end: int
    zone: ZoneInfo
    at_most: Literal["observe", "approve"]
    kinds: frozenset[str] = frozenset()
    """none: all actions"""
    where: str = ""

    @staticmethod
    def read(c: Clauses, at: str) -> QuietHours | None:
        """The quiet hours that stand at ``at``, or None where they are not right."""
        known = len(c.errors)
        days = c.words(f"{at}.days") or DAYS
        for day in days:
            if day not in DAYS:
                c.wrong(f"{at}.days", f"{day!r} is no day", f"use {', '.join(DAYS)}")
        begin, end = (_minutes(c, f"{at}.{name}") for name in ("from", "to"))
        zone = _zone(c, f"{at}.zone")
        at_most = c.mode(f"{at}.at_most")
        if at_most == "auto":
            c.wrong(f"{at}.at_most", "auto holds nothing back", "use observe or approve")
        if begin == end and begin is not None:
            c.wrong(f"{at}.to", "is the same as from", "for a whole day write from: '00:00', to: '24:00'")
        if len(c.errors) > known or begin is None or end is None or zone is None or at_most is None or at_most == "auto":
            return None
        numbers = frozenset(DAYS.index(day) for day in days)
        return QuietHours(numbers, begin, end, zone, at_most, frozenset(c.words(f"{at}.actions")), c.where(at))

    def contains(self, now: float) -> bool:
        """Whether they last at ``now`` (seconds since 1970)."""
        there = datetime.fromtimestamp(now, UTC).astimezone(self.zone)
        minute = there.hour * 60 + there.minute
        today, yesterday = there.weekday(), (there.weekday() - 1) % 7
        if self.begin < self.end:
            return today in self.days and self.begin <= minute < self.end
        return (today in self.days and minute >= self.begin) or (yesterday in self.days and minute < self.end)

    def until(self, now: float) -> float:
        """When they are over, if they last at ``now``; days that follow each other without a gap are one stretch."""
        at = now - now % 60
        for _ in range(8 * 24 * 4):  # quarters of an hour first: a decision has no time for a week of minutes
            if not self.contains(at):
                break
            at += 15 * 60
        while at - 60 > now and not self.contains(at - 60):
            at -= 60
        return at

    def said(self, now: float) -> str:
        """The end, as people there read it."""
        there = datetime.fromtimestamp(self.until(now), UTC).astimezone(self.zone)
        return f"{there:%Y-%m-%d %H:%M} {self.zone.key}"


def quiet(hours: Sequence[QuietHours], kind: str, now: float) -> QuietHours | None:
    """The strictest quiet hours that hold an action of this kind back now."""
    found = [one for one in hours if (not one.kinds or kind in one.kinds) and one.contains(now)]
    return min(found, key=lambda one: one.at_most != "observe", default=None)


def _minutes(c: Clauses, at: str) -> int | None:
    text = c.text(at)
    found = _TIME.fullmatch(text or "")
    if found is None and not (text == "24:00" and at.endswith(".to")):
        c.wrong(at, f"{text!r} is no time", "write '22:00' in quotes")
        return None
    return int(found[1]) * 60 + int(found[2]) if found else 24 * 60


def _zone(c: Clauses, at: str) -> ZoneInfo | None:
    name = c.text(at)
    try:
        # A name is looked up as a file; only the plain form of zone names is.
        if name and re.fullmatch(r"[A-Za-z][\w+-]*(?:/[\w+-]+){0,2}", name):
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    c.wrong(
        at, f"{name!r} is no time zone", "use a name such as UTC or Europe/Berlin; without tzdata on the machine only UTC works"
    )
    return None
