"""What clients send while something is broken, and whether all of it is there afterwards.

Each round has jobs of its own. Their lines are numbered, and no rule knows them, so each must be kept, once and in order. What
was acknowledged and is not there is lost; with a flipped bit it must be one record at most, and the service must say which.
"""

from __future__ import annotations

import random
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.campaign.faults import Site, flip

_WORDS: Final = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron")
_GAP: Final = re.compile(rb"\n--- diagnose: bytes (\d+) to (\d+) of this source are not kept(?: so far)? ---\n")
_SOURCES: Final = 4
_PIECES: Final = 24
_LONGEST_PIECE: Final = 8_000
_PATIENCE_S: Final = 40.0
Range = tuple[int, int]


@dataclass
class Log:
    """What one client sends."""

    job: str
    source: str
    pieces: list[bytes]
    acknowledged: int = 0
    """bytes"""

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


@dataclass
class Found:
    """What a round, or many, showed."""

    rounds: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    """bytes"""
    lost: int = 0
    """acknowledged bytes that are not there, where no bit was flipped"""
    told: int = 0
    """acknowledged bytes that a flipped bit cost, and that the service told of"""
    records_hit: int = 0
    given_up: int = 0
    """bytes of raw logs that a full disk cost, told as gaps, as docs/service.md says; their lines are there all the same"""
    later: Counter[str] = field(default_factory=Counter)
    """what came of bits that were flipped in raw logs and in the database: harmless, told, or not told"""
    wrong: list[str] = field(default_factory=list)
    """each is a violation"""

    def add(self, other: Found) -> None:
        self.rounds += other.rounds
        self.acknowledged += other.acknowledged
        self.lost += other.lost
        self.told += other.told
        self.records_hit += other.records_hit
        self.given_up += other.given_up
        self.later += other.later
        self.wrong += other.wrong


def logs(number: int, chance: random.Random) -> list[Log]:
    found = []
    for which in range(_SOURCES):
        job, source, line = f"round{number}-{which % 2}", f"rank{which}.log", 0
        pieces = []
        for _ in range(_PIECES):
            count = chance.randrange(1, 60)
            text = "".join(f"note {line + n} of {source} says {chance.choice(_WORDS)} once more\n" for n in range(count))
            line += count
            pieces.append(text.encode()[:_LONGEST_PIECE].rpartition(b"\n")[0] + b"\n")
        found.append(Log(job, source, pieces))
    return found


class Client(threading.Thread):
    """Sends one log, and tries again whatever fails."""

    def __init__(self, site: Site, log: Log, seed: int) -> None:
        super().__init__(daemon=True)
        self._site, self.log, self._chance = site, log, random.Random(seed)
        self.failed: str | None = None

    def run(self) -> None:
        with httpx.Client(timeout=30) as client:
            for piece in self.log.pieces:
                if not self._sent(client, piece):
                    return
                self.log.acknowledged += len(piece)
                time.sleep(0.05 * self._chance.random())

    def _sent(self, client: httpx.Client, piece: bytes) -> bool:
        params = {"source": self.log.source, "offset": str(self.log.acknowledged)}
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            try:
                answer = client.post(f"{self._site.server.url}/v1/jobs/{self.log.job}/logs", params=params, content=piece)
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if answer.status_code == 200:
                return True
            if answer.status_code not in (429, 503):
                self.failed = f"{self.log.job} {self.log.source} at {self.log.acknowledged}: {answer.status_code} {answer.text}"
                return False
            time.sleep(0.1)
        self.failed = f"{self.log.job} {self.log.source}: not accepted within {_PATIENCE_S:g} s"
        return False


def one(site: Site, number: int, name: str, fault: Any) -> Found:
    """One round with one fault."""
    chance = random.Random(number)
    site.chance = chance
    clients = [Client(site, log, number * 100 + which) for which, log in enumerate(logs(number, chance))]
    for client in clients:
        client.start()
    site.pause(0.8)
    fault(site)
    for client in clients:
        client.join()
    found = Found(Counter({name: 1}))
    found.wrong += [f"round {number} ({name}): {client.failed}" for client in clients if client.failed]
    if not found.wrong:
        _until_ready(site)
        for job in sorted({client.log.job for client in clients}):
            site.server.end(job, 1)
            site.server.get(f"/v1/jobs/{job}/report")
        for client in clients:
            found.acknowledged += client.log.acknowledged
            found.wrong += [f"round {number} ({name}): {what}" for what in _compared(site, client.log, found, name)]
    if name in LATER and not found.wrong:
        found.later[f"{name}: {LATER[name](site, [client.log for client in clients])}"] += 1
    if found.records_hit > 1:
        found.wrong.append(f"round {number} ({name}): one bit cost {found.records_hit} records")
    return found


def _until_ready(site: Site) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if site.server.client.get("/readyz").status_code == 200:
            return
        time.sleep(0.05)
    raise AssertionError(f"it is not ready: {site.server.client.get('/readyz').text}")


def _compared(site: Site, log: Log, found: Found, name: str) -> Iterator[str]:
    """What is wrong with a log, beside what was sent."""
    flipped = name == "flip_journal"
    what = f"{log.job} {log.source}"
    said = site.server.get(f"/v1/jobs/{log.job}/sources")["sources"]
    (source,) = [one for one in said if one["name"] == log.source]
    missing: list[Range] = [(begin, end) for begin, end in source["missing"]]
    if source["received"] < log.acknowledged:
        yield f"{what}: {log.acknowledged} bytes were acknowledged, and {source['received']} are known"
    lines = [row["text"].encode() for row in site.server.lines(log.job, source=log.source)]
    wanted = list(_outside(log.data, missing))
    if lines != wanted:
        lost = sum(len(line) + 1 for line in (Counter(wanted) - Counter(lines)).elements())
        found.lost += lost
        yield f"{what}: {len(wanted)} lines wanted, {len(lines)} there; {lost} bytes lost; told as missing: {missing}"
    if missing:
        size = sum(end - begin for begin, end in missing)
        report = site.server.get(f"/v1/jobs/{log.job}/report")
        found.told, found.records_hit = found.told + size, found.records_hit + len(missing)
        if not flipped:
            found.lost += size
            yield f"{what}: {missing} are told as missing, and no bit was flipped"
        elif not any(one["source"] == log.source for one in report["problems"]):
            yield f"{what}: {missing} are missing, and its report does not say so"
    deadline = time.monotonic() + _PATIENCE_S  # raw logs come later, and wait longer where the disk was full
    while (wrong := list(_raw(site, log, found, flipped or "full" in name))) and time.monotonic() < deadline:
        time.sleep(0.5)
    yield from wrong


def _outside(data: bytes, missing: list[Range]) -> Iterator[bytes]:
    """The lines of which nothing is missing."""
    at = 0
    for line in data.splitlines(keepends=True):
        if not any(begin < at + len(line) and at < end for begin, end in missing):
            yield line.rstrip(b"\n")
        at += len(line)


def _raw(site: Site, log: Log, found: Found, may_have_gaps: bool) -> Iterator[str]:
    """Each byte of a raw log is the one that was sent, or told as a gap."""
    got = site.server.client.get(f"/v1/jobs/{log.job}/raw/download", params={"source": log.source}).content
    gaps = [(int(one[1]), int(one[2])) for one in _GAP.finditer(got)]
    if gaps and not may_have_gaps:
        yield f"{log.job} {log.source}: gaps in its raw log, and no bit was flipped: {gaps}"
    at, parts, whole = 0, _GAP.split(got)[::3], []
    for part, (begin, end) in zip(parts, [*gaps, (len(log.data), len(log.data))], strict=True):
        whole.append(part == log.data[at:begin])
        at = end
    if not all(whole):
        yield f"{log.job} {log.source}: its raw log is another one than was sent"
    elif may_have_gaps:
        found.given_up += sum(end - begin for begin, end in gaps)


# --- bits that are flipped where a round's data lies already -----------------------------------------------------------------


def flipped_raw(site: Site, sent: list[Log]) -> str:
    """One bit of one raw log."""
    parts = sorted(site.raw.rglob("*.zst"), key=lambda path: path.stat().st_mtime)[-_SOURCES:]
    path = site.chance.choice(parts)
    before = path.read_bytes()
    flip(path, site.chance, len(before))
    try:
        seen = [_shown(site, log) for log in sent]
    finally:
        path.write_bytes(before)
    return _worst(seen)


def _shown(site: Site, log: Log) -> str:
    params = {"source": log.source}
    try:
        answer = site.server.client.get(f"/v1/jobs/{log.job}/raw/download", params=params)
    except httpx.HTTPError:
        return "told"
    if answer.status_code != 200 or (answer.content != log.data and _GAP.search(answer.content)):
        return "told"
    return "harmless" if answer.content == log.data else "not told"


def flipped_database(site: Site, sent: list[Log]) -> str:
    """One bit of SQLite's file. Afterwards the file is as it was."""
    site.server.stop()
    path = site.server.data / "diagnose.db"
    before = path.read_bytes()
    flip(path, site.chance, len(before))
    try:
        said = _checks_itself(path)
        try:
            site.server.start()
        except AssertionError:
            return "told"
        seen = [_known(site, log) for log in sent]
        site.server.kill()
    finally:
        for one in path.parent.glob("diagnose.db*"):
            one.unlink()
        path.write_bytes(before)
        site.server.start()
    worst = _worst(seen)
    return "told" if worst == "not told" and not said else worst


def _checks_itself(path: Path) -> bool:
    """What the service asks SQLite a minute after its start."""
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            return bool(connection.execute("pragma integrity_check(1)").fetchone() == ("ok",))
    except sqlite3.DatabaseError:
        return False


def _known(site: Site, log: Log) -> str:
    try:
        lines = [row["text"].encode() for row in site.server.lines(log.job, source=log.source)]
    except (AssertionError, httpx.HTTPError):  # it is refused: the page is damaged
        return "told"
    return "harmless" if lines == log.data.splitlines() else "not told"


def _worst(seen: list[str]) -> str:
    return next((one for one in ("not told", "told") if one in seen), "harmless")


LATER: Final[Mapping[str, Callable[[Site, list[Log]], str]]] = {
    "flip_raw": flipped_raw,
    "flip_database": flipped_database,
}
