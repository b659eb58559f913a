"""``diagnose evaluate PLAN.yaml``: the scores of a checkpoint, sooner; or of all checkpoints of a training, as they come."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from diagnose.cli.options.destination import add_service, destination
from diagnose.errors import DiagnoseError, needs
from diagnose.quantities import SECONDS

if TYPE_CHECKING:
    from diagnose.evaluate.coordinator import Wish
    from diagnose.evaluate.plan_file import File
    from diagnose.evaluate.priors import Priors

STOPPED = 75
"""EX_TEMPFAIL of sysexits.h: the same command goes on"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit status: 0 if all data sets are scored, 1 if some are not, 2 if it could not run, 75 if it was stopped: the same "
        "command then goes on. SIGTERM stops it at once, SIGUSR1 when what runs has ended. docs/evaluation.md has a plan."
    )
    parser.add_argument("plan", metavar="PLAN.yaml", type=Path, help="the data sets, and the commands that evaluate them")
    parser.add_argument("--checkpoint", metavar="PATH", type=Path, help="evaluate this one (default: that of the plan)")
    parser.add_argument(
        "--on",
        choices=("here", "ray", "slurm"),
        default="here",
        help="run on this machine, on the nodes of a Ray cluster, or as an array job of Slurm (default: here)",
    )
    parser.add_argument("--address", help="with --on ray: of a running cluster (default: start one on this machine)")
    parser.add_argument("--workers", type=int, default=8, metavar="N",
                        help="with --on slurm: tasks of the array job, each with a place for trials (default: 8)")  # fmt: skip
    parser.add_argument("--processors", type=int, default=1, metavar="N",
                        help="with --on slurm: processors for metrics that each task has (default: 1)")  # fmt: skip
    parser.add_argument("--sbatch", action="append", default=[], metavar="OPTION",
                        help="with --on slurm: an option of sbatch, as --sbatch=--gpus=1; may be repeated")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="print the plan, and run nothing")
    parser.add_argument("--pieces", action="store_true", help="also print every piece of work, and when it should begin")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON instead of a table")
    _configure_watch(parser)
    add_service(parser)


def _configure_watch(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("beside a training")
    group.add_argument("--watch", metavar="WHERE",
                       help="evaluate the checkpoints of a training as they come, the newest first: a folder, or the word "
                       "service for those that the job reported to the service")  # fmt: skip
    group.add_argument("--job", metavar="NAME", help="the training; its scores are sent to the service")
    group.add_argument("--late", action="store_true",
                       help="evaluate what a newer one overtook, when nothing is newer (default: leave it out)")  # fmt: skip
    group.add_argument("--every", type=_seconds, default=10.0, metavar="TIME", help="look so often (default: 10s)")
    group.add_argument("--quiet", type=_seconds, default=60.0, metavar="TIME",
                       help="a checkpoint without a manifest is finished if unchanged for so long (default: 1m)")  # fmt: skip
    group.add_argument("--idle", type=_seconds, metavar="TIME", help="end if nothing came for so long (default: never)")


def _seconds(text: str) -> float:
    try:
        value = float(str(SECONDS.read(text)))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 366 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 30s, 5m or 2h")
    return value


def run(arguments: argparse.Namespace) -> int:
    needs("diagnose.evaluate")
    from diagnose.evaluate import plan_file
    from diagnose.evaluate.priors import Priors, usual_path

    file = plan_file.read(arguments.plan)
    priors = Priors(file.priors or usual_path(), file.model)
    try:
        if arguments.watch is not None:
            return _watch(file, priors, arguments)
        return _one(file, priors, arguments)
    finally:
        priors.close()


def _watch(file: File, priors: Priors, arguments: argparse.Namespace) -> int:
    from diagnose.cli.evaluate.watched import watch

    if arguments.dry_run or arguments.checkpoint is not None:
        raise DiagnoseError("--watch goes with neither --dry-run nor --checkpoint", remedy="leave one of them out")
    return STOPPED if watch(file, priors, arguments, _wish()) == "stopped" else 0


def _one(file: File, priors: Priors, arguments: argparse.Namespace) -> int:
    from diagnose.cli.evaluate.carrying import carry_out, say, show_plan
    from diagnose.evaluate import telling
    from diagnose.evaluate.results import results_of

    checkpoint = arguments.checkpoint.absolute() if arguments.checkpoint is not None else file.checkpoint
    if checkpoint is None:
        remedy = "give one with --checkpoint, or   checkpoint: PATH   in the plan"
        raise DiagnoseError("there is no checkpoint to evaluate", where=str(arguments.plan), remedy=remedy)
    results = results_of(file.results, file.suite, checkpoint)
    if arguments.dry_run:
        show_plan(file, results, priors, arguments)
        return 0
    if not checkpoint.exists():
        raise DiagnoseError("there is no such checkpoint", where=str(checkpoint), remedy="give another with --checkpoint")
    service = destination(arguments) if arguments.job is not None else None
    found = carry_out(file, results, priors, arguments, _wish())
    if found is not None and service is not None:
        problem = telling.tell(results.folder, service, arguments.job)
        if problem is not None:
            say(f"{problem}; the same command tells them again")
    if found is None:
        say("stopped; the same command goes on")
        return STOPPED
    return 1 if found["missing"] else 0


def _wish() -> Wish:
    """What signals ask for from now on."""
    from diagnose.evaluate.coordinator import Wish

    wish = Wish()

    def stop(_: int, __: FrameType | None) -> None:
        wish.stop = True

    def drain(_: int, __: FrameType | None) -> None:
        wish.drain = True

    for number, handler in {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGUSR1: drain}.items():
        signal.signal(number, handler)
    return wish
