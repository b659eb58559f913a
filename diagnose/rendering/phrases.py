"""The parts of a report as plain sentences and words, for all renderings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from diagnose.diagnosis.detectors.course import duration
from diagnose.diagnosis.doubt import NO_END
from diagnose.diagnosis.wording import ranges
from diagnose.rendering.terminal import human_bytes

if TYPE_CHECKING:
    from diagnose.report import Action, CompressionFigures, EvidenceLine, MetricFigures, Report, Suspects, Witnesses


class Answer(NamedTuple):
    """One job in a table of several."""

    job: str
    answer: str
    confidence: str
    action: str
    place: str
    """of the root cause"""


ANSWER_HEADER = Answer("job", "answer", "confidence", "action", "root cause")


def answer(report: Report) -> Answer:
    diagnosis, root = report.diagnosis, report.diagnosis.root_cause
    if not told(report):
        return Answer(report.job.id, verdict(report), "", "", "")
    sure = f"{diagnosis.confidence:.0%}" if diagnosis.confidence else ""
    return Answer(report.job.id, diagnosis.reason, sure, report.action.kind, place(root) if root is not None else "")


def answers(reports: Sequence[Report]) -> list[tuple[Report, Answer]]:
    """The answers of several jobs, failed ones first."""
    return sorted(((report, answer(report)) for report in reports), key=lambda row: not told(row[0]))


def told(report: Report) -> bool:
    """Whether there is a failure to report."""
    return report.outcome == "failed" or report.diagnosis.root_cause is not None


def tally(reports: Sequence[Report]) -> str:
    return f"{len(reports)} jobs, {sum(report.outcome == 'failed' for report in reports)} failed"


def verdict(report: Report) -> str:
    """The answer for a job in which no failure was found."""
    if report.outcome == "running":
        return "running"
    return "no failure found" if NO_END in report.diagnosis.doubt else "healthy"


def place(item: EvidenceLine) -> str:
    return f"{os.path.basename(item.source)}:{item.line}"


def many(item: EvidenceLine) -> str:
    """How many ranks or lines said the same; "" for one."""
    return f"{len(item.ranks)} ranks" if len(item.ranks) > 1 else f"{item.count:,} x" if item.count > 1 else ""


def later(item: EvidenceLine) -> str:
    """The time from the root cause to it; "" if they came together or the time is unknown."""
    return f"{duration(item.later_s)} later" if item.later_s is not None and item.later_s >= 1 else ""


def about(item: EvidenceLine) -> str:
    """Who printed a line, and when."""
    return listed([f"rank {item.rank}" if item.rank is not None else "", item.node or "", item.time or ""])


def suspects(found: Suspects) -> str:
    return listed(
        [
            f"{'node' if len(found.nodes) == 1 else 'nodes'} {few(found.nodes)}" if found.nodes else "",
            f"GPU {few(found.gpus)}" if found.gpus else "",
            f"{'rank' if len(found.ranks) == 1 else 'ranks'} {ranges(found.ranks)}" if found.ranks else "",
        ]
    )


def witnesses(found: Witnesses) -> str:
    """Who only waited for somebody else."""
    return listed(
        [
            f"{'node' if len(found.nodes) == 1 else 'nodes'} {few(found.nodes)}" if found.nodes else "",
            f"{'rank' if len(found.ranks) == 1 else 'ranks'} {ranges(found.ranks)}" if found.ranks else "",
        ]
    )


def on_what(action: Action) -> str:
    """What follows the kind of an action: its nodes, where it goes on, what it leaves out."""
    words = f" {few(action.nodes)}" if action.nodes else ""
    if action.restart_from is not None and action.restart_from.step is not None:
        words += f", from a checkpoint at step {action.restart_from.step:,} or before"
    if action.skip_batches is not None:
        words += f", skip the batches of steps {action.skip_batches[0]:,} to {action.skip_batches[1]:,}"
    return words


def read(figures: CompressionFigures) -> str:
    share = f" ({100 * figures.ratio:.1f} % of the bytes)" if figures.ratio is not None else ""
    return (
        f"{figures.lines_in:,} lines, {human_bytes(figures.bytes_in)}; "
        f"kept {figures.lines_kept:,} lines, {human_bytes(figures.bytes_kept)}{share}"
    )


def dropped(figures: CompressionFigures) -> str:
    return ", ".join(f"{kind} {count:,}" for kind, count in figures.dropped_by_kind.items())


def moving(report: Report) -> list[tuple[str, MetricFigures]]:
    """The numbers that changed, without those that only count."""
    return [
        (name, figures)
        for name, figures in report.metrics.items()
        if figures.count > 1 and figures.min != figures.max and not name.startswith(("consumed_", "total_")) and name != "epoch"
    ]


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def few(words: Sequence[str], most: int = 6) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def listed(words: Sequence[str]) -> str:
    return ", ".join(word for word in words if word)
