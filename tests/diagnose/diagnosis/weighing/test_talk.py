"""What the talk promises: what a handler printed is overcome where the program talks on calmly."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.weighing.talk import CALM
from tests.support.logs import RAISED, report_of, said

ROLLOUT = "[2026-01-02 03:0{0}:00] INFO rollout: episode 10{0} reward 12.{0}\n"


CAUGHT = (
    "[2026-01-02 03:04:30] ERROR env_worker: environment step failed, resetting\nTraceback (most recent call last):\n"
    '  File "/app/worker.py", line 88, in {0}\n    env.step(a)\nRuntimeError: physics diverged\n'
)


def test_a_record_of_many_lines_that_its_logger_calls_a_warning_is_no_wrapper() -> None:
    lead = "[2026-01-02 03:04:05,925] torch._dynamo.convert_frame: [WARNING]"
    handled = [
        "WON'T CONVERT forward model.py line 126",
        "due to:",
        "Traceback (most recent call last):",
        '  File "/opt/torch/_dynamo/utils.py", line 1397, in run_node',
        "    return node.target(*args, **kwargs)",
        "torch._dynamo.exc.TorchRuntimeError: Failed running call_function ones",
        "",
    ]
    log = "".join(f"{lead} {line}\n" for line in handled) + "TERM_RUNLIMIT: job killed after reaching LSF run time limit.\n"
    report = report_of(log)
    assert (report.diagnosis.reason, report.diagnosis.root_cause and report.diagnosis.root_cause.line) == ("preempted", 8)


def test_what_a_logger_shows_of_a_caught_exception_is_overcome_where_the_program_talks_on() -> None:
    calm = "".join(ROLLOUT.format(n) for n in range(5, 9))
    assert report_of(ROLLOUT.format(1) + (CAUGHT.format("_loop") + calm) * 2).outcome == "healthy"
    assert report_of(ROLLOUT.format(1) + CAUGHT.format("_loop")).diagnosis.reason == "runtime_error"  # nothing after it
    assert report_of(ROLLOUT.format(1) + CAUGHT.format("<module>") + calm).diagnosis.reason == "runtime_error"  # not caught


def test_a_message_under_its_announcement_is_not_overcome_by_lines_of_information() -> None:
    """They may be of what a program tidies before it ends."""
    calm = "".join(
        f"[2026-01-02 03:04:0{n}] {{x.py:3}} INFO - tidied the {what}\n" for n, what in enumerate(("room", "desk", "bed"))
    )
    log = "starting zorch\nERROR:zorch:save failed\nOSError: [Errno 28] No space left on device\n" + calm
    assert said(log) == ("storage_error", 3)


def test_a_failure_of_another_kind_after_it_leaves_a_caught_exception_a_suspect() -> None:
    calm = "".join(ROLLOUT.format(n) for n in range(5, 9))
    report = report_of(CAUGHT.format("_loop") + calm + "[2026-01-02 03:09:30] ERROR pool: worker 4 is gone, giving up\n")
    assert report.outcome == "failed"


def test_what_stands_below_a_warning_of_another_language_was_handled_with_it() -> None:
    boxed = '┌ Warning: failed to save plot, continuing\n│   exception = SystemError: opening file "/a": Permission denied\n'
    calm = "└ @ Main train.jl:88\n[ Info: Test accuracy: 0.921\n[ Info: wrote the table\n[ Info: bye\n"
    assert report_of(boxed + calm).outcome == "healthy"
    java = "2026-01-02 03:04:05 WARN Checkpoint: cannot delete the old one\njava.nio.file.NoSuchFileException: /ckpt/old\n"
    calm = "".join(f"2026-01-02 03:04:0{n} INFO Main: iteration {n}\n" for n in range(6, 9))
    assert report_of(java + "\tat trainer.Checkpoint.delete(Checkpoint.java:88)\n" + calm).outcome == "healthy"


def test_a_program_that_warns_of_an_exception_caught_it() -> None:
    warned = "Warning: Failed to load part 'a'. Error: [Errno 2] No such file or directory: '/data/a'\n" + "loading\n" * 12
    thread = "Exception in thread Thread-3 (_run):\n" + RAISED.format(what="AttributeError: it has no part")
    assert said(warned + thread)[0] == "attribute_error"


def test_a_rule_of_dashes_with_a_letter_in_it_costs_nothing() -> None:
    """What looks for a level at a line's beginning once tried each way to read the dashes as words: such a log took minutes."""
    text = f"""\
        Traceback (most recent call last):
          File "/opt/venv/bin/torchrun", line 8, in step
            sys.exit(main())
        torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
        /workspace/train.py FAILED
        {"-" * 60}m{"-" * 60}
        Root Cause (first observed failure):
        [0]:
          exitcode  : 1 (pid: 4100)
        """
    assert said(text)[0] == "called_process_error"


@pytest.mark.parametrize(
    ("line", "calm"),
    [
        ("INFO ready", True),
        ("[INFO] ready", True),
        ("2026-03-04 05:06:07,123 - launcher - INFO - ready", True),
        ("2026-03-04T05:06:07-INFO ready", True),
        ("a:INFO - DEBUG", True),
        ("[rank0] 05:06:07 | INFO | ready", True),
        ("--- INFO", True),
        ("[ Info: ready", True),
        ("one two three four INFO", False),
        ("INFORMATION", False),
        ("-" * 5000, False),
        ("a-" * 5000, False),
    ],
)
def test_a_calm_line_has_its_level_near_its_beginning(line: str, calm: bool) -> None:
    assert bool(CALM.match(line)) is calm


AIRFLOW = "[2024-05-01T10:0{0}:00.000+0000] {{taskinstance.py:1159}} INFO - {1}\n"
TIMED_OUT = (
    "[2024-05-01T10:00:05.000+0000] {taskinstance.py:1824} ERROR - Task failed with exception\n"
    "Traceback (most recent call last):\n"
    '  File "/opt/airflow/dags/etl.py", line 20, in pull\n    r = requests.get(url)\n'
    "requests.exceptions.ConnectTimeout: no answer\n"
)


def test_whose_logger_puts_the_file_before_its_level_talks_too() -> None:
    again = "".join(
        AIRFLOW.format(n, what) for n, what in enumerate(("Marking task as UP_FOR_RETRY", "Starting attempt 2 of 3"))
    )
    ended = AIRFLOW.format(2, "Marking task as SUCCESS")
    over = AIRFLOW.format(3, "Marking task as FAILED") + AIRFLOW.format(3, "Task exited with return code 1")
    assert report_of(TIMED_OUT + again + ended).outcome == "healthy"
    assert said(TIMED_OUT + over) == ("connection_error", 5)


S3 = '2024-05-01 10:00:0{0} ERROR s3: Read timeout on endpoint URL: "https://s3.example.com/b/k" (attempt {0}/3)\n'


def test_of_several_attempts_one_that_is_not_the_last_is_overcome_where_the_program_talks_on() -> None:
    calm = "".join(f"2024-05-01 10:00:1{n} INFO s3: downloaded shard-{n}.tar\n" for n in range(3))
    assert report_of(S3.format(1) + S3.format(2) + calm).outcome == "healthy"
    assert report_of(S3.format(1) + S3.format(2) + S3.format(3) + calm[:60]).outcome == "failed"
    assert report_of(S3.format(1) + S3.format(2)).outcome == "failed"
