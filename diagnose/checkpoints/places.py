"""The second place of checkpoints, behind the folder that they are written to: a shared file system, or an object store.

A place has checkpoints by name, and each has files. A file is there whole or not at all. The manifest of a checkpoint is
written last and deleted first, as in the first place, so one that has a manifest is complete.

    place_of("/shared/run7")             a folder
    place_of("s3://bucket/run7")         what obstore takes: s3, gs, az and http addresses; pip install 'diagnose-train[store]'
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from diagnose.checkpoints import manifest
from diagnose.errors import DiagnoseError
from diagnose.quantities import MIB

_PIECE = 4 * MIB
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""of a checkpoint: what a place lists may be anybody's"""


class Place(Protocol):
    """Where checkpoints go, and where they come from."""

    def names(self) -> list[str]:
        """Of the checkpoints that are complete."""

    def files(self, name: str) -> list[str]:
        """All files of one, ours included."""

    def read(self, name: str, file: str) -> Iterator[bytes]:
        """A file, in pieces. OSError if it is not there."""

    def write(self, name: str, file: str, pieces: Iterable[bytes]) -> None:
        """Durable when this returns, and not there before."""

    def delete(self, name: str, file: str) -> None:
        """Gone; also if it was not there."""


def place_of(where: str | Path, options: Mapping[str, Any] | None = None) -> Place:
    """By address. ``options`` go to obstore, such as ``endpoint`` or ``region``; it also reads the usual variables."""
    text = str(where)
    if "://" not in text:
        return FolderPlace(Path(text))
    if importlib.util.find_spec("obstore") is None:
        raise DiagnoseError(
            "an object store needs obstore", where=text, remedy="install it: pip install 'diagnose-train[store]'"
        )
    return ObjectPlace(text, options or {})


class FolderPlace:
    """A folder, such as one of a shared file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def names(self) -> list[str]:
        if not self.path.is_dir():
            return []
        return sorted(one.name for one in self.path.iterdir() if _NAME.fullmatch(one.name) and (one / manifest.NAME).is_file())

    def files(self, name: str) -> list[str]:
        folder = self.path / name
        return sorted(one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file())

    def read(self, name: str, file: str) -> Iterator[bytes]:
        with (self.path / name / file).open("rb") as opened:
            while piece := opened.read(_PIECE):
                yield piece

    def write(self, name: str, file: str, pieces: Iterable[bytes]) -> None:
        path = self.path / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.part")
        try:
            with beside.open("wb") as opened:
                for piece in pieces:
                    opened.write(piece)
                opened.flush()
                os.fsync(opened.fileno())
            beside.rename(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        for folder in (path.parent, *path.parent.parents):
            manifest.sync(folder)
            if folder == self.path:
                break

    def delete(self, name: str, file: str) -> None:
        (self.path / name / file).unlink(missing_ok=True)
        if not any(one.is_file() for one in (self.path / name).rglob("*")):
            shutil.rmtree(self.path / name, ignore_errors=True)


class ObjectPlace:
    """An object store, by obstore."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self.url = url
        self._obstore: Any = importlib.import_module("obstore")
        self._store: Any = importlib.import_module("obstore.store").from_url(url, **options)

    def __str__(self) -> str:
        return self.url

    def names(self) -> list[str]:
        found = set()
        for one in self._paths(""):
            name, _, file = one.partition("/")
            if file == manifest.NAME and _NAME.fullmatch(name):
                found.add(name)
        return sorted(found)

    def files(self, name: str) -> list[str]:
        return sorted(path.removeprefix(f"{name}/") for path in self._paths(f"{name}/"))

    def read(self, name: str, file: str) -> Iterator[bytes]:
        stream = self._asked(lambda: iter(self._obstore.get(self._store, f"{name}/{file}").stream(min_chunk_size=_PIECE)))
        while (piece := self._asked(lambda: next(stream, None))) is not None:
            yield bytes(piece)

    def write(self, name: str, file: str, pieces: Iterable[bytes]) -> None:
        # What is sent in parts is there when the last part was sent. An iterator that raises ends it before.
        self._asked(lambda: self._obstore.put(self._store, f"{name}/{file}", iter(pieces), chunk_size=2 * _PIECE))

    def delete(self, name: str, file: str) -> None:
        try:
            self._obstore.delete(self._store, f"{name}/{file}")
        except FileNotFoundError:
            return
        except Exception as error:
            raise OSError(f"{self.url}: {_first(error)}") from error

    def _paths(self, prefix: str) -> Iterator[str]:
        def listed() -> list[str]:
            return [one["path"] for some in self._obstore.list(self._store, prefix or None) for one in some]

        yield from self._asked(listed)

    def _asked(self, work: Any) -> Any:
        try:
            return work()
        except (OSError, DiagnoseError):
            raise
        except Exception as error:  # obstore has its own, which are no OSError
            raise OSError(f"{self.url}: {_first(error)}") from error


def _first(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
