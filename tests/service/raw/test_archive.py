"""Raw logs of a real service: each accepted byte once, whoever is killed, and a full disk stops only them."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import random
import re
import resource
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.journal import Entry, Journal
from service.raw import parts
from service.raw.archive import Archive
from service.segments import DATA, Definition
from service.telemetry import Telemetry
from tests.conftest import ROOT
from tests.support.servers import Server

LOG = (ROOT / "fixtures" / "logs" / "job123" / "gpu-13.log").read_bytes()
HOSTILE = b"<script>alert(1)</script>\n\x1b[2J\0\xff\xfe\r\nlast, without end"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("archive")
    words = ["--raw-logs", str(folder / "raw")]
    if request.param == "postgresql":
        words += ["--database", request.getfixturevalue("postgres").database("archive")]
    with Server(folder / "data", *words) as running:
        yield running


def download(server: Server, job: str, **params: Any) -> bytes:
    answer = server.client.get(f"/v1/jobs/{job}/raw/download", params=params)
    assert answer.status_code == 200, answer.text
    return answer.content


@pytest.mark.server
def test_dropped_lines_are_read_where_the_kept_log_folds(server: Server) -> None:
    server.push("folds", LOG, source="gpu-13.log", offset=0)
    server.end("folds", 1)
    expected = LOG.decode().split("\n")
    kept = [line["line"] for line in server.lines("folds")]
    folds = [(a + 1, b - 1) for a, b in itertools.pairwise(kept) if b > a + 1]
    assert folds
    for first, last in folds:
        page = server.get("/v1/jobs/folds/raw", source="gpu-13.log", from_line=first, to_line=last, limit=1000)
        assert [(line["line"], line["text"]) for line in page["lines"]] == [
            (number, expected[number - 1]) for number in range(first, last + 1)
        ]
        assert (page["gaps"], page["redacted"], page["next_line"]) == ([], False, None)
    assert download(server, "folds") == LOG
    assert download(server, "folds", offset=100) == LOG[100:]
    (source,) = server.get("/v1/jobs/folds/raw/sources")["sources"]
    assert (source["kept_from"], source["kept_to"], source["lines"]) == (0, len(LOG), LOG.count(b"\n"))


@pytest.mark.server
def test_pages_go_on_where_they_ended_also_while_the_job_runs(server: Server) -> None:
    lines = [f"step {number} {'x' * (number % 50)}" for number in range(1, 2501)]
    found: list[str] = []
    line = 1
    for piece in range(5):
        text = "".join(line + "\n" for line in lines[500 * piece : 500 * (piece + 1)])
        server.push("pages", text.encode(), source="a")
        while True:
            page = server.get("/v1/jobs/pages/raw", from_line=line, limit=300)
            found += [one["text"] for one in page["lines"]]
            line += len(page["lines"])
            if page["next_line"] is None:
                break
            assert page["next_line"] == line
    assert found == lines
    at = sum(len(one) + 1 for one in lines[:1000]) + 3
    assert server.get("/v1/jobs/pages/raw", offset=at, limit=1)["lines"][0]["line"] == 1001


@pytest.mark.server
def test_hostile_names_and_bytes(server: Server, tmp_path_factory: pytest.TempPathFactory) -> None:
    for source in ("../../../etc/passwd", "a/b", "C:\\x", "\u202esource\u2066 \U0001f4a5", ".."):
        if not source.isprintable():
            source = source.replace("\u202e", "").replace("\u2066", "")
        server.push("hostile", HOSTILE, source=source, offset=0)
        assert download(server, "hostile", source=source) == HOSTILE
        page = server.get("/v1/jobs/hostile/raw", source=source)
        assert [line["text"] for line in page["lines"]] == [
            "<script>alert(1)</script>",
            "\x1b[2J\0\ufffd\ufffd",
            "last, without end",
        ]
    raw = server.data.parent / "raw"
    names = {str(path.relative_to(raw)) for path in raw.rglob("*") if path.is_file()}
    assert all(
        re.fullmatch(r"lock|[0-9a-f]{2}/[0-9a-f]{32}/(job\.json|\d+/[0-9a-f]{32}/(source\.json|\d{20}-\d{20}\.zst))", name)
        for name in names
    ), names


@pytest.mark.server
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("nobody/raw", 404),
        ("folds/raw?source=other", 404),
        ("folds/raw?attempt=9", 404),
        ("hostile/raw", 409),
        ("folds/raw?from_line=1&offset=1", 409),
        ("folds/raw?from_line=0", 422),
        ("folds/raw?source=%00", 422),
        ("nobody/raw/sources", 404),
        ("nobody/raw/download", 404),
    ],
)
def test_what_is_refused(server: Server, path: str, status: int) -> None:
    answer = server.client.get(f"/v1/jobs/{path}")
    assert answer.status_code == status, answer.text
    assert set(answer.json()) >= {"error", "what", "remedy"}


@pytest.mark.server
def test_without_raw_logs_it_says_so(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as running:
        running.push("one", b"hello\n", source="a")
        answer = running.client.get("/v1/jobs/one/raw")
        assert answer.status_code == 404
        assert "--raw-logs" in answer.json()["remedy"]
        assert running.get("/readyz")["raw_logs"] is None


@pytest.mark.server
def test_killed_under_load_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    """With segments and waits so small that every step is met: a source with offsets and one with keys, killed 5 times."""
    chance = random.Random(7)
    settings = {"DIAGNOSE_SERVE_SEGMENT": "60000", "DIAGNOSE_SERVE_RAW_WAIT_S": "0.05", "DIAGNOSE_SERVE_FLUSH_S": "0.2"}
    text = {
        job: b"".join(f"line {number} of {job} {'y' * chance.randrange(60)}\n".encode() for number in range(9000))
        for job in ("a", "b", "keyed")
    }
    stop = threading.Event()
    failed: list[BaseException] = []

    def send(job: str, url: str) -> None:
        mine = random.Random(job)
        at = 0
        try:
            with httpx.Client(base_url=url, timeout=20) as client:
                piece = b""
                while at < len(text[job]):
                    piece = piece or text[job][at : at + mine.randrange(1, 3000)]
                    params = {"source": "s", **({"key": str(at)} if job == "keyed" else {"offset": str(at)})}
                    try:
                        answer = client.post(f"/v1/jobs/{job}/logs", params=params, content=piece)
                    except httpx.HTTPError:
                        time.sleep(0.05)
                        continue
                    if answer.status_code == 200:
                        at, piece = at + len(piece), b""
                    else:
                        assert answer.status_code in (429, 503), answer.text
                    if not stop.is_set():
                        time.sleep(0.02)
        except BaseException as error:
            failed.append(error)

    with Server(tmp_path / "data", "--raw-logs", str(tmp_path / "raw"), **settings) as running:
        senders = [threading.Thread(target=send, args=(job, running.url), daemon=True) for job in text]
        for sender in senders:
            sender.start()
        for _ in range(5):
            time.sleep(0.3 * chance.random())
            running.kill()
            running.start()
        stop.set()
        for sender in senders:
            sender.join(60)
        assert not failed
        for job, expected in text.items():
            assert download(running, job) == expected
            page = running.get(f"/v1/jobs/{job}/raw", from_line=8000, limit=1)
            assert page["lines"][0]["text"].startswith(f"line 7999 of {job} ")
        for job in text:
            running.end(job, 0)
            running.get(f"/v1/jobs/{job}/report")
        deadline = time.monotonic() + 10
        while len(list((tmp_path / "data" / "journal").glob("*.journal"))) > 1:  # forgotten once both have it
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.server
def test_a_full_disk_stops_raw_logs_and_nothing_else(tmp_path: Path) -> None:
    words = ["--raw-logs", str(tmp_path / "raw")]
    with Server(tmp_path / "data", *words) as running:
        running.push("job", b"one\n", source="s", offset=0)
        assert download(running, "job") == b"one\n"
        running.stop()
    with Server(tmp_path / "data", *words, DIAGNOSE_SERVE_RAW_LEAVE_FREE=str(1 << 60)) as running:
        running.push("job", b"two\nRuntimeError: CUDA error: an illegal memory access was encountered\n", source="s", offset=4)
        running.end("job", 1)
        assert running.get("/v1/jobs/job/report")["diagnosis"]["reason"] == "cuda_error"
        assert download(running, "job") == b"one\n\n--- diagnose: bytes 4 to 75 of this source are not kept so far ---\n"
        assert running.get("/v1/jobs/job/raw")["gaps"] == [{"offset": 4, "end": 75}]
        ready = running.get("/readyz")
        assert (ready["ready"], ready["raw_logs"]) == (True, False)
        assert "are to stay free" in ready["raw_logs_problem"]
        metrics = running.client.get("/metrics").text
        assert "diagnose_raw_logs_up 0.0" in metrics
        assert "diagnose_raw_lost_bytes_total 71.0" in metrics
        running.stop()
    with Server(tmp_path / "data", *words) as running:  # the journal has it still
        running.push("job", b"four\n", source="s", offset=75)
        page = running.get("/v1/jobs/job/raw")
        assert [(line["line"], line["text"][:4]) for line in page["lines"]] == [
            (1, "one"),
            (2, "two"),
            (3, "Runt"),
            (4, "four"),
        ]
        assert running.get("/readyz")["raw_logs"] is True


@pytest.mark.server
def test_secrets_are_not_on_disk_where_the_operator_says_so(tmp_path: Path) -> None:
    secret = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
    text = f"step 1\nHF_TOKEN={secret} was refused\nstep 2\n".encode()
    with Server(tmp_path / "data", "--redact", "--raw-logs", str(tmp_path / "raw")) as running:
        running.push("secret", text[:30], source="s", offset=0)
        running.get("/v1/jobs/secret/raw")  # somebody looks while half of it is there
        running.push("secret", text[30:], source="s", offset=30)
        running.end("secret", 0)
        page = running.get("/v1/jobs/secret/raw")
        assert [line["line"] for line in page["lines"]] == [1, 2, 3]
        assert "was refused" in page["lines"][1]["text"]
        assert page["redacted"]
        assert secret not in str(page)
        assert secret.encode() not in download(running, "secret")
        assert running.client.get("/v1/jobs/secret/raw?offset=3").status_code == 409
    (part,) = (tmp_path / "raw").rglob("*.zst")
    assert secret[10:30].encode() not in b"".join(frame.data() for frame in parts.frames_of(part))


@pytest.mark.server
def test_secrets_on_disk_are_not_shown_by_who_redacts_now(tmp_path: Path) -> None:
    key = b"-----BEGIN PRIVATE KEY-----\nMIIEvQ\naGVsbG8=\n-----END PRIVATE KEY-----\n"
    text = b"step 1\npassword=Tr0ub4dorAndThree\n" + key + b"step 2\n"
    raw = ["--raw-logs", str(tmp_path / "raw")]
    with Server(tmp_path / "data", *raw) as running:
        running.push("old", text, source="s", offset=0)
        running.end("old", 0)
        assert download(running, "old") == text
        assert download(running, "old", offset=16) == text[16:]
        running.stop()
    with Server(tmp_path / "data", "--redact", *raw) as running:
        shown = b"step 1\npassword=<token>\n" + b"<private_key>\n" * 4 + b"step 2\n"
        assert download(running, "old") == shown
        assert running.client.get("/ui/jobs/old/raw/download").content == shown
        for offset in (1, 16, len(text) - 1):
            assert running.client.get(f"/v1/jobs/old/raw/download?offset={offset}").status_code == 409
        for line in range(1, 8):
            page = running.get("/v1/jobs/old/raw", from_line=line, limit=1)
            assert [one["text"] for one in page["lines"]] == shown.decode().split("\n")[line - 1 : line]
        for secret in ("Tr0ub4dor", "MIIEvQ", "aGVsbG8"):
            for path in ("/ui/jobs/old/raw", "/ui/jobs/old/raw?from=4", "/ui/jobs/old/raw?offset=60"):
                assert secret not in running.client.get(path).text


@pytest.mark.server
def test_a_disk_that_hangs_keeps_only_those_waiting_who_read_from_it(server: Server) -> None:
    server.push("hangs", b"one\ntwo\n", source="s", offset=0)
    server.end("hangs", 0)
    assert download(server, "hangs", offset=4) == b"two\n"
    folder = Path(server.data.parent, "raw")
    (told,) = [path for path in folder.rglob("job.json") if json.loads(path.read_text())["job"] == "hangs"]
    (part,) = told.parent.rglob("*.zst")
    part.unlink()
    os.mkfifo(part)  # who opens it waits for one who writes
    reader = threading.Thread(target=lambda: httpx.get(f"{server.url}/v1/jobs/hangs/raw/download?offset=4", timeout=60))
    reader.start()
    try:
        for _ in range(20):
            assert server.client.get("/healthz", timeout=10).status_code == 200
            time.sleep(0.05)
        writer = os.open(part, os.O_WRONLY | os.O_NONBLOCK)  # fails unless somebody waits
    finally:
        # Let it go, also where the test failed.
        os.close(os.open(part, os.O_RDWR))
        part.unlink()
        reader.join()
    os.close(writer)


class InProcess:
    """An archive behind a journal, without a service."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.journal = Journal(folder / "journal", segment=50_000, archives=True)
        self.telemetry = Telemetry()
        self.archive = Archive(folder / "raw", self.journal, self.telemetry, wait_s=0.0, **options)
        self.offsets: dict[Definition, int] = {}
        self.stored = True
        """whether the database takes it at once"""

    async def __aenter__(self) -> InProcess:
        list(self.journal.recover())
        self.journal.start()
        self.archive.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.archive.close)
        self.journal.close()

    async def put(self, stream: Definition, data: bytes) -> None:
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        at = self.offsets.get(stream, 0)
        self.journal.append(Entry(stream, DATA, at, 0, 1, data, lambda _, failure: done.set_result(failure)))
        assert await done is None
        self.offsets[stream] = at + len(data)
        if self.stored:
            self.journal.stored(stream.owner, 1 << 60)

    def text(self, stream: Definition) -> bytes:
        folder = self.archive.source(stream.job, stream.attempt, stream.source)
        return b"".join(b"<gap>" if isinstance(one, parts.Gap) else one[1] for one in parts.raw(folder))


def test_writes_that_fail_half_done_are_taken_back_and_done_later(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: the kernel fails the write in its middle."""
    stream = Definition("a", 1, "s")
    noise = random.Random(1).randbytes(30_000)

    async def run() -> None:
        async with InProcess(tmp_path) as here:
            await here.put(stream, b"good\n")
            await here.archive.fresh("a", 1)
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            await here.put(stream, noise[:20_000])  # into the journal before the limit
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
            try:
                await here.archive.fresh("a", 1)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
                signal.signal(signal.SIGXFSZ, ignored)
            assert here.archive.problem is not None
            await here.put(stream, noise[20_000:])
            here.archive._paused_until = 0.0
            deadline = time.monotonic() + 10
            while here.archive.problem is not None and time.monotonic() < deadline:
                await here.archive.fresh("a", 1)
                await asyncio.sleep(0.05)
            await here.archive.fresh("a", 1)
            assert here.text(stream) == b"good\n" + noise
            assert here.telemetry.raw_lost_bytes._value.get() == 0

    asyncio.run(run())


def test_what_was_given_up_is_a_gap_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    stream = Definition("a", 1, "s")

    async def run() -> None:
        async with InProcess(tmp_path) as here:
            await here.put(stream, b"1\n2\n")
            await here.archive.fresh("a", 1)
            here.archive._leave_free = 1 << 60
            await here.put(stream, b"3\n4\n")
            await here.archive.fresh("a", 1)
            assert here.archive.problem is not None
            here.archive._leave_free, here.archive._paused_until = 0, 0.0
            await here.put(stream, b"5\n6\n")
            await here.archive.fresh("a", 1)
            assert here.archive.problem is None
            assert here.text(stream) == b"1\n2\n<gap>5\n6\n"
            (line,) = parts.read(here.archive.source("a", 1, "s"), line=6)
            assert line == parts.Line(6, 10, b"6", 0, False)
            assert here.telemetry.raw_lost_bytes._value.get() == 4

    asyncio.run(run())


def test_once_there_is_room_again_there_is_no_problem_also_if_nothing_comes(tmp_path: Path) -> None:
    async def run() -> None:
        async with InProcess(tmp_path) as here:
            here.archive._leave_free = 1 << 60
            await here.archive.fresh("a", 1)
            assert "are to stay free" in (here.archive.problem or "")
            here.archive._leave_free, here.archive._paused_until = 0, 0.0
            await here.archive.fresh("a", 1)
            assert here.archive.problem is None
            assert here.telemetry.raw_up._value.get() == 1

    asyncio.run(run())


def test_who_is_far_behind_gives_up_what_the_journal_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.raw.archive._MOST", 100_000)
    stream = Definition("a", 1, "s")
    pieces = [f"{number:09d}\n".encode() * 1000 for number in range(100)]

    async def run() -> None:
        here = InProcess(tmp_path, journal_limit=1_000_000)
        here.journal.start()
        for piece in pieces:
            await here.put(stream, piece)
        here.archive.start()  # as after a long pause: a megabyte waits, and half of that is what may
        await here.archive.fresh("a", 1)
        deadline = time.monotonic() + 20
        while b"000000099" not in here.text(stream) and time.monotonic() < deadline:
            await here.archive.fresh("a", 1)
        gap, *rest = parts.raw(here.archive.source("a", 1, "s"))
        lost = here.telemetry.raw_lost_bytes._value.get()
        assert isinstance(gap, parts.Gap)
        assert 400_000 < lost < 700_000
        assert (gap.offset, gap.end) == (0, lost)
        assert b"".join(one[1] for one in rest) == b"".join(pieces)[gap.end :]
        (last, *_) = parts.read(here.archive.source("a", 1, "s"), line=100_000)
        assert last.text == b"000000099"
        await asyncio.to_thread(here.archive.close)
        here.journal.close()

    asyncio.run(run())


def test_what_is_archived_already_is_not_behind_after_a_restart(tmp_path: Path) -> None:
    """The journal has more than half of what it may, for the database was away; nearly all of that is archived."""
    stream = Definition("a", 1, "s")
    pieces = [f"{number:09d}\n".encode() * 1000 for number in range(20)]

    async def run() -> None:
        before = await InProcess(tmp_path, journal_limit=300_000).__aenter__()
        before.stored = False
        for piece in pieces:
            await before.put(stream, piece)
            await before.archive.fresh("a", 1)
        await asyncio.to_thread(before.archive.close)
        await before.put(stream, b"the tail\n")
        before.journal.close()
        async with InProcess(tmp_path, journal_limit=300_000) as here:
            await here.archive.fresh("a", 1)
            assert here.text(stream) == b"".join(pieces) + b"the tail\n"
            assert here.telemetry.raw_lost_bytes._value.get() == 0

    asyncio.run(run())


def test_a_job_keeps_to_its_limit_and_its_first_and_last_lines_stay(tmp_path: Path) -> None:
    stream, other = Definition("a", 1, "s"), Definition("b", 1, "s")
    chance = random.Random(2)
    blocks = [f"block {number}\n".encode() + chance.randbytes(300_000).replace(b"\n", b"") for number in range(40)]

    async def run() -> None:
        async with InProcess(tmp_path, job_limit=8 << 20) as here:
            await here.put(other, blocks[0])
            for block in blocks:
                await here.put(stream, block + b"\n")
                await here.archive.fresh("a", 1)
            size = sum(path.stat().st_size for path in here.archive.job("a").rglob("*.zst"))
            assert size <= 9 << 20
            text = here.text(stream)
            assert b"block 0\n" in text
            assert b"block 39\n" in text
            assert b"<gap>" in text
            assert b"block 5\n" not in text
            await here.archive.fresh("b", 1)
            assert here.text(other) == blocks[0]

    asyncio.run(run())


def test_what_cannot_be_deleted_is_said_and_holds_up_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = Definition("bad", 1, "s"), Definition("good", 1, "s")

    def failing(path: Any, **words: Any) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    async def run() -> None:
        async with InProcess(tmp_path) as here:
            for stream in (bad, good):
                await here.put(stream, b"secret\n")
                await here.archive.fresh(stream.job, 1)
            reached, go_on = threading.Event(), threading.Event()
            here.archive._work.append(lambda: (reached.set(), go_on.wait(20))[0])
            await asyncio.to_thread(reached.wait, 20)
            # Both in one turn of the archive's thread; of the first it cannot even be said what there is.
            monkeypatch.setattr("service.raw.archive.size", lambda folder: failing(folder) if folder == first else 8)
            first = here.archive.job("bad")
            both = [asyncio.create_task(asyncio.to_thread(here.archive.delete, job)) for job in ("bad", "good")]
            while len(here.archive._work) < 2:
                await asyncio.sleep(0.01)
            go_on.set()
            assert [type(one) for one in await asyncio.gather(*both, return_exceptions=True)] == [OSError, int]
            assert not here.archive.job("good").exists()
            monkeypatch.undo()
            with monkeypatch.context() as patched:
                patched.setattr("os.unlink", failing)
                with pytest.raises(OSError, match="Input/output"):
                    await asyncio.to_thread(here.archive.delete, "bad")
            assert here.text(bad) == b"secret\n"
            assert await asyncio.to_thread(here.archive.delete, "bad") > 0
            assert not here.archive.job("bad").exists()

    asyncio.run(run())


def test_many_small_sources_stay_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.raw.archive._MOST", 40_000)
    streams = [Definition(f"job{number % 7}", 1, f"source{number}") for number in range(60)]

    async def run() -> None:
        async with InProcess(tmp_path) as here:
            here.archive._wait_s = 1e9
            most = 0
            for turn in range(40):
                for stream in streams:
                    await here.put(stream, f"{stream.source} {turn} {'z' * 100}\n".encode())
                most = max(most, here.archive._size)
            assert most < 50_000
        for stream in streams:
            expected = "".join(f"{stream.source} {turn} {'z' * 100}\n" for turn in range(40))
            assert here.text(stream) == expected.encode()

    asyncio.run(run())
