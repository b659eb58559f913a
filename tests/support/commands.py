"""Runs ``diagnose`` again and again, each time in a child of one process that has imported once what takes long to import.

A child is as good as a new process: it has its own memory, its own three streams, folder and environment, and ends as the
program ends. What Python reads when it starts is not read again, so ``Commands`` refuses variables of that kind.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

LATER = ("diagnose.learning.rule_store", "diagnose.verification.proposals", "service.store", "hyperscan", "regex", "zstandard")
"""what commands import only when they are called, besides their own modules"""
_SERVICE = "service.server"
"""what ``diagnose serve`` imports besides: it takes longest, and most tests never need it"""
_AT_START = ("PYTHON", "LC_", "LANG", "LD_")


def needs_a_start(environment: Mapping[str, str]) -> list[str]:
    """Variables that act when Python starts, so that no child of ours can have them: run the program by subprocess."""
    return [name for name in environment if name.startswith(_AT_START)]


class Started:
    """A command that still runs: as much of ``subprocess.Popen`` as tests of servers need."""

    def __init__(self, commands: Commands, pid: int, stdout: IO[str]) -> None:
        self._commands = commands
        self._status: int | None = None
        self.pid = pid
        """it stays this process's until ``wait`` has its status"""
        self.stdout = stdout

    def send_signal(self, number: int) -> None:
        if self._status is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout_s: float = 600) -> int:
        if self._status is None:
            self._status = self._commands.status_of(self.pid, timeout_s)
        if self._status is None:
            raise subprocess.TimeoutExpired(["diagnose"], timeout_s)
        return self._status


class Commands:
    """The process that the commands are children of. It is started by the first command."""

    def __init__(self, root: Path) -> None:
        self.serve = False
        """the services of ``tests.support.servers`` are such children, too: what measures one starts it as a user does"""
        self._root = root
        self._server: subprocess.Popen[str] | None = None
        self._asking = threading.Lock()

    def run(
        self,
        words: tuple[str, ...],
        *,
        cwd: Path,
        stdin: bytes | None = None,
        environment: dict[str, str],
        terminal: str | None = None,
        timeout_s: float = 240,
    ) -> subprocess.CompletedProcess[str]:
        """``environment``: what differs from that of this process. ``terminal``: the path of one, instead of files."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            streams = [folder / "0", folder / "1", folder / "2"]
            streams[0].write_bytes(stdin or b"")
            for stream in streams[1:]:
                stream.touch()
            paths = [terminal or str(streams[0]), terminal or str(streams[1]), str(streams[2])]
            status = self._ask("run", seconds=timeout_s, **self._program(words, cwd, paths, environment))
            if status is None:
                raise subprocess.TimeoutExpired(["diagnose", *words], timeout_s)
            said = [stream.read_bytes().decode("utf-8", "replace") for stream in streams[1:]]
        return subprocess.CompletedProcess(["diagnose", *words], status, *said)

    def start(self, words: Sequence[str], *, cwd: Path, log: Path, environment: Mapping[str, str]) -> Started:
        """A command that goes on. Its standard output is read by the caller, and what it says of errors is added to ``log``."""
        log.touch()
        with tempfile.TemporaryDirectory() as name:
            stdout = Path(name) / "stdout"
            os.mkfifo(stdout)
            reading = os.open(stdout, os.O_RDONLY | os.O_NONBLOCK)  # who writes would wait for one who reads
            os.set_blocking(reading, True)
            paths = [os.devnull, str(stdout), str(log)]
            pid = self._ask("start", **self._program(words, cwd, paths, environment))
        assert pid is not None
        return Started(self, pid, os.fdopen(reading))

    def status_of(self, pid: int, timeout_s: float) -> int | None:
        """The exit status of a command that was started; None if it still runs."""
        return self._ask("wait", pid=pid, seconds=timeout_s)

    def _program(self, words: Sequence[str], cwd: Path, streams: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
        assert not (wrong := needs_a_start(environment)), f"{wrong} act when Python starts: run the program by subprocess"
        whole = {**os.environ, "PYTHONPATH": str(self._root), **environment}
        return {"words": list(words), "cwd": str(cwd), "streams": streams, "environment": whole}

    def _ask(self, what: str, **how: Any) -> int | None:
        with self._asking:
            if self._server is None:
                self._server = subprocess.Popen(
                    [sys.executable, "-m", "tests.support.commands"],
                    cwd=self._root,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            assert self._server.stdin is not None
            assert self._server.stdout is not None
            print(json.dumps({"what": what, **how}), file=self._server.stdin, flush=True)
            answer = self._server.stdout.readline()
        assert answer, "the process that runs the commands has ended"
        told: int | None = json.loads(answer)
        return told

    def close(self) -> None:
        if self._server is not None:
            assert self._server.stdin is not None
            assert self._server.stdout is not None
            self._server.stdin.close()
            self._server.wait(60)
            self._server.stdout.close()
            self._server = None


COMMANDS = Commands(Path(__file__).resolve().parents[2])
"""of this process of tests"""


def main() -> int | None:
    """Answer each line of JSON with a line of JSON. A child returns from here as the program."""
    import diagnose.cli

    commands = [f"diagnose.cli.{module.name}" for module in pkgutil.iter_modules(diagnose.cli.__path__)]
    _import(*commands, *LATER)
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.set_inheritable(questions.fileno(), False)
    running: set[int] = set()
    for line in questions:
        asked = json.loads(line)
        what, seconds = asked["what"], asked.get("seconds")
        if what == "wait":
            status = _waited(asked["pid"], seconds)
            if status is not None:
                running.remove(asked["pid"])
            print(json.dumps(status), file=answers, flush=True)
            continue
        if asked["words"][:1] == ["serve"]:
            _import(_SERVICE)
        # Open in here: who is told of the child can rely on it that its streams are there.
        files = [_opened(path, stream) for stream, path in enumerate(asked["streams"])]
        child = os.fork()
        if child == 0:
            os.close(questions.fileno())
            os.close(answers.fileno())
            return _become(asked, files)
        for file in files:
            os.close(file)
        if what == "start":
            running.add(child)
            print(json.dumps(child), file=answers, flush=True)
            continue
        if (status := _waited(child, seconds)) is None:
            _end(child)
        print(json.dumps(status), file=answers, flush=True)
    for child in running:
        _end(child)
    return None


def _import(*names: str) -> None:
    """Import what is not there yet. It stays, so nobody need look whether it is garbage."""
    missing = [name for name in names if name not in sys.modules]
    if not missing:
        return
    gc.disable()
    for name in missing:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.enable()
    gc.collect()
    gc.freeze()


def _opened(path: str, stream: int) -> int:
    return os.open(path, (os.O_WRONLY | os.O_APPEND if stream else os.O_RDONLY) | os.O_NOCTTY)


def _become(asked: dict[str, Any], files: list[int]) -> int:
    """Be the program, from its first line on."""
    from diagnose.cli import main as program

    for stream, file in enumerate(files):
        os.dup2(file, stream)
        os.close(file)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    sys.argv = ["diagnose", *asked["words"]]
    return program()


def _waited(child: int, seconds: float) -> int | None:
    """The exit status of a child; None if it still runs after so many seconds."""
    ended = os.pidfd_open(child)
    try:
        if not select.select([ended], [], [], seconds)[0]:
            return None
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(ended)


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    sys.exit(main())
