"""Lines of one owner -> one batch, in the order in which they came.

These protocols have no offsets, so a batch has a key: a hash of the request's body. A shipper that repeats a request makes the
same key. A line that is logged twice has two times, so its two bodies differ.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from typing import NamedTuple

from service.errors import Refused
from service.intake.batch import Batch, checked
from service.intake.protocols.identity import Identities, Identity
from service.intake.protocols.requests import Decoded, Head

LARGEST = 1 << 20
_MOST_OWNERS = 10_000


class Place(NamedTuple):
    """The owner of the lines."""

    job: str
    attempt: int | None
    source: str
    rank: int | None
    node: str | None


class Gathering:
    """Add records, then take batches."""

    def __init__(self, head: Head, identities: Identities, job: str | None = None) -> None:
        self._identities = identities
        self._job = job or head.said("job")
        self._attempt = head.number("attempt")
        self._source = head.said("source")
        self._rank = head.number("rank")
        self._node = head.said("node")
        self._place_of: dict[Identity, Place | str] = {}
        self._owners: dict[Place, Batch] = {}
        self._piles: dict[Place, bytearray] = {}
        self._ended = 0
        self.decoded = Decoded([])

    def add(self, identity: Identity, text: bytes, *, partial: bool = False) -> Place | str:
        """Add one line. A partial one gets no newline. Returns whose it is, or why it is nobody's."""
        self.decoded.lines += 1
        place = self._place_of.get(identity)
        if place is None:
            if len(self._place_of) >= _MOST_OWNERS:
                why = f"more than {_MOST_OWNERS:,} sources in one body"
                self.decoded.reject(why)
                return why
            place = self._place_of[identity] = self._placed(identity)
        if isinstance(place, str):
            self.decoded.reject(place)
            return place
        pile = self._piles.get(place)
        if pile is None:
            pile = self._piles[place] = bytearray()
        pile += text
        if not partial and not text.endswith(b"\n"):
            pile += b"\n"
        return place

    def _placed(self, identity: Identity) -> Place | str:
        """The place for lines of this identity, or why there is none.

        Records of one source may have different labels. Their lines stay together, in order, and their labels are merged.
        """
        owner = self._owner(identity)
        if isinstance(owner, str):
            return owner
        place = Place(owner.job, owner.attempt, owner.source, owner.rank, owner.node)
        known = self._owners.setdefault(place, owner)
        if owner.labels.items() - known.labels.items():
            with contextlib.suppress(Refused):  # too many together: the first ones are enough
                self._owners[place] = checked(dataclasses.replace(known, labels={**owner.labels, **known.labels}))
        return place

    def _owner(self, identity: Identity) -> Batch | str:
        """What all batches of an owner have in common, or why there can be none."""
        # What the request says holds for all of its records. They may only be more exact.
        job = self._job or identity.job
        if job is None:
            return f"no attribute names the job; send ?job=NAME, or one of {self._identities.jobs}"
        rank = identity.rank if self._rank is None else self._rank
        try:
            return checked(
                Batch(
                    job=job,
                    attempt=identity.attempt if self._attempt is None else self._attempt,
                    source=self._source or identity.source or ("log" if rank is None else f"rank{rank}"),
                    rank=rank,
                    node=self._node or identity.node,
                    data=b"",
                    labels=dict(identity.labels),
                )
            )
        except Refused as refused:
            return str(refused)

    def end(self, stamp: bytes) -> Decoded:
        """All that was added since the last time. ``stamp`` is a digest of the bytes that it came from."""
        batches = self.decoded.batches
        for place, pile in self._piles.items():
            owner = self._owners[place]
            # Each pile needs its own key: two of one body with the same key would count as one that was sent twice.
            said = "\0".join(map(str, (*place, self._ended)))
            key = hashlib.blake2b(said.encode("utf-8", "surrogateescape"), key=stamp, digest_size=16).hexdigest()
            for number, start in enumerate(range(0, len(pile), LARGEST)):
                data = bytes(pile[start : start + LARGEST])
                batches.append(dataclasses.replace(owner, data=data, key=f"{key}.{number}"))
        self._ended += 1
        self._piles.clear()
        decoded, self.decoded = self.decoded, Decoded([])
        return decoded


def digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=32).digest()
