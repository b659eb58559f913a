"""The site has more than docs/: the documents beside it become pages, and links are those of the repository until here."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
BESIDE = (
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "deploy/README.md",
    "fixtures/README.md",
    "prompts/README.md",
)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    for name in BESIDE:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """A link to a file of the repository that is no page becomes its text."""
    here = page.file.src_uri
    home = posixpath.dirname(here if here in BESIDE else f"docs/{here}")

    def led(link: re.Match[str]) -> str:
        picture, text, target, heading = link.groups()
        path = posixpath.normpath(posixpath.join(home, target))
        uri = path.removeprefix("docs/")
        if files.get_file_from_path(uri) is None:
            if not (ROOT / path).exists():
                return link[0]  # `mkdocs build --strict` says so
            return str(text)
        return f"{picture}[{text}]({posixpath.relpath(uri, posixpath.dirname(here) or '.')}{heading or ''})"

    return _LINK.sub(led, markdown)
