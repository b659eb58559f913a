"""The samples of ``deploy/slurm`` under real Slurm daemons: who ended how, and as which attempt."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support import slurm as real
from tests.support.box import Box

pytestmark = [pytest.mark.server, pytest.mark.timeout(480)]
SAMPLES = ("common.sh", "prolog.sh", "epilog.sh", "epilogslurmctld.sh")


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    found = Box().start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def cluster(box: Box) -> Iterator[real.Slurm]:
    if absent := real.missing():
        pytest.skip(f"not installed: {', '.join(absent)}")

    def samples(folder: Path) -> list[str]:
        """As they are, but for where the service is."""
        for name in SAMPLES:
            shutil.copy(ROOT / "deploy" / "slurm" / name, folder)
        common = folder / "common.sh"
        here = f"DIAGNOSE_URL={box.url}\nDIAGNOSE_RUN={folder}/run\nexport SLURM_CONF={folder}/slurm.conf\n"
        common.write_text(here + common.read_text())
        return [
            f"Prolog={folder}/prolog.sh",
            f"Epilog={folder}/epilog.sh",
            f"EpilogSlurmctld={folder}/epilogslurmctld.sh",
        ]

    cluster = real.Slurm(more=samples)
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
