"""Two runs compared, as people do it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run
from tests.support.servers import Server

HEAD = """torch {torch}, NCCL version 2.22.3+cuda12.6
------------------------ arguments ------------------------
  hidden_size ..................................... 4096
  micro_batch_size ................................ {batch}
-------------------- end of arguments ---------------------
"""


def run(torch: str = "2.4.1", batch: int = 1, ms: float = 800.0, leap: int = 10**9, end: str = "training done\n") -> str:
    steps = "".join(
        f" iteration {n:8d}/    9000 | consumed samples: {n * 8:8d} | elapsed time per iteration (ms): {ms + n % 7:.1f} "
        f"| lm loss: {9 / (1 + n / 50) + (4 if n >= leap else 0):.6E} |\n"
        for n in range(1, 300)
    )
    return HEAD.format(torch=torch, batch=batch) + steps + end


BAD = "the shard daemon parked us at 12\nTraceback (most recent call last):\n  File \"train.py\", line 3\nKeyError: 'x'\n"


def test_what_differs_is_said(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text(run())
    (tmp_path / "bad.log").write_text(run("2.5.0", 4, 1600, 120, BAD))
    done = diagnose("compare", "good.log", "bad.log", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(done.stdout)
    assert found["schema"] == "diagnose.comparison/1"
    assert (found["good"]["outcome"], found["bad"]["reason"]) == ("healthy", "loss_anomaly")
    assert found["versions"] == [{"name": "torch", "good": "2.4.1", "bad": "2.5.0"}]
    assert found["settings"] == [{"name": "micro_batch_size", "good": "1", "bad": "4"}]
    assert {level["name"]: round(level["ratio"], 1) for level in found["levels"]} == {"step_time_s": 2.0}
    loss = next(parting for parting in found["partings"] if parting["name"] == "loss")
    assert (loss["equal_to"], loss["apart_from"]) == (119, 120)
    assert "the shard daemon parked us at 12" in {line["text"] for line in found["new"]}
    assert found["new"][0]["title"] is not None
    assert {line["text"] for line in found["gone"]} == {"training done"}


def test_people_get_it_in_the_order_in_which_it_is_looked_at(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text(run())
    (tmp_path / "bad.log").write_text(run("2.5.0", 4, 1600, 120, BAD))
    said = diagnose("compare", "good.log", "bad.log").stdout
    titles = ["good:", "versions", "settings", "pace", "courses", "lines that only the bad run has", "only the good run has"]
    places = [said.index(title) for title in titles]
    assert places == sorted(places)
    assert "loss: equal up to step 119, apart from step 120" in said
    assert max(map(len, said.splitlines())) <= 100


def test_the_same_run_differs_in_nothing(diagnose: Run, tmp_path: Path) -> None:
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        for rank in range(2):
            (tmp_path / name / f"rank{rank}.log").write_text(run())
    done = diagnose("compare", "good", "bad")
    assert done.returncode == 0
    assert "Nothing differs that the logs tell of." in done.stdout


def test_log_text_is_harmless(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text(run())
    (tmp_path / "bad.log").write_text(run(end="ERROR: \x1b]0;title\x07 \x9b31m\n  NAME=\x1b[2J\n"))
    said = diagnose("compare", "good.log", "bad.log", "--all").stdout
    assert "\x1b" not in said
    assert "\x9b" not in said


def test_a_run_that_cannot_be_read(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text(run())
    done = diagnose("compare", "good.log", "god.log")
    assert (done.returncode, done.stderr) == (2, "diagnose: god.log: no such file or folder; did you mean good.log?\n")


@pytest.mark.server
def test_jobs_and_attempts_of_a_service_are_compared(diagnose: Run, tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        for job, attempt, log in (("good", 1, run()), ("bad", 1, run("2.5.0", 4, 800, 120, BAD)), ("bad", 2, run("2.5.0"))):
            server.push(job, log.encode(), source="rank0.log", attempt=str(attempt))
            server.end(job, 1 if log.endswith(BAD) else 0, attempt=attempt)
        (tmp_path / "file.log").write_text(run())

        def compared(good: str, bad: str) -> dict[str, Any]:
            done = diagnose("compare", good, bad, "--json", "--to", server.url)
            assert (done.returncode, done.stderr) == (1, "")
            found: dict[str, Any] = json.loads(done.stdout)
            return found

        jobs = compared("job:good", "job:bad#1")
        assert (jobs["good"]["outcome"], jobs["bad"]["outcome"]) == ("healthy", "failed")
        assert "the shard daemon parked us at 12" in {line["text"] for line in jobs["new"]}
        loss = next(parting for parting in jobs["partings"] if parting["name"] == "loss")
        assert loss["apart_from"] is not None
        assert compared("job:bad#1", "job:bad#2")["bad"]["outcome"] == "healthy"
        assert "the shard daemon parked us at 12" in {line["text"] for line in compared("file.log", "job:bad#1")["new"]}
        refused = diagnose("compare", "job:good", "job:none", "--to", server.url)
        assert refused.returncode == 2
        assert "no such job" in refused.stderr
