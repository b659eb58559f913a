"""What an order rests on, to be compared with what the scheduler knows: who says so, and what the log says of its job.

A claim alone never makes anything possible: it can only fail. The job must be the one that the log is from. Its owner must be
somebody for whom the senders of the log may speak.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from diagnose.decision.ending import Ending
from service.projects import Grant

_NOBODY: Final = "nobody who may speak for the job has sent its log"
_CLOCKS_S: Final = 60.0
"""the scheduler's clock may be so far ahead of ours"""


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one attempt of one job."""

    speakers: tuple[Grant, ...] = ()
    """on whose behalf its log, its labels and its end were sent"""
    nodes: tuple[str, ...] = ()
    """the nodes that its logs came from, as they say"""
    began: float | None = None
    """when it was first heard of"""
    word: str | None = None
    """who approved it, knowing that it was not confirmed"""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Claim:
        """From JSON. Without speakers it claims for nobody."""
        return cls(
            tuple(Grant.of(one) for one in said.get("speakers") or ()),
            tuple(map(str, said.get("nodes") or ())),
            said.get("began"),
            said.get("word") or None,
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "speakers": [one.as_dict() for one in self.speakers],
            "nodes": list(self.nodes),
            "began": self.began,
            "word": self.word,
        }

    @property
    def _for_jobs(self) -> tuple[Grant, ...]:
        """Who speaks for the job. A node's own log sender speaks for its node, and for a job only if nobody else does."""
        return tuple(one for one in self.speakers if not one.kernel) or self.speakers

    def for_user(self, user: str) -> bool:
        """Whether all senders may speak for this owner. One who may not could have sent anything."""
        return bool(self._for_jobs) and all(one.acts_for_user(user) for one in self._for_jobs)

    def for_namespace(self, namespace: str) -> bool:
        return bool(self._for_jobs) and all(one.acts_for_namespace(namespace) for one in self._for_jobs)

    def bound_to(self, job: str) -> bool:
        """Whether an administrator has bound all senders to names of jobs, and this name is among them."""
        return bool(self._for_jobs) and all(one.everything or (one.jobs and one.may_write(job)) for one in self._for_jobs)

    def may_accuse(self, node: str) -> bool:
        """Whether what was sent, apart from lines of kernels, may speak against a node."""
        return bool(self._for_jobs) and all(one.may_accuse(node) for one in self._for_jobs)

    def names(self, *called: str) -> bool:
        """Whether all senders may write of a job with one of these names."""
        return all(any(one.may_write(name) for name in called) for one in self._for_jobs)

    def against_user(self, user: str) -> str | None:
        """Why the senders may not speak for a job of this user of Slurm; None if they may."""
        if self.word is not None:
            return None
        if not self.speakers:
            return _NOBODY
        if not self.for_user(user):
            return f"the job is {user}'s, for whom not all of the tokens that sent its data may speak (tokens create --user)"
        return None

    def against_namespace(self, namespace: str, name: str) -> str | None:
        """The same for a job in a namespace of Kubernetes."""
        if self.word is not None:
            return None
        if not self.speakers:
            return _NOBODY
        if not self.for_namespace(namespace):
            return (
                f"the job is in the namespace {namespace}, for which not all of the tokens that sent its data may speak "
                "(tokens create --namespace)"
            )
        if not self.names(name, f"{namespace}.{name}"):
            return f"not all of the tokens that sent its data may write of jobs named {namespace}.{name} (tokens create --job)"
        return None

    def not_the_same(self, began: float | None, nodes: Collection[str]) -> str | None:
        """Why the log cannot be from this job: it is older, or comes from nodes where the job does not run."""
        if self.word is not None:
            return None
        if began is not None and self.began is not None and began > self.began + _CLOCKS_S:
            return "the job was started after its log had begun: it is another"
        away = [node for node in self.nodes if node not in nodes and node.partition(".")[0] not in nodes]
        if away:
            return f"its log says that it comes from {', '.join(away[:3])}, where the job does not run"
        return None


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The job of an order, in the scheduler's words."""

    subject: str
    """its name there"""
    owner: str
    nodes: tuple[str, ...]
    """where it runs, or ran"""
    ending: Ending | None = None
    """how the attempt ended; None if it is not over, or another one runs"""


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """Why it is not certain that the order is called for."""

    why: str
    for_now: bool = False
    """it may soon be certain: the job is just ending, or the scheduler did not answer"""
    ending_now: bool = False
    """the job is just ending: soon the scheduler says how"""
