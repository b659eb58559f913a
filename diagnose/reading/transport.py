"""Bytes of a source -> bytes of the printed lines, without what the log picked up on its way.

This takes off encodings, colours that were spelled out, broken lines, records, line numbers and wrappers. Lines keep their
numbers. Plain logs pass unchanged at almost no cost: a source is examined closely for its first ``_ATTENTIVE`` bytes, and a
little every 32 MiB. A line that needs no change goes on at once. Only lines that may be dressed are held, until ``_ENOUGH`` of
them decide. The result does not depend on how the bytes were cut into chunks. ``state`` holds all that the next chunk depends
on.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from diagnose.reading import dresses
from diagnose.reading.colours import bleached, coloured
from diagnose.reading.encodings import Decoder, LineEnds
from diagnose.reading.records import exported, printed
from diagnose.reading.wrapping import Unwrap

_ATTENTIVE, _AGAIN, _EVERY = 65536, 16384, 32 << 20
"""bytes at the beginning that are examined closely; the same later, and how often"""
_ENOUGH = 16
"""lines that show what all have in common"""
_SOME = 8
"""those that are enough in a pause, when others may follow"""
_FEW = 3
"""at least so many lines are needed, however sure one of them is"""
_MOST_BYTES = 65536
_CHECKED = 64
"""after so many lines it is checked whether they still have the dress"""
_HEADS = 512
"""heads that are counted at most"""
_TRACEBACK = b"Traceback (most recent call last)"
_RECORD = "record"
_EXPORT = "export"


class Transport:
    """Takes the dress off the lines of one source."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._ends = LineEnds()
        self._rest = b""
        self._whole = False
        """in the middle of a line that is too long to be looked at"""
        self._offset = 0
        self._until = _ATTENTIVE
        """where the close look ends; outside of it, where it begins again"""
        self._attentive = True
        self._colour = ""
        self._unwrap = Unwrap()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._before: list[bytes] = []
        """lines that were held, went on in a pause as they were, and show with the next ones whether they have a dress"""
        self._dress: dresses.Dress | None = None
        self._seen = self._carried = 0
        """lines since the dress was last checked; those of them that had it"""
        self._head: bytes | None = None
        """of a wrapper; it is taken off each line"""
        self._head_pattern: re.Pattern[bytes] | None = None
        self._suspects: list[bytes] = []
        """heads that nearly all lines have, while nothing says yet that one is a wrapper's"""
        self._heads: Counter[bytes] = Counter()
        self._bodies = 0
        self._waiting: list[bytes] = []
        """lines after one that may show a wrapper, until it is certain"""

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that can go on after ``chunk``. This is ``chunk`` itself if nothing is to be done."""
        data = self._ends.feed(self._decoder.feed(chunk))
        if not data or self._passes(data):
            return data
        out: list[bytes] = []
        at = 0
        while at < len(data):
            at = self._lines(data, at, out) if self._works else self._skip(data, at, out)
        return b"".join(out)

    def passes(self, chunk: bytes | memoryview) -> bool:
        """Whether ``feed`` would give back ``chunk`` itself. If so, it counts as fed."""
        return self._decoder.plain and self._ends.plain and self._passes(chunk)

    @property
    def holds(self) -> bool:
        """Whether whole lines wait for those after them."""
        return bool(self._unwrap.holds or self._held or self._waiting)

    def pause(self) -> bytes:
        """The whole lines that are held, if nothing has come after them for a while."""
        out: list[bytes] = []
        for line in self._unwrap.pause():
            self._dressed(line, out)
        self._decide_now(out, paused=True)
        return b"".join(out)

    def close(self) -> bytes:
        """The rest of the source."""
        out: list[bytes] = []
        data = self._ends.feed(self._decoder.feed(b"", last=True)) + self._ends.rest()
        at = 0
        while at < len(data):
            at = self._lines(data, at, out) if self._works else self._skip(data, at, out)
        rest, self._rest = self._rest, b""
        if rest:
            self._broken(rest, out)
        self._all_held(out)
        if rest and out and out[-1] == b"\n":
            out.pop()
        return b"".join(out)

    @property
    def state(self) -> dict[str, Any]:
        """As JSON."""
        head, encoding, pending = self._decoder.state
        text = "latin-1"
        windows, held = self._ends.state
        return {
            "decoder": [None if head is None else head.decode(text), encoding, pending.decode(text)],
            "ends": [windows, held.decode(text)],
            "rest": self._rest.decode(text),
            "place": [self._whole, self._offset, self._until, self._attentive],
            "colour": self._colour,
            "unwrap": self._unwrap.state,
            "held": [line.decode(text) for line in self._held],
            "before": [line.decode(text) for line in self._before],
            "dress": [self._dress, self._seen, self._carried],
            "head": None if self._head is None else self._head.decode(text),
            "suspects": [head.decode(text) for head in self._suspects],
            "heads": [[head.decode(text), count] for head, count in self._heads.items()],
            "bodies": self._bodies,
            "waiting": [line.decode(text) for line in self._waiting],
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        def raw(value: str | None) -> bytes | None:
            return None if value is None else value.encode("latin-1")

        head, encoding, pending = state["decoder"]
        self._decoder.state = raw(head), encoding, raw(pending) or b""
        windows, held = state["ends"]
        self._ends.state = windows, raw(held) or b""
        self._rest = raw(state["rest"]) or b""
        self._whole, self._offset, self._until, self._attentive = state["place"]
        self._colour = state["colour"]
        self._unwrap.state = state["unwrap"]
        self._held = [line.encode("latin-1") for line in state["held"]]
        self._held_bytes = sum(map(len, self._held))
        self._before = [line.encode("latin-1") for line in state["before"]]
        self._dress, self._seen, self._carried = state["dress"]
        self._put_on(raw(state["head"]))
        self._suspects = [head.encode("latin-1") for head in state["suspects"]]
        self._heads = Counter({head.encode("latin-1"): count for head, count in state["heads"]})
        self._bodies = state["bodies"]
        self._waiting = [line.encode("latin-1") for line in state["waiting"]]

    # --- bytes -> lines ------------------------------------------------------------------------------------------------------

    @property
    def _works(self) -> bool:
        """Whether lines are looked at one by one."""
        return bool(
            self._attentive
            or self._dress is not None
            or self._head is not None
            or self._colour
            or self._unwrap.width
            or self._held
            or self._waiting
        )

    def _passes(self, data: bytes | memoryview) -> bool:
        """Whether all of ``data`` goes on unchanged."""
        if self._works or self._suspects or self._offset + len(data) >= self._until:
            return False
        self._offset += len(data)
        return True

    def _skip(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Pass on what needs no look. Returns where lines are looked at again."""
        if self._rest or self._whole:  # a line has begun
            return self._lines(data, at, out)
        end = len(data)
        if self._offset + end - at >= self._until:
            begin = data.find(b"\n", at + max(0, self._until - self._offset - 1))
            if begin >= 0:
                end = begin + 1
        if self._suspects:
            return self._watch(data, at, end, out)
        out.append(data[at:end])
        self._offset += end - at
        if self._offset >= self._until and (end == at or data[end - 1] == 10):
            self._look(_AGAIN)
        return end

    def _watch(self, data: bytes, at: int, end: int, out: list[bytes]) -> int:
        """The same in a source with suspected heads: whole lines pass until one begins a traceback after such a head."""
        last = data.rfind(b"\n", at, end) + 1 or at
        found = data.find(_TRACEBACK, at, last)
        while found >= 0:
            start = data.rfind(b"\n", at, found) + 1 or at
            stop = data.find(b"\n", found)
            if self._convicted(data[start:stop]):
                last = start
                break
            found = data.find(_TRACEBACK, stop, last)
        out.append(data[at:last])
        self._offset += last - at
        if self._suspects:
            if last < end:
                self._rest = data[last:end]
            elif self._offset >= self._until:
                self._look(_AGAIN)
            return end
        return last

    def _lines(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Take whole lines from ``at`` on, as long as they are looked at."""
        while at < len(data):
            end = data.find(b"\n", at)
            if end < 0:
                self._hold(data[at:], out)
                return len(data)
            line = self._rest + data[at:end] if self._rest else data[at:end]
            at = end + 1
            self._rest = b""
            self._offset += len(line) + 1
            if self._whole:
                out += (line, b"\n")
                self._whole = False
            else:
                self._broken(line, out)
            if self._attentive and self._offset >= self._until:
                self._attentive = False
                self._until = (self._offset // _EVERY + 1) * _EVERY
                self._all_held(out)
                self._suspected()
            if not self._works:
                break
        return at

    def _hold(self, part: bytes, out: list[bytes]) -> None:
        if self._whole:
            out.append(part)
            self._offset += len(part)
            return
        self._rest += part
        if len(self._rest) > _MOST_BYTES:
            self._all_held(out)
            out.append(self._rest)
            self._offset += len(self._rest)
            self._rest, self._whole = b"", True

    def _look(self, size: int) -> None:
        """Look closely at the next ``size`` bytes."""
        self._attentive = True
        self._until = self._offset + size
        self._suspects = []
        self._heads.clear()
        self._bodies = 0

    # --- a line, stage by stage ----------------------------------------------------------------------------------------------

    def _broken(self, line: bytes, out: list[bytes]) -> None:
        """Take off colours, then join broken lines."""
        if not self._colour and self._attentive:
            self._colour = coloured(line)
        if self._colour:
            line = bleached(line, self._colour)
        for whole in self._unwrap.take(line):
            self._dressed(whole, out)

    def _dressed(self, line: bytes, out: list[bytes]) -> None:
        """Take off the dress: records, numbers, quotes, columns."""
        if self._dress is not None:
            self._off(line, out)
            return
        if not self._attentive and not self._held:
            self._wrapped(line, out)
            return
        if not self._held:
            if (kind := _kind(line)) is not None:
                self._dress, self._seen, self._carried = [kind], 0, 0
                self._off(line, out)
                return
            if not dresses.may_be_dressed(line.rstrip()):
                if line.strip():
                    self._before = []
                self._wrapped(line, out)
                return
        self._held.append(line)
        self._held_bytes += len(line)
        if self._held_bytes > _MOST_BYTES or (len(self._held) >= _ENOUGH and self._enough()):
            self._decide(out)

    def _enough(self) -> bool:
        return sum(1 for line in (*self._before, *self._held) if line.strip()) >= _ENOUGH

    def _decide(self, out: list[bytes], paused: bool = False) -> None:
        """Enough lines were held, or no more come: decide whether they have a dress."""
        held, self._held, self._held_bytes = self._held, [], 0
        seen = [*self._before, *held]
        told = [line.rstrip() for line in seen if line.strip()]
        self._dress = dresses.learned(told) if not paused or len(told) >= _SOME else None
        self._before = seen if paused and self._dress is None and len(told) < _ENOUGH else []
        self._seen = self._carried = 0
        for line in held:
            if self._dress is not None:
                self._off(line, out)
            else:
                self._wrapped(line, out)

    def _off(self, line: bytes, out: list[bytes]) -> None:
        assert self._dress is not None
        if not line.strip():
            self._wrapped(line, out)
            return
        kind = self._dress[0]
        bare = line.removesuffix(b"\r")
        if kind == _RECORD:
            inner = printed(bare)
        elif kind == _EXPORT:
            inner = exported(bare)
        else:
            inner = dresses.undressed(bare, self._dress)
        self._seen += 1
        self._carried += inner is not None
        self._wrapped(line if inner is None else inner, out)
        if self._seen >= _CHECKED:
            if self._carried * 2 < self._seen:
                self._dress = None
                if not self._attentive:
                    self._look(_AGAIN)
            self._seen = self._carried = 0

    def _wrapped(self, line: bytes, out: list[bytes]) -> None:
        """Take off the head of a wrapper."""
        if self._head_pattern is not None:
            inner = dresses.off_head(line, self._head_pattern)
            out += (line if inner is None else inner, b"\n")
            return
        if self._waiting:
            self._wait(line, out)
            return
        if self._suspects and _TRACEBACK in line and self._convicted(line):
            self._wrapped(line, out)
            return
        if (self._attentive or self._dress is not None) and line.strip() and (head := self._notice(line)) is not None:
            if head:
                self._put_on(head)
                self._wrapped(line, out)
            else:
                self._waiting.append(line)
            return
        out += (line, b"\n")

    # --- wrappers ------------------------------------------------------------------------------------------------------------

    def _notice(self, line: bytes) -> bytes | None:
        """The head of a wrapper if it is sure; empty if the next lines must decide; else None."""
        found = self._count(line)
        if not found:
            return None
        if (head := dresses.piped(found)) is not None:
            return head
        told = self._told(line, found)
        if told and self._bodies >= _FEW and not dresses.begins_traceback(_behind(line, told[0])):
            return told[0]
        return b"" if told else None

    def _count(self, line: bytes) -> list[bytes]:
        """Count the possible heads of ``line``."""
        found = dresses.heads(line)
        self._bodies += 1
        if len(self._heads) < _HEADS:
            self._heads.update(found)
        return found

    def _told(self, line: bytes, found: list[bytes]) -> list[bytes]:
        """Those heads that nearly all lines share, and after which ``line`` shows that another program wrote it."""
        if not found or not self._shared(found[0]):  # the first is the beginning of all others
            return []
        shared = [head for head in reversed(found) if self._shared(head)]
        return [
            head for head in shared if dresses.begins_traceback(payload := _behind(line, head)) or _tells(head, payload, line)
        ]

    def _wait(self, line: bytes, out: list[bytes]) -> None:
        """Hold a line that may belong to a wrapper, until it is certain.

        That is so if there were too few lines to be sure, or if only the header of a traceback has come.
        """
        if not line.strip():
            self._waiting.append(line)
            if len(self._waiting) > _ENOUGH:
                self._give_up(out)
            return
        found = self._count(line)
        first = self._waiting[0]
        both = [head for head in self._told(first, dresses.heads(first)) if head in found]
        self._waiting.append(line)
        if not both:
            self._give_up(out)
            return
        header = dresses.begins_traceback(_behind(first, both[0]))
        if _tells(both[0], _behind(line, both[0]), line) or (not header and self._bodies >= _FEW):
            self._go_on(both[0], out)
        elif header:
            self._give_up(out)

    def _go_on(self, head: bytes, out: list[bytes]) -> None:
        """The held lines are a wrapper's: pass them on without the head."""
        self._put_on(head)
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._wrapped(line, out)

    def _give_up(self, out: list[bytes]) -> None:
        """Pass the held lines on as they are."""
        for line in self._waiting:
            out += (line, b"\n")
        self._waiting = []

    def _shared(self, head: bytes) -> bool:
        """Whether nearly all lines have ``head``."""
        return self._heads[head] >= self._bodies - self._bodies // 10

    def _suspected(self) -> None:
        """Keep the heads that nearly all lines had, when the close look ends."""
        if self._head is not None:
            return
        shared = (head for head in self._heads if self._bodies >= _ENOUGH and self._shared(head))
        self._suspects = [head for head in shared if not dresses.warns(head)]
        self._heads.clear()
        self._bodies = 0

    def _convicted(self, line: bytes) -> bool:
        """Whether ``line`` begins a traceback after a suspected head. Then the head is a wrapper's from now on."""
        head = next((head for head in self._suspects if dresses.begins_traceback(_behind(line, head))), None)
        if head is None:
            return False
        self._suspects = []
        self._put_on(head)
        return True

    def _put_on(self, head: bytes | None) -> None:
        self._head = head
        self._head_pattern = dresses.pattern_of(head) if head is not None else None

    def _all_held(self, out: list[bytes]) -> None:
        """Pass on all that is held, as what it seems to be."""
        for line in self._unwrap.close():
            self._dressed(line, out)
        self._decide_now(out)

    def _decide_now(self, out: list[bytes], paused: bool = False) -> None:
        """Decide with the lines that there are: what dress they have, and whether a wrapper wrote them."""
        if self._held:
            self._decide(out, paused)
        if self._waiting:
            first = self._waiting[0]
            sure = [
                head
                for head in self._told(first, dresses.heads(first))
                if not dresses.warns(head) and dresses.surely_tells(_behind(first, head), first)
            ]
            if sure:
                self._go_on(sure[0], out)
            self._give_up(out)


def _behind(line: bytes, head: bytes) -> bytes:
    """The rest of ``line`` after ``head``."""
    return dresses.behind(line, dresses.pattern_of(head))


def _tells(head: bytes, payload: bytes, line: bytes) -> bool:
    """Whether another program wrote what follows ``head`` in ``line``."""
    return dresses.ends_program(payload, line) if dresses.warns(head) else dresses.tells(payload, line)


def _kind(line: bytes) -> str | None:
    """The kind of record that a line is, if it can be recognised alone."""
    if line.startswith((b"__CURSOR=", b"__REALTIME_TIMESTAMP=")):
        return _EXPORT
    return _RECORD if printed(line.rstrip()) is not None else None
