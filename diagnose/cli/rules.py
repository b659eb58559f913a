"""``diagnose rules list | check | test | explain | learn | learned | promote | retire | export``."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.cli import endpoint, printable
from diagnose.cli.terminal import Progress, Style, shortened, table
from diagnose.errors import DiagnoseError, RuleError
from diagnose.knowledge.rules import Rule, RuleSet, load

if TYPE_CHECKING:
    from diagnose.job import Job
    from diagnose.learning.learned_rule import Learned
    from diagnose.learning.sqlite import SqliteBook
    from diagnose.learning.write_failures import Lesson


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("list", help="the rules in order of precedence")
    add.add_argument("paths", nargs="*", metavar="PATH", help="rule files or folders (default: the shipped rules)")
    add.add_argument("--json", action="store_true", help="one object a line")
    add = actions.add_parser("check", help="run every example and look for conflicts; exit 1 if there are objections")
    add.add_argument("paths", nargs="*", metavar="PATH", help="rule files or folders (default: the shipped rules)")
    add.add_argument("--advice", action="store_true", help="also say which rules cost more than they need")
    add.add_argument("--json", action="store_true", help="one objection a line")
    add = actions.add_parser("test", help="which lines of LOG the rules match, and which they leave")
    add.add_argument("log", metavar="LOG", help="a log file, or - for standard input")
    add.add_argument("paths", nargs="*", metavar="PATH", help="rule files or folders (default: the shipped rules)")
    add.add_argument("--unknown", action="store_true", help="show the shapes of lines that no rule knows, most bytes first")
    add.add_argument("--json", action="store_true")
    add = actions.add_parser("explain", help="what happens to LINE, and why")
    add.add_argument("line", metavar="LINE", help="a line of a log, or - to read lines from standard input")
    add.add_argument("--rule", metavar="ID", help="explain this rule only")
    add.add_argument("--rules", metavar="PATH", action="append", help="rule files or folders (default: the shipped rules)")
    add.add_argument("--json", action="store_true")
    add = actions.add_parser(
        "learn", help="write rules: filters for what no rule knows in logs, failure rules from confirmed reports"
    )
    add.add_argument("paths", nargs="*", metavar="PATH", help="logs of jobs, as for diagnose replay")
    add.add_argument(
        "--confirm", metavar="REPORT", help="a report of diagnose replay --json that is right (- for standard input)"
    )
    add.add_argument("--reason", metavar="NAME", help="with --confirm: the right reason, where the report has another")
    add.add_argument(
        "--healthy", metavar="PATH", action="append", default=[], help="with --confirm: a run that went well; repeat it"
    )
    add.add_argument("--json", action="store_true")
    endpoint.configure(add)
    learned = actions.add_parser("learned", help="the learned rules and their states")
    learned.add_argument("--state", choices=("proposed", "shadow", "active", "retired"), help="only those in this state")
    learned.add_argument("--json", action="store_true", help="one object a line")
    promote = actions.add_parser("promote", help="let a learned rule act")
    promote.add_argument("id", metavar="ID")
    retire = actions.add_parser("retire", help="take a learned rule out of use")
    retire.add_argument("id", metavar="ID")
    retire.add_argument("--why", default="by hand", help="what the book says about it")
    export = actions.add_parser("export", help="the active learned rules as a rule file, for review and merging")
    export.add_argument("--failures", action="store_true", help="the failure rules instead of the filters")
    for part in (add, learned, promote, retire, export):
        part.add_argument("--book", metavar="FILE", help="where they are kept (default: DIAGNOSE_BOOK, or your data folder)")


def run(arguments: argparse.Namespace) -> int:
    table_of = {
        "list": _list,
        "check": _check,
        "test": _test,
        "explain": _explain,
        "learn": _learn,
        "learned": _learned,
        "promote": _move,
        "retire": _move,
        "export": _export,
    }
    return table_of[arguments.action](arguments)


def book_path(given: str | None) -> str:
    """The file of learned rules: as asked, else by the environment, else in the person's data folder."""
    if given or (given := os.environ.get("DIAGNOSE_BOOK")):
        return given
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(data, "diagnose", "learned.db")


def _learn(arguments: argparse.Namespace) -> int:
    if arguments.confirm is not None:
        if arguments.paths:
            raise DiagnoseError(
                "--confirm learns from a report, not from logs", remedy="give runs that went well with --healthy"
            )
        return _confirm(arguments)
    if not arguments.paths or arguments.reason or arguments.healthy:
        remedy = "name logs, or a report that is right: --confirm REPORT [--reason NAME] [--healthy PATH]"
        raise DiagnoseError("there is nothing to learn from", remedy=remedy)
    endpoint.wanted(arguments)
    from diagnose.job import Job
    from diagnose.learning.lesson import learn, working_rules
    from diagnose.learning.sqlite import SqliteBook
    from diagnose.matching.matcher import Matcher
    from diagnose.reading.sources import find

    book = SqliteBook(book_path(arguments.book))
    matcher = Matcher(working_rules(book, None))
    jobs, problems = [], 0
    progress = Progress("reading", len(arguments.paths))
    for number, path in enumerate(arguments.paths):
        found = find([path])
        for problem in found.problems:
            sys.stderr.write(f"diagnose rules learn: {printable(str(problem))}\n")
            problems += 1
        if not found.sources:
            continue
        job = Job(os.path.basename(path), found.sources, matcher)
        for index, source in enumerate(found.sources):
            for chunk in source.chunks():
                job.feed(index, chunk)
            job.close(index)
        jobs.append(job)
        progress.at(number + 1)
    progress.done()
    if not jobs:
        return 2
    lesson = learn(jobs, book, settings=endpoint.settings_of(arguments), past=_past(arguments.incidents))
    changed = _watched(jobs, book)
    if arguments.json:
        figures = {
            "lines": lesson.lines,
            "proposed": lesson.proposed,
            "refused": [{"id": rule.id, "name": why.name, "what": why.what} for rule, why in lesson.refused],
            "shadow": [known.rule.id for known in lesson.shadow],
            "active": [known.rule.id for known in lesson.active],
            "forwarded": dict(lesson.forwarded),
            "redacted": dict(lesson.redacted),
            "problems": lesson.problems,
            "failures": [{"id": known.rule.id, "state": known.state, "why": known.why} for known in changed],
        }
        print(json.dumps(figures))
        return 2 if problems else 0
    style = Style(sys.stdout)
    print(f"{lesson.lines:,} lines that no rule knew, {lesson.proposed} proposals")
    rows = [("active", str(len(lesson.active)), "clean on lines that they had not seen")]
    rows.append(("shadow", str(len(lesson.shadow)), "passed, and wait for more lines to be counted against"))
    names = Counter(refusal.name for _, refusal in lesson.refused)
    rows.append(("refused", str(len(lesson.refused)), ", ".join(f"{name} {count}" for name, count in names.most_common())))
    if lesson.forwarded:
        said = ", ".join(f"{why} {count}" for why, count in lesson.forwarded.most_common())
        rows.append(("forwarded", str(lesson.forwarded.total()), f"left to the diagnosis: {said}"))
    print(table(rows, style))
    for said, times in Counter(lesson.problems).most_common(5):
        sys.stderr.write(f"diagnose rules learn: the model: {printable(said)} ({times} times); templates were mined instead\n")
    for known in lesson.active[:20]:
        print(f"  {style.cyan(known.rule.id)}  {printable(shortened(known.rule.pattern, 80))}")
    for known in changed:
        print(f"  {style.cyan(known.rule.id)} is {known.state}: {printable(known.why or '')}")
    print(style.dim(f"kept in {book.path}; diagnose replay --learned uses the active ones"))
    return 2 if problems else 0


def _past(incidents: str | None) -> list[str]:
    """The lines that known failures began with."""
    from diagnose.agent.incidents import SqliteIncidents

    path = endpoint.incidents_file(incidents)
    return [one.line for one in SqliteIncidents(path).incidents()] if path.exists() else []


def _watched(jobs: Sequence[Job], book: SqliteBook) -> list[Learned]:
    """Hold the learned failure rules against these jobs; those that became active or were retired."""
    from diagnose.learning.write_failures import watch

    changed = []
    for job in jobs:
        report = job.report()
        if report.outcome != "running":
            bodies = [event.body for event in job.evidence().events]
            changed += watch(book, bodies, time.time(), well=report.outcome == "healthy")
    return changed


def _confirm(arguments: argparse.Namespace) -> int:
    """A failure rule from a report that is right."""
    from pydantic import ValidationError

    from diagnose.agent.incidents import SqliteIncidents
    from diagnose.learning.sqlite import SqliteBook
    from diagnose.learning.write_failures import learn
    from diagnose.report import Report

    try:
        text = sys.stdin.read() if arguments.confirm == "-" else Path(arguments.confirm).read_text("utf-8")
        report = Report.model_validate_json(text)
    except (OSError, UnicodeDecodeError) as error:
        raise DiagnoseError(f"cannot be read: {error}", where=arguments.confirm, remedy="name a readable file") from None
    except ValidationError as error:
        what = error.errors()[0]["msg"]
        remedy = "give one report, as diagnose replay --json prints it"
        raise DiagnoseError(f"this is no report: {what}", where=arguments.confirm, remedy=remedy) from None
    book = SqliteBook(book_path(arguments.book))
    incidents = SqliteIncidents(endpoint.incidents_file(arguments.incidents))
    healthy = [line for path in arguments.healthy for line in _kept_lines(path)]

    async def run() -> Lesson:
        more: dict[str, Any] = {"healthy": healthy, "reason": arguments.reason}
        if not endpoint.wanted(arguments):
            return await learn(report, book, incidents, time.time(), **more)
        async with endpoint.model_of(arguments) as model:
            return await learn(report, book, incidents, time.time(), model=model, **more)

    lesson = asyncio.run(run())
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
        print(style.dim(f"kept in {book.path}; it becomes active when jobs that went well are read with diagnose rules learn"))
    else:
        print("no rule was learned; the incident is remembered")
    return 0


def _kept_lines(path: str) -> list[str]:
    """The kept lines of a run that went well."""
    from diagnose.job import Job
    from diagnose.matching.matcher import Matcher
    from diagnose.reading.sources import find

    found = find([path])
    if found.problems:
        raise found.problems[0]
    job = Job(path, found.sources, Matcher(load()))
    for number, source in enumerate(found.sources):
        for chunk in source.chunks():
            job.feed(number, chunk)
        job.close(number)
    return [event.text for event in job.evidence().events]


def _learned(arguments: argparse.Namespace) -> int:
    from diagnose.learning.sqlite import SqliteBook

    found = SqliteBook(book_path(arguments.book)).rules(*([arguments.state] if arguments.state else []))
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
            print(json.dumps(_as_dict(known.rule) | row, ensure_ascii=False))
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


def _move(arguments: argparse.Namespace) -> int:
    from diagnose.learning.learned_rule import move
    from diagnose.learning.sqlite import SqliteBook

    book = SqliteBook(book_path(arguments.book))
    if arguments.action == "promote":
        known = move(book, arguments.id, "active", "promoted by hand", time.time(), everywhere=True, evidence=_past(None))
    else:
        known = move(book, arguments.id, "retired", arguments.why, time.time())
    print(f"{known.rule.id} is {known.state}")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from diagnose.learning.learned_rule import exported
    from diagnose.learning.sqlite import SqliteBook

    book = SqliteBook(book_path(arguments.book))
    print(exported(book.rules("active", family="failures" if arguments.failures else "filters")), end="")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    rules = load(arguments.paths or None)
    if arguments.json:
        for rule in rules:
            print(json.dumps(_as_dict(rule), ensure_ascii=False))
        return 0
    style = Style(sys.stdout)
    rows = [
        (rule.id, rule.reason or rule.kind or "", rule.layer or rule.framework or "", _mark(rule), rule.title) for rule in rules
    ]
    print(table([("rule", "reason or kind", "layer or framework", "", "title"), *rows], style, header=True))
    failures = sum(rule.family == "failures" for rule in rules)
    print(style.dim(f"{failures} failure rules, {len(rules) - failures} filters"))
    return 0


def _mark(rule: Rule) -> str:
    if rule.family == "filters":
        return "metrics" if rule.metrics else ""
    return f"{rule.severity}, symptom" if rule.symptom else rule.severity


def _as_dict(rule: Rule) -> dict[str, Any]:
    fields = ("id", "family", "file", "at", "title", "pattern", "printed_by", "reference")
    own = (
        ("reason", "layer", "severity", "symptom", "action", "mitigation")
        if rule.family == "failures"
        else ("kind", "framework")
    )
    result = {name: getattr(rule, name) for name in (*fields, *own)}
    if rule.metrics:
        result["metrics"] = dict(rule.metrics)
    return result


def _check(arguments: argparse.Namespace) -> int:
    from diagnose.verification.rules import advice, examine

    rules, broken = _all(arguments.paths or None)
    progress = Progress("checking rules", len(rules))
    beside = load(examples=True) if arguments.paths and not broken and not _all(None)[1] else None
    objections = examine(rules, beside, on_progress=progress.at)
    progress.done()
    notes = list(advice(rules)) if arguments.advice else []
    if arguments.json:
        for error in broken:
            print(json.dumps({"name": "unreadable", "rule": None, "what": error.what, "place": error.where}))
        for objection in [*objections, *notes]:
            print(json.dumps(objection.as_dict(), ensure_ascii=False))
        return 1 if objections or broken else 0
    style = Style(sys.stdout)
    for error in broken:
        print(f"{style.red('error')}: {printable(str(error))}\n")
    for objection in [*objections, *notes]:
        word = style.yellow("advice") if objection in notes else style.red("error")
        print(f"{style.bold(f'{word}: {objection.what}')}  [{objection.name}]")
        print(f"  --> {objection.place}  {objection.rule.id}")
        if objection.line is not None:
            print(f"   |  {printable(objection.line)}")
            if objection.wanted is not None:
                spaces = " " * len(printable(objection.line.encode()[: objection.reached].decode("utf-8", "replace")))
                print(f"   |  {spaces}^ the pattern matched up to here, then wanted {objection.wanted!r}")
        if objection.help:
            print(f"  help: {objection.help}")
        print()
    failures = sum(rule.family == "failures" for rule in rules)
    examples = sum(len(rule.matches) + len(rule.misses) for rule in rules)
    count = len(objections) + len(broken)
    said = style.red(f"{count} objection{'s' * (count != 1)}") if count else style.green("no objections")
    print(f"{failures} failure rules, {len(rules) - failures} filters, {examples} examples: {said}")
    return 1 if count else 0


def _all(paths: list[str] | None) -> tuple[RuleSet, list[DiagnoseError]]:
    """All rules that can be read, and an error for each file that cannot."""
    try:
        return load(paths, examples=True), []
    except RuleError as error:
        errors: list[DiagnoseError] = [error]
    from diagnose.knowledge.rules import rule_files

    rules: list[Rule] = []
    errors = []
    for path in rule_files(paths):
        try:
            rules.extend(load([path], examples=True))
            RuleSet.of(rules)
        except RuleError as error:
            errors.append(error)
    seen: set[str] = set()
    unique = [rule for rule in rules if not (rule.id in seen or seen.add(rule.id))]  # type: ignore[func-returns-value]
    return RuleSet.of(unique), errors


def _test(arguments: argparse.Namespace) -> int:
    from collections import Counter

    from diagnose.matching.matcher import Matcher
    from diagnose.matching.scan import Cursor
    from diagnose.matching.shapes import shape
    from diagnose.reading import sources
    from diagnose.reading.lines import Blocks
    from diagnose.verification.rules import body_of

    rules = load(arguments.paths or None)
    matcher = Matcher(rules)
    hits: Counter[int] = Counter()
    unknown: Counter[bytes] = Counter()
    sample: dict[bytes, bytes] = {}
    lines_in = bytes_kept = bytes_in = 0
    for source in sources.find([arguments.log]).sources:
        blocks, cursor = Blocks(), Cursor()
        for group in (*map(blocks.feed, source.chunks()), blocks.close()):
            for block in group:
                scan = matcher.scan(block, cursor)
                cursor = scan.cursor
                lines_in += scan.lines
                bytes_kept += scan.bytes_kept
                hits.update(dict(scan.dropped))
                for kept, text in scan.segments():
                    hits[kept.rule] += 1
                    if kept.rule < 0:
                        key = shape(body_of(text.decode("utf-8", "surrogateescape")))[:300]
                        if key in sample or len(sample) < 20_000:
                            sample.setdefault(key, text)
                            unknown[key] += len(text) + 1
        bytes_in += blocks.bytes_in
    rows = [(matcher.rules[number].id, count) for number, count in hits.most_common() if number >= 0]
    shapes = [(sample[key][:160].decode("utf-8", "replace"), count) for key, count in unknown.most_common(60)]
    if arguments.json:
        print(
            json.dumps(
                {
                    "lines_in": lines_in,
                    "bytes_in": bytes_in,
                    "bytes_kept": bytes_kept,
                    "hits": dict(rows),
                    "unknown": [{"line": line, "bytes": count} for line, count in shapes],
                },
                ensure_ascii=False,
            )
        )
        return 0
    style = Style(sys.stdout)
    if arguments.unknown:
        print(
            table(
                [("bytes", "a line of the shape"), *((f"{n:,}", printable(line)) for line, n in shapes)],
                style,
                header=True,
            )
        )
    else:
        print(table([("lines", "rule"), *((f"{n:,}", rule) for rule, n in rows)], style, header=True))
    share = 100 * bytes_kept / bytes_in if bytes_in else 0.0
    print(style.dim(f"{lines_in:,} lines, {bytes_in:,} bytes; {bytes_kept:,} bytes kept ({share:.2f} %)"))
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    from diagnose.matching.matcher import Matcher
    from diagnose.reading.prefixes import origin
    from diagnose.verification.rules import body_of, captures_of, how_far

    rules = load(arguments.rules)
    if arguments.rule:
        rule = rules.find(arguments.rule)
        if rule is None:
            raise RuleError(f"there is no rule {arguments.rule!r}", remedy="diagnose rules list shows them all")
        rules = RuleSet((rule,))
    matcher = Matcher(rules, "plain")
    style = Style(sys.stdout)
    for line in _lines(arguments.line):
        body = body_of(line)
        hits = matcher.matches(body)
        who = origin(line.encode("utf-8", "surrogateescape"))
        about = {name: value for name in ("rank", "node", "gpu", "time") if (value := getattr(who, name)) is not None}
        verdict = "kept: no rule knows it"
        if hits:
            first = matcher.rules[hits[0]]
            verdict = f"kept: failure evidence, {first.reason}" if first.family == "failures" else f"dropped: {first.kind}"
        if arguments.json:
            print(
                json.dumps(
                    {
                        "line": line,
                        "body": body.decode("utf-8", "replace"),
                        "verdict": verdict,
                        "rules": [
                            _as_dict(matcher.rules[hit]) | {"captures": captures_of(matcher.rules[hit], body)} for hit in hits
                        ],
                        **about,
                    },
                    ensure_ascii=False,
                )
            )
            continue
        print(f"{style.bold(verdict)}")
        print(f"  body   {printable(body.decode('utf-8', 'replace'))}")
        for name, value in about.items():
            print(f"  {name:6} {printable(str(value))}")
        for hit in hits:
            rule = matcher.rules[hit]
            print(f"  {style.cyan(rule.name)}  {rule.title}")
            for name, value in captures_of(matcher.rules[hit], body).items():
                print(f"      {name} = {printable(value)}")
        if not hits:
            near = []
            for rule in rules if arguments.rule else ():
                reached, wanted = how_far(rule.pattern, body)
                near.append(f"  {rule.id} matched up to column {reached + 1}, then wanted {wanted!r}")
            print("\n".join(near), end="\n" if near else "")
    return 0


def _lines(word: str) -> Iterable[str]:
    if word != "-":
        return [word]
    return (line.rstrip("\n") for line in sys.stdin)
