"""What the coordinator does about pieces that fail, are lost, or are to give way. The fleet is made up, the rest is real."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from diagnose.evaluate.carry import Order
from diagnose.evaluate.coordinator import Coordinator, Wish
from diagnose.evaluate.cutting import Cut
from diagnose.evaluate.dispatch import Dispatch
from diagnose.evaluate.estimates import expected
from diagnose.evaluate.fleets.fleet import Ended
from diagnose.evaluate.priors import Priors
from diagnose.evaluate.results import Results
from diagnose.evaluate.suite import DataSet, Metric, Node, Suite
from diagnose.evaluate.summary import summary

METRIC = Metric("score {outputs} {scores}")
KEY_ERROR = "Traceback (most recent call last):\n  File \"x.py\", line 3, in <module>\nKeyError: 'answer'\n"
NETWORK = "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x', port=443): Connection refused\n"
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
Fate = Callable[[Order, str, int], "int | str | None"]


class MadeUp:
    """A fleet whose pieces end as a function says: with a status, lost (None), or with a log (a text)."""

    def __init__(self, nodes: Sequence[Node], fate: Fate) -> None:
        self.there, self.fate = list(nodes), fate
        self.started: list[tuple[str, str]] = []
        self._waiting: list[Ended] = []

    def nodes(self) -> Sequence[Node]:
        return self.there

    def start(self, order: Order, node: str, *, on_place: bool) -> None:
        what = order.key.partition("#")[0]
        self.started.append((what, node))
        fate = self.fate(order, node, sum(one == what for one, _ in self.started))
        if isinstance(fate, str):
            Path(order.log).parent.mkdir(parents=True, exist_ok=True)
            Path(order.log).write_text(fate)
        elif fate == 0:
            for source, target in order.moves:
                path = Path(target)
                (path if source.endswith("json") is False else path.parent).mkdir(parents=True, exist_ok=True)
                if source.endswith("json"):
                    path.write_text(json.dumps({"scores": {"acc": 0.5}}))
        self._waiting.append(Ended(order.key, 1 if isinstance(fate, str) else fate, 100.0, 101.0))

    def ended(self, patience_s: float) -> list[Ended]:
        found, self._waiting = self._waiting[:1], self._waiting[1:]
        return found

    def die(self) -> None:
        """What was started last is lost, whatever it had done."""
        last = self._waiting.pop()
        self._waiting.append(Ended(last.key, None, last.end_s, last.end_s))

    def vanish(self, gone: str) -> None:
        """A node is gone, and nobody hears any more what ended there."""
        self.there = [node for node in self.there if node.name != gone]
        keys = {key for key, node in self.started if node == gone}
        self._waiting = [one for one in self._waiting if one.key.partition("#")[0] not in keys]

    def forget(self, memory: Path) -> None:
        pass

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


def made(
    folder: Path, fate: Fate, *, nodes: int = 1, joined: str | None = None, wish: Wish | None = None
) -> tuple[Coordinator, MadeUp]:
    datasets = tuple(DataSet(name, 40, "infer {dataset} {shard} {outputs}", METRIC, trial_s=1, metric_s=1) for name in "abc")
    suite, machines = Suite(datasets, joined), [Node(f"n{number}", 1, 1) for number in range(nodes)]
    fleet, results = MadeUp(machines, fate), Results(folder, suite, folder / "ckpt")
    dispatch = Dispatch(suite, machines, expected(suite), Cut(1.2, 30, 30), done=results.done())
    priors = Priors(folder / "p.db", "m")
    return Coordinator(results, fleet, dispatch, priors, 2, lambda _: None, wish or Wish()), fleet


def test_all_goes_well(tmp_path: Path) -> None:
    one, fleet = made(tmp_path, lambda *_: 0)

    assert one.run()
    each = {"samples": 40, "scores": {"acc": 0.5}, "noise": {}, "lower": []}
    assert summary(one.results)["datasets"] == dict.fromkeys("abc", each)
    assert len(fleet.started) == 6


def test_an_error_of_the_code_is_left_at_once_and_the_rest_goes_on(tmp_path: Path) -> None:
    one, fleet = made(tmp_path, lambda order, *_: KEY_ERROR if order.key.startswith("trial/b") else 0)

    assert one.run()
    found = summary(one.results)
    assert set(found["datasets"]) == {"a", "c"}
    assert found["missing"]["b"]["reason"] == "key_error"
    assert [what for what, _ in fleet.started].count("trial/b/0-40") == 1


def test_what_passes_is_tried_again(tmp_path: Path) -> None:
    one, _ = made(tmp_path, lambda order, _, time: NETWORK if order.key.startswith("trial/b") and time == 1 else 0)

    assert one.run()
    assert not summary(one.results)["missing"]
    assert [row["then"] for row in one.results.failures()] == ["again"]
    assert [row["reason"] for row in one.results.failures()] == ["connection_error"]


def test_but_not_for_ever(tmp_path: Path) -> None:
    one, _ = made(tmp_path, lambda order, *_: NETWORK if order.key.startswith("trial/b") else 0)

    assert one.run()
    assert [row["then"] for row in one.results.failures()] == ["again", "again", "left"]


def test_a_trial_of_several_is_parted_before_anybody_is_blamed(tmp_path: Path) -> None:
    one, fleet = made(tmp_path, lambda order, *_: KEY_ERROR if "b/" in order.key else 0, joined=",")

    assert one.run()
    assert fleet.started[0][0].count("+") == 2
    assert [row["then"] for row in one.results.failures()] == ["parted", "left"]
    assert set(summary(one.results)["datasets"]) == {"a", "c"}


def test_what_is_lost_runs_again_without_a_diagnosis(tmp_path: Path) -> None:
    one, _ = made(tmp_path, lambda order, _, time: None if order.key.startswith("trial/b") and time < 3 else 0)

    assert one.run()
    assert not summary(one.results)["missing"]
    assert one.results.failures() == []


def test_what_is_lost_again_and_again_is_left(tmp_path: Path) -> None:
    one, fleet = made(tmp_path, lambda order, *_: None if order.key.startswith("trial/b") else 0)

    assert one.run()
    assert set(summary(one.results)["datasets"]) == {"a", "c"}
    assert [what for what, _ in fleet.started].count("trial/b/0-40") == 6 + 1 + 2, (
        "then it counts as a failure, with two retries"
    )


def test_a_node_that_died_unnoticed_does_not_eat_one_piece_after_the_other(tmp_path: Path) -> None:
    """All that is sent there is lost at once, as on a Ray node whose death is not known yet. It rests longer each time."""
    one, fleet = made(tmp_path, lambda order, node, _: None if node == "n0" else 0, nodes=2)

    assert one.run()
    assert not summary(one.results)["missing"]
    assert one.results.failures() == []
    assert sum(node == "n0" for _, node in fleet.started) <= 4


@pytest.mark.parametrize("joined", [None, "+"], ids=["one by one", "joined"])
def test_what_a_lost_piece_had_brought_does_not_run_again(tmp_path: Path, joined: str | None) -> None:
    """Each process dies between its work and its last word; of data sets that run together, the last is not in place yet."""
    one, fleet = made(tmp_path, lambda *_: 0, joined=joined)
    start, begun = fleet.start, []

    def lost(order: Order, node: str, *, on_place: bool) -> None:
        start(order, node, on_place=on_place)
        fleet.die()
        names = [Path(target).parent.name for _, target in order.moves]
        begun.extend((order.key.partition("/")[0], name) for name in names)
        if len(names) > 1:
            Path(order.moves[-1][1]).rmdir()
            begun.remove(("trial", names[-1]))

    fleet.start = lost  # type: ignore[method-assign]
    assert one.run()
    assert not summary(one.results)["missing"]
    assert sorted(begun) == sorted((kind, name) for kind in ("trial", "metric") for name in "abc"), "each of them once"


def test_a_node_that_is_gone_leaves_what_it_finished(tmp_path: Path) -> None:
    one, fleet = made(tmp_path, lambda *_: 0, nodes=2)
    start = fleet.start

    def then_gone(order: Order, node: str, *, on_place: bool) -> None:
        start(order, node, on_place=on_place)
        if len(fleet.started) == 2:
            fleet.vanish("n0")

    fleet.start = then_gone  # type: ignore[method-assign]
    assert one.run()
    assert "n0" in {node for _, node in fleet.started}
    assert not summary(one.results)["missing"]
    assert len(fleet.started) == 6, "three trials and three metrics"


def test_a_bad_node_gets_nothing_more(tmp_path: Path) -> None:
    one, fleet = made(tmp_path, lambda order, node, _: ECC if node == "n0" and order.key.startswith("trial") else 0, nodes=2)

    assert one.run()
    assert not summary(one.results)["missing"]
    assert sum(node == "n0" and what.startswith("trial") for what, node in fleet.started) == 1


def test_a_node_that_is_gone_and_one_that_came(tmp_path: Path) -> None:
    one, fleet = made(tmp_path, lambda *_: 0, nodes=2)
    first = fleet.ended

    def ended(patience_s: float) -> list[Ended]:
        fleet.there = [Node("n1", 1, 1), Node("new", 1, 1)]
        return first(patience_s)

    fleet.ended = ended  # type: ignore[method-assign]
    assert one.run()
    assert not summary(one.results)["missing"]
    assert {node for _, node in fleet.started} == {"n0", "n1", "new"}


def test_scores_that_cannot_be_used_are_a_failure_of_the_metric(tmp_path: Path) -> None:
    one, fleet = made(tmp_path, lambda *_: 0)
    read = fleet.start

    def start(order: Order, node: str, *, on_place: bool) -> None:
        read(order, node, on_place=on_place)
        if order.key.startswith("metric/c"):
            Path(order.moves[0][1]).write_text('{"scores": {"acc": NaN}}')

    fleet.start = start  # type: ignore[method-assign]
    assert one.run()
    assert summary(one.results)["missing"]["c"]["reason"] == "unusable_scores"


@pytest.mark.parametrize("wish", [Wish(stop=True), Wish(drain=True)], ids=["stop", "drain"])
def test_it_gives_way_and_goes_on_later(tmp_path: Path, wish: Wish) -> None:
    """The wish comes once the first piece has ended."""
    told = Wish()
    one, fleet = made(tmp_path, lambda *_: 0, wish=told)
    first = fleet.ended

    def ended(patience_s: float) -> list[Ended]:
        told.stop, told.drain = wish.stop, wish.drain
        return first(patience_s)

    fleet.ended = ended  # type: ignore[method-assign]
    assert not one.run()
    before = [what for what, _ in fleet.started]
    again, fleet = made(tmp_path, lambda *_: 0)

    assert again.run()
    assert not summary(again.results)["missing"]
    assert len(before) == 1
    assert before[0] not in [what for what, _ in fleet.started]
