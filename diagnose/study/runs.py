"""One run of a job, whoever told of it: the scheduler's accounting, a cluster's job list, or the service's database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from diagnose.decision.lost import Lost

State = Literal[
    "completed", "failed", "cancelled", "time_limit", "preempted", "node_failure", "out_of_memory", "requeued", "running",
    "waiting",
]  # fmt: skip
ENDED_BADLY: Final = frozenset({"failed", "time_limit", "preempted", "node_failure", "out_of_memory", "requeued"})
"""a run of such a state is a failure; that somebody cancelled one is none until its log says so"""


@dataclass(slots=True)
class Run:
    job: str
    """its id, as people write it"""
    state: State
    name: str = ""
    user: str = ""
    partition: str = ""
    raw: str = ""
    """the id that the scheduler gives to each task of an array"""
    waits_since: float | None = None
    """when it could have begun"""
    started: float | None = None
    ended: float | None = None
    elapsed_s: float = 0.0
    gpus: int = 0
    nodes: tuple[str, ...] = ()
    exit_code: str = ""
    reason: str | None = None
    """of the taxonomy; None: nothing says why it failed"""
    by_log: bool = False
    """its log gave the reason"""
    steps: tuple[float | None, float | None, float | None] | None = None
    """first, last and saved step, by its log"""
    start_up_s: float | None = None
    still_s: float = 0.0
    lost: Lost | None = None
    """None: it is no failure"""
    names: tuple[str, ...] = ()
    """of the job and of its pods, where these are in the paths of its logs"""
    space: str = ""
    """where these names are unique"""

    @property
    def failed(self) -> bool:
        return self.state in ENDED_BADLY or (self.state == "cancelled" and self.by_log and self.reason is not None)

    @property
    def gpu_s(self) -> float:
        return self.elapsed_s * self.gpus
