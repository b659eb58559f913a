"""Whose line is it: what shippers send for Slurm and for the operators of Kubernetes, and what our operators may change."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from diagnose.errors import DiagnoseError
from service.intake.protocols.identity import Identities, Identity, load, normal


@pytest.fixture(scope="module")
def shipped() -> Identities:
    return load()


def of(identities: Identities, attributes: dict[str, Any]) -> Identity:
    return identities.identity(identities.known(attributes))


K8S = {"k8s.namespace.name": "ml", "k8s.pod.name": "llama-worker-3", "k8s.container.name": "pytorch", "k8s.node.name": "gpu-17"}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "slurm-environment": (
        {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "12", "SLURMD_NODENAME": "gpu-17", "SLURM_RESTART_COUNT": "2"},
        {"job": "4711", "rank": 12, "node": "gpu-17", "attempt": 3, "source": "gpu-17/rank12"},
    ),
    "slurm-attributes": (
        {"slurm.job_id": 4711, "slurm.procid": 0, "log.file.path": "/logs/slurm-4711.out", "slurm.job_user": "kim"},
        {"job": "4711", "rank": 0, "source": "/logs/slurm-4711.out", "labels": (("user", "kim"),)},
    ),
    "slurm-array": (
        {"SLURM_JOB_ID": "4713", "SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "2"},
        {"job": "4711_2"},
    ),
    "pytorchjob-otel-collector": (
        {
            **K8S,
            "k8s.pod.label.training.kubeflow.org/job-name": "llama",
            "k8s.pod.label.training.kubeflow.org/replica-index": "3",
        },
        {
            "job": "ml.llama",
            "source": "llama-worker-3/pytorch",
            "node": "gpu-17",
            "rank": None,
            "labels": (("namespace", "ml"),),
        },
    ),
    "pytorchjob-fluent-bit": (
        {
            "kubernetes": {
                "pod_name": "llama-worker-3",
                "namespace_name": "ml",
                "container_name": "pytorch",
                "host": "gpu-17",
                "labels": {"training.kubeflow.org/job-name": "llama", "training.kubeflow.org/replica-type": "worker"},
            }
        },
        {"job": "ml.llama", "source": "llama-worker-3/pytorch", "node": "gpu-17"},
    ),
    "pytorchjob-vector": (
        {
            "file": "/var/log/pods/ml_llama/0.log",
            "kubernetes": {
                "pod_name": "llama-worker-3",
                "pod_namespace": "ml",
                "container_name": "pytorch",
                "pod_node_name": "gpu-17",
                "pod_labels": {"training.kubeflow.org/job-name": "llama"},
            },
        },
        {"job": "ml.llama", "source": "llama-worker-3/pytorch", "node": "gpu-17"},
    ),
    "pytorchjob-promtail": (
        {
            "namespace": "ml",
            "pod": "llama-worker-3",
            "container": "pytorch",
            "node_name": "gpu-17",
            "job": "ml/pytorch",
            "training_kubeflow_org_job_name": "llama",
            "filename": "/var/log/pods/x/0.log",
        },
        {"job": "ml.llama", "source": "llama-worker-3/pytorch", "node": "gpu-17"},
    ),
    "jobset": (
        {
            **K8S,
            "k8s.pod.labels.jobset.sigs.k8s.io/jobset-name": "llama",
            "k8s.pod.labels.jobset.sigs.k8s.io/restart-attempt": "1",
            "k8s.pod.labels.batch.kubernetes.io/job-name": "llama-workers-0",
        },
        {"job": "ml.llama", "attempt": 2},
    ),
    "volcano": (
        {**K8S, "k8s.pod.labels.volcano.sh/job-name": "llama", "k8s.pod.labels.volcano.sh/job-retry-count": "0"},
        {"job": "ml.llama", "attempt": 1},
    ),
    "batch-job": ({**K8S, "k8s.job.name": "finetune"}, {"job": "ml.finetune"}),
    "plain-labels": ({"job": "run7", "rank": "3", "node": "n1", "user": "kim"}, {"job": "run7", "rank": 3, "node": "n1"}),
    "prometheus-job": ({"job": "ml/pytorch"}, {"job": "ml.pytorch"}),
    "ours-first": (
        {"diagnose.job": "run7", "SLURM_JOB_ID": "1", "diagnose.rank": "5", "rank": "6"},
        {"job": "run7", "rank": 5},
    ),
    "syslog": (
        {"HOST": "gpu-17", "PROGRAM": "slurmstepd", "SLURM_JOB_ID": "9"},
        {"source": "gpu-17/slurmstepd", "node": "gpu-17"},
    ),
    "rank-is-no-number": ({"job": "a", "rank": "worker-3"}, {"rank": None}),
    "next-template-when-one-is-no-number": ({"job": "a", "SLURM_PROCID": "x", "rank": "4"}, {"rank": 4}),
    "attempt-too-large": ({"job": "a", "attempt": "9" * 30}, {"attempt": None}),
    "node-with-control-characters": ({"job": "a", "node": "gpu\x1b[31m"}, {"node": None}),
    "nothing": ({}, {"job": None, "attempt": None, "source": None, "rank": None, "node": None, "labels": ()}),
    "empty-is-nothing": ({"diagnose.job": "", "job": "b"}, {"job": "b"}),
    "wrong-types": ({"job": ["a"], "rank": {"x": {}}, "node": 1.5, "source": None}, {"job": None, "rank": None, "node": None}),
}


@pytest.mark.parametrize("name", CASES)
def test_default(name: str, shipped: Identities) -> None:
    attributes, expected = CASES[name]
    found = of(shipped, attributes)
    assert expected == {field: getattr(found, field) for field in expected}


def test_names_are_compared_without_case_and_punctuation() -> None:
    assert "slurm_job_id" == normal("SLURM_JOB_ID") == normal("slurm.job_id") == normal("__slurm-job-id__")


def test_a_deep_and_a_wide_record_cost_little(shipped: Identities) -> None:
    deep: dict[str, Any] = {"job": "bottom"}
    for _ in range(2000):
        deep = {"a": deep}
    wide = {**{f"k{i}": i for i in range(100_000)}, "job": "last"}
    assert (of(shipped, deep).job, of(shipped, wide).job) == (None, None)


@pytest.mark.parametrize("name", ["k" * 100_000, "short"])
def test_a_long_name_is_not_written_again_for_each_name_below_it(shipped: Identities, name: str) -> None:
    inner = {f"b{i}": {} for i in range(400)}
    with grown() as most:
        shipped.known({name: {f"a{i}": inner for i in range(100)}})
    assert most[0] < 1_000_000


def test_what_senders_call_their_logs_does_not_fill_the_memory(shipped: Identities) -> None:
    names = sorted(shipped._knowledge.names)
    with grown() as most:
        for number in range(100):
            of(shipped, dict.fromkeys(names, f"{number:0>1000}"))
    assert most[0] < 1_000_000
    first = of(shipped, {"job": "run7"})
    assert of(shipped, {"job": "run7"}) is first, "the usual ones are remembered"


@contextmanager
def grown() -> Iterator[list[int]]:
    """Afterwards: how many bytes more the most were."""
    most = [0]
    tracemalloc.start()
    try:
        yield most
        most[0] = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_operator_replaces_fields(tmp_path: Path) -> None:
    own = tmp_path / "identity.yaml"
    own.write_text("job: ['{team}-{run}']\n")
    identities = load(own)
    assert of(identities, {"team": "vision", "run": 7}).job == "vision-7"
    assert of(identities, {"SLURM_PROCID": "3"}).rank == 3


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("jobs: ['{a}']\n", "identity.yaml:1", "unknown key 'jobs'"),
        ("rank: ['{a}']\njob: '{a}'\n", "identity.yaml:2", "job must be a list"),
        ("job: [slurm.job_id]\n", "job", "names no attribute"),
        ("job: ['{}']\n", "job", "names no attribute"),
        ("- a\n", "identity.yaml", "not a mapping"),
        ("job: [\n", "identity.yaml", "not valid YAML"),
        ("labels: {user: x}\n", "identity.yaml", "user must be a list"),
    ],
)
def test_a_mistake_in_their_file_is_named(text: str, where: str, what: str, tmp_path: Path) -> None:
    own = tmp_path / "identity.yaml"
    own.write_text(text)
    with pytest.raises(DiagnoseError, match=what) as caught:
        load(own)
    assert where in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DiagnoseError, match="cannot be read"):
        load(tmp_path / "none.yaml")


def test_what_a_shipper_says_comes_before_what_a_pod_is_labelled_with(shipped: Identities) -> None:
    """Whatever the order: labels are written by whoever makes the pod."""
    said = {"kubernetes": {"labels": {"namespace": "ml", "job": "llama", "pod": "x"}, "namespace_name": "lab", "pod_name": "a"}}
    found = of(shipped, said)
    assert dict(found.labels)["namespace"] == "lab"
    assert found.source == "a"
