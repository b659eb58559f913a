"""Elasticsearch's ``_bulk``: an action on one line, the document on the next.

https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-bulk

A document is a record: one of its fields is the line, the others say whose it is. The answer has a status for each document,
as clients send only those again that can still be stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.errors import BadBody, Refused
from service.intake.batch import Batch
from service.intake.protocols.gathering import Gathering, Place, digest
from service.intake.protocols.identity import Identities
from service.intake.protocols.records import LONGEST_LINE, line_of, parsed
from service.intake.protocols.requests import Decoded, Head

VERSION = "8.0.0"
"""what clients are told: the first version whose interface this is a part of"""
_WRITES = ("index", "create")
_ACTIONS = (*_WRITES, "update", "delete")
_MOST_ITEMS = 100_000


@dataclass(frozen=True, slots=True)
class Item:
    """One action, and whose line its document is, or why it is nobody's."""

    action: str
    index: str | None
    id: str
    fate: Place | str


@dataclass(slots=True)
class Bulk:
    """A body after reading."""

    decoded: Decoded
    items: list[Item] = field(default_factory=list)


def decode(head: Head, body: bytes, identities: Identities, index: str | None = None) -> Bulk:
    """The batches of a body, and its actions in order."""
    gathering = Gathering(head, identities)
    bulk = Bulk(gathering.decoded)
    lines = iter(body.split(b"\n"))
    for line in lines:
        if not line.strip():
            continue
        if len(bulk.items) >= _MOST_ITEMS:
            raise BadBody(f"more than {_MOST_ITEMS:,} actions in one body", remedy="send fewer documents at once")
        action, meta = _action(line)
        document = next(lines, None) if action != "delete" else b""
        if document is None:
            raise BadBody("the last action has no document", remedy="end the body with a document and a line end")
        fate = _add(document, gathering, identities) if action in _WRITES else _refuse(gathering, f"{action} changes a log")
        named = meta.get("_index", index)
        bulk.items.append(
            Item(
                action,
                named if isinstance(named, str) else None,
                meta["_id"] if isinstance(meta.get("_id"), str) else secrets.token_urlsafe(15),
                fate,
            )
        )
    if not bulk.items:
        raise BadBody("the body is empty", remedy='write {"create": {}} and a document')
    bulk.decoded = gathering.end(digest(body))
    return bulk


def _action(line: bytes) -> tuple[str, Mapping[str, Any]]:
    said = parsed(line)
    if isinstance(said, dict) and len(said) == 1:
        ((action, meta),) = said.items()
        if action in _ACTIONS and isinstance(meta, dict):
            return action, meta
    raise BadBody(
        "this is not an action", where=line[:80].decode("utf-8", "replace"), remedy='write {"create": {}} before a document'
    )


def _add(line: bytes, gathering: Gathering, identities: Identities) -> Place | str:
    if len(line) > LONGEST_LINE:
        return _refuse(gathering, f"a document of more than {LONGEST_LINE:,} bytes")
    try:
        record = parsed(line)
    except Refused as error:
        return _refuse(gathering, str(error))
    if not isinstance(record, dict):
        return _refuse(gathering, "a document is no object")
    text, partial = line_of(record, identities)
    return gathering.add(identities.identity(identities.known(record)), text, partial=partial)


def _refuse(gathering: Gathering, why: str) -> str:
    gathering.decoded.lines += 1
    gathering.decoded.reject(why)
    return why


# --- answers


def answer(bulk: Bulk, refused: list[tuple[Batch, Refused]], took_ms: int) -> dict[str, Any]:
    """What became of each action, in order."""
    places = {Place(one.job, one.attempt, one.source, one.rank, one.node): why for one, why in refused}
    items = [{item.action: _result(item, places)} for item in bulk.items]
    errors = any("error" in result for item in items for result in item.values())
    return {"took": took_ms, "errors": errors, "items": items}


def _result(item: Item, places: Mapping[Place, Refused]) -> dict[str, Any]:
    said: dict[str, Any] = {"_index": item.index, "_id": item.id}
    if isinstance(item.fate, str):
        return {**said, "status": 400, "error": {"type": "document_parsing_exception", "reason": item.fate}}
    why = places.get(item.fate)
    if why is not None:
        return {**said, "status": why.status, "error": {"type": why.error, "reason": str(why)}}
    return {**said, "_version": 1, "result": "created", "status": 201}


def refusal(refused: Refused) -> dict[str, Any]:
    """For a body that was not taken at all."""
    cause = {"type": refused.error, "reason": str(refused)}
    return {"error": {**cause, "root_cause": [cause]}, "status": refused.status}


ABOUT: dict[str, Any] = {
    "name": "diagnose",
    "cluster_name": "diagnose",
    "version": {"number": VERSION, "build_flavor": "default", "minimum_wire_compatibility_version": VERSION},
    "tagline": "You Know, for Search",
}
LICENSE: dict[str, Any] = {"license": {"status": "active", "type": "basic", "mode": "basic", "uid": "diagnose"}}
HEALTH: dict[str, Any] = {"cluster_name": "diagnose", "status": "green", "timed_out": False}
