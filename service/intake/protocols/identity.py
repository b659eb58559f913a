"""Attributes of a record -> whose line it is: job, attempt, source, rank, node, by ``rules/identity.yaml``.

If an operator labels things differently, they give a file of the same form: its fields replace ours, and the others stay.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from diagnose.errors import DiagnoseError
from diagnose.knowledge.documents import Document, parse
from diagnose.knowledge.shipped import folder
from service.names import LONGEST_NAME

FIELDS = ("job", "attempt", "source", "rank", "node")
_KEYS = {*FIELDS, "below", "labels", "aliases", "text", "partial"}
_SLOT = re.compile(r"\{([^{}]+)\}")
_PUNCTUATION = re.compile(r"[^a-z0-9]+")
_DEEPEST, _MOST_ATTRIBUTES, _LONGEST_KEY = 5, 512, 512
_REMEMBERED, _SHORT = 20_000, 2_000
_NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of a line, as far as its record says."""

    job: str | None = None
    attempt: int | None = None
    source: str | None = None
    rank: int | None = None
    node: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Template:
    parts: tuple[str, ...]
    """text between the slots: one more than there are slots"""
    slots: tuple[str, ...]
    add: int = 0

    def fill(self, known: Mapping[str, str]) -> str | None:
        out = [self.parts[0]]
        for slot, text in zip(self.slots, self.parts[1:], strict=True):
            value = known.get(slot)
            if not value:
                return None
            out += (value, text)
        return "".join(out)


@dataclass(frozen=True, slots=True)
class _Knowledge:
    below: tuple[str, ...]
    aliases: Mapping[str, str]
    fields: Mapping[str, tuple[_Template, ...]]
    labels: Mapping[str, tuple[_Template, ...]]
    names: frozenset[str] = field(default_factory=frozenset)


class Identities:
    """The mapping in use."""

    def __init__(self, knowledge: _Knowledge, text: tuple[str, ...], partial: tuple[tuple[str, str], ...]) -> None:
        self._knowledge = knowledge
        self.text = text
        """fields of a record that may be its line; the first one that exists is taken"""
        self.partial = partial
        self._canonical = functools.lru_cache(_REMEMBERED)(self._canonical_name)
        self._identity = functools.lru_cache(_REMEMBERED)(self._identify)

    def known(self, attributes: Mapping[str, Any]) -> dict[str, str]:
        """The attributes that matter, by the mapping's names. Nested maps are read as dotted names."""
        found: dict[str, str] = {}
        below: dict[str, str] = {}
        for key, value in _flat(attributes):
            name, own = self._canonical(key)
            if name is not None:
                text = _text(value)
                if text:
                    (found if own else below).setdefault(name, text)
        return {**below, **found}  # what the author of a pod calls its namespace is not what the shipper calls it

    def identity(self, known: Mapping[str, str]) -> Identity:
        """The owner that ``known`` attributes name. Only short ones are remembered, or a sender could fill the memory."""
        find = self._identity if sum(map(len, known.values())) <= _SHORT else self._identify
        return find(frozenset(known.items()))

    def _canonical_name(self, key: str) -> tuple[str | None, bool]:
        """(the mapping's name of an attribute or None, whether it is the shipper's own attribute and not a label of a pod)."""
        names, plain = self._knowledge.names, normal(key)
        # The whole name is tried before its last part: kubernetes.labels.x may be in the mapping as such.
        for candidate in (plain, *(plain.removeprefix(f"{b}_") for b in self._knowledge.below if plain.startswith(f"{b}_"))):
            candidate = self._knowledge.aliases.get(candidate, candidate)
            if candidate in names:
                return candidate, candidate == self._knowledge.aliases.get(plain, plain)
        return None, True

    def _identify(self, items: frozenset[tuple[str, str]]) -> Identity:
        known, fields = dict(items), self._knowledge.fields
        job = _first(fields["job"], known)
        node = _first(fields["node"], known)
        labels = ((name, _first(templates, known)) for name, templates in self._knowledge.labels.items())
        return Identity(
            job=job.replace("/", ".") if job else None,  # Prometheus writes namespace/name
            attempt=_number(fields["attempt"], known),
            source=_first(fields["source"], known),
            rank=_number(fields["rank"], known),
            node=node if node and node.isprintable() and len(node) <= 200 else None,
            labels=tuple((name, value) for name, value in labels if value and value.isprintable() and len(value) <= 256),
        )

    @property
    def jobs(self) -> str:
        """The attributes that name a job, for messages."""
        names = list(dict.fromkeys("+".join(template.slots) for template in self._knowledge.fields["job"]))
        more = f" and {len(names) - _NAMES_SHOWN} more that rules/identity.yaml lists" if len(names) > _NAMES_SHOWN else ""
        return ", ".join(names[:_NAMES_SHOWN]) + more


def normal(name: str) -> str:
    """A name in one form, whatever its case and punctuation."""
    return _PUNCTUATION.sub("_", name.lower()).strip("_")


def _first(templates: tuple[_Template, ...], known: Mapping[str, str]) -> str | None:
    for template in templates:
        value = template.fill(known)
        if value is not None:
            return value
    return None


def _number(templates: tuple[_Template, ...], known: Mapping[str, str]) -> int | None:
    """The first that is a number. Text in place of a rank says nothing."""
    for template in templates:
        value = template.fill(known)
        if value is not None and value.isascii() and value.isdecimal() and len(value) < 7:
            return int(value) + template.add
    return None


def _flat(attributes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    stack: list[tuple[str, Any, int]] = [(key, value, 1) for key, value in reversed(list(attributes.items()))]
    seen = 0
    while stack and seen < _MOST_ATTRIBUTES:
        key, value, depth = stack.pop()
        seen += 1
        if len(key) > _LONGEST_KEY:  # nor what is below it: each name there would be this long again
            continue
        if not isinstance(value, Mapping):
            yield key, value
        elif depth < _DEEPEST:
            stack += [(f"{key}.{name}", inner, depth + 1) for name, inner in islice(value.items(), _MOST_ATTRIBUTES)]


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value if len(value) <= 1200 else value[:1201]  # too long for any name: refused when names are checked
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**LONGEST_NAME:
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:  # some languages have no other numbers
        return str(int(value))
    return None


def load(own: Path | None = None) -> Identities:
    """The shipped mapping; the fields of an operator's own file replace ours."""
    path = folder("rules") / "identity.yaml"
    merged = _document(path).value
    if own is not None:
        merged = {**merged, **_document(own).value}
    knowledge = _compiled(merged, str(own or path))
    return Identities(
        knowledge,
        tuple(_words(merged["text"], "text", str(own or path))),
        tuple((str(k), str(v)) for k, v in merged["partial"].items()),
    )


def _document(path: Path) -> Document:
    try:
        document = parse(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise DiagnoseError(f"cannot be read: {error}", where=str(path), remedy="check the path and its permissions") from None
    if not isinstance(document.value, dict) or not document.value:
        raise DiagnoseError(
            "this is not a mapping of identities", where=str(path), remedy=f"give some of {', '.join(sorted(_KEYS))}"
        )
    for key, value in document.value.items():
        if key not in _KEYS:
            raise DiagnoseError(
                f"unknown key {key!r}", where=f"{path}:{document.line(key)}", remedy=f"use some of {', '.join(sorted(_KEYS))}"
            )
        shape: type = dict if key in ("labels", "aliases", "partial") else list
        if not isinstance(value, shape):
            raise DiagnoseError(
                f"{key} must be a {'mapping' if shape is dict else 'list'}",
                where=f"{path}:{document.line(key)}",
                remedy="rules/identity.yaml is an example",
            )
    return document


def _compiled(merged: Mapping[str, Any], where: str) -> _Knowledge:
    aliases = {
        normal(other): normal(name) for name, others in merged["aliases"].items() for other in _words(others, name, where)
    }
    fields = {name: _templates(merged[name], name, where, aliases) for name in FIELDS}
    labels = {name: _templates(words, name, where, aliases) for name, words in merged["labels"].items()}
    names = frozenset(slot for group in (*fields.values(), *labels.values()) for template in group for slot in template.slots)
    return _Knowledge(tuple(normal(word) for word in merged["below"]), aliases, fields, labels, names)


def _templates(words: Any, name: str, where: str, aliases: Mapping[str, str]) -> tuple[_Template, ...]:
    return tuple(_template(word, name, where, aliases) for word in _words(words, name, where))


def _template(text: str, name: str, where: str, aliases: Mapping[str, str]) -> _Template:
    add, body = 0, text
    if found := re.fullmatch(r"(\{[^{}]+\})\+(\d{1,3})", text):
        body, add = found[1], int(found[2])
    pieces = _SLOT.split(body)
    slots = tuple(aliases.get(normal(slot), normal(slot)) for slot in pieces[1::2])
    if not slots or not all(slots) or any("{" in piece or "}" in piece for piece in pieces[::2]):
        raise DiagnoseError(
            f"{text!r} names no attribute", where=f"{where}: {name}", remedy="write attributes in braces, as '{slurm.job_id}'"
        )
    return _Template(tuple(pieces[::2]), slots, add)


def _words(words: Any, name: str, where: str) -> list[str]:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DiagnoseError(f"{name} must be a list of texts", where=where, remedy="rules/identity.yaml is an example")
    return words
