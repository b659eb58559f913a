"""Hypotheses -> hypotheses with their signals: what speaks for and against each, and which of them explains which.

The questions are asked in the order that an engineer would ask them, one module each. Did the job go on after it? What kind of
statement is it, and who makes it? Where does it stand in the log? Which other line explains it? And what says that nothing
failed at all?
"""

from __future__ import annotations

from collections.abc import Collection

from diagnose.compression.kept_log import Compression
from diagnose.diagnosis.candidates import Candidates
from diagnose.diagnosis.evidence import Evidence
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.weighing.kinds import alike, among_work, kinds_of
from diagnose.diagnosis.weighing.positions import Positions
from diagnose.diagnosis.weighing.relations import Relations
from diagnose.diagnosis.weighing.scene import Scene
from diagnose.diagnosis.weighing.soundness import Soundness
from diagnose.diagnosis.weighing.standstill import hang_before
from diagnose.diagnosis.weighing.statements import Statements
from diagnose.diagnosis.weighing.survival import Survival
from diagnose.diagnosis.weighing.work import Work


class Weighing:
    """The questions, and what they find out together about the hypotheses of one log.

    ``known``: lines (as ``normal`` gives them) of runs that went well.
    """

    def __init__(self, found: Candidates, evidence: Evidence, log: Compression, known: Collection[str] = ()) -> None:
        self.scene = Scene(found, evidence, log)
        self.work = Work(self.scene)
        self.survival = Survival(self.scene, self.work, known)
        self.all: list[Hypothesis] = []
        """every hypothesis, in order of place"""

    def weigh(self) -> list[Hypothesis]:
        """One hypothesis per kind with its signals, in order of place. The last one is that nothing failed."""
        kinds = self._kinds()
        statements = Statements(self.scene, self.work)
        positions = Positions(self.scene, self.work, self.all)
        for one in kinds:
            statements.judge(one)
            positions.judge(one)
        positions.mark_first(kinds)
        Relations(self.scene).judge(kinds)
        reasons = {one.reason for one in kinds if not one.recovered}
        for one in kinds:
            one.contested = len(reasons) > 1
        return [*kinds, Soundness(self.scene, self.work).judge(kinds)]

    def _kinds(self) -> list[Hypothesis]:
        """The kinds of hypotheses, each with whether the job went on after it; and a hang, if the job had stood still."""
        found, place = self.scene.found.hypotheses, self.scene.place
        for one in found:
            self.survival.judge(one)
        self.survival.announced()
        alike([one for one in found if one not in self.survival.of_earlier_runs], self.scene)
        self.all = sorted(found, key=place)
        kinds = kinds_of(self.all, self.scene)
        among_work(kinds, self.scene, self.work)
        if (hang := hang_before(kinds, self.scene)) is not None:
            kinds.append(hang)
            self.all.append(hang)
        return sorted(kinds, key=place)
