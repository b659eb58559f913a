"""Streams of other systems' clients, which show a token in their own way: real clients, one service with tokens."""

from __future__ import annotations

import base64
import contextlib
import logging
import logging.handlers
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from diagnose.errors import DiagnoseError
from service.intake.sockets.otlp_grpc import _made_folder
from service.store import Store, tokens
from tests.conftest import ROOT
from tests.service.intake.test_shippers import odd, sources, texts, until
from tests.support.servers import Server

pytestmark = pytest.mark.server


@dataclass
class Site:
    """A service that needs tokens, its administrator's client, the token of a shipper for two projects, and ports."""

    server: Server
    shipper: str
    syslog: int
    forward: int
    grpc: int


def token(data: Path, name: str, *words: str) -> str:
    made = subprocess.run(
        [sys.executable, "-m", "diagnose", "tokens", "create", name, "--data", str(data), *words],
        capture_output=True, text=True, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("streams") / "data"
    admin = token(data, "admin", "--role", "admin")
    shipper = token(data, "shipper", "--role", "ingest", "--project", "apes", "--project", "bees", "--job", "run*")
    (data.parent / "identities.yaml").write_text("job: ['{job}', '{program}']\n")
    syslog, forward, grpc = free_ports(3)
    words = {"syslog_port": syslog, "syslog_as": "shipper", "forward_port": forward, "forward_as": "shipper", "grpc_port": grpc}
    settings = {f"DIAGNOSE_SERVE_{name.upper()}": str(value) for name, value in words.items()}
    with Server(data, "--identities", str(data.parent / "identities.yaml"), **settings) as server:
        server.client.headers["Authorization"] = f"Bearer {admin}"
        yield Site(server, shipper, syslog, forward, grpc)


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def basic(password: str) -> str:
    return base64.b64encode(f"shipper:{password}".encode()).decode()


# --- a token that was just made


def test_a_token_counts_from_its_first_use_however_it_is_shown(site: Site) -> None:
    import grpc

    def new(role: str) -> str:
        store = Store.in_folder(site.server.data)
        try:
            return store.write(lambda connection: tokens.create(connection, f"new-{time.time_ns()}", role))
        finally:
            store.close()

    def told(method: str, path: str, role: str, scheme: str, shown: Callable[[str], str] = str, **body: Any) -> int:
        head = {"Authorization": f"{scheme} {shown(new(role))}"}
        return httpx.request(method, f"{site.server.url}{path}", headers=head, timeout=30, **body).status_code

    streams = {"streams": [{"stream": {"job": "run-new"}, "values": [["1", "a zebra"]]}]}
    for _ in range(3):  # the tokens may be read again between any two of these, yet hardly always
        assert told("POST", "/v1/jobs/run-new/logs", "ingest", "Bearer", content=b"a zebra\n") == 200
        assert told("GET", "/v1/jobs", "read", "Bearer") == 200
        assert told("GET", "/v1/jobs/run-new", "read", "Bearer") in (200, 404)
        assert told("POST", "/loki/api/v1/push", "ingest", "Basic", basic, json=streams) == 204
        assert told("POST", "/services/collector/event?job=run-new", "ingest", "Splunk", json={"event": "a zebra"}) == 200
        signed_in = httpx.post(f"{site.server.url}/ui/sign-in", data={"token": new("read")}, timeout=30)
        assert signed_in.status_code == 303
        with grpc.insecure_channel(f"127.0.0.1:{site.grpc}") as channel:
            export = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
            export(b"", metadata=(("authorization", f"Bearer {new('ingest')}"),), timeout=30)


# --- Loki with basic auth and a tenant


@pytest.mark.parametrize("tenant", [None, "apes", "bees"])
def test_loki_logger_handler_with_a_password_and_a_tenant(site: Site, tenant: str | None) -> None:
    from loki_logger_handler.loki_logger_handler import LokiLoggerHandler

    class Text:
        def format(self, record: logging.LogRecord) -> tuple[str, dict[str, str]]:
            return record.getMessage(), {}

    handler = LokiLoggerHandler(
        url=f"{site.server.url}/loki/api/v1/push",
        labels={"job": f"run-{tenant}", "filename": "rank0.log"},
        timeout=0.2,
        default_formatter=Text(),
        auth=("shipper", site.shipper),
        additional_headers={"X-Scope-OrgID": tenant} if tenant else {},
    )
    logger = logging.Logger("train")
    logger.addHandler(handler)
    for line in odd(100):
        logger.warning(line)
    job = f"{tenant or 'apes'}~run-{tenant}"
    assert until(lambda: len(texts(site.server, job)) == 100)
    assert texts(site.server, job) == odd(100)


def test_a_tenant_that_is_none_of_the_tokens_projects_is_refused(site: Site) -> None:
    head = {"Authorization": f"Basic {basic(site.shipper)}", "X-Scope-OrgID": "cats"}
    body = {"streams": [{"stream": {"job": "run-cats"}, "values": [["1", "a zebra"]]}]}
    assert httpx.post(f"{site.server.url}/loki/api/v1/push", json=body, headers=head).status_code == 403
    head["Authorization"] = f"Basic {basic('dgn_wrong')}"
    assert httpx.post(f"{site.server.url}/loki/api/v1/push", json=body, headers=head).status_code == 401
    assert site.server.client.get("/v1/jobs/cats~run-cats").status_code == 404


# --- Splunk's event collector


def test_splunk_handler(site: Site) -> None:
    from splunk_handler import SplunkHandler

    handler = SplunkHandler(
        host="localhost",
        port=0,
        token=site.shipper,
        index="main",
        url=f"{site.server.url}/services/collector/event?job=run-splunk",
        source="rank0.log",
        hostname="gpu-17",
        flush_interval=0.2,
    )
    logger = logging.Logger("train")
    logger.addHandler(handler)
    for line in odd(200):
        logger.warning(line)
    handler.force_flush()
    assert until(lambda: len(texts(site.server, "apes~run-splunk")) == 200)
    assert texts(site.server, "apes~run-splunk") == odd(200)
    assert list(sources(site.server, "apes~run-splunk")) == ["rank0.log"]


def test_what_splunk_clients_ask_besides(site: Site) -> None:
    head = {"Authorization": f"Splunk {site.shipper}", "X-Splunk-Request-Channel": "6f1b"}
    with httpx.Client(base_url=site.server.url, headers=head) as client:
        assert httpx.get(f"{site.server.url}/services/collector/health").json()["code"] == 17
        raw = client.post("/services/collector/raw?job=run-raw&source=a.log", content=b"one zebra\ntwo zebras\n")
        assert (raw.status_code, raw.json()["code"]) == (200, 0)
        assert texts(site.server, "apes~run-raw") == ["one zebra", "two zebras"]
        ack = raw.json()["ackId"]
        said = client.post("/services/collector/ack", json={"acks": [ack, ack + 1]}).json()
        assert said == {"acks": {str(ack): True, str(ack + 1): False}}
        forbidden = client.post("/services/collector", json={"event": "a", "fields": {"job": "other"}})
        assert (forbidden.status_code, forbidden.json()["code"]) == (400, 6)
        assert "jobs of other names" in forbidden.json()["text"]


# --- Elasticsearch's bulk


def test_elasticsearch_bulk_helper(site: Site) -> None:
    from elasticsearch import Elasticsearch
    from elasticsearch.helpers import bulk

    # Its keys are what Elasticsearch makes: an id and a secret, joined by a colon.
    with Elasticsearch(f"{site.server.url}/elastic", api_key=basic(site.shipper)) as client:
        assert client.info()["version"]["number"]
        documents = [
            {"_op_type": "create", "_index": "logs", "message": line, "job": "run-elastic", "file": "rank0.log"}
            for line in odd(300)
        ]
        stored, failed = bulk(client, documents, chunk_size=100)
        assert (stored, failed) == (300, [])
        foreign = [{"_index": "logs", "message": "a", "job": "other"}, {"_index": "logs", "message": "a", "job": "run-two"}]
        stored, failed = bulk(client, foreign, raise_on_error=False)
        assert (stored, [one["index"]["status"] for one in failed]) == (1, [403])
    with Elasticsearch(f"{site.server.url}/elastic", basic_auth=("shipper", site.shipper)) as client:
        assert client.cluster.health()["status"] == "green"
        assert client.license.get()["license"]["status"] == "active"
    assert texts(site.server, "apes~run-elastic") == odd(300)
    assert list(sources(site.server, "apes~run-elastic")) == ["rank0.log"]


@pytest.mark.parametrize(
    ("path", "head", "body", "status"),
    [
        ("/elastic/_bulk", "ApiKey x", b'{"create":{}}\n{"message":"a"}\n', 401),
        ("/services/collector/event", "Splunk x", b'{"event":"a"}', 401),
        ("/elastic/_bulk", None, b"hello\n", 400),
        ("/services/collector/event", None, b"hello", 400),
    ],
)
def test_wrong_tokens_and_bodies(site: Site, path: str, head: str | None, body: bytes, status: int) -> None:
    authorization = head or f"Basic {basic(site.shipper)}"
    answer = httpx.post(f"{site.server.url}{path}", content=body, headers={"Authorization": authorization})
    assert answer.status_code == status, answer.text


# --- syslog


def logger(port: int, job: str, *words: str, text: str) -> None:
    """``logger`` of util-linux."""
    said = "--sd-id", "diagnose@0", "--sd-param", f'job="{job}"', "--sd-param", 'rank="3"'
    subprocess.run(
        ["logger", "--server", "127.0.0.1", "--port", str(port), "--tcp", "--rfc5424", "--tag", "train", *said, *words],
        input=text, text=True, check=True, timeout=30,
    )  # fmt: skip


@pytest.mark.parametrize("words", [(), ("--octet-count",)], ids=["line-ends", "octet-counts"])
def test_logger_of_util_linux(site: Site, words: tuple[str, ...]) -> None:
    job = f"run-logger{len(words)}"
    logger(site.syslog, job, *words, text="".join(f"{line}\n" for line in odd(50)))
    assert until(lambda: len(texts(site.server, f"apes~{job}")) == 50)
    assert texts(site.server, f"apes~{job}") == odd(50)
    assert {one["rank"] for one in site.server.get(f"/v1/jobs/apes~{job}/sources")["sources"]} == {3}


def test_logger_may_show_a_token_of_its_own(site: Site) -> None:
    other = token(site.server.data, "syslog-of-cats", "--role", "ingest", "--project", "cats")
    logger(site.syslog, "run-cats", "--sd-param", f'token="{other}"', text="one zebra\n")
    assert until(lambda: texts(site.server, "cats~run-cats") == ["one zebra"])
    logger(site.syslog, "run-cats", "--sd-param", 'token="dgn_wrong"', text="a wrong zebra\n")
    logger(site.syslog, "other", text="a zebra of a job that the token may not name\n")
    said = 'diagnose_socket_lines_total{protocol="syslog",result="rejected"}'
    assert until(lambda: said in site.server.client.get("/metrics").text)
    assert texts(site.server, "cats~run-cats") == ["one zebra"]
    assert site.server.client.get("/v1/jobs/apes~other").status_code == 404


def test_syslog_handler_of_python(site: Site) -> None:
    handler = logging.handlers.SysLogHandler(("127.0.0.1", site.syslog), socktype=socket.SOCK_STREAM)
    handler.ident = "run-python: "
    log = logging.Logger("train")
    log.addHandler(handler)
    for line in odd(100):
        log.warning(line)
    handler.close()
    assert until(lambda: len(texts(site.server, "apes~run-python")) == 100)
    assert texts(site.server, "apes~run-python") == [f"run-python: {line}" for line in odd(100)]


@pytest.mark.skipif(shutil.which("syslog-ng") is None, reason="syslog-ng is not installed")
def test_syslog_ng_over_tcp(site: Site, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("".join(f"{line}\n" for line in odd(200)))
    (tmp_path / "syslog-ng.conf").write_text(
        f"""@version: 3.38
source s {{ file("{tmp_path}/train.log" flags(no-parse) follow-freq(0.2)); }};
rewrite r {{ set("run-syslog-ng" value(".SDATA.diagnose@0.job")); }};
destination d {{ syslog("127.0.0.1" port({site.syslog}) transport("tcp")); }};
log {{ source(s); rewrite(r); destination(d); }};
"""
    )
    process = subprocess.Popen(
        ["syslog-ng", "-F", "--no-caps", "-f", str(tmp_path / "syslog-ng.conf"), "-R", str(tmp_path / "persist"),
         "-c", str(tmp_path / "control"), "-p", str(tmp_path / "pid")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert until(lambda: len(texts(site.server, "apes~run-syslog-ng")) == 200)
    finally:
        process.terminate()
        process.wait(20)
    assert texts(site.server, "apes~run-syslog-ng") == odd(200)


# --- forward


def test_fluent_logger(site: Site) -> None:
    from fluent.sender import FluentSender

    sender = FluentSender("train", host="127.0.0.1", port=site.forward)
    for line in odd(100):
        assert sender.emit("out", {"message": line, "job": "run-fluent", "file": "rank0.log"})
    sender.close()
    assert until(lambda: len(texts(site.server, "apes~run-fluent")) == 100)
    assert texts(site.server, "apes~run-fluent") == odd(100)
    assert list(sources(site.server, "apes~run-fluent")) == ["rank0.log"]


def test_a_chunk_is_acknowledged_once_it_is_stored_and_counts_once(site: Site) -> None:
    import msgpack

    chunk = msgpack.packb(["train", [[1, {"message": "one zebra", "job": "run-chunk"}]], {"chunk": "c1"}])
    for _ in range(2):  # a sender that lost its connection before the answer sends it again, over another one
        with socket.create_connection(("127.0.0.1", site.forward), timeout=20) as connection:
            connection.sendall(chunk)
            assert msgpack.unpackb(connection.recv(100)) == {"ack": "c1"}
    assert texts(site.server, "apes~run-chunk") == ["one zebra"]
    assert list(sources(site.server, "apes~run-chunk").values()) == [len("one zebra\n")]


# --- OTLP over gRPC


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("tenant", [None, "bees"])
def test_opentelemetry_over_grpc(site: Site, tenant: str | None) -> None:
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.resources import Resource

    head = {"authorization": f"Bearer {site.shipper}", **({"x-scope-orgid": tenant} if tenant else {})}
    exporter = OTLPLogExporter(f"127.0.0.1:{site.grpc}", insecure=True, headers=tuple(head.items()), timeout=20)
    provider = LoggerProvider(resource=Resource({"job": "run-grpc", "rank": "3"}))
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    log = logging.Logger("train")
    log.addHandler(LoggingHandler(logger_provider=provider))
    for line in odd(300):
        log.warning(line)
    provider.shutdown()
    assert texts(site.server, f"{tenant or 'apes'}~run-grpc") == odd(300)


def test_grpc_refuses_in_its_own_words(site: Site) -> None:
    import grpc

    def status(body: bytes, **metadata: str) -> tuple[grpc.StatusCode, str]:
        with grpc.insecure_channel(f"127.0.0.1:{site.grpc}") as channel:
            export = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
            with pytest.raises(grpc.RpcError) as caught:
                export(body, metadata=tuple(metadata.items()), timeout=20)
            return caught.value.code(), caught.value.details()

    known = f"Bearer {site.shipper}"
    assert status(b"")[0] is grpc.StatusCode.UNAUTHENTICATED
    assert status(b"", authorization="Bearer dgn_wrong")[0] is grpc.StatusCode.UNAUTHENTICATED
    assert status(b"", authorization=known, **{"x-scope-orgid": "cats"})[0] is grpc.StatusCode.PERMISSION_DENIED
    code, details = status(b"\xff" * 9, authorization=known)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "not a protobuf message" in details


def test_ports_take_what_comes_after_noise(site: Site) -> None:
    for port in (site.syslog, site.forward, site.grpc):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as noise:
            noise.sendall(b"GET / HTTP/1.1\r\n" + bytes(range(256)) * 50)
    logger(site.syslog, "run-after", text="a zebra after the noise\n")
    assert until(lambda: texts(site.server, "apes~run-after") == ["a zebra after the noise"])


def test_certificates_of_both_ends_and_a_token_that_is_revoked(tmp_path: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(tmp_path / "key"),
         "-out", str(tmp_path / "cert")],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    data, (port,) = tmp_path / "data", free_ports(1)
    token(data, "nodes", "--role", "ingest")
    settings = {
        "TLS_CERTIFICATE": str(tmp_path / "cert"), "TLS_KEY": str(tmp_path / "key"), "CLIENTS_CA": str(tmp_path / "cert"),
        "SYSLOG_PORT": str(port), "SYSLOG_AS": "nodes",
    }  # fmt: skip
    with Server(data, **{f"DIAGNOSE_SERVE_{name}": value for name, value in settings.items()}) as server:
        context = ssl.create_default_context(cafile=tmp_path / "cert")

        def is_read() -> bool:
            """Whether the connection stays open after a line."""
            with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
                try:
                    with context.wrap_socket(plain, server_hostname="localhost") as connection:
                        connection.sendall(b'<14>1 - n train - - [x@9 job="run7"] one zebra\n')
                        connection.settimeout(1)
                        return connection.recv(1) != b""
                except TimeoutError:
                    return True
                except OSError:
                    return False

        assert not is_read(), "without a certificate"
        context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
        assert is_read()
        revoked = subprocess.run(
            [sys.executable, "-m", "diagnose", "tokens", "revoke", "nodes", "--data", str(data)],
            capture_output=True, cwd=ROOT, timeout=60,
        )  # fmt: skip
        assert revoked.returncode == 0, revoked.stderr
        assert until(lambda: not is_read())
        assert "the token is not valid" in server.log


# --- strangers


EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service whose ports take few strangers, and wait for them a short time; nobody is let in without a token, but on the
    port of forward.
    """
    data = tmp_path_factory.mktemp("crowded") / "data"
    shipper = token(data, "shipper", "--role", "ingest")
    (data.parent / "identities.yaml").write_text("job: ['{job}', '{program}']\n")
    syslog, forward, grpc = free_ports(3)
    few = {"HEAD_S": "3", "REQUEST_S": "3", "MOST_STRANGERS": "40", "MOST_STRANGERS_ADDRESS": "30"}
    named = {"FORWARD_PORT": str(forward), "FORWARD_AS": "shipper"}
    settings = {"SYSLOG_PORT": str(syslog), "GRPC_PORT": str(grpc), "TRUSTED_PROXIES": "127.0.0.77", **named, **few}
    words = "--identities", str(data.parent / "identities.yaml")
    with Server(data, *words, **{f"DIAGNOSE_SERVE_{name}": value for name, value in settings.items()}) as server:
        server.client.headers["Authorization"] = f"Bearer {token(data, 'admin', '--role', 'admin')}"
        yield Site(server, shipper, syslog, forward, grpc)


def stranger(port: int, address: str) -> socket.socket:
    made = socket.socket()
    made.settimeout(20)
    made.bind((address, 0))
    made.connect(("127.0.0.1", port))
    return made


def shown_line(site: Site, job: str, text: str) -> bytes:
    return f'<13>1 - gpu-1 {job} - - [diagnose@0 token="{site.shipper}"] {text}\n'.encode()


def test_strangers_that_say_a_byte_now_and_then_do_not_keep_a_port_from_who_shows_a_token(crowded: Site) -> None:
    """A new byte once gave a stranger the whole time again, and newcomers were turned away while they held all places."""
    sender = stranger(crowded.syslog, "127.0.0.9")
    sender.sendall(shown_line(crowded, "early", "a zebra that came early"))
    assert until(lambda: texts(crowded.server, "early"))
    held = [stranger(crowded.syslog, f"127.0.0.{2 + number // 30}") for number in range(60)]
    began, ended = time.monotonic(), set()
    while time.monotonic() - began < 5:
        for number, one in enumerate(held):
            try:
                one.sendall(b"<")
            except OSError:
                ended.add(number)
        time.sleep(0.3)
        if 2.2 < time.monotonic() - began < 2.6:
            with stranger(crowded.syslog, "127.0.0.2") as late:
                late.sendall(shown_line(crowded, "late", "a zebra that came late"))
    assert until(lambda: texts(crowded.server, "late")), "one of the oldest made room"
    assert ended == set(range(60)), "each was cut off after its time"
    sender.sendall(shown_line(crowded, "early", "a zebra that stayed"))
    assert until(lambda: len(texts(crowded.server, "early")) == 2), "who has shown a token is none of them"
    for one in (*held, sender):
        one.close()


def test_strangers_that_are_let_in_and_say_nothing_make_room(crowded: Site) -> None:
    """Where a setting names in whose name they speak, they are let in at once, and once kept a port from everybody for ever."""
    import msgpack

    def event(job: str, text: str) -> bytes:
        return bytes(msgpack.packb(["train", [[1, {"job": job, "log": text}]]]))

    speaks = stranger(crowded.forward, "127.0.0.2")
    speaks.sendall(event("speaks", "a zebra that speaks"))
    assert until(lambda: texts(crowded.server, "speaks"))
    held = [stranger(crowded.forward, "127.0.0.2") for _ in range(29)]
    time.sleep(2)
    speaks.sendall(event("speaks", "a zebra that speaks again"))
    time.sleep(2)
    with stranger(crowded.forward, "127.0.0.2") as late:
        late.sendall(event("silent", "a zebra that came late"))
        assert until(lambda: texts(crowded.server, "silent"))
    speaks.sendall(event("speaks", "a zebra that stayed"))
    assert until(lambda: len(texts(crowded.server, "speaks")) == 3), "who was silent longest made room"
    for one in (*held, speaks):
        one.close()


def test_a_trusted_proxy_may_have_more_connections_than_one_address(crowded: Site) -> None:
    held = [stranger(crowded.syslog, "127.0.0.77") for _ in range(35)]
    time.sleep(0.5)  # all are there before one says anything
    for number, one in enumerate(held):
        one.sendall(shown_line(crowded, "proxied", f"a zebra, number {number}"))
    assert until(lambda: len(texts(crowded.server, "proxied")) == 35)
    for one in held:
        one.close()


def test_connections_over_grpc_without_a_call_are_closed(crowded: Site) -> None:
    held = [stranger(crowded.grpc, "127.0.0.2") for _ in range(50)]
    for one in held:
        one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")  # a client's greeting
    for one in held:
        with contextlib.suppress(ConnectionError):
            while one.recv(65536):
                pass
        one.close()


def test_calls_without_a_message_or_a_token_do_not_keep_others_out(crowded: Site) -> None:
    """There may be 64 calls at once. Strangers could hold them for ever, by calls whose message never came."""
    import grpc

    def never() -> Iterator[bytes]:
        time.sleep(30)
        yield b""

    known = ("authorization", f"Bearer {crowded.shipper}")
    with grpc.insecure_channel(f"127.0.0.1:{crowded.grpc}") as channel:
        export = channel.stream_unary(EXPORT)
        held = [export.future(never(), metadata=shown) for shown in [()] * 70 + [(known,)] * 2]
        codes = [one.exception(20).code() for one in held]
        assert codes[-1] is grpc.StatusCode.UNAVAILABLE, "it may be sent again"
        assert {grpc.StatusCode.UNAUTHENTICATED} <= set(codes[:-2]) <= {
            grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED,
        }  # fmt: skip
        channel.unary_unary(EXPORT)(b"", metadata=(known,), timeout=20)


def test_a_message_of_a_stranger_is_not_taken_into_memory(crowded: Site) -> None:
    """24 messages of 50 MB once took 2 GB, before anybody asked whose they were."""
    import grpc

    def memory() -> int:
        told = Path(f"/proc/{crowded.server.pid}/status").read_text()
        return next(int(line.split()[1]) // 1024 for line in told.splitlines() if line.startswith("VmHWM"))

    Path(f"/proc/{crowded.server.pid}/clear_refs").write_text("5")
    before, body = memory(), bytes(50 << 20)
    with grpc.insecure_channel(f"127.0.0.1:{crowded.grpc}", options=[("grpc.max_send_message_length", -1)]) as channel:
        export = channel.unary_unary(EXPORT)
        sent = [export.future(body, timeout=60) for _ in range(8)]
        assert {one.exception(60).code() for one in sent} == {grpc.StatusCode.UNAUTHENTICATED}
    assert memory() - before < 100, "megabytes"


def test_a_call_has_one_message(crowded: Site) -> None:
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{crowded.grpc}") as channel:
        export = channel.stream_unary(EXPORT)
        known = (("authorization", f"Bearer {crowded.shipper}"),)
        for messages, words in ((iter([b"", b""]), "a call has one message"), (iter([]), "no message")):
            with pytest.raises(grpc.RpcError) as caught:
                export(messages, metadata=known, timeout=20)
            assert (caught.value.code(), words in caught.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_a_data_folder_with_any_name_will_do_for_grpc(tmp_path: Path) -> None:
    """gRPC tells the other end's name as an address on the web, so it was not known, and each export was told to come again."""
    import grpc

    (port,) = free_ports(1)
    ours = tempfile.TemporaryDirectory(prefix="a b%20c", dir="/tmp")
    with ours as folder:
        shipper = token(Path(folder) / "data", "shipper", "--role", "ingest")
        with (
            Server(Path(folder) / "data", DIAGNOSE_SERVE_GRPC_PORT=str(port)),
            grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            channel.unary_unary(EXPORT)(b"", metadata=(("authorization", f"Bearer {shipper}"),), timeout=30)


def test_a_data_folder_that_is_too_deep_for_grpc_has_a_temporary_one(tmp_path: Path) -> None:
    import grpc

    (port,) = free_ports(1)
    deep = tmp_path / ("deep" * 30)
    shipper = token(deep, "shipper", "--role", "ingest")
    with tempfile.TemporaryDirectory(dir="/tmp") as places:
        server = Server(deep, TMPDIR=places, DIAGNOSE_SERVE_GRPC_PORT=str(port))
        with server, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            channel.unary_unary(EXPORT)(b"", metadata=(("authorization", f"Bearer {shipper}"),), timeout=30)
            (made,) = Path(places).glob("diagnose-grpc-*")
            assert made.stat().st_mode & 0o777 == 0o700
            assert server.stop() == 0
        assert not made.exists()


def test_where_no_folder_for_grpc_is_short_enough_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("deep" * 30)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(DiagnoseError, match="the path is too long for a socket"):
        _made_folder(deep)
    assert not list(deep.iterdir())


@pytest.mark.parametrize("link", [False, True])
def test_what_is_in_the_place_of_the_folder_for_grpc_is_named(link: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        there = Path(folder) / "grpc"
        there.symlink_to(folder) if link else there.write_text("x")
        with pytest.raises(DiagnoseError, match="move away what is there") as caught:
            _made_folder(Path(folder))
        assert caught.value.where == str(there)


def test_what_a_killed_service_left_of_grpc_is_gone_with_the_next_start(tmp_path: Path) -> None:
    import grpc

    places, data = tmp_path / "places", tmp_path / "data"
    places.mkdir()
    shipper = token(data, "shipper", "--role", "ingest")
    (port,) = free_ports(1)
    known = (("authorization", f"Bearer {shipper}"),)
    server = Server(data, TMPDIR=str(places), DIAGNOSE_SERVE_GRPC_PORT=str(port))
    for killed in (True, False):
        with server, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            channel.unary_unary(EXPORT)(b"", metadata=known, timeout=30)
            sockets = [path for path in (*data.rglob("*"), *places.rglob("*")) if path.is_socket()]
            assert len(sockets) == 2, sockets
            if not killed:
                assert server.stop() == 0
    assert not [path for path in (*data.rglob("*"), *places.rglob("*")) if path.is_socket()]
