"""``diagnose replay PATH...``: logs in, report out."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from diagnose.cli import endpoint, printable
from diagnose.cli.rules import book_path
from diagnose.cli.terminal import Notice, Progress, Style, human_bytes, shortened, sparkline, table, wrapped
from diagnose.compression.workload import HEAD, KEYS, nearest
from diagnose.diagnosis.detectors.course import duration
from diagnose.diagnosis.wording import ranges
from diagnose.errors import DiagnoseError, SourceError
from diagnose.job import Job
from diagnose.knowledge.rules import RuleSet, load
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import Scan
from diagnose.reading.sources import Follower, Found, Restart, Source, find

if TYPE_CHECKING:
    from diagnose.learning.live import Heard, Learner
    from diagnose.report import EvidenceLine, Report

_POLL_S = 0.2
_SHOWN_KINDS = 6
_SURE = 0.9
_SHOWN_LAST = 5


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a log file, a folder (one job of many rank or node files), a pattern, .gz .zst .xz, or - for standard input",
    )
    parser.add_argument("--json", action="store_true", help="one report a line a job, as JSON")
    grouping = parser.add_mutually_exclusive_group()
    grouping.add_argument("--each", action="store_true", help="every file its own job, also those of a folder")
    grouping.add_argument("--together", action="store_true", help="all PATHs are one job")
    parser.add_argument("--kept", metavar="FILE", help="write the compressed log here, as line:text (or source:line:text)")
    parser.add_argument("--follow", action="store_true", help="go on reading as the files grow, until interrupted")
    parser.add_argument(
        "--idle", type=float, metavar="SECONDS", help="with --follow: stop when nothing was written for so long"
    )
    parser.add_argument(
        "--healthy",
        metavar="PATH",
        action="append",
        default=[],
        help="a run of this kind that went well: what it says is no cause",
    )
    parser.add_argument("--rules", metavar="PATH", action="append", help="rule files or folders instead of the shipped ones")
    parser.add_argument(
        "--learned",
        metavar="FILE",
        nargs="?",
        const="",
        help="also use the active learned rules (see diagnose rules learn)",
    )
    parser.add_argument("--learn", action="store_true", help="with --follow: learn filter rules from the job as it runs")
    parser.add_argument(
        "--meta", metavar="KEY=VALUE", type=_metadata, action="append", default=[], help=f"of the job: {', '.join(KEYS)}"
    )
    parser.add_argument("--job", metavar="ID", help="the job's name in the report (default: from the path)")
    endpoint.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.learn and not arguments.follow:
        raise DiagnoseError(
            "learning while reading needs --follow",
            remedy="diagnose rules learn PATH learns from logs that have ended",
        )
    jobs, problems = _jobs(arguments)
    for problem in problems:
        _warn(problem)
    if not jobs:
        return 2
    with Notice("preparing the rules, which is done once"):
        matcher = Matcher(_rules(arguments))
    with _KeptFile(arguments.kept) as kept_file, _agent(arguments) as agent:
        statuses = [2] if problems else []
        known = [_known(path, matcher) for path in arguments.healthy]
        for number, (name, sources) in enumerate(jobs):
            job = _job(arguments.job or name, sources, matcher, arguments)
            for healthy in known:
                job.learn(healthy)
            kept_file.begin(job, many=len(sources) > 1 or len(jobs) > 1)
            finished = _follow(job, kept_file, arguments) if arguments.follow else _read(job, kept_file)
            report = job.report(running=not finished)
            for unread in report.problems:
                remedy = "what could be read is reported; fetch the file again for the rest"
                _warn(SourceError(unread.what, where=unread.source, remedy=remedy))
                statuses.append(2)
            if report.compression.bytes_in == 0 and not arguments.follow:
                _warn(SourceError("nothing could be read", where=job.id, remedy="check the path and its permissions"))
                statuses.append(2)
                continue
            if not arguments.json:
                print("\n" * (number > 0) + render(report, job, Style(sys.stdout)), flush=True)
            if agent is not None:
                before, report = report, _asked(agent, report, job)
                if not arguments.json and report is not before:
                    print("\n" + _second(before, report, job, Style(sys.stdout)), flush=True)
            if arguments.json:
                print(report.as_json(), flush=True)
            statuses.append(_status(report))
            job.compression.kept.close()
    return 2 if 2 in statuses else max(statuses, key=[0, 3, 1].index)


def _agent(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[endpoint.Agent | None]:
    return endpoint.Agent(arguments) if endpoint.wanted(arguments) else contextlib.nullcontext()


def _asked(agent: endpoint.Agent, report: Report, job: Job) -> Report:
    """The report, improved by the model where rules explain it weakly or not at all."""
    evidence = job.evidence()
    if agent.waits(report, evidence):
        endpoint.say_asking(report)
    return agent.improve(report, evidence).report


def _second(before: Report, report: Report, job: Job, style: Style) -> str:
    """What the model came to: the whole report anew where it follows the model, else a few lines."""
    if report.diagnosis.by == "agent":
        return f"{style.bold('The model was asked:')}\n\n{render(report, job, style)}"
    notes = report.diagnosis.notes[len(before.diagnosis.notes) :]
    return "\n".join(f"  {line}" for note in notes for line in wrapped(printable(note), 98))


def _rules(arguments: argparse.Namespace) -> RuleSet:
    if arguments.learned is None:
        return load(arguments.rules)
    from diagnose.learning.lesson import working_rules
    from diagnose.learning.sqlite import SqliteBook

    return working_rules(SqliteBook(book_path(arguments.learned or None)), None, load(arguments.rules))


def _job(name: str, sources: list[Source], matcher: Matcher, arguments: argparse.Namespace) -> Job:
    """The job, with the rules that were learned from jobs like it, as its beginning tells."""
    job = Job(name, sources, matcher)
    job.metadata = dict(arguments.meta)
    if (arguments.learned is None and not arguments.learn) or any(source.path is None for source in sources):
        return job
    from diagnose.learning.lesson import working_rules
    from diagnose.learning.sqlite import SqliteBook

    first = Job(name, sources, matcher)
    first.metadata = job.metadata
    for number, source in enumerate(sources):
        head = next(iter(replace(source).chunks()), b"")[:HEAD]
        first.feed(number, head)
        first.close(number)
        if first.compression.counts.bytes_in >= HEAD:
            break
    book = SqliteBook(book_path(arguments.learned or None))
    workload = nearest(first.fingerprint, book.workloads()) if arguments.learned is not None else None
    if workload is not None:
        rules = working_rules(book, workload, load(arguments.rules))
        if len(rules) > len(matcher.rules):
            job = Job(name, sources, Matcher(rules))
            job.metadata = first.metadata
    job.fingerprint = first.fingerprint
    first.compression.kept.close()
    return job


def _metadata(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or key not in KEYS:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE with one of the keys {', '.join(KEYS)}")
    return key, value


def _known(path: str, matcher: Matcher) -> Job:
    """A run that went well, read."""
    found = find([path])
    if found.problems:
        raise found.problems[0]
    job = Job(path, found.sources, matcher)
    _read(job, _KeptFile(None))
    return job


def _status(report: Report) -> int:
    """0 healthy, 1 a failure was diagnosed, 3 failed but unexplained."""
    if report.outcome != "failed":
        return 0
    return 3 if report.diagnosis.reason == "unknown" else 1


def _warn(error: DiagnoseError) -> None:
    sys.stderr.write(f"diagnose replay: {printable(str(error))}\n")


def _jobs(arguments: argparse.Namespace) -> tuple[list[tuple[str, list[Source]]], list[SourceError]]:
    """(name, sources) of each job."""
    if "-" in arguments.paths and arguments.follow:
        raise DiagnoseError("standard input is followed anyway", remedy="leave --follow out")
    each: list[tuple[str, Found]] = [(path, find([path])) for path in arguments.paths]
    problems = [problem for _, found in each for problem in found.problems]
    if arguments.together:
        sources = [source for _, found in each for source in found.sources]
        return ([(_name(arguments.paths[0]), sources)] if sources else []), problems
    jobs = []
    for path, found in each:
        if arguments.each or not Path(path).is_dir():
            jobs += [(_name(source.name), [source]) for source in found.sources]
        elif found.sources:
            jobs.append((_name(path), found.sources))
    return jobs, problems


def _name(path: str) -> str:
    """A job's name: that of its file or folder, less the endings."""
    name = os.path.basename(os.path.abspath(path)) if path not in ("-", "<stdin>") else "stdin"
    for ending in (".gz", ".zst", ".xz", ".log", ".out", ".err", ".txt"):
        name = name.removesuffix(ending)
    return name or path


class _KeptFile:
    """The compressed log as text, like ``grep -n`` prints it: line:text, or source:line:text."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._prefixes: list[bytes] = []

    def __enter__(self) -> _KeptFile:
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


def _read(job: Job, kept_file: _KeptFile) -> bool:
    total = sum(source.size or 0 for source in job.sources)
    progress = Progress(job.id, total or None, "bytes")
    before = 0
    for number, source in enumerate(job.sources):
        for chunk in source.chunks():
            kept_file.write(number, job.feed(number, chunk))
            progress.at(before + (source.bytes_read or job.compression.counts.bytes_in))
        kept_file.write(number, job.close(number))
        before += source.bytes_read
    progress.done()
    return True


def _follow(job: Job, kept_file: _KeptFile, arguments: argparse.Namespace) -> bool:
    """Until interrupted, or idle for as long as was asked. True if the job can be taken to have ended."""
    followers = [Follower(source) for source in job.sources]
    learner = _learner(job, arguments)
    folders = [path for path in arguments.paths if Path(path).is_dir()]
    live = _Live(job)
    last_news = time.monotonic()
    ended = False
    try:
        while True:
            news = False
            for number, follower in enumerate(followers):
                for chunk in follower.poll():
                    news = True
                    scans = job.restart(number) if isinstance(chunk, Restart) else job.feed(number, chunk)
                    kept_file.write(number, scans)
                    live.show(number, scans)
                    if learner is not None:
                        learner.feed(scans)
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
            live.status()
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        pass
    finally:
        live.done()
    for number, follower in enumerate(followers):
        follower.close()
        scans = job.close(number)
        kept_file.write(number, scans)
        if learner is not None:
            learner.feed(scans)
    if learner is not None:
        _tell(learner.close(job.compression.counts.dropped))
    return ended


def _learner(job: Job, arguments: argparse.Namespace) -> Learner | None:
    if not arguments.learn:
        return None
    from diagnose.learning.learned_rule import workload_of
    from diagnose.learning.live import Learner
    from diagnose.learning.sqlite import SqliteBook

    path = book_path(arguments.learned or None)
    book = SqliteBook(path)
    workload = workload_of(job.fingerprint, book) if job.fingerprint.sketch else ""
    book.close()
    return Learner(path, job.compression.matcher, job.id, endpoint.settings_of(arguments), workload)


def _tell(heard: Heard) -> None:
    said = f"learned from {heard.lines:,} kept lines: {len(heard.active)} rules active, {len(heard.retired)} retired"
    missed = f"; {heard.missed:,} lines were more than it could take" if heard.missed else ""
    sys.stderr.write(f"diagnose replay: {said}{missed}\n")
    for problem in dict.fromkeys(heard.problems):
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


def render(report: Report, job: Job, style: Style) -> str:
    """The report for people, like a good compiler's: what, where, what followed, what to do. At most 100 columns."""
    parts = [_headline(report, style)]
    if report.diagnosis.root_cause is not None:
        parts += [_cause(report, style), _followed(report, style), _advice(report, style), _others(report, style)]
    else:
        parts.append(_overcome(report, style))
    parts += [_figures(report, style), "\n".join(_metric_lines(report, style))]
    if report.outcome != "failed":
        parts.append("\n".join(_kept_lines(report, job, style)))
    return "\n\n".join(part for part in parts if part)


def _headline(report: Report, style: Style) -> str:
    diagnosis = report.diagnosis
    sources = report.job.sources
    of = shortened(sources[0], 60) if len(sources) == 1 else f"{len(sources)} files"
    name = style.bold(printable(report.job.id))
    attempt = f", attempt {report.job.attempt}" if report.job.attempt > 1 else ""
    if report.outcome == "failed" or diagnosis.root_cause is not None:
        sure = f"  {style.dim(f'confidence {diagnosis.confidence:.0%}')}" if diagnosis.confidence else ""
        verdict = f"{style.red(style.bold(diagnosis.reason))} ({diagnosis.category}){sure}"
    else:
        words = "healthy" if diagnosis.confidence >= _SURE else "no failure found"
        verdict = style.cyan("running") if report.outcome == "running" else style.green(words)
    lines = [f"{name}: {verdict}  {style.dim(printable(of) + attempt)}"]
    lines += [f"  {line}" for line in wrapped(printable(diagnosis.summary), 98)]
    lines += [f"  {line}" for note in diagnosis.notes for line in wrapped(printable(note), 98)]
    return "\n".join(lines)


def _cause(report: Report, style: Style) -> str:
    """The root cause between its neighbours."""
    diagnosis = report.diagnosis
    root = diagnosis.root_cause
    assert root is not None
    near = [item for item in diagnosis.evidence if item.role == "context" and item.source == root.source]
    shown = sorted([root, *near], key=lambda item: item.line)
    width = len(str(shown[-1].line))
    about = [f"rank {root.rank}" if root.rank is not None else "", root.node or "", root.time or ""]
    place = f"{root.source}:{root.line}"
    lines = [
        f"  {style.cyan('-->')} {style.cyan(printable(shortened(place, 60)))}  {style.dim(printable(_listed(about)))}".rstrip()
    ]
    for item in shown:
        text = printable(item.text.rstrip()).replace("\t", "    ")
        if item is root:
            lines += [
                f"  {style.red('>')} {style.bold(str(item.line).rjust(width))} {style.dim('|')} {style.red(line)}"
                if number == 0
                else f"    {' ' * width} {style.dim('|')} {style.red(line)}"
                for number, line in enumerate(wrapped(text, 93 - width, most=4))
            ]
        else:
            lines.append(
                f"    {style.dim(str(item.line).rjust(width))} {style.dim('|')} {style.dim(shortened(text, 93 - width))}"
            )
    if root.frame:
        lines.append(f"    {' ' * width} {style.dim('=')} raised in {printable(shortened(root.frame, 82 - width))}")
    return "\n".join(lines)


def _followed(report: Report, style: Style) -> str:
    """What came of it, folded: a line for each kind."""
    items = [item for item in report.diagnosis.evidence if item.role == "consequence"]
    if not items:
        return ""
    lines = [style.bold("  what followed")]
    lines += [_folded(item, style) for item in items[:_SHOWN_KINDS]]
    if len(items) > _SHOWN_KINDS:
        lines.append(style.dim(f"    and {len(items) - _SHOWN_KINDS} more kinds"))
    return "\n".join(lines)


def _folded(item: EvidenceLine, style: Style) -> str:
    place = printable(f"{os.path.basename(item.source)}:{item.line}")
    many = f"{len(item.ranks)} ranks: " if len(item.ranks) > 1 else f"{item.count:,} x " if item.count > 1 else ""
    later = f", {duration(item.later_s)} later" if item.later_s is not None and item.later_s >= 1 else ""
    what = printable(item.title or item.text.strip())
    return f"    {style.cyan(place)}  {many}{shortened(what, max(20, 94 - len(place) - len(many) - len(later)))}{later}"


def _advice(report: Report, style: Style) -> str:
    diagnosis, action = report.diagnosis, report.action
    lines = []
    suspects = diagnosis.suspects
    if suspects.nodes or suspects.ranks or suspects.gpus:
        words = [
            f"{'node' if len(suspects.nodes) == 1 else 'nodes'} {_few(suspects.nodes)}" if suspects.nodes else "",
            f"GPU {_few(suspects.gpus)}" if suspects.gpus else "",
            f"{'rank' if len(suspects.ranks) == 1 else 'ranks'} {ranges(suspects.ranks)}" if suspects.ranks else "",
        ]
        lines.append(f"  {style.bold('suspects')}  {printable(_listed(words))}")
    what = style.yellow(action.kind) + (f" {printable(_few(action.nodes))}" if action.nodes else "")
    if action.restart_from is not None and action.restart_from.step is not None:
        what += f", from a checkpoint at step {action.restart_from.step:,} or before"
    if action.skip_batches is not None:
        what += f", skip the batches of steps {action.skip_batches[0]:,} to {action.skip_batches[1]:,}"
    lines.append(f"  {style.bold('action')}    {what}")
    lines += [f"            {line}" for line in wrapped(action.why, 86)]
    if diagnosis.mitigation:
        advice = [line for part in diagnosis.mitigation.split("\n") for line in wrapped(part.strip(), 86)]
        lines += [f"  {style.bold('help') if number == 0 else '    '}      {line}" for number, line in enumerate(advice)]
    return "\n".join(lines)


def _others(report: Report, style: Style) -> str:
    diagnosis = report.diagnosis
    if not diagnosis.others:
        return ""
    lines = [style.bold("  other failures, which do not follow from it")]
    lines += [f"{_folded(other.line, style)}  {style.dim(other.reason)}" for other in diagnosis.others[:_SHOWN_KINDS]]
    return "\n".join(lines)


def _overcome(report: Report, style: Style) -> str:
    if not report.diagnosis.recovered:
        return ""
    return "\n".join(
        [style.bold("  went wrong and was overcome"), *(_folded(i, style) for i in report.diagnosis.recovered[:_SHOWN_KINDS])]
    )


def _figures(report: Report, style: Style) -> str:
    figures = report.compression
    share = f" ({100 * figures.ratio:.1f} % of the bytes)" if figures.ratio is not None else ""
    lines = [
        f"  {style.bold('read')}      {figures.lines_in:,} lines, {human_bytes(figures.bytes_in)}; "
        f"kept {figures.lines_kept:,} lines, {human_bytes(figures.bytes_kept)}{share}"
    ]
    if figures.dropped_by_kind:
        dropped = ", ".join(f"{kind} {count:,}" for kind, count in figures.dropped_by_kind.items())
        lines.append(f"  {style.bold('dropped')}   {dropped}")
    if report.agent is not None:
        taken = ", ".join(f"{kind} {count:,}" for kind, count in sorted(report.agent.redacted.items())) or "nothing"
        lines.append(
            f"  {style.bold('model')}     {printable(report.agent.model or 'unnamed')} was shown "
            f"{report.agent.lines_shown:,} lines; redacted before: {taken}"
        )
    if report.diagnosis.lines_not_read:
        lines.append(f"  {style.bold('note')}      {report.diagnosis.lines_not_read:,} kept lines were too many to diagnose")
    return "\n".join(lines)


def _few(words: list[str], most: int = 6) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def _listed(words: list[str]) -> str:
    return ", ".join(word for word in words if word)


def _metric_lines(report: Report, style: Style) -> list[str]:
    """A line for each number that moved, but not for what only counts."""
    rows = []
    for name, figures in report.metrics.items():
        if figures.count < 2 or figures.min == figures.max or name.startswith(("consumed_", "total_")) or name == "epoch":
            continue
        spark = sparkline([point[1] for point in figures.points], 40)
        last, least, most = (_short(value) for value in (figures.last, figures.min, figures.max))
        rows.append((f"  {name}", f"{figures.count:,}", last, least, most, style.cyan(spark)))
    if not rows:
        return []
    return [*table([("  metric", "values", "last", "least", "greatest", ""), *rows], style, header=True).split("\n")]


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _kept_lines(report: Report, job: Job, style: Style) -> list[str]:
    """The last kept lines: what a person would scroll to."""
    if not report.compression.lines_kept:
        return []
    log = job.compression.kept
    tail = []
    for _, kept in log.chosen(lambda order, source, rule: order >= log.lines - _SHOWN_LAST):
        text = printable(kept.text[:1000].decode("utf-8", "replace"))
        tail.append(f"    {os.path.basename(job.sources[kept.source].name)}:{kept.line}: {text}")
    return [style.bold("  the last kept lines"), *(shortened(line, 100) for line in tail)]
