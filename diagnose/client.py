"""For training scripts: report steps and checkpoints, ask where to start and which batches to skip.

    run = diagnose.client.Run()          # DIAGNOSE_URL, DIAGNOSE_TOKEN, DIAGNOSE_JOB
    resume = run.resume()
    for step in range(resume.step or 0, steps):
        if resume.skips(step):
            continue
        ...
        run.progress(step, loss=loss)
        run.checkpoint(step + 1, path)   # when one was saved

Three promises, because training must not suffer from it:

- Nothing is raised, whatever is given or answered. A warning and ``run.problem`` say what is wrong.
- Nothing blocks. A thread sends the reports. ``resume`` and ``close`` keep to their time-out, even if a name look-up hangs.
- Nothing grows. What cannot be sent is dropped, the oldest first.

It uses the standard library only.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

log = logging.getLogger("diagnose.client")

_MOST_WAITING = 256
_MOST_BYTES = 1 << 20
_BACKOFF_S = (0.5, 60.0)
_GRACE_S = 2.0
"""how long the end of the program may wait for the last reports"""
_LONGEST_PATH = 4096
_LONGEST_WHY = 500
_MOST_RANGES = 1000
_MOST_ALARMS = 100
_MOST_COST_S = 1e6


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to start. An empty ``Resume()`` means: start as you would without a service."""

    step: int | None = None
    """steps done in the checkpoint; the next batch has this number"""
    path: str | None = None
    """the checkpoint, as it was reported"""
    skip: tuple[tuple[int, int], ...] = ()
    """(first, last) number of batches to leave out; batch n is the one that step n trains on, from 0"""
    why: str | None = None
    known: bool = False
    """the service answered"""

    def skips(self, batch: int) -> bool:
        """Whether to leave this batch out."""
        return any(first <= batch <= last for first, last in self.skip)


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something went wrong, as the service noticed."""

    step: int
    why: str
    kind: str = "loss"
    """loss: what was saved after this step is spoilt; hang or hardware: at this step; score: of the checkpoint of this step"""
    path: str | None = None
    """of the checkpoint, for a score"""


@dataclass(frozen=True, slots=True)
class Word:
    """What the service says in its answer to a report of progress."""

    save: str | None = None
    """why a checkpoint is wanted now"""
    alarms: tuple[Alarm, ...] = ()
    between_failures_s: float | None = None
    """how long a job of this size runs between failures, by the service's history"""


class Run:
    """The connection of one job to the service. Without a URL or the name of a job it does nothing, and warns once."""

    def __init__(
        self,
        job: str | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        attempt: int | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self.problem: str | None = None
        """the last thing that went wrong"""
        self.dropped = 0
        """reports of checkpoints that were given up"""
        self.word: Word | None = None
        """the service's answer to the last report of progress"""
        self._said: set[str] = set()
        self._job = ""
        self._attempt: int | None = None
        self._timeout_s = 10.0
        self._renew()
        try:
            self._configure(job, url, token, attempt, timeout_s)
        except Exception as error:
            self._job = ""
            self._note(f"nothing is reported: {error}")

    def _configure(self, job: str | None, url: str | None, token: str | None, attempt: int | None, timeout_s: float) -> None:
        self._url = str(url or os.environ.get("DIAGNOSE_URL") or "").rstrip("/")
        self._token = str(token or os.environ.get("DIAGNOSE_TOKEN") or "").strip()
        self._attempt = int(attempt) if attempt is not None else _attempt(os.environ)
        self._timeout_s = float(timeout_s) if 0 < timeout_s < 3600 else self._timeout_s
        name = str(job or os.environ.get("DIAGNOSE_JOB") or os.environ.get("SLURM_JOB_ID") or "")
        if not name or urllib.parse.urlsplit(self._url).scheme not in ("http", "https"):
            raise ValueError("it takes the URL of a service (DIAGNOSE_URL) and the name of the job (DIAGNOSE_JOB)")
        if "@" in urllib.parse.urlsplit(self._url).netloc:
            raise ValueError("a password in the URL is not used: give a token (DIAGNOSE_TOKEN)")
        if not (self._token.isascii() and self._token.isprintable()):
            raise ValueError("the token (DIAGNOSE_TOKEN) is not one word of ASCII")
        self._job = name

    def resume(self, *, proposed: bool = False, timeout_s: float | None = None) -> Resume:
        """Where to start. It asks until there is an answer or the time is over.

        All ranks must start alike: ask on one and broadcast. ``proposed``: take a roll-back that nobody has approved yet.
        """
        if not self._job:
            return Resume()
        try:
            return self._ask(proposed, self._timeout_s if timeout_s is None else float(timeout_s))
        except Exception as error:
            self._note(f"resume: {error!r}")
            return Resume()

    def _ask(self, proposed: bool, timeout_s: float) -> Resume:
        deadline = time.monotonic() + timeout_s
        before = self.problem
        answered: list[Resume] = []

        def ask() -> None:  # in a thread, because a name look-up has no time-out
            pause = _BACKOFF_S[0]
            while (left := deadline - time.monotonic()) > 0:
                status, body = self._request("GET", f"resume{'?proposed=true' if proposed else ''}", None, left)
                if status == 200:
                    answered.append(self._read(body))
                if status == 404:
                    answered.append(Resume())  # not known yet: the first attempt asks before anything was reported
                if status is not None and (status == 200 or not _again(status)):
                    return
                time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
                pause *= 2

        asking = threading.Thread(target=ask, name="diagnose-resume", daemon=True)
        asking.start()
        asking.join(max(0.0, deadline - time.monotonic()))
        if not answered and self.problem is before:  # else there was a warning already
            self._note("the service did not say in time where to start")
        return answered[0] if answered else Resume()

    def progress(self, step: int, *, loss: float | None = None) -> None:
        """A step is done. Only the latest is sent, one request at a time: call it as often as you like."""
        try:
            if self._job:
                number = None if loss is None else float(loss)
                report = {"step": int(step), "loss": number if number is None or math.isfinite(number) else None}
                # JSON has no NaN, so the word is sent
                self._put("progress", {**report, "loss_is": None if number is None or math.isfinite(number) else str(number)})
        except Exception as error:
            self._note(f"progress: {error!r}")

    def checkpoint(
        self,
        step: int,
        path: str | os.PathLike[str],
        *,
        healthy: bool | None = None,
        why: str | None = None,
        cost_s: float | None = None,
    ) -> None:
        """A checkpoint is complete on storage, after ``step`` steps. ``healthy``: False if you know that it is not; ``why``.

        ``cost_s``: how much time the training lost by it. The service then says whether it saves too often or too seldom.
        """
        try:
            if self._job:
                self._put(
                    "checkpoints",
                    {
                        "step": int(step),
                        "path": os.fspath(path),
                        "healthy": None if healthy is None else bool(healthy),
                        "why": None if why is None else str(why)[:_LONGEST_WHY],
                        "cost_s": float(cost_s) if cost_s is not None and 0 <= cost_s < _MOST_COST_S else None,
                    },
                )
        except Exception as error:
            self._note(f"checkpoint: {error!r}")

    def close(self, timeout_s: float = _GRACE_S) -> bool:
        """Send what waits, within the time-out. Returns whether all of it was sent or refused."""
        try:
            if os.getpid() != self._pid or (sender := self._sender) is None:
                return True
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            sender.join(max(0.0, timeout_s))
            return not sender.is_alive()
        except Exception as error:
            self._note(f"close: {error!r}")
            return False

    # Sending

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._checkpoints: deque[dict[str, Any]] = deque()
        self._progress: dict[str, Any] | None = None
        self._closing = False
        self._sender: threading.Thread | None = None
        self._at_exit = False

    def _put(self, kind: str, report: dict[str, Any]) -> None:
        if os.getpid() != self._pid:
            self._renew()  # after a fork the thread is only in the parent, and the lock may be held for ever
        report = {"attempt": self._attempt, "time": time.time(), **report}
        with self._changed:
            if kind == "progress":
                self._progress = report
            else:
                self._checkpoints.append(report)
                if len(self._checkpoints) > _MOST_WAITING:
                    self._checkpoints.popleft()
                    self.dropped += 1
            self._closing = False
            if self._sender is None or not self._sender.is_alive():
                self._sender = threading.Thread(target=self._send, name="diagnose-reports", daemon=True)
                self._sender.start()
                if not self._at_exit:
                    self._at_exit = True
                    atexit.register(self.close)
            self._changed.notify_all()

    def _send(self) -> None:
        """The thread's loop: send one report after the other, checkpoints first."""
        pause = _BACKOFF_S[0]
        while True:
            with self._changed:
                while not self._checkpoints and self._progress is None:
                    if self._closing:
                        self._sender = None  # under the lock: the next report then starts another thread
                        return
                    self._changed.wait()
                kind = "checkpoints" if self._checkpoints else "progress"
                report = self._checkpoints[0] if self._checkpoints else self._progress
            try:
                status, body = self._request("POST", kind, report, self._timeout_s)
                if kind == "progress" and status == 200:
                    self.word = _word(body)
            except Exception as error:
                self._note(f"{kind}: {error!r}")
                status = 400  # what cannot even be written is not tried again
            if status is None or _again(status):
                with self._changed:
                    self._changed.wait(pause)
                pause = min(pause * 2, _BACKOFF_S[1])
                continue
            pause = _BACKOFF_S[0]
            with self._changed:
                if kind == "progress":
                    self._progress = None if self._progress is report else self._progress
                elif self._checkpoints and self._checkpoints[0] is report:
                    self._checkpoints.popleft()
                    self.dropped += status >= 300

    def _request(self, method: str, what: str, body: Mapping[str, Any] | None, timeout_s: float) -> tuple[int | None, bytes]:
        """(status, body). The status is None if there was no answer."""
        url = f"{self._url}/v1/jobs/{urllib.parse.quote(self._job, safe='')}/{what}"
        headers = {"Accept": "application/json", "User-Agent": "diagnose-client"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310  # __init__ saw to http and https
        try:
            with _OPENER.open(request, timeout=timeout_s) as answer:
                return answer.status, answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                if (method, error.code) != ("GET", 404):
                    self._note(f"{what.partition('?')[0]}: the service answers {error.code} {_sentence(error)}")
            return error.code, b""
        except Exception as error:  # no route, refused, reset, cut off, not HTTP
            self._note(f"{what.partition('?')[0]}: the service at {self._url} cannot be reached: {error}")
            return None, b""

    def _read(self, body: bytes) -> Resume:
        """The answer, if it is one."""
        try:
            answer = json.loads(body)
            step, path, skip, why = (answer.get(name) for name in ("step", "path", "skip_batches", "why"))
            ranges = tuple((_whole(first), _whole(last)) for first, last in (skip or [])[:_MOST_RANGES])
            if path is not None and (not isinstance(path, str) or not path or "\0" in path or len(path) > _LONGEST_PATH):
                raise ValueError("a path that is none")
            return Resume(
                step=None if step is None else _whole(step),
                path=path,
                skip=ranges,
                why=why if isinstance(why, str) else None,
                known=True,
            )
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            self._note(f"resume: the answer cannot be read: {error}")
            return Resume()

    def _note(self, problem: str) -> None:
        self.problem = problem
        if problem not in self._said and len(self._said) < 20:
            self._said.add(problem)
            log.warning("%s", problem)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the token only goes to the configured service."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _again(status: int) -> bool:
    """Whether the same request may succeed later."""
    return status in (408, 425, 429) or status >= 500


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is not a number of a step")
    return value


def _word(body: bytes) -> Word | None:
    """The answer to a report of progress; None for one of a service that says no more than that it stored it."""
    try:
        answer = json.loads(body)
        save = answer.get("save")
        alarms = tuple(_alarm(one) for one in (answer.get("alarms") or [])[:_MOST_ALARMS])
        between = answer.get("between_failures_s")
        known = isinstance(between, int | float) and 0 < between < math.inf
        return Word(str(save)[:_LONGEST_WHY] if save is not None else None, alarms, float(between) if known else None)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _alarm(told: Any) -> Alarm:
    path = told.get("path")
    why, kind = str(told["why"])[:_LONGEST_WHY], str(told["kind"])[:_LONGEST_WHY]
    return Alarm(_whole(told["step"]), why, kind, str(path)[:_LONGEST_PATH] if path is not None else None)


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        answer = json.loads(error.read(_MOST_BYTES))
        return str(answer.get("what", ""))[:300]
    except Exception:
        return ""


def _attempt(environment: Mapping[str, str]) -> int | None:
    """The number of the attempt, from 1, if the launcher says it."""
    for name, first in (("DIAGNOSE_ATTEMPT", 0), ("SLURM_RESTART_COUNT", 1), ("TORCHELASTIC_RESTART_COUNT", 1)):
        text = environment.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 7:
            return int(text) + first
    return None
