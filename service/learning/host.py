"""The model's side of a running service: unknown lines and questions go to the worker process; rules and answers come back.

No log ever waits for this. ``feed`` puts what a scan kept on a bounded queue; if that is full, it is dropped and counted. A
diagnosis is stored and published before anybody is asked about it. What must not be lost is a row in ``tasks``, written in the
transaction of its cause, so it is begun again after a crash. The worker process (``service.learning.worker``) is started when
it has something to do, and again when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from diagnose.errors import installed, needs
from diagnose.knowledge.rules import Rule
from diagnose.matching.scan import Scan
from diagnose.report import Report
from service.events import Events
from service.learning.vllm import VLLM
from service.live.matchers import Matchers
from service.quotas import Quotas
from service.settings import Settings
from service.store import Store, tasks
from service.store import diagnoses as stored
from service.store.tasks import Kind, Task, Wanted
from service.telemetry import Telemetry

if TYPE_CHECKING:
    from diagnose.learning.worker_process import WorkerProcess
    from diagnose.model.settings import Settings as ModelSettings
    from service.store.flush import Flush

log = logging.getLogger("diagnose.learning")

_REFRESH_S = 5.0
_LOOK_S = 2.0
_SWEEP_S = 30.0
_PARTS = ("diagnose.agent", "diagnose.learning", "diagnose.model")
_ASKS, _OTHERS = 8, 8
"""tasks in hand at one time"""


@dataclass(slots=True)
class _InHand:
    """A task that the worker process has, until its result is stored."""

    task: Task
    begun: float | None = None
    """since when; only a begun task may be the one that ended the process"""
    answered: bool = False


class Learning:
    """Scanners call ``feed`` and ``tasks_of``. All else is for the event loop."""

    def __init__(
        self,
        store: Store,
        matchers: Matchers,
        events: Events,
        telemetry: Telemetry,
        settings: Settings,
        model: Callable[[], ModelSettings | None],
        worker: Sequence[str] = (sys.executable, "-m", "service.learning.worker"),
        quotas: Quotas | None = None,
    ) -> None:
        """``model`` says where the model is. It is called at the start, when our own vLLM has its port.

        ``worker`` is the command of the worker process.
        """
        self._store, self._matchers, self._events = store, matchers, events
        self._quotas = quotas
        self._telemetry, self._settings, self._where = telemetry, settings, model
        self._model: ModelSettings | None = None
        self.asks = bool(settings.llm or settings.with_vllm)
        """whether there is a model to ask about failures"""
        self.learns = settings.learn
        if self.asks or self.learns:
            needs(*_PARTS)
        self._process: WorkerProcess | None = None
        if all(map(installed, _PARTS)):
            from diagnose.learning.worker_process import WorkerProcess

            self._process = WorkerProcess(worker, self._about, self._said, self._gone)
        self._closing = False
        self._in_hand: dict[int, _InHand] = {}
        self._news = asyncio.Event()
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: list[asyncio.Task[None]] = []
        self._finishing: set[asyncio.Task[None]] = set()

    # --- coming and going ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._model = self._where()
        await self._store.awrite(tasks.cut_off)
        working: list[Coroutine[Any, Any, None]] = [self._refresh_for_ever()]
        if self._process is not None:
            self._process.start()
            working += [self._dispatch_for_ever(self._process), self._sweep_for_ever()]
        self._running = [asyncio.create_task(forever) for forever in working]

    async def close(self) -> None:
        """Stop at once. Tasks in hand are begun again at the next start."""
        for task in (*self._running, *self._finishing):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._closing = True
        if self._process is not None:
            await asyncio.to_thread(self._process.close)
        try:
            await self._store.awrite(partial(tasks.put_back, ids=list(self._in_hand)))
        except Exception as error:
            log.warning(
                "tasks of the learning process could not be handed back, and count as cut off at the next start: %s",
                error,
            )

    # --- for scanners --------------------------------------------------------------------------------------------------------

    def feed(self, job: str, workload: str, scans: Sequence[Scan]) -> None:
        """Take what was kept of a job. Returns at once."""
        if self._process is None:
            return
        fed, missed = self._process.feed(job, workload, scans)
        self._telemetry.learning_lines.labels("fed").inc(fed)
        self._telemetry.learning_lines.labels("missed").inc(missed)

    def tasks_of(self, flush: Flush, rules: Sequence[Rule]) -> tuple[Wanted, ...]:
        """The tasks for the worker at the end of an attempt, to be stored with its diagnosis. ``rules``: those it was read
        with.
        """
        judged, figures = flush.judged, flush.figures
        if judged is None or not judged.final:
            return ()
        found = []
        report = judged.report
        if self.asks:
            from diagnose.agent import gate  # it may be deleted, together with the model's package

            if gate.why_ask(report, rules) is not None:
                found.append(Wanted("ask", {"made_at": judged.made_at}, worth=gate.worth(report, judged.gpu_seconds)))
        dropped = {rule: lines for rule, lines in figures["hits"].items() if lines > 0 and self._matchers.learned(rule)}
        if dropped or self._matchers.watched:
            well = report.outcome == "healthy" and figures["ended_by"] in ("exit", "log")
            found.append(Wanted("watch", {"well": well, "dropped": dropped, "workload": figures["workload"]}))
        return tuple(found)

    # --- tasks ---------------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """There may be tasks. Any thread may call this."""
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._news.set)

    def changed(self) -> None:
        """The rule store has changed: swap soon."""
        self._changed.set()

    async def _dispatch_for_ever(self, process: WorkerProcess) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._news.wait()
            self._news.clear()
            try:
                await self._dispatch(process)
            except Exception as error:
                log.warning("the tasks of the learning process cannot be read: %s", error)
                await asyncio.sleep(_LOOK_S)

    async def _dispatch(self, process: WorkerProcess) -> None:
        kinds: list[tuple[tuple[Kind, ...], int]] = [(("watch", "confirm"), _OTHERS)]
        if self.asks:
            kinds.append((("ask",), _ASKS))
        for wanted, most in kinds:
            room = most - sum(1 for one in self._in_hand.values() if one.task.kind in wanted)
            if room <= 0:
                continue
            begun = await self._store.awrite(partial(tasks.begin, kinds=wanted, limit=room))
            for task in begun:
                self._in_hand[task.id] = _InHand(task)
                if task.kind == "ask" and self._quotas is not None and (why := self._quotas.why_not_ask(task.job)) is not None:
                    self._in_hand[task.id].answered = True
                    self._soon(self._finish(task, {"result": {"asked": False, "why": why}}))
                    continue
                order = {"kind": "task", "id": task.id, "task": task.kind, "attempt_id": task.attempt_id, "detail": task.detail}
                process.order(order)

    async def _finish(self, task: Task, said: dict[str, Any]) -> None:
        """Store an answer of the worker, and publish it."""
        result, now = said["result"], time.time()
        if self._quotas is not None:
            self._quotas.spent(task.job, result.get("tokens", 0))
        report = Report.model_validate(said["report"]) if said.get("report") else None

        def work(connection: Any) -> Flush | None:
            before = flush = None
            if report is not None:
                improved = stored.improve(connection, task.attempt_id, report, said["made_at"], now)
                if improved is None:
                    result["asked"] = False
                    result["why"] = "there is another diagnosis by now"
                else:
                    flush, before = improved
            tasks.end(connection, task.id, "failed" if "problem" in result else "done", result, now, before)
            return flush

        while True:
            try:
                flush = await self._store.awrite(work)
                break
            except Exception as error:
                log.warning("an answer of the learning process waits for the database: %s", error)
                await asyncio.sleep(_LOOK_S)
        held = self._in_hand.pop(task.id, None)
        if task.kind == "ask" and held is not None and held.begun is not None:
            self._telemetry.traces.add(
                "question",
                held.begun,
                time.time(),
                kind="client",
                attempt=(task.job, task.attempt),
                failed=result.get("problem"),
                asked=bool(result.get("asked")),
                replaced=bool(result.get("replaced")),
                tokens=result.get("tokens"),
            )
        self._news.set()
        self._publish(task, result, report, flush)

    def _publish(self, task: Task, result: dict[str, Any], report: Report | None, flush: Flush | None) -> None:
        if task.kind == "ask":
            outcome = "replaced" if result.get("replaced") else "stood" if result.get("asked") else "not_asked"
            self._telemetry.questions.labels("failed" if "problem" in result else outcome).inc()
        if "problem" in result:
            log.warning("job %s attempt %d: %s: %s", task.job, task.attempt, task.kind, result["problem"])
        if task.kind == "confirm":
            known = {name: result.get(name) for name in ("rule", "known", "problem")}
            self._events.publish("diagnosis.learned", job=task.job, attempt=task.attempt, ref=task.ref, **known)
        if flush is None or report is None:
            return
        diagnosis = report.diagnosis
        facts: dict[str, Any] = {
            "job": task.job,
            "attempt": task.attempt,
            "outcome": report.outcome,
            "category": diagnosis.category,
            "reason": diagnosis.reason,
            "summary": diagnosis.summary,
            "nodes": diagnosis.suspects.nodes,
            "group": flush.group_id,
            "by": diagnosis.by,
        }
        self._events.publish("job.diagnosed", final=True, **facts)
        if flush.regressed:
            self._events.publish("failure.regressed", **facts)

    async def _sweep_for_ever(self) -> None:
        """Regularly look for actions that helped, whoever carried them out, and delete what is old."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                if await self._store.awrite(tasks.confirmed_by_actions):
                    self._news.set()
                await self._store.awrite(tasks.prune)
            except Exception as error:
                log.warning("actions that helped could not be looked for: %s", error)

    # --- hot swap ------------------------------------------------------------------------------------------------------------

    async def _refresh_for_ever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_S):
                    await self._changed.wait()
            self._changed.clear()
            try:
                swap = await asyncio.to_thread(self._matchers.refresh)
            except Exception as error:
                log.warning("the learned rules could not be read again: %s", error)
                continue
            for rule in swap.active:
                self._events.publish("rule.active", rule=rule)
            for rule in swap.retired:
                self._events.publish("rule.retired", rule=rule)
            if swap.active or swap.retired:
                log.info("rules at work: %s; no more: %s", ", ".join(swap.active) or "-", ", ".join(swap.retired) or "-")

    # --- the worker process --------------------------------------------------------------------------------------------------

    def _about(self) -> dict[str, Any]:
        """The first frame for the worker."""
        return {
            "database": self._store.url,
            "model": asdict(self._model) if self._model is not None else None,
            "learn": self.learns,
            "redact": self._settings.redact,
            "lesson_s": self._settings.lesson_s,
        }

    def _said(self, said: dict[str, Any]) -> None:
        self._on_loop(self._receive, said)

    def _gone(self, in_order: bool) -> None:
        if not in_order:
            self._telemetry.agent_restarts.inc()
        self._on_loop(self._ended)

    def _receive(self, said: dict[str, Any]) -> None:
        """Handle a frame of the worker, on the event loop."""
        for problem in said.get("problems", []):
            log.warning("%s", problem)
        if "lesson" in said:
            self._telemetry.proposals.labels("proposed").inc(said["lesson"]["proposed"])
            self._telemetry.proposals.labels("refused").inc(said["lesson"]["refused"])
        for name, value in said.get("usage", {}).items():
            if name in ("calls", "cached", "failed"):
                self._telemetry.model_calls.labels(name).inc(max(0, value))
            elif name in ("tokens_in", "tokens_out", "tokens_reused"):
                self._telemetry.model_tokens.labels(name.removeprefix("tokens_")).inc(max(0, value))
        if said.get("changed"):
            self._changed.set()
        if (begun := self._in_hand.get(said.get("begun", -1))) is not None:
            begun.begun = time.time()
        for word, after in (("done", self._finish), ("again", self._put_off)):
            held = self._in_hand.get(said.get(word, -1))
            if held is not None and not held.answered:
                held.answered = True
                self._soon(after(held.task, said))

    def _ended(self) -> None:
        """The worker process is gone, with all that it had in hand. Runs on the event loop."""
        if self._closing or self._process is None:
            return
        self._process.forget_orders()
        lost = {number: one.begun is not None for number, one in self._in_hand.items() if not one.answered}
        for number in lost:
            del self._in_hand[number]
        cut_off = [number for number, begun in lost.items() if begun]
        self._soon(self._begin_again(cut_off, lost.keys() - cut_off))

    async def _put_off(self, task: Task, said: dict[str, Any]) -> None:
        """The worker could not do it now."""
        log.warning("a task of the learning process is postponed: %s", said["why"])
        await asyncio.sleep(_LOOK_S)
        self._in_hand.pop(task.id, None)
        await self._begin_again((), [task.id])

    async def _begin_again(self, cut_off: Collection[int], put_back: Collection[int]) -> None:
        def work(connection: Any) -> None:
            tasks.cut_off(connection, cut_off)
            tasks.put_back(connection, put_back)

        while True:
            try:
                await self._store.awrite(work)
                break
            except Exception as error:
                log.warning("the tasks of the learning process cannot be stored: %s", error)
                await asyncio.sleep(_LOOK_S)
        self._news.set()

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        made = asyncio.get_running_loop().create_task(work)
        self._finishing.add(made)
        made.add_done_callback(self._finishing.discard)

    def _on_loop(self, what: Any, *words: Any) -> None:
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(what, *words)


def endpoint(settings: Settings, beside: VLLM | None) -> ModelSettings | None:
    """The model in these settings, with what it may cost; None if there is none."""
    url = settings.llm or (beside.url if beside is not None else None)
    if url is None:
        return None
    from diagnose.model.settings import Settings as ModelSettings
    from diagnose.model.settings import base_url, with_larger

    found = ModelSettings(
        base_url(url),
        model=settings.model,
        timeout_s=settings.agent_timeout_s,
        calls_per_job=settings.agent_calls_per_job,
        tokens_per_job=settings.agent_tokens_per_job,
        calls_per_hour=settings.agent_calls_per_hour,
        tokens_per_hour=settings.agent_tokens_per_hour,
        redact_hosts=settings.redact_hosts or None,
    )
    return with_larger(found, settings.larger_llm, settings.larger_model) if settings.larger_llm is not None else found
