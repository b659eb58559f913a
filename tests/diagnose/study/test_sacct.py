"""What sacct printed, as runs. The payloads are from a real Slurm with its accounting daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.errors import SourceError
from diagnose.study.runs import Run
from diagnose.study.sacct import read, when
from tests.conftest import ROOT

PAYLOADS = ROOT / "tests/payloads"
HEAD = "JobIDRaw|JobName|State|Submit|Start|End|ElapsedRaw|AllocTRES|NodeList"


def runs(name: str) -> list[Run]:
    path = Path(PAYLOADS, name)
    with path.open() as file:
        return list(read(file, name))


def one(row: str, head: str = HEAD) -> Run:
    (run,) = read([f"{head}\n", f"{row}\n"], "history")
    return run


@pytest.mark.parametrize("name", ["sacct.txt", "sacct.json"])
def test_each_way_to_end_is_known(name: str) -> None:
    found = runs(name)
    assert [(run.name, run.state) for run in found if run.name not in ("array", "requeued")] == [
        ("pretrain-7b", "completed"),
        ("sft|odd name", "failed"),
        ("cancelled", "cancelled"),
        ("killed", "failed"),
        ("step", "failed"),
        ("timeout", "time_limit"),
        ("node fails", "node_failure"),
        ("runs", "running"),
        ("waits", "waiting"),
    ]
    assert [run.state for run in found if run.name == "requeued"] == ["requeued", "completed"]
    again = [run for run in found if run.name == "requeued"][-1]
    assert (again.elapsed_s, again.nodes, again.user) == (6.0, ("gpu-1", "gpu-2"), "root")
    assert again.started is not None
    assert again.waits_since is not None
    assert again.ended == again.started + 6


def test_tasks_of_an_array_have_the_name_that_their_logs_have() -> None:
    found = [run for run in runs("sacct.txt") if run.name == "array"]
    assert [(run.job, run.exit_code) for run in found] == [("5_1", "3:0"), ("5_2", "3:0")]


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("billing=96,cpu=96,gres/gpu=16,mem=2T,node=2", 16),
        ("cpu=96,gres/gpu:h100=16,gres/gpu=16,node=2", 16),
        ("cpu=96,gres/gpu:a100=4,gres/gpu:h100=4,node=1", 8),
        ("cpu=96,mem=2T,node=2", 0),
    ],
)
def test_gpus_are_counted_with_and_without_types(tres: str, gpus: int) -> None:
    assert one(f"7|x|FAILED|2026-11-01T00:00:00|2026-11-01T00:01:00|2026-11-01T01:01:00|3600|{tres}|n1").gpus == gpus


def test_a_number_without_an_end_is_no_number_of_gpus() -> None:
    assert one("7|FAILED|gres/gpu=" + "9" * 5000, "JobID|State|AllocTRES").gpus <= 999_999_999


def test_lines_may_end_with_the_sign_that_parts_them() -> None:
    run = one("7|x|FAILED|2026-11-01T00:00:00|2026-11-01T00:01:00|2026-11-01T01:01:00|3600||n[08-10]|", HEAD + "|")
    assert (run.name, run.nodes) == ("x", ("n08", "n09", "n10"))


def test_without_raw_seconds_the_time_is_read_as_written() -> None:
    assert one("7|FAILED|1-02:03:04", "JobID|State|Elapsed").elapsed_s == 93784
    assert one("7|FAILED|2026-11-01T00:00:00|2026-11-01T00:01:40", "JobID|State|Start|End").elapsed_s == 100


def test_times_of_people_and_of_slurm_are_one_clock() -> None:
    assert one("7|FAILED|2026-11-01T08:30:00", "JobID|State|Start").started == when("2026-11-01T08:30")


def test_other_files_are_refused_with_the_command_that_writes_the_right_one() -> None:
    for text in ("hello\n", '{"no": "jobs"}', "", '{"jobs": [1]}', '{"jobs": [{"time": 1}]}', '{"jobs": ' + "[" * 100_000):
        with pytest.raises(SourceError, match="sacct -a -X -D -P"):
            list(read([text], "history"))
