"""The agent's process: what a model or much thinking is needed for, away from the service, at low priority.

It reads frames from its standard input (kept lines of live jobs, tasks) and answers with JSON lines. It holds nothing that
cannot be lost: rules and incidents are in the database, tasks stay there until their answer is stored, and lines that no rule
knows come again. So whoever kills it, or it itself when its input ends, may do that at any time.

One ``Model`` serves all questions, so that budgets, concurrency and the circuit breaker hold for all of them together.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from diagnose.agent.explain import improve
from diagnose.errors import DiagnoseError
from diagnose.knowledge.rules import Family, Rule, RuleSet, load
from diagnose.learning.learned_rule import Counts, Learned, State, settle
from diagnose.learning.lesson import taught
from diagnose.learning.miner import Miner, Template
from diagnose.learning.write_failures import learn, watch
from diagnose.learning.write_filters import LogAgent, Written
from diagnose.matching.matcher import Matcher, unusable
from diagnose.matching.scan import KEPT
from diagnose.model.model import Model
from diagnose.model.settings import Settings
from diagnose.reading.prefixes import body_start
from diagnose.redaction.text import redact
from diagnose.report import EvidenceLine, Report
from service.learning.host import FRAME
from service.store import Store, Within, away, kept_lines, reason, tasks
from service.store import tables as t
from service.store.attempts import gist, unpacked
from service.store.incidents import StoreIncidents
from service.store.learned_rules import StoreBook

_PRIORITY = 10
_LESSON_S = 5.0
_FEWEST_NEW = 20
_MOST_WORKLOADS = 16
"""whose lines are gathered at one time"""
_MOST_EVIDENCE = 5_000
_MOST_BODIES = 20_000
_HEALTHY_RUNS, _HEALTHY_LINES = 20, 500
_PROBLEMS = 5


def tell(**what: Any) -> None:
    """A line to the service."""
    text = json.dumps(what) + "\n"
    with _telling:
        sys.stdout.write(text)
        sys.stdout.flush()


_telling = threading.Lock()


class Workable:
    """Which learned rules compile here. One that does not is said once and left out: everything else goes on."""

    def __init__(self) -> None:
        self._tried: set[str] = set()
        self._bad: set[str] = set()
        self._lock = threading.Lock()

    def of(self, known: Sequence[Learned]) -> list[Learned]:
        with self._lock:
            fresh = [one.rule for one in known if one.rule.id not in self._tried]
            self._tried |= {rule.id for rule in fresh}
            if bad := unusable(fresh, "plain"):
                self._bad |= bad.keys()
                tell(problems=[f"the learned rule {name} does nothing here: {why}" for name, why in bad.items()])
            return [one for one in known if one.rule.id not in self._bad]


@dataclass(slots=True)
class _Gathered:
    """Unknown lines of one workload."""

    miner: Miner = field(default_factory=Miner)
    jobs: dict[str, None] = field(default_factory=dict)
    new: int = 0


class School:
    """Unknown lines -> proposals -> shadow -> active, for all jobs. One thread feeds it; lessons have a thread of their own."""

    def __init__(
        self,
        book: StoreBook,
        workable: Workable,
        *,
        redacts: bool,
        lesson_s: float,
        roots: Callable[[], list[str]] = list,
    ) -> None:
        """``roots``: the lines that known failures began with."""
        self.book, self._workable, self._redacts, self._lesson_s = book, workable, redacts, lesson_s
        self._gathered: OrderedDict[str, _Gathered] = OrderedDict()
        self._evidence: OrderedDict[str, None] = OrderedDict()
        self._counts: dict[tuple[str, str], Counts] = {}
        self._counted: Matcher | None = None
        self._lock = threading.Lock()
        self._segment = 0
        self._last = time.monotonic()
        self._lesson: threading.Thread | None = None
        self.ask: Any = None
        """asks a model for rules; None: the miner's templates"""
        self._roots = roots
        self._count()

    def take(self, job: str, workload: str, records: bytes, text: bytes) -> None:
        """The kept lines of one scan."""
        matched: Counter[str] = Counter()
        dirty: Counter[str] = Counter()
        with self._lock:
            gathered = self._gathered.setdefault(workload, _Gathered())
            self._gathered.move_to_end(workload)
            if len(self._gathered) > _MOST_WORKLOADS:
                self._gathered.popitem(last=False)
            counted = self._counted
            for _, offset, length, rule, cut, *_ in KEPT.iter_unpack(records):
                if cut:
                    continue
                segment = text[offset : offset + length]
                body = segment[body_start(segment) :]
                hits = [counted.rules[number].id for number in counted.matches(body)] if counted is not None else []
                matched.update(hits)
                if rule == -1:
                    line = body.decode("utf-8", "replace")
                    # What may not be stored may not be in a rule either.
                    if not (self._redacts and redact(line).text != line):
                        gathered.miner.add(line)
                        gathered.new += 1
                elif rule >= 0:
                    dirty.update(hits)
                    self._evidence[body.decode("utf-8", "replace")] = None
                    if len(self._evidence) > _MOST_EVIDENCE:
                        self._evidence.popitem(last=False)
            gathered.jobs[job] = None
            now = time.time()
            for name, times in matched.items():
                key = name, workload
                self._counts[key] = self._counts.get(key, Counts()) + Counts(times, dirty[name], 0, now)

    def tick(self) -> None:
        """Now and then: counts are stored, states follow from them, and the next lesson begins where the last one is over."""
        if time.monotonic() - self._last < self._lesson_s:
            return
        self._last = time.monotonic()
        with self._lock:
            counts, self._counts = self._counts, {}
        try:
            for name, workload in list(counts):
                self.book.count(name, workload, counts[name, workload])
                del counts[name, workload]
        finally:
            with self._lock:  # what the database did not take, it takes the next time
                for key, met in counts.items():
                    self._counts[key] = self._counts.get(key, Counts()) + met
        changed = settle(self.book, time.time())
        if changed:
            tell(changed=[(known.rule.id, known.state) for known in changed])
        self._count()
        if self._lesson is not None and self._lesson.is_alive():
            return  # with a slow model it may take half an hour
        with self._lock:
            ready = max(self._gathered.items(), key=lambda pair: pair[1].new, default=("", _Gathered()))
            if ready[1].new >= _FEWEST_NEW:
                del self._gathered[ready[0]]
                self._lesson = threading.Thread(target=self._teach, args=(ready[1],), name="lesson", daemon=True)
                self._lesson.start()

    def _count(self) -> None:
        """The filters that are counted from now on: those in shadow, and the active ones, which may yet meet evidence."""
        known = self._workable.of(self.book.rules("shadow", "active", family="filters"))
        rules = {one.rule.id for one in known}
        with self._lock:
            if rules != ({rule.id for rule in self._counted.rules} if self._counted is not None else set()):
                self._counted = Matcher(RuleSet.of(one.rule for one in known), "plain") if known else None

    def _teach(self, gathered: _Gathered) -> None:
        with self._lock:
            evidence = list(self._evidence)
            self._segment += 1
        try:
            evidence += self._roots()
            lesson = taught(
                gathered.miner, list(gathered.jobs), self.book, evidence, time.time(), segment=self._segment, ask=self.ask
            )
        except SQLAlchemyError as error:
            tell(problems=[f"a lesson was lost: {reason(error)}"])
            return
        tell(
            lesson={"proposed": lesson.proposed, "refused": len(lesson.refused)},
            problems=list(dict.fromkeys(lesson.problems))[:_PROBLEMS],
        )


class _Notes(StoreBook):
    """The book as ``watch`` sees it: rules that compile here, and counts that are noted, for they are stored all at once."""

    def __init__(self, store: Store, workable: Workable) -> None:
        super().__init__(store)
        self._workable = workable
        self.counts: list[tuple[str, str, Counts]] = []

    def rules(self, *states: State, family: Family | None = None) -> list[Learned]:
        return self._workable.of(super().rules(*states, family=family))

    def count(self, rule_id: str, workload: str, counts: Counts) -> None:
        self.counts.append((rule_id, workload, counts))

    def write(self, known: Learned, was: State) -> bool:
        return False  # states follow from the counts when those are stored


class Agent:
    """Tasks, and the model that they may need."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.store = Store(about["database"])
        self.book = StoreBook(self.store)
        self.incidents = StoreIncidents(self.store)
        self.model = Model(Settings(**about["model"])) if about["model"] else None
        self.workable = Workable()
        self.school = School(
            self.book,
            self.workable,
            redacts=about["redact"],
            lesson_s=about["lesson_s"] or _LESSON_S,
            roots=self.incidents.roots,
        )
        self.asks_for_rules = about["learn"] and self.model is not None
        self._shipped = load()
        self._confirming = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._spent: dict[str, float] = {}

    async def run(self, frames: Iterator[tuple[dict[str, Any], bytes, bytes]]) -> None:
        """Until the input ends."""
        loop = self._loop = asyncio.get_running_loop()
        if self.asks_for_rules:
            self.school.ask = self._asked
        ended = asyncio.Event()
        running: set[asyncio.Task[None]] = set()

        def begin(task: dict[str, Any]) -> None:
            made = loop.create_task(self._do(task))
            running.add(made)
            made.add_done_callback(running.discard)

        def read() -> None:
            try:
                for head, records, text in frames:
                    if head["kind"] == "scan":
                        self.school.take(head["job"], head["workload"], records, text)
                    elif head["kind"] == "task":
                        loop.call_soon_threadsafe(begin, head)
                    try:
                        self.school.tick()
                    except SQLAlchemyError as error:
                        tell(problems=[f"the database: {reason(error)}"])
            finally:
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=read, name="reader", daemon=True).start()
        await ended.wait()

    def _asked(self, templates: Sequence[Template], job: str, segment: int) -> Written:
        """Called by a lesson's thread."""
        assert self.model is not None
        assert self._loop is not None
        asking = LogAgent(self.model).write(templates, job, segment)
        try:
            return asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        finally:
            self._tell_usage()

    async def _do(self, task: dict[str, Any]) -> None:
        tell(begun=task["id"])  # so that it is known which tasks were in hand, should one of them end this process
        try:
            answer = await {"ask": self._ask, "confirm": self._confirm, "watch": self._watch}[task["task"]](task)
            tell(done=task["id"], **answer)
        except SQLAlchemyError as error:
            if away(error):
                tell(again=task["id"], why=reason(error))
            else:  # it would be the same the next time
                tell(done=task["id"], result={"problem": f"the database: {reason(error)}"})
        except DiagnoseError as error:
            tell(done=task["id"], result={"problem": str(error)})
        except Exception as error:
            logging.exception("the task %s", task)
            tell(done=task["id"], result={"problem": f"{type(error).__name__}: {error}"[:500]})
        finally:
            self._tell_usage()

    async def _ask(self, task: dict[str, Any]) -> dict[str, Any]:
        """May a model improve this diagnosis?"""
        report, made_at = await asyncio.to_thread(self._report, task["attempt_id"])
        if self.model is None or report is None or made_at != task["detail"]["made_at"]:
            return {"result": {"asked": False, "why": "there is another diagnosis by now"}}
        rules = await asyncio.to_thread(self._rules)
        evidence = await asyncio.to_thread(
            self.store.read, lambda connection: kept_lines.evidence(connection, task["attempt_id"], rules)
        )
        found = await improve(report, evidence, self.model, self.incidents)
        result = {"asked": found.asked, "replaced": found.replaced, "why": found.why, "rules": gist(report)}
        if found.report is report:
            return {"result": result}
        return {"result": result, "report": found.report.as_dict(), "made_at": made_at}

    async def _confirm(self, task: dict[str, Any]) -> dict[str, Any]:
        """A diagnosis is confirmed, or corrected: remember it, and write a rule for it."""
        attempt, detail = task["attempt_id"], task["detail"]
        report, _ = await asyncio.to_thread(self._report, attempt)
        if report is None:
            return {"result": {"problem": "there is no report to learn from"}}
        if detail["by"] == "action" and report.diagnosis.reason != detail.get("reason", report.diagnosis.reason):
            return {"result": {"why": "there is another diagnosis by now"}}
        now = time.time()
        if detail.get("reason") == "healthy":
            lines = await asyncio.to_thread(
                self.store.read, lambda connection: kept_lines.bodies(connection, attempt, _MOST_BODIES)
            )
            return await asyncio.to_thread(self._counted, task["id"], self._notes(), lines, now, well=True)
        if detail.get("line") is not None:
            report = await asyncio.to_thread(self._with_root, attempt, report, detail.get("source"), detail["line"])
        elif report.outcome != "failed":
            report = report.model_copy(update={"outcome": "failed"})
        well = await asyncio.to_thread(
            self.store.read, lambda connection: kept_lines.healthy(connection, _HEALTHY_RUNS, _HEALTHY_LINES)
        )
        async with self._confirming:
            lesson = await learn(
                report,
                self.book,
                self.incidents,
                now,
                model=self.model,
                healthy=well,
                reason=detail.get("reason"),
                by=detail["by"],
            )
        result = {
            "rule": lesson.rule.id if lesson.rule else None,
            "known": lesson.known,
            "refused": [f"{refusal.name}: {refusal.what}" for _, refusal in lesson.refused],
            "notes": list(lesson.notes),
        }
        return {"result": result, "changed": [(lesson.rule.id, "shadow")] if lesson.rule else []}

    async def _watch(self, task: dict[str, Any]) -> dict[str, Any]:
        """A job has ended: what it says for or against failure rules, and which filters were of use."""
        detail, now = task["detail"], time.time()
        workload = detail["workload"] or ""

        def work() -> dict[str, Any]:
            notes = self._notes()
            for rule, lines in detail["dropped"].items():
                notes.count(rule, workload, Counts(lines, 0, 1, now))
            bodies = self.store.read(lambda connection: kept_lines.bodies(connection, task["attempt_id"], _MOST_BODIES))
            return self._counted(task["id"], notes, bodies, now, well=detail["well"], workload=workload)

        return await asyncio.to_thread(work)

    def _notes(self) -> _Notes:
        return _Notes(self.store, self.workable)

    def _counted(
        self, task: int, notes: _Notes, bodies: Sequence[str], now: float, *, well: bool, workload: str = ""
    ) -> dict[str, Any]:
        """A job's lines are held against the failure rules. What comes of it is stored with the end of the task, so that a task
        that is begun again never counts a job twice."""
        watch(notes, bodies, now, well=well, workload=workload)

        def work(connection: Connection) -> dict[str, Any]:
            if not tasks.under_way(connection, task):
                return {"result": {}}
            book = StoreBook(Within(connection))
            for counts in notes.counts:
                book.count(*counts)
            changed = settle(book, now)
            result = {"retired": [one.rule.id for one in changed if one.state == "retired"]}
            tasks.end(connection, task, "done", result, now)
            return {"result": result, "changed": [(one.rule.id, one.state) for one in changed]}

        return self.store.write(work)

    def _report(self, attempt_id: int) -> tuple[Report | None, float]:
        d = t.diagnoses.c
        row = self.store.read(
            lambda connection: connection.execute(select(d.report, d.made_at).where(d.attempt_id == attempt_id)).first()
        )
        return (Report.model_validate(unpacked(row.report)), row.made_at) if row is not None else (None, 0.0)

    def _rules(self) -> list[Rule]:
        return [*self._shipped, *(known.rule for known in self.book.rules("active"))]

    def _with_root(self, attempt_id: int, report: Report, source: str | None, number: int) -> Report:
        """``report`` with the root line that a person named."""
        row = self.store.read(lambda connection: kept_lines.line(connection, attempt_id, source, number))
        if row is None:
            raise DiagnoseError(
                "that line was not kept", where=f"{source or 'any source'}:{number}", remedy="name a line of the compressed log"
            )
        root = EvidenceLine(source=row.name, line=row.line, text=row.text, role="root_cause", rank=row.rank, node=row.node)
        diagnosis = report.diagnosis.model_copy(update={"root_cause": root})
        return report.model_copy(update={"outcome": "failed", "diagnosis": diagnosis})

    def _tell_usage(self) -> None:
        """What the model has cost since the last time."""
        if self.model is None:
            return
        usage = self.model.usage
        now = {
            "calls": usage.calls,
            "cached": usage.cached,
            "failed": usage.failed,
            "tokens_in": usage.tokens_in,
            "tokens_out": usage.tokens_out,
            "seconds": usage.seconds,
        }
        tell(usage={name: value - self._spent.get(name, 0) for name, value in now.items()}, breaker=self.model.breaker)
        self._spent = now


def frames(source: IO[bytes]) -> Iterator[tuple[dict[str, Any], bytes, bytes]]:
    """(what it is, kept records, text) of each frame."""
    while len(head := source.read(FRAME.size)) == FRAME.size:
        size, records, text = FRAME.unpack(head)
        yield json.loads(source.read(size)), source.read(records), source.read(text)


def main() -> int:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    os.nice(_PRIORITY)
    incoming = frames(sys.stdin.buffer)
    about, _, _ = next(incoming)
    asyncio.run(Agent(about).run(incoming))
    sys.stdout.flush()
    os._exit(0)  # threads may be in the middle of a lesson: what they do is not lost, and nobody waits for it


if __name__ == "__main__":
    sys.exit(main())
