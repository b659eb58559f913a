"""The shipped rules -> files that a first run would otherwise have to work out, in a folder of the package.

To compile the rules takes half a minute. So it is done when the package is built, and when a checkout is set up (setup.py calls
this module). The files are those that ``cache`` would store: parsed rules, the analysis of each pattern, compiled databases. A
file is found by the hash of what it was made from (for a database also of the build of Hyperscan). So a file that does not fit
is never found, and is made again on the machine that needs it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zstandard

from diagnose import cache
from diagnose.decision.policy_file import shipped_policy
from diagnose.knowledge.metrics import shipped_metrics
from diagnose.knowledge.rules import load
from diagnose.matching.databases import books, libhs
from diagnose.matching.matcher import EARLY, EngineName, Matcher
from diagnose.redaction.gate import Gate

_LEVEL = 12
_UNUSED = 0.0


def make(folder: Path, *made: Path) -> int:
    """Fill ``folder`` with what is needed and nothing else. Returns its bytes.

    What is already in it, or in the older folders ``made``, is not made again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        _unpack([*made, folder], work)
        before = os.environ.get("DIAGNOSE_CACHE")
        os.environ["DIAGNOSE_CACHE"] = name
        try:
            _first_run()
        finally:
            os.environ.pop("DIAGNOSE_CACHE")
            if before is not None:
                os.environ["DIAGNOSE_CACHE"] = before
        _pack(work, folder)
    return sum(path.stat().st_size for path in folder.iterdir())


def _first_run() -> None:
    """Look up everything that runs with the shipped rules look up. Each build of Hyperscan compiles in its own thread.

    All engines except the first share the databases of the ``hyperscan`` package. So it is enough to make "plain".
    """
    shipped_policy()
    shipped_metrics()
    Gate()
    rules = load()
    engines: list[EngineName] = ["core", "plain"] if libhs() else ["plain"]
    books(enumerate(rules))  # analyses all patterns, once for all threads
    with ThreadPoolExecutor(len(engines)) as pool:
        list(pool.map(lambda engine: Matcher(rules, engine, reserved=EARLY), engines))


def _unpack(folders: list[Path], work: Path) -> None:
    """Unpack what is ready, as files of a new cache."""
    for path in (path for folder in folders if folder.is_dir() for path in folder.iterdir()):
        data = cache.unpacked(path.read_bytes())
        if cache.checked(data) is not None:
            target = work / path.name
            target.write_bytes(data)
            os.utime(target, (_UNUSED, _UNUSED))


def _pack(work: Path, folder: Path) -> None:
    used = {path.name: path for path in work.iterdir() if path.stat().st_mtime != _UNUSED}
    for path in folder.iterdir():
        if path.name not in used:
            path.unlink()
    for name, path in used.items():
        if not (folder / name).exists():
            packed = zstandard.ZstdCompressor(level=_LEVEL).compress(path.read_bytes())
            unfinished = folder / f".{name}"
            unfinished.write_bytes(packed)
            unfinished.replace(folder / name)


if __name__ == "__main__":
    sys.stdout.write(f"diagnose: the rules lie ready compiled, in {make(*map(Path, sys.argv[1:])):,} bytes\n")
