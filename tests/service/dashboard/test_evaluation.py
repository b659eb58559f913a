"""The page of a job's scores: what is in its table and its pictures, and that people can read it at any width."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from diagnose.decision.scores import Score
from service.dashboard import charts
from service.dashboard.charts import Reading
from service.dashboard.evaluation import plots, table
from tests.service.dashboard.test_dashboard import chromium  # noqa: F401 - the fixture
from tests.support.servers import Server

HOSTILE = "<b>mmlu</b>"
"""a data set that is called so"""


def scores(values: dict[int, float], data_set: str = "gsm8k", metric: str = "acc", attempt: int = 1) -> list[Score]:
    return [Score(attempt, step, data_set, metric, value, 0.01) for step, value in values.items()]


def places(known: list[Score]) -> list[tuple[int, int]]:
    return sorted({(one.attempt, one.step) for one in known})


def test_the_newest_checkpoint_comes_first_and_what_is_missing_is_a_gap() -> None:
    known = scores({100: 0.5, 200: 0.51}) + scores({200: 0.3}, "arc")
    rows = table(known, places(known))
    assert [(row.data_set, [cell and cell.value for cell in row.cells]) for row in rows] == [
        ("arc", [0.3, None]),
        ("gsm8k", [0.51, 0.5]),
    ]


def test_what_fell_at_the_latest_checkpoint_comes_first() -> None:
    known = scores({100: 0.5, 200: 0.3, 300: 0.5}, "arc") + scores({100: 0.5, 200: 0.51, 300: 0.3})
    rows = table(known, places(known))
    assert [(row.data_set, row.fell, [cell is not None and cell.fell for cell in row.cells]) for row in rows] == [
        ("gsm8k", True, [True, False, False]),
        ("arc", False, [False, True, False]),
    ]


def test_a_later_attempt_has_columns_of_its_own() -> None:
    known = scores({100: 0.5, 900: 0.2}) + scores({900: 0.6}, attempt=2)
    (row,) = table(known, places(known))
    assert [cell and cell.value for cell in row.cells] == [0.6, 0.2, 0.5]


def test_a_trend_tells_its_ends_and_its_falls() -> None:
    drawn = charts.trend(
        [Reading(0.5, 0.1, bad, f"step {at}") for at, bad in ((1, False), (2, True), (3, False))], "acc of <x>"
    )
    assert "acc of &lt;x&gt;: from 0.5 (step 1) to 0.5 (step 3); fell at step 2" in drawn
    assert drawn.count("<circle") == 1
    assert "none" in charts.trend([Reading(0.5, 0.1, False, "step 1")], "acc")


def test_parts_fill_the_bar() -> None:
    drawn = charts.shares({"none": 3, "unknown": 1, "framework": 0}, "what", width=200)
    assert 'width="150.0"' in drawn
    assert 'x="150.0" width="50.0"' in drawn
    assert "framework" not in drawn


def test_plots_have_one_metric_each_and_few_lines() -> None:
    known = [one for number in range(9) for one in scores({100: 0.5, 200: 0.5}, f"set{number}")]
    known += scores({100: 0.5, 200: 0.2}, "zz") + scores({100: 9.0, 200: 8.0}, "wiki", "ppl")
    assert [(metric, steps, list(sets)) for metric, steps, sets in plots(known)] == [
        ("acc", [100, 200], ["zz", "set0", "set1", "set2"]),
        ("ppl", [100, 200], ["wiki"]),
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    dice = random.Random(1)
    with Server(tmp_path_factory.mktemp("scores") / "data") as running:
        running.push("llama", b"".join(b"step %d loss %.3f\n" % (one, 5 / one) for one in range(1, 1300)), source="rank0.log")
        running.push("bare", b"step 1 loss 2.0\n", source="rank0.log")
        names = [HOSTILE, *(f"a-data-set-with-a-long-name-{number}" for number in range(14))]
        for step in range(100, 1300, 100):
            body = {"step": step, "path": f"/ckpt/step-{step}"}
            assert running.client.post("/v1/jobs/llama/checkpoints", json=body).status_code == 200
            for number, name in enumerate(names):
                value = 0.3 + step / 4000 + dice.gauss(0, 0.004) - (0.2 if (number, step) == (3, 1200) else 0)
                report = {"step": step, "data_set": name, "metric": "acc,none", "score": value, "noise": 0.01}
                assert running.client.post("/v1/jobs/llama/checkpoints/scores", json=report).status_code == 200
            cost = {
                "step": step, "data_sets": len(names), "missing": int(step == 1100), "took_s": 1800, "expected_s": 1700,
                "loading_s": 2000, "inference_s": 9000, "metric_s": 1500, "failed_s": 100, "waiting_s": 3300,
            }  # fmt: skip
            assert running.client.post("/v1/jobs/llama/checkpoints/evaluations", json=cost).status_code == 200
        yield running


@pytest.fixture
def page(chromium: Any, server: Server) -> Iterator[Any]:  # noqa: F811
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, base_url=f"{server.url}/ui/")
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    yield opened
    context.close()
    assert wrong == []


@pytest.mark.browser
@pytest.mark.parametrize("width", [1920, 1280, 768, 390])
@pytest.mark.parametrize("path", ["jobs/llama/evaluation", "jobs/bare/evaluation"])
def test_it_shows_and_fits(page: Any, path: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    answer = page.goto(path)
    assert answer.status == 200
    assert len(answer.body()) < 300_000
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h1").count() == 1


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["jobs/llama/evaluation", "jobs/bare/evaluation", "jobs/llama"])
def test_no_serious_violation_of_accessibility(page: Any, path: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.emulate_media(color_scheme=scheme)
    page.goto(path)
    found = axe.run(page).response["violations"]
    bad = [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")]
    assert bad == []


@pytest.mark.browser
def test_the_job_leads_there_and_has_the_scores_among_its_plots(page: Any) -> None:
    page.goto("jobs/llama")
    # As soon as the page's script has drawn them; it is an error if there are two.
    page.locator(".plot .u-title", has_text="scores: acc,none").wait_for()
    page.locator(".plot .u-legend", has_text="a-data-set-with-a-long-name-2").wait_for()
    page.click("a:text-is('Scores')")
    page.wait_for_url("**/jobs/llama/evaluation")
    first = page.locator("#scores [data-row]").first
    assert "a-data-set-with-a-long-name-2" in first.inner_text()
    assert "fell" in first.locator("td").nth(1).inner_text()
    assert page.locator("#scores [data-row]").count() == 15
    assert HOSTILE in page.locator("#scores").inner_text(), "a name is text"
    assert "1 without a score" in page.locator("#costs [data-row]").nth(1).inner_text()
    assert "running the model 62 %" in page.locator("#costs [data-row]").first.inner_text().replace("\u00a0", " ")


@pytest.mark.browser
def test_a_job_without_scores_says_how_they_come(page: Any) -> None:
    page.goto("jobs/bare")
    assert page.locator("a:text-is('Scores')").count() == 0
    page.goto("jobs/bare/evaluation")
    assert "No checkpoint was evaluated" in page.locator("main").inner_text()
    assert page.goto("jobs/nobody/evaluation").status == 404


@pytest.mark.browser
def test_an_evaluation_of_nobody_is_refused_and_told_again_counts_once(server: Server) -> None:
    body = {"step": 100, "data_sets": 15, "took_s": 10}
    assert server.client.post("/v1/jobs/nobody/checkpoints/evaluations", json=body).status_code == 404
    assert server.client.post("/v1/jobs/llama/checkpoints/evaluations", json={**body, "took_s": -1}).status_code == 422
    assert server.client.post("/v1/jobs/bare/checkpoints/evaluations", json=body).json()["stored"] is True
    assert server.client.post("/v1/jobs/bare/checkpoints/evaluations", json={**body, "took_s": 77}).status_code == 200
