from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.checkpoints.good import Alarm, Judged, Saved, judge
from diagnose.checkpoints.kept import Candidate, to_delete

HOUR = 3600.0
NOW = 1e9


def some(*states: str, every: float = 0.0) -> list[Candidate]:
    """Of steps 100, 200 and so on; g, o and b are good, open and bad; a capital is busy."""
    words = {"g": "good", "o": "open", "b": "bad"}
    return [
        Candidate(
            Path(f"{100 * n}"),
            100 * n,
            NOW - every * (len(states) - n),
            Judged(words[state.lower()], "why"),  # type: ignore[arg-type]
            busy=state.isupper(),
        )
        for n, state in enumerate(states, 1)
    ]


def gone(known: list[Candidate], keep: int, *alarms: Alarm, thin: tuple[tuple[float, int], ...] = ()) -> list[int]:
    return [one.step for one in to_delete(known, keep, alarms, NOW, thin)]


@pytest.mark.parametrize(
    ("states", "keep", "alarms", "expected"),
    [
        pytest.param("ggggo", 3, [], [100, 200], id="the newest stay"),
        pytest.param("goooo", 2, [], [200, 300], id="the newest good one stays"),
        pytest.param("gbbbb", 2, [], [], id="bad ones do not count"),
        pytest.param("bggg", 2, [], [100, 200], id="bad ones go when enough came after"),
        pytest.param("ggggo", 1, [Alarm(250, "x")], [100, 300], id="before an open alarm"),
        pytest.param("ggooo", 1, [Alarm(450, "x")], [100], id="all from good to the alarm"),
        pytest.param("ggggo", 1, [Alarm(250, "x", over=300)], [100, 200, 300], id="an alarm that is over"),
        pytest.param("Ggggo", 1, [], [200, 300], id="what is read stays"),
        pytest.param("g", 0, [], [], id="the last one always stays"),
    ],
)
def test_what_goes(states: str, keep: int, alarms: list[Alarm], expected: list[int]) -> None:
    assert gone(some(*states), keep, *alarms) == expected


def test_old_ones_are_thinned() -> None:
    """One per day for three days: the oldest of each."""
    known = some(*"g" * 72, every=HOUR)
    stay = {one.step for one in known} - set(gone(known, 2, thin=((24 * HOUR, 3),)))
    days = {}
    for one in known:
        days.setdefault(int(one.at // (24 * HOUR)), one.step)
    assert stay == {7100, 7200, *days.values()}


CHECKPOINTS = st.lists(st.tuples(st.integers(1, 500), st.booleans(), st.booleans()), min_size=1, max_size=20)
ALARMS = st.lists(st.builds(Alarm, st.integers(1, 500), st.just("x"), st.sampled_from(("loss", "hang"))), max_size=3)


@given(CHECKPOINTS, ALARMS, st.integers(0, 5))
def test_what_a_roll_back_needs_is_never_deleted(raw: list[tuple[int, bool, bool]], alarms: list[Alarm], keep: int) -> None:
    """Whatever was saved and went wrong: the newest usable one, and the newest good one before each open alarm, stay."""
    known = [Saved(step, damaged="cut" if damaged else None) for step, damaged, _ in raw]
    candidates = [
        Candidate(Path(f"{number}"), one.step, NOW, judge(one, known, alarms), busy)
        for number, (one, (_, _, busy)) in enumerate(zip(known, raw, strict=True))
    ]
    deleted = {one.path for one in to_delete(candidates, keep, alarms, NOW)}
    usable = [one for one in candidates if one.judged.state != "bad"]
    assert not deleted & {one.path for one in candidates if one.busy}
    assert not usable or any(one.path not in deleted for one in usable)
    for alarm in alarms:
        before = [one for one in usable if one.step <= alarm.reach]
        good = [one for one in before if one.judged.state == "good"]
        for group in (before, good):
            newest = max((one.step for one in group), default=None)
            assert newest is None or any(one.step == newest and one.path not in deleted for one in group)
