"""Patterns -> databases: the door to Hyperscan, in the two builds that may be at hand.

The native core opens the machine's own libhs; the ``hyperscan`` package brings its own. A database of one cannot be read by
the other. Compiled databases are cached on disk under the hash of what is in them and of the build; those of the shipped
rules are made when the package is built (see ``diagnose.ready``).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any, NamedTuple, Protocol

from diagnose import cache
from diagnose.knowledge.rules import Rule
from diagnose.matching import shapes

core: Any
"""the native core, or None"""
try:
    from diagnose.matching import _core as core
except ImportError:  # built without a compiler, or a checkout that was not installed
    core = None
if not hasattr(core, "sketch"):  # the youngest of what is called: a checkout whose core was built before it
    core = None

SINGLEMATCH, ALLOWEMPTY, PREFILTER = 8, 16, 128


def libhs() -> str | None:
    """The version of the machine's own Hyperscan, where there is one and the native core can open it."""
    if core is None:
        return None
    named = os.environ.get("DIAGNOSE_LIBHS")
    for name in [named] if named is not None else ["libhs.so.5", "libhs.so", "libhs.5.dylib"]:
        if name and (version := core.open_libhs(name)):
            return str(version)
    return None


class Pattern(NamedTuple):
    text: str
    flags: int
    number: int


_SMALLEST = [Pattern("a", SINGLEMATCH, 0)]


class Library(Protocol):
    """A build of Hyperscan: compiles patterns, and scans with what it compiled."""

    name: str
    stamp: bytes
    """what its databases begin with: see ``_stamp_of``"""

    def compile(self, patterns: Sequence[Pattern]) -> bytes: ...


class Libhs:
    """The machine's libhs, through the native core (which also scans with it)."""

    def __init__(self) -> None:
        self.name = f"libhs {libhs()}"
        self.stamp = _stamp_of(self.compile(_SMALLEST))

    def compile(self, patterns: Sequence[Pattern]) -> bytes:
        rows = [(pattern.text.encode(), pattern.flags, pattern.number) for pattern in patterns]
        return bytes(core.compile(rows))


class Wheel:
    """The ``hyperscan`` package (which is built on Vectorscan)."""

    def __init__(self) -> None:
        import hyperscan

        self._hyperscan = hyperscan
        self.name = "hyperscan " + metadata.version("hyperscan")
        self.stamp = _stamp_of(self.compile(_SMALLEST))

    def compile(self, patterns: Sequence[Pattern]) -> bytes:
        database = self._hyperscan.Database()
        try:
            database.compile(
                expressions=[pattern.text.encode() for pattern in patterns],
                ids=[pattern.number for pattern in patterns],
                flags=[pattern.flags for pattern in patterns],
                elements=len(patterns),
            )
        except self._hyperscan.error as error:
            raise ValueError(str(error)) from None
        return bytes(self._hyperscan.dumpb(database))

    def load(self, data: bytes) -> Any:
        """The database, with a scratch space of its own: two threads never share one."""
        database = self._hyperscan.loadb(data, self._hyperscan.HS_MODE_BLOCK)
        database.scratch = self._hyperscan.Scratch(database)
        return database


def pattern_of(rule: Rule, number: int) -> Pattern:
    """``rule`` as Hyperscan takes it."""
    confirmed = shapes.analyse([rule.pattern])[rule.pattern].confirmed
    return Pattern(rule.pattern, SINGLEMATCH | (PREFILTER if confirmed else 0), number)


def compiled(library: Library, patterns: Sequence[Pattern]) -> bytes | None:
    """A serialised database of ``patterns`` (None for none), from the cache where it was made before."""
    if not patterns:
        return None
    # The stamp knows what processors a database is for: a home folder may be shared by unlike nodes.
    key = cache.key_of(library.name, library.stamp, platform.machine(), *(f"{p.flags}:{p.number}:{p.text}" for p in patterns))
    known = cache.fetch("database", key)
    if known is None or _stamp_of(known) != library.stamp:
        known = library.compile(patterns)
        cache.store("database", key, known)
    return known


def _stamp_of(database: bytes) -> bytes:
    """What must be equal for a library to read a database: the first bytes of both without the length.

    In order: what it is, the version of the library, the length, and what the processor must be able to do. A damaged
    database never comes this far: the cache checks its sum.
    """
    return database[:8] + database[12:20]


class Books(NamedTuple):
    """The three groups that patterns are compiled in."""

    blind: list[Pattern]
    """cannot tell lines of one shape apart: their verdict is cached by shape"""
    relaxed: list[Pattern]
    """hits each shape that a sensitive rule might match a line of"""
    sensitive: list[Pattern]
    """scanned again for each line of such a shape"""

    @property
    def together(self) -> list[Pattern]:
        """As one list, for an engine that pays for every scan it calls."""
        return [*self.blind, *self.sensitive, *self.relaxed]


RELAXED = 1 << 20
"""Added to a rule's number for its relaxed pattern. The native core has the same number."""


def books(rules: Iterable[tuple[int, Rule]]) -> Books:
    """``rules`` (with their numbers) sorted into their groups."""
    numbered = list(rules)
    known = shapes.analyse(rule.pattern for _, rule in numbered)
    result = Books([], [], [])
    for number, rule in numbered:
        analysis = known[rule.pattern]
        pattern = Pattern(rule.pattern, SINGLEMATCH | (PREFILTER if analysis.confirmed else 0), number)
        if analysis.relaxed is None:
            result.blind.append(pattern)
        else:
            result.sensitive.append(pattern)
            result.relaxed.append(Pattern(analysis.relaxed, SINGLEMATCH | ALLOWEMPTY, number + RELAXED))
    return result


class Databases(NamedTuple):
    """Serialised, for the base and for the rules added since: what is asked about a shape and what about a line, or both."""

    base: tuple[bytes | None, ...]
    delta: tuple[bytes | None, ...]
    absorbed: int
    """how many rules the base holds"""
