"""The regular expressions of the package -> texts that make a backtracking matcher try the same signs again and again.

    python -m tests.support.expressions [WORD]

prints those whose time grows faster than the text, with the text that shows it.
"""

from __future__ import annotations

import ast
import importlib
import math
import pkgutil
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import regex

import diagnose
import service
from diagnose import cache

_parser: Any = __import__("re._parser", fromlist=["parse"])
_KINDS = re.Pattern, type(regex.compile("a"))
_MATCHING = {"match", "fullmatch"}
_SEARCHING = {"search", "finditer", "findall", "sub", "subn", "split"}
_OF_CATEGORY = {
    "CATEGORY_DIGIT": "3", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "w", "CATEGORY_NOT_SPACE": "w", "CATEGORY_NOT_WORD": "-",
    "CATEGORY_NOT_DIGIT": "w",
}  # fmt: skip
_ANY = "aA0 -./:_='\"[({,|\t#\xe9"
_OFTEN = "aA0 -."
_MOST = 6
_QUICK = "quick"
_ASKED_BY = Path(__file__).read_bytes()
_SIZES = 12, 18, 24, 30, 36, 42, 48, 192, 768, 3072, 12288
_SHOWN_S = 0.001
_LONG_S = 0.25
"""nobody asks for four times as much of what takes as long as this"""
_LINEAR = 2.0
"""how much longer than its length says a longer text may take: four times the text takes 4 times as long where it is linear,
and 16 times where it is not"""


@dataclass(frozen=True)
class Expression:
    """One expression, where it stands, and how it is asked."""

    place: str
    compiled: Any
    searched: bool

    def ask(self, text: str) -> None:
        body = text.encode() if isinstance(self.compiled.pattern, bytes) else text
        if self.searched:
            for _ in self.compiled.finditer(body):
                pass
        else:
            self.compiled.match(body)
            self.compiled.fullmatch(body)


@dataclass(frozen=True)
class Slow:
    """A text of which four times as much takes far more than four times as long."""

    expression: Expression
    text: str
    size: int
    seconds: float

    def __str__(self) -> str:
        asked = "search" if self.expression.searched else "match"
        return f"{self.expression.place} ({asked}): {self.seconds:.3f} s for {self.size:,} signs of {self.text!r}"


@lru_cache
def expressions() -> list[Expression]:
    """All that stand in a module, alone or within what stands there, and those that are written where they are used."""
    found: dict[tuple[Any, int], tuple[str, Any]] = {}
    ways: dict[tuple[Any, int], set[str]] = {}
    for module in _modules():
        standing = [(name, one) for name, value in vars(module).items() for one in _within(value, module.__name__, 3)]
        asked = _asked(Path(module.__file__)) if standing else {}
        for name, compiled in standing:
            key = compiled.pattern, compiled.flags
            found.setdefault(key, (f"{module.__name__}.{name}", compiled))
            ways.setdefault(key, set()).update(asked.get(name, ()))
        for way, pattern in _within_functions(Path(module.__file__)):
            compiled = re.compile(pattern)
            found.setdefault((pattern, compiled.flags), (f"{module.__name__}: {pattern!r}", compiled))
            ways.setdefault((pattern, compiled.flags), set()).add(way)
    made = [
        Expression(place, compiled, not ways[key] or bool(ways[key] & _SEARCHING)) for key, (place, compiled) in found.items()
    ]
    return sorted(made, key=lambda one: one.place)


def _modules() -> Iterator[Any]:
    """Of both packages."""
    for package in (diagnose, service):
        for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not each.name.endswith(("__main__", ".migrations.env")):
                with suppress(ImportError):  # an extra that is not installed
                    module = importlib.import_module(each.name)
                    if (module.__file__ or "").endswith(".py"):
                        yield module


def _within(value: Any, module: str, depth: int) -> Iterator[Any]:
    if isinstance(value, _KINDS):
        yield value
    elif depth and isinstance(value, tuple | list | set | frozenset):
        for one in value:
            yield from _within(one, module, depth - 1)
    elif depth and isinstance(value, dict):
        for one in value.values():
            yield from _within(one, module, depth - 1)
    elif depth and getattr(type(value), "__module__", "").split(".")[0] in ("diagnose", "service"):
        fields = getattr(type(value), "__slots__", ()) or getattr(value, "__dict__", {})
        for field in [fields] if isinstance(fields, str) else list(fields):
            yield from _within(getattr(value, field, None), module, depth - 1)


@lru_cache(1)
def _nodes_of(source: Path) -> list[ast.AST]:
    """Of one module, which is asked about twice."""
    return list(ast.walk(ast.parse(source.read_text(encoding="utf-8"))))


def _asked(source: Path) -> dict[str, set[str]]:
    """Name of an expression -> the methods that its module calls on it."""
    asked: dict[str, set[str]] = {}
    for node in _nodes_of(source):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            asked.setdefault(node.value.id, set()).add(node.attr)
    return {name: ways & (_MATCHING | _SEARCHING) for name, ways in asked.items()}


def _within_functions(source: Path) -> Iterator[tuple[str, Any]]:
    """What is written where it is used: ``re.sub("a+", ...)``."""
    if "re." not in source.read_text(encoding="utf-8"):
        return
    for node in _nodes_of(source):
        match node:
            case ast.Call(func=ast.Attribute(ast.Name("re"), way), args=[ast.Constant(str() | bytes() as pattern), *_]):
                if way != "compile":
                    yield way, pattern


def hostile(expression: Expression) -> Iterator[Callable[[int], str]]:
    """Texts of a given length: what leads to a repeat, what it repeats, and what it cannot end with."""
    pattern = expression.compiled.pattern
    source = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    parts: list[tuple[str, str]] = [("", one) for one in _ANY if one in _OFTEN or one in source]
    parts += [("", f"{one} ") for one in _OFTEN if one != " "]
    with suppress(re.error, RecursionError, KeyError):
        tree = _parser.parse(source, expression.compiled.flags & (re.IGNORECASE | re.DOTALL | re.MULTILINE | re.VERBOSE))
        whole = _sequence(tree)[:2]
        parts += [("", text) for text in whole if text]
        parts += [("", text[:cut]) for text in whole for cut in (1, 2, 3, 5, 8, 13, 21) if cut < len(text)]
        parts += list(_pumps(tree, [""]))
    for head, pump in dict.fromkeys(parts):
        for tail in ("\x01", "!a"):
            yield lambda size, head=head, pump=pump, tail=tail: head + pump * (max(1, size - len(head)) // len(pump)) + tail


def _pumps(nodes: Any, before: list[str]) -> Iterator[tuple[str, str]]:
    """What leads to each repeat without a near end -> once what it repeats."""
    for kind, value in nodes:
        name = str(kind)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            _least, most, inner = value
            for head in before[:2]:
                yield from _pumps(inner, [head])
            if int(most) > 20:
                for head in before[:2]:
                    yield from ((head, text) for text in _sequence(inner)[:_MOST] if text)
        elif name == "SUBPATTERN":
            yield from _pumps(value[3], before)
        elif name == "ATOMIC_GROUP":
            yield from _pumps(value, before)
        elif name == "BRANCH":
            for branch in value[1]:
                yield from _pumps(branch, before)
        elif name in ("ASSERT", "ASSERT_NOT"):
            yield from _pumps(value[1], before)
        said = _node(name, value)[:2] or [""]
        before = [head + text for head in before[:2] for text in said][:4]


def _sequence(nodes: Any) -> list[str]:
    texts = [""]
    for kind, value in nodes:
        said = _node(str(kind), value) or [""]
        texts = [text + said[min(row, len(said) - 1)] for row in range(min(_MOST, max(len(said), len(texts))))
                 for text in [texts[min(row, len(texts) - 1)]]]  # fmt: skip
    return list(dict.fromkeys(texts))


def _node(kind: str, value: Any) -> list[str]:
    match kind:
        case "LITERAL":
            return [chr(value)]
        case "NOT_LITERAL":
            return [sign for sign in _ANY if sign != chr(value)][:_MOST]
        case "ANY":
            return list("a -")
        case "BRANCH":
            return [text for branch in value[1] for text in _sequence(branch)[:2]]
        case "SUBPATTERN":
            return _sequence(value[3])
        case "ATOMIC_GROUP":
            return _sequence(value)
        case "IN":
            return _of_set(value)
        case "CATEGORY":
            return [_OF_CATEGORY[str(value)]]
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, _most, inner = value
            return [text * max(least, 1) for text in _sequence(inner)]
    return [""]


def _of_set(items: Any) -> list[str]:
    if str(items[0][0]) == "NEGATE":
        excluded = {text for item in items[1:] for text in _of_item(item)}
        return [sign for sign in _ANY if sign not in excluded][:_MOST]
    return list(dict.fromkeys(text for item in items for text in _of_item(item)))[:_MOST]


def _of_item(item: Any) -> list[str]:
    kind, value = str(item[0]), item[1]
    if kind == "RANGE":
        return [chr(value[0]), chr(value[1])]
    if kind == "CATEGORY":
        return [_OF_CATEGORY[str(value)]]
    return [chr(value)] if kind == "LITERAL" else []


def slow(expression: Expression) -> Slow | None:
    """The first text whose time grows faster than its length.

    What has none is remembered, as ``./test`` keeps the cache: to ask all of them takes half a minute.
    """
    compiled = expression.compiled
    key = cache.key_of(_ASKED_BY, sys.version, repr((type(compiled), compiled.pattern, compiled.flags, expression.searched)))
    if cache.fetch(_QUICK, key) is not None:
        return None
    for made in hostile(expression):
        if (size := _growing(expression, made)) is not None:
            return Slow(expression, made(24), size, _seconds(expression, made(size)))
    cache.store(_QUICK, key, b"")
    return None


def _growing(expression: Expression, made: Callable[[int], str]) -> int | None:
    """A text that costs nothing is not asked at greater lengths: where each sign is tried from each other one, it costs.

    What grows goes on growing. So the next length is asked too, unless this one takes long already: on a machine that stops
    now and then, a time that is made longer is only a cause to look again.
    """
    took = _seconds(expression, made(_SIZES[0]))
    for before, size, after in zip(_SIZES, _SIZES[1:], (*_SIZES[2:], 4 * _SIZES[-1]), strict=False):
        costs = size == _SIZES[-2] or took > _SHOWN_S
        if size == _SIZES[-1] and not costs:
            break  # most texts end here: what the longest would cost is not asked
        took = _seconds(expression, made(size))
        if not costs or not _grows(expression, made(before), made(size), _LINEAR * size / before, took):
            continue
        if _seconds(expression, made(size)) > _LONG_S or _grows(expression, made(size), made(after), _LINEAR * after / size):
            return size
    return None


def _grows(expression: Expression, small: str, large: str, most: float, took: float | None = None) -> bool:
    """Whether the longer text takes more than so many times as long, each at its quickest; what says so is asked again.

    ``took``: the longer text's time, where it is known.
    """
    long = _seconds(expression, large) if took is None else took
    short = math.inf
    for _ in range(3):
        if long <= _SHOWN_S:
            return False
        short = min(short, *(_seconds(expression, small) for _ in range(3)))
        if long > _LONG_S or long <= most * short:
            return long > most * short
        long = min(long, *(_seconds(expression, large) for _ in range(3)))
    return long > most * short


def _seconds(expression: Expression, text: str) -> float:
    """In processor time of this thread: neither other programs nor other threads count."""
    began = time.thread_time()
    expression.ask(text)
    return time.thread_time() - began


def main() -> int:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    found = 0
    for expression in expressions():
        if word in expression.place and (told := slow(expression)):
            found += 1
            print(told, flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
