"""The model's side of a running service: unknown lines and questions go to the agent's process, rules and answers come back.

What it promises: nothing here makes a log wait. ``feed`` puts what a scan kept on a bounded queue and drops it, counted, when
that is full; a diagnosis is stored and published before anybody is asked about it. What must not be lost is a row in ``tasks``,
written with what asks for it: whoever is killed, it is begun again. The agent's process (``service.learning.worker``) is
started when there is something for it to do, and again when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from diagnose.diagnosis.evidence import Evidence
from diagnose.matching.scan import KEPT, Scan
from diagnose.model.settings import Settings as ModelSettings
from diagnose.model.settings import base_url
from diagnose.report import Report
from service.events import Events
from service.learning.vllm import VLLM
from service.live.matchers import Matchers
from service.settings import Settings
from service.store import Store, tasks
from service.store import attempts as stored
from service.store.tasks import Kind, Task, Wanted
from service.telemetry import Telemetry

if TYPE_CHECKING:
    from service.live.attempt import Attempt
    from service.store.attempts import Flush

log = logging.getLogger("diagnose.learning")

_MOST_WAITING, _MOST_BYTES = 1024, 8 << 20
"""scans that wait for the agent's process, and bytes of them"""
_REFRESH_S = 5.0
_LOOK_S = 2.0
_TICK_S = 2.0
_SWEEP_S = 30.0
FRAME = struct.Struct("<III")
"""length of the JSON head, of the records of kept lines, and of their text"""
_ASKS, _OTHERS = 8, 8
"""tasks in hand at one time"""
_FIRST_PAUSE_S, _MOST_PAUSE_S = 1.0, 60.0


@dataclass(slots=True)
class _InHand:
    """A task that the agent's process was given, until what came of it is stored."""

    task: Task
    begun: bool = False
    """only such a task may be what ended the process"""
    answered: bool = False


class Learning:
    """``feed`` and ``tasks_of`` are for scanners; everything else is for the event loop."""

    def __init__(
        self,
        store: Store,
        matchers: Matchers,
        events: Events,
        telemetry: Telemetry,
        settings: Settings,
        model: Callable[[], ModelSettings | None],
        agent: Sequence[str] = (sys.executable, "-m", "service.learning.worker"),
    ) -> None:
        """``model`` tells where the model is; it is asked at the start, when a vLLM of our own has its port.

        ``agent`` is the command of its process.
        """
        self._agent = agent
        self._store, self._matchers, self._events = store, matchers, events
        self._telemetry, self._settings, self._where = telemetry, settings, model
        self._model: ModelSettings | None = None
        self.asks = bool(settings.llm or settings.with_vllm)
        """whether there is a model to ask about failures"""
        self.learns = settings.learn
        self._scans: deque[tuple[str, str, Scan]] = deque()
        self._bytes = 0
        self._orders: deque[dict[str, Any]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._child: subprocess.Popen[bytes] | None = None
        self._in_hand: dict[int, _InHand] = {}
        self._news = asyncio.Event()
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: list[asyncio.Task[None]] = []
        self._finishing: set[asyncio.Task[None]] = set()
        self._writer = threading.Thread(target=self._write_for_ever, name="agent-writer", daemon=True)

    # --- coming and going ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._model = self._where()
        await self._store.awrite(tasks.cut_off)
        self._writer.start()
        for forever in (self._dispatch_for_ever(), self._refresh_for_ever(), self._sweep_for_ever()):
            self._running.append(asyncio.create_task(forever))

    async def close(self) -> None:
        """At once: what is in hand is begun again at the next start."""
        for task in (*self._running, *self._finishing):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        with self._wake:
            self._closing = True
            self._wake.notify()
        child = self._child
        if child is not None:
            child.terminate()
        if self._writer.is_alive():
            await asyncio.to_thread(self._writer.join, 5)
        if child is not None:
            child.kill()
            await asyncio.to_thread(child.wait)
        try:
            await self._store.awrite(partial(tasks.put_back, ids=list(self._in_hand)))
        except Exception as error:
            log.warning("tasks of the agent are taken for cut off at the next start: %s", error)

    # --- for scanners --------------------------------------------------------------------------------------------------------

    def feed(self, job: str, workload: str, scans: Sequence[Scan]) -> None:
        """What was kept of a job. Returns at once."""
        fed = missed = 0
        with self._wake:
            for scan in scans:
                lines = len(scan.kept) // KEPT.size
                if not lines:
                    continue
                if len(self._scans) >= _MOST_WAITING or self._bytes + len(scan.text) > _MOST_BYTES:
                    missed += lines
                    continue
                fed += lines
                self._bytes += len(scan.text)
                self._scans.append((job, workload, scan))
            self._wake.notify()
        self._telemetry.learning_lines.labels("fed").inc(fed)
        self._telemetry.learning_lines.labels("missed").inc(missed)

    def tasks_of(self, attempt: Attempt, flush: Flush) -> tuple[Wanted, ...]:
        """What the end of an attempt asks of the agent, to be stored with its diagnosis."""
        verdict, job = flush.verdict, attempt.analysis
        if verdict is None or not verdict.final or job is None:
            return ()
        found = []
        report, rules = verdict.report, job.compression.matcher.rules
        if self.asks and report.outcome == "failed":
            from diagnose.agent.explain import weakness  # brings the prompts with it: not without a model

            if weakness(report, Evidence([], rules, [])) is not None:
                found.append(Wanted("ask", {"made_at": verdict.made_at}))
        dropped = {
            rules[number].id: lines
            for number, lines in job.compression.counts.dropped.items()
            if lines > 0 and self._matchers.learned(rules[number].id)
        }
        if dropped or self._matchers.watched:
            well = report.outcome == "healthy" and attempt.end is not None and attempt.end.by in ("exit", "log")
            found.append(Wanted("watch", {"well": well, "dropped": dropped, "workload": attempt.workload}))
        return tuple(found)

    # --- tasks ---------------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """There may be tasks. From any thread."""
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._news.set)

    def changed(self) -> None:
        """The book has changed: swap soon."""
        self._changed.set()

    async def _dispatch_for_ever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._news.wait()
            self._news.clear()
            try:
                await self._dispatch()
            except Exception as error:
                log.warning("tasks of the agent cannot be read: %s", error)
                await asyncio.sleep(_LOOK_S)

    async def _dispatch(self) -> None:
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
                order = {"kind": "task", "id": task.id, "task": task.kind, "attempt_id": task.attempt_id, "detail": task.detail}
                with self._wake:
                    self._orders.append(order)
                    self._wake.notify()

    async def _finish(self, task: Task, said: dict[str, Any]) -> None:
        """An answer of the agent: stored, and told."""
        result, now = said["result"], time.time()
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
                log.warning("an answer of the agent waits for the database: %s", error)
                await asyncio.sleep(_LOOK_S)
        self._in_hand.pop(task.id, None)
        self._news.set()
        self._tell(task, result, report, flush)

    def _tell(self, task: Task, result: dict[str, Any], report: Report | None, flush: Flush | None) -> None:
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
        """Actions that helped, whoever carried them out; what is old."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                if await self._store.awrite(tasks.confirmed_by_actions):
                    self._news.set()
                await self._store.awrite(tasks.prune)
            except Exception as error:
                log.warning("sweeping: %s", error)

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
                log.warning("the learned rules were not read anew: %s", error)
                continue
            for rule in swap.active:
                self._events.publish("rule.active", rule=rule)
            for rule in swap.retired:
                self._events.publish("rule.retired", rule=rule)
            if swap.active or swap.retired:
                log.info("rules at work: %s; no more: %s", ", ".join(swap.active) or "-", ", ".join(swap.retired) or "-")

    # --- the agent's process -------------------------------------------------------------------------------------------------

    def _write_for_ever(self) -> None:
        """Starts it when there is something to do, feeds it, and starts it again when it has ended."""
        pause = _FIRST_PAUSE_S
        while self._wait_for_work(None):
            began = time.monotonic()
            try:
                with self._started() as child:
                    assert child.stdin is not None
                    self._feed_child(child.stdin)
            except OSError as error:
                if not self._closing:
                    log.warning("the agent's process has ended: %s", error)
            if self._closing:
                return
            self._telemetry.agent_restarts.inc()
            pause = _FIRST_PAUSE_S if time.monotonic() - began > _MOST_PAUSE_S else min(2 * pause, _MOST_PAUSE_S)
            with self._wake:
                self._wake.wait_for(lambda: self._closing, pause)

    @contextlib.contextmanager
    def _started(self) -> Any:
        child = self._child = subprocess.Popen(  # noqa: S603 - our own interpreter, save in tests
            self._agent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        reader = threading.Thread(target=self._read, args=(child,), name="agent-reader", daemon=True)
        reader.start()
        try:
            yield child
        finally:
            with contextlib.suppress(OSError):
                if child.stdin is not None:
                    child.stdin.close()
            child.kill()
            reader.join(5)
            child.wait()
            self._on_loop(self._ended)

    def _feed_child(self, out: IO[bytes]) -> None:
        about = {
            "database": self._store.url,
            "model": asdict(self._model) if self._model is not None else None,
            "learn": self.learns,
            "redact": self._settings.redact,
            "lesson_s": self._settings.lesson_s,
        }
        _send(out, about)
        while not self._closing:
            self._wait_for_work(_TICK_S)
            with self._wake:
                order = self._orders.popleft() if self._orders else None
                scan = self._scans.popleft() if order is None and self._scans else None
                if scan is not None:
                    self._bytes -= len(scan[2].text)
            if order is not None:
                _send(out, order)
            elif scan is not None:
                job, workload, kept = scan
                _send(out, {"kind": "scan", "job": job, "workload": workload}, kept.kept, kept.text)
            else:
                _send(out, {"kind": "tick"})

    def _wait_for_work(self, timeout_s: float | None) -> bool:
        """Until there is some, or so long; False: it is over."""
        with self._wake:
            self._wake.wait_for(lambda: self._closing or self._orders or self._scans, timeout_s)
            return not self._closing

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                log.warning("the agent's process says: %s", line[:300].decode("utf-8", "replace").strip())
                continue
            self._on_loop(self._hear, said)
        # The writer may be asleep: it notices at its next tick, for nobody reads the pipe.

    def _hear(self, said: dict[str, Any]) -> None:
        """On the event loop."""
        for problem in said.get("problems", []):
            log.warning("%s", problem)
        if "lesson" in said:
            self._telemetry.proposals.labels("proposed").inc(said["lesson"]["proposed"])
            self._telemetry.proposals.labels("refused").inc(said["lesson"]["refused"])
        for name, value in said.get("usage", {}).items():
            if name in ("calls", "cached", "failed"):
                self._telemetry.model_calls.labels(name).inc(max(0, value))
            elif name in ("tokens_in", "tokens_out"):
                self._telemetry.model_tokens.labels(name.removeprefix("tokens_")).inc(max(0, value))
        if said.get("changed"):
            self._changed.set()
        if (begun := self._in_hand.get(said.get("begun", -1))) is not None:
            begun.begun = True
        for word, after in (("done", self._finish), ("again", self._put_off)):
            held = self._in_hand.get(said.get(word, -1))
            if held is not None and not held.answered:
                held.answered = True
                self._soon(after(held.task, said))

    def _ended(self) -> None:
        """On the event loop: the agent's process is gone, and with it what it had in hand."""
        if self._closing:
            return
        with self._wake:
            self._orders.clear()
        lost = {number: one.begun for number, one in self._in_hand.items() if not one.answered}
        for number in lost:
            del self._in_hand[number]
        cut_off = [number for number, begun in lost.items() if begun]
        self._soon(self._begin_again(cut_off, lost.keys() - cut_off))

    async def _put_off(self, task: Task, said: dict[str, Any]) -> None:
        """The agent could not do it now."""
        log.warning("a task of the agent is put off: %s", said["why"])
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
                log.warning("tasks of the agent: %s", error)
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
    """The model that these settings name, with what it may cost; None where there is none."""
    url = settings.llm or (beside.url if beside is not None else None)
    if url is None:
        return None
    return ModelSettings(
        base_url(url),
        model=settings.model,
        timeout_s=settings.agent_timeout_s,
        calls_per_job=settings.agent_calls_per_job,
        tokens_per_job=settings.agent_tokens_per_job,
        calls_per_hour=settings.agent_calls_per_hour,
        tokens_per_hour=settings.agent_tokens_per_hour,
    )


def _send(out: IO[bytes], head: dict[str, Any], records: bytes = b"", text: bytes = b"") -> None:
    data = json.dumps(head, default=str).encode()
    out.write(FRAME.pack(len(data), len(records), len(text)))
    out.write(data)
    out.write(records)
    out.write(text)
    out.flush()
