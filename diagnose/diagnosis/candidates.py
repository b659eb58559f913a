"""Events -> hypotheses: everything in the log that may be why the job failed. The choice comes later.

Candidates are chains of tracebacks, lines that a failure rule knows, lines that sound like a failure although no rule knows
them, and what detectors find in the numbers and the times.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import regex

from diagnose.compression.kept_log import NOTABLE, Compression
from diagnose.diagnosis.announced import announced
from diagnose.diagnosis.detectors import findings
from diagnose.diagnosis.detectors.course import Anomaly, Course
from diagnose.diagnosis.evidence import Event, Evidence, normal
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.likeness import Likeness, bullet, heard, is_warning, level, listed, set_aside, takes_back
from diagnose.diagnosis.runs import Runs, last_start
from diagnose.diagnosis.stacks import Picture
from diagnose.diagnosis.subjects import about
from diagnose.diagnosis.tracebacks import Traceback, assemble
from diagnose.diagnosis.vocabulary import Sought
from diagnose.knowledge.rules import Rule
from diagnose.knowledge.taxonomy import Taxonomy, shipped_taxonomy

_LOOKUPS = {
    "KeyError",
    "AttributeError",
    "ImportError",
    "ModuleNotFoundError",
    "IndexError",
    "StopIteration",
    "FileNotFoundError",
    "TypeError",
    "LookupError",
    "NotImplementedError",
    "Empty",
}
"""programs raise these exceptions to ask a question; the handler may then fail for its own reason"""
_REDIRECTED = re.compile(r"HTTP Error 30\d\b")
"""the answer of a server that what is sought stands elsewhere: Python's library raises it as an exception"""
_LOGGER = re.compile(r"(?i)\b(?:debug|info|warn(?:ing)?|error|critical|exception)\b")
_SOFTLY = re.compile(
    r"^\W*+(?:[\w.:-]++ ){0,3}\W*+(?:DEBUG|INFO|WARN(?:ING)?)\b|^\W*(?:Warning|warning): "
    r"|^(?:\S+ )?[WIDV] [\w./-]+\.(?:cc|cpp|h):\d+\]|^\[\S+ \S+ [WID] \d+ \d+\]"
)
_CARRIED = re.compile(r"Caught (?P<type>[A-Za-z_][\w.]*) in (?:DataLoader worker|replica|pin memory thread)")
_FABRIC = re.compile(
    r"\b(?:UCX|OFI|libfabric|ibv_\w+|mlx[45]_?\w*|RDMA|rdma|psm[23]|verbs|libibverbs|HFI|hfi1|openib"
    r"|NET/\w+|EFA|queue pair|QP)\b"
)
"""the line is about a network fabric, so an errno in it is the fabric's"""
_ABOVE_FABRIC = {"storage", "host", "framework", "user"}
_LIST_LINES = 10
_MESSAGE = 3
"""a logger's message, or what is said to be ignored, goes on in so many lines"""
_CONTINUES = re.compile(r"[│└] |\s|(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Failure|Interrupt)\b(?:: |$)")
"""how the next line of a message begins: the class of an exception, or the side of a box"""
_BOX = re.compile(r"[│└] ")
_BOXED = re.compile(r"┌ (?P<level>Warning|Error|Info|Debug): ")
_WARNS, _WARNING_LINES = re.compile(r":\d+: \w*Warning: "), 15
"""an interpreter begins to warn; so many lines later it quotes the line of the program, at most"""
_ANNOUNCED = {"error": 1, "words": 1}
"""how a line sounds that another announces as an error"""
_LEFT = re.compile(r"(?:.*\.)?SystemExit\Z")
_CUT_LINES = 4
"""after a traceback that the end of the log cut off, so many lines may still follow: its source lines and marks"""
MOST_KINDS = 240
"""most kinds of hypotheses that are weighed; if there are more, the first and the last of them"""
_LEAST_KINDS = 24
"""of so many kinds at each end of a source the words are read, however many sources there are"""
_LINE_CANDIDATES = 64
"""so many of the lines that no rule knows are taken at each end"""
_TRANSPORT_LEAST, _TRANSPORT_SHARE = 10, 0.95
_TRANSPORT_SAMPLE, _TRANSPORT_SAMPLED = 50, 0.8


@dataclass(slots=True)
class Candidates:
    """All that was found, in order of place."""

    hypotheses: list[Hypothesis]
    well: list[Event]
    """lines that say that all is well (again)"""
    notes: list[str] = field(default_factory=list)
    unclaimed: list[Event] = field(default_factory=list)
    """lines that no rule knows and that belong to no traceback"""
    apart: bool = False
    """dumps show that some ranks wait for others, which are elsewhere"""
    runs: Runs = field(default_factory=Runs)


def candidates(evidence: Evidence, log: Compression, picture: Picture | None = None, *, running: bool = False) -> Candidates:
    """The hypotheses that the evidence offers, with those of the detectors.

    ``picture``: what the dumps in the log show. Lines of dumps are not messages.
    """
    return _Reading(evidence, log, picture, running).read()


class _Reading:
    def __init__(self, evidence: Evidence, log: Compression, picture: Picture | None, running: bool) -> None:
        self.evidence, self.log, self.picture, self.running = evidence, log, picture, running
        self.taxonomy: Taxonomy = shipped_taxonomy()
        self.found = Candidates([], [])

    def read(self) -> Candidates:
        for events in self.evidence.by_source():
            self._source(events)
        self.found.runs = runs = Runs.among(len(self.evidence.sources), self.log, self.found.hypotheses, self.evidence.events)
        self.found.well = [event for event in self.found.well if event.line >= runs.last(event.source)]
        if runs.count > 1:
            self.found.notes.append(runs.sentence)
        self._course()
        for events in self.evidence.by_source():
            last_run = [event for event in events if event.line >= runs.last(event.source)]
            if (run := overflows(last_run, self.log)) is not None:
                self.found.hypotheses.append(detected(run, self.evidence))
        if self.picture is not None and self.picture.stood:
            self.found.hypotheses.append(self._dumped(self.picture))
            self.found.apart = self.picture.apart
        return self.found

    def _source(self, events: list[Event]) -> None:
        transport = transport_level(events, self.log)
        if (picture := self.picture) is not None:
            # In a dump, the name of a function or of a collective is not a message.
            events = [event for event in events if not picture.covers(event.source, event.line)]
        tracebacks, claimed = assemble(events, self._judged)
        raised = self._raised(tracebacks) + self._unfinished(tracebacks, events)
        # The message of an exception goes on for a few lines.
        explained = {(one.event.line + more, one.reason) for one in raised for more in (1, 2, 3)}
        noisy = []
        claimed |= self._warned(events)
        free = [event for event in events if event.order not in claimed and event.rule != NOTABLE]
        told = announced(free, self._judged)
        for number, event in enumerate(events):
            if event.order in claimed or event.rule == NOTABLE or event.order in told.banners:
                continue
            body = event.body
            possible = bullet(body) and self._in_a_list(events, number)
            rule = self.evidence.rule(event)
            if rule is not None and rule.reason == "healthy":
                if not rule.symptom:  # else it does no harm, and vouches for nothing
                    self.found.well.append(event)
            elif rule is not None:
                if (event.line, rule.reason) not in explained:
                    one = self._known(event, rule, transport, possible)
                    self._below(one, events, number)
                    self._carried(one, events, number)
                    one.sound = one.like._replace(**_ANNOUNCED) if event.order in told.messages else one.sound
                    if one.kind != "line" or one.like.sounds:
                        raised.append(one)
            else:
                self.found.unclaimed.append(event)
                if (noise := self._noise(event, transport, possible, event.order in told.messages)) is not None:
                    noisy.append(noise)
        if len(noisy) > 2 * _LINE_CANDIDATES:
            noisy = noisy[:_LINE_CANDIDATES] + noisy[-_LINE_CANDIDATES:]
        most = max(_LEAST_KINDS, MOST_KINDS // max(1, len(self.evidence.sources)))
        for one in (*_outer([one for one in raised if one.kind == "line"], most), *noisy):
            _by_its_words(one, one.event.body)
        self.found.hypotheses += raised + noisy

    def _below(self, one: Hypothesis, events: Sequence[Event], number: int) -> None:
        """Notice whose message the line continues: a logger's, or what the interpreter says that it ignored."""
        event = one.event
        if one.kind != "rule" or not _CONTINUES.match(event.body):
            return
        back = [before for before in events[max(0, number - _MESSAGE) : number] if event.line - before.line <= _MESSAGE]
        if not back:
            return
        if any(before.body.startswith("Exception ignored in") for before in back):
            one.ignored = True
        above = back[-1]
        boxed = _BOX.match(event.body)
        while boxed and back and _BOX.match(back[-1].body):
            back.pop()
        if boxed and back:
            above = back[-1]
        if (boxed or above.line == event.line - 1) and (said := _level_of(above)) in ("soft", "error"):
            one.below = above
            one.handled = one.handled or said == "soft"

    def _carried(self, one: Hypothesis, events: Sequence[Event], number: int) -> None:
        """Read the error from the next line if a runtime announces it there ("panicked at src/main.rs:7:5:")."""
        if one.rule is None or not one.rule.carries or not one.event.body.rstrip().endswith(":") or number + 1 == len(events):
            return
        after = events[number + 1]
        if after.line == one.event.line + 1 and not self._judged(after):
            self._by_its_message(one, after.body)

    def _in_a_list(self, events: Sequence[Event], number: int) -> bool:
        """Whether one of the lines just before announces a list of possibilities."""
        line = events[number].line
        back = events[max(0, number - _LIST_LINES) : number]
        return any(line - event.line < _LIST_LINES and listed(event.body) for event in back)

    def _judged(self, event: Event) -> bool:
        rule = self.evidence.rule(event)
        return rule is not None and rule.severity != "warning"

    def _warned(self, events: Sequence[Event]) -> set[int]:
        """The lines of an interpreter's warning behind its first, up to the line of the program that it quotes (by order)."""
        more: set[int] = set()
        for number, event in enumerate(events):
            if "arning: " not in event.body or _WARNS.search(event.body[:400]) is None:
                continue
            text: list[int] = []
            for next_ in events[number + 1 : number + 1 + _WARNING_LINES]:
                if next_.line - event.line > _WARNING_LINES or self._judged(next_) or _WARNS.search(next_.body[:400]):
                    break
                if next_.body.startswith("  "):
                    more.update(text)
                    break
                text.append(next_.order)
        return more

    # --- lines -----------------------------------------------------------------------------------------------------------

    def _known(self, event: Event, rule: Rule, transport: str | None, possible: bool) -> Hypothesis:
        """The hypothesis for a line that a rule knows."""
        reason = rule.reason or "unknown"
        one = self._of_rule(event, rule)
        one.transport, one.possible = transport, possible
        if is_warning(event.body):
            one.ignored = True  # after a warning the interpreter goes on: it never ends a program
        elif rule.severity == "warning" and not rule.symptom and self.taxonomy.has(reason, "nameless"):
            # The rule says that the line sounds like a failure, but not which one.
            one.kind, one.reason, one.rule = "line", "unknown", None
        elif (
            transport not in ("soft", "info")
            and not self.taxonomy.has(reason, "stated")
            and _SOFTLY.match(event.body) is not None
        ):
            # A logger that only warns of an exception has caught it. As the last line it may be all that is left.
            one.handled, one.ignored = True, takes_back(event.body)
        elif not self._of_fabric(rule, one):
            self._by_its_message(one, event.body)
        else:
            # Words of a lower layer in a line from a higher one.
            one.reason, one.layer, one.rule = "network_error", self.taxonomy.depth("network"), None
            one.fatal = False
        return one

    def _by_its_message(self, one: Hypothesis, message: str) -> None:
        """Set the reason from the message of an exception, if its class says nothing and the message says it plainly."""
        rule = one.rule
        if rule is not None and not rule.carries and not (is_generic(rule) and self.taxonomy.has(one.reason, "general")):
            return
        if (told := about(message)) is not None and told.plain and (rule is None or told.reason != rule.reason):
            _by_its_words(one, message)
            if rule is not None and rule.carries and one.words is not None:
                one.symptom = False  # it says why

    def _of_fabric(self, rule: Rule, one: Hypothesis) -> bool:
        above = rule.layer in _ABOVE_FABRIC and not rule.symptom and rule.severity != "warning"
        return above and _FABRIC.search(one.event.body[:200]) is not None and not one.like.soft and not one.like.info

    def _of_rule(self, event: Event, rule: Rule) -> Hypothesis:
        return Hypothesis(
            event=event,
            rule=rule,
            reason=rule.reason or "unknown",
            layer=self.taxonomy.depth(rule.layer),
            fatal=rule.severity == "fatal",
            symptom=rule.symptom,
        )

    def _noise(self, event: Event, transport: str | None, possible: bool, is_message: bool) -> Hypothesis | None:
        """The hypothesis for a line that no rule knows, if it sounds like a failure or another line announces it as one."""
        sound = set_aside(heard(event.text, event.body), transport)
        if is_message:
            sound = sound._replace(**_ANNOUNCED)
        if not sound.sounds:
            return None
        return self._heard(event, sound._replace(listed=1) if possible else sound)

    def _heard(self, event: Event, sound: Likeness) -> Hypothesis:
        """The hypothesis for a line that sounds like a failure and that no rule knows."""
        layer = self.taxonomy.depth("user")
        ignored = is_warning(event.body)
        return Hypothesis(event, None, "unknown", layer, False, False, kind="line", sound=sound, ignored=ignored)

    # --- tracebacks ------------------------------------------------------------------------------------------------------

    def _raised(self, tracebacks: Sequence[Traceback]) -> list[Hypothesis]:
        inner = {id(one.previous) for one in tracebacks}
        found = []
        for traceback in tracebacks:
            if id(traceback) not in inner and (one := self._chain(traceback)) is not None:
                found.append(one)
        return found

    def _unfinished(self, tracebacks: Sequence[Traceback], events: Sequence[Event]) -> list[Hypothesis]:
        """A traceback that the end of the log cut off. Something was raised, but the log does not say what, unless it shows the
        line that raised it. If it followed from another exception, that one is the answer.
        """
        last = tracebacks[-1] if tracebacks else None
        if last is None or any(one.exception is not None for one in last.chain()):
            return []
        if not last.frames and last.headless:
            return []
        if self.log.lines_of(last.source) - last.end > _CUT_LINES:
            return []
        event = next((event for event in reversed(events) if event.line <= last.end), None)
        if event is None:
            return []
        layer = self.taxonomy.depth("user")
        one = Hypothesis(event, None, "unknown", layer, last.where == "main", False)
        if last.raises is not None and last.raised_type is not None and (rule := self._of_class(last.raised_type)) is not None:
            one = self._of_rule(last.raises, rule)
            one.fatal = last.where == "main"
        one.kind, one.traceback, one.handled = "traceback", last, bool(_LOGGER.search(last.lead))
        return [one]

    def _chain(self, last: Traceback) -> Hypothesis | None:
        """The hypothesis for one chain of tracebacks."""
        links = [one for one in last.chain() if one.exception is not None]
        if not links:
            return None
        chosen = self._first_cause(links)
        event = chosen.exception
        assert event is not None
        rule = self._rule_of(chosen)
        if rule is not None and rule.severity != "warning":
            one = self._of_rule(event, rule)
        else:
            symptom = rule is not None and rule.symptom
            one = Hypothesis(event, None, "runtime_error", self.taxonomy.depth("user"), False, symptom)
        if chosen.from_dead_worker and (killed := self._of_reason("dataloader_killed")) is not None:
            one = self._of_rule(event, killed)
        one.kind, one.traceback = "traceback", chosen
        self._by_its_message(one, f"{chosen.type}: {chosen.message}")
        # An exception that nobody caught ends its process.
        one.handled = bool(_LOGGER.search(chosen.lead)) or chosen.of_request or last.of_import
        if one.handled:
            one.fatal = one.fatal and one.layer <= self.taxonomy.depth("driver")
        else:
            one.fatal = one.fatal or chosen.where == "main"
        left = _LEFT.match(chosen.type) is not None and chosen.message.strip() in ("0", "None", "")
        one.ignored = chosen.where == "ignored" or left  # who leaves with 0 has not failed
        if chosen.where == "thread":
            one.fatal = False
        return one

    def _rule_of(self, traceback: Traceback) -> Rule | None:
        """The rule for its exception line. If the line only carries another exception, the rule for the class of that one."""
        rule = self.evidence.rule(traceback.exception) if traceback.exception else None
        carried = _CARRIED.search(traceback.message[:200])
        if carried is None or (rule is not None and not is_generic(rule) and not rule.symptom):
            return rule
        return self._of_class(carried["type"]) or rule

    def _of_class(self, name: str) -> Rule | None:
        """The first rule that knows an exception by the name of its class."""
        rules = [r for r in self.evidence.rules if r.family == "failures" and r.severity != "warning" and r.layer == "user"]
        return next((r for r in rules if _searches(r.pattern)(f"{name}: it")), None)

    def _of_reason(self, reason: str) -> Rule | None:
        """The first rule that tells of this failure itself."""
        rules = (r for r in self.evidence.rules if r.family == "failures" and r.reason == reason)
        return next((r for r in rules if r.severity != "warning" and not r.symptom), None)

    def _first_cause(self, links: list[Traceback]) -> Traceback:
        """Which exception of a chain (latest first) is the cause."""
        chosen = links[0]
        for later, earlier in pairwise(links):
            if later.link in ("original", "remote"):
                break  # the outer traceback only reports this one
            if later.link == "context" and self._only_asked(earlier, chosen):
                break
            if self._tells_more(chosen, earlier):
                continue
            chosen = earlier
        return chosen

    def _only_asked(self, earlier: Traceback, later: Traceback) -> bool:
        name = earlier.type.rpartition(".")[2]
        if name == "KeyError" and later.type == "AttributeError":
            return True  # an object that looks its attributes up in a mapping
        if _REDIRECTED.match(earlier.message) is not None:
            return True
        return name in _LOOKUPS and (not earlier.message or earlier.message.split("\n")[0][:60] not in later.message)

    def _tells_more(self, later: Traceback, earlier: Traceback) -> bool:
        """Whether the later exception explains more: a rule knows its message, and the earlier one is of a general class."""
        if not self._specific(later) or self._specific(earlier) or (earlier.message and earlier.message[:80] in later.message):
            return False
        rule = self.evidence.rule(earlier.exception) if earlier.exception else None
        return rule is None or rule.severity != "fatal"

    def _specific(self, traceback: Traceback) -> bool:
        rule = self.evidence.rule(traceback.exception) if traceback.exception else None
        return rule is not None and rule.severity != "warning" and not rule.symptom and rule.layer != "user"

    # --- numbers and times -----------------------------------------------------------------------------------------------

    def _course(self) -> None:
        series = {}
        for name in ("step", *self.log.series_names):
            if (found := self.log.series(name)) is not None:
                source, whole = found
                named = self.log.streams[source].named
                start = last_start(named.get("step"), named.get("loss"), named.get("epoch"), self.found.runs.last(source))
                its = whole.since(start) if start else whole
                if its.count:
                    series[name] = source, its
        for anomaly in findings(Course(series, running=self.running)):
            if anomaly.reason is None:
                self.found.notes.append(anomaly.sentence)
            else:
                self.found.hypotheses.append(detected(anomaly, self.evidence))

    # --- dumps -----------------------------------------------------------------------------------------------------------

    def _dumped(self, picture: Picture) -> Hypothesis:
        """The hypothesis that the job stood still, as its dumps show."""
        timed_out = any(one.reason == "nccl_timeout" for one in self.found.hypotheses)
        in_library = bool(picture.standing) and (picture.together or (timed_out and not picture.groups))
        reason = "nccl_timeout" if in_library else "hang"
        at = picture.event.source, picture.event.line
        event = next((one for one in self.evidence.events if (one.source, one.line) == at), picture.event)
        anomaly = Anomaly("dumps", reason, event.source, event.line, f"{picture.sentence[:1].upper()}{picture.sentence[1:]}.")
        layer = self.taxonomy.depth("framework")
        return Hypothesis(event, None, reason, layer, False, False, detector=anomaly, kind="dump")


def _outer(lines: list[Hypothesis], most: int = MOST_KINDS) -> list[Hypothesis]:
    """Those of the first and the last kinds, as far as kinds are weighed: to read the words of all others costs seconds."""
    if len(lines) <= 2 * most:
        return lines
    told = [normal(one.event.body) for one in lines]
    kinds = list(dict.fromkeys(told))
    outer = {*kinds[:most], *list(dict.fromkeys(reversed(told)))[:most]}
    return [one for one, kind in zip(lines, told, strict=True) if kind in outer]


def _level_of(event: Event) -> str | None:
    """The level of a logger's line, also of the first line of a box that Julia draws."""
    if (box := _BOXED.match(event.body)) is not None:
        return {"Warning": "soft", "Error": "error"}.get(box["level"], "info")
    return level(event.text)


def _by_its_words(one: Hypothesis, text: str) -> None:
    """Set the reason from the words of a line, if no rule gives one."""
    one.words = about(text) if not takes_back(text) else None
    if one.words is not None:
        one.reason, one.rule = one.words.reason, None


def detected(anomaly: Anomaly, evidence: Evidence) -> Hypothesis:
    """The hypothesis for an anomaly. Its line is the first notable one from there on."""
    near = [e for e in evidence.events if e.source == anomaly.source and e.line >= anomaly.line and e.rule == NOTABLE]
    event = near[0] if near else Event(-1, anomaly.source, anomaly.line, anomaly.sentence, NOTABLE, 0)
    if event.order < 0:
        before = [e.order for e in evidence.events if e.source == anomaly.source and e.line <= anomaly.line]
        event.order = max(before, default=-1)
    layer = shipped_taxonomy().depth("framework")
    return Hypothesis(event, None, anomaly.reason or "unknown", layer, False, False, detector=anomaly, kind="detector")


_OVERFLOW = Sought(r"(?i)\boverflow\b.{0,120}?\b(?:loss scale(?: to)?|reducing to)[ :=]+(?P<scale>[\d.]+(?:e[-+]?\d+)?)\s*$")
_RUN = 5


def overflows(events: Sequence[Event], log: Compression) -> Anomaly | None:
    """Overflow after overflow until the end, with the loss scale at its floor: no more steps are made."""
    told = [(event, float(found["scale"])) for event in events if (found := _OVERFLOW.search(event.body)) is not None]
    run = told[-1:]
    for event, scale in reversed(told[:-1]):
        after, least = run[-1]
        copies = after.order - event.order == 1 and scale == least  # the lines between them were folded
        if (after.line - event.line > 1 and not copies) or scale < least:
            break
        run.append((event, scale))
    if len(run) < _RUN or run[0][1] > 1 or log.course(run[0][0].source).signs_after(run[0][0].line):
        return None
    first, last = run[-1], run[0]
    sentence = f"Every step overflows: the loss scale fell from {first[1]:g} to {last[1]:g}."
    return Anomaly("loss", "loss_anomaly", first[0].source, first[0].line, sentence)


def transport_level(events: Sequence[Event], log: Compression) -> str | None:
    """The level that every line of a source carries, or None. It belongs to the program that forwarded the lines, and says
    nothing.
    """
    if len(events) < _TRANSPORT_LEAST:
        return None
    some = events[:: max(1, len(events) // _TRANSPORT_SAMPLE)]
    usual, often = Counter(level(event.text) for event in some).most_common(1)[0]
    if usual is None or often < _TRANSPORT_SAMPLED * len(some):
        return None  # a quick answer for most sources
    counts = Counter(level(event.text) for event in events)
    most, count = counts.most_common(1)[0]
    if most is None or count < _TRANSPORT_SHARE * len(events):
        return None
    source = events[0].source
    progress = log.progress(source)
    if progress.first:  # regular lines, which were dropped, must carry it too
        return most if level(progress.first.decode("utf-8", "replace")) == most else None
    return most if 2 * count >= log.lines_of(source) else None


@functools.lru_cache(4096)
def _searches(pattern: str) -> Callable[[str], bool]:
    compiled = regex.compile(pattern)

    def found(text: str) -> bool:
        try:
            return compiled.search(text, timeout=0.05) is not None
        except TimeoutError:
            return False

    return found


_ANY = ("RuntimeError", "ValueError", "OSError", "TypeError", "KeyError", "AssertionError", "IndexError", "AttributeError")


@functools.lru_cache(4096)
def _known_by_class(pattern: str) -> bool:
    searches = _searches(pattern)
    return any(searches(f"{name}: it") for name in (*_ANY, *_classes(pattern)))


def _classes(pattern: str) -> list[str]:
    """The names of exceptions that a pattern spells out."""
    return list(re.findall(r"[A-Z]\w*(?:Error|Exception|Timeout|Interrupt|Exit)\b", pattern))[:40]


def is_generic(rule: Rule) -> bool:
    """Whether the rule knows an exception by its class, whatever the message is."""
    return rule.layer == "user" and _known_by_class(rule.pattern)


def interpreter_warns(one: Hypothesis) -> bool:
    """Whether the line is an interpreter's warning, which is never why a program ended."""
    return one.traceback is None and is_warning(one.event.body)
