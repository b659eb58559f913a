"""Elasticsearch's bulk: each document gets its own answer, in order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BadBody, BadName, Forbidden, Refused, TooLarge
from service.intake.protocols import elastic
from service.intake.protocols.identity import load
from service.intake.protocols.requests import Head

IDENTITIES = load()
FILEBEAT = {
    "@timestamp": "2026-11-24T10:00:00.000Z",
    "message": "step 1 loss 2.0",
    "log": {"offset": 0, "file": {"path": "/logs/kim/slurm-4711.out"}},
    "host": {"name": "gpu-17"},
    "fields": {"slurm": {"job_id": 4711}},
}
POD = {
    "message": "step 1 loss 2.0",
    "kubernetes": {
        "namespace": "ml",
        "pod": {"name": "llama-worker-3"},
        "node": {"name": "gpu-18"},
        "container": {"name": "pytorch"},
        "labels": {"training_kubeflow_org/job-name": "llama"},
    },
}


def bulk(*lines: Any, index: str | None = None, **query: str) -> elastic.Bulk:
    body = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return elastic.decode(Head(query), body.encode(), IDENTITIES, index)


def results(found: elastic.Bulk, refused: Any = ()) -> list[tuple[str, int]]:
    items = elastic.answer(found, list(refused), 1)["items"]
    return [(action, result["status"]) for item in items for action, result in item.items()]


@pytest.mark.parametrize(
    ("document", "owner"),
    [
        (FILEBEAT, ("4711", "/logs/kim/slurm-4711.out", "gpu-17")),
        (POD, ("ml.llama", "llama-worker-3/pytorch", "gpu-18")),
    ],
    ids=["file", "pod"],
)
def test_documents_of_filebeat_say_whose_they_are(document: Any, owner: tuple[str, str, str]) -> None:
    (batch,) = bulk({"create": {"_index": "logs"}}, document).decoded.batches
    assert (batch.job, batch.source, batch.node) == owner
    assert batch.data == b"step 1 loss 2.0\n"


def test_each_document_gets_its_own_answer_in_order() -> None:
    found = bulk(
        {"index": {"_index": "x", "_id": "1"}}, {"message": "a", "job": "run7"},
        {"create": {}}, {"message": "of nobody"},
        {"create": {}}, '{"message": ',
        {"delete": {"_id": "1"}},
        {"update": {"_id": "1"}}, {"doc": {"message": "b"}},
        {"create": {}}, {"message": "c", "job": "run7"},
        index="logs",
    )  # fmt: skip
    assert results(found) == [
        ("index", 201), ("create", 400), ("create", 400), ("delete", 400), ("update", 400), ("create", 201),
    ]  # fmt: skip
    answer = elastic.answer(found, [], 1)
    assert answer["errors"] is True
    assert answer["items"][0]["index"]["_id"] == "1"
    assert [next(iter(item.values()))["_index"] for item in answer["items"]][:2] == ["x", "logs"]
    assert [batch.data for batch in found.decoded.batches] == [b"a\nc\n"]


def test_what_the_token_may_not_send_is_said_of_its_documents_only() -> None:
    found = bulk({"create": {}}, {"message": "a", "job": "mine"}, {"create": {}}, {"message": "b", "job": "theirs"})
    theirs = next(batch for batch in found.decoded.batches if batch.job == "theirs")
    assert results(found, [(theirs, Forbidden("not yours"))]) == [("create", 201), ("create", 403)]


def test_all_stored_is_no_error() -> None:
    assert elastic.answer(bulk({"create": {}}, {"message": "a", "job": "run7"}), [], 3)["errors"] is False


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (['{"create": {}}'], None),
        (["{}"], BadBody),
        (['{"make": {}}', "{}"], BadBody),
        (['{"create": 1}', "{}"], BadBody),
        (["hello"], BadBody),
        (["[" * 500_000], TooLarge),
    ],
    ids=["no-document", "no-action", "other-action", "no-object", "text", "too-many"],
)
def test_hostile_bodies_are_refused(lines: list[str], error: type[Refused] | None) -> None:
    if error is None:
        found = bulk(*lines, "not json")
        assert results(found) == [("create", 400)]
        return
    with pytest.raises(error):
        bulk(*lines)


def test_an_action_at_the_end_without_a_document_is_refused() -> None:
    with pytest.raises(BadBody, match="no document"):
        elastic.decode(Head({}), b'{"create": {}}', IDENTITIES)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        elastic.decode(Head({"job": "run7"}), body, IDENTITIES)
    except (BadBody, BadName, TooLarge):
        pass
