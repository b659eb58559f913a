import pytest

from diagnose.diagnosis.weighing.counting import counted_up


@pytest.mark.parametrize(
    ("first", "last", "least"),
    [
        ("epoch 1 of 90", "epoch 88 of 90", 87),
        ("[    1/12000] ingested", "[  900/12000] ingested", 800),
        ("Iteration=7 time 0.3 s", "Iteration=107 time 0.2 s", 100),
        ("7 samples written", "9007 samples written", 9000),
    ],
)
def test_a_number_that_rises_is_counted(first: str, last: str, least: int) -> None:
    assert counted_up(first, last, least)


@pytest.mark.parametrize(
    ("first", "last", "least"),
    [
        ("epoch 1 of 90", "epoch 88 of 90", 88),  # not so far
        ("loss 0.1", "loss 900.1", 10),  # a value, not a count
        ("rank 1 waits", "rank 64 waits", 10),  # the name of who speaks
        ("retry 1", "retry 64", 10),  # what went wrong was counted
        ("epoch 1", "batch 64", 10),  # another number
        ("version 1.2.3", "version 900.2.3", 10),
        ("took 12ms", "took 9999ms", 10),
        ("nothing here", "nothing here", 0),
    ],
)
def test_what_does_not_count(first: str, last: str, least: int) -> None:
    assert not counted_up(first, last, least)


def test_a_long_word_costs_no_more_than_a_short_one() -> None:
    assert not counted_up("x" * 1_000_000, "x" * 1_000_000, 0)
