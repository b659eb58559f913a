"""Shipping: nothing lost, nothing doubled, whatever happens to the service, to the files and to the runner itself."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diagnose.errors import DiagnoseError
from diagnose.shipping.destination import PIECE, Away, Destination, Mismatch, Owner, Refusal
from diagnose.shipping.patterns import Fields, Pattern
from diagnose.shipping.pipes import Pipe, pump
from diagnose.shipping.runner import Found, Runner
from diagnose.shipping.spool import FileState, Spool
from diagnose.shipping.tails import Tail
from tests.conftest import ROOT, Run
from tests.support.box import Box

OWNER = Owner("run7", "rank0.log")


@pytest.fixture
def box() -> Iterator[Box]:
    made = Box().start()
    yield made
    made.stop()


def lines(count: int, first: int = 0) -> bytes:
    return b"".join(b"step %d loss %.3f\n" % (i, 2 + i % 7 / 10) for i in range(first, first + count))


# --- the destination


def test_a_piece_arrives_with_all_that_is_said_of_it(box: Box) -> None:
    owner = Owner("run7", "a b&c.log", 2, 3, "gpu-17", {"user": "kim"})
    assert Destination(box.url, "secret").send(owner, 0, b"abc") == 3
    assert box.said["run7", "a b&c.log"] == {
        "source": "a b&c.log", "attempt": "2", "rank": "3", "node": "gpu-17", "label.user": "kim", "offset": "0"
    }  # fmt: skip
    assert box.tokens == ["Bearer secret"]


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (429, Away, "told to"),
        (503, Away, "told to"),
        (401, Away, "token"),
        ("drop", Away, "does not answer"),
        (400, Refusal, "told to"),
        (413, Refusal, "told to"),
        ((307, {"Location": "https://other"}, b""), Refusal, "https://other"),
        ((409, {}, b'{"what": "gap", "expected_offset": 7}'), Mismatch, "gap"),
        ((200, {}, b"<html>"), Away, "took less"),
        ((502, {}, b"<html>bad gateway"), Away, "bad gateway"),
    ],
    ids=str,
)
def test_what_the_service_says_is_understood(box: Box, fault: object, error: type[DiagnoseError], words: str) -> None:
    box.faults = [fault, fault]
    with pytest.raises(error, match=words):
        Destination(box.url).send(OWNER, 0, b"abc")


def test_a_connection_that_was_closed_meanwhile_is_made_anew(box: Box) -> None:
    destination = Destination(box.url)
    destination.send(OWNER, 0, b"abc")
    box.faults = ["drop"]
    assert destination.send(OWNER, 3, b"def") == 6
    assert box.text("rank0.log") == b"abcdef"


def test_a_retry_after_is_kept(box: Box) -> None:
    box.faults = [(429, {"Retry-After": "7"}, b"")]
    with pytest.raises(Away) as caught:
        Destination(box.url).send(OWNER, 0, b"abc")
    assert caught.value.retry_after_s == 7


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://u:p@x", "http://x:99999"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(DiagnoseError, match=r"address|port"):
        Destination(url)


# --- Slurm's patterns


@pytest.mark.parametrize(
    ("pattern", "path", "fields"),
    [
        ("/l/slurm-%j.out", "/l/slurm-4711.out", Fields("4711")),
        ("/l/%x-%A_%a.out", "/l/llama-7b-4711_3.out", Fields("4711_3")),
        ("/l/%u/%j/%N.%t.log", "/l/kim/4711/gpu-17.12.log", Fields("4711", 12, "gpu-17", "kim")),
        ("/l/%J.%5t.err", "/l/4711.0.00012.err", Fields("4711", 12)),
        ("/l/*/%j-%%-%j.out", "/l/any/4711-%-4711.out", Fields("4711")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_pattern(pattern: str, path: str, fields: Fields) -> None:
    assert Pattern(pattern).fields(path) == fields


def test_a_pattern_finds_its_files_only(tmp_path: Path) -> None:
    for name in ("slurm-1.out", "slurm-2.out", "slurm-x.out", "slurm-2.out.1"):
        (tmp_path / name).write_text("x")
    assert [os.path.basename(path) for path in Pattern(f"{tmp_path}/slurm-%j.out").files()] == ["slurm-1.out", "slurm-2.out"]


def test_a_symbol_that_slurm_does_not_know() -> None:
    with pytest.raises(DiagnoseError, match="Slurm has no pattern %q"):
        Pattern("/l/%q.out")


# --- tails


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def read_all(tail: Tail, size: int = 1000) -> bytes:
    out = b""
    while (piece := tail.read(size)) is not None:
        out += piece.data
        tail.commit(piece)
    return out


def test_a_tail_reads_through_rotations_as_one_source(tmp_path: Path) -> None:
    path, clock = tmp_path / "a.log", Clock()
    path.write_bytes(b"one\n")
    tail = Tail(FileState(str(path), OWNER), clock)
    assert read_all(tail) == b"one\n"
    writer = open(path, "ab")  # noqa: SIM115 - it outlives the rotation
    path.rename(tmp_path / "a.log.1")
    path.write_bytes(b"three\n")
    writer.write(b"two\n")
    writer.close()
    assert read_all(tail) == b"two\n"
    clock.now += 3
    assert read_all(tail) == b"three\n"
    assert tail.state.offset == 14


@pytest.mark.parametrize("after", [b"new\n", b"a longer text than the one before\n"], ids=["shorter", "longer"])
def test_a_file_that_was_cut_back_goes_on_in_its_source(tmp_path: Path, after: bytes) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"old text\n")
    tail = Tail(FileState(str(path), OWNER), Clock())
    read_all(tail)
    path.write_bytes(after)
    assert read_all(tail) == after
    assert tail.state.offset == 9 + len(after)


def test_a_file_that_was_rotated_while_nobody_looked_is_read_to_its_end_first(tmp_path: Path) -> None:
    path, clock = tmp_path / "a.log", Clock()
    path.write_bytes(b"one\n")
    tail = Tail(FileState(str(path), OWNER), clock)
    read_all(tail)
    tail.close()
    path.write_bytes(b"one\ntwo\n")
    path.rename(tmp_path / "a.log.1")
    path.write_bytes(b"three\n")
    later = Tail(tail.state, clock)
    assert read_all(later) == b"two\n"
    clock.now += 3
    assert read_all(later) == b"three\n"
    assert later.problems == []


def test_a_file_that_was_replaced_and_is_gone_is_said_to_be_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    tail = Tail(FileState(str(path), OWNER), Clock())
    read_all(tail)
    tail.close()
    with open(path, "rb"):  # or the new file might get its inode
        path.unlink()
        path.write_bytes(b"three\n")
    later = Tail(tail.state, Clock())
    assert read_all(later) == b"three\n"
    assert ["rotated while nobody looked" in problem for problem in later.problems] == [True]


@settings(max_examples=60)
@example([("write", 2), ("copytruncate", 1), ("write", 1), ("rotate", 1), ("reopen", 1)])
@given(
    st.lists(st.tuples(st.sampled_from(["write", "rotate", "copytruncate", "read", "reopen"]), st.integers(1, 40)), max_size=25)
)
def test_any_life_of_a_file_that_is_read_before_it_is_cut_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, life: list[tuple[str, int]]
) -> None:
    folder, clock = tmp_path_factory.mktemp("life"), Clock()
    path, written = folder / "a.log", b""
    path.write_bytes(b"")
    os.utime(path, (0, 0))
    tail = Tail(FileState(str(path), OWNER), clock)
    seen = read_all(tail)  # what was rotated away before anybody looked is nobody's
    number = 0
    for what, count in life:
        clock.now += 3
        if what == "write":
            number += 1
            text = lines(count, number * 1000)
            written += text
            with open(path, "ab") as file:
                file.write(text)
            os.utime(path, (clock.now, clock.now))
        elif what == "rotate":
            number += 1
            path.rename(folder / f"a.log.{number}")
            path.write_bytes(b"")
            os.utime(path, (clock.now, clock.now))
        elif what == "copytruncate":
            for _ in life:
                seen += read_all(tail)
                clock.now += 3
            path.write_bytes(b"")
            os.utime(path, (clock.now, clock.now))
        elif what == "read":
            seen += read_all(tail, count)
        else:
            tail.close()
            tail = Tail(tail.state, clock)
    for _ in range(len(life) + 2):
        clock.now += 3
        seen += read_all(tail)
    assert (seen, tail.state.offset) == (written, len(written))


# --- pipes


def test_lines_of_two_channels_stay_whole() -> None:
    pipe = Pipe(OWNER, Clock())
    pipe.write(1, b"step 1 ")
    pipe.write(2, b"Traceback\n")
    pipe.write(1, b"done\nrest")
    pipe.close(1)
    piece = pipe.read(1000)
    assert piece is not None
    assert piece.data == b"Traceback\nstep 1 done\nrest"


def test_a_traceback_comes_behind_the_steps_that_were_printed_before_it() -> None:
    """All of it stands in the two pipes before anybody reads."""
    for _ in range(20):
        (out, to_out), (errors, to_errors) = os.pipe(), os.pipe()
        os.write(to_out, b"step\n" * 5_000)
        os.write(to_errors, b"Traceback\n")
        os.close(to_out)
        os.close(to_errors)
        pipe = Pipe(OWNER, Clock())
        pump(os.fdopen(out, "rb", 0), os.fdopen(errors, "rb", 0), pipe).join(10)
        piece = pipe.read(1 << 20)
        assert piece is not None
        assert piece.data == b"step\n" * 5_000 + b"Traceback\n"


def test_one_channel_that_ends_does_not_end_the_other() -> None:
    (out, to_out), (errors, to_errors) = os.pipe(), os.pipe()
    pipe = Pipe(OWNER, Clock())
    thread = pump(os.fdopen(out, "rb", 0), os.fdopen(errors, "rb", 0), pipe)
    os.close(to_out)
    thread.join(0.2)
    assert thread.is_alive()
    os.write(to_errors, b"last words")
    os.close(to_errors)
    thread.join(10)
    piece = pipe.read(1000)
    assert piece is not None
    assert piece.data == b"last words"


def test_a_prompt_without_end_of_line_is_not_held_for_ever() -> None:
    clock = Clock()
    pipe = Pipe(OWNER, clock)
    pipe.write(1, b"waiting for peers")
    assert pipe.read(1000) is None
    clock.now += 2
    piece = pipe.read(1000)
    assert piece is not None
    assert piece.data == b"waiting for peers"


def test_what_cannot_be_held_is_dropped_and_said() -> None:
    pipe = Pipe(OWNER, Clock())
    for _ in range(200):
        pipe.write(1, b"x" * 65_535 + b"\n")
    out = b""
    while (piece := pipe.read(PIECE)) is not None:
        out += piece.data
        pipe.commit(piece)
        pipe.write(1, b"later\n")
        if len(out) > 20 << 20:
            break
        if out.endswith(b"later\n"):
            break
    assert len(out) < 9 << 20
    assert b"could not be kept]\n" in out


# --- the runner


def runner_of(
    box: Box, folder: Path, *paths: Path, clock: Clock | None = None, limit: int = 1 << 30, said: list[str] | None = None
) -> Runner:
    spool = Spool(folder / "state", limit)
    found = [Found(str(path), Owner("run7", path.name)) for path in paths]
    runner = Runner(
        Destination(box.url, timeout_s=5),
        spool,
        lambda: found,
        clock=clock or Clock(),
        say=(said if said is not None else []).append,
    )
    runner.spool = spool  # type: ignore[attr-defined]
    return runner


def stop(runner: Runner) -> None:
    runner.close()
    runner.spool.close()  # type: ignore[attr-defined]


def drive(runner: Runner, clock: Clock, rounds: int = 30) -> None:
    for _ in range(rounds):
        clock.now += 61
        runner.step()


def test_what_is_written_arrives(box: Box, tmp_path: Path) -> None:
    path, clock = tmp_path / "a.log", Clock()
    path.write_bytes(lines(1000))
    runner = runner_of(box, tmp_path, path, clock=clock)
    drive(runner, clock, 2)
    with open(path, "ab") as file:
        file.write(lines(10, 1000))
    drive(runner, clock, 2)
    stop(runner)
    assert box.text("a.log") == lines(1010)


def test_an_absence_is_bridged_on_disk_though_the_file_is_cut_back_meanwhile(box: Box, tmp_path: Path) -> None:
    path, clock, said = tmp_path / "a.log", Clock(), list[str]()
    path.write_bytes(lines(100))
    runner = runner_of(box, tmp_path, path, clock=clock, said=said)
    runner.step()
    box.stop()
    for number in range(1, 4):
        path.write_bytes(lines(100, number * 100))  # copytruncate, while the service is away
        clock.now += 3
        runner.step()
    assert runner.away
    box.start()
    drive(runner, clock, 3)
    stop(runner)
    assert box.text("a.log") == lines(400)
    assert [text for text in said if "service" in text][-1] == "the service is back"


def test_a_runner_that_is_started_again_goes_on(box: Box, tmp_path: Path) -> None:
    path, clock = tmp_path / "a.log", Clock()
    for number in range(5):
        with open(path, "ab") as file:
            file.write(lines(50, number * 50))
        runner = runner_of(box, tmp_path, path, clock=clock)
        if number == 2:
            box.faults = [503] * 3
        drive(runner, clock, 1)
        stop(runner)
    runner = runner_of(box, tmp_path, path, clock=clock)
    drive(runner, clock, 3)
    stop(runner)
    assert box.text("a.log") == lines(250)


def test_an_answer_that_got_lost_doubles_nothing(box: Box, tmp_path: Path) -> None:
    path, clock = tmp_path / "a.log", Clock()
    path.write_bytes(lines(100))
    box.faults = ["forget", "forget"]
    runner = runner_of(box, tmp_path, path, clock=clock)
    drive(runner, clock, 4)
    stop(runner)
    assert box.text("a.log") == lines(100)


def test_a_lost_state_sends_nothing_twice(box: Box, tmp_path: Path) -> None:
    path, clock = tmp_path / "a.log", Clock()
    path.write_bytes(lines(100))
    for folder in ("one", "two"):
        runner = runner_of(box, tmp_path / folder, path, clock=clock)
        drive(runner, clock, 2)
        stop(runner)
    assert box.text("a.log") == lines(100)


def test_a_service_that_lost_something_gets_it_again_from_the_file(box: Box, tmp_path: Path) -> None:
    path, clock = tmp_path / "a.log", Clock()
    path.write_bytes(lines(100))
    runner = runner_of(box, tmp_path, path, clock=clock)
    drive(runner, clock, 2)
    del box.received["run7", "a.log"][500:]
    with open(path, "ab") as file:
        file.write(lines(10, 100))
    drive(runner, clock, 4)
    stop(runner)
    assert box.text("a.log") == lines(110)


def test_another_file_under_a_known_name_becomes_a_source_of_its_own(box: Box, tmp_path: Path) -> None:
    path, clock = tmp_path / "a.log", Clock()
    path.write_bytes(lines(100))
    box.received["run7", "a.log"] = bytearray(b"something else " * 100)
    runner = runner_of(box, tmp_path, path, clock=clock)
    drive(runner, clock, 4)
    stop(runner)
    assert box.text("a.log") == b"something else " * 100
    (name,) = [source for _, source in box.received if source != "a.log"]
    assert name.startswith("a.log~")
    assert box.text(name) == lines(100)


def test_what_is_refused_is_said_once_and_stops_nobody_else(box: Box, tmp_path: Path) -> None:
    bad, good, clock, said = tmp_path / "bad.log", tmp_path / "good.log", Clock(), list[str]()
    bad.write_bytes(b"x\n")
    good.write_bytes(b"y\n")
    box.faults = [400]
    runner = runner_of(box, tmp_path, bad, good, clock=clock, said=said)
    drive(runner, clock, 5)
    stop(runner)
    assert (box.text("bad.log"), box.text("good.log")) == (b"", b"y\n")
    assert ["never be taken" in text for text in said] == [True]


def test_a_full_spool_leaves_the_rest_in_the_file(box: Box, tmp_path: Path) -> None:
    path, clock, said = tmp_path / "a.log", Clock(), list[str]()
    content = os.urandom(3 * PIECE)
    path.write_bytes(content)
    box.stop()
    runner = runner_of(box, tmp_path, path, clock=clock, limit=PIECE, said=said)
    drive(runner, clock, 6)
    assert any("stays in its files" in text for text in said)
    box.start()
    drive(runner, clock, 10)
    stop(runner)
    assert box.text("a.log") == content


def test_a_state_folder_serves_one_runner(box: Box, tmp_path: Path) -> None:
    runner = runner_of(box, tmp_path)
    with pytest.raises(DiagnoseError, match="another runner"):
        Spool(tmp_path / "state")
    stop(runner)


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "runner.db").write_bytes(b"no database" * 1000)
    with pytest.raises(DiagnoseError, match="damaged"):
        Spool(tmp_path)


# --- the commands


def test_send_says_what_it_sent_and_resumes(box: Box, diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "logs" / "n1").mkdir(parents=True)
    (tmp_path / "logs" / "n1" / "rank0.log").write_bytes(lines(500))
    (tmp_path / "logs" / "rank1.log").write_bytes(b"x")
    first = diagnose("send", "logs", "--job", "run7", "--to", box.url, "--exit-code", "3", "--label", "user=kim")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == f"2 sources, {len(lines(500)) + 1:,} bytes sent: {box.url}/v1/jobs/run7\n"
    assert (box.text("n1/rank0.log"), box.text("rank1.log")) == (lines(500), b"x")
    assert box.ends == [("run7", {"exit_code": 3})]
    with open(tmp_path / "logs" / "n1" / "rank0.log", "ab") as file:
        file.write(lines(10, 500))
    again = diagnose("send", "logs", "--job", "run7", "--to", box.url)
    assert "were there already" in again.stdout
    assert (box.text("n1/rank0.log"), box.text("rank1.log")) == (lines(510), b"x")


def test_send_reads_archives_and_standard_input(box: Box, diagnose: Run, tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a.log.gz").write_bytes(gzip.compress(lines(300_000)))
    for _ in "12":
        assert diagnose("send", "a.log.gz", "--job", "run7", "--to", box.url).returncode == 0
        assert diagnose("send", "-", "--job", "run7", "--to", box.url, stdin=lines(3)).returncode == 0
    assert box.text("a.log.gz") == lines(300_000)
    assert box.text("stdin") == lines(3)


def test_send_waits_for_a_busy_service(box: Box, diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(lines(10))
    box.faults = [503, "drop", "forget"]
    done = diagnose("send", "a.log", "--job", "run7", "--to", box.url)
    assert done.returncode == 0
    assert "again in" in done.stderr
    assert box.text("a.log") == lines(10)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["none.log", "--job", "j"], "no such file"),
        (["a.log", "--job", "j", "--to", ""], "the address of the service is missing"),
        (["a.log", "b.log", "--job", "j", "--source", "x"], "one name was given for 2 logs"),
        (["a.log", "a.log", "--job", "j"], "two logs have this name"),
        (["a.log"], "--job"),
        (["a.log", "--job", "j", "--token-file", "none"], "none: cannot be read"),
        (["a.log", "--job", "j", "--token", "a\x1bb"], "this is not a token"),
        (["a.log", "--job", "j", "--label", "x"], "NAME=VALUE"),
    ],
)
def test_send_bad_usage(diagnose: Run, tmp_path: Path, words: list[str], error: str) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("x\n")
    done = diagnose("send", *([] if "--to" in words else ["--to", "http://127.0.0.1:9"]), *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert error in done.stderr


def test_send_tells_another_file_of_the_same_name_apart(box: Box, diagnose: Run, tmp_path: Path) -> None:
    for content in (lines(100), lines(100)[:700], b"other\n" * 100):
        (tmp_path / "a.log").write_bytes(content)
        done = diagnose("send", "a.log", "--job", "run7", "--to", box.url)
        assert done.returncode == (0 if content == lines(100) else 2)
    assert "--source" in done.stderr
    assert box.text("a.log") == lines(100)


def spawn(box: Box, *words: str, cwd: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "diagnose", "runner", "--to", box.url, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(cwd / "home"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def until(what: object, *, seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def test_runner_killed_and_service_gone_at_random_moments(box: Box, tmp_path: Path) -> None:
    """A writer with rotations, a service that comes and goes, a runner that is killed: every line once."""
    chance, path = random.Random(7), tmp_path / "slurm-4711.out"
    total, written = 2400, threading.Event()

    def write() -> None:
        for number in range(total):
            with open(path, "ab") as file:
                file.write(lines(1, number))
            if number % 500 == 499:
                path.rename(tmp_path / f"slurm-4711.out.{number}")
            time.sleep(0.001)
        written.set()

    writer = threading.Thread(target=write)
    writer.start()
    arguments = (f"{tmp_path}/slurm-%j.out", "--state", str(tmp_path / "state"))
    deadline = time.monotonic() + 100
    kills = 0
    while (not written.is_set() or kills < 6) and time.monotonic() < deadline:
        runner = spawn(box, *arguments, cwd=tmp_path)
        time.sleep(chance.uniform(0.3, 1.2))
        if chance.random() < 0.4:
            box.stop()
            time.sleep(chance.uniform(0, 0.3))
        box.faults = [chance.choice(["forget", "drop", 503, None]) for _ in range(3)]
        runner.kill()
        runner.communicate()
        kills += 1
        if box._server is None:
            box.start()
    writer.join()
    box.faults = []
    runner = spawn(box, *arguments, cwd=tmp_path)
    got = until(lambda: len(box.text(f"{tmp_path}/slurm-4711.out", "4711")) >= len(lines(total)))
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(30) == 0
    assert got
    assert box.text(f"{tmp_path}/slurm-4711.out", "4711") == lines(total)
    assert kills >= 6


def test_runner_sends_what_is_new_before_it_stops(box: Box, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(lines(1))
    runner = spawn(box, str(path), "--job", "run7", cwd=tmp_path)
    assert until(lambda: box.text(str(path)))
    path.write_bytes(lines(1000))
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(30) == 0
    assert box.text(str(path)) == lines(1000)


def test_runner_wraps_a_command(box: Box, tmp_path: Path) -> None:
    script = "import sys; print('step 1'); sys.stdout.flush(); print('KeyError', file=sys.stderr); sys.exit(3)"
    runner = spawn(box, "--job", "run7", "--attempt", "1", "--node", "n1", "--", sys.executable, "-c", script, cwd=tmp_path)
    out, error = runner.communicate(timeout=60)
    assert (runner.returncode, out, error) == (3, b"step 1\n", b"KeyError\n")
    assert sorted(box.text("n1").splitlines()) == [b"KeyError", b"step 1"]
    assert box.ends == [("run7", {"exit_code": 3, "attempt": 1})]
    assert not list((tmp_path / "home").rglob("runner.db"))


def test_runner_passes_signals_on_and_says_how_it_ended(box: Box, tmp_path: Path) -> None:
    script = "import time; print('up', flush=True); time.sleep(60)"
    runner = spawn(box, "--job", "run7", "--", sys.executable, "-c", script, cwd=tmp_path)
    assert until(lambda: box.received)
    runner.send_signal(signal.SIGTERM)
    runner.communicate(timeout=30)
    assert runner.returncode == 143
    assert box.ends == [("run7", {"exit_code": 143})]


def test_runner_one_task_of_many_does_not_end_the_job(box: Box, tmp_path: Path) -> None:
    environment = {
        "SLURM_JOB_ID": "4711",
        "SLURM_PROCID": "5",
        "SLURM_NTASKS": "8",
        "SLURMD_NODENAME": "n1",
        "SLURM_RESTART_COUNT": "1",
    }
    runner = spawn(box, "--", "false", cwd=tmp_path, **environment)
    runner.communicate(timeout=30)
    runner = spawn(box, "--", "echo", "hi", cwd=tmp_path, **environment)
    runner.communicate(timeout=30)
    assert (runner.returncode, box.ends, box.text("n1/rank5", "4711")) == (0, [], b"hi\n")
    assert (box.said["4711", "n1/rank5"]["attempt"], box.said["4711", "n1/rank5"]["rank"]) == ("2", "5")


def test_runner_a_command_never_waits_for_the_service(box: Box, tmp_path: Path) -> None:
    box.stop()
    script = "import sys; [print('step', i) for i in range(100000)]"
    runner = spawn(
        box,
        "--job",
        "run7",
        "--attempt",
        "1",
        "--node",
        "n1",
        "--flush",
        "1",
        "--state",
        "s",
        "--",
        sys.executable,
        "-c",
        script,
        cwd=tmp_path,
    )
    out, error = runner.communicate(timeout=60)
    assert (runner.returncode, out.count(b"\n")) == (0, 100_000)
    assert b"--once --state s" in error
    box.start()
    later = spawn(box, "--once", "--state", "s", cwd=tmp_path)
    later.communicate(timeout=60)
    assert later.returncode == 0
    assert (box.text("n1"), box.ends) == (out, [("run7", {"exit_code": 0, "attempt": 1})])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], b"there is nothing to send"),
        (["/l/a.out"], b"does not tell which job"),
        (["/l/%j.out", "--", "true"], b"a runner takes files or a command, and not both"),
        (["--job", "j", "--", "/none/such"], b"cannot be run"),
        (["--", "true"], b"the job is missing"),
    ],
)
def test_runner_bad_usage(box: Box, tmp_path: Path, words: list[str], error: bytes) -> None:
    runner = spawn(box, *words, cwd=tmp_path)
    _, said = runner.communicate(timeout=30)
    assert runner.returncode == 2
    assert error in said
