"""What is tried again, or done in another way."""

from __future__ import annotations

import re

from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.likeness import takes_back
from diagnose.diagnosis.weighing.scene import PAST_LINES, Scene
from diagnose.diagnosis.weighing.speakers import speaker_of
from diagnose.diagnosis.weighing.work import Work

_NEXT, _MESSAGE = 2, 12
"""so many next lines may say that it goes on; so many lines belong to a message and to those"""
_ATTEMPT = re.compile(r"(?i)\b(?:attempt|try|retry|retries|trial)\W{0,3}(\d{1,4}) ?(?:/|of|out of) ?(\d{1,4})\b")
_OTHERWISE = re.compile(
    r"(?i)\b(?:fall(?:ing|s)? ?back|us(?:e|ing) (?:the )?(?:default|cached|cpu|slow|random)"
    r"|(?<!refuse to )(?<!cannot )(?<!not )continu(?:e|es|ing) (?:without|with|anyway)"
    r"|skipp(?:ed|ing)|ignor(?:ed|ing)|retry(?:ing)?|will (?:be )?(?:retry|use|try)|trying (?:again|to (?:restart|reconnect))"
    r"|re-?connecting|(?:cutting|reducing|halving|decreasing|lowering) (?:back )?(?:the )?"
    r"(?:time ?-?step|step ?-?size|dt|alpha|batch ?-?size|learning rate)|instead\b)"
)


def softened(one: Hypothesis, scene: Scene, work: Work) -> bool:
    """Whether it, or the next line from the same speaker, says that it is tried again or done in another way."""
    last = (one, *one.same)[-1].event
    behind = scene.ends[last.source] - last.line  # as the last words it did not help
    if tries_left(one, scene):
        return True
    mild = one.kind == "line" and not one.like.fatal and not one.like.grave
    if behind > _NEXT and takes_back(last.body) and (mild or ("warned" in one.signals and work.progressed)):
        return True
    return _otherwise(one.event, scene)


def tries_left(one: Hypothesis, scene: Scene) -> bool:
    """Whether the last line of its kind says which of several attempts failed, that it was not the last, and more follows."""
    last = (one, *one.same)[-1].event
    return scene.ends[last.source] > last.line and attempts_left(last.body)


def helped(one: Hypothesis, scene: Scene) -> bool:
    """Whether it was tried again, and much was said after that: the new try helped."""
    noted = one.kind == "rule" and one.traceback is None and not one.fatal and not one.ends_process
    return noted and scene.ends[one.event.source] - one.event.line >= PAST_LINES and _otherwise(one.event, scene)


def _otherwise(said: Event, scene: Scene) -> bool:
    """Whether one of the next lines from the same speaker says that it is tried again or done in another way."""
    speaker = speaker_of(said)
    behind = scene.evidence.events[said.order + 1 : said.order + 1 + _MESSAGE]
    while behind and behind[0].body[:1].isspace():  # its own message goes on
        behind = behind[1:]
    for event in behind[:_NEXT]:
        rule = scene.evidence.rule(event)
        gentle = event.source == said.source and (rule is None or rule.severity == "warning")
        gentle = gentle and event.line < scene.ends[event.source]  # as the last line of the source it did not help
        if gentle and speaker_of(event) == speaker and _OTHERWISE.search(event.body):
            return True
    return False


def attempts_left(body: str) -> bool:
    """Whether the line says which of several attempts failed, and that it was not the last."""
    found = _ATTEMPT.search(body)
    return found is not None and int(found[1]) < int(found[2])
