"""What all pages need: the viewer, the parameters of the address, and the frame around the content."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from diagnose import __version__
from diagnose.knowledge.taxonomy import shipped_taxonomy
from service.api.common import place
from service.auth import Who
from service.dashboard import frame, session
from service.dashboard.approval import Hands
from service.errors import TooLarge
from service.events import KINDS
from service.names import storable
from service.runtime import Service
from service.store import pages
from service.store.pages.asked import Asked

T = TypeVar("T")
RANGES = {
    "1h": (3600.0, 12),
    "24h": (86400.0, 24),
    "7d": (7 * 86400.0, 28),
    "30d": (30 * 86400.0, 30),
    "90d": (90 * 86400.0, 30),
}
"""name -> seconds, bars of a chart"""
_BARS, _SHORTEST = 24, 60.0
"""of a stretch of time that somebody chose"""
PAGE = 50
_ABOUT_ACTIONS = ("", "shift", "actions", "nodes")
"""pages on which people answer what waits"""
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Period:
    """The stretch of time that a page is about."""

    since: float
    until: float
    bars: int
    """of a chart"""
    name: str | None
    """in ``RANGES``; None: from one moment to another"""

    @property
    def words(self) -> dict[str, str]:
        """As the address has it."""
        return {"range": self.name} if self.name else between(self.since, self.until)

    @property
    def beside(self) -> list[tuple[str, dict[str, str]]]:
        """What is near, for those who cannot draw over the chart."""
        length = self.until - self.since
        return [
            ("← before", between(self.since - length, self.since)),
            ("after →", between(self.until, self.until + length)),
            ("wider", between(self.since - length, self.until + length)),
        ]


def between(since: float, until: float) -> dict[str, str]:
    """A stretch of time, as the address has it."""
    return {"from": f"{since:.0f}", "to": f"{until:.0f}"}


@dataclass(slots=True)
class Page:
    """One request for a page."""

    request: Request
    service: Service
    who: Who
    now: float

    @staticmethod
    def of(request: Request) -> Page:
        return Page(request, request.app.state.service, session.viewer(request), time.time())

    @property
    def prefix(self) -> str:
        return str(self.request.scope.get("root_path", ""))

    async def read(self, work: Callable[[Connection], T]) -> T:
        """``work`` on what the viewer may see."""
        return await self.service.read(self.who, work)

    def given(self, name: str, longest: int = _LONGEST) -> str | None:
        """A parameter of the address, unchanged; an empty one is None. A long one is refused, because cut short it would be
        another.
        """
        value = self.request.query_params.get(name, "")
        if len(value) > longest:
            raise TooLarge(f"{len(value):,} characters were given", where=name, remedy=f"give at most {longest:,}")
        return storable(value, name) or None

    def asked(self, name: str) -> str | None:
        """A word of the address."""
        return (self.given(name) or "").strip() or None

    def number(self, name: str, most: int = 1 << 62) -> int | None:
        value = self.asked(name)
        return int(value) if value is not None and value.isascii() and value.isdecimal() and int(value) <= most else None

    def place(self) -> tuple[float, int] | None:
        return place(self.asked("before"))

    def range(self, usual: str = "7d") -> tuple[str, float, int]:
        """(name, seconds, bars) of the chosen time."""
        name = self.asked("range") or usual
        name = name if name in RANGES else usual
        return (name, *RANGES[name])

    def period(self, usual: str = "7d") -> Period:
        """The time from one moment to another if the address names both; else one that ends now, by its name."""
        since, end = self.number("from"), self.number("to")
        if since is not None and end is not None and self.asked("range") is None:
            until = min(float(max(end, since + _SHORTEST)), self.now + 1)
            if until > since:
                return Period(since, until, _BARS, None)
        name, seconds, bars = self.range(usual)
        return Period(self.now - seconds, self.now + 1, bars, name)

    def failures(self) -> Asked:
        """Which failures to look at."""
        period = self.period()
        return Asked(
            period.since,
            period.until,
            cluster=self.asked("cluster"),
            user=self.asked("user"),
            category=self.asked("category"),
            reason=self.asked("reason"),
            node=self.asked("node"),
        )

    def near(self, period: Period) -> list[tuple[str, str]]:
        """Links to the time before, after and around a stretch that somebody drew; all else of the address stays."""
        others = {
            name: value
            for name, value in self.request.query_params.items()
            if name not in ("from", "to", "range", "before", "said") and value
        }
        if period.name is not None:
            return []
        found = [(name, f"?{urlencode({**others, **words})}") for name, words in period.beside]
        return [*found, ("whole time", f"?{urlencode(others)}")]

    async def options(self, since: float) -> dict[str, list[str]]:
        found = await self.read(lambda connection: pages.totals.options(connection, since))
        chosen = self.asked("reason")
        if chosen and chosen not in found["reasons"]:
            found["reasons"].append(chosen)
        categories = [name for name in dict.fromkeys(shipped_taxonomy().category_of.values()) if name != "none"]
        return {**found, "categories": categories}

    def pages(self, rows: list[dict[str, Any]], end: str | None) -> dict[str, str | None]:
        """The links to other pages of a list. ``end``: where this one ends; None if it is the last."""
        others = {name: value for name, value in self.request.query_params.items() if name != "before" and value}
        path = self.request.url.path
        later = f"{path}?{urlencode({**others, 'before': end})}" if end is not None else None
        earlier = f"{path}?{urlencode(others)}" if self.asked("before") else None
        return {"later": later, "earlier": earlier, "words": f"{len(rows)} shown"}

    async def show(self, template: str, page: str, status: int = 200, **values: Any) -> Response:
        """The page, in its frame."""
        waiting = await self.read(pages.actions.waiting)
        hands = Hands.of(self.service, self.now)
        common = {
            **common_values(self.request),
            "who": {"name": self.who.name if session.known_by_name(self.who) else None, "role": " ".join(sorted(self.who.may))},
            "page": page,
            "now": self.now,
            "waiting": waiting,
            "nobody_acts": waiting > 0 and not hands.any and page in _ABOUT_ACTIONS,
            "can_operate": "operate" in self.who.may,
            "can_admin": "admin" in self.who.may,
            "rules_in_use": f"{len(self.service.jobs.rules):,}",
            "here": str(self.request.base_url).removesuffix("/").removesuffix("/ui"),
        }
        # Rendering takes a processor, so it does not run on the event loop.
        text = await asyncio.to_thread(frame.rendered, template, self.prefix, {**common, **values})
        return HTMLResponse(text, status_code=status)


def taxonomy() -> list[tuple[str, list[str]]]:
    """(category, its reasons), for a form."""
    found: dict[str, list[str]] = {}
    for reason, category in shipped_taxonomy().category_of.items():
        found.setdefault(category, []).append(reason)
    return list(found.items())


def common_values(request: Request) -> Mapping[str, Any]:
    """What the frame needs for any viewer."""
    prefix = str(request.scope.get("root_path", ""))
    return {
        "root": prefix.removesuffix("/ui"),
        "version": __version__,
        "said": _said(request),
        "csrf": session.form_word(request),
        "events": "events",
        "kinds": " ".join(KINDS),
        "who": None,
        "page": "",
        "waiting": 0,
        "nobody_acts": False,
        "rules_in_use": "–",
    }


_SAID = {
    "saved": ("good", "Saved."),
    "corrected": ("good", "Thank you: the correction is stored with the diagnosis."),
    "approved": ("good", "Approved: it will be carried out."),
    "unable": ("warn", "Approved, but nothing can carry it out: it waits for an executor or a runner until it expires."),
    "taken": ("good", "Approved: what waited for a yes about this node is that now."),
    "with": ("good", "Saved."),
    "commented": ("good", "The comment is stored."),
    "rejected": ("good", "Rejected: nothing will be done."),
    "promoted": ("good", "The rule acts from now on."),
    "retired": ("good", "The rule no longer acts."),
    "isolate": ("good", "Asked for: the node will be isolated."),
    "return": ("good", "Asked for: the node will be returned to service."),
    "reboot": ("good", "Asked for: the node is rebooted as soon as no job runs there."),
    "under_way": ("warn", "That is under way for this node already: see its actions below."),
    "late": ("warn", "It had been decided already."),
}
"""results of forms; the address has only the name, so that nobody can put text into a page"""


def _said(request: Request) -> dict[str, str] | None:
    found = _SAID.get(request.query_params.get("said", ""))
    return {"kind": found[0], "text": found[1]} if found else None
