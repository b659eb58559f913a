"""A lock on a folder for one process. A second process gets an error, and a process that dies releases the lock."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from diagnose.errors import DiagnoseError


def _made(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


class Guard:
    """Held until ``close``. ``who`` names the holder in the error, and ``option`` the option for another folder."""

    def __init__(self, folder: Path, who: str, option: str, make: Callable[[Path], None] = _made) -> None:
        try:
            make(folder)
            self._file = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DiagnoseError(
                f"cannot be written: {error.strerror}", where=str(folder), remedy=f"give another folder with {option}"
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            taken = isinstance(error, BlockingIOError)
            raise DiagnoseError(
                f"{who} uses this folder" if taken else f"cannot be locked: {error.strerror}",
                where=str(folder),
                remedy=f"stop it, or give another with {option}" if taken else f"give one on a local disk with {option}",
            ) from None

    def close(self) -> None:
        os.close(self._file)
