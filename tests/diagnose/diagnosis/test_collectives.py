"""Flight recorders -> who waits for whom, by what each of them has ended."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.collectives import Standing, first_late, standing
from diagnose.reading.dumps.flight_recorder import Collective, FlightRecord, Group


def record(rank: int, number: int, completed: int | None) -> FlightRecord:
    """A rank of four whose first open collective has this number."""
    group = Group("0", "default_pg", (0, 1, 2, 3), recorded=number, completed=completed)
    return FlightRecord(rank, "2.10", {"0": group}, [Collective("0", number, "nccl:all_reduce", "[4]", "started")])


def test_a_collective_that_most_have_ended_keeps_a_rank_behind() -> None:
    (one,) = standing({rank: record(rank, 8, completed=7) for rank in range(3)} | {3: record(3, 7, completed=6)})
    assert (one.number, one.waiting, one.behind) == (8, [0, 1, 2], [3])


def test_half_of_those_who_wait_are_enough_to_keep_a_rank_behind() -> None:
    ended = {rank: record(rank, 8, completed=7 if rank < 2 else 6) for rank in range(3)}
    (one,) = standing(ended | {3: record(3, 7, completed=6)})
    assert one.behind == [3]


def test_it_began_with_a_collective_before_it_began_with_a_message() -> None:
    def stands(waiting: list[int], late: list[int], *, p2p: bool) -> Standing:
        return Standing("0", "", (0, 1, 2, 3), 8, "op", "[4]", waiting, late, [], p2p=p2p)

    collective, message = stands([0, 1], [2], p2p=False), stands([0], [3], p2p=True)
    assert first_late([collective, message]) == ([2], [])
    assert first_late([message, stands([1], [2], p2p=True)]) == ([2, 3], [])


def test_a_message_to_a_rank_that_the_group_does_not_have_is_left_out() -> None:
    def sends(to: int) -> dict[int, FlightRecord]:
        dump = record(0, 8, completed=7)
        dump.open = [Collective("0", 8, f"nccl:send 0->{to}", "[4]", "started", p2p=True)]
        return {0: dump}

    (one,) = standing(sends(3))
    assert (one.p2p, one.waiting, one.late, one.unseen) == (True, [0], [], [3])
    assert standing(sends(4)) == []


@pytest.mark.parametrize("completed", [6, None], ids=["not ended", "not told"])
def test_a_collective_that_nobody_has_ended_keeps_nobody_behind(completed: int | None) -> None:
    (one,) = standing({rank: record(rank, 8, completed) for rank in range(3)} | {3: record(3, 7, completed=6)})
    assert (one.number, one.waiting, one.behind) == (7, [3], [])
