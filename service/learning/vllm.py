"""vLLM next to the service: it is started, watched, started again when it fails, and stopped with the service.

The service does not wait for it: a large model takes minutes to load, and until then only the rules answer. Nothing that vLLM
does ends the service. ``VLLM.state`` and ``VLLM.problem`` say what it is doing, and its log has its output.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from diagnose.backoff import Backoff
from diagnose.errors import DiagnoseError
from service.net.client import Bounds, Client, Unreachable
from service.settings import Settings

log = logging.getLogger("diagnose.vllm")

State = Literal["stopped", "starting", "ready", "waiting"]

FLAGS = (
    # docs/vllm.md has the reasons. A later flag wins, so each can be given again.
    "--max-model-len=16384",
    "--enable-prefix-caching",
    '--structured-outputs-config={"backend": "xgrammar", "disable_any_whitespace": true}',
    "--generation-config=vllm",
    "--max-num-seqs=64",
    "--gpu-memory-utilization=0.90",
    "--disable-uvicorn-access-log",
)
_NO_REPORTS = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_BACKOFF = Backoff(2.0, 300.0)
_OURS = "DIAGNOSE_"
"""our variables hold tokens and the database's password, so vLLM must not have them"""
_SAID = re.compile(r"\b(?:[A-Z]\w*(?:Error|Exception)|error): ?\S.*")


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things may take, in seconds."""

    start_s: float = 7200
    """from its start until it answers: the weights may have to be fetched first"""
    look_s: float = 5
    """between two checks of its health"""
    look_timeout_s: float = 20
    looks: int = 4
    """after so many failed checks in a row it is ended"""
    backoff: Backoff = _BACKOFF
    """before it is started again"""
    steady_s: float = 600
    """after so long in order, the next pause is the first one again"""
    stop_s: float = 20
    """to end by itself, before it is killed"""
    log_bytes: int = 32 << 20
    """a longer log is set aside as ``….1``"""


class VLLM:
    """Our own vLLM server. Use it with ``async with``; the block is entered at once, ``wait_ready`` waits.

    ``command`` starts vLLM (default: the installed one). ``flags`` come after ours and win.
    """

    def __init__(
        self,
        model: str,
        log_file: Path,
        *,
        command: Sequence[str] | None = None,
        flags: Sequence[str] = (),
        gpus: int = 0,
        environment: Mapping[str, str] | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.model = model
        self.log_file = log_file
        self.state: State = "stopped"
        self.problem: str | None = None
        """why it is not there, or was not a moment ago; None if all is well"""
        self.restarts = 0
        self.pid: int | None = None
        """of the running process, which leads a group of all that it started"""
        self._pace = pace or Pace()
        self._command = tuple(command) if command is not None else (installed(),)
        self._flags = flags
        self._gpus = gpus
        self._environment = dict(os.environ if environment is None else environment)
        self._client = Client()
        self._port = 0
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._port = _free_port()
        (await asyncio.to_thread(self._open_log)).close()
        self.state = "starting"
        self._task = asyncio.create_task(self._keep_running())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self.state = "stopped"

    @property
    def url(self) -> str:
        """The endpoint's address for ``--llm``: the same after restarts."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def arguments(self) -> list[str]:
        """The whole command line."""
        here = ["--host", "127.0.0.1", "--port", str(self._port)]
        parallel = [f"--tensor-parallel-size={parallel_size(self._gpus)}"] if self._gpus > 1 else []
        return [*self._command, "serve", self.model, *here, *FLAGS, *parallel, *self._flags]

    async def wait_ready(self, timeout_s: float) -> bool:
        """Wait until it answers. Returns whether it did in time."""
        try:
            await asyncio.wait_for(self._ready.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    # -- the watch

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            self.state = "starting"
            began = time.monotonic()
            ready_at: float | None = None
            try:
                process = await self._start()
            except (OSError, DiagnoseError) as error:
                why = f"vLLM cannot be started: {error}"
            else:
                self.pid = process.pid
                try:
                    if await self._comes_up(process):
                        ready_at = time.monotonic()
                        self.state, self.problem = "ready", None
                        self._ready.set()
                        log.info("vLLM serves %s at %s after %.0f s", self.model, self.url, ready_at - began)
                        await self._goes_on(process)
                finally:
                    self._ready.clear()
                    ended_by_itself = process.returncode is not None
                    await self._end(process)
                    self.pid = None
                why = self._why(process, time.monotonic() - began, ready_at, ended_by_itself)
            if ready_at is not None and time.monotonic() - ready_at >= self._pace.steady_s:
                failures = 0
            failures += 1
            pause = self._pace.backoff.after(failures)
            self.state = "waiting"
            self.problem = f"{why}; starts again in {pause:g} s, its log is {self.log_file}"
            log.warning("%s", self.problem)
            await asyncio.sleep(pause)
            self.restarts += 1

    async def _start(self) -> Process:
        words = self.arguments
        if shutil.which("setpriv"):
            # A killed service cannot stop what it started, so the kernel does.
            words = ["setpriv", "--pdeathsig", "TERM", "--", *words]
        environment = {name: value for name, value in self._environment.items() if not name.startswith(_OURS)} | _NO_REPORTS
        with await asyncio.to_thread(self._open_log) as out:
            out.write(f"{_MARK}{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {' '.join(words)}\n".encode())
            return await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
            )

    async def _comes_up(self, process: Process) -> bool:
        until = time.monotonic() + self._pace.start_s
        while time.monotonic() < until:
            if await self._healthy():
                return True
            if await self._ended(process, min(1.0, self._pace.look_s)):
                return False
        return False

    async def _goes_on(self, process: Process) -> None:
        """Returns when it has ended, or no longer answers."""
        missed = 0
        while missed < self._pace.looks:
            if await self._ended(process, self._pace.look_s):
                return
            missed = 0 if await self._healthy() else missed + 1
            await asyncio.to_thread(self._trim_log)

    @staticmethod
    async def _ended(process: Process, within_s: float) -> bool:
        try:
            await asyncio.wait_for(process.wait(), within_s)
        except TimeoutError:
            return False
        return True

    async def _healthy(self) -> bool:
        bounds = Bounds(self._pace.look_timeout_s, most=1024)
        try:
            return (await self._client.ask("GET", f"http://127.0.0.1:{self._port}/health", bounds)).status == 200
        except Unreachable:
            return False

    async def _end(self, process: Process) -> None:
        """End it and all that it started: a worker that stays would keep the GPU's memory."""
        if process.returncode is None:
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), self._pace.stop_s)
        _signal_group(process.pid, signal.SIGKILL)
        await process.wait()
        # The memory is free a moment after they are gone.
        until = time.monotonic() + 5
        while await asyncio.to_thread(members, process.pid) and time.monotonic() < until:
            await asyncio.sleep(0.02)

    # -- what it said

    def _why(self, process: Process, seconds: float, ready_at: float | None, by_itself: bool) -> str:
        if not by_itself and ready_at is None:
            return f"vLLM did not answer within {seconds:.0f} s and was ended"
        if not by_itself:
            return "vLLM answered no more and was ended"
        code = process.returncode
        assert code is not None
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        said = self._last_error()
        return f"vLLM {how} after {seconds:.0f} s" + (f": {said}" if said else "")

    def _last_error(self) -> str | None:
        try:
            with self.log_file.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 20_000))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return None
        found = _SAID.findall(text.rpartition(_MARK)[2])
        return "".join(c if c.isprintable() else "·" for c in found[-1][:300]) if found else None

    def _open_log(self) -> io.FileIO:
        try:
            self.log_file.parent.mkdir(parents=True, exist_ok=True)
            self._trim_log()
            return io.FileIO(os.open(self.log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a")
        except OSError as error:
            raise DiagnoseError(
                f"vLLM's log cannot be written: {error.strerror}", where=str(self.log_file), remedy="name another folder"
            ) from None

    def _trim_log(self) -> None:
        with contextlib.suppress(OSError):
            if self.log_file.stat().st_size > self._pace.log_bytes:
                # vLLM has the file open for appending: its next output stands at the new beginning.
                shutil.copyfile(self.log_file, self.log_file.with_name(self.log_file.name + ".1"))
                os.truncate(self.log_file, 0)


def beside(settings: Settings) -> VLLM | None:
    """The server that these settings ask for, if any."""
    if not settings.with_vllm:
        return None
    try:
        flags = shlex.split(settings.vllm_flags)
    except ValueError as error:
        raise DiagnoseError(f"{error}", where="--vllm-flags", remedy="close every quote") from None
    return VLLM(settings.with_vllm, settings.data / "vllm.log", flags=flags, gpus=visible_gpus(os.environ))


_MARK = "--- diagnose starts "


def installed() -> str:
    """vLLM's command: next to our own Python, else on the PATH."""
    beside = Path(sys.executable).parent
    found = shutil.which("vllm", path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if found is None:
        raise DiagnoseError(
            "vLLM is not installed",
            where="--with-vllm",
            remedy="pip install 'diagnose-train[vllm]', or name a server that runs elsewhere with --llm URL",
        )
    return found


def visible_gpus(environment: Mapping[str, str], devices: Path = Path("/dev")) -> int:
    """How many GPUs a process with this environment may use."""
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return sum(1 for file in devices.glob("nvidia[0-9]*") if file.name[6:].isdigit())
    count = 0
    for device in named.split(","):
        if device.strip() in ("", "-1"):  # the driver stops at the first one that is no device
            break
        count += 1
    return count


def parallel_size(gpus: int) -> int:
    """Over how many of ``gpus`` a model is spread: a power of two, because it must divide the model's heads."""
    return 1 << (gpus.bit_length() - 1) if gpus > 0 else 1


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def members(group: int) -> list[int]:
    """The processes of a group, without dead ones that nobody has waited for yet."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its = file.read_text("utf-8", "replace").rpartition(")")[2].split()[:3]
            if int(its) == group and state != "Z":
                found.append(int(file.parent.name))
    return found


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
