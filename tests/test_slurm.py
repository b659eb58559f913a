"""The Slurm executor against real daemons: what it does, once, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.executors.executor import Order, Outcome
from service.executors.http import Server
from service.executors.slurm import Slurm
from service.executors.slurm_commands import Commands
from service.executors.slurm_rest import Rest
from tests import slurm as real

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]
KEY = "0123456789abcdef0123456789abcdef"
FAILS_ON_GPU_1 = 'echo "$SLURMD_NODENAME restarts ${SLURM_RESTART_COUNT:-0}"; [ "$SLURMD_NODENAME" = gpu-1 ] && exit 3; exit 0'


@pytest.fixture(scope="module")
def daemons() -> Iterator[real.Slurm]:
    if absent := real.missing():
        pytest.skip(f"not installed: {', '.join(absent)}")
    cluster = real.Slurm()
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def cluster(daemons: real.Slurm) -> real.Slurm:
    daemons.reset()
    return daemons


def commands(cluster: real.Slurm, **more: float) -> Commands:
    return Commands(configuration=cluster.configuration, **more)


def rest(cluster: real.Slurm, token: str | None = None) -> Rest:
    held = {"TOKEN": token if token is not None else cluster.token()}
    return Rest(Server(cluster.url, timeout_s=10), user=cluster.user, token_env="TOKEN", environment=held)


def executor(cluster: real.Slurm) -> Slurm:
    return Slurm([rest(cluster), commands(cluster)])


def carry_out(by: Slurm, order: Order, **how: bool) -> Outcome:
    return asyncio.run(by.carry_out(order, **how))


@pytest.mark.parametrize("doors", ["commands", "both"])
def test_a_job_that_fails_on_a_bad_node_runs_elsewhere_and_the_node_is_drained(cluster: real.Slurm, doors: str) -> None:
    job = cluster.submit(FAILS_ON_GPU_1)
    assert cluster.wait(job, "FAILED", "COMPLETED")["NodeList"] == "gpu-1"
    order = Order(KEY, "isolate_and_restart", job, 1, nodes=("gpu-1",), why="Xid 79 \x1b[31mon gpu-1\n$(id); 'x'")
    by = Slurm([commands(cluster)] if doors == "commands" else [rest(cluster), commands(cluster)])

    outcome = carry_out(by, order)

    assert outcome.state == "succeeded", outcome
    assert outcome.details == {"done": ["drained gpu-1", f"requeued job {job}"]}
    assert "DRAIN" in cluster.node("gpu-1")["State"]
    assert cluster.node("gpu-1")["Reason"] == f"diagnose {KEY}: Xid 79 [31mon gpu-1 $(id); 'x'"
    assert cluster.wait(job, "COMPLETED")["NodeList"] == "gpu-2"
    assert "gpu-2 restarts 1" in cluster.output(job)


def test_the_same_order_twice_does_the_deed_once(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 60")
    cluster.wait(job, "RUNNING")
    order = Order(KEY, "isolate_and_restart", job, 1, nodes=("gpu-1",))
    assert carry_out(executor(cluster), order).state == "succeeded"
    cluster.wait(job, "RUNNING")

    again = carry_out(executor(cluster), order)

    assert again.details == {"done": ["gpu-1 was drained by this order", f"job {job} was requeued by this order"]}
    assert cluster.job(job)["Restarts"] == "1"


def test_cut_off_between_the_mark_and_the_requeue_it_goes_on(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 2; exit 3")
    cluster.wait(job, "RUNNING")
    cluster.run("scontrol", "update", f"JobId={job}", f"AdminComment=diagnose {KEY} @0")
    cluster.wait(job, "FAILED")

    outcome = carry_out(executor(cluster), Order(KEY, "restart", job, 1))

    assert outcome.details == {"done": [f"requeued job {job}"]}
    assert cluster.job(job)["Restarts"] == "1"


def test_cut_off_while_it_was_held_it_is_let_go(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 60")
    cluster.wait(job, "RUNNING")
    cluster.run("scontrol", "update", f"JobId={job}", f"AdminComment=diagnose {KEY} @0")
    cluster.run("scontrol", "requeuehold", job)
    cluster.wait(job, "PENDING", "REQUEUE_HOLD")

    outcome = carry_out(executor(cluster), Order(KEY, "restart", job, 1, avoid=("gpu-1", "gpu-2")))

    assert outcome.state == "succeeded", outcome
    assert cluster.wait(job, "RUNNING")["NodeList"] == "gpu-3"
    assert cluster.job(job)["Restarts"] == "1"


def test_nodes_to_avoid_are_added_to_those_that_the_user_excluded(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 60", "--exclude=gpu-1")
    assert cluster.wait(job, "RUNNING")["NodeList"] == "gpu-2"

    outcome = carry_out(executor(cluster), Order(KEY, "restart", job, 1, avoid=("gpu-2",)))

    assert outcome.state == "succeeded", outcome
    assert cluster.wait(job, "RUNNING")["NodeList"] == "gpu-3"
    assert "DRAIN" not in cluster.node("gpu-2")["State"]


def test_others_words_in_the_administrators_comment_stay(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 60")
    cluster.wait(job, "RUNNING")
    cluster.run("scontrol", "update", f"JobId={job}", "AdminComment=ask Ann; diagnose old @0")

    carry_out(executor(cluster), Order(KEY, "restart", job, 1))

    assert f"AdminComment=ask Ann; diagnose {KEY} @0" in cluster.run("scontrol", "show", "job", job)


def test_a_job_that_somebody_requeued_is_left_alone(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 60")
    cluster.wait(job, "RUNNING")
    cluster.run("scontrol", "requeue", job)
    cluster._until(lambda: cluster.job(job)["Restarts"] == "1", "the requeue")
    cluster.wait(job, "RUNNING")

    outcome = carry_out(executor(cluster), Order(KEY, "restart", job, 1))

    assert "was restarted since" in outcome.what
    assert cluster.job(job)["Restarts"] == "1"


def test_a_cancelled_job_is_not_started_again(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 60")
    cluster.wait(job, "RUNNING")
    cluster.run("scancel", job)
    cluster.wait(job, "CANCELLED")

    outcome = carry_out(executor(cluster), Order(KEY, "isolate_and_restart", job, 1, nodes=("gpu-1",)))

    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert "cancelled" in outcome.what
    assert "DRAIN" not in cluster.node("gpu-1")["State"]  # all is looked at before anything is done


def test_a_job_that_may_not_be_requeued_is_said_and_what_was_done_before(cluster: real.Slurm) -> None:
    job = cluster.submit("exit 3", "--no-requeue")
    cluster.wait(job, "FAILED")

    outcome = carry_out(executor(cluster), Order(KEY, "isolate_and_restart", job, 1, nodes=("gpu-1",)))

    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert outcome.what.endswith("; done before that: drained gpu-1")


@pytest.mark.parametrize("by_rest", [False, True])
def test_cancel(cluster: real.Slurm, by_rest: bool) -> None:
    job = cluster.submit("sleep 60")
    cluster.wait(job, "RUNNING")

    asyncio.run(Slurm([rest(cluster) if by_rest else commands(cluster)]).cancel(job))

    cluster.wait(job, "CANCELLED")


def test_a_node_of_ours_is_given_back_and_one_of_others_is_not(cluster: real.Slurm) -> None:
    carry_out(executor(cluster), Order(KEY, "isolate", nodes=("gpu-1",), why="ECC"))
    cluster.run("scontrol", "update", "NodeName=gpu-2", "State=DRAIN", "Reason=fan change, ask Bob")

    given = carry_out(executor(cluster), Order("f" * 32, "release", nodes=("gpu-1",)))
    kept = carry_out(executor(cluster), Order("e" * 32, "release", nodes=("gpu-2",)))
    again = carry_out(executor(cluster), Order("f" * 32, "release", nodes=("gpu-1",)))

    assert given.what == "resumed gpu-1"
    assert "DRAIN" not in cluster.node("gpu-1")["State"]
    assert kept.state == "failed"
    assert "fan change, ask Bob" in kept.what
    assert again.what == "gpu-1 is in service already"


def test_others_reason_for_a_drain_stays(cluster: real.Slurm) -> None:
    cluster.run("scontrol", "update", "NodeName=gpu-2", "State=DRAIN", "Reason=fan change")

    outcome = carry_out(executor(cluster), Order(KEY, "isolate", nodes=("gpu-2",)))

    assert outcome.what == "gpu-2 was drained before: 'fan change'"
    assert cluster.node("gpu-2")["Reason"] == "fan change"


@pytest.mark.parametrize(
    "name",
    ["gpu-9", "gpu-[1-3]", "gpu-1,gpu-2", "ALL", "all", "-h", "gpu-1 State=DOWN", "", "../etc", "gpu-1\n", "`id`", "GPU-1"],
)
@pytest.mark.parametrize("by_rest", [False, True])
def test_a_name_out_of_a_log_takes_no_other_node_down(cluster: real.Slurm, name: str, by_rest: bool) -> None:
    by = executor(cluster) if by_rest else Slurm([commands(cluster)])

    outcome = carry_out(by, Order(KEY, "isolate", nodes=("gpu-1", name) if name == "gpu-9" else (name,)))

    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert set(cluster.run("sinfo", "-h", "-N", "-o", "%T").split()) == {"idle"}


@pytest.mark.parametrize("name", ["999999", "x", "1;id", "0", "-1", "1_*", ""])
def test_a_job_that_slurm_does_not_know(cluster: real.Slurm, name: str) -> None:
    outcome = carry_out(executor(cluster), Order(KEY, "restart", name, 1))

    assert (outcome.state, outcome.may_retry) == ("failed", False)


def test_a_jobs_name_cannot_pretend_to_be_its_state(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 60", "-J", "x JobState=CANCELLED Reason=x Requeue=1 Restarts=7", "--comment", "AdminComment=z")
    cluster._until(lambda: " JobState=RUNNING" in cluster.run("scontrol", "show", "job", job), "it to run")

    seen = [asyncio.run(door.job(job)) for door in (commands(cluster), rest(cluster))]

    assert [(one.states, one.restarts, one.comment) for one in seen if one] == [(frozenset({"RUNNING"}), 0, "")] * 2


def test_a_dry_run_changes_nothing(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 60")
    cluster.wait(job, "RUNNING")

    outcome = carry_out(
        executor(cluster), Order(KEY, "isolate_and_restart", job, 1, nodes=("gpu-1",), avoid=("gpu-2",)), dry_run=True
    )

    assert outcome.what == f"would have: drained gpu-1; requeued job {job}; it goes without gpu-2"
    assert "DRAIN" not in cluster.node("gpu-1")["State"]
    assert (cluster.job(job)["JobState"], cluster.job(job)["Restarts"]) == ("RUNNING", "0")


def test_check_says_what_is_missing(cluster: real.Slurm) -> None:
    assert asyncio.run(executor(cluster).check()) == []
    assert "needs commands: true" in asyncio.run(Slurm([rest(cluster)]).check())[0]
    assert "refuses the token" in asyncio.run(Slurm([rest(cluster, "x.y.z")]).check())[0]
    absent = Commands(folder=Path("/nowhere"))
    assert "not installed" in asyncio.run(Slurm([absent]).check())[0]


def test_a_bad_token_leaves_it_to_the_command_line_or_is_said(cluster: real.Slurm) -> None:
    order = Order(KEY, "isolate", nodes=("gpu-1",))
    alone = carry_out(Slurm([rest(cluster, "x.y.z")]), order)
    assert (alone.state, alone.may_retry) == ("failed", True)
    assert carry_out(Slurm([rest(cluster, "x.y.z"), commands(cluster)]), order).what == "drained gpu-1"


def test_without_commands_an_old_slurmrestd_says_that_it_cannot(cluster: real.Slurm) -> None:
    outcome = carry_out(Slurm([rest(cluster)]), Order(KEY, "isolate", nodes=("gpu-1",)))

    assert "no way to drain nodes" in outcome.what
    assert outcome.state == "failed"


def test_the_controller_is_away_and_comes_back(cluster: real.Slurm) -> None:
    order = Order(KEY, "isolate", nodes=("gpu-1",))
    by = Slurm([rest(cluster), commands(cluster, timeout_s=3)])
    cluster.kill("slurmctld")
    try:
        outcome = carry_out(by, order)
        assert outcome.state in ("failed", "unknown")
        assert outcome.may_retry
    finally:
        cluster.start_controller()
    cluster._until(lambda: carry_out(by, order).state == "succeeded", "the order to be carried out")


def test_slurmrestd_is_away(cluster: real.Slurm) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        away = Rest(Server(f"http://127.0.0.1:{taken.getsockname()[1]}"), user="x", token_env="T", environment={"T": "t"})
        alone = carry_out(Slurm([away]), Order(KEY, "isolate", nodes=("gpu-1",)))
        both = carry_out(Slurm([away, commands(cluster)]), Order(KEY, "isolate", nodes=("gpu-1",)))
    assert (alone.state, alone.may_retry) == ("failed", True)
    assert both.what == "drained gpu-1"


def test_a_server_that_never_ends_its_answer_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_drip, args=(listening,), daemon=True).start()
        server = Server(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout_s=0.5)
        slow = Rest(server, user="x", token_env="T", environment={"T": "t"})
        outcome = carry_out(Slurm([slow]), Order(KEY, "isolate", nodes=("gpu-1",)))
    assert (outcome.state, outcome.may_retry) == ("failed", True)


def _drip(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            try:
                connection.sendall(b" ")
            except OSError:
                return
            threading.Event().wait(0.1)


def test_a_command_that_hangs_is_ended_and_nobody_knows_what_it_did(tmp_path: Path) -> None:
    hangs = tmp_path / "scontrol"
    hangs.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = show ]; then printf "NodeName=gpu-1 Arch=x86_64\\n   State=IDLE ThreadsPerCore=1\\n"; exit 0; fi\n'
        f"echo $$ > {tmp_path}/pid; exec sleep 60\n"
    )
    hangs.chmod(0o755)

    outcome = carry_out(Slurm([Commands(folder=tmp_path, timeout_s=0.5)]), Order(KEY, "isolate", nodes=("gpu-1",)))

    assert (outcome.state, outcome.may_retry) == ("unknown", True)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
