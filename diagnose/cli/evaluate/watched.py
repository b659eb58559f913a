"""The checkpoints of a training, one after the other, as they come."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from diagnose.cli.evaluate.carrying import carry_out, say
from diagnose.cli.options.destination import destination
from diagnose.errors import DiagnoseError
from diagnose.evaluate import arrivals, printed, summary, telling
from diagnose.evaluate.arrivals import Arrival, Unfit
from diagnose.evaluate.coordinator import Wish
from diagnose.evaluate.plan_file import File
from diagnose.evaluate.priors import Priors
from diagnose.evaluate.results import results_of
from diagnose.evaluate.watching import Ending, Name, Watch
from diagnose.folder_lock import Guard
from diagnose.shipping.destination import Destination

SERVICE = "service"
"""the word for the list that a service has, in the place of a folder"""


def watch(file: File, priors: Priors, arguments: argparse.Namespace, wish: Wish) -> Ending:
    """Until it is stopped, or nothing comes any more."""
    service = destination(arguments) if arguments.job is not None else None
    if arguments.watch == SERVICE and service is None:
        raise DiagnoseError("the service needs to know which job", remedy="give it with --job NAME")

    def unfit(arrival: Arrival, read: bool) -> Unfit | None:
        return arrivals.unfit(arrival, arguments.quiet, time.time(), read=read)

    def evaluate(arrival: Arrival, turn: Callable[[Wish], None]) -> Ending:
        return _evaluated(file, priors, arguments, arrival, turn, wish)

    def tell() -> None:
        """What the service does not know yet."""
        if service is None:
            return
        for path in sorted(file.results.glob("*/scores.json")):
            once.say(telling.tell(path.parent, service, arguments.job))

    once = Once()
    guard = Guard(file.results, "another watch", "results: FOLDER in the plan")
    try:
        return Watch(
            _look(arguments, service, once), unfit, evaluate, _evaluated_before(file), say, wish,
            arguments.every, arguments.idle, arguments.late, tell,
        ).run()  # fmt: skip
    finally:
        guard.close()


def _look(arguments: argparse.Namespace, service: Destination | None, once: Once) -> Callable[[], Sequence[Arrival]]:
    if arguments.watch != SERVICE:
        folder = Path(arguments.watch).absolute()
        if not folder.is_dir():
            say(f"{folder} is not there yet")
        return lambda: arrivals.in_folder(folder)
    assert service is not None

    def look() -> Sequence[Arrival]:
        try:
            return arrivals.of_service(service.checkpoints(arguments.job))
        except DiagnoseError as error:  # a service that is away comes back
            once.say(str(error))
            return []

    return look


class Once:
    """Says the same thing once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, text: str | None) -> None:
        if text is not None and text not in self._said:
            self._said.add(text)
            say(text)


def _evaluated(
    file: File, priors: Priors, arguments: argparse.Namespace, arrival: Arrival, turn: Callable[[Wish], None], wish: Wish
) -> Ending:
    own = Wish()
    say(f"{arrival.path.name} is evaluated")
    try:
        results = results_of(file.results, file.suite, arrival.path, arrival.written_s)
        with arrivals.held(arrival.path):
            found = carry_out(file, results, priors, arguments, own, lambda: turn(own))
    except (DiagnoseError, OSError) as error:  # one checkpoint: the training goes on, and so do we
        say(f"{arrival.path.name} is left out: {error}")
        return "ended"
    if found is None:
        return "stopped" if wish.stop or wish.drain else "gave way"
    for fall in found["falls"]:
        say(f"alarm: {arrival.path.name}: {printed.fall(fall)}")
    return "ended"


def _evaluated_before(file: File) -> set[Name]:
    """Those that have all scores."""
    found: set[Name] = set()
    for path in file.results.glob("*/scores.json"):
        said = summary.read(path.parent)
        if said is not None and not said["missing"] and isinstance(said.get("written"), (int, float)):
            found.add((Path(str(said.get("checkpoint"))).name, float(said["written"])))
    return found
