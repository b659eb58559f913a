"""One checkpoint: its plan is made, printed and carried out, and what came of it is told."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from diagnose.cli import printable
from diagnose.errors import DiagnoseError
from diagnose.evaluate import planner, printed, spent, summary, timeline
from diagnose.evaluate.carry import nobody_alive
from diagnose.evaluate.coordinator import Coordinator, Wish
from diagnose.evaluate.dispatch import Dispatch
from diagnose.evaluate.estimates import Estimates
from diagnose.evaluate.estimates import expected as believed
from diagnose.evaluate.fleets.fleet import Fleet
from diagnose.evaluate.fleets.local import Local
from diagnose.evaluate.fleets.ray import Ray
from diagnose.evaluate.fleets.slurm import Slurm
from diagnose.evaluate.plan_file import File
from diagnose.evaluate.planner import Plan
from diagnose.evaluate.priors import Priors
from diagnose.evaluate.results import Results, replace
from diagnose.evaluate.suite import Node
from diagnose.folder_lock import Guard
from diagnose.rendering.terminal import Notice, Style, table

_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class _Planned:
    file: File
    nodes: list[Node]
    results: Results
    priors: Priors
    estimates: Estimates
    plan: Plan
    done: list[Any]


def show_plan(file: File, results: Results, priors: Priors, arguments: argparse.Namespace) -> None:
    """Print it, and run nothing."""
    _print_plan(_planned(file, file.machines(), results, priors), arguments)


def carry_out(
    file: File,
    results: Results,
    priors: Priors,
    arguments: argparse.Namespace,
    wish: Wish,
    turn: Callable[[], None] = lambda: None,
) -> dict[str, Any] | None:
    """What is in scores.json in the end; None if it was stopped before."""
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
            return _run(planned, fleet, arguments, wish, turn)
        finally:
            fleet.close()
    finally:
        guard.close()


def say(text: str) -> None:
    sys.stderr.write(f"diagnose evaluate: {printable(text)}\n")


def _fleet(file: File, results: Results, arguments: argparse.Namespace) -> Fleet:
    if arguments.on == "ray":
        return Ray(arguments.address)
    if arguments.on == "slurm":
        if file.load != "none":
            raise DiagnoseError("load: copy is not done on Slurm", where=str(arguments.plan), remedy="write   load: none")
        return Slurm(results.folder, max(arguments.workers, 1), max(arguments.processors, 1), arguments.sbatch)
    return Local(file.machines())


def _nodes(fleet: Fleet, arguments: argparse.Namespace) -> list[Node]:
    """To plan with. Workers of Slurm come later."""
    if arguments.on == "slurm":
        return [Node(f"worker-{number + 1}", 1, max(arguments.processors, 1)) for number in range(max(arguments.workers, 1))]
    return list(fleet.nodes())


def _run(
    planned: _Planned, fleet: Fleet, arguments: argparse.Namespace, wish: Wish, turn: Callable[[], None]
) -> dict[str, Any] | None:
    dispatch = Dispatch(planned.file.suite, fleet.nodes(), planned.estimates, planned.plan.how, done=planned.done)
    began, results = time.time(), planned.results
    results.add_run(began, {node.name: node.places for node in planned.nodes})
    one = Coordinator(results, fleet, dispatch, planned.priors, planned.file.retries, say, wish, turn)
    with contextlib.redirect_stdout(sys.stderr):  # Ray prints what it has to say about its nodes
        whole = one.run()
    now = time.time()
    went = spent.spent(results.spans(), results.runs(), planned.priors.estimates(planned.file.overheads).overheads, now)
    found = summary.summary(results, expected_s=planned.plan.expected_s, spent=asdict(went), at=now)
    _picture(planned, began)
    if not whole:
        return None
    print(json.dumps(found) if arguments.json else _told(found, planned, now - began, went), flush=True)
    return found


def _planned(file: File, nodes: list[Node], results: Results, priors: Priors) -> _Planned:
    estimates, done = believed(file.suite, priors.estimates(file.overheads)), results.done()
    with Notice("planning"):
        found = planner.plan(file.suite, estimates, nodes, done)
        found = planner.uncertainty(file.suite, estimates, nodes, found, done)
    return _Planned(file, nodes, results, priors, estimates, found, done)


def _print_plan(planned: _Planned, arguments: argparse.Namespace) -> None:
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
    folder, plan = planned.results.folder, planned.plan
    asked = [timeline.Bar(span.piece.key, span.node, span.begin_s, span.end_s) for span in plan.spans]
    rows = [row for row in planned.results.spans() if row["end"] >= began]
    bars = [timeline.Bar(row["key"], row["node"], row["begin"], row["end"], row["well"]) for row in rows]
    replace(folder / "planned.svg", timeline.picture("The plan", asked))
    replace(folder / "timeline.svg", timeline.picture("What ran", bars, plan.expected_s))


def _told(found: dict[str, Any], planned: _Planned, took_s: float, went: spent.Spent) -> str:
    rows: list[tuple[str, ...]] = [("data set", "samples", "score", "noise", "")]
    for name, one in found["datasets"].items():
        for score, value in sorted(one["scores"].items()):
            noise = one["noise"].get(score)
            rows.append(
                (name, f"{one['samples']:,}", f"{value:.4f}", f"{noise:.4f}" if noise is not None else "", printable(score))
            )
    lines = [table(rows, Style(sys.stdout), header=True), ""] if len(rows) > 1 else []
    lines += [printable(printed.fall(one)) for one in found["falls"]]
    for name, why in found["missing"].items():
        because = f"{why['summary']} ({why['reason']}; {why['log']})" if why else "it is not finished"
        lines.append(printable(f"No score of {name}: {because}"))
    expected = printed.duration(planned.plan.expected_s)
    lines.append(
        f"It took {printed.duration(took_s)}; {expected} were expected. {printed.spent(went)}\n"
        f"Written: {planned.results.folder}/scores.json, timeline.svg, planned.svg"
    )
    return "\n".join(lines)
