"""What models were right and wrong about -> a file, so that the next command knows it too.

Several commands may use the file at one time: what a case tells is added to what stands there. A case counts once per model and
question, however often its log is read, so that nobody proves a model by reading one log again and again.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path

from diagnose.agent.witnesses import Record
from diagnose.errors import DiagnoseError

_VERSION = 1
_REMEMBERED = 20_000
"""cases of which is known that they were counted"""


class RecordFile:
    """The records of models, in one SQLite file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(path, timeout=10, check_same_thread=False)
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            remedy = "give a file that can be written, in DIAGNOSE_MODEL_RECORD"
            raise DiagnoseError(f"the record of models cannot be opened: {error}", where=str(path), remedy=remedy) from None

    def close(self) -> None:
        self._base.close()

    def records(self) -> dict[str, Record]:
        """The record of each model, by its name."""
        found: dict[str, Record] = {}
        with self._lock:
            rows = self._base.execute('select model, kind, "right", wrong from records order by model, kind').fetchall()
        for model, kind, right, wrong in rows:
            found.setdefault(model, Record()).seen[kind] = [right, wrong]
        return found

    def add(self, case: str, before: Mapping[str, Record], after: Mapping[str, Record]) -> bool:
        """Add what ``after`` has more than ``before``. False, and nothing is added, if the case was counted before."""
        more = [
            (model, kind, counts[0] - old[0], counts[1] - old[1])
            for model, record in after.items()
            for kind, counts in record.seen.items()
            if counts != (old := before.get(model, Record()).seen.get(kind, [0.0, 0.0]))
        ]
        if not more:
            return False
        with self._lock, self._base:
            for model in {row[0] for row in more}:
                new = self._base.execute("insert or ignore into counted (name) values (?)", (f"{model} {case}",)).rowcount
                if not new:
                    more = [row for row in more if row[0] != model]
            self._base.executemany(
                'insert into records (model, kind, "right", wrong) values (?, ?, ?, ?) on conflict (model, kind)'
                ' do update set "right" = "right" + excluded."right", wrong = wrong + excluded.wrong',
                more,
            )
            self._base.execute(
                "delete from counted where number <= (select max(number) from counted) - ?",
                (_REMEMBERED,),
            )
        return bool(more)

    def _prepare(self) -> None:
        (version,) = self._base.execute("pragma user_version").fetchone()
        if version > _VERSION:
            remedy = "update diagnose, or name another file in DIAGNOSE_MODEL_RECORD"
            raise DiagnoseError("the record of models was written by a later version", where=str(self.path), remedy=remedy)
        with self._base:
            self._base.execute(
                'create table if not exists records (model text not null, kind text not null, "right" real not null,'
                " wrong real not null, primary key (model, kind))"
            )
            self._base.execute("create table if not exists counted (number integer primary key, name text not null unique)")
            self._base.execute(f"pragma user_version = {_VERSION}")
