"""The values of a policy file as types: a text in, a number of its range out, or an objection that names the remedy.

pydantic walks the file by these types, finds every mistake in one pass and says where each of them stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError, core_schema

from diagnose.decision.clauses import MODES, Mode, number_in, seconds_in
from diagnose.errors import nearest

PLACE: Final = "\0place"
LINES: Final = "\0lines"
"""keys that no file can have: under them a value is told its own file and line, and the policy those of all clauses"""
Place = Annotated[str, Field(alias=PLACE)]


def in_file(name: str) -> str:
    """What a field is called in the file: a time is ``within`` there, and ``within_s`` where it is a number of seconds."""
    return name.removesuffix("_s")


IN_FILE: Final = ConfigDict(extra="forbid", alias_generator=in_file)
"""of each type that is a table of the file: nothing else may stand there, a misspelt limit would be no limit"""


@dataclass(frozen=True, slots=True)
class Known:
    """The names that a policy may use; the context of the validation."""

    reasons: Mapping[str, str]
    kinds: tuple[str, ...]
    """of actions"""


def objection(what: str, remedy: str) -> PydanticCustomError:
    """What is wrong with a value, and what to write instead."""
    return PydanticCustomError("objection", "{what}", {"what": what, "remedy": remedy})


@dataclass(frozen=True, slots=True)
class Written:
    """How a value is written."""

    noun: str
    remedy: str
    read: Callable[[str], Any]
    """None: it cannot be used"""
    said: str = "{value!r} is no {noun} that can be used"

    def __get_pydantic_core_schema__(self, _: Any, __: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.value)

    def value(self, written: object) -> Any:
        """What the text means."""
        found = self.read(written) if isinstance(written, str) else None
        if found is None:
            raise objection(self.said.format(value=written, noun=self.noun), self.remedy)
        return found


def at_least(least: int) -> Written:
    """A whole number of that or more."""

    def read(text: str) -> int | None:
        return int(text) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) >= least else None

    return Written("whole number", f"write a whole number of {least} or more", read)


def _mode(text: str) -> str | None:
    return text if text in MODES else None


def _share(text: str) -> float | None:
    number = number_in(text[:-1]) if text.endswith("%") else None
    return number / 100 if number is not None and number <= 100 else None


def _fraction(text: str) -> float | None:
    number = number_in(text)
    return number if number is not None and number <= 1 else None


def _flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


def words(found: object) -> tuple[str, ...]:
    """A list of them; nothing is none."""
    if found == "":
        return ()
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise objection("is no list of words", "write   [ONE, TWO]   or []")
    return tuple(found)


def _numbers(found: object) -> frozenset[int]:
    given = words(found)
    if not all(re.fullmatch(r"[0-9]{1,6}", word) for word in given):
        raise objection("holds something else than whole numbers", "write   [48, 79]")
    return frozenset(map(int, given))


def _labels(found: object) -> object:
    if isinstance(found, dict) and not all(isinstance(pattern, str) for pattern in found.values()):
        raise objection("a label's value is no text", "write   {NAME: 'PATTERN'}")
    return found


TABLE: Final = BeforeValidator(lambda found: {} if found == "" else found)
"""a name with nothing behind it is an empty table; likewise a list"""
LIST: Final = BeforeValidator(lambda found: [] if found == "" else found)

OneMode = Annotated[Mode, Written("mode", "use observe, approve or auto", _mode, "{value!r} is no {noun}")]
Duration = Annotated[float, Written("duration", "write a number and s, m, h or d, as 90s or 24h", seconds_in)]
Share = Annotated[float, Written("share", "write a percentage, as 5%", _share)]
Fraction = Annotated[float, Written("confidence", "write a number from 0 to 1", _fraction)]
Flag = Annotated[bool, Written("flag", "write   true   or   false", _flag, "{value!r} is neither true nor false")]
Text = Annotated[str, Written("text", "write one value", str, "is no {noun}")]
Words = Annotated[tuple[str, ...], BeforeValidator(words)]
Numbers = Annotated[frozenset[int], BeforeValidator(_numbers)]
Labels = Annotated[Mapping[str, str], BeforeValidator(_labels), TABLE]


# --- names -----------------------------------------------------------------------------------------------------------------


def meant(name: str, known: Iterable[str], remedy: str) -> str:
    """The remedy for a name that nobody knows."""
    near = nearest(name, known)
    return f"did you mean {near}? {remedy}" if near else remedy


def _known(info: ValidationInfo) -> Known:
    assert isinstance(info.context, Known)
    return info.context


def _reason(name: str, info: ValidationInfo, remedy: str = "use one of rules/taxonomy.yaml") -> str:
    reasons = _known(info).reasons
    if name not in reasons:
        raise objection(f"unknown reason {name!r}", meant(name, reasons, remedy))
    return name


def _reasons(names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    return tuple(_reason(name, info) for name in names)


def _reason_or_default(name: str, info: ValidationInfo) -> str:
    return name if name == "default" else _reason(name, info, "use default, or a reason of rules/taxonomy.yaml")


def _reason_or_action(name: str, info: ValidationInfo) -> str:
    known = _known(info)
    if name not in known.reasons and name not in known.kinds:
        remedy = f"use a reason, or {', '.join(known.kinds)}"
        raise objection(f"{name!r} is neither a reason nor an action", meant(name, (*known.reasons, *known.kinds), remedy))
    return name


def _action_or_default(name: str, info: ValidationInfo) -> str:
    kinds = _known(info).kinds
    if name != "default" and name not in kinds:
        raise objection(f"unknown action {name!r}", meant(name, kinds, f"use default, or {', '.join(kinds)}"))
    return name


def _actions(found: object, info: ValidationInfo) -> frozenset[str]:
    names, kinds = words(found), _known(info).kinds
    for name in names:
        if name not in kinds:
            raise objection(f"unknown action {name!r}", meant(name, kinds, f"use {', '.join(kinds)}"))
    return frozenset(names)


def _people(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name != "owner" and not (name.startswith(("role:", "user:")) and len(name) > 5):
            raise objection(f"{name!r} names nobody", "write role:NAME, user:NAME or owner")
    return names


Reason = Annotated[str, AfterValidator(_reason)]
Reasons = Annotated[tuple[str, ...], BeforeValidator(words), AfterValidator(_reasons)]
ReasonOrDefault = Annotated[str, AfterValidator(_reason_or_default)]
Actions = Annotated[frozenset[str], PlainValidator(_actions)]
Modes = Annotated[Mapping[Annotated[str, AfterValidator(_reason_or_action)], OneMode], TABLE]
Approvers = Annotated[
    Mapping[Annotated[str, AfterValidator(_action_or_default)], Annotated[Words, AfterValidator(_people)]], TABLE
]
Confidence = Annotated[Mapping[Annotated[str, AfterValidator(_action_or_default)], Fraction], TABLE]
