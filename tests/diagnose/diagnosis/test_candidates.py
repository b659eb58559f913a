"""Kept lines -> hypotheses: which exception of a chain is the cause, and what an exception's own words tell."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.candidates import transport_level
from tests.support.logs import RAISED, job_of, report_of, said, steps

MEANWHILE = "\nDuring handling of the above exception, another exception occurred:\n\n"
LOOKED_UP = "AttributeError: 'Net' object has no attribute 'weight'"


@pytest.mark.parametrize(
    ("first", "answer"),
    [("KeyError: 'weight'", ("attribute_error", 9)), ("ValueError: bad 'weight'", ("value_error", 3))],
    ids=["it only looked the attribute up", "it failed before"],
)
def test_the_cause_in_a_chain(first: str, answer: tuple[str, int]) -> None:
    assert said(RAISED.format(what=first) + MEANWHILE + RAISED.format(what=LOOKED_UP)) == answer


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("ZorchError: cannot connect to host", "connection_error"),
        ("ShelfError: permission denied", "permission_error"),
        ("ShelfError: it is Tuesday", "runtime_error"),
    ],
)
def test_an_exception_that_no_rule_knows_is_told_by_its_words(what: str, reason: str) -> None:
    assert said(RAISED.format(what=what))[0] == reason


BEGUN = 'Traceback (most recent call last):\n  File "/app/train.py", line 9, in <module>\n    run()\n'


STARTED = "starting up\nloading the tokenizer\nbuilding the model\n"


@pytest.mark.parametrize(
    ("log", "reason", "line"),
    [
        # A worker's header names the class, and its own traceback is cut.
        (
            f"{BEGUN}ConnectionError: Caught ConnectionError in DataLoader worker process 8.\nOriginal {BEGUN}",
            "connection_error",
            4,
        ),
        # What followed from an exception is cut.
        (
            f"{BEGUN}KeyError: 'x'\n\nThe above exception was the direct cause of the following exception:\n\n{BEGUN}",
            "key_error",
            4,
        ),
        # The line of the exception is lost; the line of the program that raised it is there.
        (BEGUN + '  File "/app/model.py", line 3, in run\n    raise ValueError(\n', "value_error", 5),
    ],
)
def test_what_a_cut_traceback_still_tells(log: str, reason: str, line: int) -> None:
    report = report_of(log)
    assert report.diagnosis.reason == reason
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.line == line


def test_a_traceback_that_the_end_of_the_log_cut_off_is_a_failure() -> None:
    report = report_of(
        steps(1, 30) + 'Traceback (most recent call last):\n  File "/app/train.py", line 9, in <module>\n    main()\n'
    )
    assert (report.outcome, report.diagnosis.reason) == ("failed", "unknown")
    assert any("within the traceback" in sentence for sentence in report.diagnosis.doubt)


@pytest.mark.parametrize("raised", [True, False], ids=["raised", "logged"])
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("RuntimeError: the engine at 10.0.0.4:80 is not healthy after 60 s", "connection_error"),
        ("OSError: timed out trying to connect to the frobnicator", "connection_error"),
        ("RuntimeError: the frobnicator is unhappy", "runtime_error"),
        ("KeyError: 'could not connect'", "key_error"),
    ],
)
def test_the_message_says_what_failed_if_the_class_says_nothing(what: str, reason: str, raised: bool) -> None:
    line = RAISED.format(what=what) if raised else f"{what}\n"
    assert report_of(STARTED + line).diagnosis.reason == reason


def test_a_level_that_every_line_carries_is_the_transports() -> None:
    job = job_of("".join(f"svc ERROR the worker says {n} of many things\n" for n in range(40)))
    events = job.evidence().events
    assert transport_level(events, job.compression) == "error"
    assert transport_level(events[:5], job.compression) is None
    mixed = job_of("".join(f"svc {'INFO' if n % 8 == 7 else 'ERROR'} the worker says {n} of many things\n" for n in range(40)))
    assert transport_level(mixed.evidence().events, mixed.compression) is None


def test_the_errno_that_a_fabric_prints_is_the_fabrics() -> None:
    log = "[gpu-3:4711] UCX  ERROR   ibv_create_qp(mlx5_0) failed: OSError: [Errno 5] Input/output error\n"
    assert said(log)[0] == "network_error"


def test_a_line_that_no_rule_knows_is_named_by_its_words_and_no_node_is_isolated_for_it() -> None:
    report = report_of("starting zorch 0.3\nERROR zorchd on node gpu-7: uncorrectable error in arena 3, giving up\n")
    assert (report.outcome, report.diagnosis.reason, report.diagnosis.by) == ("failed", "ecc_error", "none")
    assert report.action.nodes == []


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('ERROR: LoadError: SystemError: opening file "/opt/depot/x.ji": Permission denied', "permission_error"),
        ('ERROR: LoadError: SystemError: opening file "/opt/depot/x.jl": No such file or directory', "file_not_found_error"),
        ("ERROR: LoadError: This line of code cannot be reached", "runtime_error"),
        ('Exception in thread "main" java.io.IOException: No space left on device', "storage_error"),
        ("thread 'main' panicked at src/storage.rs:131:87:\nno space left on device (os error 28)", "storage_error"),
        (
            "terminate called after throwing an instance of 'Zorch'\n  what():  insufficient device memory\nAborted",
            "out_of_memory",
        ),
        ("thread 'main' panicked at src/lib.rs:7:5:\ncalled `Option::unwrap()` on a `None` value", "runtime_error"),
        ("thread 'main' panicked at src/b.rs:47:83:\nCuda(Cublas(CublasError(CUBLAS_STATUS_ALLOC_FAILED)))", "out_of_memory"),
    ],
    ids=[
        "julia, permission",
        "julia, file",
        "julia, no words",
        "java",
        "rust, next line",
        "c++",
        "rust, no words",
        "rust, a rule's line",
    ],
)
def test_the_message_says_more_than_the_runtime_that_prints_it(lines: str, reason: str) -> None:
    assert report_of("loading the model\nreading the settings\n" + lines + "\n").diagnosis.reason == reason
