"""Documents lead somewhere: links, headings and paths are there, every page is in the site, and the site can be built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDERS = (".", "docs", "docs/decisions", "docs/runbooks", "benchmarks", "deploy", "fixtures", "prompts", "tests/payloads")
DOCUMENTS = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
_PATH = re.compile(
    r"`((?:diagnose|service|tests|benchmarks|deploy|docs|examples|fixtures|model_server|prompts|rules)/[\w./-]*(?:/|\.\w+))`"
)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(document: Path) -> str:
    return _FENCED.sub("", document.read_text())


def headings(document: Path) -> set[str]:
    """As GitHub and the site make anchors of them."""
    said = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in said}


def dead(document: Path) -> Iterator[str]:
    for target, heading in _LINK.findall(prose(document)):
        other = document.parent / target if target else document
        if not other.exists():
            yield target
        elif heading and heading not in headings(other):
            yield f"{target}#{heading}"


def test_all_documents_are_looked_at() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no git checkout")
    assert {ROOT / name for name in listed.stdout.split()} <= set(DOCUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_relative_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    assert list(dead(document)) == []


def test_a_link_to_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A b\n[x](page.md#a-b) [x](#a-b) [x](#c) [x](gone.md) [x](https://example.org/gone)\n```\n[x](code)\n```\n"
    )
    assert list(dead(page)) == ["#c", "gone.md"]


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if path.name != "CHANGELOG.md"], ids=named)
def test_paths_of_the_repository_are_there(document: Path) -> None:
    """The changelog tells of paths as they were."""
    assert [path for path in _PATH.findall(prose(document)) if not (ROOT / path).exists()] == []


def test_every_test_that_the_threats_name_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "threats.md").read_text()))
    there = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 30
    assert {name for name in named if f"def {name}(" not in there} == set()


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Without a proxy's help nothing can be fetched."""
    if find_spec("mkdocs") is None or find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: pip install -e '.[docs]'")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    pages = {page.relative_to(tmp_path / "site").as_posix() for page in (tmp_path / "site").rglob("*.html")}
    assert {"index.html", "architecture.html", "CONTRIBUTING.html", "benchmarks/index.html", "decisions/journal.html"} <= pages
    assert 'src="https://' not in (tmp_path / "site" / "index.html").read_text()
