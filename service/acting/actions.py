"""Diagnosis -> decision -> action: what is decided, who approves it, who carries it out, and what the outcome was.

``decision.decide`` and ``action`` (pure functions) say what may happen. This module calls them in the right order, one
transaction each. It can be interrupted anywhere. Decisions follow from what is stored (``undecided``). An action moves by lease
and fence, so after a crash it goes on from where it was, and nothing is done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from diagnose.decision import action as life
from diagnose.decision.action import Record, key_of
from diagnose.decision.clauses import Mode
from diagnose.decision.decide import decide
from diagnose.decision.history import Cluster, History, latest_check
from diagnose.decision.node import decide_node, reboot_after_isolation
from diagnose.decision.policy import CHECK, ISOLATE, REBOOT, RELEASE, Policy
from diagnose.decision.result import RESTARTS, Decision
from diagnose.errors import said_first
from diagnose.report import Report
from service.acting.authority import Authority
from service.acting.executors.claim import Unconfirmed
from service.acting.findings import Found
from service.acting.nodecheck import CheckVerdict, check_of
from service.acting.standing import Asked, Standing, asked_of
from service.errors import Conflict, Forbidden, Refused, Unavailable, Unknown
from service.events import Events
from service.projects import parted
from service.store import Store, findings, nodechecks, reading
from service.store import actions as stored
from service.store.history import Lately, report_of
from service.store.nodechecks import Check

log = logging.getLogger("diagnose.actions")
_SWEEP_S = 2.0
_NODES_S = 60.0
_NODES_AT_ONCE = 200
_AT_ONCE = 8
"""attempts for which the scheduler is asked at the same time"""
_TOGETHER = 32
"""attempts that are decided about in one transaction at most: other writes wait for it"""
_PUT_OFF_S = 300.0
"""if a job takes longer to end, or the scheduler is away for longer, a person must look at it"""
_WAKES = frozenset({"job.diagnosed", "job.ended", "diagnosis.corrected"})
_TAKES_OUT = frozenset({"isolate_and_restart", ISOLATE})
_GOES_ON = frozenset({"approved", "dispatched", "running"})


@dataclass(frozen=True, slots=True)
class Taken:
    """An action that an executor has claimed."""

    id: int
    fence: int
    lease_until: float
    lease_s: float
    """the executor must renew its lease within this time"""
    order: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ready:
    """An attempt to be decided about, with what the scheduler says of it."""

    attempt_id: int
    standing: Standing


@dataclass(frozen=True, slots=True)
class InHand:
    """An action that was claimed and is not over."""

    id: int
    claimed_by: str
    begun: bool


class Actions:
    """The actions of one service."""

    def __init__(
        self,
        store: Store,
        events: Events,
        policy: Policy,
        clock: Callable[[], float] = time.time,
        sweep_s: float = _SWEEP_S,
        authority: Authority | None = None,
        shown_at: str | None = None,
    ) -> None:
        """``sweep_s``: the longest wait until it looks for news without a notice. ``authority``: who confirms what a log says;
        None: nobody, and logs are believed. ``shown_at``: where people find the dashboard.
        """
        self._shown_at = shown_at
        self.policy = policy
        self._authority = authority
        self._asks = authority is not None
        self._put_off: dict[int, float] = {}
        """attempts whose job is just ending, or whose scheduler did not answer -> since when"""
        self._sweep_s = sweep_s
        self._store, self._events, self._clock = store, events, clock
        self._awake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin on the event loop."""
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._run())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    # --- deciding -------------------------------------------------------------------------------------------------------------

    async def decide_all(self) -> int:
        """Decide about every diagnosis that is newer than its decision. Returns how many there were."""
        again = list(self._put_off)
        waiting = await self._store.aread(lambda connection: stored.undecided(connection, again))
        await self._decide_each(waiting)
        return len(waiting)

    async def decide_put_off(self) -> None:
        """Ask again about those for which the scheduler had no answer yet."""
        await self._decide_each(list(self._put_off))

    async def _decide_each(self, attempts: Sequence[int]) -> None:
        """The scheduler is asked about several at a time. Those that it has answered about are decided together: while one
        transaction runs, the next ones gather.
        """
        room, deciding = asyncio.Semaphore(_AT_ONCE), asyncio.Lock()
        ready: list[Ready] = []

        async def one(attempt_id: int) -> None:
            async with room:
                now = self._clock()
                standing = await self._standing(attempt_id, now)
            if standing is None:
                self._put_off.setdefault(attempt_id, now)
                return
            self._put_off.pop(attempt_id, None)
            ready.append(Ready(attempt_id, standing))
            async with deciding:
                some = ready[:_TOGETHER]
                del ready[:_TOGETHER]
                if some:
                    await self._decide(some)

        _raise_first(await asyncio.gather(*map(one, attempts), return_exceptions=True))

    async def _decide(self, some: Sequence[Ready]) -> None:
        """Decide about these in one transaction, each knowing what was decided before it. If it cannot be stored, each gets its
        own, so that one does not hold up the others.
        """
        now = self._clock()

        def work(connection: Connection) -> list[tuple[int, Record]]:
            past = Lately(connection, now, confirmed=self._asks)
            return [change for one in some for change in self._decide_one(past, one, now)]

        try:
            self._tell(await self._store.awrite(work))
        except Unavailable:
            raise
        except Exception:
            if len(some) == 1:
                raise
            _raise_first(await asyncio.gather(*(self._decide([one]) for one in some), return_exceptions=True))

    def _decide_one(self, past: Lately, one: Ready, now: float) -> list[tuple[int, Record]]:
        connection, standing = past.connection, one.standing
        found = self._case(past, one.attempt_id, standing)
        if found is None:
            return []
        known, made_at, own, whole = found
        decision = decide(known, own, whole, self.policy, now)
        if self._authority is not None:
            standing.keep(connection, one.attempt_id, now)
        changed = self._enter(connection, one.attempt_id, decision, made_at, now, standing)
        past.decided([action_id for action_id, _ in changed])
        stored.keep_decision(connection, one.attempt_id, decision, made_at)
        job = decision.job
        reading.record(connection, "policy", f"decided.{decision.action.kind}", f"job/{job}", decision.as_dict(), now)
        return changed

    def _case(self, past: Lately, attempt_id: int, standing: Standing) -> tuple[Report, float, History, Cluster] | None:
        """(report, when it was made, history, nodes) of an attempt; None if it was deleted meanwhile."""
        about, report = stored.about(past.connection, attempt_id), report_of(past.connection, attempt_id)
        if about is None or report is None:
            return None
        made_at, job, number = about
        known = report.model_copy(update={"job": report.job.model_copy(update={"id": job, "attempt": number})})
        return known, made_at, standing.applied(past.of(attempt_id)), self._cluster(past, standing.names)

    def _cluster(self, past: Lately, names: tuple[str, ...] | None) -> Cluster:
        """The nodes, as the scheduler or an administrator says. Without either, nobody knows how many there are."""
        return past.cluster(names, self.policy.limits.cluster_nodes if self._asks else None)

    async def _names(self) -> tuple[str, ...] | None:
        """The names of all nodes, from the scheduler."""
        return await self._authority.nodes() if self._authority is not None else None

    async def _standing(self, attempt_id: int, now: float) -> Standing | None:
        """What the scheduler says of an attempt's job. None: it has no answer yet, and is asked again."""
        if self._authority is None:
            return Standing()
        names = await self._authority.nodes()

        def look(connection: Connection) -> tuple[Decision, Asked] | None:
            found = self._case(Lately(connection, now, confirmed=self._asks), attempt_id, Standing(names=names))
            if found is None:
                return None
            known, _, past, whole = found
            return decide(known, past, whole, self.policy, now), asked_of(connection, attempt_id, known, past)

        looked = await self._store.aread(look)
        if looked is None:
            return Standing(names=names)
        wanted, asked = looked
        if wanted.reason == "healthy" and asked.ending is not None and asked.ending.kind == "completed":
            return Standing(names=names)  # both say that it went well: nothing is left to ask
        answer = await self._authority.confirm(asked.order(wanted))
        since = self._put_off.get(attempt_id, now)
        matters = wanted.acts or bool(asked.suspects)
        if isinstance(answer, Unconfirmed):
            waits = answer.ending_now or (answer.for_now and wanted.mode == "auto" and matters)
            if waits and now - since < _PUT_OFF_S:
                return None
            if not matters:
                return Standing(names=names)
        return asked.standing(answer, names)

    def _enter(
        self, connection: Connection, attempt_id: int, decision: Decision, made_at: float, now: float, standing: Standing
    ) -> list[tuple[int, Record]]:
        """Enter the decision's action. It is added to the existing ones or replaces them."""
        changed: list[tuple[int, Record]] = []
        spans = self.policy.life
        existing = {record.key: record for record in stored.of_attempt(connection, attempt_id)}
        ids = stored.ids_of(connection, list(existing))
        action_key = life.unused(decision.key, existing)
        withdrawn = [key for key in decision.supersedes if key in existing and key != action_key]
        if decision.acts:
            admission = life.admit(action_key, list(existing.values()), decision.order)
            if admission.verdict in ("same", "refuse"):
                return changed
            withdrawn = list(dict.fromkeys([*withdrawn, *admission.withdraw]))
        for key in withdrawn:
            before = existing[key]
            after = life.withdraw(before, "a later decision on the same attempt", now, spans)
            stored.save(connection, ids[key], before, after, "policy", now)
            changed.append((ids[key], after))
        for node in decision.release:
            changed += self._enter_node(
                connection, RELEASE, node, "policy", "the diagnosis behind it does not hold", "approve", now
            )
        changed += self._enter_about(connection, CHECK, decision.test, decision, made_at, now, decision.test_mode)
        if not decision.acts:
            return changed
        record = life.propose(
            action_key, decision.job, decision.attempt, decision.order, decision.mode, now, spans, decision.not_before
        )
        action = decision.action
        start = action.restart_from.model_dump() if action.restart_from else None
        skip = list(action.skip_batches) if action.skip_batches else None
        if start is None and skip is None and action.kind in RESTARTS:
            start, skip = stored.rollback_of(connection, [ids[key] for key in withdrawn])
        found = stored.enter(
            connection,
            record,
            attempt_id,
            stored.group_id(connection, attempt_id),
            nodes=action.nodes,
            restart_from=start,
            skip_batches=skip,
            why=action.why,
            reason=decision.reason,
            incident=decision.incident,
            avoid=list(decision.avoid),
            owner=standing.owner,
            subject=standing.subject,
            unconfirmed=standing.unconfirmed,
            basis={"report_made_at": made_at, "decision": decision.as_dict()},
        )
        stored.put_in_place_of(connection, [ids[key] for key in withdrawn], found)
        reading.record(connection, "policy", f"action.{record.state}", f"action/{found}", {"key": record.key}, now)
        changed.append((found, record))
        changed += self._enter_about(connection, ISOLATE, decision.isolate, decision, made_at, now, "approve")
        return changed

    def _enter_about(
        self,
        connection: Connection,
        kind: str,
        nodes: Sequence[str],
        decision: Decision,
        made_at: float,
        now: float,
        mode: Mode,
    ) -> list[tuple[int, Record]]:
        """Enter actions about single nodes that a decision about a job asks for beside its own."""
        changed: list[tuple[int, Record]] = []
        why = f"job {parted(decision.job)[1]}, attempt {decision.attempt}: {decision.reason.replace('_', ' ')}"
        basis = {"report_made_at": made_at, "decision": decision.as_dict()}
        for node in nodes if mode != "observe" else ():
            key = key_of(decision.job, decision.attempt, decision.group, kind, [node])
            changed += self._enter_node(
                connection, kind, node, "policy", why, mode, now, key=key, basis=basis, reason=decision.reason
            )
        return changed

    # --- what node checks say -----------------------------------------------------------------------------------------------

    async def take_check(self, check: Check, who: str) -> None:
        """Enter a check's result, and decide about nodes that failed it, and about isolated ones that passed it."""
        now = self._clock()
        names = await self._names()

        def work(connection: Connection) -> list[tuple[int, Record]]:
            nodechecks.enter(connection, check, who, now)
            bad = [one.node for one in check.nodes if one.result != "good"]
            nodes = [*bad, *nodechecks.isolated(connection, check.named("good"))]
            return self._decide_nodes(connection, nodes, names, now)

        self._tell(await self._store.awrite(work))
        named = {kind: check.named(kind) for kind in ("faulty", "slow", "suspect")}
        self._events.publish("nodes.checked", who=who, tested=len(check.nodes), **named)

    async def take_findings(self, found: Found, who: str) -> None:
        """Enter what others found of nodes. It is looked at when a job is decided about."""
        now = self._clock()
        await self._store.awrite(lambda connection: findings.enter(connection, found.findings, found.over, who, now))

    async def checked(self, verdict: dict[str, Any], who: str) -> None:
        """Enter the result of a node check that an executor ran."""
        try:
            told = CheckVerdict.model_validate(verdict)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise Refused(
                f"this is not a verdict: {place}: {first['msg']}", remedy="send the last line of diagnose nodes check --json"
            ) from None
        await self.take_check(check_of(told, self._clock()), who)

    async def decide_nodes(self) -> None:
        """Look again at nodes that passed a check but could not come back at that time."""
        now = self._clock()
        since = now - self.policy.signals.check_within_s
        due = await self._store.aread(lambda connection: nodechecks.passed_while_isolated(connection, since))
        if due:
            names = await self._names()
            self._tell(await self._store.awrite(lambda connection: self._decide_nodes(connection, due, names, now)))

    def _decide_nodes(
        self, connection: Connection, nodes: Sequence[str], names: tuple[str, ...] | None, now: float
    ) -> list[tuple[int, Record]]:
        """One decision per node and check. Each takes the earlier ones into account, so that together they keep to the
        limits.
        """
        changed: list[tuple[int, Record]] = []
        past = Lately(connection, now, confirmed=self._asks)
        whole = self._cluster(past, names)
        for node in nodes[:_NODES_AT_ONCE]:
            decision = decide_node(node, past.anywhere(), whole, self.policy, now)
            check = latest_check(whole, node, now - self.policy.signals.check_within_s, now)
            if not decision.acts or check is None:
                continue
            kind = decision.action.kind
            key = key_of(node, int(check.at), "check", kind, [node])
            if stored.ids_of(connection, [key]) or stored.node_is_busy(connection, kind, node):
                continue
            record = life.propose(key, "", 0, kind, decision.mode, now, self.policy.life, decision.not_before)
            basis = {"decision": decision.as_dict()}
            found = stored.enter(connection, record, None, None, nodes=[node], why=decision.action.why, basis=basis)
            reading.record(connection, "policy", f"decided.{kind}", f"node/{node}", decision.as_dict(), now)
            reading.record(connection, "policy", f"action.{record.state}", f"action/{found}", {"key": key, "node": node}, now)
            changed.append((found, record))
            past.decided([found])
        return changed

    # --- what people say ----------------------------------------------------------------------------------------------------

    async def approve(self, action_id: int, who: str, roles: Collection[str]) -> Record:
        """A person approves an action."""

        def step(record: Record, now: float) -> Record:
            if not self.policy.may_approve(record.kind, who, roles):
                raise Forbidden(
                    f"{who!r} may not approve {record.kind}",
                    where=str(action_id),
                    remedy="ask somebody whom approvers in the policy names",
                )
            return life.approve(record, who, now, self.policy.life)

        return await self._step(action_id, who, step)

    async def reject(self, action_id: int, who: str, roles: Collection[str], why: str) -> Record:
        """A person rejects an action."""

        def step(record: Record, now: float) -> Record:
            if not self.policy.may_approve(record.kind, who, roles):
                raise Forbidden(
                    f"{who!r} may not decide about {record.kind}",
                    where=str(action_id),
                    remedy="ask somebody whom approvers in the policy names",
                )
            return life.reject(record, who, why, now, self.policy.life)

        return await self._step(action_id, who, step)

    async def undo(self, action_id: int, who: str, roles: Collection[str]) -> str:
        """A person takes an action back: what nobody has begun is rejected, nodes that it took out are given back. A restart
        cannot be taken back. Returns which of the two it was.
        """
        found = await self._store.aread(lambda connection: stored.find(connection, action_id))
        if found is None:
            raise Unknown("there is no such action", where=str(action_id), remedy="GET /v1/actions lists them")
        if found.state in ("proposed", "approved"):
            await self.reject(action_id, who, roles, "taken back")
            return "rejected"
        nodes = await self._store.aread(lambda connection: stored.still_out(connection, found.key))
        if not nodes:
            raise Conflict("there is nothing to undo", where=str(action_id), remedy="cancel the job if it should not run")
        for node in nodes:
            with contextlib.suppress(Conflict):  # somebody was quicker
                await self.ask_for_node(RELEASE, node, who, f"action {action_id} is undone")
        return "return"

    async def ask_for_node(self, kind: str, node: str, who: str, why: str) -> int:
        """A person asks to isolate a node, or to give it back. The request is also the approval, and what waits for a yes about
        this node gets it.
        """
        now = self._clock()

        def work(connection: Connection) -> list[tuple[int, Record]]:
            known = reading.node(connection, node)
            if known is None:
                raise Unknown("there is no such node", where=node[:80], remedy="GET /v1/nodes lists them")
            if kind == REBOOT and known["state"] == "ok":
                raise Conflict(
                    "the node is in service and nothing speaks against it", where=node[:80], remedy="isolate it before a reboot"
                )
            waits = stored.proposed(connection, kind, node)
            if waits is None:
                return self._enter_node(connection, kind, node, who, why, "auto", now)
            before = stored.find(connection, waits, locked=True)
            assert before is not None
            try:
                after = life.approve(before, who, now, self.policy.life)
            except life.Refused as refused:
                raise Conflict(refused.what, where=str(waits), remedy=refused.remedy) from None
            stored.save(connection, waits, before, after, who, now)
            return [(waits, after)]

        changed = await self._store.awrite(work)
        self._tell(changed)
        if not changed:
            raise Conflict(
                f"{kind} is already under way for this node",
                where=node[:80],
                remedy="wait for its result; GET /v1/actions lists it",
            )
        return changed[-1][0]

    def _enter_node(
        self,
        connection: Connection,
        kind: str,
        node: str,
        who: str,
        why: str,
        mode: str,
        now: float,
        key: str | None = None,
        basis: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> list[tuple[int, Record]]:
        """Enter an action that is only about a node. ``key``: of one that is asked for once, whatever came of it. ``reason``:
        of the diagnosis that it answers.
        """
        if stored.node_is_busy(connection, kind, node) or (key is not None and stored.ids_of(connection, [key])):
            return []
        # A person may ask again as soon as the request before it was taken back: no two of them have one key.
        key = key or key_of(node, secrets.randbits(48), None, kind, [node])
        record = life.propose(key, "", 0, kind, "approve", now, self.policy.life)
        if mode == "auto":
            record = life.approve(record, who, now, self.policy.life)
        found = stored.enter(connection, record, None, None, nodes=[node], why=why, reason=reason, basis=basis)
        reading.record(connection, who, f"action.{record.state}", f"action/{found}", {"node": node, "why": why}, now)
        return [(found, record)]

    # --- what executors do --------------------------------------------------------------------------------------------------

    async def claim(self, action_id: int, who: str) -> Taken:
        """An executor takes an action, with a lease and a new fence."""
        record = await self._step(action_id, who, lambda known, now: life.claim(known, who, now, self.policy.life))
        return await self._taken(action_id, record)

    async def claim_next(self, who: str, kinds: Collection[str], projects: Collection[str] | None = None) -> Taken | None:
        """The oldest approved action of these kinds, if there is one. ``projects``: whose; None: of all."""
        now = self._clock()
        for action_id in await self._store.aread(lambda connection: stored.approved(connection, now), projects):
            found = await self._store.aread(lambda connection, this=action_id: stored.find(connection, this))  # type: ignore[misc]
            if found is None or found.kind not in kinds:
                continue
            with contextlib.suppress(Refused):  # another executor was quicker
                return await self.claim(action_id, who)
        return None

    async def resume(self, action_id: int, who: str) -> Taken:
        """The executor that has it goes on after a crash of its own."""
        record = await self._step(action_id, who, lambda known, now: life.resume(known, who, now, self.policy.life))
        return await self._taken(action_id, record)

    async def orders(self, projects: Collection[str] | None = None) -> list[dict[str, Any]]:
        """What an executor may take now, oldest first. ``projects``: whose; None: of all."""
        now = self._clock()
        found = await self._store.aread(lambda connection: stored.orders(connection, now, claims=self._asks), projects)
        return [self._linked(order) for order in found]

    async def in_hand(self, whose: str) -> list[InHand]:
        """Claimed and unfinished actions of executors whose names begin with ``whose``."""
        rows = await self._store.aread(lambda connection: stored.in_hand(connection, whose))
        return [InHand(*row) for row in rows]

    async def begin(self, action_id: int, who: str, fence: int) -> Record:
        """The executor is about to act. This is the last point at which it can be told not to."""
        return await self._step(action_id, who, lambda known, now: life.start(known, fence, now, self.policy.life))

    async def renew(self, action_id: int, who: str, fence: int) -> Record:
        """The executor is still working on it."""
        return await self._step(action_id, who, lambda known, now: life.renew(known, fence, now, self.policy.life))

    async def finish(
        self, action_id: int, who: str, fence: int, succeeded: bool, said: str, isolated: Collection[str] | None = None
    ) -> Record:
        """The result, however late it comes.

        ``isolated``: those of its nodes that were taken out, whether it succeeded or not. None: all if it succeeded, else none.
        """

        def step(record: Record, now: float) -> Record:
            return life.finish(record, fence, succeeded, said[:2000], now, self.policy.life)

        return await self._step(action_id, who, step, isolated)

    async def _taken(self, action_id: int, record: Record) -> Taken:
        order = await self._store.aread(lambda connection: stored.order(connection, action_id, claims=self._asks))
        assert record.lease_until is not None
        return Taken(action_id, record.fence, record.lease_until, self.policy.life.lease_s, self._linked(order))

    def _linked(self, order: dict[str, Any]) -> dict[str, Any]:
        """The order, with where its action is shown."""
        return {**order, "link": f"{self._shown_at}/ui/actions/{order['id']}" if self._shown_at else None}

    # --- the machinery ------------------------------------------------------------------------------------------------------

    async def _step(
        self, action_id: int, who: str, step: Callable[[Record, float], Record], isolated: Collection[str] | None = None
    ) -> Record:
        """One step of one action, in one transaction."""
        now = self._clock()

        def work(connection: Connection) -> list[tuple[int, Record]]:
            before = stored.find(connection, action_id, locked=True)
            if before is None:
                raise Unknown("there is no such action", where=str(action_id), remedy="GET /v1/actions lists them")
            try:
                after = step(before, now)
            except life.Refused as refused:
                raise Conflict(refused.what, where=str(action_id), remedy=refused.remedy) from None
            if after.state != before.state and after.state in _GOES_ON:
                self._still_called_for(connection, action_id, after)
            stored.save(connection, action_id, before, after, who, now)
            also = self._take_effect(connection, action_id, before, after, who, now, isolated)
            return [(action_id, after) if after.state != before.state else (0, after), *also]

        changed = await self._store.awrite(work)
        self._tell([one for one in changed if one[0]])
        return changed[0][1]

    def _still_called_for(self, connection: Connection, action_id: int, record: Record) -> None:
        """A node may have come back since its reboot was proposed: one in service is not rebooted."""
        if record.kind != REBOOT:
            return
        for name in stored.order(connection, action_id)["nodes"]:
            known = reading.node(connection, name)
            if known is None or known["state"] == "ok":
                raise Conflict(
                    f"{name[:80]} is in service and nothing speaks against it", where=str(action_id), remedy="reject the reboot"
                )

    def _take_effect(
        self,
        connection: Connection,
        action_id: int,
        before: Record,
        after: Record,
        who: str,
        now: float,
        isolated: Collection[str] | None,
    ) -> list[tuple[int, Record]]:
        """Update the nodes: one is out of service once somebody has taken it out, even if the rest failed, and in service once
        it was given back. Returns what is to be done next about them.
        """
        done = after.state == "succeeded" and before.state != "succeeded"
        if after.kind == RELEASE:
            state = "ok"
        elif after.kind in _TAKES_OUT:
            state, done = "isolated", done or bool(isolated)
        elif after.kind == REBOOT:  # one that was in service is taken out for it
            state, done = "isolated", bool(isolated)
        else:
            return []
        if not done:
            return []
        order = stored.order(connection, action_id)
        nodes = order["nodes"]
        if state == "isolated" and isolated is not None:  # it may be reported twice
            nodes = [one for one in nodes if one in isolated and not stored.was_isolated(connection, one, after.key)]
        for node in nodes:
            stored.set_node(connection, node, state, after.decided_by or who, order["why"], after.key, now)
        if state == "isolated":
            return self._reboot(connection, action_id, nodes, now)
        return [one for node in nodes for one in self._withdraw_reboots(connection, node, now)]

    def _withdraw_reboots(self, connection: Connection, node: str, now: float) -> list[tuple[int, Record]]:
        """Nobody has begun them, and the node is in service again."""
        changed: list[tuple[int, Record]] = []
        for waits in stored.not_taken(connection, REBOOT, node):
            before = stored.find(connection, waits, locked=True)
            if before is None or before.state not in life.UNDONE:  # an executor was quicker
                continue
            after = life.withdraw(before, "the node was given back", now, self.policy.life)
            stored.save(connection, waits, before, after, "policy", now)
            changed.append((waits, after))
        return changed

    def _reboot(self, connection: Connection, action_id: int, nodes: Sequence[str], now: float) -> list[tuple[int, Record]]:
        """Ask for a reboot of nodes that were just isolated, if the policy says that this is the remedy."""
        reason = stored.reason_of(connection, action_id)
        mode = reboot_after_isolation(reason, self.policy, now) if reason is not None else "observe"
        changed: list[tuple[int, Record]] = []
        for node in nodes if mode != "observe" else ():
            why = f"isolated for {str(reason).replace('_', ' ')} by action {action_id}"
            changed += self._enter_node(connection, REBOOT, node, "policy", why, mode, now)
        return changed

    async def tick_all(self) -> None:
        """Let actions expire whose time is over."""
        now, spans = self._clock(), self.policy.life

        def work(connection: Connection) -> list[tuple[int, Record]]:
            changed = []
            for action_id in due:
                before = stored.find(connection, action_id, locked=True)
                assert before is not None
                after = life.tick(before, now, spans)
                stored.save(connection, action_id, before, after, "clock", now)
                if after.state != before.state:
                    changed.append((action_id, after))
            return changed

        open_ = await self._store.aread(stored.open_ones)
        if due := [action_id for action_id, record in open_ if life.tick(record, now, spans) != record]:
            self._tell(await self._store.awrite(work))

    def _tell(self, changed: list[tuple[int, Record]]) -> None:
        for action_id, record in changed:
            facts = {"id": action_id, "action": record.kind, "job": record.job or None, "attempt": record.attempt or None}
            kind = "action.proposed" if record.state == "proposed" else "action.changed"
            self._events.publish(kind, state=record.state, by=record.decided_by, **facts)

    async def _listen(self) -> None:
        async for event in self._events.listen():
            if event is not None and event.kind in _WAKES:
                self._awake.set()

    async def _run(self) -> None:
        """Decide as soon as something was diagnosed. Also look regularly, because a crash may have interrupted a decision."""
        nodes_at = 0.0
        while True:
            try:
                while await self.decide_all():
                    await self.decide_put_off()  # they would starve while there is always something new
                await self.decide_put_off()
                await self.tick_all()
                if time.monotonic() >= nodes_at:
                    nodes_at = time.monotonic() + _NODES_S
                    await self.decide_nodes()
            except SQLAlchemyError as error:  # again every two seconds, if a page is damaged: without a trace
                log.error("deciding: %s", said_first(error))
            except Exception:
                log.exception("deciding")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._sweep_s):
                    await self._awake.wait()
            self._awake.clear()


def _raise_first(outcomes: Sequence[BaseException | None]) -> None:
    """Raise the first error among what was gathered."""
    for error in outcomes:
        if error is not None:
            raise error
