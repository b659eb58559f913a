"""Carry out a plan: start what the dispatch says, note what ended, and go on from what the folder of the results has.

It holds nothing that is not on disk: killed at any moment, the next one goes on where it was.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.errors import DiagnoseError
from diagnose.evaluate import copied, merging, trouble
from diagnose.evaluate.carry import Order
from diagnose.evaluate.dispatch import Dispatch
from diagnose.evaluate.expectation import Span
from diagnose.evaluate.fleets.fleet import Ended, Fleet
from diagnose.evaluate.priors import Priors
from diagnose.evaluate.results import Results, append
from diagnose.evaluate.work import Load, Piece, Scoring, Shard, Trial, shards_of

_LOST_AGAIN = 6
"""so often a piece may be lost with its process or its node"""
_LONGEST_REST_S = 32.0
_TURN_S = 1.0


@dataclass(slots=True)
class Wish:
    """What a signal asks for."""

    stop: bool = False
    """end what runs, at once"""
    drain: bool = False
    """start nothing new, and let end what runs"""


@dataclass(slots=True)
class Coordinator:
    """One run of an evaluation."""

    results: Results
    fleet: Fleet
    dispatch: Dispatch
    priors: Priors
    retries: int
    say: Callable[[str], None]
    wish: Wish = field(default_factory=Wish)
    turn: Callable[[], None] = lambda: None
    """called about once a second: whoever wants something meanwhile sets the wish"""
    _running: dict[str, Piece] = field(default_factory=dict)
    _logs: dict[str, Path] = field(default_factory=dict)
    _tries: Counter[str] = field(default_factory=Counter)
    _lost: Counter[str] = field(default_factory=Counter)
    _losses: Counter[str] = field(default_factory=Counter)
    """node -> pieces that were lost there, with none that ended well since"""
    _rests: dict[str, float] = field(default_factory=dict)
    """node -> until when it gets nothing"""
    _unloaded: set[str] = field(default_factory=set)
    """nodes into whose memory the model did not come"""
    _number: int = 0

    def run(self) -> bool:
        """Whether it came to an end, and was not stopped before."""
        shutil.rmtree(self.results.folder / "scratch", ignore_errors=True)
        logs = self.results.folder / "logs"
        self._number = sum(1 for _ in logs.iterdir()) if logs.is_dir() else 0
        try:
            while not self.dispatch.finished and not self.wish.stop:
                self._meet_nodes()
                self.turn()
                if not self.wish.drain:
                    for piece, node in self.dispatch.next():
                        if self._finished(piece):  # by a process that we took for lost
                            self._give_back(piece)
                        else:
                            self._start(piece, node)
                elif not self._running:
                    break
                for ended in self.fleet.ended(_TURN_S):
                    self._end(ended)
        finally:
            self._clean_up()
        return self.dispatch.finished

    def _clean_up(self) -> None:
        self.fleet.stop()
        if self.results.suite.load == "copy":
            self.fleet.forget(copied.place(self.results.folder))
        shutil.rmtree(self.results.folder / "scratch", ignore_errors=True)

    def _meet_nodes(self) -> None:
        there = {node.name: node for node in self.fleet.nodes()}
        for name in set(self.dispatch.nodes) - set(there):
            self.say(f"{name} is gone; what ran there runs again")
            lost = {piece for piece, node in self.dispatch.running.items() if node == name}
            self._running = {key: piece for key, piece in self._running.items() if piece not in lost}
            for piece in lost:
                self._give_back(piece)
            self.dispatch.leave(name)
        for name in set(there) - set(self.dispatch.nodes):
            self.dispatch.join(there[name])
        now = time.monotonic()
        self.dispatch.resting = {name for name, until in self._rests.items() if until > now and name in there}

    # --- starting

    def _start(self, piece: Piece, node: str) -> None:
        order = self._order(piece, node)
        self._running[order.key], self._logs[piece.key] = piece, Path(order.log)
        self.fleet.start(order, node, on_place=isinstance(piece, Trial))

    def _order(self, piece: Piece, node: str) -> Order:
        self._number += 1
        source, memory = self.results.checkpoint, copied.place(self.results.folder)
        if isinstance(piece, Load):
            command = (sys.executable, "-m", "diagnose.evaluate.copied", str(source), str(memory))
            return self.results.without_outputs(piece, self._number, command)
        in_memory = isinstance(piece, Trial) and self.results.suite.load == "copy" and node not in self._unloaded
        return self.results.order(piece, self._number, memory / source.name if in_memory else source)

    # --- ending

    def _end(self, ended: Ended) -> None:
        piece = self._running.pop(ended.key, None)
        if piece is None:
            return  # of a node that was gone
        node = self.dispatch.running[piece]
        if ended.status is None and self._finished(piece):  # nobody knows how long it took
            self.results.add_span(Span(piece, node, ended.begin_s, ended.end_s), True)
            self._give_back(piece)
            return
        well = ended.status == 0
        problem = self._unusable(piece) if well else None
        span = Span(piece, node, ended.begin_s, ended.end_s)
        self.results.add_span(span, well and problem is None)
        if ended.status is not None:
            self._losses.pop(node, None)
        if well and problem is None:
            took = ended.end_s - ended.begin_s
            self.priors.add(piece, took, self.dispatch.estimates, ended.end_s)
            self.dispatch.ended(piece, took)
        elif ended.status is None and self._may_be_lost(piece):
            self._give_back(piece)
            self._rest(node)
        else:
            self._fail(piece, node, ended.status, problem)

    def _held(self, piece: Piece) -> tuple[Shard, ...]:
        """What lies in its place already: a process may die between its work and its last word."""
        held = self.results.held(piece)
        return held if held and self._unusable(piece) is None else ()

    def _finished(self, piece: Piece) -> bool:
        return not isinstance(piece, Load) and self._held(piece) == shards_of(piece)

    def _give_back(self, piece: Piece) -> None:
        """It runs again, but for what it had already brought."""
        self.dispatch.give_back(piece, self._held(piece))

    def _rest(self, node: str) -> None:
        """A node that died is noticed after a while only, and would lose one piece after the other until then."""
        self._losses[node] += 1
        if len(self.dispatch.nodes) > 1:
            self._rests[node] = time.monotonic() + min(2.0 ** (self._losses[node] - 1), _LONGEST_REST_S)

    def _may_be_lost(self, piece: Piece) -> bool:
        """It was killed from outside, and says nothing about itself; unless that happens again and again."""
        self._lost[piece.key] += 1
        return self._lost[piece.key] <= _LOST_AGAIN

    def _unusable(self, piece: Piece) -> str | None:
        """What is wrong with what a metric wrote."""
        if not isinstance(piece, Scoring):
            return None
        path = self.results.scores(piece.shard)
        try:
            merging.read(path, piece.shard)
        except DiagnoseError as error:
            path.unlink(missing_ok=True)
            return str(error)
        return None

    def _fail(self, piece: Piece, node: str, status: int | None, problem: str | None) -> None:
        """Diagnose, and then try again or leave it."""
        self._tries[piece.key] += 1
        log = self._logs[piece.key]
        told = trouble.found(log, status) if problem is None else None
        again = self._tries[piece.key] <= self.retries and problem is None and told is not None and told.is_passing
        parted = isinstance(piece, Trial) and len(piece.shards) > 1
        row: dict[str, Any] = {
            "key": piece.key, "node": node, "status": status, "log": str(log), "at": time.time(),
            "reason": told.reason if told is not None else "unusable_scores",
            "summary": told.summary if told is not None else problem,
            "line": told.line if told is not None else None,
            "text": told.text if told is not None else None,
            "mitigation": told.mitigation if told is not None else "Read what the metric writes.",
            "then": "parted" if parted else "again" if again else "left",
        }  # fmt: skip
        append(self.results.folder / "failures.jsonl", row)
        then = {"parted": "its data sets run one by one", "again": "it runs again", "left": "it is left out"}[row["then"]]
        self.say(f"{piece.key} failed on {node}: {row['summary']} ({row['reason']}, {log}); {then}")
        if isinstance(piece, Load):
            self._unloaded.add(piece.node)
            self.dispatch.give_up(piece)
        elif parted or again:
            self._give_back(piece)
        else:
            self.dispatch.give_up(piece)
        if told is not None and told.is_of_the_node and set(self.dispatch.nodes) - self.dispatch.left_alone - {node}:
            self.say(f"{node} gets nothing more")
            self.dispatch.left_alone.add(node)
