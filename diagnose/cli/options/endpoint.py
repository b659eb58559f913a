"""The options of every command that may ask a model, and the asking: one model for all jobs of a command."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.errors import DiagnoseError, needs

if TYPE_CHECKING:
    from diagnose.agent.explain import Improved
    from diagnose.agent.witnesses import Record
    from diagnose.diagnosis.evidence import Evidence
    from diagnose.model.model import Model
    from diagnose.model.settings import Settings
    from diagnose.report import Report

_NOWHERE = "http://127.0.0.1:9/v1"
"""an address that nothing listens on: with --replay alone, nothing is sent"""


def configure(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Adds the options, and returns their group for a command that has more."""
    group = parser.add_argument_group(
        "asking a language model", "A model is asked only with --llm or --replay (docs/agent.md)."
    )
    group.add_argument("--llm", metavar="URL", help="OpenAI-compatible endpoint, for example http://localhost:8000/v1")
    group.add_argument("--model", metavar="NAME", help="model to use (default: the first that the endpoint lists)")
    group.add_argument("--record", metavar="DIR", help="folder to which each question is written with its answers")
    group.add_argument("--replay", metavar="DIR", help="folder from which recorded answers are taken; nothing is sent")
    group.add_argument(
        "--incidents",
        metavar="FILE",
        help="database of past incidents (default: $DIAGNOSE_INCIDENTS, or ~/.local/share/diagnose/incidents.db)",
    )
    return group


def wanted(arguments: argparse.Namespace) -> bool:
    """Whether a model is to be asked. An option that needs a model is an error without one."""
    asked = arguments.llm is not None or arguments.replay is not None
    for name in ("model", "record"):
        if getattr(arguments, name) is not None and not asked:
            raise DiagnoseError(
                f"--{name} has no effect without a model", remedy="name an endpoint with --llm URL, or leave it out"
            )
    if asked:
        needs("diagnose.agent", "diagnose.model")
    return asked


def data_file(given: str | None, variable: str, name: str) -> Path:
    """A data file: the given one, else the one that the environment names, else one in the user's data folder."""
    if given or (given := os.environ.get(variable)):
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(data, "diagnose", name)


def incidents_file(given: str | None) -> Path:
    return data_file(given, "DIAGNOSE_INCIDENTS", "incidents.db")


def rule_file(given: str | None) -> Path:
    """The file of learned rules."""
    return data_file(given, "DIAGNOSE_RULE_STORE", "learned.db")


def settings_of(arguments: argparse.Namespace) -> Settings | None:
    """The settings of the model that the options name; None if no model is wanted."""
    from diagnose.model.settings import Settings, base_url

    if not wanted(arguments):
        return None
    url = base_url(arguments.llm) if arguments.llm is not None else _NOWHERE
    return Settings(url, model=arguments.model, record=arguments.record, replay=arguments.replay)


def model_of(arguments: argparse.Namespace) -> Model:
    """The model that the options name; an error if they name none."""
    from diagnose.model.model import Model

    settings = settings_of(arguments)
    if settings is None:
        raise DiagnoseError("no model was named", remedy="name an endpoint with --llm URL")
    return Model(settings)


class Agent:
    """The failure agent for one run of a command. Use it with ``with``."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from diagnose.agent.incidents import SqliteIncidents

        self._model = model_of(arguments)
        path = incidents_file(arguments.incidents)
        if arguments.incidents is not None and not path.exists():
            raise DiagnoseError("no such file", where=str(path), remedy="diagnose rules learn --confirm makes one")
        self._incidents = SqliteIncidents(path) if path.exists() else None
        self._runner = asyncio.Runner()
        self._records: dict[str, Record] = {}

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._model.close())
        self._runner.close()
        if self._incidents is not None:
            self._incidents.close()

    def improve(self, report: Report, evidence: Evidence, *, may_be_healthy: bool, whatever: bool = False) -> Improved:
        """``report``, improved if the model could. ``may_be_healthy``: nobody except the log says that the job failed."""
        from diagnose.agent.explain import improve

        return self._runner.run(
            improve(
                report,
                evidence,
                self._model,
                self._incidents,
                whatever=whatever,
                records=self._records,
                may_be_healthy=may_be_healthy,
            )
        )

    def waits(self, report: Report, evidence: Evidence) -> bool:
        """Whether a question will be asked, so that somebody waits for it."""
        from diagnose.agent.gate import why_ask

        return why_ask(report, evidence.rules) is not None


def say_asking(report: Report) -> None:
    """Say on a terminal that a model is being asked."""
    if sys.stderr.isatty():
        sys.stderr.write(f"asking the model about {report.job.id} …\n")
