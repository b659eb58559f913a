"""Two witnesses: who is believed, and when."""

from __future__ import annotations

import random

import pytest

from diagnose.agent.witnesses import Record, together

RULES = {"nccl_timeout": 0.95, "storage_error": 0.02, "key_error": 0.02, "unknown": 0.01}


def best(chances: dict[str, float]) -> str:
    return next(iter(chances))


def test_agreement_makes_surer() -> None:
    assert together(RULES, {"nccl_timeout": 0.8}, 0.8)["nccl_timeout"] > 0.95


def test_a_new_model_moves_no_sure_rule_and_moves_a_doubtful_one() -> None:
    said = {"storage_error": 0.9}
    record = Record()
    assert best(together(RULES, said, record.trust("specific"), record.proved)) == "nccl_timeout"
    doubtful = {**RULES, "nccl_timeout": 0.4, "storage_error": 0.35}
    assert best(together(doubtful, said, record.trust("specific"), record.proved)) == "storage_error"


def test_a_model_that_agreed_with_sure_rules_is_heard_where_it_objects() -> None:
    record = Record()
    for _ in range(20):
        record.note("specific", right=True)
    found = together(RULES, {"storage_error": 0.9}, record.trust("specific"), record.proved)
    assert best(found) == "storage_error"
    assert found["storage_error"] < 0.9
    assert found["nccl_timeout"] > 0.1  # both stay in the report


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
def test_a_weak_model_is_not_heard(rate: float) -> None:
    chance = random.Random(7)
    record = Record()
    for _ in range(40):
        record.note("specific", right=chance.random() < rate)
        assert best(together(RULES, {"storage_error": 1.0}, record.trust("specific"), record.proved)) == "nccl_timeout"


def test_what_the_rules_exclude_stays_excluded() -> None:
    record = Record()
    for _ in range(20):
        record.note("specific", right=True)
    found = together(RULES, {"healthy": 0.95}, record.trust("specific"), record.proved)
    assert "healthy" not in found
    assert best(found) == "nccl_timeout"
