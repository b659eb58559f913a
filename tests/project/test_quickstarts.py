"""The quickstarts of docs/start.md, run as they are written."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.slurm import Slurm, missing

pytestmark = pytest.mark.server


def lines_of(title: str) -> list[str]:
    """The commands under a heading, without what is said beside them."""
    text = (ROOT / "docs" / "start.md").read_text().split(f"\n## {title}\n")[1]
    block = re.search(r"```\n(.*?)\n```", text, re.DOTALL)
    assert block is not None
    return [re.sub(r" {2,}# .*", "", line) for line in block[1].splitlines()]


def pip_cache() -> str:
    return subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.timeout(900)
def test_a_laptop(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    lines = lines_of("A laptop")
    assert len(lines) == 5
    clone, *rest = (line.replace("ADDRESS", f"file://{ROOT}") for line in lines)
    script = "\n".join(["set -x", clone, f"cp {ROOT}/fixtures/logs/key.log slurm-8812.out", *rest])
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHON": sys.executable, "PYTHONPATH": ""}
    # Pip takes half of all time. What it downloaded before is at hand, and what is never imported need not be compiled.
    environment |= {"PIP_CACHE_DIR": pip_cache(), "PIP_COMPILE": "0"}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=880)
    assert "job123: ecc_error (infrastructure)" in done.stdout, done.stderr[-3000:]
    assert "key_error (script)" in done.stdout, done.stderr[-3000:]
    assert "</html>" in (tmp_path / "diagnose" / "report.html").read_text()


@pytest.mark.timeout(300)
def test_slurm(tmp_path: Path) -> None:
    """The batch script's line runs on a real cluster; the other lines in a shell of the service's machine."""
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    lines = lines_of("Slurm")
    assert len(lines) == 5
    (tmp_path / "train.py").write_text(
        'for step in range(1, 30):\n    print(f"step {step} loss {5 / step:.3f}", flush=True)\n{}["shard"]\n'
    )
    batch = next(line for line in lines if line.startswith("srun "))
    (tmp_path / "job.sbatch").write_text(f"#!/bin/bash\n#SBATCH --output={tmp_path}/job.out\n{batch}\n")
    shell = [line if line != batch else "sbatch --wait --export=ALL job.sbatch; sleep 3" for line in lines]
    # The port is the usual one, as it is written: the service is waited for.
    shell.insert(2, "until curl -sf http://localhost:8321/readyz >/dev/null; do sleep 0.2; done")
    cluster = Slurm(("gpu-1",))
    try:
        cluster.start()
        more = {"HOME": str(tmp_path), "USER": cluster.user, "PYTHONPATH": str(ROOT)}
        path = f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"
        shell_of = subprocess.Popen(
            ["bash", "-c", "set -x\n" + "\n".join(shell)],
            cwd=tmp_path,
            env={**cluster.environment, **more, "PATH": path, "XDG_DATA_HOME": str(tmp_path / "share")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said, errors = _until_the_last_line_ended(shell_of)
        finally:
            os.killpg(shell_of.pid, signal.SIGKILL)
        log = (tmp_path / "job.out").read_text() if (tmp_path / "job.out").exists() else ""
        assert "key_error" in said, f"{said}\n{errors[-3000:]}\n{log[-2000:]}"
        assert "KeyError: 'shard'" in log, "the runner prints what the training prints"
    finally:
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)


def _until_the_last_line_ended(shell: subprocess.Popen[str]) -> tuple[str, str]:
    """What the shell printed. The service that it began goes on in the background, and holds its output open."""
    deadline = time.monotonic() + 240
    while shell.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    os.killpg(shell.pid, signal.SIGTERM)
    return shell.communicate(timeout=60)
