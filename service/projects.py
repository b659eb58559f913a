"""Who may name what: the project of a token, and for whom its holder may speak.

A log is evidence. It does not decide whose job it is about, or what may be done with that job. A ``Grant`` is what an
administrator has said about a token. The scheduler is asked about the rest (``acting.authority``).
"""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

DEFAULT: Final = "default"
"""the project of those who do not use projects"""
PROJECT: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
"""the form of a project's name"""
MARK: Final = "~"
"""a job of another project than the default one is called PROJECT~NAME, so that jobs of two projects may have one name"""
NODE_SOURCE: Final = "node:"
"""prefix of the sources that only a node's own log sender may write: ``node:gpu-17/kern.log``"""
_LISTS: Final = ("projects", "jobs", "clusters", "users", "namespaces", "nodes")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token may name, and for whom it speaks. Patterns have ``*`` and ``?``."""

    projects: tuple[str, ...] = (DEFAULT,)
    """it may read all of these; what it sends belongs to the first"""
    jobs: tuple[str, ...] = ()
    """names of jobs that it may write; empty: any, since a name alone gives no authority"""
    clusters: tuple[str, ...] = ()
    """values of the label ``cluster``; empty: any"""
    users: tuple[str, ...] = ()
    """the scheduler's users whose jobs may be acted on because of what it sends; empty: nobody's"""
    namespaces: tuple[str, ...] = ()
    """the same for namespaces of Kubernetes"""
    nodes: tuple[str, ...] = ()
    """nodes that its logs may accuse; empty: none"""
    everything: bool = False
    """an administrator's grant"""
    kernel: bool = False
    """it belongs to a node's own log sender, and may write in the name of the kernels of ``nodes``"""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Grant:
        """From JSON. What is not understood allows nothing."""
        values: dict[str, Any] = {name: tuple(map(str, said[name])) for name in _LISTS if name in said}
        return cls(**values, everything=said.get("everything") is True, kernel=said.get("kernel") is True)

    def as_dict(self) -> dict[str, Any]:
        """As JSON, without the fields that allow nothing."""
        empty = Grant()
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: list(value) if name in _LISTS else value for name, value in found.items() if value != getattr(empty, name)
        }

    @property
    def digest(self) -> str:
        """Equal for two tokens that allow the same."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()

    @property
    def speaks(self) -> bool:
        """Whether anything may be done on its holder's word."""
        return self.everything or bool(self.users or self.namespaces or self.jobs)

    def narrowed(self, labels: Mapping[str, str]) -> Grant:
        """For whom it speaks in what names a user or a namespace: for that one, or for nobody.

        A shipper with a token for all says of each log whose it is, so that nobody's file speaks for another's job.
        """
        if self.everything or not labels.keys() & {"user", "namespace"}:
            return self
        return _narrowed(self, labels.get("user"), labels.get("namespace"))

    def may_write(self, job: str) -> bool:
        return self.everything or not self.jobs or matches(parted(job)[1], self.jobs)

    def may_label(self, labels: Mapping[str, str]) -> bool:
        """Whether it may give a job these labels."""
        named = labels.get("cluster")
        return self.everything or not self.clusters or named is None or matches(named, self.clusters)

    def acts_for_user(self, user: str) -> bool:
        return self.everything or matches(user, self.users)

    def acts_for_namespace(self, namespace: str) -> bool:
        return self.everything or matches(namespace, self.namespaces)

    def may_accuse(self, node: str) -> bool:
        return self.everything or matches(node, self.nodes)

    def node_of(self, source: str) -> str | None:
        """The node of a kernel's source, if this token may write it; "" if it may not; None for any other source."""
        node = kernel_of(source)
        if node is None:
            return None
        return node if self.everything or (self.kernel and matches(node, self.nodes)) else ""


NOBODY: Final = Grant()
"""speaks for nobody: a person must approve what is done because of it"""
EVERYTHING: Final = Grant(everything=True)


def kernel_of(source: str) -> str | None:
    """The node of a source that only a node's own log sender writes."""
    if not source.startswith(NODE_SOURCE):
        return None
    return source.removeprefix(NODE_SOURCE).partition("/")[0]


@functools.lru_cache(4096)
def _narrowed(grant: Grant, user: str | None, namespace: str | None) -> Grant:
    users = grant.users if user is None else _only(user, grant.users)
    namespaces = grant.namespaces if namespace is None else _only(namespace, grant.namespaces)
    return replace(grant, users=users, namespaces=namespaces)


def _only(name: str, patterns: Iterable[str]) -> tuple[str, ...]:
    """The name, if it is one, and one of these."""
    return (name,) if matches(name, patterns) and not set(name) & set("*?[") else ()


def qualified(project: str, name: str) -> str:
    """By which a job is known to the service."""
    return name if project == DEFAULT else f"{project}{MARK}{name}"


def parted(job: str) -> tuple[str, str]:
    """(project, name) of a job."""
    project, mark, name = job.partition(MARK)
    return (project, name) if mark else (DEFAULT, job)


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
