"""A job that still runs: its files are read as they grow, kept lines are shown, and rules are learned if wanted."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from diagnose.cli import printable
from diagnose.cli.options import endpoint
from diagnose.errors import DiagnoseError, needs
from diagnose.job import Job
from diagnose.matching.scan import Scan
from diagnose.reading.sources import Follower, Restart, Source, find
from diagnose.rendering.terminal import shortened

if TYPE_CHECKING:
    from diagnose.learning.live import Learner, Summary

_POLL_S = 0.2
_PAUSE_S = 1.0
"""after so long without news, lines are shown that wait for the next ones"""


class KeptFile:
    """The kept lines as text, as ``grep -n`` prints them: line:text, or source:line:text."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._prefixes: list[bytes] = []

    def __enter__(self) -> KeptFile:
        if self._path is not None:
            try:
                self._file = sys.stdout.buffer if self._path == "-" else open(self._path, "wb")
            except OSError as error:
                raise DiagnoseError(
                    f"cannot be written: {error.strerror}", where=self._path, remedy="choose another file for --kept"
                ) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None and self._path != "-":
            self._file.close()

    def begin(self, job: Job, *, many: bool) -> None:
        self._prefixes = [os.fsencode(source.name) + b":" if many else b"" for source in job.sources]

    def write(self, source: int, scans: list[Scan]) -> None:
        if self._file is None:
            return
        prefix = self._prefixes[source]
        for scan in scans:
            for kept, text in scan.segments():
                mark = f" [\u2026{kept.cut:,} bytes cut]".encode() if kept.cut else b""
                self._file.write(b"%b%d:%b%b\n" % (prefix, kept.line, text, mark))

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()


def follow(job: Job, kept_file: KeptFile, arguments: argparse.Namespace) -> bool:
    """Read until Ctrl-C, or until nothing came for as long as ``--idle`` says. True if the job counts as ended then."""
    followers = [Follower(source) for source in job.sources]
    folders = [path for path in arguments.paths if Path(path).is_dir()]
    readers = _Readers(kept_file, _Live(job), _learner(job, arguments))
    last_news = time.monotonic()
    ended = False
    try:
        while True:
            news = False
            for number, scans in _news(job, followers):
                news = True
                readers.take(number, scans)
            for source in _new_sources(folders, job):
                job.sources.append(source)
                kept_file.begin(job, many=True)
                followers.append(Follower(source))
            if news:
                last_news = time.monotonic()
                kept_file.flush()
            elif arguments.idle is not None and time.monotonic() - last_news >= arguments.idle:
                ended = True
                break
            elif time.monotonic() - last_news >= _PAUSE_S:
                for number, scans in job.paused():
                    readers.take(number, scans)
                kept_file.flush()
            readers.live.status()
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        pass
    finally:
        readers.live.done()
    for number, follower in enumerate(followers):
        follower.close()
        readers.take(number, job.close(number), shown=False)
    if readers.learner is not None:
        _print_summary(readers.learner.close(job.compression.counts.dropped))
    return ended


@dataclass(slots=True)
class _Readers:
    """Who gets what was read."""

    kept: KeptFile
    live: _Live
    learner: Learner | None

    def take(self, number: int, scans: list[Scan], shown: bool = True) -> None:
        self.kept.write(number, scans)
        if shown:
            self.live.show(number, scans)
        if self.learner is not None:
            self.learner.feed(scans)


def _news(job: Job, followers: list[Follower]) -> Iterator[tuple[int, list[Scan]]]:
    """What came since the last time, by the number of its source."""
    for number, follower in enumerate(followers):
        for chunk in follower.poll():
            yield number, job.restart(number) if isinstance(chunk, Restart) else job.feed(number, chunk)


def _learner(job: Job, arguments: argparse.Namespace) -> Learner | None:
    if not arguments.learn:
        return None
    needs("diagnose.agent", "diagnose.learning", "diagnose.model")
    from diagnose.learning.live import Learner
    from diagnose.learning.rule_store import RuleFile, RuleStore, workload_of

    path = endpoint.rule_file(arguments.learned or None)
    file = RuleFile(path)
    workload = workload_of(job.fingerprint, RuleStore(file)) if job.fingerprint.sketch else ""
    file.close()
    return Learner(path, job.compression.matcher, job.id, endpoint.settings_of(arguments), workload)


def _print_summary(summary: Summary) -> None:
    said = f"learned from {summary.lines:,} kept lines: {len(summary.active)} rules active, {len(summary.retired)} retired"
    missed = f"; {summary.missed:,} lines were more than it could take" if summary.missed else ""
    sys.stderr.write(f"diagnose replay: {said}{missed}\n")
    for problem in dict.fromkeys(summary.problems):
        sys.stderr.write(f"diagnose replay: learning: {printable(problem)}\n")


def _new_sources(folders: list[str], job: Job) -> Iterator[Source]:
    known = {source.name for source in job.sources}
    for folder in folders:
        yield from (source for source in find([folder]).sources if source.name not in known)


class _Live:
    """Kept lines as they come, on a terminal's stderr, above a status line."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._on = sys.stderr.isatty()
        self._next = 0.0

    def show(self, source: int, scans: list[Scan]) -> None:
        if not self._on:
            return
        name = os.path.basename(self._job.sources[source].name)
        for scan in scans:
            for kept, text in scan.segments():
                line = printable(text.decode("utf-8", "replace"))
                sys.stderr.write(f"\r\x1b[K{shortened(f'{name}:{kept.line}: {line}', 160)}\n")

    def status(self) -> None:
        if not self._on or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 0.5
        counts = self._job.compression.counts
        step = self._job.compression.last_step
        at = f", step {step:,.0f}" if step is not None else ""
        sys.stderr.write(
            f"\r\x1b[Kfollowing {self._job.id}: {counts.lines_in:,} lines, {counts.lines_kept:,} kept{at} (Ctrl-C ends)"
        )
        sys.stderr.flush()

    def done(self) -> None:
        if self._on:
            sys.stderr.write("\r\x1b[K")
