"""Learning from jobs that have ended. The worker process holds one lesson, and the caller waits for it."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.errors import DiagnoseError
from diagnose.learning.lesson import Heard
from diagnose.learning.worker_process import WORKER, WorkerProcess, about

if TYPE_CHECKING:
    from diagnose.model.settings import Settings


def learn(
    jobs: Sequence[Heard],
    rules: str | Path,
    past: Sequence[str] = (),
    settings: Settings | None = None,
    worker: Sequence[str] = WORKER,
) -> dict[str, Any]:
    """The lesson about ``jobs``, in the form of ``Lesson.as_dict``.

    ``rules``: the file of learned rules. ``settings``: of a model that is asked for rules. ``past``: lines that known failures
    began with.
    """
    said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def receive(line: dict[str, Any]) -> None:
        if "done" in line:
            said.put(line["result"])

    def ended(_: bool) -> None:
        said.put({"problem": "the worker process has ended in the middle of it"})

    process = WorkerProcess(worker, lambda: about(rules, settings), receive, ended)
    process.order({"kind": "task", "id": 1, "task": "lesson", "detail": {"jobs": list(jobs), "past": list(past)}})
    process.start()
    try:
        result = said.get()
    finally:
        process.close()
    if "problem" in result:
        remedy = "run the same command again: what was proposed is judged by the next lesson"
        raise DiagnoseError(f"nothing was learned: {result['problem']}", where=str(rules), remedy=remedy)
    return result
