"""Tests nodes against each other, by a site's own program that runs ``diagnose nodes check``.

The site says how a program gets onto nodes that nobody else uses meanwhile: an allocation, a Job, ssh. A restart never waits
because a test was not possible, and a node that was not tested is not accused.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.acting.executors import processes
from service.acting.executors.executor import MOST_AVOIDED, Problem, node_names

_SCHEMA = "diagnose.nodecheck/1"
_LARGEST = 16 << 20
_NODES, _COUNT = "{nodes}", "{count}"
_OTHERS, _ENOUGH = 2, 4
"""who tests fewer nodes than are enough needs others beside them: two that pass together are proven good"""


@dataclass(frozen=True, slots=True)
class Tested:
    """The result of a test."""

    said: str
    faulty: tuple[str, ...] = ()
    verdict: dict[str, Any] | None = None
    """as in ``diagnose nodes check --json``; None if there is none"""
    for_good: bool = False
    """it will not go better the next time"""


class NodeCheck:
    """A program that tests nodes."""

    def __init__(self, words: Sequence[str], timeout_s: float = 900.0) -> None:
        self._words, self._timeout_s = tuple(words), timeout_s

    async def test(self, nodes: Sequence[str]) -> Tested:
        """Test the nodes. Never raises for what a program or a node may do."""
        try:
            named = node_names(tuple(nodes), MOST_AVOIDED)
        except Problem as problem:
            return Tested(f"not tested: {problem.what}", for_good=True)
        if shutil.which(self._words[0]) is None:
            return Tested(f"not tested: {self._words[0]} is no program here", for_good=True)
        count = len(named) + min(_OTHERS, max(0, _ENOUGH - len(named)))
        words = [word.replace(_NODES, ",".join(named)).replace(_COUNT, str(count)) for word in self._words]
        environment = {known: value for known, value in os.environ.items() if not known.startswith("DIAGNOSE_")}
        try:
            ended = await processes.run(words, environment=environment, timeout_s=self._timeout_s, largest=_LARGEST)
        except OSError as error:
            return Tested(f"not tested: {words[0]} cannot be started: {error.strerror or error}")
        verdict = _verdict(ended.out)
        if verdict is None:
            why = f"did not end in {self._timeout_s:g} s" if ended.code is None else f"ended with {ended.code} and no verdict"
            last = " ".join(ended.problems.decode("utf-8", "replace").split())[-200:]
            return Tested(f"not tested: {words[0]} {why}{f': {last}' if last else ''}")
        if not any(set(named) & set(_names(verdict, kind)) for kind in ("good", "faulty", "slow", "suspects")):
            return Tested(f"not tested: {words[0]} tested others", for_good=True)
        faulty = tuple(one for one in _names(verdict, "faulty") if one in named)
        if not _names(verdict, "good"):
            faulty = ()  # nobody passed, so the test itself may be wrong
        others = [f"{kind} {', '.join(found)}" for kind in ("slow", "suspects") if (found := _names(verdict, kind)[:8])]
        said = "; ".join([f"faulty: {', '.join(faulty)}" if faulty else "none is faulty", *others])
        tested = f"{len(named)} nodes were tested" if len(named) > 1 else f"{named[0]} was tested"
        return Tested(f"{tested}: {said}", faulty, verdict)


def _verdict(out: bytes) -> dict[str, Any] | None:
    for line in reversed(out.decode("utf-8", "replace").splitlines()):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue  # srun may print lines between
        if isinstance(found, dict) and found.get("schema") == _SCHEMA and found.get("kind") == "verdict":
            return found
    return None


def _names(verdict: dict[str, Any], kind: str) -> list[str]:
    found = verdict.get(kind)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
