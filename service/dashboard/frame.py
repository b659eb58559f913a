"""What surrounds every page: the template engine, its filters, addresses under a prefix, and the headers of an answer."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from diagnose.decision.lost import MEANING
from service.dashboard import words

FOLDER = Path(__file__).resolve().parent
ASSETS = FOLDER / "assets"


@functools.cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": words.number,
        "size": words.size,
        "share": words.share,
        "span": words.span,
        "ago": words.ago,
        "moment": words.moment,
        "detail": words.detail,
        "printable": words.printable,
        "parted": words.parted,
        "prose": lambda text: "\n".join(words.printable(line) for line in text.splitlines()),
        "path": lambda text: quote(str(text), safe=""),
        "basename": os.path.basename,
        "marked": marked,
    }
    made.globals["lost_means"] = MEANING
    return made


def marked(text: str, wanted: str | None, most: int = words.LONGEST) -> Markup:
    """A log line with the searched text marked."""
    shown = words.printable(text, most)
    if not wanted:
        return escape(shown)
    parts = re.split(f"({re.escape(wanted)})", shown, flags=re.IGNORECASE)
    return Markup("").join(
        Markup("<mark>{}</mark>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts)
    )


@functools.cache
def stamp(name: str) -> str:
    """A short hash of an asset's content, so that browsers may keep it for ever."""
    return hashlib.blake2b((ASSETS / name).read_bytes(), digest_size=5).hexdigest()


@functools.cache
def assets() -> frozenset[str]:
    """The names of all assets. Any other name never reaches the file system."""
    return frozenset(path.name for path in ASSETS.iterdir() if path.is_file())


def rendered(template: str, prefix: str, values: Mapping[str, Any]) -> str:
    """A page. ``prefix``: where the dashboard is, such as ``/cluster1/ui``."""

    def url(path: str = "") -> str:
        return f"{prefix}/{path}"

    def asset(name: str) -> str:
        return f"{prefix}/assets/{name}?{stamp(name)}"

    return environment().get_template(template).render({**values, "url": url, "asset": asset, "base": prefix})
