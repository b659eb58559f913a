"""A report as Markdown, to paste into a ticket.

Log text cannot become markup. Lines are in a fence that is longer than any run of backticks in them. Single words are in code
spans. In sentences, whatever Markdown or a tracker would act on is made harmless: emphasis, links, tags, mentions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from diagnose.rendering import phrases
from diagnose.rendering.characters import printable
from diagnose.rendering.phrases import ANSWER_HEADER

if TYPE_CHECKING:
    from diagnose.report import EvidenceLine, Report

_MOST_TEXT = 4000
_SHOWN_KINDS = 12
_TICKS = re.compile("`+")
_ACTING = re.compile(r"[\\`*\[\]<>&|~$]|(?<![^\W_])_|_(?![^\W_])")
_LEADING = re.compile(r"^(\s*)([-+#=]|\d+(?=[.)]))")
_REFERRING = re.compile(r"[@#!](?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_NOTHING = "\u200b"
"""without width: between a mark and its word, so that a tracker sees neither a mention nor a link"""


def page(reports: Sequence[Report], sections: Sequence[str]) -> str:
    """The whole text. If there are several jobs, a table comes before their sections."""
    if len(reports) < 2:
        return "\n".join(sections)
    rows = [ANSWER_HEADER, *(tuple(map(code, row)) for _, row in phrases.answers(reports))]
    return "\n".join([f"# {phrases.tally(reports)}\n", table(rows), "", *sections])


def section(report: Report) -> str:
    """One job."""
    diagnosis = report.diagnosis
    parts = [f"## {_heading(report)}", prose(diagnosis.summary), *map(prose, diagnosis.notes)]
    if diagnosis.root_cause is not None:
        parts += [_cause(report, diagnosis.root_cause)]
    if diagnosis.dumps is not None and diagnosis.dumps.summary:
        parts.append(f"**Dumps**: {prose(phrases.sentence(diagnosis.dumps.summary))}")
    consequences = [item for item in diagnosis.evidence if item.role == "consequence"]
    parts.append(_lines("What followed", consequences))
    if phrases.told(report):
        parts.append(_advice(report))
    parts.append(_lines("Other failures, which do not follow from it", [other.line for other in diagnosis.others]))
    parts.append(_lines("Went wrong and was overcome", diagnosis.recovered))
    parts += [_figures(report), _metrics(report)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(report: Report) -> str:
    diagnosis = report.diagnosis
    attempt = f", attempt {report.job.attempt}" if report.job.attempt > 1 else ""
    if not phrases.told(report):
        return f"{code(report.job.id)}: {phrases.verdict(report)}{attempt}"
    sure = f", confidence {diagnosis.confidence:.0%}" if diagnosis.confidence else ""
    return f"{code(report.job.id)}: {code(diagnosis.reason)} ({diagnosis.category}){sure}{attempt}"


def _cause(report: Report, root: EvidenceLine) -> str:
    near = [item for item in report.diagnosis.evidence if item.role == "context" and item.source == root.source]
    shown = sorted([root, *near], key=lambda item: item.line)
    width = len(str(shown[-1].line))
    lines = [
        f"{'>' if item is root else ' '} {item.line:>{width}} | {printable(item.text.rstrip())[:_MOST_TEXT]}" for item in shown
    ]
    where = ", ".join(filter(None, [code(f"{root.source}:{root.line}"), prose(phrases.about(root))]))
    raised = f"\n\nRaised in {code(root.frame)}" if root.frame else ""
    return f"**Root cause**: {where}\n\n{fenced(lines)}{raised}"


def _lines(title: str, items: Sequence[EvidenceLine]) -> str:
    if not items:
        return ""
    rows = [f"**{title}**\n"]
    for item in items[:_SHOWN_KINDS]:
        what = prose(item.title) if item.title else code(item.text.strip())
        rows.append(f"- {', '.join(filter(None, [code(phrases.place(item)), phrases.many(item)]))}: {what}{_later(item)}")
    if len(items) > _SHOWN_KINDS:
        rows.append(f"- and {len(items) - _SHOWN_KINDS} more kinds")
    return "\n".join(rows)


def _later(item: EvidenceLine) -> str:
    return f", {phrases.later(item)}" if phrases.later(item) else ""


def _advice(report: Report) -> str:
    action, diagnosis = report.action, report.diagnosis
    lines = []
    if suspects := phrases.suspects(diagnosis.suspects):
        lines.append(f"**Suspects**: {prose(suspects)}")
    if witnesses := phrases.witnesses(diagnosis.witnesses):
        lines.append(f"**Witnesses**: {prose(witnesses)}")
    lines.append(f"**Action**: {code(action.kind)}{prose(phrases.on_what(action))}. {prose(action.why)}".rstrip())
    if diagnosis.mitigation:
        helps = [prose(part.strip()) for part in diagnosis.mitigation.split("\n") if part.strip()]
        lines.append("**Help**\n\n" + "\n".join(f"- {part}" for part in helps))
    return "\n\n".join(lines)


def _figures(report: Report) -> str:
    dropped = phrases.dropped(report.compression)
    return f"**Read**: {phrases.read(report.compression)}" + (f"; dropped: {prose(dropped)}" if dropped else "")


def _metrics(report: Report) -> str:
    rows = [
        (code(name), f"{figures.count:,}", *map(phrases.number, (figures.last, figures.min, figures.max)))
        for name, figures in phrases.moving(report)
    ]
    return table([("metric", "values", "last", "least", "greatest"), *rows]) if rows else ""


def fenced(lines: Sequence[str]) -> str:
    """Lines as they are, in a fence that none of them can end."""
    fence = "`" * max(3, 1 + _longest("\n".join(lines)))
    return "\n".join([f"{fence}text", *lines, fence])


def code(text: str) -> str:
    """Words as they are, inside a line."""
    shown = printable(text).replace("\t", " ").strip()[:_MOST_TEXT]
    if not shown:
        return ""
    ticks = "`" * (1 + _longest(shown))
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


def prose(text: str) -> str:
    """A sentence that may have words of a log."""
    shown = _ACTING.sub(r"\\\g<0>", " ".join(map(printable, text.split("\n"))))
    shown = _LEADING.sub(r"\1\\\2" if not shown.lstrip()[:1].isdigit() else r"\1\2" + _NOTHING, shown)
    return _REFERRING.sub(lambda mark: mark[0] + _NOTHING, shown)


def table(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is the head. A bar inside a cell is escaped, because it would end the cell."""
    cells = [[cell.replace("\\|", "|").replace("|", "¦") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]])


def _longest(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)
