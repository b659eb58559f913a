"""Many sources for ever: read what is new and send it. While the service is away, keep it on disk.

One round (``step``) finds files, sends what waits, then what is new. While the service is away the files are still read, and
kept in the spool, because they may be rotated away. If the spool is full, they stay where they are.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from diagnose.backoff import Backoff
from diagnose.shipping.destination import PIECE, Away, Destination, Mismatch, Owner, Refusal
from diagnose.shipping.spool import FileState, Spool
from diagnose.shipping.tails import Piece, Tail

_DISCOVER_S = 2.0
_MOST_OPEN = 500
_FORGOTTEN_S = 600.0
_BACKOFF = Backoff(0.5, 60.0, spread=0.5)


class Found(NamedTuple):
    """A file to be sent."""

    path: str
    owner: Owner


class Feed(Protocol):
    """Where pieces come from: a file, or a pipe."""

    def read(self, size: int) -> Piece | None: ...

    def commit(self, piece: Piece) -> None: ...


class Runner:
    """Created by ``cli/runner``, which calls ``step`` until it is told to stop."""

    def __init__(
        self,
        destination: Destination,
        spool: Spool,
        find: Callable[[], Iterable[Found]],
        *,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._destination, self._spool, self._find, self._say, self._clock = destination, spool, find, say, clock
        self._failures = 0
        self._tails: dict[str, Tail] = {}
        self._feeds: list[Feed] = []
        self._states = spool.files()
        for state in self._states.values():
            state.refused = None  # the service may now accept what it refused
        self._away_until: float | None = None
        self._discovered = -_DISCOVER_S
        self._spool_full = False
        self._gone_since: dict[str, float] = {}
        self.sent_bytes = 0

    def add(self, feed: Feed) -> None:
        """Add a feed that is not a file."""
        self._feeds.append(feed)

    @property
    def away(self) -> bool:
        return self._away_until is not None

    def wait_s(self) -> float | None:
        """How long the service wants to be left alone; None if it answers."""
        return None if self._away_until is None else max(0.0, self._away_until - self._clock())

    def step(self) -> bool:
        """One round. Returns whether anything was sent or kept."""
        self._discover()
        moved = False
        if self._away_until is None or self._clock() >= self._away_until:
            moved = self._send_waiting()
        feeds: list[Feed] = [*self._feeds, *self._tails.values()]
        for feed in feeds:
            moved |= self._keep(feed) if self._away_until is not None or self._spool.pieces else self._ship(feed)
        return moved

    def flush(self, deadline: float) -> bool:
        """Read everything to its present end and send it. Returns whether all was sent before ``deadline``."""
        self._discovered = -_DISCOVER_S
        while True:
            moved = self.step()
            if not moved and not self.away and not self._spool.pieces:
                return self._send_ends()
            if self._clock() >= deadline:
                return False
            if not moved:
                time.sleep(min(max(self.wait_s() or 0.0, 0.05), 1.0, max(0.0, deadline - self._clock())))

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()
        self._destination.close()

    # --- files

    def _discover(self) -> None:
        now = self._clock()
        if now - self._discovered < _DISCOVER_S:
            return
        self._discovered = now
        for found in self._find():
            if found.path in self._tails:
                continue
            if len(self._tails) >= _MOST_OPEN:
                self._close_idle()
            state = self._states.pop(found.path, None) or FileState(found.path, found.owner)
            self._tails[found.path] = Tail(state, self._clock)
        # A file that is gone was read to its end. Another one may follow with its name.
        for path, tail in list(self._tails.items()):
            if not tail.gone:
                self._gone_since.pop(path, None)
            elif now - self._gone_since.setdefault(path, now) > _FORGOTTEN_S:
                del self._tails[path], self._gone_since[path]
                self._spool.forget(path)

    def _close_idle(self) -> None:
        """Close files: descriptors are few, and a tail opens its file again when it is read."""
        for tail in self._tails.values():
            tail.close()

    # --- the service answers

    def _send_waiting(self) -> bool:
        moved = False
        while (piece := self._spool.first()) is not None:
            try:
                self._destination.send(piece.owner, piece.offset, piece.data)
            except Away as away:
                self._left(away)
                return moved
            except Mismatch as mismatch:
                self._rename(piece.owner, piece.offset, mismatch)
                return False  # the next round sends it
            except Refusal as refusal:
                self._say(f"{piece.owner.source}: {len(piece.data):,} bytes will never be taken: {refusal}")
            else:
                self.sent_bytes += len(piece.data)
            self._spool.sent(piece)
            self._back()
            moved = True
        return moved

    def _ship(self, feed: Feed) -> bool:
        piece = self._read(feed)
        if piece is None:
            return False
        try:
            received = self._destination.send(piece.owner, piece.offset, piece.data)
        except Away as away:
            self._left(away)
            return self._store(feed, piece)
        except Mismatch as mismatch:
            self._mend(feed, piece, mismatch)
            return True
        except Refusal as refusal:
            self._refuse(feed, piece, refusal)
            return True
        self._back()
        self.sent_bytes += len(piece.data)
        if piece.after is not None:
            ahead = received - piece.offset - len(piece.data)
            if ahead and isinstance(feed, Tail):
                # The state was lost, and the service has more of this file than we know.
                if piece.after.position + ahead > feed.size:
                    self._rename(piece.owner, piece.offset, None)
                    return True
                piece.after.position += ahead
            self._spool.moved(piece.after)
        feed.commit(piece)
        return True

    def _send_ends(self) -> bool:
        while (end := self._spool.first_end()) is not None:
            try:
                self._destination.end(end.job, end.exit_code, end.attempt)
            except Away as away:
                self._left(away)
                return False
            except (Refusal, Mismatch) as refusal:
                self._say(f"the end of {end.job} will never be taken: {refusal}")
            self._spool.sent_end(end)
        return True

    # --- the service is away

    def _left(self, away: Away) -> None:
        if self._away_until is None:
            self._say(f"{away}; what is new waits on disk")
        self._failures += 1
        self._away_until = self._clock() + (away.retry_after_s or 0.0) + _BACKOFF.after(self._failures)

    def _back(self) -> None:
        if self._away_until is not None:
            self._say("the service is back")
        self._away_until = None
        self._failures = 0

    def _keep(self, feed: Feed) -> bool:
        piece = self._read(feed)
        return piece is not None and self._store(feed, piece)

    def _store(self, feed: Feed, piece: Piece) -> bool:
        if not self._spool.fits(len(piece.data)):
            if not self._spool_full:
                self._say(f"{self._spool.bytes:,} bytes wait already: what is new stays in its files")
            self._spool_full = True
            return False
        try:
            self._spool.put(piece.owner, piece.offset, piece.data, piece.after)
        except sqlite3.Error as error:
            if not self._spool_full:
                self._say(f"nothing can be kept on disk ({error}): what is new stays in its files")
            self._spool_full = True
            return False
        self._spool_full = False
        feed.commit(piece)
        return True

    # --- it wants other bytes, or none

    def _read(self, feed: Feed) -> Piece | None:
        if isinstance(feed, Tail) and feed.state.refused:
            return None
        try:
            piece = feed.read(PIECE)
        except OSError as error:
            if isinstance(feed, Tail):
                feed.close()
                self._say(f"{feed.state.path}: cannot be read: {error.strerror}")
            return None
        if isinstance(feed, Tail):
            for problem in feed.problems:
                self._say(problem)
            feed.problems.clear()
        return piece

    def _mend(self, feed: Feed, piece: Piece, mismatch: Mismatch) -> None:
        """The service wants earlier bytes, which may still be in the file."""
        if isinstance(feed, Tail) and mismatch.expected is not None and feed.state.base <= mismatch.expected < piece.offset:
            state = copy.copy(feed.state)
            state.position = mismatch.expected - state.base
            self._say(f"{piece.owner.source}: the service has it up to byte {mismatch.expected:,} only; sent again from there")
            self._spool.moved(state)
            feed.state = state
            return
        self._rename(piece.owner, piece.offset, mismatch)

    def _rename(self, owner: Owner, offset: int, why: Mismatch | None) -> None:
        """Send the rest under a new name, from byte 0: the service has something else under the old one."""
        renamed = dataclasses.replace(owner, source=f"{owner.source.partition('~')[0]}~{offset}-{os.getpid()}")
        self._say(
            f"{owner.source}: goes on as {renamed.source}: {why or 'the service has another, longer source of this name'}"
        )
        self._spool.rename(owner, renamed, offset)
        for tail in self._tails.values():
            if tail.state.owner == owner:
                tail.state = dataclasses.replace(tail.state, owner=renamed, base=tail.state.base - offset)
                self._spool.moved(tail.state)
        for other in self._feeds:
            rename = getattr(other, "rename", None)
            if rename is not None:
                rename(owner, renamed, offset)

    def _refuse(self, feed: Feed, piece: Piece, refusal: Refusal) -> None:
        self._say(f"{piece.owner.source}: will never be taken: {refusal}")
        if isinstance(feed, Tail):
            feed.state = dataclasses.replace(feed.state, refused=str(refusal))
            self._spool.moved(feed.state)
        else:
            feed.commit(piece)
