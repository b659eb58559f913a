"""The path for one job: read this first.

bytes -> lines -> kept lines -> diagnosis -> advice. This is what one log says. ``decision.decide`` takes the report, looks at
what happened before and elsewhere, and decides. The service acts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from diagnose.compression.folds import KEEP, Folding
from diagnose.compression.kept_log import Compression
from diagnose.compression.workload import FIRST, HEAD, Fingerprint, fingerprint
from diagnose.diagnosis.evidence import Evidence, gather, normal
from diagnose.diagnosis.finding import Finding
from diagnose.diagnosis.likeness import sounds
from diagnose.diagnosis.status import Told
from diagnose.matching.matcher import Matcher
from diagnose.matching.scan import Scan
from diagnose.reading.sources import Source

if TYPE_CHECKING:
    from diagnose.compression.snapshot import StoredLine
    from diagnose.report import Report


class Job:
    """One job: its sources, its kept lines, and its report."""

    def __init__(self, job_id: str, sources: Sequence[Source], matcher: Matcher, fold_after: int = KEEP) -> None:
        """``fold_after``: so many lines that repeat each other are kept before the next ones fold; 0 folds none, and what folds
        find is found: numbers of lines that no rule knows, and runs.
        """
        self.id = job_id
        self.sources = list(sources)
        self.compression = Compression(matcher, Folding(sounds, fold_after or KEEP, drops=fold_after > 0))
        self.known: set[str] = set()
        """lines of runs that went well: not the cause of anything"""
        self.metadata: dict[str, str] = {}
        """user, script, framework, image, arguments, if known from outside"""
        self.told: Told | None = None
        """what a caller knows who says that it failed, whatever its log says"""
        self._fingerprint: Fingerprint | None = None
        self._first = b""

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint, from the beginning of the job."""
        return self._fingerprint or fingerprint(self.compression, self.metadata, self._first)

    @fingerprint.setter
    def fingerprint(self, known: Fingerprint) -> None:
        self._fingerprint = known

    def learn(self, other: Job) -> None:
        """Learn the lines of ``other``, a run of this kind that went well, or an attempt that went on. They are then no
        news.
        """
        self.known.update(normal(event.body) for event in other.evidence().events)

    def feed(self, source: int, chunk: bytes) -> list[Scan]:
        """Read the next bytes of source number ``source``: bytes -> lines -> kept lines."""
        if len(self._first) < FIRST:
            self._first += chunk[: FIRST - len(self._first)]
        scans = self.compression.feed(source, chunk)
        if self._fingerprint is None and self.compression.counts.bytes_in >= HEAD:
            self._fingerprint = fingerprint(self.compression, self.metadata, self._first)
        return scans

    def feed_all(self, source: int, processes: int) -> Iterator[list[Scan]]:
        """``feed`` for all of a source, with this many processes that judge what comes next."""
        from diagnose.compression.ahead import feed_ahead  # only where it is used

        read = self.sources[source]
        rest = read.pieces()
        for piece in rest:
            yield self.feed(source, bytes(piece))
            if processes > 1 and self._fingerprint is not None:  # that is made of the beginning alone
                ahead = feed_ahead(self.compression, source, rest, processes, read)
                yield next(ahead, [])
                loading = threading.Thread(target=_load_what_reports_need)  # beside the processes, which have begun
                loading.start()
                yield from ahead
                loading.join()  # the next source may begin processes, which must not be copied from the midst of it

    def holds(self, source: int) -> bool:
        """Whether whole lines of source number ``source`` wait for those after them."""
        return self.compression.holds(source)

    def paused(self) -> list[tuple[int, list[Scan]]]:
        """``pause`` for all sources with such lines, by their numbers."""
        return [(number, self.pause(number)) for number in range(len(self.sources)) if self.holds(number)]

    def pause(self, source: int) -> list[Scan]:
        """Nothing has come for a while: see ``Compression.pause``."""
        return self.compression.pause(source)

    def close(self, source: int) -> list[Scan]:
        """Source number ``source`` has ended."""
        return self.compression.close(source)

    def restart(self, source: int) -> list[Scan]:
        """Source number ``source`` begins again at line 1: its file was rotated or truncated."""
        return self.compression.restart(source)

    def snapshot(self) -> bytes:
        """All that is needed to go on later, except the kept lines: see ``diagnose.compression.snapshot``."""
        from diagnose.compression.snapshot import snapshot

        known = self._fingerprint
        beside = [known.metadata, known.sketch] if known is not None else None
        return snapshot(self.compression, beside, self._first if known is None else b"")

    def restore(self, snapshot: bytes, kept: Iterable[StoredLine]) -> None:
        """Go on from a snapshot. ``kept`` are the lines that had been kept when it was made."""
        from diagnose.compression.snapshot import beside_of, restored

        self.compression = restored(snapshot, self.compression.matcher, kept, self.compression.folding)
        beside, self._first = beside_of(snapshot)
        if beside is not None:
            metadata, sketch = beside
            self._fingerprint = Fingerprint(tuple((name, value) for name, value in metadata), tuple(sketch))

    def evidence(self) -> Evidence:
        """The kept lines that diagnosis reads."""
        return gather(self.compression.kept, self.compression.matcher.rules, self.sources)

    def finding(self, evidence: Evidence, *, running: bool = False) -> Finding:
        """Kept lines -> diagnosis."""
        from diagnose.diagnosis.explain import explain

        return explain(evidence, self.compression, self.known, running=running, told=None if running else self.told)

    def report(self, *, running: bool = False) -> Report:
        """What is known so far: kept lines -> diagnosis -> advice."""
        from diagnose import report as r  # pydantic takes a while to import, so it waits until it is needed
        from diagnose.decision.advice import advise
        from diagnose.decision.checkpoints import saved
        from diagnose.decision.policy_file import shipped_policy
        from diagnose.diagnosis.reporting import report_of

        evidence = self.evidence()
        finding = self.finding(evidence, running=running)
        checkpoints = saved(self.compression.facts, self.compression.matcher.rules)
        action = advise(finding, shipped_policy(), checkpoints)
        identity = r.JobIdentity(
            id=self.id,
            sources=[source.name for source in self.sources],
            attempt=finding.attempt,
            fingerprint=str(self.fingerprint),
        )
        found = [r.SavedCheckpoint(step=one.step, path=one.path, complete=one.complete) for one in checkpoints]
        return report_of(identity, finding, action, found, evidence, self.compression, running=running)


def _load_what_reports_need() -> None:
    """Import it, and prepare its words: a quarter of a second of a report."""
    from diagnose.decision import advice, checkpoints, policy_file  # noqa: F401
    from diagnose.diagnosis import explain, reporting  # noqa: F401

    policy_file.shipped_policy()
    explain.prepare()
