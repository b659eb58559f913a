"""Patterns that nobody has tried yet are compiled and searched with here, in a process that may die of it.

``python -m diagnose.verification.trial`` reads a JSON list of (pattern, its metrics' patterns, lines) from its standard input.
It answers each with one line: ``ok``, or what is wrong with it. A pattern that takes too long to compile, or too much memory,
may end the process. Then the answers before it are there, and the caller starts again with the next pattern.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Sequence

import regex

from diagnose.matching import shapes
from diagnose.matching.databases import ALLOWEMPTY, SINGLEMATCH, Pattern, Wheel
from diagnose.verification.rules import PROBES, body_of

MEMORY = 1 << 30
COMPILE_S = 3
SEARCH_S = 0.1


def tried(wheel: Wheel, pattern: str, metrics: Sequence[str], lines: Sequence[str]) -> str:
    """``ok``, or what is wrong with a pattern."""
    try:
        wheel.compile([Pattern(pattern, SINGLEMATCH, 0)])
        wheel.compile([Pattern(shapes.relaxed(pattern), SINGLEMATCH | ALLOWEMPTY, 0)])
        for expression in [regex.compile(one.encode()) for one in (pattern, *metrics)]:
            for line in (*PROBES, *lines):
                expression.search(body_of(line), timeout=SEARCH_S)
    except MemoryError:
        return "it takes too much memory to compile"
    except TimeoutError:
        return f"searching one line takes more than {SEARCH_S:g} s"
    except Exception as error:
        return "refused: " + str(error).replace("\n", " ")[:200]
    return "ok"


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    wheel = Wheel()
    for pattern, metrics, lines in json.load(sys.stdin):
        signal.alarm(COMPILE_S)
        print(tried(wheel, pattern, metrics, lines), flush=True)  # noqa: T201 - the answer
    return 0


if __name__ == "__main__":
    sys.exit(main())
