"""One piece of work as a process: what is in its place is whole, and nothing runs on unseen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diagnose.evaluate.carry import CANNOT_START, STOPPED, WROTE_NOTHING, Order, alive, carry_out, nobody_alive, read
from tests.conftest import ROOT


def order(folder: Path, *command: str) -> Order:
    outputs = folder / "scratch" / "1" / "outputs"
    moves = ((str(outputs), str(folder / "trials" / "a" / "0-10")),)
    return Order(
        "trial/a/0-10#1", command, str(folder), str(folder / "scratch" / "1"), str(outputs), str(folder / "log"), moves
    )


def shell(folder: Path, script: str) -> Order:
    return order(folder, "sh", "-c", script.replace("OUT", str(folder / "scratch" / "1" / "outputs")))


def test_what_ended_well_is_in_its_place(tmp_path: Path) -> None:
    assert carry_out(shell(tmp_path, "echo said; echo 1 > OUT/x")) == 0
    assert (tmp_path / "trials/a/0-10/x").read_text() == "1\n"
    assert (tmp_path / "log").read_text() == "said\n"
    assert not (tmp_path / "scratch" / "1").exists()


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("echo 1 > OUT/x; exit 3", 3),
        ("echo 1 > OUT/x; kill -9 $$", 137),
        ("true", WROTE_NOTHING),
        ("rmdir OUT; ln -s / OUT", WROTE_NOTHING),
    ],
    ids=["fails", "killed", "writes nothing", "a link to elsewhere"],
)
def test_what_did_not_is_not(tmp_path: Path, script: str, status: int) -> None:
    assert carry_out(shell(tmp_path, script)) == status
    assert not os.path.lexists(tmp_path / "trials/a/0-10")


def test_a_program_that_is_not_there_is_told_in_the_log(tmp_path: Path) -> None:
    assert carry_out(order(tmp_path, "no-such-program")) == CANNOT_START
    assert "no-such-program cannot be started" in (tmp_path / "log").read_text()


def test_who_was_first_stays(tmp_path: Path) -> None:
    (tmp_path / "trials/a/0-10").mkdir(parents=True)
    (tmp_path / "trials/a/0-10/x").write_text("first")

    assert carry_out(shell(tmp_path, "echo second > OUT/x")) == 0
    assert (tmp_path / "trials/a/0-10/x").read_text() == "first"


def test_an_order_is_the_same_after_it_was_written(tmp_path: Path) -> None:
    one = order(tmp_path, "a b", "ü", "")
    assert read(one.text()) == one


def test_it_is_nicer_than_who_started_it(tmp_path: Path) -> None:
    """An evaluation gives way also to who runs at a low priority already."""
    path = tmp_path / "order.json"
    path.write_text(shell(tmp_path, "nice > OUT/x").text())
    command = ["nice", "-n", "3", sys.executable, "-m", "diagnose.evaluate.carry", str(path)]
    assert subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode == 0
    assert int((tmp_path / "trials/a/0-10/x").read_text()) == min(os.nice(0) + 3 + 5, 19)


def test_who_takes_over_waits_until_nobody_works(tmp_path: Path) -> None:
    with alive(tmp_path):
        assert not nobody_alive(tmp_path, 0.1)
    assert nobody_alive(tmp_path, 0)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["told to stop", "killed"])
def test_its_command_ends_with_it(tmp_path: Path, how: signal.Signals) -> None:
    path = tmp_path / "order.json"
    path.write_text(shell(tmp_path, f"echo $$ > {tmp_path}/pid; sleep 60 & wait").text())
    process = subprocess.Popen([sys.executable, "-m", "diagnose.evaluate.carry", str(path)], cwd=ROOT)
    until = time.monotonic() + 30
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < until
        time.sleep(0.02)

    process.send_signal(how)

    assert process.wait(30) == (STOPPED if how == signal.SIGTERM else -9)
    command = int((tmp_path / "pid").read_text())
    while Path(f"/proc/{command}").exists() and "zombie" not in Path(f"/proc/{command}/status").read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
