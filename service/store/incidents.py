"""Past incidents in the service's database: an ``agent.incidents.Incidents``.

Words are looked up in our own table, one row per word and incident. The full-text indexes of SQLite and PostgreSQL rank
differently, and we score the results anyway. Vectors are compared in NumPy, as in the store of the command line: a cluster has
some thousand incidents, which takes milliseconds, and pgvector is not everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
from sqlalchemy import Connection, delete, func, insert, select

from diagnose.agent.incidents import LEAST_COSINE, LEAST_WORDS, Incident, Similar, Vectors, in_common, words
from service.store import Store, groups
from service.store import tables as t

_MOST_WORDS, _MOST_ROWS = 24, 50
_MOST_ROOTS = 5_000


class StoreIncidents:
    """Any thread may call this. Each call is one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def remember(self, incident: Incident, vectors: Vectors | None = None) -> None:
        row = np.asarray(vectors.rows[0], dtype="<f4").tobytes() if vectors and len(vectors.rows) else None

        def work(connection: Connection) -> None:
            i = t.incidents.c
            known = connection.execute(select(i.number).where(i.id == incident.id)).scalar()
            if known is not None:
                connection.execute(delete(t.incident_words).where(t.incident_words.c.number == known))
                connection.execute(delete(t.incidents).where(i.number == known))
            number = connection.execute(
                insert(t.incidents)
                .values(
                    id=incident.id,
                    fields=asdict(incident),
                    embedder=vectors.model if row and vectors else None,
                    vector=row,
                    remembered=time.time(),
                )
                .returning(i.number)
            ).scalar_one()
            said = words(incident.line)
            if said:
                connection.execute(insert(t.incident_words), [{"word": word, "number": number} for word in said])

        self._store.write(work)

    def similar(self, lines: Sequence[str], vectors: Vectors | None, k: int) -> list[Similar]:
        def work(connection: Connection) -> dict[str, Similar]:
            found = _by_words(connection, lines)
            if vectors is not None:
                _by_meaning(connection, vectors, found)
            return found

        return sorted(self._store.read(work).values(), key=lambda one: -one.score)[:k]

    def incidents(self) -> list[Incident]:
        i = t.incidents.c
        rows = self._store.read(lambda connection: connection.execute(select(i.fields).order_by(i.remembered, i.id)).all())
        return [Incident(**row.fields) for row in rows]

    def roots(self) -> list[str]:
        """The lines that confirmed failures began with, and those of failures that nobody has confirmed."""
        return [one.line for one in self.incidents()] + self._store.read(
            lambda connection: groups.roots(connection, _MOST_ROOTS)
        )


def _by_words(connection: Connection, lines: Sequence[str]) -> dict[str, Similar]:
    found: dict[str, Similar] = {}
    w, i = t.incident_words.c, t.incidents.c
    for number, line in enumerate(lines):
        if not (asked := words(line)[:_MOST_WORDS]):
            continue
        most = (
            select(w.number, func.count().label("common"))
            .where(w.word.in_(asked))
            .group_by(w.number)
            .order_by(func.count().desc(), w.number.desc())
            .limit(_MOST_ROWS)
            .subquery()
        )
        for row in connection.execute(select(i.fields).join(most, most.c.number == i.number)):
            incident = Incident(**row.fields)
            _better(found, Similar(incident, in_common(asked, words(incident.line)), number), LEAST_WORDS)
    return found


def _by_meaning(connection: Connection, vectors: Vectors, found: dict[str, Similar]) -> None:
    asked = np.asarray(vectors.rows, dtype=np.float32)
    if asked.ndim != 2 or not asked.size:
        return
    i = t.incidents.c
    rows = connection.execute(
        select(i.fields, i.vector).where(i.embedder == vectors.model, func.length(i.vector) == 4 * asked.shape[1])
    ).all()
    if not rows:
        return
    stored = np.frombuffer(b"".join(bytes(row.vector) for row in rows), dtype="<f4").reshape(len(rows), -1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ours = asked / np.linalg.norm(asked, axis=1, keepdims=True)
        cosine = ours @ (stored / np.linalg.norm(stored, axis=1, keepdims=True)).T
    cosine = np.nan_to_num(cosine, nan=0.0, posinf=0.0, neginf=0.0)
    for column, line in enumerate(cosine.argmax(axis=0).tolist()):
        score = float(cosine[line, column])
        _better(found, Similar(Incident(**rows[column].fields), min(score, 1.0), line), LEAST_COSINE)


def _better(found: dict[str, Similar], one: Similar, least: float) -> None:
    known = found.get(one.incident.id)
    if one.score >= least and (known is None or known.score < one.score):
        found[one.incident.id] = one
