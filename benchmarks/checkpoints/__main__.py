"""What checkpoints cost, and whether every damage is found. docs/checkpoints.md has the figures.

python -m benchmarks.checkpoints hashes             the hashes that Python has
python -m benchmarks.checkpoints reading            verify beside plain reads
"""

from __future__ import annotations

import argparse

from benchmarks.checkpoints import hashes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("hashes", "reading"))
    parser.add_argument("--mb", type=int, default=1000, help="size of the state (default: 1000)")
    parser.add_argument("--folder", help="where to write (default: the folder for temporary files)")
    arguments = parser.parse_args()
    if arguments.part == "hashes":
        hashes.hashes()
    elif arguments.part == "reading":
        hashes.reading(arguments.mb, arguments.folder)


if __name__ == "__main__":
    main()
