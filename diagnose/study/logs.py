"""The logs of a site -> which run each belongs to, by the job's id or the pod's name in its path."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from diagnose.decision.ending import OF_SLURM, Ending, joined
from diagnose.decision.lost import saved_step, steps_of, still_of
from diagnose.diagnosis.status import Told
from diagnose.job import Job
from diagnose.matching.matcher import Matcher
from diagnose.reading.sources import Source
from diagnose.report import Report
from diagnose.study.runs import Run

_ID = re.compile(r"(?<![\d.])(\d+(?:_\d+)?)(?![\d])")
_OTHER = re.compile(r"(?:rank|node|gpu|host|local|task|step|epoch|attempt|restart|worker|try|n|r)[-_.]?$", re.IGNORECASE)
_POD = re.compile(r"(.+)-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|(?:master|worker|launcher|chief|ps|evaluator)-\d+)")
"""the name of a job and what its pods have behind it: from Kubernetes (which avoids vowels), or from the training operator"""
_INDEX = re.compile(r"(.+)-\d+")
_WORDS: dict[str, str] = {kind: word for word, kind in reversed(OF_SLURM.items())}


def of_runs(runs: Sequence[Run], sources: Iterable[Source]) -> dict[int, list[Source]]:
    """The number of a run -> its logs. Where a job ran several times, a log is of its last run.

    The longest number in a path that is the id of a job counts: paths are full of ranks and dates.
    """
    last: dict[str, int] = {}
    named: dict[str, dict[str, int]] = defaultdict(dict)
    for number, run in enumerate(runs):
        last[run.raw] = last[run.job] = number
        for name in run.names:
            named[name][run.space] = number
    found: dict[int, list[Source]] = defaultdict(list)
    for source in sources:
        belongs = _by_name(source.name, named)
        if belongs is None:
            ids = [match[1] for match in _ID.finditer(source.name) if not _OTHER.search(source.name[: match.start()])]
            ids += [part for word in ids for part in word.split("_")]
            known = [word for word in ids if word in last]
            belongs = last[max(known, key=len)] if known else None
        if belongs is not None:
            found[belongs].append(source)
    return dict(found)


def _by_name(path: str, named: Mapping[str, Mapping[str, int]]) -> int | None:
    """The run whose name, or whose pod's, stands in a path: the longest name. Where two places have one of that name, the path
    must name the place, too.
    """
    words = set(_words(path)) if named else set()
    for word in sorted(words & named.keys(), key=len, reverse=True):
        places = [number for space, number in named[word].items() if len(named[word]) == 1 or space in words]
        if len(places) == 1:
            return places[0]
    return None


def _words(path: str) -> Iterator[str]:
    """What may be a name in a path such as ``PLACE_POD_UID/CONTAINER/0.log``, ``POD_PLACE_CONTAINER-ID.log`` or ``JOB.log``."""
    for part in path.replace("\\", "/").split("/"):
        for word in (part, *part.split("_")):
            while word:
                yield word
                if (pod := _POD.fullmatch(word)) is not None:
                    yield pod[1]
                    if (one := _INDEX.fullmatch(pod[1])) is not None:  # one of an indexed job
                        yield one[1]
                word = word.rpartition(".")[0]


def told(run: Run, sources: Sequence[Source], matcher: Matcher) -> Report:
    """What the logs of a run say, joined with how it ended."""
    job = Job(run.job, sources, matcher)
    job.told = _failed(run)
    for number, source in enumerate(job.sources):
        for chunk in source.chunks():
            job.feed(number, chunk)
        job.close(number)
    report = job.report()
    job.compression.kept.close()
    word = _WORDS.get(run.state)
    return joined(report, Ending(OF_SLURM[word], f"The accounting says {word}")) if word is not None else report


def _failed(run: Run) -> Told | None:
    """What the accounting knows of a run that failed: its exit code and its signal, as Slurm writes them (``1:0``, ``0:9``)."""
    code, _, signal = run.exit_code.partition(":")
    numbers = (int(number) if number.isdecimal() else None for number in (code, signal))
    return Told(*numbers) if run.state != "cancelled" else None


def enter(run: Run, report: Report) -> None:
    """Put into a run what its log says."""
    diagnosis = report.diagnosis
    if report.outcome == "failed" and diagnosis.reason != "unknown" and diagnosis.group != f"scheduler-{run.state}":
        run.reason, run.by_log = diagnosis.reason, True
    run.still_s = still_of(report)
    first, last = steps_of(report)
    run.steps = (first, last, saved_step(report))
