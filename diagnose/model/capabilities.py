"""What an endpoint can do, found by tiny requests, and what gets worse if it cannot."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from typing import Any

from diagnose.model.endpoint import Endpoint
from diagnose.model.protocol import (
    LIMIT,
    Request,
    Trouble,
    chat_models,
    choices_in,
    embedding_models,
    embedding_request,
    embeddings_in,
    is_count,
    member,
    names_in,
)
from diagnose.model.settings import shown_url


@dataclass(frozen=True)
class Capability:
    """One thing that an endpoint may be able to do."""

    works: bool
    seen: str
    degraded: str | None = None
    """what is worse without it; None if it works"""


@dataclass(frozen=True)
class Capabilities:
    """What an endpoint can do, as tried."""

    url: str
    models: tuple[str, ...] = ()
    model: str | None = None
    context: int | None = None
    """how many tokens question and answer may have together, if the endpoint says so"""
    chat: Capability = Capability(False, "not tried")
    json_schema: Capability = Capability(False, "not tried")
    n: Capability = Capability(False, "not tried")
    seed: Capability = Capability(False, "not tried")
    logprobs: Capability = Capability(False, "not tried")
    embeddings: Capability = Capability(False, "not tried")
    problem: str | None = None
    """why the endpoint is of no use; None if it is usable"""
    remedy: str | None = None

    @property
    def usable(self) -> bool:
        return self.problem is None


_DEGRADED = {
    "json_schema": "answers are only asked to fit; those that do not are thrown away, so fewer of the samples count",
    "n": "each sample is a request of its own: more calls, and the question is read n times",
    "seed": "asking again may answer otherwise; the cache and --record keep what was said",
    "logprobs": "confidence comes from the vote over samples alone",
    "embeddings": "past incidents and likely lines are found by words alone",
}


async def check(endpoint: Endpoint) -> Capabilities:
    """Try everything that is used, with tiny requests, once and outside the budgets."""
    found = Capabilities(shown_url(endpoint.url))
    if endpoint.settings.replay is not None:
        return replace(found, problem="answers are replayed, nothing is asked", remedy="check without a replay folder")
    got = await endpoint.send(Request("models", {}, "check", None, probe=True))
    if isinstance(got, Trouble) and got.status not in (404, 405, 501):
        return replace(found, problem=got.what, remedy=_remedy(got))
    names = names_in(got) if isinstance(got, dict) else []
    model = endpoint.settings.model or next(iter(chat_models(names)), None)
    if model is None:
        return replace(found, problem="the endpoint does not say which models it serves", remedy="name one with --model")
    found = replace(found, models=tuple(names), model=model, context=_context(got, model))
    trouble = await _try_chat(endpoint, model)
    if isinstance(trouble, Trouble):
        remedy = _remedy(trouble)
        if names and model not in names:
            remedy = f"it serves {', '.join(names[:5])}: name one of these with --model"
        return replace(found, chat=Capability(False, trouble.what), problem=trouble.what, remedy=remedy)
    return replace(
        found,
        chat=trouble,
        json_schema=await _try_schema(endpoint, model),
        n=await _try_n(endpoint, model),
        seed=await _try_seed(endpoint, model),
        logprobs=await _try_logprobs(endpoint, model),
        embeddings=await _try_embeddings(endpoint, names, model),
    )


async def _try(endpoint: Endpoint, model: str, text: str, most: int, **more: Any) -> dict[str, Any] | Trouble:
    body = {"model": model, "messages": [{"role": "user", "content": text}], endpoint.way.limit: most, **more}
    got = await endpoint.send(Request("chat", body, "check", None, most_bytes=endpoint.settings.answer_bytes, probe=True))
    if isinstance(got, Trouble) and got.refused and endpoint.way.limit == "max_tokens" and LIMIT in got.words:
        endpoint.way = replace(endpoint.way, limit=LIMIT)
        return await _try(endpoint, model, text, most, **more)
    return got


async def _try_chat(endpoint: Endpoint, model: str) -> Capability | Trouble:
    began = endpoint.clock()
    got = await _try(endpoint, model, "Say yes.", 8)
    if isinstance(got, Trouble):
        return got
    return Capability(True, f"{endpoint.clock() - began:.1f} s for a few words")


async def _try_schema(endpoint: Endpoint, model: str) -> Capability:
    # The question does not contain the one word that fits. Only a decoder that enforces the schema can say it.
    word = "quartz-otter-51"
    schema = {
        "type": "object",
        "properties": {"word": {"type": "string", "enum": [word]}},
        "required": ["word"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "word", "schema": schema, "strict": True}}
    got = await _try(endpoint, model, "Name a word, as JSON.", 256, temperature=0, response_format=form)
    if isinstance(got, Trouble):
        other = await _try(endpoint, model, "Name a word, as JSON.", 64, temperature=0, response_format={"type": "json_object"})
        instead = "json_object is taken" if isinstance(other, dict) else "plain text only"
        return _lacks("json_schema", f"{got.what}; {instead}")
    first = choices_in(got)[0]
    with contextlib.suppress(ValueError, RecursionError):
        if json.loads(first.text or "") == {"word": word}:
            return Capability(True, "answers are held to the schema")
    cut = ", and was cut at 256 tokens" if first.finish == "length" else ""
    return _lacks("json_schema", f"taken, but the answer does not fit it{cut}")


async def _try_n(endpoint: Endpoint, model: str) -> Capability:
    got = await _try(endpoint, model, "Say yes.", 4, temperature=0.7, n=2)
    if isinstance(got, Trouble):
        return _lacks("n", got.what)
    count = len(choices_in(got))
    return Capability(True, "2 samples in one request") if count == 2 else _lacks("n", f"asked for 2 samples, got {count}")


async def _try_seed(endpoint: Endpoint, model: str) -> Capability:
    texts = []
    for _ in range(2):
        got = await _try(endpoint, model, "Write ten random digits.", 16, temperature=1, seed=7)
        if isinstance(got, Trouble):
            return _lacks("seed", got.what)
        texts.append([choice.text for choice in choices_in(got)])
    same = texts[0] == texts[1]
    return Capability(True, "the same answer twice") if same else _lacks("seed", "taken, but two answers differ")


async def _try_logprobs(endpoint: Endpoint, model: str) -> Capability:
    got = await _try(endpoint, model, "Say yes.", 4, temperature=0, logprobs=True, top_logprobs=2)
    if isinstance(got, Trouble):
        return _lacks("logprobs", got.what)
    rows = member(member(next(iter(got["choices"]), None), "logprobs"), "content")
    found = isinstance(rows, list) and bool(rows)
    return Capability(True, "given for each token") if found else _lacks("logprobs", "taken, but none came")


async def _try_embeddings(endpoint: Endpoint, names: list[str], model: str) -> Capability:
    chosen = endpoint.settings.embedding_model
    seen = "no model for it"
    for name in [chosen] if chosen else [*embedding_models(names), model][:3]:
        got = await endpoint.send(embedding_request(name, ["loss is nan"], None))
        if isinstance(got, Trouble):
            seen = got.what
            continue
        vectors = embeddings_in(got, 1)
        if vectors is not None:
            return Capability(True, f"{len(vectors[0])} numbers a text, from {name}")
        seen = "what came are no vectors"
    return _lacks("embeddings", seen)


def _context(got: dict[str, Any] | Trouble, model: str) -> int | None:
    if isinstance(got, dict):
        for row in got["data"]:
            if member(row, "id") == model and is_count(length := member(row, "max_model_len")):
                return int(length)
    return None


def _remedy(trouble: Trouble) -> str:
    if trouble.status in (401, 403):
        return "set DIAGNOSE_LLM_KEY to a key that it takes"
    if trouble.status is None:
        return "start the endpoint, as with 'vllm serve MODEL', or name another with --llm"
    if trouble.status == 404:
        return "the address usually ends in /v1, and --model names one of its models"
    return "see the endpoint's own log"


def _lacks(name: str, seen: str) -> Capability:
    return Capability(False, seen, _DEGRADED[name])
