"""A site's own program that acts: it gets the order as JSON on its standard input, and its exit status is the outcome.

    0    done
    75   not done, may succeed later (EX_TEMPFAIL of sysexits.h)
    else not done
    ended by a signal, or for taking too long: nobody knows

The last line of its output is shown to people. It is started directly, without a shell. It is never given the same order again
unless the site says that it is ``repeatable``, because it may not look before it acts.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence

from service.acting.executors import processes
from service.acting.executors.executor import KINDS, Order, Outcome

SCHEMA = "diagnose.order/1"
_LATER = 75
_LARGEST = 64 << 10
_SENTENCE = 500


class Command:
    """The executor."""

    kinds = KINDS

    def __init__(self, words: Sequence[str], *, timeout_s: float = 300.0) -> None:
        self._words, self._timeout_s = tuple(words), timeout_s

    async def check(self) -> list[str]:
        return [] if shutil.which(self._words[0]) else [f"{self._words[0]} is no program here: check its path, and its x bit"]

    async def carry_out(self, order: Order, *, dry_run: bool = False) -> Outcome:
        name = self._words[0]
        if order.kind not in KINDS:
            return Outcome("failed", f"{name} is not asked to {order.kind[:40]!r}")
        if dry_run:
            return Outcome("succeeded", f"would have: run {name} for {order.kind}")
        told = json.dumps({"schema": SCHEMA, "order": order.as_dict()}, ensure_ascii=True).encode() + b"\n"
        # Our own variables are not for it: tokens of the service, keys of the model.
        environment = {known: value for known, value in os.environ.items() if not known.startswith("DIAGNOSE_")}
        try:
            ended = await processes.run(
                self._words, environment=environment, timeout_s=self._timeout_s, largest=_LARGEST, stdin=told
            )
        except OSError as error:
            return Outcome("failed", f"{name} cannot be started: {error.strerror or error}")
        said = _last_line(ended.out) or _last_line(ended.problems)
        if ended.code is None:
            return Outcome(
                "unknown", f"{name} did not end in {self._timeout_s:g} s and was ended: {said or 'it said nothing'}", True
            )
        if ended.code < 0:
            return Outcome("unknown", f"{name} was ended by signal {-ended.code}: {said or 'it said nothing'}", True)
        if ended.code == 0:
            return Outcome("succeeded", said or f"{name} has done it")
        said = _last_line(ended.problems) or said or "it said nothing"
        return Outcome("failed", f"{name} ended with {ended.code}: {said}", ended.code == _LATER)


def _last_line(out: bytes) -> str:
    """The last line for people: printable, bounded."""
    lines = out.decode("utf-8", "replace").split("\n")
    for line in reversed(lines):
        if clean := " ".join("".join(c if c.isprintable() else " " for c in line).split()):
            return clean[:_SENTENCE]
    return ""
