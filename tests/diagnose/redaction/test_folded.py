"""A value that stands below its name is a secret, however many such names fold away before it."""

from __future__ import annotations

import random

import pytest

from diagnose.agent.retrieval import Material
from diagnose.job import Job
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.matching.matcher import Matcher
from diagnose.reading.sources import Source
from diagnose.redaction.stream import LineConcealer
from diagnose.redaction.text import redact
from tests.support.logs import job_of

CHANCE = random.Random(3)
RANDOM = ["".join(CHANCE.choices("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQ23456789", k=20)) for _ in range(12)]
SPOKEN = [f"CorrectHorse-{word}-staple" for word in "ash oak elm fir yew box bay fig sloe rowan alder birch".split()]


def pods(secrets: list[str], name: str = "name") -> str:
    """What many pods print of their environment, between regular lines."""
    lines = [f"pulled shard {n} of 400" for n in range(100)]
    for number, secret in enumerate(secrets):
        lines += [
            f"pod train-{number} starts",
            "env:",
            f"- {name}: HF_PASSWORD",
            f"  value: {secret}",
            "- name: HOME",
            "  value: /root",
        ]
        lines += [f"pulled shard {100 + number * 9 + n} of 400" for n in range(9)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["name", "Name", '"NAME"'])
@pytest.mark.parametrize("secrets", [RANDOM, SPOKEN], ids=["random", "words"])
def test_no_secret_is_left_where_its_name_was_folded_away(secrets: list[str], name: str) -> None:
    kept = [line.text.decode() for line in job_of(pods(secrets, name)).compression.kept]
    assert any(secret in line for secret in secrets for line in kept)
    together = redact("\n".join(kept)).text
    concealer = LineConcealer()
    one_by_one = [concealer.line(line) for line in kept]
    assert [secret for secret in secrets if secret in together] == []
    assert [secret for secret in secrets if any(secret in line for line in one_by_one)] == []


def test_a_plain_value_is_shown() -> None:
    concealer = LineConcealer()
    assert [concealer.line(line) for line in ("- name: HOME", "  value: /root", "  value: 4096", "value: true")] == [
        "- name: HOME", "  value: /root", "  value: 4096", "value: true",
    ]  # fmt: skip


def test_a_value_whose_name_was_dropped_is_a_secret() -> None:
    """A filter may drop the line of the name: what is left of it says nothing, and may be a password."""
    concealer = LineConcealer()
    lines = {4: "- name: HOME", 5: "  value: /root", 8: "  value: CorrectHorse", 9: "went on", 12: "  value: 4096"}
    told = [concealer.line(text, number) for number, text in lines.items()]
    assert told[:2] == ["- name: HOME", "  value: /root"]
    assert "CorrectHorse" not in told[2]
    assert told[3] == "went on"


@pytest.mark.parametrize(
    "line",
    [
        "  value: 0.93",
        "value: -1.5e-05,",
        "value: true",
        "value: healthy",
        "value = PENDING",
        '    "value": "gpu014"',
        "value:",
    ],
)
def test_a_value_that_says_what_it_is_stays_where_its_name_was_dropped(line: str) -> None:
    assert LineConcealer().line(line, 9) == line


@pytest.mark.parametrize(
    "line", ["value: CorrectHorse", "value: correct-horse", "value: a1b2c3", "value: correcthorsebattery", "value: t0pSecret"]
)
def test_a_value_that_may_be_a_password_goes(line: str) -> None:
    concealer = LineConcealer()
    assert concealer.line(line, 9) == "value: <token>"
    assert concealer.line(line, 20) == "value: <token>"


def test_a_short_word_whose_name_was_kept_goes_also_behind_lines_that_were_not() -> None:
    concealer = LineConcealer()
    concealer.line("- name: HF_PASSWORD", 1)
    assert concealer.line("  value: hunter", 4) == "  value: <token>"


def test_a_model_is_shown_no_value_whose_name_was_dropped() -> None:
    rules = RuleSet.of([Rule("names", "filters", r"^- name: \S+$")])
    log = "begins\n- name: HF_PASSWORD\n  value: CorrectHorse\nValueError: it broke\n"
    job = Job("j", [Source("log", None)], Matcher(rules))
    job.feed(0, log.encode())
    job.close(0)
    material = Material(job.evidence())
    assert any("value: " in text for text in material.texts)
    assert not any("CorrectHorse" in text for text in [*material.texts, *material.plain])
