"""Reads a pickle of plain data only: numbers, text, bytes, lists, tuples and dictionaries.

A pickle is a small program: its opcodes may name any function and call it. This reader does not know those opcodes, so it
cannot run them. A name, a call, an object, a buffer or a persistent id ends the reading. Steps and memory are bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

MOST_STEPS: Final = 20_000_000
"""opcodes; a recorder's dump has some hundred per collective"""
_LONGEST_NUMBER = 64
"""bytes or digits"""


class NotPlain(ValueError):
    """It would build something other than plain data, or is no pickle."""


class _Mark:
    """Where a list of items begins on the stack."""


_MARK = _Mark()
_U2, _U4, _U8, _I4 = (struct.Struct(form) for form in ("<H", "<I", "<Q", "<i"))
_F8 = struct.Struct(">d")


def loads(data: bytes) -> Any:
    """What the pickle holds."""
    try:
        return _Machine(data).run()
    except (IndexError, struct.error, KeyError, TypeError, AttributeError, MemoryError, RecursionError) as error:
        raise NotPlain(f"the pickle is damaged: {type(error).__name__}") from None
    except UnicodeDecodeError:
        raise NotPlain("the pickle is damaged: text in no known encoding") from None


class _Machine:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, steps = self.data, _STEPS
        for _ in range(MOST_STEPS):
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                if len(self.stack) != 1 or self.stack[0] is _MARK:
                    raise NotPlain("the pickle is damaged: it does not end with one value")
                return self.stack[0]
            step = steps.get(code)
            if step is None:
                raise NotPlain(f"the pickle does more than hold plain data (opcode {code:#04x})")
            step(self)
        raise NotPlain(f"the pickle has more than {MOST_STEPS:,} steps")

    # --- pieces of the data --------------------------------------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        if len(found) < count:
            raise NotPlain("the pickle is cut off")
        self.at += count
        return found

    def number(self, form: struct.Struct) -> int:
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return int(value)

    def row(self, encoding: str = "ascii") -> str:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise NotPlain("the pickle is cut off")
        found = self.data[self.at : end]
        self.at = end + 1
        return found.decode(encoding)

    def since_mark(self) -> list[Any]:
        stack = self.stack
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise NotPlain("the pickle is damaged: items without a beginning")
        items = stack[at + 1 :]
        del stack[at:]
        return items

    # --- what opcodes do -----------------------------------------------------------------------------------------------------

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def text(self, count: int) -> None:
        self.stack.append(self.take(count).decode("utf-8", "surrogatepass"))

    def remember(self, key: int) -> None:
        value = self.stack[-1]
        if value is _MARK:
            raise NotPlain("the pickle is damaged: a mark is no value")
        self.memo[key] = value

    def whole_number(self, count: int) -> None:
        if count > _LONGEST_NUMBER:
            raise NotPlain("a number in the pickle is too long")
        self.stack.append(int.from_bytes(self.take(count), "little", signed=True))

    def written_number(self) -> None:
        row = self.row()
        if row in ("00", "01"):
            self.stack.append(row == "01")
            return
        if len(row) > _LONGEST_NUMBER:
            raise NotPlain("a number in the pickle is too long")
        self.stack.append(_parsed(int, row.rstrip("L")))

    def extend(self) -> None:
        items = self.since_mark()
        self._list().extend(items)

    def append(self) -> None:
        item = self.stack.pop()
        self._list().append(item)

    def set_items(self) -> None:
        items = self.since_mark()
        if len(items) % 2:
            raise NotPlain("the pickle is damaged: a key without a value")
        self._put(items)

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put([key, value])

    def to_dict(self) -> None:
        items = self.since_mark()
        self.stack.append({})
        self._put(items)

    def tuple_of(self, count: int) -> None:
        items = tuple(self.stack[-count:])
        if len(items) < count or _MARK in items:
            raise NotPlain("the pickle is damaged: a tuple of too few values")
        del self.stack[-count:]
        self.stack.append(items)

    def _list(self) -> list[Any]:
        found = self.stack[-1]
        if type(found) is not list:
            raise NotPlain("the pickle is damaged: items for what is no list")
        return found

    def _put(self, items: list[Any]) -> None:
        found = self.stack[-1]
        if type(found) is not dict:
            raise NotPlain("the pickle is damaged: items for what is no dictionary")
        if len(items) % 2:
            raise NotPlain("the pickle is damaged: a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in (str, int, bytes, float, bool):
                raise NotPlain("the pickle has a key that is neither text nor a number")
            found[key] = value


def _parsed(kind: Callable[[str], Any], text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise NotPlain("the pickle is damaged: a number that is none") from None


def _ignored(machine: _Machine) -> None:
    machine.stack.pop()


_STEPS: Final[dict[int, Callable[[_Machine], None]]] = {
    ord(code): step
    for code, step in {
        "\x80": lambda m: m.take(1),  # PROTO
        "\x95": lambda m: m.take(8),  # FRAME
        "(": lambda m: m.push(_MARK),
        "0": _ignored,
        "1": lambda m: m.since_mark(),
        "N": lambda m: m.push(None),
        "\x88": lambda m: m.push(True),
        "\x89": lambda m: m.push(False),
        "I": _Machine.written_number,
        "L": _Machine.written_number,
        "K": lambda m: m.push(m.take(1)[0]),
        "M": lambda m: m.push(m.number(_U2)),
        "J": lambda m: m.push(m.number(_I4)),
        "\x8a": lambda m: m.whole_number(m.take(1)[0]),
        "\x8b": lambda m: m.whole_number(m.number(_I4)),
        "G": lambda m: m.push(_F8.unpack(m.take(8))[0]),
        "F": lambda m: m.push(_parsed(float, m.row()[:_LONGEST_NUMBER])),
        "X": lambda m: m.text(m.number(_U4)),
        "\x8c": lambda m: m.text(m.take(1)[0]),
        "\x8d": lambda m: m.text(m.number(_U8)),
        "V": lambda m: m.push(m.row("raw-unicode-escape")),
        "T": lambda m: m.push(m.take(m.number(_U4)).decode("utf-8", "replace")),
        "U": lambda m: m.push(m.take(m.take(1)[0]).decode("utf-8", "replace")),
        "B": lambda m: m.push(m.take(m.number(_U4))),
        "C": lambda m: m.push(m.take(m.take(1)[0])),
        "]": lambda m: m.push([]),
        "}": lambda m: m.push({}),
        ")": lambda m: m.push(()),
        "l": lambda m: m.push(m.since_mark()),
        "d": _Machine.to_dict,
        "t": lambda m: m.push(tuple(m.since_mark())),
        "\x85": lambda m: m.tuple_of(1),
        "\x86": lambda m: m.tuple_of(2),
        "\x87": lambda m: m.tuple_of(3),
        "a": _Machine.append,
        "e": _Machine.extend,
        "s": _Machine.set_item,
        "u": _Machine.set_items,
        "q": lambda m: m.remember(m.take(1)[0]),
        "r": lambda m: m.remember(m.number(_U4)),
        "p": lambda m: m.remember(_parsed(int, m.row()[:12])),
        "\x94": lambda m: m.remember(len(m.memo)),
        "h": lambda m: m.push(m.memo[m.take(1)[0]]),
        "j": lambda m: m.push(m.memo[m.number(_U4)]),
        "g": lambda m: m.push(m.memo[_parsed(int, m.row()[:12])]),
    }.items()
}
"""the opcodes that are known; none of them names, calls or builds an object"""
