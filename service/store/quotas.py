"""What each project may use, as an administrator has said, and what it has stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

from sqlalchemy import Connection, delete, func, select

from service.errors import BadName
from service.projects import PROJECT
from service.store import tables as t
from service.store.upsert import upsert

OTHERS = "*"
"""stands for every project without quotas of its own"""
_AN_ATTEMPT = 4096
"""about so many bytes does the database need for an attempt without any line"""


@dataclass(frozen=True, slots=True)
class Quota:
    """The bounds of a project. None: there is none."""

    rate: int | None = None
    """log bytes per second"""
    jobs: int | None = None
    """attempts that run at a time"""
    sources: int | None = None
    """sources of those attempts"""
    storage: int | None = None
    """bytes of kept lines and raw logs"""
    tokens: int | None = None
    """tokens of the model per hour"""


BOUNDS = tuple(one.name for one in fields(Quota))
NONE = Quota()


def quotas(connection: Connection) -> dict[str, Quota]:
    """project -> its quota; ``OTHERS`` -> that of those which have none of their own."""
    rows = connection.execute(select(t.quotas)).mappings()
    return {row["project"]: Quota(**{name: row[name] for name in BOUNDS}) for row in rows}


def limit(connection: Connection, project: str, bounds: Mapping[str, int | None]) -> Quota:
    """Change some bounds of a project (None: no bound any more). Returns all of them."""
    if project != OTHERS and not re.fullmatch(PROJECT, project):
        raise BadName("this is not the name of a project", where=project[:80], remedy="name a project, or * for all others")
    changed = replace(quotas(connection).get(project, NONE), **bounds)
    if changed == NONE and project != OTHERS:
        connection.execute(delete(t.quotas).where(t.quotas.c.project == project))
    else:
        upsert(connection, t.quotas, [{"project": project, **asdict(changed)}])
    return changed


def of_jobs(connection: Connection) -> set[str]:
    """The projects that have jobs."""
    return set(connection.scalars(select(t.jobs.c.project).distinct()))


def stored_bytes(connection: Connection) -> dict[str, int]:
    """project -> bytes of its kept lines and attempts in the database."""
    a, j = t.attempts.c, t.jobs.c
    lines = func.sum(a.bytes_kept).filter(a.lines_deleted.is_(None))
    rows = connection.execute(
        select(j.project, func.count(), func.coalesce(lines, 0)).join(t.jobs, j.id == a.job_id).group_by(j.project)
    )
    return {project: _AN_ATTEMPT * attempts + int(kept) for project, attempts, kept in rows}
