"""Lines that no rule knows -> filter rules, without a model: template mining.

Lines are gathered by shape, in bounded memory. Shapes whose words stand in the same places become one template; its words are
literal, its numbers, paths and quoted texts typed placeholders, and the whole is anchored at both ends. What comes out are
proposals: ``learned`` decides whether one may ever drop a line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from diagnose.rules import Example, Rule

_MOST_SHAPES = 20_000
_MOST_SAMPLES = 8
_LONGEST = 1000
_MOST_TOKENS = 200
_MOST_ALIKE = 64
"""templates of one structure that a shape is compared with: the most frequent ones"""
_ALIKE = 0.6
"""share of words that two shapes must have in common to be one template"""
_FEWEST = 3
"""lines that a template must have been seen in"""

_SHAPE = re.compile(r"\d+")
_TOKEN = re.compile(
    r"(?P<quoted>'[^'\n]{0,200}'|\"[^\"\n]{0,200}\")"
    r"|(?P<path>(?:[A-Za-z][\w+.-]*:/|\.{0,2})/[\w.+@%=~:/-]+)"
    r"|(?P<hex>0x[0-9a-fA-F]+|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b)"
    r"|(?P<number>[-+]?\d[\d.,:/-]*(?:[eE][-+]?\d+)?(?![A-Za-z_]))"
    r"|(?P<word>[^\W\d]\w*(?:[.-][^\W\d]\w*)*)"
    r"|(?P<mixed>\w+)"
    r"|(?P<space>\s+)"
    r"|(?P<other>.)"
)
_PLACEHOLDER = {
    "quoted": r"(?:'[^']*'|\x22[^\x22]*\x22)",
    "path": r"[\w.+@%=~:/-]+",
    "hex": r"[0-9a-fA-Fx]+",
    "number": r"[-+.,:/\deE]+",
    "variable": r"[\w.-]+",
}


@dataclass(slots=True)
class Template:
    """Shapes with their words in the same places."""

    tokens: list[tuple[str, str]]
    """(kind, text); the kind ``variable`` where the words differ"""
    count: int = 0
    samples: list[str] = field(default_factory=list)

    @property
    def pattern(self) -> str:
        """The expression that matches the lines of this template and nothing longer."""
        return "^" + "".join(_expression(kind, text) for kind, text in self.tokens) + "$"

    @property
    def letters(self) -> int:
        """How many letters are literal: a measure of how much the pattern says."""
        return sum(len(text) for kind, text in self.tokens if kind == "word")


def _expression(kind: str, text: str) -> str:
    if kind in _PLACEHOLDER:
        return _PLACEHOLDER[kind]
    if kind == "space":
        return " +" if text.strip(" ") == "" else r"\s+"
    # Numbers inside of words (cuda0, fp16) are numbers too.
    return _SHAPE.sub(r"\\d+", re.escape(text).replace(r"\-", "-"))


class Miner:
    """Gathers lines and makes proposals of them."""

    def __init__(self) -> None:
        self._shapes: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        self.lines = 0

    def add(self, body: str) -> None:
        """One line that no rule knows."""
        self.lines += 1
        if len(body) > _LONGEST or not body.strip():
            return
        shape = _SHAPE.sub("0", body)
        if shape in self._counts:
            self._counts[shape] += 1
            samples = self._shapes[shape]
            if len(samples) < _MOST_SAMPLES and body != samples[-1]:
                samples.append(body)
            return
        if len(self._counts) >= _MOST_SHAPES:
            self._forget()
        self._counts[shape] = 1
        self._shapes[shape] = [body]

    def _forget(self) -> None:
        """Shapes that came once make room."""
        for shape in [shape for shape, count in self._counts.items() if count == 1]:
            del self._counts[shape], self._shapes[shape]
        if len(self._counts) >= _MOST_SHAPES:
            for shape in list(self._counts)[: _MOST_SHAPES // 2]:
                del self._counts[shape], self._shapes[shape]

    def templates(self) -> list[Template]:
        """The templates of what was gathered, the most frequent first."""
        buckets: dict[tuple[str, ...], list[Template]] = {}
        for shape, count in sorted(self._counts.items(), key=lambda pair: -pair[1]):
            samples = self._shapes[shape]
            tokens = tokens_of(samples[0])
            if tokens is None:
                continue
            bucket = buckets.setdefault(tuple(kind if kind in _KINDS else text for kind, text in tokens), [])
            for template in bucket[:_MOST_ALIKE]:
                if (merged := _merged(template.tokens, tokens)) is not None:
                    template.tokens = merged
                    break
            else:
                template = Template(tokens)
                bucket.append(template)
            template.count += count
            template.samples += samples[: max(1, _MOST_SAMPLES * 2 - len(template.samples))]
        found = [template for bucket in buckets.values() for template in bucket]
        return sorted(found, key=lambda template: -template.count)

    def proposals(self) -> Iterator[tuple[Rule, Template]]:
        """A filter rule for each template that says enough and was seen often enough."""
        for template in self.templates():
            if template.count >= _FEWEST and template.letters:
                yield rule_of(template), template


_KINDS = {*_PLACEHOLDER, "word", "mixed", "space"}


def tokens_of(line: str) -> list[tuple[str, str]] | None:
    """``line`` as tokens; None if they are too many."""
    tokens = []
    for found in _TOKEN.finditer(line):
        tokens.append((found.lastgroup or "other", found[0]))
        if len(tokens) > _MOST_TOKENS:
            return None
    return tokens


def _merged(template: list[tuple[str, str]], line: list[tuple[str, str]]) -> list[tuple[str, str]] | None:
    """The template with what differs in ``line`` made variable; None where too much does."""
    words = same = 0
    merged = []
    for (kind, text), (other_kind, other) in zip(template, line, strict=True):
        if kind in ("word", "mixed", "variable"):
            words += 1
            equal = _SHAPE.sub("0", text) == _SHAPE.sub("0", other) and kind == other_kind
            same += equal
            merged.append((kind, text) if equal else ("variable", text))
        elif kind == "space" and text != other:
            merged.append((kind, "  "))
        else:
            merged.append((kind, text))
    return merged if words and same >= _ALIKE * words and same else None


def rule_of(template: Template) -> Rule:
    """The template as a filter rule, with its samples as examples."""
    pattern = template.pattern
    name = hashlib.sha256(pattern.encode()).hexdigest()[:10]
    words = [text for kind, text in template.tokens if kind == "word"]
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
