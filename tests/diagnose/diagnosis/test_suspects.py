"""Who is to be looked at."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.suspects import Suspects
from tests.support.logs import report_of


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


GLOO = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/"
WAITED = f"{GLOO}unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete\n"
LOST = f"{GLOO}pair.cc:553] Connection closed by peer [127.0.0.1]:7043\n"


def ended(rank: int, code: str) -> str:
    return (
        f"  time      : 2026-01-02_03:04:05\n  host      : gpu-1\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: 47{rank}) \n  error_file: <N/A>\n"
    )


def torchrun(first: str, *others: str) -> str:
    rest = "".join(others)
    return f"train.py FAILED\nFailures:\n{rest}------\nRoot Cause (first observed failure):\n[0]:\n{first}======\n"


def steps(said: str = "") -> str:
    return "step 1/9 | loss 2.1\nstep 2/9 | loss 2.0\nstep 3/9 | loss 1.9\n" + said


@pytest.mark.parametrize("said", [WAITED, LOST])
@pytest.mark.parametrize(
    ("complained", "expected"),
    [
        ((True, False), [1]),
        ((False, True, True), [0]),
        ((True, True, True, False), [3]),
        ((True, False, False, True), []),  # two are silent: one of them was ended by the launcher, and nobody says which
        ((True, False, False, False), []),
    ],
)
def test_who_was_waited_for(said: str, complained: tuple[bool, ...], expected: list[int]) -> None:
    names = tuple(f"rank{number}.log" for number in range(len(complained)))
    found = report_of(*(steps(said if one else "") for one in complained), names=names).diagnosis
    assert (found.suspects.ranks, found.suspects.nodes) == (expected, [])


def test_several_silent_ranks_stood_still_but_were_perhaps_ended_when_a_connection_was_lost() -> None:
    names = tuple(f"rank{number}.log" for number in range(8))
    found = {
        said: report_of(*(steps(said if n > 1 else "") for n in range(8)), names=names).diagnosis for said in (WAITED, LOST)
    }
    assert {said: one.suspects.ranks for said, one in found.items()} == {WAITED: [0, 1], LOST: []}


def test_who_lost_a_connection_to_one_that_gave_up_has_complained_too() -> None:
    names = tuple(f"rank{number}.log" for number in range(8))
    found = report_of(*(steps((WAITED, LOST)[n == 2] if n else "") for n in range(8)), names=names).diagnosis
    assert found.suspects.ranks == [0]


@pytest.mark.parametrize("first", [0, 8])
def test_the_folders_of_torchrun_have_ranks_where_lines_say_by_how_much_they_differ(first: int) -> None:
    names = tuple(f"none_x1/attempt_0/{number}/std{kind}.log" for number in range(4) for kind in ("out", "err"))
    prefixed = [f"[rank{first + number}]: {WAITED}" if number != 2 else "" for number in range(4)]
    logs = [text for said in prefixed for text in (steps(), said)]
    assert report_of(*logs, names=names).diagnosis.suspects.ranks == ([2] if first == 0 else [])
    silent = [steps() if name.endswith("out.log") else WAITED for name in names]
    assert report_of(*silent, names=names).diagnosis.suspects.ranks == []


def test_without_a_word_of_who_is_there_two_that_complain_do_not_tell_who_does_not() -> None:
    said = "".join(f"[rank{rank}]: {LOST}" for rank in (0, 2))
    assert report_of(steps(said)).diagnosis.suspects.ranks == []


def test_two_logs_of_many_ranks_are_no_pair() -> None:
    found = report_of(steps(WAITED), steps(), names=("rank0.log", "rank5.log")).diagnosis
    assert found.suspects.ranks == []


def test_a_rank_that_a_launcher_told_to_stop_is_not_where_it_began() -> None:
    waited = "".join(f"[rank{rank}]: {WAITED}" for rank in (0, 1, 2))
    launcher = torchrun(ended(0, "1"), ended(1, "-15"), ended(3, "-15"), ended(2, "1"))
    found = report_of(steps(waited) + launcher).diagnosis
    assert (found.reason, found.suspects.ranks) == ("nccl_timeout", [3])


def test_the_rank_that_was_told_to_stop_before_the_others_is_where_it_began() -> None:
    launcher = torchrun(ended(1, "-15"), ended(0, "-15"), ended(2, "-15"))
    assert report_of(steps(launcher)).diagnosis.suspects.ranks == [1]


def test_where_the_launcher_was_told_to_stop_too_it_began_with_no_rank() -> None:
    launcher = torchrun(ended(1, "-15"), ended(0, "-15"))
    told = "torch.distributed.elastic.multiprocessing.api: [WARNING] Received Signals.SIGTERM death signal, shutting down\n"
    assert report_of(steps(told + launcher)).diagnosis.suspects.ranks == []


def lost(call: str, host: str = "127.0.0.1") -> str:
    """What a rank prints that loses a peer in a collective over Gloo."""
    return (
        'Traceback (most recent call last):\n  File "/job/train.py", line 74, in train\n'
        f"    {call}\n"
        '  File "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", line 3252, in all_reduce\n'
        "    work.wait()\n"
        f"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [{host}]:7043.\n"
    )


@pytest.mark.parametrize(
    ("call", "ranks", "told", "expected"),
    [
        ("dist.all_reduce(grad)", 8, (4, 6), [5]),
        ("dist.all_reduce(grad, op=dist.ReduceOp.SUM)", 8, (7, 1), [0]),
        ("dist.all_reduce(grad)", 5, (1, 3), [2]),
        ("dist.all_reduce(grad)", 8, (4, 6, 7), [5]),  # 7 lost 6, which had given up
        ("dist.all_reduce(grad)", 8, (2, 4, 6), []),  # 3 or 5
        ("dist.all_reduce(grad)", 8, (4, 5), []),  # they lost each other
        ("dist.all_reduce(grad)", 4, (0, 2), []),  # 1 or 3: both stand between them
        ("dist.all_reduce(grad, group=group)", 8, (4, 6), []),  # of 4 to 7, perhaps: then it may be 7
        ("dist.all_reduce(grad, dist.ReduceOp.SUM, group)", 8, (4, 6), []),
        ("dist.all_reduce(", 8, (4, 6), []),
    ],
)
def test_who_stands_between_two_that_lost_a_peer_in_the_ring(
    call: str, ranks: int, told: tuple[int, ...], expected: list[int]
) -> None:
    names = tuple(f"rank{number}.log" for number in range(ranks))
    found = report_of(*(steps(lost(call) if n in told else "") for n in range(ranks)), names=names).diagnosis
    assert (found.suspects.ranks, found.suspects.nodes) == (expected, [])


def test_two_neighbours_that_lost_different_machines_do_not_tell_of_one_rank() -> None:
    names = tuple(f"rank{number}.log" for number in range(8))
    hosts = {4: "10.0.0.4", 6: "10.0.0.9"}
    logs = (steps(lost("dist.all_reduce(grad)", hosts[n]) if n in hosts else "") for n in range(8))
    assert report_of(*logs, names=names).diagnosis.suspects.ranks == []
