"""Live learning beside a running job: unknown lines go out, rules that have earned it come back into the matcher.

What it promises: ``feed`` never waits. It puts what a scan kept on a bounded queue and drops it, counted, when that is full.
All else happens in a child process of low priority: gathering lines, asking a model (which may take minutes, or be down),
judging, and counting shadow rules on the stream. What becomes active there is added to the matcher here, and what met evidence
is taken out. A rule in shadow drops nothing.
"""

from __future__ import annotations

import json
import os
import queue
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any

from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.learning.learned_rule import Counts, as_dict, of_dict, settle
from diagnose.learning.sqlite import SqliteBook
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import KEPT, Scan

if TYPE_CHECKING:
    from diagnose.model.settings import Settings

_MOST_WAITING = 512
"""scans on the queue"""
_MOST_BYTES = 8 << 20
"""of text on the queue"""
_FRAME = struct.Struct("<II")
_LESSON_S = 5.0
"""between two lessons while lines come in"""
_FEWEST_NEW = 20
"""lines that make a lesson worth while"""
_PATIENCE_S = 20.0
"""how long the end of a job may wait for the last lesson"""
_PRIORITY = 10
_TOO_MANY = 200
"""rules in the matcher's small second database before both are made one"""
_MOST_EVIDENCE = 5000


@dataclass(slots=True)
class Heard:
    """What a learner has to say at the end."""

    lines: int = 0
    """kept lines that it was fed"""
    missed: int = 0
    """of those, lines that were dropped because the queue was full"""
    active: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Learner:
    """Feeds a child with what no rule knows, and the matcher with what the child has learned."""

    def __init__(self, book: str, matcher: Matcher, job: str, settings: Settings | None = None, workload: str = "") -> None:
        self.heard = Heard()
        self._matcher = matcher
        self._waiting: queue.Queue[Scan | None] = queue.Queue(_MOST_WAITING)
        self._bytes_in = self._bytes_out = 0  # each is written by one thread only
        self._added = 0
        self._book, self._workload = book, workload
        known = [rule.id for rule in matcher.rules if rule.family == "filters"]
        about = {
            "book": book,
            "job": job,
            "settings": asdict(settings) if settings else None,
            "workload": workload,
            "at_work": known,
        }
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-m", "diagnose.learning.live", json.dumps(about, default=str)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._writer = threading.Thread(target=self._write, name="learner-out", daemon=True)
        self._reader = threading.Thread(target=self._read, name="learner-in", daemon=True)
        self._writer.start()
        self._reader.start()

    def feed(self, scans: Sequence[Scan]) -> None:
        """What was just scanned. Returns at once."""
        for scan in scans:
            lines = len(scan.kept) // KEPT.size
            if not lines:
                continue
            self.heard.lines += lines
            if self._bytes_in - self._bytes_out + len(scan.text) > _MOST_BYTES:
                self.heard.missed += lines
                continue
            try:
                self._waiting.put_nowait(scan)
                self._bytes_in += len(scan.text)
            except queue.Full:
                self.heard.missed += lines

    def close(self, dropped: Counter[int] | None = None, patience_s: float = _PATIENCE_S) -> Heard:
        """The job has ended, or is left; ``dropped``: how many lines each rule of the matcher dropped."""
        try:
            self._waiting.put(None, timeout=patience_s)
        except queue.Full:
            self._child.kill()
        deadline = time.monotonic() + patience_s
        self._writer.join(patience_s)
        self._reader.join(max(0.0, deadline - time.monotonic()))
        if self._reader.is_alive():
            self.heard.problems.append(f"the last lesson took more than {patience_s:.0f} s: the next run goes on with it")
        self._child.kill()
        self._child.wait()
        self._count(dropped or Counter())
        return self.heard

    def _count(self, dropped: Counter[int]) -> None:
        """What the active learned rules dropped: a rule that drops nothing for long is rotten."""
        book = SqliteBook(self._book)
        learned = {known.rule.id for known in book.rules("active", family="filters")}
        now = time.time()
        for number, lines in dropped.items():
            if (rule := self._matcher.rules[number]).id in learned and lines > 0:
                book.count(rule.id, self._workload, Counts(lines, 0, 1, now))
        book.close()

    def _write(self) -> None:
        out = self._child.stdin
        assert out is not None
        try:
            while (scan := self._waiting.get()) is not None:
                self._bytes_out += len(scan.text)
                out.write(_FRAME.pack(len(scan.kept), len(scan.text)))
                out.write(scan.kept)
                out.write(scan.text)
                if self._waiting.empty():
                    out.flush()
            out.close()
        except OSError:
            self.heard.problems.append("the learner ended before the job did")
            while self._waiting.get() is not None:  # nobody waits for a place
                pass

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            said = json.loads(line)
            rules = [of_dict(*row) for row in said.get("active", [])]
            self.heard.problems += said.get("problems", [])
            if rules:
                self._matcher.add(rules)
                self.heard.active += [rule.id for rule in rules]
                self._added += len(rules)
                if self._added > _TOO_MANY:
                    self._matcher.absorb()
                    self._added = 0
            if said.get("retired"):
                self._matcher.retire(said["retired"])
                self.heard.retired += said["retired"]


# --- the child --------------------------------------------------------------------------------------------------------------


class _School:
    """The child's side: what was gathered, and the rules that are counted."""

    def __init__(self, about: dict[str, Any]) -> None:
        from diagnose.learning.miner import Miner
        from diagnose.model.settings import Settings

        self.book = SqliteBook(about["book"])
        self.about = about
        self.settings = Settings(**about["settings"]) if about["settings"] else None
        self.miner = Miner()
        self.evidence: dict[str, None] = {}
        self.new = 0
        self.segment = 0
        self.told = set(about["at_work"])
        self._counted: Matcher | None = None
        self._lock = threading.Lock()
        self._count()

    def take(self, kept: bytes, text: bytes) -> None:
        """The kept lines of one scan."""
        from diagnose.reading.prefixes import body_start
        from diagnose.redaction.text import clear

        unknown: list[str] = []
        matched: Counter[str] = Counter()
        dirty: Counter[str] = Counter()
        with self._lock:
            counted = self._counted
            for record in KEPT.iter_unpack(kept):
                _, offset, length, rule, cut, *_ = record
                if cut:
                    continue
                segment = text[offset : offset + length]
                body = segment[body_start(segment) :]
                hits = [counted.rules[number].id for number in counted.matches(body)] if counted is not None else []
                matched.update(hits)
                if rule == -1:
                    unknown.append(body.decode("utf-8", "replace"))
                elif rule >= 0:
                    dirty.update(hits)
                    if len(self.evidence) < _MOST_EVIDENCE:
                        self.evidence[body.decode("utf-8", "replace")] = None
        # A rule keeps lines as examples, and words of them in its pattern.
        fresh = clear(unknown)
        with self._lock:
            for line in fresh:
                self.miner.add(line)
                self.new += 1
        now = time.time()
        for name, times in matched.items():
            self.book.count(name, self.about["workload"], Counts(times, dirty[name], 0, now))

    def _count(self) -> None:
        """The rules that are counted from now on: those in shadow, and the active ones, which may yet meet evidence."""
        known = self.book.rules("shadow", "active", family="filters")
        with self._lock:
            self._counted = Matcher(RuleSet.of(one.rule for one in known), "plain") if known else None

    def settle(self) -> None:
        """Tells the parent what has become active, and what is retired."""
        changed = settle(self.book, time.time())
        at_work = (one for one in self.book.rules("active", family="filters") if one.acts_for(self.about["workload"]))
        active = [one.rule for one in at_work if one.rule.id not in self.told]
        retired = [one.rule.id for one in changed if one.state == "retired" and one.rule.id in self.told]
        self.told |= {rule.id for rule in active}
        if active or retired:
            tell({"active": [row_of(rule) for rule in active], "retired": retired})
        if changed:
            self._count()

    def lesson(self) -> None:
        """What was gathered becomes proposals; those that pass are counted from now on."""
        from diagnose.learning.lesson import taught
        from diagnose.learning.miner import Miner

        with self._lock:
            miner, self.miner, self.new = self.miner, Miner(), 0
            evidence = list(self.evidence)
        self.segment += 1
        # A book is for one thread.
        book = SqliteBook(self.about["book"])
        lesson = taught(miner, [self.about["job"]], book, evidence, time.time(), self.settings, self.segment)
        book.close()
        if lesson.problems:
            tell({"problems": list(dict.fromkeys(lesson.problems))[:5]})


def row_of(rule: Rule) -> tuple[str, str, str, dict[str, Any]]:
    return rule.id, rule.family, rule.pattern, as_dict(rule)


def tell(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _frames(source: IO[bytes]) -> Any:
    while len(head := source.read(_FRAME.size)) == _FRAME.size:
        kept, text = _FRAME.unpack(head)
        yield source.read(kept), source.read(text)


def main() -> int:
    os.nice(_PRIORITY)
    school = _School(json.loads(sys.argv[1]))
    lesson: threading.Thread | None = None
    last = time.monotonic()
    for kept, text in _frames(sys.stdin.buffer):
        school.take(kept, text)
        if (lesson is None or not lesson.is_alive()) and time.monotonic() - last >= _LESSON_S:
            if lesson is not None:
                school._count()
                lesson = None
            school.settle()
            if school.new >= _FEWEST_NEW:
                lesson = threading.Thread(target=school.lesson, daemon=True)
                lesson.start()
            last = time.monotonic()
    if lesson is not None:
        lesson.join()
    school.settle()
    if school.new:
        school.lesson()
    return 0


if __name__ == "__main__":
    sys.exit(main())
