"""The OpenAPI document: what FastAPI makes of the routes, with the tokens that they need, and names that generators can use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from service.auth import RIGHT

_MODULE = re.compile(r"(diagnose__report|service__api__bodies__\w+?)__([A-Z]\w*)")
_SCHEMES = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "What `diagnose tokens create` printed. A service that has no token yet needs none on its own machine.",
    }
}


def add(app: FastAPI) -> None:
    """Have ``/openapi.json`` say it."""
    plain = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _named(_secured(plain(), app))
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def rights(dependant: Dependant) -> Iterator[str]:
    """The rights that a route asks for."""
    for one in dependant.dependencies:
        right = getattr(one.call, RIGHT, None)
        if right is not None:
            yield right
        yield from rights(one)


def _secured(said: dict[str, Any], app: FastAPI) -> dict[str, Any]:
    said.setdefault("components", {})["securitySchemes"] = _SCHEMES
    for route in routes(app):
        if route.include_in_schema:
            for method in route.methods or ():
                needs: list[dict[str, list[str]]] = [{"token": []}] if any(rights(route.dependant)) else []
                said["paths"][route.path_format][method.lower()]["security"] = needs
    return said


def routes(app: FastAPI) -> Iterator[APIRoute]:
    """All routes of the API."""
    return (one for one in app.routes if isinstance(one, APIRoute))


def _named(said: dict[str, Any]) -> dict[str, Any]:
    """Where two models have one name, FastAPI names both by their modules, which generators cannot read."""

    def short(found: re.Match[str]) -> str:
        return f"Report{found[2]}" if found[1] == "diagnose__report" else found[2]

    result: dict[str, Any] = json.loads(_MODULE.sub(short, json.dumps(said)))
    assert len(result["components"]["schemas"]) == len(said["components"]["schemas"])
    for name, schema in result["components"]["schemas"].items():
        if "title" in schema:
            schema["title"] = name
    return result
