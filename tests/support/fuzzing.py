"""Bodies that were right, damaged at random, for each parser that reads what strangers send: refused or read, nothing else.

    python -m tests.support.fuzzing --seconds 600 --seed 1

prints, for each parser, how many bodies it read and refused, and each other exception with the body that did it. The corpus is
what tests/payloads has and one good body of each protocol. A body that takes longer than a second is told too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import cramjam
import msgpack
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from pydantic import TypeAdapter, ValidationError

from diagnose.errors import DiagnoseError
from diagnose.reading.dumps.documents import NoDump
from service.acting.finders import (
    ComponentStates,
    KubernetesEvents,
    NVSentinelEvent,
    PolicyEvents,
    of_events,
    of_health,
    of_policies,
    of_states,
)
from service.acting.findings import AlertmanagerWebhook, KubernetesNodes, of_alerts, of_nodes
from service.acting.kernelwatch import HealthResult, of_check, of_kernel
from service.intake.protocols import elastic, forward, identity, loki, otlp, protobuf, splunk, syslog
from service.intake.protocols.encodings import Bounded
from service.intake.protocols.records import Records, parsed
from service.intake.protocols.requests import Head
from tests.support.damage import damaged
from tests.support.fuzzing_files import FILE_PARSERS

PAYLOADS = Path(__file__).parents[1] / "payloads"
IDENTITIES = identity.load()
NOW = 1_800_000_000.0
SLOW_S = 1.0
Parse = Callable[[bytes], object]


def _otlp() -> bytes:
    record = LogRecord(body=AnyValue(string_value="step 1"), attributes=[KeyValue(key="rank", value=AnyValue(int_value=3))])
    owner = Resource(attributes=[KeyValue(key="slurm.job_id", value=AnyValue(string_value="4711"))])
    logs = ResourceLogs(resource=owner, scope_logs=[ScopeLogs(log_records=[record, record])])
    return bytes(ExportLogsServiceRequest(resource_logs=[logs]).SerializeToString())


def _loki() -> bytes:
    entry = protobuf.nested(1, protobuf.write(1, 1_700_000_000)) + protobuf.write(2, "step 1")
    stream = protobuf.write(1, '{job="run7", rank="3"}') + protobuf.nested(2, entry)
    return bytes(cramjam.snappy.compress_raw(protobuf.nested(1, stream)))


def _records(body: bytes) -> None:
    stream = Records(Head(), IDENTITIES)
    for at in range(0, len(body), 100):
        list(stream.feed(body[at : at + 100]))
    list(stream.end())


def _syslog(body: bytes) -> None:
    frames = syslog.Frames()
    for at in range(0, len(body), 100):
        for message in frames.feed(body[at : at + 100]):
            syslog.parsed(message)


def _unpacked(encoding: str, body: bytes) -> None:
    unpacker = Bounded(encoding, 1 << 20)
    list(unpacker.feed(body))
    unpacker.end()


def _found(kind: Any, of: Callable[..., object], body: bytes) -> None:
    of(TypeAdapter(kind).validate_python(parsed(body)), NOW)


def _head(kind: str) -> Head:
    return Head({}, {"content-type": kind})


def _payload(name: str) -> bytes:
    return (PAYLOADS / name).read_bytes()


_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_LOG = b"step 1 | loss 2.3\n" * 20
_KERNEL = b"2026-11-24T12:00:00+0000 gpu-1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
_BULK = b'{"create": {"_index": "a"}}\n{"message": "step 1", "job": "run7"}\n{"delete": {"_id": "1"}}\n'
_HEC = b'{"event": "step 1", "host": "gpu-1", "fields": {"job": "run7"}} {"event": {"message": "a"}, "fields": {"job": 7}}'
_OWNER = {"attributes": [{"key": "job", "value": {"stringValue": "run7"}}]}
_SAID = [{"body": {"kvlistValue": {"values": []}}}, {"body": {"bytesValue": "YQ=="}}]
_OTLP_JSON = json.dumps({"resourceLogs": [{"resource": _OWNER, "scopeLogs": [{"logRecords": _SAID}]}]}).encode()
_FORWARDED = [["job", [[1, {"log": "a"}]], {"chunk": "x"}], ["job", 1, {"log": "a", "rank": 3}]]
_FRAMES = b'71 <165>1 2026-11-24T12:00:00.003Z gpu-1 train 4711 - [a@1 job="run7"] step 1<34>Oct 11 22:14:15 gpu-1 su: x\n'
PARSERS: dict[str, tuple[Parse, list[bytes]]] = {
    "otlp protobuf": (lambda body: otlp.decode(_head(_PROTOBUF), body, IDENTITIES), [_otlp()]),
    "otlp json": (lambda body: otlp.decode(_head(_JSON), body, IDENTITIES), [_OTLP_JSON]),
    "loki protobuf": (lambda body: loki.decode(_head(_PROTOBUF), body, IDENTITIES), [_loki()]),
    "loki json": (lambda body: loki.decode(_head(_JSON), body, IDENTITIES), [_payload("promtail.json")]),
    "loki labels": (lambda body: loki.selector(body.decode("utf-8", "surrogateescape")), [rb'{job="a\u00e9\n", b=`c`}']),
    "elasticsearch": (lambda body: elastic.answer(elastic.decode(Head(), body, IDENTITIES), [], 1), [_BULK]),
    "splunk": (lambda body: splunk.decode(Head(), body, IDENTITIES), [_HEC]),
    "splunk raw": (lambda body: splunk.decode_raw(Head({"job": "run7"}), body, IDENTITIES), [_LOG]),
    "records": (_records, [_payload(name) for name in ("fluent-bit.json", "vector.ndjson", "rsyslog.ndjson")]),
    "syslog": (_syslog, [_FRAMES]),
    "forward": (lambda body: list(forward.Messages().feed(body)), [msgpack.packb(one) for one in _FORWARDED]),
    "gzip": (partial(_unpacked, "gzip"), [gzip.compress(_LOG)]),
    "deflate": (partial(_unpacked, "deflate"), [bytes(cramjam.zlib.compress(_LOG))]),
    "zstd": (partial(_unpacked, "zstd"), [bytes(cramjam.zstd.compress(_LOG))]),
    "alertmanager": (partial(_found, AlertmanagerWebhook, of_alerts), [_payload("alertmanager.json")]),
    "nodes": (partial(_found, KubernetesNodes, lambda body, now: of_nodes(body.items, now)),
              [_payload("kubernetes-nodes.json")]),
    "events": (partial(_found, KubernetesEvents, lambda body, now: of_events(body.items, now)),
               [_payload("kubernetes-events.json")]),
    "nvsentinel": (partial(_found, NVSentinelEvent, of_health), [_payload("nvsentinel.json")]),
    "dcgm": (partial(_found, PolicyEvents, lambda body, now: of_policies("gpu-1", body.lines, now)), [_payload("dcgm.json")]),
    "gpud": (partial(_found, list[ComponentStates], partial(of_states, "gpu-1")), [_payload("gpud-states.json")]),
    "kernel": (lambda data: of_kernel("gpu-1", data, NOW), [_KERNEL]),
    "check": (partial(_found, HealthResult, partial(of_check, "gpu-1")),
              [b'{"status": 1, "since": "2026-11-24T12:00:00Z", "said": "7 of 8 GPUs"}']),
    **{name: (parse, corpus()) for name, (parse, corpus) in FILE_PARSERS.items()},
}  # fmt: skip
REFUSALS = (DiagnoseError, ValidationError, NoDump)


@dataclass(slots=True)
class Tried:
    """What became of the bodies that one parser was given."""

    read: int = 0
    refused: int = 0
    slow: list[bytes] = field(default_factory=list)
    faults: dict[str, bytes] = field(default_factory=dict)
    """the first body of each kind of exception that is no refusal"""


def bodies(name: str, chance: random.Random) -> Iterator[bytes]:
    """Good ones first, then damaged ones without an end."""
    _, corpus = PARSERS[name]
    yield from corpus
    others = [one for _, some in PARSERS.values() for one in some]
    while True:
        yield damaged(chance.choice(corpus), others, chance)


def attempt(name: str, body: bytes, tried: Tried) -> None:
    parse, _ = PARSERS[name]
    began = time.monotonic()
    try:
        parse(body)
        tried.read += 1
    except REFUSALS:
        tried.refused += 1
    except Exception as error:
        tried.faults.setdefault(f"{type(error).__name__}: {error}"[:200], body)
    if time.monotonic() - began > SLOW_S:
        tried.slow.append(body)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=float, default=60, help="for all parsers together")
    words.add_argument("--seed", type=int, default=1)
    asked = words.parse_args()
    faults = 0
    for name in PARSERS:
        tried, end = Tried(), time.monotonic() + asked.seconds / len(PARSERS)
        for body in bodies(name, random.Random(f"{asked.seed} {name}")):
            if time.monotonic() > end:
                break
            attempt(name, body, tried)
        print(
            f"{name:<16} read {tried.read:>8,}  refused {tried.refused:>8,}  slow {len(tried.slow)}  faults {len(tried.faults)}"
        )
        for what, body in tried.faults.items():
            print(f"    {what}\n        {body[:300]!r}")
        faults += len(tried.faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
