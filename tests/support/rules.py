"""Learned rules and their lines, as several tests want them."""

from __future__ import annotations

from typing import Any

from diagnose.knowledge.rules import Example, Rule, RuleSet
from diagnose.learning.learned_rule import LearnedRule, State

LINES = [f"custom scheduler chose lane {n} for bucket b{n % 7} at /data/run{n}/x.bin" for n in range(40)]


LANES = tuple(f"lane keeper chose lane {n}" for n in range(5))


NOW = 1_800_000_000.0


BESIDE = RuleSet.of(
    [
        Rule(
            "oops", "failures", "RuntimeError: ", reason="runtime_error", layer="user", matches=(Example("RuntimeError: no"),)
        ),
        Rule("fine", "filters", "^all is fine with \\d+$", kind="debug", matches=(Example("all is fine with 3"),)),
    ]
)


FAILURE = Rule(
    "f", "failures", "lane keeper is gone", reason="runtime_error", layer="user", severity="fatal", symptom=True,
    action="restart", mitigation="ask the lane's owner", reference="lane 3", matches=(Example("lane keeper is gone"),),
    misses=(Example("the keeper is gone"),),
)  # fmt: skip


def proposal(pattern: str, *lines: str, name: str = "p") -> Rule:
    shown = tuple(Example(line) for line in (lines or ("lane keeper chose lane 3",))[:1])
    return Rule(name, "filters", pattern, kind="debug", framework="learned", matches=shown, misses=(Example("something else"),))


def lanes(state: State = "shadow", **fields: Any) -> LearnedRule:
    return LearnedRule(proposal(r"^lane +keeper +chose +lane +\d+$", *LANES), state, changed=NOW, **fields)
