"""Stacks of processes that stand still: of whom, and by which way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from diagnose.shipping import stacks
from diagnose.shipping.destination import Owner
from diagnose.shipping.pipes import Pipe

STANDS = """
import faulthandler, signal, subprocess, sys, time
if sys.argv[1] == "catches":
    faulthandler.register(signal.SIGUSR1)
if sys.argv[2:]:
    subprocess.Popen([sys.executable, "-c", sys.argv[2], "ignores"], env={"RANK": "3"})
def waits_here():
    print("stands", flush=True)
    time.sleep(60)
waits_here()
"""


@pytest.fixture
def standing() -> Iterator[subprocess.Popen[bytes]]:
    """A process that catches SIGUSR1, with a child that does not."""
    words = [sys.executable, "-c", STANDS, "catches", STANDS]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"stands\n"] * 2
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def test_only_who_catches_the_signal_gets_it(standing: subprocess.Popen[bytes]) -> None:
    parent, child = stacks.processes(standing.pid)
    assert (parent, stacks.rank_of(parent), stacks.rank_of(child)) == (standing.pid, None, 3)
    assert stacks.ask(standing.pid, signal.SIGUSR1) == 1
    assert standing.stderr is not None
    said = b""
    while b"waits_here" not in said:
        said += os.read(standing.stderr.fileno(), 1 << 16)
    assert standing.poll() is None
    assert (os.path.exists(f"/proc/{child}"), stacks.ask(child, signal.SIGUSR1)) == (True, 0)


def test_py_spy_sees_all_of_them(standing: subprocess.Popen[bytes]) -> None:
    dumps = list(stacks.look(standing.pid))
    if not dumps:
        pytest.skip("this machine does not let py-spy trace")
    assert [dump.rank for dump in dumps] == [None, 3]
    assert all("waits_here" in dump.text for dump in dumps)


@pytest.mark.parametrize(
    ("name", "number"),
    [("USR1", signal.SIGUSR1), ("sigusr2", signal.SIGUSR2), ("py-spy", None), ("never", None), ("", None)],
)
def test_names_of_signals(name: str, number: signal.Signals | None) -> None:
    assert stacks.signal_named(name) is number


def test_the_answer_to_a_signal_is_no_output_of_the_job() -> None:
    now = 0.0
    pipe, other = (Pipe(Owner("job", name), lambda: now) for name in ("s", stacks.stacks_of("s")))
    pipe.write(1, b"step 1\n")
    now = 100.0
    pipe.divert(other, 5.0)
    pipe.write(2, b"Thread 0x1 (most recent call first):\n")
    assert pipe.quiet_s == 100.0
    now = 106.0
    pipe.write(1, b"step 2\n")
    pieces = [one.read(1 << 20) for one in (pipe, other)]
    assert [piece.data for piece in pieces if piece is not None] == [
        b"step 1\nstep 2\n",
        b"Thread 0x1 (most recent call first):\n",
    ]
    assert pipe.quiet_s == 0.0


def test_stacks_have_a_source_of_their_own() -> None:
    assert stacks.is_stacks(stacks.stacks_of("gpu-1/rank0"))
    assert not stacks.is_stacks("gpu-1/rank0")
