"""Finding -> what one log alone speaks for."""

from __future__ import annotations

from diagnose.decision.policy_file import shipped_policy
from diagnose.knowledge.taxonomy import shipped_taxonomy
from tests.support.logs import report_of, steps

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


def test_a_roll_back_goes_to_the_newest_checkpoint_before_the_onset() -> None:
    saved = " successfully saved checkpoint at iteration {:7d} to /ckpt/run7\n"
    log = "".join(steps(n, n, 6 - n / 100) + (saved.format(n) if n % 20 == 0 else "") for n in range(1, 101))
    log += steps(101, 119, 11.0) + saved.format(120) + steps(120, 130, 11.0)
    report = report_of(log)
    assert [one.step for one in report.checkpoints] == [20, 40, 60, 80, 100, 120]
    assert report.action.restart_from is not None
    assert (report.action.restart_from.step, report.action.restart_from.path) == (80, "/ckpt/run7")
    assert report.action.skip_batches == (99, 130)
    assert report.diagnosis.affected is not None
    assert (report.diagnosis.affected.first, report.diagnosis.affected.last) == (101, 130)
