"""What finders of faulty nodes send: payloads made by hand after the forms in their sources, none of them was run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from diagnose.decision.history import NodeFinding
from service.acting.finders import (
    ComponentStates,
    KubernetesEvents,
    NVSentinelEvent,
    PolicyEvents,
    of_events,
    of_health,
    of_policies,
    of_states,
)
from service.acting.findings import Found
from service.store import Store, findings
from tests.conftest import ROOT

NOW = 1_800_000_000.0
AT = 1_795_168_800.0
"""2026-11-20T10:00:00Z"""


def payload(name: str) -> Any:
    return json.loads((ROOT / "tests" / "payloads" / name).read_text())


def events(**change: Any) -> Found:
    body = payload("kubernetes-events.json")
    body["items"][0] |= change
    return of_events(KubernetesEvents.model_validate(body).items, NOW)


def health(**change: Any) -> Found:
    body = payload("nvsentinel.json")
    body["data"]["healthEvent"] |= change
    return of_health(NVSentinelEvent.model_validate(body), NOW)


def states(**change: Any) -> Found:
    body = payload("gpud-states.json")
    body[0]["states"][0] |= change
    return of_states("gpu-17", [ComponentStates.model_validate(one) for one in body], NOW)


def test_warnings_about_nodes_without_what_jobs_cause_and_what_is_about_other_things() -> None:
    found = events()
    assert [(one.node, one.source, one.name, one.at, one.ended) for one, _ in found.findings] == [
        ("gpu-17", "kubernetes", "GpuThermalWatch", AT, AT + 300),
        ("gpu-18", "kubernetes", "Rebooted", AT + 3600.123456, AT + 3600.123456),
    ]
    assert found.findings[1][1] == "Node gpu-18 has been rebooted, boot id: 5c2e"
    assert (found.over, found.left_out) == ([], 0)


def test_what_nvsentinel_wants_a_program_restarted_for_says_nothing_of_the_node() -> None:
    for words in ("ErrorCode:43 GPU:3 Recommended Action=RESTART_APP;", "[43] GPU 3 - RecommendedAction: RESTART_APP"):
        assert [one.node for one, _ in events(message=words).findings] == ["gpu-18"]
    assert [health(recommendedAction=action).findings for action in (39, "RESTART_APP")] == [[], []]
    assert health(recommendedAction=15).findings


def test_our_own_word_that_comes_back_is_no_evidence() -> None:
    assert [one.node for one, _ in events(type="diagnose-isolated").findings] == ["gpu-18"]
    told = health(checkName="diagnose-isolated"), health(checkName="diagnose-isolated", isHealthy=True)
    assert [(found.findings, found.over) for found in told] == [([], [])] * 2


def test_an_event_without_a_time_is_left_out_and_counted() -> None:
    found = events(firstTimestamp=None, lastTimestamp=None)
    assert (len(found.findings), found.left_out) == (1, 1)


def test_a_fatal_health_event_lasts_until_its_check_is_healthy(store: Store) -> None:
    ((finding, said),) = health().findings
    assert (finding.node, finding.source, finding.name, finding.at, finding.ended) == (
        "gpu-17", "nvsentinel", "SysLogsXIDError", AT + 0.5, None,
    )  # fmt: skip
    assert said == "[79] GPU 3 has fallen off the bus"
    for found in (health(), health(isHealthy=True, isFatal=False, generatedTimestamp="2026-11-21T10:00:00Z")):
        store.write(lambda connection, found=found: findings.enter(connection, found.findings, found.over, "nvsentinel", NOW))
    (row,) = store.read(lambda connection: findings.of_node(connection, "gpu-17"))
    assert row["ended"] == AT + 86_400


def test_a_health_event_that_is_not_fatal_is_of_a_moment() -> None:
    ((finding, _),) = health(isFatal=False).findings
    assert finding.ended == finding.at


@pytest.mark.parametrize(
    "change",
    [{"nodeName": ""}, {"nodeName": "a b"}, {"checkName": None}, {"isFatal": "yes"}, {"generatedTimestamp": 5}],
    ids=str,
)
def test_what_is_no_health_event_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        health(**change)


def test_unhealthy_components_of_gpud_but_those_that_it_puts_down_to_a_program() -> None:
    found = states()
    assert [(one.node, one.source, one.name, one.at, one.ended) for one, _ in found.findings] == [
        ("gpu-17", "gpud", "accelerator-nvidia-error-xid", AT, None)
    ]
    assert found.findings[0][1] == "XID 79 (GPU has fallen off the bus) detected on GPU 0000:3b:00"
    assert [one.name for one in found.over] == ["disk"], "degraded is neither a finding nor its end"


def test_a_state_that_gpud_has_no_time_for_is_of_now() -> None:
    ((finding, _),) = states(time=None).findings
    assert (finding.name, finding.at) == ("accelerator-nvidia-error-xid", NOW)


def test_a_component_that_is_healthy_again_is_over() -> None:
    assert [one.name for one in states(health="Healthy").over] == ["accelerator-nvidia-error-xid", "disk"]


def test_what_dcgm_notices_but_what_a_job_can_cause() -> None:
    body = PolicyEvents.model_validate(payload("dcgm.json"))
    found = of_policies("gpu-17", body.lines, NOW)
    assert [(one.node, one.source, one.name, one.at, one.ended) for one, _ in found.findings] == [
        ("gpu-17", "dcgm", name, NOW, NOW) for name in ("DoubleBitECC", "Xid79", "NVLink409", "RetiredPages")
    ]
    assert found.findings[0][1] == "A double-bit ECC error has violated policy manager values. DBE error count: 2"
    assert str(found.findings[3][1]).endswith("SBE page retirement count: 0 DBE page retirement count: 61")
    assert (found.left_out, found.why) == (2, "a job can be the cause of it")


@pytest.mark.parametrize("line", ["", "XID error detected.", "XID error -79 detected.", "DBE error count: 3", "an Xid 79"])
def test_other_lines_of_dcgm_say_nothing(line: str) -> None:
    found = of_policies("gpu-17", [line], NOW)
    assert (found.findings, found.left_out) == ([], 0)


@pytest.mark.parametrize("timed", [False, True], ids=["without-a-time", "of-the-moment-of-the-check"])
def test_a_state_that_is_polled_again_counts_once(store: Store, timed: bool) -> None:
    def poll(number: int, **change: Any) -> None:
        now = NOW + 60 * number
        state = {"health": "Unhealthy", "reason": f"seen {number}", "time": datetime.fromtimestamp(now, UTC).isoformat()}
        state |= change | ({} if timed else {"time": None})
        found = of_states("gpu-17", [ComponentStates.model_validate({"component": "disk", "states": [state]})], now)
        store.write(lambda connection: findings.enter(connection, found.findings, found.over, "gpud", now))

    def told() -> list[tuple[Any, ...]]:
        rows = store.read(lambda connection: findings.of_node(connection, "gpu-17"))
        return [(row["at"], row["said"], row["ended"]) for row in rows]

    for number in range(10):
        poll(number)
    assert told() == [(NOW, "seen 9", None)]
    poll(10, health="Healthy")
    poll(11)
    assert told() == [(NOW + 660, "seen 11", None), (NOW, "seen 9", NOW + 600)], "it came back: that is another one"


def test_alerts_of_one_name_are_several(store: Store) -> None:
    """Of two GPUs of a node, for example. The end of one names when it began."""
    for at, ended in ((NOW, None), (NOW + 60, None), (NOW + 60, NOW + 90)):
        one = NodeFinding("gpu-17", at, "alertmanager", "DcgmXidError", ended)
        store.write(lambda connection, one=one: findings.enter(connection, [(one, None)], [], "prometheus", NOW + 90))
    rows = store.read(lambda connection: findings.of_node(connection, "gpu-17"))
    assert [(row["at"], row["ended"]) for row in rows] == [(NOW + 60, NOW + 90), (NOW, None)]
