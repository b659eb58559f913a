"""Scores of parts, and what they are together."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from diagnose.errors import DiagnoseError
from diagnose.evaluate.merging import Scores, merged, read
from diagnose.evaluate.work import Shard


def test_values_in_any_order_give_the_mean_of_all_to_the_last_digit() -> None:
    dice = random.Random(1)
    values = [dice.random() for _ in range(1000)]
    edges = [0, 1, 17, 400, 999, 1000]
    parts = []
    for first, after in itertools.pairwise(edges):
        mean = sum(values[first:after]) / (after - first)
        parts.append(Scores(Shard("a", first, after - first), {"f": mean}, {"f": values[first:after]}))
    dice.shuffle(parts)

    whole = merged(parts)

    assert whole.scores["f"] == merged([Scores(Shard("a", 0, 500), {"f": 0.0}, {"f": values[:500]}),
                                        Scores(Shard("a", 500, 500), {"f": 0.0}, {"f": values[500:]})]).scores["f"]  # fmt: skip
    assert whole.values["f"] == values
    assert whole.shard == Shard("a", 0, 1000)


def test_without_values_parts_weigh_as_many_samples_as_they_have() -> None:
    parts = [Scores(Shard("a", 0, 30), {"acc": 1.0}), Scores(Shard("a", 30, 10), {"acc": 0.0})]
    assert merged(parts).scores == {"acc": 0.75}


def test_one_part_keeps_the_score_that_its_metric_gave() -> None:
    assert merged([Scores(Shard("a", 0, 2), {"f1": 0.9}, {"f1": [0.0, 0.0]})]).scores == {"f1": 0.9}


def test_parts_with_other_scores_are_refused() -> None:
    with pytest.raises(DiagnoseError, match="not all parts of a have a score f1"):
        merged([Scores(Shard("a", 0, 1), {"acc": 1.0}), Scores(Shard("a", 1, 1), {"acc": 1.0, "f1": 1.0})])


@pytest.mark.parametrize(
    "written",
    [
        b"", b"[]", b"{}", b'{"scores": {}}', b'{"scores": {"a": NaN}}', b'{"scores": {"a": "1"}}', b'{"scores": {"": 1}}',
        b'{"scores": {"a": 1}, "samples": 4}', b'{"scores": {"a": 1}, "values": {"a": [1, 2]}}',
        b'{"scores": {"a": 1}, "values": {"b": [1, 2, 3]}}', b'{"scores": {"a\\u001b[2J": 1}}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_score_is_refused_with_a_remedy(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "s.json").write_bytes(written)

    with pytest.raises(DiagnoseError, match=r"s\.json: no scores that can be used"):
        read(tmp_path / "s.json", Shard("a", 0, 3))


def test_scores_are_read(tmp_path: Path) -> None:
    given: dict[str, Any] = {"samples": 3, "scores": {"acc": 1 / 3, "n": 2}, "values": {"acc": [True, 0, 0]}}
    (tmp_path / "s.json").write_text(json.dumps(given))

    found = read(tmp_path / "s.json", Shard("a", 0, 3))

    assert (found.scores, found.values) == ({"acc": 1 / 3, "n": 2.0}, {"acc": [1.0, 0.0, 0.0]})
