"""Request -> response, or a ``Trouble``: one request out, a bounded number of bytes back.

Each try is paid from the budgets, reported to the circuit breaker and entered in the accounts, whatever its result.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from diagnose.backoff import Backoff
from diagnose.errors import DiagnoseError
from diagnose.model.budget import HOUR_S, LONGEST_WAIT_S, Accounts, Breaker, Budget, Tally, Usage
from diagnose.model.protocol import ABOUT_FORM, Request, Trouble, Way, chat_models, names_in, tokens_reused, tokens_used
from diagnose.model.settings import Settings, base_url, endpoint_key, extra_fields, marks_prefix, thinking_tokens

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_ERROR_BYTES = 16 * 1024
_SHOWN = 200
_TOO_LONG = re.compile(r"context.?(length|window|size)|maximum (context|model|input)|prompt is too long|max_model_len")


class _Refused(Exception):
    """An HTTP status of 300 or more, with the beginning of its text. It is raised while the body is still unread."""

    def __init__(self, status: int, headers: Mapping[str, str], text: str) -> None:
        super().__init__(text)
        self.status, self.headers, self.text = status, headers, text


@dataclass
class _Here:
    """What belongs to one event loop: another loop cannot use its connections and locks."""

    loop: asyncio.AbstractEventLoop
    client: AsyncOpenAI
    gate: asyncio.Semaphore
    naming: asyncio.Lock


class Endpoint:
    """Sends requests if budgets and breaker allow it. It never raises for what an endpoint does: that becomes a ``Trouble``."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.clock = clock
        self.url = "" if settings.replay is not None else base_url(settings.url)
        self.way = Way()
        """how it wants to be asked, as far as is known"""
        self.accounts = Accounts()
        self.breaker = Breaker(settings, clock)
        self._key = endpoint_key(settings.key)
        self.thinking_tokens = thinking_tokens(settings.thinking_tokens)
        self.extra = extra_fields(settings.extra)
        self.marks_prefix = marks_prefix(settings.mark_prefix)
        self._budget = Budget(settings, clock)
        self._here: _Here | None = None
        self._named: str | None = settings.model

    def spent(self, job: str) -> int:
        """The tokens that questions about a job have cost."""
        return self._budget.spent(job)

    async def close(self) -> None:
        """End the connections. The next question opens new ones."""
        here, self._here = self._here, None
        if here is not None and here.loop is asyncio.get_running_loop():
            await here.client.close()

    async def model(self) -> tuple[str | None, str]:
        """(the model's name or None, why there is none)."""
        if self._named is not None:
            return self._named, ""
        async with self._at_home().naming:
            if self._named is None:
                names, trouble = await self.models()
                if trouble is not None:
                    return None, trouble.what
                if not names:
                    return None, "the endpoint serves no model"
                self._named = chat_models(names)[0]
        return self._named, ""

    async def models(self) -> tuple[list[str], Trouble | None]:
        got = await self.retried(Request("models", {}, "models", None))
        return (names_in(got), None) if isinstance(got, dict) else ([], got)

    async def retried(self, request: Request, tally: Tally | None = None) -> dict[str, Any] | Trouble:
        """Try again after a fault that may pass. The pause is random, so that clients do not come back all at once."""
        tries = 0
        while True:
            got = await self.send(request, tally)
            tries += 1
            if isinstance(got, dict):
                return got
            # An endpoint that was too slow has too much to do, so it gets one more try and not three.
            most = min(1, self.settings.retries) if got.slow else self.settings.retries
            hopeless = got.wait_s is not None and got.wait_s > LONGEST_WAIT_S
            if not got.passes or hopeless or tries > most or self.breaker.state == "open":
                return replace(got, what=f"{got.what} ({tries} tries)") if tries > 1 else got
            pause = Backoff(self.settings.backoff_s, LONGEST_WAIT_S, spread=0.5).after(tries)
            await asyncio.sleep(max(pause, got.wait_s or 0.0))

    async def send(self, request: Request, tally: Tally | None = None) -> dict[str, Any] | Trouble:
        """Send one request, if budgets and breaker allow it. It is accounted for whatever happens, even if it is cancelled."""
        here = self._at_home()
        async with here.gate:
            spending = None
            if request.job is not None:
                reserved = self._budget.reserve(request.job, request.tokens_in + request.tokens_out)
                if isinstance(reserved, str):
                    return Trouble(reserved, counts=False)
                spending = reserved
            trying = False if request.probe else self.breaker.admit()
            if trying is None:
                if spending is not None:
                    self._budget.settle(spending, 0, calls=0)
                return Trouble(self.breaker.why(), counts=False)
            began = self.clock()
            got: dict[str, Any] | Trouble | None = None
            try:
                got = await self._exchange(here.client, request)
            finally:
                if not request.probe:
                    self._tell_breaker(got, tried=trying)
                tokens_in, tokens_out = tokens_used(got, request) if isinstance(got, dict) else (0, 0)
                reused = min(tokens_in, tokens_reused(got)) if isinstance(got, dict) else 0
                if spending is not None:
                    # An endpoint that did not answer has still read the request, unless it refused the connection.
                    refused = isinstance(got, Trouble) and got.status is not None
                    unpaid = 0 if refused else request.tokens_in
                    self._budget.settle(spending, tokens_in + tokens_out or unpaid)
                failed = int(not isinstance(got, dict))
                seconds = self.clock() - began
                self.accounts.add(request.prompt, Usage(1, 0, failed, tokens_in, tokens_out, reused, seconds))
                if tally is not None:
                    tally.tokens_in += tokens_in
                    tally.tokens_out += tokens_out
        return got

    def _tell_breaker(self, got: dict[str, Any] | Trouble | None, *, tried: bool) -> None:
        if got is None:
            self.breaker.abandoned(tried=tried)
        elif isinstance(got, Trouble) and got.counts:
            self.breaker.failed(tried=tried, wait_s=got.wait_s)
        else:
            self.breaker.succeeded()

    async def _exchange(self, client: AsyncOpenAI, request: Request) -> dict[str, Any] | Trouble:
        """Send bytes, read JSON. Any failure becomes a trouble here and nowhere else."""
        import openai

        data = bytearray()
        open_ = {
            "models": client.models.with_streaming_response.list,
            "chat": client.chat.completions.with_streaming_response.create,
            "embeddings": client.embeddings.with_streaming_response.create,
        }[request.path]
        try:
            async with asyncio.timeout(self.settings.timeout_s), open_(**request.body) as response:  # type: ignore[operator]
                async for chunk in response.iter_bytes():
                    data += chunk
                    if len(data) > request.most_bytes:
                        return Trouble(f"the answer has more than {request.most_bytes} bytes", counts=False)
        except (TimeoutError, openai.APITimeoutError):
            return Trouble(f"no answer within {self.settings.timeout_s:g} s", passes=True, slow=True)
        except _Refused as refused:
            return self._refusal(refused, request)
        except openai.OpenAIError as error:
            if isinstance(error.__cause__, _Refused):  # openai 1 and 2 wrap it, 3 does not
                return self._refusal(error.__cause__, request)
            return Trouble(f"not reachable ({self._shown(_innermost(error))})", passes=True)
        except _transport_errors() as error:
            return Trouble(f"the connection broke within the answer ({self._shown(_innermost(error))})", passes=True)
        try:
            got = json.loads(bytes(data))
        except (ValueError, RecursionError):
            text = self._shown(data[: 2 * _SHOWN].decode("utf-8", "replace"))
            return Trouble(f"the answer is no JSON: {text}" if text else "the answer is empty", passes=True)
        if not isinstance(got, dict):
            return Trouble("the answer is no JSON object", passes=True)
        if got.get("error") or got.get("object") == "error":
            said = got.get("error") or got.get("message")
            return Trouble(f"the endpoint reports an error: {self._shown(_error_text(said))}", passes=True)
        wanted = "choices" if request.path == "chat" else "data"
        if not isinstance(got.get(wanted), list) or (wanted == "choices" and not got[wanted]):
            return Trouble(f"the answer has no {wanted} in it", passes=True)
        return got

    def _refusal(self, refused: _Refused, request: Request) -> Trouble:
        """An HTTP status as trouble."""
        status, said, parameter = refused.status, refused.text, None
        try:
            body = json.loads(refused.text)
        except (ValueError, RecursionError):
            body = None
        if isinstance(body, dict):
            error = body.get("error", body)
            parameter = error.get("param") if isinstance(error, dict) else None
            said = _error_text(body.get("error") or body.get("message") or body.get("detail") or refused.text)
        text = self._shown(said)
        what = f"the endpoint answers {status}" + (f": {text}" if text else "")
        words = said.lower()
        trouble = Trouble(what, status=status, words=words, parameter=parameter if isinstance(parameter, str) else None)
        if status == 429 or status == 503:
            return replace(trouble, passes=True, wait_s=_retry_after(refused.headers))
        if status in (408, 409, 425):
            return replace(trouble, passes=True)
        if status in (401, 403):
            return replace(trouble, what=f"{what}; the key is DIAGNOSE_LLM_KEY or OPENAI_API_KEY")
        if status in (400, 422):
            if _TOO_LONG.search(words):
                return replace(trouble, what=f"the question is too long for the model: {text}", counts=False)
            return replace(trouble, refused=True, counts=False)
        if status == 413:
            return replace(trouble, what=f"the question is too long for the endpoint: {text}", counts=False)
        if status < 400:
            return replace(trouble, what=f"{what}; redirects are not followed, name the place itself")
        if status in (404, 405) and request.path != "chat":
            return replace(trouble, counts=False)  # not every endpoint has everything
        # Some servers crash over a schema that they cannot compile: that does not pass by itself.
        if status >= 500 and (status == 501 or ABOUT_FORM.search(words)):
            return replace(trouble, refused=True, counts=False)
        return replace(trouble, passes=status >= 500)

    def _shown(self, text: str) -> str:
        """Words of the endpoint for one of our messages: one short line, without the key."""
        if len(self._key) > 6:
            text = text.replace(self._key, "(key)")
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"

    def _at_home(self) -> _Here:
        loop = asyncio.get_running_loop()
        if self._here is None or self._here.loop is not loop:
            gate = asyncio.Semaphore(max(1, self.settings.concurrency))
            self._here = _Here(loop, self._client(), gate, asyncio.Lock())
        return self._here

    def _client(self) -> AsyncOpenAI:
        try:
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient
        except ImportError as error:
            raise DiagnoseError("the package openai is not installed", remedy="install it with 'pip install openai'") from error

        async def refuse(response: Any) -> None:
            # Checked before the openai package reads all of it: an error page may be of any size.
            if response.status_code >= 300:
                data = bytearray()
                with contextlib.suppress(*_transport_errors()):
                    async for chunk in response.aiter_bytes():
                        data += chunk
                        if len(data) > _ERROR_BYTES:
                            break
                raise _Refused(response.status_code, response.headers, data[:_ERROR_BYTES].decode("utf-8", "replace"))

        # No redirects: a question holds lines of a log, and may only go to the configured address.
        transport = DefaultAsyncHttpxClient(
            event_hooks={"response": [refuse]}, follow_redirects=False, timeout=self.settings.timeout_s
        )
        return AsyncOpenAI(
            base_url=self.url,
            api_key=self._key,
            max_retries=0,  # budgets and breaker must see every try
            timeout=self.settings.timeout_s,
            default_headers={"Accept-Encoding": "identity"},  # so that the limit on bytes also limits memory
            http_client=transport,
        )


def _transport_errors() -> tuple[type[Exception], ...]:
    """The errors of a broken connection. The openai package uses httpx up to version 2, and httpx2 since version 3."""
    modules = [sys.modules[name] for name in ("httpx2", "httpx") if name in sys.modules]
    return tuple(kind for module in modules for kind in (module.HTTPError, module.StreamError))


def _innermost(error: BaseException) -> str:
    """The system's words for the innermost cause."""
    said = str(error)
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, BaseExceptionGroup):
            current = current.exceptions[0]
            continue
        if isinstance(current, OSError) and current.errno is not None:
            return os.strerror(current.errno) if current.errno > 0 else current.strerror or str(current)
        said = str(current) or type(current).__name__
        current = current.__cause__ or current.__context__
    return said


def _error_text(error: Any) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error
    return error if isinstance(error, str) else json.dumps(error)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """How long the endpoint asks to wait, in seconds. It may give a date."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return min(max(0.0, seconds), HOUR_S) if math.isfinite(seconds) else None
