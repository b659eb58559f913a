from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import Run
from tests.diagnose.checkpoints.samples import flip, sealed, trainer


def test_list_shows_all_and_reads_none(diagnose: Run, tmp_path: Path) -> None:
    sealed(tmp_path, 100)
    trainer(tmp_path, 200)
    done = diagnose("checkpoints", "list", ".")

    rows = [line.split("  ") for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [row[0].strip() for row in rows] == ["step", "200", "100"]
    assert "Hugging Face Trainer" in done.stdout
    assert "PyTorch DCP with manifest" in done.stdout


def test_verify_fails_if_one_is_damaged(diagnose: Run, tmp_path: Path) -> None:
    sealed(tmp_path, 100)
    assert diagnose("checkpoints", "verify", ".").returncode == 0
    flip(sealed(tmp_path, 200) / "__0_0.distcp", 500)
    done = diagnose("checkpoints", "verify", ".", "--json")

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert [(one["step"], one["state"]) for one in found] == [(200, "damaged"), (100, "whole")]
    assert found[0]["reasons"][0]["file"] == "__0_0.distcp"


def test_why_ends_at_the_first_that_can_be_used(diagnose: Run, tmp_path: Path) -> None:
    sealed(tmp_path, 100)
    sealed(tmp_path, 200)
    flip(sealed(tmp_path, 300) / "__1_0.distcp", 500)
    done = diagnose("checkpoints", "why", ".")

    assert done.returncode == 0
    assert "__1_0.distcp: bytes 0 to " in done.stdout
    assert done.stdout.endswith("Start from the checkpoint of step 200: 1 newer is not usable.\n")


def test_why_says_that_there_is_none(diagnose: Run, tmp_path: Path) -> None:
    flip(sealed(tmp_path, 300) / "__1_0.distcp", 500)
    done = diagnose("checkpoints", "why", ".")
    assert done.returncode == 1
    assert done.stdout.endswith("There is none to start from.\n")


def test_a_folder_without_checkpoints_is_an_error_with_a_remedy(diagnose: Run, tmp_path: Path) -> None:
    done = diagnose("checkpoints", "list", ".")
    assert (done.returncode, done.stderr) == (
        2,
        "diagnose: .: there is no checkpoint that diagnose knows; give the folder that the training saves to\n",
    )
    done = diagnose("checkpoints", "verify", "gone")
    assert (done.returncode, done.stderr) == (2, "diagnose: gone: there is no such file or folder; check the path\n")


def test_torch_is_not_imported(tmp_path: Path) -> None:
    trainer(tmp_path, 200)
    program = (
        "import sys; from diagnose.cli import main; import diagnose.client; "
        f"main(['checkpoints', 'verify', {str(tmp_path)!r}]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_without_torch_it_is_said_what_to_install() -> None:
    program = (
        "import sys; sys.modules['torch'] = None; import diagnose.checkpoints as c\n"
        "import importlib.util; importlib.util.find_spec = lambda name: None\n"
        "try: c.Checkpoints\nexcept Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True)
    assert done.stdout == (
        "diagnose.checkpoints.Checkpoints needs torch; install it: pip install 'diagnose-train[checkpoints]'\n"
    )
