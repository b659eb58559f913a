"""Names of numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.errors import RuleError
from diagnose.knowledge.metrics import read, shipped_metrics, words_of


@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("loss", "loss"),
        ("train/lossAvg", "loss"),
        ("CrossEntropyLoss", "loss"),
        ("loss_classifier", "loss"),
        ("validation loss", "val_loss"),
        ("tok/sec", "tokens_per_s"),
        ("number of skipped iterations", "skipped_steps"),
        ("optim/total_grad_norm", "grad_norm"),
        ("critic/rewards/mean", "reward"),
        ("min_loss_scale", None),
        ("loss weight", None),
        ("best val loss", None),
        ("max steps", None),
        ("timing_s/step", None),
    ],
)
def test_what_a_name_means(name: str, quantity: str | None) -> None:
    meaning = shipped_metrics().meaning(words_of(name))
    assert (meaning and meaning.quantity) == quantity


def test_the_number_itself_comes_before_its_kinds() -> None:
    ranks = [shipped_metrics().meaning(words_of(name)) for name in ("loss", "avg_loss", "step_avg_loss", "loss_mask")]
    assert [meaning.rank for meaning in ranks[:3] if meaning] == sorted(meaning.rank for meaning in ranks[:3] if meaning)


def test_which_way_is_better() -> None:
    quantities = shipped_metrics().quantities
    assert {quantities[name].better for name in ("accuracy", "val_accuracy", "reward")} == {"more"}
    assert {quantities[name].better for name in ("loss", "val_loss", "perplexity", "fid")} == {"less"}
    assert quantities["eval_accuracy"].better is None


def test_a_name_of_two_quantities_is_refused(tmp_path: Path) -> None:
    parts = "filling: []\naround: []\nevaluation: []\ntraining: []\nabout: []\nkinds: []\nunits: {}\n"
    path = tmp_path / "metrics.yaml"
    path.write_text(parts + "series:\n  loss: {names: [cost]}\n  reward: {names: [cost]}\n", "utf-8")
    with pytest.raises(RuleError, match="'cost' is a name of loss and again of reward"):
        read(path)
    path.write_text("series: {}\n", "utf-8")
    with pytest.raises(RuleError, match="lack 'filling'"):
        read(path)
