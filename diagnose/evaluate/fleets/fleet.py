"""What the coordinator needs of the machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from diagnose.evaluate.carry import Order
from diagnose.evaluate.suite import Node


@dataclass(frozen=True, slots=True)
class Ended:
    """A piece of work is over. Times are in seconds since 1970."""

    key: str
    status: int | None
    """None: it is lost, with its process or its node"""
    begin_s: float
    end_s: float


class Fleet(Protocol):
    """Machines that run orders."""

    def nodes(self) -> Sequence[Node]:
        """Those that are there now."""

    def start(self, order: Order, node: str, *, on_place: bool) -> None:
        """Run it on that node, on a place of its own, or beside the places."""

    def ended(self, patience_s: float) -> list[Ended]:
        """What is over. It waits up to this time for the first."""

    def forget(self, memory: Path) -> None:
        """Remove this copy of a checkpoint from the memory of all nodes."""

    def stop(self) -> None:
        """End what runs, and wait until it has ended."""

    def close(self) -> None:
        """It is needed no more."""
