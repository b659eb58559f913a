"""What is known about a checkpoint besides its bytes: a file beside the manifest, so that it is known without a service.

The file is small and written at once, by rename. One that cannot be read counts as bad: it may have said so.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAME: Final = "diagnose-verdict.json"
_MOST_BYTES = 1 << 20
_MORE: Final = ("doubted", "damaged")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a training may start from it."""

    good: bool | None
    """None: nobody can say yet"""
    why: str
    at: float = 0.0
    doubted: bool = False
    """nobody can say, and that stays so: something speaks against it"""
    damaged: bool = False
    """it is bad because the bytes of this copy changed: another copy may be whole"""


_UNREADABLE: Final = Verdict(False, f"its verdict cannot be read; delete {NAME} to have it judged again")


def read(folder: Path) -> Verdict | None:
    try:
        with (folder / NAME).open("rb") as file:
            return parsed(file.read(_MOST_BYTES))
    except FileNotFoundError:
        return None
    except OSError:
        return _UNREADABLE


def parsed(text: bytes) -> Verdict:
    """The verdict in a text."""
    try:
        said = json.loads(text)
        good, why, at = said["good"], said["why"], said["at"]
        more = {name: said.get(name) is True for name in _MORE}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return _UNREADABLE
    if not (good is None or isinstance(good, bool)) or not isinstance(why, str) or not isinstance(at, int | float):
        return _UNREADABLE
    return Verdict(good, why, float(at), **more)


def write(folder: Path, good: bool | None, why: str, *, doubted: bool = False, damaged: bool = False) -> None:
    beside = folder / f"{NAME}.part"
    with beside.open("w") as file:
        more = {name: True for name, holds in zip(_MORE, (doubted, damaged), strict=True) if holds}
        json.dump({"good": good, "why": why, "at": time.time(), **more}, file)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(folder / NAME)
