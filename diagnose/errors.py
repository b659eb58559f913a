"""Errors that a person can act on: what is wrong, where, and what to do about it.

Raise where you know, catch at the edge: ``diagnose.cli`` prints them as one line and exits with 2; the service answers 4xx.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


class DiagnoseError(Exception):
    """Something the user can repair. ``where`` is a path, a file:line or a rule id; ``remedy`` is a full sentence."""

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.remedy}" if self.remedy else text


class SourceError(DiagnoseError):
    """A path cannot be read as a log."""


class RuleError(DiagnoseError):
    """A rule file or a pattern is not usable."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant by ``name``, for ``did you mean``."""
    import difflib  # only needed after a mistake

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)), None)


def nearest_path(path: str) -> str | None:
    """The file or folder that was probably meant by ``path``, which does not exist."""
    known = os.curdir if not os.path.isabs(path) else os.sep
    parts = os.path.normpath(path).lstrip(os.sep).split(os.sep)
    while parts and os.path.exists(os.path.join(known, parts[0])):
        known = os.path.join(known, parts.pop(0))
    try:
        near = nearest(parts[0], os.listdir(known)) if parts else None
    except OSError:
        return None
    if near is None:
        return None
    whole = os.path.join(known, near, *parts[1:])
    return os.path.normpath(whole if os.path.exists(whole) else os.path.join(known, near))


def said_first(error: Exception) -> str:
    """The first line of what a database's driver says."""
    words = str(getattr(error, "orig", None) or error).strip().splitlines()
    return words[0] if words else type(error).__name__


def installed(part: str) -> bool:
    """Whether an optional package is installed: ``diagnose.learning``, ``.agent`` or ``.model``."""
    return Path(__file__).with_name(part.removeprefix("diagnose.")).joinpath("__init__.py").is_file()


def needs(*parts: str) -> None:
    """Raise if one of these optional packages is not installed."""
    for part in parts:
        if not installed(part):
            raise DiagnoseError(
                f"this needs the package {part}, which is not installed",
                remedy="install the complete package: pip install --force-reinstall diagnose-train",
            )
