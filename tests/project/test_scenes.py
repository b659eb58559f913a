"""Months with people in them: nothing is done against anybody, and the measure sees it where it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import scenes
from benchmarks.scenes import People, Scheduler, Told, month
from benchmarks.simulation import World
from service.acting.executors.executor import Order

WORLD = World(days=10)


def total(told: list[Told]) -> Told:
    out = Told()
    for one in told:
        for name in ("hangs", "restarted_in_time", "cancelled", "unasked", "ordered", "ordered_unasked", "brought_back"):
            setattr(out, name, getattr(out, name) + getattr(one, name))
        for name in ("isolated", "wrong", "wrong_soft", "orders", "twice"):
            setattr(out, name, getattr(out, name) + getattr(one, name))
        out.meddled += one.meddled
        out.against += one.against
    return out


def test_the_same_seed_gives_the_same_month() -> None:
    assert month(1, WORLD) == month(1, WORLD) != month(2, WORLD)


def test_nothing_is_done_against_a_person() -> None:
    found = total([month(seed, WORLD, People(meddles=0.5)) for seed in (1, 2, 3)])
    assert set(found.meddled) == set(scenes.DEEDS)
    assert sum(found.meddled.values()) > 20
    assert (found.twice, sum(found.against.values())) == (0, 0)
    assert found.cancelled > found.unasked > 3
    assert (found.ordered, found.brought_back) == (0, 0)
    assert found.restarted_in_time > 0.8 * found.hangs > 10
    assert found.isolated > 3
    assert (found.wrong, found.wrong_soft) == (0, 0)


def test_on_a_few_nodes_nothing_is_done_against_a_person_either() -> None:
    found = month(1, replace(WORLD, nodes=12), People(meddles=0.5))
    assert found.orders > 10
    assert (found.twice, sum(found.against.values()), found.brought_back, found.wrong) == (0, 0, 0, 0)


def test_an_executor_that_does_not_look_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def blind(order: Order, door: Scheduler) -> None:
        door.the_job = replace(door.the_job, states=frozenset({"PENDING"}), restarts=door.the_job.restarts + 1)
        for name in order.nodes or list(door.the_nodes)[:1]:
            await door.drain(name, order.reason)

    monkeypatch.setattr(scenes, "carry_out", blind)
    found = total([month(seed, WORLD, People(meddles=0.5, unasked=1.0)) for seed in (1, 2)])
    assert found.twice > 0
    assert min(found.against[deed] for deed in scenes.DEEDS if deed != "requeues it") > 0
    assert found.brought_back == found.ordered_unasked > 0


def test_a_fault_of_a_machine_that_two_users_meet_isolates_so_that_soft_ones_could_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scenes, "_SOFT", ("ecc_error",))
    assert total([month(seed, WORLD, People(of_two_users=1.0)) for seed in (1, 2)]).wrong_soft > 0
