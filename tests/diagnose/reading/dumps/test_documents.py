"""Files that are one dump: what they are taken for, what the log keeps of them, and what hostile ones do."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from diagnose.reading.dumps import documents
from diagnose.reading.dumps.flight_recorder import FlightReader, FlightRecord, lines, of_data
from diagnose.reading.dumps.ras import RasReader
from diagnose.reading.dumps.reader import DumpReader
from diagnose.reading.sources import Source, find


def entry(number: int, state: str = "scheduled", **more: Any) -> dict[str, Any]:
    """A collective as PyTorch 2.5 and later record it."""
    return {
        "frames": [{"name": "step", "filename": "/app/train.py", "line": 88}],
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_700_000_000_000_000_000 + number,
        "input_sizes": [[1024, 8]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[1024, 8]],
        "output_dtypes": ["BFloat16"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
        **more,
    }


def recorder(*entries: dict[str, Any], ranks: str = "[0, 1, 2, 3]") -> dict[str, Any]:
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {},
        "entries": list(entries),
    }


def records(texts: list[str]) -> list[FlightRecord]:
    reader = FlightReader()
    for line, text in enumerate(texts, 1):
        assert reader.feed(line, text), text
    return reader.records


@pytest.mark.parametrize("write", [pickle.dumps, lambda data: json.dumps(data).encode()], ids=["pickle", "JSON"])
def test_a_flight_recorder_says_the_same_from_its_pickle_and_its_json(write: Any) -> None:
    data = write(recorder(entry(6, "completed"), entry(7), entry(8, profiling_name="nccl:_all_gather_base")))
    kind = documents.recognised(data[:4096])
    assert kind is not None
    (record,) = records(documents.lines(kind, data, "/tmp/nccl_trace_rank_3"))
    assert record.rank == 3
    assert [(one.number, one.op, one.state) for one in record.open] == [
        (7, "nccl:all_reduce", "scheduled"),
        (8, "nccl:_all_gather_base", "scheduled"),
    ]
    group = record.groups["0"]
    assert (group.ranks, group.recorded, group.completed) == ((0, 1, 2, 3), 8, 6)
    assert record.open[0].frames[0].line == 88


def test_what_the_log_keeps_can_be_read_back() -> None:
    record = of_data(recorder(*(entry(n, "completed" if n < 5 else "started") for n in range(400))), 12)
    (again,) = records(list(lines(record)))
    assert again.rank == record.rank
    assert [(one.number, one.sizes, one.frames) for one in again.open] == [
        (one.number, one.sizes, one.frames) for one in record.open
    ]
    assert len(record.open) == 100  # of many the first


def needs_torch() -> None:
    """The processes of a test import PyTorch, and this one need not."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: pip install torch")


def test_pytorch_itself_writes_what_is_read(tmp_path: Path) -> None:
    """Three processes with the back end gloo, one of which does not come to the second collective."""
    needs_torch()
    (tmp_path / "job.py").write_text(
        """
import os, time, torch, torch.distributed as dist
from torch._C import _distributed_c10d as c10d
if not hasattr(c10d, "_dump_fr_trace"):
    raise SystemExit(77)

def train(rank):
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("meet"), rank=rank, world_size=3)
    dist.all_reduce(torch.ones(4))
    if rank != 1:
        work = dist.all_reduce(torch.ones(8), async_op=True)
    time.sleep(1)
    open(f"trace_rank_{rank}", "wb").write(c10d._dump_fr_trace())
    time.sleep(2)

def rank_process(rank):  # PyTorch takes seconds to import: once is enough
    child = os.fork()
    if child == 0:
        code = 1
        try:
            train(rank)
            code = 0
        finally:
            os._exit(code)
    return child

for child in [rank_process(rank) for rank in range(3)]:
    assert os.waitpid(child, 0)[1] == 0
"""
    )
    environment = {**os.environ, "TORCH_NCCL_TRACE_BUFFER_SIZE": "100", "TORCH_FR_BUFFER_SIZE": "100"}
    code = subprocess.run([sys.executable, "job.py"], cwd=tmp_path, env=environment, timeout=180).returncode
    if code == 77:
        pytest.skip("this version of PyTorch cannot dump its recorder from Python")
    assert code == 0
    found: dict[int | None, FlightRecord] = {}
    for source in find([str(tmp_path / f"trace_rank_{rank}") for rank in range(3)]).sources:
        (record,) = records(b"".join(source.chunks()).decode().splitlines())
        found[record.rank] = record
    assert sorted(found, key=str) == [0, 1, 2]
    assert [one.op for one in found[0].open] == ["gloo:all_reduce"]
    assert found[1].open == []
    assert found[0].open[0].number == 2
    assert any(frame.file.endswith("job.py") for frame in found[0].open[0].frames)


def test_py_spys_json_is_read_as_its_text() -> None:
    threads = [
        {
            "pid": 4711,
            "thread_id": 140205384505024,
            "thread_name": "MainThread",
            "os_thread_id": 4711,
            "active": False,
            "owns_gil": True,
            "frames": [{"name": "step", "filename": "/app/train.py", "short_filename": "train.py", "line": 88, "locals": None}],
            "process_info": None,
        }
    ]
    data = json.dumps(threads, indent=2).encode()
    assert documents.recognised(data) == "py-spy"
    reader = DumpReader()
    for line, text in enumerate(documents.lines("py-spy", data, "x.json"), 1):
        assert reader.feed(line, text) or "Process" in text
    (dump,) = reader.dumps.stacks
    assert (dump.pid, dump.threads[0].frames[0].function, dump.threads[0].frames[0].line) == (4711, "step", 88)


def test_the_error_file_of_torchelastic_becomes_the_traceback(tmp_path: Path) -> None:
    """Written by torchelastic itself where PyTorch is installed."""
    needs_torch()
    script = (
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n    raise KeyError('no such shard')\nmain()\n"
    )
    (tmp_path / "train.py").write_text(script)
    path = tmp_path / "error.json"
    environment = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(path)}
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, timeout=180)
    (source,) = find([str(path)]).sources
    text = b"".join(source.chunks()).decode()
    assert "torchelastic error file" in text.splitlines()[0]
    assert text.rstrip().endswith("KeyError: 'no such shard'")
    assert f'File "{tmp_path / "train.py"}", line 4, in main' in text or "line 4, in main" in text


def test_the_json_of_ras_says_what_its_text_says() -> None:
    def rank(number: int, count: int) -> dict[str, Any]:
        counts = {"Broadcast": 1, "AllReduce": count}
        return {"rank": number, "host": f"10.0.0.{number}", "pid": 100 + number, "cuda_dev": 0, "collective_counts": counts}

    report = {
        "nccl_version": "2.29.1",
        "communicators": [
            {
                "hash": "0xae94423cfbb2ef4a",
                "size": 5,
                "ranks": [rank(0, 64), rank(1, 64), rank(2, 60), rank(3, 64)],
                "missing_ranks": [{"rank": 4, "host": "10.0.0.9", "pid": 109, "cuda_dev": 1, "status": {"unresponsive": True}}],
            }
        ],
    }
    data = json.dumps(report, indent=2).encode()
    assert documents.recognised(data) == "ras"
    reader = RasReader()
    for line, text in enumerate(documents.lines("ras", data, "ras.json"), 1):
        assert reader.feed(line, text), text
    (found,) = reader.reports
    silent, uneven = found.communicators
    assert (silent.what, silent.missing, silent.node_of) == ("INCOMPLETE", [4], {4: "10.0.0.9"})
    assert (uneven.what, uneven.op, uneven.behind) == ("MISMATCH", "AllReduce", [2])


# --- hostile, damaged, or something else -------------------------------------------------------------------------------------


def test_a_pickle_that_is_no_plain_data_is_a_problem_and_nothing_runs(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "was-here"),)

    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"version": "2.9", "pg_config": {}, "entries": [Bomb()]}))
    (source,) = find([str(path)]).sources
    assert b"".join(source.chunks()) == b""
    assert source.problem is not None
    assert "more than hold plain data" in source.problem
    assert not (tmp_path / "was-here").exists()


@pytest.mark.parametrize(
    "data",
    [
        b'{"pg_config": ' + b"[" * 200_000,
        b'{"pg_config": {}, "entries": [' + b'{"a":' * 50_000,
        b'{"pg_config": 3}',
        b'{"pg_config": {}, "entries": "none"}',
        b'[{"frames": 3, "thread_id": 1',
        b'{"message": {"message": 3, "extraInfo": []}}',
        b'{"communicators": 7, "nccl_version": "2.28"}',
        b'{"pg_config": "\xff\xfe"}',
    ],
)
def test_what_cannot_be_read_as_a_dump_is_an_ordinary_file(data: bytes, tmp_path: Path) -> None:
    assert documents.recognised(data) is not None
    path = tmp_path / "rank0.log"
    path.write_bytes(data)
    source = Source(str(path), path)
    assert b"".join(source.chunks()) == data
    assert source.problem is None


def test_strange_values_are_taken_for_what_they_are() -> None:
    strange: list[Any] = [
        entry(1, process_group=3),
        entry(2, process_group=("a\nb", '"x" | y')),
        entry(3, profiling_name=None, input_sizes="x" * 10_000, input_dtypes={"a": 1}),
        entry(True),
        entry(10**30),
        entry(4, frames=[None, 3, {"name": "f(" * 100, "filename": "a)b", "line": "x"}]),
        "entry",
        None,
    ]
    record = of_data({"version": ["x"], "pg_config": [1], "pg_status": "x", "entries": strange}, None)
    texts = list(lines(record))
    assert all("\n" not in text and len(text) < 1_000 for text in texts)
    (again,) = records(texts)
    assert [one.number for one in again.open] == [1, 2, 3, 4]


def test_a_file_that_is_too_large_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LARGEST", 10_000)
    data = pickle.dumps(recorder(*(entry(n) for n in range(200))))
    path = tmp_path / "trace_0"
    path.write_bytes(data)
    source = Source(str(path), path)
    assert b"".join(source.chunks()) == b""
    assert "larger" in str(source.problem)
    path.write_bytes(json.dumps(recorder(*(entry(n) for n in range(200)))).encode())
    source = Source(str(path), path)
    assert b"".join(source.chunks()) == path.read_bytes()


def test_other_pickles_and_json_logs_are_what_they_were(tmp_path: Path) -> None:
    assert documents.recognised(pickle.dumps({"weights": [1.0, 2.0]})) is None
    assert documents.recognised(b'{"message": "step 1", "level": "info"}\n{"message": "step 2"}\n') is None
    (tmp_path / "args.pkl").write_bytes(pickle.dumps({"lr": 0.1}))
    (tmp_path / "trace_3.pkl").write_bytes(pickle.dumps(recorder(entry(1))))
    (tmp_path / "trace_4.gz").write_bytes(gzip.compress(json.dumps(recorder(entry(1))).encode()))
    names = [Path(source.name).name for source in find([str(tmp_path)]).sources]
    assert names == ["trace_3.pkl", "trace_4.gz"]
