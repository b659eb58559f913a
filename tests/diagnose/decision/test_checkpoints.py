"""Which checkpoints a log tells of, and which one to go back to."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.decision.checkpoints import MOST, Alarm, PastRollback, Saved, alarmed, judged, newest, saved, start, stretch
from diagnose.decision.history import Checkpoint
from diagnose.decision.policy_file import shipped_policy
from tests.support.logs import job_of, report_of, shipped_matcher, steps

ROLLBACK = shipped_policy().rollback


@pytest.mark.parametrize(
    ("line", "step", "path", "complete"),
    [
        pytest.param(
            "  successfully saved checkpoint at iteration    2000 to /ckpt/run7", 2000, "/ckpt/run7", True, id="megatron"
        ),
        pytest.param(
            "[rank0]:   successfully saved checkpoint from iteration    2000 to /c [ t 1/4, p 1/2 ]",
            2000,
            "/c",
            True,
            id="a-rank",
        ),
        pytest.param(
            "[INFO] [torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step2000 is ready now!",
            2000,
            "global_step2000",
            True,
            id="deepspeed",
        ),
        pytest.param("Saving model checkpoint to /out/checkpoint-500", 500, "/out/checkpoint-500", False, id="huggingface"),
        pytest.param(
            "Epoch 3, global step 2000: 'val_loss' reached 2.10000 (best 2.10000), saving model to '/ckpt/a b.ckpt' as top 3",
            2000,
            "/ckpt/a b.ckpt",
            False,
            id="lightning",
        ),
    ],
)
def test_what_a_log_tells(line: str, step: int, path: str, complete: bool) -> None:
    log = steps(1, 50) + line + "\n" + steps(51, 60)
    job = job_of(log)
    found = saved(job.compression.facts, job.compression.matcher.rules)
    assert found == (Checkpoint(step, path, complete=complete),)
    assert line not in "".join(event.text.decode() for event in job.compression.kept)  # dropped and counted, as before


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("saving checkpoint at iteration    2000 to /ckpt/run7", id="only-announced"),
        pytest.param("  successfully loaded checkpoint from /ckpt/run7 at iteration 2000", id="loaded"),
        pytest.param("user: successfully saved checkpoint at iteration 2000 to /ckpt/run7", id="quoted"),
        pytest.param(
            "  successfully saved checkpoint at iteration 99999999999999999999 to /ckpt/run7", id="a-step-that-cannot-be"
        ),
    ],
)
def test_what_is_no_checkpoint(line: str) -> None:
    assert report_of(steps(1, 50) + line + "\n" + steps(51, 60)).checkpoints == []


def test_of_many_the_newest_and_each_once() -> None:
    facts = [(0, b" successfully saved checkpoint at iteration %7d to /c\n" % (n % 400)) for n in range(1000)]
    found = saved([(source, words.rstrip(b"\n")) for source, words in facts], shipped_matcher().rules)
    assert [one.step for one in found] == list(range(400 - MOST, 400))


@pytest.mark.parametrize(
    ("onset", "last", "wider", "expected"),
    [
        pytest.param(1000.0, 1100.0, 0, (980, 1100), id="from-before-the-onset-to-the-end"),
        pytest.param(1000.0, None, 0, (980, 1000), id="no-end-known"),
        pytest.param(1000.0, 90000.0, 0, (980, 1512), id="not-the-whole-training"),
        pytest.param(3.0, 10.0, 0, (2, 10), id="early"),
        pytest.param(0.0, 5.0, 0, (0, 5), id="from-the-first-step"),
        pytest.param(1000.0, 90000.0, 1, (960, 2024), id="the-second-time"),
        pytest.param(1000.0, 90000.0, 99, (0, 90000), id="the-hundredth-time"),
    ],
)
def test_what_to_leave_out(onset: float, last: float | None, wider: int, expected: tuple[int, int]) -> None:
    assert stretch(onset, last, ROLLBACK, wider) == expected


def test_the_share_before_the_onset_is_the_policys() -> None:
    assert stretch(1000, 1100, dataclasses.replace(ROLLBACK, back_share=0.1)) == (900, 1100)


@pytest.mark.parametrize(
    ("known", "at_most", "below", "step"),
    [
        pytest.param((100, 200, 300), 250, None, 200, id="the-newest-before"),
        pytest.param((100, 200, 300), 200, None, 200, id="that-very-step"),
        pytest.param((300,), 250, None, None, id="none-before"),
        pytest.param((100, 200, 300), 250, 200, 100, id="not-the-one-that-was-tried"),
        pytest.param((), 250, None, None, id="none-at-all"),
    ],
)
def test_which_one(known: tuple[int, ...], at_most: int, below: int | None, step: int | None) -> None:
    found = newest([Checkpoint(one) for one in known], at_most, below)
    assert (found.step if found else None) == step


def test_one_that_the_training_calls_spoilt_is_not_gone_back_to() -> None:
    found = newest([Checkpoint(5, "/log"), Checkpoint(7, "/log"), Checkpoint(7, "/log", told_by="api", healthy=False)], 9)
    assert found is not None
    assert found.step == 5


def test_of_two_words_on_one_step_the_trainings_counts() -> None:
    found = newest([Checkpoint(5, "/log"), Checkpoint(5, "/api", told_by="api"), Checkpoint(5, "/begun", complete=False)], 9)
    assert found is not None
    assert found.path == "/api"


# --- where the next attempt begins ---


def told(attempt: int, *steps: int) -> list[Saved]:
    return [Saved(attempt, step, f"ckpt/{attempt}/{step}") for step in steps]


SPIKE = PastRollback(1, 110, 130)


@pytest.mark.parametrize(
    ("checkpoints", "rollbacks", "path", "skip"),
    [
        ([], [], None, []),
        (told(1, 20, 40), [], "ckpt/1/40", []),
        (told(1, 40, 100, 120, 140), [SPIKE], "ckpt/1/100", [(110, 130)]),
        (told(1, 110, 111), [SPIKE], "ckpt/1/110", [(110, 130)]),  # after 110 steps batch 110 was not yet trained on
        ([*told(1, 40, 100), Saved(1, 105, "bad", healthy=False)], [SPIKE], "ckpt/1/100", [(110, 130)]),
        (told(1, 120, 140), [SPIKE], None, [(110, 130)]),
        (told(1, 100, 140) + told(2, 120, 160), [SPIKE], "ckpt/2/160", []),  # the second attempt had skipped them
        (told(1, 100) + told(2, 120), [SPIKE], "ckpt/2/120", [(110, 130)]),
        (told(1, 100) + told(2, 150, 200), [SPIKE, PastRollback(2, 180, 190)], "ckpt/2/150", [(180, 190)]),
        (told(1, 100) + told(2, 105), [SPIKE, PastRollback(2, 131, 140)], "ckpt/2/105", [(110, 140)]),
        (told(1, 100) + told(2, 100), [], "ckpt/2/100", []),
    ],
)
def test_the_newest_healthy_checkpoint_before_the_batches(
    checkpoints: list[Saved], rollbacks: list[PastRollback], path: str | None, skip: list[tuple[int, int]]
) -> None:
    found = start(checkpoints, rollbacks)
    assert (found.path, found.skip) == (path, skip)
    assert found.why.endswith(".")


_points = st.builds(Saved, st.integers(1, 3), st.integers(0, 60), st.just("p"), st.sampled_from([None, True, False]))
_backs = st.builds(lambda attempt, first, more: PastRollback(attempt, first, first + more), *[st.integers(1, 40)] * 3)


@given(st.lists(_points), st.lists(_backs))
def test_never_spoilt_and_every_bad_batch_ahead_is_left_out(checkpoints: list[Saved], rollbacks: list[PastRollback]) -> None:
    found = start(checkpoints, rollbacks)
    fit = [
        c for c in checkpoints if c.healthy is not False and all(c.attempt > r.attempt or c.step <= r.first for r in rollbacks)
    ]
    back = max((r.attempt for r in rollbacks), default=0)
    if any(c.healthy for c in fit if c.attempt <= back):  # the training says which are good: only those are gone back to
        fit = [c for c in fit if c.healthy or c.attempt > back]
    assert found.step == max((c.step for c in fit), default=None)
    skipped = {batch for first, last in found.skip for batch in range(first, last + 1)}
    assert {b for r in rollbacks for b in range(r.first, r.last + 1) if b >= (found.step or 0)} <= skipped
    assert skipped <= {b for r in rollbacks for b in range(r.first, r.last + 1)}


def test_a_training_that_judges_its_checkpoints_goes_back_to_a_good_one() -> None:
    known = [Checkpoint(100, "a", healthy=True, told_by="api"), Checkpoint(200, "b", told_by="api")]
    assert newest(known, 250) == known[0]
    assert newest(known[1:], 250) == known[1]

    told = [Saved(1, 100, "a", True), Saved(1, 200, "b"), Saved(1, 300, "c", False, "it is cut")]
    spike = PastRollback(1, 250, 280)
    assert start(told, []).step == 200  # nothing went wrong: the newest is not known to be bad
    assert start(told, [spike]).step == 100
    assert start([*told, Saved(2, 220, "d")], [spike]).step == 220  # the attempt after it left the batches out


@pytest.mark.parametrize(
    ("step", "doubted"),
    [(150, [(1, 100)]), (100, [(1, 100)]), (200, []), (250, []), (50, []), (0, [])],
)
def test_an_alarm_is_about_the_checkpoint_before_it_if_another_one_followed(step: int, doubted: list[tuple[int, int]]) -> None:
    known = [Saved(1, 100, "a"), Saved(1, 200, "b"), Saved(2, 120, "c"), Saved(2, 300, "d")]
    found = alarmed(known, [Alarm(1, step, "hang", "it stood still")])
    assert list(found) == doubted
    assert all(why == f"before the next checkpoint, at step {step}: it stood still" for why in found.values())


def test_each_checkpoint_has_a_verdict_with_a_reason() -> None:
    told = [
        Saved(1, 100, "a", True, "it went on"),
        Saved(1, 200, "b"),
        Saved(1, 300, "c", True, "it went on"),
        Saved(1, 400, "d", False, "cut"),
    ]
    found = {one.step: (one.good, one.why) for one in judged(told, [PastRollback(1, 250, 280)])}
    after = "it was saved after batch 250, from which a roll-back goes back"
    assert found == {100: (True, "it went on"), 200: (None, None), 300: (False, after), 400: (False, "cut")}
    assert list(found) == [400, 300, 200, 100]
