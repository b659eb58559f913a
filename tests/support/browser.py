"""A real browser: Chromium's program without windows, where it is there. It takes half the processor time of the whole one."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")


def program() -> str | None:
    """The first of them that is there."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """The browser, as Playwright drives it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        yield browser
        browser.close()
