"""What Slurm's accounting prints -> runs: ``sacct -P`` with a header, or ``sacct --json``.

Each allocation is a run; its steps are left out. With ``-D`` a requeued job has a line for each of its runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from typing import Any, Final

from diagnose.decision.ending import OF_SLURM
from diagnose.diagnosis.topology import expand
from diagnose.errors import SourceError
from diagnose.study.runs import Run, State

COMMAND: Final = (
    "sacct -a -X -D -P -S START -E END --format=JobIDRaw,JobID,JobName,User,Partition,State,ExitCode,Submit,Eligible,Start,End,"
    "ElapsedRaw,AllocTRES,NodeList"
)
_TYPED = re.compile(r"gres/gpu:[^=,]{1,100}=(\d{1,9})")
_GPUS = re.compile(r"gres/gpu=(\d{1,9})")
_EPOCH: Final = date(1970, 1, 1).toordinal()
_UNFINISHED: Final[dict[str, State]] = {
    "RUNNING": "running", "COMPLETING": "running", "SUSPENDED": "running", "STOPPED": "running", "RESIZING": "running",
    "SIGNALING": "running", "STAGE_OUT": "running", "PENDING": "waiting", "CONFIGURING": "waiting", "REQUEUE_HOLD": "waiting",
    "REQUEUED": "requeued", "REVOKED": "cancelled", "SPECIAL_EXIT": "failed",
}  # fmt: skip


def read(lines: Iterable[str], where: str) -> Iterator[Run]:
    """The runs in what ``sacct`` printed, in its order."""
    rows = iter(lines)
    head = next((line for line in rows if line.strip()), "")
    if head.lstrip().startswith("{"):
        yield from _of_json("".join([head, *rows]), where)
    elif "|" in head and "State" in head.split("|"):
        yield from _of_table(head, rows)
    else:
        raise SourceError("this is not what sacct prints with -P or --json", where=where, remedy=f"write it with: {COMMAND}")


class _Known:
    """What is read once although many lines say it."""

    def __init__(self) -> None:
        self.days: dict[str, int] = {}
        self.gpus = _remembered(_gpus_of)
        self.nodes = _remembered(_nodes_of)
        self.states = _remembered(_state_of)

    def time(self, text: str) -> float | None:
        """Seconds, of a time as Slurm writes it: local, or since 1970."""
        day = self.days.get(text[:10])
        if day is None:
            try:
                if text.isdecimal():
                    return float(text) or None
                day = self.days[text[:10]] = (date.fromisoformat(text[:10]).toordinal() - _EPOCH) * 86400
            except ValueError:
                return None  # Unknown, None
        try:
            return float(day + int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19]))
        except ValueError:
            return None


def _remembered(work: Callable[[str], Any], most: int = 200_000) -> Callable[[str], Any]:
    known: dict[str, Any] = {}

    def ask(text: str) -> Any:
        found = known.get(text)
        if found is None:
            if len(known) >= most:
                known.clear()
            found = known[text] = work(text)
        return found

    return ask


def _gpus_of(tres: str) -> int:
    """``billing=8,gres/gpu=8,gres/gpu:h100=8`` -> 8; some sites only count by type."""
    whole = _GPUS.search(tres)
    return int(whole[1]) if whole else sum(map(int, _TYPED.findall(tres)))


def _nodes_of(text: str) -> tuple[str, ...]:
    return () if text in ("", "None assigned", "(null)") else tuple(expand(text))


def _state_of(text: str) -> State:
    """``CANCELLED by 1000`` -> cancelled."""
    word = text.partition(" ")[0].rstrip("+")
    return OF_SLURM.get(word) or _UNFINISHED.get(word, "failed")


def _of_table(head: str, lines: Iterable[str]) -> Iterator[Run]:
    closed = head.rstrip("\n").endswith("|")  # sacct -p
    fields = head.rstrip("\n").rstrip("|").split("|")
    places = {name: number for number, name in enumerate(fields)}
    count, name_at, known = len(fields), places.get("JobName", -1), _Known()
    at = [places.get(name, -1) for name in (
        "JobIDRaw", "JobID", "JobName", "User", "Partition", "State", "ExitCode", "Eligible", "Submit", "Start", "End",
        "ElapsedRaw", "Elapsed", "AllocTRES", "NodeList")]  # fmt: skip
    for line in lines:
        parts = line.rstrip("\n").removesuffix("|" if closed else "").split("|")
        if len(parts) > count and name_at >= 0:  # the name of the job has the sign that parts the fields
            more = len(parts) - count
            parts[name_at : name_at + more + 1] = ["|".join(parts[name_at : name_at + more + 1])]
        if len(parts) < count:
            continue
        parts.append("")
        raw, job, name, user, partition, state, code, eligible, submit, start, end, elapsed, long, tres, nodes = [
            parts[place] for place in at
        ]
        if "." in raw or "." in job:
            continue  # a step
        started, ended = known.time(start), known.time(end)
        apart = max(0.0, ended - started) if started is not None and ended is not None else 0.0
        kind: State = known.states(state)
        yield Run(
            job or raw, kind, name, user, partition, raw or job,
            known.time(eligible) or known.time(submit), started, ended if kind not in ("running", "waiting") else None,
            float(elapsed) if elapsed.isdecimal() else _span(long) if long else apart,
            known.gpus(tres), known.nodes(nodes), code,
        )  # fmt: skip


def _span(text: str) -> float:
    """``1-02:03:04`` -> seconds."""
    days, _, rest = text.rpartition("-")
    seconds = 0.0
    try:
        for part in rest.split(":"):
            seconds = seconds * 60 + float(part)
        return seconds + 86400 * int(days or 0)
    except ValueError:
        return 0.0


def _of_json(text: str, where: str) -> Iterator[Run]:
    """Versions differ: a number may be an object with ``number``, a state a list, and a code nested."""
    try:
        yield from _runs(json.loads(text)["jobs"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise SourceError("this JSON has no list of jobs", where=where, remedy=f"write it with: {COMMAND}") from None


def _runs(jobs: Iterable[Any]) -> Iterator[Run]:
    known = _Known()
    for job in jobs:
        times, array = job.get("time") or {}, job.get("array") or {}
        state = job.get("state") or {}
        said = state.get("current") if isinstance(state, dict) else state
        state_said = said[0] if isinstance(said, list) and said else str(said or "")
        tres = ((job.get("tres") or {}).get("allocated")) or []
        gpus = [one for one in tres if one.get("type") == "gres" and str(one.get("name", "")).split(":")[0] == "gpu"]
        whole = [one for one in gpus if one.get("name") == "gpu"] or gpus
        kind: State = known.states(state_said)
        raw = str(_number(job.get("job_id")) or "")
        task = _number(array.get("task_id")) if _number(array.get("job_id")) else None
        started, ended = _number(times.get("start")), _number(times.get("end"))
        yield Run(
            f"{_number(array.get('job_id')):.0f}_{task:.0f}" if task is not None else raw, kind,
            str(job.get("name") or ""), str(job.get("user") or (job.get("association") or {}).get("user") or ""),
            str(job.get("partition") or ""), raw, _number(times.get("eligible")) or _number(times.get("submission")),
            started or None, (ended or None) if kind not in ("running", "waiting") else None,
            _number(times.get("elapsed")) or 0.0, int(sum(_number(one.get("count")) or 0 for one in whole)),
            known.nodes(str(job.get("nodes") or "")), _code(job.get("exit_code")),
        )  # fmt: skip


def _number(value: Any) -> float | int | None:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _code(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value or "")
    signal = value.get("signal") or {}
    return f"{_number(value.get('return_code')) or 0:.0f}:{_number(signal.get('id', signal.get('signal_id'))) or 0:.0f}"


def when(text: str) -> float:
    """A time that a person wrote, in the same clock as the accounting's: a day, or a day and a time."""
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1)).total_seconds()
