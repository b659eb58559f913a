"""Names and first lines of the logs in a folder -> groups: which logs are one job.

Signs of a job, the strongest first:

1. the scheduler's job number in the name: ``slurm-8811.out``, ``train.o8811``, a folder ``job-8811``;
2. the job number that the log's own lines state;
3. a long number in the name that is no rank, step, seed or process: ``train-8811.log``;
4. a run's number or time of start in the name: ``run3``, ``2026-01-03_12-00-00``;
5. folders side by side that hold logs of the same names: ``baseline/rank0.log``, ``wide/rank0.log``;
6. time: of ``train_1.log`` and ``train_2.log`` one ends long before the other begins.

Parts of one job also differ in their names: output and errors, ranks and nodes, attempts, rotated pieces. These parts of the
names are removed first. Logs without any sign are one job.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from diagnose.reading.prefixes import clock, origin

Key = tuple[str, ...]
Of = TypeVar("Of")
By = TypeVar("By")
_GAP_S = 300.0
"""runs are further apart than this; attempts of one job, and nodes of one launch, are closer"""


@dataclass(frozen=True, slots=True)
class Log:
    """What is known of one file."""

    name: str
    """the path below the folder, with / between its parts"""
    stated: frozenset[str] = frozenset()
    """the job numbers that its lines state"""
    begin: float | None = None
    """its first time in seconds of the year, to compare with other logs"""
    end: float | None = None
    nodes: frozenset[str] = frozenset()
    """that its first lines name"""


@dataclass(frozen=True, slots=True)
class Group:
    """The logs of one job."""

    name: str | None
    """None: it is the only group, and the folder names it"""
    logs: list[int]
    """numbers of the logs; older pieces of a rotated log come before newer ones"""


# ---- what the lines of a log say ----

_STATED = re.compile(
    rb"\bSLURM_JOB_?ID['\"]?\s*[=:]\s*['\"]?(\d+)"
    rb"|\bslurmstepd(?:-[\w.-]+)?: error: \*\*\* (?:JOB|STEP) (\d+)"
    rb"|\bsrun: (?:job|error: [^\n]{0,80}?StepId=|[^\n]{0,40}?StepId=) ?(\d+)"
    rb"|\bPBS_JOBID['\"]?\s*[=:]\s*['\"]?(\d+)"
    rb"|\bLSB_JOBID['\"]?\s*[=:]\s*['\"]?(\d+)"
    rb"|^Subject: Job (\d+)(?:\[\d+\])?: <"
    rb"|^(?:Slurm )?Job[ _]?ID\s*[:=]\s*(\d+)\s*$",
    re.MULTILINE | re.IGNORECASE,
)
_ESCAPES = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]|\0")
_NODES_FROM = 40
"""at the beginning, the speakers of so many lines are looked at"""


def look(name: str, head: bytes, tail: bytes = b"") -> Log:
    """What the beginning and the end of a log say. ``tail`` is empty if reading it would cost much."""
    first, last = _ESCAPES.sub(b"", head), _ESCAPES.sub(b"", tail)
    stated = {number.decode() for found in _STATED.findall(first + b"\n" + last) for number in found if number}
    lines = first.splitlines()
    speakers = (origin(line).node for line in lines[:_NODES_FROM])
    return Log(
        name,
        frozenset(stated),
        _time(lines),
        _time(reversed(last.splitlines())),
        frozenset(node.lower() for node in speakers if node),
    )


def _time(lines: Iterable[bytes]) -> float | None:
    for line in lines:
        said = origin(line[:400]).time
        if said is not None and (seconds := clock(said)) is not None:
            return seconds
    return None


# ---- what its name says ----

_WORD = r"(?:^|(?<=[^a-z]))"
_END = r"(?![a-z0-9])"
_PACKED = re.compile(r"\.(?:gz|zst|xz|bz2|lz4)$")
_PIECE = re.compile(
    r"^(?P<base>.+\.(?:log|out|err|txt|jsonl?))[.-](?:(?P<number>\d{1,3})|(?P<date>\d{4}-?\d\d-?\d\d[\d_T:-]*))$"
)
_BATCH_FILE = re.compile(r"(?P<name>(?:^|.*/)[^/]+)\.p?[oe](?P<job>\d+)(?:[.-](?P<index>\d+))?$")
_BATCH_SPOOL = re.compile(r"(?P<name>(?:^|.*/))(?P<job>\d+)(?:\[(?P<index>\d+)\])?\.[\w.-]+\.(?:ou|er)$")
_SCHEDULED = re.compile(rf"{_WORD}(?:slurm|pbs|lsf|sge|flux)[-_.]?(?:job)?[-_.]?(?:id)?[-_.]?(?P<job>\d+){_END}")
_ARRAY = re.compile(r"(?:^|/)slurm-(?P<job>\d+)_(?P<index>\d+)(?=\.|$)|(?<!\d)(?P<brackets>\d+)\[(?P<element>\d+)\]")
_JOB = re.compile(rf"{_WORD}job(?:[-_]?id)?(?:[-_]?(?P<job>\d+)|\.(?P<long>[1-9]\d{{3,}})){_END}")
_LAUNCHED = re.compile(r"(?P<run>(?:^|.*/)[^/]*)_[a-z0-9_]{8}/attempt_\d+/\d+/(?:stdout|stderr)\.log$")
_STAMP = re.compile(
    r"(?<!\d)(?P<day>20[1-3]\d[-_]?(?:0[1-9]|1[0-2])[-_]?(?:[0-2]\d|3[01]))"
    r"(?:[-_t/. ]?(?P<time>(?:[01]\d|2[0-3])[-_:.h]?[0-5]\d(?:[-_:.m]?[0-5]\d)?))?(?!\d)"
)
_EPOCH = re.compile(r"(?<!\d)1[4-9]\d{8}(?!\d)")
_RUN = re.compile(rf"{_WORD}(?:runs?|exp|experiment|trial|seed|version)[-_ ]?\d+{_END}")
_PLACE = re.compile(
    rf"{_WORD}(?:(?:global|local|node|data|tensor|pipeline)?[-_]?rank|task|proc|process|worker|node|host|gpu|dgx|hgx|nid|replica|"
    r"master|server|attempt|restart|retry)"
    rf"[-_]?\d+{_END}"
)
_RANK = re.compile(rf"{_WORD}(?:(?:global[-_]?)?rank|task|proc)[-_]?(\d+){_END}")
_STREAM = re.compile(rf"{_WORD}(?:stdout|stderr|output|out|stdlog|error|err|log|logs|txt)(?![a-z])")
_PROCESSES = re.compile(
    r"nccl|raylet|core-(?:driver|worker)|worker-[0-9a-f]{20}|pid|\.log\.(?:info|warning|error|fatal)\.|stack|py-?spy|gdb"
    r"|(?:^|/)core\.|faulthandler|flight"
)
"""logs and dumps of processes; their names have the number or the time of a process"""
_NUMBER = re.compile(r"\d+")
_LONG = re.compile(r"(?:(?<![a-z])(?P<word>[a-z]++)[-_.=]?)?(?<!\d)(?P<number>\d++)(?![a-z]|\.\d)")
_COUNTS = frozenset(
    "step steps iter iters iteration epoch ckpt checkpoint seed port bs gbs mbs batch seq seqlen len ctx context lr dim hidden"
    " layers tokens size part shard chunk page rank task proc worker node host gpu line lines".split()
)
"""words before a number that is not a job's"""
_COMPONENTS = frozenset(
    "trainer train training learner actor critic rollout reward ref reference policy generator inference server servers client"
    " vllm sglang ray driver executor launcher scheduler agent master head chief ps worker workers node nodes host hosts rank"
    " ranks evaluator eval evaluation test val nccl system kernel dmesg syslog monitor dcgm metrics tb tensorboard wandb data"
    " dataloader checkpoint checkpoints log logs out err stdout stderr output outputs tmp archive slurm torchelastic".split()
)
"""folders that hold a part of a job"""


_BESIDE = (".py", ".sh", ".sbatch", ".slurm", ".pbs", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".md", ".ipynb")
"""files that jobs are started with or described by"""


@dataclass(slots=True)
class _Named:
    """A log with what its name says."""

    number: int
    log: Log
    path: str
    """in lower case, without the parts that say that it is packed or a piece"""
    pair: str
    """the same for all that differ only in their stream"""
    unit: str
    """the same for all that differ only in stream, place and attempt"""
    age: int
    """of a rotated piece: 0 is the newest"""
    key: Key | None = None


def group(logs: Sequence[Log], *, folder: bool = True) -> list[Group]:
    """The logs of each job, in the order of their first logs.

    Scripts and settings that lie beside several jobs, and belong to none, are in no group. ``folder`` is False for files that
    were named one by one: they are one job only if something says so.
    """
    named = [_named(number, log) for number, log in enumerate(logs)]
    newest = {one.path for one in named if not one.age}
    for one in named:
        if one.path not in newest:
            one.age = 0  # numbers without a newest piece may be ranks
    for mark in (_by_scheduler, _by_lines, _by_long_number, _by_known_number(named), _by_run, _by_folder, _by_time):
        mark([one for one in named if one.key is None])
    _one_array_step(named)
    if not folder:
        for one in named:
            one.key = (*one.key, _folder_of(one)) if one.key is not None and one.key[0] == "job" else ("pair", one.pair)
    _attach([one for one in named if one.key is None], named)
    return _groups(named, folder)


def _named(number: int, log: Log) -> _Named:
    path = _PACKED.sub("", log.name.lower())
    found = _PIECE.match(path)
    age = 0
    if found is not None:
        path = found["base"]
        # Numbers grow with age, dates shrink.
        age = int(found["number"]) + 1 if found["number"] else 10**15 - int(_digits(found["date"]))
    pair = _STREAM.sub("", path)
    if (batch := _BATCH_FILE.match(path) or _BATCH_SPOOL.match(path)) is not None:
        pair = f"{batch['name']} {batch['job']} {batch['index'] or ''}"
    launched = _LAUNCHED.match(path)
    unit = path[: path.index("/attempt_", launched.end("run"))] if launched is not None else _PLACE.sub("@", pair)
    return _Named(number, log, path, _plain(pair), _plain(unit), age)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9@/]+", " ", name).strip()


def _digits(time: str) -> str:
    """The digits of a time from year to second, with zeros for missing parts."""
    return re.sub(r"\D", "", time).ljust(14, "0")[:14]


def _by_scheduler(logs: list[_Named]) -> None:
    for one in logs:
        found = _BATCH_FILE.match(one.path) or _BATCH_SPOOL.match(one.path)
        if found is not None:
            one.key = _job(found["job"], found["index"])
        elif (array := _ARRAY.search(one.path)) is not None:
            one.key = _job(array["job"] or array["brackets"], array["index"] or array["element"])
        elif numbers := [*_SCHEDULED.finditer(one.path)] or [*_JOB.finditer(one.path)]:
            last = numbers[-1].groupdict()
            one.key = _job(last["job"] or last["long"], None)


def _job(number: str, index: str | None) -> Key:
    return ("job", f"{number}_{index}" if index is not None else number)


def _by_lines(logs: list[_Named]) -> None:
    """Group by what lines state. One log of a unit speaks for the others: errors beside output, other ranks."""
    for unit in _parts(logs, lambda one: one.unit).values():
        stated = frozenset[str]().union(*(one.log.stated for one in unit))
        for one in unit:
            own = one.log.stated or stated
            if len(own) == 1:
                one.key = ("job", *own)


def _by_long_number(logs: list[_Named]) -> None:
    """Group by the long number in which otherwise equal names differ."""
    _take_numbers(logs, lambda column: len(set(column)) > 1)


def _by_known_number(all_of_them: list[_Named]) -> Callable[[list[_Named]], None]:
    """Group by a number that is the job of another log: ``dmesg-8811.log`` beside ``slurm-8811.out``."""

    def mark(logs: list[_Named]) -> None:
        known = {one.key[1] for one in all_of_them if one.key is not None}
        _take_numbers(logs, lambda column: column[0] in known)

    return mark


def _take_numbers(logs: list[_Named], fits: Callable[[list[str]], bool]) -> None:
    for family in _parts(logs, lambda one: _NUMBER.sub("#", one.unit)).values():
        columns = [column for column in _columns(family) if fits(column[1])]
        _, column = min(columns, default=(0, None), key=lambda column: column[0])  # a folder's before a file's last one
        for one, number in zip(family, column or (), strict=False):
            one.key = ("job", number)


def _columns(family: list[_Named]) -> list[tuple[int, list[str]]]:
    """The numbers at one place in the names of a family, with their folder's depth, if they can be those of jobs."""
    if _PROCESSES.search(family[0].path):
        return []
    ranks = [found[1] if (found := _RANK.search(one.path)) else None for one in family]
    one_rank_each = len(family) > 1 and None not in ranks and len(set(ranks)) == len(ranks)
    columns = []
    for numbers in zip(*(_long_numbers(one.path) for one in family), strict=False):
        column = [text for _, text in numbers if text is not None]
        if len(column) < len(family) or (one_rank_each and len(set(column)) == len(column)):
            continue  # one number per rank: these are numbers of processes
        if any(one.log.stated and text not in one.log.stated for one, text in zip(family, column, strict=True)):
            continue
        columns.append((numbers[0][0], column))
    return columns[::-1]


def _long_numbers(path: str) -> list[tuple[int, str | None]]:
    """(folder's depth, number) of a name, without those of places and times. None for a number that is no job's."""
    text = _EPOCH.sub("~", _STAMP.sub("~", _PLACE.sub("@", path)))
    return [(text.count("/", 0, found.start()), _long_number(text, found)) for found in _LONG.finditer(text)]


def _long_number(text: str, found: re.Match[str]) -> str | None:
    number = found["number"]
    fits = 4 <= len(number) <= 12 and number[0] != "0" and found["word"] not in _COUNTS
    return number if fits and _free(text, found) else None


def _free(text: str, found: re.Match[str]) -> bool:
    """Whether a number stands alone: not part of a word such as h100 or gpt4096, and not the end of a fraction."""
    before = text[found.start("number") - 1 : found.start("number")]
    return not before.isalnum() and not re.search(r"\d\.$", text[: found.start("number")])


def _by_run(logs: list[_Named]) -> None:
    stamped: list[tuple[float, _Named]] = []
    for one in logs:
        launched = _LAUNCHED.match(one.path)
        if launched is not None and not launched["run"].endswith("none"):
            one.key = ("run", launched["run"])
        elif (start := _start(one.path)) is not None and not _PROCESSES.search(one.path):
            stamped.append((start, one))
        elif found := _RUN.search(one.unit):
            one.key = ("run", one.unit[: found.end()])
    for cluster, part in enumerate(_clusters([(start, start, one) for start, one in stamped])):
        for one in part:
            one.key = ("start", str(cluster))


def _start(path: str) -> float | None:
    """The time in a name, if it has the time of day. A date alone may belong to a rotated piece."""
    if (epoch := _EPOCH.search(path)) is not None:
        return float(epoch[0])
    found = next((found for found in _STAMP.finditer(path) if found["time"]), None)
    if found is None:
        return None
    try:
        return (datetime.strptime(_digits(found["day"] + found["time"]), "%Y%m%d%H%M%S") - datetime(1970, 1, 1)).total_seconds()
    except ValueError:
        return None


def _by_folder(logs: list[_Named]) -> None:
    """Group by folders beside each other that hold logs of the same names, and whose own names are not parts of a job."""
    depth = _shared_depth(logs)
    inside: dict[str, set[str]] = defaultdict(set)
    speakers: set[str] = set()
    for one in logs:
        parts = one.path.split("/")
        if len(parts) > depth + 1:
            inside[parts[depth]].add("/".join(parts[depth + 1 :]))
        speakers |= one.log.nodes
    free = {name for name in inside if _is_free(name) and name not in speakers}
    alike = {name for name in free if any(inside[name] & inside[other] for other in free - {name})}
    for one in logs:
        parts = one.path.split("/")
        if len(parts) > depth + 1 and parts[depth] in alike:
            one.key = ("folder", parts[depth])


def _shared_depth(logs: list[_Named]) -> int:
    folders = [one.path.split("/")[:-1] for one in logs]
    depth = 0
    while folders and all(len(parts) > depth and parts[depth] == folders[0][depth] for parts in folders):
        depth += 1
    return depth


def _is_free(name: str) -> bool:
    """Whether a name can be that of a job: its words name no part of a job, and it is not a host, which ends in a number."""
    words = re.split(r"[^a-z]+", name)
    return not name[-1].isdigit() and "." not in name and not _COMPONENTS & set(words)


def _by_time(logs: list[_Named]) -> None:
    """Group names that differ only in a number: what ends long before the others begin is another run."""

    def family(one: _Named) -> str:
        launched = _LAUNCHED.match(one.path)
        return f"{launched['run']} #" if launched is not None else _NUMBER.sub("#", one.unit)

    for name, members in _parts(logs, family).items():
        units = _parts(members, lambda one: one.unit)
        spans = [span for unit in units.values() if (span := _span(unit)) is not None]
        if len(spans) < len(units):
            continue
        clusters = _clusters([(*span, unit) for span, unit in zip(spans, units.values(), strict=True)])
        for number, cluster in enumerate(clusters if len(clusters) > 1 else []):
            for unit in cluster:
                for one in unit:
                    one.key = ("time", name, str(number))


def _span(logs: list[_Named]) -> tuple[float, float] | None:
    begins = [one.log.begin for one in logs if one.log.begin is not None]
    ends = [one.log.end for one in logs if one.log.end is not None]
    return (min(begins), max(ends)) if begins and ends and min(begins) <= max(ends) else None


def _clusters(spans: Sequence[tuple[float, float, Of]]) -> list[list[Of]]:
    """Split the logs wherever none of them has a line for long."""
    clusters: list[list[Of]] = []
    latest = 0.0
    for begin, end, one in sorted(spans, key=lambda span: span[:2]):
        if not clusters or begin - latest > _GAP_S:
            clusters.append([])
            latest = end
        clusters[-1].append(one)
        latest = max(latest, end)
    return clusters


def _one_array_step(logs: list[_Named]) -> None:
    """Merge ``slurm-8811_0.out`` and the like if all state one job: then they are its tasks, not elements of an array."""
    jobs = [(one, one.key[1].partition("_")[0]) for one in logs if one.key is not None and one.key[0] == "job"]
    for number, members in _parts(jobs, lambda pair: pair[1]).items():
        stated = [one.log.stated for one, _ in members if one.log.stated]
        if len(stated) > 1 and len(frozenset[str]().union(*stated)) == 1:
            for one, _ in members:
                one.key = ("job", number)


def _attach(left: list[_Named], all_of_them: list[_Named]) -> None:
    """Put logs without a sign to the only job of their folder, or to the only one that ran at that time."""
    marked = [one for one in all_of_them if one.key is not None]
    for one in left:
        beside = [other for other in marked if "/" in one.path and _folder_of(other) == _folder_of(one)]
        meeting = [other for other in marked if _meet(other, one)]
        choices = ({other.key for other in others} for others in (marked, beside, meeting))
        one.key = next((keys.pop() for keys in choices if len(keys) == 1), ("rest",))


def _folder_of(one: _Named) -> str:
    return one.path.rpartition("/")[0]


def _meet(one: _Named, other: _Named) -> bool:
    first, second = _span([one]), _span([other])
    return first is not None and second is not None and first[0] <= second[1] and second[0] <= first[1]


def _groups(named: list[_Named], folder: bool) -> list[Group]:
    parts = _parts(named, lambda one: one.key)
    if len(parts) > 1 and all(one.log.name.lower().endswith(_BESIDE) for one in parts.get(("rest",), ())):
        parts.pop(("rest",), None)
    return [
        Group(None if folder and len(parts) == 1 else _name(members), [one.number for one in _oldest_first(members)])
        for members in parts.values()
    ]


def _name(members: list[_Named]) -> str:
    """The name of a job: its only file, its number, or its own folder."""
    key = members[0].key
    assert key is not None
    if len({one.pair for one in members}) == 1:
        return members[0].log.name
    if key[0] == "job":
        return key[1]
    shared = members[0].log.name.split("/")[: _shared_depth(members)]
    return "/".join(shared) or ("others" if key[0] == "rest" else members[0].log.name)


def _oldest_first(members: list[_Named]) -> list[_Named]:
    """Put the pieces of a rotated log in order. Other logs stay where they are."""
    pieces = _parts(members, lambda one: one.path)
    return [one for part in pieces.values() for one in sorted(part, key=lambda piece: -piece.age)]


def _parts(items: Iterable[Of], by: Callable[[Of], By]) -> dict[By, list[Of]]:
    parts: dict[By, list[Of]] = {}
    for item in items:
        parts.setdefault(by(item), []).append(item)
    return parts
