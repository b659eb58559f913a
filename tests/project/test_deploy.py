"""deploy/: what can be checked without a cluster is checked, and the Slurm samples are run against a receiver."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from service.configuration import load
from tests.conftest import ROOT, Run
from tests.support.box import Box
from tests.support.servers import Server

DEPLOY = ROOT / "deploy"
SCRIPTS = sorted([*(DEPLOY / "slurm").glob("*.sh"), DEPLOY / "slurm" / "train.sbatch", *(DEPLOY / "dcgm").glob("*.sh")])
pytestmark = pytest.mark.server


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_slurm_samples_are_clean(script: Path) -> None:
    done = subprocess.run(["shellcheck", "-x", str(script)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda path: path.name)
def test_units_are_valid(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/diagnose/bin/diagnose", "/bin/true"))  # it wants the program to be there
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda path: path.name)
def test_units_are_exposed_to_little(unit: Path) -> None:
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-300:]


def test_the_example_of_settings_is_taken() -> None:
    assert load({}, DEPLOY / "serve.yaml").settings.keep_jobs_days == 365


@pytest.mark.parametrize("path", sorted((DEPLOY / "kubernetes").glob("*.yaml")), ids=lambda path: path.name)
def test_manifests_hold_to_the_schema(path: Path) -> None:
    import kubernetes_validate

    for document in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(document, "1.30", strict=True)


CHART = DEPLOY / "helm" / "diagnose"
RIGHTS = ("executor.yaml", "executor-conditions.yaml", "executor-holds.yaml")
FULL: dict[str, Any] = {
    "executor": {"enabled": True, "namespaces": ["ml", "vision"], "conditions": True, "holds": True},
    "files": {"policy.yaml": "mode: observe\n"},
    "environment": {"DIAGNOSE_SERVE_POLICY": "/etc/diagnose/policy.yaml"},
    "database": {"secret": "postgres", "key": "url"},
    "hosts": ["diagnose.example"],
    "trustedProxies": "10.20.0.0/16",
    "storage": {"size": "1Ti", "class": "fast"},
    "clients": {"namespaceLabels": {"team": "training"}},
}


def rendered(values: dict[str, Any] | None) -> list[Any]:
    """What Helm makes of the chart: its own library, in a package of Python."""
    import helm_python

    made = helm_python.Chart.load(CHART).render(values, name="trains", namespace="ops")
    return [one for path, text in made.items() if not path.endswith(".txt") for one in yaml.safe_load_all(text) if one]


def of_kind(documents: list[Any], kind: str) -> Any:
    (found,) = (one for one in documents if one["kind"] == kind)
    return found


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    import helm_python

    found = helm_python.lint(CHART, strict=True)
    assert found["errors"] == []
    assert {one["error"] for one in found["messages"]} <= {"icon is recommended"}


@pytest.mark.parametrize("values", [None, FULL], ids=["as-it-comes", "full"])
def test_what_the_chart_makes_holds_to_the_schema(values: dict[str, Any] | None) -> None:
    import kubernetes_validate

    documents = rendered(values)
    for document in documents:
        kubernetes_validate.validate(document, "1.30", strict=True)
    names = {(one["kind"], one["metadata"].get("namespace")) for one in documents}
    assert ("StatefulSet", "ops") in names
    assert (("ClusterRole", None) in names) is (values is not None), "no rights unless it acts"


def test_the_charts_settings_are_taken_by_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = rendered(FULL)
    for name, text in of_kind(documents, "ConfigMap")["data"].items():
        (tmp_path / name).write_text(text)
    spec = of_kind(documents, "StatefulSet")["spec"]["template"]["spec"]
    for one in spec["containers"][0]["env"]:
        value = one.get("value", "postgresql://db/logs")
        monkeypatch.setenv(one["name"], value.replace("/etc/diagnose", str(tmp_path)))
    found = load({}).settings
    assert (found.policy, found.executors) == (tmp_path / "policy.yaml", tmp_path / "executors.yaml")
    assert found.allowed_hosts.split(",")[:3] == ["trains", "trains.ops", "trains.ops.svc"]
    assert yaml.safe_load((tmp_path / "executors.yaml").read_text())["executors"][0]["namespaces"] == ["ml", "vision"]
    assert spec["automountServiceAccountToken"] is True


def test_the_chart_gives_the_rights_that_the_plain_manifests_give() -> None:
    texts = [(DEPLOY / "kubernetes" / name).read_text() for name in RIGHTS]
    plain = [one for text in texts for one in yaml.safe_load_all(text) if "rules" in one]
    made = [one for one in rendered(FULL) if "rules" in one]
    assert sorted(map(str, (one["rules"] for one in made))) == sorted(map(str, (one["rules"] for one in plain)))
    bound = [
        one["metadata"]["namespace"] for one in rendered(FULL) if one["metadata"]["name"] == "trains-jobs" and "subjects" in one
    ]
    assert sorted(bound) == ["ml", "vision"]
    least = rendered({**FULL, "executor": {"enabled": True, "namespaces": ["ml"]}})
    (first, *_) = [one for one in yaml.safe_load_all(texts[0]) if "rules" in one]
    extra = ("nodes/status", "pods/status", "workloads")
    assert not [one for one in least if "rules" in one and any(name in str(one) for name in extra)], "only where it is used"
    assert first["rules"] in [one["rules"] for one in least if "rules" in one]


@pytest.mark.parametrize(
    "values", [{"imgae": "x"}, {"executor": {"namespaces": ["A B"]}}, {"environment": {"SCANNERS": "1"}}], ids=str
)
def test_values_that_the_chart_does_not_know_are_refused(values: dict[str, Any]) -> None:
    import helm_python

    with pytest.raises(helm_python.HelmError):
        helm_python.Chart.load(CHART).validate_schema(values)


@pytest.mark.parametrize("of", ["chart", "plain"])
def test_the_first_start_writes_a_token_for_its_owner_only_and_into_no_log(of: str, tmp_path: Path) -> None:
    plain = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "diagnose.yaml").read_text()))
    start = of_kind(rendered(None) if of == "chart" else plain, "StatefulSet")["spec"]["template"]["spec"]["initContainers"][0]
    words = [*start["command"], start["args"][0].replace("/data", str(tmp_path))]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    tokens = []
    for _ in range(2):
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PATH": path}, timeout=100)
        assert done.returncode == 0, done.stderr
        made = tmp_path / "shippers.token"
        tokens.append(made.read_text())
        assert tokens[0].startswith("dgn_")
        assert tokens[0].strip() not in done.stdout + done.stderr
        assert made.stat().st_mode & 0o777 == 0o600
    assert tokens[0] == tokens[1], "a restart makes no other"


@pytest.mark.parametrize(
    ("status", "end"),
    [("0", {"exit_code": 0}), ("256", {"exit_code": 1}), ("9", {"exit_code": 137, "signal": 9}), ("", {"exit_code": 0})],
)
def test_the_controllers_epilog_says_how_the_job_ended(status: str, end: dict[str, int]) -> None:
    box = Box().start()
    environment = {
        "SLURM_JOB_ID": "4713",
        "SLURM_ARRAY_JOB_ID": "4711",
        "SLURM_ARRAY_TASK_ID": "2",
        "SLURM_JOB_EXIT_CODE": status,
    }
    done = subprocess.run(
        [str(DEPLOY / "slurm" / "epilogslurmctld.sh")],
        env={"PATH": os.environ["PATH"], "DIAGNOSE_URL": box.url, "DIAGNOSE_TOKEN_FILE": "/none", **environment},
        timeout=60,
    )
    until = time.monotonic() + 30  # it asks Slurm first, which is not here
    while not box.ends and time.monotonic() < until:
        time.sleep(0.1)
    box.stop()
    assert (done.returncode, box.ends) == (0, [("4711_2", {**end, "attempt": 1})])


def test_what_slurmctld_kills_when_the_controllers_epilog_ends_is_not_who_tells() -> None:
    box = Box().start()
    environment = {"PATH": os.environ["PATH"], "DIAGNOSE_URL": box.url, "DIAGNOSE_TOKEN_FILE": "/none"}
    words = [str(DEPLOY / "slurm" / "epilogslurmctld.sh")]
    here = os.sched_getaffinity(0)
    one, *others = sorted(here)
    try:
        # Who starts and who kills are on processors of their own, so that the script's child comes late.
        os.sched_setaffinity(0, others or here)
        for job in range(30):
            started = subprocess.Popen(
                ["taskset", "--cpu-list", str(one), *words],
                env={**environment, "SLURM_JOB_ID": str(job)},
                start_new_session=True,
            )
            os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait(10)
    finally:
        os.sched_setaffinity(0, here)
    until = time.monotonic() + 60
    while len(box.ends) < 30 and time.monotonic() < until:
        time.sleep(0.1)
    box.stop()
    assert sorted(int(job) for job, _ in box.ends) == list(range(30))


def test_an_epilog_neither_fails_nor_hangs_without_a_service() -> None:
    done = subprocess.run(
        [str(DEPLOY / "slurm" / "epilogslurmctld.sh")],
        env={"PATH": os.environ["PATH"], "DIAGNOSE_URL": "http://127.0.0.1:9", "SLURM_JOB_ID": "1"},
        timeout=60,
        capture_output=True,
    )
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["vector.yaml", "promtail.yaml", "otel-collector.yaml"])
def test_shipper_configurations_are_yaml_and_name_a_route_of_ours(name: str) -> None:
    text = (DEPLOY / "shippers" / name).read_text()
    yaml.safe_load(text)
    assert any(route in text for route in (":8321/v1/records", ":8321/loki/api/v1/push", ":8321/v1/logs"))


def test_the_batch_script_tells_what_slurm_says_of_its_processes(tmp_path: Path) -> None:
    """srun and the sender are stand-ins: only what the script does with their words is tested here."""
    said = "a task complains", "slurmstepd: error: STEP 7.0 CANCELLED", "srun: error: Killed"
    says = "; ".join(["echo out", *(f'echo "{line}" >&2' for line in said)])
    for name, does in (("srun", f"{says}; exit 137"), ("diagnose", f'echo "$*" >>{tmp_path}/told; cat >>{tmp_path}/told')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "SLURM_JOB_ID": "7",
        "SLURM_RESTART_COUNT": "1",
    }
    script = str(DEPLOY / "slurm" / "train.sbatch")
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (137, "out\n")
    assert done.stderr.splitlines()[0] == "a task complains"
    how, *lines = (tmp_path / "told").read_text().splitlines()
    assert how.startswith("send --job 7 --attempt 2 ")
    assert how.endswith(" --source batch --exit-code 137 -")
    assert lines == list(said[1:])


def test_the_tokens_of_the_guide_can_be_made_and_are_all_that_the_samples_need(diagnose: Run, tmp_path: Path) -> None:
    """A node's kernel log, a shipper's file and the end of a job, each with the token that the guide gives it."""
    lines = re.findall(r"^diagnose (tokens create .*?)(?:  +#.*)?$", (DEPLOY / "README.md").read_text(), re.MULTILINE)
    secrets = {}
    for line in lines:
        words = shlex.split(line)
        made = diagnose(*words, "--data", str(tmp_path / "data"))
        assert made.returncode == 0, made.stderr
        secrets[words[2]] = tmp_path / words[2]
        secrets[words[2]].write_text(made.stdout.strip())
    assert {"admin", "actor", "shippers", "kim", "gpu-17", "all-pods", "ml"} == secrets.keys()
    with Server(tmp_path / "data") as server:

        def sample(script: str, token: str, **more: str) -> tuple[int, bool, str]:
            environment = {
                "PATH": os.environ["PATH"],
                "DIAGNOSE_URL": server.url,
                "DIAGNOSE_TOKEN_FILE": str(secrets[token]),
                "SLURM_JOB_ID": "8812",
                "SLURMD_NODENAME": "gpu-17",
                # What only a kernel can say. Functions go before programs, whatever the samples set as PATH.
                "BASH_FUNC_journalctl%%": "() { echo 'NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.'; }",
                "BASH_FUNC_dmesg%%": "() { echo 'NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.'; }",
                # If anything is refused, this is called.
                "BASH_FUNC_logger%%": "() { echo refused; }",
            }
            done = subprocess.run(
                [str(DEPLOY / "slurm" / script)], env={**environment, **more}, timeout=60, capture_output=True, text=True
            )
            return done.returncode, "refused" in done.stdout, done.stderr

        def shipped(token: str, job: str, **params: str) -> int:
            head = {"Authorization": f"Bearer {secrets[token].read_text()}"}
            url = f"{server.url}/v1/jobs/{job}/logs"
            return httpx.post(url, params=params, content=b"step 1 loss 2.0\n", headers=head).status_code

        assert shipped("shippers", "8812", source="/logs/kim/slurm-8812.out", **{"label.user": "kim"}) == 200
        for script in ("prolog.sh", "epilog.sh"):
            assert sample(script, "gpu-17") == (0, False, "")
        assert sample("epilog.sh", "shippers")[:2] == (0, True)
        assert sample("epilogslurmctld.sh", "shippers", SLURM_JOB_EXIT_CODE="256") == (0, False, "")
        assert (shipped("kim", "8813"), shipped("ml", "ml.llama"), shipped("all-pods", "ml.llama", source="x")) == (200,) * 3
        server.client.headers["Authorization"] = f"Bearer {secrets['admin'].read_text()}"
        deadline = time.monotonic() + 30
        while server.get("/v1/jobs/8812")["state"] != "ended":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        sources = {one["name"]: one["node"] for one in server.get("/v1/jobs/8812/sources")["sources"]}
    kernel = {f"node:gpu-17/{name}": "gpu-17" for name in ("kernel", "kernel-before")}
    assert sources == {"/logs/kim/slurm-8812.out": None, **kernel}


def test_what_dcgm_prints_is_told_with_the_nodes_token(diagnose: Run, tmp_path: Path) -> None:
    """dcgmi is a stand-in that prints what its source prints: there is no GPU here."""
    made = diagnose("tokens", "create", "gpu-17", "--role", "node", "--node", "gpu-17", "--data", str(tmp_path / "data"))
    admin = diagnose("tokens", "create", "admin", "--role", "admin", "--data", str(tmp_path / "data"))
    (tmp_path / "token").write_text(made.stdout.strip())
    said = "Listening for violations.", "Timestamp: Fri Nov 20 10:00:00 2026", 'XID error 79 detected. "quoted" \\'
    script = "#!/bin/sh\n" + "".join(f"printf '%s\\n' '{line}'\n" for line in said)
    (tmp_path / "dcgmi").write_text(script)
    (tmp_path / "dcgmi").chmod(0o755)
    with Server(tmp_path / "data") as server:
        environment = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "DIAGNOSE_URL": server.url,
            "DIAGNOSE_TOKEN_FILE": str(tmp_path / "token"),
            "DIAGNOSE_NODE": "gpu-17",
        }
        words = [str(DEPLOY / "dcgm" / "policy-events.sh"), "2"]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        server.client.headers["Authorization"] = f"Bearer {admin.stdout.strip()}"
        (found,) = server.get("/v1/nodes/gpu-17")["findings"]
        assert (found["source"], found["name"]) == ("dcgm", "Xid79")
