"""What others found of nodes: payloads as Alertmanager and Kubernetes document them; who may tell; what is stored of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.acting.findings import (
    AlertmanagerWebhook,
    Found,
    KubernetesNodes,
    check_may_tell,
    of_alerts,
    of_nodes,
)
from service.errors import Forbidden
from service.projects import Grant
from service.store import Store, findings, reading
from tests.conftest import ROOT

NOW = 1_800_000_000.0
PAYLOADS = ROOT / "tests" / "payloads"


def payload(name: str) -> Any:
    return json.loads((PAYLOADS / name).read_text())


def alerts(**change: Any) -> Found:
    body = payload("alertmanager.json")
    body["alerts"][0] |= change
    return of_alerts(AlertmanagerWebhook.model_validate(body), NOW)


def nodes() -> Found:
    return of_nodes(KubernetesNodes.model_validate(payload("kubernetes-nodes.json")).items, NOW)


def enter(store: Store, found: Found) -> None:
    store.write(lambda connection: findings.enter(connection, found.findings, found.over, "prometheus", NOW))


def test_alerts_name_nodes_by_the_labels_that_exporters_give_them() -> None:
    found = alerts()
    assert [(one.node, one.source, one.name, one.ended) for one, _ in found.findings] == [
        ("gpu-17", "alertmanager", "DcgmXidError", None),
        ("10.1.2.3", "alertmanager", "NodeNetworkErrors", 1_799_990_000.0),
    ]
    assert found.findings[0][1] == "GPU 3 of gpu-17 reports Xid 79"
    assert (found.left_out, "no label names the node" in str(found.why)) == (1, True)


def test_a_time_in_the_future_is_now() -> None:
    assert alerts(startsAt="2099-01-01T00:00:00Z").findings[0][0].at == NOW


def test_conditions_of_nodes_without_what_jobs_cause() -> None:
    found = nodes()
    assert [(one.node, one.name, said) for one, said in found.findings] == [
        ("gpu-17", "GpuXidError", "GpuXidErrorIsTrue: Xid 79 on GPU 3"),
        ("gpu-18", "Ready", "NodeStatusUnknown: Kubelet stopped posting node status."),
    ]
    assert ("gpu-17", "Ready") in [(one.node, one.name) for one in found.over]
    assert {one.name for one in found.over} == {"Ready", "KernelDeadlock"}


@pytest.mark.parametrize(
    "ours",
    [
        {"type": "example.com/DiagnoseIsolated", "reason": "AnotherReason"},
        {"type": "example.com/Broken", "reason": "IsolatedByDiagnose"},
        {"type": "diagnose-isolated", "reason": "diagnose-isolatedIsNotHealthy"},
    ],
    ids=["type", "reason", "somebody-who-watches-it"],
)
def test_our_own_condition_is_no_evidence_for_itself(ours: dict[str, str]) -> None:
    body = payload("kubernetes-nodes.json")
    body["items"][0]["status"]["conditions"].append({"status": "True", "lastTransitionTime": "2026-11-24T12:00:00Z", **ours})
    found = of_nodes(KubernetesNodes.model_validate(body).items, NOW)
    assert [(one.node, one.name) for one, _ in found.findings] == [(one.node, one.name) for one, _ in nodes().findings]


def test_what_is_told_again_counts_once_and_what_is_fine_again_is_over(store: Store) -> None:
    for _ in range(2):
        enter(store, nodes())
    (row,) = store.read(lambda connection: findings.of_node(connection, "gpu-17"))
    assert (row["name"], row["ended"], row["who"]) == ("GpuXidError", None, "prometheus")
    fine = payload("kubernetes-nodes.json")
    for condition in fine["items"][0]["status"]["conditions"]:
        condition |= {
            "status": "True" if condition["type"] == "Ready" else "False",
            "lastTransitionTime": "2026-11-24T12:00:00Z",
        }
    enter(store, of_nodes(KubernetesNodes.model_validate(fine).items, NOW))
    (row,) = store.read(lambda connection: findings.of_node(connection, "gpu-17"))
    assert row["ended"] is not None
    enter(store, nodes())
    (row,) = store.read(lambda connection: findings.of_node(connection, "gpu-17"))
    assert row["ended"] is None, "it is as Kubernetes says now"


def test_a_finding_makes_the_node_known_and_isolates_nothing(store: Store) -> None:
    enter(store, alerts())
    node = store.read(lambda connection: reading.node(connection, "gpu-17"))
    assert node is not None
    assert (node["state"], node["failures"]) == ("ok", 0)
    told = store.read(lambda connection: findings.since(connection, NOW - 86_400))
    assert {(one.node, one.name) for one in told} >= {("gpu-17", "DcgmXidError")}


@pytest.mark.parametrize(
    ("grant", "administrator", "allowed"),
    [
        (None, True, True),
        (None, False, False),
        (Grant(nodes=("*",)), False, False),
        (Grant(nodes=("gpu-*",), kernel=True), False, False),
        (Grant(nodes=("gpu-*", "10.1.2.3"), kernel=True), False, True),
    ],
    ids=["administrator", "ingest", "ingest-that-accuses", "node-of-others", "node"],
)
def test_only_a_nodes_own_token_or_an_administrators_tells(grant: Grant | None, administrator: bool, allowed: bool) -> None:
    if allowed:
        check_may_tell(alerts(), grant, administrator=administrator)
        return
    with pytest.raises(Forbidden):
        check_may_tell(alerts(), grant, administrator=administrator)


def test_what_is_fine_again_is_told_by_the_same_only() -> None:
    fine = Found(over=nodes().over)
    with pytest.raises(Forbidden):
        check_may_tell(fine, Grant(nodes=("gpu-99",), kernel=True), administrator=False)
