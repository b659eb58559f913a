"""Finding -> what one log alone speaks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.decision.advice import advise
from diagnose.decision.policy_file import shipped_policy
from diagnose.knowledge.taxonomy import shipped_taxonomy
from tests.support.cases import policy
from tests.support.logs import job_of, report_of, steps

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


def test_batches_are_skipped_only_where_the_job_rolls_back(tmp_path: Path) -> None:
    job = job_of("".join(steps(n, n, 6 - n / 100) for n in range(1, 101)) + steps(101, 110, 11.0))
    finding = job.finding(job.evidence())
    assert advise(finding, shipped_policy()).skip_batches is not None
    action = advise(finding, policy(tmp_path, "actions: {loss_anomaly: {kind: none, why: A person looks.}}"))
    assert (action.kind, action.skip_batches, action.restart_from) == ("none", None, None)


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


RAISED = 'Traceback (most recent call last):\n  File "/home/ann/train.py", line 3, in <module>\n{}ValueError: no such thing\n'
LIBRARY = '  File "/env/lib/python3.11/site-packages/transformers/args.py", line 9, in check\n    raise ValueError(text)\n'
OWN = '  File "/home/ann/data.py", line 9, in check\n    raise ValueError(text)\n'
WORKER = "RuntimeError: DataLoader worker (pid 4105) is killed by signal: {}. \n"
REFUSED = "DistNetworkError: The client socket has failed to connect to {} (errno: 111 - Connection refused).\n"
IN_USE = "RuntimeError: The server socket has failed to bind to localhost:29500 (errno: 98 - Address already in use).\n"
SIGNAL = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 123 got signal: {}\n"
PEER = (
    "gpu-1:123:456 [0] transport/net_ib.cc:1234 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<40001>"
    " with status=12 opcode=0 len=0 vendor err 129 (Recv)\n"
)


@pytest.mark.parametrize(
    ("line", "at_start", "later"),
    [
        pytest.param(RAISED.format(LIBRARY), "fix_config", "fix_code", id="a library refused a value"),
        pytest.param(RAISED.format(OWN), "fix_code", "fix_code", id="the job's own code refused a value"),
        pytest.param(WORKER.format("Bus error"), "fix_config", "fix_config", id="shared memory ran out"),
        pytest.param(WORKER.format("Killed"), "restart", "restart", id="a worker was killed"),
        pytest.param(REFUSED.format("localhost:29500"), "fix_config", "retry_later", id="cannot reach itself by name"),
        pytest.param(REFUSED.format("127.0.0.1:29500"), "fix_config", "retry_later", id="cannot reach itself by address"),
        pytest.param(REFUSED.format("gpu-7:29500"), "retry_later", "retry_later", id="cannot reach another"),
        pytest.param(IN_USE, "retry_later", "retry_later", id="the port is in use"),
        pytest.param(SIGNAL.format(2), "none", "none", id="a person interrupted it"),
        pytest.param(
            "[INFO] [launch.py:344] Main process received SIGINT, exiting\n", "none", "none", id="a person pressed keys"
        ),
        pytest.param(SIGNAL.format(15), "restart", "restart", id="the scheduler ended it"),
        pytest.param(PEER, "fix_config", "restart", id="two ends of a connection"),
    ],
)
def test_the_line_and_when_it_was_said_decide_what_helps(line: str, at_start: str, later: str) -> None:
    """Before the first step the configuration is to blame; what worked for a while breaks for other reasons."""
    assert report_of(line).action.kind == at_start
    after_steps = report_of(steps(1, 9) + line).action
    assert (after_steps.kind, after_steps.nodes) == (later, [])


@pytest.mark.parametrize("before", ["", steps(1, 9)], ids=["at the start", "later"])
def test_a_port_that_its_own_node_reports_down_costs_that_node_alone(before: str) -> None:
    down = "Mar 04 07:09:47 gpu-13 kernel: [812345.670] mlx5_core 0000:12:00.0 ens1f0np0: Link down\n"
    action = report_of(before + down).action
    assert (action.kind, action.nodes) == ("isolate_and_restart", ["gpu-13"])


UCX = "[{}:123:0:456] ib_mlx5_log.c:171  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)\n"
LINK = "Mar 04 07:09:47 {} kernel: [812345.670] mlx5_core 0000:12:00.0 ens1f0np0: Link down\n"


@pytest.mark.parametrize("line", [UCX, LINK], ids=["a transport gave up", "a link is down"])
def test_where_two_nodes_report_a_connection_neither_is_taken_out(line: str) -> None:
    action = report_of(steps(1, 9) + line.format("gpu-1") + line.format("gpu-2")).action
    assert (action.kind, action.nodes) == ("restart", [])


def test_what_a_library_was_built_without_is_mended_by_another_build() -> None:
    raised = 'Traceback (most recent call last):\n  File "/a/train.py", line 3, in <module>\n    main()\nRuntimeError: {}\n'
    assert report_of(raised.format("Not compiled with CUDA support")).action.kind == "fix_config"
    assert report_of(raised.format("the grid has no width")).action.kind == "fix_code"
