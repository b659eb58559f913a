"""What an order rests on, against what the scheduler knows; and the lists of nodes that Slurm writes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from service.acting.authority import Authority
from service.acting.executors.claim import Claim, Confirmed, Unconfirmed
from service.acting.executors.configuration import Configured
from service.acting.executors.executor import Order, Problem
from service.acting.executors.hostlist import expand
from service.projects import EVERYTHING, NOBODY, Grant

KIM = Grant(users=("kim",), jobs=("ml.*",), namespaces=("ml",), nodes=("gpu-*",))
HELD = Claim((KIM,), ("gpu-1",), began=1000.0)


@pytest.mark.parametrize(
    ("claim", "owner", "began", "nodes", "said"),
    [
        (HELD, "kim", 900.0, ["gpu-1", "gpu-2"], None),
        (HELD, "lee", 900.0, ["gpu-1"], "lee's"),
        (replace(HELD, speakers=(KIM, NOBODY)), "kim", 900.0, ["gpu-1"], "kim's"),
        (replace(HELD, speakers=()), "kim", 900.0, ["gpu-1"], "nobody"),
        (HELD, "kim", 2000.0, ["gpu-1"], "after its log had begun"),
        (HELD, "kim", 900.0, ["gpu-2"], "where the job does not run"),
        (replace(HELD, nodes=("gpu-1.example.org",)), "kim", 900.0, ["gpu-1"], None),
        (replace(HELD, speakers=(KIM, Grant(kernel=True, nodes=("gpu-1",)))), "kim", 900.0, ["gpu-1"], None),
        (replace(HELD, speakers=(Grant(kernel=True, nodes=("gpu-1",)),)), "kim", 900.0, ["gpu-1"], "kim's"),
        (replace(HELD, speakers=(NOBODY,), word="lee"), "kim", 2000.0, [], None),
    ],
)
def test_a_claim_can_only_fail(claim: Claim, owner: str, began: float, nodes: list[str], said: str | None) -> None:
    objection = claim.against_user(owner) or claim.not_the_same(began, nodes)
    assert (objection is None) == (said is None)
    assert said is None or said in str(objection)
    assert Claim.of(claim.as_dict()) == claim


@pytest.mark.parametrize(
    ("claim", "namespace", "name", "said"),
    [
        (HELD, "ml", "llama", None),
        (HELD, "bank", "llama", "namespace bank"),
        (replace(HELD, speakers=(KIM, NOBODY)), "ml", "llama", "namespace ml"),
        (replace(HELD, speakers=(replace(KIM, jobs=("mistral*",)),)), "ml", "llama", "--job"),
        (replace(HELD, speakers=(replace(KIM, jobs=("llama*",)),)), "ml", "llama", None),
        (replace(HELD, speakers=()), "ml", "llama", "nobody"),
        (replace(HELD, speakers=(NOBODY,), word="lee"), "bank", "llama", None),
    ],
)
def test_a_claim_on_a_job_in_a_namespace(claim: Claim, namespace: str, name: str, said: str | None) -> None:
    objection = claim.against_namespace(namespace, name)
    assert (objection is None) == (said is None)
    assert said is None or said in str(objection)


@pytest.mark.parametrize(
    ("job", "labels", "speakers", "holds"),
    [
        ("ml.llama", {}, (KIM,), True),
        ("ml.llama", {}, (EVERYTHING,), True),
        ("ml.llama", {}, (KIM, NOBODY), False),
        ("other", {}, (KIM,), False),
        ("ml.llama", {"slurm.job_id": "8812"}, (KIM,), False),
        ("ml.llama", {"namespace": "ml"}, (KIM,), True),
        ("ml.llama", {"namespace": "bank"}, (KIM,), False),
        ("ml.llama", {}, (), False),
    ],
)
def test_without_a_scheduler_bindings_decide(
    job: str, labels: dict[str, str], speakers: tuple[Grant, ...], holds: bool
) -> None:
    by = Configured("test", "webhook", object(), frozenset({"restart"}))  # type: ignore[arg-type]
    answer = asyncio.run(Authority([by]).confirm(Order("key", "restart", job, 1, labels, claim=Claim(speakers))))
    assert isinstance(answer, Confirmed if holds else Unconfirmed)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("gpu-1", ("gpu-1",)),
        ("gpu-[01-03,7],login1", ("gpu-01", "gpu-02", "gpu-03", "gpu-7", "login1")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
    ],
)
def test_a_list_of_nodes(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["gpu-[1", "gpu-[3-1]", "gpu-[a]", "a,,b", "gpu-[1-999999999]", "x[1-1000]y[1-1000]"])
def test_half_of_a_list_is_none(text: str) -> None:
    with pytest.raises(Problem):
        expand(text)
