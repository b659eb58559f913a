"""Images of containers and the failures that came with them: the label ``image`` of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, func, select

from service.store.tables import groups, jobs, occurrences

_LATEST: Final = 500
"""occurrences whose images are counted"""


def _image() -> ColumnElement[str]:
    found: ColumnElement[str] = jobs.c.labels["image"].as_string()
    return found


@dataclass(frozen=True, slots=True)
class Beginning:
    """With which image a failure began."""

    image: str
    used_since: float
    """when the first job with this image was seen"""
    new: bool
    """the image was there before the failure, and the failure not before the image"""


def failed_with(image: str) -> Select[Any]:
    """The ids of the failures that jobs with this image had."""
    return select(occurrences.c.group_id).join(jobs, jobs.c.id == occurrences.c.job_id).where(_image() == image)


def new_with(connection: Connection, image: str) -> ColumnElement[bool]:
    """The condition on failures that nobody saw before the first job with this image."""
    since = connection.execute(select(func.min(jobs.c.first_seen)).where(_image() == image)).scalar()
    return groups.c.first_seen >= (since if since is not None else float("inf"))


def counted(connection: Connection, group_id: int) -> list[tuple[str, int]]:
    """How many of the latest occurrences of a failure each image had, most first; jobs without an image are left out."""
    o = occurrences.c
    latest = select(o.job_id).where(o.group_id == group_id).order_by(o.at.desc()).limit(_LATEST).subquery()
    image = _image().label("image")
    query = select(image, func.count()).select_from(latest.join(jobs, jobs.c.id == latest.c.job_id)).where(image.is_not(None))
    rows = connection.execute(query.group_by(image).order_by(func.count().desc(), image))
    return [(name, count) for name, count in rows]


def beginning(connection: Connection, group_id: int) -> Beginning | None:
    """With which image a failure began; None if its first job has none."""
    o = occurrences.c
    first = connection.execute(
        select(_image().label("image"), o.at)
        .join(jobs, jobs.c.id == o.job_id)
        .where(o.group_id == group_id)
        .order_by(o.at)
        .limit(1)
    ).first()
    if first is None or first.image is None:
        return None
    since = connection.execute(select(func.min(jobs.c.first_seen)).where(_image() == first.image)).scalar_one()
    earlier = connection.execute(
        select(jobs.c.id).where(and_(jobs.c.first_seen < since, _image().is_not(None), _image() != first.image)).limit(1)
    ).first()
    return Beginning(first.image, since, new=earlier is not None)
