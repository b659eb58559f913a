"""Pictures from values."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.dashboard import charts
from service.dashboard.charts import Bar

SVG = "{http://www.w3.org/2000/svg}"


def parsed(markup: str) -> ET.Element:
    return ET.fromstring(str(markup).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


@pytest.mark.parametrize(
    ("most", "expected"),
    [(0, [0, 1]), (1, [0, 1]), (3, [0, 1, 2, 3]), (8, [0, 2, 4, 6, 8]), (9, [0, 5, 10]), (47, [0, 20, 40, 60])],
)
def test_axes_have_round_numbers(most: float, expected: list[float]) -> None:
    assert charts.nice_ticks(most) == expected


def test_bars_are_as_high_as_their_values() -> None:
    bars = [Bar("Mon", {"script": 2, "framework": 2}), Bar("Tue", {"script": 8, "framework": 0})]
    picture = parsed(charts.stacked(bars, ("script", "framework"), "what"))
    heights = [float(rect.get("height", 0)) for rect in picture.iter(f"{SVG}rect") if rect.get("class", "").startswith("fill-")]
    assert heights[0] == heights[1] == pytest.approx(heights[2] / 4, abs=0.1)
    assert [title.text for title in picture.iter(f"{SVG}title")] == ["Mon: script 2, framework 2", "Tue: script 8"]


@given(st.text(), st.dictionaries(st.sampled_from(["script", "unknown"]), st.floats(0, 1e12), max_size=2))
def test_no_label_breaks_out(label: str, values: dict[str, float]) -> None:
    markup = charts.stacked([Bar(label, values)], ("script", "unknown"), label)
    assert markup.count("<svg") == 1
    assert "<script" not in markup


def test_a_line_has_gaps_where_values_are_missing() -> None:
    picture = parsed(charts.sparkline([1, 2, None, float("nan"), 3, 4], "loss"))
    path = picture.find(f"{SVG}path")
    assert path is not None
    assert path.get("d", "").count("M") == 2


@pytest.mark.parametrize("values", [[], [1.0], [None, None], [float("nan")] * 5])
def test_nothing_to_draw_is_a_dash(values: list[float | None]) -> None:
    assert "–" in charts.sparkline(values, "loss")


@given(st.lists(st.integers(0, 10**12)), st.integers(0, 100))
def test_marks_on_the_same_pixels_are_one_and_none_is_lost(steps: list[int], more: int) -> None:
    steps.sort()
    least, most = (steps[0], steps[-1] + more) if steps else (0, 0)
    places = charts.together(((step, step) for step in steps), least, most)
    assert [step for place in places for step in place] == steps
    assert len(places) <= 151
    assert all(place[-1] - place[0] <= (most - least) / 150 for place in places)


def test_bars_that_lead_somewhere_are_links_in_a_group_and_others_a_picture() -> None:
    linked = charts.stacked(
        [Bar("Mon", {"script": 2}, "failures?from=1&to=2"), Bar("Tue", {})], ("script",), "what", stretch=(1, 3)
    )
    picture = parsed(linked)
    assert [(one.get("href"), one.get("aria-label")) for one in picture.iter(f"{SVG}a")] == [
        ("failures?from=1&to=2", "Mon: script 2")
    ]
    assert picture.get("role") == "group"
    assert (picture.get("data-since"), picture.get("data-until"), picture.get("data-bars")) == ("1", "3", "2")
    plain = parsed(charts.stacked([Bar("Mon", {"script": 2})], ("script",), "what"))
    assert plain.get("role") == "img"
    assert plain.get("data-since") is None


def test_the_times_of_an_axis_stand_within_it() -> None:
    day = 86400.0
    for since in (0.0, 0.01 * day, 0.99 * day):
        markup = charts.tracks([charts.Track("jobs", [])], since, since + 6.98 * day, "what", 1110)
        places = [float(place) for place in re.findall(r'class="label" x="([\d.]+)"', str(markup))]
        assert len(places) >= 6
        assert min(places) >= 30
        assert max(places) <= 1080
