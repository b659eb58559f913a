"""``diagnose top``: one page on the terminal that renews itself, of a running service or of a job whose files grow."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from diagnose.cli import printable
from diagnose.cli.options.destination import add_service, token
from diagnose.errors import DiagnoseError, needs
from diagnose.rendering.terminal import Style, shortened, table

_LOCAL: Final = "http://127.0.0.1:8321"
_AT_RISK: Final = 0.5
"""as the pages of the service mean it"""
_MOST: Final = 200
_EACH: Final = 8
"""rows of what waits and of failures"""
_LOW: Final = 18
"""a terminal of fewer lines has none to leave empty"""
_FAILURES: Final = 50
_ACTS: Final = frozenset(
    {"restart", "isolate_and_restart", "rollback_and_skip", "retry_later", "isolate", "release", "check", "hold", "reboot"}
)
"""what somebody can say yes to; the other kinds advise"""
_CLEAR: Final = "\x1b[H\x1b[J"
_POLL_S: Final = 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show running jobs, what fails, and what waits for a yes, as a page that renews itself."
    parser.epilog = "With PATHs no service is needed: the page is about the job that writes them. Ctrl-C ends it."
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files, or a folder, of one job (default: a service)")
    parser.add_argument("--every", type=_seconds, default=2.0, metavar="SECONDS", help="time between two pages (default: 2)")
    parser.add_argument("--once", action="store_true", help="print one page and end, as always if this is no terminal")
    add_service(parser, what=f"address of the service (default: $DIAGNOSE_URL, or {_LOCAL})")


def run(arguments: argparse.Namespace) -> int:
    screen = _of_files(arguments) if arguments.paths else _of_service(arguments)
    once = arguments.once or not sys.stdout.isatty()
    while True:
        page = screen()
        if once:
            print(page)
            return 0
        lines = page.split("\n")[: shutil.get_terminal_size((80, 24)).lines - 1]
        sys.stdout.write(_CLEAR + "\n".join(lines))
        sys.stdout.flush()
        time.sleep(arguments.every)


def _of_service(arguments: argparse.Namespace) -> Callable[[], str]:
    needs("diagnose.mcp")
    from diagnose.mcp.cluster import Cluster, Refused

    cluster = Cluster(arguments.to or os.environ.get("DIAGNOSE_URL") or _LOCAL, token(arguments), ca=arguments.ca)
    shown: list[str] = []

    def screen() -> str:
        style = Style(sys.stdout)  # each time: somebody may make the terminal wider
        try:
            jobs = cluster.get("jobs", query={"state": "running", "limit": _MOST})["jobs"]
            failures = cluster.get("failures", query={"state": "open", "limit": _FAILURES})["failures"]
            waiting = cluster.get("actions", query={"state": "proposed", "limit": 50})["actions"]
        except Refused as refused:
            if refused.status != 503 or not shown:
                raise
            return f"{style.yellow(f'no answer: {printable(refused.what)}; what follows is old')}\n{shown[-1]}"
        high = shutil.get_terminal_size((80, 24)).lines - 1 if sys.stdout.isatty() and not arguments.once else None
        shown[:] = [page(cluster.url, jobs, failures, waiting, time.time(), style, high)]
        return shown[-1]

    return screen


def page(
    url: str,
    jobs: Sequence[Mapping[str, Any]],
    failures: Sequence[Mapping[str, Any]],
    waiting: Sequence[Mapping[str, Any]],
    now: float,
    style: Style,
    high: int | None = None,
) -> str:
    """The page of a service: jobs at risk first, then what waits for a person, and what fails. ``high``: the lines that the
    terminal has. What waits then has them first, next what fails, and jobs the rest.
    """
    waiting = [one for one in waiting if one["kind"] in _ACTS and one["mode"] != "observe"]
    risky = [job for job in jobs if at_risk(job)]
    ordered = [*risky, *(job for job in jobs if not at_risk(job))]
    waits, fails, room = _shares(high, len(waiting), len(failures), max(1, len(jobs)))
    many = "or more" if len(jobs) == _MOST else ""
    head = f"{style.bold(printable(url))}  {len(jobs):,}{many and f' {many}'} running, {len(risky):,} at risk"
    some = f"{len(failures)}{' or more' if len(failures) == _FAILURES else ''}"
    parts = [f"{head}, {some} open {'failure' if len(failures) == 1 else 'failures'}, {len(waiting)} waiting"]
    rows: list[tuple[str, ...]] = [("job", "state", "step", "loss", "last line", "user")]
    rows += [
        (
            printable(shortened(job["name"], style.width // 3)),
            f"at risk: {job['reason']} {job['confidence']:.0%}" if at_risk(job) else "running",
            f"{job['step']:,.0f}" if job["step"] is not None else "-",
            f"{job['loss']:.4g}" if job["loss"] is not None else "-",
            _ago(now - job["last_seen"]),
            printable(job["user"] or "-"),
        )
        for job in (ordered if len(ordered) <= room else ordered[: max(1, room - 1)])
    ]
    if len(ordered) > room > 1:
        rows.append((f"and {len(ordered) - room + 1:,} more", "running", "", "", "", ""))
    if room:
        parts.append(table(rows, style, header=True, width=style.width) if jobs else "no job is running")
    if waits:
        rows = [("waits for a yes", "job or nodes", "since", "why")]
        rows += [
            (
                f"#{one['id']} {one['kind']}",
                printable(one["job"] or ", ".join(one["nodes"])),
                _ago(now - one["created"]),
                printable(one["why"]),
            )
            for one in waiting[:waits]
        ]
        parts.append(table(rows, style, header=True, width=style.width))
    if fails:
        rows = [("open failures", "times", "last", "title")]
        rows += [
            (one["reason"], f"{one['count']:,}", _ago(now - one["last_seen"]), printable(one["title"]))
            for one in failures[:fails]
        ]
        parts.append(table(rows, style, header=True, width=style.width))
    return ("\n" if high is not None and high < _LOW else "\n\n").join(parts)


def _shares(high: int | None, waiting: int, failures: int, jobs: int) -> tuple[int, int, int]:
    """How many rows there are of what waits, of what fails, and of jobs, on a terminal of so many lines."""
    each = _EACH if high is None or high > 4 * _EACH else _EACH // 2
    wanted = (min(each, waiting), min(each, failures), jobs)
    if high is None:
        return wanted
    room = high - 1
    least = 2 if high < _LOW else 3  # its head, a row, and a line between two parts
    given = [0, 0, 0]
    for part, most in enumerate(wanted):
        if most and room >= least:
            given[part], room = 1, room - least
    for part, most in enumerate(wanted):
        more = min(most - 1, room) if given[part] else 0
        given[part], room = given[part] + more, room - more
    return given[0], given[1], given[2]


def at_risk(job: Mapping[str, Any]) -> bool:
    """Whether a diagnosis says that something is wrong with a job that still runs."""
    return job["state"] == "running" and job["reason"] not in (None, "healthy") and (job.get("confidence") or 0.0) >= _AT_RISK


def _ago(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for size, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


def _of_files(arguments: argparse.Namespace) -> Callable[[], str]:
    """The page of a job that writes these files: its report so far."""
    from diagnose.job import Job
    from diagnose.knowledge.rules import load
    from diagnose.matching.matcher import EARLY, Matcher
    from diagnose.reading.sources import Follower, Restart, find
    from diagnose.rendering import text

    found = find(arguments.paths)
    if found.problems:
        raise found.problems[0]
    if not found.sources:
        raise DiagnoseError("no log was found", where=arguments.paths[0], remedy="name files, or a folder that has some")
    if any(source.path is None for source in found.sources):
        raise DiagnoseError("a stream cannot be looked at again and again", where="-", remedy="name files or a folder")
    job = Job(arguments.paths[0], found.sources, Matcher(load(), reserved=EARLY))
    followers = [Follower(source) for source in found.sources]

    def screen() -> str:
        for number, follower in enumerate(followers):
            for chunk in follower.poll():
                if isinstance(chunk, Restart):
                    job.restart(number)
                else:
                    job.feed(number, chunk)
        job.paused()  # the page is of now: no line waits for the next ones
        return text.render(job.report(running=True), job, Style(sys.stdout))

    return screen


def _seconds(written: str) -> float:
    try:
        value = float(written)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{written!r} is not a number of seconds from 0.1 to 3600")
    return value
