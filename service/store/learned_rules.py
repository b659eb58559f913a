"""The learned rules, in the service's database: a ``diagnose.learning.learned_rule.Book``."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, update

from diagnose.compression.workload import Fingerprint
from diagnose.knowledge.rules import Family
from diagnose.learning.learned_rule import Counts, Learned, State, as_dict, of_dict
from service.store import Store, Within
from service.store import tables as t


class StoreBook:
    """Used from threads; every call is a transaction of its own, or all of them are a part of one (``Within``)."""

    def __init__(self, store: Store | Within) -> None:
        self._store = store

    def add(self, known: Learned) -> bool:
        return self._store.write(lambda connection: _add(connection, known))

    def write(self, known: Learned, was: State) -> bool:
        r = t.rules.c

        def work(connection: Connection) -> bool:
            done = connection.execute(
                update(t.rules)
                .where(r.id == known.rule.id, r.state == was)
                .values(state=known.state, scope=known.scope, why=known.why, lines=list(known.lines), changed=known.changed)
            )
            return done.rowcount > 0

        return self._store.write(work)

    def count(self, rule_id: str, workload: str, counts: Counts) -> None:
        self._store.write(lambda connection: _count(connection, rule_id, workload, counts))

    def find(self, rule_id: str) -> Learned | None:
        return next(iter(self._select(t.rules.c.id == rule_id)), None)

    def known(self, pattern: str, family: Family) -> Learned | None:
        return next(iter(self._select(t.rules.c.pattern == pattern, t.rules.c.family == family)), None)

    def rules(self, *states: State, family: Family | None = None) -> list[Learned]:
        conditions: list[Any] = [t.rules.c.state.in_(states)] if states else []
        if family is not None:
            conditions.append(t.rules.c.family == family)
        return self._select(*conditions)

    def workloads(self) -> dict[str, Fingerprint]:
        w = t.workloads.c
        rows = self._store.read(
            lambda connection: connection.execute(select(w.name, w.metadata, w.sketch).order_by(w.created, w.name)).all()
        )
        return {
            name: Fingerprint(tuple((key, value) for key, value in metadata), tuple(sketch)) for name, metadata, sketch in rows
        }

    def enrol(self, name: str, fingerprint: Fingerprint) -> None:
        def work(connection: Connection) -> None:
            if connection.execute(select(t.workloads.c.name).where(t.workloads.c.name == name)).first() is None:
                metadata, sketch = [list(pair) for pair in fingerprint.metadata], list(fingerprint.sketch)
                connection.execute(insert(t.workloads).values(name=name, metadata=metadata, sketch=sketch, created=time.time()))

        self._store.write(work)

    def _select(self, *conditions: Any) -> list[Learned]:
        return self._store.read(lambda connection: selected(connection, *conditions))


def selected(connection: Connection, *conditions: Any) -> list[Learned]:
    """The rules that meet all conditions, oldest first."""
    rows = connection.execute(select(t.rules).where(*conditions).order_by(t.rules.c.created, t.rules.c.id)).all()
    c = t.rule_counts.c
    wanted = select(t.rules.c.id).where(*conditions)
    workloads: dict[str, dict[str, Counts]] = {}
    for row in connection.execute(select(t.rule_counts).where(c.rule.in_(wanted)).order_by(c.workload)):
        workloads.setdefault(row.rule, {})[row.workload] = Counts(row.matched, row.dirty, row.jobs, row.last)
    return [_learned(row, workloads.get(row.id, {})) for row in rows]


def _add(connection: Connection, known: Learned) -> bool:
    rule, r = known.rule, t.rules.c
    taken = or_(r.id == rule.id, (r.family == rule.family) & (r.pattern == rule.pattern))
    if connection.execute(select(r.id).where(taken)).first() is not None:
        return False
    created = known.created or time.time()
    connection.execute(
        insert(t.rules).values(
            id=rule.id,
            family=rule.family,
            pattern=rule.pattern,
            state=known.state,
            scope=known.scope,
            fields=as_dict(rule),
            provenance=known.provenance,
            why=known.why,
            lines=list(known.lines),
            created=created,
            changed=known.changed or created,
        )
    )
    for workload, counts in known.workloads.items():
        _count(connection, rule.id, workload, counts)
    return True


def _count(connection: Connection, rule_id: str, workload: str, counts: Counts) -> None:
    c = t.rule_counts.c
    before = connection.execute(select(t.rule_counts).where(c.rule == rule_id, c.workload == workload)).first()
    if before is None:
        values = {"matched": counts.matched, "dirty": counts.dirty, "jobs": counts.jobs, "last": counts.last}
        connection.execute(insert(t.rule_counts).values(rule=rule_id, workload=workload, **values))
        return
    after = Counts(before.matched, before.dirty, before.jobs, before.last) + counts
    connection.execute(
        update(t.rule_counts)
        .where(c.rule == rule_id, c.workload == workload)
        .values(matched=after.matched, dirty=after.dirty, jobs=after.jobs, last=after.last)
    )


def _learned(row: Row[Any], workloads: dict[str, Counts]) -> Learned:
    rule = of_dict(row.id, row.family, row.pattern, row.fields)
    return Learned(rule, row.state, row.scope, row.provenance, row.why, tuple(row.lines), workloads, row.created, row.changed)
