"""The text before a number -> the name that the number has there, and what the name means.

The same few texts stand before the numbers of many templates, so what was found is remembered.
"""

from __future__ import annotations

import functools
import re
import string
from typing import Final, NamedTuple

from diagnose.knowledge.metrics import OF_A_KIND, Meaning, Metrics, shipped_metrics, words_of

LEFT: Final = 96
"""letters before a number in which its name is looked for"""
COUNTERS: Final = ("step", "epoch", "total_steps")
PER_STEP: Final = re.compile(r"(ms|s|sec|secs|seconds)\s?/\s?(?:it|iter|iters|iteration|step|batch)\Z")
OF_NAMES: Final = string.ascii_letters + string.digits + "_\x01@./%+- \t()[]"
_THROUGHPUTS: Final = ("tokens_per_s", "samples_per_s", "tflops")
_REMEMBERED: Final = 4096
_WRAP, _SIGNS = 24, 10
"""letters before a number: for what is written around it, and for what is between the name and that"""
_MOST_WORDS: Final = 6
# In the text, \x01 is a number.
_WRAPPED: Final = re.compile(
    r"(?:(?:[\[({\"'~]|(?<!\w)(?:(?:np|numpy|torch|jnp|tf|jax)\.)?(?:float|int|bfloat|tensor|Tensor|array|Array|scalar)\x01?\()+\s?)?\Z"
)
_BETWEEN: Final = re.compile(
    r"(?:(?P<quoted>[\"'])\]?\s?[:=,]\s?|\s?[:=]{1,2}>?\s?|\s?\|\s?|\s?->\s?|\s?\.\x06:?\s?|\s(?:is|was)\s|(?P<blank>\s|(?<=\w)))\Z"
)
NAME: Final = re.compile(
    rf"(?P<words>[A-Za-z_][\w\x01@./%+-]*(?:\s[A-Za-z_][\w\x01@./%+-]*){{0,{_MOST_WORDS - 1}}})"
    r"(?:\s?[(\[](?P<unit>[A-Za-z/ ]+)[)\]])?\Z"
)


class Name(NamedTuple):
    """What stands before a number like a name."""

    said: str
    """its words; a number in it is \\x01"""
    unit: str | None
    """in brackets behind it"""
    told: bool
    """whether more than a blank stands between the name and the number"""
    start: int
    end: int


class Read(NamedTuple):
    """What a name means."""

    meaning: Meaning
    words: tuple[str, ...]
    unit: str | None
    """the unit that the name ends with"""


class Names:
    """Reads names with the words that are known."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.before = functools.lru_cache(_REMEMBERED)(self._before)
        self.meaning = functools.lru_cache(_REMEMBERED)(self._meaning)

    def _before(self, left: str) -> Name | None:
        """The name at the end of ``left``, which is what stands before a number."""
        if left[-1:].isalnum() or left[-1:] in ("_", "@", "\x01"):
            return None  # a digit of a name
        wrap = _WRAPPED.search(left, max(0, len(left) - _WRAP))
        inner = left[: wrap.start()] if wrap else left
        between = _BETWEEN.search(inner, max(0, len(inner) - _SIGNS))
        if between is None:
            return None
        before = inner[: between.start()]
        name = NAME.search(before, _where_a_name_may_begin(before))
        if name is None:
            return None
        blank = between["blank"] is not None and not (wrap and wrap[0].strip())
        return Name(self._without_unit(inner, name), name["unit"], not blank, name.start(), name.end())

    def _meaning(self, said: str, unit: str | None = None) -> Read | None:
        """What a name means; ``unit`` stands in brackets behind it."""
        read = self._meant(said)
        if read is None and unit and (meant := meant_by_unit(self._metrics, unit)) is not None:
            return Read(meant, words_of(f"{said} {unit}"), None)
        return read

    def _without_unit(self, text: str, name: re.Match[str]) -> str:
        """The words of a name, less the one that is the unit of a number before it."""
        words, before = name["words"], text[max(0, name.start() - 2) : name.start()]
        first = words.split()[0]
        glued = before[-1:] in ("\x01", "%")
        behind = before == "\x01 " and (
            any(first.lower() in known for known in self._metrics.units.values()) or meant_by_unit(self._metrics, first)
        )
        return words[len(first) :].lstrip() if glued or behind else words

    def _meant(self, said: str) -> Read | None:
        if self._metrics.words.isdisjoint(words_of(said)):
            return None
        every = said.split()
        for first in range(len(every)):
            words = words_of(" ".join(every[first:]))
            unit = words[-1] if words and any(words[-1] in known for known in self._metrics.units.values()) else None
            for some in (words, words[:-1]) if unit else (words,):
                meaning = self._metrics.meaning(some)
                if some == ("time",) and unit == "ms":
                    meaning = Meaning("step_time_s", OF_A_KIND, None)
                if meaning is None:
                    continue
                if first and meaning.quantity in COUNTERS:
                    return None  # warmup steps
                if first:
                    meaning = meaning._replace(rank=meaning.rank + OF_A_KIND)
                if first and not self._metrics.about.isdisjoint(words_of(" ".join(every[:first]))):
                    return None
                return Read(meaning, self._plain(words_of(said)), unit if some is not words else None)
        return None

    def _plain(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """A name without what only fills its sentence."""
        while len(words) > 1 and words[0] in self._metrics.filling:
            words = words[1:]
        return words


@functools.cache
def shipped_names() -> Names:
    """With the words that ship with the program."""
    return Names(shipped_metrics())


def meant_by_unit(metrics: Metrics, unit: str) -> Meaning | None:
    """What a number is of that ``unit`` stands behind."""
    if PER_STEP.match(unit):
        return Meaning("step_time_s", 0, None)
    meaning = metrics.meaning(words_of(unit)) if "/" in unit else None
    return meaning if meaning is not None and meaning.quantity in _THROUGHPUTS else None


def _where_a_name_may_begin(before: str) -> int:
    """At most so many words before the end of ``before``: to try from its beginning takes long."""
    start, at = len(before.rstrip(OF_NAMES)), len(before)
    if before.endswith((")", "]")):
        return start  # a unit stands between
    for _ in range(_MOST_WORDS):
        at = max(before.rfind(blank, start, at) for blank in " \t")
        if at < 0:
            return start
    return at + 1
