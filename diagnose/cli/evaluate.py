"""``diagnose evaluate PLAN.yaml``: the scores of a checkpoint, sooner."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from diagnose.cli import printable
from diagnose.errors import DiagnoseError, needs
from diagnose.folder_lock import Guard
from diagnose.rendering.terminal import Notice, Style, table

if TYPE_CHECKING:
    from diagnose.evaluate.coordinator import Wish
    from diagnose.evaluate.estimates import Estimates
    from diagnose.evaluate.fleets.fleet import Fleet
    from diagnose.evaluate.plan_file import File
    from diagnose.evaluate.planner import Plan
    from diagnose.evaluate.priors import Priors
    from diagnose.evaluate.results import Results
    from diagnose.evaluate.suite import Node

STOPPED = 75
"""EX_TEMPFAIL of sysexits.h: the same command goes on"""
_PATIENCE_S = 60.0


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


@dataclass(frozen=True, slots=True)
class _Planned:
    file: File
    nodes: list[Node]
    results: Results
    priors: Priors
    estimates: Estimates
    plan: Plan
    done: list[Any]


def run(arguments: argparse.Namespace) -> int:
    needs("diagnose.evaluate")
    from diagnose.evaluate import plan_file
    from diagnose.evaluate.priors import Priors, usual_path
    from diagnose.evaluate.results import Results

    file = plan_file.read(arguments.plan)
    checkpoint = arguments.checkpoint.absolute() if arguments.checkpoint is not None else file.checkpoint
    results = Results(file.results / checkpoint.name, file.suite, checkpoint)
    priors = Priors(file.priors or usual_path(), file.model)
    try:
        if arguments.dry_run:
            _print_plan(_planned(file, file.machines(), results, priors), arguments)
            return 0
        if not checkpoint.exists():
            raise DiagnoseError("there is no such checkpoint", where=str(checkpoint), remedy="give another with --checkpoint")
        return _carry_out(file, results, priors, arguments)
    finally:
        priors.close()


def _carry_out(file: File, results: Results, priors: Priors, arguments: argparse.Namespace) -> int:
    from diagnose.evaluate.carry import nobody_alive

    guard = Guard(results.folder, "another evaluation", "results: FOLDER in the plan")
    try:
        results.check_same()
        if not nobody_alive(results.folder, _PATIENCE_S):
            raise DiagnoseError("work of an earlier evaluation still runs", where=str(results.folder), remedy="end it first")
        fleet = _fleet(file, results, arguments)
        try:
            planned = _planned(file, _nodes(fleet, arguments), results, priors)
            if not arguments.json:
                _print_plan(planned, arguments)
            return _run(planned, fleet, arguments)
        finally:
            fleet.close()
    finally:
        guard.close()


def _fleet(file: File, results: Results, arguments: argparse.Namespace) -> Fleet:
    from diagnose.evaluate.fleets.local import Local
    from diagnose.evaluate.fleets.ray import Ray
    from diagnose.evaluate.fleets.slurm import Slurm

    if arguments.on == "ray":
        return Ray(arguments.address)
    if arguments.on == "slurm":
        if file.load != "none":
            raise DiagnoseError("load: copy is not done on Slurm", where=str(arguments.plan), remedy="write   load: none")
        return Slurm(results.folder, max(arguments.workers, 1), max(arguments.processors, 1), arguments.sbatch)
    return Local(file.machines())


def _nodes(fleet: Fleet, arguments: argparse.Namespace) -> list[Node]:
    """To plan with. Workers of Slurm come later."""
    from diagnose.evaluate.suite import Node

    if arguments.on == "slurm":
        return [Node(f"worker-{number + 1}", 1, max(arguments.processors, 1)) for number in range(max(arguments.workers, 1))]
    return list(fleet.nodes())


def _run(planned: _Planned, fleet: Fleet, arguments: argparse.Namespace) -> int:
    from diagnose.evaluate.coordinator import Coordinator, Wish, summary
    from diagnose.evaluate.dispatch import Dispatch

    wish = Wish()
    for number, handler in _handlers(wish).items():
        signal.signal(number, handler)
    dispatch = Dispatch(planned.file.suite, fleet.nodes(), planned.estimates, planned.plan.how, done=planned.done)
    began = time.time()
    one = Coordinator(planned.results, fleet, dispatch, planned.priors, planned.file.retries, _say, wish)
    with contextlib.redirect_stdout(sys.stderr):  # Ray prints what it has to say about its nodes
        whole = one.run()
    found = summary(planned.results)
    _picture(planned, began)
    if not whole:
        sys.stderr.write("diagnose evaluate: stopped; the same command goes on\n")
        return STOPPED
    print(json.dumps(found) if arguments.json else _told(found, planned, time.time() - began, began))
    return 1 if found["missing"] else 0


def _handlers(wish: Wish) -> dict[signal.Signals, Callable[[int, FrameType | None], None]]:
    def stop(_: int, __: FrameType | None) -> None:
        wish.stop = True

    def drain(_: int, __: FrameType | None) -> None:
        wish.drain = True

    return {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGUSR1: drain}


def _say(text: str) -> None:
    sys.stderr.write(f"diagnose evaluate: {printable(text)}\n")


def _planned(file: File, nodes: list[Node], results: Results, priors: Priors) -> _Planned:
    from diagnose.evaluate import planner
    from diagnose.evaluate.estimates import expected

    estimates, done = expected(file.suite, priors.estimates(file.overheads)), results.done()
    with Notice("planning"):
        found = planner.plan(file.suite, estimates, nodes, done)
        found = planner.uncertainty(file.suite, estimates, nodes, found, done)
    return _Planned(file, nodes, results, priors, estimates, found, done)


def _print_plan(planned: _Planned, arguments: argparse.Namespace) -> None:
    from diagnose.evaluate import printed

    style, suite = Style(sys.stdout), planned.file.suite
    print(printed.headline(suite, planned.nodes, planned.plan))
    if planned.done:
        print(f"{len(planned.done)} pieces of work are finished already.")
    print()
    print(table(printed.rows(suite, planned.estimates, planned.plan), style, header=True))
    if arguments.pieces:
        print()
        print(table(printed.pieces(planned.plan.spans), style, header=True))
    sys.stdout.flush()


def _picture(planned: _Planned, began: float) -> None:
    from diagnose.evaluate import timeline
    from diagnose.evaluate.results import replace

    folder, plan = planned.results.folder, planned.plan
    asked = [timeline.Bar(span.piece.key, span.node, span.begin_s, span.end_s) for span in plan.spans]
    rows = [row for row in planned.results.spans() if row["end"] >= began]
    bars = [timeline.Bar(row["key"], row["node"], row["begin"], row["end"], row["well"]) for row in rows]
    replace(folder / "planned.svg", timeline.picture("The plan", asked))
    replace(folder / "timeline.svg", timeline.picture("What ran", bars, plan.expected_s))


def _told(found: dict[str, Any], planned: _Planned, took_s: float, began: float) -> str:
    from diagnose.evaluate import printed

    rows: list[tuple[str, ...]] = [("data set", "samples", "score", "noise", "")]
    for name, one in found["datasets"].items():
        for score, value in sorted(one["scores"].items()):
            noise = one["noise"].get(score)
            rows.append(
                (name, f"{one['samples']:,}", f"{value:.4f}", f"{noise:.4f}" if noise is not None else "", printable(score))
            )
    lines = [table(rows, Style(sys.stdout), header=True), ""] if len(rows) > 1 else []
    for fall in found["falls"]:
        before, now, noise = (f"{fall[name]:.4f}" for name in ("before", "now", "noise"))
        what = f"{printable(fall['score'])} of {fall['dataset']} fell from {before} ({found['before']}) to {now}"
        lines.append(f"{what}, which is more than chance: the noise is {noise}.")
    for name, why in found["missing"].items():
        because = f"{why['summary']} ({why['reason']}; {why['log']})" if why else "it is not finished"
        lines.append(printable(f"No score of {name}: {because}"))
    spent = printed.spent(planned.results.spans(), began)
    lines.append(
        f"It took {printed.duration(took_s)}; {printed.duration(planned.plan.expected_s)} were expected. {spent}\n"
        f"Written: {planned.results.folder}/scores.json, timeline.svg, planned.svg"
    )
    return "\n".join(lines)
