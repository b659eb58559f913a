"""Whatever the suite and however long things take: each sample is tried once and scored once, and no node is given too much."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.evaluate.cutting import Cut
from diagnose.evaluate.dispatch import Dispatch, gaps
from diagnose.evaluate.estimates import expected
from diagnose.evaluate.expectation import Span, play
from diagnose.evaluate.suite import DataSet, Metric, Node, Suite
from diagnose.evaluate.work import Load, Piece, Scoring, Shard, Trial

METRICS = st.builds(Metric, st.just("m"), st.booleans(), st.sampled_from([None, 1, 3]), st.integers(1, 3))
DATASETS = st.builds(
    DataSet,
    st.uuids().map(str),
    st.integers(1, 400),
    st.sampled_from(["t", "u"]),
    METRICS,
    st.booleans(),
    st.sampled_from([None, 1.0, 60.0, 4000.0]),
    st.sampled_from([None, 1.0, 600.0]),
)
SUITES = st.builds(
    Suite,
    st.lists(DATASETS, min_size=1, max_size=8, unique_by=lambda one: one.name).map(tuple),
    st.sampled_from([None, ","]),
    st.sampled_from(["none", "copy"]),
)
NODES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3).map(
    lambda sizes: [Node(f"n{number}", places, processors) for number, (places, processors) in enumerate(sizes)]
)
CUTS = st.builds(Cut, st.floats(1, 4), st.floats(1, 100), st.floats(1, 100), st.sampled_from(["whole", "path"]))


def dispatch(suite: Suite, nodes: list[Node], how: Cut, done: list[Piece] | None = None) -> Dispatch:
    return Dispatch(suite, nodes, expected(suite), how, done=done or [])


def covered(pieces: list[Piece], kind: type) -> dict[str, list[Shard]]:
    found: dict[str, list[Shard]] = {}
    for piece in pieces:
        if isinstance(piece, kind):
            for shard in piece.shards if isinstance(piece, Trial) else (piece.shard,):
                found.setdefault(shard.dataset, []).append(shard)
    return {name: sorted(shards) for name, shards in found.items()}


def check_once(suite: Suite, pieces: list[Piece]) -> None:
    for kind in (Trial, Scoring):
        shards = covered(pieces, kind)
        for one in suite.datasets:
            assert sum(shard.count for shard in shards[one.name]) == one.samples
            assert gaps(Shard(one.name, 0, one.samples), shards[one.name]) == []
            assert one.split or kind is Scoring or len(shards[one.name]) == 1
            assert one.metric.split or kind is Trial or len(shards[one.name]) == 1


def check_room(suite: Suite, nodes: list[Node], spans: list[Span]) -> None:
    datasets = {one.name: one for one in suite.datasets}
    for moment in [span.begin_s for span in spans]:
        now = [span for span in spans if span.begin_s <= moment < span.end_s]
        for node in nodes:
            here = [span.piece for span in now if span.node == node.name]
            wanted = [datasets[one.shard.dataset].metric.processors for one in here if isinstance(one, Scoring)]
            assert sum(isinstance(one, Trial) for one in here) <= node.places
            assert sum(min(one, node.processors) for one in wanted) <= node.processors
        judged = Counter(span.piece.shard.dataset for span in now if isinstance(span.piece, Scoring))
        assert all(many <= (datasets[name].metric.at_once or many) for name, many in judged.items())


@pytest.mark.slow
@settings(max_examples=25)
@given(SUITES, NODES, CUTS, st.integers())
def test_every_sample_is_tried_and_scored_once(suite: Suite, nodes: list[Node], how: Cut, seed: int) -> None:
    dice = random.Random(seed)
    spans = play(dispatch(suite, nodes, how), lambda *_: dice.uniform(0.1, 500))

    check_once(suite, [span.piece for span in spans])
    check_room(suite, nodes, spans)
    loads = Counter(span.node for span in spans if isinstance(span.piece, Load))
    assert all(many == 1 for many in loads.values())
    assert bool(loads) == (suite.load == "copy")
    for name in loads:
        ready = next(span.end_s for span in spans if span.node == name and isinstance(span.piece, Load))
        assert all(span.begin_s >= ready for span in spans if span.node == name and isinstance(span.piece, Trial))


@settings(max_examples=25)
@given(SUITES, NODES, CUTS, st.integers())
def test_what_was_finished_before_is_not_done_again(suite: Suite, nodes: list[Node], how: Cut, seed: int) -> None:
    dice = random.Random(seed)
    first = play(dispatch(suite, nodes, how), lambda *_: dice.uniform(0.1, 500))
    cut = dice.uniform(0, max(span.end_s for span in first))
    done = [span.piece for span in first if span.end_s <= cut and not isinstance(span.piece, Load)]
    other = Cut(how.shares + 0.5, how.least_s * 2, how.scoring_s / 3, how.order)

    again = play(dispatch(suite, nodes, other, done), lambda *_: dice.uniform(0.1, 500))

    check_once(suite, done + [span.piece for span in again])


@settings(max_examples=25)
@given(SUITES, NODES, CUTS, st.integers())
def test_what_was_lost_or_given_up_stops_nothing_else(suite: Suite, nodes: list[Node], how: Cut, seed: int) -> None:
    """Pieces fail at random, a node goes and comes again; what one data set could not do, the others still do."""
    dice = random.Random(seed)
    one = dispatch(suite, nodes, how)
    lost, bad, pieces = 0, suite.datasets[0].name, []
    while not one.finished:
        one.next()
        if dice.random() < 0.1 and lost < 5:
            node = dice.choice(nodes)
            one.leave(node.name)
            one.join(node)
            lost += 1
            continue
        piece = dice.choice(list(one.running))
        names = {shard.dataset for shard in piece.shards} if isinstance(piece, Trial) else set()
        if isinstance(piece, Trial) and bad in names:
            (one.give_back if len(names) > 1 else one.give_up)(piece)
        elif dice.random() < 0.2 and lost < 20:
            one.give_back(piece)
            lost += 1
        else:
            one.ended(piece, dice.uniform(0.1, 500))
            pieces.append(piece)

    assert one.given_up == {bad}
    others = tuple(dataset for dataset in suite.datasets if dataset.name != bad)
    check_once(
        Suite(others), [piece for piece in pieces if not isinstance(piece, Load) and bad not in covered([piece], type(piece))]
    )
    assert all(one.whole(dataset.name) for dataset in others)


def test_gaps() -> None:
    assert gaps(Shard("a", 0, 10), [Shard("a", 2, 3), Shard("a", 7, 1)]) == [
        Shard("a", 0, 2),
        Shard("a", 5, 2),
        Shard("a", 8, 2),
    ]
    assert gaps(Shard("a", 5, 5), [Shard("a", 0, 6), Shard("a", 9, 4)]) == [Shard("a", 6, 3)]
    assert gaps(Shard("a", 0, 4), []) == [Shard("a", 0, 4)]
