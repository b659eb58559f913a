"""Who is who, as launchers tell."""

from __future__ import annotations

import textwrap

import pytest

from diagnose.evidence import Event
from diagnose.prefixes import body_start
from diagnose.topology import Topology, expand, numbers, read


def topology(text: str) -> Topology:
    lines = textwrap.dedent(text).splitlines()
    return read(Event(number, 0, number, line, -1, body_start(line.encode())) for number, line in enumerate(lines, 1))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("gpu-17", ["gpu-17"]),
        ("gpu-[01-03,07]", ["gpu-01", "gpu-02", "gpu-03", "gpu-07"]),
        ("gpu-[9-11],login1", ["gpu-9", "gpu-10", "gpu-11", "login1"]),
        ("r[1-2]i5n1", ["r1i5n1", "r2i5n1"]),
        ("n20.cluster", ["n20.cluster"]),
        ("gpu-[7-3]", []),
        ("", []),
    ],
)
def test_node_lists(nodes: str, expected: list[str]) -> None:
    assert expand(nodes) == expected


def test_a_hostile_node_list_is_bounded() -> None:
    assert len(expand("gpu-[1-99999999]")) <= 4097


def test_numbers() -> None:
    assert numbers("3, 5-7") == [3, 5, 6, 7]
    assert numbers("all") == []


def test_the_summary_of_torchrun() -> None:
    found = topology(
        """\
        Root Cause (first observed failure):
        [0]:
          time      : 2026-12-01_23:44:32
          host      : gpu-13
          rank      : 21 (local_rank: 5)
          exitcode  : -9 (pid: 5758)
          error_file: <N/A>
        """
    )
    assert found.host_of == {21: "gpu-13"}
    (end,) = found.ended
    assert (end.rank, end.local_rank, end.host, end.exitcode, end.first) == (21, 5, "gpu-13", -9, True)


def test_srun_names_tasks_and_node() -> None:
    found = topology("srun: error: gpu-12: tasks 8-9: Exited with exit code 17\nsrun: error: gpu-[01-02]: tasks 0-1: Killed\n")
    assert found.host_of == {8: "gpu-12", 9: "gpu-12"}
    assert [(end.rank, end.host, end.how) for end in found.ended][-1] == (1, None, "Killed")


def test_lightning_names_the_child() -> None:
    found = topology(
        "[rank: 2] Child process with PID 30122 terminated with code 1. Forcefully terminating all other processes\n"
    )
    assert [end.rank for end in found.ended] == [2]
