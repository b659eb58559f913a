"""``diagnose policy check | explain``: is the policy right, and what does it decide."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.cli import action, printable
from diagnose.errors import DiagnoseError
from diagnose.rendering.terminal import Style, table, wrapped

if TYPE_CHECKING:
    from diagnose.decision.policy import Policy
    from diagnose.decision.result import Decision
    from diagnose.report import Report

_MOST_BYTES = 256 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = action(actions, "check", "check a policy, and say what is wrong in it")
    check.epilog = "Exit status: 0 if all is well, 1 if something is wrong."
    check.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="your policy, which replaces parts of the shipped policy (default: the shipped policy alone)",
    )
    check.add_argument("--json", action="store_true", help="print one JSON object per objection, each on a line")
    add = action(
        actions, "explain", "say what a policy decides about a job, by which clause, and what would change the decision"
    )
    add.add_argument(
        "job", metavar="PATH", help="logs of a job, or reports of diagnose replay --json (- reads reports from standard input)"
    )
    add.add_argument(
        "--history",
        metavar="FILE",
        help="JSON file with the time, what happened before and the state of the cluster (docs/policy.md)",
    )
    add.add_argument(
        "--policy",
        metavar="FILE",
        help="your policy, which replaces parts of the shipped policy (default: the shipped policy alone)",
    )
    add.add_argument("--json", action="store_true", help="print one JSON object per decision, each on a line")
    for one in (check, add):
        one.add_argument(
            "--authority",
            choices=("confirmed", "labels"),
            default="confirmed",
            help="as the service's setting: whose word is enough to act without a person (default: confirmed)",
        )


def run(arguments: argparse.Namespace) -> int:
    return {"check": _check, "explain": _explain}[arguments.action](arguments)


def _check(arguments: argparse.Namespace) -> int:
    from diagnose.decision.policy_file import objections

    path = Path(arguments.file) if arguments.file else None
    wrong = objections(path)
    for one in wrong:
        found = {"where": one.where, "what": one.what, "remedy": one.remedy}
        print(json.dumps(found) if arguments.json else printable(str(one)))
    if wrong:
        return 1
    if not arguments.json:
        policy, asks = _in_force(arguments.file, arguments.authority)
        modes = ", ".join(f"{name} {mode}" for name, mode in sorted(policy.modes.items()))
        print(
            f"{len(policy.actions)} reasons, {len(policy.budgets)} budgets, {len(policy.classes)} classes, "
            f"{len(policy.quiet_hours)} quiet hours; mode {policy.mode}{f' ({modes})' if modes else ''}: no objections"
        )
        if asks:
            print(f"What it does by itself must be confirmed: {printable(str(_strict()))} is laid under it (docs/policy.md).")
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    from diagnose.decision.decide import decide
    from diagnose.decision.history import Situation, situation

    policy, _ = _in_force(arguments.policy, arguments.authority)
    known = situation(_read(arguments.history), arguments.history) if arguments.history else Situation()
    now = known.now if known.now is not None else time.time()
    style = Style(sys.stdout)
    for number, report in enumerate(_reports(arguments.job)):
        decision = decide(report, known.history, known.cluster, policy, now)
        if arguments.json:
            print(json.dumps(decision.as_dict()))
        else:
            print(("\n" if number else "") + _text(decision, style))
    return 0


def _in_force(file: str | None, authority: str) -> tuple[Policy, bool]:
    """As a service would decide."""
    from diagnose.decision.policy_file import in_force

    return in_force(Path(file) if file else None, confirmed=authority == "confirmed")


def _strict() -> Path:
    from diagnose.decision.policy_file import strict_path

    return strict_path()


def _read(path: str) -> str:
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            raise DiagnoseError("the file is larger than 256 MiB", where=path, remedy="give a smaller file")
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise DiagnoseError(f"cannot be read: {reason}", where=path, remedy="check the path and its permissions") from None


def _reports(path: str) -> list[Report]:
    """The reports in a file, or that of the logs at a path."""
    if not _looks_like_reports(path):
        return [_report_of(path)]
    from pydantic import ValidationError

    from diagnose.report import Report

    found = []
    for number, line in enumerate(_read(path).splitlines() if path != "-" else sys.stdin, 1):
        if not line.strip():
            continue
        try:
            found.append(Report.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise DiagnoseError(
                f"this is not a report: {place}: {first['msg']}",
                where=f"{path}:{number}",
                remedy="give what diagnose replay --json prints, one report per line",
            ) from None
    return found


def _looks_like_reports(path: str) -> bool:
    if path == "-":
        return True
    try:
        with open(path, "rb") as file:
            return b'"diagnose.report/' in file.read(200)
    except OSError:
        return False  # a folder, or nothing: the search for logs says what is wrong


def _report_of(path: str) -> Report:
    from diagnose.job import Job
    from diagnose.knowledge.rules import load
    from diagnose.matching.matcher import EARLY, Matcher
    from diagnose.reading.sources import find

    found = find([path])
    if found.problems:
        raise found.problems[0]
    job = Job(os.path.basename(os.path.normpath(path)).split(".")[0], found.sources, Matcher(load(), reserved=EARLY))
    for number, source in enumerate(found.sources):
        for chunk in source.chunks():
            job.feed(number, chunk)
        job.close(number)
    return job.report()


def _text(decision: Decision, style: Style) -> str:
    action = decision.action
    head = f"{decision.job or 'node'} attempt {decision.attempt}: {action.kind} {' '.join(action.nodes)}".rstrip()
    lines = [f"{style.bold(printable(head))}  mode {decision.mode}  class {decision.job_class or '-'}"]
    lines += [f"  {line}" for line in wrapped(printable(action.why), style.width - 2)]
    lines += ["", table(list(_facts(decision)), style), "", style.bold("  which clause decided"), *_clauses(decision, style)]
    if decision.limits:
        lines += ["", style.bold("  what held it back, and what would change that"), *_limits(decision, style)]
    return "\n".join(lines)


def _facts(decision: Decision) -> Iterator[tuple[str, str]]:
    action = decision.action
    if decision.wanted != action.kind:
        yield "  wanted", decision.wanted
    if action.restart_from:
        yield "  restart from", f"step {action.restart_from.step}  {printable(action.restart_from.path or '')}".rstrip()
    if action.skip_batches:
        yield "  skip batches", f"{action.skip_batches[0]:,} to {action.skip_batches[1]:,}"
    if decision.not_before is not None:
        yield "  not before", f"{datetime.fromtimestamp(decision.not_before, UTC):%Y-%m-%d %H:%M:%S} UTC"
    for name, nodes in (("avoid", decision.avoid), ("check", decision.check), ("give back", decision.release)):
        if nodes:
            more = f" and {len(nodes) - 8} more" if len(nodes) > 8 else ""
            yield f"  {name}", printable(", ".join(nodes[:8]) + more)
    if decision.incident:
        yield "  incident", printable(decision.incident)
    yield "  tell", decision.tell
    yield "  key", decision.key


def _clauses(decision: Decision, style: Style) -> Iterator[str]:
    for step in decision.reasons:
        mark = "*" if step.decided and step.name == decision.decided_by else " "
        first, *more = wrapped(printable(step.said), style.width - 16)
        yield f"  {mark} {step.name:<12}{first}"
        yield from (f"{'':16}{line}" for line in more)
        if step.where:
            yield f"{'':16}{style.dim(_short(step.where))}"


def _limits(decision: Decision, style: Style) -> Iterator[str]:
    for limit in decision.limits:
        yield from (f"    {line}" for line in wrapped(printable(f"{limit.name}: {limit.said}"), style.width - 4))
        first, *more = wrapped(printable(limit.change), style.width - 9)
        yield f"      -> {first}"
        yield from (f"{'':9}{line}" for line in more)
        if limit.where:
            yield f"         {style.dim(_short(limit.where))}"


def _short(where: str) -> str:
    """A path as a person types it."""
    try:
        shorter = os.path.relpath(where)
    except ValueError:
        return printable(where)
    return printable(shorter if len(shorter) < len(where) and ":" in shorter else where)
