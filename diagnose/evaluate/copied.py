"""Copy a checkpoint into the memory of a node: ``python -m diagnose.evaluate.copied FROM TO``. Standard library only.

Trials then read it from there. It is whole or not there at all. ``python -m diagnose.evaluate.copied --remove TO`` removes it.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_SPARE = 1 << 30
"""bytes of memory that are left free"""


def place(results: Path, base: Path = Path("/dev/shm")) -> Path:  # noqa: S108  # it is the memory of the node
    """Where the copy of one evaluation is. The name is that of its folder, so whoever takes over finds it."""
    import hashlib

    name = hashlib.blake2b(str(results.absolute()).encode(), digest_size=8).hexdigest()
    return base / f"diagnose-evaluate-{os.getuid()}-{name}"


def copy(source: Path, target: Path) -> str | None:
    """What is wrong, if anything is."""
    whole = target / source.name
    if whole.exists():
        return None
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    if target.is_symlink() or target.stat().st_uid != os.getuid():
        return f"{target} belongs to somebody else"
    size = sum(one.stat().st_size for one in source.rglob("*") if one.is_file()) if source.is_dir() else source.stat().st_size
    free = shutil.disk_usage(target).free
    if size + _SPARE > free:
        return f"{source} has {size:,} bytes, and the memory of this node has {free:,} free"
    part = target / f".{source.name}.part"
    shutil.rmtree(part, ignore_errors=True)
    if source.is_dir():
        shutil.copytree(source, part)
    else:
        shutil.copyfile(source, part)
    os.rename(part, whole)
    return None


def main() -> int:
    if sys.argv[1] == "--remove":
        shutil.rmtree(sys.argv[2], ignore_errors=True)
        return 0
    try:
        problem = copy(Path(sys.argv[1]), Path(sys.argv[2]))
    except OSError as error:
        problem = str(error)
    if problem is not None:
        sys.stderr.write(f"diagnose: {problem}; trials read the checkpoint from storage\n")
    return 0 if problem is None else 1


if __name__ == "__main__":
    sys.exit(main())
