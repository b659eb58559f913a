"""Runs and times Drain3: ``python -m benchmarks.children.drain LOG defaults|masked``. Prints one JSON object."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time

MASKS = (
    (r"(?<=[^A-Za-z0-9])(0x[a-f0-9]+)(?=[^A-Za-z0-9]|$)", "HEX"),
    (r"(?<=[^A-Za-z0-9])(\d{1,3}(?:\.\d{1,3}){3})(?=[^A-Za-z0-9]|$)", "IP"),
    (r"(?<=[^A-Za-z0-9])([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?=[^A-Za-z0-9]|$)", "NUM"),
)


def main(arguments: list[str]) -> int:
    from drain3 import TemplateMiner
    from drain3.masking import MaskingInstruction
    from drain3.template_miner_config import TemplateMinerConfig

    path, setting = arguments
    config = TemplateMinerConfig()
    if setting == "masked":
        config.masking_instructions = [MaskingInstruction(*mask) for mask in MASKS]
        config.drain_max_clusters = 5000
    with open(path, "rb") as file:
        data = file.read()
    miner = TemplateMiner(config=config)
    begin, clock = time.process_time(), time.monotonic()
    lines = data.decode("utf-8", "replace").split("\n")
    for line in lines:
        miner.add_log_message(line)
    row = {
        "version": importlib.metadata.version("drain3"),
        "bytes": len(data),
        "lines": len(lines),
        "cpu_s": time.process_time() - begin,
        "wall_s": time.monotonic() - clock,
    }
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
