"""Batch: a piece of one source of one job. Every protocol makes batches, and this says what the service answers.

A protocol turns the body of a request into batches (pure functions, ``protocols/``). ``ingest.accept`` makes a batch durable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from service.errors import BadName, Forbidden, TooLarge
from service.names import LONGEST_NAME, check_job, check_source, is_seen
from service.projects import NODE_SOURCE, Grant, kernel_of

LONGEST_LABEL = 256
MOST_LABELS = 32
LARGEST = 8 << 20
"""bytes of one batch; a protocol cuts longer data into several"""
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Whole or half lines of one source, as bytes."""

    job: str
    attempt: int | None = None
    """None: the job's latest, or 1"""
    source: str
    """name of one stream of lines: a file, a pod, a rank's stdout"""
    rank: int | None = None
    node: str | None = None
    offset: int | None = None
    """where ``data`` begins in the source: stored exactly once. None: the protocol has no offsets, and it is stored at least
    once
    """
    data: bytes
    key: str | None = None
    """without offset: two batches with one key within the window are one. None: the hash of the content is the key"""
    labels: Mapping[str, str] = field(default_factory=dict)
    """of the job: user, cluster, framework, ..."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer when a batch is on disk."""

    next_offset: int
    """how many bytes of this source were received; send from here next"""
    duplicate: bool
    """all of it had been received before"""
    attempt: int = 1


def checked(batch: Batch) -> Batch:
    """``batch`` if its names and sizes are within bounds. Else raises."""
    check_job(batch.job)
    check_source(batch.source)
    if batch.attempt is not None and not 0 <= batch.attempt <= 1_000_000:
        raise BadName(f"{batch.attempt} is not an attempt", remedy="count attempts from 1")
    if batch.rank is not None and not 0 <= batch.rank < 1 << 31:
        raise BadName(f"{batch.rank} is not a rank", remedy="ranks count from 0")
    if batch.node is not None and not (0 < len(batch.node) <= LONGEST_NAME and is_seen(batch.node)):
        raise BadName(
            "this is not the name of a node", where=batch.node[:80], remedy=f"use at most {LONGEST_NAME} printable characters"
        )
    if batch.offset is not None and not 0 <= batch.offset < 1 << 62:
        raise BadName(f"{batch.offset} is not an offset", remedy="count bytes from 0")
    if batch.key is not None and len(batch.key) > LONGEST_LABEL:
        raise BadName("the key is too long", remedy=f"use at most {LONGEST_LABEL} characters")
    if len(batch.data) > LARGEST:
        raise TooLarge(f"the batch has {len(batch.data):,} bytes", remedy=f"send at most {LARGEST:,} bytes at once")
    if len(batch.labels) > MOST_LABELS:
        raise TooLarge(f"the batch has {len(batch.labels)} labels", where=batch.job, remedy=f"send at most {MOST_LABELS}")
    for name, value in batch.labels.items():
        if len(name) > LONGEST_LABEL or len(value) > LONGEST_LABEL:
            raise TooLarge("a label is too long", where=name[:80], remedy=f"use at most {LONGEST_LABEL} characters")
        if not _LABEL.fullmatch(name) or not value.isprintable():
            raise BadName(
                "this is not a label", where=name, remedy="use letters, digits and _.:/- in names, printable text in values"
            )
    return batch


def allowed(batch: Batch, grant: Grant | None) -> Batch:
    """``batch`` if its sender may name what it names. The name of a kernel's source also names its node."""
    if grant is None:
        return batch
    if grant.everything and not batch.source.startswith(NODE_SOURCE):
        return batch
    check_may_write(batch.job, grant)
    if not grant.may_label(batch.labels):
        raise Forbidden(
            f"the token may not name the cluster {batch.labels['cluster']!r}",
            where=batch.job,
            remedy=f"it may name {', '.join(grant.clusters)}: see --cluster of diagnose tokens create",
        )
    node = grant.node_of(batch.source)
    if node is None:
        return batch
    if not node or batch.node not in (None, node):
        raise Forbidden(
            "only a node's own runner writes in the name of its kernel",
            where=batch.source[:80],
            remedy=f"name the source otherwise, or use a token for it: diagnose tokens create NAME --role node "
            f"--node {kernel_of(batch.source) or 'NODE'}",
        )
    return replace(batch, node=node)


def check_may_write(job: str, grant: Grant | None) -> None:
    """Raise Forbidden for a job with a name that the token is not for."""
    if grant is not None and not grant.may_write(job):
        raise Forbidden(
            "the token is for jobs of other names",
            where=job,
            remedy=f"it may write {', '.join(grant.jobs)}: see --job of diagnose tokens create",
        )
