"""Jobs: the list, one of them, its kept lines."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse

from diagnose.decision.scores import Score
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.rendering import markdown
from diagnose.report import Diagnosis, Report
from service.api.common import place_of
from service.api.jobs import corrected
from service.api.raw import page as raw_page
from service.api.raw import place as raw_place
from service.api.raw import text as raw_text
from service.auth import Who
from service.dashboard import blame, charts, evaluation, links, logs, ranks, session
from service.dashboard.charts import Point
from service.dashboard.overview import liveness
from service.dashboard.page import PAGE, Page, taxonomy
from service.dashboard.words import printable
from service.errors import BadName, Forbidden, Refused, Unknown
from service.live.verdict import lacking
from service.names import check_job, storable
from service.store import actions as stored
from service.store import nodechecks, pages, reading
from service.store.pages.timeline import Lane, Mark
from service.store.training import rates, scores

_AROUND = 12
_BEFORE = 20
"""kept lines that are shown before the one that somebody looks for"""
_BLAMED = 8
_OVERLAID = 3
"""earlier attempts in a plot"""
_LINES = 500
_LAST = 60
_CHECKPOINTS = 100
_SOURCES = 200
_A_PART = 1000
_SHOWN_FIRST = ("loss", "grad_norm", "tokens_per_s", "samples_per_s", "step_time_s", "tflops", "lr")
_PLOTS = 4


async def show(request: Request) -> Response:
    """The list."""
    page = Page.of(request)
    words = {key: page.asked(key) for key in ("category", "reason", "cluster", "user")}
    state, search, before = page.asked("state"), page.asked("q"), page.place()
    equal = {key: value for key, value in words.items() if value}
    if state in ("running", "failed", "healthy"):
        equal["outcome"] = state
    rows = await page.read(
        lambda connection: reading.jobs(
            connection, limit=PAGE, before=before, equal=equal, name=search, at_risk=state == "at_risk"
        )
    )
    hang_s = page.service.settings.hang_s
    return await page.show(
        "jobs.html",
        "jobs",
        asked={"q": search, "state": state, "any": bool(equal or state or search or before), **words},
        options=await page.options(page.now - 90 * 86400),
        jobs=[{**row, "live": liveness(row, page.now, hang_s)} for row in rows],
        pages=page.pages(rows, place_of(rows[-1]) if len(rows) == PAGE else None),
    )


async def one(request: Request) -> Response:
    """A job: how it goes, or why it failed."""
    page = Page.of(request)
    name = _name(page)
    job, attempt = await _attempt(page, name)

    below, there = _raw_below(page, name, attempt["number"]), _log(page, name, attempt["number"])
    over = page.asked("over")

    between = await page.service.failure_rates.of_job(page.service.store, job["id"])

    def work(connection: Any) -> dict[str, Any]:
        found = reading.report(connection, attempt["id"])
        diagnosis = Diagnosis.model_validate(found["report"]["diagnosis"]) if found else None
        root = diagnosis.root_cause if diagnosis is not None else None
        group = pages.jobs.group_of(connection, attempt["id"])
        around = pages.lines.around(connection, attempt["id"], root.source, root.line, _AROUND) if root else []
        last = pages.lines.last_lines(connection, attempt["id"], _LAST) if attempt["state"] == "running" else []
        return {
            "diagnosis": diagnosis,
            "around": logs.shown(around, root, below=below, log=there),
            "group": group,
            "decision": stored.decision_of(connection, attempt["id"]),
            "sources": reading.sources(connection, attempt["id"]),
            "series": reading.series(connection, attempt["id"]),
            "actions": [one for one in reading.actions(connection, limit=50, job=name) if one["attempt"] == attempt["number"]],
            "last": logs.shown(last, below=below, log=there),
            "lanes": pages.timeline.lanes(connection, job["attempts"]),
            "fault": _fault(connection, diagnosis, attempt),
            "agent": found["report"].get("agent") if found else None,
            "corrections": reading.corrections(connection, limit=5, attempt=attempt["id"]),
            "heat": ranks.heat_map(
                pages.ranks.heard(connection, attempt["id"]),
                diagnosis.suspects.ranks if diagnosis is not None else (),
                there,
                running=attempt["state"] == "running",
            ),
            "pace": rates.present_of(connection, attempt["id"], between),
            "earlier_runs": {**_earlier(connection, job["attempts"], attempt["number"]), **_beside(connection, page.who, over)},
            "alike": pages.jobs.alike(connection, job),
            "scores": scores.known_of(connection, name),
        }

    found = await page.read(work)
    diagnosis: Diagnosis | None = found.pop("diagnosis")
    dropped = sorted((attempt["dropped"] or {}).items(), key=lambda pair: -pair[1])
    evidence = diagnosis.evidence if diagnosis is not None else []
    lanes: list[Lane] = found.pop("lanes")
    own = next((lane for lane in lanes if lane.number == attempt["number"]), None)
    until = page.number("below")
    saved = [mark for mark in reversed(own.marks) if until is None or mark.step < until] if own is not None else []
    return await page.show(
        "job.html",
        "jobs",
        events=f"events?{urlencode({'job': name})}",
        job=job,
        attempt=attempt,
        timeline=_timeline(job["attempts"], lanes),
        checkpoints=saved[:_CHECKPOINTS],
        earlier=len(saved) - _CHECKPOINTS,
        until=until,
        saved=own.marks if own is not None else [],
        diagnosis=diagnosis,
        live=liveness({**attempt, "outcome": attempt["outcome"]}, page.now, page.service.settings.hang_s),
        ran_s=(attempt["ended_at"] or (page.now if attempt["state"] == "running" else attempt["last_seen"]))
        - attempt["started_at"],
        consequences=[line for line in evidence if line.role == "consequence"],
        others=diagnosis.others if diagnosis is not None else [],
        plots=_plots(found.pop("series"), own, found["earlier_runs"]) + _of_scores(found["scores"], own),
        log_at=there,
        over=over,
        over_found=over is None or f"run {over}" in found["earlier_runs"],
        links=links.of_job(page.service.settings.links, job, attempt, page.now),
        dropped=dropped,
        bars=[charts.bar(count, dropped[0][1], "accent") for _, count in dropped],
        taxonomy=taxonomy(),
        files=_choice(found["sources"], diagnosis.root_cause.source if diagnosis and diagnosis.root_cause else None),
        more_files=len(found["sources"]) - _SOURCES,
        missing=lacking({row["name"]: row["missing"] for row in found["sources"] if row["missing"]}),
        **found,
    )


def _fault(connection: Any, diagnosis: Diagnosis | None, attempt: dict[str, Any]) -> blame.Fault | None:
    """Whether it was the node's fault; None if nothing failed."""
    if diagnosis is None or attempt["outcome"] == "healthy" or diagnosis.root_cause is None:
        return None
    names = list(dict.fromkeys((*diagnosis.culprits, *diagnosis.suspects.nodes)))[:_BLAMED]
    failures = pages.failures.of_machines(connection, names, but=attempt["id"])
    checks = {name: row for name in names for row in nodechecks.of_node(connection, name, most=1)}
    return blame.fault(diagnosis, blame.known_of(names, failures, checks, attempt["ended_at"] or attempt["last_seen"]))


def _earlier(connection: Any, attempts: Sequence[dict[str, Any]], number: int) -> dict[str, list[dict[str, Any]]]:
    """The numbers of the attempts before this one, by what a plot calls them."""
    before = [row for row in attempts if row["number"] < number][:_OVERLAID]
    return {f"attempt {row['number']}": list(reading.series(connection, row["id"])) for row in before}


def _beside(connection: Any, who: Who, name: str | None) -> dict[str, list[dict[str, Any]]]:
    """The numbers of the latest attempt of another job that somebody wants in the plots; none if there is no such job."""
    key = reading.attempt_id(connection, who.named(check_job(name)), None) if name is not None else None
    return {f"run {name}": list(reading.series(connection, key))} if key is not None else {}


def _log(page: Page, name: str, number: int) -> str:
    """The address of the kept lines."""
    return session.inside(page.request, f"jobs/{quote(name, safe='')}/log?attempt={number}")


async def ticket(request: Request) -> Response:
    """The report as Markdown, to paste into a ticket."""
    page = Page.of(request)
    name = _name(page)
    _, attempt = await _attempt(page, name)
    found = await page.read(lambda connection: reading.report(connection, attempt["id"]))
    if found is None:
        raise Unknown("there is no diagnosis yet", where=name, remedy="it is made when the attempt fails or ends")
    text = await asyncio.to_thread(markdown.section, Report.model_validate(found["report"]))
    address = page.service.settings.public_url or str(request.base_url).removesuffix("/").removesuffix("/ui")
    where = f"\n<{address}/ui/jobs/{quote(name, safe='')}?attempt={attempt['number']}>\n"
    return PlainTextResponse(text + where, headers={"Cache-Control": "no-store"})


async def log(request: Request) -> Response:
    """The kept lines, with search."""
    page = Page.of(request)
    name = _name(page)
    job, attempt = await _attempt(page, name)
    search, node, only = page.asked("q"), page.asked("node"), page.asked("only")
    rank, after = page.number("rank", 1 << 30), page.number("before")
    source, line = page.given("source"), page.number("line")
    filtered = bool(search or node or only or rank is not None)

    def work(connection: Any) -> tuple[int, Any, list[dict[str, Any]]]:
        found = reading.report(connection, attempt["id"])
        root = Diagnosis.model_validate(found["report"]["diagnosis"]).root_cause if found else None
        begin = -1 if after is None else after
        if source is not None and line is not None and after is None:
            begin = max(-1, pages.lines.place_of(connection, attempt["id"], source, line) - _BEFORE)
        rows = pages.lines.kept(
            connection,
            attempt["id"],
            limit=_LINES,
            after=begin,
            search=search,
            rank=rank,
            node=node,
            failures=only == "failures",
        )
        return begin, root, rows

    begin, root, rows = await page.read(work)
    there = _log(page, name, attempt["number"])
    fitting = logs.fitting(rows)
    goes_on = len(rows) == _LINES or len(fitting) < len(rows)
    root_place = urlencode({"source": root.source, "line": root.line}) if root is not None else None
    return await page.show(
        "log.html",
        "jobs",
        events=f"events?{urlencode({'job': name})}",
        follows=attempt["state"] == "running" and not goes_on,
        to_root=f"{there}&{root_place}#here" if root_place else None,
        begin=begin,
        job=job,
        attempt=attempt,
        asked={"q": search, "node": node, "rank": rank, "only": only},
        rows=logs.shown(
            fitting,
            root,
            folds=not filtered,
            below=_raw_below(page, name, attempt["number"]),
            log=there,
            every=filtered or page.asked("every") is not None,
            at=(source, line) if source is not None and line is not None else None,
        ),
        raw=page.service.archive is not None,
        dropped=sorted((attempt["dropped"] or {}).items(), key=lambda pair: -pair[1]),
        pages=page.pages(fitting, str(fitting[-1]["ord"]) if goes_on else None),
    )


async def raw(request: Request) -> Response:
    """Lines as they came: those inside a fold of the kept lines, or all of them, page by page."""
    page = Page.of(request)
    name = _name(page)
    _, attempt = await _attempt(page, name)
    asked = request.query_params.get("source")
    sources = await page.read(lambda connection: reading.sources(connection, attempt["id"]))
    if asked is None and sources:
        asked = sources[0]["name"]
    number, source, _ = await raw_place(page.service, name, attempt["number"], asked)
    assert page.service.archive is not None
    folder = page.service.archive.source(name, number, source)
    first, last, offset = page.number("from"), page.number("to"), page.number("offset")
    first = max(1, first) if first is not None and offset is None else None
    found = await asyncio.to_thread(raw_page, folder, first, last, offset, _LINES, page.service.settings.redact)
    begin = found["lines"][0]["line"] if found["lines"] else None
    there = _raw_below(page, name, number)
    rows = logs.fitting(found["lines"])
    after = found["lines"][len(rows)] if len(rows) < len(found["lines"]) else None
    line, at = (after["line"], after["offset"]) if after is not None else (found["next_line"], found["next_offset"])
    more = {"from": line, "to": last} if line else {"offset": at}
    wanted = {key: value for key, value in more.items() if value is not None}
    return await page.show(
        "raw.html",
        "jobs",
        job=name,
        attempt=attempt,
        source=source,
        sources=_choice(sources, source),
        more_sources=len(sources) - _SOURCES,
        begin=begin,
        rows=rows,
        gaps=found["gaps"],
        redacted=found["redacted"],
        more=f"{there}&{urlencode({'source': source, **wanted})}" if wanted and there else None,
    )


async def raw_download(request: Request) -> Response:
    """The raw log of a source, as it came."""
    page = Page.of(request)
    name = _name(page)
    wanted = page.number("attempt", 1_000_000), request.query_params.get("source")
    number, source, received = await raw_place(page.service, name, *wanted)
    assert page.service.archive is not None
    folder = page.service.archive.source(name, number, source)
    return raw_text(folder, f"{name}-{number}", page.service.settings.redact, received)


def _raw_below(page: Page, name: str, number: int) -> str | None:
    """The address of the raw log's lines; None if it is not kept."""
    if page.service.archive is None:
        return None
    return session.inside(page.request, f"jobs/{name}/raw?attempt={number}")


async def download(request: Request) -> Response:
    """The kept lines as text, as ``grep -n`` over several files prints them."""
    page = Page.of(request)
    name = _name(page)
    _, attempt = await _attempt(page, name)

    async def parts() -> AsyncIterator[bytes]:
        rows = await _part(page, attempt["id"], -1)
        while rows:
            yield "".join(f"{row['source']}:{row['line']}:{row['text']}\n" for row in rows).encode("utf-8", "replace")
            rows = await _part(page, attempt["id"], rows[-1]["ord"])

    told = {"Content-Disposition": f'attachment; filename="{name}-{attempt["number"]}.kept.log"'}
    return StreamingResponse(parts(), media_type="text/plain; charset=utf-8", headers=told)


async def _part(page: Page, attempt: int, after: int) -> list[dict[str, Any]]:
    return await page.read(lambda connection: reading.lines(connection, attempt, limit=_A_PART, after=after))


async def correct(request: Request) -> Response:
    """Store the right diagnosis from a person."""
    page = Page.of(request)
    name = _name(page)
    if "operate" not in page.who.may:
        raise Forbidden("this needs the right to operate", remedy="sign in with a token of the role operate")
    async with request.form(max_files=0, max_fields=10) as form:
        session.check_form(request, form.get("csrf"))
        given = {key: str(form.get(key, "")).strip() for key in ("attempt", "reason", "source", "line", "note")}
    category = shipped_taxonomy().category_of.get(given["reason"])
    if category is None:
        raise Refused("this is not a known reason", where=given["reason"][:60], remedy="choose one from the list")
    if not given["attempt"].isdecimal() or (given["line"] and not given["line"].isdecimal()):
        raise BadName("a number was expected", remedy="give the attempt and the line as numbers")
    values = {
        "category": category,
        "reason": given["reason"],
        "source": storable(given["source"][:1000], "source") or None,
        "line": int(given["line"][:18]) if given["line"] else None,
        "note": storable(given["note"][:2000], "note") or None,
    }
    number = int(given["attempt"][:9])
    key = await page.read(lambda connection: reading.attempt_id(connection, name, number))
    if key is None:
        raise _unknown(name)
    await corrected(page.service, name, key, values, page.who.name)
    return RedirectResponse(session.inside(request, f"jobs/{name}?attempt={number}&said=corrected"), status_code=303)


def _name(page: Page) -> str:
    return page.who.named(check_job(page.request.path_params["job"]))


def _unknown(name: str) -> Unknown:
    return Unknown("there is no such job", where=name, remedy="see the list of jobs")


async def _attempt(page: Page, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the job, the wanted attempt: the latest, unless the address names another)."""
    number = page.number("attempt", 1_000_000)
    await page.service.jobs.fresh(name, number, report=True)
    job = await page.read(lambda connection: reading.job(connection, name))
    if job is None:
        raise _unknown(name)
    wanted = job["attempt"] if number is None else number
    attempt = next((one for one in job["attempts"] if one["number"] == wanted), None)
    if attempt is None:
        raise Unknown(f"there is no attempt {wanted} of this job", where=name, remedy="see the job's page")
    return job, attempt


def _choice(sources: Sequence[dict[str, Any]], chosen: str | None) -> list[str]:
    """Names to choose from: the first ones, and always the chosen one, because otherwise another would seem chosen."""
    names = [row["name"] for row in sources]
    first = names[:_SOURCES]
    if chosen is None or chosen in first or chosen not in names:
        return first
    return [chosen, *first[:-1]]


def _timeline(attempts: Sequence[dict[str, Any]], lanes: Sequence[Lane]) -> dict[str, Any]:
    """The attempts on one axis of steps, which shows what was lost and where the next one went on."""
    ends = [
        value for lane in lanes for value in (lane.first, lane.last, *(mark.step for mark in lane.marks)) if value is not None
    ]
    least, most = (min(ends), max(ends)) if ends else (0.0, 0.0)
    known = {lane.number: lane for lane in lanes}
    rows = []
    for attempt in attempts:
        lane = known.get(attempt["number"])
        if lane is None:
            break
        points = [
            Point(_worst(marks).step, _worst(marks).state, _told(marks))
            for marks in charts.together(((mark.step, mark) for mark in lane.marks), least, most)
        ]
        if lane.onset is not None:
            points.append(Point(lane.onset, "onset", f"step {lane.onset:,.0f}: it went wrong"))
        last = lane.last if lane.last is not None else least
        first = lane.first if lane.first is not None else min((least, last))
        colour = {"healthy": "none", "running": "accent"}.get(attempt["outcome"], attempt["category"] or "unknown")
        what = f"attempt {attempt['number']}: steps {first:,.0f} to {last:,.0f}, {len(lane.marks)} checkpoints"
        rows.append(
            {
                **attempt,
                "phase": lane.phase,
                "saved": len(lane.marks),
                "lane": charts.lane(first, last, points, least, most, colour, what) if ends else None,
            }
        )
    return {"rows": rows, "least": least, "most": most, "more": len(attempts) - len(rows), "steps": bool(ends)}


def _worst(marks: Sequence[Mark]) -> Mark:
    """The mark that is shown if several cover the same pixels."""
    return min(marks, key=lambda mark: ("spoilt", "begun", "saved").index(mark.state))


def _told(marks: Sequence[Mark]) -> str:
    if len(marks) == 1:
        return f"step {marks[0].step:,}: checkpoint {marks[0].state}"
    states = ", ".join(f"{count} {state}" for state, count in Counter(mark.state for mark in marks).items())
    return f"{states}: steps {marks[0].step:,} to {marks[-1].step:,}"


def _flags(marks: Sequence[Mark], least: float, most: float) -> list[list[Any]]:
    """The marks above a plot from ``least`` to ``most``."""
    shown = charts.together(((mark.step, mark) for mark in marks if least <= mark.step <= most), least, most)
    return [[_worst(some).step, _worst(some).state] for some in shown]


def _seen(value: float | None) -> float | None:
    """The value, only as exact as a picture shows it."""
    return float(f"{value:.5g}") if value is not None else None


def _plots(
    series: Sequence[dict[str, Any]], lane: Lane | None, before: dict[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The job's numbers over its steps: the mean, and the least and greatest if points stand for many values. Also the earlier
    attempts (``before``), the checkpoints, and where it went wrong.
    """
    known = {one["name"]: one for one in series if one["count"] > 1}
    chosen = [name for name in _SHOWN_FIRST if name in known][:_PLOTS]
    plots = []
    for name in chosen:
        points = _by_step(known[name])
        if len(points) < 2:
            continue
        names = ["mean", "least", "greatest"] if any(point[2] != point[3] for point in points) else ["mean"]
        lines = [(one, {point[0]: point[at] for point in points}) for at, one in enumerate(names, 1)]
        for said, its in before.items():
            earlier = next((_by_step(one) for one in its if one["name"] == name), [])
            if len(earlier) > 1:
                lines.append((said, {point[0]: point[1] for point in earlier}))
        steps = sorted({step for _, values in lines for step in values})
        data = {
            "title": name.replace("_", " "),
            "x": "step",
            "xs": steps,
            "series": [
                {
                    "name": one,
                    "values": [_seen(values.get(step)) for step in steps],
                    "earlier": one in before,
                    "bound": one in ("least", "greatest"),
                }
                for one, values in lines
            ],
            "mark": lane.onset if lane is not None else None,
            "saved": _flags(lane.marks, points[0][0], points[-1][0]) if lane is not None else [],
        }
        plots.append(_plot(name, data, [point[1] for point in points]))
    return plots


def _of_scores(known: Sequence[Score], lane: Lane | None) -> list[dict[str, Any]]:
    """The scores of evaluations over the steps of their checkpoints."""
    plots = []
    for metric, steps, sets in evaluation.plots(known):
        data = {
            "title": f"scores: {printable(metric, 60)}",
            "x": "step",
            "xs": steps,
            "series": [
                {"name": printable(name, 60), "values": [_seen(values.get(step)) for step in steps], "earlier": False}
                for name, values in sets.items()
            ],
            "mark": lane.onset if lane is not None else None,
            "saved": [],
            "spans": True,  # not every data set has a score of every checkpoint
        }
        first = next(iter(sets.values()))
        plots.append(_plot(metric, data, [first[step] for step in sorted(first)]))
    return plots


def _plot(name: str, data: dict[str, Any], still: Sequence[float]) -> dict[str, Any]:
    # Inside an element of a script only "<" could end it, and the escape takes that away.
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return {"data": Markup(text), "still": charts.sparkline(still, name, 560, 120), "name": name}  # noqa: S704 - see above


def _by_step(series: dict[str, Any]) -> list[list[Any]]:
    """Its points that have a step, in order."""
    return sorted((point for point in series["points"] if point[0] is not None), key=lambda point: point[0])
