"""Where the model is, with which key, and what it may cost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from diagnose.errors import DiagnoseError, nearest
from diagnose.quantities import DAY_S, GIB, Seconds, allowed

_MOST: Final = 1_000_000_000
_OURS: Final = frozenset(["messages", "model", "n", "response_format", "seed", "stream", "max_tokens", "max_completion_tokens"])
"""fields of a question that are ours to set"""


@dataclass(frozen=True, config=ConfigDict(allow_inf_nan=False, extra="forbid"))
class Settings:
    """Where the model is and what it may cost. A value out of its range is a DiagnoseError that says what is allowed."""

    url: str
    model: str | None = None
    """None: the first in ``/v1/models``"""
    key: str | None = Field(default=None, repr=False)
    """None: ``DIAGNOSE_LLM_KEY``, else ``OPENAI_API_KEY``, else "none" (a local server wants some value)"""
    timeout_s: Seconds = Field(default=60, ge=0.001, le=DAY_S)
    """for one request, from first byte sent to last byte read"""
    retries: int = Field(default=3, ge=0, le=100)
    concurrency: int = Field(default=4, ge=1, le=1000)
    calls_per_job: int = Field(default=50, ge=0, le=_MOST)
    tokens_per_job: int = Field(default=200_000, ge=0, le=_MOST)
    calls_per_hour: int = Field(default=1000, ge=0, le=_MOST)
    tokens_per_hour: int = Field(default=4_000_000, ge=0, le=_MOST)
    breaker_failures: int = Field(default=5, ge=1, le=1_000_000)
    breaker_pause_s: Seconds = Field(default=60, ge=0, le=DAY_S)
    cache: bool = True
    record: Path | str | None = None
    """folder to record each question with its answers"""
    replay: Path | str | None = None
    """folder of recorded answers; nothing is sent then"""
    backoff_s: Seconds = Field(default=0.5, ge=0, le=3600)
    """the first pause before a retry; it doubles"""
    answer_bytes: int = Field(default=1_000_000, ge=1, le=GIB)
    thinking_tokens: int | None = Field(default=None, ge=0, le=1_000_000)
    """added to the length of each answer, for models that think before they answer. None: ``DIAGNOSE_LLM_THINKING_TOKENS``"""
    extra: dict[str, Any] | None = None
    """further fields of each question, as the server wants them. None: the JSON object in ``DIAGNOSE_LLM_EXTRA``"""
    mark_prefix: bool | None = None
    """the end of the fixed part of a question is marked, for gateways that keep only what is marked. None: whether
    ``DIAGNOSE_LLM_MARK_PREFIX`` is 1
    """
    embedding_model: str | None = None
    """None: the model whose name says so, else ``model``"""
    redact_hosts: bool | None = None
    """names and addresses of machines are taken out of questions too. None: whether ``DIAGNOSE_LLM_REDACT_HOSTS`` is 1"""
    larger: Settings | None = None
    """a larger model, which is asked where this one does not answer, or leaves doubt"""

    @model_validator(mode="wrap")
    @classmethod
    def _say_what_is_allowed(cls, value: Any, check: Callable[[Any], Self]) -> Self:
        try:
            return check(value)
        except ValidationError as error:
            raise _refused(error) from None


def _refused(error: ValidationError) -> DiagnoseError:
    """The first value that is wrong, as a sentence. A key is not repeated."""
    first = error.errors(include_url=False)[0]
    fields = Settings.__pydantic_fields__  # type: ignore[attr-defined]
    name = str(first["loc"][0])
    if name not in fields:
        near = nearest(name, fields)
        remedy = f"did you mean {near}?" if near else f"those here are {', '.join(fields)}"
        return DiagnoseError(f"the model has no setting {name!r}", remedy=remedy)
    what = f"{name} cannot be {str(first['input'])[:200]!r}" if name != "key" else "the key cannot be used"
    return DiagnoseError(what, remedy=f"give {allowed(fields[name])}")


def base_url(url: str) -> str:
    """``url`` as the protocol's root: ``/v1`` is added if there is no path."""
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0 and not parts.query
        usable = usable and bool((parts.hostname or "").encode("idna"))
    except ValueError:
        usable = False
    if not usable:
        raise DiagnoseError(
            f"{url!r} is not the address of an endpoint", remedy="give one like http://localhost:8000/v1, with http or https"
        )
    path = parts.path.rstrip("/")
    for tail in ("/chat/completions", "/models"):
        path = path.removesuffix(tail)
    return urlunsplit((parts.scheme, parts.netloc, path or "/v1", "", ""))


def shown_url(url: str) -> str:
    """``url`` without what may be secret in it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def endpoint_key(key: str | None) -> str:
    """``key``, else what the environment has; see ``Settings.key``."""
    found = key or os.environ.get("DIAGNOSE_LLM_KEY") or os.environ.get("OPENAI_API_KEY") or "none"
    found = found.strip()
    if not found.isascii() or not found.isprintable():
        raise DiagnoseError(
            "the key of the endpoint has characters that cannot be in a key", remedy="set DIAGNOSE_LLM_KEY to the key alone"
        )
    return found


def with_larger(settings: Settings, url: str, model: str | None) -> Settings:
    """``settings`` with a larger model behind them. It costs at most as much again, and is never sent the first one's key."""
    recorded, replayed = settings.record, settings.replay
    larger = replace(
        settings,
        url=base_url(url),
        model=model,
        key=os.environ.get(f"{_LARGER}KEY") or "none",
        thinking_tokens=thinking_tokens(None, _LARGER),
        extra=extra_fields(None, _LARGER),
        mark_prefix=marks_prefix(None, _LARGER),
        record=Path(recorded, "larger") if recorded is not None else None,
        replay=Path(replayed, "larger") if replayed is not None else None,
    )
    return replace(settings, larger=larger)


_FIRST, _LARGER = "DIAGNOSE_LLM_", "DIAGNOSE_LARGER_LLM_"
"""how the variables of the environment begin that are about the first model, and about the larger one"""


def redacts_hosts(given: bool | None) -> bool:
    """``given``, else what the environment has."""
    return _switch(given, "DIAGNOSE_LLM_REDACT_HOSTS", "to leave hosts in")


def marks_prefix(given: bool | None, variables: str = _FIRST) -> bool:
    """``given``, else what the environment has."""
    return _switch(given, f"{variables}MARK_PREFIX", "to mark nothing")


def _switch(given: bool | None, name: str, off: str) -> bool:
    if given is not None:
        return given
    said = os.environ.get(name, "").strip() or "0"
    if said not in ("0", "1"):
        raise DiagnoseError(f"{name} cannot be {said[:40]!r}", remedy=f"give 1, or 0 {off}")
    return said == "1"


def thinking_tokens(given: int | None, variables: str = _FIRST) -> int:
    """``given``, else what the environment has."""
    name = f"{variables}THINKING_TOKENS"
    said = os.environ.get(name, "").strip() or "0"
    if given is None and not (said.isascii() and said.isdecimal() and int(said) <= 1_000_000):
        raise DiagnoseError(f"{name} cannot be {said[:40]!r}", remedy="give a number from 0 to 1000000")
    return int(said) if given is None else given


def extra_fields(given: dict[str, Any] | None, variables: str = _FIRST) -> dict[str, Any]:
    """``given``, else what the environment has."""
    name = f"{variables}EXTRA"
    said = os.environ.get(name, "").strip()
    if given is None and said:
        try:
            given = json.loads(said)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            remedy = 'give one such as {"reasoning_effort": "low"}'
            raise DiagnoseError(f"{name} is no JSON object", remedy=remedy)
    if own := _OURS & (given or {}).keys():
        raise DiagnoseError(f"the field {min(own)!r} of a question cannot be set", remedy="leave it out")
    return given or {}
