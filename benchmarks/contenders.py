"""The programs that are compared on a log, as command lines."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.children import ours
from benchmarks.measure import ROOT, Failed, Reading, run
from benchmarks.mixed.templates import all_templates

CACHE = Path(__file__).resolve().parent / ".cache"
RAW = CACHE / "raw"
NVRX = "nvidia_resiliency_ext.attribution.restart_agent.cli"


@dataclass(frozen=True, slots=True)
class Contender:
    """A program on a log. ``slice_mb`` is set for those that are too slow for the whole log."""

    name: str
    command: Callable[[Path], Sequence[str]]
    slice_mb: float | None = None
    good: tuple[int, ...] = (0,)
    startup: bool = False
    """it does not time itself: the time that it takes for an empty log is subtracted"""
    note: str = ""

    def read(self, log: Path) -> Reading:
        reading = run(self.command(log), good=self.good)
        if not self.startup:
            return reading
        empty = CACHE / "empty.log"
        empty.write_bytes(b"")
        idle = run(self.command(empty), good=(*self.good, 1, 2))
        left = max(reading.cpu_s - idle.cpu_s, 1e-6), max(reading.wall_s - idle.wall_s, 1e-6)
        return Reading(*left, reading.peak_mb, reading.text, reading.told)


def build_raw() -> None:
    """Compile raw.c if it is newer than the program."""
    source = Path(__file__).with_name("raw.c")
    if RAW.is_file() and RAW.stat().st_mtime > source.stat().st_mtime:
        return
    command = ["cc", "-O3", "-march=native", str(source), "-o", str(RAW), "-lhs"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Failed(f"raw needs a C compiler: {error}") from None
    forget_databases("*")
    if done.returncode:
        raise Failed(f"raw does not compile (apt-get install libhyperscan-dev): {done.stderr.strip().splitlines()[0]}")


def forget_databases(patterns: str) -> None:
    """Delete what raw compiled, because it is out of date."""
    for path in CACHE.glob(f"{patterns}.*.db"):
        path.unlink()


def raw(
    name: str, patterns: Sequence[ours.Pattern], label: str, mode: str = "line", log: Path | None = None, passes: int = 1
) -> Contender:
    """Hyperscan from C with ``patterns``. If ``log`` is given it reads that one, in so many cold passes."""
    path = CACHE / f"{label}.patterns"
    text = "".join(f"{number}\t{'p' if each.confirm else '-'}\t{each.text}\n" for number, each in enumerate(patterns))
    if not path.is_file() or path.read_text() != text:
        forget_databases(path.name)
        path.write_text(text)
    return Contender(name, lambda other: (str(RAW), str(path), str(log or other), mode, str(passes)))


def prefixed() -> list[ours.Pattern]:
    """The full rules with prefixes and stamps written into them, for programs that do not take them off."""
    return [ours.Pattern(each.prefixed, len(each.about) == 1, False) for each in all_templates()]


def ripgrep(patterns: Sequence[ours.Pattern], label: str) -> Contender:
    """``rg`` counting the lines that no filter matches. With ``-a``, or it would stop at the first NUL."""
    program = shutil.which("rg")
    if program is None:
        raise Failed("rg is not installed (apt-get install ripgrep)")
    path = CACHE / f"{label}.rg"
    # Two rules may use one name for a group, and rg reads all patterns as one.
    wanted = [re.sub(r"\(\?P<\w+>", "(?:", each.text) for each in patterns if each.filter]
    empty = CACHE / "empty.log"
    empty.write_bytes(b"")
    base = (program, "--no-config", "--no-unicode", "-a", "-v", "-c", "-f", str(path))
    path.write_text("".join(f"{text}\n" for text in wanted))
    refused = 0
    if subprocess.run([*base, str(empty)], capture_output=True, check=False).returncode == 2:
        kept = []
        for text in wanted:
            path.write_text(f"{text}\n")
            if subprocess.run([*base, str(empty)], capture_output=True, check=False).returncode != 2:
                kept.append(text)
        refused = len(wanted) - len(kept)
        path.write_text("".join(f"{text}\n" for text in kept))
    note = f"{refused} of {len(wanted)} filters left out: rg cannot read them" if refused else ""
    command = "rg --no-unicode -v -c -f"
    return Contender(command, lambda log: (*base, str(log)), good=(0, 1), startup=True, note=note)


def drain(setting: str, slice_mb: float) -> Contender:
    """Drain3 with its own settings, or with three masks and at most 5,000 clusters."""
    if not importable("drain3"):
        raise Failed("drain3 is not installed (pip install -r benchmarks/requirements.txt)")
    name = f"Drain3, {setting}"
    program = (sys.executable, "-m", "benchmarks.children.drain")
    return Contender(name, lambda log: (*program, str(log), setting), slice_mb=slice_mb)


def nvrx(slice_mb: float) -> Contender:
    """The rule stage of NVIDIA's resiliency extension: its restart agent without a model."""
    if not importable(NVRX):
        raise Failed("NVIDIA's resiliency extension (with attribution.restart_agent) is not installed")
    base = (sys.executable, "-m", NVRX, "--disable-l1")
    return Contender("NVRx restart agent, rules", lambda log: (*base, str(log)), slice_mb=slice_mb, startup=True)


def importable(module: str) -> bool:
    """Whether this Python has ``module``. A child process tries it."""
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, cwd=ROOT, check=False)
    return done.returncode == 0


def product(engine: str, rules: Path | None, log: Path | None = None, passes: int = 1, folds: bool = True) -> Contender:
    """diagnose with one of its engines. If ``log`` is given it reads that one, in so many cold passes."""
    tail = (str(rules),) if rules else ()
    base = (sys.executable, "-m", "benchmarks.children.ours", engine + ("" if folds else ours.NO_FOLDS), str(passes))
    name = f"diagnose, {engine}" + (", the log alone" if log else "") + ("" if folds else ", without folds")
    return Contender(name, lambda other: (*base, str(log or other), *tail))
