"""A slice of the simulated month: limits that hold whatever chance does, and shares that hold by a wide margin."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from benchmarks.simulation import STUDY, WAYS, Diagnosed, PagePerson, World, accuracy, auto, fresh, month, storm
from diagnose.knowledge.taxonomy import shipped_taxonomy

WORLD = World(days=10)
SEEDS = range(1, 7)


def test_the_same_seed_gives_the_same_month() -> None:
    one, same, other = (month(Diagnosed, seed, WORLD) for seed in (1, 1, 2))
    assert replace(one, decision_ms=[]) == replace(same, decision_ms=[])
    assert replace(one, decision_ms=[]) != replace(other, decision_ms=[])


def test_accuracy_is_read_from_the_page_that_eval_made() -> None:
    found = accuracy()
    assert set(found.reason) >= {"infrastructure", "framework", "script"}
    assert all(0.5 < share < 1 for share in found.reason.values())  # never quite right: nobody measured that
    assert 0.5 < found.suspects <= 1
    assert found.wrong


def test_on_logs_that_nobody_had_seen_diagnoses_are_worse_and_nodes_as_safe() -> None:
    logs = [one for some in fresh().values() for one in some]
    right = sum(one.said == one.labelled for one in logs) / len(logs)
    assert 0.7 < right < min(accuracy().reason[one] for one in ("infrastructure", "framework", "script"))
    assert any(shipped_taxonomy().category_of[one.said] != "infrastructure" for one in fresh()["infrastructure"])
    found = [month(Diagnosed, seed, replace(WORLD, fresh=True)) for seed in (1, 2)]
    assert sum(one.isolations for one in found) > 4
    assert sum(one.wrong_isolations for one in found) <= 1


def test_the_table_has_the_studys_29_reasons() -> None:
    assert len({row.reason for row in STUDY}) == len(STUDY) == 29
    assert all(sum(share for _, share in row.truths) == pytest.approx(1) for row in STUDY)


def test_the_limits_hold_in_an_ordinary_month() -> None:
    limits = auto().limits
    wrong = all_ = 0
    for seed in SEEDS:
        paged, ours = month(PagePerson, seed, WORLD), month(Diagnosed, seed, WORLD)
        assert paged.interventions == paged.failures  # the measure itself: one call a failure
        assert ours.decisions >= ours.failures > 50
        assert ours.interventions < 0.1 * paged.interventions
        assert ours.gpu_hours < paged.gpu_hours
        assert ours.most_in_an_hour <= limits.isolations_per_hour
        assert ours.most_at_once <= limits.isolated_share * WORLD.nodes
        assert statistics.median(ours.decision_ms) < 10
        wrong, all_ = wrong + ours.wrong_isolations, all_ + ours.isolations
    assert all_ > 10
    assert wrong <= 1  # docs/policy.md has the share, of thousands


def test_the_limits_hold_in_a_storm() -> None:
    limits = auto().limits
    for seed in (1, 2):
        found = storm(seed, replace(WORLD, days=8))
        assert found.failures > 300
        assert found.most_in_an_hour <= limits.isolations_per_hour
        assert found.most_at_once <= limits.isolated_share * WORLD.nodes
        assert 3 <= found.incidents <= 8
        assert found.interventions < found.failures / 5


def test_a_storm_without_the_circuit_breaker_calls_more_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the breaker does it, and not chance."""
    with_it = storm(1, replace(WORLD, days=8))
    never = replace(auto(), bursts=replace(auto().bursts, jobs=10**6))
    monkeypatch.setattr("benchmarks.simulation.auto", lambda: never)
    without = storm(1, replace(WORLD, days=8))
    assert without.incidents == 0
    assert without.interventions > with_it.interventions
    assert without.most_in_an_hour <= never.limits.isolations_per_hour  # the blast radius does not hang on the breaker


def test_a_world_of_bad_diagnoses_keeps_within_the_blast_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node named is the wrong one, and says so in its kernel's name."""
    lying = replace(accuracy(), suspects=0.0, named=1.0)
    monkeypatch.setattr("benchmarks.simulation.accuracy", lambda: lying)
    world = replace(WORLD, misread=1.0, xid_share=tuple((row.reason, 1.0) for row in STUDY))
    found = month(Diagnosed, 3, world)
    assert found.wrong_isolations > 0  # so that the next lines say something
    assert found.most_in_an_hour <= auto().limits.isolations_per_hour
    assert found.most_at_once <= auto().limits.isolated_share * world.nodes


def test_there_are_two_ways_to_compare_with() -> None:
    assert list(WAYS) == ["a person for every failure", "always restart", "diagnose"]
