"""Diagnosis -> action, and the table it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.errors import RuleError
from diagnose.policy import read, shipped_policy
from diagnose.taxonomy import shipped_taxonomy
from tests.logs import report_of, steps

XID = "Mar 04 07:09:47 gpu-13 kernel: [812345.670] NVRM: Xid (PCI:0000:8a:00): {}, pid=4105, name=python, x\n"


def test_every_reason_has_an_action_and_a_why() -> None:
    policy = shipped_policy()
    assert set(policy.actions) == set(shipped_taxonomy().category_of)
    assert all(remedy.kind in shipped_taxonomy().actions and remedy.why.endswith(".") for remedy in policy.actions.values())


def test_a_node_is_isolated_only_when_it_is_named() -> None:
    named = report_of(XID.format(79))
    assert (named.action.kind, named.action.nodes) == ("isolate_and_restart", ["gpu-13"])
    nameless = report_of("RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    assert (nameless.action.kind, nameless.action.nodes) == ("isolate_and_restart", [])
    assert "does not name the node" in nameless.action.why


def test_an_illegal_access_of_the_program_does_not_cost_a_node() -> None:
    assert report_of(XID.format(31)).action.kind == "restart"


def test_a_loss_that_went_wrong_says_from_where_and_what_to_skip() -> None:
    log = "".join(steps(n, n, 6 - n / 100) for n in range(1, 101)) + steps(101, 110, 11.0)
    action = report_of(log).action
    assert action.kind == "rollback_and_skip"
    assert action.restart_from is not None
    assert action.restart_from.step is not None
    assert action.restart_from.step < 101
    assert action.skip_batches is not None
    assert action.skip_batches[0] < 101 <= action.skip_batches[1]


def test_a_name_that_is_missing_in_the_jobs_own_code() -> None:
    own = "ImportError: cannot import name 'Strategy' from 'generation' (/home/ann/generation/__init__.py)\n"
    assert report_of(own).action.kind == "fix_code"
    installed = own.replace("/home/ann/", "/env/lib/python3.11/site-packages/")
    assert report_of(installed).action.kind == "fix_config"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("actions: 3", "a policy is a mapping with actions"),
        ("actions: {hang: {kind: restart, why: x}}", "no action for the reason"),
    ],
)
def test_a_bad_policy_says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "policy.yaml").write_text(text)
    with pytest.raises(RuleError, match=said):
        read(tmp_path / "policy.yaml")


def test_an_unknown_reason_in_the_policy(tmp_path: Path) -> None:
    shipped = (Path(__file__).parent.parent / "rules" / "policy.yaml").read_text()
    (tmp_path / "policy.yaml").write_text(shipped + "  bad_luck: {kind: restart, why: x}\n")
    with pytest.raises(RuleError, match="unknown reason 'bad_luck'"):
        read(tmp_path / "policy.yaml")
