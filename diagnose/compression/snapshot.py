"""State of a job's compression <-> bytes. With them a service goes on after it was killed.

A restored job goes on as if nothing had happened: half lines, counts, series, watches and clocks are as they were.

The kept lines are not in a snapshot, because they only grow. Whoever stores snapshots must also store them, in order, and give
back as many as there were (``Compression.kept.lines``). Lines that were kept after the snapshot must be left out: the bytes
that follow bring them again.

Rules are named by their ids, because their numbers belong to one matcher. If a rule no longer exists, the lines that it dropped
still count.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Any, NamedTuple

from diagnose.compression.folds import Folding, folds
from diagnose.compression.kept_log import NOTABLE, Compression, KeptLine, Stream
from diagnose.errors import DiagnoseError
from diagnose.knowledge.rules import Rule
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import KEPT, UNKNOWN, Cursor, Scan
from diagnose.matching.series import Series, of_points, whole_buckets
from diagnose.packed import packed, unpacked

FORMAT = 14
"""the only one that is read; raised with each change of what is written here or by the core (``folds.state``)"""
NOTABLE_ID = "notable"
"""stands for a metric line that was kept because it stands out"""
_LENGTH = struct.Struct("<I")
_MOST_BYTES = 1 << 30
_A_BATCH = 1000
_MANY = 256
"""of so many sources most have not changed since the last snapshot: what it has of them is kept"""


class StoredLine(NamedTuple):
    """A kept segment as it is stored."""

    source: int
    line: int
    text: bytes
    rule: str | None
    """id of the failure rule, NOTABLE_ID, or None if no rule knew it"""
    cut: int = 0


def stored(line: KeptLine, rules: Sequence[Rule]) -> StoredLine:
    """``line`` with its rule's id."""
    return StoredLine(line.source, line.line, line.text, _id_of(line.rule, rules), line.cut)


def snapshot(compression: Compression, beside: Any = None, first: bytes = b"") -> bytes:
    """Everything except the kept lines. ``beside`` (as JSON) and ``first`` belong to the job, see ``beside_of``."""
    rules = compression.matcher.rules
    blobs = _Blobs()
    counts = compression.counts
    state = {
        "format": FORMAT,
        "kept": compression.kept.lines,
        "beside": beside,
        "first": blobs.add(first),
        "counts": [counts.lines_in, counts.bytes_in, counts.lines_kept, counts.bytes_kept, counts.blank, counts.folded],
        "dropped": [[rules[number].id, rules[number].kind, lines] for number, lines in counts.dropped.items()],
        "dropped_before": dict(counts.dropped_before),
        "facts": [[source, blobs.add(text)] for source, text in compression.facts],
        "streams": [],
    }
    streams = ",".join(_pieces(compression, blobs))
    head = (_json(state)[: -len("]}")] + streams + "]}").encode()
    return packed(_LENGTH.pack(len(head)) + head + blobs.data, level=1, checked=True)


def beside_of(data: bytes) -> tuple[Any, bytes]:
    """What the job stored with its compression."""
    state, blobs = _opened(data)
    return state["beside"], blobs.get(state["first"])


def restored(data: bytes, matcher: Matcher, kept: Iterable[StoredLine], folding: Folding | None = None) -> Compression:
    """The compression from the snapshot ``data`` and its kept lines."""
    state, _ = _opened(data)
    numbers = {rule.id: number for number, rule in enumerate(matcher.rules)}
    compression = state_of(data, matcher, folding)
    for source, scan in _scans(islice(kept, state["kept"]), numbers):
        compression.kept.add(source, scan)
    if compression.kept.lines != state["kept"]:
        raise DiagnoseError(
            f"{compression.kept.lines:,} kept lines were given back of {state['kept']:,}",
            where="snapshot",
            remedy="restore the store from a backup, or let the job be read again from its raw log",
        )
    return compression


def state_of(data: bytes, matcher: Matcher, folding: Folding | None = None) -> Compression:
    """The same without its kept lines."""
    state, blobs = _opened(data)
    numbers = {rule.id: number for number, rule in enumerate(matcher.rules)}
    compression = Compression(matcher, folding)
    counts = compression.counts
    counts.lines_in, counts.bytes_in, counts.lines_kept, counts.bytes_kept, counts.blank, counts.folded = state["counts"]
    counts.dropped_before.update(state["dropped_before"])
    for rule, kind, lines in state["dropped"]:
        if rule in numbers:
            counts.dropped[numbers[rule]] += lines
        else:
            counts.dropped_before[kind or "?"] += lines
    compression.facts = [(source, blobs.get(place)) for source, place in state["facts"]]
    for entry in state["streams"]:
        stream = _restored_stream(entry, numbers, blobs, compression.folding)
        compression.streams[stream.number] = stream
    return compression


# --- one source ---------------------------------------------------------------------------------------------------------------


def _pieces(compression: Compression, blobs: _Blobs) -> Iterator[str]:
    """The JSON of each source, which tells places in its own blobs; these come to the others."""
    streams, rules = compression.streams.values(), compression.matcher.rules
    for stream in streams:
        told, data = stream.packed or _packed(stream, rules)
        if len(streams) >= _MANY:
            stream.packed = told, data
        yield f'{{"at":{len(blobs.data)},{told[1:]}'
        blobs.add(data)


def _packed(stream: Stream, rules: Sequence[Rule]) -> tuple[str, bytes]:
    blobs = _Blobs()
    return _json(_stream(stream, rules, blobs)), bytes(blobs.data)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _stream(stream: Stream, rules: Sequence[Rule], blobs: _Blobs) -> dict[str, Any]:
    rest, overflow, bytes_in = stream.blocks.state
    line, content, was_kept, rule = stream.cursor
    return {
        "number": stream.number,
        "transport": stream.transport.state,
        "folds": blobs.add(stream.folds.state() if stream.folds is not None else b""),
        "starts": stream.starts.state if stream.starts is not None else None,
        "blocks": [blobs.add(rest), overflow, bytes_in],
        "cursor": [line, content, was_kept, _id_of(rule, rules)],
        "progress": [blobs.add(stream.progress.first), blobs.add(stream.progress.last), stream.progress.last_line],
        "series": {name: _series(series, blobs) for name, series in stream.series.items()},
        "numbers": stream.numbers.state,
        "found": [[number, _series(series, blobs)] for number, series in stream.found.items()],
        "watches": {
            name: [blobs.numbers(recent), until, blobs.numbers([limit]), found]
            for name, watch in stream.watches.items()
            for recent, until, limit, found in (watch.state,)
        },
    }


def _restored_stream(entry: dict[str, Any], numbers: dict[str, int], blobs: _Blobs, folding: Folding | None) -> Stream:
    stream = Stream(entry["number"], folding)
    blobs = blobs.behind(entry["at"])
    if folding is not None:
        stream.folds = _restored_folds(folding, blobs.get(entry["folds"]))
    if stream.starts is not None and entry["starts"] is not None:
        stream.starts.state = entry["starts"]
    stream.transport.state = entry["transport"]
    rest, overflow, bytes_in = entry["blocks"]
    stream.blocks.state = blobs.get(rest), overflow, bytes_in
    line, content, was_kept, rule = entry["cursor"]
    number = _number_of(rule, numbers)
    # A half line whose rule is gone counts as kept: there is no kind to count it under.
    stream.cursor = Cursor(line, content, was_kept or (content and number < 0), number)
    first, last, last_line = entry["progress"]
    stream.progress.first, stream.progress.last, stream.progress.last_line = blobs.get(first), blobs.get(last), last_line
    stream.series = {name: _restored_series(values, blobs) for name, values in entry["series"].items()}
    stream.numbers.state = entry["numbers"]
    stream.found = {number: _restored_series(values, blobs) for number, values in entry["found"]}
    for name, (recent, until, limit, found) in entry["watches"].items():
        if name in stream.watches:
            stream.watches[name].state = list(blobs.floats(recent)), until, blobs.floats(limit)[0], found
    return stream


def _restored_folds(folding: Folding, state: bytes) -> Any:
    try:
        return folds(folding, state)
    except ValueError as error:
        raise _damaged(error) from None


def _series(series: Series, blobs: _Blobs) -> list[Any]:
    ends = [series.first, series.last, series.last_step, series.least, series.least_step, series.most, series.most_step]
    table = series.points() if _is_points(series.width, series.not_finite) else series.table
    return [series.room, series.width, series.count, series.not_finite, blobs.numbers(ends), blobs.add(table.tobytes())]


def _restored_series(values: list[Any], blobs: _Blobs) -> Series:
    room, width, count, not_finite, ends, place = values
    try:
        table = blobs.floats(place)
        table = of_points(table, count) if _is_points(width, not_finite) else whole_buckets(table)
        first, last, last_step, least, least_step, most, most_step = blobs.floats(ends)
    except ValueError as error:
        raise _damaged(error) from None
    return Series(room, width, table, count, not_finite, first, last, last_step, least, least_step, most, most_step)


def _is_points(width: int, not_finite: int) -> bool:
    """Whether each bucket is one finite number. So are most series of most jobs, and three columns say all of the seven."""
    return width == 1 and not not_finite


# --- rules and lines ----------------------------------------------------------------------------------------------------------


def _id_of(number: int, rules: Sequence[Rule]) -> str | None:
    return NOTABLE_ID if number == NOTABLE else rules[number].id if number >= 0 else None


def _number_of(rule: str | None, numbers: dict[str, int]) -> int:
    return NOTABLE if rule == NOTABLE_ID else numbers.get(rule, UNKNOWN) if rule is not None else UNKNOWN


def _scans(kept: Iterable[StoredLine], numbers: dict[str, int]) -> Iterator[tuple[int, Scan]]:
    """(source, lines as a scan brings them), one batch after the other."""
    for source, lines in groupby(kept, key=lambda line: line.source):
        while batch := list(islice(lines, _A_BATCH)):
            yield source, _scan(batch, numbers)


def _scan(lines: Iterable[StoredLine], numbers: dict[str, int]) -> Scan:
    text, records = bytearray(), bytearray()
    for line in lines:
        records += KEPT.pack(line.line, len(text), len(line.text), _number_of(line.rule, numbers), line.cut, 0, 0)
        text += line.text + b"\n"
    return Scan(Cursor(), bytes(text), bytes(records))


# --- bytes and numbers beside the JSON ---------------------------------------------------------------------------------------


class _Blobs:
    """Bytes and doubles after the JSON, which refers to them by (offset, length)."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self._at = 0

    def behind(self, at: int) -> _Blobs:
        """The same bytes, for places that are told from ``at`` on."""
        found = _Blobs()
        found.data, found._at = self.data, at
        return found

    def add(self, data: bytes) -> list[int]:
        place = [len(self.data), len(data)]
        self.data += data
        return place

    def numbers(self, values: Iterable[float]) -> list[int]:
        return self.add(array("d", values).tobytes())

    def get(self, place: Sequence[int]) -> bytes:
        start = self._at + place[0]
        return bytes(self.data[start : start + place[1]])

    def floats(self, place: Sequence[int]) -> array[float]:
        values = array("d")
        values.frombytes(self.get(place))
        return values


def _damaged(error: Exception) -> DiagnoseError:
    return DiagnoseError(f"is damaged: {error}", where="snapshot", remedy="let the job be read again from its raw log")


def _opened(data: bytes) -> tuple[dict[str, Any], _Blobs]:
    try:
        whole = unpacked(data, _MOST_BYTES)
        (length,) = _LENGTH.unpack_from(whole)
        state = json.loads(whole[_LENGTH.size : _LENGTH.size + length])
    except (struct.error, ValueError) as error:
        raise _damaged(error) from None
    if state.get("format") != FORMAT:
        raise DiagnoseError(
            f"has format {state.get('format')!r}; this version reads {FORMAT}",
            where="snapshot",
            remedy="let the version that wrote it finish its jobs first, or let them be read again from their raw logs",
        )
    return state, _Blobs(whole[_LENGTH.size + length :])
