"""What docs say of routes, rights and metrics is what the service has: each once, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI, routing
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from prometheus_client import Counter
from prometheus_client.metrics import MetricWrapperBase

from service.app import ROUTERS, create_app
from service.auth import RIGHT
from service.events import KINDS
from service.runtime import Service
from service.settings import Settings
from service.telemetry import Telemetry
from tests.conftest import ROOT

_ROW = re.compile(r"^\| `([A-Z]+ /\S*)` \| ([a-z]*) ?\|", re.MULTILINE)
_EVENT = re.compile(r"`([a-z]+\.[a-z]+|reset)`")
_METRIC = re.compile(r"^\| `(diagnose_\w+)` \| ([a-z ]*?) ?\|", re.MULTILINE)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    folder = tmp_path_factory.mktemp("document")
    service = Service(Settings(data=folder / "data", nvrx_root=folder, raw_logs=folder / "raw"))
    yield create_app(service)
    service.journal.close()
    service.store.close()


def routes(app: FastAPI) -> dict[str, str]:
    """METHOD and path -> the right that is asked for."""
    known = {
        (method, one.path): " ".join(rights(one.dependant))
        for router in ROUTERS
        for one in router.routes
        if isinstance(one, APIRoute)
        for method in one.methods
    }
    return {
        f"{method.upper()} {path}": known.get((method.upper(), path), "")
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }


def rights(dependant: Dependant) -> Iterator[str]:
    for one in dependant.dependencies:
        if (right := getattr(one.call, RIGHT, None)) is not None:
            yield right
        yield from rights(one)


def test_every_kind_of_event_is_told_in_both_documents(app: FastAPI) -> None:
    said = (ROOT / "docs" / "api.md").read_text().partition("\nEvents: ")[2]
    assert set(_EVENT.findall(said)) == set(KINDS)
    assert set(_EVENT.findall(app.openapi()["paths"]["/v1/events"]["get"]["description"])) == set(KINDS)


def test_every_route_is_named_once_with_its_right_and_no_other(app: FastAPI) -> None:
    named = _ROW.findall((ROOT / "docs" / "api.md").read_text())
    assert len(named) == len({name for name, _ in named})
    assert dict(named) == routes(app)


def test_every_metric_is_named_with_its_labels_and_no_other() -> None:
    known = {
        one._name + ("_total" if isinstance(one, Counter) else ""): " ".join(one._labelnames)
        for one in vars(Telemetry()).values()
        if isinstance(one, MetricWrapperBase)
    }
    section = (ROOT / "docs" / "service.md").read_text().partition("### Metrics")[2].partition("\n## ")[0]
    assert dict(_METRIC.findall(section)) == known


def test_every_event_that_is_published_is_named() -> None:
    said = (ROOT / "docs" / "api.md").read_text().partition("Events:")[2]
    published = set()
    for path in (ROOT / "service").rglob("*.py"):
        published |= set(re.findall(r"""publish\(\s*"(\w+\.\w+)\"""", path.read_text()))
    assert published
    assert {name for name in published if f"`{name}`" not in said} == set()


def test_no_request_waits_while_routes_are_worked_out(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    known = routing.get_dependant

    def noted(**given: Any) -> Any:
        made.append(given["path"])
        return known(**given)

    monkeypatch.setattr(routing, "get_dependant", noted)
    fresh = create_app(app.state.service)
    assert "/" in made  # it is noted
    before = len(made)
    assert before < len(fresh.router.routes) / 2  # they were worked out when their modules were imported
    for path in ("/v1/jobs", "/v1/jobs/a/report", "/metrics", "/no/such/place"):
        for route in fresh.router.routes:
            route.matches({"type": "http", "method": "GET", "path": path, "root_path": "", "headers": [], "query_string": b""})
    assert len(made) == before
