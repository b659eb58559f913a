"""Pictures of all pages, wide and narrow, light and dark, and printed: ``python -m benchmarks.screenshots DIR``.

It starts ``diagnose demo`` (a week of sample jobs through the real service) and takes them with this machine's Chromium. It
needs the package playwright (the extra ``test``). The model of the demonstration is ``benchmarks.answerer``, which guesses. So
the page of the model shows what a model comes to that knows nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.answerer import Answerer, by_chance
from benchmarks.measure import ROOT
from tests.support.browser import chromium, program

IMAGES = ROOT / "docs" / "images"
PAGES = {
    "overview": "",
    "failures": "failures",
    "failure": "failures/{group}",
    "jobs": "jobs",
    "risk": "jobs?state=at_risk",
    "job": "jobs/{job}?attempt={attempt}",
    "log": "jobs/{job}/log",
    "evaluation": "jobs/{scored}/evaluation",
    "scored": "jobs/{scored}",
    "nodes": "nodes",
    "node": "nodes/{node}",
    "actions": "actions",
    "action": "actions/{action}",
    "rules": "rules?line=NVRM%3A+Xid+%28PCI%3A0000%3A3b%3A00%29%3A+79%2C+GPU+has+fallen+off+the+bus.",
    "rule": "rules/xid-ecc",
    "shift": "shift?range=7d",
    "breakdowns": "breakdowns?by=cluster&range=24h",
    "image": "failures?image=train:25.11&new=yes",
    "search": "search?q=gpu",
    "model": "model",
    "sign-in": "sign-in",
}
DOCUMENTS = {
    **{
        name: name for name in ("overview", "job", "shift", "action", "node", "failure", "breakdowns", "risk", "image", "model")
    },
    "ranks": "job",
}
"""picture in docs/images -> its page; that of ranks is a part of one"""
WIDTHS = (1920, 1280, 768, 390)
_PATIENCE_MS = 180_000.0
_LONG = 2000
"""high enough for what was done in a week of the demonstration"""
_PAPER = 794
"""A4, at 96 dots per inch"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="where they go (not with --documents)")
    parser.add_argument("--documents", action="store_true", help="only make the pictures of docs/images anew")
    parser.add_argument("--widths", nargs="*", type=int, default=WIDTHS)
    parser.add_argument("--pages", nargs="*", default=list(PAGES), choices=list(PAGES))
    chosen = parser.parse_args(arguments)
    if chosen.documents == (chosen.folder is not None):
        parser.error("give a folder, or --documents")
    if program() is None:
        sys.exit("there is no Chromium on this machine")
    if not chosen.documents:
        chosen.folder.mkdir(parents=True, exist_ok=True)
    with Answerer(by_chance(7)) as answerer, chromium() as browser:
        words = [sys.executable, "-m", "diagnose", "demo", "--no-browser", "--jobs", "150", "--llm", answerer.url]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            base = process.stdout.readline().strip()
            ids = _ids(browser, base)
            time.sleep(5)  # so that some live lines have come
            if chosen.documents:
                _documents(browser, base, ids)
                return 0
            for scheme in ("light", "dark"):
                for width in chosen.widths:
                    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
                    context.set_default_timeout(_PATIENCE_MS)
                    page = context.new_page()
                    for name in chosen.pages:
                        page.goto(base + PAGES[name].format(**ids))
                        page.wait_for_timeout(600)
                        page.screenshot(path=str(chosen.folder / f"{name}-{width}-{scheme}.png"), full_page=True)
                    context.close()
            paper = browser.new_context(viewport={"width": _PAPER, "height": 1123})
            paper.set_default_timeout(_PATIENCE_MS)
            page = paper.new_page()
            for name in chosen.pages:
                page.goto(base + PAGES[name].format(**ids))
                page.wait_for_timeout(600)
                page.emulate_media(media="print")
                page.screenshot(path=str(chosen.folder / f"{name}-print.png"), full_page=True)
                page.emulate_media(media="screen")
            paper.close()
        finally:
            process.terminate()
            process.wait()
    return 0


def _documents(browser: Any, base: str, ids: dict[str, str]) -> None:
    """As high as their content, up to a screen."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page.set_default_timeout(_PATIENCE_MS)
    page.goto(base + PAGES["risk"])
    page.wait_for_selector("#jobs [data-row]", timeout=_PATIENCE_MS)  # the page renews itself
    for picture, name in DOCUMENTS.items():
        page.goto(base + PAGES[name].format(**ids))
        page.wait_for_timeout(1000)
        path = str(IMAGES / f"{picture}.png")
        if picture == "ranks":
            page.locator("#ranks").screenshot(path=path)
            continue
        high = page.evaluate("document.querySelector('main').getBoundingClientRect().bottom + scrollY")
        most = _LONG if picture == "shift" else 900
        page.screenshot(path=path, clip={"x": 0, "y": 0, "width": 1280, "height": min(most, high)}, full_page=True)
    page.close()


def _ids(browser: Any, base: str) -> dict[str, str]:
    """One of each kind: what a person would click on first."""
    page = browser.new_page()
    page.set_default_timeout(_PATIENCE_MS)
    found = {}

    def last(link: Any) -> str:
        return str(urlsplit(link.get_attribute("href")).path.rpartition("/")[2])

    page.goto(f"{base}failures?reason=ecc_error")
    found["group"] = last(page.locator("[data-row] a").first)
    page.goto(f"{base}failures/{found['group']}")
    failed = page.locator("section:has(h2:text('Jobs')) [data-row] a").first
    found["job"] = last(failed)
    # A later attempt may have failed of something else.
    found["attempt"] = parse_qs(urlsplit(failed.get_attribute("href")).query).get("attempt", ["1"])[0]
    until = time.monotonic() + _PATIENCE_MS / 1000
    while "scored" not in found:  # on a busy machine its scores come late
        page.goto(f"{base}jobs?state=running")
        names = [last(link) for link in page.locator("[data-row] td:first-child a").all()]
        if (scored := next((name for name in names if _is_scored(page, base, name)), None)) is not None:
            found["scored"] = scored
        elif time.monotonic() > until:
            sys.exit("no running job of the demonstration has scores")
    page.goto(f"{base}nodes")
    found["node"] = last(page.locator("[data-row] a").first)
    page.goto(f"{base}actions?state=proposed")
    proposed = page.locator("[data-row] a[href*='/actions/']")
    isolating = page.locator("[data-row]:has-text('isolate') a[href*='/actions/']")
    found["action"] = last((isolating if isolating.count() else proposed).last)
    page.close()
    return found


def _is_scored(page: Any, base: str, name: str) -> bool:
    page.goto(f"{base}jobs/{name}/evaluation")
    return bool(page.locator("#scores").count())


if __name__ == "__main__":
    sys.exit(main())
