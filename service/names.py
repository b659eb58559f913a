"""Names from outside: what may name a job or a source, and what text a database can hold."""

from __future__ import annotations

import re

from service.errors import BadName
from service.projects import PROJECT

LONGEST_NAME = 200
_FORM = rf"(?:{PROJECT}~)?[A-Za-z0-9_][A-Za-z0-9_.:@+=,\[\]-]*"
_NAME = re.compile(_FORM)
JOB_PATTERN = f"^{_FORM}$"
"""no slash, no space, no dot at the beginning: the name of a job never looks like a path. Its project stands before the mark"""


def check_job(job: str) -> str:
    """``job`` if it can be the name of a job."""
    if not (0 < len(job) <= LONGEST_NAME) or not _NAME.fullmatch(job):
        raise BadName(
            "this is not the name of a job",
            where=job[:80],
            remedy=f"use up to {LONGEST_NAME} letters, digits and _ . : @ + = , [ ] -, beginning with a letter, a digit or _",
        )
    return job


def is_seen(name: str) -> bool:
    """Whether ``name`` has only characters that a person can see."""
    return _SOURCE.fullmatch(name) is not None


def check_source(source: str) -> str:
    """``source`` if it can name a source. It may look like a path: it is a label and never opened."""
    if not (0 < len(source) <= LONGEST_NAME * 5) or not is_seen(source):
        raise BadName("this is not the name of a source", where=source[:80], remedy="use up to 1,000 printable characters")
    return source


STORABLE = r"^[^\u0000]*$"
"""text that a database can hold, as long as it is text at all: no lone surrogates"""
_UNSEEN = r"\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff9-\ufffb"
SOURCE_PATTERN = f"^[^{_UNSEEN}]*$"
"""the name of a source: what controls a terminal, turns the direction of writing or cannot be seen has no place in it"""
_SOURCE = re.compile(f"[^{_UNSEEN}\ud800-\udfff]+")


def storable(text: str | None, where: str) -> str | None:
    """``text`` if a database can hold it."""
    if text is not None and ("\0" in text or any("\ud800" <= c <= "\udfff" for c in text)):
        raise BadName("it holds a character that cannot be stored", where=where, remedy="send valid text without NUL")
    return text
