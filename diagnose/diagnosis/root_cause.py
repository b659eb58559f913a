"""Evidence -> root cause, consequences, suspects, group. The reasoning, in the order in which an engineer does it:

1. **Faults.** Each traceback and each line that a failure rule knows is a fault, with a layer, a weight and a place in time.
2. **What did not matter** goes: a fault that the job went on from (steps followed, the line says that it is well again, the
   program ended well), an exception that was ignored or only logged.
3. **Echoes** wait: a watchdog, a launcher's summary, a broken pipe tell that something failed elsewhere.
4. **The root** is the first of what is left, with two corrections: metal explains software even when it speaks later, and
   who was told to stop did not fail by itself.
5. If nothing is left the detectors are asked (loss, hang), then the echoes; and if nothing explains a failure it is unknown.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from diagnose.compression.kept_log import NOTABLE, Compression
from diagnose.diagnosis.detectors import findings
from diagnose.diagnosis.detectors.course import Anomaly, Course, Silence
from diagnose.diagnosis.evidence import Event, Evidence, normal
from diagnose.diagnosis.faults import Fault, captures
from diagnose.diagnosis.suspects import suspects
from diagnose.diagnosis.topology import Topology, learn, numbers
from diagnose.diagnosis.topology import read as read_topology
from diagnose.diagnosis.tracebacks import Traceback, assemble
from diagnose.knowledge.rules import Rule
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.reading.prefixes import clock, origin

Role = Literal["root_cause", "consequence", "context"]


@dataclass(slots=True)
class Many:
    """Faults of one kind."""

    first: Fault
    count: int
    ranks: list[int]
    later_s: float | None = None
    """how long after the root cause the first came"""


@dataclass(slots=True)
class Finding:
    """The answer."""

    failed: bool
    reason: str
    confidence: float
    by: Literal["rule", "detector", "none"]
    root: Fault | None = None
    consequences: list[Many] = field(default_factory=list)
    others: list[Many] = field(default_factory=list)
    """independent failures, in order"""
    recovered: list[Many] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    phase: str | None = None
    step: float | None = None
    attempt: int = 1
    group: str | None = None
    notes: list[str] = field(default_factory=list)
    ended_well: bool = False


def unexplained(healthy: Finding, exit_code: int | None) -> Finding:
    """What a log without a failure means where the caller says that the job failed: healthy cannot be the answer then."""
    told = (
        f"The caller says that the job ended with exit code {exit_code}."
        if exit_code
        else "The caller says that the job failed."
    )
    notes = [*healthy.notes, told]
    return replace(healthy, failed=True, reason="unknown", confidence=0.0, by="none", ended_well=False, notes=notes)


_DEEP = {"hardware", "driver", "storage", "host", "scheduler", "network"}
_RAISED, _NOTED, _ECHO, _HINT, _RIVAL = 0.97, 0.9, 0.8, 0.6, 0.15
_ENDED_WELL, _QUIET = 0.97, 0.85
"""confidence, by the kind of evidence"""
_NAMELESS = {"called_process_error", "unknown", "runtime_error"}
"""echoes that say that something ended, not what"""
_OF_A_STOP = {
    "connection_error",
    "network_error",
    "runtime_error",
    "dataloader_killed",
    "native_crash",
    "nccl_timeout",
    "nccl_remote_error",
    "called_process_error",
}
"""what a process that is told to stop may die of"""
_KERNEL = re.compile(r"\bkernel: |^\[? *\d+\.\d{3,}\] |\bNVRM: |^\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ ")
_SCRAP_LINES = 2
_REACHED = {"connection_error", "network_error", "storage_error"}
"""reasons of which a scrap of warnings tells enough"""
_LAST_WORDS = 20
_LOOK_BACK = 100
_TOP = {"<module>", "_bootstrap", "_bootstrap_inner", "_run_module_as_main", "main", "run", "_main", "spawn_main", "wrapper"}
"""where a traceback that nobody caught begins; excerpts often begin a little later"""
_CALM = re.compile(r"^\W*(?:[\w.:,/-]+ ){0,3}\W*(?:INFO|DEBUG)\b")
_TALKS = 2
_SOFTLY = re.compile(r"^\W*(?:[\w.:-]+ ){0,3}\W*(?:DEBUG|INFO|WARN(?:ING)?)\b")
_STATED = {
    "preempted",
    "hang",
    "loss_anomaly",
    "nccl_timeout",
    "nccl_remote_error",
    "node_failure",
    "host_out_of_memory",
    "ecc_error",
    "nvlink_error",
    "gpu_fell_off_bus",
}
"""faults that programs tell of with a warning, and do not catch"""
_CLASS = re.compile(r"\b\w+(?:Error|Exception)\b")
_LOGGER = re.compile(r"(?i)\b(?:debug|info|warn(?:ing)?|error|critical|exception)\b")
_NEAR_S, _NEAR_LINES = 300.0, 300
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
"""exceptions that programs use to ask a question; what the handler then does may fail by itself"""


def explain(evidence: Evidence, log: Compression, known: Collection[str] = (), *, running: bool = False) -> Finding:
    """Why the job failed, or that it did not. ``known``: lines (as ``normal`` gives them) of runs that went well."""
    return _Case(evidence, log, known, running).explain()


class _Case:
    def __init__(self, evidence: Evidence, log: Compression, known: Collection[str], running: bool) -> None:
        self.evidence, self.log, self.known, self.running = evidence, log, known, running
        taxonomy = shipped_taxonomy()
        self.depth = {layer: number for number, layer in enumerate(taxonomy.layers)}
        self.category_of = taxonomy.category_of
        self.topology: Topology = read_topology(evidence.events)
        learn(self.topology, (text for _, text in log.facts))
        self.well: list[Event] = []
        """lines that say that all is well (again)"""
        self.notes: list[str] = []
        self._talks: dict[int, tuple[list[int], int]] = {}
        self.courses = [log.course(source) for source in range(len(evidence.sources))]
        self.faults = self._faults()

    # --- faults ----------------------------------------------------------------------------------------------------------

    def _faults(self) -> list[Fault]:
        faults: list[Fault] = []
        for events in self.evidence.by_source():
            tracebacks, claimed = assemble(events, self._judged)
            inner = {id(one.previous) for one in tracebacks}
            for traceback in tracebacks:
                if id(traceback) not in inner and (fault := self._raised(traceback)) is not None:
                    faults.append(fault)
            # The message of an exception goes on for a few lines.
            explained = {
                (fault.event.source, fault.event.line + more, fault.reason)
                for fault in faults
                if fault.traceback
                for more in (1, 2, 3)
            }
            for event in events:
                rule = self.evidence.rule(event)
                if rule is None or event.order in claimed:
                    continue
                if rule.reason == "healthy":
                    self.well.append(event)
                elif rule.severity != "warning" and (event.source, event.line, rule.reason) not in explained:
                    faults.append(self._fault(event, rule))
        for fault in faults:
            fault.recovered = fault.recovered or self._recovered(fault)
        # What this job, or one like it, went on from before is not what stopped it now.
        # (To say what kind a fault is of takes long: first it is asked whether two can be of one.)
        open_ = {_sort(fault) for fault in faults if not fault.recovered and not fault.fatal}
        survived = {_kind(fault) for fault in faults if fault.recovered and _sort(fault) in open_}
        for fault in faults:
            if fault.recovered:
                continue
            seen_well = self.known and fault.traceback is None and normal(fault.event.body) in self.known
            if seen_well or (not fault.fatal and _kind(fault) in survived):
                fault.recovered = True
        series = {name: found for name in self.log.series_names if (found := self.log.series(name)) is not None}
        course = Course(series, running=self.running)
        for anomaly in findings(course):
            fault = self._detected(anomaly)
            if fault is None:
                self.notes.append(anomaly.sentence)
            else:
                faults.append(fault)
        return sorted(faults, key=self._place)

    def _detected(self, anomaly: Anomaly) -> Fault | None:
        """A fault that a detector found, at the first line that was kept of it."""
        if anomaly.reason is None:
            return None
        near = [e for e in self.evidence.events if e.source == anomaly.source and e.line >= anomaly.line and e.rule == NOTABLE]
        event = near[0] if near else Event(-1, anomaly.source, anomaly.line, anomaly.sentence, NOTABLE, 0)
        if event.order < 0:
            before = [e.order for e in self.evidence.events if e.source == anomaly.source and e.line <= anomaly.line]
            event.order = max(before, default=-1)
        fault = Fault(event, None, anomaly.reason, self.depth["framework"], False, False, detector=anomaly)
        fault.moment = self._moment(event)
        return fault

    def _judged(self, event: Event) -> bool:
        rule = self.evidence.rule(event)
        return rule is not None and rule.severity != "warning"

    def _fault(self, event: Event, rule: Rule) -> Fault:
        # A logger that merely warns of an exception has caught it.
        softly = rule.reason not in _STATED and _SOFTLY.match(event.body) is not None
        return Fault(
            handled=softly,
            recovered=softly,
            event=event,
            rule=rule,
            reason=rule.reason or "unknown",
            layer=self.depth.get(rule.layer or "user", len(self.depth)),
            fatal=rule.severity == "fatal",
            symptom=rule.symptom,
            moment=self._moment(event),
        )

    def _raised(self, last: Traceback) -> Fault | None:
        """The fault that one chain of tracebacks shows."""
        links = [one for one in last.chain() if one.exception is not None]
        if not links:
            return None
        chosen = self._first_cause(links)
        event = chosen.exception
        assert event is not None
        rule = self.evidence.rule(event)
        if rule is not None and rule.severity != "warning":
            fault = self._fault(event, rule)
            fault.recovered = False
        else:
            fault = Fault(event, None, "runtime_error", self.depth["user"], False, rule is not None and rule.symptom)
            fault.moment = self._moment(event)
        fault.traceback = chosen
        # An exception that nobody caught ends its process.
        fault.handled = bool(_LOGGER.search(chosen.lead))
        if fault.handled:
            fault.fatal = fault.fatal and fault.layer <= self.depth["driver"]
        else:
            fault.fatal = fault.fatal or chosen.where == "main"
        if chosen.where == "ignored":
            fault.recovered = True
        elif chosen.where == "thread":
            fault.fatal = False
        return fault

    def _first_cause(self, links: list[Traceback]) -> Traceback:
        """Which exception of a chain (latest first) is the cause."""
        chosen = links[0]
        for later, earlier in pairwise(links):
            if later.link in ("original", "remote"):
                break  # the outer traceback only tells of this one
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
        return name in _LOOKUPS and (not earlier.message or earlier.message.split("\n")[0][:60] not in later.message)

    def _tells_more(self, later: Traceback, earlier: Traceback) -> bool:
        """Whether the later exception explains more: a rule for its very message knows it, the earlier is a plain class."""
        if not self._specific(later) or self._specific(earlier) or (earlier.message and earlier.message[:80] in later.message):
            return False
        rule = self.evidence.rule(earlier.exception) if earlier.exception else None
        return rule is None or rule.severity != "fatal"

    def _specific(self, traceback: Traceback) -> bool:
        rule = self.evidence.rule(traceback.exception) if traceback.exception else None
        return rule is not None and rule.severity != "warning" and not rule.symptom and rule.layer != "user"

    def _moment(self, event: Event) -> float | None:
        return clock(event.time) if event.time else None

    def _place(self, fault: Fault) -> tuple[float, int]:
        """Where a fault stands in time: by its clock if the sources are many and have one, else as it was read."""
        if len(self.evidence.sources) > 1 and fault.moment is not None:
            return fault.moment, fault.event.order
        return (0.0 if len(self.evidence.sources) == 1 else float("inf")), fault.event.order

    def _recovered(self, fault: Fault) -> bool:
        """Whether the job went on, or somebody said that all is well again."""
        event = fault.event
        course = self.courses[event.source]
        enough = 20 if fault.reason == "loss_anomaly" else 8 if self._deep(fault) else 2
        if max(course.signs_after(event.line), course.steps_gained(event.line)) >= enough:
            return True
        if fault.traceback is not None and self._talks_on(fault):
            return True
        for well in self.well:
            later = well.source != event.source or well.line > event.line
            layer = self.evidence.rules[well.rule].layer or "framework"
            if later and (layer == "framework" or self.depth[layer] == fault.layer):
                return not (fault.fatal and layer != "framework")
        return False

    def _talks_on(self, fault: Fault) -> bool:
        """Whether a traceback that does not begin at the program's top was printed by a handler, and the program talks on."""
        frames = fault.traceback.frames if fault.traceback else []
        if not frames or frames[0].function in _TOP or fault.event.rule < 0:
            return False
        calm, loudest = self._talk(fault.event.source)
        return loudest <= fault.event.line and len(calm) - bisect_right(calm, fault.event.line) >= _TALKS

    def _talk(self, source: int) -> tuple[list[int], int]:
        """The lines in which a source goes on calmly, and the last in which it does not."""
        if source not in self._talks:
            calm, loudest = [], 0
            for event in self.evidence.events:
                if event.source != source:
                    continue
                if _CALM.match(event.text):
                    calm.append(event.line)
                elif (rule := self.evidence.rule(event)) is not None and rule.reason != "healthy":
                    loudest = event.line
            self._talks[source] = calm, loudest
        return self._talks[source]

    def _deep(self, fault: Fault) -> bool:
        layer = fault.rule.layer if fault.rule else "user"
        return fault.fatal and not fault.symptom and layer in _DEEP and fault.reason != "preempted"

    # --- the answer --------------------------------------------------------------------------------------------------------

    def explain(self) -> Finding:
        standing = [fault for fault in self.faults if not fault.recovered]
        root = self._root(standing)
        if root is not None and _torn(root):
            root = next((f for f in standing if not _torn(f) and f.traceback and f.reason == root.reason), root)
        if root is not None and root.reason == "preempted":
            # Who ended it: the scheduler's own word, else the first, also where a launcher merely passes it on.
            ended = [f for f in standing if f.reason == "preempted" and self._near(f, root)]
            root = self._first([f for f in ended if f.fatal and f.traceback is None] or ended)
        if root is not None and root.reason == "preempted" and (hang := self._hang(root)) is not None:
            standing.append(hang)
            root = hang
        if root is None:
            root = self._hint()
        if root is None:
            return Finding(
                False,
                "healthy",
                _ENDED_WELL if self.well else _QUIET,
                "none",
                recovered=self._folded([f for f in self.faults if f.recovered]),
                attempt=self._attempt(),
                notes=self.notes,
                ended_well=bool(self.well),
            )
        return self._finding(root, standing)

    def _root(self, faults: list[Fault]) -> Fault | None:
        """The first cause; where there is none, the first echo that has a name."""
        # A process that aborts right after another fault does so because of it.
        fallout = {
            id(f)
            for number, f in enumerate(faults)
            if f.reason == "native_crash" and self._follows_any(f, faults[max(0, number - _LOOK_BACK) : number])
        }
        causes = [f for f in faults if not f.symptom and id(f) not in fallout]
        echoes = [f for f in faults if f.symptom or id(f) in fallout]
        stopped = self._first([f for f in causes if f.reason == "preempted"])
        raised = [f for f in causes if f.fatal and f.reason != "preempted"]
        noted = [f for f in causes if not f.fatal and f.reason != "preempted"]
        if metal := [f for f in raised if self._of_metal(f)]:
            return self._machine(metal, causes, stopped)
        if (first := self._first(raised)) is not None:
            if stopped is not None and self._before(stopped, first) and first.reason in _OF_A_STOP:
                return stopped
            return self._behind(first, noted) or self._said_best(first, raised)
        first = self._first(noted)
        if first is not None and (stopped is None or self._before(first, stopped)):
            return first
        if stopped is not None:
            echoes = [f for f in echoes if self._before(f, stopped) and f.reason not in ("preempted", "connection_error")]
            if not echoes:
                return stopped
        return self._echo(echoes)

    def _machine(self, metal: list[Fault], causes: list[Fault], stopped: Fault | None) -> Fault:
        """Which machine fault it was, at the first line that tells of it."""
        # "CUDA error" is how a program sees what the driver and the machine name.
        worst = min([f for f in metal if f.reason != "cuda_error"] or metal, key=self._place)
        if worst.reason == "node_failure" and stopped is not None and self._before(stopped, worst):
            return stopped  # a node that is taken away on purpose goes silent too
        alike = [f for f in causes if f.reason == worst.reason and self._near(f, worst)]
        milder = [f for f in alike if not f.fatal and f.layer == worst.layer]
        coded = [f for f in alike if "Xid" in f.event.body and self._of_metal(f) and f.fatal]
        first = min([*milder, *(coded or [worst])], key=self._place)
        if first is not worst:
            first.graver = worst
        return self._said_best(first, [f for f in causes if f.fatal])

    def _echo(self, echoes: list[Fault]) -> Fault | None:
        """Which of the echoes to go by, when nothing else is left."""
        named = [f for f in echoes if f.reason not in _NAMELESS]
        echo = self._first(named) or self._first(echoes)
        if echo is not None and echo.reason == "cuda_error":  # what a device says of a collective that it waits in vain for
            echo = self._first([f for f in named if f.reason != "cuda_error" and self._near(f, echo)]) or echo
        if echo is not None and echo.reason in ("nccl_remote_error", "connection_error"):
            # Peers notice a process that was killed sooner than its launcher tells.
            echo = self._first([f for f in echoes if f.reason == "host_out_of_memory" and self._near(f, echo)]) or echo
        # Of many that wait, the one that says for whom.
        telling = [f for f in echoes if echo and f.reason == echo.reason and self._near(f, echo) and self._accuses(f)]
        echo = self._first(telling) or echo
        return echo if echo is None or echo.reason in _NAMELESS else self._said_best(echo, echoes)

    def _hint(self) -> Fault | None:
        """What a scrap of a log is about, when it holds little but warnings: no step, no end, no recovery."""
        if self.well or any(course.signs_after(0) for course in self.courses):
            return None
        warnings = [
            (event, rule)
            for event in self.evidence.events
            if (rule := self.evidence.rule(event)) is not None and rule.severity == "warning" and rule.reason not in _NAMELESS
        ]
        if not warnings:
            return None
        last, about = warnings[-1]
        lines = self.log.lines_of(last.source)
        machine = [
            pair for pair in warnings if pair[1].layer in ("hardware", "driver") and pair[1].action == "isolate_and_restart"
        ]
        if machine:
            warnings = machine
            about = machine[0][1]
        elif lines - last.line > _SCRAP_LINES or 2 * len(warnings) < lines or about.reason not in _REACHED:
            return None
        event, rule = next((event, rule) for event, rule in warnings if rule.reason == about.reason)
        return self._fault(event, rule)

    def _accuses(self, fault: Fault) -> bool:
        """Whether the line names somebody else than who printed it."""
        found = captures(fault.rule, fault.event.body)
        ranks = numbers(found.get("rank", ""))
        return any(found.get(name) for name in ("host", "peer")) or (
            bool(ranks) and self.evidence.rank_of(fault.event) not in ranks
        )

    def _follows_any(self, fault: Fault, before: list[Fault]) -> bool:
        return any(f.reason != fault.reason and self._before(f, fault) and self._near(f, fault) for f in before)

    def _of_metal(self, fault: Fault) -> bool:
        """Whether a machine failed, so that it explains software even when it speaks later."""
        layer = fault.rule.layer if fault.rule else None
        if layer in ("hardware", "driver"):
            return True
        return layer in ("host", "scheduler") and self.category_of.get(fault.reason) == "infrastructure"

    def _behind(self, first: Fault, noted: list[Fault]) -> Fault | None:
        """What was noted before a program died and explains it: of a lower layer, by the kernel, or the very same exception."""
        before = [f for f in noted if self._before(f, first)]
        deeper = [
            f
            for f in before
            if not f.handled
            and self._near(f, first)
            and (f.layer < first.layer or (f.layer == first.layer and (_by_kernel(f) or _earlier_word(f, first))))
        ]
        return self._first(deeper) or self._first([f for f in before if _same(f, first)])

    def _said_best(self, chosen: Fault, raised: list[Fault]) -> Fault:
        """The exception rather than what the same process logged of it just before; the kernel's word stands."""
        if chosen.traceback is not None or _by_kernel(chosen) or _CLASS.search(chosen.event.body):
            return chosen
        exceptions = [
            f
            for f in raised
            if f.traceback is not None
            and f.reason == chosen.reason
            and self._near(f, chosen)
            and _speaker(f.event) in ("", _speaker(chosen.event))
            and not _speaker(chosen.event).startswith("(")
        ]
        return self._first(exceptions) or chosen

    def _hang(self, end: Fault) -> Fault | None:
        """Whether the job had stood still for long when it was ended."""
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
        busy = any(re.search(r"(?i)sav(?:e|ing)|checkpoint|evaluat|validat", e.text) for e in said)
        course = Course(silence=Silence(source, line, end.moment - at, rhythm, busy))
        return next((fault for anomaly in findings(course) if (fault := self._detected(anomaly)) is not None), None)

    def _first(self, faults: list[Fault]) -> Fault | None:
        return min(faults, key=self._place, default=None)

    def _before(self, one: Fault, other: Fault) -> bool:
        return self._place(one) < self._place(other)

    def _near(self, one: Fault, other: Fault) -> bool:
        if one.moment is not None and other.moment is not None:
            return abs(one.moment - other.moment) <= _NEAR_S
        return one.event.source != other.event.source or abs(one.event.line - other.event.line) <= _NEAR_LINES

    # --- what goes with it -------------------------------------------------------------------------------------------------

    def _finding(self, root: Fault, standing: list[Fault]) -> Finding:
        kind = _kind(root)
        same: list[Fault] = []
        rest: list[Fault] = []
        for fault in standing:
            (same if fault is root or _kind(fault) == kind else rest).append(fault)
        reason = root.reason
        if root.symptom and reason == "called_process_error" and root.traceback is None:
            reason = "unknown"  # that a process ended with 1 explains nothing
            root = self._last_words(root)
        finding = Finding(
            True,
            reason,
            0.0 if reason == "unknown" else self._confidence(root, rest),
            "detector" if root.detector else "rule",
            root,
        )
        if reason == "unknown":
            finding.by = "none"
        follows: list[Fault] = []
        others: list[Fault] = []
        for fault in rest:
            (follows if fault.symptom or self._follows(fault, root) else others).append(fault)
        finding.consequences = self._folded(follows, root)
        finding.others = self._folded(others, root)
        finding.recovered = self._folded([f for f in self.faults if f.recovered])
        finding.step = self._step(root)
        finding.phase = _phase(root, finding.step)
        who = suspects(root, same, self.faults, self.evidence, self.topology)
        finding.nodes, finding.ranks, finding.gpus = who.nodes, who.ranks, who.gpus
        finding.group = group_of(reason, root)
        finding.notes = self.notes
        finding.attempt = self._attempt()
        return finding

    def _attempt(self) -> int:
        """Which attempt of the job the log ends with: every process that died, with steps after it, was one before."""
        attempt = 1
        last: tuple[int, int] | None = None
        for fault in self.faults:
            if not (fault.recovered and fault.fatal):
                continue
            at = fault.event.source, self.courses[fault.event.source].signs_after(fault.event.line)
            if at[1] and (last is None or (last[0] == at[0] and last[1] - at[1] >= 2)):
                attempt += 1
                last = at
        return attempt

    def _last_words(self, end: Fault) -> Fault:
        """The last line before the end that no rule knows: where a person should begin to read."""
        unknown = [
            event
            for event in self.evidence.events
            if event.source == end.event.source and event.rule == -1 and 0 < end.event.line - event.line <= _LAST_WORDS
        ]
        if not unknown:
            return end
        return Fault(unknown[-1], None, "unknown", end.layer, False, False, moment=self._moment(unknown[-1]))

    def _folded(self, faults: Sequence[Fault], root: Fault | None = None) -> list[Many]:
        """One entry for each kind of fault."""
        kinds: dict[tuple[str, str], list[Fault]] = {}
        for fault in faults:
            kinds.setdefault((fault.reason, fault.rule.id if fault.rule else ""), []).append(fault)
        return [
            Many(
                many[0],
                len(many),
                sorted({rank for f in many[:4096] if (rank := self.evidence.rank_of(f.event)) is not None}),
                many[0].moment - root.moment if root and root.moment is not None and many[0].moment is not None else None,
            )
            for many in kinds.values()
        ]

    def _step(self, root: Fault) -> float | None:
        """The last step before the failure, by the source itself or, where it tells none, by the job."""
        step = self.courses[root.event.source].step_at(root.event.line)
        return step if step is not None or len(self.evidence.sources) == 1 else self.log.last_step

    def _follows(self, fault: Fault, root: Fault) -> bool:
        return (fault.layer >= root.layer or fault.reason == root.reason) and not self._before(fault, root)

    def _confidence(self, root: Fault, rest: list[Fault]) -> float:
        """How often an answer of this kind was right on labelled logs: see docs/accuracy.md, which measures it anew."""
        if root.rule is not None and root.rule.severity == "warning":
            return _HINT
        sure = _ECHO if root.symptom else _RAISED if root.fatal else _NOTED
        rival = any(not f.symptom and f.fatal and f.reason != root.reason for f in rest)
        return round(sure - _RIVAL, 2) if rival else sure


def _same(one: Fault, other: Fault) -> bool:
    """Whether both tell of one exception."""
    first, second = one.traceback, other.traceback
    if first is None or second is None:
        return one.reason == other.reason and normal(one.event.body) == normal(other.event.body)
    return first.type == second.type and normal(first.message) == normal(second.message)


def _torn(fault: Fault) -> bool:
    """Whether other ranks wrote into the exception line."""
    return fault.traceback is not None and re.match(r"\w*(?:Error|Exception)\b", fault.traceback.message) is not None


def _earlier_word(one: Fault, other: Fault) -> bool:
    """Whether both are messages of machines about one thing, such as a port error and the time-outs after it."""
    return one.reason == other.reason and one.traceback is None and other.traceback is None


def _speaker(event: Event) -> str:
    """What stands before the body, less the time."""
    return re.sub(r"[\d:.,TZ/-]{8,}", "", event.text[: event.start]).strip(" []")


def _by_kernel(fault: Fault) -> bool:
    """Whether the kernel says it, which knows the machine better than any process."""
    return _KERNEL.search(fault.event.text[:120]) is not None


def _sort(fault: Fault) -> tuple[str, str]:
    return fault.reason, fault.rule.id if fault.rule else ""


def _kind(fault: Fault) -> tuple[str, str, str]:
    return *_sort(fault), normal(fault.event.body)[:200]


def _phase(root: Fault, step: float | None) -> str:
    names = " ".join(frame.function for frame in root.traceback.frames) if root.traceback else ""
    for phase, words in _PHASES:
        if re.search(words, names):
            return phase
    return "start-up" if step is None else "training"


_PHASES = (
    ("save a checkpoint", r"\bsave_(?:checkpoint|pretrained|model|state)|_save\b|\bdump_checkpoint"),
    ("load a checkpoint", r"\bload_(?:checkpoint|state_dict|pretrained)|from_pretrained|resume"),
    ("load data", r"\b(?:load_dataset|get_dataset|build_dataset|__getitem__|collate|_worker_loop|download_and_prepare)\b"),
    ("evaluate", r"\b(?:evaluate|evaluation_loop|validate|eval_step|predict)\b"),
)


def group_of(reason: str, root: Fault) -> str:
    """A name that stays the same when the same thing fails again: elsewhere, later, on another step or version."""
    message = normal(root.event.body)
    if root.traceback is not None:
        frame = root.traceback.own_frame
        message = (
            f"{root.traceback.type.rpartition('.')[2]} {normal(root.traceback.message)[:120]} {frame.function if frame else ''}"
        )
    elif root.rule is not None and root.layer <= 4:
        message = root.rule.id  # a machine's message is its rule; the rest are addresses
    return hashlib.sha256(f"{reason}\n{message}".encode()).hexdigest()[:12]
