"""The names of a training's numbers, from ``rules/metrics.yaml``: what programs call each of them -> which series it is."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from diagnose.errors import RuleError
from diagnose.knowledge import shipped
from diagnose.knowledge.parsed import parsed

_PARTS: Final = ("filling", "around", "evaluation", "training", "about", "kinds", "series", "units")
_PER: Final = re.compile(r"(?<!\s)\s*+/\s*(s|sec|secs|second)\b")
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NO_WORD: Final = re.compile(r"[^a-z0-9]+")
_LETTERS: Final = re.compile(r"[a-z]+")
_MOST_WORDS: Final = 8
WITH_WORDS: Final = 100
OF_A_KIND: Final = 1000
"""what is added to a rank: for words around a name, and for what is not the number itself but one of its kind"""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One of the numbers that a series is kept of."""

    name: str
    better: str | None = None
    """whether a good course has ``more`` of it or ``less``; None: neither, or it is not known"""
    evaluation: str | None = None
    """the series of the same number in an evaluation"""
    open: bool = False
    unit: str | None = None


class Meaning(NamedTuple):
    """What a name stands for."""

    quantity: str
    rank: int
    """the less, the more it is the number itself"""
    evaluation: bool | None
    """whether the name says that it is of an evaluation, or of training; None: it does not say"""


@dataclass(frozen=True, slots=True)
class Metrics:
    """All that is known about names."""

    quantities: Mapping[str, Quantity]
    names: Mapping[str, tuple[str, int]]
    """name -> quantity, and where the name stands among its names: the most usual one comes first"""
    words: frozenset[str]
    """all that names are made of"""
    keywords: frozenset[str]
    """of the letters of each name one run is among these: where none of them stands there is no name"""
    units: Mapping[str, Mapping[str, float]]
    filling: frozenset[str]
    around: frozenset[str]
    evaluation: frozenset[str]
    training: frozenset[str]
    about: frozenset[str]
    evaluations: frozenset[str]
    """the quantities that are of an evaluation"""
    one_of_several: re.Pattern[str]
    """finds \x01, which is a number, behind a name of which there are several"""

    def meaning(self, words: tuple[str, ...]) -> Meaning | None:
        """What a name stands for, as ``words_of`` has it."""
        if not 0 < len(words) <= _MOST_WORDS:
            return None
        said = next((word in self.evaluation for word in words if word in self.evaluation or word in self.training), None)
        bare = words
        for words_less, bare in enumerate(self._bared(words)):
            if (known := self.names.get("_".join(bare))) is not None:
                return Meaning(known[0], known[1] + (WITH_WORDS if words_less else 0), said)
        return self._one_of_a_kind(words, said) or self._one_of_a_kind(bare, said)

    def _bared(self, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """The words, then with ever fewer words around them."""
        yield words
        beside = self.filling | self.around | self.evaluation
        while len(words) > 1 and words[0] in beside:
            words = words[1:]
            yield words
        while len(words) > 1 and words[-1] in beside:
            words = words[:-1]
            yield words

    def _one_of_a_kind(self, words: tuple[str, ...], said: bool | None) -> Meaning | None:
        """Such as ``loss_classifier`` and ``box_loss``."""
        if self.about.isdisjoint(words):
            for size in (1, 2):
                for end in ("_".join(words[-size:]), "_".join(words[:size])):
                    known = self.names.get(end)
                    if len(words) > size and known is not None and self.quantities[known[0]].open:
                        return Meaning(known[0], OF_A_KIND + known[1], said)
        return None


def words_of(name: str) -> tuple[str, ...]:
    """A name's words: ``train/lossAvg`` is train, loss, avg; ``tokens/sec`` is tokens, per, sec."""
    plain = _CAMEL.sub("_", _PER.sub(r"_per_\1", name)).lower()
    return tuple(word for word in _NO_WORD.split(plain) if word)


@functools.cache
def shipped_metrics() -> Metrics:
    """The names that ship with the program."""
    return read(shipped.folder("rules") / "metrics.yaml")


def read(path: Path) -> Metrics:
    """The names in the file ``path``."""
    return _metrics(parsed("metrics", path), path)


def _metrics(data: dict[str, Any], path: Path) -> Metrics:
    if missing := [part for part in _PARTS if part not in data]:
        raise RuleError(f"the names of metrics lack {missing[0]!r}", where=str(path), remedy=f"it needs {', '.join(_PARTS)}")
    names: dict[str, tuple[str, int]] = {}
    quantities = {}
    for quantity, said in data["series"].items():
        about = {part: said[part] for part in ("better", "evaluation", "open", "unit") if part in said}
        quantities[quantity] = Quantity(quantity, **about)
        for rank, name in enumerate(said.get("names", ())):
            if names.setdefault(name, (quantity, rank)) != (quantity, rank):
                raise RuleError(
                    f"{name!r} is a name of {names[name][0]} and again of {quantity}",
                    where=str(path),
                    remedy="leave one of them out",
                )
    units = {unit: {name: float(scale) for name, scale in said.items()} for unit, said in data["units"].items()}
    words = {part: frozenset(data[part]) for part in ("filling", "around", "evaluation", "training", "about")}
    evaluations = frozenset(one.evaluation for one in quantities.values() if one.evaluation)
    several = re.compile(rf"(?i)(?<![A-Za-z])(?:{'|'.join(data['kinds']) or '(?!)'})[ _:=#\[]{{0,2}}\x01")
    parts = frozenset(part for name in names for part in name.split("_"))
    beside = words["filling"] | words["around"] | words["about"]
    return Metrics(
        quantities, names, parts, _keywords(names, beside), units, **words, evaluations=evaluations, one_of_several=several
    )


def _keywords(names: Iterable[str], beside: frozenset[str]) -> frozenset[str]:
    """A few words such that each name has one of them: rather none that stand ``beside`` names, and rather long ones."""
    runs = sorted((_LETTERS.findall(name) for name in names), key=len)
    keywords = {"time"}  # of so many milliseconds
    for words in runs:
        if keywords.isdisjoint(words):
            keywords.add(max(words, key=lambda word: (word == "per", word not in beside, len(word))))
    return frozenset(keywords)
