"""``diagnose rules list | check | test | explain | learn | learned | promote | retire | export``."""

from __future__ import annotations

import argparse
import json
import sys

from diagnose.cli import action, printable
from diagnose.cli.options import endpoint
from diagnose.cli.rules import learned, tried
from diagnose.errors import DiagnoseError, RuleError
from diagnose.knowledge.rules import Rule, RuleSet, load
from diagnose.rendering.printed_rule import as_dict
from diagnose.rendering.terminal import Progress, Style, table


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = action(actions, "list", "list the rules, those that are tried first at the top")
    add.add_argument("paths", nargs="*", metavar="PATH", help="rule file or folder (default: the shipped rules)")
    add.add_argument("--json", action="store_true", help="print one JSON object per rule, each on a line")
    add = action(actions, "check", "check every rule against its examples, and against the other rules")
    add.epilog = "Exit status: 0 if all is well, 1 if something is wrong."
    add.add_argument("paths", nargs="*", metavar="PATH", help="rule file or folder (default: the shipped rules)")
    add.add_argument("--advice", action="store_true", help="also say which rules take longer to match than they need")
    add.add_argument("--json", action="store_true", help="print one JSON object per objection, each on a line")
    add = action(actions, "test", "count the lines of a log that each rule matches")
    add.add_argument("log", metavar="LOG", help="log file, or - for standard input")
    add.add_argument("paths", nargs="*", metavar="PATH", help="rule file or folder (default: the shipped rules)")
    add.add_argument(
        "--unknown", action="store_true", help="show the kinds of lines that no rule matches, those with most bytes first"
    )
    add.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add = action(actions, "explain", "say whether a line is kept or dropped, and which rules match it")
    add.add_argument("line", metavar="LINE", help="a line of a log, or - for lines from standard input")
    add.add_argument("--rule", metavar="ID", help="use this rule only, and show how much of it matches")
    add.add_argument(
        "--rules", metavar="PATH", action="append", help="rule file or folder, may be repeated (default: the shipped rules)"
    )
    add.add_argument("--json", action="store_true", help="print one JSON object per line of the log")
    add = action(actions, "learn", "learn filter rules from logs, or a failure rule from a report that is right")
    add.usage = "diagnose rules learn [options] PATH...\n       diagnose rules learn [options] --confirm REPORT"
    add.add_argument("paths", nargs="*", metavar="PATH", help="logs of jobs to learn filter rules from, as for diagnose replay")
    add.add_argument("--json", action="store_true", help="print the result as one JSON object")
    failures = add.add_argument_group("learning a failure rule")
    failures.add_argument(
        "--confirm", metavar="REPORT", help="report of diagnose replay --json that is right (- for standard input)"
    )
    failures.add_argument("--reason", metavar="NAME", help="the right reason, if the report has another one")
    failures.add_argument(
        "--line",
        metavar="SOURCE:N",
        help="the line that began it, if the report names another one: a file of the report, and a line",
    )
    failures.add_argument(
        "--healthy",
        metavar="PATH",
        action="append",
        default=[],
        help="logs of a run that went well, which the new rule must not match; may be repeated",
    )
    endpoint.configure(add)
    learned = action(actions, "learned", "list the learned rules and their states")
    learned.add_argument(
        "--state", choices=("proposed", "shadow", "active", "retired"), help="list only the rules in this state"
    )
    learned.add_argument("--json", action="store_true", help="print one JSON object per rule, each on a line")
    promote = action(actions, "promote", "make a learned rule active, for every job")
    promote.add_argument("id", metavar="ID", help="the rule, as diagnose rules learned shows it")
    retire = action(actions, "retire", "take a learned rule out of use")
    retire.add_argument("id", metavar="ID", help="the rule, as diagnose rules learned shows it")
    retire.add_argument(
        "--why", metavar="TEXT", default="by hand", help="reason that is stored with the rule (default: by hand)"
    )
    export = action(actions, "export", "print the active learned rules as a rule file")
    export.add_argument("--failures", action="store_true", help="print the failure rules instead of the filter rules")
    for part in (add, learned, promote, retire, export):
        part.add_argument(
            "--store",
            metavar="FILE",
            help="file of the learned rules (default: $DIAGNOSE_RULE_STORE, or ~/.local/share/diagnose/learned.db)",
        )


def run(arguments: argparse.Namespace) -> int:
    table_of = {
        "list": _list,
        "check": _check,
        "test": tried.test,
        "explain": tried.explain,
        "learn": learned.learn,
        "learned": learned.learned,
        "promote": learned.move,
        "retire": learned.move,
        "export": learned.export,
    }
    return table_of[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    rules = load(arguments.paths or None)
    if arguments.json:
        for rule in rules:
            print(json.dumps(as_dict(rule), ensure_ascii=False))
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
