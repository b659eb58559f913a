"""Faults that no line states: when they are seen, and above all when not."""

from __future__ import annotations

import math
import random

import pytest

from diagnose.diagnosis.detectors import findings
from diagnose.diagnosis.detectors.course import Anomaly, Course, Silence, steps_of
from diagnose.matching.series import Column, Series
from tests.support.logs import report_of, said, steps


def series(values: list[float], room: int = 512) -> Series:
    column = Column.empty()
    for number, value in enumerate(values, 1):
        column.append(float(number), value, number * 2, 0, 0)
    result = Series(room)
    result.extend(column)
    return result


def found(*, running: bool = False, **values: list[float]) -> list[Anomaly]:
    return findings(Course({name: (0, series(numbers)) for name, numbers in values.items()}, running=running))


def falling(count: int, noise: float = 0.02, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [2 + 8 * math.exp(-n / (count / 4)) + chance.gauss(0, noise) for n in range(count)]


def alarms(*, running: bool = False, **values: list[float]) -> list[Anomaly]:
    return [anomaly for anomaly in found(running=running, **values) if anomaly.reason is not None]


def test_a_loss_that_rises_and_stays() -> None:
    (anomaly,) = alarms(loss=[*falling(100), 7.3, 8.7, 7.6, 7.1, 6.9])
    assert (anomaly.reason, anomaly.step, anomaly.last_step, anomaly.line) == ("loss_anomaly", 101, 105, 202)


@pytest.mark.parametrize("count", [30, 300, 5000])
def test_a_rise_is_found_in_a_log_of_any_length(count: int) -> None:
    (anomaly,) = alarms(loss=falling(count) + [9.0] * max(5, count // 20))
    assert anomaly.step is not None
    assert abs(anomaly.step - count) <= max(1, count // 256)


def test_a_loss_that_is_not_a_number_any_more() -> None:
    (anomaly,) = alarms(loss=falling(50) + [math.nan] * 5)
    assert (anomaly.step, anomaly.sentence) == (51, "The loss is not a number from step 51 on.")


def test_a_loss_that_rose_before_it_was_lost_went_wrong_where_it_rose() -> None:
    """A roll-back must leave out what made it rise."""
    (anomaly,) = alarms(loss=[*falling(50), 9.0, 40.0, 3e3, 1e7, *[math.nan] * 5])
    assert (anomaly.step, anomaly.last_step) == (51, 59)
    assert anomaly.sentence.endswith("at step 51 and stayed there. The loss is not a number from step 55 on.")


def test_a_gradient_that_is_not_a_number_with_a_loss_of_zero() -> None:
    (anomaly,) = alarms(loss=[1.2, 1.19, 3.9, 11.8, 0, 0, 0, 0], grad_norm=[0.8, 1.0, 214, 9120, *[math.nan] * 4])
    assert anomaly.step == 5


def test_a_loss_and_a_gradient_that_are_zero_from_the_first_value() -> None:
    zeros = [0.0] * 12
    (anomaly,) = alarms(loss=zeros, grad_norm=zeros)
    assert (anomaly.step, anomaly.line) == (1, 2)
    assert anomaly.sentence == "The loss and the gradient norm are exactly zero in all 12 values: nothing is learned."
    assert not alarms(loss=zeros[:9], grad_norm=zeros[:9])  # a warm-up may begin so
    assert not alarms(loss=[*zeros, 0.1], grad_norm=[*zeros, 0.1])
    assert not alarms(loss=zeros, grad_norm=[0.2] * 12)  # a policy's loss is often zero, and its gradient is not
    assert not alarms(loss=zeros, grad_norm=zeros, reward=zeros)
    assert not alarms(loss=zeros)


def test_steps_that_are_all_skipped() -> None:
    steps = [float(step) for step in range(50, 1050, 50)]
    (anomaly,) = alarms(step=steps, skipped_steps=steps)
    assert anomaly.sentence == "Of 1,000 steps 1,000 were skipped: nothing is trained."
    assert not alarms(step=steps, skipped_steps=[min(step, 60.0) for step in steps])
    assert not alarms(step=steps[:1], skipped_steps=steps[:1])  # the loss scale is still looked for


def test_a_loss_scale_at_its_floor() -> None:
    (anomaly,) = alarms(loss=falling(20), loss_scale=[65536, 32768, 4096, 512, 8, 1, 1, 1, 1, 1])
    assert anomaly.step == 6
    assert alarms(loss_scale=[2.5] * 5 + [1.0] * 5)[0].step == 6
    assert alarms(loss_scale=[2.0] * 5 + [1.0] * 5) == [], "it began as low as it is"


@pytest.mark.parametrize(
    "loss",
    [
        falling(200),
        falling(200, noise=0.5),
        [0.7 + random.Random(2).gauss(0, 0.4) for _ in range(100)],
        [*falling(100), 9.0, *falling(100)[-60:]],
        [9.0, 10.5, 10.9, 10.2, 9.5, *falling(100)],
        [*falling(60), math.nan, *falling(60)[-20:]],
        [*falling(100), *falling(100)],
        [*falling(120)[100:], *[0.0] * 40, *falling(200, noise=0.3)[120:]],
        [2.0] * 50,
        [0.0] * 50,
        [-1.0 - n / 50 for n in range(50)],
        [2.0],
        [math.nan],
        [],
    ],
    ids=[
        "clean",
        "noisy",
        "very noisy",
        "one spike",
        "warm-up",
        "one nan",
        "restart",
        "batches left out",
        "flat",
        "zero",
        "negative",
        "one",
        "one nan only",
        "none",
    ],
)
def test_no_alarm(loss: list[float]) -> None:
    assert alarms(loss=loss) == []


@pytest.mark.parametrize("noise", [0.02, 0.3])
def test_a_job_that_runs_is_given_time_to_come_down(noise: float) -> None:
    """A spike of twenty steps, seen at each of its steps: a roll-back would throw away what heals by itself."""
    course = [*falling(100, noise), *[9.0] * 20, *falling(200, noise)[120:]]
    for seen in range(len(course)):
        assert alarms(running=True, loss=course[:seen]) == [], seen
    (told,) = found(running=True, loss=course[:105])
    assert told.sentence.endswith("to 9 at step 101; it has not come down yet.")
    assert len(alarms(loss=course[:105])) == 1, "it ended there"


def test_a_job_that_runs_and_does_not_come_down_is_an_alarm() -> None:
    (anomaly,) = alarms(running=True, loss=falling(100) + [9.0] * 32)
    assert (anomaly.step, anomaly.last_step) == (101, 132)


@pytest.mark.slow
def test_batches_left_out_are_no_level_to_rise_from() -> None:
    """Seen at each step: what a trainer prints for batches that it skips after a roll-back."""
    for seed in range(20):
        course = [*falling(117, 0.3, seed)[100:], *[0.0] * 44, *falling(240, 0.3, seed)[161:]]
        for seen in range(len(course)):
            assert alarms(loss=course[:seen]) == [], (seed, seen)


def test_a_spike_that_came_down_is_told() -> None:
    (anomaly,) = found(loss=[*falling(100), 9.0, 9.1, *falling(100)[-60:]])
    assert (anomaly.reason, anomaly.sentence.endswith("and came down again.")) == (None, True)


def test_random_walks_of_healthy_runs_raise_no_alarm() -> None:
    for seed in range(200):
        noise = random.Random(seed).choice([0.01, 0.05, 0.2, 0.5])
        assert alarms(loss=falling(random.Random(seed).randint(5, 800), noise, seed)) == [], seed


def silent(seconds: float, rhythm: float | None = 5.0, *, busy: bool = False) -> list[Anomaly]:
    return findings(Course(silence=Silence(0, 10, seconds, rhythm, busy)))


def test_silence_is_measured_by_the_jobs_own_rhythm() -> None:
    assert silent(60) == []
    assert silent(14_400)[0].reason == "hang"
    assert silent(14_400, rhythm=1200.0) == []
    assert silent(1200)[0].reason == "hang"
    assert silent(1200, busy=True) == []
    assert silent(1999, rhythm=100.0) == []
    assert silent(2000, rhythm=100.0)[0].line == 10


def test_slow_down_is_told_and_not_alarmed_about() -> None:
    (anomaly,) = found(step_time_s=[1.0] * 60 + [2.0] * 40)
    assert (anomaly.reason, anomaly.detector) == (None, "slowdown")
    assert found(step_time_s=[1.0] * 100) == []
    (anomaly,) = found(tokens_per_s=[4000.0] * 60 + [1000.0] * 40)
    assert "4.0 times as long" in anomaly.sentence
    assert (anomaly.sustained, anomaly.to_the_end) == (True, False)
    assert found(tokens_per_s=[0.0] * 30 + [4000.0] * 60) == [], "a pace of zero is a step that was not measured"


@pytest.mark.parametrize(("last", "steps"), [(9.0, (4.0, 9.0)), (None, (4.0, None)), (math.nan, (4.0, None))])
def test_the_steps_of_an_anomaly_are_numbers(last: float | None, steps: tuple[float, float | None]) -> None:
    assert steps_of(Anomaly("loss", None, 0, 1, "", 4.0, last)) == steps
    assert steps_of(Anomaly("loss", None, 0, 1, "", math.nan, last)) is None


@pytest.mark.parametrize(("more", "reason"), [("", "loss_anomaly"), (", 'reward': 0.71, 'kl': 2.3", "healthy")])
def test_the_loss_of_reinforcement_learning_has_no_level(more: str, reason: str) -> None:
    losses = [0.006 + n / 10000 for n in range(40)] + [0.05 + n / 1000 for n in range(60)]
    log = "".join(
        f"{{'loss': {loss:.4f}, 'grad_norm': 1.6, 'learning_rate': 4.9e-06{more}, 'epoch': 0.1}}\n" for loss in losses
    )
    assert report_of(log).diagnosis.reason == reason


def test_overflows_to_the_floor_are_an_anomaly_and_a_few_are_not() -> None:
    def run(scales: list[float]) -> str:
        return "".join(f"| WARNING: overflow detected, setting loss scale to: {scale}\n" for scale in scales)

    assert report_of(run([2.0**-n for n in range(12)])).diagnosis.reason == "loss_anomaly"
    assert report_of(run([2.0**-n for n in range(12)] + [2.0**-11] * 12)).diagnosis.reason == "loss_anomaly"
    assert report_of(run([2.0**n for n in range(16, 4, -1)])).outcome == "healthy"
    few = [1.0, 0.5, 0.25, 0.125]
    assert report_of(run(few) + steps(1, 5) + run(few)).outcome == "healthy"  # two short rows are not one long row
    assert report_of(run(few + few)).outcome == "healthy"  # it rose again


def test_a_program_that_stops_because_its_loss_fell_no_more_has_not_failed() -> None:
    rising = [2 / n + 0.1 for n in range(1, 80)] + [0.3 + n / 20 for n in range(8)]
    log = "".join(f"| Epoch: {n} /1000 | Train Loss: {loss:.4f} | Patience: 3 /10 |\n" for n, loss in enumerate(rising))
    stopped = "Early stopping at epoch 87\nBest model loaded from epoch 79\n"
    assert report_of(log + stopped).outcome == "healthy"
    assert report_of("early stopping is on\n" + log + "writing the results\n").diagnosis.reason == "loss_anomaly"
    for said_only in (
        "EarlyStopping counter: 1 out of 10",
        "Early stopping: False",
        "No early stopping was configured",
        "Metric val_loss did not improve. EarlyStopping patience is 3.",
        "WARNING: early stopping is not configured, the loss may rise unseen",
    ):
        assert report_of(log + said_only + "\nwriting the results\n").diagnosis.reason == "loss_anomaly", said_only
    assert report_of(log + stopped + log[-400:]).diagnosis.reason == "loss_anomaly", "it goes on"
    lost = log.replace("Loss: 0.", "Loss: nan # 0.")
    assert report_of(lost + stopped).diagnosis.reason == "loss_anomaly"


@pytest.mark.parametrize(
    "loss",
    [
        [10.8, 1500.0, 1400.0, *falling(100), *[12.0] * 30],
        [320.0, 150.0, 60.0, 20.0, *[3.0] * 60, *[28.0] * 20],
        [25.0, 12.0, 6.0, *[2.5] * 60, *[4.5] * 20],
        [2.5 + (0.6 if n % 9 == 0 else 0.01 * (n % 3)) for n in range(90)] + [4.2] * 40,
    ],
    ids=["an early spike", "from far above", "half of the way back", "behind values that scatter"],
)
def test_a_large_early_value_and_scatter_hide_no_rise_that_stays(loss: list[float]) -> None:
    assert [one.reason for one in alarms(loss=loss)] == ["loss_anomaly"]


def test_a_training_of_which_no_loss_ever_was_a_number_is_no_good_end() -> None:
    line = "389/389 - 11{n}s - 2{n}ms/step - loss: {loss} - mse: {loss} - val_loss: {other} - learning_rate: 5.0000e-05\n"
    lost = "".join(line.format(n=n, loss="nan", other="nan") for n in range(20, 34)) + "Finished training\n"
    assert said(lost)[0] == "loss_anomaly"
    assert said(lost.replace("val_loss: nan", "val_loss: 0.31"))[0] == "healthy"
