"""``diagnose executors check``: is the file right, and can its executors act from here."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.cli import action, printable
from diagnose.errors import DiagnoseError

if TYPE_CHECKING:
    from service.acting.executors.configuration import Configured


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = action(actions, "check", "check the file of executors, and ask each executor whether it can act")
    add.epilog = "Exit status: 0 if all is well, 1 if something is wrong."
    add.add_argument("file", nargs="?", type=Path, metavar="FILE", help="file of the executors (default: $DIAGNOSE_EXECUTORS)")
    add.add_argument("--offline", action="store_true", help="check the file only, and contact nothing")
    add.add_argument(
        "--webhooks-to",
        metavar="NETWORKS",
        default="",
        help="private networks that webhooks may reach, for example 10.20.0.0/16 (default: none)",
    )


def run(arguments: argparse.Namespace) -> int:
    from service.acting.executors import configuration
    from service.net.guarded import networks

    path: Path | None = arguments.file or (
        Path(os.environ["DIAGNOSE_EXECUTORS"]) if "DIAGNOSE_EXECUTORS" in os.environ else None
    )
    if path is None:
        raise DiagnoseError("the file of executors is missing", remedy="give its path, or set DIAGNOSE_EXECUTORS")
    private = networks(arguments.webhooks_to)
    wrong = configuration.objections(path, private)
    for one in wrong:
        print(printable(str(one)))
    if wrong:
        return 1
    return asyncio.run(_look(configuration.load(path, private), arguments.offline))


async def _look(executors: tuple[Configured, ...], offline: bool) -> int:
    status = 0
    for one in executors:
        problems = [] if offline else await one.executor.check()
        dry = ", dry run" if one.dry_run else ""
        said = "not asked" if offline else "; ".join(problems) or "ready"
        print(printable(f"{one.name} ({one.type}{dry}): {', '.join(sorted(one.kinds))}: {said}"))
        status |= bool(problems)
    return status
