"""The service as shippers see it: clients that we did not write, over a real socket; payloads of those that do not run here."""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

from tests.conftest import ROOT
from tests.support.servers import Server

pytestmark = pytest.mark.server
PAYLOADS = ROOT / "tests" / "payloads"
SHIPPERS = ROOT / "deploy" / "shippers"
FAILURE = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("shippers") / "data") as running:
        yield running


def sources(server: Server, job: str) -> dict[str, int]:
    """How many bytes of each source were received."""
    return {row["name"]: row["received"] for row in server.get(f"/v1/jobs/{job}/sources")["sources"]}


def texts(server: Server, job: str) -> list[str]:
    """The kept lines; nothing of what these tests send is known as regular."""
    return [line["text"] for line in server.lines(job)]


def until(what: Callable[[], Any], *, seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = what()
        except AssertionError:
            found = None
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def curl(server: Server, path: str, *words: str, stdin: bytes = b"") -> tuple[int, Any]:
    done = subprocess.run(
        ["curl", "-sS", "-w", "\n%{http_code}", *words, f"{server.url}{path}"], input=stdin, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status), json.loads(body) if body.startswith((b"{", b"[")) else body


def odd(count: int, first: int = 0) -> list[str]:
    """Lines that no rule knows, each once."""
    return [f"odd line number {i} of zebra" for i in range(first, first + count)]


# --- curl


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [(None, bytes), ("gzip", gzip.compress), ("zstd", zstandard.compress)],
    ids=["plain", "gzip", "zstd"],
)
def test_curl_streams_plain_text_and_resumes(server: Server, encoding: str | None, pack: Callable[[bytes], bytes]) -> None:
    job = f"curl-{encoding}"
    body = "".join(line + "\n" for line in odd(3000)).encode()
    words = [
        "-T",
        "-",
        "-X",
        "POST",
        "-H",
        "Content-Type: text/plain",
        *(["-H", f"Content-Encoding: {encoding}"] if encoding else []),
    ]
    path = f"/v1/jobs/{job}/logs?source=rank0.log&rank=0&offset="
    status, answer = curl(server, f"{path}0", *words, stdin=pack(body[:40_000]))
    assert (status, answer["next_offset"]) == (200, 40_000)
    status, answer = curl(server, f"{path}30000", *words, stdin=pack(body[30_000:]))
    assert (status, answer["next_offset"]) == (200, len(body))
    status, answer = curl(server, f"{path}{len(body) + 5}", *words, stdin=pack(b"x"))
    assert (status, answer["expected_offset"]) == (409, len(body))
    assert texts(server, job) == odd(3000)


def test_curl_sends_lines_as_they_are_written(server: Server) -> None:
    process = subprocess.Popen(
        ["curl", "-sS", "-T", "-", "-X", "POST", "-H", "Content-Type: application/x-ndjson", f"{server.url}/v1/jobs/live/logs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    for number in range(3):
        process.stdin.write(json.dumps({"log": odd(1, number)[0]}).encode() + b"\n")
        process.stdin.flush()
        assert until(lambda seen=number + 1: texts(server, "live") == odd(seen))
    out, _ = process.communicate(timeout=30)
    assert json.loads(out)["received"] == len("".join(line + "\n" for line in odd(3)))


# --- OTLP: opentelemetry-sdk


def otlp_logger(server: Server, *, compression: Any = None, **attributes: str) -> tuple[Any, Any]:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.resources import Resource

    words = {"compression": compression} if compression is not None else {}
    provider = LoggerProvider(resource=Resource(attributes))
    provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(f"{server.url}/v1/logs", timeout=20, **words)))
    logger = logging.Logger("train")
    logger.addHandler(LoggingHandler(logger_provider=provider))
    return logger, provider


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_opentelemetry_sdk(server: Server, packed: bool) -> None:
    from opentelemetry.exporter.otlp.proto.http import Compression

    logger, provider = otlp_logger(
        server,
        compression=Compression.Gzip if packed else Compression.NoCompression,
        SLURM_JOB_ID=f"88{int(packed)}",
        SLURM_PROCID="3",
        SLURMD_NODENAME="gpu-17",
        SLURM_RESTART_COUNT="1",
    )
    for line in odd(2000):
        logger.warning(line)
    logger.error(FAILURE)
    provider.shutdown()
    job = f"88{int(packed)}"
    assert texts(server, job) == [*odd(2000), FAILURE]
    assert list(sources(server, job)) == ["gpu-17/rank3"]
    server.end(job, 1)
    report = server.get(f"/v1/jobs/{job}/report")
    assert (report["diagnosis"]["reason"], report["job"]["attempt"]) == ("ecc_error", 2)
    assert (report["diagnosis"]["root_cause"]["rank"], report["diagnosis"]["root_cause"]["node"]) == (3, "gpu-17")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_opentelemetry_sdk_hears_of_partial_success_and_does_not_repeat_itself(server: Server) -> None:
    before = len(server.get("/v1/jobs", limit=1000)["jobs"])
    logger, provider = otlp_logger(server, something="else", **{"service.name": ""})
    logger.error("nobody's line")
    provider.shutdown()
    assert len(server.get("/v1/jobs", limit=1000)["jobs"]) == before


def test_otlp_says_what_was_not_stored_in_both_encodings(server: Server) -> None:
    from google.protobuf.json_format import MessageToJson, Parse
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

    def record(**attributes: str) -> LogRecord:
        pairs = [KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in attributes.items()]
        return LogRecord(body=AnyValue(string_value="a zebra"), attributes=pairs)

    request = ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=[record(job="partial"), record(), record(job="a b")])])]
    )
    for kind, body in (
        ("application/x-protobuf", request.SerializeToString()),
        ("application/json", MessageToJson(request).encode()),
    ):
        answer = server.client.post("/v1/logs", content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
        read = (
            Parse(answer.content, ExportLogsServiceResponse())
            if kind.endswith("json")
            else ExportLogsServiceResponse.FromString(answer.content)
        )
        assert read.partial_success.rejected_log_records == 2
        assert "no attribute names the job" in read.partial_success.error_message


# --- Loki: loki-logger-handler sends JSON, winston-loki protobuf


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_loki_logger_handler(server: Server, packed: bool) -> None:
    from loki_logger_handler.loki_logger_handler import LokiLoggerHandler

    class Text:
        def format(self, record: logging.LogRecord) -> tuple[str, dict[str, str]]:
            return record.getMessage(), {}

    job = f"loki-json-{int(packed)}"
    handler = LokiLoggerHandler(
        url=f"{server.url}/loki/api/v1/push",
        labels={"job": job, "filename": "rank0.log"},
        timeout=0.2,
        default_formatter=Text(),
        compressed=packed,
    )
    logger = logging.Logger("train")
    logger.addHandler(handler)
    for line in odd(500):
        logger.warning(line)
    assert until(lambda: len(texts(server, job)) == 500)
    assert texts(server, job) == odd(500), "its formatter quotes each line: that is transport"
    assert list(sources(server, job)) == ["rank0.log"]


def test_winston_loki(server: Server) -> None:
    folder = ROOT / "tests" / "clients"
    if shutil.which("node") is None or not (folder / "node_modules").is_dir():
        pytest.skip("node, or `npm ci --prefix tests/clients`, is missing")
    done = subprocess.run(
        ["node", "winston-loki.js", server.url, "300"], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    expected = sum(len(f"step {i} loss 2.5\n") for i in range(300))
    assert until(lambda: sources(server, "winston") == {"rank0.log": expected})


# --- syslog-ng with our configuration


def syslog_ng(server_url: str, folder: Path) -> subprocess.Popen[bytes]:
    """Runs ``deploy/shippers/syslog-ng.conf`` as it stands, but for addresses."""
    (folder / "spool").mkdir(exist_ok=True)
    return subprocess.Popen(
        ["syslog-ng", "-F", "--no-caps", "-f", str(SHIPPERS / "syslog-ng.conf"), "-R", str(folder / "persist"),
         "-c", str(folder / "control"), "-p", str(folder / "pid")],
        env={**os.environ, "DIAGNOSE_URL": server_url, "LOGS": str(folder / "logs"), "SPOOL": str(folder / "spool"),
             "DIAGNOSE_TOKEN": "none"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("syslog-ng") is None, reason="syslog-ng-mod-http is not installed")
def test_syslog_ng_ships_slurm_output_and_waits_for_a_service_that_is_away(tmp_path: Path) -> None:
    (tmp_path / "logs" / "kim").mkdir(parents=True)
    path = tmp_path / "logs" / "kim" / "slurm-4711_3.out"
    path.write_text("".join(line + "\n" for line in odd(1000)))
    with Server(tmp_path / "data") as server:
        process = syslog_ng(server.url, tmp_path)
        try:
            assert until(lambda: len(texts(server, "4711_3")) == 1000), server.log[-2000:]
            server.stop()
            with open(path, "a") as file:
                file.write("".join(line + "\n" for line in odd(500, 1000)))
            time.sleep(2)
            server.start()
            assert until(lambda: len(texts(server, "4711_3")) >= 1500)
        finally:
            process.terminate()
            _, error = process.communicate(timeout=20)
        assert texts(server, "4711_3") == odd(1500), error
        assert list(sources(server, "4711_3")) == [str(path)]


# --- payloads of others


@pytest.mark.parametrize(
    ("payload", "path", "kind", "job", "source"),
    [
        ("fluent-bit.json", "/v1/records", "application/json", "ml.llama", "llama-worker-3/pytorch"),
        ("vector.ndjson", "/v1/records", "application/x-ndjson", "ml.llama", "llama-worker-3/pytorch"),
        ("rsyslog.ndjson", "/v1/records", "application/x-ndjson", "4711_3", "/logs/kim/slurm-4711_3.out"),
        ("promtail.json", "/loki/api/v1/push", "application/json", "4711", "/logs/kim/slurm-4711.out"),
    ],
)
def test_payload(tmp_path: Path, payload: str, path: str, kind: str, job: str, source: str) -> None:
    body = (PAYLOADS / payload).read_bytes()
    with Server(tmp_path / "data") as server:
        for packed in (False, True, False):  # shippers send again what they have no answer for
            answer = server.client.post(
                path,
                content=gzip.compress(body) if packed else body,
                headers={"Content-Type": kind, **({"Content-Encoding": "gzip"} if packed else {})},
            )
            assert answer.status_code in (200, 204), answer.text
        assert list(sources(server, job)) == [source]

        def lines_in() -> int:
            return int(server.get(f"/v1/jobs/{job}")["attempts"][0]["lines_in"])

        assert until(lambda: lines_in() >= 2)  # read, after it was safe
        time.sleep(0.5)
        assert lines_in() == 2, "what was sent again counts once"
        if payload != "rsyslog.ndjson":
            server.end(job, 1)
            assert server.get(f"/v1/jobs/{job}/report")["diagnosis"]["reason"] == "ecc_error"


# --- hostile


HOSTILE: dict[str, tuple[str, dict[str, str], bytes | Callable[[], bytes], int, str]] = {
    "otlp-garbage": ("/v1/logs", {"Content-Type": "application/x-protobuf"}, b"\xff" * 1000, 400, "protobuf"),
    "otlp-json-cut-off": ("/v1/logs", {"Content-Type": "application/json"}, b'{"resourceLogs": [', 400, "not JSON"),
    "otlp-truncated-gzip": (
        "/v1/logs", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, gzip.compress(b"{}" * 99)[:-9], 400, "ends early"
    ),
    "otlp-no-gzip": ("/v1/logs", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, b"{}", 400, "corrupt"),
    "otlp-bomb": (
        "/v1/logs", {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}, lambda: gzip.compress(b"\0" * (300 << 20)), 413, "more than"
    ),
    "otlp-brotli": ("/v1/logs", {"Content-Type": "application/json", "Content-Encoding": "br"}, b"{}", 415, "use gzip"),
    "otlp-text": ("/v1/logs", {"Content-Type": "text/plain"}, b"hello", 415, "application/x-protobuf"),
    "loki-no-snappy": ("/loki/api/v1/push", {"Content-Type": "application/x-protobuf"}, b"hello", 400, "snappy"),
    "loki-labels": (
        "/loki/api/v1/push", {"Content-Type": "application/json"},
        json.dumps({"streams": [{"stream": {"job": "x" * 5000}, "values": [["1", "a"]]}]}).encode(), 400, "not the name of a job",
    ),
    "loki-control-characters": (
        "/loki/api/v1/push", {"Content-Type": "application/json"},
        json.dumps({"streams": [{"stream": {"job": "a\x1b[31m"}, "values": [["1", "a"]]}]}).encode(), 400, "not the name of a job",
    ),
    "loki-time": (
        "/loki/api/v1/push", {"Content-Type": "application/json"},
        json.dumps({"streams": [{"stream": {"job": "a"}, "values": [["tomorrow", "a"]]}]}).encode(), 400, "is not a time",
    ),
    "records-utf16": ("/v1/records", {"Content-Type": "application/json"}, '[{"log":"a"}]'.encode("utf-16"), 400, "not JSON"),
    "records-nothing-usable": ("/v1/records", {"Content-Type": "application/json"}, b"[1,2]", 400, "none of 2 records"),
    "records-xml": ("/v1/records", {"Content-Type": "text/xml"}, b"<a/>", 415, "use application/json"),
    "records-zstd-bomb": (
        "/v1/records?job=a", {"Content-Type": "application/json", "Content-Encoding": "zstd"},
        lambda: zstandard.compress(b"[" + b" " * (200 << 20)), 413, "more than",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(server: Server, name: str) -> None:
    path, headers, body, status, words = HOSTILE[name]
    answer = server.client.post(path, headers=headers, content=body() if callable(body) else body)
    assert answer.status_code == status, answer.text
    assert words in answer.content.decode("utf-8", "replace")
    assert server.client.get("/healthz").status_code == 200


def test_a_time_in_the_future_is_only_a_time(server: Server) -> None:
    values = [["9" * 19, "a zebra from 2286"], ["1", "a zebra from 1970"]]
    body = {"streams": [{"stream": {"job": "times"}, "values": values}]}
    assert server.client.post("/loki/api/v1/push", json=body).status_code == 204
    assert texts(server, "times") == ["a zebra from 2286", "a zebra from 1970"]


def memory(server: Server) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def test_bombs_from_many_sides_stay_within_memory(server: Server) -> None:
    bombs = [
        (
            "/v1/logs",
            {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"},
            gzip.compress(b"\x0a\x00" * (32 << 20)),
        ),
        ("/v1/logs", {"Content-Type": "application/json", "Content-Encoding": "zstd"}, zstandard.compress(b"[" * (60 << 20))),
        (
            "/v1/records?job=b",
            {"Content-Type": "application/json", "Content-Encoding": "zstd"},
            zstandard.compress(b"x" * (120 << 20)),
        ),
        (
            "/v1/jobs/b/logs",
            {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"},
            gzip.compress(b"{}" * (40 << 20)),
        ),
    ]
    before = memory(server)
    statuses: list[int] = []

    def throw(number: int) -> None:
        path, headers, body = bombs[number % len(bombs)]
        statuses.append(httpx.post(f"{server.url}{path}", headers=headers, content=body, timeout=120).status_code)

    threads = [threading.Thread(target=throw, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 400, 413, 429}
    assert len(statuses) == 16
    assert memory(server) - before < 700 << 20
    assert curl(server, "/healthz")[0] == 200


# --- send and runner, with the real service


def test_send_survives_a_service_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("".join(line + "\n" for line in odd(60_000)))
    with Server(tmp_path / "data") as server:
        sending = subprocess.Popen(
            [sys.executable, "-m", "diagnose", "send", "rank0.log", "--job", "run7", "--to", server.url, "--exit-code", "1"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
        )
        for _ in range(4):
            time.sleep(0.4)
            server.kill()
            server.start()
        assert sending.wait(60) == 0, sending.communicate()
        assert texts(server, "run7") == odd(60_000)
        assert server.get("/v1/jobs/run7")["attempts"][0]["exit_code"] == 1


def test_runner_and_service_killed_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "slurm-4711.out"
    total, done = 6000, threading.Event()

    def write() -> None:
        with open(path, "a", buffering=1) as file:
            for line in odd(total):
                file.write(line + "\n")
                time.sleep(0.001)
        done.set()

    with Server(tmp_path / "data") as server:
        writer = threading.Thread(target=write)
        writer.start()

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "diagnose",
                    "runner",
                    "--to",
                    server.url,
                    "--state",
                    "state",
                    f"{tmp_path}/slurm-%j.out",
                ],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stderr=subprocess.DEVNULL,
            )

        runner = start()
        while not done.is_set():
            time.sleep(0.7)
            runner.kill()
            runner.wait()
            runner = start()
            time.sleep(0.7)
            server.kill()
            server.start()
        writer.join()
        assert until(lambda: sources(server, "4711").get(str(path)) == path.stat().st_size, seconds=60)
        runner.terminate()
        assert runner.wait(30) == 0
        assert texts(server, "4711") == odd(total)


def test_tokens_are_asked_for_on_every_way_in(tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = subprocess.run(
        [sys.executable, "-m", "diagnose", "tokens", "create", "--data", str(data), "--role", "ingest", "shippers"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    token = made.stdout.split()[-1]
    with Server(data) as server:
        for path in ("/v1/logs", "/loki/api/v1/push", "/v1/records", "/v1/jobs/a/logs"):
            assert server.client.post(path, content=b"{}").status_code == 401
        body = {"streams": [{"stream": {"job": "a"}, "values": [["1", "a zebra"]]}]}
        answer = server.client.post("/loki/api/v1/push", json=body, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 204
