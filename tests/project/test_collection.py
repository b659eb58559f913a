"""Which files of the suite a run reads: those with a test that it would run, and no others."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT, SLOW, marks, unwanted


@pytest.mark.parametrize(
    ("expression", "left_out"),
    [
        ("not server and not browser and not slow", {"server", "browser", "slow"}),
        ("not slow", {"slow"}),
        ("", set()),
        ("server", set()),  # a file may hold some that are, and some that are not
        ("not slow or server", set()),
        ("not slow and server", set()),
        ("not (slow and server)", set()),
    ],
)
def test_only_what_no_test_of_a_file_can_be_is_left_out(expression: str, left_out: set[str]) -> None:
    assert unwanted(expression) == left_out


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("diagnose/checkpoints/hooks/test_lightning.py", {"server"}),
        ("project/test_cluster.py", {"server"}),  # its marks stand on lines of their own
        ("service/acting/executors/test_slurm.py", {"server", "slow", "timeout"}),
        ("service/dashboard/test_pages.py", {"browser"}),
        ("diagnose/compression/test_numbers.py", {"skipif"}),
        ("diagnose/rendering/test_terminal.py", set()),
    ],
)
def test_the_marks_of_a_file_are_known_before_it_is_read(path: str, expected: set[str]) -> None:
    assert marks(ROOT / "tests" / path) >= expected
    assert not (marks(ROOT / "tests" / path) - expected) & {"server", "browser", "model", "slow"}


def test_what_is_slow_is_there() -> None:
    assert [place for place in SLOW if not (ROOT / "tests" / place).exists()] == []
