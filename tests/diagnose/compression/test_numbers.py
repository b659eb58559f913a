"""The numbers of lines that no rule knows: found in any dress, under the right name, whatever the chunks."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.compression.folds import Folding, available
from diagnose.compression.kept_log import Compression
from diagnose.compression.numbers import NOTHING, Numbers
from diagnose.compression.snapshot import restored, snapshot, stored
from diagnose.diagnosis.likeness import sounds
from diagnose.knowledge.metrics import shipped_metrics
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.matching.databases import core
from diagnose.matching.matcher import Matcher
from diagnose.matching.series import Series
from tests.conftest import examples
from tests.support.logs import shipped_matcher
from tests.support.strategies import cuts

pytestmark = pytest.mark.skipif(not available(), reason="numbers are read by the native core")

MATCHER = Matcher(RuleSet.of([Rule("known", "filters", r"^known ", kind="metric", metrics=(("loss", r"loss=([\d.]+)"),))]))
FOLDING = Folding(sounds)


def read(log: str) -> Compression:
    compression = Compression(MATCHER, FOLDING)
    compression.feed(0, log.encode())
    compression.close(0)
    return compression


def series(log: str) -> dict[str, Series]:
    return read(log).streams[0].named


def course(count: int = 20, seed: int = 1) -> list[float]:
    """Values that fall, with a little noise."""
    dice = random.Random(seed)
    return [round(8 * 0.9**n + 2 + dice.random() / 10, 4) for n in range(count)]


def log(template: str, values: list[float]) -> str:
    return "".join(template.format(n=n, x=value, l=1e-4 * (n + 1)) + "\n" for n, value in enumerate(values, 1))


def ends(one: Series) -> tuple[float, float, float, float]:
    return one.first, one.last, one.least, one.most


# --- dresses ------------------------------------------------------------------------------------------------------------------

DRESSES = [
    "step {n} loss {x}",
    "Step: {n}, Loss: {x}, lr={l:.2e}",
    "step={n} loss={x} lr={l}",
    "iteration {n}/900 | loss: {x} | lr: {l:.3e} |",
    '{{"step": {n}, "loss": {x}, "lr": {l}}}',
    '{{"step": {n}, "train": {{"loss": {x}, "lr": {l}}}}}',
    "{{'loss': {x}, 'epoch': {n}.5}}",
    "{{'loss': '{x}', 'global_step': {n}}}",
    "step {n} | train_loss {x} | grad norm 1.{n}",
    "| step | {n} | loss | {x} |",
    "loss is {x} and kl is 0.0{n}",
    "step {n}: loss np.float64({x})",
    "step {n}: loss tensor({x}, device='cuda:0', grad_fn=<NllLossBackward0>)",
    "('loss', {x}) ('step', {n})",
    "train/CrossEntropyLoss={x} optim/total_grad_norm=1.{n}",
    "epoch: 0|step: {n}|ppo_ep: 1|act_loss: {x}|cri_loss: 0.{n}",
    "Epoch: [3][{n}/500]\tTime 0.3 (0.4)\tLoss {x} ({x})\tAcc@1 45.{n} (40.1)",
    "[rank0]: 2026-01-02 03:04:05,678 - trainer - INFO - Ep 3 [{n}/900] | Loss: {x} (Cls: 0.5)",
    "loss....................{x} lr {l:.2e} step {n}",
    "eta: 0:01:00  iter: {n}  total_loss: {x}  loss_cls: 0.1  time: 0.2  lr: {l:.5f}  max_mem: 3242M",
]


@pytest.mark.parametrize("dress", DRESSES)
def test_a_loss_in_any_dress(dress: str) -> None:
    values = course()
    found = series(log(dress, values))
    assert ends(found["loss"]) == (values[0], values[-1], min(values), max(values))
    assert found["loss"].count == len(values)


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("step {n} throughput (tokens/s): 58,12{n}", "tokens_per_s", 58_121),
        ("step {n} Speed: 123.{n} samples/sec", "samples_per_s", 123.1),
        ("step {n} 41.{n}k tok/s", "tokens_per_s", 41_100),
        ("step {n} dt: 44.{n}ms", "step_time_s", 0.0441),
        ("step {n} elapsed time per iteration (ms): 500.{n}", "step_time_s", 0.5001),
        ("step {n} took 1.{n} s/it", "step_time_s", 1.1),
        ("step {n} gnorm 0.{n} loss_scale 1024.{n}", "grad_norm", 0.1),
        ("step {n} gnorm 0.{n} loss_scale 1024.{n}", "loss_scale", 1024.1),
        ("step {n} max mem: 3{n}00M", "memory_gb", 3.1),
        ("step {n} mean_reward=-0.{n} approx_kl=0.{n}", "reward", -0.1),
        ("step {n} mean_reward=-0.{n} approx_kl=0.{n}", "kl", 0.1),
        ("step {n} skipped={n}", "skipped_steps", 1),
        ("step {n} top1: 0.{n} top5: 0.9{n}", "accuracy", 0.1),
        ("step {n} TFLOPs: 120.{n}", "tflops", 120.1),
        ("step {n} ppl=12.{n}", "perplexity", 12.1),
        ("step {n} lr=[1.{n}e-05, 2.0e-05]", "lr", 1.1e-05),
    ],
)
def test_other_quantities(line: str, name: str, value: float) -> None:
    found = series("".join(line.format(n=n) + "\n" for n in range(1, 9)))
    assert found[name].first == pytest.approx(value)
    assert found[name].count == 8


def test_a_time_is_a_steps_only_in_ms_and_ms_are_a_steps_only_of_a_time() -> None:
    def found(line: str) -> float | None:
        one = series("".join(line.format(n=n) + "\n" for n in range(1, 9))).get("step_time_s")
        return None if one is None else one.first

    assert found("step {n} lr 0.{n} time_ms: 44.{n}") == pytest.approx(0.0441)
    assert found("step {n} lr 0.{n} wait_ms: 44.{n}") is None
    assert found("step {n} lr 0.{n} time: 44.{n}") is None


def test_every_name_is_found() -> None:
    """The native core asks about all of them."""
    metrics = shipped_metrics()
    for name, (quantity, _) in metrics.names.items():
        unit = " MB" if quantity == "memory_gb" else ""
        found = series("".join(f"in epoch 1 lr 0.{n}, {name}: {n}.5{unit} or so\n" for n in range(1, 6)))
        assert quantity in found, name


def test_columns_under_a_header() -> None:
    rows = "".join(f"{n:5d}   {value:.4f}   {value + 1:.4f}   0.5{n}\n" for n, value in enumerate(course(9), 1))
    found = series(f"epoch   train loss   valid_loss   valid_acc\n{rows}")
    assert found["loss"].first == course(9)[0]
    assert found["val_loss"].last == round(course(9)[-1] + 1, 4)
    assert (found["val_accuracy"].first, found["epoch"].last) == (0.51, 9)


def test_a_loss_that_is_not_a_number() -> None:
    values = course()
    found = series(log("step {n} loss: {x}", values) + "".join(f"step {n} loss: nan\n" for n in range(21, 30)))
    assert (found["loss"].count, found["loss"].not_finite) == (29, 9)
    assert math.isnan(found["loss"].last)


def test_a_number_that_a_rule_knows_and_that_is_none_from_some_line_on() -> None:
    """The rule knows the line with digits only. Where a number follows, the two are told apart as before."""
    known = "".join(f"known loss={2.5 + n}\n" for n in range(9))
    found = series(known + "".join(f"step {n} loss is nan\n" for n in range(9, 30)))
    assert (found["loss"].count, found["loss"].not_finite, found["loss"].first) == (30, 21, 2.5)
    assert math.isnan(found["loss"].last)
    again = series(known + "".join(f"step {n} loss is {n}.5\n" for n in range(9, 30)))
    assert again["loss"].not_finite == 0


def test_lines_of_a_block_have_its_step() -> None:
    block = "[step={n}/900]\n    train/loss={x}\n    train/accuracy=0.5{n}\n"
    found = series("".join(block.format(n=n, x=value) for n, value in enumerate(course(), 1)))
    assert found["loss"].last_step == 20
    assert found["total_steps"].last == 900


# --- one quantity, one series -------------------------------------------------------------------------------------------------


def test_training_and_evaluation_are_two_series() -> None:
    line = "train | loss {x} | acc 0.5{n}\nvalid | loss 99.{n} | acc 0.7{n}\n"
    found = series("".join(line.format(n=n, x=value) for n, value in enumerate(course(), 1)))
    assert found["loss"].most < 99 <= found["val_loss"].least
    assert found["accuracy"].most < 0.7 <= found["val_accuracy"].least


def test_a_nested_evaluation_ends_with_its_brace() -> None:
    lines = (json.dumps({"val": {"loss": 9 + n / 10}, "loss": 1 + n / 10, "step": n}) for n in range(9))
    found = series("\n".join(lines) + "\n")
    assert found["loss"].most < 9 <= found["val_loss"].least
    assert found["step"].last == 8


def test_two_names_of_one_quantity_are_two_series() -> None:
    steps = (f"step {n} loss {value}\n" for n, value in enumerate(course(30), 1))
    lines = (line + f"epoch {n} avg_loss {60 + n}\n" if n % 5 == 0 else line for n, line in enumerate(steps))
    found = series("".join(lines))
    assert found["loss"].most < 50 <= found["avg_loss"].least


def test_evaluations_of_several_things_are_several() -> None:
    tasks = {"winogrande": 0.5, "piqa": 0.7, "squad": 0.9}
    lines = (f"Evaluating: {task} ... accuracy: {value + n / 1000:.3f}\n" for n in range(9) for task, value in tasks.items())
    accuracy = series("".join(lines))["val_accuracy"]
    assert accuracy.most - accuracy.least < 0.1


@pytest.mark.parametrize(
    "line",
    [
        "class {n} accuracy: 0.5{n}",
        "loss_weight: 0.{n}",
        "best loss: 0.{n}",
        "warmup steps: {n}",
        "Step {n}: add the numbers",
        "correct: 4{n}/100 accuracy 4{n}/100",
        "learning_rate: 0.001",
        "lost {n} packets",
    ],
)
def test_what_is_no_quantity(line: str) -> None:
    assert series("".join(line.format(n=n) + "\n" for n in range(1, 9))) == {}


def test_a_step_that_begins_anew_with_each_epoch_is_counted_on() -> None:
    lines = [f"Epoch {epoch} [{step}/50] loss {2 + step / 100}" for epoch in range(3) for step in range(0, 50, 10)]
    steps = series("\n".join(lines) + "\n")["step"]
    assert (steps.first, steps.last, steps.count) == (0, 140, 15)


def test_what_a_rule_captures_comes_first() -> None:
    lines = "".join(f"known loss=1.{n}\nmy_loss: 7.{n}\n" for n in range(9))
    found = series(lines)
    assert found["loss"].most < 2
    assert found["my_loss"].least >= 7


# --- chunks, snapshots, hostile text ------------------------------------------------------------------------------------------


def outcome(compression: Compression) -> Any:
    stream = compression.streams[0]
    numbers = {name: (one.count, *map(str, ends(one)), str(one.last_step)) for name, one in stream.named.items()}
    return numbers, list(map(str, stream.numbers.keys))


_LINES = (
    b"step 1 loss 2.5|step 2 loss 2.4|step 3 loss nan|loss: 7|val loss: 7.5|[step=4]|[step=5]|epoch  loss  acc|1  0.5  0.6"
    b"|2  0.4  0.7|ERROR loss 3|known loss=1.5|text|lr: 0.1|lr: 0.2"
).split(b"|")


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.sampled_from(_LINES), max_size=60).map(b"\n".join).flatmap(lambda data: st.tuples(st.just(data), cuts(data)))
)
def test_numbers_do_not_depend_on_chunks_or_snapshots(pair: tuple[bytes, list[bytes]]) -> None:
    data, chunks = pair
    whole, broken = Compression(MATCHER, FOLDING), Compression(MATCHER, FOLDING)
    whole.feed(0, data)
    whole.close(0)
    broken.feed(0, b"")
    for chunk in chunks:
        broken.feed(0, chunk)
        broken = restored(snapshot(broken), MATCHER, [stored(line, MATCHER.rules) for line in broken.kept], FOLDING)
    broken.close(0)
    assert outcome(broken) == outcome(whole)


_BITS = [*"1={}[]|\t'/,\x01\x0e", "é", "  ", ": ", "loss", "step ", "nan", "val ", "acc@", "s/it", "lr", "epoch ", "-inf"]


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from(_BITS), max_size=40).map("".join), st.booleans())
def test_any_text_has_a_plan(text: str, below: bool) -> None:
    body = text.encode()
    masked, numbers, _ = core.masked(body, 0)
    names = Numbers()
    header = names.plan(b"epoch loss acc", [], b"epoch  loss  acc", 0).header if below else 0
    assert names.plan(masked, numbers, body, header).form >= NOTHING.form


def test_prose_is_not_asked_about() -> None:
    """Asking costs more than folding, so the core asks only where a word of a name stands beside a number."""
    asked: list[bytes] = []
    compression = Compression(MATCHER, FOLDING)
    compression.stream(0).numbers.plan = lambda masked, *_: asked.append(masked) or NOTHING  # type: ignore[method-assign, misc, func-returns-value]
    compression.feed(0, b"the captain sat with 3 of them, at imminent speed\nsample 17: it was late\nrate 3 images/s\n")
    assert asked == [b"rate \x01 images/s"]


def test_what_is_said_through_a_logger_is_read_by_its_names() -> None:
    """A rule knows the logger only: what is evaluated is no training loss, and accuracies are no loss."""
    compression = Compression(shipped_matcher(), FOLDING)
    for n in range(9):
        for said in ("Epoch {n} - Average Loss: 2.{n}, Average Accuracy: 0.3{n}", "Evaluation Epoch {n} - Average Loss: 3.{n}"):
            compression.feed(0, f"INFO:root:{said.format(n=n)}\n".encode())
    named = compression.streams[0].named
    assert {name: ends(one) for name, one in named.items()} == {
        "epoch": (0, 8, 0, 8),
        "loss": (2.0, 2.8, 2.0, 2.8),
        "accuracy": (0.3, 0.38, 0.3, 0.38),
        "val_loss": (3.0, 3.8, 3.0, 3.8),
    }


@pytest.mark.parametrize(
    "name",
    ["hard_loss_metric", "Train-SmoothL1", "full_loss_value", "box loss avg"],
)
def test_a_loss_of_a_kind_is_one_with_words_around_it(name: str) -> None:
    values = course()
    assert ends(series(log(f"iter {{n}}: {name}={{x}}", values))["loss"]) == (values[0], values[-1], min(values), max(values))
