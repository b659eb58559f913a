"""Real servers for tests: ``diagnose serve`` as a process of its own, and a PostgreSQL cluster in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import ROOT
from tests.support.commands import COMMANDS, Started, needs_a_start

_START_S = 60.0


class Server:
    """One ``diagnose serve``. It may be killed and started again on the same data."""

    def __init__(self, data: Path, *words: str, **environment: str) -> None:
        self.data = data
        self._words = words
        # Tests tell lines apart by their numbers, so here nothing folds unless a test wants it.
        self.environment = {"DIAGNOSE_SERVE_FOLD_AFTER": "0"} | environment
        self._process: Started | subprocess.Popen[str] | None = None
        self.port = 0
        self.url = ""
        self.client = httpx.Client(timeout=60)

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    @property
    def _log(self) -> Path:
        return self.data.parent / f"{self.data.name}.log"

    def start(self) -> Server:
        """Until it says where it listens."""
        words = ["serve", "--data", str(self.data), "--port", str(self.port), *self._words]
        # Once more it is started as a user does: with another hash seed, so in sets the order is another one.
        if COMMANDS.serve and not self.url and not needs_a_start(self.environment):
            self._process = COMMANDS.start(words, cwd=self.data.parent, log=self._log, environment=self.environment)
        else:
            self._process = self._program(words)
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            if not line:
                break
            if " on http" in line:
                self.url = line.split()[-1]
                self.port = int(self.url.rpartition(":")[2])
                self.client.close()
                self.client = httpx.Client(base_url=self.url, timeout=60)
                return self
        self.kill()
        raise AssertionError(f"the server did not start: {self.log[-3000:]}")

    def _program(self, words: list[str]) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "diagnose", *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.data.parent,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment},
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As the kernel does when memory runs out."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._end()

    def stop(self) -> int:
        """As systemd does."""
        assert self._process is not None
        self._process.terminate()
        return self._end()

    def _end(self) -> int:
        assert self._process is not None
        try:
            status = self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"it did not end: {self.log[-2000:]}") from None
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return status

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if self._process is not None:
            self.kill()

    # --- what tests say again and again

    def get(self, path: str, **params: Any) -> Any:
        answer = self.client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def push(self, job: str, data: bytes, **params: Any) -> Any:
        answer = self.client.post(f"/v1/jobs/{job}/logs", params=params, content=data)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def end(self, job: str, exit_code: int | None = None, **more: Any) -> Any:
        answer = self.client.post(f"/v1/jobs/{job}/end", json={"exit_code": exit_code, **more})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def lines(self, job: str, **params: Any) -> list[Any]:
        """All kept lines, page by page."""
        found: list[Any] = []
        after = -1
        while True:
            page = self.get(f"/v1/jobs/{job}/lines", limit=1000, after=after, **params)
            found += page["lines"]
            if page["next"] is None:
                return found
            after = page["next"]


class Postgres:
    """A cluster of our own on a Unix socket; as another user where we are root, since it refuses to run as root."""

    def __init__(self) -> None:
        self._programs = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
        if self._programs is None:
            found = shutil.which("initdb")
            self._programs = Path(found).parent if found else None
        self.folder = Path(tempfile.mkdtemp(prefix="diagnose-pg-", dir="/tmp"))
        self._as: list[str] = []

    @property
    def here(self) -> bool:
        return self._programs is not None

    def start(self) -> Postgres:
        assert self._programs is not None
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
            self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        data = self.folder / "data"
        if not data.exists():
            self._run("initdb", "-D", str(data), "-U", "diagnose", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c max_connections=50"
        self._run("pg_ctl", "-D", str(data), "-w", "-l", str(self.folder / "log"), "-o", options, "start")
        return self

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def database(self, name: str) -> str:
        """The URL of a new, empty database."""
        self._run("createdb", "-h", str(self.folder), "-U", "diagnose", name)
        return f"postgresql://diagnose@/{name}?host={self.folder}"

    def _run(self, program: str, *words: str) -> None:
        assert self._programs is not None
        done = subprocess.run(
            [*self._as, str(self._programs / program), *words], capture_output=True, text=True, cwd=self.folder, timeout=120
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
