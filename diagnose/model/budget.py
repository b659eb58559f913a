"""What may be spent and what was spent: budgets per job and per hour, accounts, and the circuit breaker.

Nothing here sends, waits or sleeps. The clock is passed in.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from diagnose.model.settings import Settings

LONGEST_WAIT_S = 30.0
"""an endpoint that asks for a longer wait is left alone"""
HOUR_S = 3600.0

_JOBS_REMEMBERED = 10_000


@dataclass(frozen=True)
class Usage:
    """What was spent since the model was made."""

    calls: int = 0
    """requests sent, retries included"""
    cached: int = 0
    """questions answered from the cache"""
    failed: int = 0
    """requests that brought no answer"""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_reused: int = 0
    """of ``tokens_in``, those that the endpoint had read before and took from its cache of prefixes, as far as it says so"""
    seconds: float = 0.0
    """the sum over requests, which may have run at the same time"""
    by_prompt: Mapping[str, Usage] = field(default_factory=dict)


def _sum(a: Usage, b: Usage) -> Usage:
    return Usage(
        a.calls + b.calls,
        a.cached + b.cached,
        a.failed + b.failed,
        a.tokens_in + b.tokens_in,
        a.tokens_out + b.tokens_out,
        a.tokens_reused + b.tokens_reused,
        a.seconds + b.seconds,
    )


@dataclass
class Tally:
    """What one question has cost so far."""

    tokens_in: int = 0
    tokens_out: int = 0


class Accounts:
    """What was spent, by prompt."""

    def __init__(self) -> None:
        self._by_prompt: dict[str, Usage] = {}

    def add(self, prompt: str, spent: Usage) -> None:
        self._by_prompt[prompt] = _sum(self._by_prompt.get(prompt, Usage()), spent)

    @property
    def usage(self) -> Usage:
        total = Usage()
        for part in self._by_prompt.values():
            total = _sum(total, part)
        return replace(total, by_prompt=dict(self._by_prompt))


def together(a: Usage, b: Usage) -> Usage:
    """What two models have cost."""
    prompts = {**a.by_prompt, **b.by_prompt}
    by_prompt = {name: _sum(a.by_prompt.get(name, Usage()), b.by_prompt.get(name, Usage())) for name in prompts}
    return replace(_sum(a, b), by_prompt=by_prompt)


@dataclass
class Spending:
    at: float
    job: str
    tokens: int
    calls: int = 1


class Budget:
    """Calls and tokens per job and per rolling hour. A request reserves what it may cost and settles afterwards."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._hour: deque[Spending] = deque()
        self._calls = self._tokens = 0
        # The jobs that were asked about longest ago are forgotten, so that memory does not grow over years.
        self._jobs: OrderedDict[str, list[int]] = OrderedDict()

    def reserve(self, job: str, tokens: int) -> Spending | str:
        """Reserve what a request may cost. Returns the reservation, or the name of the budget that is too small."""
        now, limits = self._clock(), self._settings
        self._trim(now)
        spent = self._jobs.setdefault(job, [0, 0])
        self._jobs.move_to_end(job)
        while len(self._jobs) > _JOBS_REMEMBERED:
            self._jobs.popitem(last=False)
        if spent[0] >= limits.calls_per_job:
            return f"the job's budget of {limits.calls_per_job} calls is spent"
        if spent[1] + tokens > limits.tokens_per_job:
            return f"about {tokens} tokens are needed, {max(0, limits.tokens_per_job - spent[1])} are left of the job's budget"
        if self._calls >= limits.calls_per_hour:
            return f"the budget of {limits.calls_per_hour} calls per hour is spent{self._again(now)}"
        if self._tokens + tokens > limits.tokens_per_hour:
            return f"the budget of {limits.tokens_per_hour} tokens per hour is spent{self._again(now)}"
        spending = Spending(now, job, tokens)
        self._hour.append(spending)
        self._add(spending, 1, tokens)
        return spending

    def settle(self, spending: Spending, tokens: int, *, calls: int = 1) -> None:
        self._trim(self._clock())
        self._add(spending, calls - spending.calls, tokens - spending.tokens)
        spending.calls, spending.tokens = calls, tokens

    def spent(self, job: str) -> int:
        """The tokens that questions about a job have cost, or may cost while they are under way."""
        return self._jobs.get(job, [0, 0])[1]

    def _add(self, spending: Spending, calls: int, tokens: int) -> None:
        if (job := self._jobs.get(spending.job)) is not None:
            job[0] += calls
            job[1] += tokens
        if spending.at > self._clock() - HOUR_S:
            self._calls += calls
            self._tokens += tokens

    def _trim(self, now: float) -> None:
        while self._hour and self._hour[0].at <= now - HOUR_S:
            gone = self._hour.popleft()
            self._calls -= gone.calls
            self._tokens -= gone.tokens

    def _again(self, now: float) -> str:
        return f"; some is free again in {self._hour[0].at + HOUR_S - now:.0f} s" if self._hour else ""


class Breaker:
    """Leaves an endpoint alone after repeated failures. After a pause it lets one request try."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self._most, self._pause_s, self._clock = settings.breaker_failures, settings.breaker_pause_s, clock
        self._in_a_row = 0
        self._until: float | None = None
        self._trying = False

    @property
    def state(self) -> str:
        if self._until is None:
            return "closed"
        return "open" if self._clock() < self._until else "half open"

    def admit(self) -> bool | None:
        """Whether a request may be sent. None: not now. True: it is the trial, and must end in one of three ways."""
        if self._until is None:
            return False
        if self._trying or self._clock() < self._until:
            return None
        self._trying = True
        return True

    def why(self) -> str:
        left = max(0.0, (self._until or 0.0) - self._clock())
        wait = "one request is trying it" if self._trying else f"it is tried again in {left:.0f} s"
        times = "a failure" if self._in_a_row == 1 else f"{self._in_a_row} failures in a row"
        return f"the endpoint is left alone after {times}; {wait}"

    def succeeded(self) -> None:
        self._in_a_row, self._until, self._trying = 0, None, False

    def failed(self, *, tried: bool, wait_s: float | None) -> None:
        self._in_a_row += 1
        if tried:
            self._trying = False
        if tried or self._in_a_row >= self._most:
            self._until = self._clock() + max(self._pause_s, wait_s or 0.0)
        elif wait_s is not None and wait_s > LONGEST_WAIT_S:
            self._until = max(self._until or 0.0, self._clock() + wait_s)

    def abandoned(self, *, tried: bool) -> None:
        """The request was cancelled, so nothing was learned about the endpoint."""
        if tried:
            self._trying = False
