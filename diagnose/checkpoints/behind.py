"""What goes on behind the training with the second place: upload what was completed, pass on verdicts, delete, and fetch back.

- What is uploaded is hashed on its way. If it is not what was written, its manifest is not written, so it never counts there.
- While a checkpoint is uploaded it is locked in the first place. While one is fetched, a note in the second place says so.
  What is locked or has such a note is not deleted.
- Only the newest that waits is uploaded: a place that is slower than the training gets fewer of them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from diagnose.backoff import Backoff
from diagnose.checkpoints import manifest, marks
from diagnose.checkpoints.good import Alarm, Judged
from diagnose.checkpoints.hashes import PIECE, FileHash, Hasher
from diagnose.checkpoints.keeper import OWN, STATES, using
from diagnose.checkpoints.kept import Candidate, to_delete
from diagnose.checkpoints.places import Place
from diagnose.errors import DiagnoseError

log = logging.getLogger("diagnose.checkpoints")
_AT_ONCE = 4
_READING: Final = f"{manifest.OURS}reading-"
"""how the notes of those begin who fetch a checkpoint"""
_READING_LASTS_S = 6 * 3600.0
_PAUSE_S = (1.0, 300.0)


class PlaceError(DiagnoseError):
    """A checkpoint could not be brought to the second place, or back."""


def upload(place: Place, folder: Path) -> None:
    """Bring a complete checkpoint to a place; the manifest last."""
    with using(folder):
        made = manifest.read(folder)
        if made is None:
            raise PlaceError("it has no manifest", where=str(folder), remedy="only complete checkpoints are uploaded")
        if folder.name in place.names():
            return

        def one(name: str) -> None:
            place.write(folder.name, name, _proved(_pieces(folder / name), made.files[name], folder / name))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(one, made.files))
        verdict = marks.read(folder)
        if verdict is not None:
            place.write(folder.name, marks.NAME, [(folder / marks.NAME).read_bytes()])
        place.write(folder.name, manifest.NAME, [manifest.text_of(made)])


def fetch(place: Place, name: str, into: Path) -> None:
    """Bring a checkpoint back. It is at ``into`` when all of it is there and agrees with its manifest."""
    beside = into.with_name(f".fetching-{into.name}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        with reading(place, name):
            (beside / manifest.NAME).write_bytes(b"".join(place.read(name, manifest.NAME)))
            made = manifest.read(beside)
            assert made is not None
            (beside / manifest.NAME).unlink()

            def one(file: str) -> None:
                (beside / file).parent.mkdir(parents=True, exist_ok=True)
                with (beside / file).open("wb") as opened:
                    for piece in _proved(place.read(name, file), made.files[file], f"{place}/{name}/{file}"):
                        opened.write(piece)

            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(one, made.files))
            with contextlib.suppress(OSError):
                (beside / marks.NAME).write_bytes(b"".join(place.read(name, marks.NAME)))
        manifest.commit(beside, made)
        if into.exists():
            shutil.rmtree(into)  # a copy of it that is damaged, or was not finished
        beside.rename(into)
        manifest.sync(into.parent)
    except OSError as error:
        raise PlaceError(f"it cannot be fetched: {error}", where=f"{place}/{name}", remedy="an older one is taken") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def verdict_of(place: Place, name: str) -> marks.Verdict | None:
    """As it was passed on."""
    try:
        return marks.parsed(b"".join(place.read(name, marks.NAME)))
    except OSError:
        return None


@contextlib.contextmanager
def reading(place: Place, name: str) -> Iterator[None]:
    """While somebody reads a checkpoint there."""
    note = f"{_READING}{uuid.uuid4().hex}"
    place.write(name, note, [json.dumps({"at": time.time()}).encode()])
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            place.delete(name, note)


def remove(place: Place, name: str) -> bool:
    """Delete a checkpoint, its manifest first. Not while somebody reads it: then False."""
    files = place.files(name)
    if any(_in_use(place, name, file) for file in files if file.startswith(_READING)):
        return False
    place.delete(name, manifest.NAME)
    for file in files:
        place.delete(name, file)
    return True


def _in_use(place: Place, name: str, note: str) -> bool:
    """A note of somebody who was killed counts for some hours."""
    try:
        said = json.loads(b"".join(place.read(name, note)))
        return time.time() - float(said["at"]) < _READING_LASTS_S
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(4 * PIECE):
            yield piece


def _proved(pieces: Iterator[bytes], expected: FileHash, where: object) -> Iterator[bytes]:
    """The pieces, and an error after the last one if they are not what was written."""
    hasher = Hasher()
    for piece in pieces:
        hasher.update(piece)
        if hasher.size > expected.size:
            break
        yield piece
    if hasher.done() != expected:
        raise PlaceError("it is not what was written", where=str(where), remedy="another copy of it is taken, or an older one")


class Behind:
    """The thread that uploads, on rank 0."""

    def __init__(self, path: Path, place: Place, keep: int | None, thin: Sequence[tuple[float, int]]) -> None:
        self.place, self._path, self._keep, self._thin = place, path, keep, thin
        self.problem: str | None = None
        """why the last upload failed"""
        self.newest: str | None = None
        """the last one that is there whole"""
        self._wanted: Path | None = None
        self._alarms: Sequence[Alarm] = ()
        self._passed_on: dict[str, bytes] = {}
        self._made: dict[str, manifest.Manifest] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._busy = False
        self._thread: threading.Thread | None = None

    def saved(self, folder: Path, alarms: Sequence[Alarm]) -> None:
        """A checkpoint was completed and judged, and what was there before, too."""
        with self._changed:
            self._wanted, self._alarms = folder, tuple(alarms)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="diagnose-uploads", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, timeout_s: float | None = None) -> None:
        """Wait for the last upload. Raises if it failed."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._busy and self._wanted is None, timeout_s)
        if not done or self.problem is not None:
            raise PlaceError(
                f"the last checkpoint is not at the second place: {self.problem or 'the time is over'}",
                where=str(self.place),
                remedy=f"it is whole in {self._path}; the next run uploads what it saves",
            )

    def _work(self) -> None:
        pauses, tries = Backoff(*_PAUSE_S), 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted is not None or self._closing)
                if self._wanted is None:
                    self._thread = None
                    return
                folder, self._busy = self._wanted, True
            try:
                self._bring(folder)
                self.problem, tries = None, 0
            except Exception as error:
                self.problem, tries = str(error), tries + 1
                log.warning("%s was not uploaded to %s: %s", folder.name, self.place, error)
            with self._changed:
                self._busy = False
                if self._wanted == folder and (self.problem is None or self._closing):
                    self._wanted = None
                self._changed.notify_all()
                if self.problem is not None and self._wanted == folder and not self._closing:
                    self._changed.wait(pauses.after(tries))  # until a newer one comes, or the end

    def _bring(self, folder: Path) -> None:
        upload(self.place, folder)
        self.newest = folder.name
        self._pass_on_verdicts()
        if self._keep is not None:
            self._clear(self._keep)

    def _pass_on_verdicts(self) -> None:
        """What is known of each, so that a machine with an empty disk knows it, too."""
        for name in self.place.names():
            try:
                said = (self._path / name / marks.NAME).read_bytes()
            except OSError:
                continue
            if self._passed_on.get(name) != said and not marks.parsed(said).damaged:  # the copy there is another one
                self.place.write(name, marks.NAME, [said])
                self._passed_on[name] = said

    def _clear(self, keep: int) -> None:
        known = [one for name in self.place.names() if (one := self._candidate(name)) is not None]
        for one in to_delete(known, keep, self._alarms, time.time(), self._thin):
            if remove(self.place, one.path.name):
                self._passed_on.pop(one.path.name, None)

    def _candidate(self, name: str) -> Candidate | None:
        """None for what is not named as ours: it is never deleted."""
        if not OWN.fullmatch(name):
            return None
        said = self._passed_on.get(name)
        verdict = marks.parsed(said) if said is not None else verdict_of(self.place, name)
        judged = Judged(STATES[verdict.good], verdict.why) if verdict is not None else Judged("open", "")
        if name not in self._made:
            try:
                self._made[name] = manifest.parsed(b"".join(self.place.read(name, manifest.NAME)), f"{self.place}/{name}")
            except (OSError, manifest.ManifestError):
                return None
        made = self._made[name]
        return Candidate(Path(name), made.step, made.at, judged)
