from __future__ import annotations

import random

import pytest

from diagnose.decision.checkpoints import PastRollback, Saved, doubted, judged, newest, start
from diagnose.decision.history import Checkpoint
from diagnose.decision.scores import Score, fallen


def course(*values: float, noise: float | None = 0.01, higher: bool = True, data_set: str = "arc") -> list[Score]:
    """The scores of checkpoints 100, 200, ..."""
    return [Score(1, 100 * number, data_set, "accuracy", value, noise, higher) for number, value in enumerate(values, start=1)]


@pytest.mark.parametrize(
    ("scores", "fell"),
    [
        pytest.param(course(0.5, 0.51, 0.3), [300], id="far below"),
        pytest.param(course(0.5, 0.51, 0.47), [], id="within chance"),
        pytest.param(course(0.5, 0.49, noise=0.0001), [], id="more than chance, and little"),
        pytest.param(course(0.5), [], id="nothing to compare with"),
        pytest.param(course(0.5, 0.3, noise=None), [], id="nobody says how much is chance"),
        pytest.param(course(2.0, 1.9, 3.1, higher=False), [300], id="less is better"),
        pytest.param(course(3.1, 1.9, 2.0, higher=False), [], id="it got better, and stayed so"),
        pytest.param(course(0.5, 0.5, 0.3, 0.5), [300], id="one that fell does not spoil the next"),
        pytest.param([*course(0.5, 0.5), *course(0.6, 0.3, data_set="other")], [200], id="each is compared with its own"),
    ],
)
def test_what_fell_behind_what_was_usual(scores: list[Score], fell: list[int]) -> None:
    assert [step for _, step in fallen(scores)] == fell


def test_a_new_level_is_usual_after_five_checkpoints() -> None:
    found = fallen(course(*[0.8] * 6, *[0.3] * 8))
    assert [step for _, step in found] == [700, 800, 900, 1000, 1100]


def test_a_step_that_was_saved_again_counts_as_it_is_now() -> None:
    again = [*course(0.5, 0.1), Score(2, 200, "arc", "accuracy", 0.52, 0.01), Score(2, 300, "arc", "accuracy", 0.3, 0.01)]
    assert list(fallen(again)) == [(1, 200), (2, 300)]


def test_chance_alone_hardly_ever_falls() -> None:
    """Twenty data sets, forty checkpoints, nothing changes but the luck of the samples."""
    dice = random.Random(1)
    scores = [
        Score(1, step, str(data_set), "accuracy", dice.gauss(0.5, 0.01), 0.01) for step in range(40) for data_set in range(20)
    ]
    assert len(fallen(scores)) <= 1


def test_the_worst_fall_is_named() -> None:
    scores = [*course(0.5, 0.4), *course(0.6, 0.2, data_set="gsm8k"), *course(0.9, 0.7, data_set="boolq")]
    said = fallen(scores)[1, 200]
    assert said == "its accuracy on gsm8k is 0.2 ± 0.01, and was 0.6 ± 0.01 at the checkpoint before; 2 more scores fell"


def test_what_fell_is_not_good_and_a_roll_back_takes_another_one() -> None:
    told = [Saved(1, 100, "a", True, "it went on"), Saved(1, 200, "b", True, "it went on"), Saved(1, 300, "c", False, "cut")]
    known = doubted(told, {(1, 200): "its accuracy fell", (1, 300): "its accuracy fell"})
    assert [(one.good, one.why) for one in judged(known, [])] == [
        (False, "cut"),
        (None, "its accuracy fell"),
        (True, "it went on"),
    ]
    assert start(known, []).step == 200  # the training went on from there, so a restart may
    assert start(known, [PastRollback(1, 250, 280)]).step == 100


def test_also_where_the_training_judges_none() -> None:
    told = doubted([Saved(1, 100, "a"), Saved(1, 200, "b")], {(1, 200): "its accuracy fell"})
    assert start(told, [PastRollback(1, 250, 280)]).step == 100
    assert start(told[1:], [PastRollback(1, 250, 280)]).step == 200  # better than none

    known = [Checkpoint(100, "a"), Checkpoint(200, "b", doubt="its accuracy fell")]
    assert newest(known, 250) == known[0]
    assert newest(known[1:], 250) == known[1]
