"""Lines that only announce an error -> where its message stands.

A program may print a banner ("*** ERROR ***") and the message below it, or a message and its stack below that ("stack
traceback:"). The message itself need not have a word of failure in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.likeness import level
from diagnose.diagnosis.vocabulary import Sought

_BANNER_MOST, _AWAY = 80, 2
"""a banner is so short at most; its message is so few lines away"""
_STRONG = r"(?:fatal|error|exception|abort(?:ed|ing)?|panic|crash|failure)"
_BANNER = Sought(
    rf"(?i)(?=.*\b{_STRONG}\b)\W*(?:\b(?:an?|the|{_STRONG}|user|program|run|time|runtime|called|message|occurred|has|been"
    r"|critical|severe|internal|unexpected|start|begin|following|in|detected|stop)\b\W*)+\Z"
)
_STACK = Sought(r"(?i)\W*(?:(?:stack|call)[ -]?(?:back)?[ -]?trace(?:back)?|back ?trace|call stack|traceback)\W*\Z")
_NO_MESSAGE = re.compile(r"(?i)\W*\Z|\W*(?:press|see|for more|please)\b")


class Announced(NamedTuple):
    """What the banners and the stacks of one source point to, each as the order of an event."""

    messages: frozenset[int]
    banners: frozenset[int]
    """banners whose message was found: they say nothing themselves"""


NOTHING = Announced(frozenset(), frozenset())


def announced(events: Sequence[Event], known: Callable[[Event], bool]) -> Announced:
    """The messages that banners and stacks announce. ``known``: whether a rule knows a line, which then speaks for itself."""
    messages: set[int] = set()
    banners: set[int] = set()
    for number, event in enumerate(events):
        if len(event.body) > _BANNER_MOST or (not (stack := _STACK.match(event.body)) and not _BANNER.match(event.body)):
            continue
        if known(event):
            continue
        if stack:
            if (above := _near(reversed(events[max(0, number - _AWAY) : number]), event, known)) is not None:
                messages.add(above.order)
        elif level(event.text) not in ("soft", "info"):
            below = _near(events[number + 1 : number + 1 + _AWAY], event, known)
            if below is not None:
                messages.add(below.order)
                banners.add(event.order)
    return Announced(frozenset(messages), frozenset(banners)) if messages else NOTHING


def _near(events: Iterable[Event], event: Event, known: Callable[[Event], bool]) -> Event | None:
    """The first of some lines near another that can be a message, if no rule knows one before it."""
    for other in events:
        if abs(other.line - event.line) > _AWAY or known(other):
            return None
        if not _NO_MESSAGE.match(other.body) and not _BANNER.match(other.body):
            return other if level(other.text) not in ("soft", "info") else None
    return None
