"""A site's study, as people ask for it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import Run

HEAD = "JobIDRaw|JobID|JobName|User|Partition|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES|NodeList\n"


def row(job: int, state: str, name: str = "sft", hour: int = 1) -> str:
    at = f"2026-11-0{hour}T"
    return (
        f"{job}|{job}|{name}|<b>kim</b>|gpu|{state}|1:0|{at}00:00:00|{at}00:00:00|{at}01:00:00|{at}03:00:00|7200"
        "|billing=8,gres/gpu=8|gpu-1\n"
    )


def history(folder: Path) -> None:
    rows = [
        row(8812, "FAILED"),
        row(8813, "COMPLETED", hour=2),
        row(8814, "FAILED", "pre", 3),
        row(8815, "CANCELLED by 7", "x", 4),
    ]
    (folder / "history.txt").write_text(HEAD + "".join(rows))
    logs = folder / "logs" / "2026"
    logs.mkdir(parents=True)
    lines = "".join(f"step {n} loss {3 - n / 1000:.3f}\n" for n in range(1, 1001))
    saved = "successfully saved checkpoint from iteration     500 to /ckpt/x\n"
    (logs / "slurm-8812.out").write_text(f"{lines}{saved}KeyError: 'shard'\n")
    (logs / "rank-8814.log").write_text("RuntimeError: not of this job\n")


def test_a_study_is_one_page_one_json_and_a_summary(diagnose: Run, tmp_path: Path) -> None:
    history(tmp_path)
    done = diagnose("report", "--sacct", "history.txt", "--logs", "logs", "--cores", "1")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "report.json").read_text())
    assert (found["schema"], found["runs"], found["failures"], found["logs"]) == ("diagnose.study/1", 4, 2, 1)
    assert found["unknown"]["count"] == 1
    reasons = {row["reason"]: row for row in found["reasons"]}
    assert reasons["key_error"]["by_log"] == 1
    assert reasons["key_error"]["gpu_hours_lost"] == 8.0  # half of the steps are behind the checkpoint
    assert reasons["unknown"]["gpu_hours_lost"] == 16.0
    assert "2 failed; nothing explains 1" in " ".join(done.stdout.split())
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page
    assert "<b>kim" not in page


def test_jobs_of_kubernetes_get_the_reasons_of_their_logs(diagnose: Run, tmp_path: Path) -> None:
    box = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    ended = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": "2026-11-01T02:00:00Z"}
    jobs = [
        {
            "kind": "Job",
            "metadata": {"name": name, "namespace": "llm", "uid": name * 3, "creationTimestamp": "2026-11-01T00:00:00Z"},
            "spec": {"parallelism": 2, "template": {"spec": {"containers": [box]}}},
            "status": {"startTime": "2026-11-01T00:00:00Z", "conditions": [ended]},
        }
        for name in ("sft", "pre")
    ]
    (tmp_path / "jobs.json").write_text(json.dumps({"kind": "List", "items": jobs}))
    log = tmp_path / "pods" / "llm_sft-x7k2z_0e6a" / "train"
    log.mkdir(parents=True)
    (log / "0.log").write_text("2026-11-01T01:59:59.5Z stderr F KeyError: 'shard'\n")
    done = diagnose("report", "--kubernetes", "jobs.json", "--logs", "pods", "--cores", "1")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "report.json").read_text())
    assert (found["runs"], found["failures"], found["logs"], found["unknown"]["count"]) == (2, 2, 1, 1)
    assert {row["reason"]: (row["count"], row["by_log"]) for row in found["reasons"]} == {
        "key_error": (1, 1),
        "unknown": (1, 0),
    }
    assert "key_error" in (tmp_path / "report.html").read_text()


def test_users_can_be_hidden_and_times_be_chosen(diagnose: Run, tmp_path: Path) -> None:
    history(tmp_path)
    done = diagnose(
        "report",
        "--sacct",
        "history.txt",
        "--since",
        "2026-11-03",
        "--until",
        "2026-11-04",
        "--hash-users",
        "--json",
        "--out",
        "x",
    )
    assert json.loads(done.stdout)["runs"] == 1
    assert "kim" not in done.stdout + (tmp_path / "x.html").read_text()


def test_without_a_history_it_says_what_to_give(diagnose: Run) -> None:
    done = diagnose("report", "--data", "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert "give --sacct FILE" in done.stderr
