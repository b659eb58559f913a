"""What a proposal must pass before it may be tried: refused for good reasons, whoever wrote it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose.knowledge.rules import Example
from diagnose.verification.proposals import judged
from tests.support.rules import BESIDE, FAILURE, LANES, proposal


def refusal(pattern: str, *lines: str) -> str | None:
    found = judged([proposal(pattern, *lines)], {"p": lines}, ["ERROR: lane keeper is gone"], BESIDE)
    return found["p"].name if found else None


@pytest.mark.parametrize(
    ("pattern", "lines", "name"),
    [
        (r"^lane +keeper +chose +lane +\d+$", LANES, None),
        (r"lane keeper chose lane \d+", LANES, "not-anchored"),
        (r"^lane keeper chose lane \d+$|anything", LANES, "not-anchored"),
        (r"^lane keeper chose lane \d+$|^rank \d+: shar.*", LANES, "catch-all"),
        (r"^(?:lane keeper chose lane \d+$|rank \d+: shar.*)", LANES, "catch-all"),
        (r"^lane keeper (?:chose|left) lane \d+$", LANES, None),
        (r"^.*$", LANES, "catch-all"),
        (r"^\w+ \w+ \w+ \w+ \d+$", LANES, "catch-all"),
        (r"^lane (?:\w{1,400} ?){1,400}$", LANES, "expensive"),
        (r"^lane keeper (?=chose)chose lane \d+$", LANES, "expensive"),
        (r"^lane keeper chose (lane) \1", LANES, "expensive"),
        ("^lane keeper " + "x?" * 1500, LANES, "expensive"),
        (r"^lane keeper chose (", LANES, "does-not-compile"),
        (r"^lane keeper chose lane 0$", LANES, "misses-its-lines"),
        (r"^lane keeper chose lane \d+$", LANES[:1], "overfitted"),
        (r"^RuntimeError: lane \d+$", tuple(f"RuntimeError: lane {n}" for n in range(5)), "drops-evidence"),
        (r"^ERROR: lane keeper is \w+$", tuple(f"ERROR: lane keeper is {w}" for w in ("up", "on", "idle")), "drops-evidence"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 60 else "",
)
def test_what_is_refused_and_why(pattern: str, lines: tuple[str, ...], name: str | None) -> None:
    assert refusal(pattern, *lines) == name


def test_a_pattern_that_kills_the_compiler_is_refused_and_the_others_are_still_judged() -> None:
    killer = proposal("^lane keeper " + "(?:a{1,60}b{1,60}c{1,60}){1,16}" * 3, "lane keeper abc", name="killer")
    good = proposal(r"^lane +keeper +chose +lane +\d+$", LANES[0], name="good")
    found = judged([killer, good], {"killer": ["lane keeper abc"] * 3, "good": LANES}, (), BESIDE)
    assert set(found) == {"killer"}


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (r"loss=([\d.]+)", None),
        (r"loss=([\d.]+)(?: by (?:\w+)+!)?", "expensive"),
        (r"loss=((?:\d{1,500}){1,500})", "expensive"),
        (r"loss=([\d.]+)\p{L}?", "does-not-compile"),
        (r"loss=([\d.]+", "does-not-compile"),
    ],
)
def test_a_metric_passes_the_door_too(metric: str, name: str | None) -> None:
    lines = [f"lane keeper chose loss=1.{n} by {'a' * 60}" for n in range(3)]
    rule = replace(proposal(r"^lane keeper chose loss=[\d.]+ by \w+$", *lines), metrics=(("loss", metric),))
    found = judged([rule], {"p": lines}, [], BESIDE)
    assert (found["p"].name if found else None) == name


def test_failure_rules_pass_the_same_door() -> None:
    wide = replace(FAILURE, id="wide", pattern="lane keeper")
    lost = replace(FAILURE, id="lost", pattern="lane keeper was lost")
    slow = replace(FAILURE, id="slow", pattern="lane (?:a|aa)+$", matches=(Example("lane " + "a" * 60 + "!"),))
    found = judged(
        [FAILURE, wide, lost, slow], {name: ["lane keeper is gone"] for name in ("f", "wide", "lost")}, (), BESIDE, LANES
    )
    assert {name: refusal.name for name, refusal in found.items()} == {
        "wide": "alarms-on-healthy",
        "lost": "misses-own-example",
        "slow": "expensive",
    }
