"""Slurm's executor against real daemons: what it does, once, what it says when it cannot; and the whole path from a log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.acting.executors.claim import Confirmed
from service.acting.executors.executor import Order, Outcome
from service.acting.executors.http import Server
from service.acting.executors.slurm import Slurm
from service.acting.executors.slurm_commands import Commands
from service.acting.executors.slurm_rest import Rest
from tests.conftest import ROOT
from tests.support import slurm as real
from tests.support.servers import Server as Service

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
    assert cluster.node("gpu-1")["Reason"] == f"diagnose {KEY}: job {job}, attempt 1: Xid 79 [31mon gpu-1 $(id); 'x'"
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


def test_cut_off_while_it_was_held_it_goes_without_what_the_node_check_found(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 60")
    cluster.wait(job, "RUNNING")
    cluster.run("scontrol", "update", f"JobId={job}", f"AdminComment=diagnose {KEY} @0 without gpu-1,gpu-2")
    cluster.run("scontrol", "requeuehold", job)

    outcome = carry_out(executor(cluster), Order(KEY, "restart", job, 1, check=("gpu-1", "gpu-2", "gpu-3")))

    assert outcome.what == f"requeued job {job}; it goes without gpu-1, gpu-2"
    assert cluster.job(job)["ExcNodeList"] == "gpu-1,gpu-2"
    assert cluster.job(job)["Reason"] != "job_requeued_in_held_state"


@pytest.mark.parametrize("doors", ["commands", "both"])
def test_a_persons_hold_stays(cluster: real.Slurm, doors: str) -> None:
    by = Slurm([commands(cluster)] if doors == "commands" else [rest(cluster), commands(cluster)])
    theirs, ours = cluster.submit("exit 3"), cluster.submit("exit 3")
    cluster.wait(theirs, "FAILED")
    cluster.wait(ours, "FAILED")
    cluster.run("scontrol", "requeuehold", theirs)
    assert carry_out(by, Order(KEY, "restart", ours, 1, avoid=("gpu-3",))).state == "succeeded"
    cluster.run("scontrol", "hold", ours)

    waits = carry_out(by, Order(KEY, "restart", theirs, 1))
    perhaps = carry_out(by, Order(KEY, "restart", theirs, 1, avoid=("gpu-3",)))
    since = carry_out(by, Order(KEY, "restart", ours, 1, avoid=("gpu-3",)))

    assert waits.what == f"job {theirs} was restarted since: it is pending+requeue_hold after 1 restarts"
    assert (perhaps.state, perhaps.may_retry) == ("unknown", False)
    assert since.what == f"job {ours} was requeued by this order, and is held by somebody"
    assert cluster.job(theirs)["Reason"] == "job_requeued_in_held_state"
    assert cluster.job(ours)["Reason"] == "JobHeldAdmin"


class Meddled(Commands):
    """A person does something between our look and our deed."""

    def __init__(self, cluster: real.Slurm, at: str, *words: str, until: str = "") -> None:
        super().__init__(configuration=cluster.configuration)
        self.cluster, self.at, self.words, self.until = cluster, at, words, until

    async def job(self, job_id: str) -> Any:
        found = await super().job(job_id)
        self._meddle("look")
        return found

    async def note(self, job_id: str, comment: str) -> None:
        await super().note(job_id, comment)
        if self.at == "mark" and self.words:
            self._meddle("mark")
            self.cluster.wait(job_id, self.until)

    def _meddle(self, at: str) -> None:
        if at == self.at and self.words:
            self.cluster.run(*self.words)
            self.words = ()


def test_a_drain_that_a_person_makes_meanwhile_keeps_its_reason(cluster: real.Slurm) -> None:
    job = cluster.submit(FAILS_ON_GPU_1)
    cluster.wait(job, "FAILED")
    door = Meddled(cluster, "look", "scontrol", "update", "NodeName=gpu-1", "State=DRAIN", "Reason=fan change")
    outcome = carry_out(Slurm([door]), Order(KEY, "isolate_and_restart", job, 1, nodes=("gpu-1",)))
    assert outcome.what == f"gpu-1 was drained before: 'fan change'; requeued job {job}"
    assert (cluster.node("gpu-1")["Reason"], outcome.isolated) == ("fan change", None)


def test_a_job_that_is_cancelled_meanwhile_is_not_brought_back(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 60")
    cluster.wait(job, "RUNNING")
    door = Meddled(cluster, "mark", "scancel", job, until="CANCELLED")
    outcome = carry_out(Slurm([door]), Order(KEY, "restart", job, 1))
    assert (outcome.state, outcome.may_retry) == ("failed", False), outcome
    assert (cluster.job(job)["JobState"], cluster.job(job)["Restarts"]) == ("CANCELLED", "0")


def test_a_job_that_is_cancelled_meanwhile_and_takes_its_time_is_not_brought_back(cluster: real.Slurm) -> None:
    job = cluster.submit("trap '' TERM; echo deaf; sleep 30")
    cluster.wait_for(job, "deaf")
    by, order = Slurm([Meddled(cluster, "mark", "scancel", job, until="COMPLETING")]), Order(KEY, "restart", job, 1)
    first, again = carry_out(by, order), carry_out(by, order)
    for outcome in (first, again):
        assert (outcome.state, outcome.may_retry, outcome.what) == ("failed", True, f"job {job} is just ending")
    cluster.wait(job, "CANCELLED")
    assert carry_out(by, order).may_retry is False
    assert (cluster.job(job)["JobState"], cluster.job(job)["Restarts"]) == ("CANCELLED", "0")


def test_a_job_that_a_person_requeues_held_after_our_mark_stays_held(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 60")
    cluster.wait(job, "RUNNING")
    door = Meddled(cluster, "mark", "scontrol", "requeuehold", job, until="PENDING")
    outcome = carry_out(Slurm([door]), Order(KEY, "restart", job, 1, avoid=("gpu-2",)))
    assert (outcome.state, "was restarted since" in outcome.what) == ("succeeded", True), outcome
    seen = cluster.job(job)
    assert (seen["Restarts"], seen["Reason"], seen["ExcNodeList"]) == ("1", "job_requeued_in_held_state", "(null)")
    assert KEY not in cluster.run("scontrol", "show", "job", job)


class Late(Commands):
    """By the time that it marks a job the job has ended."""

    cluster: real.Slurm
    late = True

    async def note(self, job_id: str, comment: str) -> None:
        if self.late:
            await asyncio.to_thread(self.cluster.wait, job_id, "FAILED")
            self.late = False
        await super().note(job_id, comment)


def test_a_job_that_ends_between_the_look_and_the_deed(cluster: real.Slurm) -> None:
    job = cluster.submit("sleep 2; exit 3")
    cluster.wait(job, "RUNNING")
    late = Late(configuration=cluster.configuration)
    late.cluster = cluster

    outcome = carry_out(Slurm([late]), Order(KEY, "isolate_and_restart", job, 1, nodes=("gpu-1",)))

    assert outcome.details == {"done": ["drained gpu-1", f"requeued job {job}"]}, outcome
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


def test_an_attempt_that_somebody_began_and_that_failed_too_is_left_alone(cluster: real.Slurm) -> None:
    job = cluster.submit("exit 3")
    cluster.wait(job, "FAILED")
    cluster.run("scontrol", "requeue", job)
    cluster.wait(job, "FAILED")

    outcome = carry_out(executor(cluster), Order(KEY, "restart", job, 1))

    assert "was restarted since" in outcome.what
    assert (cluster.job(job)["JobState"], cluster.job(job)["Restarts"]) == ("FAILED", "1")


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
    assert outcome.isolated == ("gpu-1",)


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
    assert "refuses the token" in asyncio.run(Slurm([rest(cluster, "x.y.z"), commands(cluster)]).check())[0]
    absent = Commands(folder=Path("/nowhere"))
    assert "not installed" in asyncio.run(Slurm([absent]).check())[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_check_tries_what_the_user_may_do(cluster: real.Slurm) -> None:
    folder = cluster.folder / "as-nobody"
    folder.mkdir()
    for name in ("scontrol", "sinfo"):
        where = shutil.which(name, path=cluster.environment["PATH"])
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups {where} "$@"\n')
        program.chmod(0o755)
    (problem,) = asyncio.run(Slurm([Commands(folder=folder, configuration=cluster.configuration)]).check())
    assert "every order would fail" in problem
    assert "denied" in problem or "Invalid user" in problem


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


@pytest.mark.parametrize("order", [Order(KEY, "isolate", nodes=("gpu-1",)), Order(KEY, "restart", "7", 1)], ids=["node", "job"])
def test_a_command_that_says_nothing_is_asked_again(tmp_path: Path, order: Order) -> None:
    """It happens on a busy machine: the command ends well, and its answer is empty."""
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "scontrol").chmod(0o755)
    outcome = carry_out(Slurm([Commands(folder=tmp_path)]), order)
    assert (outcome.state, outcome.may_retry) == ("failed", True)
    assert "shows no state" in outcome.what


# --- the whole path: a job's own log, over HTTP, to a decision, to Slurm, to a job that runs well elsewhere

POLICY = """\
mode: auto
bursts: {jobs: 50}
limits: {isolated_share: 40%}      # one of three nodes
budgets: {gpu_fell_off_bus: {backoff: 0s}}
"""
TRAIN = """\
i=0
while [ $i -lt 20 ]; do i=$((i+1)); echo "step $i/1000 | loss 2.$i | grad_norm 0.5"; done
if [ "$SLURMD_NODENAME" = gpu-1 ]; then
    xid="NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    echo "$(date '+%b %d %H:%M:%S') gpu-1 kernel: [812345.670] $xid"
    echo "RuntimeError: CUDA error: unspecified launch failure" >&2
    exit 3
fi
echo "training finished"
"""


STOPPED = """\
i=0
while [ $i -lt 20 ]; do i=$((i+1)); echo "step $i/1000 | loss 2.$i | grad_norm 0.5"; done
trap 'echo "RuntimeError: NCCL communicator was aborted on rank 0." >&2; exit 1' TERM
sleep 60 & wait
"""


def decided(service: Service, job: str) -> dict[str, Any] | None:
    answer = service.client.get(f"/v1/jobs/{job}/decision")
    return dict(answer.json()) if answer.status_code == 200 else None


@contextlib.contextmanager
def recovering(
    cluster: real.Slurm, folder: Path, policy: str = POLICY, authority: str = "labels", hang_s: float = 900.0, **executor: str
) -> Iterator[Service]:
    """A service that acts on ``cluster``."""
    (folder / "policy.yaml").write_text(policy)
    (folder / "slurm.jwt").write_text(cluster.token())
    more = "".join(f"    {name}: {value}\n" for name, value in executor.items())
    (folder / "executors.yaml").write_text(
        "executors:\n"
        "  - name: test\n"
        "    type: slurm\n"
        "    nodes: ['gpu-*']\n"
        f"    slurmrestd: {{url: '{cluster.url}', user: {cluster.user}, token_file: slurm.jwt}}\n"
        f"    commands: {{configuration: {cluster.configuration}}}\n{more}"
    )
    words = "--authority", authority, "--policy", str(folder / "policy.yaml"), "--executors", str(folder / "executors.yaml")
    environment = {"SLURM_CONF": str(cluster.configuration), "DIAGNOSE_SERVE_HANG_S": f"{hang_s:g}"}
    with Service(folder / "data", *words, **environment) as service:
        for node in cluster.nodes:  # it has heard of them: shares are of what is known
            service.push("earlier", b"hello\n", source=node, node=node)
        until(lambda: len(service.get("/v1/nodes")["nodes"]) == len(cluster.nodes), service)
        yield service


def train(cluster: real.Slurm, service: Service, script: str = TRAIN, program: str = "sh", *words: str) -> str:
    """A batch job whose log a runner ships from the node that it runs on."""
    (cluster.folder / "train").write_text(script)
    runner = f"PYTHONPATH={ROOT} {sys.executable} -m diagnose runner --to {service.url} {' '.join(words)}"
    return cluster.submit(f'{runner} --state "{cluster.folder}/$SLURM_JOB_ID.$$" -- {program} {cluster.folder}/train')


def until(done: Callable[[], Any], service: Service, within_s: float = 60.0) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := done()):
        assert time.monotonic() < deadline, service.log[-4000:]
        time.sleep(0.1)
    return found


def ended(service: Service, job: str) -> dict[str, Any] | None:
    """Its action, once that is over."""
    actions = service.get("/v1/actions", job=job)["actions"]
    return next((dict(one) for one in actions if one["state"] not in ("proposed", "approved", "dispatched", "running")), None)


def test_from_a_bad_node_to_a_job_that_ends_well_elsewhere(cluster: real.Slurm, tmp_path: Path) -> None:
    with recovering(cluster, tmp_path) as service:
        job = train(cluster, service)
        action = until(lambda: ended(service, job), service)

        assert (action["kind"], action["state"], action["nodes"]) == ("isolate_and_restart", "succeeded", ["gpu-1"])
        assert action["result"] == {"said": f"drained gpu-1; requeued job {job}"}
        assert action["decided_by"] == "policy"
        assert "DRAIN" in cluster.node("gpu-1")["State"]
        assert cluster.node("gpu-1")["Reason"].startswith(f"diagnose {action['key']}: ")
        assert service.get("/v1/nodes/gpu-1")["state"] == "isolated"
        diagnosis = service.get(f"/v1/jobs/{job}/report", attempt=1)["diagnosis"]
        assert (diagnosis["reason"], diagnosis["suspects"]["nodes"]) == ("gpu_fell_off_bus", ["gpu-1"])
        evidence = service.get(f"/v1/jobs/{job}/decision", attempt=1)["evidence"]
        assert "gpu-1" in str(evidence)

        again = cluster.wait(job, "COMPLETED")
        assert (again["NodeList"], again["Restarts"]) == ("gpu-2", "1")
        told = until(lambda: (found := service.get(f"/v1/jobs/{job}"))["state"] == "ended" and found, service)
        assert (told["attempt"], told["outcome"]) == (2, "healthy")
        assert len(service.get("/v1/actions", job=job)["actions"]) == 1

        given = service.client.post("/v1/nodes/gpu-1/release", json={"why": "the GPU was replaced"}).json()
        until(lambda: service.get(f"/v1/actions/{given['id']}")["state"] == "succeeded", service)
        assert "DRAIN" not in cluster.node("gpu-1")["State"]
        assert service.get("/v1/nodes/gpu-1")["state"] == "ok"


STANDS = """\
import faulthandler, os, signal, time

faulthandler.register(signal.SIGUSR1)
first = os.environ.get("SLURM_RESTART_COUNT", "0") == "0"


def wait_for_the_others():
    while first:
        time.sleep(60)


for step in range(20):
    print(f"step {step}/1000 | loss 2.{step} | grad_norm 0.5", flush=True)
wait_for_the_others()
print("training finished")
"""


def test_a_job_that_stands_still_is_looked_at_and_started_again(cluster: real.Slurm, tmp_path: Path) -> None:
    policy = POLICY + "alarms: {lasts: 15s}\n"  # a busy machine needs some seconds until the stacks are read
    policy = policy.replace("gpu_fell_off_bus", "hang")
    with recovering(cluster, tmp_path, policy, hang_s=1.5) as service:
        job = train(cluster, service, STANDS, sys.executable, "--stacks", "USR1", "--stacks-after", "1")
        assert cluster.wait(job, "COMPLETED", seconds=120)["Restarts"] == "1"
        action, *before = service.get("/v1/actions", job=job)["actions"]

        assert (action["kind"], action["state"], action["nodes"]) == ("restart", "succeeded", [])
        assert {one["replaced_by"] for one in before} <= {action["id"]}, "the stacks say more: their order takes its place"
        said = service.get(f"/v1/actions/{action['id']}")["basis"]["decision"]
        assert said["reason"] == "hang"
        assert "The stacks of its processes were read." in str(said["reasons"])
        found = service.get(f"/v1/jobs/{job}/sources", attempt=1)["sources"]
        (stacks,) = [one["name"] for one in found if one["name"].endswith("/stacks")]
        assert any("wait_for_the_others" in line["text"] for line in service.lines(job, attempt=1, source=stacks))


def test_a_dry_run_of_the_whole_path_changes_nothing(cluster: real.Slurm, tmp_path: Path) -> None:
    with recovering(cluster, tmp_path, dry_run="true") as service:
        job = train(cluster, service)
        action = until(lambda: ended(service, job), service)

        assert (action["state"], action["nodes"]) == ("failed", ["gpu-1"])
        assert action["result"] == {"said": f"dry run: would have: drained gpu-1; requeued job {job}"}
        assert "DRAIN" not in cluster.node("gpu-1")["State"]
        assert (cluster.job(job)["JobState"], cluster.job(job)["Restarts"]) == ("FAILED", "0")
        assert service.get("/v1/nodes/gpu-1")["state"] != "isolated"


def test_what_its_user_cancels_is_not_brought_back(cluster: real.Slurm, tmp_path: Path) -> None:
    """Slurm says COMPLETING for a while, in which nobody knows whether it failed or was cancelled."""
    with recovering(cluster, tmp_path, authority="confirmed") as service:
        job = train(cluster, service, STOPPED)
        until(lambda: "step 19" in cluster.output(job), service)
        cluster.run("scancel", job)
        service.client.post(f"/v1/jobs/{job}/end", json={"exit_code": 1})
        cluster.wait(job, "CANCELLED")
        decision = until(lambda: decided(service, job), service)

        assert decision["action"]["kind"] == "none"
        assert "Slurm says CANCELLED" in decision["action"]["why"]
        assert service.get("/v1/actions", job=job)["actions"] == []
        assert (cluster.job(job)["JobState"], cluster.job(job)["Restarts"]) == ("CANCELLED", "0")


def test_an_order_given_meanwhile_brings_back_nothing_that_was_cancelled(cluster: real.Slurm) -> None:
    job = cluster.submit("trap '' TERM; echo deaf; sleep 30")
    cluster.wait_for(job, "deaf")
    cluster.run("scancel", job)
    assert cluster.job(job)["JobState"] == "COMPLETING"
    order = Order(KEY, "restart", job, 1)
    outcome = carry_out(executor(cluster), order)
    assert (outcome.state, outcome.may_retry) == ("failed", True)
    assert "is just ending" in outcome.what
    cluster.wait(job, "CANCELLED")
    outcome = carry_out(executor(cluster), order)
    assert (outcome.state, outcome.may_retry) == ("failed", False)
    assert cluster.job(job)["Restarts"] == "0"


@pytest.mark.parametrize("doors", ["commands", "both"])
def test_slurm_says_how_a_job_ended(cluster: real.Slurm, doors: str) -> None:
    by = executor(cluster) if doors == "both" else Slurm([commands(cluster)])

    def ending(script: str, *words: str) -> str | None:
        nonlocal told
        job = cluster.submit(script, *words)
        cluster.wait(job, "COMPLETED", "FAILED", "CANCELLED")
        found = asyncio.run(by.confirm(Order("", "restart", job, 1, claim=None)))
        assert isinstance(found, Confirmed)
        told = found.ending.said if found.ending is not None else ""
        return found.ending.kind if found.ending is not None else None

    told = ""
    assert ending("exit 0") == "completed"
    assert ending("exit 3") == "failed"
    assert told == "Slurm says FAILED (NonZeroExitCode, exit code 3)"
    assert ending("srun sh -c 'exit 7'; exit 0") == "completed"
    assert told == "Slurm says COMPLETED (a step ended with exit code 7)"
    assert ending("kill -9 $$") == "failed"
    assert told.endswith("signal 9)")
    assert ending("scancel $SLURM_JOB_ID; sleep 20") == "cancelled"


STALLED = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, "
    "OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
)
# What diagnose nodes check says, from inside an allocation of exactly these nodes, without torch: gpu-1 does not do its part.
PROBE = """\
for node in gpu-1 gpu-2; do
    srun --overlap --nodes=1 --ntasks=1 --nodelist=$node sh -c '[ "$SLURMD_NODENAME" != gpu-1 ]' && good=$node || faulty=$node
done
echo "{\\"schema\\": \\"diagnose.nodecheck/1\\", \\"kind\\": \\"verdict\\", \\"rounds\\": 2,"\
 "\\"good\\": [\\"$good\\"], \\"faulty\\": [\\"$faulty\\"], \\"allocated\\": \\"$SLURM_JOB_NODELIST\\"}"
"""


def test_nodes_are_tested_in_an_allocation_before_the_job_starts_again(cluster: real.Slurm, tmp_path: Path) -> None:
    (cluster.folder / "probe.sh").write_text(PROBE)
    command = f"[salloc, --immediate=20, --exclusive, '--nodelist={{nodes}}', --time=5, sh, {cluster.folder}/probe.sh]"
    policy = POLICY + "actions: {nccl_timeout: {check_nodes: true}}\n"
    policy = policy.replace("gpu_fell_off_bus", "nccl_timeout")
    with recovering(cluster, tmp_path, policy, check=f"{{command: {command}}}") as service:
        job = cluster.submit('[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && exit 3; exit 0', "--nodes=2")
        assert cluster.wait(job, "FAILED")["NodeList"] == "gpu-[1-2]"
        for rank in (0, 1):
            service.push(job, STALLED.format(rank=rank).encode(), source=f"rank{rank}", rank=rank, node=f"gpu-{rank + 1}")
        service.end(job, 3)
        action = until(lambda: ended(service, job), service)

        assert (action["kind"], action["state"], action["nodes"]) == ("restart", "succeeded", [])
        assert action["result"]["said"].endswith("it goes without gpu-1; 2 nodes were tested: faulty: gpu-1")
        assert cluster.wait(job, "COMPLETED")["NodeList"] == "gpu-[2-3]"
        until(lambda: service.get("/v1/nodes/gpu-1")["state"] == "isolated", service)
        assert service.get("/v1/nodes/gpu-1")["checks"][0]["result"] == "faulty"
        assert "DRAIN" in cluster.node("gpu-1")["State"]


# The same of all nodes of the allocation, whatever Slurm chose beside the one that was asked for.
ALL = """\
good=; faulty=
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
    srun --overlap --nodes=1 --ntasks=1 --nodelist=$node sh -c '[ "$SLURMD_NODENAME" != gpu-1 ]' &&
        good="$good${good:+, }\\"$node\\"" || faulty="\\"$node\\""
done
verdict='"schema": "diagnose.nodecheck/1", "kind": "verdict", "rounds": 2'
echo "{$verdict, \\"good\\": [$good], \\"faulty\\": [$faulty]}"
"""
NVLINK = "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"


def test_a_node_that_one_weak_signal_speaks_against_is_tested_while_its_job_runs_elsewhere(
    cluster: real.Slurm, tmp_path: Path
) -> None:
    (cluster.folder / "probe.sh").write_text(ALL)
    command = "[salloc, --priority=TOP, --immediate=20, --exclusive, '--nodelist={nodes}', '--nodes={count}', --time=5, sh, "
    policy = POLICY.replace("gpu_fell_off_bus", "nvlink_error").replace("40%}", "40%, checks_per_hour: 6}")
    with recovering(cluster, tmp_path, policy, check=f"{{command: {command}{cluster.folder}/probe.sh]}}") as service:
        job = cluster.submit('[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && exit 3; exit 0')
        assert cluster.wait(job, "FAILED")["NodeList"] == "gpu-1"
        line = f"Mar 04 07:09:47 gpu-1 kernel: [812345.670] NVRM: Xid (PCI:0000:3b:00): 74, pid='<unknown>', {NVLINK}\n"
        service.push(job, line.encode(), source="node:gpu-1/kernel", node="gpu-1")
        service.end(job, 3)
        action = until(lambda: ended(service, job), service)
        assert (action["kind"], action["state"], action["avoid"]) == ("restart", "succeeded", ["gpu-1"])

        until(lambda: service.get("/v1/nodes/gpu-1")["state"] == "isolated", service)
        kinds = {one["kind"]: one for one in service.get("/v1/actions")["actions"]}
        assert kinds["check"]["result"]["said"] == "gpu-1 was tested: faulty: gpu-1"
        assert (kinds["isolate"]["nodes"], kinds["isolate"]["state"]) == (["gpu-1"], "succeeded")
        assert "DRAIN" in cluster.node("gpu-1")["State"]
        assert "gpu-1" not in cluster.wait(job, "COMPLETED")["NodeList"]
