"""What all ways to act have in common: an order in, an outcome out.

The promises of an executor:

- **The deed is done once.** An order carries a key. Whoever gets the same order again looks at the cluster first, and does only
  what is not done yet: a crash between two steps, or a lost answer, costs nothing but a look.
- **Nothing that came out of a log is trusted.** Names of nodes and jobs must have the shape of a name, and the cluster itself
  must know them. Reasons are text for people. Nothing passes through a shell.
- **It says what it does not know.** ``failed`` means that it was not done, ``unknown`` that it may have been.
- **It says which nodes it has taken out**, also where the rest failed: they count against the blast radius.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, runtime_checkable

from service.acting.executors.claim import Claim, Confirmed, Unconfirmed

RESTARTS: Final = frozenset({"restart", "isolate_and_restart", "rollback_and_skip", "retry_later"})
TAKES_OUT: Final = frozenset({"isolate", "isolate_and_restart"})
KINDS: Final = RESTARTS | {"isolate", "release"}
State = Literal["succeeded", "failed", "unknown"]
_NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_MOST_NODES = 64
MOST_AVOIDED: Final = 4096
"""nodes that a restart goes without: as many as a node check may find faulty"""
_REASON = 200


@dataclass(frozen=True, slots=True)
class Order:
    """An order: what is to be done. The training side asks for ``restart_from`` and ``skip_batches`` itself when it starts."""

    key: str
    kind: str
    job: str | None = None
    attempt: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    """nodes that the restart goes without; they stay in service"""
    check: tuple[str, ...] = ()
    """nodes that are to be tested against each other before the restart; who dispatches the order sees to it"""
    restart_from: Mapping[str, Any] | None = None
    skip_batches: tuple[int, int] | None = None
    why: str = ""
    last_seen: float | None = None
    """when the attempt was last heard of before it was decided: what was begun after that is not what failed"""
    subject: str | None = None
    """the job, as the scheduler called it when it was decided: no label says otherwise any more"""
    claim: Claim | None = None
    """what the order rests on, for the scheduler to confirm; None: nobody asks"""

    @classmethod
    def of(cls, order: Mapping[str, Any]) -> Order:
        """From what the service tells executors."""
        skip = order.get("skip_batches")
        return cls(
            key=order["key"],
            kind=order["kind"],
            job=order.get("job") or None,
            attempt=order.get("attempt") or None,
            labels={str(name): str(value) for name, value in (order.get("labels") or {}).items()},
            nodes=tuple(order.get("nodes") or ()),
            avoid=tuple(order.get("avoid") or ()),
            check=tuple(order.get("check") or ()),
            restart_from=order.get("restart_from"),
            skip_batches=(skip[0], skip[1]) if skip else None,
            why=order.get("why") or "",
            last_seen=order.get("last_seen"),
            subject=order.get("subject") or None,
            claim=Claim.of(order["claim"]) if order.get("claim") is not None else None,
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "key": self.key,
            "kind": self.kind,
            "job": self.job,
            "attempt": self.attempt,
            "labels": dict(self.labels),
            "nodes": list(self.nodes),
            "avoid": list(self.avoid),
            "check": list(self.check),
            "restart_from": dict(self.restart_from) if self.restart_from else None,
            "skip_batches": list(self.skip_batches) if self.skip_batches else None,
            "why": self.why,
            "last_seen": self.last_seen,
            "subject": self.subject,
            "claim": self.claim.as_dict() if self.claim is not None else None,
        }

    @property
    def reason(self) -> str:
        """What the cluster shows its people: begins with the key, which is how a deed is known again. Plain ASCII."""
        why = "".join(letter if " " <= letter <= "~" else " " for letter in self.why)
        return f"{mark(self.key)}: {' '.join(why.split())}"[:_REASON]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an order."""

    state: State
    what: str
    """a sentence for people"""
    may_retry: bool = False
    """whether the same order may be tried again later, with a chance of success and none of doing it twice"""
    details: Mapping[str, Any] = field(default_factory=dict)
    isolated: tuple[str, ...] | None = None
    """the order's nodes that it has taken out of service, also where the rest failed; None: all if it succeeded, else none that
    it could tell"""


@runtime_checkable
class Scheduler(Protocol):
    """An executor that can say whether an order is called for: it asks who knows the jobs and the nodes."""

    async def confirm(self, order: Order) -> Confirmed | Unconfirmed:
        """The job that the order is about, if it is what the order's claim says. Raises nothing."""

    async def inventory(self) -> tuple[str, ...]:
        """The names of all nodes. Problem if they cannot be had."""


class Executor(Protocol):
    """A way to act."""

    @property
    def kinds(self) -> frozenset[str]:
        """The orders that it takes."""

    async def carry_out(self, order: Order, *, dry_run: bool = False) -> Outcome:
        """Carry the order out, or in a dry run say what would be done. Nothing that a cluster does raises an exception."""

    async def check(self) -> list[str]:
        """What this executor needs before it can act; empty if it can act."""


class Problem(Exception):
    """An order cannot be carried out, or nobody knows whether it was. Becomes an Outcome."""

    def __init__(self, what: str, *, state: State = "failed", may_retry: bool = False) -> None:
        super().__init__(what)
        self.what, self.state, self.may_retry = what, state, may_retry

    def outcome(self, done: list[str], isolated: Sequence[str] | None = None) -> Outcome:
        """The outcome, which also names the nodes that were already taken out."""
        before = f"; done before that: {', '.join(done)}" if done else ""
        out = None if isolated is None else tuple(isolated)
        return Outcome(self.state, self.what + before, self.may_retry, {"done": done} if done else {}, out)


def mark(key: str) -> str:
    """How a deed of ours is known again: in a node's reason, a job's comment, an annotation."""
    return f"diagnose {key[:32]}"


def node_names(names: tuple[str, ...], most: int = _MOST_NODES) -> tuple[str, ...]:
    """``names`` if each has the shape of one: no list expression, no option, no path. The cluster says whether they exist."""
    if len(names) > most:
        raise Problem(f"{len(names)} nodes in one order: more than {most} are never one decision")
    for name in names:
        if not _NODE.fullmatch(name) or name.upper() == "ALL":  # to Slurm ALL is every node there is
            raise Problem(f"{name[:80]!r} is not the name of a node")
    return tuple(dict.fromkeys(names))
