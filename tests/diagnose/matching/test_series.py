"""The job's numbers: read exactly, kept honestly."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.compression.kept_log import points
from diagnose.compression.outliers import Watch, stand_out
from diagnose.diagnosis.detectors.course import means
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.matching.databases import core
from diagnose.matching.matcher import Matcher
from diagnose.matching.series import Column, Series, readings, rows, summary, value_of


def column(values: list[float], first: int = 0) -> Column:
    made = Column.empty()
    for index, value in enumerate(values):
        made.append(float(first + index), value, first + index + 1, index * 10, index * 10 + 9)
    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"1", 1.0), (b"-1.5e-3", -0.0015), (b".5", 0.5), (b"2.", 2.0), (b"inf", math.inf), (b"1_000", None), (b"x", None)],
)
def test_value_of(text: bytes, expected: float | None) -> None:
    assert value_of(text) == expected


def test_a_number_inside_a_longer_run_is_not_certain() -> None:
    body = b"loss 1234"
    assert readings(body, [(1, 1.0, 5, 9)]) is not None
    assert readings(body, [(1, 1.0, 7, 9)]) is None  # begins inside the run
    assert readings(body, [(1, 1.0, 5, 7)]) is None  # ends inside the run


@pytest.mark.parametrize("engine", ["plain", "wheel", *(["core+wheel"] if core else [])])
@pytest.mark.parametrize(
    "pattern",
    [r"loss.*?([\d.]+)", r"loss.*([\d.]+)", r"loss.*?(\d\d)", r"([1-9][\d.]*)", r"loss: ([-+.\dEe]+)"],
)
def test_numbers_are_those_of_the_expression_whatever_its_greed(engine: str, pattern: str) -> None:
    import regex

    rules = RuleSet((Rule("m", "filters", "^loss", kind="metric", metrics=(("loss", pattern),)),))
    lines = [b"loss: 1.5 of 22", b"loss: 12.25 of 3", b"loss: 0.5 of 100", b"loss: 7 of 7", b"loss: 33 of 1"]
    matcher = Matcher(rules, engine)  # type: ignore[arg-type]
    from tests.diagnose.matching.test_engines import scan_all

    found = [float(value) for _, value, _ in scan_all(matcher, [b"\n".join(lines * 2)])["numbers"].get("loss", [])]
    expected = [float(m[1]) for line in lines * 2 if (m := regex.search(pattern.encode(), line)) and value_of(m[1]) is not None]
    assert found == expected


@pytest.mark.skipif(core is None, reason="no native core here")
@given(st.lists(st.floats(width=32), max_size=50), st.data())
def test_native_summary(values: list[float], data: st.DataObject) -> None:
    made = column(values)
    start = data.draw(st.integers(0, len(values)))
    end = data.draw(st.integers(start, len(values)))
    assert core.summary(made.values, start, end) == summary(made.values, start, end)


@pytest.mark.skipif(core is None, reason="no native core here")
@given(st.lists(st.floats(width=32), max_size=50), st.integers(0, 60), st.integers(1, 20))
def test_native_rows(values: list[float], start: int, width: int) -> None:
    made = column(values)
    parts = made.values, made.steps, made.lines, start, width
    assert core.rows(*parts) == rows(*parts)


@pytest.mark.skipif(core is None, reason="no native core here")
@given(
    st.lists(st.floats() | st.floats(0, 10) | st.integers(-2, 2).map(float), max_size=120),
    st.integers(0, 32),
    st.integers(1, 8),
)
def test_native_stand_out(values: list[float], recent: int, until: int) -> None:
    past = [value for value in values[:recent] if math.isfinite(value)]
    for limit in (math.inf, 1.5):
        state = column(values).values, 1.5, past, until, limit
        assert core.stand_out(*state) == stand_out(*state)


@pytest.mark.skipif(core is None, reason="without the native core")
@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_native_merged(mine: list[int], others: list[int]) -> None:
    columns = []
    for number, places in enumerate((mine, others)):
        made = Column.empty()
        for index, start in enumerate(sorted(places)):
            made.append(number + index / 8, -index, 2**40 + index, start, start + number)
        columns.append(made)
    assert core.merged(columns[0].parts, columns[1].parts) == tuple(
        one.tobytes() for one in columns[0].merged(columns[1]).parts
    )


@pytest.mark.skipif(core is None, reason="without the native core")
def test_columns_of_two_lengths_are_refused() -> None:
    made, longer = column([1.0]), column([1.0, 2.0])
    with pytest.raises(IndexError, match="not of one length"):
        core.merged(made.parts, (*made.parts[:4], longer.ends))


@pytest.mark.skipif(core is None, reason="without the native core")
@given(st.binary(max_size=99), st.integers(0, 400))
def test_native_lines_of(data: bytes, times: int) -> None:
    text = data + (data + b"\n") * times
    assert core.lines_of(text) == text.count(b"\n")


def test_a_series_stays_small_and_loses_no_spike() -> None:
    noise = random.Random(5)
    values = [noise.uniform(1, 2) for _ in range(100_000)]
    values[77_777] = 99.0
    series = Series(room=64)
    for start in range(0, len(values), 1234):
        series.extend(column(values[start : start + 1234], start))
    assert len(series.buckets) == series.size <= 64
    assert (series.count, series.most, series.most_step) == (100_000, 99.0, 77_777.0)
    assert sum(bucket.count for bucket in series.buckets) == 100_000
    assert [bucket.most for bucket in series.buckets].count(99.0) == 1
    assert series.last == values[-1]
    steps = [bucket.step for bucket in series.buckets]
    assert steps == sorted(steps)


@given(st.lists(st.floats(0, 10) | st.just(math.nan), max_size=200), st.integers(1, 50))
def test_a_series_does_not_depend_on_the_blocks(values: list[float], size: int) -> None:
    whole, parts = Series(room=8), Series(room=8)
    whole.extend(column(values))
    for start in range(0, len(values), size):
        parts.extend(column(values[start : start + size], start))
    assert repr(whole.buckets).replace("nan", "") == repr(parts.buckets).replace("nan", "") or [
        (b.count, b.finite, b.least, b.most, b.line) for b in whole.buckets
    ] == [(b.count, b.finite, b.least, b.most, b.line) for b in parts.buckets]
    assert (whole.count, whole.not_finite) == (parts.count, parts.not_finite)


@given(st.lists(st.floats(0, 10) | st.just(math.nan), max_size=200), st.integers(0, 200))
def test_two_series_as_one_hold_what_both_hold(values: list[float], cut: int) -> None:
    first, later, whole = Series(room=8), Series(room=8), Series(room=8)
    first.extend(column(values[:cut]))
    later.extend(column(values[cut:], cut))
    whole.extend(column(values))
    both = first.then(later)
    assert len(both.buckets) <= 8
    assert (both.count, both.not_finite, both.least, both.most) == (whole.count, whole.not_finite, whole.least, whole.most)
    assert sum(bucket.finite for bucket in both.buckets) == whole.count - whole.not_finite
    assert sum(bucket.count for bucket in both.buckets) == whole.count
    assert [bucket.line for bucket in both.buckets] == sorted(bucket.line for bucket in both.buckets)


def notable(values: list[float], factor: float = 1.5, size: int = 10_000) -> list[int]:
    watch, found = Watch(factor), []
    for start in range(0, len(values), size):
        found += [start + index for index in watch.notable(column(values[start : start + size], start))]
    return found


def test_a_leap_is_notable_and_a_falling_loss_is_not() -> None:
    falling = [10 / (1 + step / 20) for step in range(200)]
    assert notable(falling) == []
    assert notable([*falling, 9.0, *falling[-5:]]) == [200]
    assert notable([2.776, 2.773, 2.768, 7.34]) == [3]
    assert notable([2.0, math.nan, 2.0, math.inf]) == [1, 3]


def test_what_goes_on_for_ever_is_kept_ever_more_rarely() -> None:
    assert len(notable([math.nan] * 100_000)) < 80


@given(st.lists(st.floats(0, 100) | st.just(math.nan), max_size=120), st.integers(1, 30))
def test_what_is_notable_does_not_depend_on_the_blocks(values: list[float], size: int) -> None:
    assert notable(values) == notable(values, size=size)


@given(
    st.lists(st.floats(-10, 10) | st.sampled_from([math.nan, math.inf]), max_size=100),
    st.booleans(),
    st.integers(1, 20),
)
def test_columns_and_points_say_what_the_buckets_say(values: list[float], stepless: bool, room: int) -> None:
    series = Series(room=room)
    given_ = column(values)
    if stepless and values:
        given_.steps[0] = math.nan
    series.extend(given_)
    for name in ("line", "count", "finite", "total", "least", "most"):
        assert [getattr(bucket, name) for bucket in series.buckets] == list(series.column(name))
    expected = [
        [
            None if math.isnan(b.step) else b.step,
            *([b.total / b.finite, b.least, b.most] if b.finite else [None, None, None]),
        ]
        for b in series.buckets
    ]
    assert expected == points(series)
    places, found = means(series)
    assert [(n, b.total / b.finite) for n, b in enumerate(series.buckets) if b.finite] == list(zip(places, found, strict=True))
