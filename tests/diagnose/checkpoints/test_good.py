from __future__ import annotations

import math

import pytest

from diagnose.checkpoints.good import Alarm, Saved, judge

SPIKE = Alarm(150, "the loss rose to 9.1")


@pytest.mark.parametrize(
    ("one", "alarms", "state", "said"),
    [
        pytest.param(Saved(100), [], "good", "went on to step 200", id="the next was reached"),
        pytest.param(Saved(200), [], "open", "nothing was saved after it yet", id="the newest"),
        pytest.param(Saved(100), [SPIKE], "open", "at step 150: the loss rose", id="an alarm before the next"),
        pytest.param(Saved(200), [SPIKE], "bad", "at step 150 the loss rose", id="an alarm before it"),
        pytest.param(Saved(149), [SPIKE], "bad", "at step 150", id="the weights took it in before the loss showed it"),
        pytest.param(Saved(147), [SPIKE], "open", "at step 150", id="well before"),
        pytest.param(Saved(200), [Alarm(150, "it hung", "hang")], "open", "nothing was saved", id="a hang spoils no weights"),
        pytest.param(Saved(100), [Alarm(150, "it hung", "hang")], "open", "it hung", id="a hang before the next"),
        pytest.param(Saved(200), [Alarm(150, "x", over=180)], "open", "nothing", id="an alarm that was over before it"),
        pytest.param(Saved(100), [Alarm(200, "it hung", "hang")], "good", "", id="a hang when the next was saved"),
        pytest.param(Saved(100, doubt="its score fell"), [], "open", "its score fell", id="a score that fell"),
        pytest.param(Saved(100, damaged="a: it is cut"), [], "bad", "a: it is cut", id="damaged"),
        pytest.param(Saved(100, no_numbers=("w",)), [], "bad", "w hold what is no", id="not a number"),
        pytest.param(Saved(100, no_numbers=("w", "v")), [], "bad", "w and 1 more", id="not numbers"),
        pytest.param(Saved(100, evaluation=3.1), [], "bad", "its evaluation is 3.1, and was 2 before", id="far worse"),
        pytest.param(Saved(100, evaluation=2.9), [], "good", "", id="a little worse"),
        pytest.param(Saved(100, evaluation=math.nan), [], "bad", "its evaluation is not a number", id="no score"),
    ],
)
def test_a_verdict_has_a_reason(one: Saved, alarms: list[Alarm], state: str, said: str) -> None:
    judged = judge(one, [Saved(50, evaluation=2.0), Saved(100), Saved(200)], alarms)
    assert judged.state == state
    assert said in judged.why
