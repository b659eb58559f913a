"""What each protocol makes of a body: batches in order, by owner; the same keys for the same body; clear words for bad ones."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from service.errors import BadBody, BadName, Refused, TooLarge, Unsupported
from service.intake.batch import Batch
from service.intake.protocols import loki, otlp, protobuf
from service.intake.protocols.identity import load
from service.intake.protocols.plain import PIECE, Plain
from service.intake.protocols.records import MOST_COMMAS, Records, parsed
from service.intake.protocols.requests import Decoded, Head

IDENTITIES = load()


def text_of(batches: Iterable[Batch]) -> dict[tuple[str, str], bytes]:
    out: dict[tuple[str, str], bytes] = {}
    for batch in batches:
        out[batch.job, batch.source] = out.get((batch.job, batch.source), b"") + batch.data
    return out


# --- plain


def plain(body: bytes, sizes: list[int], **query: str) -> list[Batch]:
    stream, batches, at = Plain("run7", Head(query)), [], 0
    for size in [*sizes, len(body)]:
        batches += stream.feed(body[at : at + size])
        at += size
    return [*batches, *stream.flush()]


@given(st.lists(st.integers(1, PIECE * 2), max_size=5))
def test_plain_pieces_do_not_depend_on_chunks(sizes: list[int]) -> None:
    body = b"step 1 loss 2.0\n" * (PIECE // 5)
    batches = plain(body, sizes)
    assert body == b"".join(batch.data for batch in batches)
    assert plain(body, []) == batches
    assert len(batches) == len({batch.key for batch in batches})  # it repeats itself, and no piece is a retry of another


def test_plain_offsets_go_on_where_a_piece_ends() -> None:
    batches = plain(b"x" * (PIECE + 10), [3], offset="1000", rank="3", node="gpu-17", source="rank3.log", attempt="2")
    assert [(batch.offset, len(batch.data)) for batch in batches] == [(1000, PIECE), (1000 + PIECE, 10)]
    assert {(None, "run7", 2, "rank3.log", 3, "gpu-17")} == {
        (b.key, b.job, b.attempt, b.source, b.rank, b.node) for b in batches
    }


def test_plain_takes_headers_where_the_url_says_nothing() -> None:
    head = Head(
        {"rank": "1", "label.user": "kim"}, {"x-diagnose-rank": "2", "x-diagnose-node": "n1", "x-diagnose-label-queue": "big"}
    )
    (batch,) = [*(stream := Plain("run7", head)).feed(b"a"), *stream.flush()]
    assert (batch.rank, batch.node, batch.labels) == (1, "n1", {"user": "kim", "queue": "big"})


@pytest.mark.parametrize(
    "query",
    [
        {"rank": "-1"},
        {"rank": "one"},
        {"offset": "1e3"},
        {"attempt": "9" * 40},
        {"source": "a\nb"},
        {"node": "\x1b[31m"},
        {"label.user": "a\0"},
        {"rank": "٣"},
    ],
    ids=str,
)
def test_plain_refuses_what_no_name_is(query: dict[str, str]) -> None:
    with pytest.raises(BadName):
        Plain("run7", Head(query))


def test_plain_refuses_huge_labels() -> None:
    with pytest.raises(TooLarge, match="label"):
        Plain("run7", Head({"label.user": "x" * 10_000}))


# --- records


def records(body: bytes, sizes: list[int] | None = None, job: str | None = None, **query: str) -> tuple[list[Batch], Decoded]:
    stream, batches, at = Records(Head(query), IDENTITIES, job), [], 0
    for size in [*(sizes or []), len(body)]:
        batches += stream.feed(body[at : at + size])
        at += size
    batches += stream.end()
    return batches, stream.total


FLUENT_BIT = (
    b'[{"date":1726000000.123,"log":"step 1\\n","stream":"stdout","kubernetes":{"pod_name":"llama-0","namespace_name":"ml",'
    b'"container_name":"pytorch","host":"gpu-17","labels":{"training.kubeflow.org/job-name":"llama"}}},'
    b'{"date":1726000000.124,"log":"step 2\\n","stream":"stdout","kubernetes":{"pod_name":"llama-0","namespace_name":"ml",'
    b'"container_name":"pytorch","host":"gpu-17","labels":{"training.kubeflow.org/job-name":"llama"}}}]'
)


def test_records_as_array_and_as_lines_are_the_same_lines() -> None:
    as_lines = b"\n".join(json.dumps(record).encode() for record in json.loads(FLUENT_BIT))
    expected = {("ml.llama", "llama-0/pytorch"): b"step 1\nstep 2\n"}
    assert expected == text_of(records(FLUENT_BIT)[0]) == text_of(records(as_lines)[0])


@given(st.lists(st.integers(1, 60), max_size=30))
def test_records_do_not_depend_on_chunks(sizes: list[int]) -> None:
    body = b"".join(b'{"message":"line %d","job":"j%d","file":"f%d"}\n' % (i, i % 3, i % 2) for i in range(40))
    assert records(body)[0] == records(body, sizes)[0]


def test_records_of_many_jobs_keep_their_order() -> None:
    body = b"".join(b'{"msg":"%d","job_id":"%d"}\n' % (i, i % 3) for i in range(9))
    assert text_of(records(body)[0]) == {("0", "log"): b"0\n3\n6\n", ("1", "log"): b"1\n4\n7\n", ("2", "log"): b"2\n5\n8\n"}


def test_records_a_long_body_comes_in_parts_with_their_own_keys() -> None:
    body = (b'{"log":"' + b"x" * 1000 + b'"}\n') * 5000
    batches, total = records(body, job="run7")
    assert (total.lines, total.rejected) == (5000, 0)
    assert sum(len(batch.data) for batch in batches) == 5000 * 1001
    assert len(batches) == len({batch.key for batch in batches}) >= 4


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "kim", "li"]), st.integers(0, 99)), max_size=12))
def test_records_of_one_source_stay_together_whatever_labels_they_know(said: list[tuple[str, str, int]]) -> None:
    """Two batches of a body under one key would count as one that was sent twice."""
    body = [
        {"log": f"line {n}", "source": source, "job": "run7", **({"user": user} if user else {})} for source, user, n in said
    ]
    batches, decoded = records(json.dumps(body).encode())
    assert decoded.rejected == 0
    assert len({batch.key for batch in batches}) == len(batches)
    assert {batch.source: batch.data for batch in batches} == {
        source: b"".join(b"line %d\n" % n for one, _, n in said if one == source) for source in {one for one, _, _ in said}
    }
    for batch in batches:
        users = [user for source, user, _ in said if source == batch.source and user]
        assert batch.labels.get("user") == (users[0] if users else None)


def test_records_url_and_record_say_whose_they_are() -> None:
    ((batch,), _) = records(b'{"message":"a","rank":3,"job":"other"}', job="run7", node="n1")
    assert (batch.job, batch.rank, batch.node) == ("run7", 3, "n1")


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ({"log": "a\n"}, b"a\n"),
        ({"MESSAGE": "a"}, b"a\n"),
        ({"msg": "two\nlines"}, b"two\nlines\n"),
        ({"log": "half ", "logtag": "P"}, b"half "),
        ({"level": "info", "step": 3}, b'{"level":"info","step":3}\n'),
        ({"log": "\x1b[31mred\0"}, b"\x1b[31mred\0\n"),
        ({"log": "bad \ud800"}, b"bad ?\n"),
        ({"log": ""}, b"\n"),
        ({"log": "caf\udce9"}, b"caf\xe9\n"),
    ],
    ids=str,
)
def test_records_which_field_is_the_line(record: dict[str, object], line: bytes) -> None:
    assert {("run7", "log"): line} == text_of(records(json.dumps(record).encode(), job="run7")[0])


def test_records_bad_lines_are_counted_and_others_stored() -> None:
    batches, total = records(b'{"log":"a"}\n{"log":\n[1]\n7\n{"log":"b"}\n', job="run7")
    assert text_of(batches) == {("run7", "log"): b"a\nb\n"}
    assert (total.lines, total.rejected) == (5, 3)
    assert "not JSON" in (total.why or "")


def test_records_without_a_job_are_rejected_with_the_names_that_would_do() -> None:
    batches, total = records(b'{"log":"a"}\n{"log":"b","job":"../etc"}\n{"log":"c","job":"\\u001b[31m"}\n')
    assert (batches, total.rejected) == ([], 3)
    assert "slurm_job_id" in (total.why or "")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"[" * 300_000, BadBody),
        (b"[" * 500_000, TooLarge),
        (b'[{"log": "a"}', BadBody),
        (b"[" + '"a"]'.encode("utf-16"), BadBody),
        (b"[" + b"9" * 10_000 + b"]", BadBody),
        (b'["' + b"x" * (9 << 20), TooLarge),
    ],
    ids=["deep", "too-many", "cut-off", "utf-16", "digits", "too-big"],
)
def test_records_hostile_arrays(body: bytes, error: type[Refused]) -> None:
    with pytest.raises(error):
        records(body, job="run7")


def test_records_a_line_without_end_is_given_up_in_bounded_memory() -> None:
    stream = Records(Head(), IDENTITIES, "run7")
    tracemalloc.start()
    try:
        out = [batch for _ in range(400) for batch in stream.feed(b"x" * 100_000)]
        out += stream.feed(b'"}\n{"log":"next"}\n')
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    out += stream.end()
    assert text_of(out) == {("run7", "log"): b"next\n"}
    assert (stream.total.lines, stream.total.rejected) == (2, 1)
    assert peak < 16 << 20


# --- OTLP


def otlp_request(lines: list[str], resource: dict[str, str], **attributes: str) -> ExportLogsServiceRequest:
    def pairs(of: dict[str, str]) -> list[KeyValue]:
        return [KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in of.items()]

    made = [
        LogRecord(time_unix_nano=i, severity_text="INFO", body=AnyValue(string_value=line), attributes=pairs(attributes))
        for i, line in enumerate(lines)
    ]
    return ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(resource=Resource(attributes=pairs(resource)), scope_logs=[ScopeLogs(log_records=made)])]
    )


def otlp_json(request: ExportLogsServiceRequest) -> bytes:
    from google.protobuf.json_format import MessageToJson

    return MessageToJson(request).encode()


PROTOBUF = Head({}, {"content-type": "application/x-protobuf"})
JSON = Head({}, {"content-type": "application/json; charset=utf-8"})


@given(st.lists(st.text(), max_size=8), st.dictionaries(st.sampled_from(["job", "rank", "attempt", "x"]), st.text(max_size=9)))
def test_otlp_protobuf_and_json_say_the_same(lines: list[str], resource: dict[str, str]) -> None:
    request = otlp_request(lines, {"SLURM_JOB_ID": "4711", **resource})
    binary = otlp.decode(PROTOBUF, request.SerializeToString(), IDENTITIES)
    text = otlp.decode(JSON, otlp_json(request), IDENTITIES)
    assert text_of(binary.batches) == text_of(text.batches)
    assert (binary.lines, binary.rejected) == (text.lines, text.rejected) == (len(lines), 0)


def test_otlp_a_record_knows_better_than_its_resource() -> None:
    request = otlp_request(["a"], {"job": "run7", "rank": "1"}, rank="2")
    (batch,) = otlp.decode(PROTOBUF, request.SerializeToString(), IDENTITIES).batches
    assert (batch.job, batch.rank) == ("run7", 2)


def test_otlp_partial_success_counts_what_has_no_job() -> None:
    request = otlp_request(["a", "b"], {"job": "run7"})
    request.resource_logs.extend(otlp_request(["c"], {}).resource_logs)
    decoded = otlp.decode(PROTOBUF, request.SerializeToString(), IDENTITIES)
    assert (decoded.lines, decoded.rejected) == (3, 1)
    assert {"rejectedLogRecords": "1", "errorMessage": decoded.why} == json.loads(otlp.answer(otlp.JSON, decoded))[
        "partialSuccess"
    ]


def test_otlp_retry_has_the_same_keys_and_another_time_has_others() -> None:
    first, again = (otlp.decode(PROTOBUF, otlp_request(["a"], {"job": "j"}).SerializeToString(), IDENTITIES) for _ in "12")
    later = otlp_request(["a"], {"job": "j"})
    later.resource_logs[0].scope_logs[0].log_records[0].time_unix_nano = 1 << 62  # a time in the future is only another time
    assert first.batches == again.batches
    assert first.batches[0].key != otlp.decode(PROTOBUF, later.SerializeToString(), IDENTITIES).batches[0].key


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"7",
        b'{"resourceLogs": 7}',
        b'{"resourceLogs": [7]}',
        b'{"resourceLogs": [{"resource": []}]}',
        b'{"resourceLogs": [{"resource": 7}]}',
        b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": "text"}]}]}]}',
        b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"intValue": "x"}}]}]}]}',
        b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"bytesValue": "*"}}]}]}]}',
        '{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"bytesValue": "YQ==é"}}]}]}]}'.encode(),
        b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": '
        + b'{"arrayValue":{"values":[' * 20
        + b"]}}" * 20
        + b"}]}]}]}",
        b"\xff{}",
        b"",
    ],
    ids=range(13),
)
def test_otlp_json_that_is_something_else(body: bytes) -> None:
    with pytest.raises(BadBody):
        otlp.decode(JSON, body, IDENTITIES)


@given(st.binary(max_size=300))
def test_otlp_garbage_is_refused_or_read_never_worse(body: bytes) -> None:
    try:
        otlp.decode(PROTOBUF, body, IDENTITIES)
    except Refused:
        pass


def test_otlp_any_type_else() -> None:
    with pytest.raises(Unsupported, match="application/x-protobuf or application/json"):
        otlp.decode(Head({}, {"content-type": "text/html"}), b"", IDENTITIES)


def test_otlp_more_fields_than_anybody_needs_are_refused_at_once() -> None:
    with pytest.raises(TooLarge, match="too many fields"):
        otlp.decode(PROTOBUF, b"\x0a\x00" * (3 << 20), IDENTITIES)


def test_otlp_very_many_empty_records_cost_no_memory() -> None:
    records_ = b"\x12\x00" * 50_000
    body = protobuf.nested(1, protobuf.nested(2, records_))
    tracemalloc.start()
    try:
        decoded = otlp.decode(PROTOBUF, body, IDENTITIES)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert decoded.rejected == 50_000
    assert peak < 1 << 20


# --- Loki


def loki_protobuf(labels: str, entries: list[bytes]) -> bytes:
    def field(number: int, value: bytes) -> bytes:
        return protobuf.nested(number, value)

    stamp = protobuf.write(1, 1726000000)
    stream = field(1, labels.encode()) + b"".join(field(2, field(1, stamp) + field(2, entry)) for entry in entries)
    return bytes(cramjam.snappy.compress_raw(field(1, stream)))


def loki_json(labels: dict[str, str], entries: list[str]) -> bytes:
    values = [["1726000000000000000", entry] for entry in entries]
    return json.dumps({"streams": [{"stream": labels, "values": values}]}).encode()


def test_loki_protobuf_and_json_say_the_same() -> None:
    selector = '{job="run7", filename="/logs/rank3.log", rank="3"}'
    labels = {"job": "run7", "filename": "/logs/rank3.log", "rank": "3"}
    binary = loki.decode(PROTOBUF, loki_protobuf(selector, [b"a", b"b"]), IDENTITIES).batches
    text = loki.decode(JSON, loki_json(labels, ["a", "b"]), IDENTITIES).batches
    assert [(b.job, b.source, b.rank, b.data) for b in binary] == [("run7", "/logs/rank3.log", 3, b"a\nb\n")]
    assert [(b.job, b.source, b.rank, b.data) for b in text] == [("run7", "/logs/rank3.log", 3, b"a\nb\n")]


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True), st.text(), max_size=5))
def test_loki_labels_come_back_from_prometheus_spelling(labels: dict[str, str]) -> None:
    def go(value: str) -> str:
        return "".join(c if c.isascii() and c.isalnum() else f"\\U{ord(c):08x}" for c in value)

    assert labels == loki.selector("{" + ", ".join(f'{name}="{go(value)}"' for name, value in labels.items()) + "}")


@pytest.mark.parametrize(
    "text",
    ["", "job", "{", "{job", "{job=", '{job="a', '{job="a"', '{job="\\q"}', '{job="\\xzz"}', '{job="\\U99999999"}', "{job=a}"],
)
def test_loki_labels_that_are_none(text: str) -> None:
    with pytest.raises(BadBody, match="labels"):
        loki.selector(text)


def test_loki_quotes_and_backticks() -> None:
    assert loki.selector('{a="x\\"\\\\\\n",b=`\\n`}') == {"a": 'x"\\\n', "b": "\\n"}


@pytest.mark.parametrize(
    ("head", "body", "error"),
    [
        (PROTOBUF, b"no snappy here", BadBody),
        (PROTOBUF, b"", BadBody),
        (PROTOBUF, bytes(cramjam.snappy.compress_raw(b"\x0a\xff")), BadBody),
        (PROTOBUF, bytes(cramjam.snappy.compress_raw(b"\0" * (64 << 20))), TooLarge),
        (JSON, b"{}", BadBody),
        (JSON, b'{"streams": [{"stream": {}, "values": [["now", "a"]]}]}', BadBody),
        (JSON, b'{"streams": [{"stream": {}, "values": [[1, "a"]]}]}', BadBody),
        (JSON, b'{"streams": [{"stream": [], "values": []}]}', BadBody),
        (Head({}, {"content-type": "text/plain"}), b"a", Unsupported),
    ],
    ids=["no-snappy", "empty", "cut-off", "bomb", "no-streams", "time", "number", "labels", "type"],
)
def test_loki_hostile(head: Head, body: bytes, error: type[Refused]) -> None:
    with pytest.raises(error):
        loki.decode(head, body, IDENTITIES)


@given(st.binary(max_size=300))
def test_loki_garbage_is_refused_or_read_never_worse(body: bytes) -> None:
    try:
        loki.decode(PROTOBUF, bytes(cramjam.snappy.compress_raw(body)), IDENTITIES)
    except Refused:
        pass


def test_many_short_strings_in_one_text_of_json_are_too_large() -> None:
    """Each takes sixty bytes of memory."""
    with pytest.raises(TooLarge, match="commas"):
        parsed(b'["ab"' + b',"ab"' * (MOST_COMMAS + 1) + b"]")
