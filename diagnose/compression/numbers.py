"""The numbers of lines that no rule knows: the masked text of a line -> which of its numbers is which quantity.

This is asked once for each template; the native core then reads every line of it (``_readings.h``). A number is read when a
known name (``rules/metrics.yaml``) stands before it, in whatever dress: ``loss: 1.2``, ``loss=1.2``, ``{"loss": 1.2}``,
``| loss | 1.2 |``, ``loss is tensor(1.2)``; when a known unit stands behind it; or when it is in a column under a known name.
"""

from __future__ import annotations

import functools
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from diagnose.compression.contradiction import contradict
from diagnose.compression.names import COUNTERS, LEFT, NAME, OF_NAMES, PER_STEP, Names, meant_by_unit, shipped_names
from diagnose.knowledge.metrics import OF_A_KIND, Meaning, Metrics, shipped_metrics, words_of
from diagnose.matching.series import Series

READER: Final = struct.Struct("<HHHBxddd")
"""of one number: slot, series, slot of a number in its name, kind; scale, value of a constant, that number in its name"""
CONSTANT: Final = 0xFFFF
NO_GUARD: Final = 0xFFFF
NO_SERIES: Final = 0xFFFF
VALUE, STEP, EPOCH, TOTAL = range(4)
REGULAR: Final = 3
"""lines of a form after which its numbers count; one does where a loss stands with its step or epoch"""
MOST_FORMS: Final = 4096
MOST_SERIES: Final = 256
OTHER: Final = "other_"
"""before the name of a series that contradicts the one of its name"""

_KINDS: Final = dict(zip(COUNTERS, (STEP, EPOCH, TOTAL), strict=True))
_SPEEDS: Final = {
    "speed",
    "throughput",
    "rate",
    "per",
    "gpu",
    "samples",
    "tokens",
    "time",
    "avg",
    "tput",
    "performance",
    "took",
}
_LAST_SLOT: Final = 255
_PART: Final = 4
_OF_AN_EPOCH: Final = "of an epoch"
_LONGEST, _MOST_NUMBERS = 8192, 128
"""of a line are looked at"""
_ALIKE: Final = 3
"""so many numbers of one quantity are told apart in a line, beside those of which there is one in the line only"""
_COLUMNS: Final = 3
# In the text, \x01 is a number, and here \x0e one that is nan or inf.
_MARKS: Final = re.compile(r"[\x01\x06]|(?<![\w.])[-+]?(?:nan|inf|infinity)(?![\w.-])", re.IGNORECASE)
_PLAIN_MARKS: Final = re.compile(r"[\x01\x06]")
"""the same in a text without nan and inf, which is quicker"""
_BEHIND: Final = re.compile(r"\s?(?P<kilo>[kKM](?=\s?[a-z]+/))?\s?(?P<unit>[A-Za-z]+(?:\s?/\s?[A-Za-z]+){0,2})")
_OF: Final = re.compile(r"\s?(?:/|of)\s?\x01")
_BRACKET: Final = re.compile(r"\[\s?\Z")
_CLOSED: Final = re.compile(r"\s?/\s?\x01\s?\]")
_CONTEXT: Final = re.compile(r"(?<![\w/.-])([A-Za-z]+)(?=[\s:\]|>),\"'=]|\Z)|([{}])")
_WORD: Final = re.compile(r"(?<!\w)[A-Za-z]{2,}(?!\w)")
_CELLS: Final = re.compile(r"\s*[|,]\s*|\s{2,}|\t")
_CELL: Final = re.compile(r"[\[(\"']*[\x01\x0e](?:/\x01)?[A-Za-z%]{0,3}[\])\"':]*\Z")
_ROW_ENDS: Final = re.compile(r":\s")


class Key(NamedTuple):
    """What makes two numbers numbers of one series."""

    quantity: str
    name: str
    """as the log calls it"""
    rank: int
    context: str = ""
    """the words beside it, where it is one of several evaluations"""


class Found(NamedTuple):
    """One number of a line that has a name."""

    key: Key
    slot: int
    constant: float
    scale: float
    guard: int
    guard_value: float
    told: bool
    """whether more than a blank stands between the name and the number"""


class Plan(NamedTuple):
    """How the native core reads the lines of one template."""

    form: int
    needed: int
    rises: bool
    """its lines count as long as their first number rises"""
    readers: bytes
    header: int
    """the header that this line is, 0 for none"""


NOTHING: Final = Plan(0, 0, False, b"", 0)


@dataclass(slots=True)
class _Number:
    """One number of a template, where it stands in its text."""

    at: int
    slot: int
    value: float


class Numbers:
    """The names of one source's numbers: what the native core asks for, and what its series are."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics or shipped_metrics()
        self._names = Names(metrics) if metrics is not None else shipped_names()
        self.keys: list[Key] = []
        """by number of the series, as the native core knows it"""
        self._forms: dict[tuple[Any, ...], int] = {}
        self._headers: list[tuple[str, ...]] = []

    @property
    def state(self) -> list[Any]:
        """All of it, as JSON has it."""
        return [
            [list(key) for key in self.keys],
            [list(form) for form in self._forms],
            [list(header) for header in self._headers],
        ]

    @state.setter
    def state(self, state: list[Any]) -> None:
        keys, forms, headers = state
        self.keys = [Key(*key) for key in keys]
        self._forms = {tuple(form): number for number, form in enumerate(forms, 1)}
        self._headers = [tuple(header) for header in headers]

    def plan(self, masked: bytes, numbers: list[tuple[float, int]], body: bytes, header: int) -> Plan:
        """How to read the lines of the template ``masked``; ``header`` is the one above it, where it is a row of numbers."""
        if not numbers and (made := self._header(body[:_LONGEST])):
            return NOTHING._replace(header=made)
        text, places = _with_places(masked[:_LONGEST].decode("latin-1"), numbers[:_MOST_NUMBERS])
        found = list(self._in_columns(text, places, self._headers[header - 1])) if header else list(self._named(text, places))
        return self._planned(found) if found else NOTHING

    def _planned(self, found: list[Found]) -> Plan:
        chosen = list(_chosen(found))
        names = tuple(part for one in chosen for part in (one.key.quantity, one.key.name, one.key.context))
        form = self._forms.get(names)
        if form is None:
            if len(self._forms) >= MOST_FORMS:
                return NOTHING
            form = self._forms[names] = len(self._forms) + 1
        quantities = {one.key.quantity for one in chosen}
        rises = quantities <= _KINDS.keys()
        if rises and not all(one.told for one in chosen):
            return NOTHING  # "Step 1", "Step 2": prose counts as well
        sure = not quantities.isdisjoint(("loss", "val_loss")) and not quantities.isdisjoint(("step", "epoch"))
        readers = []
        for one in chosen:
            series = self._series_of(one.key) if one.key.name != _OF_AN_EPOCH else NO_SERIES
            if series is not None:
                kind = _KINDS.get(one.key.quantity, VALUE)
                readers.append(READER.pack(one.slot, series, one.guard, kind, one.scale, one.constant, one.guard_value))
        return Plan(form, 1 if sure else REGULAR, rises, b"".join(readers), 0)

    def _series_of(self, key: Key) -> int | None:
        if key in self.keys:
            return self.keys.index(key)
        if len(self.keys) >= MOST_SERIES:
            return None
        self.keys.append(key)
        return len(self.keys) - 1

    # --- names beside numbers ------------------------------------------------------------------------------------------------

    def _named(self, text: str, places: Sequence[_Number]) -> Iterator[Found]:
        """Each number that has a name before it or a unit behind it."""
        if self._metrics.one_of_several.search(text):
            return
        epoch: int | None = None
        before: Found | None = None
        for at, number in enumerate(places):
            left = text[max(0, number.at - LEFT) : number.at]
            found = self._by_name(text, left, number, places) or self._by_unit(text, left, number)
            if found is None and epoch is not None and _BRACKET.search(left) and _CLOSED.match(text, number.at + 1):
                key = Key("step", "position", 0)  # Epoch: [3][ 100/500]
                found = Found(key, number.slot, number.value, 1.0, NO_GUARD, 0.0, True)
            if found is None:
                continue
            if found.key.quantity == "epoch":
                epoch = at
            if found.key.quantity == "step" and (before is None or before.key.quantity != "step"):
                yield found
                if at + 1 < len(places) and _OF.match(text, number.at + 1):
                    total, name = places[at + 1], found.key.name if epoch is None else _OF_AN_EPOCH
                    yield found._replace(key=Key("total_steps", name, 0), slot=total.slot, constant=total.value)
            else:
                yield found
            before = found

    def _by_name(self, text: str, left: str, number: _Number, places: Sequence[_Number]) -> Found | None:
        name = self._names.before(left)
        if name is None:
            return None
        begin = number.at - len(left)
        digits = [place for place in places if begin + name.start <= place.at < begin + name.end]
        if len(digits) > 1 or any(digit.slot == CONSTANT for digit in digits):
            return None
        read = self._names.meaning(name.said.replace("\x01", f"{digits[0].value:g}" if digits else ""), name.unit)
        if read is None:
            return None
        quantity = read.meaning.quantity
        behind = _BEHIND.match(text, number.at + 1)
        if quantity not in _KINDS and _OF.match(text, number.at + 1):
            return None  # 45/100
        scale = self._scale(quantity, (read.unit, name.unit, behind["unit"] if behind else None))
        if scale is None:
            return None
        key = self._key(read.meaning, read.words, text, number.at, percent=text[number.at + 1 : number.at + 2] == "%")
        if key is None:
            return None
        guard = (digits[0].slot, digits[0].value) if digits else (NO_GUARD, 0.0)
        return Found(key, number.slot, number.value, scale, *guard, name.told)

    def _scale(self, quantity: str, units: Iterable[str | None]) -> float | None:
        """By what a number is multiplied; None where its unit is needed and not known."""
        known = self._metrics.units.get(self._metrics.quantities[quantity].unit or "")
        if known is None:
            return 1.0
        scales = [known[unit.strip().lower()] for unit in units if unit and unit.strip().lower() in known]
        return scales[0] if scales else 1.0 if quantity == "step_time_s" else None

    def _key(self, meaning: Meaning, words: tuple[str, ...], text: str, at: int, *, percent: bool = False) -> Key | None:
        quantity = self._metrics.quantities[meaning.quantity]
        name = "_".join(words) + ("_percent" if percent else "")
        evaluates = meaning.evaluation if meaning.evaluation is not None else self._evaluates(text, at)
        if quantity.name == "epoch":
            return Key("epoch", "epoch", 0)
        if quantity.name in _KINDS:
            return None if evaluates else Key(quantity.name, name, meaning.rank)
        if quantity.name in self._metrics.evaluations:
            return Key(quantity.name, name, meaning.rank)
        if not evaluates:
            return Key(quantity.name, name, meaning.rank)
        if quantity.evaluation is None:
            return None
        if meaning.evaluation:
            return Key(quantity.evaluation, name, meaning.rank)
        return Key(quantity.evaluation, f"val_{name}", meaning.rank, self._beside(text))  # what is evaluated stands elsewhere

    def _evaluates(self, text: str, at: int) -> bool:
        """Whether the last word before it that tells training from evaluation says evaluation; what a brace closed is over."""
        ends, said = _turns(text, self._metrics.evaluation, self._metrics.training)
        return said[bisect_right(ends, at)]

    def _beside(self, text: str) -> str:
        """The words of a line that are no names of quantities: what is evaluated may be among them."""
        plain = (word.lower() for word in _WORD.findall(text))
        usual = self._metrics.filling | self._metrics.around | self._metrics.evaluation | self._metrics.training
        return " ".join(word for word in plain if word not in usual and self._metrics.meaning((word,)) is None)[:80]

    def _by_unit(self, text: str, left: str, number: _Number) -> Found | None:
        """123.4 samples/sec"""
        if left[-1:].isalnum() or left[-1:] in ("_", "@", "/", "-"):
            return None
        behind = _BEHIND.match(text, number.at + 1)
        if behind is None or "/" not in behind["unit"]:
            return None
        scale = {"k": 1e3, "M": 1e6}.get((behind["kilo"] or "").replace("K", "k"), 1.0)
        meaning = meant_by_unit(self._metrics, behind["unit"])
        if meaning is None:
            return None
        words = words_of(behind["unit"])
        if per_step := PER_STEP.match(behind["unit"]):
            scale = self._metrics.units["s"][per_step[1]]
        left = left.rstrip(" :=|(")
        before = NAME.search(left, len(left.rstrip(OF_NAMES)))
        beside = words_of(before["words"].split()[-1]) if before else ()
        name = "_".join((*beside, *words))
        if self._evaluates(text, number.at) or not set(beside) <= self._metrics.around | _SPEEDS:
            return None  # Dataloading: 0.1 s/iter
        return Found(Key(meaning.quantity, name, meaning.rank), number.slot, number.value, scale, NO_GUARD, 0.0, True)

    # --- names above numbers -------------------------------------------------------------------------------------------------

    def _header(self, body: bytes) -> int:
        """The number of the header that a line without numbers is, or 0."""
        cells = tuple(cell.strip(" '\"[]()") for cell in _CELLS.split(body.decode("latin-1").strip(" |\t")))
        if len(cells) < _COLUMNS:
            cells = tuple(body.decode("latin-1").strip(" |\t").split())
        if not _COLUMNS <= len(cells) <= 64 or sum(self._metrics.meaning(words_of(cell)) is not None for cell in cells) < 2:
            return 0
        if cells not in self._headers:
            if len(self._headers) >= MOST_FORMS:
                return 0
            self._headers.append(cells)
        return self._headers.index(cells) + 1

    def _in_columns(self, text: str, places: Sequence[_Number], header: Sequence[str]) -> Iterator[Found]:
        """Each number of a row, by the name above it."""
        row = _ROW_ENDS.split(text.strip(" |"), maxsplit=1)[0]
        cells = [cell for cell in re.split(r"(?<!\s)\s*+[|,]\s*|\s", row) if cell]
        if len(cells) < len(header) or (len(cells) > len(header) and row == text.strip(" |")):
            return
        at = text.index(row)
        for name, cell in zip(header, cells, strict=False):
            start = text.index(cell, at)
            at = start + len(cell)
            if not _CELL.match(cell):
                return
            number = next((place for place in places if place.at >= start), None)
            if number is None:
                return
            read = self._names.meaning(name)
            unit = re.sub(r"[^A-Za-z]", "", cell)
            scale = self._scale(read.meaning.quantity, (read.unit, unit)) if read is not None else None
            key = self._key(read.meaning, read.words, "", 0) if read is not None else None
            if key is not None and scale is not None:
                yield Found(key, number.slot, number.value, scale, NO_GUARD, 0.0, True)


@functools.lru_cache(1)  # it is asked for each number of a line in turn
def _turns(text: str, evaluation: frozenset[str], training: frozenset[str]) -> tuple[list[int], list[bool]]:
    """Where a line may turn from training to evaluation or back, and which of the two it is about before the first such
    place, and behind each.
    """
    ends: list[int] = []
    about = [False]
    open_ = [False]
    for found in _CONTEXT.finditer(text):
        word = (found[1] or found[2]).lower()
        if word == "{":
            open_.append(open_[-1])
        elif word == "}":
            open_ = [*open_[:-2], False]
        elif word in evaluation or word in training:
            open_[-1] = word in evaluation
        else:
            continue
        ends.append(found.end())
        about.append(open_[-1])
    return ends, about


def _with_places(text: str, numbers: Sequence[tuple[float, int]]) -> tuple[str, list[_Number]]:
    """The text with one letter for each number, and where they stand."""
    values: dict[int, float] = {}
    for value, slot in numbers:
        values.setdefault(slot, value)
    plain: list[str] = []
    places: list[_Number] = []
    slot = end = length = 0
    small = text.lower()
    for found in (_MARKS if "nan" in small or "inf" in small else _PLAIN_MARKS).finditer(text):
        plain.append(text[end : found.start()])
        length += found.start() - end
        end = found.end()
        letter = found[0]
        if letter == "\x01":
            if slot < _LAST_SLOT and slot in values:
                places.append(_Number(length, slot, values[slot]))
            slot += 1
        elif letter == "\x06":
            slot += found.start() > 0 and text[found.start() - 1] == "\x01"
        else:
            places.append(_Number(length, CONSTANT, float(letter)))
            letter = "\x0e"
        plain.append(letter)
        length += 1
    plain.append(text[end:])
    return "".join(plain), places


def _rank(key: Key) -> int:
    return key.rank


def _chosen(found: Sequence[Found]) -> Iterator[Found]:
    """Of each quantity those that are the number itself, or the one that is nearest to it; of step, epoch and total one."""
    taken: set[Key] = set()
    for one in found:
        alike = sorted(dict.fromkeys(other.key for other in found if other.key.quantity == one.key.quantity), key=_rank)
        most = 1 if one.key.quantity in _KINDS else _ALIKE
        good = [key for key in alike if key.rank < OF_A_KIND][:most] or alike[:1]
        if one.key in good and one.key not in taken:
            taken.add(one.key)
            yield one


def _ends_as_none(captured: Series, found: Series) -> bool:
    """Whether a quantity that a rule captured is nan or inf from some line on: many rules know it as a number only."""
    ended, begins = captured.column("line")[-1:], found.column("line")[:1]
    return bool(ended and begins) and found.not_finite == found.count and begins[0] > ended[0]


def by_name(captured: Mapping[str, Series], found: Sequence[tuple[Key, Series]]) -> dict[str, Series]:
    """Series by their names: what rules ``captured``, and what was ``found`` beside it.

    Of each quantity one series has its name: what rules captured, or the one whose name is most usual, unless it is a small
    part of what another one has. The others are named as the log names them.
    """
    named = dict(captured)
    for key, series in found:
        if key.quantity in captured and _ends_as_none(captured[key.quantity], series):
            captured = {**captured, key.quantity: captured[key.quantity].then(series)}
            named[key.quantity] = captured[key.quantity]
    for quantity in dict.fromkeys(key.quantity for key, _ in found):
        ranked: list[tuple[int, str, Series]] = [
            (key.rank, key.name, series) for key, series in found if key.quantity == quantity
        ]
        if quantity in captured:
            ranked.append((-1, "", captured[quantity]))
        ranked.sort(key=lambda one: one[0])
        most = max(series.count for _, _, series in ranked)
        first = next(one for one in ranked if one[2].count * _PART >= most)
        named[quantity] = first[2]
        for one in ranked:
            if one is first or not one[1]:
                continue
            if one[1] not in shipped_metrics().quantities:
                named.setdefault(one[1], one[2])
            elif one[1] == quantity and contradict(first[2], one[2]):
                named.setdefault(OTHER + quantity, one[2])
    return named
