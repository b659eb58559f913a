"""The heat map of ranks: who is behind, who stopped first, and how short the map of many stays."""

from __future__ import annotations

from service.dashboard.ranks import HeatMap, heat_map
from service.store.pages.ranks import Heard


def drawn(known: list[Heard], suspects: tuple[int, ...] = (), *, running: bool = False) -> HeatMap:
    found = heat_map(known, suspects, "log?attempt=1", running=running)
    assert found is not None
    return found


def ranks_of(count: int, width: int = 8, **changes: Heard) -> list[Heard]:
    known = {rank: Heard(rank, f"gpu-{rank // width}", 1200.0, 500.0, f"rank {rank} waits") for rank in range(count)}
    known |= {one.rank: one for one in changes.values()}
    return list(known.values())


def test_one_rank_needs_no_map() -> None:
    assert heat_map([Heard(0, "gpu-0", 5.0)], (), "log", running=False) is None


def test_the_rank_that_stopped_first_is_said_and_stands_above_the_others() -> None:
    found = drawn(ranks_of(32, late=Heard(19, "gpu-2", 1190.0, 500.0, "loading shard 7")))
    assert [row.label for row in found.rows] == ["gpu-2", "gpu-0 and 2 alike"]
    (cell,) = [cell for cell in found.rows[0].cells if cell.rank == 19]
    assert (cell.level, cell.behind, cell.href) == ("first", 10.0, "log?attempt=1&rank=19")
    assert cell.said == "rank 19; stopped first; step 1,190, 10 behind; last words: loading shard 7"
    assert found.levels == {"first": 1, "even": 31}
    assert found.sentence == "32 ranks: 1 stopped first, 31 at the last step"


def test_without_steps_the_one_whose_lines_ended_a_minute_before_fell_silent_first() -> None:
    known = [Heard(rank, "a", None, 1000.0 - 300 * (rank == 2)) for rank in range(8)]
    cells = {cell.rank: cell for cell in drawn(known).rows[0].cells}
    assert cells[2].level == "first"
    assert "fell silent first" in cells[2].said
    assert "its last line came 5 m before that of the others" in cells[2].said
    assert {cells[rank].level for rank in cells if rank != 2} == {"mute"}


def test_one_log_of_all_ranks_is_read_by_its_own_clock() -> None:
    known = [Heard(rank, "a", words=f"2026-03-01 10:0{0 if rank == 5 else 7}:00 [rank{rank}] waits") for rank in range(8)]
    assert [cell.rank for cell in drawn(known).rows[0].cells if cell.level == "first"] == [5]


def test_while_it_runs_a_rank_that_tells_of_a_step_later_is_not_the_first_to_stop() -> None:
    known = ranks_of(8, late=Heard(3, "gpu-0", 1199.0, 500.0, "x"))
    assert drawn(known, running=True).levels == {"even": 8}
    assert not drawn(known, running=True).any_behind
    assert drawn(known).levels == {"first": 1, "even": 7}


def test_half_of_the_ranks_are_behind_and_none_is_blamed_alone() -> None:
    known = [Heard(rank, f"gpu-{rank // 8}", 1000.0 if rank < 8 else 1000.0 - 3 * (rank - 7)) for rank in range(16)]
    found = drawn([*known[:8], *(Heard(rank, "gpu-1", 960.0) for rank in range(8, 16))])
    assert found.levels == {"far": 8, "even": 8}
    assert found.rows[0].label == "gpu-1"


def test_equal_nodes_are_one_row_and_a_suspect_never_folds() -> None:
    found = drawn(ranks_of(4096), (4000,))
    assert [row.label for row in found.rows] == ["gpu-500", "gpu-0 and 510 alike"]
    assert sum(row.ranks for row in found.rows) == found.ranks == 4096
    assert len(str(found)) < 20_000


def test_what_most_ranks_do_is_shown_however_many_are_behind() -> None:
    found = drawn([Heard(rank, f"gpu-{rank // 8}", 1000.0 - 5.0 * (rank % 97 == 5)) for rank in range(4096)])
    assert len(found.rows) == 25
    assert found.rows[-1].label.endswith("alike")
    assert sum(row.nodes for row in found.rows) + found.hidden == 512


def test_the_map_is_bounded_however_ranks_differ() -> None:
    known = [Heard(rank, f"gpu-{rank // 64}", float(rank % 700), 500.0, f"{'ab'[rank % 2]} " * 200) for rank in range(4096)]
    found = drawn(known)
    assert len(found.rows) + found.hidden == 64
    assert sum(len(row.cells) for row in found.rows) <= 24 * 16
    assert max(len(cell.said) for row in found.rows for cell in row.cells) < 400


def test_ranks_that_never_spoke_are_named_if_they_are_few() -> None:
    known = ranks_of(64)
    assert drawn([one for one in known if one.rank != 40]).sentence.endswith("at the last step; nothing came of rank 40")
    assert "nothing came" not in drawn([one for one in known if one.rank % 2]).sentence
    assert "nothing came" not in drawn([Heard(0, "a", 1.0), Heard(2_000_000_000, "b", 1.0)]).sentence


def test_ranks_of_unknown_nodes_stand_in_rows_of_eight() -> None:
    found = drawn([Heard(rank, None, float(rank)) for rank in range(12)])
    assert {row.label for row in found.rows} == {"ranks 0 to 7", "ranks 8 to 11"}
    assert all(row.node is None for row in found.rows)


def test_words_of_a_log_stay_harmless() -> None:
    found = drawn([Heard(0, "a", 1.0, words="\x1b[31m<script>\u202e"), Heard(1, "a", 1.0)])
    assert r"\x1b[31m<script>\u202e" in found.rows[0].cells[0].said
