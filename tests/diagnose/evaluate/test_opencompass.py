"""The adapter for OpenCompass, compared with the real one where DIAGNOSE_OPENCOMPASS names a Python that has it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks.evaluation import compass
from diagnose.evaluate.adapters.opencompass import _range, joined, told

PYTHON = os.environ.get("DIAGNOSE_OPENCOMPASS")
"""an interpreter that has OpenCompass: it wants older packages than ours, so it lives apart"""


def write(folder: Path, first: int, answers: list[str]) -> Path:
    path = folder / f"{first}-{len(answers)}" / "predictions.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({str(number): {"prediction": one} for number, one in enumerate(answers)}))
    return path


def test_predictions_of_ranges_are_those_of_one_run(tmp_path: Path) -> None:
    paths = [write(tmp_path, 10, ["k"]), write(tmp_path, 0, list("abcdefgh")), write(tmp_path, 8, ["i", "j"])]
    found = joined(paths)
    assert list(found) == [str(number) for number in range(11)]
    assert "".join(one["prediction"] for one in found.values()) == "abcdefghijk"


def test_a_gap_is_an_error(tmp_path: Path) -> None:
    paths = [write(tmp_path, 0, ["a"]), write(tmp_path, 2, ["c"])]
    with pytest.raises(SystemExit, match="samples 1 to 1 have no predictions"):
        joined(paths)


@pytest.mark.parametrize(
    ("details", "values"),
    [
        ([{"correct": True}, {"correct": False}], [100.0, 0.0]),
        ({"type": "PPL", "0": {"correct": 1}, "1": {"correct": 0}}, [100.0, 0.0]),
        ({"0": {"correct": [True]}, "1": {"correct": [False]}}, [100.0, 0.0]),
        ([{"correct": True}, {"correct": True}], None),
        ([{"pred": "A"}, {"pred": "B"}], None),
        (None, None),
    ],
    ids=["a list", "by number", "a list of one", "another mean", "nothing said", "no details"],
)
def test_samples_have_values_where_they_make_up_the_score(details: object, values: list[float] | None) -> None:
    found = told({"accuracy": 50.0, "details": details, "type": "GEN", "nan": float("nan")}, ["accuracy", "other"])
    assert found == {
        "scores": {"accuracy": 50.0},
        "values": {"accuracy": values} if values else {},
        "lower": ["accuracy"],
    }


def test_a_range_of_the_configuration_stays() -> None:
    assert _range({"test_range": "[0:100]"}) == "[0:100]"
    assert _range({}) == ""
    with pytest.raises(SystemExit, match="write test_range as a text"):
        _range({"test_range": 0.5})


if PYTHON is not None:  # else there is no such test: one that is skipped is a failure in CI

    @pytest.mark.server
    @pytest.mark.timeout(900)
    def test_shards_together_are_what_opencompass_gives(tmp_path: Path) -> None:
        assert compass.compare(str(PYTHON), tmp_path) == dict.fromkeys(compass.SIZES, True)
