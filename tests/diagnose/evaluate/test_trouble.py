"""A piece of work that failed is diagnosed like any job."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.evaluate.trouble import found


@pytest.mark.parametrize(
    ("log", "reason", "passes", "of_the_node"),
    [
        ("Traceback (most recent call last):\n  File \"x.py\", line 3, in f\nKeyError: 'a'\n", "key_error", False, False),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered\n", "ecc_error", True, True),
        ("", "unknown", True, False),
    ],
)
def test_whether_to_try_again(tmp_path: Path, log: str, reason: str, passes: bool, of_the_node: bool) -> None:
    (tmp_path / "log").write_text(log)

    told = found(tmp_path / "log", 1)

    assert (told.reason, told.is_passing, told.is_of_the_node) == (reason, passes, of_the_node)


def test_a_log_that_was_never_written(tmp_path: Path) -> None:
    assert found(tmp_path / "none", 1).reason == "unknown"
