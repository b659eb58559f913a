"""Where learned rules are stored: one SQLite file for a command, or the database of a service.

``RuleStore`` reads and writes, and decides nothing. ``learned_rule`` says what moves a rule from one state to another;
``settle`` and ``move`` apply it to what is stored.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    MetaData,
    Row,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    insert,
    inspect,
    or_,
    select,
    update,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from diagnose.compression.workload import Fingerprint, nearest
from diagnose.errors import RuleError, said_first
from diagnose.knowledge.rules import Family, RuleSet, load
from diagnose.learning.learned_rule import Counts, LearnedRule, State, as_dict, followed, moved, of_dict, promoted
from diagnose.matching.matcher import EARLY, Matcher, unusable
from diagnose.verification.proposals import FEWEST_LINES, Refusal, judged

log = logging.getLogger("diagnose.learned")
T = TypeVar("T")

metadata = MetaData()
"""the tables; those of a service are made by its migrations, which name the constraints as here"""

rules = Table(
    "rules",
    metadata,
    Column("id", Text, primary_key=True),
    Column("family", Text, nullable=False),  # filters, failures
    Column("pattern", Text, nullable=False),
    Column("state", Text, nullable=False),  # proposed, shadow, active, retired
    Column("scope", Text, nullable=False),  # workloads, global
    Column("fields", JSON, nullable=False),
    Column("provenance", JSON, nullable=False),
    Column("why", Text),
    Column("lines", JSON, nullable=False),
    Column("created", Double, nullable=False),
    Column("changed", Double, nullable=False),
    UniqueConstraint("family", "pattern", name="uq_rules_family_pattern"),
    Index("ix_rules_state_created", "state", "created"),
)

rule_counts = Table(
    "rule_counts",
    metadata,
    Column("rule", ForeignKey("rules.id", ondelete="CASCADE", name="fk_rule_counts_rule_rules"), primary_key=True),
    Column("workload", Text, primary_key=True),
    Column("matched", BigInteger, nullable=False),
    Column("dirty", BigInteger, nullable=False),
    Column("jobs", BigInteger, nullable=False),
    Column("last", Double),
)

workloads = Table(  # kinds of jobs that rules were learned from
    "workloads",
    metadata,
    Column("name", Text, primary_key=True),
    Column("metadata", JSON, nullable=False),
    Column("sketch", JSON, nullable=False),
    Column("created", Double, nullable=False),
)

_FORMAT = 3
"""of the file; what SQLite calls its user_version"""
_TIMEOUT_S = 10


class Database(Protocol):
    """Runs work in transactions. ``RuleFile`` is one, a service's database another."""

    def write(self, work: Callable[[Connection], T]) -> T:
        """``work`` in one transaction, which no other writer disturbs."""

    def read(self, work: Callable[[Connection], T]) -> T: ...


class RuleFile:
    """The learned rules of a person or a machine, in one SQLite file. May be used from any thread, and by many processes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": _TIMEOUT_S})
        event.listen(self._engine, "connect", _prepared)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.write(self._make)
        except (OSError, SQLAlchemyError) as error:
            self.close()
            said = error.strerror if isinstance(error, OSError) else said_first(error)
            raise RuleError(f"cannot be opened: {said}", where=str(path), remedy="give a file that can be written") from None
        except RuleError:
            self.close()
            raise

    def write(self, work: Callable[[Connection], T]) -> T:
        with self._engine.begin() as connection:
            # It begins with the first read, so that no other process changes what is about to be changed here.
            connection.exec_driver_sql("begin immediate")
            return work(connection)

    def read(self, work: Callable[[Connection], T]) -> T:
        with self._engine.connect() as connection:
            connection.exec_driver_sql("begin")  # a rule and its counts belong together
            return work(connection)

    def close(self) -> None:
        self._engine.dispose()

    def _make(self, connection: Connection) -> None:
        """Make the tables if there are none. A file with other content is left as it is."""
        version = connection.exec_driver_sql("pragma user_version").scalar_one()
        if version > _FORMAT:
            raise RuleError(
                f"it was written by a later version (its format is {version}, this one knows {_FORMAT})",
                where=str(self.path),
                remedy="update diagnose, or give another file",
            )
        if version == _FORMAT:
            return
        if inspect(connection).get_table_names():
            raise RuleError("this is not a file of learned rules", where=str(self.path), remedy="give another file")
        metadata.create_all(connection, checkfirst=False)
        connection.exec_driver_sql(f"pragma user_version = {_FORMAT}")


class RuleStore:
    """Learned rules, and the workloads that they were learned from. Any thread may use it.

    Every call is one transaction. If ``database`` is an open transaction, all calls are part of it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, known: LearnedRule) -> bool:
        """Enter a rule; False if its id, or its pattern in its family, is known already."""
        return self._database.write(lambda connection: _add(connection, known))

    def write(self, known: LearnedRule, was: State) -> bool:
        """Store state, scope, why and lines of ``known``; False if it is no longer in the state ``was``."""
        changes = {"state": known.state, "scope": known.scope, "why": known.why, "changed": known.changed}
        statement = update(rules).where(rules.c.id == known.rule.id, rules.c.state == was)
        statement = statement.values(lines=list(known.lines), **changes)
        return self._database.write(lambda connection: connection.execute(statement).rowcount > 0)

    def count(self, rule_id: str, workload: str, counts: Counts) -> None:
        """Add to the counts of a rule in a workload."""
        self._database.write(lambda connection: _count(connection, rule_id, workload, counts))

    def find(self, rule_id: str) -> LearnedRule | None:
        return next(iter(self._select(rules.c.id == rule_id)), None)

    def known(self, pattern: str, family: Family) -> LearnedRule | None:
        """The rule with this pattern."""
        return next(iter(self._select(rules.c.pattern == pattern, rules.c.family == family)), None)

    def rules(self, *states: State, family: Family | None = None) -> list[LearnedRule]:
        """The rules in these states (by default: in any), oldest first."""
        conditions: list[Any] = [rules.c.state.in_(states)] if states else []
        if family is not None:
            conditions.append(rules.c.family == family)
        return self._select(*conditions)

    def workloads(self) -> dict[str, Fingerprint]:
        """The kinds of jobs that rules were learned from, by name."""
        w = workloads.c
        wanted = select(w.name, w.metadata, w.sketch).order_by(w.created, w.name)
        return {
            row.name: Fingerprint(tuple((key, value) for key, value in row.metadata), tuple(row.sketch))
            for row in self._database.read(lambda connection: connection.execute(wanted).all())
        }

    def enrol(self, name: str, fingerprint: Fingerprint) -> None:
        """Enter a workload. One that is known stays as it is."""

        def work(connection: Connection) -> None:
            if connection.execute(select(workloads.c.name).where(workloads.c.name == name)).first() is None:
                pairs, sketch = [list(pair) for pair in fingerprint.metadata], list(fingerprint.sketch)
                connection.execute(insert(workloads).values(name=name, metadata=pairs, sketch=sketch, created=time.time()))

        self._database.write(work)

    def _select(self, *conditions: Any) -> list[LearnedRule]:
        return self._database.read(lambda connection: selected(connection, *conditions))


def selected(connection: Connection, *conditions: Any) -> list[LearnedRule]:
    """The rules that meet all conditions, oldest first."""
    rows = connection.execute(select(rules).where(*conditions).order_by(rules.c.created, rules.c.id)).all()
    c = rule_counts.c
    wanted = select(rules.c.id).where(*conditions)
    met: dict[str, dict[str, Counts]] = {}
    for row in connection.execute(select(rule_counts).where(c.rule.in_(wanted)).order_by(c.workload)):
        met.setdefault(row.rule, {})[row.workload] = Counts(row.matched, row.dirty, row.jobs, row.last)
    return [_of_row(row, met.get(row.id, {})) for row in rows]


def workload_of(job: Fingerprint, store: RuleStore) -> str:
    """The workload that a job belongs to. A new one is entered."""
    name = nearest(job, store.workloads())
    if name is None:
        name = str(job)
        store.enrol(name, job)
    return name


def settle(store: RuleStore, now: float) -> list[LearnedRule]:
    """Move every rule to the state that follows from its counts, and return those that changed."""
    changed = []
    for known in store.rules("shadow", "active"):
        after = followed(known, now)
        if after is not known and store.write(after, known.state):
            changed.append(after)
    return changed


def move(
    store: RuleStore,
    rule_id: str,
    state: State,
    why: str,
    now: float,
    *,
    everywhere: bool = False,
    evidence: Iterable[str] = (),
) -> LearnedRule:
    """Put a rule into another state because a person says so. ``everywhere``: active for all jobs.

    A rule that has not passed the checks cannot act, whoever asks for it. ``evidence``: lines that no filter may drop.
    """
    known = store.find(rule_id)
    if known is None:
        raise RuleError(f"there is no learned rule {rule_id!r}", remedy="diagnose rules learned shows them all")
    after = promoted(known, why, now) if everywhere else moved(known, state, why, now)
    if state == "active" and (refusal := _not_let_in(known, store, evidence)) is not None:
        raise RuleError(
            f"it may not act: {refusal.name}: {refusal.what}",
            where=rule_id,
            remedy="correct it in a rule file; docs/learning.md says what a rule must pass",
        )
    if not store.write(after, known.state):
        raise RuleError(
            "another command has just changed its state", where=rule_id, remedy="look at it again: diagnose rules learned"
        )
    return after


def _not_let_in(known: LearnedRule, store: RuleStore, evidence: Iterable[str]) -> Refusal | None:
    """Why a rule may not act. An active one, or one in shadow, has passed the checks, perhaps on a machine with another
    Hyperscan.
    """
    rule = known.rule
    if known.state in ("shadow", "active"):
        return next((Refusal("does-not-compile", problem) for problem in unusable([rule], "plain").values()), None)
    # Only examples may be left of its lines. The person decides whether there were enough.
    lines = [*known.lines, *(example.line for example in rule.matches)] * FEWEST_LINES
    failures = [other.rule for other in store.rules(family="failures") if other.rule.id != rule.id]
    return judged([rule], {rule.id: lines}, evidence, failures=failures).get(rule.id)


def usable(known: Sequence[LearnedRule]) -> list[LearnedRule]:
    """The rules that compile here. Another build of Hyperscan may have learned the others: they are logged and left out."""
    broken = unusable([one.rule for one in known], "plain")
    for name, why in broken.items():
        log.warning("the learned rule %s cannot be used here, and is left out: %s", name, why)
    return [one for one in known if one.rule.id not in broken]


def working_matcher(store: RuleStore, workload: str | None, base: RuleSet | None = None) -> Matcher:
    """The matcher for the shipped rules, or ``base``, and the learned ones that act for jobs of ``workload``.

    To compile all rules takes half a minute. So the learned ones are compiled alone, and the shipped ones come compiled. A
    service does the same. Learned failure rules come before the others.
    """
    matcher = Matcher(load() if base is None else base, reserved=EARLY)
    matcher.add([known.rule for known in usable([one for one in store.rules("active") if one.acts_for(workload)])])
    return matcher


def _add(connection: Connection, known: LearnedRule) -> bool:
    rule, r = known.rule, rules.c
    taken = or_(r.id == rule.id, (r.family == rule.family) & (r.pattern == rule.pattern))
    if connection.execute(select(r.id).where(taken)).first() is not None:
        return False
    created = known.created or time.time()
    connection.execute(
        insert(rules).values(
            id=rule.id,
            family=rule.family,
            pattern=rule.pattern,
            state=known.state,
            scope=known.scope,
            fields=as_dict(rule),
            provenance=known.provenance,
            why=known.why,
            lines=list(known.lines),
            created=created,
            changed=known.changed or created,
        )
    )
    for workload, counts in known.workloads.items():
        _count(connection, rule.id, workload, counts)
    return True


def _count(connection: Connection, rule_id: str, workload: str, counts: Counts) -> None:
    here = (rule_counts.c.rule == rule_id) & (rule_counts.c.workload == workload)
    before = connection.execute(select(rule_counts).where(here)).first()
    if before is None:
        values = {"matched": counts.matched, "dirty": counts.dirty, "jobs": counts.jobs, "last": counts.last}
        connection.execute(insert(rule_counts).values(rule=rule_id, workload=workload, **values))
        return
    after = Counts(before.matched, before.dirty, before.jobs, before.last) + counts
    connection.execute(
        update(rule_counts).where(here).values(matched=after.matched, dirty=after.dirty, jobs=after.jobs, last=after.last)
    )


def _of_row(row: Row[Any], met: dict[str, Counts]) -> LearnedRule:
    rule = of_dict(row.id, row.family, row.pattern, row.fields)
    return LearnedRule(rule, row.state, row.scope, row.provenance, row.why, tuple(row.lines), met, row.created, row.changed)


def _prepared(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute("pragma journal_mode = wal")
    cursor.execute("pragma foreign_keys = on")
    cursor.close()
