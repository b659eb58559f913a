"""What all questions share: the lines, the hypotheses, where each source ends, and the order in time."""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property

from diagnose.compression.kept_log import Compression
from diagnose.diagnosis.candidates import Candidates
from diagnose.diagnosis.evidence import Event, Evidence
from diagnose.diagnosis.hypotheses import Hypothesis, kind_of
from diagnose.diagnosis.weighing.speakers import at_boot
from diagnose.knowledge.taxonomy import shipped_taxonomy

_NEAR_S, _NEAR_LINES = 300.0, 300
"""two lines are near within so many seconds; without a clock, within so many lines of one source"""
LAST_LINES = 10
"""so many lines are the end of a source"""
PAST_LINES = 100
"""after so many more lines, a script or a program is past it"""
OFTEN = 4
"""more often than so many times is often"""
STACK = re.compile(
    r"\s|#\d|frame #|\d+:? +(?:0x|/|\S+\()|0x[0-9a-f]{6}|\[<?[0-9a-f]{6}|at [\w.$<>/]+\(|\S+\+0x"
    r"|[-=*_#~]{5}|\S*$|[\w./-]+\.(?:go|cc|cpp|c|h):\d"
)
"""a line of a stack, of a table, or of a frame around a message; or a single word"""
_PROSE = 24
"""if a source has words of failure in lines of so many kinds, it holds texts"""


class Scene:
    """One log as the questions see it. It is read only."""

    def __init__(self, found: Candidates, evidence: Evidence, log: Compression) -> None:
        self.found, self.evidence, self.log = found, evidence, log
        self.taxonomy = shipped_taxonomy()
        self.courses = [log.course(source) for source in range(len(evidence.sources))]
        self.ends = [log.lines_of(source) for source in range(len(evidence.sources))]

    @cached_property
    def ranks_speak(self) -> bool:
        return any(event.rank is not None for event in self.evidence.events)

    def layer_of(self, well: Event) -> str:
        return self.evidence.rules[well.rule].layer or "framework"

    def place(self, one: Hypothesis) -> tuple[float, int]:
        """Its place in time: by the clock if there are several sources and it has one, else in the order of reading."""
        if len(self.evidence.sources) > 1 and one.moment is not None:
            return one.moment, one.event.order
        return (0.0 if len(self.evidence.sources) == 1 else float("inf")), one.event.order

    def before(self, one: Hypothesis, other: Hypothesis) -> bool:
        return self.place(one) < self.place(other)

    def near(self, one: Hypothesis, other: Hypothesis) -> bool:
        if one.moment is not None and other.moment is not None:
            return abs(one.moment - other.moment) <= _NEAR_S
        return one.event.source != other.event.source or abs(one.event.line - other.event.line) <= _NEAR_LINES

    def in_text(self, one: Hypothesis) -> bool:
        """Whether it is one of very many such lines, or of a kernel that starts: of failures it speaks on each machine."""
        if one.kind != "line" or not only_words(one):
            return False
        return one.event.source in self._prose or at_boot(one.event)

    @cached_property
    def _prose(self) -> set[int]:
        """The sources in which very many lines of different kinds have words of failure and nothing else: they hold texts.

        A source with a failure that is known is none of them: many lines may tell of that.
        """
        known = {one.event.source for one in self.found.hypotheses if one.kind != "line" and one.rule is not None}
        kinds = {(one.event.source, kind_of(one)) for one in self.found.hypotheses if one.kind == "line" and only_words(one)}
        count = Counter(source for source, _ in kinds)
        return {source for source, many in count.items() if many >= _PROSE and source not in known}


def only_words(one: Hypothesis) -> bool:
    like = one.like
    return not (like.fatal or like.error or like.soft or like.exception or like.exit)
