"""What is evaluated, and on what: the content of a plan file as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Loading = Literal["copy", "none"]


@dataclass(frozen=True, slots=True)
class Metric:
    """How the outputs of a data set are scored."""

    command: str
    split: bool = False
    """it can score some samples apart from the others"""
    at_once: int | None = None
    """so many may run at a time, on all nodes together: a judge behind an API has a limit"""
    processors: int = 1


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set, and how it is evaluated."""

    name: str
    samples: int
    trial: str
    metric: Metric
    split: bool = True
    """its samples can be shared out among trials"""
    trial_s: float | None = None
    """what a person expects of all samples together, if nothing was measured yet"""
    metric_s: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A machine."""

    name: str
    places: int
    """trials that it can run at a time"""
    processors: int
    """for metrics"""


@dataclass(frozen=True, slots=True)
class Suite:
    """All data sets of an evaluation."""

    datasets: tuple[DataSet, ...]
    joined: str | None = None
    """one trial may run several data sets, if their names are joined by this"""
    load: Loading = "none"
    """how the model comes into the memory of a node, once"""

    def dataset(self, name: str) -> DataSet:
        return next(one for one in self.datasets if one.name == name)
