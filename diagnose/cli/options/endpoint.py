"""The options of every command that may ask a model, and the asking: one model for all jobs of a command."""

from __future__ import annotations

import argparse
import asyncio
import copy
import hashlib
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
    group.add_argument(
        "--larger-llm",
        metavar="URL",
        help="endpoint of a larger model, asked where the first one leaves doubt",
    )
    group.add_argument("--larger-model", metavar="NAME", help="model to use there (default: the first that it lists)")
    group.add_argument(
        "--redact-hosts",
        action="store_true",
        help="take names and addresses of machines out of questions too; then a model cannot name nodes",
    )
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
    for name in ("model", "larger_llm", "larger_model", "redact_hosts", "record"):
        if getattr(arguments, name) not in (None, False) and not asked:
            flag = f"--{name.replace('_', '-')}"
            raise DiagnoseError(
                f"{flag} has no effect without a model", remedy="name an endpoint with --llm URL, or leave it out"
            )
    if arguments.larger_model is not None and arguments.larger_llm is None:
        raise DiagnoseError(
            "--larger-model has no effect without its endpoint", remedy="name it with --larger-llm URL, or leave it out"
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
    from diagnose.model.settings import Settings, base_url, with_larger

    if not wanted(arguments):
        return None
    url = base_url(arguments.llm) if arguments.llm is not None else _NOWHERE
    hosts = True if arguments.redact_hosts else None
    settings = Settings(url, model=arguments.model, record=arguments.record, replay=arguments.replay, redact_hosts=hosts)
    if arguments.larger_llm is None:
        return settings
    return with_larger(settings, arguments.larger_llm, arguments.larger_model)


def record_file() -> Path:
    """The file in which it is kept how often models were right."""
    return data_file(None, "DIAGNOSE_MODEL_RECORD", "model-record.db")


def model_of(arguments: argparse.Namespace) -> Model:
    """The model that the options name; an error if they name none."""
    from diagnose.model.model import Model

    settings = settings_of(arguments)
    if settings is None:
        raise DiagnoseError("no model was named", remedy="name an endpoint with --llm URL")
    return Model(settings)


class Agent:
    """The failure agent for one run of a command. Use it with ``with``."""

    def __init__(self, arguments: argparse.Namespace, *, remembers: bool = True) -> None:
        """``remembers``: how often models were right is known from earlier commands and kept for later ones. Recorded answers
        are not remembered.
        """
        from diagnose.agent.incidents import SqliteIncidents
        from diagnose.agent.records import RecordFile

        self._model = model_of(arguments)
        path = incidents_file(arguments.incidents)
        if arguments.incidents is not None and not path.exists():
            raise DiagnoseError("no such file", where=str(path), remedy="diagnose rules learn --confirm makes one")
        self._incidents = SqliteIncidents(path) if path.exists() else None
        self._runner = asyncio.Runner()
        live = remembers and arguments.replay is None
        self._record_file = RecordFile(record_file()) if live else None
        self._records: dict[str, Record] = self._record_file.records() if self._record_file is not None else {}

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._model.close())
        self._runner.close()
        if self._incidents is not None:
            self._incidents.close()
        if self._record_file is not None:
            self._record_file.close()

    def improve(self, report: Report, evidence: Evidence, *, may_be_healthy: bool, whatever: bool = False) -> Improved:
        """``report``, improved if the model could. ``may_be_healthy``: nobody except the log says that the job failed."""
        from diagnose.agent.explain import improve

        before = copy.deepcopy(self._records)
        found = self._runner.run(
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
        if self._record_file is not None:
            self._record_file.add(_case(report), before, self._records)
        return found

    def waits(self, report: Report, evidence: Evidence) -> bool:
        """Whether a question will be asked, so that somebody waits for it."""
        from diagnose.agent.gate import why_ask

        return why_ask(report, evidence.rules) is not None


def _case(report: Report) -> str:
    """What tells this question from others: the same log, read again, asks the same."""
    root = report.diagnosis.root_cause
    told = [report.job.fingerprint, report.job.attempt, report.compression.lines_in, report.compression.bytes_in]
    told += [root.text, root.line] if root is not None else []
    return hashlib.sha256(repr(told).encode()).hexdigest()[:24]


def learned_right(report: Report, reason: str) -> bool:
    """A person knows the reason, which shows whether the model that was asked was right. False: this was known before."""
    from diagnose.agent.records import RecordFile
    from diagnose.agent.witnesses import person_knows

    asked = report.agent
    if asked is None or asked.said is None:
        return False
    after: dict[str, Record] = {}
    person_knows(after, report, reason)
    file = RecordFile(record_file())
    try:
        return file.add(f"person {_case(report)}", {}, after)
    finally:
        file.close()


def say_asking(report: Report) -> None:
    """Say on a terminal that a model is being asked."""
    if sys.stderr.isatty():
        sys.stderr.write(f"asking the model about {report.job.id} …\n")
