"""The samples of ``deploy/slurm`` under real Slurm daemons: who ended how, and as which attempt."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support import slurm as real
from tests.support.box import Box

pytestmark = [pytest.mark.server, pytest.mark.timeout(480)]


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    found = Box().start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def cluster(box: Box) -> Iterator[real.Slurm]:
    if absent := real.missing():
        pytest.skip(f"not installed: {', '.join(absent)}")

    cluster = real.Slurm(more=real.samples(box.url))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def ends(box: Box, job: str, count: int) -> list[dict[str, Any]]:
    until = time.monotonic() + 130  # the sample waits for Slurm's last word for 120 s
    while len(found := [end for name, end in box.ends if name == job]) < count:
        assert time.monotonic() < until, box.ends
        time.sleep(0.1)
    return found


def test_how_jobs_end_is_told_as_slurm_says_it(cluster: real.Slurm, box: Box) -> None:
    late = cluster.submit("sleep 200", "--time=1")
    cluster.wait(late, "RUNNING")
    cluster.run("scontrol", "update", f"JobId={late}", "EndTime=now+1")  # a minute is the least that a limit can be
    array = cluster.submit("exit $SLURM_ARRAY_TASK_ID", "--array=0,5")
    failed, well = cluster.submit("exit 3"), cluster.submit("exit 0")
    assert ends(box, failed, 1) == [{"exit_code": 3, "state": "FAILED", "attempt": 1}]
    assert ends(box, well, 1) == [{"exit_code": 0, "state": "COMPLETED", "attempt": 1}]
    assert ends(box, f"{array}_0", 1) == [{"exit_code": 0, "state": "COMPLETED", "attempt": 1}]
    assert ends(box, f"{array}_5", 1) == [{"exit_code": 5, "state": "FAILED", "attempt": 1}]
    cancelled = cluster.submit("sleep 100")
    cluster.wait(cancelled, "RUNNING")
    cluster.run("scancel", cancelled)
    assert ends(box, cancelled, 1) == [{"state": "CANCELLED", "attempt": 1}]

    requeued = cluster.submit('[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && exit 4; sleep 100')
    cluster.wait(requeued, "RUNNING")
    cluster.run("scontrol", "requeue", requeued)
    assert ends(box, requeued, 2) == [
        {"state": "REQUEUED", "attempt": 1},
        {"exit_code": 4, "state": "FAILED", "attempt": 2},
    ]
    cluster.wait(late, "TIMEOUT", seconds=120)
    assert ends(box, late, 1) == [{"state": "TIMEOUT", "attempt": 1}]


def test_a_job_that_is_brought_back_after_it_failed_has_two_ends(cluster: real.Slurm, box: Box) -> None:
    job = cluster.submit("exit 3")
    cluster.wait(job, "FAILED")
    cluster.run("scontrol", "requeue", job)
    assert [(end["exit_code"], end["attempt"]) for end in ends(box, job, 2)] == [(3, 1), (3, 2)]


def test_a_heterogeneous_job_has_one_end(cluster: real.Slurm, box: Box) -> None:
    script = cluster.folder / "parts.sh"
    runner = f"env PYTHONPATH={ROOT} {sys.executable} -m diagnose runner --to {box.url}"
    script.write_text(
        "#!/bin/sh\n#SBATCH --nodes=1\n#SBATCH hetjob\n#SBATCH --nodes=1\n"
        f"srun --het-group=0,1 {runner} -- sh -c 'echo \"at $SLURMD_NODENAME\"'\n"
        "exit 4\n"
    )
    job = cluster.run("sbatch", "--parsable", f"--output={cluster.folder}/%j.out", str(script)).strip()
    cluster.wait(job, "FAILED")
    assert ends(box, job, 1)[-1] == {"exit_code": 4, "state": "FAILED", "attempt": 1}
    after = cluster.submit("exit 0")
    ends(box, after, 1)  # by then a second part would have told too
    assert [name for name, _ in box.ends if name == str(int(job) + 1)] == []
    said = {bytes(text) for (name, _), text in box.received.items() if name == job}
    assert {b"at gpu-1\n", b"at gpu-2\n"} <= said


TASK = """\
import os, signal
print("step 1/9 | loss 2.1", flush=True)
if os.environ["SLURM_PROCID"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
"""


def test_the_batch_script_runs_as_it_is_and_tells_which_task_was_killed(
    cluster: real.Slurm, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = cluster.folder / "home"
    home.mkdir()
    (home / ".diagnose-token").write_text("secret")
    (cluster.folder / "train.py").write_text(TASK)
    path = f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"
    for name, value in {"HOME": str(home), "DIAGNOSE_URL": box.url, "PATH": path}.items():
        monkeypatch.setitem(cluster.environment, name, value)
    size = "--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=0"  # this cluster is small, and has no GPUs
    script = str(ROOT / "deploy" / "slurm" / "train.sbatch")
    job = cluster.run("sbatch", "--parsable", *size, f"--output={cluster.folder}/%j.out", script).strip()
    assert cluster.wait(job, "FAILED", seconds=90)["ExitCode"] == "137:0"
    told = {"exit_code": 137, "attempt": 1}
    assert [{**told, "state": "FAILED"}, told] == sorted(ends(box, job, 2), key=len, reverse=True)
    sources = {source.partition("@")[0]: bytes(text) for (name, source), text in box.received.items() if name == job}
    assert sources.keys() >= {"gpu-1/rank0", "gpu-2/rank1", "batch"}
    assert sources["gpu-2/rank1"] == b"step 1/9 | loss 2.1\n"
    assert b"srun: error: gpu-2: task 1: Exited with exit code 137" in sources["batch"]
