"""Past incidents: failures whose cause is known, found again by the words and the meaning of their root lines.

``Incidents`` is what a store must offer; ``SqliteIncidents`` is one in a file. Words are looked up in an FTS5 index. Vectors
are compared in NumPy, all of them: a cluster has thousands of incidents, not millions, and that takes milliseconds; an
extension for vectors would be a binary that many builds of Python refuse to load.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from diagnose.diagnosis.evidence import normal
from diagnose.errors import DiagnoseError

LEAST_WORDS, LEAST_COSINE = 0.34, 0.8
"""from which share of words in common, or cosine, a line counts as similar"""

_WORD = re.compile(r"(?<![A-Za-z0-9_/])[A-Za-z_][A-Za-z0-9_]+")
_MOST_WORDS = 24
_MOST_ROWS = 50
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Incident:
    """A failure whose cause is known. Its texts have been redacted: they are shown to a model in other jobs' questions."""

    id: str
    """the job's and its attempt's: the same incident is remembered once"""
    reason: str
    line: str
    """the body of its root line"""
    summary: str
    mitigation: str | None = None
    group: str | None = None
    by: str = "person"
    """who confirmed it: person | action"""


@dataclass(frozen=True, slots=True)
class Vectors:
    """What texts mean, to one embedding model: vectors of different models cannot be compared."""

    model: str
    rows: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Similar:
    incident: Incident
    score: float
    """0 to 1"""
    line: int
    """which of the lines that were asked about it resembles"""


class Incidents(Protocol):
    """A store of past incidents. May be called from any thread."""

    def remember(self, incident: Incident, vectors: Vectors | None = None) -> None:
        """Enter an incident, or replace it. ``vectors`` has one row, for its root line."""

    def similar(self, lines: Sequence[str], vectors: Vectors | None, k: int) -> list[Similar]:
        """Up to ``k`` incidents whose root line resembles one of ``lines`` (bodies), the most similar first."""

    def incidents(self) -> list[Incident]:
        """All of them, oldest first."""


def words(text: str) -> list[str]:
    """The words of a line by which it is found again: no numbers, paths and hosts, each once, in lower case."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(normal(text))))


def in_common(one: Sequence[str], other: Sequence[str]) -> float:
    """The share of words that two lines have in common."""
    first, second = set(one), set(other)
    return len(first & second) / len(first | second) if first and second else 0.0


def fts_query(terms: Iterable[str]) -> str:
    """A query of FTS5 for any of these words. They are quoted, so none of them is an operator."""
    return " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)


class SqliteIncidents:
    """``Incidents`` in one SQLite file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        try:
            if str(path) != ":memory:":
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(path, timeout=10, check_same_thread=False)
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            remedy = "give a file that can be written; SQLite must have FTS5"
            raise DiagnoseError(f"past incidents cannot be opened: {error}", where=str(path), remedy=remedy) from None

    def close(self) -> None:
        self._base.close()

    def remember(self, incident: Incident, vectors: Vectors | None = None) -> None:
        row = np.asarray(vectors.rows[0], dtype="<f4").tobytes() if vectors and len(vectors.rows) else None
        with self._lock, self._base:
            self._forget(incident.id)
            done = self._base.execute(
                "insert into incidents (id, fields, embedder, vector, remembered) values (?,?,?,?,?)",
                (incident.id, json.dumps(asdict(incident)), vectors.model if row and vectors else None, row, time.time()),
            )
            self._base.execute(
                "insert into incident_words (rowid, words) values (?,?)", (done.lastrowid, " ".join(words(incident.line)))
            )

    def similar(self, lines: Sequence[str], vectors: Vectors | None, k: int) -> list[Similar]:
        with self._lock:
            found = self._by_words(lines)
            if vectors is not None:
                self._by_meaning(vectors, found)
        return sorted(found.values(), key=lambda one: -one.score)[:k]

    def incidents(self) -> list[Incident]:
        with self._lock:
            rows = self._base.execute("select fields from incidents order by remembered, id").fetchall()
        return [Incident(**json.loads(row[0])) for row in rows]

    def _by_words(self, lines: Sequence[str]) -> dict[str, Similar]:
        found: dict[str, Similar] = {}
        for number, line in enumerate(lines):
            if not (asked := words(line)[:_MOST_WORDS]):
                continue
            rows = self._base.execute(
                "select fields from incident_words join incidents on incidents.number = incident_words.rowid"
                " where incident_words match ? order by bm25(incident_words) limit ?",
                (fts_query(asked), _MOST_ROWS),
            )
            for (fields,) in rows:
                incident = Incident(**json.loads(fields))
                _better(found, Similar(incident, in_common(asked, words(incident.line)), number), LEAST_WORDS)
        return found

    def _by_meaning(self, vectors: Vectors, found: dict[str, Similar]) -> None:
        asked = np.asarray(vectors.rows, dtype=np.float32)
        if asked.ndim != 2 or not asked.size:
            return
        known: list[tuple[str, bytes]] = self._base.execute(
            "select fields, vector from incidents where embedder = ? and length(vector) = ?",
            (vectors.model, 4 * asked.shape[1]),
        ).fetchall()
        if not known:
            return
        stored = np.frombuffer(b"".join(row[1] for row in known), dtype="<f4").reshape(len(known), -1)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            cosine = _unit(asked) @ _unit(stored).T
        cosine = np.nan_to_num(cosine, nan=0.0, posinf=0.0, neginf=0.0)
        for column, line in enumerate(cosine.argmax(axis=0).tolist()):
            score = float(cosine[line, column])
            _better(found, Similar(Incident(**json.loads(known[column][0])), min(score, 1.0), line), LEAST_COSINE)

    def _forget(self, incident: str) -> None:
        row = self._base.execute("select number from incidents where id = ?", (incident,)).fetchone()
        if row:
            self._base.execute("delete from incident_words where rowid = ?", row)
            self._base.execute("delete from incidents where number = ?", row)

    def _prepare(self) -> None:
        (version,) = self._base.execute("pragma user_version").fetchone()
        if version > _VERSION:
            remedy = "update diagnose, or give another file"
            raise DiagnoseError("past incidents were written by a later version", where=str(self.path), remedy=remedy)
        with self._base:
            self._base.execute(
                "create table if not exists incidents (number integer primary key, id text not null unique,"
                " fields text not null, embedder text, vector blob, remembered real not null)"
            )
            self._base.execute("create virtual table if not exists incident_words using fts5(words)")
            self._base.execute(f"pragma user_version = {_VERSION}")


def _unit(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    scaled: np.ndarray[Any, Any] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


def _better(found: dict[str, Similar], one: Similar, least: float) -> None:
    known = found.get(one.incident.id)
    if one.score >= least and (known is None or known.score < one.score):
        found[one.incident.id] = one
