"""OpenAI's protocol as endpoints really speak it: request bodies out, any response in.

An endpoint may refuse parts of a body (``plainer`` leaves them out) and may send anything. All that is read here is checked
first, and nothing here raises because of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from diagnose.model.answers import Ask, Choice

_EMBEDDING_BYTES = 64 * 1024 * 1024


# -- one request, and how it can go -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    path: str
    """models, chat or embeddings"""
    body: dict[str, Any]
    prompt: str
    job: str | None
    """whose budget pays; None: nobody's"""
    tokens_in: int = 0
    """expected, until the endpoint says it"""
    tokens_out: int = 0
    most_bytes: int = 1_000_000
    probe: bool = False
    """a trial of what the endpoint can do, which the circuit breaker ignores"""


@dataclass(frozen=True)
class Trouble:
    """Why there is no answer to a request."""

    what: str
    passes: bool = False
    """another try may succeed"""
    slow: bool = False
    refused: bool = False
    """the endpoint does not take this request; it may take a plainer one"""
    counts: bool = True
    """a failure of the endpoint, for the circuit breaker"""
    status: int | None = None
    wait_s: float | None = None
    parameter: str | None = None
    words: str = ""


@dataclass(frozen=True)
class Way:
    """How an endpoint wants to be asked. At first it has all that we want. Each refusal takes a part away."""

    form: str = "json_schema"
    many: bool = True
    seed: bool = True
    temperature: bool = True
    limit: str = "max_tokens"


# -- what is sent -------------------------------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """``text`` without what UTF-8 cannot hold. Lines of a log may have bytes that are no text."""
    return text.encode("utf-8", "replace").decode()


def messages_of(ask: Ask) -> list[dict[str, str]]:
    return [{"role": role, "content": clean(text)} for role, text in ask.messages]


def body_of(ask: Ask, model: str, way: Way, n: int, seed: int) -> dict[str, Any]:
    messages = messages_of(ask)
    body: dict[str, Any] = {"model": model, "messages": messages, way.limit: ask.max_tokens}
    if way.temperature:
        body["temperature"] = ask.temperature
    if way.seed:
        body["seed"] = seed
    if n > 1:
        body["n"] = n
    if way.form == "json_schema":
        name = re.sub(r"[^A-Za-z0-9_-]", "-", ask.prompt)[:64] or "answer"
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": name, "schema": ask.schema, "strict": True},
        }
        return body
    # In the first message, the fixed part: the lines of a log come after it, and may pretend to be instructions.
    wanted = f"Answer with one JSON object that fits this JSON schema, and with nothing else:\n{json.dumps(ask.schema)}"
    if messages[0]["role"] == "system":
        messages[0]["content"] += f"\n\n{wanted}"
    else:
        messages.insert(0, {"role": "system", "content": wanted})
    if way.form == "json_object":
        body["response_format"] = {"type": "json_object"}
    return body


def embedding_request(model: str, texts: Sequence[str], job: str | None) -> Request:
    body = {"model": model, "input": list(texts), "encoding_format": "float"}
    prompt = "embed" if job is not None else "check"
    return Request("embeddings", body, prompt, job, sum(map(len, texts)) // 3, 0, _EMBEDDING_BYTES, job is None)


LIMIT = "max_completion_tokens"
"""newer models of OpenAI want this instead of max_tokens"""
ABOUT_FORM = re.compile(r"response.?format|json.?(schema|object)|schema|grammar|structured|guided|xgrammar|outlines")
_MANY = re.compile(r"\bn\b *(>|=|must|should|is |parameter)|['\"`]n['\"`]|\bbest_of\b|(multiple|only one) (choices|completion)")


def plainer(way: Way, trouble: Trouble, n: int) -> Way | None:
    """``way`` without what the endpoint refuses. None if nothing more can be left out."""
    named = (trouble.parameter or "").partition(".")[0]
    words = trouble.words

    def blamed(name: str, pattern: re.Pattern[str] | None = None) -> bool:
        if named:
            return named == name
        return bool(pattern.search(words)) if pattern else bool(re.search(rf"\b{name}\b", words))

    if way.limit == "max_tokens" and LIMIT in words:
        return replace(way, limit=LIMIT)
    if n > 1 and way.many and blamed("n", _MANY):
        return replace(way, many=False)
    form = blamed("response_format", ABOUT_FORM)
    if not form and way.temperature and blamed("temperature"):
        return replace(way, temperature=False)
    if not form and way.seed and blamed("seed"):
        return replace(way, seed=False)
    if way.form != "text":
        return replace(way, form="json_object" if way.form == "json_schema" else "text")
    if n > 1 and way.many:
        return replace(way, many=False)
    return None


def both(known: Way, took: Way) -> Way:
    """Merge what is known to be refused with what a successful request used: parallel requests may have found out more."""
    return Way(
        many=known.many and took.many,
        seed=known.seed and took.seed,
        temperature=known.temperature and took.temperature,
        limit=LIMIT if LIMIT in (known.limit, took.limit) else took.limit,
    )


def about_tokens(messages: list[dict[str, str]]) -> int:
    """About how many tokens the messages have. For text of logs the estimate is rather too high."""
    return sum(len(message["content"]) // 3 + 8 for message in messages)


# -- what comes back ----------------------------------------------------------------------------------------------------------


def member(value: Any, name: str) -> Any:
    """``value[name]``, if there is such a member. An endpoint may send anything."""
    return value.get(name) if isinstance(value, dict) else None


def _by_index(rows: list[Any]) -> list[Any]:
    indices = [member(row, "index") for row in rows]
    if all(isinstance(index, int) for index in indices):
        return [row for _, row in sorted(zip(indices, rows, strict=True), key=lambda pair: pair[0])]
    return rows


def choices_in(got: dict[str, Any]) -> list[Choice]:
    found = []
    for row in _by_index(got["choices"]):
        message = member(row, "message")
        content = _content(message)
        refusal, finish = member(message, "refusal"), member(row, "finish_reason")
        found.append(
            Choice(
                content if isinstance(content, str) else None,
                clean(finish)[:40] if isinstance(finish, str) else None,
                refusal if isinstance(refusal, str) and refusal else None,
            )
        )
    return found


def _content(message: Any) -> Any:
    """What a message says, in whichever field it stands."""
    content = member(message, "content")
    if isinstance(content, list):  # some servers answer in parts
        parts = [member(part, "text") for part in content]
        content = "".join(part for part in parts if isinstance(part, str))
    if isinstance(content, str) and content.strip():
        return content
    if isinstance(parsed := member(message, "parsed"), dict):
        return json.dumps(parsed)
    calls = member(message, "tool_calls")
    if isinstance(calls, list) and len(calls) == 1:
        return member(member(calls[0], "function"), "arguments")
    # A server that takes all for thoughts puts the answer there as well. Thoughts are more than one object.
    for name in ("reasoning_content", "reasoning"):
        thoughts = member(message, name)
        if isinstance(thoughts, str) and thoughts.strip().startswith("{") and thoughts.strip().endswith("}"):
            return thoughts
    return content


def tokens_used(got: dict[str, Any], request: Request) -> tuple[int, int]:
    """(tokens in, tokens out), from the endpoint or estimated."""
    usage = got.get("usage")
    numbers = [member(usage, name) for name in ("prompt_tokens", "completion_tokens")]
    tokens_in = numbers[0] if is_count(numbers[0]) else request.tokens_in
    if is_count(numbers[1]):
        return tokens_in, numbers[1]
    said = sum(len(choice.text or "") for choice in choices_in(got)) if request.path == "chat" else 0
    return tokens_in, said // 3


def tokens_reused(got: dict[str, Any]) -> int:
    """How many tokens of the question an endpoint took from its cache of prefixes. Vendors name the field differently."""
    usage = got.get("usage")
    details = member(usage, "prompt_tokens_details")
    said = [
        member(details, "cached_tokens"),
        member(usage, "prompt_cache_hit_tokens"),
        member(usage, "cache_read_input_tokens"),
    ]
    return next((count for count in said if is_count(count)), 0)


def mark_prefix(messages: list[dict[str, Any]]) -> None:
    """Mark the end of the fixed part of a question, for gateways that keep only what is marked: all but the last message."""
    if len(messages) > 1:
        last = messages[-2]
        last["content"] = [{"type": "text", "text": last["content"], "cache_control": {"type": "ephemeral"}}]


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1_000_000_000


def names_in(got: dict[str, Any]) -> list[str]:
    names = [member(row, "id") for row in got["data"][:100]]
    return [name for name in names if isinstance(name, str) and name.isprintable() and 0 < len(name) <= 300]


_EMBEDS = re.compile(r"embed|\bbge\b|\bgte\b|\be5\b|minilm|mpnet", re.IGNORECASE)


def chat_models(names: Sequence[str]) -> list[str]:
    """The models that do not look like models for embeddings. If all look so, all of them."""
    return [name for name in names if not _EMBEDS.search(name)] or list(names)


def embedding_models(names: Sequence[str]) -> list[str]:
    return [name for name in names if _EMBEDS.search(name)]


def embeddings_in(got: dict[str, Any], count: int) -> list[list[float]] | None:
    """The vectors of an answer to ``embedding_request``, in the order of the texts."""
    return vectors_in([member(row, "embedding") for row in _by_index(got["data"])], count)


def vectors_in(rows: Any, count: int) -> list[list[float]] | None:
    """``rows`` if they are ``count`` vectors of one length, of numbers."""
    if not isinstance(rows, list) or len(rows) != count:
        return None
    vectors = []
    for row in rows:
        if not isinstance(row, list) or not row or len(row) != len(rows[0]):
            return None
        if not all(isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in row):
            return None
        vectors.append([float(x) for x in row])
    return vectors
