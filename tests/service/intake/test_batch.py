"""What a batch may be called and how large it may be: names reach tables and pages, never the file system."""

from __future__ import annotations

import pytest

from service.errors import BadName, TooLarge
from service.intake.batch import LARGEST, MOST_LABELS, Batch, checked
from service.names import check_job, check_source


def batch(**changes: object) -> Batch:
    return Batch(**{"job": "train-7b", "source": "rank0.log", "data": b"x\n", **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["job123", "8812_3", "ns:job@2", "a" * 200, "8812_[1-4]", "x=1,y=2", "A.b-c+d"])
def test_a_job_may_be_called(name: str) -> None:
    assert check_job(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "../x", "-x", "a\nb", "a\0b", "ж", "a" * 201, "a\u202eb", "%2e%2e"]
)
def test_a_job_may_not_be_called(name: str) -> None:
    with pytest.raises(BadName):
        check_job(name)


@pytest.mark.parametrize("name", ["/var/log/x.log", "pod/a b", "ранг 0", "a" * 1000])
def test_a_source_may_look_like_a_path(name: str) -> None:
    assert check_source(name) == name


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[31m", "a\0", "a" * 1001])
def test_a_source_may_not_hold_what_a_terminal_acts_upon(name: str) -> None:
    with pytest.raises(BadName):
        check_source(name)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"rank": -1}, BadName),
        ({"rank": 1 << 31}, BadName),
        ({"offset": -1}, BadName),
        ({"attempt": -1}, BadName),
        ({"node": ""}, BadName),
        ({"node": "a\tb"}, BadName),
        ({"key": "k" * 300}, BadName),
        ({"data": bytes(LARGEST + 1)}, TooLarge),
        ({"labels": {"a b": "x"}}, BadName),
        ({"labels": {"a": "x\ny"}}, BadName),
        ({"labels": {"a": "x" * 300}}, TooLarge),
        ({"labels": {f"l{number}": "" for number in range(MOST_LABELS + 1)}}, TooLarge),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bounds(changes: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        checked(batch(**changes))


def test_within_bounds() -> None:
    good = batch(rank=0, node="gpu-17", offset=0, attempt=2, labels={"user": "kim", "k8s.io/team": "a b"}, key="k")
    assert checked(good) is good
