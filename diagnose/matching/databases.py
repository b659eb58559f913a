"""Patterns -> databases of Hyperscan, by one of two builds.

The native core opens the libhs of the machine. The ``hyperscan`` package brings its own build. Neither can read the databases
of the other. Compiled databases are cached on disk, under a hash of their content and of the build. Those of the shipped rules
are made when the package is built (see ``diagnose.ready``).
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
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
API = 12
"""how the core is called; raised here and in ``_core.c`` whenever that changes"""
if core is not None and getattr(core, "API", None) != API:
    # Without the core there are no folds and no numbers of unknown trainers: the verdict may be another one, so this is said.
    warnings.warn(
        "the native core was built for another version and is left out: install the checkout again (pip install -e .)",
        RuntimeWarning,
        stacklevel=1,
    )
    core = None

SINGLEMATCH, ALLOWEMPTY, PREFILTER = 8, 16, 128


def libhs() -> str | None:
    """The version of the machine's own Hyperscan, if there is one that the native core can open."""
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
    """A build of Hyperscan: it compiles patterns, and scans with the result."""

    name: str
    stamp: bytes
    """the beginning of its databases: see ``_stamp_of``"""

    def compile(self, patterns: Sequence[Pattern]) -> bytes: ...


class Libhs:
    """The machine's libhs, opened by the native core (which also scans with it)."""

    def __init__(self) -> None:
        self.name = f"libhs {libhs()}"
        self.stamp = _stamp_of(self.compile(_SMALLEST))

    def compile(self, patterns: Sequence[Pattern]) -> bytes:
        rows = [(pattern.text.encode(), pattern.flags, pattern.number) for pattern in patterns]
        return bytes(core.compile(rows))


class Wheel:
    """The ``hyperscan`` package (which is built on Vectorscan)."""

    def __init__(self) -> None:
        from importlib import metadata  # 20 ms, for the one that is rarely asked

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
        """The database with its own scratch space: two threads never share one."""
        database = self._hyperscan.loadb(data, self._hyperscan.HS_MODE_BLOCK)
        database.scratch = self._hyperscan.Scratch(database)
        return database


def pattern_of(rule: Rule, number: int) -> Pattern:
    """``rule`` as a pattern for Hyperscan."""
    confirmed = shapes.analyse([rule.pattern])[rule.pattern].confirmed
    return Pattern(rule.pattern, SINGLEMATCH | (PREFILTER if confirmed else 0), number)


def compiled(library: Library, patterns: Sequence[Pattern]) -> bytes | None:
    """A serialised database of ``patterns`` (None for none), from the cache if it was made before."""
    if not patterns:
        return None
    key = _key_of(library, patterns)
    ready = _ready(key)
    if (known := _shipped.get(ready)) is not None:
        return known
    known = cache.fetch("database", key)
    if known is None or _stamp_of(known) != library.stamp:
        known = library.compile(patterns)
        cache.store("database", key, known)
    elif ready.is_file():
        _shipped[ready] = known
    return known


_shipped: dict[Path, bytes] = {}
"""what came with the package, once a matcher had it: who learns makes a matcher for each rule that is tried, and to unpack the
shipped rules takes longer than to compile that rule"""


def came_ready(library: Library, patterns: Sequence[Pattern]) -> bool:
    """Whether a database of ``patterns`` came compiled with the package."""
    return not patterns or _ready(_key_of(library, patterns)).is_file()


def _ready(key: str) -> Path:
    return cache.READY / f"database-{key}"


def _key_of(library: Library, patterns: Sequence[Pattern]) -> str:
    # The stamp says which processors a database is for: unlike nodes may share a home folder.
    named = (f"{p.flags}:{p.number}:{p.text}" for p in patterns)
    return cache.key_of(library.name, library.stamp, platform.machine(), *named)


def _stamp_of(database: bytes) -> bytes:
    """What must be equal if a library is to read a database: the first bytes of the database, without its length.

    The bytes are, in order: the kind, the version of the library, the length, and what the processor must support. A damaged
    database does not come this far: the cache checks its sum.
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
        """As one list, for an engine in which each scan costs a call."""
        return [*self.blind, *self.sensitive, *self.relaxed]


RELAXED = 1 << 20
"""added to a rule's number for its relaxed pattern; the native core has the same number"""


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
    """Serialised, for the base and for the rules added since: what is asked of a shape, of a line, or of both."""

    base: tuple[bytes | None, ...]
    delta: tuple[bytes | None, ...]
    absorbed: int
    """number of rules in the base"""
