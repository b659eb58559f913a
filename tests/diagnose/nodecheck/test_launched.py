"""``diagnose nodes check`` with real processes on gloo, some of them broken on purpose; and how probes are launched."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from diagnose.errors import DiagnoseError
from diagnose.nodecheck.launchers import LAUNCHERS, from_template, hostfile, node_list
from tests.conftest import ROOT, Run

BROKEN = ROOT / "tests" / "broken"


def free_port() -> int:
    """The first of some that are free now, outside the range that the system hands out."""
    for port in range(20000 + os.getpid() % 400 * 20, 28000, 40):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def on_nodes(faults: dict[str, str], nodes: list[str], timeout_s: int, tmp_path: Path) -> tuple[int, dict[str, Any], list[Any]]:
    """Run the check; a launcher of our own puts the faults on their nodes. Exit status, verdict, tests."""
    launcher = tmp_path / "launch"
    cases = "".join(f"  {node}) export NODE_FAULT={fault};;\n" for node, fault in faults.items())
    launcher.write_text(
        "#!/bin/sh\nnode=$1; shift\n"
        f"export PYTHONPATH={shlex.quote(f'{BROKEN}:{ROOT}')}\n"
        f'case $node in\n{cases}esac\nexec "$@"\n'
    )
    launcher.chmod(0o755)
    words = ["--launcher", "command", "--command", f"{launcher} {{node}} {{probe}}", "--backend", "gloo"]
    # A busy machine of two cores is no measure of slowness: only what is far slower counts here.
    words += ["--matrix", "256", "--mib", "1", "--slow", "8", "--timeout", str(timeout_s), "--port", str(free_port())]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "diagnose",
            "nodes",
            "check",
            "--json",
            "--nodes",
            ",".join(f"{n}=127.0.0.1" for n in nodes),
            *words,
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=280,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines, done.stderr
    assert {line["schema"] for line in lines} == {"diagnose.nodecheck/1"}
    return done.returncode, lines[-1], lines[:-1]


@pytest.mark.server
@pytest.mark.parametrize(
    ("faults", "faulty", "slow", "says"),
    [
        ({}, [], [], {}),
        ({"n1": "exit"}, ["n1"], [], {"n1": "exit status 3: cuInit failed"}),
        ({"n2": "crash"}, ["n2"], [], {"n2": "SIGSEGV"}),
        ({"n1": "wrong"}, ["n1"], [], {"n1": "matmul: 1 of 256 rows are wrong"}),
        ({"n3": "corrupt"}, ["n3"], [], {"n3": "all-gather"}),
        ({"n0": "vanish"}, ["n0"], [], {"n0": "no answer, exit status -9"}),
        ({"n2": "slow"}, [], ["n2"], {"n2": "n2's matmul took"}),
        ({"n0": "exit", "n1": "wrong"}, ["n0", "n1"], [], {"n1": "rows are wrong"}),
    ],
    ids=["none", "exit", "crash", "wrong", "corrupt", "vanish", "slow", "exit and wrong in one pair"],
)
def test_broken_nodes_are_found(
    faults: dict[str, str], faulty: list[str], slow: list[str], says: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    nodes = ["n0", "n1", "n2", "n3"]
    status, verdict, tests = on_nodes(faults, nodes, 90, tmp_path)
    assert (verdict["faulty"], verdict["slow"], verdict["suspects"]) == (faulty, slow, []), json.dumps([verdict, tests])
    assert verdict["good"] == [node for node in nodes if node not in faults]
    assert status == (1 if faults else 0)
    assert len(tests) >= verdict["rounds"] == (1, 2, 4)[len(faults)]
    for node, text in says.items():
        assert text in verdict["why"][node]


@pytest.mark.server
def test_who_hangs_when_all_is_said_is_not_faulty(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    status, verdict, tests = on_nodes({"n1": "linger"}, ["n0", "n1"], 90, tmp_path)
    assert (status, verdict["good"], verdict["faulty"]) == (0, ["n0", "n1"], []), json.dumps([verdict, tests])


@pytest.mark.server
@pytest.mark.parametrize("fault", ["hang", "frozen"])
def test_a_hang_costs_its_time_out_and_stalls_nobody(fault: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    began = time.monotonic()
    status, verdict, tests = on_nodes({"n3": fault}, ["n0", "n1", "n2", "n3"], 25, tmp_path)
    assert (status, verdict["faulty"], verdict["good"]) == (1, ["n3"], ["n0", "n1", "n2"]), json.dumps([verdict, tests])
    assert time.monotonic() - began < 2 * (25 + 10 + 5) + 20, "two rounds of one time-out each"
    first = [test for test in tests if test["round"] == 1]
    assert [test["members"] for test in first] == [["n0", "n1"], ["n2", "n3"]], "who passes is told before who hangs"
    # Who hangs, or his partner who waits for him: whose time is up first is a race, and both are told.
    assert "no answer" in verdict["why"]["n3"]


# Without torch


def test_a_worker_does_not_outlive_its_supervisor(tmp_path: Path) -> None:
    """It would join the next test that meets at its port."""
    (tmp_path / "torch.py").write_text(
        "import pathlib, os, time\npathlib.Path('worker').write_text(str(os.getpid()))\ntime.sleep(99)"
    )
    words = "--node n0 --rank 1 --size 2 --address 127.0.0.1 --port 1 --timeout 90".split()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "CUDA_VISIBLE_DEVICES": ""}
    supervisor = subprocess.Popen([sys.executable, "-m", "diagnose.nodecheck.probe", *words], cwd=tmp_path, env=environment)
    deadline = time.monotonic() + 30
    while not (tmp_path / "worker").exists() or not (tmp_path / "worker").read_text():
        assert time.monotonic() < deadline, "no worker began"
        time.sleep(0.05)
    worker = Path("/proc", (tmp_path / "worker").read_text())
    supervisor.kill()
    supervisor.wait()
    while worker.exists() and "Z" not in (worker / "stat").read_text().rpartition(")")[2].split()[0]:
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.05)


def test_probe_ends_what_does_not_answer(tmp_path: Path) -> None:
    """The supervisor needs no torch; its worker finds none here, and the answer names the remedy."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "diagnose.nodecheck.probe",
            *"--node n0 --rank 0 --size 1 --address 127.0.0.1 --port 1 --timeout 30".split(),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "CUDA_VISIBLE_DEVICES": ""},
        timeout=60,
    )
    answer = json.loads(done.stdout)
    assert (answer["ok"], answer["node"]) == (False, "n0")
    assert "no torch here" in answer["what"]
    assert "diagnose-train[check]" in answer["what"]


def test_what_no_node_can_do_is_an_error_and_no_verdict(diagnose: Run) -> None:
    done = diagnose("nodes", "check", "--nodes", "a,b,c,d", "--launcher", "command", "--command", "false {node} {probe}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("diagnose: node check: no node can run the test: no answer, exit status 1; ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes", "a,b", "--launcher", "command"], "--launcher command and --command belong together"),
        (["--nodes", "a,b", "--command", "x {probe}"], "--launcher command and --command belong together"),
        (["--nodes", "a,b", "--launcher", "command", "--command", "ssh {node} hostname"], "does not run the probe"),
        (
            ["--nodes", "a,b", "--launcher", "command", "--command", "no-such-launcher {node} {probe}"],
            "no-such-launcher: the launcher cannot",
        ),
        (["--nodes", "a", "--launcher", "ssh"], "1 node is too few"),
        (["--nodes", "a,a", "--launcher", "ssh"], "a: the node is named twice"),
        (["--nodes=-oProxyCommand=x,b", "--launcher", "ssh"], "is not the name of a node"),
        (["--hostfile", "nowhere"], "nowhere: cannot be read"),
        ([], "the nodes are missing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_errors_name_the_remedy(diagnose: Run, words: list[str], says: str) -> None:
    done = diagnose("nodes", "check", *words, SLURM_JOB_NODELIST="")
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_node_lists() -> None:
    assert node_list("gpu-[01-03,7],head=10.0.0.1") == [
        ("gpu-01", None),
        ("gpu-02", None),
        ("gpu-03", None),
        ("gpu-7", None),
        ("head", "10.0.0.1"),
    ]
    assert hostfile("a slots=8\n\n# b\nc 10.0.0.3 # rack 2\n", "hosts") == [("a", None), ("c", "10.0.0.3")]


@pytest.mark.parametrize("text", ["gpu-[1-999999999]", "gpu-[x]", "a b", "$(reboot)", "a;b", "-x", "a/../b", "a\x1b[31m"])
def test_names_that_could_be_commands_are_refused(text: str) -> None:
    with pytest.raises(DiagnoseError):
        node_list(text)


def test_launchers_keep_words_words() -> None:
    probe = ["python", "-m", "diagnose.nodecheck.probe", "--node", "a b"]
    assert LAUNCHERS["ssh"]("gpu-1", probe)[-2:] == ["gpu-1", "python -m diagnose.nodecheck.probe --node 'a b'"]
    assert LAUNCHERS["srun"]("gpu-1", probe) == ["srun", "--nodes=1", "--ntasks=1", "--overlap", "--nodelist=gpu-1", *probe]
    assert from_template("kubectl exec job/check-{node} -- {probe}")("gpu-1", probe) == [
        *("kubectl", "exec", "job/check-gpu-1", "--"),
        *probe,
    ]
    assert from_template("sh -c 'cd /x && {probe}'")("n", probe) == ["sh", "-c", f"cd /x && {shlex.join(probe)}"]


def test_manifest_holds_each_node_for_a_bounded_time(diagnose: Run) -> None:
    done = diagnose("nodes", "manifest", "--nodes", "gpu-[07-08]", "--image", "registry.example/train:1", "--minutes", "10")
    assert done.returncode == 0, done.stderr
    assert "&id" not in done.stdout, "anchors are hard to read"
    jobs = list(yaml.safe_load_all(done.stdout))
    assert [job["spec"]["template"]["spec"]["nodeName"] for job in jobs] == ["gpu-07", "gpu-08"]
    assert [job["metadata"]["name"] for job in jobs] == ["nodecheck-gpu-07", "nodecheck-gpu-08"]
    for job in jobs:
        assert (job["kind"], job["spec"]["activeDeadlineSeconds"], job["spec"]["backoffLimit"]) == ("Job", 600, 0)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
