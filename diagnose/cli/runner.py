"""``diagnose runner``: sends growing logs, or what a command prints, to a service. What cannot be sent now waits on disk.

With ``--act`` it goes the other way: it takes approved orders from the service and carries them out here.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

from diagnose.cli import printable
from diagnose.cli.options.destination import add_job, add_service, address, count, destination, token
from diagnose.errors import DiagnoseError
from diagnose.shipping.destination import Destination, Owner
from diagnose.shipping.patterns import Pattern
from diagnose.shipping.pipes import Pipe, pump
from diagnose.shipping.runner import Found, Runner
from diagnose.shipping.spool import Spool, default_folder
from diagnose.shipping.stacks import ask, look, signal_named, stacks_of

_INTERVAL_S = 0.5
_ANSWER_S = 5.0
"""so long after a signal, what the command prints is the answer to it"""
_MOST_STACKS = 2
_PACKED = (".gz", ".zst", ".xz", ".bz2")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "diagnose runner --to URL [options] PATH...\n"
        "       diagnose runner --to URL [options] -- COMMAND...\n"
        "       diagnose runner --to URL --act [--executors FILE | -- COMMAND...]"
    )
    parser.description = (
        "Send logs to a service as they grow: files (PATH), or what a command prints (-- COMMAND). "
        "Or carry out the service's approved actions (--act). Log bytes that the service cannot take now wait on disk."
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="log file, file name pattern, or output pattern of Slurm, for example /logs/%%x-%%j.out",
    )
    add_service(parser)
    job = parser.add_argument_group("the job")
    job.add_argument(
        "--job", metavar="ID", help="the job that the logs belong to (default: from the pattern, or $SLURM_JOB_ID)"
    )
    add_job(job)
    job.add_argument("--node", metavar="NAME", help="node that writes the files, if each node has files of its own")
    job.add_argument(
        "--rank", type=count, metavar="N", help="rank of the process that prints (default: from file names, or $SLURM_PROCID)"
    )
    job.add_argument(
        "--report-end",
        choices=("auto", "always", "never"),
        default="auto",
        help="whether the command's exit code is sent as the end of the job (default: auto, if it is the job's only task)",
    )
    standing = parser.add_argument_group(
        "a command that stands still", "If the service thinks so, the runner sends the stacks of its processes (docs/hangs.md)."
    )
    standing.add_argument(
        "--stacks",
        metavar="HOW",
        default="py-spy",
        help="py-spy (needs the right to trace), never, or a signal such as USR1: sent to processes that catch it, which must "
        "then print their stacks with faulthandler.register (default: py-spy)",
    )
    standing.add_argument(
        "--stacks-after",
        type=count,
        metavar="SECONDS",
        default=60,
        help="ask the service when the command has printed nothing for so long, and again every half of it (default: 60)",
    )
    sending = parser.add_argument_group("sending")
    sending.add_argument(
        "--since",
        type=count,
        metavar="SECONDS",
        default=3600,
        help="skip files of a pattern that were not written for this long (default: 3600; 0 takes all files)",
    )
    sending.add_argument(
        "--once", action="store_true", help="send what is there now, and exit with status 0 if the service has all of it"
    )
    sending.add_argument(
        "--flush", type=count, metavar="SECONDS", default=20, help="how long to go on sending before the exit (default: 20)"
    )
    sending.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="folder for log bytes that wait and for how far each file was sent (default: ~/.local/state/diagnose/runner)",
    )
    sending.add_argument(
        "--spool-limit",
        type=count,
        metavar="MIB",
        default=1024,
        help="maximum MiB of log bytes that wait on disk, compressed (default: 1024)",
    )
    acting = parser.add_argument_group(
        "carrying out actions", "The runner takes approved actions from the service, and carries them out (docs/executors.md)."
    )
    acting.add_argument(
        "--act", action="store_true", help="carry out actions, and send no logs; the token needs the role operate"
    )
    acting.add_argument(
        "--executors", metavar="FILE", type=Path, help="file of the executors that do it (default: $DIAGNOSE_EXECUTORS)"
    )
    acting.add_argument(
        "--repeatable",
        action="store_true",
        help="say that COMMAND may be started again for the same action, because it checks first what is already done",
    )
    acting.add_argument("--dry-run", action="store_true", help="only print what would be done")


def run(arguments: argparse.Namespace) -> int:
    command: list[str] = arguments.command_to_run
    if arguments.act:
        return _act(arguments, command)
    if command:
        if arguments.paths:
            raise DiagnoseError(
                "a runner takes files or a command, and not both", remedy="start two runners, each with its own --state"
            )
        return _Wrapping(arguments, command).run()
    return _Tailing(arguments).run()


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"diagnose runner: {printable(text)}\n")
        sys.stderr.flush()


def _act(arguments: argparse.Namespace, command: list[str]) -> int:
    import asyncio
    import logging

    from service.acting import remote
    from service.acting.executors import configuration
    from service.acting.executors.http import Server

    file: Path | None = arguments.executors
    if file is None and not command and os.environ.get("DIAGNOSE_EXECUTORS"):
        file = Path(os.environ["DIAGNOSE_EXECUTORS"])
    if arguments.paths or (file is None) == (not command):
        raise DiagnoseError(
            "--act needs exactly one way to carry out actions, and no logs",
            remedy="give --executors FILE, or a command after --",
        )
    executors = configuration.load(file) if file else (configuration.of_command(command, arguments.repeatable),)
    executors = tuple(replace(one, dry_run=one.dry_run or arguments.dry_run) for one in executors)
    url = address(arguments)
    server = Server(url if "://" in url else f"http://{url}", ca=Path(arguments.ca) if arguments.ca else None)
    edge = logging.StreamHandler()
    edge.emit = lambda record: _say(record.getMessage())  # type: ignore[method-assign]
    logging.basicConfig(level=logging.INFO, handlers=[edge])

    async def work(name: str) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        orders = remote.Remote(server, lambda: token(arguments), name)
        await remote.act(orders, executors, name, stop, once=arguments.once)

    with remote.held(arguments.state or default_folder() / "acting") as name:
        asyncio.run(work(name))
    return 0


class _Tailing:
    """Sends files as they grow, until SIGTERM."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._patterns = [Pattern(os.path.abspath(path)) for path in arguments.paths]
        if not self._patterns and not arguments.once:
            raise DiagnoseError("there is nothing to send", remedy="give files or patterns, or a command after --")
        self._job = arguments.job or os.environ.get("SLURM_JOB_ID")
        for pattern in self._patterns:
            if not pattern.names_jobs and not self._job:
                raise DiagnoseError(
                    "this pattern does not tell which job a file belongs to",
                    where=pattern.text,
                    remedy="give --job, or a pattern with %j (or %A and %a) in it",
                )
        self._stop = threading.Event()
        self._known: set[str] = set()

    def run(self) -> int:
        arguments = self._arguments
        service = destination(arguments)
        spool = Spool(arguments.state or default_folder(), arguments.spool_limit << 20)
        self._known = set(spool.files())
        runner = Runner(service, spool, self._find, say=_say)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stopped)
        with contextlib.closing(spool), contextlib.closing(runner):
            while not self._stop.is_set() and not arguments.once:
                if not runner.step():
                    self._stop.wait(_INTERVAL_S)
            done = runner.flush(time.monotonic() + arguments.flush)
            if not done:
                _say(f"the service did not get everything: {spool.bytes:,} bytes wait in {arguments.state or default_folder()}")
            return 0 if done or not arguments.once else 1

    def _stopped(self, number: int, frame: FrameType | None) -> None:
        self._stop.set()

    def _find(self) -> Iterator[Found]:
        arguments = self._arguments
        for pattern in self._patterns:
            for path in pattern.files():
                if path not in self._known:
                    if path.endswith(_PACKED) or not self._lately(path):
                        continue
                    self._known.add(path)
                fields = pattern.fields(path)
                job = fields.job if pattern.names_jobs else self._job
                if job is None:
                    continue
                user = fields.user or _owner_of(path)
                labels = {**({"user": user} if user else {}), **dict(arguments.label)}
                source = f"{arguments.node}:{path}" if arguments.node else path
                rank = fields.rank if fields.rank is not None else arguments.rank
                yield Found(path, Owner(job, source, arguments.attempt, rank, fields.node or arguments.node, labels))

    def _lately(self, path: str) -> bool:
        try:
            return os.path.isfile(path) and (
                not self._arguments.since or time.time() - os.stat(path).st_mtime < self._arguments.since
            )
        except OSError:
            return False


def _owner_of(path: str) -> str | None:
    """Who has written a file, so that no user's file speaks for another user's job."""
    try:
        owner = os.stat(path).st_uid
        return pwd.getpwuid(owner).pw_name if owner else None
    except (OSError, KeyError):
        return None


class _Wrapping:
    """Runs a command, sends what it prints, and exits with its exit status."""

    def __init__(self, arguments: argparse.Namespace, command: list[str]) -> None:
        self._arguments, self._command = arguments, command
        environment = os.environ
        self._job = arguments.job or environment.get("SLURM_JOB_ID")
        if not self._job:
            raise DiagnoseError("the job is missing", remedy="give --job ID, or start the runner in a Slurm job")
        self._rank = arguments.rank if arguments.rank is not None else _number(environment, "SLURM_PROCID", "RANK")
        restarts = _number(environment, "SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT")
        self._attempt = arguments.attempt
        if self._attempt is None and restarts is not None:
            self._attempt = restarts + 1
        node = arguments.node or environment.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
        name = node if self._rank is None else f"{node}/rank{self._rank}"
        # If the attempt is not known, a second run needs a source name of its own.
        run = "" if self._attempt is not None else time.strftime("@%Y%m%dT%H%M%S", time.gmtime()) + f".{os.getpid()}"
        self._owner = Owner(self._job, name + run, self._attempt, self._rank, node, dict(arguments.label))
        self._process: subprocess.Popen[bytes] | None = None
        self._signal = signal_named(arguments.stacks)
        if self._signal is None and arguments.stacks not in ("py-spy", "never"):
            raise DiagnoseError(
                "this is no way to take stacks", where=arguments.stacks, remedy="give py-spy, never, or a signal such as USR1"
            )
        self._stacks: dict[int | None, Pipe] = {}
        self._stacks_at = 0.0
        self._taken = 0

    def run(self) -> int:
        arguments = self._arguments
        service = destination(arguments)
        own = arguments.state is None
        folder = arguments.state or default_folder() / "commands" / f"{self._job}.{os.getpid()}"
        spool = Spool(folder, arguments.spool_limit << 20)
        runner = Runner(service, spool, list, say=_say)
        pipe = Pipe(self._owner)
        runner.add(pipe)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._forward)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - to run it is what we were asked for
                self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
            )
        except OSError as error:
            spool.close()
            raise DiagnoseError(
                f"cannot be run: {error.strerror}",
                where=self._command[0],
                remedy="check the command after --; it is started without a shell",
            ) from None
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None
        assert stderr is not None
        pumping = pump(stdout, stderr, pipe)  # type: ignore[arg-type]
        with contextlib.closing(spool), contextlib.closing(runner):
            while self._process.poll() is None:
                if not runner.step():
                    self._take_stacks(service, runner, pipe)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(_INTERVAL_S)
            pumping.join(5)  # a grandchild may hold the pipe for ever
            code = self._process.returncode
            code = code if code >= 0 else 128 - code
            pipe.close(1)
            pipe.close(2)
            if self._ends_the_job():
                spool.put_end(self._owner.job, self._attempt, code)
            done = runner.flush(time.monotonic() + arguments.flush)
            if not done:
                _say(
                    f"{spool.bytes:,} bytes wait; send them with: diagnose runner --to {service.shown} --once --state {folder}"
                )
        if own and done:
            shutil.rmtree(folder, ignore_errors=True)
        return code

    def _take_stacks(self, service: Destination, runner: Runner, pipe: Pipe) -> None:
        """If the command stands still and the service wants to know where, send the stacks of its processes: twice, as two
        sets show who still moves.
        """
        after, now = float(self._arguments.stacks_after), time.monotonic()
        if pipe.quiet_s < after:
            self._taken = 0
            return
        if self._arguments.stacks == "never" or runner.away or self._taken >= _MOST_STACKS or now < self._stacks_at:
            return
        self._stacks_at = now + after / 2
        if self._process is None or not service.wants_stacks(self._owner.job, self._attempt):
            return
        self._taken += 1
        if self._signal is not None:
            into = self._stacks_pipe(runner, self._owner.rank)
            pipe.divert(into, _ANSWER_S)
            if not ask(self._process.pid, self._signal):
                _say(f"no process of the command catches {self._signal.name}: no stacks were taken")
            return
        dumps = list(look(self._process.pid))
        for dump in dumps:
            rank = dump.rank if dump.rank is not None else self._owner.rank
            self._stacks_pipe(runner, rank).write(1, dump.text.encode() + b"\n")
        if not dumps:
            _say("no stacks were taken: py-spy is missing, or may not trace the command (root or SYS_PTRACE)")

    def _stacks_pipe(self, runner: Runner, rank: int | None) -> Pipe:
        """The source for the stacks of a rank."""
        known = self._stacks.get(rank)
        if known is None:
            owner = self._owner
            base = owner.source if rank == owner.rank else f"{owner.source}/rank{rank}"
            known = self._stacks[rank] = Pipe(replace(owner, source=stacks_of(base), rank=rank))
            runner.add(known)
        return known

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _ends_the_job(self) -> bool:
        if self._arguments.report_end != "auto":
            return bool(self._arguments.report_end == "always")
        return all(os.environ.get(name, "1") == "1" for name in ("SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"))


def _number(environment: os._Environ[str], *names: str) -> int | None:
    for name in names:
        text = environment.get(name, "")
        if text.isascii() and text.isdecimal():
            return int(text)
    return None
