"""``diagnose compare GOOD BAD``: what differs between a run that went well and one that did not."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from diagnose.cli import printable
from diagnose.cli.options.destination import add_service, address, token
from diagnose.errors import DiagnoseError, needs
from diagnose.rendering.terminal import Style, shortened, shortened_before, table

if TYPE_CHECKING:
    from diagnose.comparison.differences import Changed, Differences, Level, Parting, Regular
    from diagnose.comparison.runs import Line, Run
    from diagnose.matching.matcher import Matcher

_JOB = "job:"
_A_PAGE, _MOST_LINES = 1000, 50_000
_SHOWN = 12
_MOST_IN_JSON = 500
_SCHEMA = "diagnose.comparison/1"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say what differs between two runs: versions, settings, lines that only one has, pace, and the step from which on the "
        "loss parts."
    )
    parser.epilog = (
        "A job of a service is job:NAME, one of its attempts job:NAME#2. Of such a run only what the service kept is compared. "
        "Exit status: 0 if the runs do not differ, 1 if they do, 2 if something could not be read."
    )
    parser.add_argument(
        "good", metavar="GOOD", help="log file or folder of the run that went well, or job:NAME; a folder is one job"
    )
    parser.add_argument("bad", metavar="BAD", help="log file or folder of the other run, or job:NAME")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("--all", action="store_true", help=f"print all that differs, not only the first {_SHOWN} of each kind")
    parser.add_argument(
        "--rules",
        metavar="PATH",
        action="append",
        help="rule file or folder to use instead of the shipped rules; may be repeated",
    )
    add_service(parser)


def run(arguments: argparse.Namespace) -> int:
    from diagnose.comparison.differences import differences
    from diagnose.knowledge.rules import load
    from diagnose.matching.matcher import EARLY, Matcher

    matcher = Matcher(load(arguments.rules), reserved=EARLY)
    good, bad = (
        _of_service(path.removeprefix(_JOB), arguments, matcher) if path.startswith(_JOB) else _read(path, matcher)
        for path in (arguments.good, arguments.bad)
    )
    if any(path.startswith(_JOB) for path in (arguments.good, arguments.bad)):
        # What was dropped is known only of files, and settings only as far as their lines were kept.
        good, bad = replace(good, regular={}), replace(bad, regular={})
    found = differences(good, bad)
    if arguments.json:
        print(json.dumps(_json(good, bad, found), ensure_ascii=False))
    else:
        print(_text(good, bad, found, Style(sys.stdout), sys.maxsize if arguments.all else _SHOWN))
    return 1 if found.any else 0


def _of_service(named: str, arguments: argparse.Namespace, matcher: Matcher) -> Run:
    """A job that a service has, or one attempt of it."""
    needs("diagnose.mcp")
    from diagnose.comparison.runs import run_of_kept
    from diagnose.mcp.cluster import Cluster
    from diagnose.report import Report

    name, _, attempt = named.partition("#")
    if attempt and not attempt.isdecimal():
        raise DiagnoseError("this is no number of an attempt", where=f"{_JOB}{named}", remedy="write it as job:NAME#2")
    cluster = Cluster(address(arguments), token(arguments), ca=arguments.ca)
    asked = {"attempt": attempt or None}
    report = Report.model_validate(cluster.get("jobs", name, "report", query=asked))
    titles = {rule.id: rule.title for rule in matcher.rules if rule.title}

    def lines() -> Iterator[tuple[str, int, str, str | None]]:
        after, given = -1, 0
        while given < _MOST_LINES:
            page = cluster.get("jobs", name, "lines", query={**asked, "limit": _A_PAGE, "after": after})
            yield from ((row["source"], row["line"], row["text"], row["rule"]) for row in page["lines"])
            given += len(page["lines"])
            if page["next"] is None:
                return
            after = page["next"]
        sys.stderr.write(f"diagnose compare: {printable(name)}: only the first {given:,} kept lines are compared\n")

    return run_of_kept(report, lines(), titles)


def _read(path: str, matcher: Matcher) -> Run:
    from diagnose.comparison.runs import run_of
    from diagnose.job import Job
    from diagnose.reading.sources import find
    from diagnose.rendering.terminal import Progress

    found = find([path])
    if found.problems:
        raise found.problems[0]
    job = Job(path, found.sources, matcher)
    progress = Progress(path, sum(source.size or 0 for source in found.sources) or None, "bytes")
    for number, source in enumerate(found.sources):
        for chunk in source.chunks():
            job.feed(number, chunk)
            progress.at(job.compression.counts.bytes_in)
        job.close(number)
    progress.done()
    for problem in job.report().problems:
        sys.stderr.write(
            f"diagnose compare: {printable(f'{problem.source}: {problem.what}')}; what could be read is compared\n"
        )
    return run_of(job)


def _json(good: Run, bad: Run, found: Differences) -> dict[str, object]:
    lists = {name: rows[:_MOST_IN_JSON] for name, rows in asdict(found).items()}
    for name in ("new", "gone"):
        lists[name] = [line._asdict() for line in getattr(found, name)[:_MOST_IN_JSON]]
    return {
        "schema": _SCHEMA,
        **{name: _run(one) for name, one in (("good", good), ("bad", bad))},
        **{name: _finite(rows) for name, rows in lists.items()},
    }


def _run(one: Run) -> dict[str, object]:
    diagnosis, figures = one.report.diagnosis, one.report.compression
    root = diagnosis.root_cause
    return {
        "path": one.report.job.id,
        "outcome": one.report.outcome,
        "reason": diagnosis.reason,
        "confidence": diagnosis.confidence,
        "root_cause": {"source": root.source, "line": root.line, "text": root.text} if root is not None else None,
        "lines": figures.lines_in,
        "last_step": max((metric.at_step for metric in one.metrics.values() if metric.at_step is not None), default=None),
    }


def _finite(value: object) -> object:
    """JSON has neither infinity nor NaN."""
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list) else value


# --- text ---------------------------------------------------------------------------------------------------------------------


def _text(good: Run, bad: Run, found: Differences, style: Style, most: int) -> str:
    parts = [
        _head(good, bad, style),
        _changed("versions", found.versions, style, most),
        _changed("settings", found.settings, style, most),
        _levels(found.levels, style),
        _partings(found.partings, style),
        _lines("lines that only the bad run has", found.new, style, most),
        _lines("lines that only the good run has", found.gone, style, most),
        _regular("regular lines that only the bad run has", found.regular_new, style, most),
        _regular("regular lines that only the good run has", found.regular_gone, style, most),
    ]
    if not found.any:
        parts.append("  Nothing differs that the logs tell of.")
    return "\n\n".join(part for part in parts if part)


def _head(good: Run, bad: Run, style: Style) -> str:
    from diagnose.rendering import phrases

    rows = []
    for name, one in (("good", good), ("bad", bad)):
        diagnosis, root = one.report.diagnosis, one.report.diagnosis.root_cause
        answer = diagnosis.reason if phrases.told(one.report) else phrases.verdict(one.report)
        where = f"at {phrases.place(root)}" if root is not None else ""
        lines = f"{one.report.compression.lines_in:,} lines"
        path = shortened_before(printable(one.report.job.id), style.width * 2 // 5)
        rows.append((f"{name}:", path, answer, lines, printable(where)))
    return table(rows, style, width=style.width)


def _changed(title: str, rows: Sequence[Changed], style: Style, most: int) -> str:
    """What both tell as a table; what only one tells behind it, as a list."""
    if not rows:
        return ""
    both = [row for row in rows if row.good is not None and row.bad is not None]
    lines = [style.bold(f"  {title}")]
    if both:
        room = (style.width - 8) // 3
        shown = [tuple(printable(shortened(cell or "", room)) for cell in (row.name, row.good, row.bad)) for row in both[:most]]
        lines += _indented(
            table([("", "good", "bad"), *shown], style, header=True, width=style.width - 4), len(both), most, style
        )
    for name, only in (
        ("good", [(row.name, row.good) for row in rows if row.bad is None]),
        ("bad", [(row.name, row.bad) for row in rows if row.good is None]),
    ):
        if only:
            told = ", ".join(f"{key} {value}" for key, value in only[:most])
            more = f" and {len(only) - most:,} more" if len(only) > most else ""
            lines.append(f"    {style.dim(f'only {name}:')} {printable(shortened(told, style.width - 30))}{more}")
    return "\n".join(lines)


def _levels(rows: Sequence[Level], style: Style) -> str:
    if not rows:
        return ""
    shown = [
        (printable(row.name), f"{row.good:.6g}", f"{row.bad:.6g}", f"{row.ratio:.2f} x" if row.ratio is not None else "")
        for row in rows
    ]
    return "\n".join(
        [
            style.bold("  pace and other numbers, medians"),
            *_indented(table([("", "good", "bad", ""), *shown], style, header=True)),
        ]
    )


def _partings(rows: Sequence[Parting], style: Style) -> str:
    if not rows:
        return ""
    lines = [style.bold("  courses")]
    for row in rows:
        equal = f"equal up to step {row.equal_to:,.0f}" if row.equal_to is not None else "never equal"
        if row.apart_from is None:
            apart = "never further apart than its noise"
            if row.common is not None:
                apart += f" up to step {row.common:,.0f}, the last that both reach"
        else:
            bad = f"{row.bad:.6g}" if row.bad is not None else "not a number"
            apart = style.red(f"apart from step {row.apart_from:,.0f}") + f" (good {row.good:.6g}, bad {bad})"
        lines.append(f"    {printable(row.name)}: {equal}, {apart}")
        if row.leap is not None:
            to = f"to {row.leap.value:.6g}" if row.leap.value is not None else "to what is not a number"
            leaps = style.red(f"leaps at step {row.leap.step:,.0f}")
            lines.append(f"      {leaps} of the bad run, from about {row.leap.before:.6g} {to}")
    return "\n".join(lines)


def _lines(title: str, rows: Sequence[Line], style: Style, most: int) -> str:
    if not rows:
        return ""
    shown = []
    for row in rows[:most]:
        place = printable(f"{os.path.basename(row.source)}:{row.line}")
        text = printable(f"{row.title}: {row.text.strip()}" if row.title else row.text.strip())
        shown.append(
            f"    {style.link(row.source, row.line, style.cyan(place))}  {shortened(text, style.width - 6 - len(place))}"
        )
    more = [style.dim(f"    and {len(rows) - most:,} more kinds")] if len(rows) > most else []
    return "\n".join([style.bold(f"  {title}"), *shown, *more])


def _regular(title: str, rows: Sequence[Regular], style: Style, most: int) -> str:
    if not rows:
        return ""
    shown = [(f"{row.lines:,}", printable(row.rule), printable(row.about)) for row in rows[:most]]
    return "\n".join([style.bold(f"  {title}"), *_indented(table(shown, style, width=style.width - 4), len(rows), most, style)])


def _indented(text: str, rows: int = 0, most: int = 0, style: Style | None = None) -> Iterable[str]:
    yield from (f"    {line}" for line in text.split("\n"))
    if style is not None and rows > most:
        yield style.dim(f"    and {rows - most:,} more")
