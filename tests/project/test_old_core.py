"""A native core that was built before its sources changed is told of before the tests fail for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import _old_core


@pytest.mark.parametrize(
    ("built", "changed", "told"),
    [(2.0, 1.0, False), (1.0, 2.0, True), (None, 1.0, False)],
    ids=["built since", "changed since", "no core"],
)
def test_an_old_core_is_told_of(tmp_path: Path, built: float | None, changed: float, told: bool) -> None:
    for name, at in (("_core.abi3.so", built), ("_core.c", changed), ("_masks.h", 0.5)):
        if at is not None:
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (at, at))
    assert (_old_core(tmp_path) is not None) == told
