"""What the relations promise: of lines about one failure, the cause is the answer."""

from __future__ import annotations

import pytest

from tests.support.logs import RAISED, report_of, said, steps

STARTED = "starting up\nloading the tokenizer\nbuilding the model\n"


ANSWERED = '(Zorch pid=1) INFO:     10.0.0.1:4711 - "POST /v1/zorch HTTP/1.1" 200 OK\n'


CANCELLED = "slurmstepd: error: *** JOB 4711 ON gpu014 CANCELLED AT 2026-01-02T03:04:05 ***\n"


STOPPED = "(EngineCore pid=2) INFO 08-01 23:37:28 [core.py:1214] [shutdown] EngineCore: trigger received signal=SIGTERM\n"


DEAD = "(Server pid=1) ERROR 08-01 23:37:28 [async_llm.py:704] AsyncLLM output_handler failed.\n"


WORDS_OF_A_FILM = [
    f"{first}{second}" for first in ("Sun", "Moon", "Rain", "Snow", "Wind") for second in ("rise", "fall", "light")
] + [f"{first} {second}" for first in ("Red", "Blue", "Green", "Grey", "White") for second in ("river", "garden", "window")]


def test_of_one_message_the_line_that_says_plainly_what_failed_is_shown() -> None:
    report = report_of(STARTED + "error: zorch did not come\nzorch: could not connect to the frobnicator\n")
    assert report.diagnosis.reason == "connection_error"


def test_what_an_exception_says_again_was_said_first_by_the_line_before_it() -> None:
    said_first = "E0102 03:04:05.678901 27487 pjrt_stream_executor_client.cc:2826] Execution of replica 0 failed: {}\n"
    words = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2110783616 bytes."
    log = said_first.format(words) + RAISED.format(what=f"ValueError: {words}")
    assert report_of(log).diagnosis.root_cause.line == 1  # type: ignore[union-attr]


def test_a_message_below_a_summary_explains_a_bare_memory_error() -> None:
    """Paddle raises MemoryError without a word, and says below the C++ stack that it was the device's memory."""
    summary = (
        "\n--------\nC++ Traceback (most recent call last):\n--------\n0   paddle::add()\n\n--------\nError Message Summary:\n"
    )
    summary += (
        "--------\nResourceExhaustedError: \n\nOut of memory error on GPU 1. Cannot allocate 4.88GB memory on GPU 1, 19.9GB"
    )
    log = RAISED.format(what="MemoryError: ") + summary + " memory has been allocated and available memory is only 3.73GB.\n"
    assert said(log)[0] == "out_of_memory"
    assert said(RAISED.format(what="MemoryError: "))[0] == "host_out_of_memory"


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("=>> PBS: job killed: walltime 28871 exceeded limit 28800", "preempted"),
        ("slurmstepd: error: *** JOB 4711 ON gpu-01 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***", "preempted"),
    ],
)  # fmt: skip
def test_a_time_limit_is_no_work_of_a_small_error_before_it(stop: str, reason: str) -> None:
    small = "/var/spool/pbs/mom_priv/jobs/4711.SC: line 276: /work/hosts_4711.txt: No such file or directory\n"
    assert report_of(small + steps(1, 30) + stop + "\n").diagnosis.reason == reason


def test_a_task_that_crashed_explains_who_tells_that_it_is_gone() -> None:
    crashed = "srun: error: gpu003: task 15: Segmentation fault"
    told = (
        "2023-03-07 16:06:30.684022: E external/tsl/coordination_service.cc:956] /job:jax_worker/replica:0/task:15 "
        "has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:15 heartbeat timeout."
    )
    assert report_of(f"loading\n{crashed}\n{told}\n").diagnosis.reason == "native_crash"
    assert report_of(f"loading\n{told}\n{crashed}\n").diagnosis.reason == "nccl_remote_error"


def test_of_two_lines_about_a_peer_the_first_that_names_it_counts() -> None:
    recv = "gpu01:90114:90328 [1] misc/socket.cc:518 NCCL WARN Net : Call to recv from 10.1.0.15<41902> failed : Broken pipe\n"
    closed = "gpu01:90114:90289 [1] misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer gpu01.x.local<52217>\n"
    assert said(recv + "gpu01:90114:90328 [1] NCCL INFO proxy.cc:991 -> 6\n" * 6 + closed) == ("nccl_remote_error", 1)


def test_an_engine_that_was_told_to_end_did_not_die() -> None:
    served = ANSWERED * 30
    ending = "".join(f"(Server pid=1) the shelf of part {word} is put away\n" for word in WORDS_OF_A_FILM[:12])
    assert report_of(served + STOPPED + DEAD + ending).outcome == "healthy"
    assert report_of(served + DEAD + ending).outcome == "failed"


def test_the_exception_that_ended_the_process_is_the_root_and_not_one_that_was_caught_and_printed() -> None:
    caught = (
        "INFO:faiss.loader:Could not load library with AVX2 support due to:\n"
        "ImportError('/opt/lib/libfaiss_avx2.so: undefined symbol: __x')\n"
    )
    ended = (
        'Traceback (most recent call last):\n  File "/app/train.py", line 16, in <module>\n    import faiss\n'
        "ImportError: /opt/lib/libfaiss.so: undefined symbol: __x\n"
    )
    root = report_of(caught + ended).diagnosis.root_cause
    assert root is not None
    assert root.line == 6


@pytest.mark.parametrize(("level", "line"), [("W", 4), ("E", 1)], ids=["a warning", "an error"])
def test_an_exception_says_better_what_was_only_a_warning_before_it(level: str, line: int) -> None:
    """TensorFlow logs what an operation failed of; whether that ends anything, Python's exception says."""
    what = "OOM when allocating tensor with shape[2,64,400,112,112] and type float on /job:localhost/device:GPU:0"
    file = "tensorflow/core/framework/op_kernel.cc:1273"
    logged = f"2019-05-09 14:49:11.318542: {level} {file}] OP_REQUIRES failed : Resource exhausted: {what}\n"
    raised = (
        'Traceback (most recent call last):\n  File "train.py", line 152, in <module>\n'
        f"tensorflow.python.framework.errors_impl.ResourceExhaustedError: {what}\n"
    )
    assert said(logged + raised) == ("out_of_memory", line)
