"""The reader of pickles builds plain data, and nothing that is not."""

from __future__ import annotations

import collections
import os
import pickle
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from diagnose.reading.dumps import plain_pickle
from diagnose.reading.dumps.plain_pickle import NotPlain

PLAIN = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**80), 2**80) | some.floats(allow_nan=False) | some.text() | some.binary(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text() | some.integers(), inner) | some.tuples(inner, inner),
    max_leaves=30,
)


@given(PLAIN, some.integers(0, 5))
def test_it_reads_what_pickle_writes(value: Any, protocol: int) -> None:
    if protocol < 3 and _has_bytes(value):
        return  # older protocols write bytes as a call
    assert plain_pickle.loads(pickle.dumps(value, protocol)) == value


def _has_bytes(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_bytes(one) for one in value.values())
    return isinstance(value, bytes) or (isinstance(value, (list, tuple)) and any(_has_bytes(one) for one in value))


class _Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_something_runs_nothing(protocol: int, tmp_path: Path) -> None:
    mark = tmp_path / "was-here"
    data = pickle.dumps({"version": "2.9", "entries": [_Bomb(mark)]}, protocol)
    with pytest.raises(NotPlain):
        plain_pickle.loads(data)
    assert not mark.exists()
    pickle.loads(data)
    assert mark.exists()  # the bomb is one


@pytest.mark.parametrize(
    "value", [collections.OrderedDict(a=1), Path("/"), {1, 2}, len, 3 + 4j, bytearray(b"x"), Exception("x")], ids=repr
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_whatever_needs_a_name_is_refused(value: Any, protocol: int) -> None:
    with pytest.raises(NotPlain):
        plain_pickle.loads(pickle.dumps([value], protocol))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\x80\x02",
        b"\x80\x02.",
        b"\x80\x02(.",
        b"\x80\x02Nr\xff\xff\xff\xff.extra",  # a memo of 4 G entries would take 64 GB
        b"\x80\x02X\xff\xff\xff\xffab.",
        b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"ab.",
        b"\x80\x02\x8b\xff\xff\xff\x7f" + b"1" * 100 + b".",
        b"\x80\x02h\x07.",
        b"\x80\x02(NNs.",
        b"\x80\x02]](e]a}u.",
        b"\x80\x02}(](Nu.",
        b"\x80\x02X\x02\x00\x00\x00\xff\xfe.",
        b"\x80\x05\x97.",
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x02P1\n.",
        b"\x80\x02\x82\x01.",
        b"I" + b"9" * 5000 + b"\n.",
        b"\x80\x02}(X\x01\x00\x00\x00au.",
    ],
)
def test_damage_and_malice_end_in_one_error(data: bytes) -> None:
    if data.startswith(b"\x80\x02Nr"):
        assert plain_pickle.loads(data) is None
        return
    with pytest.raises(NotPlain):
        plain_pickle.loads(data)


@given(some.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_in_one_error(data: bytes) -> None:
    for begin in (b"", b"\x80\x02", b"\x80\x02}("):
        try:
            plain_pickle.loads(begin + data + b".")
        except NotPlain:
            continue


@pytest.mark.slow
def test_depth_and_references_cost_no_more_than_bytes() -> None:
    begun = time.monotonic()
    deep = plain_pickle.loads(b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".")
    assert isinstance(deep, list)
    many: list[Any] = []
    for _ in range(60):
        many = [many] * 10  # 10 ** 60 items for whoever walks through them all
    assert len(plain_pickle.loads(pickle.dumps(many, 2))) == 10
    assert time.monotonic() - begun < 20
    del deep
