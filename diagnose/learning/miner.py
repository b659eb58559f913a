"""Lines that no rule knows -> filter rules, without a model: template mining.

Lines are gathered by shape, in bounded memory. Shapes of one group (``compression/templates.py``) with the same pieces become
one template. Its words are literal; its numbers, paths and quoted texts are typed placeholders; and it is anchored at both
ends. A word that differs becomes an alternation of what was seen, and anything only if many rare values are evidence for that.
The results are proposals: ``proposals.judged`` decides whether one may ever drop a line.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from diagnose.compression.templates import Templates
from diagnose.knowledge.rules import Example, Rule
from diagnose.verification.numbers import VALUE, measured, named

_MOST_SHAPES = 20_000
_MOST_SAMPLES = 8
_LONGEST = 4096
_MOST_TOKENS = 1200
_RARE = 6
"""a word that came more often is one of a few, no name"""
_NAMES = 5
"""rare words in one place that let any word stand there"""
_NAMES_ALONE = 10
"""the same where the template has hardly another word"""
_MOST_ALTERNATIVES = 20
"""words in one place that are too many for an alternation, however often they come"""
_FEWEST = 3
"""lines that a template must stand for, with those that were held back"""
_TIMES = 2
"""times that each word of an alternation must have been seen, on average"""
_REPEATS = 3
"""times that something must come in a row to be taken for a list"""
_LONGEST_ITEM = 24
"""tokens of one item of a list"""
_LEFT = 24
"""letters before the name of a number that are looked for with it"""
_RAGGED = 0.6
"""share of a line that a list must be, if the line is a piece cut out of a longer one"""

_SHAPE = re.compile(r"\d+")
_TOKEN = re.compile(
    r"(?P<single>(?<!\w)'[^'\n]{0,200}'(?!\w))"
    r"|(?P<double>(?<!\w)\"[^\"\n]{0,200}\"(?!\w))"
    r"|(?P<path>(?:[A-Za-z][\w+.-]{0,30}:/|\.{0,2})/[\w.+@%=~:/-]+)"
    r"|(?P<hex>0x[0-9a-fA-F]+|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b)"
    r"|(?P<number>[-+]?\d[\d.,:/-]*(?:[eE][-+]?\d+)?(?![A-Za-z_]))"
    r"|(?P<word>[^\W\d]\w*(?:[.-][^\W\d]\w*)*)"
    r"|(?P<mixed>\w+)"
    r"|(?P<space>\s+)"
    r"|(?P<bar>[\u2588-\u258f]+ *)"
    r"|(?P<fill>(?P<filling>[^\w\s])(?P=filling){2,})"
    r"|(?P<other>.)"
)
_PLACEHOLDER = {
    "single": "'[^']*'",
    "double": r"\x22[^\x22]*\x22",
    "path": r"[\w.+@%=~:/-]+",
    "hex": r"[0-9a-fA-Fx]+",
    "number": r"[-+.,:/\deE]+",
    "variable": r"[\w.-]+",
    "bar": r"(?:\xe2\x96[\x88-\x8f])+ *",  # of a progress bar, in UTF-8
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
        if self.kind == "fill":
            return self.text[:3]  # dots up to a column, however many
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
    words: dict[int, Counter[str]] = field(default_factory=dict)
    """by the place of a variable: what stood there, with digits as one, and how often"""

    @property
    def pattern(self) -> str:
        """The expression that matches the lines of this template and nothing longer."""
        return "^" + "".join(self._expression(place, token) for place, token in enumerate(self.tokens)) + "$"

    def _expression(self, place: int, token: Token) -> str:
        words = self.words.get(place)
        if words is None or self._any(words):
            return _expression(token)
        return "(?:" + "|".join(sorted(_literal(word) for word in words)) + ")"

    def _any(self, words: Counter[str]) -> bool:
        """Whether any word may stand where these stood: a status is one of a few words, a name is one of many."""
        fixed = sum(token.kind == "word" for token in self.tokens)
        rare = sum(count <= _RARE for count in words.values())
        return rare >= (_NAMES if fixed > 1 else _NAMES_ALONE) or len(words) >= _MOST_ALTERNATIVES

    @property
    def settled(self) -> bool:
        """Whether its words come again: an alternation of what was seen once each matches nothing that comes."""
        lines = self.count + len(self.held)
        return all(self._any(words) or lines >= _TIMES * len(words) for words in self.words.values())

    def take(self, tokens: list[Token], lines: int) -> None:
        """Take a shape of the same pieces: words that differ become variable."""
        for place, (ours, other) in enumerate(zip(self.tokens, tokens, strict=True)):
            if ours.kind in ("word", "mixed", "variable"):
                ours_text, text = _SHAPE.sub("0", ours.text), _SHAPE.sub("0", other.text)
                words = self.words.get(place)
                if words is None and ours_text != text:
                    words = self.words[place] = Counter({ours_text: self.count})
                    self.tokens[place] = Token("variable", ours.text)
                if words is not None:
                    words[text] += lines
            elif ours.kind == "space" and ours.text != other.text:
                self.tokens[place] = Token("space", "  ")
            elif ours.kind == "list":
                item = tuple(_common(a, b) for a, b in zip(ours.item, other.item, strict=True))
                self.tokens[place] = Token("list", ours.text, item)
        self.count += lines

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
    if token.kind == "fill":
        return f"{_literal(token.text[0])}{{3,}}"
    return _literal(token.text)


def _literal(text: str) -> str:
    # Numbers inside of words (cuda0, fp16) are numbers too.
    return _SHAPE.sub(r"\\d+", re.escape(text).replace(r"\-", "-"))


@dataclass(slots=True)
class _Shape:
    taken: int = 0
    samples: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    held_next: bool = False

    @property
    def count(self) -> int:
        return self.taken + len(self.held)

    @property
    def all(self) -> list[str]:
        return self.samples or self.held


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
        shapes = [(shape, tokens) for shape in self._shapes.values() if (tokens := tokens_of(shape.all[0])) is not None]
        shapes.sort(key=lambda pair: (-pair[0].taken, pair[0].all[0]))
        groups = Templates()
        keys = [groups.add(shape.all[0].encode("utf-8", "replace"), shape.count) for shape, _ in shapes]
        united = groups.groups()
        found: dict[tuple[Any, ...], Template] = {}
        unseen = []
        for key, (shape, tokens) in zip(keys, shapes, strict=True):
            group = united.get(key, key)  # what unites words alone says nothing that a rule could say
            place = group if group.lower() != group.upper() else key, *(token.form for token in tokens), *_items(tokens)
            template = found.get(place)
            if not shape.samples:
                unseen.append((template, shape.held))
                continue
            if template is None:
                template = found[place] = Template(tokens, shape.taken)
            else:
                template.take(tokens, shape.taken)
            template.samples += shape.samples[: max(1, _MOST_SAMPLES * 2 - len(template.samples))]
            template.held += shape.held[: max(1, _MOST_SAMPLES * 2 - len(template.held))]
        for template, held in unseen:  # shapes with lines sort before those without
            if template is not None and len(template.held) < _MOST_SAMPLES * 2 and re.match(template.pattern, held[0]):
                template.held += held
        return sorted((template for template in found.values() if template.letters), key=lambda template: -template.count)

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
            if template.count + len(template.held) >= _FEWEST and template.letters and template.settled:
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


def _items(tokens: list[Token]) -> Iterator[str]:
    """The words in the items of lists: those of one template have the same."""
    return (token.text for listed in tokens for token in listed.item if token.kind in ("word", "mixed"))


def _common(ours: Token, other: Token) -> Token:
    return Token(ours.kind, _begin([ours.text, other.text])) if ours.kind in ("single", "double") else ours


def rule_of(template: Template) -> Rule:
    """The template as a filter rule, with its samples as examples."""
    pattern = template.pattern
    name = hashlib.sha256(pattern.encode()).hexdigest()[:10]
    words = [token.text for token in template.tokens if token.kind == "word"]
    metrics = captures(template.samples[0])
    return Rule(
        id=f"mined-{name}",
        family="filters",
        pattern=pattern,
        title=" ".join(words)[:60],
        kind="metric" if metrics else "debug",
        framework="learned",
        metrics=metrics,
        matches=tuple(Example(sample) for sample in template.samples[:3]),
        misses=(Example(f"{template.samples[0]} and then it failed"),),
    )


def captures(line: str) -> tuple[tuple[str, str], ...]:
    """How to read the numbers of a line that have names, if it has one whose leap is news: what a filter drops detectors never
    see.
    """
    found = list(named(line))
    if not any(one.quantity in measured() for one in found):
        return ()
    made: dict[str, str] = {}
    before = 0
    for one in found:
        begin = max(0, one.begin - 1)
        if re.search(_label(line[begin : one.start]), line).start() < begin:  # type: ignore[union-attr] # it stands there
            begin = max(before, one.begin - _LEFT)  # the name stands twice: what is before this one tells them apart
        made.setdefault(one.quantity, f"{_label(line[begin : one.start])}({VALUE})")
        before = one.end
    return tuple(made.items())


def _label(text: str) -> str:
    return re.sub(r" +", " +", _SHAPE.sub(r"\\d+", re.escape(text)).replace(r"\ ", " "))


def mine(lines: Iterable[str]) -> list[tuple[Rule, Template]]:
    """The proposals from ``lines``."""
    miner = Miner()
    for line in lines:
        miner.add(line)
    return list(miner.proposals())
