"""Past incidents in the service's database: an ``agent.incidents.Incidents``.

Words are looked up in our own table, one row per word and incident. The full-text indexes of SQLite and PostgreSQL rank
differently, and we score the results anyway. Vectors are compared in NumPy, as in the store of the command line: a cluster has
some thousand incidents, which takes milliseconds, and pgvector is not everywhere.

How often each model was right is here too: it is stored, so that a model earns trust once and not after each restart.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from diagnose.agent.incidents import LEAST_COSINE, LEAST_WORDS, Incident, Similar, Vectors, in_common, words
from diagnose.agent.witnesses import Record
from service.projects import MARK
from service.store import Store, groups
from service.store import tables as t
from service.store.upsert import upsert

_MOST_WORDS, _MOST_ROWS = 24, 50
_MOST_ROOTS = 5_000


class StoreIncidents:
    """Any thread may call this. Each call is one transaction."""

    def __init__(self, store: Store, project: str | None = None) -> None:
        """``project``: whose incidents are found; None: those of the project that needs no name."""
        self._store = store
        self._mine = (
            t.incidents.c.id.startswith(f"{project}{MARK}", autoescape=True) if project else ~t.incidents.c.id.contains(MARK)
        )

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
            found = _by_words(connection, lines, self._mine)
            if vectors is not None:
                _by_meaning(connection, vectors, found, self._mine)
            return found

        return sorted(self._store.read(work).values(), key=lambda one: -one.score)[:k]

    def incidents(self) -> list[Incident]:
        i = t.incidents.c
        wanted = select(i.fields).where(self._mine).order_by(i.remembered, i.id)
        return [Incident(**row.fields) for row in self._store.read(lambda connection: connection.execute(wanted).all())]

    def roots(self) -> list[str]:
        """The lines that confirmed failures began with, and those of failures that nobody has confirmed; of all projects,
        because no filter may drop them.
        """
        confirmed = self._store.read(lambda connection: connection.execute(select(t.incidents.c.fields)).scalars().all())
        return [str(fields["line"]) for fields in confirmed] + self._store.read(
            lambda connection: groups.roots(connection, _MOST_ROOTS)
        )


def _by_words(connection: Connection, lines: Sequence[str], mine: ColumnElement[bool]) -> dict[str, Similar]:
    found: dict[str, Similar] = {}
    w, i = t.incident_words.c, t.incidents.c
    for number, line in enumerate(lines):
        if not (asked := words(line)[:_MOST_WORDS]):
            continue
        most = (
            select(w.number, func.count().label("common"))
            .join(t.incidents, i.number == w.number)
            .where(w.word.in_(asked), mine)
            .group_by(w.number)
            .order_by(func.count().desc(), w.number.desc())
            .limit(_MOST_ROWS)
            .subquery()
        )
        for row in connection.execute(select(i.fields).join(most, most.c.number == i.number)):
            incident = Incident(**row.fields)
            _better(found, Similar(incident, in_common(asked, words(incident.line)), number), LEAST_WORDS)
    return found


def _by_meaning(connection: Connection, vectors: Vectors, found: dict[str, Similar], mine: ColumnElement[bool]) -> None:
    asked = np.asarray(vectors.rows, dtype=np.float32)
    if asked.ndim != 2 or not asked.size:
        return
    i = t.incidents.c
    rows = connection.execute(
        select(i.fields, i.vector).where(mine, i.embedder == vectors.model, func.length(i.vector) == 4 * asked.shape[1])
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


def records(connection: Connection) -> dict[str, Record]:
    """model -> its record."""
    w = t.witnesses.c
    found: dict[str, Record] = {}
    for row in connection.execute(select(w.model, w.kind, w.right, w.wrong)):
        found.setdefault(row.model, Record()).seen[row.kind] = [row.right, row.wrong]
    return found


def keep_records(connection: Connection, records: Mapping[str, Record]) -> None:
    rows = [
        {"model": model, "kind": kind, "right": right, "wrong": wrong}
        for model, record in records.items()
        for kind, (right, wrong) in record.seen.items()
    ]
    if rows:
        upsert(connection, t.witnesses, rows)
