"""``diagnose backup``: all that a service has, into one file, while it runs."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from diagnose.cli.options import database
from diagnose.cli.serve import settings_of
from diagnose.errors import DiagnoseError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="FILE", help="file to write, or - for standard output, such as to encrypt it")
    group = database.options(parser)
    group.add_argument("--raw-logs", metavar="DIR", help="folder of the raw logs, if the service keeps any")


def run(arguments: argparse.Namespace) -> int:
    from service.backup import back_up

    settings = settings_of(arguments)
    if arguments.target == "-":
        if sys.stdout.isatty():
            raise DiagnoseError("a backup is no text for a terminal", remedy="name a file, or send it through a pipe")
        contents = back_up(settings, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        target = Path(arguments.target)
        draft = target.with_name(f".{target.name}.part")
        try:
            with open(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
                contents = back_up(settings, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        except OSError as error:
            raise DiagnoseError(
                f"cannot be written: {error.strerror}", where=str(target), remedy="choose another file"
            ) from None
        finally:
            draft.unlink(missing_ok=True)
    sys.stderr.write(f"backed up {len(contents.files)} files, {contents.size:,} bytes\n")
    return 0
