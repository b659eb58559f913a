"""What dumps come to: who waits, who is elsewhere, who is suspected and of what; and who fell silent first."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from diagnose.diagnosis.places import place_of
from diagnose.reading.dumps.documents import lines, recognised
from diagnose.reading.dumps.stacks import Frame, Thread
from diagnose.reading.sources import find
from tests.conftest import ROOT
from tests.diagnose.reading.dumps.test_documents import entry, recorder
from tests.support.logs import job_of, report_of, steps

TRACES = ROOT.parent / "shared" / "corpus" / "peers" / "nvrx" / "fr_traces"

WAITS = [
    ("all_reduce", "torch/distributed/distributed_c10d.py", 2219),
    ("wrapper", "torch/distributed/c10d_logger.py", 81),
    ("train_step", "train.py", 88),
    ("<module>", "train.py", 300),
]
SAVES = [("save", "torch/serialization.py", 850), ("write", "train.py", 210), ("<module>", "train.py", 300)]
LOADS = [
    ("wait", "threading.py", 320),
    ("_try_get_data", "torch/utils/data/dataloader.py", 1133),
    ("__next__", "torch/utils/data/dataloader.py", 630),
    ("train", "train.py", 77),
]


def spied(pid: int, frames: list[tuple[str, str, int]]) -> str:
    """As py-spy dump prints it."""
    shown = "".join(f"    {function} ({file}:{line})\n" for function, file, line in frames)
    return f'Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n{shown}'


def names(count: int, pattern: str = "pyspy_rank_{}.txt") -> tuple[str, ...]:
    return tuple(pattern.format(rank) for rank in range(count))


def recorded(*dumps: dict[str, Any]) -> tuple[str, ...]:
    """The lines that stand for the recorders of ranks 0, 1, 2 …"""
    found = []
    for rank, dump in enumerate(dumps):
        data = json.dumps(dump).encode()
        kind = recognised(data[:4096])
        assert kind is not None
        found.append("\n".join(lines(kind, data, f"trace_rank_{rank}")) + "\n")
    return tuple(found)


# --- stacks ------------------------------------------------------------------------------------------------------------------


def test_the_rank_that_saves_while_all_others_wait_is_named() -> None:
    texts = [spied(100 + rank, SAVES if rank == 5 else WAITS) for rank in range(8)]
    diagnosis = report_of(*texts, names=names(8)).diagnosis
    assert (diagnosis.reason, diagnosis.suspects.ranks) == ("hang", [5])
    assert diagnosis.summary == (
        "7 of 8 ranks wait in ALLREDUCE at train.py:88; rank 5 is at a checkpoint: torch.serialization.save at train.py:210."
    )
    assert diagnosis.root_cause is not None
    assert (diagnosis.root_cause.source, diagnosis.root_cause.line) == ("pyspy_rank_5.txt", 5)
    assert diagnosis.dumps is not None
    assert [(group.count, group.ranks, group.place, group.waits) for group in diagnosis.dumps.stacks] == [
        (7, [0, 1, 2, 3, 4, 6, 7], "collective", True),
        (1, [5], "checkpoint", False),
    ]


def test_a_late_rank_is_not_a_broken_machine() -> None:
    texts = [spied(100 + rank, LOADS if rank == 2 else WAITS) for rank in range(4)]
    report = report_of(*texts, names=names(4, "node-7/rank_{}.txt"))
    assert report.diagnosis.suspects.nodes == ["node-7"]
    assert "rank 2 (node-7) is in the data loader" in report.diagnosis.summary
    assert (report.action.kind, report.action.nodes) == ("restart", [])


def test_ranks_that_all_wait_accuse_nobody() -> None:
    report = report_of(*(spied(100 + rank, WAITS) for rank in range(4)), names=names(4))
    assert report.diagnosis.suspects.ranks == []
    assert "nobody is elsewhere" in report.diagnosis.summary


def test_of_few_that_wait_nothing_is_concluded() -> None:
    diagnosis = report_of(*(spied(100 + rank, WAITS if rank == 0 else SAVES) for rank in range(4)), names=names(4)).diagnosis
    assert diagnosis.summary.startswith("4 ranks: ranks 1-3 are at a checkpoint")
    assert "rank 0 waits in a collective" in diagnosis.summary
    assert diagnosis.suspects.ranks == []


def test_a_group_of_stacks_is_shown_by_its_lowest_rank() -> None:
    diagnosis = report_of(
        *(spied(100 + rank, WAITS) for rank in (2, 0, 1)), names=("r_rank_2.txt", "r_rank_0.txt", "r_rank_1.txt")
    )
    assert diagnosis.diagnosis.dumps is not None
    (group,) = diagnosis.diagnosis.dumps.stacks
    assert (group.ranks, group.source) == ([0, 1, 2], "r_rank_0.txt")


def test_a_collective_that_stands_is_reported_with_its_group() -> None:
    dumps = recorded(*(recorder(entry(6, "completed"), *([] if rank == 3 else [entry(7)])) for rank in range(4)))
    diagnosis = report_of(*dumps, names=names(4, "trace_rank_{}")).diagnosis
    assert diagnosis.dumps is not None
    (one,) = diagnosis.dumps.collectives
    assert (one.group, one.description, one.number, one.waiting, one.late) == ("0", "default_pg", 7, [0, 1, 2], [3])


def test_the_rank_without_a_dump_is_the_one_to_look_at() -> None:
    texts = [spied(100 + rank, WAITS) for rank in (0, 1, 3)]
    report = report_of(*texts, names=("r/rank_0.txt", "r/rank_1.txt", "r/rank_3.txt"))
    assert report.diagnosis.suspects.ranks == [2]
    assert "of rank 2 there is no dump" in report.diagnosis.summary


def test_a_dump_inside_a_ranks_log_and_the_last_one_of_a_process_counts() -> None:
    def log(rank: int, last: list[tuple[str, str, int]]) -> str:
        frames = "".join(f'  File "/app/{file}", line {line} in {function}\n' for function, file, line in last)
        before = 'Timeout (0:05:00)!\nThread 0x00007f01 (most recent call first):\n  File "/app/train.py", line 9 in warm_up\n'
        return steps(1, 20) + before + f"Timeout (0:05:00)!\nThread 0x00007f01 (most recent call first):\n{frames}"

    own = [("read_shard", "data.py", 31), ("<module>", "train.py", 300)]
    waits = [(f, file.replace("torch/", "lib/python3.11/site-packages/torch/"), n) for f, file, n in WAITS]
    report = report_of(*(log(rank, own if rank == 1 else waits) for rank in range(4)), names=names(4, "rank_{}.log"))
    assert report.diagnosis.reason == "hang"
    assert report.diagnosis.suspects.ranks == [1]
    assert "rank 1 is in its own code: read_shard at data.py:31" in report.diagnosis.summary


def test_ranks_of_one_file_are_told_apart_by_their_prefixes() -> None:
    rows = []
    texts = [spied(100 + rank, SAVES if rank == 1 else WAITS).split("\n") for rank in range(3)]
    for number in range(max(map(len, texts))):
        rows += [f"[rank{rank}]: {text[number]}" for rank, text in enumerate(texts) if number < len(text) and text[number]]
    diagnosis = report_of("\n".join(rows) + "\n").diagnosis
    assert (diagnosis.reason, diagnosis.suspects.ranks) == ("hang", [1])


def test_a_dump_that_the_job_went_on_from_is_no_hang() -> None:
    dump = 'Timeout (0:00:30)!\nThread 0x00007f01 (most recent call first):\n  File "/app/train.py", line 9 in step\n'
    report = report_of(steps(1, 20) + dump + steps(21, 60))
    assert report.outcome == "healthy"
    assert report.diagnosis.dumps is not None


def test_the_stacks_of_a_crash_are_no_hang() -> None:
    report = report_of(
        steps(1, 20)
        + "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f01 (most recent call first):\n"
        + '  File "/app/train.py", line 9 in step\n  File "/app/train.py", line 20 in <module>\n'
    )
    assert report.diagnosis.reason == "native_crash"


def test_an_exception_of_one_rank_explains_the_stacks_of_those_who_wait() -> None:
    raised = (
        'Traceback (most recent call last):\n  File "/app/train.py", line 9, in <module>\n    f()\nTypeError: f() takes 2\n'
    )
    texts = [raised if rank == 2 else spied(100 + rank, WAITS) for rank in range(4)]
    diagnosis = report_of(*texts, names=names(4)).diagnosis
    assert diagnosis.reason == "type_error"


def test_names_of_functions_in_a_dump_are_no_messages() -> None:
    text = (
        "PID 4711 - process\nTID 4711:\n#0  0x00007f01 __GI_abort\n#1  0x00007f02 fatal_error_exit\n"
        "#2  0x00007f03 ncclCommAbort\n#3  0x00007f04 raise_out_of_memory\n"
    )
    assert report_of(text).diagnosis.reason in ("hang", "healthy")


@pytest.mark.parametrize(
    ("frames", "kind", "where"),
    [
        (["futex_wait .", "pthread_cond_wait libc.so.6", "ncclAllReduce libnccl.so.2"], "collective", "ncclAllReduce"),
        (["___pthread_cond_wait libc.so.6", "c10d::Work::wait libtorch_cpu.so"], "collective", "c10d::Work::wait"),
        (["java.lang.Thread.sleep ", "Reader.main Reader.java:6"], "sleep", "java.lang.Thread.sleep"),
        (["cuStreamSynchronize libcuda.so.1", "step train.py:9"], "GPU", "cuStreamSynchronize at train.py:9"),
        (
            ["cuStreamSynchronize libcuda.so.1", "barrier torch/distributed/distributed_c10d.py:4000", "step train.py:9"],
            "collective",
            "torch.distributed.distributed_c10d.barrier at train.py:9",
        ),
        (["recv_into ssl.py:1", "get s3.py:4", "main train.py:9"], "network", "ssl.recv_into at s3.py:4"),
        (["take_gil libpython3.11.so", "step train.py:9"], "GIL", "take_gil at train.py:9"),
        (["__GI___libc_read libc.so.6", "load train.py:9"], "file", "__GI___libc_read at train.py:9"),
        (["step train.py:9"], "own code", "step at train.py:9"),
        (
            ["read fsspec/spec.py:1", "fetch x.py:5", "_worker_loop torch/utils/data/_utils/worker.py:3"],
            "data worker",
            "torch.utils.data._utils.worker._worker_loop at x.py:5",
        ),
        (["wait threading.py:320", "rendezvous_barrier x.py:1"], "lock", "threading.wait at x.py:1"),
    ],
)  # fmt: skip
def test_where_a_stack_stands(frames: list[str], kind: str, where: str) -> None:
    thread = Thread("MainThread", "1", 1)
    for number, text in enumerate(frames, 2):
        function, _, place = text.rpartition(" ")
        file, _, line = place.partition(":")
        thread.add(Frame(function, file, int(line) if line else None), number)
    place_ = place_of(thread)
    assert place_ is not None
    assert (place_.kind.name, place_.where) == (kind, where)


# --- flight recorders ----------------------------------------------------------------------------------------------------


def test_the_rank_that_has_not_come_is_named_and_its_stack_says_where_it_is() -> None:
    dumps = recorded(*(recorder(entry(6, "completed"), *([] if rank == 3 else [entry(7)])) for rank in range(4)))
    diagnosis = report_of(*dumps, names=names(4, "trace_rank_{}")).diagnosis
    assert (diagnosis.reason, diagnosis.suspects.ranks) == ("hang", [3])
    assert diagnosis.summary.startswith("3 of 4 ranks wait in ALLREDUCE #7 of group 0 (default_pg); rank 3 has not come to it")
    with_stack = report_of(*dumps, spied(103, SAVES), names=(*names(4, "trace_rank_{}"), "pyspy_rank_3.txt")).diagnosis
    assert "rank 3 is at a checkpoint: torch.serialization.save at train.py:210" in with_stack.summary


def test_the_rank_that_brings_something_else_is_named() -> None:
    odd = entry(7, input_sizes=[[512, 8]])
    diagnosis = report_of(
        *recorded(*(recorder(odd if rank == 2 else entry(7)) for rank in range(4))), names=names(4, "trace_rank_{}")
    ).diagnosis
    assert diagnosis.suspects.ranks == [2]
    assert "do not bring the same" in diagnosis.summary
    assert "[[512, 8]]" in diagnosis.summary


def test_the_chain_is_followed_to_its_beginning() -> None:
    """Ranks 0 and 1 wait in group 0 for 2 and 3; rank 2 waits in group 9 for rank 3, which waits for nobody."""

    def of(*entries: dict[str, Any]) -> dict[str, Any]:
        found = recorder(*entries)
        found["pg_config"]["9"] = {"name": "9", "desc": "TENSOR", "ranks": [2, 3]}
        return found

    inner = entry(4, process_group=("9", "TENSOR"), pg_id=1)
    diagnosis = report_of(
        *recorded(of(entry(7)), of(entry(7)), of(entry(6, "completed"), inner), of(entry(6, "completed"))),
        names=names(4, "trace_rank_{}"),
    ).diagnosis
    assert diagnosis.suspects.ranks == [3]


def test_ranks_that_are_all_in_the_collective_accuse_nobody() -> None:
    diagnosis = report_of(*recorded(*(recorder(entry(7)) for _ in range(4))), names=names(4, "trace_rank_{}")).diagnosis
    assert (diagnosis.reason, diagnosis.suspects.ranks) == ("nccl_timeout", [])


def test_collectives_that_have_all_ended_are_no_hang() -> None:
    done = recorded(*(recorder(entry(7, "completed")) for _ in range(4)))
    assert report_of(*done, names=names(4, "trace_rank_{}")).outcome == "healthy"


def test_watchdogs_keep_the_answer_and_the_recorders_say_for_whom_they_wait() -> None:
    watchdog = (
        "[rank{0}]:[E304 05:06:07.123456789 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=8192, NumelOut=8192, Timeout(ms)=600000) ran for 600029 milliseconds "
        "before timing out.\n"
    )
    dumps = recorded(*(recorder(entry(6, "completed"), *([] if rank == 3 else [entry(7)])) for rank in range(4)))
    logs = [steps(1, 6) + (watchdog.format(rank) if rank != 3 else "") for rank in range(4)]
    diagnosis = report_of(*logs, *dumps, names=(*names(4, "rank_{}.log"), *names(4, "trace_rank_{}"))).diagnosis
    assert (diagnosis.reason, diagnosis.suspects.ranks) == ("nccl_timeout", [3])


if TRACES.is_dir():  # the corpus stands beside the checkout, and not everybody has it

    @pytest.mark.parametrize("case", ["gpu_error_1st", "gpu_error_2nd", "lock_gil_1st", "lock_gil_2nd"])
    @pytest.mark.parametrize("form", ["pickle", "JSON"])
    def test_the_ranks_in_which_faults_were_injected_are_found(case: str, form: str) -> None:
        injected = re.search(r"Fault ranks: \[([\d, ]+)\]", (TRACES / case / "fault_injection.log").read_text())
        assert injected is not None
        paths = [path for path in sorted((TRACES / case).glob("_dump_*")) if (path.suffix == ".json") == (form == "JSON")]
        sources = find([str(path) for path in paths]).sources
        texts = [b"".join(source.chunks()).decode() for source in sources]
        diagnosis = report_of(*texts, names=tuple(Path(source.name).name for source in sources)).diagnosis
        assert diagnosis.suspects.ranks == sorted(int(rank) for rank in injected[1].split(","))


# --- NCCL's RAS ----------------------------------------------------------------------------------------------------------

RAS = """Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  {error}

{body}"""


def test_ras_names_the_process_that_does_not_answer() -> None:
    body = (
        "Errors\n======\n\nINCOMPLETE\n  Missing communicator data from 1 job process\n"
        "  Process 3487 on node gpu-13 managing GPU 5\n\n#0-0 (cf264af53edbe986) INCOMPLETE\n"
        "  Missing communicator data from 1 rank\n  The missing rank: 21\n"
    )
    diagnosis = report_of(RAS.format(error="INCOMPLETE", body=body)).diagnosis
    assert (diagnosis.suspects.ranks, diagnosis.suspects.nodes) == ([21], ["gpu-13"])
    assert "rank 21 (gpu-13) does not answer" in diagnosis.summary


def test_ras_names_the_rank_that_has_launched_less() -> None:
    body = (
        "Warnings\n========\n\n#0-0 (78db921d1c117b4a) MISMATCH\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        "  31 ranks have launched up to operation 64\n"
        "  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650 on node gpu-2\n"
    )
    diagnosis = report_of(RAS.format(error="MISMATCH", body=body)).diagnosis
    assert diagnosis.suspects.ranks == [7]
    assert "rank 7 (gpu-2) has launched up to AllReduce operation 60" in diagnosis.summary


def test_ras_that_objects_to_nothing_is_no_failure() -> None:
    assert report_of(RAS.format(error="OK", body="")).outcome == "healthy"


# --- silence -------------------------------------------------------------------------------------------------------------

WATCHDOG = (
    "2026-01-02 03:{minute}:09 [rank{rank}]:[E102 03:{minute}:09.123456789 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog "
    "caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran "
    "for 600029 milliseconds before timing out.\n"
)


def test_the_rank_that_falls_silent_first_is_told() -> None:
    logs = []
    for rank in range(4):
        text = "".join(f"2026-01-02 03:04:0{second} loaded part {second} of the batch\n" for second in range(9))
        logs.append(text if rank == 2 else text + WATCHDOG.format(minute=14, rank=rank))
    diagnosis = report_of(*logs, names=names(4, "rank_{}.log")).diagnosis
    assert (diagnosis.reason, diagnosis.suspects.ranks) == ("nccl_timeout", [2])
    assert any("Rank 2 falls silent first, 10 min before any of the other 3 ranks." in note for note in diagnosis.notes)


def test_the_last_word_of_who_is_told_to_stop_breaks_no_silence() -> None:
    stop = (
        "2026-01-02 03:20:00 slurmstepd: error: *** STEP 881.0 ON g2 CANCELLED AT 2026-01-02T03:20:00 DUE TO TIME LIMIT ***\n"
    )
    text = "".join(f"2026-01-02 03:04:0{second} loaded part {second} of the batch\n" for second in range(9))
    logs = [text + (stop if rank == 2 else WATCHDOG.format(minute=14, rank=rank)) for rank in range(4)]
    diagnosis = report_of(*logs, names=names(4, "rank_{}.log")).diagnosis
    assert diagnosis.suspects.ranks == [2]
    assert any("Rank 2 falls silent first" in note for note in diagnosis.notes)


def test_the_rank_with_fewer_steps_is_told() -> None:
    logs = [steps(1, 18 if rank == 1 else 20) + WATCHDOG.format(minute=14, rank=rank) for rank in range(4)]
    diagnosis = report_of(*logs, names=names(4, "rank_{}.log")).diagnosis
    assert diagnosis.suspects.ranks == [1]
    assert any("Rank 1 reached step 18, the other 3 ranks step 20." in note for note in diagnosis.notes)


# --- bounds ------------------------------------------------------------------------------------------------------------------


def test_a_dump_survives_a_snapshot() -> None:
    from diagnose.compression.snapshot import StoredLine

    texts = [spied(100 + rank, SAVES if rank == 2 else WAITS) for rank in range(4)]
    job = job_of(*texts, names=names(4))
    rules = job.compression.matcher.rules
    kept = [
        StoredLine(line.source, line.line, line.text, rules[line.rule].id if line.rule >= 0 else None, line.cut)
        for line in job.compression.kept
    ]
    again = job_of(*("" for _ in texts), names=names(4))
    again.restore(job.snapshot(), kept)
    assert again.report().diagnosis.suspects.ranks == [2]


def test_thousands_of_processes_are_a_few_groups() -> None:
    texts = "".join(spied(1000 + rank, SAVES if rank == 77 else WAITS) for rank in range(3_000))
    diagnosis = report_of(texts).diagnosis
    assert diagnosis.dumps is not None
    assert sum(group.count for group in diagnosis.dumps.stacks) <= 3_000
    assert len(diagnosis.dumps.stacks) <= 2
