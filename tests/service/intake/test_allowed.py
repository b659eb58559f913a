"""What the holder of a token may name in what it sends."""

from __future__ import annotations

import pytest

from service.errors import Forbidden
from service.intake.batch import Batch, allowed, check_may_write
from service.projects import EVERYTHING, NOBODY, Grant

BOUND = Grant(jobs=("ml-*",), clusters=("alps",))
KERNEL = Grant(nodes=("gpu-1",), kernel=True)


def sent(job: str = "ml-1", source: str = "log", node: str | None = None, **labels: str) -> Batch:
    return Batch(job=job, source=source, data=b"a line\n", node=node, labels=labels)


@pytest.mark.parametrize(
    ("grant", "batch"),
    [
        (BOUND, sent("other")),
        (BOUND, sent(cluster="dom")),
        (BOUND, sent(source="node:gpu-1/kern.log")),
        (NOBODY, sent(source="node:gpu-1/kern.log")),
        (KERNEL, sent(source="node:gpu-2/kern.log")),
        (KERNEL, sent(source="node:gpu-1/kern.log", node="gpu-2")),
        (EVERYTHING, sent(source="node:gpu-1/kern.log", node="gpu-2")),
    ],
)
def test_what_a_token_may_not_name_is_refused(grant: Grant, batch: Batch) -> None:
    with pytest.raises(Forbidden):
        allowed(batch, grant)


@pytest.mark.parametrize("grant", [BOUND, NOBODY, EVERYTHING, None])
def test_what_it_may_is_taken_as_it_is(grant: Grant | None) -> None:
    batch = sent(cluster="alps")
    assert allowed(batch, grant) == batch
    check_may_write("ml-1", grant)


def test_where_nobody_asks_a_source_may_have_any_name() -> None:
    batch = sent("other", "node:gpu-1/kern.log", node="gpu-2")
    assert allowed(batch, None) == batch


def test_the_name_of_a_kernels_source_says_its_node() -> None:
    assert allowed(sent(source="node:gpu-1/kern.log"), KERNEL).node == "gpu-1"
