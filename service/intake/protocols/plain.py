"""``text/plain``: the bytes of one source, as they are. The request says whose they are, and where they begin.

A piece with an offset is stored exactly once, however often it is sent. A piece without one has a key: the ``key`` of the
client, or a hash of the content. The key includes the piece's place in the body, so a log that repeats itself is not taken for
a retry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from service.intake.batch import Batch, checked
from service.intake.protocols.requests import Head

PIECE = 256 << 10


class Plain:
    """Feed it the unpacked body and take batches. All pieces have one size, whatever the chunks were, unless ``flush`` is
    called.
    """

    def __init__(self, job: str, head: Head) -> None:
        self._owner = checked(
            Batch(
                job=job,
                attempt=head.number("attempt"),
                source=head.said("source") or "log",
                rank=head.number("rank"),
                node=head.said("node"),
                data=b"",
                key=head.said("key"),
                labels=labels(head),
            )
        )
        self.offset = head.number("offset")
        self._place = 0
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Batch]:
        self._held += data
        while len(self._held) >= PIECE:
            yield self._take(PIECE)

    def flush(self) -> Iterator[Batch]:
        """What is held: nothing came for a while, or the body has ended."""
        if self._held:
            yield self._take(len(self._held))

    def empty(self) -> Batch:
        """A batch without bytes, which asks how far the source was received."""
        return self._batch(b"", self.offset, None)

    def _take(self, size: int) -> Batch:
        data = bytes(self._held[:size])
        del self._held[:size]
        offset, key = self.offset, None
        if offset is None:
            name = self._owner.key or hashlib.blake2b(data, digest_size=16).hexdigest()
            key = f"{name[:230]}@{self._place}"
        else:
            self.offset = offset + size
        self._place += size
        return self._batch(data, offset, key)

    def _batch(self, data: bytes, offset: int | None, key: str | None) -> Batch:
        owner = self._owner
        return Batch(
            job=owner.job,
            attempt=owner.attempt,
            source=owner.source,
            rank=owner.rank,
            node=owner.node,
            offset=offset,
            data=data,
            key=key,
            labels=owner.labels,
        )


def labels(head: Head) -> dict[str, str]:
    """The labels in ``?label.user=kim`` or ``X-Diagnose-Label-User: kim``."""
    found = {name.removeprefix("label."): value for name, value in head.query.items() if name.startswith("label.") and value}
    for name, value in head.headers.items():
        if name.startswith("x-diagnose-label-") and value:
            found.setdefault(name.removeprefix("x-diagnose-label-"), value)
    return found
