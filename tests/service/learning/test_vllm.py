"""vLLM beside the service: a stand-in process that says it is one is killed, hangs and fails; the real one is started once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from diagnose.backoff import Backoff
from diagnose.errors import DiagnoseError
from diagnose.model.model import Ask, Model, Settings
from model_server.run import ENVIRONMENT, Server
from service.learning.vllm import FLAGS, VLLM, Pace, members, parallel_size, visible_gpus
from tests.conftest import ROOT, Run
from tests.support import servers

STAND_IN = r'''
"""A stand-in for vLLM: it answers /health, has a child as vLLM has workers, and does what the file ``orders`` says."""
import http.server, os, pathlib, subprocess, sys, time

here = pathlib.Path(os.environ["STAND_IN"])
with (here / "starts").open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\n")
(here / "environment").write_text(repr(dict(os.environ)))
orders = (here / "orders").read_text() if (here / "orders").exists() else ""
if orders == "fail":
    sys.stderr.write("a line\nValueError: the model's \x1b[31mheads do not divide\nand goes on\n")
    sys.exit(3)
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
(here / "worker").write_text(str(worker.pid))
(here / "pid").write_text(str(os.getpid()))
if orders == "stubborn":
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        sick = (here / "sick").exists()
        self.send_response(503 if sick else 200)
        self.end_headers()
    def log_message(self, *_):
        pass

port = int(sys.argv[sys.argv.index("--port") + 1])
print("stand-in at", port, flush=True)
while orders == "deaf":
    time.sleep(1)
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
'''
QUICK = Pace(look_s=0.05, looks=2, backoff=Backoff(0.05, 0.4), stop_s=2, start_s=20)


class StandIn:
    """What the stand-in is told, and what it left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log" / "vllm.log"
        (folder / "stand_in.py").write_text(STAND_IN)

    def server(self, pace: Pace = QUICK, **more: object) -> VLLM:
        environment = {**os.environ, "STAND_IN": str(self.folder), "DIAGNOSE_SERVE_DATABASE": "postgres://secret"}
        command = [sys.executable, str(self.folder / "stand_in.py")]
        return VLLM("tiny", self.log, command=command, environment=environment, pace=pace, **more)  # type: ignore[arg-type]

    def order(self, what: str) -> None:
        (self.folder / "orders").write_text(what)

    def pid(self, whose: str = "pid") -> int:
        return int((self.folder / whose).read_text())

    @property
    def starts(self) -> list[str]:
        return (self.folder / "starts").read_text().splitlines()


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path)


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def until(true: Callable[[], bool], within_s: float = 30) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.02)


def run(what: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await what()

    asyncio.run(bounded())


def test_it_is_waited_for_and_stopped_with_all_its_processes(stand_in: StandIn) -> None:
    async def scene() -> None:
        async with stand_in.server() as server:
            assert server.state in ("starting", "ready"), "the service does not wait"
            assert await server.wait_ready(30)
            assert (server.state, server.problem, server.restarts) == ("ready", None, 0)
            assert server.url.startswith("http://127.0.0.1:")
            assert all(map(alive, (stand_in.pid(), stand_in.pid("worker"))))
        assert server.state == "stopped"
        assert not any(map(alive, (stand_in.pid(), stand_in.pid("worker"))))

    run(scene)
    assert "stand-in at" in stand_in.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_crash_is_told_its_workers_are_swept_and_it_starts_again_at_the_same_address(
    stand_in: StandIn, number: signal.Signals
) -> None:
    async def scene() -> None:
        async with stand_in.server(Pace(look_s=0.05, backoff=Backoff(0.5, 300))) as server:
            assert await server.wait_ready(30)
            url, worker = server.url, stand_in.pid("worker")
            os.kill(stand_in.pid(), number)
            await until(lambda: server.state == "waiting")
            assert f"was ended by {number.name}" in (server.problem or "")
            assert str(stand_in.log) in (server.problem or "")
            assert not alive(worker)
            assert await server.wait_ready(30)
            assert (server.url, server.restarts, server.problem) == (url, 1, None)

    run(scene)


def test_one_that_cannot_start_is_tried_at_growing_pauses_and_says_its_error(stand_in: StandIn) -> None:
    stand_in.order("fail")
    pauses: list[str] = []

    async def scene() -> None:
        async with stand_in.server() as server:
            for _ in range(5):
                seen = server.restarts
                await until(lambda: server.state == "waiting")
                pauses.append((server.problem or "").partition("starts again in ")[2].partition(";")[0].partition(",")[0])
                assert "ended with status 3" in (server.problem or "")
                assert "ValueError: the model's ·[31mheads do not divide" in (server.problem or "")
                await until(lambda seen=seen: server.restarts > seen)
            stand_in.order("")
            assert await server.wait_ready(30), "it comes when the cause is gone"

    run(scene)
    assert pauses == ["0.05 s", "0.1 s", "0.2 s", "0.4 s", "0.4 s"]


def test_one_whose_log_cannot_be_written_comes_back_when_it_can(stand_in: StandIn) -> None:
    folder, aside = stand_in.log.parent, stand_in.folder / "aside"

    async def scene() -> None:
        async with stand_in.server() as server:
            assert await server.wait_ready(30)
            folder.rename(aside)
            folder.touch()  # as a disk that has become read-only, or files that are all in use
            os.kill(stand_in.pid(), signal.SIGKILL)
            await until(lambda: "log cannot be written" in (server.problem or ""))
            assert server.state in ("waiting", "starting")
            folder.unlink()
            assert await server.wait_ready(30)
            assert server.problem is None

    run(scene)


def test_one_that_lives_and_answers_no_more_is_ended_and_started_again(stand_in: StandIn) -> None:
    async def scene() -> None:
        async with stand_in.server() as server:
            assert await server.wait_ready(30)
            first = stand_in.pid()
            (stand_in.folder / "sick").touch()
            await until(lambda: not alive(first))
            (stand_in.folder / "sick").unlink()
            await until(lambda: server.restarts > 0)
            assert await server.wait_ready(30)

    run(scene)


def test_one_that_never_answers_is_ended(stand_in: StandIn) -> None:
    stand_in.order("deaf")

    async def scene() -> None:
        async with stand_in.server(Pace(look_s=0.05, backoff=Backoff(60, 300), start_s=1)) as server:
            await until(lambda: server.state == "waiting")
            assert "did not answer within" in (server.problem or "")
            assert not await server.wait_ready(0.01)

    run(scene)


def test_one_that_will_not_end_is_killed(stand_in: StandIn) -> None:
    stand_in.order("stubborn")

    async def scene() -> None:
        async with stand_in.server(Pace(look_s=0.05, stop_s=0.3)) as server:
            assert await server.wait_ready(30)
        assert not any(map(alive, (stand_in.pid(), stand_in.pid("worker"))))

    run(scene)


def test_it_does_not_outlive_a_service_that_is_killed(stand_in: StandIn) -> None:
    async def scene() -> None:
        script = (
            "import asyncio, os, sys; from pathlib import Path; from service.learning.vllm import VLLM\n"
            "async def go():\n"
            "    async with VLLM('tiny', Path(sys.argv[2]), command=[sys.executable, sys.argv[1]]) as server:\n"
            "        print(await server.wait_ready(30), flush=True)\n"
            "        await asyncio.sleep(60)\n"
            "asyncio.run(go())\n"
        )
        service = await asyncio.create_subprocess_exec(
            *[sys.executable, "-c", script, stand_in.folder / "stand_in.py", stand_in.log],
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "STAND_IN": str(stand_in.folder)},
        )
        assert service.stdout is not None
        assert await service.stdout.readline() == b"True\n"
        service.kill()
        await service.wait()
        try:
            await until(lambda: not alive(stand_in.pid()))
        finally:
            for whose in ("pid", "worker"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(stand_in.pid(whose), signal.SIGKILL)

    run(scene)


def test_it_is_given_the_flags_of_this_load_and_none_of_our_secrets(stand_in: StandIn) -> None:
    async def scene() -> None:
        async with stand_in.server(gpus=6, flags=["--max-model-len=4096"]) as server:
            assert await server.wait_ready(30)

    run(scene)
    (words,) = stand_in.starts
    assert words.startswith("serve tiny --host 127.0.0.1 --port ")
    assert "--enable-prefix-caching" in words
    assert "--tensor-parallel-size=4" in words
    assert words.endswith("--max-model-len=4096"), "what is given comes last and wins"
    environment = (stand_in.folder / "environment").read_text()
    assert "postgres://secret" not in environment
    assert "'VLLM_NO_USAGE_STATS': '1'" in environment


def test_its_log_is_bounded_and_readable_by_its_owner_only(stand_in: StandIn) -> None:
    stand_in.log.parent.mkdir()
    stand_in.log.write_bytes(b"x" * 5000)

    async def scene() -> None:
        async with stand_in.server(Pace(look_s=0.05, log_bytes=4000)) as server:
            assert await server.wait_ready(30)

    run(scene)
    assert stand_in.log.with_name("vllm.log.1").read_bytes() == b"x" * 5000
    assert stand_in.log.stat().st_size < 4000
    stand_in.log.unlink()
    run(scene)
    assert stand_in.log.stat().st_mode & 0o777 == 0o600


def test_without_vllm_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(DiagnoseError, match=r"pip install 'diagnose-train\[vllm\]'"):
        VLLM("tiny", tmp_path / "log")


def test_a_log_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def scene() -> None:
        async with VLLM("tiny", tmp_path / "file" / "vllm.log", command=["true"]):
            pass

    with pytest.raises(DiagnoseError, match="log cannot be written"):
        run(scene)


@pytest.mark.parametrize(
    ("named", "expected"),
    [("0", 1), ("0,1,2,3", 4), ("", 0), ("-1", 0), ("0,-1,2", 1), ("GPU-8f1a,GPU-77ee", 2), ("NoDevFiles", 1)],
)
def test_the_gpus_of_a_process(named: str, expected: int, tmp_path: Path) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": named}, tmp_path) == expected


def test_the_gpus_of_a_machine(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia11", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert visible_gpus({}, tmp_path) == 3


def test_a_model_is_spread_over_a_power_of_two() -> None:
    assert [parallel_size(gpus) for gpus in (0, 1, 2, 3, 4, 7, 8, 9)] == [1, 1, 2, 2, 4, 4, 8, 8]


@pytest.mark.server
def test_the_service_starts_it_says_how_it_is_and_takes_it_along(stand_in: StandIn, tmp_path: Path) -> None:
    command = tmp_path / "bin" / "vllm"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in.folder / "stand_in.py"} "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    words = ["--with-vllm", "tiny", "--vllm-flags", "--dtype=half --chat-template 'a b'"]
    with servers.Server(tmp_path / "data", *words, PATH=path, STAND_IN=str(stand_in.folder)) as service:
        asyncio.run(until(lambda: service.get("/readyz")["model"] == "ready"))
        assert service.get("/readyz")["model_problem"] is None
        pid, worker = stand_in.pid(), stand_in.pid("worker")
        stand_in.order("fail")
        os.kill(pid, signal.SIGKILL)
        asyncio.run(until(lambda: service.get("/readyz")["model"] == "waiting"))
        assert "was ended by SIGKILL" in service.get("/readyz")["model_problem"]
        assert service.get("/readyz")["ready"] is True, "logs are taken in without a model"
        stand_in.order("")
        asyncio.run(until(lambda: service.get("/readyz")["model"] == "ready"))
        pid, worker = stand_in.pid(), stand_in.pid("worker")
        service.stop()
    assert not any(map(alive, (pid, worker)))
    assert stand_in.starts[0].endswith("--dtype=half --chat-template a b")
    assert (tmp_path / "data" / "vllm.log").exists()


@pytest.mark.server
def test_a_service_that_cannot_have_it_does_not_start(tmp_path: Path, diagnose: Run) -> None:
    done = diagnose("serve", "--data", "data", "--port", "0", "--with-vllm", "tiny", PATH="/nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("diagnose: --with-vllm: vLLM is not installed")
    assert not (tmp_path / "data").exists()


def documented() -> list[str]:
    """The command of docs/vllm.md, in words."""
    (block,) = [part for part in (ROOT / "docs" / "vllm.md").read_text().split("\n\n") if part.startswith("    vllm serve")]
    return shlex.split(block.replace("\\\n", " "))


def test_the_flags_in_the_documents_are_those_of_the_service() -> None:
    words = " ".join(documented()).replace(" --", "\n--").splitlines()[1:]
    flags = {line.replace(" ", "=", 1) for line in words} - {"--host=127.0.0.1", "--port=8000"}
    assert flags == set(FLAGS) - {"--disable-uvicorn-access-log"}


@pytest.mark.model
def test_the_flags_are_vllms(engine: Server, tmp_path: Path) -> None:
    script = (
        "import sys, json; from vllm.entrypoints.launchers.cli_args import make_arg_parser as made;"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser as Parser;"
        "read = lambda words: made(Parser()).parse_args(words);"
        "[print(given.model_tag, given.tensor_parallel_size) for given in map(read, json.loads(sys.argv[1]))]"
    )
    service = VLLM("other", tmp_path / "log", command=["vllm"], gpus=4).arguments
    every = json.dumps([documented()[2:], service[2:]])
    done = subprocess.run([engine.python, "-c", script, every], capture_output=True, text=True, timeout=240)
    assert done.stdout.splitlines()[-2:] == ["Qwen/Qwen2.5-7B-Instruct 1", "other 4"], done.stderr[-2000:]


@pytest.mark.model
@pytest.mark.timeout(900)
def test_the_real_engine_answers_comes_back_after_its_death_and_goes_with_the_service(engine: Server, tmp_path: Path) -> None:
    question = Ask("why", "v1", (("user", "rank 3 stopped"),), {"type": "object", "required": []}, max_tokens=16)

    async def answers(url: str) -> bool:
        async with Model(Settings(url, timeout_s=120, cache=False)) as model:
            answer = await model.ask(question, job="job1")
            return answer.tokens_out > 0

    async def scene() -> None:
        flags = ["--enforce-eager", "--max-model-len=2048", "--max-num-seqs=4", "--served-model-name=tiny"]
        environment = {**os.environ, **ENVIRONMENT}
        command = ["nice", str(engine.vllm)]
        server = VLLM(str(engine.weights), tmp_path / "vllm.log", command=command, flags=flags, environment=environment)
        async with server:
            assert await server.wait_ready(300), (tmp_path / "vllm.log").read_text()[-3000:]
            assert await answers(server.url)
            assert server.pid is not None
            core = [pid for pid in members(server.pid) if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text()]
            os.kill(core[0], signal.SIGKILL)
            await until(lambda: server.state == "waiting", 120)
            assert await server.wait_ready(300)
            assert await answers(server.url)
            assert server.restarts == 1
            pid = server.pid
        assert pid is not None
        assert members(pid) == []

    asyncio.run(scene())
