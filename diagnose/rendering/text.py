"""A report as text for a terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from diagnose.diagnosis.wording import ranges
from diagnose.rendering import phrases
from diagnose.rendering.characters import printable
from diagnose.rendering.phrases import ANSWER_HEADER
from diagnose.rendering.terminal import Style, columns_of, shortened, shortened_before, sparkline, table, wrapped

if TYPE_CHECKING:
    from diagnose.job import Job
    from diagnose.report import EvidenceLine, Report, StackGroup, StandingCollective

_SHOWN_KINDS = 6
_SHOWN_GROUPS = 10
_SHOWN_LAST = 5
_ROOT_LINES = 24
_NAMED = 12
"""column of what follows a name"""
_PLACE = 24
"""least columns for the name of a file with its line"""
_SPARK = (5, 40, 100)
"""columns of a curve: at least, in a pipe, and at most"""


def render(report: Report, job: Job, style: Style) -> str:
    """The report in the order of a compiler's message: what, where, what followed, what to do."""
    parts = [_headline(report, style)]
    if report.diagnosis.root_cause is not None:
        parts += [_cause(report, style), _dumps(report, style), _followed(report, style), _advice(report, style)]
        parts.append(_others(report, style))
    else:
        parts += [_dumps(report, style), _overcome(report, style), _advice(report, style) if report.outcome == "failed" else ""]
    parts += [_figures(report, style), "\n".join(_metric_lines(report, style))]
    if report.outcome != "failed" or report.diagnosis.root_cause is None:
        parts.append("\n".join(_kept_lines(report, job, style)))
    return "\n\n".join(part for part in parts if part)


def overview(reports: Sequence[Report], style: Style) -> str:
    """One line for each of several jobs, those that failed first."""
    longest = style.width * 3 // 10
    rows = [tuple(map(printable, row._replace(job=shortened(row.job, longest)))) for _, row in phrases.answers(reports)]
    lines = table([ANSWER_HEADER, *rows], style, header=True, width=style.width - 2)
    return "\n".join([style.bold(phrases.tally(reports)), *(f"  {line}" for line in lines.split("\n"))])


def _headline(report: Report, style: Style) -> str:
    diagnosis = report.diagnosis
    sources = report.job.sources
    of = shortened(sources[0], style.width - 40) if len(sources) == 1 else f"{len(sources)} files"
    name = style.bold(printable(report.job.id))
    attempt = f", attempt {report.job.attempt}" if report.job.attempt > 1 else ""
    if report.outcome == "failed" or diagnosis.root_cause is not None:
        sure = f"  {style.dim(f'confidence {diagnosis.confidence:.0%}')}" if diagnosis.confidence else ""
        said = f"{style.red(style.bold(diagnosis.reason))} ({diagnosis.category}){sure}"
    else:
        words = phrases.verdict(report)
        said = style.cyan(words) if report.outcome == "running" else style.green(words)
    lines = [f"{name}: {said}  {style.dim(printable(of) + attempt)}"]
    lines += [f"  {line}" for line in wrapped(printable(diagnosis.summary), style.prose - 2)]
    lines += [f"  {line}" for note in diagnosis.notes for line in wrapped(printable(note), style.prose - 2)]
    return "\n".join(lines)


def _cause(report: Report, style: Style) -> str:
    """The root cause with the lines around it."""
    diagnosis = report.diagnosis
    root = diagnosis.root_cause
    assert root is not None
    near = [item for item in diagnosis.evidence if item.role == "context" and item.source == root.source]
    shown = sorted([root, *near], key=lambda item: item.line)
    width = len(str(shown[-1].line))
    place = f"{root.source}:{root.line}"
    room = style.width - 7 - width
    beside = printable(phrases.about(root))
    place = shortened_before(printable(place), max(_PLACE, style.width - 8 - columns_of(beside)))
    said = style.link(root.source, root.line, style.cyan(place))
    lines = [f"  {style.cyan('-->')} {said}  {style.dim(beside)}".rstrip()]
    for item in shown:
        text = printable(item.text.rstrip()).replace("\t", "    ")
        if item is root:
            lines += [
                f"  {style.red('>')} {style.bold(str(item.line).rjust(width))} {style.dim('|')} {style.red(line)}"
                if number == 0
                else f"    {' ' * width} {style.dim('|')} {style.red(line)}"
                for number, line in enumerate(wrapped(text, room, most=_ROOT_LINES))
            ]
        else:
            lines.append(f"    {style.dim(str(item.line).rjust(width))} {style.dim('|')} {style.dim(shortened(text, room))}")
    if root.frame:
        lines.append(f"    {' ' * width} {style.dim('=')} raised in {printable(shortened(root.frame, room - 11))}")
    return "\n".join(lines)


def _dumps(report: Report, style: Style) -> str:
    """Who is where: one line per group of equal stacks, and one per collective that has not ended."""
    dumps = report.diagnosis.dumps
    if dumps is None or not (dumps.stacks or dumps.collectives):
        return ""
    lines = []
    if dumps.stacks:
        shown_groups = dumps.stacks[:_SHOWN_GROUPS]
        rows = [("processes", "ranks", "place", "where"), *(_stack_row(group, style.width - 52) for group in shown_groups)]
        lines += [style.bold("  stacks"), *_indented(table(rows, style, header=True, width=style.width - 4))]
        if len(dumps.stacks) > _SHOWN_GROUPS:
            lines.append(style.dim(f"    and {len(dumps.stacks) - _SHOWN_GROUPS} more groups"))
    if dumps.collectives:
        shown = dumps.collectives[:_SHOWN_KINDS]
        rows = [
            ("group", "collective", "waiting", "late", "device behind", "no dump"),
            *(_collective_row(one) for one in shown),
        ]
        lines += [
            style.bold("  collectives that stand"),
            *_indented(table(rows, style, header=True, width=style.width - 4)),
        ]
        if len(dumps.collectives) > _SHOWN_KINDS:
            lines.append(style.dim(f"    and {len(dumps.collectives) - _SHOWN_KINDS} more"))
    return "\n".join(lines)


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.split("\n")]


def _stack_row(group: StackGroup, room: int) -> tuple[str, ...]:
    who = ranges(group.ranks, 3) if group.ranks else printable(shortened(", ".join(group.processes), 24))
    return str(group.count), who, f"{group.place}{', waits' if group.waits else ''}", printable(shortened(group.where, room))


def _collective_row(one: StandingCollective) -> tuple[str, ...]:
    name = one.description or one.group
    ranks = (ranges(found, 3) for found in (one.waiting, one.late, one.behind, one.no_dump))
    return printable(shortened(name, 24)), printable(shortened(f"{one.op} #{one.number}", 30)), *ranks


def _followed(report: Report, style: Style) -> str:
    """What followed from the root cause, one line per kind."""
    items = [item for item in report.diagnosis.evidence if item.role == "consequence"]
    if not items:
        return ""
    lines = [style.bold("  what followed")]
    lines += [_folded(item, style) for item in items[:_SHOWN_KINDS]]
    if len(items) > _SHOWN_KINDS:
        lines.append(style.dim(f"    and {len(items) - _SHOWN_KINDS} more kinds"))
    return "\n".join(lines)


def _folded(item: EvidenceLine, style: Style) -> str:
    place = printable(phrases.place(item))
    many = f"{phrases.many(item)} ".replace("ranks ", "ranks: ").lstrip()
    later = f", {phrases.later(item)}" if phrases.later(item) else ""
    what = printable(item.title or item.text.strip())
    room = max(8, style.width - 6 - len(place) - len(many) - len(later))
    return f"    {style.link(item.source, item.line, style.cyan(place))}  {many}{shortened(what, room)}{later}"


def _advice(report: Report, style: Style) -> str:
    diagnosis, action = report.diagnosis, report.action
    lines = []
    if suspects := phrases.suspects(diagnosis.suspects):
        lines += _named("suspects", printable(suspects), style)
    if witnesses := phrases.witnesses(diagnosis.witnesses):
        lines += _named("witnesses", printable(witnesses), style)
    what = printable(phrases.on_what(action))
    on, *rest = _named("action", action.kind + what, style)
    lines += [on.replace(action.kind, style.yellow(action.kind), 1), *rest]
    lines += [" " * _NAMED + line for line in wrapped(action.why, style.prose - _NAMED - 2)]
    if diagnosis.mitigation:
        first, *others = (part.strip() for part in diagnosis.mitigation.split("\n"))
        lines += _named("help", first, style)
        lines += [" " * _NAMED + line for part in others for line in wrapped(part, style.prose - _NAMED - 2)]
    return "\n".join(lines)


def _others(report: Report, style: Style) -> str:
    diagnosis = report.diagnosis
    if not diagnosis.others:
        return ""
    lines = [style.bold("  other failures, which do not follow from it")]
    lines += [f"{_folded(other.line, style)}  {style.dim(other.reason)}" for other in diagnosis.others[:_SHOWN_KINDS]]
    return "\n".join(lines)


def _overcome(report: Report, style: Style) -> str:
    if not report.diagnosis.recovered:
        return ""
    return "\n".join(
        [style.bold("  went wrong and was overcome"), *(_folded(i, style) for i in report.diagnosis.recovered[:_SHOWN_KINDS])]
    )


def _figures(report: Report, style: Style) -> str:
    figures = report.compression
    lines = _named("read", phrases.read(figures), style)
    if figures.dropped_by_kind:
        lines += _named("dropped", phrases.dropped(figures), style)
    if report.agent is not None:
        taken = ", ".join(f"{kind} {count:,}" for kind, count in sorted(report.agent.redacted.items())) or "nothing"
        said = f"{report.agent.model or 'unnamed'} was shown {report.agent.lines_shown:,} lines; redacted before: {taken}"
        lines += _named("model", printable(said), style)
    if report.diagnosis.lines_not_read:
        lines += _named("note", f"{report.diagnosis.lines_not_read:,} kept lines were too many to diagnose", style)
    return "\n".join(lines)


def _named(name: str, text: str, style: Style) -> list[str]:
    """``text`` after its name, wrapped."""
    lines = wrapped(text, style.prose - _NAMED - 2)
    first = f"  {style.bold(name)}{' ' * (_NAMED - 2 - len(name))}{lines[0]}"
    return [first, *(" " * _NAMED + line for line in lines[1:])]


def _metric_lines(report: Report, style: Style) -> list[str]:
    """A line for each number that changed, with its curve."""
    rows, curves = [], []
    for name, figures in phrases.moving(report):
        last, least, most = map(phrases.number, (figures.last, figures.min, figures.max))
        rows.append((f"  {printable(name)}", f"{figures.count:,}", last, least, most))
        curves.append([point[1] for point in figures.points])
    if not rows:
        return []
    lines = table([("  metric", "values", "last", "least", "greatest"), *rows], style, header=True).split("\n")
    least_room, usual, most_room = _SPARK
    widest = max(map(columns_of, lines[1:]))
    free = style.width - 2 - widest
    room = max(least_room, min(most_room, free if style.width > 100 else min(usual, free)))
    padded = [line + " " * (widest - columns_of(line)) for line in lines[1:]]
    return [lines[0], *(f"{line}  {style.cyan(sparkline(curve, room))}" for line, curve in zip(padded, curves, strict=True))]


def _kept_lines(report: Report, job: Job, style: Style) -> list[str]:
    """The last kept lines: what a person would scroll to."""
    if not report.compression.lines_kept:
        return []
    log = job.compression.kept
    tail = []
    for _, kept in log.chosen(lambda order, source, rule: order >= log.lines - _SHOWN_LAST):
        text = printable(kept.text[:1000].decode("utf-8", "replace"))
        tail.append(f"    {os.path.basename(job.sources[kept.source].name)}:{kept.line}: {text}")
    return [style.bold("  the last kept lines"), *(shortened(line, style.width) for line in tail)]
