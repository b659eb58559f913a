"""What a later line says of a fault: the thing is back, the same succeeded, or all is well."""

from __future__ import annotations

import re
from functools import cached_property

from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.topology import expand
from diagnose.diagnosis.vocabulary import Sought
from diagnose.diagnosis.weighing.scene import Scene
from diagnose.memory import remembered

_BACK = Sought(
    r"(?i)\b(?:now (?:responding|reachable|available|online|back)"
    r"|restored|re-?established|reconnected|recovered|is back|back online|came back"
    r"|link (?:is |becomes )?(?:up|ready|active)|restarted (?:ok|successfully)"
    r"|(?:reachable|available|responding) again|again (?:reachable|available))\b|\bserver \S+ OK$"
)
_NAMED = re.compile(r"\b(?=[\w.:/@-]*\d)(?=[\w.:/@-]*[A-Za-z])[\w.:/@-]{5,}\b")
"""names of machines, devices and services: they have letters and digits"""
_LIST_OF_NAMES = re.compile(r"\b[A-Za-z][\w-]{0,100}\[[\d,-]+\]")
_THING = r"\b(?P<noun>[A-Za-z]{3,})(?: ?#?(?P<number>\d+))?"
_AUX = r"(?: (?:has|is|was|have|attempt|call|request))?"
_DID = Sought(rf"(?i){_THING}{_AUX} (?:succeeded|successful(?:ly)?|finished|completed|passed)\b")
_UNDID = Sought(r"(?i)\b(?:not|un\w+ly|never|without|no) (?:\w+ )?(?:succe|complet|finish)|\berror|\bfail")
_FAILED = re.compile(rf"(?i){_THING}{_AUX} (?:failed|timed out|errored|failing|refused)\b")
_ENDS_SO = Sought(
    r"(?i)(?P<what>\w+ing \S{1,100})[^.].{0,200}\.\.\. ?(?P<how>connected|done|ok|failed|error|(?:\d{1,3}\.){3}\d+)\b"
)
"""what is begun and ended on one line: "Connecting to db ... connected." """
_TRIES = frozenset({"trial", "attempt", "try", "retry", "episode", "sample", "rollout"})
"""of these, each is one of many, and a program goes on to the next"""


class Recovery:
    """The lines that take back what an earlier line said."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._back: dict[int, list[Event]] = {}
        """source -> lines that say that something is back"""
        for event in scene.evidence.events:
            if _BACK.search(event.body):
                self._back.setdefault(event.source, []).append(event)

    def follows(self, one: Hypothesis) -> bool:
        """Whether a later line says that it is over."""
        return self._well_again(one) or self._restored(one) or self._did_later(one)

    def _well_again(self, one: Hypothesis) -> bool:
        """Whether a later line says that all is well with the job, or with the layer that failed."""
        for well in self.scene.found.well:
            if well.source == one.event.source and well.line <= one.event.line:
                continue
            layer = self.scene.layer_of(well)
            if layer == "framework":
                return True
            if not one.fatal and (self.scene.taxonomy.depth(layer) == one.layer or one.kind == "line"):
                return True
        return False

    def _restored(self, one: Hypothesis) -> bool:
        """Whether a later line says that the thing that this line names is back."""
        if one.fatal or one.traceback is not None:
            return False
        later = self._back.get(one.event.source, ())
        if not later or later[-1].line <= one.event.line:
            return False
        if later[-1].line >= self.scene.ends[one.event.source] and one.kind == "line":
            return True  # the log ends with it
        named = _names(one.event.body)
        return any(event.line > one.event.line and named & _names(event.body) for event in reversed(later))

    def _did_later(self, one: Hypothesis) -> bool:
        """Whether a later line says that what failed here succeeded ("push failed", "push succeeded"), or the next trial."""
        if one.fatal or one.traceback is not None or one.ends_process or one.detector is not None:
            return False
        last = one.event
        for event in self._did.get(last.source, ()):
            if event.line <= last.line:
                continue
            if any(_failed_at(last.body, noun, number) for noun, number in _succeeded(event.body)):
                return True
            if (here := _ENDS_SO.match(last.body[:200])) and (there := _ENDS_SO.match(event.body[:200])):
                return here["what"] == there["what"]
        return False

    @cached_property
    def _did(self) -> dict[int, list[Event]]:
        """source -> lines that say that something succeeded"""
        found: dict[int, list[Event]] = {}
        for event in self.scene.evidence.events:
            body = event.body[:200]
            if (_DID.search(body) or _ENDS_SO.match(body)) and not _UNDID.search(body):
                found.setdefault(event.source, []).append(event)
        return found


def _succeeded(body: str) -> list[tuple[str, str]]:
    """What a line says succeeded: (noun, its number)."""
    return [(found["noun"].lower(), found["number"] or "") for found in _DID.whole.finditer(body[:200])]


def _failed_at(body: str, noun: str, number: str) -> bool:
    """Whether a line says that the same failed. Of trials and attempts another one may succeed."""
    for found in _FAILED.finditer(body[:200]):
        same = (found["number"] or "") == number or noun in _TRIES
        if found["noun"].lower() == noun and same:
            return True
    return False


@remembered
def _names(body: str) -> set[str]:
    """The machines, devices and services that a line names; those of a list of Slurm one by one."""
    return {name for word in _LIST_OF_NAMES.findall(body) for name in expand(word)} | set(_NAMED.findall(body))
