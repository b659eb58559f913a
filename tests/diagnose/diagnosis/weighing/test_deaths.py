"""Ends of a program that cannot be of one start."""

from __future__ import annotations

import pytest

from tests.support.logs import said

RAISED = 'Traceback (most recent call last):\n  File "/work/garden.py", line {}, in <module>\n    {}\n{}\n'
LATE = RAISED.format(136, "dig(bed)", "KeyError: 'bed'")
IMPORT = RAISED.format(9, "import spade", "ModuleNotFoundError: No module named 'spade'")
UNREADABLE = (
    'Traceback (most recent call last):\n  File "<frozen runpy>", line 198, in _run_module_as_main\n'
    '  File "/work/garden.py", line 20, in <module>\n    from .beds import Bed\n'
    '  File "/work/beds.py", line 63\n    def dig(self):\nIndentationError: unexpected indent\n'
)
WORK = "".join(f"step {n} loss 1.{n * 7 % 5}\n" for n in range(1, 9))
WAITING = "Waiting for the other node to join\n"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (LATE + WORK + IMPORT, "import_error"),
        (UNREADABLE + WORK + LATE, "key_error"),
        (IMPORT + WORK + LATE, "key_error"),
    ],
    ids=["an import fails that had been passed", "a file can be read again", "an import works again"],
)
def test_of_two_starts_the_last_one_counts(log: str, reason: str) -> None:
    assert said(log)[0] == reason


@pytest.mark.parametrize(
    "log",
    [
        LATE + RAISED.format(140, "put(spade)", "ValueError: no place"),
        IMPORT + RAISED.format(136, "dig(bed)", "KeyError: 'bed'").replace("garden", "other"),
        IMPORT.replace("Trace", "[rank1]: Trace").replace("\n  ", "\n[rank1]:   ").replace("\nMod", "\n[rank1]: Mod") + LATE,
        IMPORT + LATE + "srun: error: gpu-1: tasks 0-1: Exited with exit code 1\n",
    ],
    ids=["no import", "another program", "ranks", "tasks of a step"],
)
def test_else_the_first_failure_counts(log: str) -> None:
    assert said(log)[1] == 4


@pytest.mark.parametrize("between", [WAITING, WORK], ids=["no work", "work"])
@pytest.mark.parametrize(
    "end",
    [
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "RuntimeError: peer 10.0.0.2:29500 did not come",
        "ValueError: expected 2 workers and found 1",
    ],
)
def test_a_node_that_misses_another_one_does_not_hide_why_that_one_ended(end: str, between: str) -> None:
    assert said(IMPORT + between + RAISED.format(136, "meet(2)", end))[0] == "import_error"


def test_two_ends_without_work_between_may_be_of_two_nodes() -> None:
    assert said(RAISED.format(136, "dig(bed)", MEMORY) + IMPORT)[0] == "out_of_memory"
    assert said(IMPORT + WAITING + LATE)[0] == "import_error"
