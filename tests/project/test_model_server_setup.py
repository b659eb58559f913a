"""The steps of model_server/run.py: done once, taken up where they stopped, made anew when what they are made of changes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from model_server import run
from tests.conftest import ROOT

STEPS = ["environment", "packages", "engine", "model"]


class Recorded(run.Server):
    """A server whose steps only say that they ran; ``fails`` fails."""

    fails: str | None = None

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ran: list[str] = []

    def __getattribute__(self, name: str) -> object:
        if name.removeprefix("_") in STEPS:
            return lambda: self.step(name.removeprefix("_"))
        return super().__getattribute__(name)

    def step(self, name: str) -> None:
        if name == self.fails:
            raise run.Trouble(name)
        self.ran.append(name)


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files that say what is installed."""
    folder = tmp_path / "pins"
    shutil.copytree(run.HERE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(run, "HERE", folder)
    monkeypatch.setattr(run, "DISK_GB", 0.001)
    return folder


def test_a_set_up_that_stopped_goes_on_where_it_was(tmp_path: Path, pins: Path) -> None:
    server = Recorded(tmp_path / "server")
    server.fails = "engine"
    with pytest.raises(run.Trouble):
        server.set_up()
    assert (server.ran, server.ready) == (STEPS[:2], False)
    again = Recorded(tmp_path / "server")
    again.set_up()
    assert (again.ran, again.ready) == (STEPS[2:], True)
    again.set_up()
    assert again.ran == STEPS[2:], "nothing is done twice"


@pytest.mark.parametrize(
    ("file", "again"), [("requirements.txt", STEPS[1:]), ("engine.txt", STEPS[2:]), ("weights.txt", STEPS[3:])]
)
def test_what_depends_on_a_changed_file_is_made_anew(tmp_path: Path, pins: Path, file: str, again: list[str]) -> None:
    Recorded(tmp_path / "server").set_up()
    (pins / file).write_text((pins / file).read_text() + "\n# changed\n")
    server = Recorded(tmp_path / "server")
    assert not server.ready
    server.set_up()
    assert server.ran == again


def test_a_full_disk_is_said_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "DISK_GB", 1e9)
    assert run.main(["--folder", str(tmp_path), "--set-up"]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path} has " in said
    assert "or name another --folder" in said


def test_what_a_command_said_is_in_the_error() -> None:
    with pytest.raises(run.Trouble, match=r"(?s)no luck: .* ended with 3:.*who knows"):
        run._run([sys.executable, "-c", "import sys; sys.stderr.write('who knows'); sys.exit(3)"], "no luck")


def test_asking_whether_it_is_set_up_makes_nothing(tmp_path: Path) -> None:
    script = ROOT / "model_server" / "run.py"
    assert subprocess.run([script, "--folder", tmp_path, "--ready"], timeout=30).returncode == 1
    assert not list(tmp_path.iterdir())


def test_every_requirement_is_pinned() -> None:
    lines = [line for line in (run.HERE / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert len(lines) > 100
    assert [line for line in lines if "==" not in line or "@" in line] == []
    for file in ("engine.txt", "weights.txt"):
        assert "--hash=sha256:" in (run.HERE / file).read_text()
