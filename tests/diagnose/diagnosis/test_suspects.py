"""Who is to be looked at."""

from __future__ import annotations

from diagnose.diagnosis.suspects import Suspects


def test_what_the_own_lines_name_is_not_replaced_by_what_others_say() -> None:
    found = Suspects(ranks=[3])
    found.fill(Suspects(nodes=["gpu-1"], ranks=[5], gpus=["0000:3b:00"]))
    assert (found.nodes, found.ranks, found.gpus) == (["gpu-1"], [3], ["0000:3b:00"])
    found.fill(Suspects(nodes=["gpu-2"], ranks=[6], gpus=["0000:4c:00"]))
    assert (found.nodes, found.ranks, found.gpus) == (["gpu-1"], [3], ["0000:3b:00"])


def test_each_stands_once_nodes_as_they_were_met_and_ranks_in_order() -> None:
    found = Suspects(nodes=["b", "a", "b"], ranks=[5, 3, 5], gpus=["y", "x", "y"])
    found.sort()
    assert (found.nodes, found.ranks, found.gpus) == (["b", "a"], [3, 5], ["y", "x"])
