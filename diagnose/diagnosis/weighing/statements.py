"""What kind of statement is it, and who makes it?"""

from __future__ import annotations

import re

from diagnose.diagnosis.candidates import interpreter_warns, is_generic
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.weighing.retries import softened, tries_left
from diagnose.diagnosis.weighing.scene import Scene
from diagnose.diagnosis.weighing.scripts import went_on
from diagnose.diagnosis.weighing.speakers import by_kernel, of_a_service
from diagnose.diagnosis.weighing.work import Work

_TIDIES = re.compile(
    r"(?i)\b(?:fail(?:ed|ure)?|unable|could ?n[o']t|cannot|can't|error)\b(?: (?:to|in|while|when|during))?"
    r" (?:properly |gracefully |cleanly )?"
    r"(?:disconnect(?:ing)?|clos(?:e|ing)|delet(?:e|ing)|remov(?:e|ing)|clean(?:ing)?[ -]?up|unlink(?:ing)?|shut(?:ting)? ?down"
    r"|destroy(?:ing)?|tear(?:ing)? ?down|finaliz(?:e|ing)|deregister(?:ing)?|unregister(?:ing)?)\b"
)
"""a program could not tidy up behind itself"""
_BARE = re.compile(r"\W*\w*(?:Error|Exception): *$")


class Statements:
    """How a hypothesis is stated: by whom, how loudly, and whether it is taken back."""

    def __init__(self, scene: Scene, work: Work) -> None:
        self.scene, self.work = scene, work

    def judge(self, one: Hypothesis) -> None:
        """Give it the signals of what it says."""
        rule, of_the_job = one.rule, not of_a_service(one)
        self._stated(one)
        if one.kind == "rule":
            self._leveled(one)
        if one.words is not None:
            _mark(one, plain_words=one.words.plain, vague_words=not one.words.plain)
        self._taken_back(one)
        _mark(
            one,
            logged=one.handled and one.traceback is not None,
            ignored=one.ignored,
            echo=one.symptom,
            nameless=one.symptom and self.scene.taxonomy.has(one.reason, "nameless"),
            stop=self.scene.taxonomy.has(one.reason, "stop"),
            specific=rule is not None and not is_generic(rule) and rule.severity != "warning" and of_the_job,
            kernel=by_kernel(one) and of_the_job,
            torn=_torn(one),
        )

    def _stated(self, one: Hypothesis) -> None:
        """What kind of statement it is: a traceback, a dump of stacks, what a detector found, a line, or what a rule knows."""
        if one.traceback is not None:
            cut = one.traceback.exception is None and one.rule is None
            shown = one.handled or one.ignored or one.traceback.where == "thread"
            one.signals["unfinished" if cut else "shown" if shown else "raised"] = 1.0
        elif one.kind == "dump":
            _mark(one, dumped=True, others_wait=self.scene.found.apart)
        elif one.detector is not None:
            one.signals["stood_still" if one.detector.detector == "hang" else "detected"] = 1.0
        elif one.kind == "line":
            self._sounds(one)
        else:
            severity = "error" if one.rule is None else "warning" if of_a_service(one) else one.rule.severity
            one.signals[{"fatal": "fatal", "error": "noted"}.get(severity, "warned")] = 1.0

    def _leveled(self, one: Hypothesis) -> None:
        """How loudly the program says what a rule knows, where that differs from the rule."""
        like = one.like
        if one.rule is not None and one.rule.severity == "warning":
            _mark(one, level_fatal=like.fatal, level_error=like.error and not like.fatal)
        softly = like.soft or like.info or one.handled
        if softly and not by_kernel(one) and not self.scene.taxonomy.has(one.reason, "stated"):
            one.signals["info_level" if like.info else "soft_level"] = 1.0
        _mark(one, exit_status=like.exit and one.symptom)

    def _sounds(self, one: Hypothesis) -> None:
        like = one.like
        _mark(
            one,
            level_fatal=like.fatal,
            level_error=like.error,
            exception_named=like.exception,
            exit_status=like.exit,
            failure_words=like.words,
            grave_words=like.grave,
            soft_level=like.soft,
            info_level=like.info,
        )

    def _taken_back(self, one: Hypothesis) -> None:
        like, signals = one.like, one.signals
        if one.traceback is not None:
            return
        if interpreter_warns(one):
            signals["interpreter"] = 1.0
        if like.listed and (one.kind == "line" or one.rule is None or one.rule.severity != "fatal"):
            signals["listed"] = 1.0
        if like.hint:
            signals["hint"] = 1.0
        if (one.kind == "line" or not one.fatal) and _TIDIES.search(one.event.body[:300]) is not None:
            signals["tidying"] = 1.0
        ends = one.ends_process or self.scene.taxonomy.has(one.reason, "stop")
        mildly = one.kind == "line" or "warned" in signals
        if not ends and (softened(one, self.scene, self.work) if mildly else not one.fatal and tries_left(one, self.scene)):
            signals["softened"] = 1.0
        if like.quoted:
            signals["quoted"] = 1.0
        if went_on(one, self.scene):
            signals["went_on"] = 1.0


def _mark(one: Hypothesis, **signals: object) -> None:
    """Give it the signals that hold, in this order."""
    one.signals.update((name, 1.0) for name, holds in signals.items() if holds)


def _torn(one: Hypothesis) -> bool:
    """Whether other ranks wrote into the exception line, or cut off its message."""
    if one.traceback is not None:
        return re.match(r"(?:\w+(?:Error|Exception)\b|Exception\b(?! \w))", one.traceback.message) is not None
    return one.kind == "rule" and _BARE.match(one.event.body) is not None
