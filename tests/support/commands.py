"""Runs ``diagnose`` again and again, each time in a child of one process that has imported once what takes long to import.

A child is as good as a new process: it has its own memory, its own three streams, folder and environment, and ends as the
program ends. What Python reads when it starts is not read again, so ``Commands.run`` refuses variables of that kind.
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
import time
from pathlib import Path
from typing import Any

LATER = ("diagnose.learning.rule_store", "diagnose.verification.proposals", "service.store", "hyperscan", "regex", "zstandard")
"""what commands import only when they are called, besides their own modules"""
_AT_START = ("PYTHON", "LC_", "LANG", "LD_")


class Commands:
    """The process that the commands are children of. It is started by the first command."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._server: subprocess.Popen[str] | None = None

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
        wrong = [name for name in environment if name.startswith(_AT_START)]
        assert not wrong, f"{wrong} act when Python starts: run the program by subprocess"
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            streams = [folder / "0", folder / "1", folder / "2"]
            streams[0].write_bytes(stdin or b"")
            for stream in streams[1:]:
                stream.touch()
            asked = {
                "words": words,
                "cwd": str(cwd),
                "streams": [terminal or str(streams[0]), terminal or str(streams[1]), str(streams[2])],
                "environment": {**os.environ, "PYTHONPATH": str(self._root), **environment},
                "seconds": timeout_s,
            }
            status = self._ask(asked)
            if status is None:
                raise subprocess.TimeoutExpired(["diagnose", *words], timeout_s)
            said = [stream.read_bytes().decode("utf-8", "replace") for stream in streams[1:]]
        return subprocess.CompletedProcess(["diagnose", *words], status, *said)

    def _ask(self, asked: dict[str, Any]) -> int | None:
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
        print(json.dumps(asked), file=self._server.stdin, flush=True)
        answer = self._server.stdout.readline()
        assert answer, "the process that runs the commands has ended"
        status: int | None = json.loads(answer)
        return status

    def close(self) -> None:
        if self._server is not None:
            assert self._server.stdin is not None
            assert self._server.stdout is not None
            self._server.stdin.close()
            self._server.wait(60)
            self._server.stdout.close()


def main() -> int | None:
    """Answer each line of JSON with an exit status, or null if it took too long. A child returns from here as the program."""
    import diagnose.cli

    commands = [f"diagnose.cli.{module.name}" for module in pkgutil.iter_modules(diagnose.cli.__path__)]
    for name in (*commands, *LATER):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.set_inheritable(questions.fileno(), False)
    for line in questions:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            os.close(questions.fileno())
            os.close(answers.fileno())
            return _become(asked)
        print(json.dumps(_waited(child, asked["seconds"])), file=answers, flush=True)
    return None


def _become(asked: dict[str, Any]) -> int:
    """Be the program, from its first line on."""
    from diagnose.cli import main as program

    for stream, path in enumerate(asked["streams"]):
        file = os.open(path, (os.O_WRONLY if stream else os.O_RDONLY) | os.O_NOCTTY)
        os.dup2(file, stream)
        os.close(file)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    sys.argv = ["diagnose", *asked["words"]]
    return program()


def _waited(child: int, seconds: float) -> int | None:
    ended = os.pidfd_open(child)
    try:
        if not select.select([ended], [], [], seconds)[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(ended)


if __name__ == "__main__":
    sys.exit(main())
