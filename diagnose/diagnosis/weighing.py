"""Hypotheses -> hypotheses with their signals: what speaks for and against each, and which of them explains which.

The module asks its questions in the order that an engineer would. Did the job go on after it? What kind of statement is it, and
who makes it? Where does it stand in the log? Which other line explains it? And what says that nothing failed at all?
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import islice, pairwise

from diagnose.compression.folds import Fold
from diagnose.compression.kept_log import Compression
from diagnose.diagnosis.candidates import MOST_KINDS, Candidates, detected, interpreter_warns, is_generic
from diagnose.diagnosis.counting import counted_up
from diagnose.diagnosis.detectors import findings
from diagnose.diagnosis.detectors.course import Course, Silence
from diagnose.diagnosis.evidence import Event, Evidence, normal
from diagnose.diagnosis.hypotheses import Hypothesis, Relation, captures, kind_of, raised_by, sort_of
from diagnose.diagnosis.likeness import heard, prose, says_done, takes_back
from diagnose.diagnosis.runs import launched_again
from diagnose.diagnosis.topology import Topology, expand, numbers, read, stopped
from diagnose.diagnosis.vocabulary import Sought
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.memory import remembered
from diagnose.reading.prefixes import body_start, clock, origin

_DEEP = {"hardware", "driver", "storage", "host", "scheduler", "network"}
_PATIENCE, _PATIENCE_DEEP, _PATIENCE_NUMBERS, _PATIENCE_ENDED = 2, 8, 20, 30
"""so many signs of progress after a fault mean that the job survived it: for most faults; for faults of machines; for odd
numbers; for what ended a process (other ranks may still have been on their way)
"""
_HELD_BACK = 8192
"""Python keeps so many bytes of its standard output back, if that goes into a file or a pipe"""
_NEAR_S, _NEAR_LINES = 300.0, 300
_CRASH_BACK = 100
_MESSAGE_LINES, _SUMMARY_LINES, _MESSAGE_NEAR = 12, 60, 4
"""the message of an exception takes up to so many lines; the summary after an exception without a message up to so many"""
_CARRIED_LINES = 2
"""so near behind the line with which a runtime announces it an error stands"""
_ABORTS, _ABORT_LINES = re.compile(r"(?i)\babort|SIGABRT|terminate called|libc\+\+abi"), 40
"""a process ended itself; why, it says in so many lines before that"""
_THROWN, _THROWN_LINES = re.compile(r"\s*what\(\): "), 3
_LAST_LINES = 10
_LAST_SAID = 5
"""among so many last lines, one that says that something was completed counts"""
_COUNTS, _TAIL = 5, 200
"""so many lines of one kind that count up are work; of the last so many that no rule knows"""
_REGULAR = 60
"""so many lines of one kind are regular work, not the echo of a failure"""
_SOFTLY = 0.4
"""the value of the signal "first" for a line that only has words of failure"""
_MUCH = 20
"""after so many calm lines, a line is an old story"""
_OFTEN = 4
_TIME_LIMIT = re.compile(r"(?i)\b(?:wall-?time|time ?limit|run ?limit|h_rt|s_rt)\b")
_SCRAP_LINES = 2
_KERNEL = re.compile(r"\bkernel: |^\[ *\d{1,8}\.\d{6}\] |\bNVRM: |^\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ ")
_CALM = re.compile(  # nothing is tried twice: a line of dashes would take minutes
    r"^\W*+(?:[\w.:,/+]++(?:-++(?!(?:INFO|DEBUG)\b)[\w.:,/+]++)*+\]?+[ \t|-]++){0,3}\W*+(?:INFO|DEBUG)\b|^\[ Info: "
)
_BAR = re.compile(r"\d%\|")
_TALKS = 2
_HEAD_LINES, _TELLING, _REPEATED, _BETWEEN, _RUN_LINES = 40, 20, 3, 60, 100
"""a log begins with so many lines; a line of this length can be recognised; so many recognised lines are a new start, unless
there was one within so many lines; so many lines after a new start are a run
"""
_BEFORE_LINES, _OWN, _OWN_LEAST, _SPAN_LINES = 120, 12, 6, 300
"""a run's own lines stand so near before its failure, are so long, and at least so many; they stand again within so many"""
_HELPER = re.compile(
    r"^(?:\S+: line \d+: )?(?:mkdir|rmdir|cp|mv|ln|rm|touch|tee|cat|chmod|chown|chgrp|ls|find|tar|rsync|tput|stty|ulimit|which"
    r"|grep|head|tail|wc|date|hostname|module|source|lscpu|lspci|numactl|nvidia-smi|ifconfig|ibstat|git)"
    r"(?:: |\b.*: command not found)"
)
"""what a script calls beside its program; without ``set -e`` it goes on where they fail"""
_PAST_LINES = 100
_WRITTEN_ON = 1000
"""more lines than a job prints while it is stopped"""
_COMPLAINT = re.compile(r"(?:\S+/)?[\w.-]+: line \d+: (?! *\d+ )|(?:-?bash|\S*sh): (?!line)\S+: ")
"""how a shell says that it could not do a line of a script"""
_STARTUP = re.compile(
    r"\S*(?:/\.?(?:bash|z|tcsh|c|k)(?:rc|_profile|_login|env)|/\.profile|/etc/profile\S*|/etc/bash\S*): line "
)
"""a file that a shell reads when it starts; what fails in it ends no job"""
_PROSE = 24
"""if a source has words of failure in lines of so many kinds, it holds texts"""
_WENT_ON = 20
"""so many lines later, what failed is no part of the shell's complaint"""
_STACK = re.compile(
    r"\s|#\d|frame #|\d+:? +(?:0x|/|\S+\()|0x[0-9a-f]{6}|\[<?[0-9a-f]{6}|at [\w.$<>/]+\(|\S+\+0x"
    r"|[-=*_#~]{5}|\S*$|[\w./-]+\.(?:go|cc|cpp|c|h):\d"
)
"""a line of a stack, of a table, or of a frame around a message; or a single word"""
_BACK = Sought(
    r"(?i)\b(?:now (?:responding|reachable|available|online|back)"
    r"|restored|re-?established|reconnected|recovered|is back|back online|came back"
    r"|link (?:is |becomes )?(?:up|ready|active)|restarted (?:ok|successfully)"
    r"|(?:reachable|available|responding) again|again (?:reachable|available))\b|\bserver \S+ OK$"
)
_NAMED = re.compile(r"\b(?=[\w.:/@-]*\d)(?=[\w.:/@-]*[A-Za-z])[\w.:/@-]{5,}\b")
"""names of machines, devices and services: they have letters and digits"""
_LOGGED = re.compile(r"\W*(?:[\w.]+ - )?ERROR\b")
_LIST_OF_NAMES = re.compile(r"\b[A-Za-z][\w-]*\[[\d,-]+\]")
_NEXT = 2
_ATTEMPT = re.compile(r"(?i)\b(?:attempt|try|retry|retries|trial)\W{0,3}(\d{1,4}) ?(?:/|of|out of) ?(\d{1,4})\b")
_OTHERWISE = re.compile(
    r"(?i)\b(?:fall(?:ing|s)? ?back|using (?:the )?(?:default|cached|cpu|slow|random)"
    r"|(?<!refuse to )(?<!cannot )(?<!not )continu(?:e|es|ing) (?:without|with|anyway)"
    r"|skipp(?:ed|ing)|ignor(?:ed|ing)|retry(?:ing)?|will (?:be )?(?:retry|use|try)|trying again|instead\b)"
)
_TIDIES = re.compile(
    r"(?i)\b(?:fail(?:ed|ure)?|unable|could ?n[o']t|cannot|can't|error)\b(?: (?:to|in|while|when|during))?"
    r" (?:properly |gracefully |cleanly )?"
    r"(?:disconnect(?:ing)?|clos(?:e|ing)|delet(?:e|ing)|remov(?:e|ing)|clean(?:ing)?[ -]?up|unlink(?:ing)?|shut(?:ting)? ?down"
    r"|destroy(?:ing)?|tear(?:ing)? ?down|finaliz(?:e|ing)|deregister(?:ing)?|unregister(?:ing)?)\b"
)
"""a program could not tidy up behind itself"""
_THING = r"\b(?P<noun>[A-Za-z]{3,})(?: ?#?(?P<number>\d+))?"
_AUX = r"(?: (?:has|is|was|have|attempt|call|request))?"
_DID = Sought(rf"(?i){_THING}{_AUX} (?:succeeded|successful(?:ly)?|finished|completed|passed)\b")
_UNDID = Sought(r"(?i)\b(?:not|un\w+ly|never|without|no) (?:\w+ )?(?:succe|complet|finish)|\berror|\bfail")
_FAILED = re.compile(rf"(?i){_THING}{_AUX} (?:failed|timed out|errored|failing|refused)\b")
_ENDS_SO = Sought(r"(?i)(?P<what>\w+ing \S+)[^.].*\.\.\. ?(?P<how>connected|done|ok|failed|error)\b")
"""what is begun and ended on one line: "Connecting to db ... connected." """
_TRIES = frozenset({"trial", "attempt", "try", "retry", "episode", "sample", "rollout"})
"""of these, each is one of many, and a program goes on to the next"""
_QUOTED = re.compile(r"print\(|echo |logger?\.|f\"")
_BARE = re.compile(r"\W*\w*(?:Error|Exception): *$")
_CLASS = re.compile(r"\b\w+(?:Error|Exception)\b")
_SAVES = re.compile(r"(?i)sav(?:e|ing)|checkpoint|evaluat|validat")
_OF = re.compile(rb"\b(\d+)/ *(\d+)\b")


def weigh(found: Candidates, evidence: Evidence, log: Compression, known: Collection[str] = ()) -> list[Hypothesis]:
    """One hypothesis per kind with its signals, in order of place. The last one is that nothing failed.

    ``known``: lines (as ``normal`` gives them) of runs that went well.
    """
    return Weighing(found, evidence, log, known).weigh()


class Weighing:
    def __init__(self, found: Candidates, evidence: Evidence, log: Compression, known: Collection[str] = ()) -> None:
        self.found, self.evidence, self.log, self.known = found, evidence, log, known
        self.taxonomy = shipped_taxonomy()
        self.driver = self.taxonomy.depth("driver")
        self.courses = [log.course(source) for source in range(len(evidence.sources))]
        self.ends = [log.lines_of(source) for source in range(len(evidence.sources))]
        self.last_step_at = [self._moment_of_progress(source) for source in range(len(evidence.sources))]
        self._back: dict[int, list[Event]] = {}
        """source -> lines that say that something is back"""
        for event in evidence.events:
            if _BACK.search(event.body):
                self._back.setdefault(event.source, []).append(event)
        self._starts: dict[int, list[int]] = {}
        self._launches: dict[int, list[tuple[int, int]]] = {}
        self.over: set[tuple[int, int]] = set()
        """(source, line) where a run was over before another one began"""
        self._own: dict[int, dict[str, list[int]]] = {}
        self._talks: dict[int, tuple[list[int], list[tuple[int, str | None]]]] = {}
        self._heard: dict[int, list[int]] = {}
        self._stacked: dict[int, list[int]] = {}
        self._tails: dict[int, list[list[Event]]] = {}
        self.all: list[Hypothesis] = []
        """every hypothesis, in order of place"""

    def weigh(self) -> list[Hypothesis]:
        for one in self.found.hypotheses:
            self._overcome(one)
        self._announced()
        self._alike()
        self.all = sorted(self.found.hypotheses, key=self.place)
        kinds = self._kinds()
        self._among_work(kinds)
        self._silences(kinds)
        kinds.sort(key=self.place)
        for one in kinds:
            self._said(one)
            self._placed(one)
        self._first(kinds)
        self._related(kinds)
        reasons = {one.reason for one in kinds if not one.recovered}
        for one in kinds:
            one.contested = len(reasons) > 1
        return [*kinds, self._healthy(kinds)]

    # --- did the job go on after it? --------------------------------------------------------------------------------------

    def _overcome(self, one: Hypothesis) -> None:
        if one.detector is not None and one.kind != "dump":
            return
        again = self._started_anew(one) or self._ran_again(one) or self._launched_again(one)
        if again or ((self._went_on(one) or self._works_on(one)) and not self.flushed_behind(one)):
            one.signals["survived"] = 1.0
        elif self._talks_on(one) or self._went_past(one) or self._helped(one) or self._others_wrote_on(one):
            one.signals["talked_on"] = 1.0
        elif self._well_again(one) or self._restored(one) or self._did_later(one):
            one.signals["well_again"] = 1.0
        if self.known and one.traceback is None and normal(one.event.body) in self.known:
            one.signals["known_good"] = 1.0
        caught = one.handled and (one.traceback is None or one.traceback.of_request)
        if caught and self.ends[one.event.source] - one.event.line > _LAST_LINES:
            one.ignored = True
        one.recovered = bool(one.signals) or one.ignored

    def _went_on(self, one: Hypothesis) -> bool:
        course, line = self.courses[one.event.source], one.event.line
        signs = max(course.signs_after(line), course.steps_gained(line))
        if signs < _PATIENCE or self._printed_late(one):
            return False
        return signs >= self._patience(one, anew=course.begins_anew(line))

    def _patience(self, one: Hypothesis, *, anew: bool) -> int:
        if self.taxonomy.has(one.reason, "numbers"):
            return _PATIENCE_NUMBERS
        if one.ends_process and not anew:
            return _PATIENCE_ENDED
        layer = one.rule.layer if one.rule else "user"
        deep = one.fatal and not one.symptom and layer in _DEEP and not self.taxonomy.has(one.reason, "stop")
        deep = deep and not anew  # no rank was on its way yet
        if (
            layer == "storage"
            and one.kind == "rule"
            and not by_kernel(one)
            and one.like.error
            and _LOGGED.match(one.event.body)
        ):
            deep = False  # the program caught it, logged it, and may do without that file
        return _PATIENCE_DEEP if deep else _PATIENCE

    def _printed_late(self, one: Hypothesis) -> bool:
        """Whether the clocks say that the progress after it in the log was made before it. One stream was then written late."""
        last = self.last_step_at[one.event.source]
        return last is not None and one.moment is not None and last < one.moment

    def flushed_behind(self, one: Hypothesis) -> bool:
        """Whether its process may have printed what stands behind it earlier.

        What Python still holds back of its standard output comes at the exit, behind the traceback of which it died. That is
        one buffer at most, and holds what was printed: loggers and progress bars hold nothing back. Where the work ended well,
        the job was started again.
        """
        source, line, counts = one.event.source, one.event.line, self.log.counts
        behind = (self.ends[source] - line) * counts.bytes_in / max(counts.lines_in, 1)
        if one.traceback is None or not one.ends_process or behind > _HELD_BACK:
            return False
        course = self.courses[source]
        fell_back = course.step_at(line) is not None and course.begins_anew(line)
        return not (fell_back or self._logged(source) or self._done or _reached_end(self.log.progress(source).last))

    @cached_property
    def _done(self) -> bool:
        """Whether the last lines say that something was completed, whatever failed before."""
        return self._says_done(())

    def _logged(self, source: int) -> bool:
        """Whether the lines of progress come from a logger or a progress bar."""
        last = self.log.progress(source).last
        text = last.decode("utf-8", "replace")
        return bool(_BAR.search(text) or _CALM.match(text) or origin(last).time)

    def _moment_of_progress(self, source: int) -> float | None:
        last = self.log.progress(source).last
        time = origin(last).time if last else None
        return clock(time) if time else None

    def _started_anew(self, one: Hypothesis) -> bool:
        """Whether the job was started again after it: the first lines of the log are repeated there, and a run follows them."""
        source, line = one.event.source, one.event.line
        if line < _HEAD_LINES + _BETWEEN or self.ends[source] - line < _RUN_LINES:
            return False
        if source not in self._starts:
            self._starts[source] = self._new_starts(source)
        at = next((start for start in self._starts[source] if start > line), None)
        return at is not None and self.ends[source] - at >= _RUN_LINES

    def _ran_again(self, one: Hypothesis) -> bool:
        """Whether the lines of its own run before it stand again behind it: the program was called again, and got further.

        Where several ranks write into one file, such lines stand there several times, so nothing is concluded.
        """
        traceback = one.traceback
        if traceback is None or not (one.ends_process or one.handled) or self._ranks_speak:
            return False
        lines = self._own_lines(one.event.source)
        if one.handled:  # whoever says again what it said before it goes on, or was called again
            return sum(at[0] < traceback.begin and at[-1] > one.event.line for at in lines.values()) >= _OWN_LEAST
        since = traceback.begin - _BEFORE_LINES
        own = {text: line for text, line in lines.items() if any(since <= at < traceback.begin for at in line)}
        if len(own) < _OWN_LEAST or any(sum(since <= at < traceback.begin for at in line) > 1 for line in own.values()):
            return False
        again = sorted(at for line in own.values() if (at := next((at for at in line if at > one.event.line), None)))
        return 5 * len(again) >= 4 * len(own) and again[-1] - again[0] <= _SPAN_LINES

    def _launched_again(self, one: Hypothesis) -> bool:
        """Whether the run that it belongs to was over, and the next one failed for a reason of its own."""
        source, line = one.event.source, one.event.line
        if source not in self._launches:
            self._launches[source] = launched_again(event for event in self.evidence.events if event.source == source)
        for over, over_again in self._launches[source]:
            if line <= over and any(
                other.event.source == source and over < other.event.line < over_again and other.fatal and not other.symptom
                for other in self.found.hypotheses
            ):
                self.over.add((source, over))
                return True
        return False

    def _own_lines(self, source: int) -> dict[str, list[int]]:
        """What a source says, as far as no rule knows it and no traceback claims it -> the lines where it says so."""
        if source not in self._own:
            self._own[source] = {}
            for event in self.found.unclaimed:
                if event.source == source and len(event.body) >= _OWN:
                    self._own[source].setdefault(normal(event.body), []).append(event.line)
        return self._own[source]

    def _went_past(self, one: Hypothesis) -> bool:
        """Whether a helper of the script failed, and the script went on for long, without another failure."""
        source, line = one.event.source, one.event.line
        plain = one.kind in ("rule", "line") and not one.fatal
        if not plain or _HELPER.match(one.event.body) is None or self.ends[source] - line < _PAST_LINES:
            return False
        return not any(self._fails(event) for event in self.evidence.events if event.source == source and event.line > line)

    def _others_wrote_on(self, one: Hypothesis) -> bool:
        """Whether a scheduler stopped a run, and much was written after that without a failure.

        A scheduler ends processes within a minute. What is written for longer is of another run with the same file.
        """
        source, line = one.event.source, one.event.line
        by_scheduler = one.rule is not None and one.rule.layer == "scheduler" and one.kind == "rule"
        if not by_scheduler or not self.taxonomy.has(one.reason, "stop") or self.ends[source] - line < _WRITTEN_ON:
            return False
        return not any(self._fails(event) for event in self.evidence.events if event.source == source and event.line > line)

    def _fails(self, event: Event) -> bool:
        """Whether a rule knows the line as a failure of more than a helper."""
        rule = self.evidence.rule(event)
        return rule is not None and rule.severity != "warning" and rule.reason != "healthy" and not _HELPER.match(event.body)

    def _works_on(self, one: Hypothesis) -> bool:
        """Whether a new kind of regular line begins after it, counts up, and goes on to the end. The program then works in
        numbers that no rule knows.

        If many ranks speak, their last lines look alike, so nothing is concluded.
        """
        source, line = one.event.source, one.event.line
        if one.layer <= self.taxonomy.depth("network") or self._ranks_speak:
            return False
        return any(
            fold.source == source and fold.first > line and self.ends[source] - fold.last <= _LAST_LINES for fold in self._work
        )

    def worked_before(self, one: Hypothesis) -> bool:
        """Whether regular lines before it count up: the job was then at work, in steps that no rule knows."""
        return any(fold.source == one.event.source and fold.first < one.event.line for fold in self._work)

    @cached_property
    def _ranks_speak(self) -> bool:
        return any(event.rank is not None for event in self.evidence.events)

    @cached_property
    def _work(self) -> list[Fold]:
        """The folds whose lines count up, nearly every time."""
        regular = {(fold.source, fold.first): fold for fold in self.log.folds() if fold.lines >= _REGULAR}
        if not regular:
            return []
        found = []
        for event in self.evidence.events:
            fold = regular.get((event.source, event.line))
            if fold is not None and counted_up(event.body, _body(fold.text), fold.folded // 2):
                found.append(fold)
        return found

    def _new_starts(self, source: int) -> list[int]:
        """The lines where the beginning of a source is repeated."""
        head: set[str] = set()
        seen: dict[str, int] = {}
        starts = []
        for event in self.evidence.events:
            if event.source != source or event.rule >= 0 or len(event.body) < _TELLING:
                continue
            text = normal(event.body)
            if event.line <= _HEAD_LINES:
                head.add(text)
            elif text in head:
                seen[text] = event.line
                if sum(event.line - at <= _HEAD_LINES for at in seen.values()) == _REPEATED:
                    starts.append(event.line)
        quiet = (now for last, now in pairwise([_HEAD_LINES, *starts]) if now - last >= _BETWEEN)
        return list(quiet)

    def _talks_on(self, one: Hypothesis) -> bool:
        """Whether a handler printed it (a traceback that does not begin at the top of the program, or what stands under a
        logger's line) and calm lines follow it.
        """
        traceback = one.traceback
        if traceback is None:
            handled = one.below is not None and one.event.rule >= 0
        else:
            handled = bool(traceback.frames) and (not traceback.from_top or traceback.caught) and one.event.rule >= 0
        if not handled:
            return False
        calm, loud = self._talk(one.event.source)
        below = _under(one)
        loudest = max((line for line, text in loud if below is None or text != below), default=0)
        last = max((line for line, _ in loud), default=0)
        return loudest <= one.event.line and len(calm) - bisect_right(calm, max(last, one.event.line)) >= _TALKS

    def _announced(self) -> None:
        """A logger's line of trouble is overcome with the exception that it announced."""
        handled = {
            one.traceback.under.order
            for one in self.found.hypotheses
            if one.traceback is not None and one.traceback.under is not None and one.recovered
        }
        for one in self.found.hypotheses:
            if one.kind in ("line", "rule") and one.traceback is None and one.event.order in handled and not one.recovered:
                one.signals["talked_on"] = 1.0
                one.recovered = True

    def _talk(self, source: int) -> tuple[list[int], list[tuple[int, str | None]]]:
        """(the calm lines of a source; the lines that a failure rule knows, with the logger's line above them)."""
        if source not in self._talks:
            spans = self._spans(source)
            calm: list[int] = []
            loud: list[tuple[int, str | None]] = []
            for event in self.evidence.events:
                if event.source != source:
                    continue
                if _CALM.match(event.text) or _CALM.match(event.body):
                    calm.append(event.line)
                    if (fold := self._folds.get((source, event.line))) is not None and fold.last > event.line:
                        calm.append(fold.last)
                elif (rule := self.evidence.rule(event)) is not None and rule.reason != "healthy":
                    loud.append((event.line, next((text for begin, end, text in spans if begin <= event.line <= end), None)))
            self._talks[source] = sorted(calm), loud
        return self._talks[source]

    def _spans(self, source: int) -> list[tuple[int, int, str]]:
        """Where the messages stand that go on below a logger's line of trouble: (first line, last line, that first line)."""
        found = []
        for one in self.found.hypotheses:
            if one.event.source == source and (text := _under(one)) is not None:
                above = one.below if one.traceback is None else one.traceback.under
                found.append((above.line if above is not None else one.event.line, one.event.line, text))
        return found

    def _well_again(self, one: Hypothesis) -> bool:
        """Whether a later line says that all is well with the job, or with the layer that failed."""
        for well in self.found.well:
            if well.source == one.event.source and well.line <= one.event.line:
                continue
            layer = self._layer_of(well)
            if layer == "framework":
                return True
            if not one.fatal and (self.taxonomy.depth(layer) == one.layer or one.kind == "line"):
                return True
        return False

    def _restored(self, one: Hypothesis) -> bool:
        """Whether a later line says that the thing that this line names is back."""
        if one.fatal or one.traceback is not None:
            return False
        later = self._back.get(one.event.source, ())
        if not later or later[-1].line <= one.event.line:
            return False
        if later[-1].line >= self.ends[one.event.source] and one.kind == "line":
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
            if any(failed_at(last.body, noun, number) for noun, number in succeeded(event.body)):
                return True
            if (here := _ENDS_SO.match(last.body[:200])) and (there := _ENDS_SO.match(event.body[:200])):
                return here["what"] == there["what"]
        return False

    @cached_property
    def _did(self) -> dict[int, list[Event]]:
        """source -> lines that say that something succeeded"""
        found: dict[int, list[Event]] = {}
        for event in self.evidence.events:
            body = event.body[:200]
            if (_DID.search(body) or _ENDS_SO.match(body)) and not _UNDID.search(body):
                found.setdefault(event.source, []).append(event)
        return found

    def _softened(self, one: Hypothesis) -> bool:
        """Whether it, or the next line from the same speaker, says that it is tried again or done in another way."""
        last = (one, *one.same)[-1].event
        behind = self.ends[last.source] - last.line  # as the last words it did not help
        if behind and tries_left(last.body):
            return True
        if behind > _NEXT and "warned" in one.signals and takes_back(last.body) and self._progressed:
            return True
        return self._otherwise(one.event)

    def _otherwise(self, said: Event) -> bool:
        """Whether one of the next lines from the same speaker says that it is tried again or done in another way."""
        speaker = _speaker(said)
        for event in self.evidence.events[said.order + 1 : said.order + 1 + _NEXT]:
            rule = self.evidence.rule(event)
            gentle = event.source == said.source and (rule is None or rule.severity == "warning")
            gentle = gentle and event.line < self.ends[event.source]  # as the last line of the source it did not help
            if gentle and _speaker(event) == speaker and _OTHERWISE.search(event.body):
                return True
        return False

    def _helped(self, one: Hypothesis) -> bool:
        """Whether it was tried again, and much was said after that: the new try helped."""
        noted = one.kind == "rule" and one.traceback is None and not one.fatal and not one.ends_process
        return noted and self.ends[one.event.source] - one.event.line >= _PAST_LINES and self._otherwise(one.event)

    @cached_property
    def _topology(self) -> Topology:
        return read(self.evidence.events)

    @cached_property
    def _progressed(self) -> bool:
        return any(course.signs_after(0) for course in self.courses) or bool(self._work)

    def _layer_of(self, well: Event) -> str:
        return self.evidence.rules[well.rule].layer or "framework"

    def _alike(self) -> None:
        """Mark what is like something that the job survived earlier.

        ``raised_by`` is slow, so the cheap ``sort_of`` is compared first.
        """
        every = self.found.hypotheses
        open_ = {sort_of(one) for one in every if not one.recovered and not one.fatal and not one.ends_process}
        survived = {raised_by(one) for one in every if "survived" in one.signals and sort_of(one) in open_}
        for one in every:
            if (
                not one.recovered
                and not one.fatal
                and not one.ends_process
                and sort_of(one) in open_
                and raised_by(one) in survived
            ):
                one.signals["survived_like"] = 1.0
                one.recovered = True

    def _kinds(self) -> list[Hypothesis]:
        """The first of each kind that the job did not survive, or else the first. The others of the kind go into ``same``."""
        kinds: dict[tuple[str, ...], Hypothesis] = {}
        for one in self.all:
            key = ("prose", str(one.event.source)) if self._in_text(one) else kind_of(one)
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

    def _among_work(self, kinds: Sequence[Hypothesis]) -> None:
        """Mark what was said often while lines went on to count up, to the end: the work does not need it.

        An environment of reinforcement learning fails so, or a reader that leaves out a sample.
        """
        for one in kinds:
            if one.recovered or one.fatal or one.ends_process or one.detector is not None or len(one.same) < _OFTEN:
                continue
            if one.layer <= self.taxonomy.depth("network"):
                continue
            lines = sorted(same.event.line for same in (one, *one.same) if same.event.source == one.event.source)
            if len(lines) > _OFTEN and (self._counts_on(one, lines[-_OFTEN]) or self._in_work(one, lines[-_OFTEN])):
                one.signals["survived_like"] = 1.0
                one.recovered = True

    def _in_work(self, one: Hypothesis, line: int) -> bool:
        """Whether lines that count up stand on both sides of a line, to the end of its source."""
        source = one.event.source
        return not self._ranks_speak and any(
            fold.source == source and fold.first < line and self.ends[source] - fold.last <= _LAST_LINES for fold in self._work
        )

    def _silences(self, kinds: list[Hypothesis]) -> None:
        """Add a hang if the job had stood still for long when it was stopped."""
        stops = [
            one
            for one in kinds
            if self.taxonomy.has(one.reason, "stop") and one.kind != "line" and not one.recovered and one.moment is not None
        ]
        if stops and (hang := self._silence_before(stops[0])) is not None:
            kinds.append(hang)
            self.all.append(hang)

    def _silence_before(self, end: Hypothesis) -> Hypothesis | None:
        last: tuple[float, int, int] | None = None
        rhythm: float | None = None
        for source in range(len(self.evidence.sources)):
            progress = self.log.progress(source)
            moments = [clock(time) if (time := origin(text).time) else None for text in (progress.first, progress.last)]
            began, at = moments
            if at is not None and (last is None or at > last[0]):
                last = at, source, progress.last_line
                found = self.log.series("step")
                steps = found[1].count if found else 0
                rhythm = (at - began) / (steps - 1) if began is not None and steps > 1 else None
        if last is None or end.moment is None:
            return None
        at, source, line = last
        said = [e for e in self.evidence.events if e.source == source and line < e.line < end.event.line and e.rule < 0]
        busy = any(_SAVES.search(e.text) for e in said)
        course = Course(silence=Silence(source, line, end.moment - at, rhythm, busy))
        return next((detected(anomaly, self.evidence) for anomaly in findings(course) if anomaly.reason is not None), None)

    # --- what kind of statement is it, and who makes it? ------------------------------------------------------------------

    def _said(self, one: Hypothesis) -> None:
        rule = one.rule
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
            nameless=one.symptom and self.taxonomy.has(one.reason, "nameless"),
            stop=self.taxonomy.has(one.reason, "stop"),
            specific=rule is not None and not is_generic(rule) and rule.severity != "warning",
            kernel=by_kernel(one),
            torn=torn(one),
        )

    def _stated(self, one: Hypothesis) -> None:
        """What kind of statement it is: a traceback, a dump of stacks, what a detector found, a line, or what a rule knows."""
        if one.traceback is not None:
            cut = one.traceback.exception is None and one.rule is None
            shown = one.handled or one.ignored or one.traceback.where == "thread"
            one.signals["unfinished" if cut else "shown" if shown else "raised"] = 1.0
        elif one.kind == "dump":
            _mark(one, dumped=True, others_wait=self.found.apart)
        elif one.detector is not None:
            one.signals["stood_still" if one.detector.detector == "hang" else "detected"] = 1.0
        elif one.kind == "line":
            self._sounds(one)
        else:
            severity = one.rule.severity if one.rule is not None else "error"
            one.signals[{"fatal": "fatal", "error": "noted"}.get(severity, "warned")] = 1.0

    def _leveled(self, one: Hypothesis) -> None:
        """How loudly the program says what a rule knows, where that differs from the rule."""
        like = one.like
        if one.rule is not None and one.rule.severity == "warning":
            _mark(one, level_fatal=like.fatal, level_error=like.error and not like.fatal)
        softly = like.soft or like.info or one.handled
        if softly and not by_kernel(one) and not self.taxonomy.has(one.reason, "stated"):
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
        ends = one.ends_process or self.taxonomy.has(one.reason, "stop")
        if (one.kind == "line" or "warned" in signals) and not ends and self._softened(one):
            signals["softened"] = 1.0
        if like.quoted:
            signals["quoted"] = 1.0
        if self._script_went_on(one):
            signals["went_on"] = 1.0

    def _script_went_on(self, one: Hypothesis) -> bool:
        """Whether a shell could not do a line of a script, and the script went on: to a program that failed by itself, or past
        its start-up files.
        """
        source, line, body = one.event.source, one.event.line, one.event.body
        if one.kind not in ("rule", "line") or one.fatal:
            return False
        if _STARTUP.match(body) is not None or _HELPER.match(body) is not None:
            return self.ends[source] - line > _LAST_LINES
        if _COMPLAINT.match(body) is None:
            return False
        return any(
            other.event.source == source and other.event.line - line >= _WENT_ON and self._ends_by_itself(other)
            for other in self.found.hypotheses
        )

    def _ends_by_itself(self, one: Hypothesis) -> bool:
        stop = one.symptom or self.taxonomy.has(one.reason, "stop")
        return one.traceback is not None and one.ends_process and not one.recovered and not stop

    def _accuses(self, one: Hypothesis) -> bool:
        """Whether the line names somebody other than its speaker."""
        found = captures(one.rule, one.event.body)
        ranks = numbers(found.get("rank", ""))
        if found.get("host") or found.get("node") not in (None, self.evidence.node_of(one.event)):
            return True
        return bool(ranks) and self.evidence.rank_of(one.event) not in ranks

    # --- where does it stand in the log? ----------------------------------------------------------------------------------

    def _times_said(self, one: Hypothesis) -> int:
        """The most times that a single rank said it, because every rank may say it once."""
        said = Counter((same.event.source, self.evidence.rank_of(same.event)) for same in (one, *one.same))
        return max(said.values())

    def _placed(self, one: Hypothesis) -> None:
        if one.detector is not None:
            return
        last = max((other.event.line for other in (one, *one.same) if other.event.source == one.event.source), default=0)
        behind = self.ends[one.event.source] - last
        if behind <= min(_LAST_LINES, self.ends[one.event.source] // 4):
            if not one.fatal:
                one.signals["last_words"] = 1.0
            if one.kind == "line" and one.like.loud and "softened" not in one.signals:
                one.signals["loud_end"] = 1.0
        elif one.kind == "line" or "warned" in one.signals or ("shown" in one.signals and one.handled):
            calm = behind - self._heard_after(one.event.source, last) - self._stacked_after(one.event.source, last)
            one.signals["followed"] = min(1.0, max(0, calm) / _MUCH)
        if (one.kind == "line" or "warned" in one.signals) and self._counts_on(one, last):
            one.signals["worked_on"] = 1.0
        if one.kind == "line" and self._times_said(one) > _OFTEN:
            one.signals["repeated"] = 1.0
        if self._in_text(one) or (one.kind == "line" and _only_words(one) and prose(one.event.body)):
            one.signals["prose"] = 1.0
        if ("warned" in one.signals or one.kind == "line") and self._scrap(one, behind):
            one.signals["scrap"] = 1.0

    def _in_text(self, one: Hypothesis) -> bool:
        return one.kind == "line" and one.event.source in self._prose and _only_words(one)

    @cached_property
    def _prose(self) -> set[int]:
        """The sources in which very many lines of different kinds have words of failure and nothing else: they hold texts.

        A source with a failure that is known is none of them: many lines may tell of that.
        """
        known = {one.event.source for one in self.found.hypotheses if one.kind != "line" and one.rule is not None}
        kinds = {(one.event.source, kind_of(one)) for one in self.found.hypotheses if one.kind == "line" and _only_words(one)}
        count = Counter(source for source, _ in kinds)
        return {source for source, many in count.items() if many >= _PROSE and source not in known}

    def _counts_on(self, one: Hypothesis, last: int) -> bool:
        """Whether lines of one kind stand after it up to the end of its source, in which a number rises."""
        if self._ranks_speak:
            return False
        source = one.event.source
        if source not in self._tails:
            self._tails[source] = self._tail(source)
        for lines in self._tails[source]:
            after = lines[bisect_right(lines, last, key=lambda event: event.line) :]
            if not after:
                continue
            fold = self._folds.get((source, after[0].line))
            many, text = (len(after), after[-1].body) if fold is None else (fold.lines, _body(fold.text))
            if many >= _COUNTS and counted_up(after[0].body, text, _COUNTS - 1):
                return True
        return False

    def _tail(self, source: int) -> list[list[Event]]:
        """The lines of each kind that a source ends with, if no rule knows the kind, it sounds calm and is of no stack."""
        kinds: dict[str, list[Event]] = {}
        near = self.ends[source] - _LAST_LINES
        here = (event for event in reversed(self.found.unclaimed) if event.source == source)
        for event in islice(here, _TAIL):
            if _STACK.match(event.body):
                continue
            fold = self._folds.get((source, event.line))
            kind = normal(event.body)
            if kind not in kinds and (event.line if fold is None else fold.last) > near:
                kinds[kind] = []
            if kind in kinds:
                kinds[kind].append(event)
        return [lines[::-1] for lines in kinds.values() if not heard(lines[0].text, lines[0].body).sounds]

    @cached_property
    def _folds(self) -> dict[tuple[int, int], Fold]:
        """Where a fold begins -> the fold."""
        return {(fold.source, fold.first): fold for fold in self.log.folds()}

    def _heard_after(self, source: int, line: int) -> int:
        """How many hypotheses stand after ``line`` in the source."""
        if source not in self._heard:
            self._heard[source] = sorted(one.event.line for one in self.all if one.event.source == source)
        return len(self._heard[source]) - bisect_right(self._heard[source], line)

    def _stacked_after(self, source: int, line: int) -> int:
        """How many lines after ``line`` belong to a stack, a table or a frame. They are part of what stands above them."""
        if source not in self._stacked:
            self._stacked[source] = [e.line for e in self.evidence.events if e.source == source and _STACK.match(e.body)]
        return len(self._stacked[source]) - bisect_right(self._stacked[source], line)

    def _scrap(self, one: Hypothesis, behind: int) -> bool:
        """Whether the log is an excerpt with little else in it: no step, no end, no recovery."""
        if self.found.well or any(course.signs_after(0) for course in self.courses):
            return False
        if one.rule is not None and one.rule.layer in ("hardware", "driver") and one.rule.action == "isolate_and_restart":
            return True
        if one.rule is not None and not self.taxonomy.has(one.reason, "reached"):
            return False
        return behind <= _SCRAP_LINES and 2 * (1 + len(one.same)) >= self.ends[one.event.source]

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

    def _first(self, kinds: Sequence[Hypothesis]) -> None:
        """Mark the first of each weight that the job did not survive."""
        seen: set[str] = set()
        for one in kinds:
            if one.recovered or ("softened" in one.signals and "scrap" not in one.signals and self._weight(one) == "heard"):
                continue  # the program knew another way
            if not self._is_fallout(one, kinds) and (weight := self._weight(one)) not in seen:
                seen.add(weight)
                soft = one.kind == "line" and not one.like.loud and (one.words is None or not one.words.plain)
                one.signals["first_heard" if weight == "heard" else "first"] = _SOFTLY if soft else 1.0

    def _weight(self, one: Hypothesis) -> str:
        if one.kind == "line" or "warned" in one.signals or "unfinished" in one.signals:
            return "heard"
        if one.symptom:
            return "nameless" if self.taxonomy.has(one.reason, "nameless") else "echo"
        if self.taxonomy.has(one.reason, "stop"):
            return "stop"
        return "end" if one.fatal else "noted"

    # --- which other line explains it? ------------------------------------------------------------------------------------

    def _related(self, kinds: list[Hypothesis]) -> None:
        standing = [one for one in kinds if not one.recovered]
        told = [
            one for one in standing if one.kind != "line" and "warned" not in one.signals and "unfinished" not in one.signals
        ]
        killed = [one for one in told if one.symptom and self.taxonomy.has(one.reason, "kills")]
        causes = [
            one for one in told if not one.symptom and not self._is_fallout(one, kinds) and not self._lost_a_peer(one, killed)
        ]
        ended = [one for one in causes if one.fatal and not self.taxonomy.has(one.reason, "stop")]
        noted = [one for one in causes if not one.fatal and not self.taxonomy.has(one.reason, "stop")]
        stops = [one for one in causes if self.taxonomy.has(one.reason, "stop")]
        for one in standing:
            self._by_specific(one, told)
        # A node that is taken away on purpose also falls silent.
        metal = [
            f
            for f in ended
            if of_machine(f)
            and "by_specific" not in f.signals
            and not (f.reason == "node_failure" and stops and self.before(stops[0], f))
        ]
        named = [one for one in metal if not self.taxonomy.has(one.reason, "seen_from_above")]
        for one in metal:
            one.signals["machine"] = 1.0
            if one in named:
                one.signals["named_machine"] = 1.0
        aborts = {id(one): self._fallout_of(one, kinds) for one in told if one.reason == "native_crash"}
        asked = [one for one in standing if "warned" in one.signals and self.taxonomy.has(one.reason, "stop")]
        for one in standing:
            self._by_machine(one, named, metal, noted)
            self._by_stop(one, stops or (asked if one.symptom else []))
            self._by_earlier(one, ended)
            self._by_deeper(one, noted)
            self._by_failure(one, told)
            self._by_death(one, ended)
            self._by_better(one, told)
            if self._is_fallout(one, kinds):
                relate("by_crash", one, self._fallout_of(one, kinds))
            if one.symptom and causes:
                relate("by_cause", one, causes[0])
            if one.kind == "line" or one.reason == "unknown":
                relate("by_known", one, next((other for other in told if aborts.get(id(other)) is not one), None))
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
            key = one.reason, self._weight(one)
            first = before.setdefault(key, one)
            if first is one or not self.near(first, one):
                continue
            if one.symptom and self._accuses(one) and not self._accuses(first):
                relate("by_better", first, one)  # of many that wait, this one says for whom
                before[key] = one
            else:
                relate("again", one, first)

    def _by_machine(self, one: Hypothesis, named: list[Hypothesis], metal: list[Hypothesis], noted: list[Hypothesis]) -> None:
        if one in metal:
            if one not in named and named:
                relate("by_machine", one, named[0])
            elif one is not metal[0] and one.reason != metal[0].reason:
                relate("by_earlier", one, metal[0])
            return
        worst = (named or metal)[0] if metal else None
        if worst is None:
            return
        milder = one in noted and one.reason == worst.reason and one.layer == worst.layer and self.near(one, worst)
        if milder and self.before(one, worst):
            relate("came_to", one, worst)
            one.graver = worst
            relate("by_better", worst, one)
        elif not milder:
            relate("by_machine", one, worst)

    def _by_stop(self, one: Hypothesis, stops: list[Hypothesis]) -> None:
        falls = self.taxonomy.has(one.reason, "of_a_stop") or one.reason == "node_failure"
        if stops and falls and self.before(stops[0], one):
            relate("by_stop", one, stops[0])

    def _by_who_stopped(self, told: list[Hypothesis], stops: list[Hypothesis]) -> None:
        """Choose which line says best who stopped the job: a fatal one such as the scheduler's own, else the first."""
        if not stops:
            return
        said = [one for one in told if self.taxonomy.has(one.reason, "stop") and self.near(one, stops[0])]
        best = next((one for one in said if one.fatal and one.traceback is None), said[0])
        for one in said:
            if one is not best:
                relate("by_better", one, best)
        if best.symptom:
            relate("came_to", best, stops[0])
            best.graver = stops[0]

    def _by_earlier(self, one: Hypothesis, ended: list[Hypothesis]) -> None:
        """An exception had already ended a process, so what came later did not end it."""
        told = "noted" in one.signals or one in ended
        if told and ended and not of_machine(one) and ended[0].reason != one.reason and self.before(ended[0], one):
            relate("by_earlier", one, ended[0])

    def _by_death(self, one: Hypothesis, ended: list[Hypothesis]) -> None:
        """Processes that wait in a dump may wait for one that died of something else, whichever was printed first."""
        died = [other for other in ended if other is not one and not self.taxonomy.has(other.reason, "of_a_stop")]
        if one.kind == "dump" and died:
            relate("by_cause", one, died[0])
            relate("by_earlier", one, died[0])

    def _by_deeper(self, one: Hypothesis, noted: list[Hypothesis]) -> None:
        """Find what was noted before a program died and explains why: from a lower layer, from the kernel, or the same
        exception.
        """
        if not one.fatal or one.symptom or of_machine(one):
            return
        before = [f for f in noted if f is not one and f.kind != "dump" and self.before(f, one)]
        deeper = next((f for f in before if not f.handled and self.near(f, one) and self._below(f, one)), None)
        if deeper is not None:
            relate("by_deeper", one, deeper)
        elif (same := next((f for f in before if same_exception(f, one)), None)) is not None:
            relate("by_better", one, same)
            relate("came_to", same, one)

    def _below(self, one: Hypothesis, other: Hypothesis) -> bool:
        return one.layer < other.layer or (one.layer == other.layer and (by_kernel(one) or earlier_word(one, other)))

    def _by_failure(self, one: Hypothesis, told: list[Hypothesis]) -> None:
        if not self.taxonomy.has(one.reason, "stop"):
            return
        if one.symptom:
            self._by_the_first_to_end(one, told)
            return
        for other in told:
            if other is one or self.taxonomy.has(other.reason, "stop"):
                continue
            if not self.before(other, one) and not self._no_stop_makes(other, one):
                continue
            if other.symptom and other.reason == "connection_error":
                continue
            if _TIME_LIMIT.search(one.event.body) and not (other.fatal or other.ends_process):
                continue  # the job ran on until its time was over
            relate("by_failure", one, other)
            return

    def _by_the_first_to_end(self, one: Hypothesis, told: list[Hypothesis]) -> None:
        """A launcher tells the others to stop when a rank has ended by itself: what that rank printed came before."""
        others = [other for other in told if not self.taxonomy.has(other.reason, "stop") and other.reason != "unknown"]
        if others and any(end.first and not stopped(end) for end in self._topology.ended):
            relate("by_failure", one, next((other for other in others if not other.symptom), others[0]))

    def _no_stop_makes(self, one: Hypothesis, stop: Hypothesis) -> bool:
        """Whether an exception after a signal that a program passes on is a mistake in the program's own code.

        After a scheduler's own word it is not: what the processes say then follows from the stop.
        """
        passed_on = stop.rule is not None and not stop.fatal
        mistake = one.traceback is not None and one.category == "script" and not self.taxonomy.has(one.reason, "of_a_stop")
        return passed_on and mistake and one.event.source == stop.event.source and "raised" in one.signals

    def _by_specific(self, one: Hypothesis, told: list[Hypothesis]) -> None:
        """If an exception only wraps a message, or has none, a more exact line after it is the cause."""
        if one.rule is not None and one.rule.carries:
            relate("by_specific", one, next((other for other in told if self._carried_by(other, one)), None))
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
                    relate("by_specific", one, other)
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
        """Prefer the exception to what the same process logged just before it, unless it says the same words again.

        The kernel's lines are left as they are.
        """
        if one.kind == "rule" and not by_kernel(one) and not _CLASS.search(one.event.body) and "came_to" not in one.signals:
            speaker = _speaker(one.event)
            for other in told:
                if (
                    other is not one
                    and other.traceback is not None
                    and (other.fatal or one.symptom)
                    and other.reason == one.reason
                    and self.near(other, one)
                    and _speaker(other.event) in ("", speaker)
                    and not speaker.startswith("(")
                    and not (self.before(one, other) and _same_words(one, other))
                ):
                    relate("by_better", one, other)
                    break
        if one.symptom and self.taxonomy.has(one.reason, "seen_from_above"):
            waits = [f for f in told if f.symptom and f.reason != one.reason and self.near(f, one)]
            waits = [f for f in waits if not self.taxonomy.has(f.reason, "nameless")]
            if waits:
                relate("by_better", one, waits[0])
        if one.reason in ("nccl_remote_error", "connection_error"):
            killed = [f for f in told if f.symptom and self.near(f, one) and self._killed_first(f, one)]
            if killed and (one.symptom or self._lost_a_peer(one, killed)):
                relate("by_killed", one, killed[0])
            if killed and not one.symptom and self._lost_a_peer(one, killed):
                relate("by_cause", one, killed[0])

    def _lost_a_peer(self, one: Hypothesis, killed: Sequence[Hypothesis]) -> bool:
        """Whether the line tells that a peer is gone which had crashed before."""
        crashed = [f for f in killed if f.reason != "host_out_of_memory" and self.near(f, one) and self.before(f, one)]
        return one.reason == "nccl_remote_error" and one.kind == "rule" and bool(crashed)

    def _killed_first(self, one: Hypothesis, peer: Hypothesis) -> bool:
        """Whether a process was killed so that its peer lost it. Who crashes may have lost its peer first: the order tells."""
        if one.reason == "host_out_of_memory":
            return True
        return self.taxonomy.has(one.reason, "kills") and self.before(one, peer)

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
                relate("by_better", one, better)
                if better is not None and "first_heard" in one.signals:
                    better.signals["first_heard"] = 1.0  # of this message

    def _by_silence(self, kinds: Sequence[Hypothesis]) -> None:
        hang = next((one for one in kinds if "stood_still" in one.signals or (one.kind == "dump" and not one.recovered)), None)
        if hang is not None:
            for one in kinds:
                if self.taxonomy.has(one.reason, "stop"):
                    relate("by_silence", one, hang)

    def _is_fallout(self, one: Hypothesis, kinds: Sequence[Hypothesis]) -> bool:
        """Whether a process aborted right after another fault, and so because of it."""
        return self._fallout_of(one, kinds) is not None

    def _fallout_of(self, one: Hypothesis, kinds: Sequence[Hypothesis]) -> Hypothesis | None:
        if one.reason != "native_crash" or one.recovered:
            return None
        for other in kinds:  # a C++ program that aborts prints what was thrown in the next lines
            more = other.event.line - one.event.line
            if other.event.source == one.event.source and 0 < more <= _THROWN_LINES and _THROWN.match(other.event.body):
                return other if other.reason not in (one.reason, "unknown") and not other.recovered else None
        back = [f for f in kinds if not f.recovered and f.kind != "line" and "warned" not in f.signals and self.before(f, one)]
        back = [f for f in back if not (f.symptom and self.taxonomy.has(f.reason, "nameless"))]  # which says no cause
        because = next((f for f in back[-_CRASH_BACK:] if f.reason != one.reason and self.near(f, one)), None)
        return because or (self._said_before_abort(one, kinds, back) if _ABORTS.search(one.event.body) else None)

    def _said_before_abort(
        self, one: Hypothesis, kinds: Sequence[Hypothesis], known: Sequence[Hypothesis]
    ) -> Hypothesis | None:
        """What a program said before it ended itself: who calls abort() says why, be it in words that no rule knows."""
        source, line = one.event.source, one.event.line
        since = max((f.event.line for f in known if f.event.source == source and f.event.line < line), default=0)
        said = [
            f
            for f in kinds
            if f.kind == "line"
            and not f.recovered
            and f.event.source == source
            and max(since, line - _ABORT_LINES) < f.event.line < line
            and not f.like.soft
            and not f.like.info
            and "softened" not in f.signals
        ]
        plain = [f for f in said if f.words is not None and f.words.plain and f.reason != one.reason]
        return next(iter(plain), next((f for f in said if f.like.loud), None))

    # --- that nothing failed -----------------------------------------------------------------------------------------------

    def _healthy(self, kinds: Sequence[Hypothesis]) -> Hypothesis:
        nothing = Hypothesis(
            Event(-1, 0, 0, "", -1, 0),
            None,
            "healthy",
            self.taxonomy.depth("framework"),
            False,
            False,
            kind="healthy",
        )
        signals = nothing.signals
        signals["nothing_failed"] = 1.0
        standing = [one for one in kinds if not one.recovered]
        if self._ended_well(standing):
            signals["ended_well"] = 1.0
        moving = [source for source in range(len(self.ends)) if self.courses[source].signs_after(0)]
        if not moving and not self._work:
            signals["no_progress"] = 1.0
        elif moving and not any(one.detector is not None and one.detector.to_the_end for one in standing):
            after = all(self.log.progress(one.event.source).last_line > one.event.line for one in standing)
            if after:
                signals["progress"] = 1.0
            if any(_reached_end(self.log.progress(source).last) for source in moving):
                signals["reached_end"] = 1.0
        # An excerpt of a few lines has no end of its own.
        regular = max(self.ends, default=0) >= 2 * _LAST_LINES or 3 * len(self.evidence.events) <= 2 * sum(self.ends)
        if regular and not any("last_words" in one.signals for one in standing):
            signals["calm_end"] = 1.0
        if self._says_done(standing) and not any("detected" in one.signals for one in standing):
            signals["good_end"] = 1.0
        return nothing

    def _says_done(self, standing: Sequence[Hypothesis]) -> bool:
        """Whether one of the last lines of a source says that something was completed, and no known failure comes after it.

        A script that says goodbye does not know yet what its launcher is about to say of it.
        """
        known = [one.event for one in standing if one.kind != "line" and "warned" not in one.signals]
        for event in reversed(self.evidence.events):
            if self.ends[event.source] - event.line >= _LAST_SAID:
                continue
            if any(later.source == event.source and later.line > event.line for later in known):
                continue
            sound = heard(event.text, event.body)
            if says_done(event.body) and not sound.sounds and not _QUOTED.search(event.body):
                return True
        return False

    def _ended_well(self, standing: Sequence[Hypothesis]) -> bool:
        """Whether a line says that the job ended well, and no failure follows it.

        A program can say this only of its process. It cannot know that its numbers went wrong, such as a loss that rose and
        stayed.
        """
        if any("detected" in one.signals for one in standing):
            return False
        for well in self.found.well:
            if self._layer_of(well) != "framework":
                continue
            later = (one for one in standing if one.event.source == well.source and one.event.line > well.line)
            if not any(one.kind != "line" and "warned" not in one.signals for one in later):
                return True
        return False


def tries_left(body: str) -> bool:
    """Whether the line says which of several attempts failed, and that it was not the last."""
    found = _ATTEMPT.search(body)
    return found is not None and int(found[1]) < int(found[2])


def succeeded(body: str) -> list[tuple[str, str]]:
    """What a line says succeeded: (noun, its number)."""
    return [(found["noun"].lower(), found["number"] or "") for found in _DID.whole.finditer(body[:200])]


def failed_at(body: str, noun: str, number: str) -> bool:
    """Whether a line says that the same failed. Of trials and attempts another one may succeed."""
    for found in _FAILED.finditer(body[:200]):
        same = (found["number"] or "") == number or noun in _TRIES
        if found["noun"].lower() == noun and same:
            return True
    return False


def relate(name: str, one: Hypothesis, other: Hypothesis | None) -> None:
    """Give ``one`` the signal ``name`` because of ``other``."""
    if other is not None and name not in one.signals:
        one.signals[name] = 1.0
        one.relations.append(Relation(name, other))


def of_machine(one: Hypothesis) -> bool:
    """Whether a machine failed. That explains software failures, even if it is printed later."""
    if not one.fatal or one.symptom or one.rule is None:
        return False
    if one.rule.layer in ("hardware", "driver"):
        return True
    taxonomy = shipped_taxonomy()
    infrastructure = taxonomy.category_of.get(one.reason) == "infrastructure" and not taxonomy.has(one.reason, "stop")
    return one.rule.layer in ("host", "scheduler") and infrastructure


def by_kernel(one: Hypothesis) -> bool:
    """Whether the kernel printed it. The kernel knows the machine better than any process."""
    return _KERNEL.search(one.event.text[:120]) is not None


def _only_words(one: Hypothesis) -> bool:
    like = one.like
    return not (like.fatal or like.error or like.soft or like.exception or like.exit)


def _mark(one: Hypothesis, **signals: object) -> None:
    """Give it the signals that hold, in this order."""
    one.signals.update((name, 1.0) for name, holds in signals.items() if holds)


def torn(one: Hypothesis) -> bool:
    """Whether other ranks wrote into the exception line, or cut off its message."""
    if one.traceback is not None:
        return re.match(r"(?:\w+(?:Error|Exception)\b|Exception\b(?! \w))", one.traceback.message) is not None
    return one.kind == "rule" and _BARE.match(one.event.body) is not None


def earlier_word(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether both are messages about one thing, such as a port error and the time-outs after it."""
    return one.reason == other.reason and one.traceback is None and other.traceback is None


def same_exception(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether both are the same exception."""
    first, second = one.traceback, other.traceback
    if first is None or second is None:
        return one.reason == other.reason and normal(one.event.body) == normal(other.event.body)
    return first.type == second.type and normal(first.message) == normal(second.message)


@remembered
def _names(body: str) -> set[str]:
    """The machines, devices and services that a line names; those of a list of Slurm one by one."""
    return {name for word in _LIST_OF_NAMES.findall(body) for name in expand(word)} | set(_NAMED.findall(body))


def _under(one: Hypothesis) -> str | None:
    """The logger's line above it, without numbers."""
    above = one.below if one.traceback is None else one.traceback.under
    return normal(above.body) if above is not None else None


def _body(line: bytes) -> str:
    return line[body_start(line) :].decode("utf-8", "replace")


def _same_words(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether an exception says again what a line said."""
    assert other.traceback is not None
    words = set(re.findall(r"[A-Za-z]{4,}", other.traceback.message.split("\n")[0].lower()))
    return len(words) >= 3 and 5 * len(words & set(re.findall(r"[A-Za-z]{4,}", one.event.body.lower()))) >= 3 * len(words)


def _speaker(event: Event) -> str:
    """The prefix of the line without its time."""
    return re.sub(r"[\d:.,TZ/-]{8,}", "", event.text[: event.start]).strip(" []")


def _reached_end(progress: bytes) -> bool:
    """Whether a line of progress says that the last step was made, such as ``100/100``."""
    found = _OF.search(progress)
    return found is not None and found[1] == found[2] and int(found[1]) > 1
