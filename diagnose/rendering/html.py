"""A report as one HTML file: no script, nothing from other sites, and log text only as text.

Jinja escapes all that it puts into the page. Should that ever fail, a policy in the page forbids scripts and requests.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from diagnose import __version__
from diagnose.rendering import phrases
from diagnose.rendering.characters import printable
from diagnose.rendering.kept_lines import shown
from diagnose.rendering.plots import plot

if TYPE_CHECKING:
    from diagnose.job import Job
    from diagnose.report import Report

MOST_LINES = 3000
"""about so many kept lines of a job are shown in a file"""
MOST_LINES_OF_ALL = 30_000
FEWEST_LINES = 100


def page(reports: Sequence[Report], sections: Sequence[str], places: Sequence[str]) -> str:
    """The whole page. ``sections`` are those of the reports, in order; their anchors come from ``places``."""
    place_of = {id(report): place for report, place in zip(reports, places, strict=True)}
    return template("page.html").render(
        title=reports[0].job.id if len(reports) == 1 else phrases.tally(reports),
        rows=[(place_of[id(report)], report, row) for report, row in phrases.answers(reports)] if len(reports) > 1 else [],
        header=phrases.ANSWER_HEADER,
        sections=[Markup(section) for section in sections],  # noqa: S704 - they are from here, where all was escaped
        version=__version__,
    )


def section(report: Report, job: Job, place: str, of: int = 1) -> str:
    """One job; ``of`` is the number of jobs on the page."""
    most = max(FEWEST_LINES, min(MOST_LINES, MOST_LINES_OF_ALL // of))
    diagnosis = report.diagnosis
    root = diagnosis.root_cause
    near = [item for item in diagnosis.evidence if root is not None and item.role == "context" and item.source == root.source]
    return template("job.html").render(
        place=place,
        report=report,
        phrases=phrases,
        told=phrases.told(report),
        cause=sorted([root, *near], key=lambda item: item.line) if root is not None else [],
        followed=[item for item in diagnosis.evidence if item.role == "consequence"],
        plots=[(name, figures, plot(name, figures.points, diagnosis.step)) for name, figures in phrases.moving(report)],
        sources=shown(report, job.compression, most),
    )


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["printable"] = lambda text: printable(str(text))
    return made


def template(name: str) -> Template:
    return _environment().get_template(name)
