"""Files of safetensors: a header that says where each tensor is, and the tensors. There is no checksum in them.

So a file can be shown to be cut, or to have a header that cannot be true. A changed weight cannot be seen.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.quantities import MIB

_MOST_HEADER = 100 * MIB
"""as the library itself"""
_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "BOOL": 8, "U8": 8, "I8": 8,
         "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
         "C64": 64}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Header:
    names: frozenset[str] = field(default_factory=frozenset)
    """of the tensors"""
    problem: str | None = None


def header(path: Path) -> Header:
    """Read the header and compare it with the size of the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        if len(first) < 8:
            return Header(problem="it is cut before the end of its header")
        (length,) = struct.unpack("<Q", first)
        if length > _MOST_HEADER:
            return Header(problem="the length of its header cannot be true")
        if length > size - 8:
            return Header(problem="it is cut before the end of its header")
        text = file.read(length)
    try:
        return _compared(json.loads(text), size - 8 - length)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return Header(problem=f"its header is damaged ({str(error)[:200]})")


def _compared(said: dict[str, Any], size: int) -> Header:
    tensors = {name: one for name, one in said.items() if name != "__metadata__"}
    end = 0
    for name, one in sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = one["data_offsets"]
        if first != end or last < first:
            raise ValueError(f"the tensor {name!r} does not begin where the one before it ends")
        bits = _BITS.get(one["dtype"])
        if bits is not None and (last - first) * 8 != math.prod(one["shape"]) * bits:
            raise ValueError(f"the tensor {name!r} has not the bytes of its shape")
        end = last
    if end != size:
        kind = "is cut" if end > size else "has more bytes than its header says"
        return Header(problem=f"it {kind}: its header says {end:,} bytes of tensors, and there are {size:,}")
    return Header(frozenset(tensors))
