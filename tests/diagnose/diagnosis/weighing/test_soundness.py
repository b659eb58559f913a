"""What the soundness promises: healthy is a finding, with evidence of its own."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.doubt import NO_END
from tests.support.logs import RAISED, report_of, said, steps


def test_a_program_that_ends_well_says_nothing_of_its_numbers() -> None:
    losses = [1 / (n + 1) + 0.1 * (n % 3) for n in range(120)] + [3000.0 * n for n in range(120, 160)]
    spiked = "".join(f"step: {n} | loss: {loss:.6f} | lr: 0.02\n" for n, loss in enumerate(losses))
    report = report_of(spiked + "training finished\n")
    assert (report.outcome, report.diagnosis.reason) == ("failed", "loss_anomaly")


@pytest.mark.parametrize(
    "line",
    [
        "[{step}/60] train_loss {loss} acc 0.3",
        "epoch 1 step {step}/60 loss {loss} lr 0.0100",
        "Epoch {step}: Loss = {loss}",
        "INFO:root:[step {step}/60] avg_loss {loss}",
        "2026-01-02 03:04:05,678 - INFO - __main__ - step {step}/60 loss: {loss}",
    ],
)
def test_a_loss_that_is_no_number_to_the_last_step_is_no_good_end(line: str) -> None:
    log = "".join(line.format(step=step, loss=f"{2 / step:.4f}" if step < 15 else "nan") + "\n" for step in range(1, 61))
    assert said(log)[0] == "loss_anomaly"
    assert report_of(log.replace("nan", "0.1212")).outcome == "healthy"


def test_steps_of_a_list_of_things_to_do_are_no_progress() -> None:
    said_so = "The log shows no step, no loss and no progress bar."
    things = ("load the data", "train the tokenizer", "build the model", "check it 4 times")
    log = "".join(f"INFO:root:Step {number}: {what}\n" for number, what in enumerate(things, 1))
    assert said_so in report_of(log).diagnosis.doubt
    assert said_so not in report_of(log + "".join(f"INFO:root:Step {n}: loss {2 / n}\n" for n in range(1, 9))).diagnosis.doubt


def test_a_word_of_failure_behind_a_good_end_takes_nothing_from_it() -> None:
    ended = steps(1, 40) + "Training completed successfully\n"
    swept = report_of(ended + "error: could not delete /tmp/x\n").diagnosis
    assert (swept.reason, swept.confidence) == ("healthy", report_of(ended).diagnosis.confidence)


def test_a_quiet_log_is_healthy_and_says_what_it_has_not_seen() -> None:
    report = report_of(steps(1, 60))
    assert (report.outcome, report.diagnosis.reason) == ("healthy", "healthy")
    assert NO_END in report.diagnosis.doubt


@pytest.mark.parametrize(("code", "outcome"), [("0", "healthy"), ("3", "failed")])
def test_who_leaves_with_0_has_not_failed(code: str, outcome: str) -> None:
    assert report_of("serving\n" * 3 + RAISED.format(what=f"SystemExit: {code}")).outcome == outcome


def test_a_program_that_refuses_to_continue_does_not_end_well() -> None:
    last = "zorch: fatal error in bracketing\nplease copy the positions\n---> I REFUSE TO CONTINUE WITH THIS JOB ... BYE!!!\n"
    assert report_of("step by step\n" * 12 + last).outcome == "failed"


LIGHT = "libEGL warning: MESA-LOADER: failed to open swrast: /usr/lib/dri/swrast_dri.so: cannot open shared object file\n"


def test_lines_that_count_up_to_the_end_are_progress_whatever_they_count() -> None:
    work = "".join(f"episode {n}0 reward {n}.5\n" for n in range(1, 7))
    assert report_of(LIGHT + work).outcome == "healthy"
    assert report_of(work + LIGHT.replace("warning", "error")).outcome == "failed"


def test_a_program_that_died_in_its_last_lines_has_no_calm_end() -> None:
    log = "".join(f"2024-05-01 10:0{n}:00,000 - INFO - trainer - step {n} loss 2.{n}\n" for n in range(8))
    assert report_of(log + RAISED.format(what="EOFError")).outcome == "failed"
