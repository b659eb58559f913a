"""``diagnose restore``: a service from a backup."""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from diagnose.cli.options import database
from diagnose.cli.serve import settings_of
from diagnose.errors import DiagnoseError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FILE", nargs="?", help="file that diagnose backup wrote, or - for standard input")
    parser.add_argument("--check", action="store_true", help="only say whether the backup is whole; restore nothing")
    parser.add_argument(
        "--salvage",
        action="store_true",
        help="without FILE: make a new database of what can be read of a damaged SQLite database, which is kept as *.damaged",
    )
    group = database.options(parser)
    group.add_argument("--raw-logs", metavar="DIR", help="folder for the raw logs, if the backup has any")


def run(arguments: argparse.Namespace) -> int:
    from service.backup import restore, salvage, unpack

    if arguments.salvage != (arguments.source is None):
        raise DiagnoseError("name a backup, or say --salvage", remedy="diagnose restore FILE")
    if arguments.salvage:
        lost = salvage(settings_of(arguments))
        told = ", ".join(f"{name} ({rows} rows more had to go)" if rows else name for name, rows in sorted(lost.items()))
        print(f"a new database is in place; {f'something is missing of: {told}' if told else 'nothing was lost'}")
        return 0
    try:
        with open(arguments.source, "rb") if arguments.source != "-" else sys.stdin.buffer as source:
            if arguments.check:
                with tempfile.TemporaryDirectory(prefix="diagnose-backup-") as draft:
                    contents = unpack(source, Path(draft))
            else:
                contents = restore(source, settings_of(arguments))
    except OSError as error:
        raise DiagnoseError(f"cannot be read: {error.strerror}", where=arguments.source, remedy="name a backup") from None
    when = datetime.fromtimestamp(contents.made_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    print(
        f"{'whole' if arguments.check else 'restored'}: a backup of {when} by version {contents.version}, "
        f"{contents.size:,} bytes, {contents.records:,} records of the journal"
    )
    return 0
