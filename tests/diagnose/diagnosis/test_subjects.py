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
        ("zorchd: memory 9 GB exceeded limit 8 GB, ending the step", "host_out_of_memory"),
        ("zorch: not enough device memory for the arena", "out_of_memory"),
        ("zorch-launch: not enough slots for 16 processes", "argument_error"),
        ("zorchd: the node gpu-7 has died", "node_failure"),
        ("zorch: the job was killed by its owner", "preempted"),
        ("zorch: no capacity: unable to provision 8 machines, insufficient capacity", "preempted"),
        ("zorch: recv timeout on rank 3", "nccl_timeout"),
        ("zorch: engine at 10.0.0.4:80 is not healthy after 60 s", "connection_error"),
        ("zorchnic: port 3 link is down", "network_error"),
        ("zorchfs: storage target 7 is offline", "storage_error"),
        ("zorch: could not find a version of libzorch that fits", "import_error"),
        ("zorch: device is not operational, reset under way", "cuda_error"),
        ("zorch.sh: line 4: ZORCH: unbound variable", "name_error"),
        ("zorch: NaN detected in layer 3", "loss_anomaly"),
        ("zorch only supports GPUs of this year", "argument_error"),  # the GPU is not at fault
        ("zorch: insufficient zorch.io/gpu", "argument_error"),
        ("zorch: uncorrected error in bank 3", "ecc_error"),
        ("zorch: cannot identify image part-7", "dataset_loading_error"),
        ("zorch: transport retry counter exceeded", "network_error"),
        ("zorch: timed out trying to connect", "connection_error"),
        ("zorch: no rule to make target x", "file_not_found_error"),
        ("zorch: cannot send message 7 as the link is broken", "connection_error"),
        ("zorch: failed to parse the onnx graph", "model_loading_error"),
        ("zorch: job 7 has exceeded its memory allocation on n7", "host_out_of_memory"),
        ("zorch: cudaMalloc failed: out of memory", "out_of_memory"),
        ("zorch: DriverFault(CUDA_ERROR_NOT_SUPPORTED)", "cuda_error"),
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
    "line",
    [
        "epoch 3 of 12",
        "the frobnicator is unhappy",
        "ValueError: too many values to unpack (expected 2)",
        "zorch: health check failed",  # no assertion
        "zorch: system status check failed",
        "zorch: cannot use cuda/12.9",  # the name of software, no device
        "preemption: 0 of 14 are candidates",
    ],
)
def test_words_that_tell_nothing(line: str) -> None:
    assert about(line) is None


def test_every_subject_names_a_reason() -> None:
    assert {one.reason for one in SUBJECTS} <= set(shipped_taxonomy().category_of)


def test_a_server_that_is_not_ready_yet_is_no_lost_node() -> None:
    found = about("zorch: node 10.0.0.7:8000 is not ready yet")
    assert found is None or found.reason != "node_failure"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Error: the grid requires more system memory (42 GiB) than is available", "host_out_of_memory"),
        ("ERROR: ZorchCudaArena: cudaArena out of memory", "out_of_memory"),
        ("Error: zorch is out of GPU and shared memory", "out_of_memory"),
        ("zorch.rb:4:in `run': undefined method `strip' for nil (NoMethodError)", "attribute_error"),
        ("zorch.lua:8: attempt to index local 'x' (a nil value)", "attribute_error"),
        ("** (KeyError) key :width not found in: %{}", "key_error"),
        ("error: 'frobnicate' undefined", "name_error"),
        ("zorch: could not find required keyword: Width", "argument_error"),
        ("zorch: couldn't open input file part.7", "file_not_found_error"),
        ("clip.mp4: Invalid data found when processing input", "dataset_loading_error"),
        ("zorch: DeviceLostError in queue 3", "cuda_error"),
    ],
)
def test_words_of_other_languages_and_programs(line: str, reason: str) -> None:
    found = about(line)
    assert found is not None
    assert (found.reason, found.plain) == (reason, True)


def test_an_archive_that_ends_early_is_no_error_of_syntax() -> None:
    assert about("tar: Unexpected EOF in archive") is None


def test_a_run_that_is_terminated_is_not_preempted_for_that() -> None:
    assert about("Convergence failure -- run terminated.") is None
    stopped = about("zorch.sh: line 4: 4711 Terminated")
    assert stopped is not None
    assert stopped.reason == "preempted"
