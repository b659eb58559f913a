"""``diagnose demo``: the service with a week of sample jobs, and the dashboard over it."""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from diagnose.errors import DiagnoseError
from diagnose.rendering.terminal import Progress
from diagnose.shipping.destination import Destination

if TYPE_CHECKING:
    from service.demo import Planned

_SHARE = 0.55
"""share of the log of a running job that is there at the start; the rest comes in later"""
_EVERY_S = 1.0
_STORED_S = 60.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=150, metavar="N", help="number of jobs in the week (default: 150)")
    parser.add_argument(
        "--seed", type=int, metavar="N", default=7, help="seed of the random week; another seed makes another week (default: 7)"
    )
    parser.add_argument("--port", type=int, metavar="N", default=0, help="port to listen on (default: any free port)")
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="empty folder in which the data is kept (default: a folder that is deleted at the end)",
    )
    parser.add_argument(
        "--llm",
        metavar="URL",
        help="OpenAI-compatible endpoint of a model that is asked about the failures, too (default: no model)",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address of the dashboard, and do not open a browser"
    )


def run(arguments: argparse.Namespace) -> int:
    from service import demo

    # When the demo is told to end, it ends its service too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if arguments.jobs < 10:
        raise DiagnoseError(f"{arguments.jobs} jobs are too few for a week", remedy="give --jobs 10 or more")
    if arguments.data is not None and any(arguments.data.glob("*")):
        raise DiagnoseError(
            "the folder is not empty", where=str(arguments.data), remedy="give an empty or a new folder with --data"
        )
    with contextlib.ExitStack() as stack:
        data = arguments.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="diagnose-demo-")))
        data.mkdir(parents=True, exist_ok=True)
        log = stack.enter_context(open(data / "service.log", "w"))
        url = stack.enter_context(_serving(data, arguments.port, arguments.llm, log))
        plans = list(demo.week(arguments.seed, arguments.jobs, time.time()))
        progress = Progress("sending jobs", len(plans))
        destination = Destination(url)
        for number, planned in enumerate(plans):
            demo.send(destination, planned, share=1.0 if planned.ended is not None else _SHARE)
            progress.at(number + 1)
        progress.done()
        _age(data, plans)
        destination.node_check(demo.verdict(time.time()))
        demo.evaluate(destination, plans)
        print(f"{url}/ui/", flush=True)
        if not arguments.no_browser and sys.stdout.isatty():
            webbrowser.open(f"{url}/ui/")
        if sys.stderr.isatty():
            sys.stderr.write("Ctrl-C ends it\n")
        enough = threading.Event()
        for planned in plans:
            if planned.ended is None:
                arguments_of = (planned, _SHARE, Destination(url), lambda: not enough.wait(_EVERY_S))
                threading.Thread(target=_quietly, args=(demo.live, *arguments_of), daemon=True).start()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            enough.set()
    return 0


@contextlib.contextmanager
def _serving(data: Path, port: int, llm: str | None, log: IO[str]) -> Iterator[str]:
    """A service of its own, on this machine only."""
    policy = data / "policy.yaml"
    policy.write_text("mode: approve\n")
    words = [sys.executable, "-m", "diagnose", "serve", "--data", str(data / "service"), "--port", str(port)]
    words += ["--policy", str(policy), *(["--llm", llm] if llm is not None else [])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True) as process:  # noqa: S603 - ourselves
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if " on http" not in said:
                raise DiagnoseError("the service did not start", where=log.name, remedy="read this file for the reason")
            yield said.split()[-1]
        finally:
            process.terminate()


def _age(data: Path, plans: list[Planned]) -> None:
    """Move the jobs into the past week, once all of them are stored."""
    from service import demo
    from service.store import Store
    from service.store.actions import undecided

    store = Store.in_folder(data / "service")
    try:
        deadline = time.monotonic() + _STORED_S
        while not store.read(lambda connection: demo.stored(connection, plans)):
            if time.monotonic() > deadline:
                raise DiagnoseError(
                    f"the service did not store the jobs within {_STORED_S:.0f} s",
                    where=str(data),
                    remedy="read service.log in this folder",
                )
            time.sleep(0.3)
        store.write(lambda connection: demo.age(connection, plans))
        store.write(demo.forget_decisions)
        while store.read(undecided):
            if time.monotonic() > deadline:
                raise DiagnoseError(
                    f"the service did not decide about the jobs within {_STORED_S:.0f} s",
                    where=str(data),
                    remedy="read service.log in this folder",
                )
            time.sleep(0.3)
        store.write(lambda connection: demo.age_decisions(connection, plans))
    finally:
        store.close()


def _quietly(work: Callable[..., None], *arguments: object) -> None:
    """Run ``work``. An error because the service has ended is not reported."""
    with contextlib.suppress(OSError, DiagnoseError):
        work(*arguments)
