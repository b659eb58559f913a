"""Streams of other systems' clients, which show a token in their own way: real clients, one service with tokens."""

from __future__ import annotations

import base64
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT
from tests.service.intake.test_shippers import odd, sources, texts, until
from tests.support.servers import Server

pytestmark = pytest.mark.server


@dataclass
class Site:
    """A service that needs tokens, its administrator's client, and the token of a shipper for two projects."""

    server: Server
    shipper: str


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
    with Server(data) as server:
        server.client.headers["Authorization"] = f"Bearer {admin}"
        yield Site(server, shipper)


def basic(password: str) -> str:
    return base64.b64encode(f"shipper:{password}".encode()).decode()


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
