"""The fuzzing of ``fuzzing``, led by what each body reaches in the code (atheris): whatever reaches more is changed further.

    pip install -e '.[fuzzing]'
    python -m tests.support.guided --seconds 120 --found FOLDER
    python -m tests.support.guided "loki labels" --seconds 600 --found FOLDER

The first form gives each parser so long, one after the other (or ``--at-once``), and prints a line for each. The time counts
from the first changed body on: to load and to compile takes as long as the machine lets it. Bodies that reached something new
are kept in FOLDER, and are begun with the next time. Where a parser raises anything but its refusal, or stands for 30 seconds,
the exception and the body are there, too. So is the body that took longest, if that was more than a second of the processor.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import warnings
from pathlib import Path

import atheris

with warnings.catch_warnings(), atheris.instrument_imports(include=["diagnose", "service"]):
    warnings.simplefilter("ignore")
    from tests.support import fuzzing


class Guided:
    """One parser, and its bodies in a folder."""

    def __init__(self, name: str, found: Path) -> None:
        self.name, self.found = name, found
        self.short = name.replace(" ", "-")
        self.parse, self.corpus = fuzzing.PARSERS[name]
        self.folder = found / self.short
        self.folder.mkdir(parents=True, exist_ok=True)
        self.slowest_s = fuzzing.SLOW_S

    def one(self, body: bytes) -> None:
        began = time.process_time()
        try:
            self.parse(body)
        except fuzzing.REFUSALS:
            pass
        took_s = time.process_time() - began
        if took_s > self.slowest_s:
            self.slowest_s = took_s
            (self.found / f"slow-{self.short}").write_bytes(body)
            print(f"slow: {took_s:.1f} s of the processor", flush=True)

    def run(self, seconds: int, seed: int) -> None:
        """Ends this process."""
        for number, body in enumerate(self.corpus):
            (self.folder / f"begin-{number}").write_bytes(body)
            self.parse(body)  # the first body of all makes what is made once: no body should be blamed for that
        limits = f"-max_total_time={seconds}", f"-seed={seed}", "-max_len=65536", "-timeout=30", "-rss_limit_mb=4096"
        atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={self.found}/{self.short}-", str(self.folder)], self.one)
        atheris.Fuzz()


def everything(found: Path, seconds: int, seed: int, at_once: int) -> int:
    """Each parser in a process of its own."""
    waiting, running, faults = list(fuzzing.PARSERS), {}, 0
    while waiting or running:
        while waiting and len(running) < at_once:
            guided = Guided(waiting.pop(0), found)
            if not (child := os.fork()):
                _apart(guided, seconds, seed)
            running[child] = guided
        child, status = os.wait()
        guided = running.pop(child)
        said = (found / f"{guided.short}.txt").read_text(errors="replace")
        done = re.search(r"^Done (\d+) runs in (\d+) second", said, re.MULTILINE)
        right = not status and done is not None
        rounds = f"{int(done[1]):>10,} bodies in {done[2]:>4} s" if done else ""
        slow = "".join(f", {line}" for line in re.findall(r"^slow: .*", said, re.MULTILINE)[-1:])
        print(
            f"{guided.name:<16} {rounds}, {'nothing found' if right else f'FAULT, see {found}/{guided.short}.txt'}{slow}",
            flush=True,
        )
        faults += not right
    return 1 if faults else 0


def _apart(guided: Guided, seconds: int, seed: int) -> None:
    said = os.open(guided.found / f"{guided.short}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(said, stream)
    try:
        guided.run(seconds, seed)
    finally:
        os._exit(1)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("parser", choices=fuzzing.PARSERS, nargs="?", help="one alone, whose progress is printed")
    words.add_argument("--seconds", type=int, default=60, help="for each parser")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--at-once", type=int, default=1)
    words.add_argument("--found", type=Path, required=True)
    asked = words.parse_args()
    if asked.parser is None:
        return everything(asked.found, asked.seconds, asked.seed, asked.at_once)
    Guided(asked.parser, asked.found).run(asked.seconds, asked.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
