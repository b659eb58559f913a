"""A question, its samples, and which of them are accepted: JSON that fits the schema of the question, and nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from diagnose.errors import DiagnoseError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_OBJECTS_TRIED = 200
_HELD_BACK = ("content_filter", "refusal", "safety", "SAFETY")
"""why an answer ended, in the words of several vendors"""


@dataclass(frozen=True)
class Ask:
    """One question: its text, and which JSON is wanted ``n`` times."""

    prompt: str
    """the prompt's name, for the accounts"""
    version: str
    messages: tuple[tuple[str, str], ...]
    """(role, text); the fixed part first, so that the endpoint's prefix cache serves it"""
    schema: dict[str, Any]
    n: int = 1
    temperature: float = 0.7
    seed: int = 0
    max_tokens: int = 1024

    @cached_property
    def key(self) -> str:
        """A name for the question. ``prompt`` and ``version`` do not count, because they do not change the answer.

        The order of the schema's properties counts: a model fills them in in that order.
        """
        said = [self.messages, self.schema, self.n, float(self.temperature), self.seed, self.max_tokens]
        return hashlib.sha256(json.dumps(said, separators=(",", ":")).encode()).hexdigest()

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True)
class Answer:
    """What came, and what is missing."""

    values: tuple[dict[str, Any], ...]
    """the samples that are JSON and fit the schema, in order"""
    problems: tuple[str, ...]
    tokens_in: int = 0
    """cost of this answer: nothing if it was cached or replayed"""
    tokens_out: int = 0
    seconds: float = 0.0
    cached: bool = False
    model: str | None = None
    of: int = 1
    """number of samples that ``values`` are a part of: those asked for, even if they did not come; or those in a recording"""


@dataclass(frozen=True)
class Choice:
    """One sample as it came."""

    text: str | None
    finish: str | None = None
    refusal: str | None = None


def validator_of(ask: Ask) -> Validator:
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
    except ImportError as error:
        remedy = "install it with 'pip install jsonschema'"
        raise DiagnoseError("the package jsonschema is not installed", remedy=remedy) from error
    if not ask.messages or ask.n < 1:
        raise ValueError(f"{ask.prompt}: a question has messages, and wants one answer or more")
    try:
        Draft202012Validator.check_schema(ask.schema)
    except SchemaError as error:
        raise ValueError(f"{ask.prompt}: the schema of the answer is none: {error.message}") from error
    return Draft202012Validator(ask.schema)


def judged(ask: Ask, choices: list[Choice], validator: Validator) -> tuple[tuple[dict[str, Any], ...], list[str], bool]:
    """(what fits, what is wrong with the rest, whether other samples might fit)"""
    values: list[dict[str, Any]] = []
    problems: list[str] = []
    again = False
    for number, choice in enumerate(choices, 1):
        found = _value(choice, validator)
        if isinstance(found, dict):
            values.append(found)
            continue
        which = f"answer {number} of {ask.n}" if ask.n > 1 else "the answer"
        if choice.finish == "length":
            room = "; a model that thinks first needs DIAGNOSE_LLM_THINKING_TOKENS" if found == _ONLY_THOUGHTS else ""
            found = f"was cut at {ask.max_tokens} tokens ({found}){room}"
        elif choice.finish in _HELD_BACK:
            found = "was held back by the endpoint's content filter"
        else:
            again = again or not found.startswith("is a refusal")
        problems.append(f"{which} {found}")
    if choices and len(choices) < ask.n:
        problems.append(f"{len(choices)} of {ask.n} answers came")
    return tuple(values), problems, again or not choices


def _value(choice: Choice, validator: Validator) -> dict[str, Any] | str:
    """The object in a sample, or what is wrong with it."""
    if choice.refusal is not None:
        return f"is a refusal: {_short(choice.refusal)}"
    text = _without_thoughts(choice.text or "")
    if not text:
        return _ONLY_THOUGHTS if (choice.text or "").strip() else "is empty"
    wrong = "has no JSON object in it"
    fitting: list[dict[str, Any]] = []
    for found in _objects(text):
        error = _misfit(found, validator)
        if error is None:
            if found not in fitting:
                fitting.append(found)
        else:
            wrong = error
    if len(fitting) > 1:
        # One of them may be quoted from the log, and nothing shows which one is meant.
        return f"has {len(fitting)} objects that fit, and they differ"
    if not fitting and _REFUSES.match(text):
        return f"is a refusal: {_short(text)}"
    return fitting[0] if fitting else f"{wrong}: {_short(text)}" if wrong.startswith("has no") else wrong


_ONLY_THOUGHTS = "has only thoughts"
_REFUSES = re.compile(
    r"(?i)(?:i['\u2019]?m |i am )?(?:very |so )?sorry\b"
    r"|i (?:can(?:['\u2019]t|not| not)|am unable|won['\u2019]t|must decline)\b"
)
"""how models refuse in words, where a server has no field for it"""
_TAG = r"(?:\w{1,20}:)?(?:think(?:ing)?|thoughts?|reasoning|reflection)"
_THOUGHT_BEGINS = re.compile(rf"\s*(?:<{_TAG}>|\[THINK\]|\u25c1think\u25b7|<\|channel\|>(?!final\b))", re.IGNORECASE)
_THOUGHT_ENDS = re.compile(rf"</{_TAG}>|\[/THINK\]|\u25c1/think\u25b7|<\|channel\|>final(?:<\|message\|>)?", re.IGNORECASE)


def _without_thoughts(text: str) -> str:
    """What a model says after its thoughts. Many templates write the mark that begins them into the question, so only their end
    is sure to stand in the answer.
    """
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        return text  # a mark within an answer is quoted from somewhere
    ends = [found.end() for found in _THOUGHT_ENDS.finditer(text)]
    if ends:
        return text[ends[-1] :].strip()
    return "" if _THOUGHT_BEGINS.match(text) else text


_BEGINS = re.compile(r"\{\s*\"")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON object that ``text`` is, or the outermost objects within it."""
    with contextlib.suppress(ValueError, RecursionError):
        whole = json.loads(text, parse_constant=_no_constant)
        if isinstance(whole, dict):
            yield whole
        return
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    at = text.find("{")
    for _ in range(_OBJECTS_TRIED):
        if at < 0:
            return
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            if _BEGINS.match(text, at):
                return  # half an object: a whole object within it is not the answer
            end = at + 1
        else:
            yield found
        at = text.find("{", end)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _misfit(value: dict[str, Any], validator: Validator) -> str | None:
    from jsonschema.exceptions import best_match

    try:
        # Python's parser accepts half a surrogate pair and numbers out of range, but they cannot be written out again.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        error = best_match(validator.iter_errors(value))
    except (ValueError, RecursionError) as bad:
        return f"is no usable JSON: {_short(str(bad))}"
    if error is None:
        return None
    where = f"{error.json_path}: " if error.path else ""
    return f"does not fit the schema: {where}{_short(error.message)}"


def _short(text: str) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in text[:1000]).split())
    return text if len(text) <= 120 else text[:119] + "…"
