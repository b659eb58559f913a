"""Projects: what each may use, and what it uses."""

from __future__ import annotations

from pydantic import BaseModel


class Bounds(BaseModel):
    """None: no bound."""

    rate: int | None
    """log bytes per second"""
    jobs: int | None
    """attempts that run at a time"""
    sources: int | None
    """sources of those attempts"""
    storage: int | None
    """bytes of kept lines and raw logs"""
    tokens: int | None
    """tokens of the model per hour"""


class Used(BaseModel):
    jobs: int
    sources: int
    storage: int
    """as it was measured within the last minute; raw logs are measured if some project has a quota for storage"""
    tokens: int
    """in the last hour, since the service was started"""


class Project(BaseModel):
    project: str
    quota: Bounds
    used: Used


class ProjectList(BaseModel):
    projects: list[Project]
