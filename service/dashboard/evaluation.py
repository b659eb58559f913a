"""The evaluation of a job's checkpoints: scores by data set, their trend and noise, and where the time went."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from diagnose.decision.scores import Score, fallen
from service.dashboard import charts, words
from service.dashboard.charts import Reading
from service.dashboard.page import Page
from service.errors import Unknown
from service.names import check_job
from service.store import reading
from service.store.training import evaluations, scores
from service.store.training.evaluations import Evaluation

_COLUMNS = 8
"""checkpoints in the table: the latest"""
_TREND = 60
_COSTS = 20
_LINES, _PLOTS = 4, 2
"""in the plots of the job's page: data sets of a plot, and plots"""
_PARTS = {"none": "running the model", "framework": "loading", "infrastructure": "what failed", "unknown": "waiting"}
"""colour -> what the places did"""
Checkpoint = tuple[int, int]
"""attempt, step"""


@dataclass(frozen=True, slots=True)
class Cell:
    """A score of a checkpoint."""

    value: float
    noise: float | None
    fell: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A score of a data set, over the checkpoints."""

    data_set: str
    metric: str
    higher: bool
    cells: Sequence[Cell | None]
    trend: Markup
    fell: bool
    """at the latest checkpoint"""


async def show(request: Request) -> Response:
    """The page."""
    page = Page.of(request)
    name = page.who.named(check_job(request.path_params["job"]))

    def work(connection: Any) -> tuple[Any, list[Score], dict[Checkpoint, Evaluation]]:
        return reading.job(connection, name), scores.known_of(connection, name), evaluations.known_of(connection, name)

    job, known, costs = await page.read(work)
    if job is None:
        raise Unknown("there is no such job", where=name, remedy="see the list of jobs")
    checkpoints = sorted({(one.attempt, one.step) for one in known})
    metrics = sorted({one.metric for one in known})
    metric = page.asked("metric")
    rows = table([one for one in known if metric is None or one.metric == metric], checkpoints)
    latest = costs.get(checkpoints[-1]) if checkpoints else None
    return await page.show(
        "evaluation.html",
        "jobs",
        events=f"events?{urlencode({'job': name})}",
        job=job,
        asked={"metric": metric},
        metrics=metrics,
        checkpoints=checkpoints,
        columns=checkpoints[-_COLUMNS:][::-1],
        several=len({attempt for attempt, _ in checkpoints}) > 1,
        rows=rows,
        fell=[row for row in rows if row.fell],
        latest=latest,
        costs=[_cost(place, one) for place, one in sorted(costs.items(), reverse=True)[:_COSTS]],
        more_costs=len(costs) - _COSTS,
        parts=_PARTS,
    )


def table(known: Iterable[Score], checkpoints: Sequence[Checkpoint]) -> list[Row]:
    """What fell at the latest checkpoint comes first."""
    alike: dict[tuple[str, str], list[Score]] = {}
    for one in known:
        alike.setdefault((one.data_set, one.metric), []).append(one)
    rows = [_row(data_set, metric, some, checkpoints) for (data_set, metric), some in alike.items()]
    return sorted(rows, key=lambda row: (not row.fell, row.data_set, row.metric))


def _row(data_set: str, metric: str, some: Sequence[Score], checkpoints: Sequence[Checkpoint]) -> Row:
    fell = fallen(some)
    cells: dict[Checkpoint, Cell] = {
        (one.attempt, one.step): Cell(one.value, one.noise, (one.attempt, one.step) in fell) for one in some
    }
    readings = [
        Reading(cell.value, cell.noise, cell.fell, f"step {place[1]:,}")
        for place in checkpoints[-_TREND:]
        if (cell := cells.get(place)) is not None
    ]
    trend = charts.trend(readings, f"{words.printable(metric, 40)} of {words.printable(data_set, 60)}")
    shown = [cells.get(place) for place in checkpoints[-_COLUMNS:][::-1]]
    return Row(data_set, metric, some[-1].higher, shown, trend, shown[0] is not None and shown[0].fell)


def _cost(place: Checkpoint, one: Evaluation) -> dict[str, Any]:
    went = {
        "none": one.inference_s, "framework": one.loading_s, "infrastructure": one.failed_s, "unknown": one.waiting_s,
    }  # fmt: skip
    whole = sum(went.values())
    said = ", ".join(f"{_PARTS[name]} {words.share(seconds / whole)}" for name, seconds in went.items() if seconds and whole)
    return {
        "attempt": place[0],
        "one": one,
        "bar": charts.shares(went, f"step {one.step:,}: {said or 'nothing ran'}"),
        "said": said,
    }


def plots(known: Sequence[Score]) -> list[tuple[str, list[int], dict[str, dict[int, float]]]]:
    """For the job's page: (metric, steps, data set -> step -> score). What fell comes first; of a step the latest attempt."""
    by_metric: dict[str, dict[str, dict[int, float]]] = {}
    worst: dict[tuple[str, str], bool] = {}
    for one in sorted(known, key=lambda one: (one.attempt, one.step)):
        by_metric.setdefault(one.metric, {}).setdefault(one.data_set, {})[one.step] = one.value
    for metric, sets in by_metric.items():
        for data_set in sets:
            its = [one for one in known if (one.metric, one.data_set) == (metric, data_set)]
            worst[metric, data_set] = bool(fallen(its))
    found = []
    for metric in sorted(by_metric, key=lambda metric: (-len(by_metric[metric]), metric))[:_PLOTS]:
        sets = by_metric[metric]
        names = sorted(sets, key=lambda name: (not worst[metric, name], name))[:_LINES]
        steps = sorted({step for name in names for step in sets[name]})
        if len(steps) > 1:
            found.append((metric, steps, {name: sets[name] for name in names}))
    return found
