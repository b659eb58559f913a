"""Do the questions to a model become fewer while rules grow? ``python -m benchmarks.questions CORPUS``.

Labelled cases are replayed as a month of a cluster, which has so many kinds of failures (``--kinds``). A few come often, and
most come rarely: the weight of one is one over its place in a random order. No log comes twice: addresses, ids, times, hosts
and long numbers are others each time. Every fifth job goes well. What is asked, kept and learned is what a service would: the
same functions, called in the same order, with a model's server over a real socket.

That server has no model (``benchmarks.answerer``). It knows the label of the case, and gives another reason in a share of them
(``--wrong``). So this says how many questions there are, and not how good a model is.

Two clusters live through the same month: one keeps the record of what models and rules agreed on, and one also makes rules of
answers. Counted is also what would be asked without either (*due*). ``--unknown`` takes away all failure rules, but for those
that know an exception by its class and those of runs that went well: a cluster of software that nobody has written rules for.

    python -m benchmarks.questions ../shared/corpus/cases
    python -m benchmarks.questions --unknown ../shared/corpus/cases
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.answerer import Answerer, by_label
from benchmarks.measure import table
from diagnose.accuracy import Label, labels
from diagnose.agent.explain import improve
from diagnose.agent.gate import why_ask
from diagnose.agent.incidents import SqliteIncidents
from diagnose.agent.witnesses import Record
from diagnose.diagnosis.candidates import is_generic
from diagnose.diagnosis.status import told_of
from diagnose.job import Job
from diagnose.knowledge.rules import Rule, RuleSet, load
from diagnose.learning.learned_rule import LearnedRule
from diagnose.learning.rule_store import RuleFile, RuleStore
from diagnose.learning.write_failures import compare, taught, teach, watch
from diagnose.matching.matcher import EARLY, Matcher
from diagnose.model.model import Model
from diagnose.model.settings import Settings
from diagnose.reading.sources import Source, find
from diagnose.report import Report

CLUSTERS: Final = ("keeps the record", "makes rules too")
_DAYS, _WEEK = 28, 7
_DAY_S = 86_400.0
_HEALTHY_LINES = 500
_VALUES = re.compile(
    r"(?P<address>0x[0-9a-f]{6,16}\b)|(?P<host>\b(?:[a-z]{2,12}-)+[a-z]{0,4}\d{1,4}\b|\b10\.\d+\.\d+\.\d+\b)|(?P<number>\b\d{5,}\b)"
)


@dataclass(slots=True)
class Week:
    """What one cluster had in a week."""

    jobs: int = 0
    failed: int = 0
    due: int = 0
    """questions, if nothing were kept or learned"""
    asked: int = 0
    requests: int = 0
    right: int = 0
    rules: int = 0
    """of answers, that act at its end"""


@dataclass(frozen=True, slots=True)
class Case:
    """One labelled log, with the bytes of its files."""

    label: Label
    logs: tuple[tuple[str, bytes], ...]

    @staticmethod
    def of(corpus: Path, label: Label) -> Case:
        sources = find([str(corpus / label.file)]).sources
        return Case(label, tuple((source.name, b"".join(source.chunks())) for source in sources))

    def again(self, chance: random.Random) -> Case:
        """The same failure at another time: what varies from run to run is different."""
        other: dict[str, str] = {}

        def varied(found: re.Match[str]) -> str:
            said = found[0]
            if said not in other:
                digits = "0123456789abcdef" if found.lastgroup == "address" else "0123456789"
                skip = 2 if found.lastgroup == "address" else 0
                tail = "".join(chance.choice(digits) if c in digits else c for c in said[skip:])
                if found.lastgroup == "host" and "." in said:
                    tail = f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
                elif found.lastgroup == "host":
                    stem = said.rstrip("0123456789")
                    tail = stem + "".join(chance.choice("0123456789") for _ in said[len(stem) :])
                elif tail.startswith("0") and found.lastgroup == "number":
                    tail = f"1{tail[1:]}"
                other[said] = said[:skip] + tail
            return other[said]

        logs = tuple((name, _VALUES.sub(varied, data.decode("latin-1")).encode("latin-1")) for name, data in self.logs)
        return Case(self.label, logs)


@dataclass(slots=True)
class Cluster:
    """One cluster with its record of models, its learned rules, and its weeks."""

    name: str
    store: RuleStore
    incidents: SqliteIncidents
    matcher: Matcher
    shipped: RuleSet
    records: dict[str, Record] = field(default_factory=dict)
    healthy: list[str] = field(default_factory=list)
    acting: set[str] = field(default_factory=set)
    weeks: list[Week] = field(default_factory=lambda: [Week() for _ in range(_DAYS // _WEEK)])

    async def live(self, number: int, case: Case, model: Model, server: Answerer, day: int) -> None:
        """One job, from its log to what is learned of it."""
        week, now = self.weeks[day // _WEEK], day * _DAY_S
        job = self._read(f"job-{number}", case)
        report, evidence = job.report(), job.evidence()
        before = server.asked.total()
        found = await improve(report, evidence, model, self.incidents, records=self.records)
        week.jobs += 1
        week.failed += case.label.reason != "healthy"
        week.due += why_ask(report, evidence.rules) is not None
        week.asked += found.asked
        week.requests += server.asked.total() - before
        week.right += found.report.diagnosis.reason == case.label.reason
        if self.name == CLUSTERS[-1]:
            bodies = [event.body for event in evidence.events]
            await self._learn(found.report, bodies, now)
        week.rules = len(self.acting)
        job.compression.kept.close()

    def _read(self, name: str, case: Case) -> Job:
        job = Job(name, [Source(source, None) for source, _ in case.logs], self.matcher)
        for number, (_, data) in enumerate(case.logs):
            job.feed(number, data)
            job.close(number)
        job.told = told_of(failed=case.label.reason != "healthy")  # its exit code says so
        return job

    async def _learn(self, report: Report, bodies: Sequence[str], now: float) -> None:
        """As ``service.learning.worker`` does at the end of a job, and after an answer."""
        well = report.outcome == "healthy"
        watch(self.store, bodies, now, well=well)
        if well:
            self.healthy = [*self.healthy, *bodies][-_HEALTHY_LINES:]
        compare(self.store, report, bodies, now)
        if taught(report):
            await teach(report, self.store, self.incidents, now, healthy=self.healthy, rules=self.shipped)
        active = {one.rule.id: one.rule for one in self.store.rules("active", family="failures")}
        self._swap(active)

    def _swap(self, active: dict[str, Rule]) -> None:
        known = {rule.id for rule in self.matcher.rules}
        if new := [rule for name, rule in active.items() if name not in known]:
            self.matcher.add(new)
        if gone := self.acting - active.keys():
            self.matcher.retire(gone)
        if back := (active.keys() - self.acting) & known:
            self.matcher.wake(back)
        self.acting = set(active)

    def learned(self) -> dict[str, list[LearnedRule]]:
        return {state: self.store.rules(state, family="failures") for state in ("shadow", "active", "retired")}


def month(cases: Sequence[Case], jobs: int, kinds: int, seed: int) -> Iterator[tuple[int, Case]]:
    """(day, the case of a job), in order."""
    chance = random.Random(seed)
    failed = [case for case in cases if case.label.reason not in ("healthy", "unknown")]
    well = [case for case in cases if case.label.reason == "healthy"]
    chance.shuffle(failed)
    del failed[kinds:]
    weights = [1.0 / place for place in range(1, len(failed) + 1)]
    for number in range(jobs):
        case = chance.choice(well) if well and number % 5 == 4 else chance.choices(failed, weights)[0]
        yield number * _DAYS // jobs, case.again(chance)


def _of_known_software(rule: Rule) -> bool:
    return rule.family == "failures" and rule.reason != "healthy" and not is_generic(rule)


async def lived(
    cases: Sequence[Case], jobs: int, kinds: int, seed: int, wrong: float, folder: Path, *, unknown: bool
) -> list[Cluster]:
    """The clusters after the month."""
    shipped = load(examples=True)
    if unknown:
        shipped = RuleSet(tuple(rule for rule in shipped if not _of_known_software(rule)))
    clusters = []
    for number, name in enumerate(CLUSTERS):
        own = folder / str(number)
        own.mkdir()
        store, past = RuleStore(RuleFile(own / "rules.db")), SqliteIncidents(own / "incidents.db")
        clusters.append(Cluster(name, store, past, Matcher(shipped, reserved=EARLY), shipped))
    errs = random.Random(seed)
    with Answerer(by_label(cases[0].label)) as server:
        async with Model(Settings(server.url, cache=False, calls_per_hour=10**6, tokens_per_hour=10**9)) as model:
            for number, (day, case) in enumerate(month(cases, jobs, kinds, seed)):
                server.answer = by_label(case.label, errs, wrong)
                for cluster in clusters:
                    await cluster.live(number, case, model, server, day)
    return clusters


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", nargs="+", metavar="CORPUS")
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--kinds", type=int, default=40, help="different failures in the month (default: 40)")
    parser.add_argument("--wrong", type=float, default=0.05, help="the share of questions that the server answers wrong")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unknown", action="store_true", help="without the shipped failure rules")
    chosen = parser.parse_args(arguments)
    folders = [Path(name) for name in chosen.corpora]
    cases = [Case.of(folder, label) for folder in folders for label in labels(folder) if "AMBIGUOUS" not in label.note]
    with tempfile.TemporaryDirectory() as folder:
        clusters = asyncio.run(
            lived(cases, chosen.jobs, chosen.kinds, chosen.seed, chosen.wrong, Path(folder), unknown=chosen.unknown)
        )
        rows: list[tuple[str, ...]] = []
        for cluster in clusters:
            for number, week in enumerate(cluster.weeks, 1):
                share = f"{week.asked / week.due:.0%}" if week.due else "-"
                calls = f"{week.requests / week.jobs:.2f}"
                right = f"{week.right / week.jobs:.1%}"
                counts = (str(count) for count in (number, week.failed, week.due, week.asked))
                rows.append((cluster.name, *counts, share, calls, right, str(week.rules)))
        head = ("cluster", "week", "failed", "due", "asked", "share", "requests a job", "reason right", "rules of answers")
        print(table(head, rows))
        states = {state: len(known) for state, known in clusters[-1].learned().items()}
        print(f"\nrules of answers at the end: {', '.join(f'{count} {state}' for state, count in states.items())}")
        last = clusters[-1].weeks[-1]
    return 0 if last.asked < last.due else 1


if __name__ == "__main__":
    sys.exit(main())
