"""Runs ``diagnose`` again and again, each time in a child of one process that has imported once what takes long to import.

A child is nearly as good as a new process: it has its own memory, its own three streams, folder and environment, and ends as
the program ends. It has the umask, the limits and the hash seed of that process. What is read when a program starts is not read
again, so ``Commands`` refuses variables of that kind. The same goes for a little that is worked out of the shipped files.
"""

from __future__ import annotations

import contextlib
import ctypes
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
_WORKED_OUT = (
    ("diagnose.diagnosis.subjects", "_vocabulary"),
    ("diagnose.decision.policy_file", "shipped_policy"),
    ("diagnose.knowledge.metrics", "shipped_metrics"),
)
"""what the first question of nearly every command works out of the shipped files, each time the same"""
_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_TUNABLES", "OMP_", "OPENBLAS_")
_LEAVE_S = 10.0
"""so long the process of the commands may take to end"""
_DIE_WITH_PARENT = 1
"""of ``prctl``"""


def needs_a_start(environment: Mapping[str, str]) -> list[str]:
    """Variables that act when a program starts, so that no child of ours can have them: run the program by subprocess."""
    return [name for name in environment if name.startswith(_AT_START)]


class Started:
    """A command that still runs: as much of ``subprocess.Popen`` as tests of servers need."""

    def __init__(self, commands: Commands, pid: int, stdout: IO[str]) -> None:
        self._commands = commands
        self._status: int | None = None
        self.pid = pid
        """nobody else has it until ``wait`` has its status"""
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
    """The process that the commands are children of. It is started by the first command, and answers each question at once.

    Questions have numbers: a test that is stopped by its time limit may leave an answer that nobody has read.
    """

    def __init__(self, root: Path) -> None:
        self.serve = False
        """the services of ``tests.support.servers`` are such children, too: what measures one starts it as a user does"""
        self._root = root
        self._server: subprocess.Popen[str] | None = None
        self._asking = threading.Lock()
        self._asked = 0

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
            pid = self._start(words, cwd, paths, environment)
            status = self.status_of(pid, timeout_s)
            if status is None:
                os.kill(pid, signal.SIGKILL)
                self.status_of(pid, _LEAVE_S)
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
            pid = self._start(words, cwd, [os.devnull, str(stdout), str(log)], environment)
        return Started(self, pid, os.fdopen(reading))

    def status_of(self, pid: int, timeout_s: float) -> int | None:
        """The exit status of a command that was started; None if it still runs."""
        ended = os.pidfd_open(pid)
        try:
            if not select.select([ended], [], [], timeout_s)[0]:
                return None
        finally:
            os.close(ended)
        return self._ask("status", pid=pid)

    def close(self) -> None:
        """End it, and what still runs of its children."""
        server, self._server = self._server, None
        if server is None:
            return
        assert server.stdin is not None
        assert server.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"what": "end"}), file=server.stdin, flush=True)
        try:
            server.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        with contextlib.suppress(BrokenPipeError):
            server.stdin.close()
        server.stdout.close()

    def _start(self, words: Sequence[str], cwd: Path, streams: list[str], environment: Mapping[str, str]) -> int:
        assert not (wrong := needs_a_start(environment)), f"{wrong} act when a program starts: run it by subprocess"
        whole = {**os.environ, "PYTHONPATH": str(self._root), **environment}
        pid = self._ask("start", words=list(words), cwd=str(cwd), streams=streams, environment=whole)
        assert pid > 1  # a signal to 0 or to -1 would reach others
        return pid

    def _ask(self, what: str, **how: Any) -> int:
        with self._asking:
            if self._server is None or self._server.poll() is not None:
                self._server = subprocess.Popen(
                    [sys.executable, "-m", "tests.support.commands"],
                    cwd=self._root,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            assert self._server.stdin is not None
            assert self._server.stdout is not None
            self._asked += 1
            print(json.dumps({"number": self._asked, "what": what, **how}), file=self._server.stdin, flush=True)
            while answer := self._server.stdout.readline():
                number, told, problem = json.loads(answer)
                if number == self._asked:
                    break
            else:
                raise AssertionError("the process that runs the commands has ended")
        assert not problem, problem
        return int(told)


COMMANDS = Commands(Path(__file__).resolve().parents[2])
"""of this process of tests"""


def main() -> int | None:
    """Answer each line of JSON with a line of JSON: (its number, what was asked for, a problem). A child returns from here as
    the program.
    """
    import diagnose.cli

    commands = [f"diagnose.cli.{module.name}" for module in pkgutil.iter_modules(diagnose.cli.__path__)]
    _import(*commands, *LATER)
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.set_inheritable(questions.fileno(), False)
    running: set[int] = set()
    for line in questions:
        asked = json.loads(line)
        told, problem = 0, ""
        match asked["what"]:
            case "end":
                break
            case "status":
                told = os.waitstatus_to_exitcode(os.waitpid(asked["pid"], 0)[1])
                running.remove(asked["pid"])
            case "start":
                if asked["words"][:1] == ["serve"]:
                    _import(_SERVICE)
                files: list[int] = []
                try:  # open in here: who is told of the child can rely on it that its streams are there
                    files += [_opened(path, stream) for stream, path in enumerate(asked["streams"])]
                    parent = os.getpid()
                    told = os.fork()
                except OSError as error:
                    problem = str(error)
                else:
                    if told == 0:
                        os.close(questions.fileno())
                        os.close(answers.fileno())
                        return _become(asked, files, parent)
                    running.add(told)
                for file in files:
                    os.close(file)
        print(json.dumps([asked["number"], told, problem]), file=answers, flush=True)
    for child in running:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
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
    for module, function in _WORKED_OUT:
        getattr(importlib.import_module(module), function)()
    importlib.import_module("diagnose.matching.matcher").Matcher(importlib.import_module("diagnose.knowledge.rules").load())
    gc.enable()
    gc.collect()
    gc.freeze()


def _opened(path: str, stream: int) -> int:
    return os.open(path, (os.O_WRONLY | os.O_APPEND if stream else os.O_RDONLY) | os.O_NOCTTY)


def _become(asked: dict[str, Any], files: list[int], parent: int) -> int:
    """Be the program, from its first line on."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it was killed just before that
        os._exit(1)
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


if __name__ == "__main__":
    sys.exit(main())
