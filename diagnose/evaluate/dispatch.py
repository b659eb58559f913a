"""What starts now, and where: the plan, what is free, and what has ended, in one place that reads no clock and starts nothing.

The coordinator and the simulator ask it the same way, so what is simulated is what runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from diagnose.evaluate import cutting
from diagnose.evaluate.cutting import Cut
from diagnose.evaluate.estimates import Estimates
from diagnose.evaluate.suite import DataSet, Node, Suite
from diagnose.evaluate.work import Load, Piece, Scoring, Shard, Trial, shards_of

_ENOUGH = 3
"""data sets that were measured before they say something about the others"""


class Dispatch:
    """The state of one evaluation."""

    def __init__(
        self,
        suite: Suite,
        nodes: Iterable[Node],
        estimates: Estimates,
        how: Cut,
        *,
        done: Iterable[Piece] = (),
        adapts: bool = True,
    ) -> None:
        """``done``: pieces that an earlier coordinator finished. ``adapts``: it learns from what has ended."""
        self.suite, self.how, self.estimates = suite, how, estimates
        self.given_up: set[str] = set()
        """data sets that cannot be finished"""
        self.running: dict[Piece, str] = {}
        self.nodes: dict[str, Node] = {}
        self.left_alone: set[str] = set()
        """nodes that get nothing more; what runs there may end"""
        self.resting: set[str] = set()
        """nodes that get nothing for now: perhaps they are gone, and nobody has noticed yet"""
        self._datasets = {one.name: one for one in suite.datasets}
        self._at_first = self._believed = estimates
        self._adapts = adapts
        self._alone: set[str] = set()
        self._begun: set[str] = set()
        self._factors: dict[str, float] = {}
        self._places: dict[str, int] = {}
        self._processors: dict[str, int] = {}
        self._loaded: dict[str, bool | None] = {}  # None: it is being loaded
        self._scoring: dict[str, int] = defaultdict(int)
        self._tried: dict[str, set[Shard]] = defaultdict(set)
        self._scored: dict[str, int] = defaultdict(int)
        self._ready: list[Scoring] = []
        for node in nodes:
            self.join(node)
        self._left = {one.name: [Shard(one.name, 0, one.samples)] for one in suite.datasets}
        self._take_over(done)

    # --- nodes

    def join(self, node: Node) -> None:
        """A node is there."""
        self.nodes[node.name], self._places[node.name], self._processors[node.name] = node, node.places, node.processors
        self._loaded[node.name] = self.suite.load == "none"

    def leave(self, name: str) -> None:
        """A node is gone. What ran there waits again."""
        for piece in [piece for piece, node in self.running.items() if node == name]:
            self.give_back(piece)
        for known in (self.nodes, self._places, self._processors, self._loaded):
            known.pop(name, None)

    # --- what starts

    def next(self) -> list[tuple[Piece, str]]:
        """The pieces that start now, each with its node. They count as running from now on."""
        found: list[tuple[Piece, str]] = []
        if self._waits:
            for name in [
                name
                for name, loaded in self._loaded.items()
                if loaded is False and self._places[name] and name not in self.resting
            ]:
                self._loaded[name] = None
                self.running[Load(name)] = name
                found.append((Load(name), name))
        while (place := self._free_place()) is not None and (trial := self._take()) is not None:
            found.append(self._start(trial, place))
        for scoring in self._ready:
            metric = self._datasets[scoring.shard.dataset].metric
            if metric.at_once is not None and self._scoring[scoring.shard.dataset] >= metric.at_once:
                continue
            if (free := self._free_processors(metric.processors)) is not None:
                found.append(self._start(scoring, free))
        self._ready = [scoring for scoring in self._ready if scoring not in self.running]
        return found

    @property
    def _waits(self) -> bool:
        return any(self._left.values())

    def _take(self) -> Trial | None:
        places = sum(node.places for node in self.nodes.values())
        untried = self.estimates.unknown - self._begun
        trial = cutting.take(self.suite, self.estimates, self._left, places, self.how, self._alone, untried)
        for shard in trial.shards if trial is not None else ():
            self._begun.add(shard.dataset)
            self._left[shard.dataset] = [gap for one in self._left[shard.dataset] for gap in gaps(one, [shard])]
        return trial

    def _free_place(self) -> str | None:
        open_ = (name for name in self._places if self._loaded[name] and self._is_open(name))
        most = max(open_, key=lambda name: self._places[name], default=None)
        return most if most is not None and self._places[most] > 0 else None

    def _free_processors(self, wanted: int) -> str | None:
        """A metric that wants more than any node has gets a whole node."""
        open_ = (name for name in self._processors if self._is_open(name))
        most = max(open_, key=lambda name: self._processors[name], default=None)
        if most is None or self._processors[most] < min(wanted, self.nodes[most].processors):
            return None
        return most

    def _is_open(self, name: str) -> bool:
        return name not in self.left_alone and name not in self.resting

    def _start(self, piece: Trial | Scoring, name: str) -> tuple[Piece, str]:
        self.running[piece] = name
        if isinstance(piece, Trial):
            self._places[name] -= 1
        else:
            self._processors[name] -= self._wanted(piece, name)
            self._scoring[piece.shard.dataset] += 1
        return piece, name

    def _wanted(self, piece: Scoring, name: str) -> int:
        return min(self._datasets[piece.shard.dataset].metric.processors, self.nodes[name].processors)

    # --- what ended

    def ended(self, piece: Piece, took_s: float) -> None:
        """It is finished."""
        self._free(piece)
        if isinstance(piece, Load):
            self._loaded[piece.node] = True
            return
        if self._adapts:
            self._learn(piece, took_s)
        self._finish(piece)

    def give_back(self, piece: Piece, held: Collection[Shard] = ()) -> None:
        """It did not finish, and is to run again: its node is gone, or it gave way. A trial of several is parted.

        ``held``: those of its shards that are finished all the same.
        """
        self._free(piece)
        match piece:
            case Load():
                self._loaded[piece.node] = False
            case Scoring():
                self._finish(piece) if held else self._put(piece)
            case Trial():
                left = [shard for shard in piece.shards if shard not in held]
                if held:
                    self._finish(Trial(tuple(held)))
                for shard in left:
                    self._left[shard.dataset] = joined([*self._left[shard.dataset], shard])
                if len(piece.shards) > 1:
                    self._alone.update(shard.dataset for shard in left)

    def give_up(self, piece: Piece) -> None:
        """It cannot be finished. What is left of its data sets is left out."""
        if isinstance(piece, Load):  # trials read the model from storage, then
            self._free(piece)
            self._loaded[piece.node] = True
            return
        self._free(piece)
        self.given_up.update(shard.dataset for shard in shards_of(piece))
        self._left.update({name: [] for name in self.given_up})
        self._ready = [scoring for scoring in self._ready if scoring.shard.dataset not in self.given_up]

    @property
    def finished(self) -> bool:
        return not (self._waits or self._ready or self.running)

    def whole(self, name: str) -> bool:
        """All samples of a data set are scored."""
        return self._scored[name] >= self._datasets[name].samples

    def tried(self, name: str) -> list[Shard]:
        """The shards whose trials are finished."""
        return sorted(self._tried[name])

    # --- inside

    def _free(self, piece: Piece) -> None:
        name = self.running.pop(piece)
        if name not in self.nodes:
            return
        if isinstance(piece, Trial):
            self._places[name] += 1
        elif isinstance(piece, Scoring):
            self._processors[name] += self._wanted(piece, name)
            self._scoring[piece.shard.dataset] -= 1

    def _finish(self, piece: Trial | Scoring) -> None:
        if isinstance(piece, Scoring):
            self._scored[piece.shard.dataset] += piece.shard.count
            return
        for shard in piece.shards:
            self._tried[shard.dataset].add(shard)
            if shard.dataset not in self.given_up:
                self._score(self._datasets[shard.dataset], shard)

    def _score(self, dataset: DataSet, shard: Shard) -> None:
        whole = Shard(dataset.name, 0, dataset.samples)
        if dataset.metric.split:
            for piece in cutting.scorings(dataset, shard, self.estimates, self.how):
                self._put(piece)
        elif sum(one.count for one in self._tried[dataset.name]) == dataset.samples:
            self._put(Scoring(whole))

    def _put(self, piece: Scoring) -> None:
        self._ready.append(piece)
        self._ready.sort(key=self.estimates.seconds, reverse=True)

    def _take_over(self, done: Iterable[Piece]) -> None:
        pieces = list(done)
        scored = {piece.shard for piece in pieces if isinstance(piece, Scoring)}
        for piece in pieces:
            for shard in piece.shards if isinstance(piece, Trial) else ():
                self._tried[shard.dataset].add(shard)
        for shard in scored:
            self._scored[shard.dataset] += shard.count
        for name, shards in self._tried.items():
            dataset = self._datasets[name]
            self._left[name] = gaps(Shard(name, 0, dataset.samples), shards)
            if not dataset.metric.split:
                if not self.whole(name) and sum(one.count for one in shards) == dataset.samples:
                    self._put(Scoring(Shard(name, 0, dataset.samples)))
                continue
            for shard in sorted(shards):
                for gap in gaps(shard, [one for one in scored if one.dataset == name]):
                    for piece in cutting.scorings(dataset, gap, self.estimates, self.how):
                        self._put(piece)

    def _learn(self, piece: Trial | Scoring, took_s: float) -> None:
        """What this piece says about its data set; and what all of them together say about those not yet seen."""
        self._believed = self._believed.after(piece, took_s)
        for shard in piece.shards if isinstance(piece, Trial) else ():
            name = shard.dataset
            self._factors[name] = self._believed.trials[name].seconds / self._at_first.trials[name].seconds
        unseen = {name for name, left in self._left.items() if left} - set(self._factors)
        self.estimates = self._believed
        if len(self._factors) >= _ENOUGH and unseen:
            self.estimates = self._believed.scaled(unseen, self._factors.values())


def gaps(whole: Shard, taken: Iterable[Shard]) -> list[Shard]:
    """The samples of ``whole`` that are in none of the others."""
    found, at, end = [], whole.first, whole.first + whole.count
    for shard in sorted(taken):
        if shard.first > at:
            found.append(Shard(whole.dataset, at, min(shard.first, end) - at))
        at = max(at, shard.first + shard.count)
        if at >= end:
            return [one for one in found if one.count > 0]
    return [*found, Shard(whole.dataset, at, end - at)]


def joined(shards: Iterable[Shard]) -> list[Shard]:
    """With neighbours as one."""
    found: list[Shard] = []
    for shard in sorted(shards):
        if found and found[-1].first + found[-1].count == shard.first:
            found[-1] = Shard(shard.dataset, found[-1].first, found[-1].count + shard.count)
        else:
            found.append(shard)
    return found
