"""A webhook that acts: it posts the order to another program, signed like our notices. The answer is the outcome.

The other program must do three things. It checks the signature (https://www.standardwebhooks.com). It recognises a repeated
order by its ``Idempotency-Key``, and carries it out only once. And it reports the outcome:

    200 {"state": "succeeded" | "failed" | "running", "what": "a sentence", "may_retry": false, "isolated": ["gpu-17"]}
    204                                               succeeded

Any other answer is not a success: a proxy's page with status 200 must not take a node out of service.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from diagnose.errors import DiagnoseError
from service.acting.executors.executor import KINDS, Order, Outcome, Problem, State
from service.acting.executors.http import secret
from service.net import signing
from service.net.client import Answer, Unreachable
from service.net.guarded import Network, Outgoing, shown

SCHEMA = "diagnose.order/1"
_LARGEST = 64 << 10
_SENTENCE = 500
_NOT_NOW = frozenset({408, 425, 429, 503})
"""it was not done, and may be done later"""
_REFUSED = frozenset({401, 403})
_UNDER_WAY = frozenset({202, 409})
"""the other side has the order, and no outcome yet"""


class Webhook:
    """The executor."""

    kinds = KINDS

    def __init__(
        self,
        url: str,
        *,
        secret_file: Path | None = None,
        secret_env: str | None = None,
        private: tuple[Network, ...] = (),
        timeout_s: float = 30.0,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url, self._private, self._timeout_s = url, private, timeout_s
        self._secret_file, self._secret_env, self._environment, self._clock = secret_file, secret_env, environment, clock
        self._outgoing().check(url)

    async def check(self) -> list[str]:
        """Check that it can be signed. Whether somebody answers is only seen with an order."""
        try:
            self._secret()
        except Problem as problem:
            return [problem.what]
        return []

    async def carry_out(self, order: Order, *, dry_run: bool = False) -> Outcome:
        try:
            if order.kind not in KINDS:
                raise Problem(f"a webhook cannot carry out {order.kind[:40]!r}")
            if dry_run:  # nobody knows whether the other side would obey a dry run
                return Outcome("succeeded", f"would have: posted {order.kind} to {shown(self._url)}")
            return self._outcome(await self._post(order))
        except Problem as problem:
            return problem.outcome([])

    async def _post(self, order: Order) -> Answer:
        body = json.dumps({"schema": SCHEMA, "order": order.as_dict()}, ensure_ascii=True).encode()
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            "idempotency-key": order.key,
            **signing.headers(self._secret(), f"order_{order.key}", self._clock(), body),
        }
        outgoing = self._outgoing()
        try:
            return await outgoing.post(self._url, headers, body, self._timeout_s, _LARGEST)
        except Unreachable as error:
            state: State = "unknown" if error.sent else "failed"
            raise Problem(f"{shown(self._url)} does not answer: {error}", state=state, may_retry=True) from None
        finally:
            await outgoing.close()

    def _outcome(self, answer: Answer) -> Outcome:
        """The outcome that its answer means."""
        said = _said(answer)
        here = f"{shown(self._url)} ({answer.status})"
        text = _line(said.get("what")) or f"{here} said no more"
        wait = {"retry_after_s": answer.retry_after_s} if answer.retry_after_s is not None else {}
        if answer.status == 204:
            return Outcome("succeeded", f"{here} has done it")
        if answer.status in _UNDER_WAY or (answer.status == 200 and said.get("state") == "running"):
            return Outcome("unknown", f"{here} is at it: {text}", True, wait)
        if answer.status == 200:
            match said.get("state"):
                case "succeeded":
                    return Outcome("succeeded", text, isolated=_names(said.get("isolated")))
                case "failed":
                    return Outcome("failed", text, said.get("may_retry") is True, wait, _names(said.get("isolated")))
                case "unknown":
                    return Outcome("unknown", text, True, wait, _names(said.get("isolated")))
            return Outcome("unknown", f"{here} does not say what came of it: it should answer a state, see docs/executors.md")
        if answer.status in _REFUSED:
            return Outcome("failed", f"{here} refuses the order: check the secret on both sides, and their clocks", True, wait)
        if answer.status in _NOT_NOW:
            return Outcome("failed", f"{here} cannot do it now: {text}", True, wait)
        if 300 <= answer.status < 400:
            return Outcome("failed", f"{here} points elsewhere: give that address")
        if answer.status >= 500:
            return Outcome("unknown", f"{here} failed at it: {text}", True, wait)
        return Outcome("failed", f"{here} does not take it: {text}")

    def _secret(self) -> str:
        found = secret(self._secret_file, self._secret_env, "the secret that orders are signed with", self._environment)
        try:
            signing.key_of(found)
        except DiagnoseError as error:
            raise Problem(f"{self._secret_file or self._secret_env}: {error}", may_retry=True) from None
        return found

    def _outgoing(self) -> Outgoing:
        return Outgoing(self._private)


def _said(answer: Answer) -> dict[str, Any]:
    found = answer.json()
    return found if isinstance(found, dict) else {}


def _names(told: Any) -> tuple[str, ...] | None:
    """Names of nodes; None if it does not say."""
    return tuple(one for one in told if isinstance(one, str)) if isinstance(told, list) else None


def _line(text: Any) -> str:
    """A stranger's sentence: one line, bounded, without control characters."""
    if not isinstance(text, str):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: _SENTENCE * 4]).split())[:_SENTENCE]
