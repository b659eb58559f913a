"""``diagnose projects``: what each project may use of a service."""

from __future__ import annotations

import argparse
from typing import Any

from diagnose.cli import action
from diagnose.cli.options import database
from diagnose.cli.serve import settings_of
from diagnose.errors import DiagnoseError
from diagnose.quantities import BYTES

_SIZES = ("rate", "storage")
_NONE = "none"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    limit = action(actions, "limit", "set what a project may use; what is not named stays as it is")
    limit.add_argument("project", metavar="NAME", help="project, or * for all those without quotas of their own")
    bounds = limit.add_argument_group("what it may use", f"'{_NONE}' takes a bound away")
    bounds.add_argument("--rate", metavar="SIZE", help="log bytes per second, such as 5MiB")
    bounds.add_argument("--jobs", metavar="N", help="jobs that run at a time")
    bounds.add_argument("--sources", metavar="N", help="sources of those jobs together")
    bounds.add_argument("--storage", metavar="SIZE", help="size of its kept lines and raw logs, such as 50GiB")
    bounds.add_argument("--tokens", metavar="N", help="tokens of the language model per hour")
    listing = action(actions, "list", "list the projects that have quotas")
    for one in (limit, listing):
        database.options(one)


def run(arguments: argparse.Namespace) -> int:
    from service.store import quotas

    if arguments.action == "limit":
        said = {name: getattr(arguments, name) for name in quotas.BOUNDS if getattr(arguments, name) is not None}
        bounds = {name: _bound(name, text) for name, text in said.items()}
        if not bounds:
            raise DiagnoseError("no bound is named", remedy=f"name one: --{', --'.join(quotas.BOUNDS)}")
        with database.opened(settings_of(arguments)) as store:
            changed = store.write(lambda connection: quotas.limit(connection, arguments.project, bounds))
            print(_shown(arguments.project, changed))
        return 0
    with database.opened(settings_of(arguments)) as store:
        for project, quota in sorted(store.read(quotas.quotas).items()):
            print(_shown(project, quota))
    return 0


def _bound(name: str, text: str) -> int | None:
    if text == _NONE:
        return None
    try:
        value = BYTES.read(text) if name in _SIZES else int(text)
    except ValueError:
        value = None
    if not isinstance(value, int) or not 0 <= value < 1 << 62:
        what = f"a size such as {BYTES.example}" if name in _SIZES else "a whole number"
        raise DiagnoseError(f"{text!r} is no bound", where=f"--{name}", remedy=f"give {what}, or {_NONE}")
    return value


def _shown(project: str, quota: Any) -> str:
    from service.store.quotas import BOUNDS

    bounds = [(name, getattr(quota, name)) for name in BOUNDS]
    told = [f"{name}: {BYTES.show(value) if name in _SIZES else value}" for name, value in bounds if value is not None]
    return "\t".join([project, *(told or ["no bounds"])])
