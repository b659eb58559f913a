"""What a line that no rule knows is about."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.subjects import SUBJECTS, about
from diagnose.knowledge.taxonomy import shipped_taxonomy


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("frobd: write of shard 4 failed: no space left on device", "storage_error"),
        ("[zorch] peer 10.0.0.3: connection reset while sending", "connection_error"),
        ("zorchd: HCA mlx5_2 port 1 went down", "network_error"),
        ("accelerator 3: out of memory while growing the arena", "out_of_memory"),
        ("the agent was killed because the machine is low on memory", "host_out_of_memory"),
        ("queue manager: job 4711 was cancelled by its owner", "preempted"),
        ("overlay: broker on gpu-7 (rank 1) has been unresponsive for 34 s", "node_failure"),
        ("zorch: allreduce #7 timed out after 600 s", "nccl_timeout"),
        ("fatal: uncorrectable error in memory bank 3", "ecc_error"),
        ("option parser: unrecognized argument --frob", "argument_error"),
        ("loader: cannot open shared object libzorch.so.3", "import_error"),
        ("waiting for remainder of ranks for 60 s", "hang"),
    ],
)
def test_words_tell_plainly(line: str, reason: str) -> None:
    found = about(line)
    assert found is not None
    assert (found.reason, found.plain) == (reason, True)


def test_a_device_alone_is_only_vague() -> None:
    found = about("zorch: something is wrong with GPU 3")
    assert found is not None
    assert (found.reason, found.plain) == ("cuda_error", False)


@pytest.mark.parametrize(
    "line", ["epoch 3 of 12", "the frobnicator is unhappy", "ValueError: too many values to unpack (expected 2)"]
)
def test_words_that_tell_nothing(line: str) -> None:
    assert about(line) is None


def test_every_subject_names_a_reason() -> None:
    assert {one.reason for one in SUBJECTS} <= set(shipped_taxonomy().category_of)
