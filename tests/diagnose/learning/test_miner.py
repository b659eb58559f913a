"""Unknown lines become templates, in bounded memory."""

from __future__ import annotations

import re

from diagnose.learning.miner import Miner, mine
from diagnose.verification.proposals import judged
from tests.support.rules import BESIDE, LINES


def test_lines_of_one_template_become_one_anchored_rule() -> None:
    ((rule, template),) = mine(LINES)
    assert (template.count, len(template.held)) == (20, 8)
    assert rule.pattern.startswith("^custom +scheduler +chose +lane +")
    assert rule.pattern.endswith("$")
    assert judged([rule], {rule.id: LINES}, (), BESIDE) == {}


def test_words_of_many_values_become_variable() -> None:
    names = ["anna", "berta", "carla", "dora", "emma", "frieda", "gerda", "hanna", "ida", "jana", "karla", "lisa"]
    ((rule, _),) = mine([f"moved the {name} shard to the fast tier" for name in names])
    assert r"[\w.-]+" in rule.pattern
    assert "moved" in rule.pattern


def test_words_of_few_values_stay_what_they_are() -> None:
    """A digest that diverged is none of those that were verified or skipped."""
    found = mine([f"step {n}: weights digest {('verified', 'skipped')[n % 2]} in {n} ms" for n in range(400)])
    lines = [f"step 7: weights digest {word} in 3 ms" for word in ("verified", "skipped", "diverged", "unverifiable")]
    assert [any(re.match(rule.pattern, line) for rule, _ in found) for line in lines] == [True, True, False, False]


def test_words_that_came_often_stay_an_alternation() -> None:
    queues = ["red", "green", "blue", "black", "white", "brown", "yellow"]
    found = mine([f"moved shard {n} to the {queue} tier" for n in range(40) for queue in queues])
    assert any(re.match(rule.pattern, "moved shard 4 to the brown tier") for rule, _ in found)
    assert not any(re.match(rule.pattern, "moved shard 4 to the wrong tier") for rule, _ in found)


def test_the_order_of_the_lines_changes_nothing() -> None:
    lines = [f"moved shard {n} to the {queue} tier" for n in range(8) for queue in ("red", "green", "blue")]
    assert {rule.pattern for rule, _ in mine(lines)} == {rule.pattern for rule, _ in mine(lines[::-1])}


def test_what_came_once_or_twice_is_not_proposed() -> None:
    assert mine(["one odd line", "another thing"]) == []


def one_rule(*lines: str) -> str:
    ((rule, template),) = mine(lines)
    everything = [*template.samples, *template.held]
    assert judged([rule], {rule.id: everything}, (), BESIDE) == {}
    return rule.pattern


def test_lists_of_any_length_are_one_template() -> None:
    pattern = one_rule(*(f"ring order: {' '.join(map(str, range(n)))} end" for n in range(4, 12)))
    assert re.match(pattern, "ring order: " + "7 " * 90 + "end")
    assert not re.match(pattern, "ring order: 7 7 failed 7 end")


def test_lists_of_names_keep_what_the_names_begin_with() -> None:
    names = [[f"'model.unet.block{n}.{part}'" for n in range(size)] for size, part in ((5, "w"), (9, "bias"), (7, "norm.w"))]
    pattern = one_rule(*(f"frozen: [{', '.join(row)}]" for row in names))
    assert re.match(pattern, "frozen: ['model.unet.a', 'model.unet.b', 'model.unet.c', 'model.unet.d']")
    assert not re.match(pattern, "frozen: ['lost.rank.a', 'lost.rank.b', 'lost.rank.c', 'lost.rank.d']")


def test_pieces_of_a_long_list_are_one_template_wherever_they_were_cut() -> None:
    whole = ", ".join(f"'model.unet.block{n}.weight'" for n in range(300))
    pieces = [whole[at : at + 997] for at in range(100, 6000, 997)]
    pattern = one_rule(*pieces)
    assert re.match(pattern, whole[33:1200])
    assert not re.match(pattern, pieces[0] + " and then it failed")


def test_a_line_that_repeats_word_for_word_is_learned_and_one_that_came_twice_is_not() -> None:
    assert one_rule(*["rank barrier reached"] * 3) == "^rank +barrier +reached$"
    assert mine(["rank barrier reached"] * 2) == []


def test_every_other_line_of_a_shape_is_held_back() -> None:
    miner = Miner()
    taken = [miner.add(f"lane {n} chosen") for n in range(10)]
    assert sum(taken) == 5
    ((_, template),) = miner.proposals()
    assert not set(template.samples) & set(template.held)


def test_the_miner_is_bounded() -> None:
    miner = Miner()
    for number in range(25_000):
        miner.add("word" + "abcdefghij"[number % 10] * (number % 900) + f" {number}")
        if number % 10 == 0:
            miner.add("x" * 5000)
    assert len(miner._shapes) <= 20_000
    assert len(list(miner.proposals())) > 0


def test_numbers_that_are_padded_are_still_read() -> None:
    """Trainers pad steps to a width: the next run needs them to say where its loss was."""
    lines = [f"it {step:6d} of 400 | loss {step / 9:9.4f} | gnorm: {step / 7:9.3f}" for step in (1, 22, 137, 399)]
    ((rule, _),) = mine(lines)
    read = {name: re.search(pattern, lines[2])[1] for name, pattern in rule.metrics}  # type: ignore[index]
    assert read == {"step": "137", "loss": "15.2222", "grad_norm": "19.571"}


def test_the_loss_of_a_mined_line_is_still_read() -> None:
    """What a filter drops, detectors see only by its captures."""
    lines = [f"{step}: val loss: 3.{step} | train loss: 2.{step} | lr 1e-4" for step in (10, 22, 37, 41)]
    ((rule, _),) = mine(lines)
    assert rule.kind == "metric"
    read = {name: re.search(pattern, lines[2])[1] for name, pattern in rule.metrics}  # type: ignore[index]
    assert (read["loss"], read["val_loss"], read["lr"]) == ("2.37", "3.37", "1e-4")
    nan = lines[2].replace("2.37", "nan")
    assert re.search(rule.pattern, nan) is None
    ((plain, _),) = mine([f"loaded shard {n} in 0.{n} s" for n in (10, 22, 37)])
    assert (plain.kind, plain.metrics) == ("debug", ())


def test_a_number_whose_leap_is_news_is_read_though_no_loss_stands_beside_it() -> None:
    ((rule, _),) = mine([f"tuner at {step}: lr 3.{step}e-04, skipped: {step}" for step in (10, 22, 37, 41)])
    assert [name for name, _ in rule.metrics] == ["lr", "skipped_steps"]


def test_dots_up_to_a_column_and_bars_of_progress_are_one_whatever_their_length() -> None:
    lines = [f"  {name} {'.' * (30 - len(name))}: {n}.5 ms" for n, name in enumerate(["fetch", "scatter", "gather-all"] * 4)]
    patterns = {rule.pattern for rule, _ in mine(lines)}
    assert all(r"\.{3,}" in pattern for pattern in patterns)
    assert all(any(re.match(pattern, line) for pattern in patterns) for line in lines)
    bars = [f"Copying {n}%|{'█' * (n // 10)}{'▍' if n % 10 else ''}{' ' * (10 - n // 10)}| {n}/100" for n in range(7, 99, 4)]
    ((rule, _),) = mine(bars)
    assert re.match(rule.pattern.encode(), "Copying 55%|█████▌    | 55/100".encode())


def test_words_that_never_came_again_make_no_alternation() -> None:
    once = [f"opening the store of {name} for reading" for name in ("quux", "plugh", "xyzzy")]
    assert mine([*once, once[0]]) == []
    assert mine(once * 6)
