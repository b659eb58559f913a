"""What all ways to act share: an order in, an outcome out.

Every executor promises:

- **An order is carried out once.** It has a key. An executor that gets the same order again looks at the cluster first, and
  only
  does what is not done yet. So a crash between two steps, or a lost answer, costs only a look.
- **Nothing that comes from a log is trusted.** Names of nodes and jobs must have the form of a name, and the cluster itself
  must know them. Reasons are text for people. Nothing passes through a shell.
- **It says what it does not know.** ``failed`` means that it was not done, ``unknown`` that it may have been.
- **It says which nodes it has taken out**, even if the rest failed: they count towards the limit of isolated nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, runtime_checkable

from service.acting.executors.claim import Claim, Confirmed, Unconfirmed

RESTARTS: Final = frozenset({"restart", "isolate_and_restart", "rollback_and_skip", "retry_later"})
TAKES_OUT: Final = frozenset({"isolate", "isolate_and_restart"})
CHECK: Final = "check"
"""test the nodes of the order: the dispatcher does that with the site's program, whatever the executor's type"""
HOLD: Final = "hold"
"""keep a job's controller from starting it again: only where there is such a controller"""
REBOOT: Final = "reboot"
"""only of executors that say so"""
KINDS: Final = RESTARTS | {"isolate", "release"}
State = Literal["succeeded", "failed", "unknown"]
_NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_MOST_NODES = 64
MOST_AVOIDED: Final = 4096
"""nodes that a restart leaves out: as many as a node check may find faulty"""
_REASON = 200


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done. The training side itself asks for ``restart_from`` and ``skip_batches`` when it starts."""

    key: str
    kind: str
    job: str | None = None
    attempt: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    """nodes that the restart leaves out; they stay in service"""
    check: tuple[str, ...] = ()
    """nodes that are to be tested together before the restart; the dispatcher does that"""
    restart_from: Mapping[str, Any] | None = None
    skip_batches: tuple[int, int] | None = None
    why: str = ""
    last_seen: float | None = None
    """when the attempt was last heard of before the decision; what began after that is not what failed. Of an order about nodes
    alone: when it was decided
    """
    link: str | None = None
    """the action's page, for people"""
    subject: str | None = None
    """the job in the scheduler's words when it was decided; labels no longer count"""
    claim: Claim | None = None
    """what the order rests on, for the scheduler to confirm; None: no confirmation is asked for"""

    @classmethod
    def of(cls, order: Mapping[str, Any]) -> Order:
        """From what the service sends to executors."""
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
            link=order.get("link") or None,
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
            "link": self.link,
            "subject": self.subject,
            "claim": self.claim.as_dict() if self.claim is not None else None,
        }

    @property
    def reason(self) -> str:
        """What the cluster shows its people, in plain ASCII. It begins with the key, by which the order is recognised."""
        job = f"job {self.job}{f', attempt {self.attempt}' if self.attempt else ''}: " if self.job else ""
        said = "".join(letter if " " <= letter <= "~" else " " for letter in job + self.why)
        words, link = f"{mark(self.key)}: {' '.join(said.split())}", f" {self.link}" if self.link else ""
        return f"{words[: max(0, _REASON - len(link))]}{link}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an order."""

    state: State
    what: str
    """a sentence for people"""
    may_retry: bool = False
    """the same order may be tried later: it may succeed then, and is not done twice. If it has succeeded, something
    beside it is left to do, and however that ends it has succeeded
    """
    details: Mapping[str, Any] = field(default_factory=dict)
    isolated: tuple[str, ...] | None = None
    """nodes of the order that it has taken out of service, even if the rest failed; None: all if it succeeded, else none that
    it knows of
    """


@runtime_checkable
class Scheduler(Protocol):
    """An executor that can say whether an order is called for: it can ask about jobs and nodes."""

    async def confirm(self, order: Order) -> Confirmed | Unconfirmed:
        """The job of the order, if it is what the order's claim says. Never raises."""

    async def inventory(self) -> tuple[str, ...]:
        """The names of all nodes. Raises Problem if it cannot get them."""


class Executor(Protocol):
    """A way to act."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of orders that it takes."""

    async def carry_out(self, order: Order, *, dry_run: bool = False) -> Outcome:
        """Carry the order out, or in a dry run say what would be done. Nothing that a cluster does raises an exception."""

    async def check(self) -> list[str]:
        """What this executor needs before it can act; empty if it can act."""


class Problem(Exception):
    """An order cannot be carried out, or nobody knows whether it was. It becomes an Outcome."""

    def __init__(self, what: str, *, state: State = "failed", may_retry: bool = False) -> None:
        super().__init__(what)
        self.what, self.state, self.may_retry = what, state, may_retry

    def outcome(self, done: list[str], isolated: Sequence[str] | None = None) -> Outcome:
        """The outcome, with the nodes that were already taken out."""
        before = f"; done before that: {', '.join(done)}" if done else ""
        out = None if isolated is None else tuple(isolated)
        return Outcome(self.state, self.what + before, self.may_retry, {"done": done} if done else {}, out)


def mark(key: str) -> str:
    """The mark by which we recognise our own change: in a node's reason, a job's comment, an annotation."""
    return f"diagnose {key[:32]}"


def node_names(names: tuple[str, ...], most: int = _MOST_NODES) -> tuple[str, ...]:
    """``names`` if each has the form of one: no list expression, no option, no path. The cluster says whether they exist."""
    if len(names) > most:
        raise Problem(f"{len(names)} nodes in one order: more than {most} are never one decision")
    for name in names:
        if not _NODE.fullmatch(name) or name.upper() == "ALL":  # in Slurm, ALL means every node
            raise Problem(f"{name[:80]!r} is not the name of a node")
    return tuple(dict.fromkeys(names))
