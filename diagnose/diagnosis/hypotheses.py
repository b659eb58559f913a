"""A hypothesis: something in the log that may be why the job failed, with what speaks for and against it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from diagnose.diagnosis.detectors.course import Anomaly
from diagnose.diagnosis.evidence import Event, normal
from diagnose.diagnosis.likeness import CALM, Likeness, heard, leaves, set_aside
from diagnose.diagnosis.subjects import About
from diagnose.diagnosis.tracebacks import Traceback
from diagnose.knowledge.rules import Rule
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.memory import remembered
from diagnose.reading.prefixes import clock

Kind = Literal["traceback", "rule", "line", "detector", "dump", "status", "healthy"]


@dataclass(frozen=True, slots=True)
class Relation:
    """Why a hypothesis has a signal: because of this other one."""

    name: str
    """the name of the signal"""
    other: Hypothesis


@dataclass(slots=True, eq=False)
class Hypothesis:
    """Something that failed, according to one line, one chain of tracebacks, dumps or a detector; or that nothing failed."""

    event: Event
    rule: Rule | None
    reason: str
    layer: int
    """0 is the hardware"""
    fatal: bool
    symptom: bool
    """it echoes a fault elsewhere"""
    traceback: Traceback | None = None
    detector: Anomaly | None = None
    handled: bool = False
    """a logger printed it, so the program was still in control"""
    below: Event | None = None
    """the logger's line of trouble directly above it; its message goes on here"""
    ignored: bool = False
    """the interpreter, or whoever printed it, went on at once"""
    recovered: bool = False
    """the job went on after it"""
    contested: bool = False
    """something else that the job did not survive points to another reason"""
    killed_unsaid: bool = False
    """a signal killed it amid its work, and nothing in the log says who sent it or speaks of memory"""
    graver: Hypothesis | None = None
    """what it led to; the action for that one counts"""
    kind: Kind = "rule"
    transport: str | None = None
    """the level that every line of its source carries"""
    possible: bool = False
    """it stands in a list of possibilities"""
    sound: Likeness | None = None
    """how its line sounds, once somebody asked"""
    words: About | None = None
    """what its words are about, if no rule gives its reason"""
    signals: dict[str, float] = field(default_factory=dict)
    """what speaks for it and against it, each from 0 to 1"""
    relations: list[Relation] = field(default_factory=list)
    timed: bool = True
    """its line has a clock of its own, which says when it was"""
    _moment: float | None = None
    _asked_when: bool = False
    score: float = 0.0
    probability: float = 0.0
    same: list[Hypothesis] = field(default_factory=list)
    """others that say the very same; this is the first"""

    @property
    def category(self) -> str:
        """The category of the rule, else that of the reason."""
        own = self.rule.category if self.rule is not None and self.rule.reason == self.reason else None
        return own or shipped_taxonomy().category_of[self.reason]

    @property
    def moment(self) -> float | None:
        """When it was, in seconds. To read the clock of a line takes a while, and is not needed for most."""
        if not self._asked_when and self.timed:
            self._moment, self._asked_when = moment_of(self.event), True
        return self._moment

    @property
    def like(self) -> Likeness:
        """How its line sounds. This is slow, and is not needed for most lines."""
        if self.sound is None:
            line = self.kind in ("rule", "line")
            self.sound = set_aside(heard(self.event.text, self.event.body), self.transport) if line else CALM
            if self.possible:
                self.sound = self.sound._replace(listed=1)
        return self.sound

    @property
    def ends_process(self) -> bool:
        """Whether it says that a process, or the job, ended."""
        if self.traceback is not None:
            return not self.handled and not self.ignored and self.traceback.from_top
        if self.kind == "line":
            return leaves(self.event.body)
        taxonomy = shipped_taxonomy()
        by_scheduler = self.rule is not None and self.rule.layer == "scheduler" and not self.handled
        killed = taxonomy.has(self.reason, "kills") and (self.fatal or self.symptom or self.rule is None)
        return by_scheduler or killed or (self.symptom and taxonomy.has(self.reason, "nameless"))


def moment_of(event: Event) -> float | None:
    """When a line was printed, in seconds, by its own clock."""
    return clock(event.time) if event.time else None


def captures(rule: Rule | None, body: str) -> dict[str, str]:
    """The named groups of the rule in ``body``."""
    if rule is None or "(?P<" not in rule.pattern:
        return {}
    try:
        return dict(_captured(body, rule.pattern))
    except TimeoutError:
        return {}


@remembered
def _captured(body: str, pattern: str) -> tuple[tuple[str, str], ...]:
    import regex

    found = regex.search(pattern, body, timeout=0.05)
    return tuple((name, value) for name, value in found.groupdict().items() if value) if found else ()


def sort_of(one: Hypothesis) -> tuple[str, str]:
    """A first, quick part of ``kind_of``."""
    return one.reason, one.rule.id if one.rule else ""


_BEGINNING = 48
"""the kind of a message is in its first characters; data follow"""


def raised_by(one: Hypothesis) -> tuple[str, ...]:
    """Where and how it was raised: the same place raises the same error for other data, in other words."""
    if one.traceback is None or not one.traceback.frames:
        return *sort_of(one), normal(one.event.body)[:_BEGINNING]
    frame = one.traceback.frames[-1]
    return (*sort_of(one), one.traceback.type, frame.path, frame.function)


def kind_of(one: Hypothesis) -> tuple[str, str, str]:
    """Its kind: two hypotheses that say the same with other numbers or places are of one kind.

    Lines that only have words of failure are of one kind if they begin alike. Else each of many would count as a chance.
    """
    if one.kind == "line" and one.words is None and not one.like.loud:
        return *sort_of(one), normal(one.event.body)[:_BEGINNING]
    return *sort_of(one), normal(one.event.body)[:200]
