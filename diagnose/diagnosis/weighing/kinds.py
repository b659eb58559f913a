"""Hypotheses of one kind: what was survived once, and what is said again and again while the work goes on."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.diagnosis.candidates import MOST_KINDS
from diagnose.diagnosis.hypotheses import Hypothesis, kind_of, raised_by, sort_of
from diagnose.diagnosis.weighing.scene import OFTEN, PAST_LINES, Scene
from diagnose.diagnosis.weighing.work import Work


def alike(hypotheses: Sequence[Hypothesis], scene: Scene) -> None:
    """Mark what is like something that the job survived earlier, in steps or by another way that the next line tells of.

    What only another run overcame is none of ``hypotheses``: the last run may fail in the same words. The line that tells of
    another way may have been folded away. ``raised_by`` is slow, so the cheap ``sort_of`` is compared first.
    """
    open_ = {sort_of(one) for one in hypotheses if not one.recovered and not one.fatal and not one.ends_process}
    survived = {raised_by(one) for one in hypotheses if "survived" in one.signals and sort_of(one) in open_}
    helped = {
        raised_by(one)
        for one in hypotheses
        if "talked_on" in one.signals and one.kind == "rule" and one.traceback is None and sort_of(one) in open_
    }
    for one in hypotheses:
        if (
            not one.recovered
            and not one.fatal
            and not one.ends_process
            and sort_of(one) in open_
            and (raised_by(one) in survived or (raised_by(one) in helped and _long_ago(one, scene)))
        ):
            one.signals["survived_like"] = 1.0
            one.recovered = True


def _long_ago(one: Hypothesis, scene: Scene) -> bool:
    """Whether much stands behind it: as the last words, even what helped before did not help."""
    return scene.ends[one.event.source] - one.event.line >= PAST_LINES


def kinds_of(hypotheses: Sequence[Hypothesis], scene: Scene) -> list[Hypothesis]:
    """The first of each kind that the job did not survive, or else the first. The others of the kind go into ``same``."""
    kinds: dict[tuple[str, ...], Hypothesis] = {}
    for one in hypotheses:
        key = ("prose", str(one.event.source)) if scene.in_text(one) else kind_of(one)
        first = kinds.get(key)
        if first is None:
            kinds[key] = one
        elif first.recovered and not one.recovered:
            one.same = [*first.same, first]
            kinds[key] = one
        else:
            first.same.append(one)
    found = list(kinds.values())
    standing = [one for one in found if not one.recovered]
    gone = [one for one in found if one.recovered]
    if len(standing) > MOST_KINDS:
        standing = standing[: MOST_KINDS // 2] + standing[-MOST_KINDS // 2 :]
    return standing + gone[-(MOST_KINDS - len(standing)) :] if len(standing) < MOST_KINDS else standing


def among_work(kinds: Sequence[Hypothesis], scene: Scene, work: Work) -> None:
    """Mark what was said often while lines went on to count up, to the end: the work does not need it.

    An environment of reinforcement learning fails so, or a reader that leaves out a sample.
    """
    for one in kinds:
        if one.recovered or one.fatal or one.ends_process or one.detector is not None or len(one.same) < OFTEN:
            continue
        if one.layer <= scene.taxonomy.depth("network"):
            continue
        lines = sorted(same.event.line for same in (one, *one.same) if same.event.source == one.event.source)
        if len(lines) > OFTEN and (work.counts_on(one, lines[-OFTEN]) or work.around(one, lines[-OFTEN])):
            one.signals["survived_like"] = 1.0
            one.recovered = True
