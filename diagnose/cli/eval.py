"""``diagnose eval CORPUS``: how often the diagnosis is right, on labelled cases."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from diagnose.accuracy import Asked, Results, Score, Second, Verdict, as_dict, evaluate, labels, of_one_case
from diagnose.cli import printable
from diagnose.cli.options import endpoint
from diagnose.diagnosis.evidence import Evidence
from diagnose.errors import DiagnoseError
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.rendering.terminal import Notice, Progress, Style, table
from diagnose.report import Report


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "corpora", nargs="+", metavar="CORPUS", help="folder with the file labels.tsv and the logs that it names"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object per corpus, each on a line")
    form.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--wrong", action="store_true", help="also list the cases whose diagnosis is wrong")
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="use only the cases whose file name contains TEXT (default: all cases)"
    )
    parser.add_argument(
        "--rules",
        metavar="PATH",
        action="append",
        help="rule file or folder to use instead of the shipped rules; may be repeated",
    )
    model = endpoint.configure(parser)
    model.add_argument(
        "--ask",
        choices=tuple(_ASKED),
        help="cases to ask about: every failure, and every job that is called healthy without proof although a line "
        "sounds like a failure (needed), or all; for the others the answer is only counted (default: needed)",
    )


_ASKED: dict[str, Callable[[Report], bool]] = {
    "needed": lambda report: False,
    "all": lambda report: True,
}
"""--ask -> whether the model is asked although the rules are sure"""


def run(arguments: argparse.Namespace) -> int:
    if not endpoint.wanted(arguments):
        if arguments.ask is not None:
            raise DiagnoseError(
                "--ask has no effect without a model", remedy="name an endpoint with --llm URL, or leave it out"
            )
        return _run(arguments, None)
    with endpoint.Agent(arguments, remembers=False) as agent:  # so that figures do not depend on what was run before
        return _run(arguments, agent)


def _run(arguments: argparse.Namespace, agent: endpoint.Agent | None) -> int:
    whatever = _ASKED[arguments.ask or "needed"]

    def ask(report: Report, evidence: Evidence) -> Second:
        assert agent is not None
        found = agent.improve(report, evidence, may_be_healthy=True, whatever=whatever(report))
        reason = found.opinion.reason if found.opinion else None
        return Second(found.report, found.asked, reason, found.line, found.replaced)

    with Notice("preparing the rules"):
        matcher = Matcher(load(arguments.rules), reserved=EARLY)
    style, corpora = Style(sys.stdout), list[Results]()
    for number, name in enumerate(arguments.corpora):
        corpus = Path(name)
        corpora.append(results := Results(name))
        progress = Progress(name, len(labels(corpus)))
        for verdict in evaluate(corpus, matcher, only=arguments.only, ask=ask if agent else None):
            results.verdicts.append(verdict)
            progress.at(len(results.verdicts))
        progress.done()
        if arguments.json:
            print(json.dumps(as_dict(results)))
        elif arguments.markdown:
            print("\n" * (number > 0) + _markdown(results))
        else:
            print("\n" * (number > 0) + _text(results, style))
            if arguments.wrong:
                print("\n" + _wrong(results, style))
    if not arguments.json:
        print("\n" + (_rare_in_markdown(corpora) if arguments.markdown else _rare(corpora, style, named=arguments.wrong)))
    return 0


_FACTS = ("what", "clear", "ambiguous")


def _facts(results: Results) -> list[tuple[str, ...]]:
    """Figures for the clear cases, and for those whose label could be another, which the table by category does not show."""
    parts = results.apart()

    def row(what: str, show: Callable[[Score], str]) -> tuple[str, ...]:
        return what, *(show(part.whole) if part.verdicts else "-" for part in parts)

    def error_of(part: Results) -> str:
        error = part.calibration_error()
        return "-" if error is None else f"{error:.3f}"

    return [
        row("cases", lambda one: str(one.cases)),
        row("category", lambda one: _share(one.category, one.cases)),
        row("reason", lambda one: _share(one.reason, one.cases)),
        row("reason in the first two guesses", lambda one: _share(one.guessed, one.cases)),
        row("line or traceback", lambda one: _share(one.near, one.with_line)),
        row("line within three lines", lambda one: _share(one.within, one.with_line)),
        row("action exact", lambda one: _share(one.action, one.with_action)),
        row("action by kind", lambda one: _share(one.action_kind, one.with_action)),
        row("failures called healthy", lambda one: f"{one.missed} of {one.failures}"),
        row("nodes isolated, right", lambda one: str(one.isolated_right)),
        row("nodes isolated, wrong", lambda one: str(one.isolated_wrong)),
        ("confidence of 0.9 or more, right", *("{1} of {0}".format(*part.sure()) if part.verdicts else "-" for part in parts)),
        ("expected calibration error", *map(error_of, parts)),
    ]


_HEADER = ("category", "cases", "category", "reason", "line exact", "traceback", "action", "suspects", "alarms", "unknown")


def _rows(results: Results) -> list[tuple[str, ...]]:
    rows = [_row(category, score) for category, score in results.by_category().items()]
    return [*rows, _row("all", results.whole)]


def _row(name: str, score: Score) -> tuple[str, ...]:
    return (
        name,
        str(score.cases),
        _share(score.category, score.cases),
        _share(score.reason, score.cases),
        _share(score.exact, score.with_line),
        _share(score.near, score.with_line),
        _share(score.action, score.with_action),
        _share(score.suspects_found, score.with_suspects),
        f"{score.alarms}/{score.healthy}" if score.healthy else "-",
        str(score.unknown),
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


_LEVELS = ("confidence", "cases", "said", "right", "how many were right (#), and how many should have been (│)")
_BAR = 40


def _levels(results: Results) -> list[tuple[str, ...]]:
    """A reliability diagram: where the bar ends at its mark, the confidence is honest."""
    rows: list[tuple[str, ...]] = []
    for level in results.reliability():
        bar = ("#" * round(_BAR * level.right / level.cases)).ljust(_BAR, ".")
        mark = min(round(_BAR * level.said), _BAR - 1)
        bar = f"{bar[:mark]}│{bar[mark + 1 :]}"
        name = f"{level.least:.1f} to {level.least + 0.1:.1f}"
        rows.append((name, str(level.cases), _share_of(level.said), _share(level.right, level.cases), bar))
    return rows


def _share_of(part: float) -> str:
    return f"{100 * part:.1f}%"


def _text(results: Results, style: Style) -> str:
    lines = [style.bold(results.corpus), "", table([_HEADER, *_rows(results)], style, header=True)]
    whole = results.whole
    if whole.suspects_said:
        lines.append(f"\nsuspects: {_share(whole.suspects_right, whole.suspects_said)} of those said are those labelled")
    lines += ["", table([_FACTS, *_facts(results)], style, header=True)]
    if results.confusion():
        rows = [("labelled", "said", "cases"), *((a, b, str(n)) for a, b, n in results.confusion())]
        lines += ["", table(rows, style, header=True)]
    lines += ["", table([_LEVELS, *_levels(results)], style, header=True)]
    if (asked := results.asked()) is not None:
        lines += ["", table([_ASKED_HEADER, _asked_row(asked, whole.cases)], style, header=True)]
        lines += [style.dim(f"  {note}") for note in _missing(results)]
    return "\n".join(lines)


_ASKED_HEADER = ("model asked", "answered", "followed", "improved", "made worse", "its reasons right", "its lines right")


def _asked_row(asked: Asked, cases: int) -> tuple[str, ...]:
    return (
        f"{asked.asked} of {cases}",
        str(asked.answered),
        str(asked.followed),
        str(asked.improved),
        str(asked.worse),
        _share(asked.reason, asked.answered),
        _share(asked.line, asked.with_line),
    )


_NOTES_SHOWN = 5


def _missing(results: Results) -> list[str]:
    """What the model did not answer, and why."""
    notes = [
        f"{v.label.file}: {note}"
        for v in results.verdicts
        if v.second is not None and v.second.asked and v.second.reason is None
        for note in v.second.report.diagnosis.notes
        if note.startswith("The model: ")
    ]
    more = len(notes) - _NOTES_SHOWN
    return [printable(note) for note in notes[:_NOTES_SHOWN]] + ([f"and {more} more"] if more > 0 else [])


def _wrong(results: Results, style: Style) -> str:
    rows: list[tuple[str, ...]] = [("case", "labelled", "line", "said", "line", "action", "wanted")]
    rows += [_case(v) for v in results.verdicts if not _right(v)]
    return table(rows, style, header=True)


def _right(verdict: Verdict) -> bool:
    line = verdict.exact or verdict.label.root_cause_line is None
    found = verdict.suspects is None or verdict.suspects[0] > 0
    return verdict.category_right and verdict.reason_right and verdict.action_right and line and found


def _case(verdict: Verdict) -> tuple[str, ...]:
    label = verdict.label
    wanted = str(label.root_cause_line[1]) if label.root_cause_line else "-"
    mark = "" if verdict.exact or not label.root_cause_line else " (same traceback)" if verdict.near else " (elsewhere)"
    missed = " suspects" if verdict.suspects is not None and not verdict.suspects[0] else ""
    return (
        os.path.basename(label.file),
        label.reason,
        wanted,
        verdict.reason,
        (str(verdict.line[1]) if verdict.line else "-") + mark,
        verdict.action,
        ("" if verdict.action_right else label.action) + missed,
    )


def _rare(corpora: Sequence[Results], style: Style, *, named: bool) -> str:
    rare = of_one_case(corpora)
    lines = [f"rules that speak in one case only: {_rare_of(corpora)}" + ("" if named or not rare else " (--wrong names them)")]
    if named and rare:
        lines += ["", table([("rule", "case"), *rare.items()], style, header=True)]
    return "\n".join(lines)


def _rare_of(corpora: Sequence[Results]) -> str:
    return f"{len(of_one_case(corpora))} of the {len({rule for results in corpora for rule in results.rules()})} that speak"


def _rare_in_markdown(corpora: Sequence[Results]) -> str:
    """A rule that was written for one case may know only that one."""
    names = ", ".join(f"`{rule.rpartition(':')[2]}`" for rule in of_one_case(corpora))
    return f"## Rules that speak in one case only\n\n{_rare_of(corpora)}, in all corpora above together: {names or 'none'}."


def _markdown(results: Results) -> str:
    lines = [f"## {results.corpus}", "", _markdown_table([_HEADER, *_rows(results)])]
    whole = results.whole
    if whole.suspects_said:
        lines += ["", f"Of the suspects that are said, {_share(whole.suspects_right, whole.suspects_said)} are labelled."]
    lines += ["", _markdown_table([_FACTS, *_facts(results)])]
    levels = [(*row[:-1], f"`{row[-1]}`") for row in _levels(results)]
    lines += ["", _markdown_table([_LEVELS, *levels])]
    if results.confusion():
        lines += ["", _markdown_table([("labelled", "said", "cases"), *((a, b, str(n)) for a, b, n in results.confusion())])]
    if (asked := results.asked()) is not None:
        lines += ["", _markdown_table([_ASKED_HEADER, _asked_row(asked, whole.cases)])]
    return "\n".join(lines)


def _markdown_table(rows: Sequence[tuple[str, ...]]) -> str:
    first, *rest = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [first, tuple("---" for _ in first), *rest])
