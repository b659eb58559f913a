"""What the explanation promises: an answer with its alternatives, its kind of evidence and its suspects."""

from __future__ import annotations

import pytest

from diagnose.diagnosis.explain import answer_kind
from tests.support.logs import RAISED, job_of, report_of, steps


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (f"{steps(1, 40)}Killed\n", "unknown"),
        (f"{steps(1, 40)}host memory: 99 % used\nKilled\n", "host_out_of_memory"),
        ("Loading the model\nKilled\n", "host_out_of_memory"),
    ],
    ids=["amid the work", "memory is spoken of", "at the start"],
)
def test_a_sigkill_amid_the_work_says_only_that(log: str, reason: str) -> None:
    diagnosis = report_of(log).diagnosis
    assert (diagnosis.reason, diagnosis.root_cause and diagnosis.root_cause.text) == (reason, "Killed")
    assert reason != "unknown" or [one.reason for one in diagnosis.alternatives][:2] == ["host_out_of_memory", "preempted"]


def test_alternatives_stand_without_the_answer_best_first() -> None:
    report = report_of(RAISED.format(what="KeyError: 'x'") + RAISED.format(what="ValueError: bad shard"))
    reasons = [one.reason for one in report.diagnosis.alternatives]
    assert report.diagnosis.reason not in reasons
    assert "value_error" in reasons
    told = [one.confidence for one in report.diagnosis.alternatives]
    assert told == sorted(told, reverse=True)
    assert sum(told) + report.diagnosis.confidence <= 1.01


def test_a_failure_is_no_consequence_of_itself() -> None:
    job = job_of(RAISED.format(what="KeyError: 'x'"))
    finding = job.finding(job.evidence())
    assert finding.root is not None
    assert (finding.others, finding.consequences) == ([], [])


def test_the_faults_own_line_names_the_node_before_a_neighbour_does() -> None:
    log = (
        "2m31s  Normal  NodeReady  node/ip-10-0-100-214.ec2.internal  Node ip-10-0-100-214 status is now: NodeReady\n"
        "2m23s  Normal  NodeNotReady  node/ip-10-0-101-136.ec2.internal  Node ip-10-0-101-136 status is now: NodeNotReady\n"
    )
    report = report_of(log)
    assert report.diagnosis.reason == "node_failure"
    assert report.action.nodes == ["ip-10-0-101-136.ec2.internal"]


def test_a_peer_that_a_connection_names_is_not_isolated() -> None:
    log = (
        "gpu-12:4103:5203 [3] NCCL WARN NET/IB : Got completion from peer 10.8.0.14<41212> with status=12 opcode=0 len=0"
        " vendor err 129 (Recv)\n"
    )
    for before, kind in (("", "fix_config"), (steps(1, 30), "restart")):
        report = report_of(before + log)
        assert (report.diagnosis.reason, report.action.kind, report.action.nodes) == ("network_error", kind, [])


def test_a_loop_back_address_is_no_suspect() -> None:
    report = report_of(steps(1, 30) + "NCCL WARN Net : Connection closed by remote peer 127.0.0.1<41212>\n")
    assert report.diagnosis.suspects.nodes == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("zorch: timed out trying to connect\n", "plain"),
        ("zorch: timed out trying to connect\nzorchd: the node gpu-7 has died\n", "contested"),
        ("zorch: bad news of the GPU\n", "vague"),
        ("reading the settings\nbuilding the model\n", "silent"),
        ("reading the settings\nall work is done\n", "quiet"),
        ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n", "specific"),
        ("Request timed out: HTTPConnectionPool(host='10.0.0.7', port=80): Read timed out. (read timeout=600)\n", "noted"),
    ],
)
def test_an_answer_says_what_kind_of_evidence_it_rests_on(text: str, kind: str) -> None:
    job = job_of(text)
    finding = job.finding(job.evidence())
    assert answer_kind(max(finding.weighed, key=lambda one: one.probability)) == kind


def test_the_second_guess_is_what_the_words_say_without_the_rule() -> None:
    job = job_of("zorch.sh: line 4: --zorch: command not found\n")
    finding = job.finding(job.evidence())
    assert finding.reason == "called_process_error"
    assert finding.alternatives[0].reason == "file_not_found_error"


def test_a_failure_without_a_reason_could_be_the_programs_own() -> None:
    report = report_of("up\n" * 5 + "ERROR: the width of the grid is wrong\n")
    assert report.diagnosis.reason == "unknown"
    assert "runtime_error" in [one.reason for one in report.diagnosis.alternatives]
