"""``diagnose rules list | check | test | explain | learn | learned | promote | retire | export``."""

from __future__ import annotations

import argparse
import json
import sys

from diagnose.cli import endpoint, printable, rules_learned, rules_test
from diagnose.cli.printed_rule import as_dict
from diagnose.cli.terminal import Progress, Style, table
from diagnose.errors import DiagnoseError, RuleError
from diagnose.knowledge.rules import Rule, RuleSet, load


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
    retire.add_argument("--why", default="by hand", help="the reason, which is kept with the rule")
    export = actions.add_parser("export", help="the active learned rules as a rule file, for review and merging")
    export.add_argument("--failures", action="store_true", help="the failure rules instead of the filters")
    for part in (add, learned, promote, retire, export):
        part.add_argument(
            "--store", metavar="FILE", help="where they are kept (default: DIAGNOSE_RULE_STORE, or your data folder)"
        )


def run(arguments: argparse.Namespace) -> int:
    table_of = {
        "list": _list,
        "check": _check,
        "test": rules_test.test,
        "explain": rules_test.explain,
        "learn": rules_learned.learn,
        "learned": rules_learned.learned,
        "promote": rules_learned.move,
        "retire": rules_learned.move,
        "export": rules_learned.export,
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
