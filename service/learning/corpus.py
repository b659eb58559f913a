"""Corrections -> a labelled corpus for ``diagnose eval``, as a tar file.

Its logs are the kept lines, because only those are stored. A case is a folder with one file per source, and the label counts
the lines of that file. If an attempt was corrected several times, the last correction counts.
"""

from __future__ import annotations

import io
import re
import tarfile
from typing import IO, Any

from sqlalchemy import Connection, select

from diagnose.accuracy import COLUMNS
from diagnose.decision.policy_file import shipped_policy
from service.store import reading
from service.store import tables as t

_MOST_LINES = 100_000
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")
_MOST_CASES = 1000


def write(connection: Connection, out: IO[bytes]) -> int:
    """Write the corpus into ``out``. Returns the number of cases."""
    labels = ["\t".join(COLUMNS)]
    seen: set[tuple[str, int]] = set()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for correction in reading.corrections(connection, limit=_MOST_CASES):
            attempt = correction["job"], correction["attempt"]
            if attempt in seen:
                continue
            seen.add(attempt)
            case = f"case-{correction['id']}"
            where = _logs(connection, tar, case, correction)
            if where is None:
                continue
            action = "none" if correction["reason"] in ("healthy", "unknown") else _action(correction["reason"])
            note = " ".join(f"{correction['job']} attempt {correction['attempt']}: {correction['note'] or ''}".split())
            fields = [case, correction["category"], correction["reason"], where, "-", action, note.rstrip(": ")]
            labels.append("\t".join(fields))
        _add(tar, "labels.tsv", ("\n".join(labels) + "\n").encode("utf-8", "replace"))
    return len(labels) - 1


def _logs(connection: Connection, tar: tarfile.TarFile, case: str, correction: dict[str, Any]) -> str | None:
    """Write the sources of a case. Returns where its root line is in them, "-" if none was named; None if nothing was kept."""
    attempt_id = reading.attempt_id(connection, correction["job"], correction["attempt"])
    if attempt_id is None:
        return None
    k, s = t.kept_lines.c, t.sources.c
    rows = connection.execute(
        select(k.text, k.raw, k.line, s.number, s.name)
        .join(t.sources, (s.attempt_id == k.attempt_id) & (s.number == k.source))
        .where(k.attempt_id == attempt_id)
        .order_by(k.ord)
        .limit(_MOST_LINES)
    )
    files: dict[str, bytearray] = {}
    counts: dict[str, int] = {}
    where = "-"
    for row in rows:
        name = f"{row.number:04d}-{_ODD.sub('_', row.name.rpartition('/')[2])[-80:]}.log"
        files.setdefault(name, bytearray()).extend((row.raw or row.text.encode("utf-8", "replace")) + b"\n")
        counts[name] = counts.get(name, 0) + 1
        if where == "-" and row.line == correction["line"] and correction["source"] in (None, row.name):
            where = f"{name}:{counts[name]}"
    if not files:
        return None
    for name, data in files.items():
        _add(tar, f"{case}/{name}", bytes(data))
    return where


def _action(reason: str) -> str:
    return shipped_policy().actions[reason].kind


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o644
    tar.addfile(entry, io.BytesIO(data))
