"""Which other line explains it?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from diagnose.diagnosis.candidates import is_generic
from diagnose.diagnosis.evidence import normal
from diagnose.diagnosis.hypotheses import Hypothesis, Relation, captures
from diagnose.diagnosis.topology import Topology, numbers, read, stopped
from diagnose.diagnosis.weighing.fallout import fallout_of, is_fallout
from diagnose.diagnosis.weighing.positions import weight_of
from diagnose.diagnosis.weighing.scene import Scene
from diagnose.diagnosis.weighing.speakers import by_kernel, speaker_of
from diagnose.knowledge.taxonomy import shipped_taxonomy

_MESSAGE_LINES, _SUMMARY_LINES, _MESSAGE_NEAR = 12, 60, 4
"""the message of an exception takes up to so many lines; the summary after an exception without a message up to so many"""
_CARRIED_LINES = 2
"""so near behind the line with which a runtime announces it an error stands"""
_TIME_LIMIT = re.compile(r"(?i)\b(?:wall-?time|time ?limit|run ?limit|h_rt|s_rt)\b")
_CLASS = re.compile(r"\b\w+(?:Error|Exception)\b")
_CAUGHT = re.compile(r"[\w.]*(?:Error|Exception)\(['\"]")
"""an exception as ``print(repr(e))`` shows it: who prints it so has caught it"""


class Relations:
    """Which hypothesis is the cause of which."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def judge(self, kinds: list[Hypothesis]) -> None:
        """Give each the signals of what another one explains."""
        standing = [one for one in kinds if not one.recovered]
        told = [
            one for one in standing if one.kind != "line" and "warned" not in one.signals and "unfinished" not in one.signals
        ]
        killed = [one for one in told if one.symptom and self.scene.taxonomy.has(one.reason, "kills")]
        causes = [
            one
            for one in told
            if not one.symptom and not is_fallout(one, kinds, self.scene) and not self._lost_a_peer(one, killed)
        ]
        ended = [one for one in causes if one.fatal and not self.scene.taxonomy.has(one.reason, "stop")]
        noted = [one for one in causes if not one.fatal and not self.scene.taxonomy.has(one.reason, "stop")]
        stops = [one for one in causes if self.scene.taxonomy.has(one.reason, "stop")]
        for one in standing:
            self._by_specific(one, told)
        # A node that is taken away on purpose also falls silent.
        metal = [
            f
            for f in ended
            if _of_machine(f)
            and "by_specific" not in f.signals
            and not (f.reason == "node_failure" and stops and self.scene.before(stops[0], f))
        ]
        named = [one for one in metal if not self.scene.taxonomy.has(one.reason, "seen_from_above")]
        for one in metal:
            one.signals["machine"] = 1.0
            if one in named:
                one.signals["named_machine"] = 1.0
        aborts = {id(one): fallout_of(one, kinds, self.scene) for one in told if one.reason == "native_crash"}
        asked = [one for one in standing if "warned" in one.signals and self.scene.taxonomy.has(one.reason, "stop")]
        for one in standing:
            self._by_machine(one, named, metal, noted)
            self._by_stop(one, stops or (asked if one.symptom else []))
            self._by_earlier(one, ended)
            self._by_deeper(one, noted)
            self._by_failure(one, told)
            self._by_death(one, ended)
            self._by_better(one, told)
            if is_fallout(one, kinds, self.scene):
                _relate("by_crash", one, fallout_of(one, kinds, self.scene))
            if one.symptom and causes:
                _relate("by_cause", one, causes[0])
            if one.kind == "line" or one.reason == "unknown":
                _relate("by_known", one, next((other for other in told if aborts.get(id(other)) is not one), None))
        self._by_words(standing)
        self._by_who_stopped(told, stops)
        self._again(told)
        self._by_silence(kinds)

    def _again(self, told: Sequence[Hypothesis]) -> None:
        """Mark lines that repeat what another line of their weight said, or that another line says better."""
        before: dict[tuple[str, str], Hypothesis] = {}
        for one in told:
            if "by_better" in one.signals:
                continue
            key = one.reason, weight_of(one, self.scene)
            first = before.setdefault(key, one)
            if first is one or not self.scene.near(first, one):
                continue
            if one.symptom and self._accuses(one) and not self._accuses(first):
                _relate("by_better", first, one)  # of many that wait, this one says for whom
                before[key] = one
            else:
                _relate("again", one, first)

    def _accuses(self, one: Hypothesis) -> bool:
        """Whether the line names somebody other than its speaker."""
        found = captures(one.rule, one.event.body)
        ranks = numbers(found.get("rank", ""))
        if found.get("host") or found.get("node") not in (None, self.scene.evidence.node_of(one.event)):
            return True
        return bool(ranks) and self.scene.evidence.rank_of(one.event) not in ranks

    def _by_machine(self, one: Hypothesis, named: list[Hypothesis], metal: list[Hypothesis], noted: list[Hypothesis]) -> None:
        if one in metal:
            if one not in named and named:
                _relate("by_machine", one, named[0])
            elif one is not metal[0] and one.reason != metal[0].reason:
                _relate("by_earlier", one, metal[0])
            return
        worst = (named or metal)[0] if metal else None
        if worst is None:
            return
        milder = one in noted and one.reason == worst.reason and one.layer == worst.layer and self.scene.near(one, worst)
        if milder and self.scene.before(one, worst):
            _relate("came_to", one, worst)
            one.graver = worst
            _relate("by_better", worst, one)
        elif not milder:
            _relate("by_machine", one, worst)

    def _by_stop(self, one: Hypothesis, stops: list[Hypothesis]) -> None:
        falls = self.scene.taxonomy.has(one.reason, "of_a_stop") or one.reason == "node_failure"
        if stops and falls and self.scene.before(stops[0], one):
            _relate("by_stop", one, stops[0])

    def _by_who_stopped(self, told: list[Hypothesis], stops: list[Hypothesis]) -> None:
        """Choose which line says best who stopped the job: a fatal one such as the scheduler's own, else the first."""
        if not stops:
            return
        said = [one for one in told if self.scene.taxonomy.has(one.reason, "stop") and self.scene.near(one, stops[0])]
        best = next((one for one in said if one.fatal and one.traceback is None), said[0])
        for one in said:
            if one is not best:
                _relate("by_better", one, best)
        if best.symptom:
            _relate("came_to", best, stops[0])
            best.graver = stops[0]

    def _by_earlier(self, one: Hypothesis, ended: list[Hypothesis]) -> None:
        """An exception had already ended a process, so what came later did not end it."""
        told = "noted" in one.signals or one in ended
        if told and ended and not _of_machine(one) and ended[0].reason != one.reason and self.scene.before(ended[0], one):
            _relate("by_earlier", one, ended[0])

    def _by_death(self, one: Hypothesis, ended: list[Hypothesis]) -> None:
        """Processes that wait in a dump may wait for one that died of something else, whichever was printed first."""
        died = [other for other in ended if other is not one and not self.scene.taxonomy.has(other.reason, "of_a_stop")]
        if one.kind == "dump" and died:
            _relate("by_cause", one, died[0])
            _relate("by_earlier", one, died[0])

    def _by_deeper(self, one: Hypothesis, noted: list[Hypothesis]) -> None:
        """Find what was noted before a program died and explains why: from a lower layer, from the kernel, or the same
        exception.
        """
        if not one.fatal or one.symptom or _of_machine(one):
            return
        before = [f for f in noted if f is not one and f.kind != "dump" and self.scene.before(f, one)]
        deeper = next((f for f in before if not f.handled and self.scene.near(f, one) and self._below(f, one)), None)
        if deeper is not None:
            _relate("by_deeper", one, deeper)
        elif (same := next((f for f in before if _same_exception(f, one)), None)) is not None:
            _relate("by_better", one, same)
            _relate("came_to", same, one)

    def _below(self, one: Hypothesis, other: Hypothesis) -> bool:
        return one.layer < other.layer or (one.layer == other.layer and (by_kernel(one) or _earlier_word(one, other)))

    def _by_failure(self, one: Hypothesis, told: list[Hypothesis]) -> None:
        if not self.scene.taxonomy.has(one.reason, "stop"):
            return
        if one.symptom:
            self._by_the_first_to_end(one, told)
            return
        for other in told:
            if other is one or self.scene.taxonomy.has(other.reason, "stop"):
                continue
            if not self.scene.before(other, one) and not self._no_stop_makes(other, one):
                continue
            if other.symptom and other.reason == "connection_error":
                continue
            if _TIME_LIMIT.search(one.event.body) and not (other.fatal or other.ends_process):
                continue  # the job ran on until its time was over
            _relate("by_failure", one, other)
            return

    def _by_the_first_to_end(self, one: Hypothesis, told: list[Hypothesis]) -> None:
        """A launcher tells the others to stop when a rank has ended by itself: what that rank printed came before."""
        others = [other for other in told if not self.scene.taxonomy.has(other.reason, "stop") and other.reason != "unknown"]
        if others and any(end.first and not stopped(end) for end in self._topology.ended):
            _relate("by_failure", one, next((other for other in others if not other.symptom), others[0]))

    def _no_stop_makes(self, one: Hypothesis, stop: Hypothesis) -> bool:
        """Whether an exception after a signal that a program passes on is a mistake in the program's own code.

        After a scheduler's own word it is not: what the processes say then follows from the stop.
        """
        passed_on = stop.rule is not None and not stop.fatal
        mistake = (
            one.traceback is not None and one.category == "script" and not self.scene.taxonomy.has(one.reason, "of_a_stop")
        )
        return passed_on and mistake and one.event.source == stop.event.source and "raised" in one.signals

    def _by_specific(self, one: Hypothesis, told: list[Hypothesis]) -> None:
        """If an exception only wraps a message, or has none, a more exact line after it is the cause."""
        if one.rule is not None and one.rule.carries:
            _relate("by_specific", one, next((other for other in told if self._carried_by(other, one)), None))
        if one.traceback is None or one.traceback.exception is None:
            return
        bare = not one.traceback.message.strip()
        if not bare and one.rule is not None and not is_generic(one.rule):
            return
        for other in told:
            plain = other.traceback is None or not other.traceback.frames
            if plain and other is not one and other.event.source == one.event.source and "specific" in other.signals:
                more = 0 < other.event.line - one.event.line <= (_SUMMARY_LINES if bare else _MESSAGE_LINES)
                if more and not other.symptom and other.rule is not None and other.rule.layer != "user":
                    _relate("by_specific", one, other)
                    return

    def _carried_by(self, other: Hypothesis, one: Hypothesis) -> bool:
        """Whether it is the error that the runtime's line announces."""
        return (
            other.event.source == one.event.source
            and 0 < other.event.line - one.event.line <= _CARRIED_LINES
            and not other.symptom
            and "specific" in other.signals
        )

    def _by_better(self, one: Hypothesis, told: list[Hypothesis]) -> None:
        """Prefer the exception to what the same process logged just before it.

        An error that the exception says again in the same words came first, unless it was only a warning then.
        The kernel's lines are left as they are.
        """
        if one.kind == "rule" and not by_kernel(one) and not _CLASS.search(one.event.body) and "came_to" not in one.signals:
            speaker = speaker_of(one.event)
            for other in told:
                if (
                    other is not one
                    and other.traceback is not None
                    and (other.fatal or one.symptom)
                    and other.reason == one.reason
                    and self.scene.near(other, one)
                    and speaker_of(other.event) in ("", speaker)
                    and not speaker.startswith("(")
                    and not (self.scene.before(one, other) and _same_words(one, other) and not one.like.soft)
                ):
                    _relate("by_better", one, other)
                    break
        if one.kind == "rule" and _CAUGHT.match(one.event.body):
            _relate("by_better", one, next((f for f in told if self._raised_after(f, one)), None))
        if one.symptom and self.scene.taxonomy.has(one.reason, "seen_from_above"):
            waits = [f for f in told if f.symptom and f.reason != one.reason and self.scene.near(f, one)]
            waits = [f for f in waits if not self.scene.taxonomy.has(f.reason, "nameless")]
            if waits:
                _relate("by_better", one, waits[0])
        if one.reason in ("nccl_remote_error", "connection_error"):
            killed = [f for f in told if f.symptom and self.scene.near(f, one) and self._killed_first(f, one)]
            if killed and (one.symptom or self._lost_a_peer(one, killed)):
                _relate("by_killed", one, killed[0])
            if killed and not one.symptom and self._lost_a_peer(one, killed):
                _relate("by_cause", one, killed[0])

    def _raised_after(self, other: Hypothesis, one: Hypothesis) -> bool:
        """Whether it is an exception of one kind with an earlier one, and nobody caught it."""
        ended = other.traceback is not None and other.ends_process and other.reason == one.reason
        return ended and self.scene.before(one, other) and self.scene.near(one, other)

    def _lost_a_peer(self, one: Hypothesis, killed: Sequence[Hypothesis]) -> bool:
        """Whether the line tells that a peer is gone which had crashed before."""
        crashed = [
            f for f in killed if f.reason != "host_out_of_memory" and self.scene.near(f, one) and self.scene.before(f, one)
        ]
        return one.reason == "nccl_remote_error" and one.kind == "rule" and bool(crashed)

    def _killed_first(self, one: Hypothesis, peer: Hypothesis) -> bool:
        """Whether a process was killed so that its peer lost it. Who crashes may have lost its peer first: the order tells."""
        if one.reason == "host_out_of_memory":
            return True
        return self.scene.taxonomy.has(one.reason, "kills") and self.scene.before(one, peer)

    def _by_words(self, standing: Sequence[Hypothesis]) -> None:
        """Of the lines of one message that no rule knows, prefer one whose words say plainly what failed."""
        heard = [one for one in standing if one.kind == "line"]
        plain = [one for one in heard if one.words is not None and one.words.plain]
        for one in heard:
            if one.words is None or not one.words.plain:
                near = (
                    other
                    for other in plain
                    if other.event.source == one.event.source and abs(other.event.line - one.event.line) <= _MESSAGE_NEAR
                )
                better = next(near, None)
                _relate("by_better", one, better)
                if better is not None and "first_heard" in one.signals:
                    better.signals["first_heard"] = 1.0  # of this message

    def _by_silence(self, kinds: Sequence[Hypothesis]) -> None:
        hang = next((one for one in kinds if "stood_still" in one.signals or (one.kind == "dump" and not one.recovered)), None)
        if hang is not None:
            for one in kinds:
                if self.scene.taxonomy.has(one.reason, "stop"):
                    _relate("by_silence", one, hang)

    @cached_property
    def _topology(self) -> Topology:
        return read(self.scene.evidence.events)


def _relate(name: str, one: Hypothesis, other: Hypothesis | None) -> None:
    """Give ``one`` the signal ``name`` because of ``other``."""
    if other is not None and name not in one.signals:
        one.signals[name] = 1.0
        one.relations.append(Relation(name, other))


def _of_machine(one: Hypothesis) -> bool:
    """Whether a machine failed. That explains software failures, even if it is printed later."""
    if not one.fatal or one.symptom or one.rule is None:
        return False
    if one.rule.layer in ("hardware", "driver"):
        return True
    taxonomy = shipped_taxonomy()
    infrastructure = taxonomy.category_of.get(one.reason) == "infrastructure" and not taxonomy.has(one.reason, "stop")
    return one.rule.layer in ("host", "scheduler") and infrastructure


def _earlier_word(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether both are messages about one thing, such as a port error and the time-outs after it."""
    return one.reason == other.reason and one.traceback is None and other.traceback is None


def _same_exception(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether both are the same exception."""
    first, second = one.traceback, other.traceback
    if first is None or second is None:
        return one.reason == other.reason and normal(one.event.body) == normal(other.event.body)
    return first.type == second.type and normal(first.message) == normal(second.message)


def _same_words(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether an exception says again what a line said."""
    assert other.traceback is not None
    words = set(re.findall(r"[A-Za-z]{4,}", other.traceback.message.split("\n")[0].lower()))
    return len(words) >= 3 and 5 * len(words & set(re.findall(r"[A-Za-z]{4,}", one.event.body.lower()))) >= 3 * len(words)
