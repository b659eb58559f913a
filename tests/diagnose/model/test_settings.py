"""The model's settings: what is out of range is refused with a sentence."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from annotated_types import Ge, Le

from diagnose.errors import DiagnoseError
from diagnose.model.settings import Settings

FIELDS = Settings.__pydantic_fields__  # type: ignore[attr-defined]
NUMBERS = [name for name, field in FIELDS.items() if field.annotation in (int, float)]


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_has_a_range_and_its_edges_are_in_it(name: str) -> None:
    least = next(one.ge for one in FIELDS[name].metadata if isinstance(one, Ge))
    most = next(one.le for one in FIELDS[name].metadata if isinstance(one, Le))
    for edge in (least, most):
        assert getattr(Settings("", **{name: edge}), name) == edge
    for wrong in (least - 1, most + 1, float("nan"), float("inf"), "many", None):
        with pytest.raises(DiagnoseError, match=f"^{name} cannot be .*; give a (time|whole number) from"):
            Settings("", **{name: wrong})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"timeout_s": "nan"}, "timeout_s cannot be 'nan'; give a time from 0.001s to 1d, such as 90s, 10m or 24h"),
        ({"concurrency": 0}, "concurrency cannot be '0'; give a whole number from 1 to 1,000"),
        ({"timout_s": 3}, "the model has no setting 'timout_s'; did you mean timeout_s?"),
        ({"xyzzy": 3}, "the model has no setting 'xyzzy'; those here are url, model"),
    ],
)
def test_what_is_refused_is_a_sentence(more: dict[str, Any], said: str) -> None:
    with pytest.raises(DiagnoseError) as caught:
        Settings("http://localhost", **more)
    assert str(caught.value).startswith(said)


def test_a_key_is_not_shown() -> None:
    assert "hunter2" not in repr(Settings("", key="hunter2"))
    with pytest.raises(DiagnoseError) as caught:
        Settings("", key=["hunter2"])  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)


def test_times_may_have_units() -> None:
    assert Settings("", timeout_s="2m").timeout_s == 120  # type: ignore[arg-type]


def test_they_go_to_another_process_and_come_back() -> None:
    settings = Settings("http://localhost", key="k", timeout_s=7, record="x")
    assert Settings(**dataclasses.asdict(settings)) == settings
