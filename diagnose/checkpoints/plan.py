"""The ``.metadata`` of PyTorch DCP: which bytes of which file hold which part of which tensor.

It is a pickle, and a pickle can run programs. This reader knows the few names that DCP writes, and makes plain values of them.
It refuses all other names, and the instructions that DCP does not use: with them a small file could take much memory or time.
"""

from __future__ import annotations

import io
import pickle  # only through _Reader, which makes nothing but the values below
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from diagnose.quantities import GIB

NAME: Final = ".metadata"
_MOST_BYTES = GIB


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a file that is one archive of torch.save."""

    file: str
    offset: int
    length: int
    tensor: str
    """or the name of what else it is"""


class PlanError(ValueError):
    """A .metadata that cannot be read without running it, or at all."""


class _Record:
    """What an object of any of DCP's classes becomes: its fields, and nothing that it can do."""


def _size(values: Any = ()) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, tuple | list) else ()


def _path(*parts: Any) -> str:
    return "/".join(part for part in parts if isinstance(part, str))


def _nothing(*_: Any) -> None:
    return None


def _dictionary(*_: Any) -> dict[Any, Any]:
    return {}


_DCP = "torch.distributed.checkpoint"
_RECORDS: Final = {
    (f"{_DCP}.{module}", name)
    for module, names in {
        "metadata": (
            "Metadata",
            "TensorStorageMetadata",
            "BytesStorageMetadata",
            "TensorProperties",
            "ChunkStorageMetadata",
            "MetadataIndex",
            "StorageMeta",
        ),
        "filesystem": ("_StorageInfo",),
    }.items()
    for name in names
}
_CALLED: Final = {
    ("torch", "Size"): _size,
    ("torch.serialization", "_get_layout"): _nothing,
    (f"{_DCP}.metadata", "_MEM_FORMAT_ENCODING"): _nothing,
    ("collections", "OrderedDict"): _dictionary,
    ("pathlib", "PosixPath"): _path,
    ("pathlib._local", "PosixPath"): _path,
}
_TYPES: Final = ("float", "bfloat", "int", "uint", "complex", "bool", "quint", "qint")
"""how the names of torch's types of numbers begin"""
_INSTRUCTIONS: Final = (
    "PROTO FRAME STOP MARK EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS NONE "
    "NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES "
    "GLOBAL STACK_GLOBAL REDUCE NEWOBJ BUILD MEMOIZE BINGET LONG_BINGET BINPUT LONG_BINPUT"
).split()


class _Reader(pickle._Unpickler):  # the one in Python: its instructions can be chosen
    dispatch = {getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in _INSTRUCTIONS}  # noqa: RUF012
    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _RECORDS:
            return _Record
        if module == "torch" and name.startswith(_TYPES):
            return f"torch.{name}"
        if (module, name) not in _CALLED:
            raise PlanError(f"it names {module[:100]}.{name[:100]}, which DCP does not write")
        return _CALLED[module, name]

    def load_build(self) -> None:
        """Fill in the fields of an object."""
        state = self.stack.pop()
        record = self.stack[-1]
        if not isinstance(record, _Record):
            raise PlanError("it fills in the fields of what is no object of DCP")
        if isinstance(state, dict):
            record.__dict__.update((name, value) for name, value in state.items() if isinstance(name, str))

    def load_setitems(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        for key, value in zip(items[::2], items[1::2], strict=True):
            self._set(key, value)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set(key, value)

    def _set(self, key: Any, value: Any) -> None:
        """Only keys whose hash is found in one step."""
        if not isinstance(key, str | int | _Record) or not isinstance(self.stack[-1], dict):
            raise PlanError("it has a key that is no name")
        self.stack[-1][key] = value

    dispatch[pickle.BUILD[0]] = load_build  # type: ignore[assignment]
    dispatch[pickle.SETITEM[0]] = load_setitem  # type: ignore[assignment]
    dispatch[pickle.SETITEMS[0]] = load_setitems  # type: ignore[assignment]


def read(path: Path) -> list[Part]:
    """The parts, in the order of files and places."""
    with path.open("rb") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise PlanError("it has more bytes than any real one")
    try:
        return _parts(_Reader(io.BytesIO(text)).load())
    except PlanError:
        raise
    except Exception as error:  # a damaged pickle can end in any of a dozen errors
        raise PlanError(f"it is damaged ({type(error).__name__}: {str(error)[:200]})") from None


def _parts(whole: Any) -> list[Part]:
    stored, described = getattr(whole, "storage_data", None), getattr(whole, "state_dict_metadata", None)
    if not isinstance(stored, dict) or not isinstance(described, dict):
        raise PlanError("it has no list of what is stored where")
    found = [_part(index.fqn, place) for index, place in stored.items()]
    missing = {name for name in described if isinstance(name, str)} - {part.tensor for part in found}
    if missing:
        raise PlanError(f"{min(missing)!r} is stored nowhere")
    return sorted(found, key=lambda part: (part.file, part.offset))


def _part(tensor: Any, place: Any) -> Part:
    file, offset, length = place.relative_path, place.offset, place.length
    if not isinstance(tensor, str) or not isinstance(file, str):
        raise PlanError("a name in it is no text")
    if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts or "\0" in file:
        raise PlanError(f"{file[:100]!r} is not a file of the checkpoint")
    if not all(isinstance(number, int) and 0 <= number < 1 << 62 for number in (offset, length)):
        raise PlanError(f"the place of {tensor[:100]!r} is not a number")
    return Part(file, offset, length, tensor)
