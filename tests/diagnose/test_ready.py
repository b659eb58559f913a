"""What lies ready in the package: it is found, it is right, and what is damaged or foreign is made anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from diagnose import cache, ready
from diagnose.decision.policy_file import shipped_policy
from diagnose.knowledge.metrics import shipped_metrics
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.matching import databases
from diagnose.matching.databases import SINGLEMATCH, Libhs, Library, Pattern, Wheel, compiled, libhs
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.matching.scan import Cursor
from diagnose.reading.lines import Block

PATTERNS = [Pattern("disk (?:full|broken)", SINGLEMATCH, 7), Pattern(r"^step \d+", SINGLEMATCH, 8)]
LIBRARIES = [Wheel, pytest.param(Libhs, marks=pytest.mark.skipif(not libhs(), reason="no libhs"))]


class Counting:
    """A library that counts what it compiles."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.name, self.stamp, self.compiled = library.name, library.stamp, 0

    def compile(self, patterns: list[Pattern]) -> bytes:
        self.compiled += 1
        return self._library.compile(patterns)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Of the package and of the user; both empty."""
    package, own = tmp_path / "package", tmp_path / "own"
    package.mkdir()
    monkeypatch.setattr(cache, "READY", package)
    monkeypatch.setenv("DIAGNOSE_CACHE", str(own))
    return package, own


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Counting:
    return Counting(request.param())


def lay_ready(folders: tuple[Path, Path], spoil: Callable[[bytes], bytes] = bytes) -> Path:
    """What the user's cache holds, spoiled, lies ready instead."""
    package, own = folders
    (made,) = own.iterdir()
    (package / made.name).write_bytes(zstandard.compress(spoil(made.read_bytes())))
    made.unlink()
    return package / made.name


def test_a_database_that_lies_ready_is_not_compiled_again(folders: tuple[Path, Path], library: Counting) -> None:
    made = compiled(library, PATTERNS)
    lay_ready(folders)
    assert compiled(library, PATTERNS) == made
    assert library.compiled == 1
    assert not list(folders[1].iterdir()), "it is not kept twice"


def swapped(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


def foreign(data: bytes) -> bytes:
    """Whole, and of another version of the library."""
    body = data[20:24] + b"\1\2\3\4" + data[28:]
    return cache.sealed(body)


def newer_processor(data: bytes) -> bytes:
    """Whole, and for what this machine's library does not compile for."""
    return cache.sealed(data[20:32] + bytes(byte ^ 0xFF for byte in data[32:40]) + data[40:])


@pytest.mark.parametrize("spoil", [swapped, foreign, newer_processor, lambda data: data[:100], lambda data: b""])
def test_a_damaged_or_foreign_database_is_compiled_anew(
    folders: tuple[Path, Path], library: Counting, spoil: Callable[[bytes], bytes]
) -> None:
    made = compiled(library, PATTERNS)
    lay_ready(folders, spoil)
    assert compiled(library, PATTERNS) == made
    assert library.compiled == 2
    assert compiled(library, PATTERNS) == made
    assert library.compiled == 2, "the user's cache has it now"


def test_what_is_no_archive_at_all_is_passed_over(folders: tuple[Path, Path], library: Counting) -> None:
    made = compiled(library, PATTERNS)
    lay_ready(folders).write_bytes(b"hello")
    assert compiled(library, PATTERNS) == made
    assert library.compiled == 2


def test_a_spoiled_file_of_the_users_own_cache_gives_way_to_the_ready_one(
    folders: tuple[Path, Path], library: Counting
) -> None:
    made = compiled(library, PATTERNS)
    path = lay_ready(folders)
    (folders[1] / path.name).write_bytes(b"x" * 50)
    assert compiled(library, PATTERNS) == made
    assert library.compiled == 1


@pytest.mark.parametrize(
    "other",
    [
        [*PATTERNS, Pattern("more", SINGLEMATCH, 9)],
        [PATTERNS[0], PATTERNS[1]._replace(number=9)],
        [PATTERNS[0], PATTERNS[1]._replace(flags=0)],
    ],
)
def test_other_rules_have_another_database(folders: tuple[Path, Path], library: Counting, other: list[Pattern]) -> None:
    compiled(library, PATTERNS)
    lay_ready(folders)
    compiled(library, other)
    assert library.compiled == 2


def test_another_build_of_the_library_has_another_database(folders: tuple[Path, Path], library: Counting) -> None:
    compiled(library, PATTERNS)
    lay_ready(folders)
    library.stamp = bytes(16)
    compiled(library, PATTERNS)
    assert library.compiled == 2


@pytest.mark.parametrize("engine", ["core", "core+wheel", "wheel", "plain"])
def test_what_was_made_ready_judges_as_what_is_compiled(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    if (engine.startswith("core") and databases.core is None) or (engine == "core" and not libhs()):
        pytest.skip("the native core or libhs is missing")
    rules = RuleSet(
        (
            Rule("full", "failures", "disk (?:full|broken)", reason="disk_full"),
            Rule("many", "failures", r"lost [2-9]\d* nodes", reason="node_down"),
            Rule("step", "filters", r"^step \d+", kind="metric"),
            Rule("around", "filters", r"(?<!no )warning$", kind="debug"),
        )
    )
    bodies = [b"disk full", b"step 12", b"lost 1 nodes", b"lost 20 nodes", b"no warning", b"a warning", b"else"]
    fresh = Matcher(rules, engine, reserved=EARLY)  # type: ignore[arg-type]
    expected = [(fresh.judge(body), fresh.matches(body)) for body in bodies]
    assert len({verdict for verdict, _ in expected}) == 5
    monkeypatch.setenv("DIAGNOSE_CACHE", "")
    monkeypatch.setattr(ready, "load", lambda: rules)
    package = folders[0]
    assert ready.make(package) == sum(path.stat().st_size for path in package.iterdir())
    kinds = [path.name.split("-")[0] for path in package.iterdir()]
    assert kinds.count("database") == (3 if libhs() else 1)

    def refuse(self: object, patterns: list[Pattern]) -> bytes:
        raise AssertionError(f"compiled again: {patterns}")

    smallest = databases._SMALLEST
    for build in (Wheel, Libhs):
        compile_ = build.compile
        monkeypatch.setattr(
            build, "compile", lambda self, patterns, real=compile_: (real if patterns is smallest else refuse)(self, patterns)
        )
    loaded = Matcher(rules, engine, reserved=EARLY)  # type: ignore[arg-type]
    assert [(loaded.judge(body), loaded.matches(body)) for body in bodies] == expected


@pytest.mark.parametrize("engine", ["core", "core+wheel", "wheel", "plain"])
def test_a_rule_that_is_added_is_compiled_alone_beside_what_lies_ready(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    if (engine.startswith("core") and databases.core is None) or (engine == "core" and not libhs()):
        pytest.skip("the native core or libhs is missing")
    shipped = RuleSet((Rule("full", "failures", "disk full"), Rule("step", "filters", r"^step \d+", kind="metric")))
    matcher = Matcher(shipped, engine, reserved=EARLY)  # type: ignore[arg-type]
    assert [matcher.judge(body) for body in (b"disk full", b"step 12", b"step aside")] == [EARLY, EARLY + 1, -1]
    asked: set[str] = set()
    for build in (Wheel, Libhs):
        compile_ = build.compile
        monkeypatch.setattr(
            build,
            "compile",
            lambda self, patterns, real=compile_: (asked.update(p.text for p in patterns), real(self, patterns))[1],
        )
    matcher.add([Rule("worse", "failures", "disk full of worms"), Rule("aside", "filters", "^step aside$", kind="debug")])
    matcher.scan(Block(b"step aside\n"), Cursor())  # the next block
    judged = [matcher.judge(body) for body in (b"disk full of worms", b"disk full", b"step 12", b"step aside")]
    assert judged == [0, EARLY, EARLY + 1, EARLY + 2]
    assert {text for text in asked if text != "a"} == {"disk full of worms", "^step aside$"}


def test_making_ready_twice_makes_nothing_new_and_leaves_nothing_old(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = Rule("full", "failures", "disk full", reason="disk_full")
    monkeypatch.setattr(ready, "load", lambda: RuleSet((rule,)))
    package = folders[0]
    shipped_policy(), shipped_metrics()  # a process remembers them, and does not look them up again
    ready.make(package)
    first = {path.name: path.stat().st_mtime_ns for path in package.iterdir()}
    ready.make(package)
    assert {path.name: path.stat().st_mtime_ns for path in package.iterdir()} == first
    monkeypatch.setattr(ready, "load", lambda: RuleSet((Rule("full", "failures", "disk broken", reason="disk_full"),)))
    ready.make(package)
    second = {path.name for path in package.iterdir()}
    of = {name for name in first if name.startswith("database")}
    assert of
    assert not of & second
    assert second - first.keys()
