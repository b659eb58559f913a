"""Jobs of Kubernetes that their controllers would start again, though they would fail again: they are held.

How depends on who would start them, by the sources of the controllers:

- A job of Kueue that somebody suspends is let go again as long as its workload is admitted. So its workload is deactivated.
- A job whose ``podFailurePolicy`` begins with ``FailJob`` for the condition ``diagnose/hopeless`` fails by itself once one of
  its failed pods has it. The controller of Jobs looks at all failed pods for that, each time, so it may come after the pod
  failed. For ``Ignore`` it would come too late: a failed pod is counted once.
- Any other job is suspended, which its people undo.

Nothing is held twice, and nothing that somebody has let go.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from service.acting.executors import kubernetes_jobs as jobs
from service.acting.executors.executor import Order, Problem
from service.acting.executors.kubernetes_api import Api, Object, Place
from service.acting.executors.kubernetes_jobs import Kind, annotation, at

KUEUE: Final = "kueue.x-k8s.io"
_OF_JOB: Final = "kueue.x-k8s.io/job-uid"
"""the label of a workload that has its job's uid"""
_RAN_ON_S: Final = 600.0
"""a job that runs so long since is left alone: whatever failed before, it goes on"""

Change = Callable[[Place, str, Callable[[Object], Object | None], bool], Awaitable[Object]]
"""changes an object as it is now; if it changes meanwhile, it looks again"""


@dataclass(frozen=True, slots=True)
class Target:
    """What is switched off: the job, or its workload in Kueue."""

    place: Place
    shown: str
    way: tuple[str, ...]
    off: bool
    """the value of the switch while it is held"""

    def held(self, seen: Object) -> bool:
        return at(seen, *self.way) is self.off

    @property
    def undo(self) -> str:
        """How a person lets it go."""
        patch = "".join(f'{{"{step}":' for step in self.way) + str(not self.off).lower() + "}" * len(self.way)
        resource = f"{self.place.plural}.{self.place.group}"
        return f"kubectl -n {self.place.namespace} patch {resource} {self.place.name} --type merge -p '{patch}'"


class Holds:
    """Holds jobs of one cluster."""

    def __init__(self, api: Api, change: Change, now: Callable[[], float] = time.time) -> None:
        self._api, self._change, self._now = api, change, now

    async def hold(
        self,
        order: Order,
        kind: Kind,
        place: Place,
        seen: Object,
        pods: Sequence[Object],
        kueue: str | None,
        dry_run: bool,
    ) -> str:
        """Hold the job as it was ``seen``, with its ``pods``. Returns what was done. ``kueue``: the version of its API."""
        shown = f"{kind.name} {place.namespace}/{place.name}"
        if at(seen, "metadata", "deletionTimestamp") is not None:
            return f"{shown} is being deleted by somebody"
        if jobs.ended(seen):
            return f"{shown} has ended: its controller does not start it again"
        if (number := jobs.attempt(seen)) is not None and order.attempt is not None and number > order.attempt:
            return f"{shown} was restarted since: it is at attempt {number}"
        if (since := self._runs_since(order, pods)) is not None:
            return f"{shown} runs for {since / 60:.0f} min since that attempt ended, and was left alone"
        targets = await self._workloads(kueue, str(place.namespace), jobs.uid(seen)) if kueue is not None else []
        if not targets and kind.suspend is not None:
            targets = [Target(place, shown, kind.suspend, True)]
        if not targets:
            raise Problem(f"{shown} has no switch to suspend it: stop it by hand")
        if jobs.fails_by_itself(kind, seen) and (pod := _failed(pods)) is not None:
            return await self._tell(order, shown, pod, dry_run)
        return "; ".join([await self._switch_off(order, target, jobs.uid(seen), dry_run) for target in targets])

    async def _workloads(self, version: str, namespace: str, uid: str) -> list[Target]:
        """What Kueue admits of the job."""
        place = Place(KUEUE, version, "workloads", namespace)
        return [
            Target(replace(place, name=name), f"Workload {namespace}/{name}", ("spec", "active"), False)
            async for one in self._api.listed(place, f"{_OF_JOB}={uid}")
            if not jobs.condition(one, "Finished") and (name := str(at(one, "metadata", "name")))
        ]

    def _runs_since(self, order: Order, pods: Sequence[Object]) -> float | None:
        """For how long pods run that began after the attempt was last heard of, if that is long."""
        begun = [since for pod in pods if (since := _running_since(pod)) is not None]
        if order.last_seen is None or not begun or min(begun) <= order.last_seen:
            return None
        ran = self._now() - min(begun)
        return ran if ran > _RAN_ON_S else None

    async def _tell(self, order: Order, shown: str, pod: Object, dry_run: bool) -> str:
        metadata = pod["metadata"]
        place = Place("", "v1", "pods", metadata["namespace"], metadata["name"], "status")
        named = f"pod {place.namespace}/{place.name}"

        def hopeless(seen: Object) -> Object | None:
            if jobs.uid(seen) != jobs.uid(pod):
                raise Problem(f"{named} was created again by somebody else")
            listed = [one for one in at(seen, "status", "conditions") or [] if at(one, "type") != jobs.HOPELESS]
            if jobs.condition(seen, jobs.HOPELESS):
                return None
            now = datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            fresh = {"type": jobs.HOPELESS, "status": "True", "reason": "Hopeless", "message": order.reason}
            return {"status": {"conditions": [*listed, {**fresh, "lastTransitionTime": now}]}}

        await self._change(place, named, hopeless, dry_run)
        return f"told {named} hopeless: the podFailurePolicy of {shown} fails it"

    async def _switch_off(self, order: Order, target: Target, mine: str, dry_run: bool) -> str:
        said = ""

        def off(seen: Object) -> Object | None:
            nonlocal said
            if target.way == ("spec", "suspend") and jobs.uid(seen) != mine:
                raise Problem(f"{target.shown} was created again by somebody else")
            by, held = annotation(seen, jobs.HELD_BY), target.held(seen)
            if by is not None:
                said = f"{target.shown} was held {'by this order' if by == order.key else 'before'}"
                said += "" if held else ", and somebody let it go: it was left alone"
                return None
            if held:
                said = f"{target.shown} is switched off already: nothing starts it until somebody lets it go"
                return None
            said = f"held {target.shown}; to let it go: {target.undo}"
            patch = jobs.patch(target.way, target.off)
            return {**patch, "metadata": {"annotations": {jobs.HELD_BY: order.key, jobs.HELD_WHY: order.reason}}}

        tried = await self._change(target.place, target.shown, off, True)
        if said.startswith("held ") and not target.held(tried):
            raise Problem(f"{target.shown} cannot be suspended by this server: stop it by hand")  # an old one drops the field
        if not dry_run and said.startswith("held "):
            await self._change(target.place, target.shown, off, False)
        return said


def needed(kueue: str | None, namespaces: Sequence[str | None]) -> list[tuple[Place, str]]:
    """The rights that holding needs beside those to restart."""
    found: list[tuple[Place, str]] = []
    for namespace in namespaces:
        found.append((Place("", "v1", "pods", namespace, sub="status"), "patch"))
        found.append((Place("", "v1", "pods", namespace), "get"))
        if kueue is not None:
            found += [(Place(KUEUE, kueue, "workloads", namespace), verb) for verb in ("get", "list", "patch")]
    return found


def _failed(pods: Sequence[Object]) -> Object | None:
    """The newest pod that failed."""
    failed = [pod for pod in pods if at(pod, "status", "phase") == "Failed"]
    return max(failed, key=lambda pod: jobs.made(pod) or 0.0, default=None)


def _running_since(pod: Object) -> float | None:
    if at(pod, "status", "phase") != "Running":
        return None
    return jobs.made({"metadata": {"creationTimestamp": at(pod, "status", "startTime")}}) or jobs.made(pod)
