"""Log files of this machine -> reports, kept lines and lines. Only files below the given folders are read."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import regex

from diagnose.diagnosis.status import told_of
from diagnose.errors import DiagnoseError
from diagnose.job import Job
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.mcp.answers import MOST_LINES, brief
from diagnose.reading.encodings import Decoder
from diagnose.reading.grouping import group, look
from diagnose.reading.lines import clean
from diagnose.reading.sources import Source, find

_MOST_READ = 4
"""paths whose kept lines stay at hand"""
_MOST_JOBS = 20
_MOST_TEXT = 2_000_000
_LONGEST_READ = 16_384
_BEFORE = 80
"""lines that are read before those wanted, so that a secret which begins there is known for one"""
_SEARCH_S = 20.0
_OF_A_KEY = regex.compile(r"[A-Za-z0-9+/]{40,}={0,2}")
"""a line that may stand within a private key, whose beginning was not found"""

Row = dict[str, Any]


class Logs:
    """The logs below ``roots``."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.resolve() for root in roots]
        self._lock = Lock()  # questions come on several threads, and reading takes all of a core
        self._matcher: Matcher | None = None
        self._read: OrderedDict[tuple[Any, ...], list[Job]] = OrderedDict()

    def reports(self, path: str, *, failed: bool = False, exit_code: int | None = None) -> list[Row]:
        """The report of each job whose logs are at ``path``."""
        with self._lock:
            jobs = self._jobs(path)
            for job in jobs:
                job.told = told_of(failed=failed, exit_code=exit_code)
            return [_report(job) for job in jobs[:_MOST_JOBS]]

    def report_of_text(self, text: str, *, failed: bool = False, exit_code: int | None = None) -> Row:
        """The report of a log that is given as text."""
        data = text.encode("utf-8", "replace")
        if len(data) > _MOST_TEXT:
            raise DiagnoseError(f"this is more than {_MOST_TEXT:,} bytes", remedy="give the path of the log, or its end")
        with self._lock:
            job = Job("text", [Source("text", None)], self._rules())
            job.told = told_of(failed=failed, exit_code=exit_code)
            job.feed(0, data)
            job.close(0)
            report = _report(job)
            job.compression.kept.close()
        return report

    def kept(self, path: str, *, contains: str = "", after: int = 0, limit: int = MOST_LINES) -> Row:
        """The kept lines: those that no rule knows as regular. ``after``: how many were given before."""
        wanted, more = contains.lower(), False
        rows: list[Row] = []
        with self._lock:
            number = 0
            for job in self._jobs(path):
                names = [source.name for source in job.sources]
                for source, line, text, _, _ in job.compression.kept.rows():
                    shown = _shown(text)
                    if wanted not in shown.lower():
                        continue
                    number += 1
                    if number > after:
                        if len(rows) == limit:
                            more = True
                            break
                        rows.append({"source": names[source], "line": line, "text": shown})
        return {"lines": rows, "next": after + len(rows) if more else None}

    def lines(self, path: str, first: int, last: int) -> Row:
        """The lines ``first`` to ``last`` of one file as they stand in it, dropped ones included."""
        last = min(last, first + MOST_LINES - 1)
        rows = []
        source = self._file(path)
        for number, text in _lines_of(source):
            if number > last:
                break
            if number >= first - _BEFORE:
                rows.append({"line": number, "text": text})
        return {"source": source.name, "lines": rows}

    def search(self, path: str, pattern: str, *, limit: int = MOST_LINES) -> Row:
        """The lines of all files at ``path`` that match a regular expression, in any case; dropped ones included."""
        try:
            compiled = regex.compile(pattern.encode(), regex.IGNORECASE)
        except regex.error as error:
            raise DiagnoseError(f"this is no regular expression: {error}", where=pattern[:200]) from None
        deadline = time.monotonic() + _SEARCH_S
        rows: list[Row] = []
        for source in self._sources(path):
            try:
                for number, text in _matching(source, compiled, deadline):
                    if len(rows) == limit:
                        return {"lines": rows, "more": True}
                    rows.append({"source": source.name, "line": number, "text": text})
            except TimeoutError:
                told = f"not all was searched within {_SEARCH_S:.0f} s: search one file, or for a plainer expression"
                return {"lines": rows, "more": True, "problem": told}
        return {"lines": rows, "more": False}

    # --- reading

    def _sources(self, path: str) -> list[Source]:
        """The logs at a path below one of the roots."""
        full = Path(path if os.path.isabs(path) else self._roots[0] / path).resolve() if self._roots else None
        if full is None or not any(full.is_relative_to(root) for root in self._roots):
            known = ", ".join(map(str, self._roots)) or "none"
            raise DiagnoseError(f"only logs below these folders are read: {known}", where=path, remedy="ask for one of those")
        found = find([str(full)])
        if not found.sources:
            raise found.problems[0]
        inside = [one for one in found.sources if one.path and self._within(one.path)]  # a link may lead out of them
        if not inside:
            raise DiagnoseError("its files lie elsewhere", where=path, remedy="ask for the path that the link leads to")
        return inside

    def _within(self, path: Path) -> bool:
        return any(path.resolve().is_relative_to(root) for root in self._roots)

    def _file(self, path: str) -> Source:
        sources = self._sources(path)
        if len(sources) > 1:
            raise DiagnoseError("this is a folder of several logs", where=path, remedy=f"name one, such as {sources[0].name}")
        return sources[0]

    def _jobs(self, path: str) -> list[Job]:
        """The jobs at a path. They are read once, until a file changes."""
        sources = self._sources(path)
        key = (path, *(_stamp(source) for source in sources))
        if key in self._read:
            self._read.move_to_end(key)
            return self._read[key]
        jobs = [Job(name, logs, self._rules()) for name, logs in _grouped(path, sources)]
        for job in jobs:
            for number, source in enumerate(job.sources):
                for chunk in source.chunks():
                    job.feed(number, chunk)
                job.close(number)
        self._read[key] = jobs
        while len(self._read) > _MOST_READ:
            for job in self._read.popitem(last=False)[1]:
                job.compression.kept.close()
        return jobs

    def _rules(self) -> Matcher:
        if self._matcher is None:
            self._matcher = Matcher(load(None), reserved=EARLY)
        return self._matcher


def _report(job: Job) -> Row:
    return brief(job.report().model_dump(mode="json", by_alias=True))


def _grouped(path: str, sources: list[Source]) -> list[tuple[str, list[Source]]]:
    """(name, logs) of each job whose logs lie in one folder."""
    if len(sources) < 2:
        return [(path, sources)]
    groups = group([look(os.path.relpath(source.name, path), *source.ends()) for source in sources])
    return [(one.name or path, [sources[number] for number in one.logs]) for one in groups]


def _stamp(source: Source) -> tuple[str, int, int]:
    assert source.path is not None
    state = source.path.stat()
    return source.name, state.st_size, state.st_mtime_ns


def _shown(line: bytes) -> str:
    return clean(line[:_LONGEST_READ]).decode("utf-8", "replace").rstrip("\r")


def _lines_of(source: Source) -> Iterator[tuple[int, str]]:
    number = 0
    for data in _whole_lines(source):
        for line in data.split(b"\n")[:-1]:
            number += 1
            yield number, _shown(line)


def _matching(source: Source, pattern: regex.Pattern[bytes], deadline: float) -> Iterator[tuple[int, str]]:
    """(number, text) of the lines that match."""
    number = 1
    for data in _whole_lines(source):
        counted = at = 0
        while at < len(data):
            found = pattern.search(data, at, timeout=max(0.001, deadline - time.monotonic()))
            if found is None or found.start() == len(data):
                break
            start = data.rfind(b"\n", 0, found.start()) + 1
            end = data.find(b"\n", found.start())
            number += data.count(b"\n", counted, start)
            text = _shown(data[start:end])
            yield number, "<token>" if _OF_A_KEY.fullmatch(text.strip()) else text
            counted, at = start, end + 1
        number += data.count(b"\n", counted)


def _whole_lines(source: Source) -> Iterator[bytes]:
    """The bytes of a file in pieces that end with a line. Of a line without end only the beginning is held."""
    decoder, rest = Decoder(), b""
    chunks: Iterable[bytes] = replace(source).chunks()
    for chunk in chunks:
        data = decoder.feed(chunk)
        cut = data.rfind(b"\n") + 1
        if cut:
            yield rest + data[:cut]
            rest = data[cut:]
        else:
            rest = (rest + data)[:_LONGEST_READ]
    rest += decoder.feed(b"", last=True)
    if rest:
        yield rest + b"\n"
