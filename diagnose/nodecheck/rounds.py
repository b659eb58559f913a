"""Runs the node check: the groups of a round at the same time, every probe in its own processes, all bounded in time.

``diagnose.nodecheck.accuse`` says who tests with whom and what the results mean. This module starts probes and collects
results. A node that hangs costs the round no more than the time-out. A node that vanishes says nothing, which is a result too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from diagnose.errors import DiagnoseError
from diagnose.nodecheck.accuse import SILENT, SLOW_FACTOR, Group, Trial, Verdict, plan, verdict
from diagnose.nodecheck.launchers import LAUNCHERS, Words

_LATE_S = 10.0
"""so long after its time-out, the launcher of a probe that has not ended is killed"""
_GRACE_S = 5.0
"""when one member of a group has failed, the others get so long to say what they saw"""
_LINE_LIMIT = 1 << 16
_PORTS = 1000
_LATE = "no answer in time"


@dataclass(frozen=True, slots=True)
class Settings:
    launch: Callable[[str, Words], list[str]] = LAUNCHERS["local"]
    python: str = sys.executable
    addresses: Mapping[str, str] = field(default_factory=dict)
    """the address at which the others reach a node, if it is not its name"""
    timeout_s: float = 60.0
    port: int = 29400
    per_node: int = 0
    backend: str = "auto"
    matrix: int = 0
    mib: int = 0
    most: int | None = 8
    factor: float = SLOW_FACTOR


async def check(
    nodes: Sequence[str], settings: Settings, told: Callable[[int, Trial], None]
) -> tuple[Verdict, list[list[Trial]]]:
    """Run all rounds. ``told`` is called with every test when it ends."""
    rounds: list[list[Trial]] = []
    tests = 0
    while groups := plan(nodes, rounds, most=settings.most, factor=settings.factor):
        number = len(rounds) + 1

        async def run(group: Group, port: int, number: int = number) -> Trial:
            trial = await _test(group, settings, port)
            told(number, trial)
            return trial

        # each test has its own port: the last one may still be in TIME_WAIT
        ports = [settings.port + (tests + index) % _PORTS for index in range(len(groups))]
        rounds.append(await asyncio.gather(*(run(group, port) for group, port in zip(groups, ports, strict=True))))
        tests += len(groups)
        if number == 1:
            _refuse_what_no_node_can(rounds[0])
    return verdict(nodes, rounds, factor=settings.factor), rounds


def _refuse_what_no_node_can(trials: Sequence[Trial]) -> None:
    """If all nodes say the same at once, the set-up is wrong and not the nodes: torch is missing, or the launcher is
    refused.
    """
    said = {what for trial in trials for what in trial.seen.values()}
    if len(said) == 1 and all(len(trial.seen) == len(trial.members) for trial in trials) and _LATE not in next(iter(said)):
        raise DiagnoseError(
            f"no node can run the test: {said.pop()}",
            where="node check",
            remedy="repair this on the nodes, or start the test in another way (--python, --launcher)",
        )


async def _test(group: Group, settings: Settings, port: int) -> Trial:
    """One group's test."""
    failed = asyncio.Event()
    address = settings.addresses.get(group[0], group[0])

    async def member(rank: int) -> dict[str, Any]:
        words = _probe(group, rank, address, port, settings)
        answer = await _answer(settings.launch(group[rank], words), settings.timeout_s + _LATE_S)
        if not answer["ok"]:
            failed.set()
        return answer

    tasks = [asyncio.create_task(member(rank)) for rank in range(len(group))]
    waiting: asyncio.Task[Any] = asyncio.create_task(failed.wait())
    try:
        left: set[asyncio.Task[dict[str, Any]]] = set(tasks)
        while left and not failed.is_set():
            await asyncio.wait([*left, waiting], return_when=asyncio.FIRST_COMPLETED)
            left = {task for task in tasks if not task.done()}
        if left:
            await asyncio.wait(left, timeout=_GRACE_S)
    finally:
        waiting.cancel()
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception) and not isinstance(error, asyncio.CancelledError):
            raise error
    answers = {
        node: answer if isinstance(answer, dict) else {"ok": False, "what": SILENT}
        for node, answer in zip(group, ended, strict=True)
    }
    passed = all(answer["ok"] for answer in answers.values())
    return Trial(
        members=group,
        passed=passed,
        compute_s={node: found for node, answer in answers.items() if (found := _seconds(answer, "compute_s")) is not None},
        gather_s=max((_seconds(answer, "gather_s") or 0.0 for answer in answers.values()), default=None) if passed else None,
        seen={node: str(answer.get("what"))[:500] for node, answer in answers.items() if not answer["ok"]},
    )


def _seconds(answer: Mapping[str, Any], name: str) -> float | None:
    value = answer.get(name)
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else None


def _probe(group: Group, rank: int, address: str, port: int, settings: Settings) -> list[str]:
    values = {
        "node": group[rank],
        "rank": rank,
        "size": len(group),
        "address": address,
        "port": port,
        "timeout": settings.timeout_s,
        "per-node": settings.per_node,
        "backend": settings.backend,
        "matrix": settings.matrix,
        "mib": settings.mib,
    }
    return [
        settings.python,
        "-m",
        "diagnose.nodecheck.probe",
        *(word for name, value in values.items() for word in (f"--{name}", str(value))),
    ]


async def _answer(words: Words, timeout_s: float) -> dict[str, Any]:
    """What the probe says, or what became of it."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise DiagnoseError(
            f"the launcher cannot be started: {error.strerror}",
            where=words[0],
            remedy="install it, or choose another --launcher",
        ) from None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(timeout_s):
            out, err, status = await asyncio.gather(_tail(process.stdout), _tail(process.stderr), process.wait())
    except TimeoutError:
        return {"ok": False, "what": _LATE}
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
    for line in reversed(out.splitlines()):
        with suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict) and isinstance(answer.get("ok"), bool):
                return answer
    last = next((line for line in reversed(err.splitlines()) if line.strip()), "")
    return {"ok": False, "what": f"no answer, exit status {status}{': ' + last[:300] if last else ''}"}


async def _tail(stream: asyncio.StreamReader) -> str:
    """The end of a stream, however much comes."""
    kept = bytearray()
    while data := await stream.read(_LINE_LIMIT):
        kept.extend(data)
        del kept[:-_LINE_LIMIT]
    return kept.decode("utf-8", "replace")
