"""The process that learns, away from the jobs and at low priority: ``python -m diagnose.learning.worker``.

It reads frames from its standard input and answers with JSON lines (``wire``). All that it holds may be lost: rules are in the
rule store, and unknown lines come again. So it may be killed at any time, and it ends when its input ends. One ``Model`` serves
all questions, so that budgets, concurrency and the circuit breaker hold for all of them together. A service extends it with
tasks (``service.learning.worker``).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from diagnose.errors import said_first
from diagnose.learning.lesson import Heard, learn
from diagnose.learning.miner import Template
from diagnose.learning.rule_store import RuleFile, RuleStore
from diagnose.learning.school import LESSON_S, School, Workable
from diagnose.learning.wire import emit, frames
from diagnose.learning.write_filters import LogAgent, Written
from diagnose.model.model import Model
from diagnose.model.settings import Settings

_PRIORITY = 10


class Worker:
    """The school, and the model that its lessons may ask."""

    def __init__(self, about: dict[str, Any], store: RuleStore, roots: Callable[[], list[str]] = list) -> None:
        """``about``: the first frame, with ``model``, ``learn``, ``redact`` and ``lesson_s``."""
        self.store = store
        self.model = Model(Settings(**about["model"])) if about["model"] else None
        self.workable = Workable()
        lesson_s = about["lesson_s"] if about["lesson_s"] is not None else LESSON_S
        self.school = School(store, self.workable, redacts=about["redact"], lesson_s=lesson_s, roots=roots)
        if about["learn"] and self.model is not None:
            self.school.ask = self._ask_for_rules
        self._loop: asyncio.AbstractEventLoop | None = None
        self._spent: dict[str, float] = {}

    async def run(self, incoming: Iterator[tuple[dict[str, Any], bytes, bytes]]) -> None:
        """Work until the input ends or a frame says so."""
        loop = self._loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        running: set[asyncio.Task[None]] = set()

        def begin(task: dict[str, Any]) -> None:
            made = loop.create_task(self.do(task))
            running.add(made)
            made.add_done_callback(running.discard)

        def read() -> None:
            try:
                for head, records, text in incoming:
                    if head["kind"] == "task":
                        loop.call_soon_threadsafe(begin, head)
                    elif not self._learned(head, records, text):
                        return
            finally:
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=read, name="reader", daemon=True).start()
        await ended.wait()

    async def do(self, task: dict[str, Any]) -> None:
        """Give the lesson about logs that have ended. A service has other tasks."""
        try:
            emit(done=task["id"], result=await asyncio.to_thread(self._lesson, **task["detail"]))
        except SQLAlchemyError as error:
            emit(done=task["id"], result={"problem": f"the database: {said_first(error)}"})
        except Exception as error:
            logging.exception("the lesson")
            emit(done=task["id"], result={"problem": f"{type(error).__name__}: {error}"[:500]})

    def _lesson(self, jobs: list[list[Any]], past: list[str]) -> dict[str, Any]:
        return learn([Heard(*one) for one in jobs], self.store, time.time(), past, self.school.ask).as_dict()

    def emit_usage(self) -> None:
        """Send what the model has cost since the last time."""
        if self.model is None:
            return
        usage = self.model.usage
        names = ("calls", "cached", "failed", "tokens_in", "tokens_out", "tokens_reused", "seconds")
        now = {name: getattr(usage, name) for name in names}
        emit(usage={name: value - self._spent.get(name, 0) for name, value in now.items()}, breaker=self.model.breaker)
        self._spent = now

    def _learned(self, head: dict[str, Any], records: bytes, text: bytes) -> bool:
        """Do what a frame of any other kind asks for. False: it was the last."""
        try:
            if head["kind"] == "scan":
                self.school.take(head["job"], head["workload"], records, text)
            elif head["kind"] == "end":
                self.school.finish()
                return False
            self.school.tick()
        except SQLAlchemyError as error:
            emit(problems=[f"the database: {said_first(error)}"])
            return bool(head["kind"] != "end")
        return True

    def _ask_for_rules(self, templates: Sequence[Template], job: str, segment: int) -> Written:
        """Called by a lesson's thread."""
        assert self.model is not None
        assert self._loop is not None
        asking = LogAgent(self.model).write(templates, job, segment)
        try:
            return asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        finally:
            self.emit_usage()


def process(made: Callable[[dict[str, Any]], Worker]) -> None:
    """Run this process from its first frame to its end."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    os.nice(_PRIORITY)
    incoming = frames(sys.stdin.buffer)
    about, _, _ = next(incoming)
    asyncio.run(made(about).run(incoming))
    sys.stdout.flush()
    os._exit(0)  # threads may be in the middle of a lesson: nothing of it is lost, and nobody waits for it


if __name__ == "__main__":
    process(lambda about: Worker(about, RuleStore(RuleFile(about["rules"]))))
