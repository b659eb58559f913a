"""The sources of a job, read apart and put together: the same comes out as if they had been read one after the other.

A part is one source. Its state goes as a snapshot, and its kept lines as a file, since they may be many.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from diagnose.compression.kept_log import Compression, KeptLog
from diagnose.compression.snapshot import snapshot, state_of
from diagnose.matching.scan import Cursor, Scan


def write(compression: Compression, path: Path) -> None:
    """Everything of a compression that was fed and closed: ``path`` and two files beside it."""
    path.write_bytes(snapshot(compression))
    for name, file in zip(("index", "text"), compression.kept.files, strict=True):
        file.seek(0)
        with path.with_suffix(f".{name}").open("wb") as target:
            shutil.copyfileobj(file, target)


def join(compression: Compression, path: Path) -> None:
    """What was written there comes behind what ``compression`` has; the files are removed."""
    part = state_of(path.read_bytes(), compression.matcher, compression.folding)
    index, text = (path.with_suffix(f".{name}") for name in ("index", "text"))
    part.kept.close()
    with index.open("rb") as rows, text.open("rb") as lines:
        for source, records, kept in KeptLog(rows, lines).batches():
            compression.kept.add(source, Scan(Cursor(), kept, records))
    compression.join(part)
    for file in (path, index, text):
        file.unlink()
