"""Line -> prefix (who printed it, and when) and *body* (the message itself).

Rules see only bodies. ``body_start`` is the definition. The native core has a twin of it, and tests compare the two. ``origin``
reads rank, node, GPU and time from the whole line. It is called only for kept lines.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

MOST_PREFIXES = 4
"""a line may have several: the time stamp of Kubernetes, the task of srun, the rank of torchrun, the logger's time stamp"""

# Every form takes any number of digits. So lines that differ only in their numbers have their bodies at the same place, which
# the caches of verdicts rely on.
_TIME = rb"[0-9]+[-/][0-9]+[-/][0-9]+[T ][0-9]+:[0-9]+:[0-9]+(?:[.,][0-9]+)?(?:Z|[+-][0-9]+(?::[0-9]+)?)?"
_FORMS = (
    rb"\[(?:rank|default)(?P<rank>[0-9]+)\]:[ \t]?"  # torch; torchrun --tee
    rb"|[ ]{0,5}(?P<task>[0-9]+):[ ]"  # srun -l
    rb"|\[[0-9]+,(?P<process>[0-9]+)\]<std(?:out|err)>:[ \t]?"  # mpirun --tag-output
    rb"|\((?:[^()\s]+[ ])?pid=[0-9]*(?:,[ ]ip=(?P<ip>[0-9A-Za-z.:-]+))?\)[ ]"  # Ray's workers
    rb"|\((?:raylet|autoscaler)[^()]*\)[ ]"  # Ray itself
    rb"|\[pod/(?P<pod>[^\]\s]+)\][ ]"  # kubectl logs --prefix
    rb"|std(?:out|err)[ ][FP][ ]"  # Kubernetes' container runtime, after its time stamp
    rb"|\[(?P<stamp>" + _TIME + rb")\][ \t]*|(?P<time>" + _TIME + rb")(?:[ \t]+|\Z)"
    rb"|(?P<service>[A-Za-z0-9][A-Za-z0-9_.-]*[_-][0-9]+)[ ]{1,40}\|[ ]?"  # docker compose
    # A host name (pdsh, DeepSpeed's launcher, dshbak). It has a number and looks like the name of a node (gpu-017, r7i4n4,
    # node3, n20.cluster). It does not look like a setting (fp16), a code (EI0002), a file (model-3.safetensors) or an exception
    # (cv2.error, oss2.exceptions.NoSuchKey).
    rb"|(?P<host>(?=[a-z][A-Za-z0-9.-]*(?<![.-]):[ ])(?=[A-Za-z.-]*[0-9])(?:(?=[A-Za-z0-9.]*-)"
    rb"|(?=(?:[A-Za-z.-]+[0-9]+){3})|(?=(?:node|gpu|worker|host|server|compute|dgx|hgx|nid|cn|gn)[0-9])"
    rb"|(?=[A-Za-z0-9.-]*\.[A-Za-z]))"
    rb"(?![A-Za-z0-9.-]*\.(?:safetensors|bin|pt|pth|json|jsonl|parquet|arrow|txt|py|gz|tar|log|model):)"
    rb"(?![A-Za-z0-9.-]*\.(?:error|[A-Z][A-Za-z]*[a-z][A-Za-z]*):)[A-Za-z0-9.-]+):[ ]"
)
_PREFIX = re.compile(_FORMS)
# No possessive repeats of groups: before 3.11.5 Python's re gets some of them wrong.
PREFIXES = re.compile(b"(?:%b){0,%d}" % (re.sub(rb"\(\?P<\w+>", b"(?:", _FORMS), MOST_PREFIXES))


def body_start(line: bytes) -> int:
    """Where the body of ``line`` (without escape sequences) begins."""
    found = PREFIXES.match(line)
    return found.end() if found else 0


class Origin(NamedTuple):
    """Who printed a line, as far as the line says."""

    rank: int | None = None
    node: str | None = None
    gpu: str | None = None
    time: str | None = None


# Some programs print the rank or node inside the body.
_NCCL = re.compile(rb"(?P<node>[A-Za-z0-9][\w.-]*):[0-9]+:[0-9]+ \[(?P<gpu>[0-9]+)\] ")
_UCX = re.compile(rb"\[(?P<node>[A-Za-z][\w.-]*):[0-9]+:[0-9]+:[0-9]+\] ")
_SYSLOG = re.compile(
    rb"(?:<[0-9]+>)?(?P<time>[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}"
    rb"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9]{2}:?[0-9]{2}))[ ](?P<node>[\w.-]+)[ ]"
    rb"[\w./-]+(?:\[[0-9]+\])?:[ ]"
)
_RANK_IN_BODY = re.compile(
    rb"(?:\[(?:[Rr]ank|RANK|default|global_rank)[ =:]{0,2}(?P<rank>[0-9]{1,6})\]"
    rb"|\b(?:global_rank|rank|RANK|Rank|RankID)[ ]?[=:][ ]?(?P<named>[0-9]{1,6})\b"
    rb"|^\[(?:INFO|WARNING|ERROR)[^\]]{0,120}\brank[ =](?P<logger>[0-9]{1,6})\b)"
)
_BEFORE_RANK = 12
"""most bytes in a match of ``_RANK_IN_BODY`` before ``ank``, ``RANK`` or ``default``"""
_GLOG = re.compile(rb"\[?[IWEF](?P<month>[0-9]{2})(?P<day>[0-9]{2}) (?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?) ")
_CLOCK = re.compile(_TIME)


def origin(line: bytes) -> Origin:
    """Rank, node, GPU and time of ``line`` (without escape sequences): from its prefixes, then from its body."""
    rank, node, gpu, time, body = _said(line)
    if time is None and b":" in (begin := body[:80]) and (found := _CLOCK.search(begin)) is not None:
        time = _text(found[0])
    if time is None and (found := _GLOG.match(body)) is not None:
        time = f"{_text(found['month'])}-{_text(found['day'])} {_text(found['clock'])}"
    return Origin(rank, node, gpu, time)


def speaker(line: bytes) -> tuple[int | None, str | None]:
    """(rank, node) of ``line``, as ``origin`` gives them, but faster."""
    rank, node, _, _, _ = _said(line)
    return rank, node


def _said(line: bytes) -> tuple[int | None, str | None, str | None, str | None, bytes]:
    """(rank, node, GPU, time as the prefixes have it, the beginning of the body)"""
    rank: int | None = None
    node: str | None = None
    gpu: str | None = None
    time: str | None = None
    if (found := _SYSLOG.match(line)) is not None:
        node, time = _text(found["node"]), _text(found["time"])
    position = 0
    for _ in range(MOST_PREFIXES):
        found = _PREFIX.match(line, position)
        if not found:
            break
        position = found.end()
        group = found.lastgroup  # no form has two
        if group is None:
            continue
        if group in ("time", "stamp"):
            time = time or _text(found[group])
        elif group in ("rank", "task", "process"):
            rank = int(found[group])
        else:
            node = _text(found[group])
    body = line[position : position + 400]
    # Most lines say nothing more, and it is faster to look for a word than to try a pattern.
    if b"] " in body:
        if (found := _NCCL.match(body)) is not None:
            node, gpu = node or _text(found["node"]), _text(found["gpu"])
        elif (found := _UCX.match(body)) is not None:
            node = node or _text(found["node"])
    if rank is None and (b"ank" in body or b"RANK" in body or b"default" in body):
        first = min(at for word in (b"ank", b"RANK", b"default") if (at := body.find(word)) >= 0)
        start = 0 if body.startswith(b"[") else max(0, first - _BEFORE_RANK)
        if (found := _RANK_IN_BODY.search(body, start)) is not None:
            rank = int(found["rank"] or found["named"] or found["logger"])
    return rank, node, gpu, time, body


_NAMED = re.compile(
    r"(?:^|[/_.-])(?:(?P<rank>(?:global[_-]?)?rank|task|proc)[_-]?(?P<number>\d{1,6})"
    r"|(?P<node>(?:node|host|worker|gpu|nid|dgx)[_-]?\d{1,6}))(?=[/_.-]|$)"
)
_SLURM_TASK = re.compile(r"(?:^|/)(?=[\w-]*[A-Za-z\d])[\w-]*+\.(?P<number>\d{1,5})\.(?:out|err|log)$")


def origin_of_path(path: str) -> Origin:
    """Rank and node in the name of a log file: ``rank0.log``, ``node-3/rank_12.out``, ``job.0.out``."""
    rank: int | None = None
    node: str | None = None
    for extension in (".gz", ".zst", ".xz"):
        path = path.removesuffix(extension)
    for found in _NAMED.finditer(path):
        if found["rank"]:
            rank = int(found["number"])
        else:
            node = found["node"]
    if rank is None and node is None and (task := _SLURM_TASK.search(path)) is not None:
        rank = int(task["number"])
    return Origin(rank=rank, node=node)


def moment(time: str) -> datetime | None:
    """``Origin.time`` as a point in time; None if it does not state the day. Without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(time.replace("/", "-").replace(",", "."))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


_MONTHS = {name: number for number, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_ANY_CLOCK = re.compile(
    r"(?:(?:(?<!\d)\d++[-/])?(?P<month>\d{1,2})[-/](?P<day>\d{1,2})|(?P<name>[A-Z][a-z]{2}) +(?P<date>\d{1,2}))[T ]"
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2}):(?P<second>\d{2}(?:[.,]\d+)?)"
)


def clock(time: str) -> float | None:
    """``Origin.time`` in seconds, to compare lines of one job. Years and zones are ignored, because some forms have none."""
    found = _ANY_CLOCK.search(time)
    if found is None:
        return None
    month = int(found["month"]) if found["month"] else _MONTHS.get(found["name"], 0)
    day = int(found["day"] or found["date"])
    try:
        days = datetime(2000, month, day, tzinfo=UTC).timetuple().tm_yday
    except ValueError:
        return None
    seconds = float(found["second"].replace(",", "."))
    return days * 86400.0 + int(found["hour"]) * 3600 + int(found["minute"]) * 60 + seconds


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
