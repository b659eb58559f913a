"""Nodes: what failed on them, the results of tests, and whether they are trusted."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path, Query, Request
from sqlalchemy import Connection

from diagnose.decision.policy import ISOLATE, REBOOT, RELEASE
from service.acting.finders import (
    ComponentStates,
    KubernetesEvents,
    NVSentinelEvent,
    PolicyEvents,
    of_events,
    of_health,
    of_policies,
    of_states,
)
from service.acting.findings import (
    NODE,
    AlertmanagerWebhook,
    Found,
    KubernetesNodes,
    check_may_tell,
    not_told_by,
    of_alerts,
    of_nodes,
    told,
)
from service.acting.kernelwatch import MOST_BYTES, HealthResult, of_check, of_kernel
from service.acting.nodecheck import CheckVerdict, check_of
from service.api import bodies
from service.api.common import REFUSALS, Asking, AskingMuch, Here, Limit, Operator, Reader
from service.auth import RIGHT, Who, check_runs_the_cluster, holder
from service.errors import Unknown
from service.names import STORABLE, storable
from service.runtime import Service
from service.store import findings, nodechecks, pages, reading

router = APIRouter(route_class=Asking, tags=["nodes"], responses=REFUSALS)
_KERNEL_LINE = "2026-11-24T12:00:00+0000 gpu-17 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
told_of = APIRouter(route_class=AskingMuch, tags=["nodes"], responses=REFUSALS)
"""what others found of nodes: a cluster's nodes at once are much"""
_UNDER_WAY: dict[int | str, dict[str, Any]] = {
    409: {"model": bodies.Problem, "description": "The same is under way for this node already"}
}


@router.get("/v1/nodes", response_model=bodies.NodePage, summary="Nodes by name")
async def nodes(
    service: Here,
    who: Reader,
    limit: Limit = 200,
    state: Annotated[str | None, Query(pattern="^(ok|suspect|isolated)$")] = None,
    after: Annotated[str, Query(max_length=200, pattern=STORABLE, description="`next` of the page before")] = "",
) -> dict[str, Any]:
    storable(after, "after")
    rows = await service.read(who, lambda connection: reading.nodes(connection, limit=limit, state=state, after=after))
    return {"nodes": rows, "next": rows[-1]["name"] if len(rows) == limit else None}


@router.post(
    "/v1/nodes/checks",
    response_model=bodies.CheckTaken,
    status_code=201,
    summary="What a node check found",
    responses={409: {"model": bodies.Problem, "description": "The verdict names no node, or one twice"}},
)
async def checks(service: Here, who: Operator, verdict: Annotated[CheckVerdict, Body()]) -> dict[str, Any]:
    """It is stored for each node and decided about by the policy: a faulty node may be isolated, an isolated one may come back.
    If it is sent again with the same time, it counts once.
    """
    check_runs_the_cluster(who)
    now = time.time()
    check = check_of(verdict, now)
    await service.actions.take_check(check, who.name)
    named = {kind: check.named(kind) for kind in ("slow", "suspect", "faulty")}
    return {"at": check.at, "good": len(check.named("good")), **named}


async def _teller(request: Request) -> Who:
    """Asked before the body is read, which may be large."""
    who = await holder(request, "ingest")
    if "admin" not in who.may and (who.grant is None or not who.grant.kernel):
        raise not_told_by(who.name)
    return who


setattr(_teller, RIGHT, "ingest")
Teller = Annotated[Who, Depends(_teller)]


@told_of.post(
    "/v1/nodes/findings/alertmanager",
    response_model=bodies.FindingsTaken,
    status_code=201,
    summary="Alerts about nodes",
)
async def alerts(service: Here, who: Teller, body: Annotated[AlertmanagerWebhook, Body()]) -> dict[str, Any]:
    """The webhook receiver of Alertmanager: what it says of a node is weak evidence against it, while it fires.

    A node's own token tells of its node, an administrator's of all.
    """
    return await _taken(of_alerts(body, time.time()), service, who)


@told_of.post(
    "/v1/nodes/findings/kubernetes",
    response_model=bodies.FindingsTaken,
    status_code=201,
    summary="Conditions of nodes",
)
async def conditions(service: Here, who: Teller, body: Annotated[KubernetesNodes, Body()]) -> dict[str, Any]:
    """`kubectl get nodes -o json`: what a node problem detector, NVSentinel or the kubelet says is wrong, as evidence."""
    return await _taken(of_nodes(body.items, time.time()), service, who)


@told_of.post(
    "/v1/nodes/findings/kubernetes-events",
    response_model=bodies.FindingsTaken,
    status_code=201,
    summary="Events about nodes",
)
async def warnings(service: Here, who: Teller, body: Annotated[KubernetesEvents, Body()]) -> dict[str, Any]:
    """`kubectl get events -A -o json`: warnings about nodes, as evidence. What is about other things is left aside."""
    return await _taken(of_events(body.items, time.time()), service, who)


@told_of.post(
    "/v1/nodes/findings/nvsentinel",
    response_model=bodies.FindingsTaken,
    status_code=201,
    summary="Health events of NVSentinel",
)
async def health_event(service: Here, who: Teller, body: Annotated[NVSentinelEvent, Body()]) -> dict[str, Any]:
    """The sink of NVSentinel's event exporter: one CloudEvent."""
    return await _taken(of_health(body, time.time()), service, who)


@told_of.post(
    "/v1/nodes/{node}/findings/gpud",
    response_model=bodies.FindingsTaken,
    status_code=201,
    summary="What gpud found of a node",
)
async def states(
    node: Annotated[str, Path(max_length=200, pattern=NODE)],
    service: Here,
    who: Teller,
    body: Annotated[list[ComponentStates], Body(max_length=1000)],
) -> dict[str, Any]:
    """The answer of gpud's `GET /v1/states` on that node, as it is."""
    return await _taken(of_states(node, body, time.time()), service, who)


@told_of.post(
    "/v1/nodes/{node}/findings/dcgm",
    response_model=bodies.FindingsTaken,
    status_code=201,
    summary="What DCGM's policies say of a node",
)
async def violations(
    node: Annotated[str, Path(max_length=200, pattern=NODE)],
    service: Here,
    who: Teller,
    body: Annotated[PolicyEvents, Body()],
) -> dict[str, Any]:
    """Lines that `dcgmi policy --reg` printed on that node. What a job can cause (power, Xids of programs) is left out."""
    return await _taken(of_policies(node, body.lines, time.time()), service, who)


@router.post(
    "/v1/nodes/{node}/findings/kernel",
    response_model=bodies.FindingsTaken,
    status_code=201,
    summary="What the kernel of a node says",
)
async def kernel(
    node: Annotated[str, Path(max_length=200, pattern=NODE)],
    service: Here,
    who: Teller,
    body: Annotated[bytes, Body(media_type="text/plain", min_length=1, max_length=MOST_BYTES, examples=[_KERNEL_LINE])],
) -> dict[str, Any]:
    """Lines of the kernel as `journalctl --dmesg -o short-iso` or `dmesg --time-format iso` print them, up to 2,000.

    Those of a machine's fault count, each at its moment. Others are left aside; `left_out` counts Xids that a program can
    cause, and lines whose time has no zone.
    """
    return await _taken(of_kernel(node, body, time.time()), service, who)


@router.post(
    "/v1/nodes/{node}/findings/health-check",
    response_model=bodies.FindingsTaken,
    status_code=201,
    summary="How a site's own check of a node ended",
)
async def health_check(
    node: Annotated[str, Path(max_length=200, pattern=NODE)],
    service: Here,
    who: Teller,
    body: Annotated[HealthResult, Body()],
) -> dict[str, Any]:
    """A failure is a finding that lasts until the check passes."""
    return await _taken(of_check(node, body, time.time()), service, who)


async def _taken(found: Found, service: Service, who: Who) -> dict[str, Any]:
    check_may_tell(found, who.grant, administrator="admin" in who.may)
    await service.actions.take_findings(found, who.name)
    return told(found)


@router.get("/v1/nodes/{node}", response_model=bodies.NodeDetail, summary="A node and the failures it is suspected of")
async def node(node: Annotated[str, Path(max_length=200)], service: Here, who: Reader) -> dict[str, Any]:
    storable(node, "node")

    def work(connection: Connection) -> dict[str, Any] | None:
        found = reading.node(connection, node)
        if found is None:
            return None
        told = {"checks": nodechecks.of_node(connection, node), "findings": findings.of_node(connection, node)}
        return {**found, **told}

    found = await service.read(who, work)
    if found is None:
        raise Unknown("there is no such node", where=node, remedy="GET /v1/nodes lists them")
    return found


@router.post(
    "/v1/nodes/{node}/isolate",
    response_model=bodies.Action,
    status_code=201,
    summary="Take a node out of service",
    responses=_UNDER_WAY,
)
async def isolate(
    node: Annotated[str, Path(max_length=200)], service: Here, who: Operator, request: Annotated[bodies.NodeRequest, Body()]
) -> Any:
    """Isolate a node, or give it back. The request approves the action, and an executor carries it out."""
    return await _asked(service, ISOLATE, node, who, request.why)


@router.post(
    "/v1/nodes/{node}/release", response_model=bodies.Action, status_code=201, summary="Give a node back", responses=_UNDER_WAY
)
async def release(
    node: Annotated[str, Path(max_length=200)], service: Here, who: Operator, request: Annotated[bodies.NodeRequest, Body()]
) -> Any:
    return await _asked(service, RELEASE, node, who, request.why)


@router.post(
    "/v1/nodes/{node}/reboot", response_model=bodies.Action, status_code=201, summary="Reboot a node", responses=_UNDER_WAY
)
async def reboot(
    node: Annotated[str, Path(max_length=200)], service: Here, who: Operator, request: Annotated[bodies.NodeRequest, Body()]
) -> Any:
    """Only of a node that is isolated or suspect. Slurm waits until no job runs there. An isolated node stays isolated."""
    return await _asked(service, REBOOT, node, who, request.why)


async def _asked(service: Service, kind: str, node: str, who: Who, why: str) -> Any:
    check_runs_the_cluster(who)
    storable(node, "node")
    storable(why, "why")
    found = await service.actions.ask_for_node(kind, node, who.name, why)
    return await service.read(who, lambda connection: pages.actions.action(connection, found))
