"""``diagnose report``: a site's own study, from what its scheduler, its logs or its service know."""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.cli import printable
from diagnose.cli.options import database
from diagnose.cli.options.cores import cores, each
from diagnose.errors import DiagnoseError, SourceError
from diagnose.rendering.terminal import Notice, Progress, Style, table, wrapped

if TYPE_CHECKING:
    from diagnose.study.runs import Run

_SHOWN = 8


def configure(parser: argparse.ArgumentParser) -> None:
    from diagnose.study.sacct import COMMAND

    parser.description = (
        "Study the history of a site: why jobs failed, what that cost in GPU hours, which nodes fail more than chance, and "
        "what would have saved most. Writes one HTML page and one JSON file, and prints the summary."
    )
    parser.epilog = f"To write what --sacct reads: {COMMAND.replace('%', '%%')} > history.txt"
    history = parser.add_argument_group("the history", "One kind is needed. Without any, the database of the service is read.")
    history.add_argument("--sacct", metavar="FILE", action="append", default=[],
                         help="what sacct printed with -P, or with --json; - is standard input; may be repeated")  # fmt: skip
    history.add_argument("--kubernetes", metavar="FILE", action="append", default=[],
                         help="what kubectl get jobs,pods,events -A -o json printed; may be repeated, "
                         "the oldest first")  # fmt: skip
    history.add_argument("--logs", metavar="DIR", action="append", default=[],
                         help="folder of logs that have the job id in their name or folder; gives failures a reason; "
                         "may be repeated")  # fmt: skip
    history.add_argument("--since", metavar="DATE", type=_date, help="leave out what ended before, such as 2026-11-01")
    history.add_argument("--until", metavar="DATE", type=_date, help="leave out what began after")
    shown = parser.add_argument_group("what is written")
    shown.add_argument("--out", metavar="NAME", default="report", help="write NAME.html and NAME.json (default: report)")
    shown.add_argument("--json", action="store_true", help="also print the JSON instead of the summary")
    shown.add_argument("--hash-users", action="store_true", help="show users and names of jobs as codes")
    parser.add_argument("--cores", metavar="N", type=int, help="processor cores that read logs (default: all)")
    database.options(parser)


def run(arguments: argparse.Namespace) -> int:
    from diagnose.rendering import study_page
    from diagnose.study.tables import study

    runs = list(_within(_history(arguments), arguments.since, arguments.until))
    if not runs:
        raise DiagnoseError("there is no run in this history", remedy="check the file, --since and --until")
    read = _read_logs(arguments, runs) if arguments.logs else 0
    if arguments.hash_users:
        _hash(runs)
    source = ", ".join([*arguments.sacct, *arguments.kubernetes, *arguments.logs]) or "the service's database"
    with Notice("counting"):
        found = study(runs, logs_read=read, source=source)
    text = json.dumps(found, ensure_ascii=False)
    for ending, content in ((".json", text + "\n"), (".html", study_page.page(found))):
        _write(Path(arguments.out + ending), content)
    print(text if arguments.json else _summary(found, arguments.out, Style(sys.stdout)))
    return 0


def _date(text: str) -> float:
    from diagnose.study.sacct import when

    try:
        return when(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date; write 2026-11-01 or 2026-11-01T08:00") from None


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise DiagnoseError(f"it cannot be written: {error.strerror}", where=str(path), remedy="give another --out") from None


def _history(arguments: argparse.Namespace) -> Iterator[Run]:
    from diagnose.study import kubernetes, sacct

    for name in arguments.sacct:
        with _opened(name) as file:
            yield from sacct.read(file, name)
    if arguments.kubernetes:
        yield from kubernetes.read((_text_of(name), name) for name in arguments.kubernetes)
    if not arguments.sacct and not arguments.kubernetes:
        yield from _of_service(arguments)


def _opened(name: str) -> Any:
    if name == "-":
        return sys.stdin
    try:
        return open(name, encoding="utf-8", errors="replace")
    except OSError as error:
        raise SourceError(f"it cannot be read: {error.strerror}", where=name, remedy="check the path") from None


def _text_of(name: str) -> str:
    with _opened(name) as file:
        return str(file.read())


def _of_service(arguments: argparse.Namespace) -> Iterator[Run]:
    from diagnose.cli.serve import settings_of
    from service.store import history

    settings = settings_of(arguments)
    if settings.database is None and not settings.data.is_dir():
        raise DiagnoseError(
            "there is no history: no --sacct, no --kubernetes, and no service has run here",
            remedy="give --sacct FILE, or --data or --database of a service",
        )
    with database.opened(settings) as store:
        yield from store.read(history.runs)


def _within(runs: Iterator[Run], since: float | None, until: float | None) -> Iterator[Run]:
    for one in runs:
        ended = one.ended if one.ended is not None else one.started
        if since is not None and ended is not None and ended < since:
            continue
        if until is not None and one.started is not None and one.started >= until:
            continue
        yield one


def _read_logs(arguments: argparse.Namespace, runs: Sequence[Run]) -> int:
    """Give failed runs the reason that their logs tell. Returns how many runs had logs."""
    from diagnose.knowledge.rules import load
    from diagnose.matching.matcher import EARLY, Matcher
    from diagnose.reading.sources import find
    from diagnose.study import logs

    found = find(arguments.logs)
    for problem in found.problems[:5]:
        sys.stderr.write(f"diagnose report: {printable(str(problem))}\n")
    belongs = logs.of_runs(runs, found.sources)
    wanted = [number for number in sorted(belongs) if runs[number].failed or runs[number].state == "cancelled"]
    matcher = Matcher(load(None), reserved=EARLY)

    def work(place: int) -> Any:
        number = wanted[place]
        report = logs.told(runs[number], belongs[number], matcher)
        return report.model_copy(update={"metrics": {name: one.model_copy(update={"points": one.points[:1]})
                                                     for name, one in report.metrics.items()}})  # fmt: skip

    progress = Progress("logs", len(wanted), "jobs")
    for place, report in enumerate(each(work, len(wanted), arguments.cores or cores())):
        logs.enter(runs[wanted[place]], report)
        progress.at(place + 1)
    progress.done()
    return len(wanted)


def _hash(runs: Sequence[Run]) -> None:
    salt = secrets.token_bytes(16)
    known: dict[str, str] = {}
    for one in runs:
        for name in {one.user, one.name}:
            known.setdefault(name, hashlib.blake2b(salt + name.encode(), digest_size=4).hexdigest())
        one.user, one.name = known[one.user], known[one.name]


def _summary(found: dict[str, Any], out: str, style: Style) -> str:
    from diagnose.rendering.study_page import hours, span

    spent, unknown = found["hours"], found["unknown"]
    share = f"{unknown['share']:.0%}" if unknown["share"] is not None else "none"
    lines = [
        f"{found['runs']:,} runs from {found['from']} to {found['to']}, {found['failures']:,} failed; nothing explains "
        f"{unknown['count']:,} of these ({share}).",
        f"{hours(spent['all'])} GPU hours: {hours(spent['useful'])} useful, "
        f"{hours(spent['lost_work'])} lost since a checkpoint, "
        f"{hours(spent['lost_whole_runs'])} lost in runs of which no checkpoint is known, "
        f"{hours(spent['standing_still'])} standing still, {hours(spent['cancelled'])} cancelled.",
    ]
    parts = ["\n".join(line for text in lines for line in wrapped(text, style.prose))]
    rows: list[tuple[str, ...]] = [("reason", "count", "GPU h lost", "to failure", "to restart")]
    rows += [(row["reason"], f"{row['count']:,}", hours(row["gpu_hours_lost"]), span(row["time_to_failure_s"]),
              span(row["time_to_restart_s"])) for row in found["reasons"][:_SHOWN]]  # fmt: skip
    if len(rows) > 1:
        parts.append(table(rows, style, header=True))
    guilty = found["nodes"]["suspicious"]
    if guilty:
        about = "{} ({} failures, {:.1f} expected)"
        told = [about.format(printable(row["node"]), row["failures"], row["expected"]) for row in guilty]
        named = ", ".join(told[:5])
        parts.append("\n".join(wrapped(f"More failures than chance: {named}.", style.prose)))
    if found["savings"]:
        rows = [("what would have saved most", "GPU h")]
        rows += [(row["how"], hours(row["gpu_hours"])) for row in found["savings"]]
        parts.append(table(rows, style, header=True))
    return "\n\n".join([*parts, f"Written: {out}.html, {out}.json"])
