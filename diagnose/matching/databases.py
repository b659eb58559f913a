"""Patterns -> databases: the door to Hyperscan, in the two builds that may be at hand.

The native core opens the machine's own libhs; the ``hyperscan`` package brings its own. A database of one cannot be read by
the other. Compiled databases are cached on disk under the hash of what is in them, the build and the CPU.
"""

from __future__ import annotations

import os
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


class Library(Protocol):
    """A build of Hyperscan: compiles patterns, and scans with what it compiled."""

    name: str

    def compile(self, patterns: Sequence[Pattern]) -> bytes: ...


class Libhs:
    """The machine's libhs, through the native core (which also scans with it)."""

    def __init__(self) -> None:
        self.name = f"libhs {libhs()}"

    def compile(self, patterns: Sequence[Pattern]) -> bytes:
        rows = [(pattern.text.encode(), pattern.flags, pattern.number) for pattern in patterns]
        return bytes(core.compile(rows))


class Wheel:
    """The ``hyperscan`` package (which is built on Vectorscan)."""

    def __init__(self) -> None:
        import hyperscan

        self._hyperscan = hyperscan
        self.name = "hyperscan " + metadata.version("hyperscan")

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
    flags = SINGLEMATCH | (PREFILTER if shapes.needs_confirmation(rule.pattern) else 0)
    return Pattern(rule.pattern, flags, number)


def compiled(library: Library, patterns: Sequence[Pattern]) -> bytes | None:
    """A serialised database of ``patterns`` (None for none), from the cache where it was made before."""
    if not patterns:
        return None
    key = cache.key_of(library.name, _machine(), *(f"{p.flags}:{p.number}:{p.text}" for p in patterns))
    known = cache.fetch("database", key)
    if known is None:
        known = library.compile(patterns)
        cache.store("database", key, known)
    return known


def _machine() -> str:
    """Databases are tied to what the CPU can do; a home folder may be shared by unlike nodes."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        import platform

        return platform.machine() + platform.processor()


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
