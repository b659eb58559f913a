"""``diagnose llm``: what a model's endpoint can do, and how often models were right."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from diagnose.cli import action, printable
from diagnose.cli.options import endpoint
from diagnose.errors import DiagnoseError, needs
from diagnose.rendering.terminal import Style, table

if TYPE_CHECKING:
    from diagnose.model.model import Capabilities
    from diagnose.model.settings import Settings

_TRIED = ("chat", "json_schema", "n", "seed", "logprobs", "embeddings")
_NAMES_SHOWN = 3


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = action(actions, "check", "try what an endpoint can do")
    add.epilog = "Exit status: 0 if the endpoint can be used, 2 if not."
    add.add_argument(
        "--llm", metavar="URL", required=True, help="OpenAI-compatible endpoint, for example http://localhost:8000/v1"
    )
    add.add_argument("--model", metavar="NAME", help="model to use (default: the first that the endpoint lists)")
    add.add_argument(
        "--timeout", metavar="TIME", default="60", help="longest wait for one answer, such as 90s or 2m (default: 60s)"
    )
    add.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add = action(actions, "record", "show how often models were right, by the kind of evidence that the rules had")
    add.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    return {"check": _check_endpoint, "record": _show_record}[arguments.action](arguments)


def _show_record(arguments: argparse.Namespace) -> int:
    needs("diagnose.agent")
    from diagnose.agent.records import RecordFile
    from diagnose.agent.witnesses import RULES

    path = endpoint.record_file()
    file = RecordFile(path) if path.exists() else None
    records = {name: one for name, one in file.records().items() if name != RULES} if file is not None else {}
    if file is not None:
        file.close()
    if arguments.json:
        told = {
            name: {"proved": round(record.proved, 3), "kinds": record.as_dict()} for name, record in sorted(records.items())
        }
        print(json.dumps(told, ensure_ascii=False))
        return 0
    if not records:
        print(f"no model was tested yet; {path} is written when one is asked about failures that the rules are sure of")
        return 0
    rows = [("model", "the rules had", "right", "wrong", "trust", "has proved itself")]
    for name, record in sorted(records.items()):
        for kind, (right, wrong) in sorted(record.seen.items()):
            rows.append(
                (
                    printable(name or "?"),
                    _KINDS.get(kind, kind),
                    f"{right:.0f}",
                    f"{wrong:.0f}",
                    f"{record.trust(kind):.0%}",
                    f"{record.proved:.0%}",
                )
            )
    print(table(rows, Style(sys.stdout), header=True))
    return 0


_KINDS = {
    "specific": "a rule for this message",
    "generic": "an exception or a general rule",
    "echo": "an echo of a fault elsewhere",
    "detector": "only numbers of the job",
    "line": "only a line that no rule knows",
    "well": "a line that all went well",
    "quiet": "no proof that the job ended well",
}


def _check_endpoint(arguments: argparse.Namespace) -> int:
    needs("diagnose.model")
    from diagnose.model.settings import Settings, shown_url

    settings = Settings(arguments.llm, model=arguments.model, timeout_s=arguments.timeout)
    found = asyncio.run(_check(settings))
    if arguments.json:
        print(json.dumps({**dataclasses.asdict(found), "usable": found.usable}))
    if found.problem is not None:
        raise DiagnoseError(found.problem, where=shown_url(found.url), remedy=found.remedy)
    if not arguments.json:
        print(_text(found, Style(sys.stdout)))
    return 0


async def _check(settings: Settings) -> Capabilities:
    from diagnose.model.model import Model

    async with Model(settings) as model:
        return await model.check()


def _text(found: Capabilities, style: Style) -> str:
    rows = [("can", "", "seen"), ("models", "yes", _models(found))]
    lacking = []
    for name in _TRIED:
        capability = getattr(found, name)
        rows.append((name, "yes" if capability.works else "no", printable(capability.seen)))
        if capability.degraded is not None:
            lacking.append((name, capability.degraded))
    lines = [style.bold(f"{found.url}  {printable(found.model or '')}"), "", table(rows, style, header=True)]
    if lacking:
        lines += ["", table([("without", "what is worse"), *lacking], style, header=True)]
    return "\n".join(lines)


def _models(found: Capabilities) -> str:
    if not found.models:
        return "not listed by the endpoint"
    more = len(found.models) - _NAMES_SHOWN
    names = ", ".join(found.models[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return names + (f"; {found.context:,} tokens of context" if found.context else "")
