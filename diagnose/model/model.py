"""Questions -> checked answers, from any endpoint that speaks OpenAI's protocol. This is the only way to a model.

``Model.ask`` does not raise for anything that an endpoint does. The endpoint may be down or slow or over its limits. It may
send half an answer, no JSON, or another JSON than asked for. ``Answer.problems`` then says what is missing, and
``Answer.values`` has only what fits the schema of the question. ``Model`` never spends more than its budgets, leaves an
endpoint alone after repeated failures, and sends nothing when it replays recorded answers.

The caller must redact the text first; see ``docs/model.md``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from diagnose.model import capabilities, recordings
from diagnose.model.answers import Answer, Ask, Choice, judged, validator_of
from diagnose.model.budget import Tally, Usage, together
from diagnose.model.capabilities import Capabilities, Capability
from diagnose.model.endpoint import Endpoint
from diagnose.model.protocol import (
    Request,
    Trouble,
    about_tokens,
    body_of,
    both,
    choices_in,
    clean,
    embedding_models,
    embedding_request,
    embeddings_in,
    mark_prefix,
    plainer,
)
from diagnose.model.recordings import RECORD_FORMAT, folder_for
from diagnose.model.settings import Settings, base_url, redacts_hosts, shown_url

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = [
    "RECORD_FORMAT",
    "Answer",
    "Ask",
    "Capabilities",
    "Capability",
    "Model",
    "Settings",
    "Usage",
    "base_url",
    "shown_url",
]

_TEXTS_A_REQUEST = 64


class Model:
    """A model behind an endpoint. It is not for several threads. ``close`` it, or use it with ``async with``."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self._replay = folder_for(settings.replay, "replay") if settings.replay is not None else None
        self._record = folder_for(settings.record, "record") if settings.record is not None else None
        self._endpoint = Endpoint(settings, clock)
        self._embedder: str | None = None
        self._forms: dict[str, str] = {}
        self.hides_hosts = redacts_hosts(settings.redact_hosts)
        """whether questions may not name machines: for the caller, who redacts"""
        self.larger = Model(settings.larger, clock) if settings.larger is not None else None
        """the model to ask where this one leaves doubt"""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connections. The next question opens new ones."""
        await self._endpoint.close()
        if self.larger is not None:
            await self.larger.close()

    @property
    def usage(self) -> Usage:
        """What was spent so far, with what the larger model cost."""
        own = self._endpoint.accounts.usage
        return together(own, self.larger.usage) if self.larger is not None else own

    def spent(self, job: str) -> int:
        """The tokens that questions about a job have cost so far."""
        return self._endpoint.spent(job) + (self.larger.spent(job) if self.larger is not None else 0)

    @property
    def breaker(self) -> str:
        """closed (requests are sent), open (none is) or half open (the next one tries)."""
        return self._endpoint.breaker.state

    @property
    def embedder(self) -> str | None:
        """The model for embeddings, once ``embed`` has found one."""
        return self._embedder or self.settings.embedding_model

    async def check(self) -> Capabilities:
        """Try everything that is used, with tiny requests, once and outside the budgets."""
        return await capabilities.check(self._endpoint)

    # -- asking

    async def ask(self, ask: Ask, *, job: str) -> Answer:
        """The answer, or why there is none. Raises only for a broken question: an invalid schema, or no messages."""
        began = self._clock()
        validator = validator_of(ask)
        if self._replay is not None:
            return await self._replayed(ask, validator)
        model, trouble = await self._endpoint.model()
        if model is None:
            return await self._answered(ask, [], [trouble], validator, Tally(), None, began)
        if self.settings.cache and (stored := await asyncio.to_thread(recordings.fetch, ask, model)) is not None:
            values, problems, _ = judged(ask, stored, validator)
            if not problems:
                self._endpoint.accounts.add(ask.prompt, Usage(cached=1))
                await self._recorded(ask, stored, [], Tally(), model, 0.0, keep=True)
                return Answer(values, (), seconds=self._clock() - began, cached=True, model=model, of=ask.n)
        tally = Tally()
        choices, troubles = await self._sampled(ask, model, job, ask.seed, tally)
        values, problems, again = judged(ask, choices, validator)
        if not values and again and not troubles and ask.temperature > 0 and self.settings.retries > 0:
            # The endpoint works, but the samples are of no use. Try others, with seeds far from the first ones.
            more, troubles = await self._sampled(ask, model, job, ask.seed + 1000, tally)
            choices = more or choices
        return await self._answered(ask, choices, troubles, validator, tally, model, began)

    async def _answered(
        self,
        ask: Ask,
        choices: list[Choice],
        troubles: list[str],
        validator: Validator,
        tally: Tally,
        model: str | None,
        began: float,
    ) -> Answer:
        """The end of every question that was not cached: judge, store, record."""
        values, problems, _ = judged(ask, choices, validator)
        problems = [*troubles, *problems]
        seconds = self._clock() - began
        if model is not None and self.settings.cache and len(values) == ask.n and not problems:
            await asyncio.to_thread(recordings.store, ask, model, choices)
        # If the endpoint is down now, an answer that was recorded earlier stays.
        # Missing samples are recorded too, so that a replay gives the same vote.
        missing = [Choice(None)] * (ask.n - len(choices)) if choices else []
        unwritten = await self._recorded(ask, [*choices, *missing], problems, tally, model, seconds, keep=not values)
        if unwritten is not None:
            problems.append(unwritten)
        return Answer(values, tuple(problems), tally.tokens_in, tally.tokens_out, seconds, False, model, ask.n)

    async def _sampled(self, ask: Ask, model: str, job: str, seed: int, tally: Tally) -> tuple[list[Choice], list[str]]:
        """``ask.n`` samples: in one request if the endpoint can, else in as many as needed, with the same seeds."""
        choices: list[Choice] = []
        if ask.n == 1 or self._endpoint.way.many:
            choices, trouble = await self._requested(ask, model, job, ask.n, seed, tally)
            if trouble is not None:
                return choices, [trouble]
            if len(choices) < ask.n:
                self._endpoint.way = replace(self._endpoint.way, many=False)
            if not choices:
                # Either n was refused, or everything was and n was blamed last. One request shows which.
                choices, trouble = await self._requested(ask, model, job, 1, seed, tally)
                if trouble is not None:
                    self._endpoint.way = replace(self._endpoint.way, many=True)
                    return [], [trouble]
                choices = choices[:1]
            choices = choices[: ask.n]
        missing = range(len(choices), ask.n)
        if not missing:
            return choices, []
        # A server counts up from the seed for the samples of one request. So do we.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._requested(ask, model, job, 1, seed + k, tally)) for k in missing]
        troubles: dict[str, None] = {}
        for task in tasks:
            got, trouble = task.result()
            choices += got[:1]
            if trouble is not None:
                troubles[trouble] = None
        return choices, list(troubles)

    async def _requested(
        self, ask: Ask, model: str, job: str, n: int, seed: int, tally: Tally
    ) -> tuple[list[Choice], str | None]:
        """The samples of one request. If it is refused, a plainer one is sent. None without trouble: n was refused."""
        digest = hashlib.sha256(json.dumps(ask.schema).encode()).hexdigest()
        way = replace(self._endpoint.way, form=self._forms.get(digest, "json_schema"))
        while True:
            body = body_of(ask, model, way, n, seed)
            body[way.limit] += self._endpoint.thinking_tokens
            if self._endpoint.extra:
                body["extra_body"] = self._endpoint.extra
            expected = about_tokens(body["messages"])
            if self._endpoint.marks_prefix:
                mark_prefix(body["messages"])
            most = self.settings.answer_bytes
            request = Request("chat", body, ask.prompt, job, expected, n * body[way.limit], most)
            got = await self._endpoint.retried(request, tally)
            if isinstance(got, dict):
                self._forms[digest] = way.form
                self._endpoint.way = both(self._endpoint.way, way)
                return choices_in(got), None
            simpler = plainer(way, got, n) if got.refused else None
            if simpler is None:
                return [], got.what
            if way.many and not simpler.many:
                return [], None
            way = simpler

    async def _replayed(self, ask: Ask, validator: Validator) -> Answer:
        assert self._replay is not None
        choices, problems, model = await asyncio.to_thread(recordings.read_answers, self._replay, ask)
        values, more, _ = judged(ask, choices, validator)
        problems += more
        unwritten = await self._recorded(ask, choices, problems, Tally(), model, 0.0, keep=True)
        if unwritten is not None:
            problems.append(unwritten)
        return Answer(values, tuple(problems), model=model if isinstance(model, str) else None, of=len(choices))

    async def _recorded(
        self,
        ask: Ask,
        choices: list[Choice],
        problems: list[str],
        tally: Tally,
        model: Any,
        seconds: float,
        *,
        keep: bool,
    ) -> str | None:
        if self._record is None:
            return None
        return await asyncio.to_thread(
            recordings.write_answers, self._record, ask, choices, problems, tally, model, seconds, keep=keep
        )

    # -- embeddings

    async def embed(self, texts: Sequence[str], *, job: str) -> list[list[float]] | None:
        """A vector for each text. None if the endpoint cannot embed."""
        texts = [clean(text) for text in texts]
        if not texts:
            return []
        if self._replay is not None:
            return await asyncio.to_thread(recordings.read_embeddings, self._replay, texts)
        vectors = await self._embedded(texts, job)
        if self._record is not None:
            await asyncio.to_thread(recordings.write_embeddings, self._record, texts, vectors)
        return vectors

    async def _embedded(self, texts: list[str], job: str) -> list[list[float]] | None:
        if self._embedder == "":
            return None
        candidates = [self._embedder] if self._embedder else await self._embedders()
        for model in candidates or []:
            vectors: list[list[float]] = []
            for start in range(0, len(texts), _TEXTS_A_REQUEST):
                part = texts[start : start + _TEXTS_A_REQUEST]
                got = await self._endpoint.retried(embedding_request(model, part, job))
                if isinstance(got, Trouble):
                    if not got.refused and got.status not in (404, 405):
                        return None  # it may pass; the next call tries again
                    break
                some = embeddings_in(got, len(part))
                if some is None or (vectors and len(some[0]) != len(vectors[0])):
                    return None
                vectors += some
            else:
                self._embedder = model
                return vectors
        if candidates is not None and self._embedder is None:
            self._embedder = ""
        return None

    async def _embedders(self) -> list[str] | None:
        """Which models to try, the likely ones first. None if the endpoint does not list its models now."""
        if self.settings.embedding_model is not None:
            return [self.settings.embedding_model]
        names, trouble = await self._endpoint.models()
        if trouble is not None and trouble.status not in (404, 405):
            return None
        chat, _ = await self._endpoint.model()
        return list(dict.fromkeys([*embedding_models(names), *([chat] if chat else [])]))[:3]
