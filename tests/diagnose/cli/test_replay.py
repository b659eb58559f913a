"""The command line as people use it: what is printed where, and with which status."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diagnose.rendering.terminal import columns_of
from tests.conftest import ROOT, Run
from tests.support.live import until

HEALTHY = b"".join(
    b" iteration %8d/    9000 | consumed samples: %8d | elapsed time per iteration (ms): 812.5 | lm loss: %.6E |\n"
    % (n, n * 8, 9 / (1 + n / 50))
    for n in range(1, 200)
)
FAILED = (
    HEALTHY + b"[rank3]: Traceback (most recent call last):\n[rank3]:   File \"train.py\", line 3\n[rank3]: KeyError: 'x'\n"
)


def test_a_healthy_log(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_bytes(HEALTHY)
    done = diagnose("replay", "train.log")
    assert (done.returncode, done.stderr) == (0, "")
    assert "train: no failure found" in done.stdout
    assert "metric 199" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_failed_log_is_diagnosed(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_bytes(FAILED)
    done = diagnose("replay", "train.log", "--json", "--kept", "kept.txt")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert report["schema"] == "diagnose.report/1"
    assert report["outcome"] == "failed"
    diagnosis = report["diagnosis"]
    assert (diagnosis["category"], diagnosis["reason"], diagnosis["by"]) == ("script", "key_error", "rule")
    assert diagnosis["suspects"] == {"nodes": [], "ranks": [3], "gpus": []}
    root = diagnosis["root_cause"]
    expected = {
        "source": "train.log",
        "line": 202,
        "text": "[rank3]: KeyError: 'x'",
        "role": "root_cause",
        "rank": 3,
        "node": None,
    }
    assert {key: root[key] for key in expected} == expected
    assert root["rule"] == diagnosis["rule"] == "rules/failures/python.yaml:py-key"
    assert diagnosis["evidence"][0] == root
    assert report["action"]["kind"] == "fix_code"
    assert report["compression"]["lines_in"] == 202
    assert report["compression"]["dropped_by_kind"] == {"metric": 199}
    assert report["metrics"]["loss"]["count"] == 199
    assert report["metrics"]["step_time_s"]["last"] == pytest.approx(0.8125)
    kept = (tmp_path / "kept.txt").read_text().splitlines()
    assert kept[-1] == "202:[rank3]: KeyError: 'x'"


def test_a_failure_that_nothing_explains_is_unknown(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_bytes(
        HEALTHY + b"the daemon parked us\nsrun: error: gpu003: task 17: Exited with exit code 1\n"
    )
    done = diagnose("replay", "train.log", "--json")
    diagnosis = json.loads(done.stdout)["diagnosis"]
    assert (done.returncode, diagnosis["category"], diagnosis["reason"], diagnosis["confidence"]) == (
        3,
        "unknown",
        "unknown",
        0.0,
    )
    assert diagnosis["root_cause"]["text"] == "the daemon parked us"
    assert diagnosis["suspects"]["nodes"] == ["gpu003"]


def test_what_a_healthy_run_says_too_is_no_cause(diagnose: Run, tmp_path: Path) -> None:
    odd = b"ERROR: shard cache: storage volume 7: Input/output error, using the mirror\n"
    (tmp_path / "healthy.log").write_bytes(odd + HEALTHY)
    (tmp_path / "train.log").write_bytes(HEALTHY + odd)
    alone = json.loads(diagnose("replay", "train.log", "--json").stdout)
    assert alone["diagnosis"]["reason"] == "storage_error"
    beside = json.loads(diagnose("replay", "train.log", "--json", "--healthy", "healthy.log").stdout)
    assert beside["diagnosis"]["reason"] == "healthy"


def test_the_report_fits_a_hundred_columns(diagnose: Run, tmp_path: Path) -> None:
    long = b"[rank3]: RuntimeError: CUDA out of memory. " + "wörter 词语 ".encode() * 200 + b"x" * 5000
    (tmp_path / "train.log").write_bytes(FAILED + long + b"\n")
    done = diagnose("replay", "train.log")
    assert max(columns_of(line) for line in done.stdout.splitlines()) <= 100
    assert "\x1b" not in done.stdout


def test_standard_input_archives_and_several_jobs(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(HEALTHY))
    (tmp_path / "b.log").write_bytes(FAILED)
    done = diagnose("replay", "-", "a.log.gz", "b.log", "--json", stdin=HEALTHY)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["job"]["id"] for report in reports] == ["stdin", "a", "b"]
    assert done.returncode == 1


def test_a_folder_is_one_job_and_each_makes_it_many(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for rank in range(3):
        (tmp_path / "job" / f"rank{rank}.log").write_bytes(HEALTHY)
    one = [json.loads(line) for line in diagnose("replay", "job", "--json").stdout.splitlines()]
    each = [json.loads(line) for line in diagnose("replay", "job", "--json", "--each").stdout.splitlines()]
    assert [(len(report["job"]["sources"]), report["compression"]["lines_in"]) for report in one] == [(3, 597)]
    assert [report["job"]["id"] for report in each] == ["rank0", "rank1", "rank2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["replay", "none.log"], "none.log: no such file or folder; check the path"),
        (["replay", "empty.log"], "empty.log: the file is empty"),
        (["replay", "god.log"], "god.log: no such file or folder; did you mean good.log?"),
        (["replay", "folder"], "folder: the folder has no logs"),
        (["replay", "--frobnicate", "x"], "unrecognized arguments: --frobnicate; see diagnose"),
        (["replay", "--jsno", "x"], "unrecognized arguments: --jsno; did you mean --json?; see diagnose replay --help"),
        (["replya", "good.log"], "invalid choice: 'replya'; did you mean replay?; see diagnose --help"),
        (["rules", "chek"], "invalid choice: 'chek'; did you mean check?; see diagnose rules --help"),
        (["replay", "foldr/empty.log"], "foldr/empty.log: no such file or folder; did you mean folder?"),
        (["replay", "good.log", "--rules", "odd.yaml"], "reason 'key_eror' is not known; did you mean key_error? use one of: "),
        (["replay", "good.log", "--rules", "bda.yaml"], "bda.yaml: no such rule file or folder; did you mean bad.yaml?"),
        (["rules", "explain", "x", "--rule", "py-kye"], "there is no rule 'py-kye'; did you mean py-key?"),
        (["replay"], "the following arguments are required: PATH"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["replay", "good.log", "--rules", "bad.yaml"], "bad.yaml:2: unknown field 'patern'; the fields here are"),
        (["replay", "good.log", "--rules", "none.yaml"], "none.yaml: no such rule file or folder"),
        (["replay", "good.log", "--kept", "no/where"], "no/where: cannot be written"),
        (["replay", "good.log", "--healthy", "none.log"], "none.log: no such file or folder; check the path"),
        (["eval", "none"], "none/labels.tsv: cannot be read: No such file or directory; a corpus is a folder with labels.tsv"),
        (["eval", "folder"], "folder/labels.tsv: cannot be read"),
        (["eval", "corpus"], "corpus/labels.tsv:1: the first line is not the header of labels.tsv; use: file <tab> category"),
        (["rules", "explain", "x", "--rule", "none"], "there is no rule 'none'; diagnose rules list"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_remedy(diagnose: Run, tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "good.log").write_bytes(HEALTHY)
    (tmp_path / "empty.log").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "labels.tsv").write_text("file\treason\n")
    (tmp_path / "odd.yaml").write_text("rules:\n  - {id: a, reason: key_eror, pattern: x, layer: script, title: x}\n")
    (tmp_path / "bad.yaml").write_text("rules:\n  - {id: a, kind: debug, patern: x}\n")
    done = diagnose(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_bad_input_does_not_stop_the_others(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "good.log").write_bytes(HEALTHY)
    packed = gzip.compress(HEALTHY)
    (tmp_path / "cut.log.gz").write_bytes(packed[: len(packed) // 2])
    assert diagnose("replay", "cut.log.gz", "--json").returncode == 2
    done = diagnose("replay", "none.log", "cut.log.gz", "good.log", "--json")
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["job"]["id"] for report in reports] == ["cut", "good"]
    assert reports[0]["problems"][0]["what"] == "the gzip data ends early: the file was cut off"
    assert 0 < reports[0]["compression"]["lines_in"] < 199
    assert done.returncode == 2
    assert "cut.log.gz: the gzip data ends early" in done.stderr


@pytest.mark.parametrize(
    "foreign",
    [
        (ROOT / "diagnose" / "matching" / "matcher.py").read_bytes(),
        json.dumps([{"a": [1, 2, {"b": None}]}] * 500, indent=2).encode(),
        b'10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 12 "-" "curl"\n' * 500,
        "\ufeffzeile eins\r\nzeile zwei\r\n".encode("utf-16"),
    ],
    ids=["source code", "JSON", "access log", "UTF-16"],
)
@pytest.mark.parametrize("engine", ["", "wheel"])
def test_foreign_text_is_kept_and_harmless(diagnose: Run, tmp_path: Path, foreign: bytes, engine: str) -> None:
    (tmp_path / "x.log").write_bytes(foreign)
    environment = {"DIAGNOSE_ENGINE": engine} if engine else {}
    done = diagnose("replay", "x.log", "--no-folds", "--json", **environment)
    assert done.returncode in (0, 1, 3)  # source code speaks of errors, and nothing says that it is no log
    figures = json.loads(done.stdout)["compression"]
    assert figures["bytes_in"] == len(foreign)
    printed = foreign.replace(b"\0", b"").strip()
    if printed and not foreign.startswith(b"[\n"):  # rows of JSON are what configurations print
        assert figures["bytes_kept"] > 0.5 * len(printed)


@pytest.mark.parametrize(
    "foreign",
    [os.urandom(3_000_000), Path(sys.executable).read_bytes()[:3_000_000], bytes(1_000_000), bz2.compress(HEALTHY)],
    ids=["random bytes", "a binary", "NULs", "an archive of another kind"],
)
def test_what_is_no_log_is_said_to_be_none(diagnose: Run, tmp_path: Path, foreign: bytes) -> None:
    (tmp_path / "x.log").write_bytes(foreign)
    (tmp_path / "good.log").write_bytes(HEALTHY)
    alone = diagnose("replay", "x.log")
    assert (alone.returncode, alone.stdout) == (2, "")
    assert alone.stderr.startswith("diagnose replay: x.log: this is not a log, but ")
    assert len(alone.stderr.splitlines()) == 1
    piped = diagnose("replay", "-", stdin=foreign)
    assert (piped.returncode, piped.stdout) == (2, "")
    assert "<stdin>: this is not a log, but " in piped.stderr
    beside = diagnose("replay", "x.log", "good.log", "--json")
    assert beside.returncode == 2
    assert [json.loads(line)["job"]["id"] for line in beside.stdout.splitlines()] == ["good"]


def write_jobs(folder: Path) -> None:
    """8811 failed, 8812 went well, 8813 failed and nobody knows why; a memory dump and a script lie beside them."""
    folder.mkdir()
    files = {
        "slurm-8811.out": FAILED,
        "slurm-8812.out": HEALTHY,
        "slurm-8812.err": b"",
        "slurm-8813.out": HEALTHY + b"the daemon parked us\nsrun: error: gpu003: task 17: Exited with exit code 1\n",
        "core.4711": b"\x7fELF\2\1\1" + bytes(100),
        "train.sbatch": b"#!/bin/sh\nsrun train.py || echo ERROR: failed\n",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)


def test_a_folder_of_several_jobs_is_a_report_for_each_and_a_table(diagnose: Run, tmp_path: Path) -> None:
    write_jobs(tmp_path / "logs")
    done = diagnose("replay", "logs")
    assert done.returncode == 1
    overview = done.stdout[done.stdout.index("3 jobs, 2 failed\n") :]
    assert [re.sub(r"\d+%", "N%", line).split() for line in overview.splitlines()[1:]] == [
        ["job", "answer", "confidence", "action", "root", "cause"],
        ["slurm-8811", "key_error", "N%", "fix_code", "slurm-8811.out:202"],
        ["slurm-8813", "unknown", "none", "slurm-8813.out:200"],
        ["slurm-8812", "no", "failure", "found"],
    ]
    assert done.stdout.count("lines, 2") == 3  # a whole report of each
    assert "logs/core.4711: this is not a log, but a program" in done.stderr
    assert "logs/train.sbatch: this file belongs to none of the jobs" in done.stderr


def test_a_folder_of_several_jobs_is_a_line_of_json_for_each(diagnose: Run, tmp_path: Path) -> None:
    write_jobs(tmp_path / "logs")
    reports = [json.loads(line) for line in diagnose("replay", "logs", "--json").stdout.splitlines()]
    assert [(report["job"]["id"], report["outcome"]) for report in reports] == [
        ("slurm-8811", "failed"),
        ("slurm-8812", "healthy"),
        ("slurm-8813", "failed"),
    ]
    together = json.loads(diagnose("replay", "logs", "--json", "--together").stdout)
    assert together["job"]["id"] == "logs"
    assert len(together["job"]["sources"]) == 4
    named = json.loads(diagnose("replay", "logs", "--json", "--job", "mine").stdout)
    assert named["job"]["id"] == "mine"
    each = diagnose("replay", "logs", "--json", "--each").stdout.splitlines()
    assert len(each) == 4


@pytest.mark.parametrize(
    ("files", "status"),
    [
        (["8811.out", "8812.out", "none.log"], 1),
        (["8813.out", "8811.out"], 1),
        (["8813.out", "8812.out", "none.log"], 3),
        (["8812.out", "none.log"], 2),
        (["none.log"], 2),
        (["8812.out", "8812.err"], 0),
    ],
    ids=["failed", "failed beside unknown", "unknown", "not all could be read", "nothing could be read", "empty errors"],
)
def test_the_exit_status_is_the_worst(diagnose: Run, tmp_path: Path, files: list[str], status: int) -> None:
    write_jobs(tmp_path / "logs")
    assert diagnose("replay", *(f"logs/slurm-{name}" for name in files)).returncode == status


def test_folders_of_jobs_with_files_of_the_same_names(diagnose: Run, tmp_path: Path) -> None:
    for name, content in {"baseline": HEALTHY, "wide": FAILED}.items():
        (tmp_path / "jobs" / name).mkdir(parents=True)
        for rank in range(2):
            (tmp_path / "jobs" / name / f"rank{rank}.log").write_bytes(content)
    reports = [json.loads(line) for line in diagnose("replay", "jobs", "--json").stdout.splitlines()]
    assert [(report["job"]["id"], len(report["job"]["sources"])) for report in reports] == [("baseline", 2), ("wide", 2)]
    flat = [json.loads(line)["job"]["id"] for line in diagnose("replay", "jobs", "--json", "--each").stdout.splitlines()]
    assert flat[0] == "jobs/baseline/rank0"


@pytest.mark.parametrize(
    ("flags", "said"), [(["--failed"], "The job failed, and"), (["--exit-code", "7"], "ended with exit code 7, and")]
)
def test_a_job_that_its_caller_says_failed_is_not_healthy(diagnose: Run, tmp_path: Path, flags: list[str], said: str) -> None:
    (tmp_path / "train.log").write_bytes(HEALTHY)
    done = diagnose("replay", "train.log", "--json", *flags)
    report = json.loads(done.stdout)
    diagnosis = report["diagnosis"]
    assert (done.returncode, report["outcome"]) == (3, "failed")
    assert (diagnosis["category"], diagnosis["reason"], diagnosis["confidence"]) == ("unknown", "unknown", 0.0)
    assert said in diagnosis["summary"]
    assert "train: unknown" in diagnose("replay", "train.log", *flags).stdout


def test_what_the_caller_says_changes_no_failure_and_exit_code_0_says_nothing(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "good.log").write_bytes(HEALTHY)
    (tmp_path / "bad.log").write_bytes(FAILED)
    assert diagnose("replay", "good.log", "--exit-code", "0").returncode == 0
    plain = diagnose("replay", "bad.log", "--json").stdout
    assert diagnose("replay", "bad.log", "--json", "--failed", "--exit-code", "1").stdout == plain


def test_what_a_terminal_would_obey_is_shown_as_text(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"RuntimeError: \x1b]0;owned\x07 \x07\x08 \xe2\x80\xae back \x1b[2J\n")
    done = diagnose("replay", "x.log")
    assert "RuntimeError" in done.stdout
    assert not any(c in done.stdout for c in "\x1b\x07\x08\u202e")


def test_a_line_of_a_gigabyte_takes_little_memory(tmp_path: Path) -> None:
    """150 MB is the limit for any log; a quarter of the gigabyte shows as well that the line is not held."""
    code = (
        "import re, runpy, sys; sys.argv = ['diagnose', 'replay', '-', '--json']\n"
        "try: runpy.run_module('diagnose', run_name='__main__')\n"
        # Not ru_maxrss: a child inherits that from the process that forked it.
        "finally: sys.stderr.write(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdin
        for _ in range(256):
            process.stdin.write(b"x" * (1 << 20))
        process.stdin.close()
        assert process.stdout
        assert process.stderr
        report = json.loads(process.stdout.read())
        peak_kib = int(process.stderr.read().split()[-1])
    assert report["compression"]["bytes_in"] == 256 << 20
    assert report["compression"]["bytes_kept"] == 65537
    assert peak_kib < 150_000


def test_follow_reads_on_until_idle(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    wide = b"first".ljust(80, b".")  # which the next line may go on
    log.write_bytes(wide + b"\n")
    kept = tmp_path / "k"
    process = subprocess.Popen(
        [sys.executable, "-m", "diagnose", "replay", str(log), "--follow", "--idle", "4", "--json", "--kept", str(kept)],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    until(lambda: kept.exists() and kept.read_bytes() == b"1:" + wide + b"\n")
    with log.open("ab") as file:
        file.write(b"second")
    time.sleep(0.5)
    log.rename(tmp_path / "train.log.1")
    log.write_bytes(b"third\n")
    output, _ = process.communicate(timeout=60)
    assert (tmp_path / "k").read_text().splitlines() == [f"1:{wide.decode()}", "2:second", "1:third"]
    assert json.loads(output)["compression"]["lines_in"] == 3


def test_rules_list_check_test_and_explain(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "rules:\n  - id: demo\n    kind: debug\n    pattern: '^demo \\d+'\n"
        "    examples: {matches: ['demo 1'], misses: ['a demo 1']}\n"
    )
    (tmp_path / "bad.yaml").write_text(
        "rules:\n  - id: demo\n    kind: debug\n    pattern: '^demo \\d+'\n"
        "    examples: {matches: ['demo x'], misses: ['a demo 1']}\n"
    )
    assert "0 failure rules, 1 filters" in diagnose("rules", "list", "r.yaml").stdout
    assert "1 filters, 2 examples: no objections" in diagnose("rules", "check", "r.yaml").stdout
    bad = diagnose("rules", "check", "bad.yaml")
    assert bad.returncode == 1
    assert "misses-own-example" in bad.stdout
    assert "^ the pattern matched up to here, then wanted '\\\\d+'" in bad.stdout
    (tmp_path / "x.log").write_bytes(b"demo 1\ndemo 2\nother\n")
    assert json.loads(diagnose("rules", "test", "x.log", "r.yaml", "--json").stdout)["hits"] == {"demo": 2}
    explained = json.loads(diagnose("rules", "explain", "[rank3]: demo 7", "--rules", "r.yaml", "--json").stdout)
    assert (explained["verdict"], explained["body"], explained["rank"]) == ("dropped: debug", "demo 7", 3)


def test_version_names_the_engine(diagnose: Run) -> None:
    assert "engine: wheel" in diagnose("--version", DIAGNOSE_ENGINE="wheel").stdout
    assert diagnose("--version").stdout.startswith("diagnose 0.1.0 (engine: ")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m diagnose rules list | head -1",
        shell=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stderr == b""


def test_the_start_page_shows_what_is_printed(diagnose: Run, tmp_path: Path) -> None:
    """``UPDATE=1`` writes it there instead."""
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    printed = diagnose("replay", "fixtures/logs/job123").stdout.rstrip("\n")
    before, shown, after = re.split(r"```text\n|\n```(?=\n\nSo:)", (ROOT / "docs" / "start.md").read_text())
    if os.environ.get("UPDATE"):
        (ROOT / "docs" / "start.md").write_text(f"{before}```text\n{printed}\n```{after}")
    else:
        assert printed == shown


def test_an_empty_log_whose_end_is_known(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "void.log").write_bytes(b"")
    (tmp_path / "void.err").write_bytes(b"")
    done = diagnose("replay", "--exit-code", "137", "void.log", "void.err", "--json")
    assert [json.loads(line)["diagnosis"]["reason"] for line in done.stdout.splitlines()] == ["host_out_of_memory"]
    assert (done.returncode, done.stderr) == (1, "")
    each = diagnose("replay", "--failed", "--each", "void.log", "void.err")
    assert each.stdout.count("The job failed, and nothing in its log says why.") == 2
    assert diagnose("replay", "void.log").returncode == 2
