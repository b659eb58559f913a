"""Kubernetes: isolates nodes and gives them back, and starts jobs again on other nodes.

A node is cordoned, tainted with ``diagnose/isolated``, labelled or given a condition, as the site wants it, and annotated with
the key and the reason of the order. Only what is ours is taken away again.

A live job that can be suspended is suspended and resumed. Any other (it has ended, is of Volcano, or must avoid nodes) is made
again under its name. First the server says in a dry run that it would take the manifest and delete the job. Then the manifest
is stored in a ConfigMap in our own namespace. Only then the job is deleted, awaited, and created with the key in an annotation.
If the order comes again, the annotation or the ConfigMap shows where to go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from service.acting.executors import kubernetes_endings as endings
from service.acting.executors import kubernetes_holds as holds
from service.acting.executors import kubernetes_jobs as jobs
from service.acting.executors import kubernetes_nodes as nodes
from service.acting.executors.claim import Confirmed, Unconfirmed
from service.acting.executors.executor import (
    HOLD,
    KINDS,
    MOST_AVOIDED,
    RESTARTS,
    TAKES_OUT,
    Order,
    Outcome,
    Problem,
    node_names,
)
from service.acting.executors.kubernetes_api import Api, Object, Place, Refusal, Settings, Sleep
from service.acting.executors.kubernetes_jobs import Kind, annotation, at, mapping, uid

__all__ = ["Kubernetes", "Settings"]

_TRIES: Final = 5
_POLL_S: Final = 1.0
_NODES_ASKED: Final = 32
"""of one job, whether they are ready"""
_LARGEST_NOTE: Final = 900_000
"""bytes: a ConfigMap holds a mebibyte"""
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
_ANEW: Final = "and made it anew"
_HOSTNAME: Final = "kubernetes.io/hostname"
_CORDON_AND_TAINT: Final = nodes.Ways()
_UIDS: Final = {("Job", "batch"): "job_uid", ("JobSet", "jobset.x-k8s.io"): "jobset_uid"}
"""kinds whose pods have their uid, and the label with it"""


@dataclass(frozen=True, slots=True)
class _Job:
    """A job that an order names: as it is, or as it was noted before it was deleted."""

    kind: Kind
    place: Place
    seen: Object | None
    noted: Object | None = None
    children: tuple[str, ...] = ()
    """the parts that a TrainJob runs in"""
    anew: bool = False
    """it is not the one that failed"""

    @property
    def shown(self) -> str:
        return f"{self.kind.name} {self.place.namespace}/{self.place.name}"

    @property
    def subject(self) -> str:
        """The name by which it is found again: jobs.batch/ml/llama."""
        return f"{self.kind.plural}.{self.kind.group}/{self.place.namespace}/{self.place.name}"


class Kubernetes:
    """The executor."""

    def __init__(
        self,
        settings: Settings,
        ways: nodes.Ways = _CORDON_AND_TAINT,
        *,
        hold: bool = False,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``ways``: by what nodes are isolated. ``hold``: whether it may keep controllers from starting hopeless jobs again."""
        self.ways = ways
        self.kinds = KINDS | {HOLD} if hold else KINDS
        self._settings, self._sleep, self._clock, self._now = settings, sleep, clock, now
        self._api = Api(settings, sleep)

    async def check(self) -> list[str]:
        """Which rights are missing, as rules for a role; or that the server does not answer."""
        try:
            await self._api.read("/version")
            served = await self._served()
            missing = [rule for place, verb in self._needed(served) for rule in await self._denied(place, verb)]
        except Problem as problem:
            return [problem.what]
        return [f"{self._api.shown}: a role lacks {rule}" for rule in missing]

    async def carry_out(self, order: Order, *, dry_run: bool = False) -> Outcome:
        done: list[str] = []
        out: list[str] = []
        dry_run = dry_run or self._settings.dry_run
        try:
            if order.kind not in self.kinds:
                raise Problem(f"this Kubernetes executor does not carry out {order.kind[:40]!r}")
            for name in node_names(order.nodes):
                if annotation(await self._known_node(name), nodes.ISOLATED_BY) == order.key:
                    out.append(name)
            job = await self._known_job(order) if order.kind in (*RESTARTS, HOLD) else None
            if job is not None:
                await self._check(order, job, [name for name in order.nodes if name not in out])
            away = order.avoid if self.ways.keep_off else (*order.avoid, *order.nodes)
            hosts = [await self._host(name) for name in node_names(away, MOST_AVOIDED)] if job is not None else []
            if order.kind in TAKES_OUT or order.kind == "release":
                if not order.nodes:
                    raise Problem(f"the order {order.kind} names no node")
                for name in node_names(order.nodes):
                    if await self._turn(order, name, done, dry_run) and name not in out:
                        out.append(name)
            if job is not None and order.kind == HOLD:
                done.append(await self._hold(order, job, dry_run))
            elif job is not None:
                await self._restart(order, job, hosts, done, dry_run)
        except Problem as problem:
            return problem.outcome(done, out)
        said = ("would have: " if dry_run else "") + "; ".join(done)
        return Outcome("succeeded", said, details={"done": done}, isolated=() if dry_run else None)

    # --- what the API server itself says

    async def inventory(self) -> tuple[str, ...]:
        listed = self._api.listed(Place("", "v1", "nodes"), named=True)
        return tuple([str(at(node, "metadata", "name")) async for node in listed])

    async def confirm(self, order: Order) -> Confirmed | Unconfirmed:
        try:
            job = await self._job_there(order)
            pods = await self._pods(order, job)
            places = _places(pods)
            if job.seen is not None and at(job.seen, "metadata", "deletionTimestamp") is not None and not _begun(order, job):
                return Confirmed(job.subject, str(job.place.namespace), (), endings.cancelled(job.shown))
            if (why := _objection(order, job, await self._told_of(order, job, places))) is not None:
                return Unconfirmed(why)
            found = {name: await self._api.get(_node(name)) for name in endings.doubtful(pods)[:_NODES_ASKED]}
        except Problem as problem:
            return Unconfirmed(problem.what, problem.may_retry or problem.state == "unknown")
        known = {name: node for name, node in found.items() if node is not None}
        ended = endings.ending_of(job.shown, job.seen or {}, pods, known) if pods else None
        return Confirmed(job.subject, str(job.place.namespace), tuple(dict.fromkeys(places.values())), ended)

    async def _check(self, order: Order, job: _Job, isolate: Sequence[str]) -> None:
        """Raise Problem if the server does not confirm what the order rests on. An order that was begun was confirmed
        before.
        """
        if order.claim is None or _begun(order, job):
            return
        places = _places(await self._pods(order, job))
        if (why := _objection(order, job, await self._told_of(order, job, places))) is not None:
            raise Problem(f"not confirmed by Kubernetes: {why}")
        others = [name for name in isolate if name not in places.values()]
        if others:
            raise Problem(f"not confirmed by Kubernetes: {', '.join(others[:3])} is not one of the nodes of {job.shown}")

    async def _pods(self, order: Order, job: _Job) -> list[Object]:
        """The pods of a job that has not gone on since."""
        return [] if job.seen is None or _went_on(order, job) else await self._all_pods(job)

    async def _told_of(self, order: Order, job: _Job, places: Mapping[str, str]) -> Mapping[str, str]:
        """The pods, and their nodes, that a log must be from. A hold also ends what the controller has restarted since, so it
        rests on the pods that run now, where ``places`` has none.
        """
        return places if order.kind != HOLD or places else _places(await self._all_pods(job))

    async def _all_pods(self, job: _Job) -> list[Object]:
        if job.seen is None:
            return []
        since, pods = jobs.made(job.seen) or 0.0, Place("", "v1", "pods", job.place.namespace)
        found = [pod async for pod in self._api.listed(pods, f"{job.kind.pods}={job.place.name}")]
        return [pod for pod in found if (jobs.made(pod) or 0.0) >= since]  # others belonged to an earlier job of the same name

    async def _change(self, place: Place, shown: str, change: Callable[[Object], Object | None], dry_run: bool) -> Object:
        """Change an object as it is now. If it changes meanwhile, look again."""
        for _ in range(_TRIES):
            seen = await self._api.get(replace(place, sub=None))
            if seen is None:
                raise Problem(f"{shown} is gone")
            patch = change(seen)
            if patch is None:
                return seen
            patch.setdefault("metadata", {})["resourceVersion"] = seen["metadata"]["resourceVersion"]
            try:
                return await self._api.patch(place, patch, dry_run=dry_run)
            except Refusal as refusal:
                if not refusal.conflict:
                    raise
        raise Problem(f"{shown} changes faster than it can be changed", may_retry=True)

    # --- nodes

    async def _known_node(self, name: str) -> Object:
        node = await self._api.get(_node(name))
        if node is None:
            raise Problem(f"Kubernetes knows no node {name}: its name came from a log")
        return node

    async def _host(self, name: str) -> str:
        """The name of the node in the scheduler's labels."""
        return str(mapping(await self._known_node(name), "metadata", "labels").get(_HOSTNAME) or name)

    async def _turn(self, order: Order, name: str, done: list[str], dry_run: bool) -> bool:
        """Isolate a node, or give it back. Returns whether this order has isolated it."""
        if order.kind == "release":
            await self._give_back(name, done, dry_run)
            return False
        ways, place = self.ways, _node(name)
        said = ""

        def isolate(node: Object) -> Object | None:
            nonlocal said
            by = annotation(node, nodes.ISOLATED_BY)
            if not nodes.out(node):
                said = f"{nodes.done(ways, node)} {name}"
                return nodes.isolation(ways, node, order.key, order.reason)
            why = (annotation(node, nodes.ISOLATED_WHY) or "")[:80]
            said = f"{name} was isolated {'by this order' if by == order.key else f'before: {why!r}'}"
            return None

        turned = await self._change(place, f"node {name}", isolate, dry_run)
        ours = annotation(turned, nodes.ISOLATED_BY) == order.key
        if ours and (condition := nodes.condition_of(turned)) is not None:
            kind = condition[0]
            await self._change(
                replace(place, sub="status"), f"node {name}", lambda node: nodes.told(node, kind, order.reason), dry_run
            )
        done.append(said)
        return ours and not dry_run

    async def _give_back(self, name: str, done: list[str], dry_run: bool) -> None:
        """The condition goes first: what it was before is in an annotation, which goes last."""
        place, said = _node(name), ""
        if (condition := nodes.condition_of(await self._known_node(name))) is not None:
            await self._change(
                replace(place, sub="status"), f"node {name}", lambda node: nodes.untold(node, *condition), dry_run
            )

        def release(node: Object) -> Object | None:
            nonlocal said
            if nodes.marked(node):
                said = f"released {name}"
                return nodes.release(node)
            if nodes.cordoned(node):
                raise Problem(f"{name} was cordoned by others; uncordon it by hand")
            said = f"{name} is in service already"
            return None

        await self._change(place, f"node {name}", release, dry_run)
        done.append(said)

    # --- jobs: which

    async def _served(self) -> dict[str, list[str]]:
        """Groups and their versions, the preferred one first."""
        served: dict[str, list[str]] = {}
        for group in (await self._api.read("/apis")).get("groups") or []:
            versions = [str(at(one, "version")) for one in at(group, "versions") or []]
            first = str(at(group, "preferredVersion", "version"))
            served[str(at(group, "name"))] = [first, *(version for version in versions if version != first)]
        return served

    async def _known_job(self, order: Order) -> _Job:
        noted = await self._api.get(self._note(order))
        if noted is not None:
            return _noted(noted)
        return await self._job_there(order)

    async def _job_there(self, order: Order) -> _Job:
        namespace, name = self._named(order)
        served = await self._served()
        found: list[_Job] = []
        for kind in _kinds(order):
            for version in _version(kind, served):
                place = kind.place(version, namespace, name)
                seen = await self._api.get(place)
                if seen is not None:
                    found.append(_Job(kind, place, seen))
        if not found:
            raise Problem(f"Kubernetes knows no job {name} in namespace {namespace} any more; submit it again")
        top = [await self._topmost(job, served) for job in found]
        anew = any(_made_anew(order, job) for job in [*found, *top])
        meant = [job for job in top if order.subject in (None, job.subject)]
        if not meant:
            raise Problem(f"{order.subject} is not there any more, and was not started again")
        different = {uid(job.seen): job for job in meant if job.seen is not None}
        if len(different) > 1:
            several = " and ".join(job.shown for job in different.values())
            raise Problem(f"{several} have the same name; say which one is meant with the label kind")
        job = next(iter(different.values()))
        children = tuple(
            str(at(one, "name"))
            for child in found
            if child.kind.name == "JobSet" and child.seen is not None
            for one in at(child.seen, "spec", "replicatedJobs") or []
        )
        return _Job(job.kind, job.place, job.seen, children=children or ("node",), anew=anew)

    def _named(self, order: Order) -> tuple[str, str]:
        said, name = order.labels.get("namespace"), order.job or ""
        if order.subject is not None:
            _, namespace, name = ("//" + order.subject).rsplit("/", 2)
        elif said and name.startswith(f"{said}."):
            namespace, name = said, name[len(said) + 1 :]
        elif said:
            namespace = said
        else:
            namespace, _, name = name.partition(".")
        if not _NAMESPACE.fullmatch(namespace) or not _NAME.fullmatch(name):
            raise Problem(f"{(order.job or '')[:80]!r} is not the name of a job in a namespace, as ml.llama-7b is")
        if self._settings.namespaces and namespace not in self._settings.namespaces:
            raise Problem(f"jobs of namespace {namespace} may not be restarted; the option namespaces does not list it")
        return namespace, name

    async def _topmost(self, job: _Job, served: dict[str, list[str]]) -> _Job:
        """The job that made this one, if any: a TrainJob makes a JobSet, which makes Jobs, and would make them again."""
        for _ in range(len(jobs.KINDS)):
            owner = jobs.controller(job.seen or {})
            if owner is None or at(owner, "kind") == "CronJob":
                return job
            group = str(at(owner, "apiVersion")).rpartition("/")[0]
            kind = next((one for one in jobs.KINDS if (one.name, one.group) == (at(owner, "kind"), group)), None)
            versions = _version(kind, served) if kind else []
            if kind is None or not versions:
                raise Problem(f"{job.shown} belongs to {at(owner, 'kind')} {at(owner, 'name')}: restart that")
            place = kind.place(versions[0], str(job.place.namespace), str(at(owner, "name")))
            seen = await self._api.get(place)
            if seen is None or uid(seen) != at(owner, "uid"):
                raise Problem(f"{job.shown} belongs to {kind.name} {at(owner, 'name')}, which is gone")
            job = _Job(kind, place, seen)
        raise Problem(f"{job.shown} belongs to itself")

    # --- jobs: what

    async def _restart(self, order: Order, job: _Job, hosts: Sequence[str], done: list[str], dry_run: bool) -> None:
        seen = job.seen
        if job.noted is not None:
            if dry_run:
                done.append(f"continued the restart of {job.shown}")
                return
            seen = await self._finish(order, job, done)
            if seen is None:
                return
            job = replace(job, seen=seen)
        assert seen is not None  # a job is known by itself or by its note
        if annotation(seen, jobs.RESTARTED_BY) == order.key:
            done.append(f"{job.shown} was restarted by this order")
            return
        if job.anew:
            done.append(f"{job.shown} was made anew since: it is not the one that failed")
            return
        suspended, off = annotation(seen, jobs.SUSPENDED_BY), jobs.off(job.kind, seen)
        if suspended == order.key and not off:
            done.append(f"{job.shown} was restarted since: this order had suspended it, and somebody let it go")
            return
        begun = suspended is not None and off  # by this order, or by an interrupted one; somebody else may have resumed it
        if at(seen, "metadata", "deletionTimestamp") is not None:
            raise Problem(f"{job.shown} is being deleted by somebody else, and was not started again")
        since = None if begun or order.attempt is None else _since(seen, order.attempt)
        if since is not None:
            done.append(f"{job.shown} was restarted since: {since}")
            return
        if not begun and jobs.waits(job.kind, seen) and not hosts:
            done.append(f"{job.shown} is suspended or queued already: it begins when it is let go")
            return
        live = job.kind.relabels and not jobs.ended(seen) and (begun or not jobs.waits(job.kind, seen))
        if live and not hosts and await self._resume(order, job, done, dry_run):
            return
        await self._remake(order, job, hosts, done, dry_run)

    async def _hold(self, order: Order, job: _Job, dry_run: bool) -> str:
        if job.seen is None or job.anew:
            return f"{job.shown} was made anew since: it is not the one that failed"
        kueue = next(iter((await self._served()).get(holds.KUEUE, [])), None)
        by = holds.Holds(self._api, self._change, self._now)
        return await by.hold(order, job.kind, job.place, job.seen, await self._all_pods(job), kueue, dry_run)

    async def _resume(self, order: Order, job: _Job, done: list[str], dry_run: bool) -> bool:
        """Suspend the job and resume it. False if the server does not know how."""
        way = job.kind.suspend
        assert way is not None
        mine = uid(job.seen or {})

        def off(seen: Object) -> Object | None:
            self._same(job, seen, mine)
            if jobs.ended(seen) or (annotation(seen, jobs.SUSPENDED_BY) is not None and jobs.off(job.kind, seen)):
                return None
            return _noting(jobs.patch(way, True), {jobs.SUSPENDED_BY: order.key})

        def on(seen: Object) -> Object | None:
            self._same(job, seen, mine)
            notes: dict[str, Any] = {jobs.SUSPENDED_BY: None, jobs.RESTARTED_BY: order.key, jobs.RESTARTED_WHY: order.reason}
            if (number := _next(order)) is not None:
                notes[jobs.ATTEMPT] = str(number)
            return _noting(jobs.resumed(job.kind, seen, number), notes)

        tried = await self._change(job.place, job.shown, off, dry_run=True)
        if at(tried, *way) is not True:
            return False  # an old server drops what it does not know
        if not dry_run:
            until = self._clock() + self._settings.patience_s
            seen = await self._change(job.place, job.shown, off, dry_run=False)
            while not jobs.quiet(seen) and at(seen, *way) is True:  # a queue may resume it
                if jobs.ended(seen):
                    return False
                if self._clock() > until:
                    raise Problem(
                        f"{job.shown} is suspended, but its pods have not ended in {self._settings.patience_s:g} s",
                        state="unknown",
                        may_retry=True,
                    )
                await self._sleep(_POLL_S)
                found = await self._api.get(job.place)
                if found is None:
                    raise Problem(f"{job.shown} was deleted by somebody while it was suspended")
                seen = found
            await self._change(job.place, job.shown, on, dry_run=False)
            if job.noted is not None:
                await self._drop_note(order)
        done.append(f"suspended {job.shown} and let it go")
        return True

    async def _remake(self, order: Order, job: _Job, hosts: Sequence[str], done: list[str], dry_run: bool) -> None:
        """Delete the job and make it again."""
        noted, sent = job.noted, job.noted is not None  # if our deletion may have succeeded before, its end is ours too
        for tries in itertools.count():
            if sent:
                seen = await self._finish(order, replace(job, noted=noted), done)
                if seen is None:
                    break
            else:
                seen = await self._standing(order, job, noted)
            if tries == _TRIES:
                raise Problem(f"{job.shown} changes faster than it can be deleted", may_retry=True)
            fresh = await self._accepted(order, job, seen, hosts)
            if noted is None:
                await self._api.delete(job.place, dry_run=True)  # whether we may at all
            if dry_run:
                break
            noted = await self._write_note(order, job, seen, fresh, noted)
            try:
                await self._api.delete(job.place, seen, last=True)
                sent = True
            except Refusal as refusal:
                if refusal.status != 404 and not refusal.conflict:
                    raise
                sent = sent or refusal.unknown  # else others were quicker
        if dry_run:
            done.append(f"deleted {job.shown} and made it anew")
        if hosts:
            done.append(f"it goes without {', '.join(hosts)}")

    async def _standing(self, order: Order, job: _Job, noted: Object | None) -> Object:
        """The job as it is now, if nobody has deleted it."""
        seen = await self._api.get(job.place)
        if seen is None or uid(seen) != uid(job.seen or {}) or at(seen, "metadata", "deletionTimestamp") is not None:
            if noted is not None:  # ours, not that of another executor
                await self._drop_note(order)
            raise Problem(f"{job.shown} was deleted by somebody else, and was not started again")
        return seen

    async def _accepted(self, order: Order, job: _Job, seen: Object, hosts: Sequence[str]) -> Object:
        """The manifest to make it from, which the server would take."""
        fresh = jobs.renewed(job.kind, seen, order.key, order.reason, _next(order))
        ways = jobs.ways(job.kind, fresh, hosts, job.children)
        if not ways:
            raise Problem(f"{job.shown} has no place to say which nodes it must avoid: isolate them instead")
        for number, way in enumerate(ways, 1):
            try:
                await self._api.create(job.place, jobs.rehearsed(way, order.key), dry_run=True)
            except Refusal as refusal:
                if refusal.status not in (400, 422) or number == len(ways):
                    raise
            else:
                return way
        raise AssertionError

    async def _finish(self, order: Order, job: _Job, done: list[str]) -> Object | None:
        """Wait until the old job is gone, and make the new one. If the old one was never deleted, it is returned."""
        try:
            said = await self._remade(order, job)
        except Problem as problem:
            note = self._note(order)
            what = f"{job.shown} is not made anew yet, its manifest is kept in ConfigMap {note.namespace}/{note.name}"
            raise Problem(f"{what}: {problem.what}", state="unknown", may_retry=True) from None
        if not isinstance(said, str):
            return said
        done.append(f"{'deleted ' if said == _ANEW else ''}{job.shown} {said}")
        await self._drop_note(order)
        return None

    async def _remade(self, order: Order, job: _Job) -> str | Object:
        data = mapping(job.noted, "data")
        until = self._clock() + self._settings.patience_s
        while True:
            seen = await self._api.get(job.place)
            if seen is not None and uid(seen) != data["uid"]:
                ours = annotation(seen, jobs.RESTARTED_BY) == order.key
                return "was restarted by this order" if ours else "was made anew by others"
            if seen is not None and at(seen, "metadata", "deletionTimestamp") is None:
                return seen
            if seen is None:
                try:
                    await self._api.create(job.place, json.loads(data["manifest"]))
                    return _ANEW
                except Refusal as refusal:
                    if refusal.status != 409:  # else somebody was quicker: look who
                        raise
            if self._clock() > until:
                held = ", ".join(str(one) for one in at(seen, "metadata", "finalizers") or []) or "nothing that is told"
                raise Problem(
                    f"it is being deleted for {self._settings.patience_s:g} s, held by {held}; pods on a dead node must be "
                    "deleted by force"
                )
            if seen is not None:
                await self._sleep(_POLL_S)

    async def _drop_note(self, order: Order) -> None:
        with contextlib.suppress(Problem):  # a note that stays says that this was done
            await self._api.delete(self._note(order))

    def _same(self, job: _Job, seen: Object, mine: str) -> None:
        if uid(seen) != mine:
            raise Problem(f"{job.shown} was created again by somebody else")

    # --- the note about a restart under way

    def _note(self, order: Order) -> Place:
        digest = hashlib.sha256(order.key.encode()).hexdigest()[:32]
        return Place("", "v1", "configmaps", self._settings.namespace, f"restart-{digest}")

    async def _write_note(self, order: Order, job: _Job, seen: Object, fresh: Object, noted: Object | None) -> Object:
        place, manifest = self._note(order), json.dumps(fresh)
        if len(manifest) > _LARGEST_NOTE:
            raise Problem(f"{job.shown} is too long to be kept while it is deleted: {len(manifest):,} bytes")
        whose = {"kind": job.kind.name, "group": job.place.group, "version": job.place.version}
        data = {
            **whose,
            "namespace": str(job.place.namespace),
            "name": str(job.place.name),
            "uid": uid(seen),
            "manifest": manifest,
        }
        if noted is not None:
            return await self._api.patch(place, {"data": data})
        labels = {"app.kubernetes.io/managed-by": "diagnose"}
        metadata = {
            "name": place.name,
            "namespace": place.namespace,
            "labels": labels,
            "annotations": {jobs.RESTARTED_BY: order.key},
        }
        try:
            return await self._api.create(place, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        except Refusal as refusal:
            if refusal.status == 409:
                raise Problem(f"{job.shown} is being restarted by another executor", state="unknown", may_retry=True) from None
            raise

    # --- rights

    def _needed(self, served: dict[str, list[str]]) -> Iterable[tuple[Place, str]]:
        for verb in ("get", "list", "patch"):
            yield Place("", "v1", "nodes"), verb
        if self.ways.condition is not None:
            yield Place("", "v1", "nodes", sub="status"), "patch"
        for verb in ("get", "create", "patch", "delete"):
            yield Place("", "v1", "configmaps", self._settings.namespace), verb
        for kind in jobs.KINDS:
            for version in _version(kind, served):
                for namespace in self._settings.namespaces or (None,):
                    for verb in ("get", "create", "delete", *(["patch"] if kind.suspend else [])):
                        yield Place(kind.group, version, kind.plural, namespace), verb
        for namespace in self._settings.namespaces or (None,):
            yield Place("", "v1", "pods", namespace), "list"
        if HOLD in self.kinds:
            kueue = next(iter(served.get(holds.KUEUE, [])), None)
            yield from holds.needed(kueue, self._settings.namespaces or (None,))

    async def _denied(self, place: Place, verb: str) -> list[str]:
        attributes = {"group": place.group, "resource": place.plural, "verb": verb}
        if place.sub is not None:
            attributes["subresource"] = place.sub
        if place.namespace is not None:
            attributes["namespace"] = place.namespace
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": attributes},
        }
        said = await self._api.create(Place("authorization.k8s.io", "v1", "selfsubjectaccessreviews"), review)
        return [] if at(said, "status", "allowed") is True else [place.rule(verb)]


def _places(pods: Iterable[Object]) -> dict[str, str]:
    """Pods -> the nodes that they are bound to."""
    return {str(at(pod, "metadata", "name")): str(node) for pod in pods if (node := at(pod, "spec", "nodeName"))}


def _objection(order: Order, job: _Job, places: Mapping[str, str]) -> str | None:
    """Why the server does not confirm the order, if so. ``places``: the job's pods, and their nodes."""
    claim, seen = order.claim, job.seen
    if claim is None or seen is None:
        return None
    if (why := claim.against_namespace(str(job.place.namespace), str(job.place.name))) is not None:
        return why
    if claim.word is not None or _nothing_to_do(order, job):
        return None
    if at(seen, "metadata", "deletionTimestamp") is not None:
        return f"{job.shown} is being deleted by somebody"
    if jobs.went_well(seen):
        return f"{job.shown} has completed, and did not fail"
    if not places:
        return f"{job.shown} has no pods any more that tell where it ran"
    why = claim.not_the_same(jobs.made(seen), {*places, *places.values()})  # some shippers name the pod for the node
    return f"{job.shown}: {why}" if why is not None else None


def _begun(order: Order, job: _Job) -> bool:
    """Whether this order is under way, or done."""
    if job.noted is not None or job.seen is None:
        return True
    marks = (jobs.RESTARTED_BY, jobs.SUSPENDED_BY, jobs.HELD_BY)
    return order.key in [annotation(job.seen, mark) for mark in marks]


def _went_on(order: Order, job: _Job) -> bool:
    """Whether somebody, or a controller, already restarted it, or it waits to begin. Then it is not restarted."""
    assert job.seen is not None
    since = None if order.attempt is None else _since(job.seen, order.attempt)
    return job.anew or since is not None or (jobs.waits(job.kind, job.seen) and annotation(job.seen, jobs.SUSPENDED_BY) is None)


def _nothing_to_do(order: Order, job: _Job) -> bool:
    """Whether the order is overtaken. What its controller restarted, or a queue keeps waiting, is held all the same."""
    if order.kind != HOLD:
        return _went_on(order, job)
    number = jobs.attempt(job.seen or {})
    return job.anew or (number is not None and order.attempt is not None and number > order.attempt)


def _next(order: Order) -> int | None:
    return order.attempt + 1 if order.attempt is not None else None


def _since(seen: Object, attempt: int) -> str | None:
    """What shows that this attempt is over. If we have given its pods a number, its controller's own count does not matter."""
    number, count = jobs.attempt(seen), jobs.restarts(seen)
    if number is not None:
        return f"it is at attempt {number}" if number > attempt else None
    return f"{count} restarts" if count is not None and count >= attempt and not jobs.ended(seen) else None


def _node(name: str) -> Place:
    return Place("", "v1", "nodes", None, name)


def _noting(patch: Object, notes: dict[str, Any]) -> Object:
    return {**patch, "metadata": {"annotations": notes}}


def _kinds(order: Order) -> list[Kind]:
    """The kinds in the label: a kind, or the name of its controller. The name of an operator (mpi-operator) says nothing."""
    said = order.labels.get("kind", "").lower().removesuffix("-controller")
    if order.subject is not None or not said or said.endswith("-operator"):
        return list(jobs.KINDS)
    return [kind for kind in jobs.KINDS if kind.name.lower() == said]


def _version(kind: Kind, served: dict[str, list[str]]) -> list[str]:
    """The newest version that we know, else the one that the server prefers."""
    versions = served.get(kind.group, [])
    return [version for version in kind.versions if version in versions][:1] or versions[:1]


def _made_anew(order: Order, job: _Job) -> bool:
    """Whether the job that failed is another one than the job that now has its name.

    Pods have the uid of their Job and JobSet. A job that was made after the attempt was last heard of is another one, too.
    """
    assert job.seen is not None
    told = order.labels.get(_UIDS.get((job.kind.name, job.kind.group), ""))
    if told and uid(job.seen) != told:
        return True
    made = jobs.made(job.seen)
    return made is not None and order.last_seen is not None and made > order.last_seen


def _noted(note: Object) -> _Job:
    data = mapping(note, "data")
    with contextlib.suppress(ValueError, TypeError):
        data = {**data, "is": json.loads(data.get("manifest", ""))}
    kind = next((one for one in jobs.KINDS if (one.name, one.group) == (data.get("kind"), data.get("group"))), None)
    if kind is None or not {"version", "namespace", "name", "uid", "is"} <= data.keys():
        raise Problem(f"the note {at(note, 'metadata', 'name')} about a restart cannot be read; look at it, and delete it")
    return _Job(kind, kind.place(data["version"], data["namespace"], data["name"]), None, note)
