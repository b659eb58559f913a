"""Lines that no rule knows -> filter rules, without a model: template mining.

Lines are gathered by shape, in bounded memory. Shapes with their words in the same places become one template. Its words are
literal; its numbers, paths and quoted texts are typed placeholders; and it is anchored at both ends. The results are proposals:
``proposals.judged`` decides whether one may ever drop a line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from diagnose.knowledge.rules import Example, Rule

_MOST_SHAPES = 20_000
_MOST_SAMPLES = 8
_LONGEST = 4096
_MOST_TOKENS = 1200
_MOST_ALIKE = 64
"""templates of one structure that a shape is compared with: the most frequent ones"""
_ALIKE = 0.6
"""share of words that two shapes must have in common to be one template"""
_FEWEST = 3
"""lines that a template must stand for, with those that were held back"""
_REPEATS = 3
"""times that something must come in a row to be taken for a list"""
_LONGEST_ITEM = 24
"""tokens of one item of a list"""
_RAGGED = 0.6
"""share of a line that a list must be, if the line is a piece cut out of a longer one"""

_SHAPE = re.compile(r"\d+")
_TOKEN = re.compile(
    r"(?P<single>(?<!\w)'[^'\n]{0,200}'(?!\w))"
    r"|(?P<double>(?<!\w)\"[^\"\n]{0,200}\"(?!\w))"
    r"|(?P<path>(?:[A-Za-z][\w+.-]*:/|\.{0,2})/[\w.+@%=~:/-]+)"
    r"|(?P<hex>0x[0-9a-fA-F]+|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b)"
    r"|(?P<number>[-+]?\d[\d.,:/-]*(?:[eE][-+]?\d+)?(?![A-Za-z_]))"
    r"|(?P<word>[^\W\d]\w*(?:[.-][^\W\d]\w*)*)"
    r"|(?P<mixed>\w+)"
    r"|(?P<space>\s+)"
    r"|(?P<other>.)"
)
_PLACEHOLDER = {
    "single": "'[^']*'",
    "double": r"\x22[^\x22]*\x22",
    "path": r"[\w.+@%=~:/-]+",
    "hex": r"[0-9a-fA-Fx]+",
    "number": r"[-+.,:/\deE]+",
    "variable": r"[\w.-]+",
    "head": r"[\w.-]*'?,? *",
    "tail": r",? *'?[\w.-]*",
}
_KINDS = {*_PLACEHOLDER, "word", "mixed", "space"}
_PART = re.compile(r"[^./]*[./]")
_MOST_PARTS = 2


class Token(NamedTuple):
    """A piece of a line."""

    kind: str
    text: str
    item: tuple[Token, ...] = ()
    """for the kind ``list``: what comes once or more in a row"""

    @property
    def form(self) -> Any:
        """Equal for pieces that may stand for each other."""
        if self.kind == "list":
            return tuple(token.form for token in self.item)
        return self.kind if self.kind in _KINDS else self.text

    @property
    def letters(self) -> int:
        if self.kind == "list":
            return sum(token.letters for token in self.item)
        if self.kind in ("single", "double"):
            return sum(map(str.isalpha, self.text))
        return len(self.text) if self.kind == "word" else 0


@dataclass(slots=True)
class Template:
    """Shapes with their words in the same places."""

    tokens: list[Token]
    """of the kind ``variable`` if the words differ"""
    count: int = 0
    """lines that it was made of"""
    samples: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    """lines of its shapes that it was not made of"""

    @property
    def pattern(self) -> str:
        """The expression that matches the lines of this template and nothing longer."""
        return "^" + "".join(map(_expression, self.tokens)) + "$"

    @property
    def letters(self) -> int:
        """How many letters are literal: a measure of how much the pattern says."""
        return sum(token.letters for token in self.tokens)


def _expression(token: Token) -> str:
    if token.kind == "list":
        return "(?:" + "".join(map(_expression, token.item)) + ")+"
    if token.kind in ("single", "double") and token.text:
        # For the items of a list: what they all begin with.
        quote = _PLACEHOLDER[token.kind][: 1 if token.kind == "single" else 4]
        return quote + re.escape(token.text) + _PLACEHOLDER[token.kind][len(quote) :]
    if token.kind in _PLACEHOLDER:
        return _PLACEHOLDER[token.kind]
    if token.kind == "space":
        return " +" if token.text.strip(" ") == "" else r"\s+"
    # Numbers inside of words (cuda0, fp16) are numbers too.
    return _SHAPE.sub(r"\\d+", re.escape(token.text).replace(r"\-", "-"))


@dataclass(slots=True)
class _Shape:
    taken: int = 0
    samples: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    held_next: bool = False

    @property
    def count(self) -> int:
        return self.taken + len(self.held)


class Miner:
    """Gathers lines and makes proposals of them."""

    def __init__(self) -> None:
        self._shapes: dict[str, _Shape] = {}
        self._held_next = False
        self.lines = 0

    def add(self, body: str) -> bool:
        """Take a line that no rule knows. False for every second one of a shape, which is kept to try proposals on."""
        self.lines += 1
        if len(body) > _LONGEST or not body.strip():
            return False
        key = _SHAPE.sub("0", body)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._forget()
            self._held_next = not self._held_next
            shape = self._shapes[key] = _Shape(held_next=not self._held_next)
        if shape.held_next:
            _sample(shape.held, body)
        else:
            shape.taken += 1
            _sample(shape.samples, body)
        shape.held_next = not shape.held_next
        return shape.held_next

    def _forget(self) -> None:
        """Forget shapes that came only once, to make room."""
        self._shapes = {key: shape for key, shape in self._shapes.items() if shape.count > 1}
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes = dict(list(self._shapes.items())[_MOST_SHAPES // 2 :])

    def templates(self) -> list[Template]:
        """The templates of what was gathered, the most frequent first."""
        buckets: dict[tuple[Any, ...], list[Template]] = {}
        unseen: list[tuple[tuple[Any, ...], list[Token], list[str]]] = []
        for shape in sorted(self._shapes.values(), key=lambda shape: -shape.taken):
            tokens = tokens_of((shape.samples or shape.held)[0])
            if tokens is None:
                continue
            key = tuple(token.form for token in tokens)
            if not shape.samples:
                unseen.append((key, tokens, shape.held))
                continue
            bucket = buckets.setdefault(key, [])
            for template in bucket[:_MOST_ALIKE]:
                if (merged := _merged(template.tokens, tokens)) is not None:
                    template.tokens = merged
                    break
            else:
                template = Template(tokens)
                bucket.append(template)
            template.count += shape.taken
            template.samples += shape.samples[: max(1, _MOST_SAMPLES * 2 - len(template.samples))]
            template.held += shape.held[: max(1, _MOST_SAMPLES * 2 - len(template.held))]
        for key, tokens, held in unseen:
            for template in buckets.get(key, [])[:_MOST_ALIKE]:
                if _merged(template.tokens, tokens) == template.tokens and len(template.held) < _MOST_SAMPLES * 2:
                    template.held += held
                    break
        found = [template for bucket in buckets.values() for template in bucket]
        return sorted(found, key=lambda template: -template.count)

    def proposals(self) -> Iterator[tuple[Rule, Template]]:
        """A filter rule for each template that says enough and stands for enough lines."""
        alike: dict[str, Template] = {}
        for template in self.templates():
            first = alike.setdefault(template.pattern, template)
            if first is not template:
                first.count += template.count
                first.samples += template.samples
                first.held += template.held
        for template in alike.values():
            if template.count + len(template.held) >= _FEWEST and template.letters:
                yield rule_of(template), template


def _sample(samples: list[str], body: str) -> None:
    """A few lines of a shape. Repeats of a line count too, up to the number that proves that it comes again and again."""
    if len(samples) < (_MOST_SAMPLES if not samples or body != samples[-1] else _FEWEST):
        samples.append(body)


def tokens_of(line: str) -> list[Token] | None:
    """``line`` as tokens, with one token for each list. None if there are too many."""
    tokens = []
    for found in _TOKEN.finditer(line):
        tokens.append(Token(found.lastgroup or "other", found[0]))
        if len(tokens) > _MOST_TOKENS:
            return None
    return _ragged(_listed(tokens), line)


def _listed(tokens: list[Token]) -> list[Token]:
    """``tokens`` with each list, however long, as one."""
    forms = [token.form if token.kind in _PLACEHOLDER or token.kind == "space" else token.text for token in tokens]
    result: list[Token] = []
    at = 0
    while at < len(tokens):
        best = 0, 0
        for size in range(1, min(_LONGEST_ITEM, (len(tokens) - at) // _REPEATS) + 1):
            if forms[at] != forms[at + size]:
                continue
            times = 1
            while forms[at : at + size] == forms[at + times * size : at + (times + 1) * size]:
                times += 1
            if times >= _REPEATS and times * size > best[0] * best[1]:
                best = size, times
        size, times = best
        # A row of blanks or dashes is no list: it has no items.
        if size and any(token.kind in _KINDS and token.kind != "space" for token in tokens[at : at + size]):
            whole = tokens[at : at + size * times]
            item = tuple(
                Token(
                    kind, _begin([other.text[1:-1] for other in whole[place::size]]) if kind in ("single", "double") else text
                )
                for place, (kind, text, _) in enumerate(whole[:size])
            )
            result.append(Token("list", "".join(token.text for token in whole), item))
            at += size * times
        else:
            token = tokens[at]
            result.append(Token(token.kind, "") if token.kind in ("single", "double") else token)
            at += 1
    return result


def _begin(texts: list[str]) -> str:
    """What all ``texts`` begin with, as far as it shows their kind: at most two whole parts of a dotted name or a path, before
    any number.
    """
    least, most = min(texts), max(texts)
    same = next((n for n, (a, b) in enumerate(zip(least, most, strict=False)) if a != b or a.isdigit()), len(least))
    parts = _PART.findall(least[:same])
    return "".join(parts[:_MOST_PARTS])


def _ragged(tokens: list[Token], line: str) -> list[Token]:
    """The tokens of a piece of a long list that was cut off anywhere. Its ends may be any part of an item, but never a
    sentence.
    """
    for place, token in enumerate(tokens):
        if token.kind != "list" or len(token.text) < _RAGGED * len(line) or not token.letters:
            continue
        begin = line.find(token.text)
        result = [token]
        for kind, text, edge in (
            ("head", line[:begin], tokens[:place]),
            ("tail", line[begin + len(token.text) :], tokens[place + 1 :]),
        ):
            kept = [Token(kind, "")] if re.fullmatch(_PLACEHOLDER[kind], text) else edge
            result = [*kept, *result] if kind == "head" else [*result, *kept]
        return result
    return tokens


def _merged(template: list[Token], line: list[Token]) -> list[Token] | None:
    """The template with everything variable that differs in ``line``. None if too much differs."""
    words = same = 0
    merged = []
    for ours, other in zip(template, line, strict=True):
        if ours.kind in ("word", "mixed", "variable"):
            words += 1
            equal = ours.kind == other.kind and _SHAPE.sub("0", ours.text) == _SHAPE.sub("0", other.text)
            # What was found to be variable stays variable.
            same += equal or ours.kind == "variable"
            merged.append(ours if equal else Token("variable", ours.text))
        elif ours.kind == "space" and ours.text != other.text:
            merged.append(Token("space", "  "))
        elif ours.kind == "list":
            merged.append(Token("list", ours.text, tuple(_common(a, b) for a, b in zip(ours.item, other.item, strict=True))))
        else:
            merged.append(ours)
    fixed = sum(token.letters for token in merged)
    return merged if (same >= _ALIKE * words or not words) and fixed else None


def _common(ours: Token, other: Token) -> Token:
    if ours.kind in ("single", "double"):
        return Token(ours.kind, _begin([ours.text, other.text]))
    return ours if ours.text == other.text or ours.kind not in ("word", "mixed") else Token("variable", ours.text)


def rule_of(template: Template) -> Rule:
    """The template as a filter rule, with its samples as examples."""
    pattern = template.pattern
    name = hashlib.sha256(pattern.encode()).hexdigest()[:10]
    words = [token.text for token in template.tokens if token.kind == "word"]
    return Rule(
        id=f"mined-{name}",
        family="filters",
        pattern=pattern,
        title=" ".join(words)[:60],
        kind="debug",
        framework="learned",
        matches=tuple(Example(sample) for sample in template.samples[:3]),
        misses=(Example(f"{template.samples[0]} and then it failed"),),
    )


def mine(lines: Iterable[str]) -> list[tuple[Rule, Template]]:
    """The proposals from ``lines``."""
    miner = Miner()
    for line in lines:
        miner.add(line)
    return list(miner.proposals())
