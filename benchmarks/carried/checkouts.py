"""Other commits to measure against: a checkout of its own for each, with its native core and its rules compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.measure import ROOT, Failed

_FOLDER = ROOT / "benchmarks" / ".cache" / "checkouts"


def checkout(commit: str) -> Path:
    """A folder with the files of ``commit``, ready to run. It is made once."""
    name = _git("rev-parse", "--short=12", f"{commit}^{{commit}}")
    folder = _FOLDER / name
    ready = folder / ".ready"
    if not ready.exists():
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "archive", name], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
        environment = {**os.environ, "DIAGNOSE_READY": str(ROOT / "diagnose" / "_ready")}
        words = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        built = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
        if built.returncode:
            raise Failed(f"{commit} cannot be built: {built.stderr.strip()[-500:]}")
        ready.touch()
    return folder


def unknown(tree: Path, environment: Iterable[str]) -> list[str]:
    """Settings that the service of ``tree`` does not have yet: it would not start with them."""
    known = (tree / "service" / "settings.py").read_text()
    named = ((name, name.removeprefix("DIAGNOSE_SERVE_").lower()) for name in environment if name.startswith("DIAGNOSE_SERVE_"))
    return [name for name, setting in named if f"    {setting}: " not in known]


def _git(*words: str) -> str:
    told = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    if told.returncode:
        raise Failed(told.stderr.strip())
    return told.stdout.strip()
