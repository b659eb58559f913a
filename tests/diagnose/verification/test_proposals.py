"""What a proposal must pass before it may be tried: refused for good reasons, whoever wrote it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.errors import RuleError
from diagnose.knowledge.rules import Example, Rule
from diagnose.matching.databases import Pattern, Wheel
from diagnose.verification.proposals import judged
from tests.support.rules import BESIDE, FAILURE, LANES, proposal


def refusal(pattern: str, *lines: str) -> str | None:
    found = judged([proposal(pattern, *lines)], {"p": lines}, ["ERROR: lane keeper is gone"], BESIDE)
    return found["p"].name if found else None


def test_the_shipped_rules_beside_it_come_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first lesson on a machine took half a minute longer."""
    monkeypatch.setenv("DIAGNOSE_CACHE", str(tmp_path))
    known, many = Wheel.compile, []

    def noted(library: Wheel, patterns: Sequence[Pattern]) -> bytes:
        many.append(len(patterns))
        return known(library, patterns)

    monkeypatch.setattr(Wheel, "compile", noted)
    assert judged([proposal(r"^lane keeper chose lane \d+$", *LANES)], {"p": LANES}, []) == {}
    assert many
    assert max(many) < 100, "the proposal alone"


@pytest.mark.parametrize(
    ("pattern", "lines", "name"),
    [
        (r"^lane +keeper +chose +lane +\d+$", LANES, None),
        (r"lane keeper chose lane \d+", LANES, "not-anchored"),
        (r"^lane keeper chose lane \d+$|anything", LANES, "not-anchored"),
        (r"^lane keeper chose lane \d+$|^rank \d+: shar.*", LANES, "catch-all"),
        (r"^(?:lane keeper chose lane \d+$|rank \d+: shar.*)", LANES, "catch-all"),
        (r"^lane keeper (?:chose|left) lane \d+$", LANES, "untried"),
        (r"^lane keeper (?:chose|left) lane \d+$", (*LANES, "lane keeper left lane 9"), None),
        (r"^lane (?:keeper chose lane \d+|guard ends here)$", LANES, "untried"),
        (r"^lane (?:keeper chose lane \d+|[gG][uU][aA][rR][dD] [eE][nN][dD][sS] [hH][eE][rR][eE])$", LANES, "untried"),
        (r"^lane (?:keeper chose lane \d+|\w+ \w+ \w+)$", LANES, "untried"),
        (r"^lane keeper chose lane \d+(?: \S+ \S+)?$", LANES, "untried"),
        (r"^lane keeper chose lane \d+(?: ms [a-z]+)?$", LANES, "untried"),
        (r"^lane keeper chose lane \d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?: [kKMG]?i?B/s)?(?:0x[0-9a-f]+)?$", LANES, None),
        (r"^lane keeper chose lane \d+(?: and gave it up)?$", LANES, "untried"),
        (r"^lane keeper chose lane \d+(?: and gave it up)*$", LANES, "untried"),
        (r"^lane keeper (?:chose (?:lane|no lane) )+\d+$", LANES, "untried"),
        (r"^lane keeper chose lane \d+(?:\.\d+)?$", LANES, None),
        (r"^lane keeper chose lane (?:\d+|nan|inf)(?: ?(?:ms|GiB))?$", LANES, None),
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
    text = "lane keeper x y z w"
    killers = [proposal("^lane keeper .*x.{0,4000}y.*z.{0,4000}w.*v.{0,4000}u", text, name=name) for name in ("first", "third")]
    good = [proposal(r"^lane +keeper +chose +lane +\d+$", LANES[0], name=name) for name in ("second", "fourth")]
    lines = {"first": [text] * 3, "second": LANES, "third": [text] * 3, "fourth": LANES}
    found = judged([killers[0], good[0], killers[1], good[1]], lines, (), BESIDE)
    said = "it takes more than 3 s or 1024 MiB to compile"
    assert {name: refusal.what for name, refusal in found.items()} == {"first": said, "third": said}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        pytest.param(proposal("^lane keeper " + "chose " * 400), "2,413 characters; 2,000 are the limit", id="length"),
        pytest.param(
            replace(proposal("^lane keeper chose .*"), metrics=(("loss", r"loss=(\d+)" + "( by lane)?" * 200),)),
            "2,210 characters; 2,000 are the limit",
            id="length of a metric",
        ),
        pytest.param(
            proposal(r"^lane keeper (?:a|aa)+$", "lane keeper " + "a" * 60 + "!"),
            "searching one line takes more than 0.1 s",
            id="search",
        ),
        pytest.param(proposal("^lane keeper .{0}chose"), "refused: ", id="compile"),
    ],
)
def test_a_person_reads_what_was_too_expensive(rule: Rule, said: str) -> None:
    assert said in judged([rule], {"p": ["lane keeper chose lane 3"]}, (), BESIDE)["p"].what


def test_where_no_pattern_can_be_tried_none_is_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that is broken is an error of its own, with what Python said about it."""
    (tmp_path / "regex.py").write_text("raise ImportError('no module of C')")
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    with pytest.raises(RuleError, match="cannot be tried") as broken:
        refusal(r"^lane +keeper +chose +lane +\d+$", *LANES)
    assert "no module of C" in str(broken.value.remedy)


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
    wide = replace(FAILURE, id="wide", pattern="lane keeper is")
    lost = replace(FAILURE, id="lost", pattern="lane keeper was lost")
    slow = replace(
        FAILURE, id="slow", pattern="lane keeper says (?:a|aa)+$", matches=(Example("lane keeper says " + "a" * 60 + "!"),)
    )
    found = judged(
        [FAILURE, wide, lost, slow],
        {name: ["lane keeper is gone"] for name in ("f", "wide", "lost")},
        (),
        BESIDE,
        [*LANES, "the lane keeper is never late"],
    )
    assert {name: refusal.name for name, refusal in found.items()} == {
        "wide": "alarms-on-healthy",
        "lost": "misses-own-example",
        "slow": "expensive",
    }


@pytest.mark.parametrize(
    ("pattern", "refused"),
    [
        (r"\bmay not\b", True),
        (r"came up|went away", True),
        (r"CUDA error", True),
        (r"FlashStore: \S+ came up short|rank \d+ is slow", True),
        (r"\bFlashStore\b", True),
        (r"FlashStore: \S+ came up", False),
        (r"(?:read|write) of the shard on the fast tier (?:failed|stopped)", False),
    ],
)
def test_a_failure_rule_says_something_that_few_lines_say(pattern: str, refused: bool) -> None:
    rule = replace(FAILURE, id="p", pattern=pattern)
    found = judged([rule], {}, (), BESIDE, ())
    assert (found["p"].name == "catch-all" and "usual" in found["p"].what) == refused


LOSSES = tuple(f"trainer at {step}: loss 2.{step} in 0.5 s" for step in (10, 22, 37))
LOSS = (("loss", r"loss ([\d.naif]+)"),)


@pytest.mark.parametrize(
    ("pattern", "metrics", "lost"),
    [
        (r"^trainer at \d+: loss \d+\.\d+ in \d+\.\d+ s$", LOSS, None),
        (r"^trainer at \d+: loss \S+ in \d+\.\d+ s$", LOSS, None),
        (r"^trainer at \d+: loss \d+\.\d+ in \d+\.\d+ s$", (), "does not capture its number '2.10'"),
        (r"^trainer at \d+: loss \d+\.\d+ in \d+\.\d+ s$", (("loss", r"at (\d+)"),), "does not capture"),
        (r"^trainer at \d+: loss \d+\.\d+ in \d+\.\d+ s$", (("step", r"loss ([\d.]+)"),), "does not capture"),
        (r"^trainer at \S+: loss \S+ in \d+\.\d+ s$", LOSS, None),
        (r"^trainer at \d+: loss \S+ in \S+ s$", LOSS, "nan in place of '0.5'"),
        (r"^trainer at \d+: loss \S+ in .*$", (("loss", r"loss ([\d.]+)"),), "nan in place of '2.10'"),
    ],
)
def test_a_filter_hides_no_number_that_matters(pattern: str, metrics: tuple[tuple[str, str], ...], lost: str | None) -> None:
    rule = replace(proposal(pattern, *LOSSES), kind="metric" if metrics else "debug", metrics=metrics)
    found = judged([rule], {"p": LOSSES}, (), BESIDE)
    assert ("p" in found) == (lost is not None), found
    if lost is not None:
        assert found["p"].name == "drops-numbers"
        assert lost in found["p"].what


@pytest.mark.parametrize(
    ("pattern", "line", "lost"),
    [
        (r"^feeder shard=\d+ rows \d+$", "feeder shard={} rows 7", None),
        (r"^feeder shard=\S+ rows \d+$", "feeder shard={} rows 7", "nan in place of '10'"),
        (r"^feeder is at \S+ of it$", "feeder is at 0.{} of it", "nan in place of '0.10'"),
        (r"^feeder order: \S+ 4 5$", "feeder order: {} 4 5", None),
        (r"^judge reward: \d+\.\d+$", "judge reward: 0.{}", "reward stands in it"),
        (r"^judge ppl=\d+\.\d+$", "judge ppl=3.{}", "perplexity stands in it"),
        (r"^feeder balance: \d+\.\d+$", "feeder balance: 0.{}", "987650.10 in place of '0.10'"),
        (r"^feeder balance: \d{1,3}\.\d+$", "feeder balance: 0.{}", None),
        (r"^feeder balance: \d+\.\d+ shards? \d+$", "feeder balance: 0.{} shards 4", "987650.10 in place of '0.10'"),
        (r"^feeder is at \d+\.\d+ of it$", "feeder is at 0.{} of it", "987650.10 in place of '0.10'"),
        (r"^feeder lr=[\d.e-]+$", "feeder lr={}e-05", "9876510e-05 in place of '10e-05'"),
        (r"^feeder skipped_steps=\d+$", "feeder skipped_steps={}", "9876510 in place of '10'"),
        (r"^feeder took \d+\.\d+$", "feeder took 1.{}", None),
        (r"^feeder read it in \d+\.\d+ ?(?:ms|GiB/s|%)$", "feeder read it in 1.{} ms", None),
        (r"^feeder time \(ms\) \| in: \d+\.\d+ \| out: \d+\.\d+$", "feeder time (ms) | in: 1.{} | out: 2.5", None),
        (r"^feeder throughput: \d+\.\d+ shards/s$", "feeder throughput: 1.{} shards/s", None),
        (r"^feeder pass \d+: errors: \d+$", "feeder pass {}: errors: 0", "9 in place of '0', which sounds like a failure"),
        (r"^feeder pass \d+: errors: 0$", "feeder pass {}: errors: 0", None),
        (r"^feeder pass \d+: \d+ shards$", "feeder pass {}: 7 shards", None),
    ],
)
def test_every_number_that_a_filter_would_drop_is_tried(pattern: str, line: str, lost: str | None) -> None:
    lines = tuple(line.format(n) for n in (10, 22, 37))
    found = judged([proposal(pattern, *lines)], {"p": lines}, (), BESIDE)
    assert ("p" in found) == (lost is not None), found
    if lost is not None:
        assert (found["p"].name, lost in found["p"].what) == ("drops-numbers", True), found
