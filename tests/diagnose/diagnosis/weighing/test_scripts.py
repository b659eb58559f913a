"""What the scripts promise: a script goes on after a helper that failed."""

from __future__ import annotations

import pytest

from tests.support.logs import RAISED, report_of, said, steps

ENDED = RAISED.format(what="AssertionError: Given dir x/best.pdparams not exist.")


@pytest.mark.parametrize(
    ("behind", "outcome"),
    [
        ("".join(f"reading part {n} of the table {n * 7 % 13}\n" for n in range(120)), "healthy"),
        ("reading the table\n" * 5, "failed"),
        ("".join(f"reading part {n} of the table {n * 7 % 13}\n" for n in range(120)) + ENDED, "failed"),
    ],
    ids=["much", "little", "a failure"],
)
def test_a_helper_of_a_script_that_fails_is_overcome_by_what_follows(behind: str, outcome: str) -> None:
    report = report_of("mkdir: cannot create directory '/data/out': Permission denied\n" + behind)
    assert report.outcome == outcome
    if "Assertion" in behind:
        assert report.diagnosis.reason == "assertion_error"


def test_a_script_goes_on_behind_what_conda_could_not_activate() -> None:
    report = report_of(
        "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
        "  0%|          | 0/1 [00:00<?, ?it/s]/var/spool/job: line 2: 4711 Bus error    (core dumped) python train.py\n"
    )
    assert report.diagnosis.reason == "native_crash"


def test_a_shell_goes_on_after_a_line_that_it_cannot_do() -> None:
    shell, much = "my_zorch.sh: line 14: zork: command not found\n", "".join(f"zorch loads part {n}\n" for n in range(40))
    failed = RAISED.format(what="RuntimeError: no label of a node was found")
    assert said(shell + much + failed) == ("runtime_error", 44)
    assert said(shell) == ("file_not_found_error", 1)
    assert said(shell + failed) == ("file_not_found_error", 1)  # the program may need what is missing


def test_a_helper_of_a_script_does_not_end_it() -> None:
    missing = "rm: *.so: No such file or directory\nrm: *.d: No such file or directory\n"
    assert report_of(missing + "".join(f"the fit of part {n} is good\n" for n in range(30))).outcome == "healthy"
    assert report_of("building\n" * 5 + missing).outcome == "failed"


def test_a_module_that_cannot_be_loaded_ends_no_script() -> None:
    lmod = "Lmod has detected the following error: The following module(s) are unknown:\n" + '"cuda/12.1.1-ebglvvq"\n'
    assert report_of(lmod + steps(1, 30) + "DONE\n").outcome == "healthy"
    stopped = "slurmstepd: error: *** JOB 4711 ON gpu014 CANCELLED AT 2026-01-02T00:45:57 DUE TO TIME LIMIT ***\n"
    assert report_of(lmod + "starting\n" + stopped).diagnosis.reason == "preempted"
    assert report_of(lmod).outcome == "failed"


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("./run.sh: line 40:  4711 Terminated              nvidia-smi dmon > gpu.log", "healthy"),
        ("./run.sh: line 41:  4712 Killed                  tail -f out.log", "healthy"),
        ("./run.sh: line 41:  4712 Killed                  python train.py", "failed"),
    ],
)
def test_a_shell_tells_of_the_end_of_what_only_watched(line: str, outcome: str) -> None:
    assert report_of(steps(1, 30) + line + "\nrun finished\n").outcome == outcome


@pytest.mark.parametrize(
    "command",
    [
        "ssh gpu01 python train.py",
        "perf stat python train.py",
        "top-k.py --x",
        "tee-train.sh",
        "free-energy.py",
        "/opt/top/bin/top_train",
    ],
)
def test_a_killed_program_with_the_name_of_a_helper_in_it_is_none(command: str) -> None:
    killed = f"run.sh: line 12: 4711 Killed                  {command}\n"
    assert (
        report_of(f"starting zorch\nloading the data\n{killed}copying results\ncleaning the scratch folder\n").outcome
        == "failed"
    )
