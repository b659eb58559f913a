"""A lesson about jobs that were read, in the process of the test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from diagnose.job import Job
from diagnose.learning import lesson
from diagnose.learning.lesson import Lesson, heard
from diagnose.learning.miner import Template
from diagnose.learning.rule_store import RuleStore
from diagnose.learning.write_filters import LogAgent, Written
from diagnose.model.model import Model
from diagnose.model.settings import Settings


def learn(jobs: Sequence[Job], store: RuleStore, settings: Settings | None = None, past: Sequence[str] = ()) -> Lesson:
    """As the worker process holds it; ``settings`` are those of a model that is asked."""

    async def asked(templates: Sequence[Template], job: str, segment: int) -> Written:
        assert settings is not None
        async with Model(settings) as model:
            return await LogAgent(model).write(templates, job, segment)

    ask = (lambda *words: asyncio.run(asked(*words))) if settings is not None else None
    return lesson.learn([heard(job, store) for job in jobs], store, time.time(), past, ask)
