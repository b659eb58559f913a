"""What is done to a service: each fault begins, lasts a moment, and is over; then the service must be ready again."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests.support.servers import Postgres, Server

_SOURCE: Final = Path(__file__).with_name("faults.c")
_DISK: Final = 256 << 20
_TAIL: Final = 64 << 10
"""flips are near the end of a file: what is older is stored elsewhere by now, and harmless"""


class Hook:
    """The library ``faults.c``, and the file by which it is told what to do."""

    def __init__(self, folder: Path, disk: Path) -> None:
        self._disk = disk
        self._library = folder / "faults.so"
        words = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE), "-ldl"]
        self.works = shutil.which("gcc") is not None and subprocess.run(words, check=False).returncode == 0
        self._file = folder / "faults.told"
        self._file.write_bytes(bytes(24))
        with open(self._file, "r+b") as file:
            self._said = mmap.mmap(file.fileno(), 24)

    @property
    def environment(self) -> dict[str, str]:
        told = {"DIAGNOSE_FAULTS": str(self._file), "DIAGNOSE_FAULTS_DISK": str(self._disk)}
        return {"LD_PRELOAD": str(self._library), **told} if self.works else {}

    def say(self, sync_ms: int = 0, ahead_s: int = 0, *, read_only: bool = False) -> None:
        self._said[:] = struct.pack("=qqq", sync_ms, ahead_s, read_only)


class Disk:
    """A small file system of its own where that is allowed; else a folder, and a limit for files stands for a full disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(folder)]
        self.is_small = os.geteuid() == 0 and subprocess.run(words, check=False, capture_output=True).returncode == 0

    def fill(self) -> None:
        """Until nothing more fits."""
        with open(self.folder / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))

    def free(self) -> None:
        (self.folder / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        if self.is_small:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


@dataclass
class Site:
    """One service, and what can be broken of it."""

    server: Server
    disk: Disk
    hook: Hook
    raw: Path
    postgres: Postgres | None = None
    chance: random.Random = field(default_factory=random.Random)

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()

    def pause(self, most_s: float) -> None:
        time.sleep(most_s * self.chance.random())


def kill(site: Site) -> None:
    """kill -9, and a start."""
    site.server.kill()
    site.server.start()


def stop(site: Site) -> None:
    """SIGSTOP for a moment."""
    os.kill(site.server.pid, signal.SIGSTOP)
    site.pause(2.0)
    os.kill(site.server.pid, signal.SIGCONT)


def full(site: Site) -> None:
    """No room on the disk for a moment."""
    if site.disk.is_small:
        site.disk.fill()
        site.pause(1.5)
        site.disk.free()
        return
    import resource

    before = resource.prlimit(site.server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(site.server.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    site.pause(1.5)
    resource.prlimit(site.server.pid, resource.RLIMIT_FSIZE, before)


def full_and_kill(site: Site) -> None:
    """No room, then kill -9 while there is none; room again, and a start."""
    site.disk.fill()
    site.pause(0.5)
    site.server.kill()
    site.disk.free()
    site.server.start()


def read_only(site: Site) -> None:
    """Nothing on the disk can be written, deleted or named for a moment; sometimes with kill -9 meanwhile."""
    site.hook.say(read_only=True)
    site.pause(5.0)
    dies = site.chance.random() < 0.3
    if dies:
        site.server.kill()
    site.hook.say()
    if dies:
        site.server.start()


def slow(site: Site) -> None:
    """Each sync takes up to a quarter of a second."""
    site.hook.say(sync_ms=site.chance.randrange(20, 250))
    site.pause(2.0)
    site.hook.say()


def slow_and_kill(site: Site) -> None:
    """kill -9 while syncs are slow: what was not synced was not acknowledged."""
    site.hook.say(sync_ms=200)
    site.pause(0.6)
    site.server.kill()
    site.hook.say()
    site.server.start()


def clock(site: Site) -> None:
    """The clock is set, by up to a day, and set right again; sometimes with kill -9 between."""
    site.hook.say(ahead_s=site.chance.choice((-86_400, -3600, -5, 5, 3600, 86_400)))
    site.pause(1.0)
    if site.chance.random() < 0.3:
        kill(site)
    site.hook.say()


def database(site: Site) -> None:
    """PostgreSQL stops at once, and starts again; sometimes the service is killed meanwhile."""
    assert site.postgres is not None
    site.postgres.stop()
    site.pause(1.0)
    dies = site.chance.random() < 0.3
    if dies:
        site.server.kill()
    site.postgres.start()
    if dies:
        site.server.start()


def flip_journal(site: Site) -> None:
    """kill -9, one bit of the journal's newest segment is flipped, and a start."""
    site.server.kill()
    segments = sorted((site.server.data / "journal").glob("*.journal"))
    if segments:
        flip(segments[-1], site.chance)
    site.server.start()


def flip(path: Path, chance: random.Random, tail: int = _TAIL) -> int:
    """Flip a bit near the end of what was written; zeros behind it are none. Returns where."""
    data = bytearray(path.read_bytes())
    written = len(bytes(data).rstrip(b"\0"))
    at = chance.randrange(max(0, written - tail), max(1, written))
    data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return at


def none(site: Site) -> None:
    """Nothing while clients send: what is broken is broken when all of it lies on disk."""


ON_SQLITE: Final[Mapping[str, Callable[[Site], None]]] = {
    "kill": kill, "stop": stop, "full": full, "full_and_kill": full_and_kill, "slow": slow, "slow_and_kill": slow_and_kill,
    "clock": clock, "read_only": read_only, "flip_journal": flip_journal, "flip_raw": none, "flip_database": none,
}  # fmt: skip
ON_POSTGRESQL: Final[Mapping[str, Callable[[Site], None]]] = {
    "kill": kill, "stop": stop, "database": database, "clock": clock, "slow_and_kill": slow_and_kill,
    "read_only": read_only,
}  # fmt: skip
BY_HOOK: Final = frozenset({"slow", "slow_and_kill", "clock", "read_only"})
