"""What a policy answers: whose mode counts, which class a job belongs to, who may say yes."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.decision.policy_file import over_shipped


def site(folder: Path, text: str) -> Path:
    path = folder / "site.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("reason", "kind", "gpus", "mode", "clause"),
    [
        pytest.param("hang", "restart", 1, "observe", "mode", id="nothing-names-it"),
        pytest.param("key_error", "retry_later", 1, "approve", "modes.retry_later", id="by-action"),
        pytest.param("preempted", "restart", 1, "auto", "modes.preempted", id="by-reason"),
        pytest.param("preempted", "retry_later", 1, "auto", "modes.preempted", id="a-reason-goes-before-an-action"),
        pytest.param("preempted", "restart", 64, "approve", "classes.big.mode", id="a-class-goes-before-both"),
        pytest.param("hang", "restart", 64, "auto", "classes.big.modes.hang", id="a-reason-of-a-class-goes-before-its-mode"),
    ],
)
def test_whose_mode_counts(tmp_path: Path, reason: str, kind: str, gpus: int, mode: str, clause: str) -> None:
    text = """
modes: {preempted: auto, retry_later: approve}
classes:
  - {name: big, match: {gpus_at_least: 64}, mode: approve, modes: {hang: auto}}
"""
    policy = over_shipped(site(tmp_path, text))
    chosen = policy.mode_for(reason, kind, policy.class_of("job", {}, gpus))
    assert (chosen.mode, chosen.clause) == (mode, clause)
    assert chosen.where.rpartition(":")[2].isdigit()


@pytest.mark.parametrize(
    ("job", "labels", "gpus", "fits"),
    [
        pytest.param("pre-7b", {"app.kubernetes.io/queue": "prod"}, 64, True, id="all-of-it"),
        pytest.param("eval-7b", {"app.kubernetes.io/queue": "prod"}, 64, False, id="another-name"),
        pytest.param("pre-7b", {}, 64, False, id="no-label"),
        pytest.param("pre-7b", {"app.kubernetes.io/queue": "prod"}, None, False, id="unknown-size-is-not-large"),
    ],
)
def test_which_jobs_a_class_is_for(tmp_path: Path, job: str, labels: dict[str, str], gpus: int | None, fits: bool) -> None:
    text = "classes: [{name: a, match: {job: 'pre-*', labels: {app.kubernetes.io/queue: 'pr*'}, gpus_at_least: 64}}]"
    assert (over_shipped(site(tmp_path, text)).class_of(job, labels, gpus) is not None) == fits


@pytest.mark.parametrize(
    ("who", "roles", "owner", "kind", "may"),
    [
        pytest.param("ann", ["operate"], False, "restart", True, id="by-role"),
        pytest.param("ann", ["read"], False, "restart", False, id="another-role"),
        pytest.param("ann", ["read"], True, "restart", True, id="the-owner"),
        pytest.param("ann", ["operate"], True, "isolate_and_restart", False, id="an-own-list-replaces-the-default"),
        pytest.param("bob", [], False, "isolate_and_restart", True, id="by-name"),
        pytest.param("role:operate", [], False, "restart", False, id="a-name-that-looks-like-a-role"),
    ],
)
def test_who_may_say_yes(tmp_path: Path, who: str, roles: list[str], owner: bool, kind: str, may: bool) -> None:
    text = "approvers: {default: ['role:operate', owner], isolate_and_restart: ['user:bob']}"
    assert over_shipped(site(tmp_path, text)).may_approve(kind, who, roles, owner=owner) == may
