"""Loss: not a number, or far above its level for good; a loss scale that fell to its floor; only skipped steps.

A spike that comes down again is mentioned, but is not a failure. These look alike and are no failures either:

- warm-up: the first values are left out
- a loss that was always noisy: it is measured against its own noise
- a new epoch or a restart: the level is the median of many values
- skipped steps: trainers print exactly 0 for a batch that they skip, and 0 is no level to rise from
- the loss of reinforcement learning: no level of it is good or bad; only its reward says how it goes
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from diagnose.diagnosis.detectors.course import Anomaly, Course, means, median
from diagnose.matching.series import Bucket, Series

_BASE = 32
"""the level is the median of so many points"""
_FEWEST = 3
_JUMP, _STAYS = 0.3, 0.15
"""so much above the level, as a share of it, begins an anomaly; so much continues it"""
_SPREADS = 8.0
_NANS = 3
_SKIPPED_FROM, _ALL = 100, 0.98
"""steps, and the share of them: at the start some are skipped until the loss scale fits"""
_STILL = 10
"""so many values that are all zero say that nothing is learned; fewer may be a warm-up"""
_REWARDS = frozenset({"reward", "kl"})
_PATIENCE = _BASE
"""a running job gets so many values to come down again: most spikes do, and a roll-back costs more than the wait"""


def find(course: Course) -> Iterator[Anomaly]:
    for look in (_of_losses, _of_gradients, _of_nothing, _of_loss_scale, _of_skipped):
        if (found := look(course)) is not None:
            yield found
            return


def _of_losses(course: Course) -> Anomaly | None:
    for name in ("loss", "val_loss"):
        if name in course.series and (found := _of_loss(course, name)) is not None:
            return found
    return None


def _of_loss(course: Course, name: str) -> Anomaly | None:
    source, series = course.series[name]
    lost = _not_a_number(source, series)
    has_level = name == "loss" and _REWARDS.isdisjoint(course.series)
    risen = _level(source, series, course.running) if has_level else None
    if lost is None:
        return risen
    if name == "loss" and (
        not _never_one(series) or ("val_loss" in course.series and _never_one(course.series["val_loss"][1]))
    ):
        lost = replace(lost, to_the_end=True)  # what alone never was a number may be one that nobody needs
    if risen is not None and risen.sustained and risen.step == risen.step:
        # It rose before it was lost: the cause lies before the rise.
        return replace(lost, step=risen.step, sentence=f"{risen.sentence} {lost.sentence}")
    return lost


def _never_one(series: Series) -> bool:
    """Whether no value is a number."""
    return series.not_finite == series.count


def _of_gradients(course: Course) -> Anomaly | None:
    if "grad_norm" not in course.series:
        return None
    if "loss" in course.series:
        if course.series["loss"][1].last != 0.0:  # trainers print 0.0 for a loss that is not a number
            return None
    elif "val_loss" in course.series:
        return None  # without both it is an excerpt that shows no loss
    return _not_a_number(*course.series["grad_norm"], "gradient norm")


def _of_nothing(course: Course) -> Anomaly | None:
    """Loss and gradient norm are exactly zero from the first value to the last: no target reaches the loss."""
    if "loss" not in course.series or "grad_norm" not in course.series or not _REWARDS.isdisjoint(course.series):
        return None
    source, loss = course.series["loss"]
    if any(one.count < _STILL or one.not_finite or one.least or one.most for one in (loss, course.series["grad_norm"][1])):
        return None
    first = loss.bucket(0)
    sentence = f"The loss and the gradient norm are exactly zero in all {loss.count:,} values: nothing is learned."
    return Anomaly("loss", "loss_anomaly", source, first.line, sentence, first.step, loss.last_step)


def _of_loss_scale(course: Course) -> Anomaly | None:
    return _floor(*course.series["loss_scale"]) if "loss_scale" in course.series else None


def _of_skipped(course: Course) -> Anomaly | None:
    return _all_skipped(course.series.get("skipped_steps"), course.series.get("step"))


def _not_a_number(source: int, series: Series, what: str = "loss") -> Anomaly | None:
    """The point after which no value is a number."""
    if not series.not_finite:
        return None
    tail: list[Bucket] = []
    for number in reversed(range(series.size)):
        bucket = series.bucket(number)
        if bucket.finite == bucket.count:
            break
        tail.append(bucket)
        if bucket.finite:
            break
    missing = sum(bucket.count - bucket.finite for bucket in tail)
    if not tail or missing < min(_NANS, max(2, series.count)) or tail[0].finite:
        return None
    first = tail[-1]
    since = f" from step {first.step:.0f} on" if first.step == first.step else ""
    sentence = f"The {what} is not a number{since}."
    return Anomaly("loss", "loss_anomaly", source, first.line, sentence, first.step, series.last_step)


def _level(source: int, series: Series, running: bool) -> Anomaly | None:
    """The loss leaves its level and stays away. If it did so several times, the last one."""
    trained = [(place, value) for place, value in zip(*means(series), strict=True) if value]
    places, values = [place for place, _ in trained], [value for _, value in trained]
    spike: Anomaly | None = None
    at = _FEWEST
    while at < len(values) - 1:
        before = values[max(0, at - _BASE) : at]
        least = min(before)
        if least > 0 and values[at] <= (1 + _JUMP) * least:  # then it is not that far above the median either
            at += 1
            continue
        base = median(before)
        spread = median([abs(value - last) for last, value in pairwise(before)])  # not affected by the trend
        rise = max(_JUMP * abs(base), _SPREADS * spread)
        if base > 0 and values[at] > base + rise and max(values[at + 1 : at + 3]) > base + rise:
            level = base + max(_STAYS * abs(base), _SPREADS / 2 * spread)
            end = at
            while end < len(values) and (values[end] > level or max(values[end + 1 : end + 2], default=0.0) > base + rise):
                end += 1
            first, last = series.bucket(places[at]), series.bucket(places[end - 1])
            sustained = end == len(values)
            waits = running and sum(series.bucket(place).finite for place in places[at:end]) < _PATIENCE
            sentence = f"The loss rose from {base:.3g} to {max(values[at:end]):.3g}"
            sentence += f" at step {first.step:.0f}" if first.step == first.step else ""
            stays = "; it has not come down yet." if waits else " and stayed there."
            sentence += stays if sustained else ", and came down again."
            reason = "loss_anomaly" if sustained and not waits and end - at >= _FEWEST else None
            spike = Anomaly("loss", reason, source, first.line, sentence, first.step, last.step, sustained, rose=True)
            at = end + _BASE // 2
        else:
            at += 1
    return spike


def _floor(source: int, series: Series) -> Anomaly | None:
    """The loss scale fell to 1 or below and stays there: every step overflows."""
    if series.most <= 2:
        return None
    places, values = means(series)
    if len(values) < 2 * _FEWEST or any(value > 1 for value in values[-_FEWEST:]):
        return None
    onset = next((at + 1 for at in reversed(range(len(values))) if values[at] > 1), 0)
    first = series.bucket(places[onset])
    sentence = f"The loss scale fell from {series.most:g} to {series.bucket(places[-1]).least:g}: every step overflows."
    return Anomaly("loss", "loss_anomaly", source, first.line, sentence, first.step, series.last_step)


def _all_skipped(skipped: tuple[int, Series] | None, steps: tuple[int, Series] | None) -> Anomaly | None:
    """The count of the steps that were skipped is the count of all steps: nothing was ever trained."""
    if skipped is None or steps is None:
        return None
    source, series = skipped
    last = steps[1].last
    if source != steps[0] or last < _SKIPPED_FROM or not _ALL * last <= series.last <= last:
        return None
    sentence = f"Of {last:,.0f} steps {series.last:,.0f} were skipped: nothing is trained."
    first = series.bucket(0)
    return Anomaly("loss", "loss_anomaly", source, first.line, sentence, first.step, series.last_step)
