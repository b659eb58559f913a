"""The native core, built so that each access to memory and each calculation is checked (AddressSanitizer and UBSan).

    python -m tests.support.sanitized --seconds 3600 --seed 1

gives it lines, blocks, columns and states of folds that were right and were damaged at random (``core_fuzzing``). The process
ends with the sanitizer's report where something is wrong. Tests run on this core with ``pytest -p tests.support.sanitized`` in
the environment that ``environment`` gives.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SOURCE = ROOT / "diagnose" / "matching" / "_core.c"
_NAME = "diagnose.matching._core"
_CHECKS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g", "-O1")
_PLACE = "DIAGNOSE_SANITIZED_CORE"


def missing() -> str | None:
    """Why it cannot be built here."""
    if shutil.which("gcc") is None:
        return "gcc is not installed"
    absent = [name for name in ("libasan.so", "libubsan.so") if not Path(_library(name)).is_absolute()]
    return f"{absent[0]} is not installed: apt install libgcc-12-dev" if absent else None


def _library(name: str) -> str:
    return subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()


def build(folder: Path) -> Path:
    made = folder / "_core.abi3.so"
    include = f"-I{sysconfig.get_path('include')}"
    words = ["gcc", *_CHECKS, "-DPy_LIMITED_API=0x030B0000", "-shared", "-fPIC", include, str(_SOURCE), "-ldl", "-o", str(made)]
    subprocess.run(words, check=True)
    return made


def environment(core: Path) -> dict[str, str]:
    """Python itself is not checked. That it takes memory piece by piece (``PYTHONMALLOC``) lets its objects be checked too."""
    return {
        **os.environ,
        "LD_PRELOAD": f"{_library('libasan.so')} {_library('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(ROOT),
        _PLACE: str(core),
    }


def load() -> None:
    """Put it in the place of the core that was installed, before anything imports that."""
    if _NAME in sys.modules:
        raise RuntimeError("another core was loaded before")
    spec = importlib.util.spec_from_file_location(_NAME, os.environ[_PLACE])
    assert spec is not None
    assert spec.loader is not None
    sys.modules[_NAME] = made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)


def run(*words: str, core: Path, timeout: float, **more: str) -> subprocess.CompletedProcess[str]:
    """``python words`` on this core, with ``more`` in the environment."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment(core) | more,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=float, default=60)
    words.add_argument("--seed", type=int, default=1)
    asked = words.parse_args()
    if absent := missing():
        print(absent, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        fuzz = [sys.executable, "-m", "tests.support.core_fuzzing", str(asked.seconds), str(asked.seed)]
        return subprocess.run(fuzz, cwd=ROOT, env=environment(build(Path(folder)))).returncode


if __name__ == "__main__":
    sys.exit(main())
if _PLACE in os.environ:
    load()
