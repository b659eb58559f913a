"""``diagnose evaluate PLAN.yaml``: the scores of a checkpoint, sooner."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from diagnose.errors import needs
from diagnose.rendering.terminal import Notice, Style, table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "docs/evaluation.md has an example of a plan."
    parser.add_argument("plan", metavar="PLAN.yaml", type=Path, help="the data sets, and the commands that evaluate them")
    parser.add_argument("--pieces", action="store_true", help="also print every piece of work, and when it should begin")


def run(arguments: argparse.Namespace) -> int:
    needs("diagnose.evaluate")
    from diagnose.evaluate import plan_file, planner, printed
    from diagnose.evaluate.estimates import expected
    from diagnose.evaluate.priors import Priors, usual_path

    file = plan_file.read(arguments.plan)
    suite, nodes = file.suite, file.machines()
    priors = Priors(file.priors or usual_path(), file.model)
    try:
        estimates = expected(suite, priors.estimates(file.overheads))
    finally:
        priors.close()
    with Notice("planning"):
        found = planner.uncertainty(suite, estimates, nodes, planner.plan(suite, estimates, nodes))
    style = Style(sys.stdout)
    print(printed.headline(suite, nodes, found))
    print()
    print(table(printed.rows(suite, estimates, found), style, header=True))
    if arguments.pieces:
        print()
        print(table(printed.pieces(found.spans), style, header=True))
    return 0
