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


def test_words_that_differ_become_variable() -> None:
    ((rule, _),) = mine([f"moved the {what} shard to the fast tier" for what in ("red", "green", "blue")])
    assert r"[\w.-]+" in rule.pattern
    assert "moved" in rule.pattern


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
        miner.add("x" * 5000)
    assert len(miner._shapes) <= 20_000
    assert len(list(miner.proposals())) > 0
