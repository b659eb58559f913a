"""What the service tells of its own work, as OpenTelemetry's own exporter sends it and its own protocol reads it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from service.traces import Traces, trace_of
from tests.support.attacker import until
from tests.support.servers import Server

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Collector:
    """Takes OTLP over HTTP, and keeps the spans."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                return

            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
                collector.spans += [
                    span for resource in body.resource_spans for scope in resource.scope_spans for span in scope.spans
                ]
                self.send_response(200)
                self.end_headers()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def told(span: Any) -> dict[str, Any]:
    """The attributes of a span."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def test_what_is_done_about_an_attempt_is_one_trace(collector: Collector) -> None:
    traces = Traces(collector.url)
    traces.add("diagnosis", 100.0, 101.5, attempt=("run7", 2), reason="hang", nothing=None)
    traces.add("order restart", 102.0, 103.0, kind="client", attempt=("run7", 2), failed="unknown")
    traces.add("diagnosis", 100.0, 101.0, attempt=("run7", 3))
    traces.close()

    diagnosis, order, other = collector.spans
    assert diagnosis.trace_id == order.trace_id == trace_of("run7", 2).to_bytes(16, "big")
    assert other.trace_id not in (diagnosis.trace_id, b"")
    assert told(diagnosis) == {"diagnose.job": "run7", "diagnose.attempt": 2, "diagnose.reason": "hang"}
    assert diagnosis.end_time_unix_nano - diagnosis.start_time_unix_nano == 1_500_000_000
    assert (order.status.message, diagnosis.status.message) == ("unknown", "")


def test_a_request_belongs_to_the_trace_of_who_sent_it(collector: Collector) -> None:
    traces = Traces(collector.url)
    traces.add("GET /healthz", 1.0, 2.0, kind="server", parent=PARENT)
    traces.add("GET /healthz", 1.0, 2.0, kind="server", parent="\x00 of nobody")
    traces.close()

    first, second = collector.spans
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == tuple(PARENT.split("-")[1:3])
    assert second.parent_span_id == b""


@pytest.mark.server
def test_a_job_from_its_push_to_its_diagnosis(collector: Collector, tmp_path: Path) -> None:
    with Server(tmp_path / "data", DIAGNOSE_SERVE_TRACES=collector.url, OTEL_BSP_SCHEDULE_DELAY="100") as server:
        server.client.headers["traceparent"] = PARENT
        server.push("run7", b"KeyError: 'x'\n", source="log", offset=0)
        server.end("run7", 1)
        (diagnosis, *_) = until(lambda: collector.named("diagnosis"), "a diagnosis")
        (push,) = until(lambda: collector.named("POST /v1/jobs/{job}/logs"), "the push")

    assert push.trace_id.hex() == PARENT.split("-")[1]
    assert told(push) == {"diagnose.route": "/v1/jobs/{job}/logs", "diagnose.status": 200, "diagnose.job": "run7"}
    assert diagnosis.trace_id == trace_of("run7", 1).to_bytes(16, "big")
    assert told(diagnosis)["diagnose.reason"] == "key_error"
