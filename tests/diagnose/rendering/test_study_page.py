"""The plots of the study."""

from __future__ import annotations

import re
from datetime import date, timedelta

import pytest

from diagnose.rendering.study_page import bars


@pytest.mark.parametrize("count", [1, 7, 24, 39, 60, 61, 62, 63, 90, 400])
def test_no_label_of_an_axis_is_cut(count: int) -> None:
    days = [str(date(2026, 9, 1) + timedelta(days=day)) for day in range(count)]
    picture = str(bars([day % 5 for day in range(count)], days, "failures by day"))
    labels = re.findall(r'<text class="tick" x="([\d.]+)" y="125">([^<]*)</text>', picture)
    assert labels[0][1] == days[0]
    assert all(float(x) + 6 * len(name) <= 720 for x, name in labels)
    ends = [float(x) + 6.2 * len(name) for x, name in labels]
    assert all(end < float(x) for end, (x, _) in zip(ends, labels[1:], strict=False)), "no two lie over each other"
