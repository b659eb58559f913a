"""What people install: the built wheel, in an empty environment, with and without a C compiler; and the sdist."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from diagnose.matching.databases import libhs
from tests.conftest import ROOT

pytestmark = pytest.mark.server  # they build and install, with tools and packages from the network

READY = {"DIAGNOSE_READY": str(ROOT / "diagnose" / "_ready")}
"""What this checkout has compiled ready is not compiled again."""


def run(*words: str | Path, cwd: Path, status: int = 0, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}, timeout=600
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the sdist, which lies beside it. Of processes side by side one makes it for all."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "dist"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("*.whl")):
            run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder, **READY)
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_holds_the_rules_and_the_native_core(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {str(path.relative_to(ROOT)) for path in (ROOT / "rules").rglob("*.yaml")}
    assert shipped <= {name.removeprefix("diagnose/_shipped/") for name in names if name.startswith("diagnose/_shipped/")}
    assert "diagnose/matching/_core.abi3.so" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]
    ready = [name for name in names if name.startswith("diagnose/_ready/")]
    assert len([name for name in ready if "/database-" in name]) == (3 if libhs() else 1)


def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", "empty", cwd=tmp_path)
    python = tmp_path / "empty" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile", wheel, cwd=tmp_path)
    command = tmp_path / "empty" / "bin" / "diagnose"
    (tmp_path / "x.log").write_text("step 1 of my program\nKeyError: 'x'\n")
    cache = tmp_path / "cache"
    report = json.loads(
        run(command, "replay", "x.log", "--json", cwd=tmp_path, status=1, PYTHONPATH="", DIAGNOSE_CACHE=str(cache))
    )
    assert not cache.exists(), "all that a first run needs came with the package"
    assert report["diagnosis"]["evidence"][0]["rule"] == "rules/failures/python.yaml:py-key"
    assert "py-key" in run(command, "rules", "list", cwd=tmp_path, PYTHONPATH="")
    _serves(command, tmp_path)


def _serves(command: Path, folder: Path) -> None:
    """The service runs from the wheel: with its migrations, and a job from first byte to report."""
    import urllib.request

    serving = subprocess.Popen(
        [str(command), "serve", "--data", str(folder / "service"), "--port", "0"],
        cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        url = serving.stdout.readline().split()[-1]
        kind = {"Content-Type": "text/plain"}
        asked = urllib.request.Request(f"{url}/v1/jobs/j/logs", b"KeyError: 'x'\n", kind)
        assert json.load(urllib.request.urlopen(asked))["next_offset"] == 14
        report = json.load(urllib.request.urlopen(f"{url}/v1/jobs/j/report"))
        assert report["diagnosis"]["reason"] == "key_error"
    finally:
        serving.terminate()
        assert serving.wait(30) == 0


def test_without_a_compiler_the_package_still_builds(wheel: Path, tmp_path: Path) -> None:
    (sdist,) = wheel.parent.glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, source, cwd=tmp_path, CC="/bin/false", **READY)
    (found,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(found).namelist()
    assert "diagnose/matching/engines.py" in names
    assert not [name for name in names if name.endswith(".so")]
