"""Splunk's event collector: events and raw lines become batches; numbers are given only to what is stored."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BadBody, BadName, Busy, Forbidden, Refused, TooLarge
from service.intake.protocols import splunk
from service.intake.protocols.identity import load
from service.intake.protocols.requests import Decoded, Head

IDENTITIES = load()
RUN = {"fields": {"job": "run7"}}


def decoded(*events: object, between: str = "", **query: str) -> Decoded:
    return splunk.decode(Head(query), between.join(map(json.dumps, events)).encode(), IDENTITIES)


@pytest.mark.parametrize("between", ["", "\n", " \r\n", ",", "\n\n"])
def test_events_stand_one_after_the_other(between: str) -> None:
    (batch,) = decoded({"event": "one", **RUN}, {"event": "two", **RUN}, between=between).batches
    assert (batch.job, batch.data) == ("run7", b"one\ntwo\n")


def test_an_event_says_whose_it_is() -> None:
    event = {"event": "a", "host": "gpu-17", "source": "/logs/rank3.log", "fields": {"slurm.job_id": "4711", "rank": 3}}
    (batch,) = decoded(event).batches
    assert (batch.job, batch.node, batch.source, batch.rank) == ("4711", "gpu-17", "/logs/rank3.log", 3)


def test_an_event_may_be_an_object_and_the_address_may_name_the_job() -> None:
    found = decoded({"event": {"log": "a", "stream": "stderr"}}, {"event": 7}, job="run7", host="gpu-1")
    assert [(batch.job, batch.node, batch.data) for batch in found.batches] == [("run7", "gpu-1", b"a\n7\n")]


def test_each_event_has_its_own_source_and_the_address_says_the_default() -> None:
    found = decoded({"event": "a", "source": "x"}, {"event": "b"}, job="run7", source="y")
    assert {batch.source: batch.data for batch in found.batches} == {"x": b"a\n", "y": b"b\n"}


def test_an_event_without_text_or_job_is_counted_and_others_are_stored() -> None:
    found = decoded({"event": "a", **RUN}, {"event": ""}, {"time": 1}, {"event": "b"}, "text")
    assert ([batch.data for batch in found.batches], found.lines, found.rejected) == ([b"a\n"], 5, 4)
    status, said = splunk.answer(found, None)
    assert (status, said["code"]) == (400, 6)


def test_raw_lines_are_kept_byte_for_byte() -> None:
    found = splunk.decode_raw(Head({"job": "run7", "source": "a.log", "host": "n1"}), b"one\ntwo \xff\nthree", IDENTITIES)
    ((batch,), lines) = found.batches, found.lines
    assert (batch.source, batch.node, batch.data, lines) == ("a.log", "n1", b"one\ntwo \xff\nthree\n", 3)


def test_raw_lines_of_no_job_are_all_rejected() -> None:
    found = splunk.decode_raw(Head({"source": "a.log"}), b"one\ntwo\n", IDENTITIES)
    assert (found.batches, found.lines, found.rejected) == ([], 2, 2)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"event": "a"', BadBody),
        (b"hello", BadBody),
        (b"[" * 300_000, BadBody),
        (b"[" * 500_000, TooLarge),
        ('{"event": "a"}'.encode("utf-16"), BadBody),
        (b"[" + b"9" * 10_000 + b"]", BadBody),
    ],
    ids=["cut-off", "text", "deep", "too-many", "utf-16", "digits"],
)
def test_hostile_bodies_are_refused(body: bytes, error: type[Refused]) -> None:
    with pytest.raises(error):
        splunk.decode(Head({"job": "run7"}), body, IDENTITIES)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        splunk.decode(Head({"job": "run7"}), body, IDENTITIES)
    except (BadBody, BadName, TooLarge):
        pass


def test_the_same_body_makes_the_same_keys() -> None:
    event = {"event": "a", **RUN}
    assert [b.key for b in decoded(event).batches] == [b.key for b in decoded(event).batches]
    assert decoded(event).batches[0].key != decoded(event, event).batches[0].key


def test_only_numbers_that_were_given_are_acknowledged() -> None:
    acks = splunk.Acks()
    first, second = acks.give(), acks.give()
    assert acks.stored([first, second, second + 1]) == {str(first): True, str(second): True, str(second + 1): False}


def test_numbers_of_before_a_restart_are_acknowledged() -> None:
    given = splunk.Acks().give()
    time.sleep(0.002)  # they begin at the millisecond of the start
    assert splunk.Acks().stored([given]) == {str(given): True}


def test_what_may_come_again_is_503_as_its_clients_give_up_at_429() -> None:
    assert splunk.refusal(Busy("full"))[0] == 503
    assert splunk.refusal(Forbidden("not yours"))[0] == 403
