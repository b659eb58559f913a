"""Runs -> the tables of a study. docs/report.md says what each column means."""

from __future__ import annotations

import math
import statistics
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import numpy as np

from diagnose.decision.lost import lost
from diagnose.decision.policy_file import shipped_policy
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.study.chance import at_least, interval
from diagnose.study.runs import Run

SCHEMA: Final = "diagnose.study/1"
SIZES: Final = (
    (0, "no GPU"),
    (1, "1"),
    (8, "2-8"),
    (64, "9-64"),
    (256, "65-256"),
    (1024, "257-1,024"),
    (1 << 60, "over 1,024"),
)
_EARLY_S, _DAY_S, _HOUR_S = 600.0, 86400.0, 3600.0
_OF_STATE: Final = {
    "node_failure": "node_failure", "out_of_memory": "host_out_of_memory", "preempted": "preempted",
    "time_limit": "time limit", "requeued": "requeued", "cancelled": "cancelled",
}  # fmt: skip
"""what a state alone says; preempted, time limit, requeued and cancelled say that it was stopped, not why it had not ended"""
_NO_FAULT: Final = frozenset({"time limit", "requeued", "preempted", "cancelled"})
_SIGNIFICANT: Final = 0.05
_EVERY_S: Final = 1800.0
"""the pace of checkpoints that "what would have saved most" reckons with"""
_NOTICED_S: Final = 300.0
"""how soon a standing job could be noticed"""
_MOST_NODES: Final = 50
_MOST_CHAINS: Final = 20


@dataclass(slots=True)
class _Chains:
    """Which run tried again what another one failed at."""

    next_of: dict[int, int] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)


def study(runs: Sequence[Run], *, logs_read: int = 0, source: str = "") -> dict[str, Any]:
    """All tables, as JSON has them."""
    for run in runs:
        if run.failed and run.lost is None:
            first, last, saved = run.steps or (None, None, None)
            run.lost = lost(run.elapsed_s, start_up_s=run.start_up_s, still_s=run.still_s, first=first, last=last, saved=saved)
    ran = [run for run in runs if run.started is not None and run.state != "waiting"]
    failed = [run for run in ran if run.failed]
    chains = _chains(ran)
    nodes = _nodes(ran)
    retries = _retries(ran, chains)
    begun, over = (min((run.started for run in ran if run.started), default=None),
                   max((run.ended or run.started or 0.0 for run in ran), default=None))  # fmt: skip
    return {
        "schema": SCHEMA,
        "source": source,
        "from": _iso(begun),
        "to": _iso(over),
        "runs": len(ran),
        "failures": len(failed),
        "cancelled": sum(run.state == "cancelled" and not run.failed for run in ran),
        "logs": logs_read,
        "unknown": _unknown(failed),
        "hours": _hours(ran),
        "reasons": _reasons(ran, failed, chains),
        "queue": _queue(ran),
        "between_failures": _between(ran),
        "nodes": nodes,
        "early": _early(ran, failed),
        "hours_of_day": _counted(failed, 24, lambda at: int(at % _DAY_S // _HOUR_S)),
        "days_of_week": _counted(failed, 7, lambda at: int((at // _DAY_S + 3) % 7)),  # 1970 began with a Thursday
        "days": _days(ran),
        "retries": retries,
        "savings": _savings(failed, nodes, retries, ran),
    }


def reason_of(run: Run) -> str:
    """A reason of the taxonomy, or what the scheduler says."""
    return run.reason or _OF_STATE.get(run.state, "unknown")


def category_of(reason: str) -> str:
    return shipped_taxonomy().category_of.get(reason, "stopped" if reason in _NO_FAULT else "unknown")


def size_of(gpus: int) -> str:
    return next(name for most, name in SIZES if gpus <= most)


def _iso(at: float | None) -> str | None:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") if at else None


def _h(seconds: float) -> float:
    return round(seconds / _HOUR_S, 2)


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 1) if values else None


# --- what it cost -----------------------------------------------------------------------------------------------------------


def _unknown(failed: Sequence[Run]) -> dict[str, Any]:
    """The share of the failures that nothing explains: first, because all that follows is only as good as it."""
    unknown = [run for run in failed if reason_of(run) in ("unknown", "time limit", "requeued")]
    gpu_s = sum(run.gpu_s for run in failed)
    return {
        "count": len(unknown),
        "share": round(len(unknown) / len(failed), 4) if failed else None,
        "share_of_gpu_hours": round(sum(run.gpu_s for run in unknown) / gpu_s, 4) if gpu_s else None,
    }


def _hours(ran: Sequence[Run]) -> dict[str, float]:
    """Where the GPU hours went. The parts add up to the whole."""
    parts = dict.fromkeys(("useful", "lost_work", "lost_whole_runs", "standing_still", "way_back", "cancelled", "running"), 0.0)
    queued = 0.0
    for run in ran:
        if run.waits_since is not None and run.started is not None:
            queued += max(0.0, run.started - run.waits_since) * run.gpus
        if run.lost is not None:
            parts["lost_whole_runs" if run.lost.whole else "lost_work"] += run.lost.work_s * run.gpus
            parts["standing_still"] += run.lost.still_s * run.gpus
            parts["way_back"] += run.lost.back_s * run.gpus
            parts["useful"] += max(0.0, run.elapsed_s - run.lost.seconds) * run.gpus
        else:
            parts["useful" if run.state == "completed" else "running" if run.state == "running" else "cancelled"] += run.gpu_s
    return {"all": _h(sum(parts.values())), **{name: _h(value) for name, value in parts.items()}, "queued": _h(queued)}


def _reasons(ran: Sequence[Run], failed: Sequence[Run], chains: _Chains) -> list[dict[str, Any]]:
    by_reason: dict[str, list[int]] = defaultdict(list)
    for number, run in enumerate(ran):
        if run.failed:
            by_reason[reason_of(run)].append(number)
    whole = sum(run.lost.seconds * run.gpus for run in failed if run.lost) or 1.0
    rows = []
    for reason, numbers in by_reason.items():
        members = [ran[number] for number in numbers]
        gpu_s = sum(run.lost.seconds * run.gpus for run in members if run.lost)
        again = [ran[chains.next_of[number]].started - ran[number].ended  # type: ignore[operator]
                 for number in numbers if number in chains.next_of]  # fmt: skip
        rows.append(
            {
                "reason": reason,
                "category": category_of(reason),
                "count": len(members),
                "by_log": sum(run.by_log for run in members),
                "gpu_hours_lost": _h(gpu_s),
                "share": round(gpu_s / whole, 4),
                "gpus_mean": round(sum(run.gpus for run in members) / len(members), 1),
                "time_to_failure_s": _median([run.elapsed_s for run in members]),
                "time_to_restart_s": _median(again),
                "restarted": len(again),
            }
        )
    return sorted(rows, key=lambda row: (-row["gpu_hours_lost"], -row["count"], row["reason"]))


# --- queue, and time between failures ---------------------------------------------------------------------------------------


def _by_size(ran: Iterable[Run]) -> list[tuple[str, list[Run]]]:
    found: dict[str, list[Run]] = {name: [] for _, name in SIZES}
    for run in ran:
        found[size_of(run.gpus)].append(run)
    return [(name, members) for name, members in found.items() if members]


def _queue(ran: Sequence[Run]) -> list[dict[str, Any]]:
    rows = []
    for name, members in _by_size(ran):
        waits = np.array([max(0.0, run.started - run.waits_since) for run in members
                          if run.waits_since is not None and run.started is not None])  # fmt: skip
        lengths = np.array([run.elapsed_s for run in members])
        rows.append(
            {
                "gpus": name,
                "runs": len(members),
                "wait_median_s": round(float(np.median(waits)), 1) if len(waits) else None,
                "wait_p90_s": round(float(np.percentile(waits, 90)), 1) if len(waits) else None,
                "length_median_s": round(float(np.median(lengths)), 1),
                "gpu_hours": _h(sum(run.gpu_s for run in members)),
            }
        )
    return rows


def _is_fault(run: Run) -> bool:
    """It failed, and was not only stopped by somebody."""
    return run.failed and reason_of(run) not in _NO_FAULT


def _between(ran: Sequence[Run]) -> list[dict[str, Any]]:
    """Time between failures by size, with the interval that chance allows; all faults, and those of machines."""
    rows = []
    for name, members in _by_size(ran):
        seconds = sum(run.elapsed_s for run in members)
        node_days = sum(run.elapsed_s * max(1, len(run.nodes)) for run in members) / _DAY_S
        faults = [run for run in members if _is_fault(run)]
        machines = sum(category_of(reason_of(run)) == "infrastructure" for run in faults)
        row: dict[str, Any] = {"gpus": name, "runs": len(members), "hours": _h(seconds), "node_days": round(node_days, 2)}
        for what, count in (("all", len(faults)), ("infrastructure", machines)):
            low, high = interval(count)
            row[what] = {
                "failures": count,
                "hours_between": _h(seconds / count) if count else None,
                "from_hours": _h(seconds / high) if high else None,
                "to_hours": _h(seconds / low) if low else None,
                "per_1000_node_days": round(1000 * count / node_days, 3) if node_days else None,
            }
        rows.append(row)
    return rows


# --- nodes ------------------------------------------------------------------------------------------------------------------


def _nodes(ran: Sequence[Run]) -> dict[str, Any]:
    """Nodes with more failures than chance.

    Expected is what the runs of a node would fail by their size alone. Runs of one user and name on one day count as one:
    a broken script fails wherever it runs; failures of the job's own code count for no node. All nodes of a run are treated
    alike, so the first of a list is not guilty because it is the first; but runs that the worst node explains accuse no other.
    The probability is multiplied by the number of nodes.
    """
    considered: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    for run in ran:
        if run.nodes:
            size = size_of(run.gpus)
            considered[size] += 1
            bad[size] += _accuses(run)
    chances = {size: math.log1p(-min(0.999999, bad[size] / considered[size])) for size in considered}
    ids: dict[str, int] = {}
    groups: dict[tuple[str, str, int], int] = {}
    columns: tuple[array[Any], ...] = (array("i"), array("i"), array("i"), array("d"), array("b"))
    for number, run in enumerate(ran):
        if not run.nodes:
            continue
        many = len(run.nodes)
        group = groups.setdefault((run.user, run.name, int((run.started or 0.0) // _DAY_S)), len(groups))
        columns[0].extend([ids.setdefault(node, len(ids)) for node in run.nodes])
        for column, value in zip(columns[1:], (group, number, chances[size_of(run.gpus)], _accuses(run)), strict=True):
            column.extend([value] * many)
    if not ids:
        return {"nodes": 0, "suspicious": [], "looked_at": []}
    seen = _Placed(*(np.frombuffer(column, dtype=column.typecode) for column in columns))
    names = list(ids)
    guilty: list[dict[str, Any]] = []
    first = rows = _judged(seen, names, len(ids))
    while rows and rows[0]["p"] < _SIGNIFICANT and len(guilty) < _MOST_NODES:
        worst = rows[0]
        guilty.append(worst)
        suspects = [ids[row["node"]] for row in rows[1:] if row["p"] < _SIGNIFICANT]
        explained = seen.run[seen.node == ids[worst["node"]]]
        seen = seen.only(np.isin(seen.node, suspects) & ~np.isin(seen.run, explained))
        rows = _judged(seen, names, len(ids))
    known = {row["node"] for row in guilty}
    others = [row for row in first if row["node"] not in known and row["p"] >= _SIGNIFICANT]
    return {"nodes": len(ids), "suspicious": guilty, "looked_at": others[:5]}


@dataclass(frozen=True, slots=True)
class _Placed:
    """A row for each node of each run."""

    node: Any
    group: Any
    run: Any
    chance: Any
    """log of the probability that the run does not fail"""
    failed: Any

    def only(self, which: Any) -> _Placed:
        return _Placed(self.node[which], self.group[which], self.run[which], self.chance[which], self.failed[which])


def _judged(seen: _Placed, names: Sequence[str], nodes: int) -> list[dict[str, Any]]:
    """The nodes that failed more than expected, the most surprising first."""
    groups = int(seen.group.max(initial=0)) + 1
    kinds, place = np.unique(seen.node.astype(np.int64) * groups + seen.group, return_inverse=True)
    of_node = kinds // groups
    missed = np.bincount(place, weights=seen.chance, minlength=len(kinds))
    hit = np.bincount(place, weights=seen.failed, minlength=len(kinds)) > 0
    expected = np.bincount(of_node, weights=1 - np.exp(missed), minlength=len(names))
    fell = np.bincount(of_node, weights=hit, minlength=len(names)).astype(int)
    count = np.bincount(of_node, minlength=len(names))
    rows = [
        {
            "node": names[int(number)],
            "failures": int(fell[number]),
            "expected": round(float(expected[number]), 2),
            "kinds_of_runs": int(count[number]),
            "p": float(f"{min(1.0, at_least(int(fell[number]), float(expected[number])) * nodes):.2g}"),
        }
        for number in np.nonzero(fell > expected)[0]
    ]
    return sorted(rows, key=lambda row: (row["p"], -int(str(row["failures"])), row["node"]))


def _accuses(run: Run) -> bool:
    return _is_fault(run) and category_of(reason_of(run)) in ("infrastructure", "unknown")


# --- when -------------------------------------------------------------------------------------------------------------------


def _early(ran: Sequence[Run], failed: Sequence[Run]) -> dict[str, Any]:
    """Failures in the first ten minutes, and how much likelier one is then than later."""
    early = [run for run in failed if run.elapsed_s <= _EARLY_S]
    first_s = sum(min(run.elapsed_s, _EARLY_S) for run in ran)
    later_s = sum(max(0.0, run.elapsed_s - _EARLY_S) for run in ran)
    rates = [1000 * count * _HOUR_S / seconds if seconds else None
             for count, seconds in ((len(early), first_s), (len(failed) - len(early), later_s))]  # fmt: skip
    return {
        "count": len(early),
        "share": round(len(early) / len(failed), 4) if failed else None,
        "gpu_hours": _h(sum(run.gpu_s for run in early)),
        "per_1000_hours": round(rates[0], 2) if rates[0] is not None else None,
        "per_1000_hours_later": round(rates[1], 2) if rates[1] is not None else None,
    }


def _counted(failed: Sequence[Run], many: int, place: Any) -> list[int]:
    found = [0] * many
    for run in failed:
        if run.ended is not None:
            found[place(run.ended)] += 1
    return found


def _days(ran: Sequence[Run]) -> list[dict[str, Any]]:
    found: dict[int, list[float]] = defaultdict(lambda: [0.0] * 4)
    for run in ran:
        if run.ended is None:
            continue
        row = found[int(run.ended // _DAY_S)]
        row[0] += 1
        row[1] += run.failed
        row[2] += run.gpu_s
        row[3] += run.lost.seconds * run.gpus if run.lost else 0.0
    return [
        {"day": (_iso(day * _DAY_S + 1) or "")[:10], "runs": int(row[0]), "failures": int(row[1]), "gpu_hours": _h(row[2]),
         "gpu_hours_lost": _h(row[3])}
        for day, row in sorted(found.items())
    ]  # fmt: skip


# --- again ------------------------------------------------------------------------------------------------------------------


def _chains(ran: Sequence[Run]) -> _Chains:
    """A run tries again what failed: a later run of a requeued job, or one of the same user, name and size that could begin
    only when the other had ended, within a day.
    """
    chains = _Chains()
    by_key: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for number, run in enumerate(ran):
        by_key[run.user, run.name, run.gpus].append(number)
    for members in by_key.values():
        if len(members) < 2:
            continue
        members.sort(key=lambda number: (ran[number].started or 0.0, number))
        waiting: dict[str, int] = {}
        latest: int | None = None
        for number in members:
            run = ran[number]
            before = waiting.pop(run.raw, None)
            if before is None and latest is not None and _tries_again(run, ran[latest]):
                before, latest = latest, None
            if before is not None:
                chains.next_of[before], chains.before[number] = number, before
            if run.ended is not None and (run.failed or run.state == "cancelled"):
                waiting[run.raw] = number
                if run.failed:
                    latest = number
            elif run.state == "completed":
                latest = None
    return chains


def _tries_again(run: Run, failed: Run) -> bool:
    if run.started is None or failed.ended is None or run.job.partition("_")[0] == failed.job.partition("_")[0] != run.job:
        return False  # the tasks of an array are no retries of each other
    could = run.waits_since if run.waits_since is not None else run.started
    return could >= failed.ended - 5 and run.started - failed.ended < _DAY_S


def _retries(ran: Sequence[Run], chains: _Chains) -> dict[str, Any]:
    """Chains of tries, and those that could not succeed: the same error of code or settings again, or the same exit code
    within ten minutes.
    """
    hopeless: list[Run] = []
    rows: list[dict[str, Any]] = []
    for number in chains.next_of:
        if number in chains.before:
            continue
        chain = [number]
        while chain[-1] in chains.next_of:
            chain.append(chains.next_of[chain[-1]])
        members = [ran[one] for one in chain]
        vain = [run for before, run in pairwise(members) if _could_not(before, run)]
        hopeless += vain
        end = members[-1]
        rows.append(
            {
                "name": end.name,
                "user": end.user,
                "reason": reason_of(members[0]),
                "tries": len(members),
                "in_vain": len(vain),
                "gpu_hours_in_vain": _h(sum(run.gpu_s for run in vain)),
                "ended": "failed" if end.failed else end.state,
            }
        )
    rows.sort(key=lambda row: (-row["gpu_hours_in_vain"], -row["in_vain"], -row["tries"]))
    succeeded = [row["tries"] for row in rows if row["ended"] == "completed"]
    return {
        "chains": len(rows),
        "succeeded": len(succeeded),
        "tries_until_success": _median(succeeded),
        "in_vain": len(hopeless),
        "gpu_hours_in_vain": _h(sum(run.gpu_s for run in hopeless)),
        "longest": rows[:_MOST_CHAINS],
    }


def _could_not(before: Run, run: Run) -> bool:
    if not run.failed or reason_of(run) != reason_of(before):
        return False
    if run.reason is not None:
        return shipped_policy().remedy(run.reason).kind in ("fix_code", "fix_config")
    same = run.state == before.state == "failed" and run.exit_code == before.exit_code
    return same and max(run.elapsed_s, before.elapsed_s) < _EARLY_S


def _savings(
    failed: Sequence[Run], nodes: Mapping[str, Any], retries: Mapping[str, Any], ran: Sequence[Run]
) -> list[dict[str, Any]]:
    """What would have saved most, in GPU hours. They overlap, so they do not add up."""
    excess = {row["node"]: 1 - row["expected"] / row["failures"] for row in nodes["suspicious"]}
    on_bad = sum(
        run.lost.seconds * run.gpus * max(excess.get(node, 0.0) for node in run.nodes)
        for run in failed
        if run.lost and run.nodes and _accuses(run) and any(node in excess for node in run.nodes)
    )
    known = [run for run in failed if run.lost is not None]
    early = [run for run in failed if run.elapsed_s <= _EARLY_S and run.gpus > 8 and category_of(reason_of(run)) == "script"]
    rows = [
        ("checkpoints", f"A checkpoint every {_EVERY_S / 60:.0f} minutes, also before the time limit and on preemption",
         sum(max(0.0, run.lost.work_s - _EVERY_S / 2) * run.gpus for run in known if run.lost)),
        ("standing", f"Noticing after {_NOTICED_S / 60:.0f} minutes that a job stands still",
         sum(max(0.0, run.lost.still_s - _NOTICED_S) * run.gpus for run in known if run.lost)),
        ("nodes", "Taking the nodes with more failures than chance out of service", on_bad),
        ("retries", "Not trying again what cannot succeed", retries["gpu_hours_in_vain"] * _HOUR_S),
        ("small_first", "Trying on one node first what failed in the first ten minutes because of its own code",
         sum(run.gpu_s * (1 - min(1.0, 8 / run.gpus)) for run in early)),
        ("start_up", "Halving the start-up of jobs that come back",
         sum(run.lost.back_s * run.gpus for run in known if run.lost) / 2),
    ]  # fmt: skip
    found = [{"what": what, "how": how, "gpu_hours": _h(seconds)} for what, how, seconds in rows if seconds > 0]
    return sorted(found, key=lambda row: -float(str(row["gpu_hours"])))
