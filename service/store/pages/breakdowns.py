"""Who loses most: failures and their price by user, team, project, cluster, framework, image or reason."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, case, distinct, func, select

from service.store.tables import (
    jobs,
    occurrences,
)

BY = ("user", "team", "project", "cluster", "framework", "image", "reason")


def broken_down(connection: Connection, since: float, until: float, by: str, most: int) -> list[dict[str, Any]]:
    """Failures and what they cost, now and in the time of the same length before, the most expensive first."""
    o, j = occurrences.c, jobs.c
    columns: dict[str, ColumnElement[Any]] = {
        "user": o.user, "project": j.project, "cluster": o.cluster, "framework": j.framework, "reason": o.reason,
        "team": j.labels["team"].as_string(), "image": j.labels["image"].as_string(),
    }  # fmt: skip
    name, now = columns[by].label("name"), o.at >= since
    query = (
        select(
            name,
            func.sum(case((now, 1), else_=0)).label("count"),
            func.sum(case((now, 0), else_=1)).label("before"),
            func.sum(case((now, o.gpu_seconds), else_=0.0)).label("lost"),
            func.sum(case((now, 0.0), else_=o.gpu_seconds)).label("lost_before"),
            func.count(distinct(case((now, o.job_id)))).label("jobs"),
        )
        .where(o.at >= since - (until - since), o.at < until)
        .group_by(name)
    )
    if by in ("project", "framework", "team", "image"):
        query = query.join(jobs, j.id == o.job_id)
    rows = [dict(row._mapping) for row in connection.execute(query)]
    return sorted(rows, key=lambda row: (-row["lost"], -row["count"], -row["lost_before"], str(row["name"])))[:most]
