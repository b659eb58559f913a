"""Programs that act for us: started without a shell, with limits for time and output, and ended when we end.

If we are killed, they are killed with all that they started, except for what left their process group. They must not act after
somebody else has looked at the cluster. A program that is interrupted may have done its work, so the caller is told that nobody
knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_BLOCK = 64 << 10
_LINGER_S = 1.0
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a program."""

    code: int | None
    """None: it did not end in time; negative: a signal ended it"""
    out: bytes
    problems: bytes


async def run(
    words: Sequence[str], *, environment: Mapping[str, str], timeout_s: float, largest: int, stdin: bytes | None = None
) -> Ended:
    """The result, with the first ``largest`` bytes of the output. Raises OSError if it cannot be started."""
    keeper = shutil.which("setpriv")
    before = [keeper, "--pdeathsig", "KILL", "--"] if keeper else []  # the kernel kills it with us, until it is watched
    process = await asyncio.create_subprocess_exec(
        *before, *words, stdin=PIPE if stdin is not None else DEVNULL, stdout=PIPE, stderr=PIPE, env=dict(environment),
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    out, problems = bytearray(), bytearray()
    pipes = asyncio.gather(
        _tell(process.stdin, stdin), _read(process.stdout, out, largest), _read(process.stderr, problems, largest)
    )
    try:
        with _watched(process.pid):
            async with asyncio.timeout(timeout_s):
                while process.returncode is None:  # wait() also waits for the pipes, which its own children may hold for ever
                    await asyncio.sleep(_LOOK_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LINGER_S):
                    await pipes
    except OSError:  # no time is left, or it cannot be watched
        return Ended(None, bytes(out), bytes(problems))
    finally:
        pipes.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pipes
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            while process.returncode is None:
                await asyncio.sleep(_LOOK_S)
        process._transport.close()  # type: ignore[attr-defined]  # nothing public lets go of its pipes
    return Ended(process.returncode, bytes(out), bytes(problems))


@contextlib.contextmanager
def _watched(group: int) -> Iterator[None]:
    """A shell kills the group when the shell's input ends. That also happens if we are killed."""
    words = ["/bin/sh", "-c", 'read -r _; kill -s KILL -- "-$0"', str(group)]
    with subprocess.Popen(  # noqa: S603 - nothing in it is from outside
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={}, start_new_session=True
    ) as watch:
        try:
            yield
        finally:
            watch.kill()  # before its input ends: what a program leaves behind on purpose may stay


async def _tell(pipe: asyncio.StreamWriter | None, text: bytes | None) -> None:
    if pipe is None or text is None:
        return
    with contextlib.suppress(ConnectionError):  # it need not read its input
        pipe.write(text)
        await pipe.drain()
    pipe.close()


async def _read(pipe: asyncio.StreamReader, into: bytearray, largest: int) -> None:
    """Read to the end, so that the program is not held up. What is too much is dropped."""
    while block := await pipe.read(_BLOCK):
        into += block[: max(0, largest - len(into))]
