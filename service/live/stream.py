"""The sources of a live attempt, and the records on disk that wait to be read.

A source has two halves, one per thread: ``Stream`` is what was received of it, ``Reading`` is what was read. ``Item`` values go
from one to the other.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import OrderedDict, deque
from dataclasses import asdict, dataclass
from typing import NamedTuple

from diagnose.decision.ending import Ending, ending_of_slurm
from diagnose.diagnosis.status import Told, told_of
from diagnose.reading.prefixes import Origin
from diagnose.reading.sources import Source
from diagnose.redaction.stream import LineConcealer
from service.segments import CONTROL, DATA, Definition
from service.store.flush import SourceState

HEAD = 256
"""so many bytes of the beginning of a source are remembered, to notice if it later begins with others"""
_KEY = struct.Struct("<QQ")
_MOST_GAPS = 1000


class Item(NamedTuple):
    """A record on disk that is to be read."""

    lsn: int
    kind: int
    source: int
    """number of its source; -1: it is about the attempt itself"""
    offset: int
    key: int
    at: float
    data: bytes
    lost: int = 0
    """so many of its bytes are damaged on disk and cannot be read"""

    @staticmethod
    def of_end(lsn: int, at: float, data: bytes) -> Item:
        return Item(lsn, CONTROL, -1, 0, 0, at, data)

    def continued(self, after: Item, end: int) -> bool:
        """Whether ``after`` starts at ``end``, where this piece of a source stops. Then both can be read as one."""
        alike = after.kind == DATA and after.source == self.source and after.offset == end
        return alike and not (after.key or self.key or after.lost or self.lost)


class Stream:
    """What was received of one source. Owned by the event loop."""

    def __init__(self, number: int, definition: Definition) -> None:
        self.number = number
        self.definition = definition
        self.received = 0
        """bytes that are on disk or on their way there"""
        self.durable = 0
        self.refused = 0
        """end of the batches that could not be written: what follows them is refused until they are sent again"""
        self.refused_at = 0.0
        self.keys: OrderedDict[int, float] = OrderedDict()
        """batches without an offset: key -> when it came"""
        self.head = b""
        self.last_seen = 0.0

    @staticmethod
    def of(state: SourceState, job: str, attempt: int) -> Stream:
        stream = Stream(state.number, _definition(state, job, attempt))
        stream.received = stream.durable = state.received
        stream.head = state.head
        stream.last_seen = state.last_seen
        stream.keys.update(_keys(state))
        return stream

    def recovered(self, offset: int, key: int, at: float, data: bytes, lost: int = 0) -> None:
        """A record of it was found on disk. If ``lost`` bytes of it are damaged, nobody sends them again."""
        self.received = self.durable = max(self.received, offset + len(data) + lost)
        if key and not lost:
            self.keys[key] = at
        if offset == 0 and not self.head:
            self.head = data[:HEAD]  # nothing of a damaged record: then any beginning is accepted
        self.last_seen = max(self.last_seen, at)


class Reading:
    """What was read of one source. Owned by the scanner."""

    def __init__(self, number: int, definition: Definition) -> None:
        self.number = number
        self.definition = definition
        self.read = 0
        self.last_seen = 0.0
        self.secrets = LineConcealer()
        self.missing: list[tuple[int, int]] = []
        """bytes that were accepted and could not be read: (first, first one after them)"""
        self.changed = True
        """changed since it was last stored"""
        self._keys: deque[tuple[int, float]] = deque()
        self._head = b""

    @staticmethod
    def of(state: SourceState, job: str, attempt: int) -> Reading:
        reading = Reading(state.number, _definition(state, job, attempt))
        reading.read = state.received
        reading.last_seen = state.last_seen
        reading.changed = False
        reading._keys.extend(_keys(state))
        reading._head = state.head
        reading.missing = list(state.missing)
        return reading

    def take(self, item: Item, most_keys: int) -> bytes:
        """Move on to the end of ``item``. Returns those of its bytes that were not read before."""
        if item.offset > self.read:
            self._miss(self.read, item.offset)
        if item.lost:
            self._miss(max(self.read, item.offset), item.offset + item.lost)
            self.last_seen = max(self.last_seen, item.at)
            return b""
        # A write that failed late was sent and written again.
        data = item.data[self.read - item.offset :] if item.offset < self.read else item.data
        if item.key:
            self._keys.append((item.key, item.at))
            while len(self._keys) > most_keys:
                self._keys.popleft()
        if item.offset == 0 and not self._head:
            self._head = item.data[:HEAD]
        self.read = max(self.read, item.offset + len(item.data))
        self.last_seen = max(self.last_seen, item.at)
        self.changed = True
        return data

    def goes_on_at(self, item: Item) -> bool:
        """Whether ``item`` begins where the last one ended, or before."""
        return item.offset <= self.read and not item.lost

    def _miss(self, begin: int, end: int) -> None:
        if end <= begin:
            return
        if self.missing and self.missing[-1][1] == begin:
            begin = self.missing.pop()[0]
        self.missing.append((begin, end))
        del self.missing[:-_MOST_GAPS]
        self.read, self.changed = end, True

    def state(self, step: float | None = None) -> SourceState:
        """What the database is to store. ``step``: the last one that was read here."""
        keys = b"".join(_KEY.pack(key, int(at * 1000)) for key, at in self._keys)
        d = self.definition
        missing = tuple(self.missing)
        return SourceState(self.number, d.source, d.rank, d.node, self.read, self._head, keys, self.last_seen, missing, step)

    def source(self) -> Source:
        told = Origin(rank=self.definition.rank, node=self.definition.node)
        return Source(self.definition.source, None, told=told)


def _definition(state: SourceState, job: str, attempt: int) -> Definition:
    return Definition(job, attempt, state.name, state.rank, state.node)


def _keys(state: SourceState) -> list[tuple[int, float]]:
    return [(key, at_ms / 1000) for key, at_ms in _KEY.iter_unpack(state.keys)]


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended."""

    by: str
    at: float
    exit_code: int | None = None
    signal: int | None = None
    state: str | None = None
    """Slurm's last state of the job"""

    @property
    def told(self) -> Told | None:
        """What is known if it failed."""
        return told_of(exit_code=self.exit_code, signal=self.signal if self.exit_code else None)

    @property
    def ending(self) -> Ending | None:
        return ending_of_slurm(self.state) if self.state is not None else None

    def as_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def of(data: bytes) -> End:
        return End(**json.loads(data))


def key_of(batch_key: str | None, data: bytes) -> int:
    """64 bits that stand for a batch without offset; never 0."""
    named = batch_key is not None
    digest = hashlib.blake2b(
        batch_key.encode() if batch_key is not None else data, digest_size=8, key=b"key" if named else b"data"
    )
    return int.from_bytes(digest.digest(), "little") or 1
