"""The projects, with what each may use and what it uses."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from service.api.bodies import ProjectList
from service.api.common import REFUSALS, Asking, Here, Reader
from service.store.quotas import of_jobs

router = APIRouter(route_class=Asking, tags=["projects"], responses=REFUSALS)


@router.get("/v1/projects", response_model=ProjectList, summary="What each project may use, and what it uses")
async def projects(service: Here, who: Reader) -> dict[str, Any]:
    """The projects of the token; for an administrator, all that have jobs or quotas. Quotas are set by `diagnose projects`."""
    quotas, jobs = service.quotas, service.jobs
    names = set(who.projects or ())
    if who.projects is None:
        names = {*quotas.named(), *jobs.projects, *await service.store.aread(of_jobs)}
    return {
        "projects": [
            {
                "project": name,
                "quota": asdict(quotas.of(name)),
                "used": {
                    "jobs": jobs.running(name),
                    "sources": jobs.sources(name),
                    "storage": quotas.stored(name),
                    "tokens": quotas.tokens(name),
                },
            }
            for name in sorted(names)
        ]
    }
