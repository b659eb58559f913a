"""``diagnose send``: sends whole logs to a service, from the byte up to which it has them."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time

from diagnose.cli import printable
from diagnose.cli.options.destination import add_job, add_service, count, destination
from diagnose.errors import DiagnoseError
from diagnose.reading.sources import Source, find
from diagnose.shipping.destination import Owner
from diagnose.shipping.send import Sending

_REDRAW_S = 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="log file (also .gz, .zst or .xz), folder of logs, file name pattern, or - for standard input",
    )
    parser.description = "Send whole log files to a service. What the service already has is not sent again."
    add_service(parser)
    parser.add_argument(
        "--patience",
        type=count,
        metavar="SECONDS",
        default=300,
        help="how long to try again while the service does not answer (default: 300)",
    )
    job = parser.add_argument_group("the job")
    job.add_argument("--job", required=True, metavar="ID", help="the job that the logs belong to")
    add_job(job)
    job.add_argument(
        "--exit-code", type=_exit_code, metavar="N", help="exit code with which the job has ended; it is sent after the logs"
    )
    log = parser.add_argument_group("the logs")
    log.add_argument(
        "--source",
        metavar="NAME",
        help="name of the log, if there is only one (default: the path as given; in a folder, the path below it)",
    )
    log.add_argument(
        "--rank", type=count, metavar="N", help="rank of the process that wrote the logs (default: taken from file names)"
    )
    log.add_argument("--node", metavar="NAME", help="node that wrote the logs (default: taken from file names)")


def _exit_code(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, as an exit code is") from None


def run(arguments: argparse.Namespace) -> int:
    named = [(source, _name(source, path)) for path in arguments.paths for source in _found(path)]
    if arguments.source is not None:
        if len(named) > 1:
            raise DiagnoseError(
                f"one name was given for {len(named)} logs", where=arguments.source, remedy="leave --source out"
            )
        named = [(named[0][0], arguments.source)]
    names = [name for _, name in named]
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise DiagnoseError("two logs have this name", where=double, remedy="send the folder that contains both")
    service = destination(arguments)
    progress = _Progress(sum(source.size or 0 for source, _ in named))
    sending = Sending(service, patience_s=arguments.patience, progress=progress.read, say=progress.say)
    problems = []
    with contextlib.closing(service):
        for source, name in named:
            owner = Owner(arguments.job, name, arguments.attempt, arguments.rank, arguments.node, dict(arguments.label))
            progress.begin(source)
            try:
                sending.send(source, owner)
            except DiagnoseError as error:
                if source.problem is None:
                    raise
                problems.append(error)
            progress.end(source)
        if arguments.exit_code is not None:
            sending.end(arguments.job, arguments.exit_code, arguments.attempt)
    progress.clear()
    known = f" ({sending.known:,} bytes were there already)" if sending.known else ""
    print(f"{len(named)} {'source' if len(named) == 1 else 'sources'}, {sending.sent:,} bytes sent{known}: "
          f"{service.shown}/v1/jobs/{printable(arguments.job)}")  # fmt: skip
    for problem in problems:
        sys.stderr.write(f"diagnose: {printable(str(problem))}\n")
    return 2 if problems else 0


def _found(path: str) -> list[Source]:
    found = find([path])
    if found.problems:
        raise found.problems[0]
    return found.sources


def _name(source: Source, path: str) -> str:
    """A file is named by its path as given. A file in a folder is named by its path below the folder, wherever that is."""
    if source.path is None:
        return "stdin"
    return os.path.relpath(source.path, path) if os.path.isdir(path) else str(source.path)


class _Progress:
    """One line on a terminal, nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._shown = sys.stderr.isatty()
        self._before = 0
        self._drawn = 0.0

    def begin(self, source: Source) -> None:
        self._now = source

    def read(self, here: int) -> None:
        if not self._shown or time.monotonic() - self._drawn < _REDRAW_S:
            return
        self._drawn = time.monotonic()
        done = self._before + here
        part = f" {done / self._total:4.0%}" if self._total else ""
        sys.stderr.write(f"\r\x1b[K{done / 1e6:,.1f} MB{part}  {printable(self._now.name)[-60:]}")
        sys.stderr.flush()

    def end(self, source: Source) -> None:
        self._before += source.bytes_read

    def say(self, text: str) -> None:
        self.clear()
        sys.stderr.write(f"diagnose: {printable(text)}\n")

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
