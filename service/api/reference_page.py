"""The API for people: a page made from the OpenAPI document, without a script and without the network."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark }
code, pre { font: 13px/1.4 ui-monospace, monospace } pre { overflow: auto; padding: .6rem; border: 1px solid #8886 }
summary { cursor: pointer; padding: .2rem 0 } td, th { text-align: left; vertical-align: top; padding: .1rem .8rem .1rem 0 }
"""


def add(app: FastAPI) -> None:
    """``/docs`` and its style sheet."""

    @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(rendered(app.openapi(), request.scope.get("root_path", "")))

    @app.get("/docs/style.css", include_in_schema=False)
    async def style() -> HTMLResponse:
        return HTMLResponse(_STYLE, media_type="text/css")


def rendered(document: dict[str, Any], root: str = "") -> str:
    """The whole document as one page."""
    info = document["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])} API</title><link rel=stylesheet href='{escape(root, quote=True)}/docs/style.css'>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info.get('description', ''))}",
        f"<p><a href='{escape(root, quote=True)}/openapi.json'>openapi.json</a>.",
        "<p>Send <code>Authorization: Bearer TOKEN</code>.",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(path, method, operation, document))
    return "\n".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    head = f"<code>{method.upper()} {escape(path)}</code> {escape(operation.get('summary', ''))}"
    parts = [f"<details><summary>{head}</summary><p>{escape(operation.get('description', ''))}"]
    if operation.get("parameters"):
        rows = "".join(
            f"<tr><td><code>{escape(p['name'])}</code><td>{escape(p['in'])}<td>{escape(p.get('description', ''))}"
            for p in operation["parameters"]
        )
        parts.append(f"<table>{rows}</table>")
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>takes <code>{escape(kind)}</code>{_shown(_example(content, document))}")
    for status, answer in operation.get("responses", {}).items():
        for kind, content in answer.get("content", {}).items():
            parts.append(f"<p>{escape(status)} {escape(answer.get('description', ''))} <code>{escape(kind)}</code>")
            if status.startswith("2"):
                parts.append(_shown(_example(content, document)))
    return "".join(parts) + "</details>"


def _shown(example: Any) -> str:
    text = example if isinstance(example, str) else json.dumps(example, indent=2)
    return f"<pre>{escape(text)}</pre>" if example not in (None, "", {}) else ""


def _example(content: dict[str, Any], document: dict[str, Any]) -> Any:
    if "example" in content:
        return content["example"]
    return _of(content.get("schema", {}), document, 0)


def _of(schema: dict[str, Any], document: dict[str, Any], depth: int) -> Any:
    """An example of a schema: its own, or one made of its parts."""
    if schema.get("examples"):
        return schema["examples"][0]
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _of(document["components"]["schemas"][name], document, depth + 1) if depth < 6 else {}
    for words in ("anyOf", "allOf", "oneOf"):
        if schema.get(words):
            return _of(schema[words][0], document, depth)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    match schema.get("type"):
        case "object":
            return {name: _of(part, document, depth + 1) for name, part in schema.get("properties", {}).items()}
        case "array":
            return [_of(schema.get("items", {}), document, depth + 1)] if depth < 6 else []
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case "string":
            return "…"
    return None
