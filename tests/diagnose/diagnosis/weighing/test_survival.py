"""What the survival promises: what ended a process is overcome by a new start only."""

from __future__ import annotations

import pytest

from tests.support.logs import RAISED, report_of, said, steps

STARTED = "starting up\nloading the tokenizer\nbuilding the model\n"


ANSWERED = '(Zorch pid=1) INFO:     10.0.0.1:4711 - "POST /v1/zorch HTTP/1.1" 200 OK\n'


REFUSED = """(Zorch pid=1) ERROR:    Exception in ASGI application
(Zorch pid=1) Traceback (most recent call last):
(Zorch pid=1)   File "/usr/lib/python3/dist-packages/uvicorn/protocols/http/h11_impl.py", line 403, in {function}
(Zorch pid=1)     result = await app(
(Zorch pid=1)   File "/app/zorch/checks.py", line 9, in check
(Zorch pid=1)     raise ZorchError("too long")
(Zorch pid=1) zorch.errors.ZorchError: too long
"""


CANCELLED = "slurmstepd: error: *** JOB 4711 ON gpu014 CANCELLED AT 2026-01-02T03:04:05 ***\n"


def test_a_bar_that_never_moved_is_no_progress_behind_the_death_of_a_process() -> None:
    full = RAISED.format(what="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.")
    log = "".join(
        "".join(f"[rank{rank}]: {line}\n" for line in full.splitlines())
        + f"[rank{rank}]:   0%|          | 0/1000 [00:29<?, ?it/s]\n"
        for rank in range(8)
    )
    assert (report_of(log).outcome, report_of(log).diagnosis.reason) == ("failed", "out_of_memory")
    anew = "".join(f"{n / 10:.0f}%|#         | {n}/1000 [00:29<01:00, 2.0it/s, loss=2.1]\n" for n in range(1, 60))
    assert report_of(log + anew).outcome == "healthy"


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("zorch: a label is missing\nmerging what is there\nclosing the writers\nrun complete, total time 33 s\n", "healthy"),
        ("zorch: a label is missing\nmerging what is there\nclosing the writers\n", "failed"),
        ("zorch: a label is missing\n" + "".join(f"taking part {n} of the cake\n" for n in range(6)), "healthy"),
        ("zorch: a label is missing\n" + "taking part of the cake\n" * 6, "failed"),
        ("zorch: crashed, exit code 3\nrun complete, total time 33 s\n", "failed"),
    ],
    ids=["says that it is done", "says nothing", "counts on", "repeats itself", "a script goes on after a death"],
)
def test_trouble_is_overcome_by_work_that_is_completed(end: str, outcome: str) -> None:
    assert report_of(STARTED + end).outcome == outcome


@pytest.mark.parametrize("lead", ["Error in atexit._run_exitfuncs:", "--- Logging error ---"])
def test_a_traceback_that_python_only_shows_ended_nothing(lead: str) -> None:
    shown = RAISED.format(what="ValueError: I/O operation on closed file").replace("<module>", "shutdown")
    assert report_of(f"{STARTED}{lead}\n{shown}").outcome == "healthy"


def test_two_late_iterations_do_not_overcome_a_time_limit() -> None:
    end = "slurmstepd: error: *** JOB 881234 ON gpu001 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n"
    assert said(steps(1, 30) + end + steps(31, 33))[0] == "preempted"


def test_ranks_that_print_on_do_not_overcome_the_one_that_raised() -> None:
    assert said(steps(1, 30) + RAISED.format(what="KeyError: 'x'") + steps(31, 35))[0] == "key_error"


def test_steps_that_fall_back_are_a_new_start() -> None:
    report = report_of(steps(1, 30) + RAISED.format(what="KeyError: 'x'") + steps(21, 60))
    assert (report.outcome, report.job.attempt) == ("healthy", 2)
    twice = report_of(
        steps(1, 30) + RAISED.format(what="KeyError: 'x'") + steps(21, 60) + RAISED.format(what="KeyError: 'y'") + steps(51, 90)
    )
    assert (twice.outcome, twice.job.attempt) == ("healthy", 3)


def test_what_python_held_back_until_its_exit_is_no_new_start() -> None:
    """Standard output into a file comes in buffers of 8 KiB, the last of them behind the traceback."""
    raised = RAISED.format(what="KeyError: 'x'")
    report = report_of("loading shard 3\n" + raised + steps(1, 30))
    assert (report.diagnosis.reason, report.diagnosis.step, report.job.attempt) == ("key_error", 30, 1)
    assert (
        said(raised + "reading the data\n" + steps(1, 30) + "srun: error: n1: task 0: Exited with exit code 1\n")[0]
        == "key_error"
    )
    assert said(steps(1, 200) + raised + steps(201, 250))[0] == "key_error"


@pytest.mark.parametrize(
    "later",
    [
        steps(1, 600),
        steps(1, 30) + "Training completed.\n",
        "".join(f"step {step}/30 loss 2.1\n" for step in range(1, 31)),
        steps(1, 30, clock="2026-01-02 03:04:05"),
        "".join(f"INFO step {step} loss 2.1\n" for step in range(1, 60)),
        "".join(f"{step}%|#  | {step}/100 [00:01<00:02, 2.0it/s, loss=2.1]\n" for step in range(1, 60)),
    ],
    ids=["more than a buffer", "a good end", "the last step", "with time stamps", "by a logger", "a bar"],
)
def test_what_was_not_held_back_is_a_new_start(later: str) -> None:
    assert report_of(RAISED.format(what="KeyError: 'x'") + later).outcome == "healthy"


def test_an_exception_that_the_interpreter_ignores_is_none_without_a_traceback_too() -> None:
    ignored = "Exception ignored in atexit callback: <function teardown at 0x7f2>\nConnectionResetError: [Errno 104] reset\n"
    assert report_of(steps(1, 30) + ignored).outcome == "healthy"


def test_a_harmless_line_is_no_failure_and_vouches_for_nothing() -> None:
    harmless = (
        "2026-01-02 03:04:05: W tensorflow/core/framework/local_rendezvous.cc:404] Local rendezvous is aborting with status"
    )
    end = harmless + ": OUT_OF_RANGE: End of sequence\n"
    assert report_of("Epoch 1/2\n" + end).outcome == "healthy"
    assert report_of("FATAL [scheduler] giving up on worker group 7\n" + end).outcome == "failed"


def test_a_server_that_refuses_a_request_answers_the_next_one() -> None:
    refused = REFUSED.format(function="run_asgi")
    assert report_of(ANSWERED * 20 + refused + ANSWERED * 20).outcome == "healthy"
    elsewhere = REFUSED.replace("uvicorn/protocols", "zorch/runner").format(function="<module>")
    assert report_of(ANSWERED * 20 + elsewhere + ANSWERED * 20).outcome == "failed"


def test_what_is_written_long_after_a_stop_is_another_run() -> None:
    more = "".join(f"zorch warns about part {n % 7}\n" for n in range(1200))
    assert report_of(more + CANCELLED + more).outcome == "healthy"
    assert said(more + CANCELLED + more[:2000])[0] == "preempted"
    failed = RAISED.format(what="ValueError: bad part")
    assert report_of(more + CANCELLED + more + failed).outcome == "failed"


WORKER = "(RolloutWorker pid=57{0}) {1}\n"
RAISES = "".join(
    WORKER.format("{0}", line)
    for line in (
        "ERROR:2026-03-26 22:20:09,180:no action for item 7",
        "Traceback (most recent call last):",
        '  File "/app/loop.py", line 88, in step',
        "ValueError: step 2 - no action in: what the model answered",
    )
)


def spoken(pid: int) -> str:
    kinds = ("an item", "a screen", "an answer", "a reward", "a cursor")
    return "".join(WORKER.format(pid, f"INFO:2026-03-26 22:21:{n},180:{kinds[n % 5]} of list {n}") for n in range(10, 40))


def test_a_process_that_logs_on_much_later_caught_what_it_shows() -> None:
    """One that is started anew has another number."""
    assert report_of(spoken(12) + RAISES.format(12) + spoken(12)).outcome == "healthy"
    assert report_of(spoken(12) + RAISES.format(12)).outcome == "failed"
    log = (
        RAISES.replace("/app/loop.py", "/app/main.py")
        .replace("in step", "in <module>")
        .replace("ERROR:2026-03-26 22:20:09,180:", "")
    )
    assert report_of(spoken(12) + log.format(12) + spoken(13)).diagnosis.reason == "value_error"
    assert report_of(spoken(12) + log.format(12) + spoken(12)).outcome == "failed", "a child of the one that logs on"


def test_the_same_number_on_another_node_is_another_process() -> None:
    there = spoken(12).replace("pid=5712", "pid=5712, ip=10.0.0.2")
    died = RAISED.format(what="RuntimeError: no more work")
    raised = "".join(f"(RolloutWorker pid=5712, ip=10.0.0.1) {line}\n" for line in died.splitlines())
    assert report_of(there + raised + there).outcome == "failed"


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: tracker could not be reached, giving up on uploading media",
        "[ERROR] prefetcher failed, terminating prefetcher, continuing without it",
        "ERROR: worker 2 is unresponsive, aborting its task and rescheduling",
    ],
)
def test_what_is_given_up_need_not_be_the_job(line: str) -> None:
    epochs = "".join(f"epoch {n}: loss {2.0 - n / 100:.3f}\n" for n in range(60))
    assert report_of(f"starting zorch\n{line}\n{epochs}test accuracy 0.91\n").outcome == "healthy"
