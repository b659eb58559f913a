"""The time. It is passed in, so that a test can set it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Two clocks, in seconds."""

    now: Callable[[], float] = time.time
    """the time of day; it may be set, also back"""
    steady: Callable[[], float] = time.monotonic
    """only grows: for time spans"""


SYSTEM = Clock()
