"""Makes the mixed training log: ``python -m benchmarks.mixed.log --mb 200 --out FILE``; ``--shapes FILE`` measures one.

It is deterministic, and a longer log begins with the shorter one. It is meant to be hard on caches: random words, paths, hex
ids, full floats, bars with random fills and several segments per line. About 2.5 % of the lines match no rule, about 0.6 % a
failure rule.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.mixed.templates import Filler, filters, unknown_texts
from benchmarks.mixed.templates import failures as failure_templates

UNKNOWN = 0.022
FAILURE = 0.004
"""shares of episodes; failures come in bursts over ranks, and a traceback has several lines"""

LONG = 64 * 1024
_RUN = re.compile(rb"[0-9]+")
_COLOURS = (b"\x1b[32m", b"\x1b[1;31m", b"\x1b[34m\x1b[1m", b"\x1b[0;33m")
_BAD = (b"\xff\xfe", b"caf\xe9", b"\xc3", b"\x80\x81\x82")


class Log:
    """An endless log. ``blocks`` gives it in pieces of whole lines."""

    def __init__(self, seed: int = 1) -> None:
        self.fill = Filler(seed)
        self.wheel: list[tuple[Callable[[], str], int, bool]] = []
        for each in filters():
            entry = (self.fill.line(each.nodes), each.burst, each.about[0] == "progress")
            # A burst has many lines, and its weight is a share of lines, not of episodes.
            self.wheel += [entry] * max(1, each.weight * 8 // each.burst) if each.weight else []
        self.unknown = [self.fill.line(nodes) for weight, nodes in unknown_texts() for _ in range(weight)]
        self.failures = [
            (self.fill.line(each.nodes), each.burst, each.id) for each in failure_templates() for _ in range(each.weight)
        ]
        python = {each.id: self.fill.line(each.nodes) for each in failure_templates() if each.section == "python"}
        self.raised = [python[name] for name in ("torch-oom", "runtime-cuda", "key-error", "type-error", "value-error")]
        self.frame = python["python-frame"]
        self.prefixes: tuple[Callable[[], str] | None, ...] = (None,) * 7 + (
            *((lambda: f"[rank{self.fill.below(64)}]: ",) * 5),
            *((lambda: f"{self.fill.below(256):3d}: ",) * 4),
            *((lambda: f"[default{self.fill.below(8)}]:",) * 4),
        )

    def blocks(self, size: int) -> Iterator[bytes]:
        """``size`` bytes, cut after the last whole line."""
        left = size
        while left > 0:
            block = self._block()
            if len(block) > left:
                block = block[: block.rfind(b"\n", 0, left) + 1]
                left = 0
            left -= len(block)
            yield block

    def _block(self, lines: int = 20_000) -> bytes:
        """Some ``lines``, then a little dirt."""
        fill = self.fill
        out: list[str] = []
        while len(out) < lines:
            chance = fill.random()
            prefix = self.prefixes[fill.below(len(self.prefixes))]
            if chance < FAILURE:
                episode = self._failure()
            elif chance < FAILURE + UNKNOWN:
                episode = [self.unknown[fill.below(len(self.unknown))]() for _ in range(1 + fill.bits(1))]
            else:
                make, burst, bar = self.wheel[fill.below(len(self.wheel))]
                if bar:
                    episode = ["\r".join([make() for _ in range(1 + fill.below(5))])]
                elif burst == 1:
                    episode = [make()]
                else:
                    episode = [make() for _ in range(1 + fill.below(2 * burst))]
            out += [prefix() + line for line in episode] if prefix else episode
        return self._dirty([line.encode() for line in out])

    def _failure(self) -> list[str]:
        make, burst, name = self.failures[self.fill.below(len(self.failures))]
        lines = [make() for _ in range(1 + self.fill.below(2 * burst - 1))]
        if name == "python-traceback":
            for _ in range(2 + self.fill.bits(1)):
                lines += [
                    self.frame(),
                    f"    {self.fill.fills['word']()} = {self.fill.fills['word']()}(self)",
                ]
            lines.append(self.raised[self.fill.below(len(self.raised))]())
        return lines

    def _dirty(self, lines: list[bytes]) -> bytes:
        """Add colours to one line in a hundred, a few holes of NULs, broken UTF-8, CRLF; rarely a very long line."""
        fill = self.fill
        for at in range(0, len(lines), 100):
            index = min(at + fill.below(100), len(lines) - 1)
            lines[index] = _COLOURS[fill.bits(2)] + lines[index] + b"\x1b[0m"
        for index in (fill.below(len(lines)) for _ in range(12)):
            lines[index] += b" " + _BAD[fill.bits(2)]
        for index in (fill.below(len(lines)) for _ in range(12)):
            lines[index] += b"\r"
        for index in (fill.below(len(lines)) for _ in range(3)):
            lines[index] = bytes(64 << fill.bits(2)) + lines[index]
        if fill.random() < 0.25:
            lines[fill.below(len(lines))] = b"input_ids: [" + self._long() + b"]"
        return b"\n".join(lines) + b"\n"

    def _long(self) -> bytes:
        return b", ".join([b"%d" % self.fill.below(50_000) for _ in range(30_000)])


def make(path: Path, megabytes: float, seed: int) -> None:
    """The log as a file, which appears only when it is whole."""
    draft = path.with_suffix(".part")
    with draft.open("wb") as file:
        for block in Log(seed).blocks(int(megabytes * 1e6)):
            file.write(block)
    draft.replace(path)


def shapes(path: Path) -> dict[str, float]:
    """How varied a log is: the share of distinct lines, and of bytes in them, after each run of digits is masked."""
    lines = long = long_bytes = distinct_bytes = distinct_long_bytes = total = 0
    seen: set[int] = set()
    seen_long: set[int] = set()
    with path.open("rb") as file:
        for line in file:
            lines += 1
            total += len(line)
            key = hash(_RUN.sub(b"0", line))
            if len(line) >= LONG:
                long += 1
                long_bytes += len(line)
                if key not in seen_long:
                    seen_long.add(key)
                    distinct_long_bytes += len(line)
            elif key not in seen:
                seen.add(key)
                distinct_bytes += len(line)
    return {
        "bytes": total,
        "lines": lines,
        "long_lines": long,
        "distinct_of_lines": (len(seen) + len(seen_long)) / max(lines, 1),
        "distinct_of_bytes": (distinct_bytes + distinct_long_bytes) / max(total, 1),
        "distinct_of_lines_without_long": len(seen) / max(lines - long, 1),
        "distinct_of_bytes_without_long": distinct_bytes / max(total - long_bytes, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=200, help="megabytes (1e6 bytes)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where to write the log")
    parser.add_argument("--shapes", type=Path, metavar="FILE", help="measure how varied FILE is")
    options = parser.parse_args()
    if options.out:
        make(options.out, options.mb, options.seed)
    if path := options.shapes or options.out:
        for name, value in shapes(path).items():
            print(f"{name:32} {value:.4g}" if isinstance(value, float) else f"{name:32} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
