"""``diagnose rules learn | learned | promote | retire | export``: rules that were learned, and learning them."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.cli import printable
from diagnose.cli.options import endpoint
from diagnose.errors import DiagnoseError, needs
from diagnose.knowledge.rules import load
from diagnose.rendering.printed_rule import as_dict
from diagnose.rendering.terminal import Progress, Style, shortened, table

if TYPE_CHECKING:
    from diagnose.job import Job
    from diagnose.learning.learned_rule import LearnedRule
    from diagnose.learning.rule_store import RuleStore
    from diagnose.learning.write_failures import Confirmation
    from diagnose.report import Report


def _store(arguments: argparse.Namespace) -> RuleStore:
    needs("diagnose.learning")
    from diagnose.learning.rule_store import RuleFile, RuleStore

    return RuleStore(RuleFile(endpoint.rule_file(arguments.store)))


def learn(arguments: argparse.Namespace) -> int:
    needs("diagnose.agent", "diagnose.learning", "diagnose.model")
    if arguments.confirm is not None:
        if arguments.paths:
            raise DiagnoseError(
                "--confirm learns from a report and takes no logs", remedy="give the logs of runs that went well with --healthy"
            )
        return _confirm(arguments)
    if not arguments.paths or arguments.reason or arguments.healthy or arguments.line:
        remedy = (
            "give logs, or a report that is right with --confirm REPORT; --reason, --line and --healthy belong to --confirm"
        )
        raise DiagnoseError("there is nothing to learn from", remedy=remedy)
    endpoint.wanted(arguments)
    from diagnose.learning import ended
    from diagnose.learning.lesson import heard

    store = _store(arguments)
    jobs, problems = _read(arguments.paths, store)
    if not jobs:
        return 2
    told = [heard(job, store) for job in jobs]
    rules = endpoint.rule_file(arguments.store)
    lesson = ended.learn(told, rules, _past(arguments.incidents), endpoint.settings_of(arguments))
    changed = _watched(jobs, store)
    if arguments.json:
        failures = [{"id": known.rule.id, "state": known.state, "why": known.why} for known in changed]
        print(json.dumps(lesson | {"failures": failures}))
    else:
        _show(lesson, changed, store)
        print(Style(sys.stdout).dim(f"kept in {rules}; diagnose replay --learned uses the active ones"))
    return 2 if problems else 0


def _read(paths: Sequence[str], store: RuleStore) -> tuple[list[Job], int]:
    """The jobs, read to their ends, and how many things could not be read."""
    from diagnose.job import Job
    from diagnose.learning.rule_store import working_matcher
    from diagnose.reading.sources import find

    matcher = working_matcher(store, None)
    jobs, problems = [], 0
    progress = Progress("reading", len(paths))
    for number, path in enumerate(paths):
        found = find([path])
        for problem in found.problems:
            sys.stderr.write(f"diagnose rules learn: {printable(str(problem))}\n")
            problems += 1
        if not found.sources:
            continue
        job = Job(os.path.basename(path), found.sources, matcher, fold_after=0)  # it learns from what repeats
        for index, source in enumerate(found.sources):
            for chunk in source.chunks():
                job.feed(index, chunk)
            job.close(index)
        jobs.append(job)
        progress.at(number + 1)
    progress.done()
    return jobs, problems


def _show(lesson: dict[str, Any], changed: Sequence[LearnedRule], store: RuleStore) -> None:
    """What came of it, for people."""
    style = Style(sys.stdout)
    print(f"{lesson['lines']:,} lines that no rule knew, {lesson['proposed']} proposals")
    rows = [("active", str(len(lesson["active"])), "clean on lines that they had not seen")]
    rows.append(("shadow", str(len(lesson["shadow"])), "passed, and wait for more lines to be counted against"))
    names = Counter(refusal["name"] for refusal in lesson["refused"])
    rows.append(("refused", str(len(lesson["refused"])), ", ".join(f"{name} {count}" for name, count in names.most_common())))
    if forwarded := Counter(lesson["forwarded"]):
        said = ", ".join(f"{why} {count}" for why, count in forwarded.most_common())
        rows.append(("forwarded", str(forwarded.total()), f"left to the diagnosis: {said}"))
    print(table(rows, style))
    for said, times in Counter(lesson["problems"]).most_common(5):
        sys.stderr.write(f"diagnose rules learn: the model: {printable(said)} ({times} times); templates were mined instead\n")
    for name in lesson["active"][:20]:
        if (known := store.find(name)) is not None:
            print(f"  {style.cyan(name)}  {printable(shortened(known.rule.pattern, 80))}")
    for known in changed:
        print(f"  {style.cyan(known.rule.id)} is {known.state}: {printable(known.why or '')}")


def _past(incidents: str | None) -> list[str]:
    """The lines that known failures began with."""
    needs("diagnose.agent")
    from diagnose.agent.incidents import SqliteIncidents

    path = endpoint.incidents_file(incidents)
    return [one.line for one in SqliteIncidents(path).incidents()] if path.exists() else []


def _watched(jobs: Sequence[Job], store: RuleStore) -> list[LearnedRule]:
    """Compare the learned failure rules with these jobs. Returns those that became active or were retired."""
    from diagnose.learning.write_failures import watch

    changed = []
    for job in jobs:
        report = job.report()
        if report.outcome != "running":
            bodies = [event.body for event in job.evidence().events]
            changed += watch(store, bodies, time.time(), well=report.outcome == "healthy")
    return changed


def _confirm(arguments: argparse.Namespace) -> int:
    """A failure rule from a report that is right."""
    from pydantic import ValidationError

    from diagnose.agent.incidents import SqliteIncidents
    from diagnose.learning.write_failures import confirm
    from diagnose.report import Report

    try:
        text = sys.stdin.read() if arguments.confirm == "-" else Path(arguments.confirm).read_text("utf-8")
        report = Report.model_validate_json(text)
    except (OSError, UnicodeDecodeError) as error:
        raise DiagnoseError(
            f"cannot be read: {error}", where=arguments.confirm, remedy="check the path and its permissions"
        ) from None
    except ValidationError as error:
        what = error.errors()[0]["msg"]
        remedy = "give one report, as diagnose replay --json prints it"
        raise DiagnoseError(f"this is not a report: {what}", where=arguments.confirm, remedy=remedy) from None
    if arguments.line is not None:
        report = _with_root(report, arguments.line)
    store = _store(arguments)
    incidents = SqliteIncidents(endpoint.incidents_file(arguments.incidents))
    healthy = [line for path in arguments.healthy for line in _kept_lines(path)]

    async def run() -> Confirmation:
        more: dict[str, Any] = {"healthy": healthy, "reason": arguments.reason}
        if not endpoint.wanted(arguments):
            return await confirm(report, store, incidents, time.time(), **more)
        async with endpoint.model_of(arguments) as model:
            return await confirm(report, store, incidents, time.time(), model=model, **more)

    lesson = asyncio.run(run())
    endpoint.learned_right(report, arguments.reason or report.diagnosis.reason)
    if arguments.json:
        figures = {
            "rule": lesson.rule.id if lesson.rule else None,
            "known": lesson.known,
            "refused": [{"id": rule.id, "name": why.name, "what": why.what} for rule, why in lesson.refused],
            "notes": lesson.notes,
        }
        print(json.dumps(figures, ensure_ascii=False))
        return 0
    style = Style(sys.stdout)
    for note in lesson.notes:
        print(printable(note))
    for rule, refusal in lesson.refused:
        print(f"refused  {printable(shortened(rule.pattern, 80))}\n         {refusal.name}: {printable(refusal.what)}")
    if lesson.known is not None:
        print(f"{lesson.known} knows it; nothing to learn")
    elif lesson.rule is not None:
        print(f"{style.cyan(lesson.rule.id)} is in shadow: {printable(lesson.rule.pattern)}")
        print(
            style.dim(
                f"kept in {endpoint.rule_file(arguments.store)}; "
                "it becomes active when jobs that went well are read with diagnose rules learn"
            )
        )
    else:
        print("no rule was learned; the incident is remembered")
    return 0


def _with_root(report: Report, place: str) -> Report:
    """The report of a failure that began with the line that a person named."""
    from diagnose.agent.window import window
    from diagnose.reading.prefixes import speaker
    from diagnose.reading.sources import Source
    from diagnose.report import EvidenceLine

    name, _, number = place.rpartition(":")
    sources = [source for source in report.job.sources if source == name or source.endswith(f"/{name}")]
    if len(sources) != 1 or not (number.isascii() and number.isdecimal()):
        known = ", ".join(report.job.sources[:3])
        raise DiagnoseError(
            "this is not a line of the report's files", where=f"--line {place}", remedy=f"give FILE:N with one of: {known}"
        )
    found = [
        text for line, text in window(Source(sources[0], Path(sources[0])), int(number), int(number)) if line == int(number)
    ]
    if not found:
        raise DiagnoseError(
            "the file has no such line", where=f"--line {place}", remedy="check the number, and that the file is there"
        )
    rank, node = speaker(found[0].encode())
    root = EvidenceLine(source=sources[0], line=int(number), text=found[0], role="root_cause", rank=rank, node=node)
    diagnosis = report.diagnosis.model_copy(update={"root_cause": root})
    return report.model_copy(update={"outcome": "failed", "diagnosis": diagnosis})


def _kept_lines(path: str) -> list[str]:
    """The kept lines of a run that went well."""
    from diagnose.job import Job
    from diagnose.matching.matcher import EARLY, Matcher
    from diagnose.reading.sources import find

    found = find([path])
    if found.problems:
        raise found.problems[0]
    job = Job(path, found.sources, Matcher(load(), reserved=EARLY))
    for number, source in enumerate(found.sources):
        for chunk in source.chunks():
            job.feed(number, chunk)
        job.close(number)
    return [event.text for event in job.evidence().events]


def learned(arguments: argparse.Namespace) -> int:

    found = _store(arguments).rules(*([arguments.state] if arguments.state else []))
    if arguments.json:
        for known in found:
            row = {
                "state": known.state,
                "scope": known.scope,
                "why": known.why,
                "matched": known.matched,
                "dirty": known.dirty,
                "by": known.provenance,
            }
            print(json.dumps(as_dict(known.rule) | row, ensure_ascii=False))
        return 0
    rows = [("rule", "state", "matched", "why", "pattern")]
    rows += [
        (
            known.rule.id,
            known.state,
            str(known.matched),
            shortened(known.why or "", 30),
            printable(shortened(known.rule.pattern, 60)),
        )
        for known in found
    ]
    print(table(rows, Style(sys.stdout), header=True))
    return 0


def move(arguments: argparse.Namespace) -> int:
    store = _store(arguments)
    from diagnose.learning.rule_store import move as put

    if arguments.action == "promote":
        known = put(store, arguments.id, "active", "promoted by hand", time.time(), everywhere=True, evidence=_past(None))
    else:
        known = put(store, arguments.id, "retired", arguments.why, time.time())
    print(f"{known.rule.id} is {known.state}")
    return 0


def export(arguments: argparse.Namespace) -> int:
    store = _store(arguments)
    from diagnose.learning.learned_rule import exported

    print(exported(store.rules("active", family="failures" if arguments.failures else "filters")), end="")
    return 0
