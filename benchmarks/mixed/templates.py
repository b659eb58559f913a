"""The texts in templates/*.txt: one source for the log's lines and for the patterns of the rules that know them.

A template is text with ``{fields}``. With random values for the fields it gives a line; with an expression for each, a pattern.
Nothing depends on the clock or on hashing: the same seed gives the same lines everywhere.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "templates"
STAMPS = {
    "ts": r"\d+-\d+-\d+ \d+:\d+:\d+,\d+ ",
    "bts": r"\[\d+-\d+-\d+ \d+:\d+:\d+,\d+\] ",
    "slashts": r"\d+/\d+/\d+ \d+:\d+:\d+ ",
    "rankp": r"\[rank\d+\]:",
    "ray": r"\(\w+ pid=\d+, ip=[\d.]+\) ",
}
"""fields before the body; docs/rules.md says what else the product takes off a line"""

_FLOAT = r"\d+\.\d+"
_DAY = r"\d+-\d+-\d+"
PATTERNS = {
    **STAMPS,
    **dict.fromkeys(("d", "d2", "n", "N", "gpu", "pid"), r"\d+"),
    **dict.fromkeys(("p3", "p5", "p8", "p12", "pct"), r" *\d+"),
    **dict.fromkeys(("f1", "f2", "f3", "f4", "f6"), _FLOAT),
    "E": rf"{_FLOAT}E[-+]\d+",
    "ee": rf"{_FLOAT}e-\d+",
    "full": rf"{_FLOAT}(?:e-\d+)?",
    "date": _DAY,
    "sysdate": r"\d+/\w+/\d+:\d+:\d+:\d+ \+\d+",
    "sys": r"\w+ +\d+ \d+:\d+:\d+",
    "hms": r"\d+:\d+:\d+",
    "ms": r"\d+:\d+",
    "hex": "[0-9a-f]+",
    "uuid": "[0-9a-f-]+",
    "pci": "[0-9a-fA-F:.]+",
    "host": r"[\w.-]+",
    "ip": r"[\d.]+",
    "path": r"[\w./-]+",
    "word": r"\w+",
    "words": r"[\w ]+",
    "dots": r"\.+",
    "bar": r"[^|]*",
}
Fill = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Field:
    name: str


@dataclass(frozen=True, slots=True)
class Choice:
    ways: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A number that matters: it is in the pattern as it is."""

    digits: str


Node = str | Field | Choice | Number


@dataclass(frozen=True, slots=True)
class Template:
    section: str
    weight: int
    burst: int
    id: str
    about: tuple[str, ...]
    """the other columns of the file: kind (filters), or layer, reason and severity (failures)"""
    nodes: tuple[Node, ...]
    key: tuple[int, int]
    """the nodes that the fragment style keeps"""

    @property
    def stamp(self) -> str | None:
        first = self.nodes[0]
        return first.name if isinstance(first, Field) and first.name in STAMPS else None

    @property
    def body(self) -> tuple[Node, ...]:
        return self.nodes[1:] if self.stamp else self.nodes

    @property
    def fragment(self) -> str:
        return pattern(unindented(self.nodes[self.key[0] : self.key[1]])[1])

    @property
    def full(self) -> str:
        """The whole body. ``raw`` gets the lines with their prefixes: see ``prefixed``."""
        return f"^{self._flush}$"

    @property
    def prefixed(self) -> str:
        """The whole line of the log, with prefix and stamp; of a progress bar, the last segment."""
        drawn = r"(?:.*\r)?" if self.about[0] == "progress" else ""
        stamp = f"(?:{STAMPS[self.stamp]})?" if self.stamp else ""
        return rf"^{drawn}(?:\[(?:rank|default)\d+\]: ?| *\d+: )?{stamp}{self._flush}\r?$"

    @property
    def _flush(self) -> str:
        """The body's pattern, with any indent: a prefix may take the blanks after it."""
        indent, rest = unindented(self.body)
        return (" *" if indent else "") + pattern(rest)


def unindented(nodes: tuple[Node, ...]) -> tuple[bool, tuple[Node, ...]]:
    """(whether ``nodes`` begin with blanks, ``nodes`` without them)."""
    first = nodes[0]
    if not isinstance(first, str) or not first.startswith(" "):
        return False, nodes
    rest = first.lstrip(" ")
    return True, ((rest, *nodes[1:]) if rest else nodes[1:])


def read(name: str) -> list[Template]:
    """The templates of templates/``name``.txt, in order."""
    found, section = [], ""
    for line in (FOLDER / f"{name}.txt").read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line and not line.startswith("#"):
            head, _, text = line.partition(" : ")
            weight, rule_id, *about = head.split()
            times, _, burst = weight.partition("x")
            nodes, key = parse(text)
            found.append(Template(section, int(times), int(burst or 1), rule_id, tuple(about), nodes, key))
    return found


def unknown_texts() -> list[tuple[int, tuple[Node, ...]]]:
    """(weight, nodes) of the lines that no rule knows."""
    lines = (FOLDER / "unknown.txt").read_text("utf-8").splitlines()
    pairs = (line.split(" ", 1) for line in lines[1:] if line)
    return [(int(weight), parse(text)[0]) for weight, text in pairs]


_PIECE = re.compile(r"\{\{|\}\}|[{}|«»]|[^{}|«»]+")


def parse(text: str) -> tuple[tuple[Node, ...], tuple[int, int]]:
    """(the nodes of a template's ``text``, which of them are its key)."""
    nodes: list[Node] = []
    key = [0, 0]
    position = 0
    while position < len(text):
        if text[position] in "«»":
            key[text[position] == "»"] = len(nodes)
            position += 1
            continue
        node, position = _node(text, position, inside=False)
        nodes.append(node)
    return tuple(nodes), (key[0], key[1] or len(nodes))


def _node(text: str, position: int, *, inside: bool) -> tuple[Node, int]:
    if text.startswith("{{", position) or (not inside and text.startswith("}}", position)):
        return text[position], position + 2
    if text[position] != "{":
        end = position + 1
        while end < len(text) and text[end] not in "{}«»" and not (inside and text[end] == "|"):
            end += 1
        return text[position:end], end
    position += 1
    ways: list[tuple[Node, ...]] = []
    way: list[Node] = []
    while text[position] != "}":
        if text[position] == "|":
            ways.append(tuple(way))
            way = []
            position += 1
            continue
        node, position = _node(text, position, inside=True)
        way.append(node)
    ways.append(tuple(way))
    position += 1
    only = ways[0][0] if len(ways) == 1 and len(ways[0]) == 1 else None
    if isinstance(only, str):
        if only.startswith("="):
            return Number(only[1:]), position
        if only not in PATTERNS:
            raise ValueError(f"no field {{{only}}}: {text}")
        return Field(only), position
    return Choice(tuple(ways)), position


def pattern(nodes: tuple[Node, ...]) -> str:
    """A regular expression for ``nodes``. It ignores numbers, unless a number matters."""
    return "".join(_pattern(node) for node in nodes)


def _pattern(node: Node) -> str:
    if isinstance(node, Field):
        return PATTERNS[node.name]
    if isinstance(node, Number):
        return node.digits
    if isinstance(node, Choice):
        ways = list(dict.fromkeys(pattern(way) for way in node.ways))
        return "(?:" + "|".join(ways) + ")" if len(ways) > 1 else ways[0]
    return re.sub(r"\d+", r"\\d+", re.sub(r"([\\.^$*+?{}\[\]()|])", r"\\\1", node))


class Filler:
    """Fills templates at random from one seed."""

    def __init__(self, seed: int | str) -> None:
        chance = random.Random(seed)
        self.random = chance.random
        self.bits = chance.getrandbits
        words = random.Random(7)  # the vocabulary is the same for all seeds
        letters = [c + v for c in "bcdfghklmnprstvz" for v in "aeiou"]
        spell = ["".join(letters[int(words.random() * len(letters))] for _ in range(2 + index % 3)) for index in range(3000)]
        self.vocabulary = spell
        self.names = [word if index % 2 else f"{word}_{spell[-index]}" for index, word in enumerate(spell[:300])]
        self.hot = self.names[:24]
        self.bases = [f"/fs{index % 9}/{spell[index]}/{spell[index * 7]}" for index in range(1, 9)]
        self.files = [f"{spell[index]}_rank" for index in range(60, 65)]
        self.hosts = [
            way.format(index)
            for index in range(1, 33)
            for way in ("gpu-{:03d}", "node{}", "r7i4n{}", "dgx-a100-{:02d}.cluster", "jean-zay-iam{}")
        ]
        self.months = ("Jan", "Mar", "Jun", "Sep", "Nov")
        self.cells = " ▏▎▍▌▋▊▉"
        self.fills: dict[str, Fill] = {name: getattr(self, f"_{name}", None) or self._plain(name) for name in PATTERNS}

    def line(self, nodes: tuple[Node, ...]) -> Fill:
        """A function that fills ``nodes`` with new values at each call."""
        text, fills = "", []
        for node in nodes:
            if isinstance(node, str):
                text += node.replace("%", "%%")
            elif isinstance(node, Number):
                text += node.digits
            elif isinstance(node, Field):
                text += "%s"
                fills.append(self.fills[node.name])
            else:
                text += "%s"
                fills.append(self._choice(tuple(self.line(way) for way in node.ways)))
        return lambda: text % tuple([fill() for fill in fills])

    def pick(self, pool: list[str]) -> str:
        return pool[int(self.random() * len(pool))]

    def below(self, limit: int) -> int:
        return int(self.random() * limit)

    def _choice(self, ways: tuple[Fill, ...]) -> Fill:
        return lambda: ways[int(self.random() * len(ways))]()

    def _plain(self, name: str) -> Fill:
        """Fields that are one number in one format."""
        chance = self.random
        whole = {"d": 128, "n": 500_000, "N": 9_000_000_000, "gpu": 8, "pid": 4_000_000}
        if name in whole:
            limit = whole[name]
            return lambda: str(int(chance() ** 2 * limit))
        formats: dict[str, tuple[str, float]] = {
            "d2": ("%02d", 32), "p3": ("%3d", 11), "p5": ("%5d", 9000), "p8": ("%8d", 5e5), "p12": ("%12d", 4e8),
            "pct": ("%3d", 101), "f1": ("%.1f", 900), "f2": ("%.2f", 400), "f3": ("%.3f", 12), "f4": ("%.4f", 9),
            "f6": ("%.6f", 3), "E": ("%.6E", 11), "ee": ("%.3e", 1e-4), "hex": ("%012x", 1 << 48),
        }  # fmt: skip
        form, scale = formats[name]
        if name == "hex":
            return lambda: form % int(chance() * scale)
        return lambda: form % (chance() * scale)

    def _full(self) -> str:
        return repr(self.random() * (8.0 if self.bits(2) else 9e-5)) if self.random() > 1e-4 else "0.0"

    def _hms(self) -> str:
        second = self.below(86400)
        return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"

    def _ms(self) -> str:
        second = self.below(3600)
        return f"{second // 60:02d}:{second % 60:02d}"

    def _date(self) -> str:
        return f"2026-{1 + self.below(12):02d}-{1 + self.below(28):02d}"

    def _ts(self) -> str:
        return f"{self._date()} {self._hms()},{self.below(1000):03d} "

    def _bts(self) -> str:
        return f"[{self._date()} {self._hms()},{self.below(1000):03d}] "

    def _slashts(self) -> str:
        return f"{self._date()} {self._hms()} ".replace("-", "/")

    def _rankp(self) -> str:
        return f"[rank{self.below(64)}]:"

    def _ray(self) -> str:
        return f"(RayTrainWorker pid={self.below(1 << 20)}, ip={self._ip()}) "

    def _sys(self) -> str:
        return f"{self.months[self.below(5)]} {1 + self.below(28):2d} {self._hms()}"

    def _sysdate(self) -> str:
        return f"{1 + self.below(28):02d}/{self.months[self.below(5)]}/2026:{self._hms()} +0000"

    def _uuid(self) -> str:
        text = f"{self.bits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _pci(self) -> str:
        return f"0000:{self.below(256):02x}:00"

    def _host(self) -> str:
        return self.pick(self.hosts)

    def _ip(self) -> str:
        return f"10.{self.below(8)}.{self.below(256)}.{self.below(256)}"

    def _path(self) -> str:
        tail = f"/{self.bits(40):x}" if self.random() < 0.03 else ""
        return f"{self.pick(self.bases)}/global_step{self.below(200_000)}{tail}/{self.pick(self.files)}_{self.below(64)}"

    def _word(self) -> str:
        return self.pick(self.hot if self.random() < 0.9 else self.names)

    def _words(self) -> str:
        return " ".join([self.pick(self.vocabulary) for _ in range(2 + self.bits(2))])

    def _dots(self) -> str:
        return "." * (6 + 5 * self.bits(3))

    def _bar(self) -> str:
        width = (10, 10, 24)[self.below(3)]
        eighths = self.below(width * 8)
        full = eighths // 8
        return ("█" * full + self.cells[eighths % 8]).ljust(width)


@functools.cache
def all_templates() -> tuple[Template, ...]:
    """Failures, then filters: as rules, in order of precedence."""
    return tuple(read("failures") + read("filters"))


def failures() -> Iterator[Template]:
    return (template for template in all_templates() if len(template.about) == 3)


def filters() -> Iterator[Template]:
    return (template for template in all_templates() if len(template.about) == 1)
