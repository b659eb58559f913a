"""Who tests with whom, who is faulty: simulated clusters whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from itertools import chain, combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.errors import DiagnoseError
from diagnose.nodecheck.accuse import SILENT, Group, Trial, Verdict, plan, verdict

Passes = Callable[[Group, int], bool]


def names(count: int) -> list[str]:
    return [f"n{number:02}" for number in range(count)]


def check(nodes: list[str], trial: Callable[[Group, int], Trial], most: int | None = None) -> tuple[Verdict, int]:
    """Play the rounds; every plan is a proper one."""
    rounds: list[list[Trial]] = []
    while groups := plan(nodes, rounds, most=most):
        busy = [node for group in groups for node in group]
        assert len(busy) == len(set(busy)), "a node would be in two tests at once"
        assert set(busy) <= set(nodes)
        assert all(2 <= len(group) <= 3 for group in groups)
        rounds.append([trial(group, len(rounds)) for group in groups])
        assert len(rounds) <= 4 * len(nodes)
    found = verdict(nodes, rounds)
    told = [*found.good, *found.faulty, *found.slow, *found.suspects]
    assert sorted(told) == sorted(nodes), "every node is told of, once"
    assert set(found.why) == set(nodes) - set(found.good)
    return found, len(rounds)


def broken(bad: Collection[str]) -> Callable[[Group, int], Trial]:
    return lambda group, _: Trial(group, not set(bad) & set(group))


def told_apart(nodes: list[str], bad: Collection[str]) -> int:
    """Check the verdict on a cluster with these bad nodes; the number of rounds."""
    found, rounds = check(nodes, broken(bad))
    assert found.slow == found.links == []
    if not bad or len(nodes) - len(bad) >= 2:
        assert (found.faulty, found.suspects, found.notes) == (sorted(bad), [], [])
    else:
        assert (found.faulty, found.good, found.suspects) == ([], [], nodes)
        assert len(found.notes) == 1
    return rounds


def subsets(nodes: list[str], sizes: Iterable[int]) -> Iterable[tuple[str, ...]]:
    return chain.from_iterable(combinations(nodes, size) for size in sizes)


@pytest.mark.parametrize("count", range(2, 17))
def test_every_single_and_double_fault_up_to_16_nodes(count: int) -> None:
    nodes = names(count)
    for bad in subsets(nodes, [0, 1, 2]):
        rounds = told_apart(nodes, bad)
        if count >= 6:
            assert rounds <= (1, 2, 3)[len(bad)]


@pytest.mark.parametrize("count", range(2, 10))
def test_every_fault_set_up_to_9_nodes(count: int) -> None:
    nodes = names(count)
    for bad in subsets(nodes, range(count + 1)):
        told_apart(nodes, bad)


@given(st.integers(2, 64), st.randoms(use_true_random=False))
def test_random_fault_sets_up_to_64_nodes(count: int, chance: random.Random) -> None:
    nodes = names(count)
    told_apart(nodes, sorted(chance.sample(nodes, chance.randrange(count + 1))))


@pytest.mark.parametrize("count", [17, 33, 63, 64])
def test_only_two_good_nodes_are_found_among_many(count: int) -> None:
    nodes = names(count)
    told_apart(nodes, nodes[1:-1])


@given(st.integers(2, 64), st.randoms(use_true_random=False))
def test_nodes_that_vanish_in_the_middle_take_nobody_with_them(count: int, chance: random.Random) -> None:
    """Bad from some round on: who is bad from the start is found, who is good to the end is never blamed."""
    nodes = names(count)
    since = {node: chance.choice([0, 0, 1, 2, 3]) for node in chance.sample(nodes, chance.randrange(count + 1))}
    found, _ = check(nodes, lambda group, number: Trial(group, all(since.get(node, 99) > number for node in group)))
    assert set(found.faulty) <= set(since)
    if count - len(since) >= 2:
        assert {node for node, number in since.items() if number == 0} <= set(found.faulty)


@given(st.integers(2, 24), st.randoms(use_true_random=False))
def test_whatever_the_tests_answer_the_rounds_end(count: int, chance: random.Random) -> None:
    check(names(count), lambda group, _: Trial(group, chance.random() < 0.5))


@pytest.mark.parametrize("count", [4, 5, 8, 33])
def test_a_broken_link_is_not_a_broken_node(count: int) -> None:
    nodes = names(count)
    found, rounds = check(nodes, lambda group, _: Trial(group, group != ("n00", "n01")))
    assert (found.good, found.links, rounds) == (nodes, [("n00", "n01")], 4)


@pytest.mark.parametrize("count", [6, 8, 9])
def test_who_hangs_once_is_not_blamed_for_a_dead_partner(count: int) -> None:
    """One is dead, one is slow, and one hangs in its first test; wherever they stand."""
    nodes = names(count)
    for dead, slow, once in permutations(nodes, 3):
        hung: list[int] = []

        def trial(
            group: Group, number: int, dead: str = dead, slow: str = slow, once: str = once, hung: list[int] = hung
        ) -> Trial:
            if once in group and dead not in group and not hung:
                hung.append(number)
                return Trial(group, False)
            if dead in group:
                return Trial(group, False)
            return timed({slow: 4.0}, {}, random.Random(number))(group, number)

        found, _ = check(nodes, trial)
        assert (found.faulty, found.slow, found.suspects) == ([dead], [slow], []), (dead, slow, once)


def test_what_failed_once_is_tested_again_and_told() -> None:
    nodes = names(6)
    found, rounds = check(nodes, lambda group, number: Trial(group, group != ("n02", "n03") or number > 0))
    assert (found.good, found.links, rounds) == (nodes, [], 3)
    assert found.notes == [
        "n02 and n03 failed together once and passed when they were tested again: one of them may fail now and then."
    ]


def test_two_nodes_are_both_suspects() -> None:
    found, rounds = check(names(2), broken(["n01"]))
    assert (found.suspects, found.faulty, rounds) == (["n00", "n01"], [], 1)
    assert found.notes == ["Of two nodes that fail together nobody can say which is bad: test n00, n01 with a third node."]


def test_when_nothing_passes_the_search_is_bounded() -> None:
    nodes = names(64)
    found, rounds = check(nodes, broken(nodes), most=8)
    assert (rounds, found.suspects) == (8, nodes)
    assert found.notes[0].startswith("Not finished: more rounds may tell")
    found, rounds = check(names(6), broken(names(6)))
    assert rounds == 5
    assert found.notes[0].startswith("No two nodes pass together")


def test_both_nodes_of_a_pair_are_bad_only_after_their_witnesses_passed_again() -> None:
    """Else a witness that died in round two would make two of them."""
    nodes = names(6)
    first = [Trial(group, group != ("n02", "n03")) for group in plan(nodes)]
    second = [Trial(group, False) for group in plan(nodes, [first])]
    assert [trial.members for trial in second] == [("n02", "n00"), ("n03", "n01")]
    assert verdict(nodes, [first, second]).faulty == []
    assert plan(nodes, [first, second]) == [("n00", "n01"), ("n02", "n04"), ("n03", "n05")]
    again = [Trial(("n00", "n01"), True), Trial(("n02", "n04"), False), Trial(("n03", "n05"), False)]
    assert verdict(nodes, [first, second, again[:1]]).faulty == [], "what they did beside each other says nothing"
    assert verdict(nodes, [first, second, again]).faulty == ["n02", "n03"]


def test_one_failure_makes_a_suspect_and_no_more() -> None:
    """Even if its partner proves to be good: it may have been the way between them."""
    rounds = [[Trial(("a", "b"), False), Trial(("c", "d"), True)], [Trial(("b", "c"), True)]]
    found = verdict(["a", "b", "c", "d"], rounds)
    assert (found.suspects, found.faulty) == (["a"], [])
    assert found.notes == ["Not finished: to be tested again: a."]
    assert plan(["a", "b", "c", "d"], rounds) == [("a", "b")]


def test_why_tells_rounds_and_what_was_seen() -> None:
    def trial(group: Group, _: int) -> Trial:
        return Trial(group, "n03" not in group, seen={"n03": "exit status 3", "n02": "timed out"})

    found, _ = check(names(4), trial)
    assert found.why == {"n03": "round 1: failed with n02 (exit status 3), round 2: failed with n01 (exit status 3)"}


def test_a_silent_node_is_described_by_those_who_waited_for_it() -> None:
    def trial(group: Group, _: int) -> Trial:
        return Trial(group, "n03" not in group, seen={"n03": SILENT, **{n: "timed out" for n in group if n != "n03"}})

    found, _ = check(names(4), trial)
    assert found.why["n03"].startswith(f"round 1: failed with n02 ({SILENT}; n02: timed out), round 2: failed with ")


# Slow nodes


def timed(compute: dict[str, float], gather: dict[str, float], noise: random.Random) -> Callable[[Group, int], Trial]:
    """Times as multiples of the usual; a group gathers as slowly as its slowest member, a triple moves twice as much."""

    def trial(group: Group, _: int) -> Trial:
        def some(usual: float) -> float:
            return usual * noise.uniform(0.9, 1.1)

        slowest = max(gather.get(node, 1.0) for node in group)
        return Trial(
            group, True, {node: some(compute.get(node, 1.0)) for node in group}, some(0.2) * slowest * (len(group) - 1)
        )

    return trial


@given(st.integers(4, 64), st.randoms(use_true_random=False))
def test_stragglers_are_told_by_the_median_of_the_same_test(count: int, chance: random.Random) -> None:
    nodes = names(count)
    picked = chance.sample(nodes, chance.randrange((count - 1) // 2 // 2 + 1))
    computing = {node: chance.uniform(2, 9) for node in picked[::2]}
    gathering = {node: chance.uniform(2, 9) for node in picked[1::2]}
    found, _ = check(nodes, timed(computing, gathering, chance))
    assert (found.slow, found.faulty, found.suspects) == (sorted(picked), [], [])


def test_slow_and_broken_at_once() -> None:
    slow = timed({"n05": 3.0}, {}, random.Random(1))

    def trial(group: Group, number: int) -> Trial:
        return Trial(group, False) if "n02" in group else slow(group, number)

    found, _ = check(names(9), trial)
    assert (found.faulty, found.slow, found.suspects) == (["n02"], ["n05"], [])
    assert "n05's matmul took" in found.why["n05"]


def test_a_triple_moves_more_and_is_not_slow_for_that() -> None:
    _, rounds = check(names(9), timed({}, {}, random.Random(3)))
    assert rounds == 1


def test_all_equally_slow_is_not_slow_and_microseconds_are_noise() -> None:
    found, rounds = check(names(8), timed(dict.fromkeys(names(8), 9.0), {}, random.Random(2)))
    assert (found.good, rounds) == (names(8), 1)
    found, _ = check(names(8), lambda group, _: Trial(group, True, {n: 0.004 if n == "n03" else 0.001 for n in group}, 0.001))
    assert found.good == names(8)


@pytest.mark.parametrize(("nodes", "says"), [(["a"], "1 node"), ([], "0 node"), (["a", "b", "a"], "named twice")])
def test_what_cannot_be_tested_is_refused(nodes: list[str], says: str) -> None:
    with pytest.raises(DiagnoseError, match=says):
        plan(nodes)
