"""Stack dumps as the tools really write them, and as they may arrive."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.reading.dumps.reader import BEGINNINGS, DumpReader, may_hold
from diagnose.reading.dumps.stacks import MOST_FRAMES, StackDump
from diagnose.reading.dumps.text import MOST_DUMPS

PROGRAM = """
import faulthandler, signal, sys, threading, time

def wait_in_vain():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def train_loop():
    wait_in_vain()

def loader():
    time.sleep(600)

faulthandler.enable()
faulthandler.register(signal.SIGUSR1)
if "later" in sys.argv:
    faulthandler.dump_traceback_later(0.3)
threading.Thread(target=loader, name="loader", daemon=True).start()
print("ready", flush=True)
train_loop()
"""
JAVA = """
public class Waits {
  static final Object lock = new Object();
  public static void main(String[] args) throws Exception {
    Thread holder = new Thread(() -> { synchronized (lock) { System.out.println("ready"); hold(); } }, "holder");
    holder.setDaemon(true);
    holder.start();
    Thread.sleep(300);
    synchronized (lock) { hold(); }
  }
  static void hold() { try { Thread.sleep(600000); } catch (InterruptedException e) { } }
}
"""


def dumps_of(text: str) -> list[StackDump]:
    data = text.encode("utf-8", "replace")
    assert may_hold(data)
    assert any(word in data for word in BEGINNINGS)
    reader = DumpReader()
    for line, row in enumerate(text.split("\n"), 1):
        reader.feed(line, row)
    return reader.dumps.stacks


def functions(dump: StackDump) -> list[str]:
    assert dump.main is not None
    return [frame.function for frame in dump.main.frames]


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process whose main thread waits for a lock, with a second thread that sleeps."""
    (tmp_path / "stuck.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "stuck.py", "later"], cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def tool(*command: str) -> str:
    """What a tool prints of a process; skips where there is no such tool, or where it may not look."""
    beside = os.path.dirname(sys.executable)  # what pip installs into an environment that nobody activated
    found = shutil.which(command[0]) or shutil.which(command[0], path=beside)
    if found is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([found, *command[1:]], capture_output=True, text=True, errors="replace", timeout=120)
    if done.returncode and not done.stdout.count("\n") > 5:
        pytest.skip(f"{command[0]} may not look at the process")
    return done.stdout


def test_faulthandler_when_time_runs_out_when_asked_and_when_the_process_dies(stuck: subprocess.Popen[str]) -> None:
    time.sleep(1.0)
    stuck.send_signal(signal.SIGUSR1)
    time.sleep(0.5)
    stuck.send_signal(signal.SIGABRT)
    _, text = stuck.communicate(timeout=60)
    later, asked, died = dumps_of(text)
    assert later.why.startswith("Timeout (0:00:00")
    assert (later.crashed, asked.crashed, died.crashed) == (False, False, True)
    assert died.why == "Aborted"
    for dump in (later, asked, died):
        assert functions(dump) == ["wait_in_vain", "train_loop", "<module>"]
    assert len(later.threads) == len(died.threads) == 2


def test_gdb(stuck: subprocess.Popen[str]) -> None:
    text = tool("gdb", "-p", str(stuck.pid), "-batch", "-ex", "thread apply all bt", "-ex", "info threads")
    first = dumps_of(text)[0]
    assert first.tool == "gdb"
    assert {thread.number for thread in first.threads} >= {1, 2}, "and that of faulthandler, where it has not ended"
    assert any("lock" in name.lower() or "wait" in name for name in functions(first)[:9])
    assert "main" in " ".join(functions(first))


def test_gdb_shows_functions_of_cplusplus_with_the_types_of_their_arguments() -> None:
    text = """Thread 1 (Thread 0x7feed0015b80 (LWP 22410) "python"):
#0  ___pthread_cond_wait (cond=0x561e2e0c2888, mutex=0x561e2e0c2860) at ./nptl/pthread_cond_wait.c:618
#1  0x00007feeb86a741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/libstdc++.so.6
#2  0x00007feebf16984b in c10d::Work::wait(std::chrono::duration<long, std::ratio<1l, 1000l> >) () from /lib/libtorch.so
#3  zorch::Queue<float>::size() const (this=0x1) at queue.cc:12
"""
    (dump,) = dumps_of(text)
    assert [frame.function for frame in dump.threads[0].frames] == [
        "___pthread_cond_wait",
        "std::condition_variable::wait",
        "c10d::Work::wait",
        "zorch::Queue<float>::size",
    ]


def test_eu_stack(stuck: subprocess.Popen[str]) -> None:
    (dump,) = dumps_of(tool("eu-stack", "-p", str(stuck.pid)))
    assert (dump.tool, dump.pid) == ("eu-stack", stuck.pid)
    assert len(dump.threads) >= 2
    assert len(functions(dump)) > 5


def test_py_spy(stuck: subprocess.Popen[str]) -> None:
    (dump,) = dumps_of(tool("py-spy", "dump", "--pid", str(stuck.pid)))
    assert (dump.tool, dump.pid) == ("py-spy", stuck.pid)
    assert functions(dump) == ["wait_in_vain", "train_loop", "<module>"]


def test_a_java_machine_that_is_asked_to_quit(tmp_path: Path) -> None:
    if shutil.which("java") is None or shutil.which("javac") is None:
        pytest.skip("Java is not installed")
    (tmp_path / "Waits.java").write_text(JAVA)
    process = subprocess.Popen(["java", "Waits.java"], cwd=tmp_path, text=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.5)
    process.send_signal(signal.SIGQUIT)
    time.sleep(1.5)
    process.kill()
    text, _ = process.communicate(timeout=60)
    (dump,) = dumps_of(text)
    assert dump.tool == "jstack"
    assert dump.main is not None
    assert dump.main.state == "BLOCKED"
    assert functions(dump)[0] == "Waits.main"


# --- as documented, where no tool can be asked for it ------------------------------------------------------------------------


def test_py_spy_with_native_frames_locals_and_the_headers_of_its_versions() -> None:
    # py-spy 0.3 and 0.4, --native and --locals; the thread's header of 0.1 has no name.
    first, second = dumps_of(
        """Process 4711: python train.py --lr 0.1
Python v3.11.7 (/usr/bin/python3.11)

Thread 4711 (active+gil): "MainThread"
    cudaStreamSynchronize (libcudart.so.12)
    0x7f841c6aed90 (libc.so.6)
    train (train.py:88)
        Arguments:
            batch: "x"
        Locals:
            loss: 1.5
    <module> (train.py:120)
Process 4712: python train.py
Python v3.8.12 (/usr/bin/python3.8)

Thread 0x7F5C (idle)
    worker (pool.py:3)
"""
    )
    assert functions(first) == ["cudaStreamSynchronize", "0x7f841c6aed90", "train", "<module>"]
    assert (first.pid, first.command, second.pid) == (4711, "python train.py --lr 0.1", 4712)
    assert functions(second) == ["worker"]


def test_the_newer_headers_of_faulthandler() -> None:
    # CPython 3.14 names threads; 3.13 may not know a line; "Stack" stands where only one thread is asked for.
    first, second = dumps_of(
        """Thread 0x00007f01 [loader] (most recent call first):
  File "/app/data.py", line ??? in fetch
Thread 0x00007f02 [python] (most recent call first):
  File "/app/train.py", line 9 in <module>
some other line
Timeout (0:05:00)!
Stack (most recent call first):
  File "/app/train.py", line 12 in step
"""
    )
    assert [thread.name for thread in first.threads] == ["loader", "python"]
    assert functions(first) == ["<module>"]
    assert functions(second) == ["step"]


def test_a_core_that_gdb_opens_is_of_a_process_that_died() -> None:
    (dump,) = dumps_of(
        "Core was generated by `python train.py'.\nProgram terminated with signal SIGSEGV, Segmentation fault.\n"
        "#0  0x00007f01 in run_kernel (x=3) at kernel.cc:10\n#1  0x00007f02 in main () at main.cc:3\n"
    )
    assert dump.crashed
    assert functions(dump) == ["run_kernel", "main"]


# --- hostile, or simply large ------------------------------------------------------------------------------------------------


def test_deep_stacks_many_dumps_and_long_lines_are_bounded() -> None:
    deep = "".join(f'  File "/app/a.py", line {n} in f{n}\n' for n in range(5_000))
    text = f"Current thread 0x01 (most recent call first):\n{deep}" * 3 + "Thread 0x02 (most recent call first):\n" * 3
    for dump in dumps_of(text):
        assert all(len(thread.frames) <= MOST_FRAMES for thread in dump.threads)
    many = 'Timeout (0:00:05)!\nThread 0x01 (most recent call first):\n  File "/app/a.py", line 1 in f\n' * 5_000
    assert len(dumps_of(many)) == MOST_DUMPS
    begun = time.monotonic()
    for open_ in ("(", " ", "Thread 0x", '"', "#0 0x0 in f (", "x="):
        dumps_of(f"Thread 0x01 (most recent call first):\n    {open_ * 60_000}\n#0  0x00 in {open_ * 60_000}\n")
    assert time.monotonic() - begun < 20


def test_bytes_that_are_no_text_do_no_harm() -> None:
    text = (b'Thread 0x01 (most recent call first):\n  File "\xff\xfe\x00", line 99999999999999999999 in \xff\n' * 3).decode(
        "utf-8", "replace"
    )
    assert dumps_of(text)


def test_lines_of_a_program_are_no_dump() -> None:
    reader = DumpReader()
    for line, text in enumerate(
        ("Process 12: done", "Python version is 3.11", "Thread pool is up", "#0 is the first", "Timeout is 5", "TID"), 1
    ):
        assert not reader.feed(line, text)
    assert not reader.dumps
