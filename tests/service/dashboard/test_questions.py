"""What a shift asks, over the week of ``diagnose demo``: from the start page two clicks at most, and the answer stands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.answerer import Answerer, by_chance
from tests.conftest import ROOT
from tests.service.dashboard.test_dashboard import chromium  # noqa: F401 - the fixture

pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """The address of its pages. The model knows nothing and guesses."""
    words = [sys.executable, "-m", "diagnose", "demo", "--no-browser", "--jobs", "100"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Answerer(by_chance(7)) as answerer:
        process = subprocess.Popen([*words, "--llm", answerer.url], stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, "the demonstration did not start"
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


class Visitor:
    """Somebody on the start page, who clicks or chooses twice at most."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self._left = page, 2
        page.goto(address)

    def click(self, what: str) -> Visitor:
        self._count()
        with self.page.expect_navigation():
            self.page.locator(what).first.click()
        return self

    def choose(self, field: str, value: str) -> Visitor:
        self._count()
        with self.page.expect_navigation():
            self.page.select_option(f"select[name={field}]", value)
        return self

    def _count(self) -> None:
        self._left -= 1
        assert self._left >= 0, "a third click"

    def read(self, what: str) -> str:
        return " ".join(self.page.locator(what).first.inner_text().split())

    def until(self, ready: Callable[[], bool]) -> None:
        """What comes in the background (answers of a model) is waited for."""
        deadline = time.monotonic() + 180
        while not ready():
            assert time.monotonic() < deadline, self.read("main")
            time.sleep(1)
            self.page.reload()

    def rows(self, part: str) -> list[list[str]]:
        """The cells of a table, row by row."""
        cells = "all => all.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
        return list(self.page.locator(f"{part} tbody tr").evaluate_all(cells))


@pytest.fixture
def visitor(chromium: Any, demo: str) -> Iterator[Visitor]:  # noqa: F811
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    context.set_default_timeout(60_000)
    yield Visitor(context.new_page(), demo)
    context.close()


def test_what_did_the_service_do_by_whose_word_and_was_it_right(visitor: Visitor) -> None:
    visitor.click("nav >> text=Shift").choose("range", "7d")
    figures, rows = visitor.read("#figures"), visitor.rows("#done")
    told = re.search(r"Done (\d+) (\d+) by the policy, (\d+) by people", figures)
    assert told is not None, figures
    done, by_policy, by_people = map(int, told.groups())
    assert done == by_policy + by_people > 0
    right = re.search(r"It was right (\d+) (\d+) failed in the same way", figures)
    assert right is not None, figures
    assert 0 < int(right[1]) + int(right[2]) <= done
    actions, states, jobs, who, then = list(zip(*rows, strict=True))[:5]
    assert {"succeeded"} <= set(states)
    assert all(actions)
    assert all(jobs)
    assert all(who)
    assert any(re.match(r"Attempt \d got past step|Attempt \d ended: healthy", one) for one in then), then


def test_what_did_the_model_learn_and_can_it_be_trusted(visitor: Visitor) -> None:
    visitor.click("nav >> text=Model")
    visitor.until(lambda: re.search(r"Was right \d+ of [1-9]", visitor.read("#figures")) is not None)
    figures = visitor.read("#figures")
    assert re.search(r"Questions [1-9]\d* ", figures), figures
    assert re.search(r"Agreed with the rules \d+ of [1-9]", figures), figures
    assert re.search(r"Was right \d+ of [1-9]\d* of which the truth is known", figures), figures
    assert re.search(r"Rules that came of it \d+", figures), figures
    name, _, right, wrong, trust, _ = visitor.rows("#record")[0]
    assert name == "answerer"
    assert int(right) + int(wrong) > 0
    assert trust.endswith("%")
    assert len(visitor.rows("#differ")) > 0
    assert "No rule yet" in visitor.read("#rules"), "a model that guesses teaches nothing"


def test_is_this_failure_new_since_yesterdays_image(visitor: Visitor) -> None:
    visitor.click("nav >> text=Failures").click("#groups [data-row] a")
    assert re.search(r"with the image train:25\.1[01]|Of the latest: .*train:25\.1[01]", visitor.read("#images"))
    assert re.search(r"First seen \S+ \d+, \d+:\d+", visitor.read("#figures"))


@pytest.mark.parametrize("by", ["user", "team", "framework", "image", "cluster"])
def test_who_loses_most(visitor: Visitor, by: str) -> None:
    visitor.click("nav >> text=Breakdowns").choose("by", by)
    rows = visitor.rows("#rows")
    assert all(row[0] not in ("", "not told") for row in rows)
    failures = [int(row[4]) for row in rows]
    assert sum(failures) > 0
    hours = [_number(row[1]) for row in rows]
    assert hours == sorted(hours, reverse=True)


def test_is_it_getting_better(visitor: Visitor) -> None:
    visitor.click("nav >> text=Breakdowns").choose("range", "24h")
    changes = {row[3] for row in visitor.rows("#rows")}
    assert any(re.fullmatch(r"[+-]\d+%|new|gone", change) for change in changes), changes


def _number(text: str) -> float:
    value, _, unit = text.partition("\N{NO-BREAK SPACE}")
    return float(value.replace(",", "")) * {"": 1, "k": 1e3, "M": 1e6}[unit]


def test_was_it_the_nodes_fault(visitor: Visitor) -> None:
    visitor.click("nav >> text=Jobs").click("#jobs [data-row]:has-text('failed') a")
    assert re.match(r"Was it the node's fault\? (yes|no|cannot tell) Because \w", visitor.read("#fault"))


def test_what_did_this_node_do_before(visitor: Visitor) -> None:
    visitor.click("nav >> text=Nodes").click("#worst a, #nodes [data-row] a, [data-row] a")
    marks = visitor.page.locator("#axis svg a").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    assert any(re.search(r", attempt \d: ", mark) for mark in marks), "jobs that ran there"
    assert any(re.search(r"^\w[\w ]* of ", mark) for mark in marks), "failures"
    assert visitor.rows("#history")
    assert re.search(r"Failures [1-9]", visitor.read("#figures"))


def test_may_i_approve_this(visitor: Visitor) -> None:
    visitor.click("nav >> text=Actions").click("[data-row] a[href*='/actions/']")
    said = visitor.read("main")
    for asked in ("If you approve", "It touches", "If nobody answers"):
        assert asked in said
