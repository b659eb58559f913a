"""``diagnose replay PATH...``: logs in, report out."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from diagnose.cli import printable
from diagnose.cli.options import endpoint
from diagnose.cli.options.cores import cores, each, read
from diagnose.cli.replay.following import KeptFile, follow
from diagnose.compression.folds import KEEP
from diagnose.compression.workload import HEAD, KEYS, nearest
from diagnose.diagnosis.status import told_of
from diagnose.errors import DiagnoseError, SourceError, needs
from diagnose.job import Job
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.reading.grouping import Log, group, look
from diagnose.reading.sources import EmptyLog, Found, Source, find
from diagnose.rendering.terminal import Notice, Progress, Style, wrapped
from diagnose.rendering.text import overview, render
from diagnose.rendering.why import why

if TYPE_CHECKING:
    from diagnose.report import Report


FORMATS = ("text", "markdown", "html", "json")
_MOST_NAMED = 5
_WORTH_CORES = 8 << 20
"""bytes of a job, below which to read its files apart takes longer than it saves"""
_REST = "the report has only what could be read; copy the file again to have the rest"
_WORST_FIRST = (1, 3, 2, 0)
_STATUS = (
    "Exit status: 1 if a failure was diagnosed, 3 if a job failed and nothing explains it, 2 if something could not be read "
    "or an option is wrong, 0 if no failure was found. Of several jobs the worst counts, in this order."
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "diagnose replay [options] PATH..."
    parser.epilog = _STATUS
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="log file (also .gz, .zst or .xz), folder of logs, file name pattern, or - for standard input",
    )
    shown = parser.add_argument_group("what is printed")
    shown.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text for a terminal, Markdown for a ticket, one HTML file that stands alone, with plots and the kept lines, "
        "or one JSON report per job, each on a line (default: text)",
    )
    shown.add_argument("--json", action="store_const", dest="format", const="json", help="the same as --format json")
    shown.add_argument("--why", action="store_true", help="also print the likeliest explanations, and what speaks for each")
    shown.add_argument(
        "--kept", metavar="FILE", help="write the kept lines to this file, as line:text, or file:line:text of several files"
    )
    jobs = parser.add_argument_group(
        "which files make a job",
        "Without these options, the files are grouped into jobs by their names, and by job numbers and times in them.",
    )
    grouping = jobs.add_mutually_exclusive_group()
    grouping.add_argument("--each", action="store_true", help="take every file as a job of its own")
    grouping.add_argument("--together", action="store_true", help="take all files as one job")
    jobs.add_argument(
        "--job", metavar="ID", help="name of the job in the report; each folder is then one job (default: from the path)"
    )
    known = parser.add_argument_group("what you know about the job")
    known.add_argument("--failed", action="store_true", help="the job failed, even if its log looks healthy")
    known.add_argument(
        "--exit-code", type=int, metavar="N", help="the job ended with this exit code; any other than 0 means that it failed"
    )
    known.add_argument(
        "--healthy",
        metavar="PATH",
        action="append",
        default=[],
        help="logs of a similar run that went well; lines that are also in them explain no failure; may be repeated",
    )
    known.add_argument(
        "--meta",
        metavar="KEY=VALUE",
        type=_metadata,
        action="append",
        default=[],
        help=f"what kind of job it is, to find the rules learned for it; the keys are {', '.join(KEYS)}; may be repeated",
    )
    growing = parser.add_argument_group("a job that still runs")
    growing.add_argument(
        "--follow", action="store_true", help="read on as the files grow, until Ctrl-C; each folder is then one job"
    )
    growing.add_argument(
        "--idle", type=float, metavar="SECONDS", help="with --follow: stop when nothing was written for this long"
    )
    growing.add_argument("--learn", action="store_true", help="with --follow: learn filter rules from the job")
    rules = parser.add_argument_group("the rules")
    rules.add_argument(
        "--rules",
        metavar="PATH",
        action="append",
        help="rule file or folder to use instead of the shipped rules; may be repeated",
    )
    rules.add_argument(
        "--no-folds", action="store_true", help="keep every line that no rule knows, also where it only repeats others"
    )
    rules.add_argument(
        "--learned",
        metavar="FILE",
        nargs="?",
        const="",
        help="also use the active learned rules, from FILE (default: $DIAGNOSE_RULE_STORE, or "
        "~/.local/share/diagnose/learned.db)",
    )
    parser.add_argument_group("how it works").add_argument(
        "--cores", metavar="N", type=_cores, help="processor cores to use at most (default: all)"
    )
    endpoint.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.learn and not arguments.follow:
        raise DiagnoseError(
            "--learn needs --follow",
            remedy="add --follow, or learn from finished logs with diagnose rules learn PATH",
        )
    jobs, problems, passed_over = _jobs(arguments)
    _warn_of(problems, passed_over)
    if not jobs:
        return 2
    with Notice("preparing the rules"):
        matcher = _matcher(arguments)
    with KeptFile(arguments.kept) as kept_file, _agent(arguments) as agent:
        replay = _Replay(arguments, jobs, matcher, [_known(path, matcher) for path in arguments.healthy], kept_file, agent)
        statuses = [2] if problems else []
        found: list[_Told] = []
        for told in replay.all():
            statuses += told.statuses
            if told.report is not None:
                found.append(told)
        _print_all(arguments.format, found)
    return min(statuses, key=_WORST_FIRST.index)


class _Told(NamedTuple):
    """The result of one job."""

    report: Report | None
    """without what only its own section needs; None if nothing could be read"""
    statuses: list[int]
    said: list[tuple[bool, str]]
    """(a warning or not, text) that is still to be printed"""
    section: str = ""
    """of a page that holds all jobs"""
    place: str = ""
    """its anchor"""


class _Voice:
    """Prints messages about jobs at once, with an empty line between jobs if people read it."""

    def __init__(self, *, apart: bool) -> None:
        self._apart, self._spoke, self._next = apart, False, False

    def begin(self) -> None:
        """The next job begins."""
        self._next = self._spoke

    def say(self, text: str) -> None:
        print(f"\n{text}" if self._next and self._apart else text, flush=True)
        self._spoke, self._next = True, False

    def warn(self, text: str) -> None:
        sys.stderr.write(text)


class _Noted(_Voice):
    """The same in another process: the messages wait for their turn."""

    def __init__(self) -> None:
        super().__init__(apart=False)
        self.said: list[tuple[bool, str]] = []

    def say(self, text: str) -> None:
        self.said.append((False, text))

    def warn(self, text: str) -> None:
        self.said.append((True, text))


class _Replay:
    """All jobs of one command."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        jobs: Jobs,
        matcher: Matcher,
        known: Sequence[Job],
        kept_file: KeptFile,
        agent: endpoint.Agent | None,
    ) -> None:
        self.arguments, self.jobs, self.matcher, self.known = arguments, jobs, matcher, known
        self.kept_file, self.agent = kept_file, agent
        self.cores = arguments.cores or cores()
        self.voice = _Voice(apart=arguments.format == "text")

    def all(self) -> Iterator[_Told]:
        """The result of each job, after its messages."""
        # Jobs that follow or write a file, ask a model or read standard input are done here.
        piped = any(source.path is None for _, sources in self.jobs for source in sources)
        alone = self.arguments.follow or self.arguments.kept is not None or self.agent is not None or piped
        processes = 1 if alone else min(self.cores, len(self.jobs))
        if processes < 2:
            for number in range(len(self.jobs)):
                self.voice.begin()
                yield self._one(number, self.voice)
            return
        progress = Progress("jobs", len(self.jobs))
        for number, told in enumerate(each(self._apart, len(self.jobs), processes)):
            progress.done()
            self.voice.begin()
            for warning, text in told.said:
                (self.voice.warn if warning else self.voice.say)(text)
            progress.at(number + 1)
            yield told
        progress.done()

    def _worth_it(self, job: Job) -> bool:
        """Whether the files of a job are read on all cores: where they are many bytes, and no other job is read meanwhile."""
        if len(self.jobs) > 1 or self.cores < 2 or len(job.sources) < 2 or self.arguments.kept is not None:
            return False
        files = all(source.path is not None and source.path.is_file() for source in job.sources)
        return files and sum(source.size or 0 for source in job.sources) >= _WORTH_CORES

    def _apart(self, number: int) -> _Told:
        """One job, in its own process."""
        noted = _Noted()
        told = self._one(number, noted)
        return told._replace(said=noted.said)

    def _one(self, number: int, voice: _Voice) -> _Told:
        arguments = self.arguments
        name, sources = self.jobs[number]
        job = _job(arguments.job or name, sources, self.matcher, arguments)
        for healthy in self.known:
            job.learn(healthy)
        self.kept_file.begin(job, many=len(sources) > 1 or len(self.jobs) > 1)
        if arguments.follow:
            finished = follow(job, self.kept_file, arguments)
        elif self._worth_it(job):
            finished = True
            read(job, self.cores)
        else:
            finished = _read(job, self.kept_file, processes=self.cores if len(self.jobs) == 1 else 1)
        report = job.report(running=not finished)
        statuses = [] if _whole(report, job, voice, followed=arguments.follow) else [2]
        if report.compression.bytes_in == 0 and not arguments.follow and job.told is None:
            return _Told(None, statuses, [])
        report = _shown(report, job, self.agent, arguments, voice, finished=finished)
        place = f"job-{number + 1}"
        section = _section(arguments.format, report, job, place, len(self.jobs))
        job.compression.kept.close()
        return _Told(_small(report), [*statuses, _status(report)], [], section, place)


def _section(form: str, report: Report, job: Job, place: str, of: int) -> str:
    """A job's part of a page; "" if each job is printed alone."""
    if form == "markdown":
        from diagnose.rendering import markdown

        return markdown.section(report)
    if form == "html":
        from diagnose.rendering import html

        return html.section(report, job, place, of)
    return ""


def _print_all(form: str, found: Sequence[_Told]) -> None:
    """Print what is about all jobs together."""
    reports = [told.report for told in found if told.report is not None]
    sections = [told.section for told in found]
    if form == "markdown" and found:
        from diagnose.rendering import markdown

        print(markdown.page(reports, sections), end="", flush=True)
    elif form == "html" and found:
        from diagnose.rendering import html

        print(html.page(reports, sections, [told.place for told in found]), flush=True)
    elif form == "text" and len(found) > 1:
        print("\n" + overview(reports, Style(sys.stdout)), flush=True)


def _warn_of(problems: list[SourceError], passed_over: list[SourceError]) -> None:
    for problem in (*problems, *passed_over[:_MOST_NAMED]):
        sys.stderr.write(_warning(problem))
    if len(passed_over) > _MOST_NAMED:
        sys.stderr.write(f"diagnose replay: {len(passed_over) - _MOST_NAMED:,} more files of the folder are not logs\n")


def _whole(report: Report, job: Job, voice: _Voice, *, followed: bool) -> bool:
    """Whether all of the job was read. What was not is reported."""
    for unread in report.problems:
        remedy = _REST if report.compression.bytes_in else "the report has nothing of this file; check it"
        voice.warn(_warning(SourceError(unread.what, where=unread.source, remedy=remedy)))
    nothing = report.compression.bytes_in == 0 and not followed and job.told is None
    if nothing and not report.problems:
        nothing_read = SourceError("nothing could be read", where=job.id, remedy="check the path and its permissions")
        voice.warn(_warning(nothing_read))
    return not nothing and not report.problems


def _shown(
    report: Report, job: Job, agent: endpoint.Agent | None, arguments: argparse.Namespace, voice: _Voice, *, finished: bool
) -> Report:
    """The report, printed if each job is printed alone, and improved by the model if there is one."""
    style = Style(sys.stdout)
    text = arguments.format == "text"
    if text:
        voice.say(render(report, job, style))
        if arguments.why:
            voice.say("\n" + why(job.finding(job.evidence(), running=not finished), job.sources, style))
    if agent is not None:
        before, report = report, _asked(agent, report, job)
        if text and report is not before:
            voice.say("\n" + _second(before, report, job, style))
    if arguments.format == "json":
        voice.say(report.as_json())
    return report


def _small(report: Report) -> Report:
    """The parts of a report that the overview needs, because whole reports of thousands of jobs take much memory."""
    return report.model_copy(update={"metrics": {}, "diagnosis": report.diagnosis.model_copy(update={"evidence": []})})


def _agent(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[endpoint.Agent | None]:
    return endpoint.Agent(arguments) if endpoint.wanted(arguments) else contextlib.nullcontext()


def _asked(agent: endpoint.Agent, report: Report, job: Job) -> Report:
    """The report, improved by the model if rules explain it weakly or not at all."""
    evidence = job.evidence()
    if agent.waits(report, evidence):
        endpoint.say_asking(report)
    return agent.improve(report, evidence, may_be_healthy=job.told is None).report


def _second(before: Report, report: Report, job: Job, style: Style) -> str:
    """What the model answered: the whole report again if it follows the model, else a few lines."""
    if report.diagnosis.by == "agent":
        return f"{style.bold('The model was asked:')}\n\n{render(report, job, style)}"
    notes = report.diagnosis.notes[len(before.diagnosis.notes) :]
    return "\n".join(f"  {line}" for note in notes for line in wrapped(printable(note), style.prose - 2))


def _matcher(arguments: argparse.Namespace) -> Matcher:
    rules = load(arguments.rules)
    if arguments.learned is None:
        return Matcher(rules, reserved=EARLY)
    needs("diagnose.learning")
    from diagnose.learning.rule_store import RuleFile, RuleStore, working_matcher

    return working_matcher(RuleStore(RuleFile(endpoint.rule_file(arguments.learned or None))), None, rules)


def _job(name: str, sources: list[Source], matcher: Matcher, arguments: argparse.Namespace) -> Job:
    """The job, with the rules that were learned from jobs like it, which its beginning shows."""
    job = Job(name, sources, matcher, _fold_after(arguments))
    job.metadata = dict(arguments.meta)
    job.told = told_of(failed=arguments.failed, exit_code=arguments.exit_code)
    if (arguments.learned is None and not arguments.learn) or any(source.path is None for source in sources):
        return job
    needs("diagnose.learning")
    from diagnose.learning.rule_store import RuleFile, RuleStore, working_matcher

    first = Job(name, sources, matcher)
    first.metadata = job.metadata
    for number, source in enumerate(sources):
        head = next(iter(replace(source).chunks()), b"")[:HEAD]
        first.feed(number, head)
        first.close(number)
        if first.compression.counts.bytes_in >= HEAD:
            break
    store = RuleStore(RuleFile(endpoint.rule_file(arguments.learned or None)))
    workload = nearest(first.fingerprint, store.workloads()) if arguments.learned is not None else None
    if workload is not None:
        own = working_matcher(store, workload, load(arguments.rules))
        if {rule.id for rule in own.rules} - {rule.id for rule in matcher.rules}:
            job = Job(name, sources, own, _fold_after(arguments))
            job.metadata = first.metadata
            job.told = told_of(failed=arguments.failed, exit_code=arguments.exit_code)
    job.fingerprint = first.fingerprint
    first.compression.kept.close()
    return job


def _fold_after(arguments: argparse.Namespace) -> int:
    return 0 if arguments.no_folds else KEEP


def _metadata(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or key not in KEYS:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE with one of the keys {', '.join(KEYS)}")
    return key, value


def _cores(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of cores; write 1 or more")
    return int(text)


def _known(path: str, matcher: Matcher) -> Job:
    """A run that went well, read."""
    found = find([path])
    if found.problems:
        raise found.problems[0]
    job = Job(path, found.sources, matcher, fold_after=0)  # each of its lines is known
    _read(job, KeptFile(None))
    return job


def _status(report: Report) -> int:
    """0 healthy, 1 a failure was diagnosed, 3 failed but unexplained."""
    if report.outcome != "failed":
        return 0
    return 3 if report.diagnosis.reason == "unknown" else 1


def _warning(error: DiagnoseError) -> str:
    return f"diagnose replay: {printable(str(error))}\n"


Jobs = list[tuple[str, list[Source]]]


def _jobs(arguments: argparse.Namespace) -> tuple[Jobs, list[SourceError], list[SourceError]]:
    """(name, sources) of each job; what could not be read; files that are not logs."""
    if "-" in arguments.paths and arguments.follow:
        raise DiagnoseError("standard input is always read to its end", remedy="leave --follow out")
    each: list[tuple[str, Found]] = [(path, find([path])) for path in arguments.paths]
    problems = [problem for _, found in each for problem in found.problems]
    passed_over = [problem for _, found in each for problem in found.passed_over]
    sources = [source for _, found in each for source in found.sources]
    empty = [_empty(problem) for problem in problems if isinstance(problem, EmptyLog)]
    ended = bool(arguments.failed or arguments.exit_code) and not arguments.follow
    if ended and empty and not sources:  # how it ended is an answer, too
        problems = [problem for problem in problems if not isinstance(problem, EmptyLog)]
        one = arguments.together or not arguments.each
        return _distinct([(empty[0].name, empty)] if one else [(log.name, [log]) for log in empty]), problems, passed_over
    if arguments.together:
        losses = [problem for problem in problems if not (sources and isinstance(problem, EmptyLog))]
        return ([(_name(arguments.paths[0]), sources)] if sources else []), losses, passed_over
    if arguments.each:
        return _distinct([(source.name, [source]) for source in sources]), problems, passed_over
    jobs: list[Jobs] = [[] for _ in each]
    files: list[tuple[int, Source]] = []
    for number, (path, found) in enumerate(each):
        if not Path(path).is_dir():
            files += [(number, source) for source in found.sources]
            files += [(number, _empty(problem)) for problem in found.problems if isinstance(problem, EmptyLog)]
        elif arguments.follow or arguments.job is not None:
            jobs[number] = [(path, found.sources)] if found.sources else []
        else:
            jobs[number] = _of_folder(path, found.sources, passed_over)
    no_loss = _of_files(files, {problem.where for problem in problems}, jobs)
    return (
        _distinct([job for of_path in jobs for job in of_path]),
        [problem for problem in problems if problem.where not in no_loss],
        passed_over,
    )


def _empty(problem: EmptyLog) -> Source:
    path = problem.where or ""
    return Source(path, Path(path))


def _of_folder(path: str, sources: list[Source], passed_over: list[SourceError]) -> Jobs:
    """The jobs whose logs a folder holds."""
    if len(sources) < 2:
        return [(path, sources)] if sources else []
    groups = group([_looked_at(source, os.path.relpath(source.name, path)) for source in sources])
    grouped = {number for one in groups for number in one.logs}
    passed_over += [
        SourceError(
            "this file belongs to none of the jobs in the folder", where=source.name, remedy="if it is a log, give its own path"
        )
        for number, source in enumerate(sources)
        if number not in grouped
    ]
    return [(one.name or path, [sources[number] for number in one.logs]) for one in groups]


def _of_files(files: list[tuple[int, Source]], empty: set[str | None], jobs: list[Jobs]) -> set[str]:
    """The jobs of files that were named one by one, put where the first was named. Returns the empty ones that are no loss."""
    no_loss: set[str] = set()
    for one in group([_looked_at(source, source.name) for _, source in files], folder=False):
        members = [files[number] for number in one.logs]
        full = [source for _, source in members if source.name not in empty]
        if full:
            jobs[min(number for number, _ in members)].append((one.name or full[0].name, full))
            no_loss |= {source.name for _, source in members if source.name in empty}
    return no_loss


def _looked_at(source: Source, name: str) -> Log:
    return look(name.replace(os.sep, "/"), *source.ends())


def _distinct(jobs: Jobs) -> Jobs:
    """Each with the name of its file or folder. If two have one name, with its path."""
    names = [_name(path) for path, _ in jobs]
    return [
        (name if names.count(name) == 1 else _without_endings(path), sources)
        for name, (path, sources) in zip(names, jobs, strict=True)
    ]


def _name(path: str) -> str:
    """A job's name: that of its file or folder, without the endings."""
    return _without_endings(os.path.basename(os.path.abspath(path)) if path not in ("-", "<stdin>") else "stdin") or path


def _without_endings(name: str) -> str:
    for ending in (".gz", ".zst", ".xz", ".log", ".out", ".err", ".txt"):
        name = name.removesuffix(ending)
    return name


def _read(job: Job, kept_file: KeptFile, processes: int = 1) -> bool:
    """All sources, one after the other, each in this many processes if it is large."""
    total = sum(source.size or 0 for source in job.sources)
    progress = Progress(job.id, total or None, "bytes")
    before = 0
    for number, source in enumerate(job.sources):
        large = (source.size or 0) >= _WORTH_CORES and sys.platform == "linux"  # which can copy a process
        for found in job.feed_all(number, processes if large else 1):
            kept_file.write(number, found)
            progress.at(before + (source.bytes_read or job.compression.counts.bytes_in))
        kept_file.write(number, job.close(number))
        before += source.bytes_read
    progress.done()
    return True
