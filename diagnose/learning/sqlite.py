"""The learned rules of a person or a machine, in one SQLite file."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from diagnose.compression.workload import Fingerprint
from diagnose.errors import RuleError
from diagnose.knowledge.rules import Family
from diagnose.learning.learned_rule import Counts, Learned, State, as_dict, of_dict

_VERSION = 2
_TABLES = """
create table rules (
    id text primary key, family text not null, pattern text not null, state text not null, scope text not null,
    fields text not null, provenance text not null, why text, lines text not null, created real not null, changed real not null,
    unique (family, pattern)
);
create table counts (
    rule text not null references rules, workload text not null,
    matched integer not null, dirty integer not null, jobs integer not null, last real,
    primary key (rule, workload)
) without rowid;
"""
_WORKLOADS = (
    "create table workloads (name text primary key, metadata text not null, sketch text not null, created real not null)"
)
_COLUMNS = "id, family, pattern, state, scope, fields, provenance, why, lines, created, changed"
_BEFORE = (
    "id, pattern, state, kind, title, framework, metrics, matches, misses, provenance, why, matched, dirty, created, changed"
)


class SqliteBook:
    """A ``learned.Book`` in a file. One process may write while others read; each thread opens its own."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(self.path, timeout=10, isolation_level=None)
            self._base.execute("pragma journal_mode = wal")
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise RuleError(f"cannot be opened: {error}", where=str(path), remedy="give a file that can be written") from None

    def add(self, known: Learned) -> bool:
        rule = known.rule
        created = known.created or time.time()
        with self._writing():
            done = self._base.execute(
                f"insert or ignore into rules ({_COLUMNS}) values (?,?,?,?,?,?,?,?,?,?,?)",  # noqa: S608 - our own names
                (
                    rule.id,
                    rule.family,
                    rule.pattern,
                    known.state,
                    known.scope,
                    json.dumps(as_dict(rule)),
                    json.dumps(known.provenance),
                    known.why,
                    json.dumps(known.lines),
                    created,
                    known.changed or created,
                ),
            )
            if done.rowcount:
                for workload, counts in known.workloads.items():
                    self._count(rule.id, workload, counts)
        return done.rowcount > 0

    def write(self, known: Learned, was: State) -> bool:
        with self._writing():
            done = self._base.execute(
                "update rules set state = ?, scope = ?, why = ?, lines = ?, changed = ? where id = ? and state = ?",
                (known.state, known.scope, known.why, json.dumps(known.lines), known.changed, known.rule.id, was),
            )
        return done.rowcount > 0

    def count(self, rule_id: str, workload: str, counts: Counts) -> None:
        with self._writing():
            self._count(rule_id, workload, counts)

    def find(self, rule_id: str) -> Learned | None:
        return next(iter(self._select("where id = ?", (rule_id,))), None)

    def known(self, pattern: str, family: Family) -> Learned | None:
        return next(iter(self._select("where family = ? and pattern = ?", (family, pattern))), None)

    def rules(self, *states: State, family: Family | None = None) -> list[Learned]:
        wanted: list[str] = []
        values: list[str] = []
        if states:
            wanted.append(f"state in ({','.join('?' * len(states))})")
            values += states
        if family is not None:
            wanted.append("family = ?")
            values.append(family)
        return self._select(f"where {' and '.join(wanted)}" if wanted else "", values)

    def workloads(self) -> dict[str, Fingerprint]:
        rows = self._base.execute("select name, metadata, sketch from workloads order by created, name").fetchall()
        return {
            name: Fingerprint(tuple((key, value) for key, value in json.loads(metadata)), tuple(json.loads(sketch)))
            for name, metadata, sketch in rows
        }

    def enrol(self, name: str, fingerprint: Fingerprint) -> None:
        row = (name, json.dumps(fingerprint.metadata), json.dumps(fingerprint.sketch), time.time())
        with self._writing():
            self._base.execute("insert or ignore into workloads values (?,?,?,?)", row)

    def close(self) -> None:
        self._base.close()

    def _writing(self) -> _Transaction:
        return _Transaction(self._base, "immediate")

    def _count(self, rule_id: str, workload: str, counts: Counts) -> None:
        self._base.execute(
            "insert into counts values (?,?,?,?,?,?) on conflict do update set matched = matched + excluded.matched,"
            " dirty = dirty + excluded.dirty, jobs = jobs + excluded.jobs,"
            " last = case when last > coalesce(excluded.last, 0) then last else excluded.last end",
            (rule_id, workload, counts.matched, counts.dirty, counts.jobs, counts.last),
        )

    def _select(self, clause: str, values: Sequence[Any] = ()) -> list[Learned]:
        # Both are read in one transaction: a rule and what it met belong together.
        with _Transaction(self._base, "deferred"):
            rows = self._base.execute(f"select {_COLUMNS} from rules {clause} order by created, id", values).fetchall()  # noqa: S608
            met = self._base.execute(
                f"select * from counts where rule in (select id from rules {clause}) order by workload",  # noqa: S608
                values,
            ).fetchall()
        workloads: dict[str, dict[str, Counts]] = {}
        for rule, workload, matched, dirty, jobs, last in met:
            workloads.setdefault(rule, {})[workload] = Counts(matched, dirty, jobs, last)
        return [_of_row(row, workloads.get(row[0], {})) for row in rows]

    def _prepare(self) -> None:
        """Makes the tables where there are none, and those of now out of older ones."""
        with self._writing():
            (version,) = self._base.execute("pragma user_version").fetchone()
            columns = [row[1] for row in self._base.execute("pragma table_info(rules)")]
            if version > _VERSION:
                raise RuleError(
                    f"it was written by a later version (its format is {version}, this one knows {_VERSION})",
                    where=str(self.path),
                    remedy="update diagnose, or give another file",
                )
            if version == _VERSION:
                return
            if version == 1:
                self._base.execute(_WORKLOADS)
                self._base.execute(f"pragma user_version = {_VERSION}")
                return
            if columns and columns != _BEFORE.split(", "):
                raise RuleError("it holds something else than learned rules", where=str(self.path), remedy="give another file")
            old: list[Any] = []
            if columns:
                old = self._base.execute(f"select {_BEFORE} from rules").fetchall()  # noqa: S608
                self._base.execute("drop table rules")
            for statement in (*_TABLES.split(";"), _WORKLOADS):
                self._base.execute(statement)
            for row in old:
                self._migrate(row)
            self._base.execute(f"pragma user_version = {_VERSION}")

    def _migrate(self, row: Sequence[Any]) -> None:
        """A rule as the format before this one had it: filters only, which acted for every job."""
        rule_id, pattern, state, kind, title, framework, metrics, matches, misses, provenance, why, *counts = row
        matched, dirty, created, changed = counts
        fields = {
            "file": "learned",
            "title": title or "",
            "kind": kind,
            "framework": framework,
            "metrics": json.loads(metrics),
            "matches": [{"line": line, "at": 0, "captures": []} for line in json.loads(matches)],
            "misses": [{"line": line, "at": 0, "captures": []} for line in json.loads(misses)],
        }
        self._base.execute(
            f"insert into rules ({_COLUMNS}) values (?,?,?,?,?,?,?,?,?,?,?)",  # noqa: S608 - our own names
            (rule_id, "filters", pattern, state, "global", json.dumps(fields), provenance, why, "[]", created, changed),
        )
        if matched:
            self._count(rule_id, "", Counts(matched, dirty, 1, changed))


class _Transaction:
    """Everything or nothing. One that writes waits for the others before it reads."""

    def __init__(self, base: sqlite3.Connection, kind: Literal["immediate", "deferred"]) -> None:
        self._base, self._kind = base, kind

    def __enter__(self) -> None:
        self._base.execute(f"begin {self._kind}")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._base.execute("rollback" if kind else "commit")


def _of_row(row: Sequence[Any], workloads: dict[str, Counts]) -> Learned:
    rule_id, family, pattern, state, scope, fields, provenance, why, lines, created, changed = row
    rule = of_dict(rule_id, family, pattern, json.loads(fields))
    return Learned(rule, state, scope, json.loads(provenance), why, tuple(json.loads(lines)), workloads, created, changed)
