"""The verdict of ``diagnose nodes check`` -> what is stored and decided about."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from diagnose.decision.history import CheckResult
from diagnose.redaction.text import redact
from service.errors import Conflict
from service.names import STORABLE, storable
from service.store.nodechecks import Check, Checked

_LONGEST = 2000

NodeName = Annotated[str, Field(min_length=1, max_length=200, pattern=STORABLE)]
Nodes = Annotated[list[NodeName], Field(max_length=20_000)]


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError("this is no number")
    return value


T = TypeVar("T")
Counted = Annotated[T, BeforeValidator(_number)]


class CheckVerdict(BaseModel):
    """The last line of `diagnose nodes check --json`, as it is. What a later version adds is left aside."""

    model_config = ConfigDict(populate_by_name=True)
    schema_: Literal["diagnose.nodecheck/1"] = Field(alias="schema")
    kind: Literal["verdict"]
    good: Nodes = []
    faulty: Nodes = []
    slow: Nodes = []
    suspects: Nodes = []
    links: list[Annotated[list[NodeName], Field(max_length=100)]] = Field([], max_length=20_000)
    why: dict[NodeName, Annotated[str, Field(max_length=10_000)]] = {}
    rounds: Counted[int] = Field(1, ge=0, le=100_000)
    time: float | None = Field(
        None, strict=True, ge=0, lt=1e12, description="When it was, in seconds since 1970; now, if it is not given"
    )


def check_of(verdict: CheckVerdict, now: float) -> Check:
    """The verdict, node by node. A time in the future becomes now: else a fast clock would clear nodes of later failures."""
    links: dict[str, list[str]] = {}
    for link in verdict.links:
        for one in link:
            links.setdefault(one, []).extend(other for other in link if other != one)
    found: dict[str, Checked] = {}
    lists: tuple[tuple[CheckResult, list[str]], ...] = (
        ("good", verdict.good),
        ("faulty", verdict.faulty),
        ("slow", verdict.slow),
        ("suspect", verdict.suspects),
    )
    for result, nodes in lists:
        for node in nodes:
            storable(node, "node")
            if node in found:
                raise Conflict(
                    "the node is named twice", where=node, remedy="send the last line of diagnose nodes check --json"
                )
            why = verdict.why.get(node)
            if why is None and node in links:
                others = ", ".join(sorted(set(links[node]))[:8])
                why = f"passed, but not together with {others}: look at the way between"
            found[node] = Checked(node, result, _storable_words(why))
    if not found:
        raise Conflict(
            "no node was tested",
            where="verdict",
            remedy="send the last line of diagnose nodes check --json, whose kind is verdict",
        )
    return Check(min(verdict.time if verdict.time is not None else now, now), tuple(found.values()), verdict.rounds)


def _storable_words(text: str | None) -> str | None:
    """What a broken node said, in a form that a database can hold, if necessary with marks for lost characters."""
    if text is None:
        return None
    return redact(text[:_LONGEST].replace("\0", "\ufffd")).text
