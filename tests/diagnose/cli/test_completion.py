"""The shells themselves complete what a person types; ``man`` itself reads the manual page."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Run

ASKED = [
    ("diagnose repl", {"replay"}),
    ("diagnose replay --fo", {"--format", "--follow"}),
    ("diagnose replay --format ma", {"markdown"}),
    ("diagnose rules ch", {"check"}),
    ("diagnose replay slurm", {"slurm-1.out"}),
]


def script(diagnose: Run, folder: Path, shell: str) -> Path:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (folder / "slurm-1.out").touch()
    path = folder / f"completion.{shell}"
    path.write_text(diagnose("completion", shell).stdout)
    return path


def ask(folder: Path, *command: str) -> list[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(("line", "expected"), ASKED)
def test_bash(diagnose: Run, tmp_path: Path, line: str, expected: set[str]) -> None:
    path = script(diagnose, tmp_path, "bash")
    words = line.split()
    call = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shtab_diagnose; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    assert set(ask(tmp_path, "bash", "--norc", "-c", f"source {path}; {call}")) == expected


@pytest.mark.parametrize(("line", "expected"), ASKED)
def test_fish(diagnose: Run, tmp_path: Path, line: str, expected: set[str]) -> None:
    path = script(diagnose, tmp_path, "fish")
    answers = ask(tmp_path, "fish", "--no-config", "-c", f"source {path}; complete -C '{line}'")
    assert {answer.partition("\t")[0] for answer in answers} == expected


def test_zsh(diagnose: Run, tmp_path: Path) -> None:
    path = script(diagnose, tmp_path, "zsh")
    path.rename(tmp_path / "_diagnose")
    loaded = f"fpath=({tmp_path} $fpath); autoload -U compinit; compinit -u -D; print $_comps[diagnose]"
    assert ask(tmp_path, "zsh", "-f", "-c", loaded) == ["_diagnose"]
    ask(tmp_path, "zsh", "-f", "-n", "_diagnose")


def test_a_shell_that_is_not_known(diagnose: Run) -> None:
    done = diagnose("completion", "fsh")
    assert (done.returncode, "did you mean fish?" in done.stderr) == (2, True)


def test_man_reads_the_manual_page(diagnose: Run, tmp_path: Path) -> None:
    pytest.importorskip("argparse_manpage")
    done = diagnose("man")
    assert done.returncode == 0
    if shutil.which("man") is None:
        pytest.skip("man is not installed")
    (tmp_path / "diagnose.1").write_text(done.stdout)
    page = "\n".join(ask(tmp_path, "man", "--warnings", "-l", "diagnose.1"))
    assert "diagnose replay" in page
    assert "processor cores to use at most" in page
    assert "diagnose rules check" in page
    assert "'none' takes a bound away" in page, "the line of the page begins with a quotation mark"
