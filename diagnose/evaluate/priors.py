"""What earlier evaluations took, kept in an SQLite file -> what to expect of the next one."""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diagnose.errors import DiagnoseError
from diagnose.evaluate.estimates import MEASURED, SHARED_NOISE, Belief, Estimates, Overheads
from diagnose.evaluate.work import Load, Piece, Scoring

_RUNS = 9
"""measurements of a data set that count: the latest"""
_MANY = 200
_SCHEMA = """
CREATE TABLE IF NOT EXISTS measured (
    id INTEGER PRIMARY KEY, model TEXT NOT NULL, kind TEXT NOT NULL, dataset TEXT NOT NULL,
    samples INTEGER NOT NULL, seconds REAL NOT NULL, shared INTEGER NOT NULL, at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS latest ON measured (model, kind, dataset, id);
"""


@dataclass(frozen=True, slots=True)
class _Row:
    samples: int
    seconds: float
    shared: bool


def usual_path() -> Path:
    """Where measurements are kept if the plan does not say it."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(base, "diagnose", "evaluations.db")


class Priors:
    """The measurements of one kind of model. ``model``: its label, such as 7b."""

    def __init__(self, path: Path, model: str) -> None:
        self.path, self.model = path, model
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            self._connection.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            remedy = "give another file with   priors: FILE   in the plan, or remove this one"
            raise DiagnoseError(f"no measurements can be kept: {error}", where=str(path), remedy=remedy) from None

    def close(self) -> None:
        self._connection.close()

    def add(self, piece: Piece, took_s: float, estimates: Estimates, at: float) -> None:
        """A piece took so long. The time of several data sets together is shared out as it was believed."""
        with self._writing():
            for row in _rows(piece, took_s, estimates):
                self._connection.execute(
                    "INSERT INTO measured (model, kind, dataset, samples, seconds, shared, at) VALUES (?,?,?,?,?,?,?)",
                    (self.model, *row, at),
                )

    def estimates(self, usual: Overheads) -> Estimates:
        """What is known of each data set that was measured."""
        trials, metrics = self._rows("trial"), self._rows("metric")
        loads = [row.seconds for rows in self._rows("load").values() for row in rows[-_RUNS:]]
        start = _fixed(trials)
        fixed = start if start is not None else usual.start_s + usual.prepare_s
        prepare = min(usual.prepare_s, fixed)
        over = replace(
            usual,
            start_s=fixed - prepare,
            prepare_s=prepare,
            load_s=statistics.median(loads) if loads else usual.load_s,
            metric_s=_or(_fixed(metrics), usual.metric_s),
        )
        return Estimates(
            {name: _belief(rows, fixed) for name, rows in trials.items()},
            {name: _belief(rows, over.metric_s) for name, rows in metrics.items()},
            over,
        )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise

    def _rows(self, kind: str) -> dict[str, list[_Row]]:
        """data set -> its latest measurements, the oldest first"""
        found: dict[str, list[_Row]] = defaultdict(list)
        query = "SELECT dataset, samples, seconds, shared FROM measured WHERE model = ? AND kind = ? ORDER BY id DESC"
        for name, samples, seconds, shared in self._connection.execute(query, (self.model, kind)):
            if len(found[name]) < _MANY:
                found[name].append(_Row(samples, seconds, bool(shared)))
        return {name: rows[::-1] for name, rows in found.items()}


def _rows(piece: Piece, took_s: float, estimates: Estimates) -> Iterator[tuple[str, str, int, float, bool]]:
    if isinstance(piece, Load):
        yield "load", piece.node, 1, took_s, False
    elif isinstance(piece, Scoring):
        yield "metric", piece.shard.dataset, piece.shard.count, took_s, False
    elif len(piece.shards) == 1:
        yield "trial", piece.shards[0].dataset, piece.shards[0].count, took_s, False
    else:
        over = estimates.overheads
        net = max(took_s - over.start_s - over.prepare_s * len(piece.shards), took_s * 0.05)
        shares = [estimates.trials[shard.dataset].seconds * shard.count for shard in piece.shards]
        for shard, share in zip(piece.shards, shares, strict=True):
            yield "trial", shard.dataset, shard.count, net * share / sum(shares), True


def _fixed(measured: dict[str, list[_Row]]) -> float | None:
    """What a piece takes however few its samples are: from data sets that were run in pieces of different sizes."""
    found = []
    for rows in measured.values():
        alone = [row for row in rows if not row.shared][-_RUNS * 4 :]
        slopes = [
            (one.seconds - other.seconds) / (one.samples - other.samples)
            for number, one in enumerate(alone)
            for other in alone[:number]
            if max(one.samples, other.samples) >= 2 * min(one.samples, other.samples)
        ]
        if slopes:
            slope = max(statistics.median(slopes), 0.0)
            found.append(max(0.0, statistics.median(row.seconds - slope * row.samples for row in alone)))
    return statistics.median(found) if found else None


def _belief(rows: Sequence[_Row], fixed_s: float) -> Belief:
    alone = [row for row in rows if not row.shared]
    latest = (alone or list(rows))[-_RUNS:]
    rates = [max(row.seconds - (0 if row.shared else fixed_s), row.seconds * 0.05) / row.samples for row in latest]
    logs = [math.log(max(rate, 1e-9)) for rate in rates]
    spread = statistics.stdev(logs) if len(logs) > 2 else 0.0
    return Belief(math.exp(statistics.median(logs)), max(spread, MEASURED if alone else SHARED_NOISE))


def _or(value: float | None, other: float) -> float:
    return other if value is None else value
