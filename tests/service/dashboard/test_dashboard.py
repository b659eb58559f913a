"""The pages in a real browser, over a real service with the sample jobs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import select

from diagnose.knowledge.rules import Rule
from diagnose.learning.learned_rule import LearnedRule
from diagnose.learning.rule_store import RuleStore
from diagnose.shipping.destination import Destination
from service import demo
from service.dashboard import routes
from service.store import Store, pages, tables
from tests.conftest import ROOT
from tests.support import browser
from tests.support.servers import Server

playwright = pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.browser
PAGES = """
 shift breakdowns?by=team&sort=change search?q=gpu
 failures failures/1 jobs jobs/job123 jobs/job123/log nodes nodes/gpu-13 actions actions/1 rules rules?line=Killed rules/xid-ecc
 jobs/job123/evaluation model
 jobs/hostile jobs/hostile/log jobs/hostile/raw jobs/job123/raw?source=gpu-13.log jobs?q=nothing-is-called-so
""".split()
NO_PAGES = {"/events", "/assets/{name}", "/jobs/{job}/ticket", "/jobs/{job}/download", "/jobs/{job}/raw/download"}
NO_PAGES |= {"/sign-in/begin", "/sign-in/back"}
"""what answers with a stream, a file, text, or the address of another page"""
HOSTILE = (
    b"<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">\n"
    b"\x1b[2J\x1b]0;taken\x07 RuntimeError: {{ 7*7 }} ${7*7} </script><!-- &lt;\n"
    + "\u202eevil\u202c \u2066isolate\u2069 \u200bzero width\n".encode()
    + b"RuntimeError: " + b"long " * 210_000 + b"\n"
    + b"\xff\xfe invalid \xc3\x28 utf-8 \x00 nul\n"
)  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if browser.program() is None:
        pytest.skip("Chromium is not installed")
    with browser.chromium() as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The sample jobs, one that is hostile, one that runs."""
    folder = tmp_path_factory.mktemp("pages")
    with Server(folder / "data", "--raw-logs", str(folder / "raw")) as running:
        destination = Destination(running.url)
        for name, sources in demo.samples().items():
            # The failure that a test looks for on the overview costs most, so that it is listed however long each job took.
            labels = {"user": "kim", "cluster": "alps", "gpus": "4096" if name == "job123" else "8"}
            ended = not name.startswith("healthy-mega")
            exit_code = 0 if name.startswith("healthy") else 1
            demo.send(destination, demo.Planned(name, 1, labels, sources, 0, 1.0 if ended else None, exit_code))
        running.push("hostile", HOSTILE, source="<b>bold</b>.log", node="gpu-<i>1</i>")
        running.end("hostile", 1)
        for name in demo.samples():
            running.get(f"/v1/jobs/{name}/report")
        yield running


@pytest.fixture
def page(chromium: Any, server: Server) -> Iterator[Any]:
    context = chromium.new_context(
        viewport={"width": 1280, "height": 900}, base_url=f"{server.url}/ui/", timezone_id="Asia/Tokyo"
    )
    opened = context.new_page()
    opened.set_default_timeout(60_000)  # a machine that runs all tests at once is slow
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: said.append(str(error)))
    yield opened
    context.close()
    assert [text for text in said if "Failed to load resource" not in text] == []  # a page that is refused says so itself


@pytest.mark.parametrize("path", ["", *PAGES])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_shows_and_fits(page: Any, path: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    answer = page.goto(path)
    assert answer.status == 200
    assert len(answer.body()) < 300_000
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h1").count() == 1


def test_no_page_is_forgotten() -> None:
    """All pages are in the lists above, from which the tests of widths and of accessibility take them."""
    pages = {route.path: route.path_regex for route in routes() if "GET" in (route.methods or ())}
    assert pages.keys() > NO_PAGES
    seen = ["/" + urlsplit(path).path for path in ("", *PAGES, "sign-in")]
    assert [path for path in pages.keys() - NO_PAGES if not any(pages[path].fullmatch(one) for one in seen)] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", *PAGES, "sign-in"])
def test_no_violation_of_accessibility(page: Any, path: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.emulate_media(color_scheme=scheme)
    page.goto(path)
    found = axe.run(page).response["violations"]
    assert [(one["id"], one["impact"], one["nodes"][0]["html"][:200]) for one in found] == []


def test_hostile_lines_are_text(page: Any) -> None:
    for path in ("jobs/hostile", "jobs/hostile/log", "jobs/hostile/raw", "failures", ""):
        page.goto(path)
        page.wait_for_timeout(200)
        assert "taken" not in page.title()
    page.goto("jobs/hostile/log")
    shown = page.inner_text(".log")
    assert "<script>document.title='taken'</script>" in shown
    assert "{{ 7*7 }}" in shown
    assert "\\u202eevil" in shown
    assert "characters" in shown  # the middle of the line of a megabyte is left out
    assert page.locator(".log script, .log img, .log i").count() == 0


def folded(page: Any) -> tuple[Any, int, int]:
    """The first fold of the log, and the lines that it stands for."""
    fold = page.locator("a[data-fold]").first
    asked = parse_qs(urlsplit(fold.get_attribute("href")).query)
    return fold, int(asked["from"][0]), int(asked["to"][0])


def test_dropped_lines_unfold_in_place_and_fold_again(page: Any) -> None:
    raw = demo.samples()["job123"]["gpu-11.log"].decode().split("\n")
    page.goto("jobs/job123/log?every=1")
    page.evaluate("document.querySelectorAll('a[data-fold]').forEach((a) => a.href.includes('gpu-11') || a.remove())")
    before = page.locator(".log li").count()
    fold, first, last = folded(page)
    assert last > first
    fold.click()
    page.wait_for_selector("li.dropped")
    shown = [text.rstrip() for text in page.locator("li.dropped .text").all_inner_texts()]
    assert shown == [line.rstrip() for line in raw[first - 1 : last]]
    assert page.locator("li.dropped .no").first.inner_text() == str(first)
    assert page.url.endswith("jobs/job123/log?every=1")
    fold.press("Enter")
    assert page.locator(".log li").count() == before


def test_a_fold_of_many_lines_opens_part_by_part(page: Any, server: Server) -> None:
    steps = "".join(f"iteration {step}/9000 | lm loss: 2.{step:04d} | grad norm: 1.0\n" for step in range(1200))
    server.push("long", b"ValueError: one\n" + steps.encode() + b"ValueError: two\n", source="s", offset=0)
    page.goto("jobs/long/log")
    fold, first, last = folded(page)
    assert (first, last) == (2, 1201)
    fold.click()
    for shown in (500, 1000):
        playwright.expect(page.locator("li.dropped")).to_have_count(shown, timeout=60_000)
        page.click("a[data-more]:visible")
    playwright.expect(page.locator("li.dropped")).to_have_count(1200, timeout=60_000)
    assert page.locator("li.dropped .no").last.inner_text() == "1201"
    fold.click()
    assert page.locator("li.dropped").count() == 0


@pytest.mark.parametrize("path", ["log", "raw"])
def test_pages_of_long_lines_go_on_and_stay_small(server: Server, path: str) -> None:
    lines = "".join(f"nobody knows this {number} {'long ' * 900}{number}\n" for number in range(200))
    server.push("long-lines", lines.encode(), source="log", offset=0)
    server.get("/v1/jobs/long-lines/lines", limit=1)
    there, found = f"/ui/jobs/long-lines/{path}", []
    while there:
        answer = server.client.get(there)
        assert len(answer.content) < 200_000
        found += [int(number) for number in re.findall(r'<span class="no">(?:<a [^>]*>)?(\d+)<', answer.text)]
        following = re.search(r'href="([^"]*)" rel="next"', answer.text)
        there = following[1].replace("&amp;", "&") if following else ""
    assert found == list(range(1, 201))
    assert len(server.client.get("/ui/jobs/long-lines").content) < 100_000


def test_without_script_a_fold_is_a_link(chromium: Any, server: Server) -> None:
    context = chromium.new_context(base_url=f"{server.url}/ui/", java_script_enabled=False)
    page = context.new_page()
    page.goto("jobs/job123/log")
    fold, first, last = folded(page)
    fold.click()
    assert page.inner_text("h1") == "Raw log"
    assert page.locator("li.dropped .no").all_inner_texts() == [str(number) for number in range(first, last + 1)]
    context.close()


def test_a_failure_is_found_from_the_overview(page: Any) -> None:
    page.goto("")
    page.click("text=GPU time lost, by reason >> xpath=../.. >> text=ecc error")
    page.click("table a >> nth=0")
    assert "ecc error" in page.inner_text("main")
    page.click("section:has(h2:text('Jobs')) a >> nth=0")
    assert "Xid (PCI:0000:8a:00): 48" in page.inner_text("li.root")
    assert "gpu-13" in page.inner_text("dl.facts")
    page.locator(".uplot").nth(1).wait_for()  # two plots, as soon as the page's script has drawn them


def test_times_are_in_the_viewers_zone(page: Any, server: Server) -> None:
    page.goto("jobs/job123")
    started = server.get("/v1/jobs/job123")["attempts"][0]["started_at"]
    time = page.locator("dt:text('Started') + dd time")
    expected = page.evaluate(
        "at => new Intl.DateTimeFormat(undefined, {month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit'})"
        ".format(new Date(at * 1000))",
        started,
    )
    assert time.inner_text() == expected
    assert "GMT+9" in time.get_attribute("title")


def test_a_running_job_is_followed(page: Any, server: Server) -> None:
    server.push("live-one", b"".join(b"step %d loss 2.5\n" % n for n in range(5)) + b"hello first\n")
    page.goto("jobs/live-one")
    page.wait_for_selector("#live:not(.lost)")
    assert "hello first" in page.inner_text("#tail")
    server.push("live-one", b"something quite new was said\nRuntimeError: it broke\n")
    page.wait_for_selector("#tail >> text=something quite new was said")
    page.wait_for_selector("#tail li.evidence >> text=it broke")
    server.end("live-one", 1)
    page.wait_for_selector(".head .tag.failed", timeout=60_000)


def test_pages_come_back_after_a_restart(chromium: Any, tmp_path: Path) -> None:
    with Server(tmp_path / "data") as running:
        running.push("one", b"hello\n")
        context = chromium.new_context(base_url=f"{running.url}/ui/")
        page = context.new_page()
        page.goto("jobs/one")
        page.wait_for_selector("#live:not(.lost)")
        running.kill()
        page.wait_for_selector("#live.lost")
        running.start()
        page.wait_for_selector("#live:not(.lost)", timeout=30_000)
        running.push("one", b"after the restart\n")
        page.wait_for_selector("#tail >> text=after the restart", timeout=60_000)
        context.close()


def test_keys(page: Any) -> None:
    page.goto("failures")
    page.keyboard.press("j")
    page.keyboard.press("j")
    second = page.locator("[data-row][data-at] a").first
    target = second.get_attribute("href")
    assert target == page.locator("[data-row]").nth(1).locator("a").first.get_attribute("href")
    page.evaluate("fetchParts()")  # the page renews itself: who is on a row stays there
    page.wait_for_function("href => document.activeElement.getAttribute('href') === href", arg=target)
    assert second.get_attribute("href") == target
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{target}")
    page.keyboard.press("?")
    page.wait_for_selector("#keys")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/ui/jobs")
    page.keyboard.press("/")
    page.keyboard.type("job123")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=job123**")
    page.wait_for_function("document.querySelectorAll('[data-row]').length === 1")


def test_colours_are_remembered(page: Any) -> None:
    page.goto("")
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark == "rgb(14, 18, 24)"


def test_without_script_pages_read_and_forms_work(chromium: Any, server: Server) -> None:
    context = chromium.new_context(base_url=f"{server.url}/ui/", java_script_enabled=False)
    page = context.new_page()
    page.goto("")
    assert "Failures over time" in page.inner_text("main")
    page.goto("failures")
    page.fill("[name=q]", "memory error")
    page.click("button:text('Apply')")
    page.click("[data-row] a >> nth=0")
    page.fill("textarea[name=note]", "looked at by <b>kim</b>")
    page.select_option("select[name=state]", "resolved")
    page.click("button:text('Save')")
    assert "Saved." in page.inner_text("main")
    assert page.input_value("textarea[name=note]") == "looked at by <b>kim</b>"
    assert page.locator("time").first.inner_text()
    context.close()


def test_without_script_every_page_reads(chromium: Any, server: Server) -> None:
    context = chromium.new_context(base_url=f"{server.url}/ui/", java_script_enabled=False)
    page = context.new_page()
    for path in ("", *PAGES):
        assert page.goto(path).status == 200
        assert page.locator("h1").inner_text()
        assert len(page.inner_text("main")) > 40
        assert page.inner_text("#live") == "no script"
    page.goto("jobs/job123")
    assert page.locator("noscript svg.spark").count() >= 2  # the plots, drawn by the service
    assert page.locator("#timeline svg.lane").count() == 1
    context.close()


def test_a_diagnosis_is_corrected(page: Any, server: Server) -> None:
    page.goto("jobs/unknown")
    page.select_option("select[name=reason]", "storage_error")
    page.fill("form.stack textarea", "the file server was rebooted")
    page.click("button:text('Correct the diagnosis')")
    page.wait_for_selector("text=the correction is stored")
    found = server.get("/v1/corrections")["corrections"][0]
    assert (found["job"], found["category"], found["reason"]) == ("unknown", "infrastructure", "storage_error")
    store = Store.in_folder(server.data)
    wanted = store.read(lambda connection: connection.execute(select(tables.tasks.c.kind, tables.tasks.c.ref)).all())
    store.close()
    assert ("confirm", f"correction/{found['id']}") in [tuple(row) for row in wanted]  # the agent learns from it


ORIGIN = {"by": "model", "model": "llama-3.1-8b", "prompt": "filter@5f3c", "votes": [6, 7], "job": "train-<b>1</b>"}


def test_a_learned_rule_is_promoted_and_the_record_says_by_whom(page: Any, server: Server) -> None:
    store = Store.in_folder(server.data)
    rule = Rule(id="r1", family="filters", pattern="^one two [0-9]+", kind="debug", file="learned")
    RuleStore(store).add(LearnedRule(rule, "shadow", provenance=ORIGIN, lines=("one two 3",), created=1.0, changed=1.0))
    page.on("dialog", lambda dialog: dialog.accept())
    listed = page.context.new_page()
    listed.goto("rules?state=&q=r1")
    listed.wait_for_selector("#live:not(.lost)")
    row = listed.locator("#rules [data-row]", has=listed.locator("a:text-is('r1')"))
    assert row.locator(".tag").inner_text() == "shadow"
    page.goto("rules/r1")
    facts = page.inner_text("#facts")
    for value in ("llama-3.1-8b", "filter@5f3c", "[6, 7]", "train-<b>1</b>"):
        assert value in facts
    page.click("button:text('Promote')")
    page.wait_for_selector("text=rule.promoted")
    row.locator(".tag.active").wait_for()  # the list heard of it by itself
    page.click("button:text('Retire')")
    page.wait_for_selector("text=rule.retired")
    trail = store.read(lambda connection: pages.actions.trail(connection, "rule/r1"))
    store.close()
    said = [(row["who"], row["what"], row["detail"]["was"]) for row in trail]
    assert said == [("local", "rule.retired", "active"), ("local", "rule.promoted", "shadow")]


def test_an_action_is_approved(chromium: Any, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("mode: approve\n")
    with Server(tmp_path / "data", "--policy", str(tmp_path / "policy.yaml")) as running:
        context = chromium.new_context(base_url=f"{running.url}/ui/")
        page = context.new_page()
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto("")
        page.wait_for_selector("#live:not(.lost)")
        running.push(
            "one", b"step 1 loss 2\nRuntimeError: CUDA error: an illegal memory access was encountered\n", node="gpu-1"
        )
        running.end("one", 1)
        page.wait_for_selector("#figures dd:text('1')", timeout=60_000)
        page.goto("actions")
        page.click("button:text('Approve')", timeout=60_000)
        page.wait_for_selector("text=Approved, but nothing can carry it out")
        assert "approved" in page.inner_text(".head")
        assert "How it was decided" in page.inner_text("main")
        page.goto("jobs/one")
        assert "restart" in page.inner_text("#verdict")
        page.goto("nodes/gpu-1")
        page.fill("[name=why]", "<i>broken</i> fan")
        page.click("button:text('Isolate')")
        page.wait_for_selector("text=Approved, but nothing can carry it out")
        asked = running.get("/v1/actions")["actions"][0]
        assert (asked["kind"], asked["nodes"], asked["why"], asked["state"]) == (
            "isolate",
            ["gpu-1"],
            "<i>broken</i> fan",
            "approved",
        )
        context.close()


def test_who_may_read_sees_no_button_and_who_is_unknown_signs_in(chromium: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    secrets = {role: _token(data, role) for role in ("read", "operate", "ingest")}
    with Server(data) as running:
        sender = {"Authorization": f"Bearer {secrets['ingest']}"}
        running.client.post("/v1/jobs/one/logs", content=b"NameError: name 'x' is not defined\n", headers=sender)
        running.client.post("/v1/jobs/one/end", json={"exit_code": 1}, headers=sender)
        context = chromium.new_context(base_url=f"{running.url}/ui/")
        page = context.new_page()
        page.goto("jobs/one?attempt=1")
        assert "/ui/sign-in" in page.url
        page.fill("[name=token]", "dgn_wrong")
        page.click("main button")
        assert "did not work" in page.inner_text("main")
        page.fill("[name=token]", secrets["read"])
        page.click("main button")
        page.wait_for_url("**/ui/jobs/one?attempt=1")
        cookie = context.cookies()[0]
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert page.locator("main form[method=post], main button.primary").count() == 0
        page.click("text=Sign out")
        page.wait_for_url("**/ui/sign-in")
        page.fill("[name=token]", secrets["operate"])
        page.click("main button")
        page.goto("failures/1")
        assert page.locator("main form[method=post]").count() == 2  # state and note, and what is wrong about the diagnosis
        word = page.locator("main [name=csrf]").first.input_value()
        jar = {"Cookie": f"diagnose={secrets['operate']}"}
        form = {"state": "ignored", "note": ""}
        for given, status in (({}, 403), ({"csrf": "0" * 40}, 403), ({"csrf": word}, 303)):
            answer = running.client.post("/ui/failures/1", data={**form, **given}, headers=jar)
            assert answer.status_code == status, answer.text
        # The cookie does not travel with a form of another site; should it, the form is refused all the same.
        elsewhere = {"Sec-Fetch-Site": "cross-site"}
        answer = running.client.post("/ui/failures/1", data={**form, "csrf": word}, headers={**elsewhere, **jar})
        assert answer.status_code == 403
        context.close()


def _token(data: Path, role: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "diagnose", "tokens", "create", role, "--role", role, "--data", str(data)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    found = re.search(r"dgn_\S+", done.stdout)
    assert found is not None
    return found[0]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("jobs/none-such", 404, "no such job"),
        ("jobs/..%2f..%2fetc", 404, "no such page"),
        ("jobs/a%20b", 400, "not the name of a job"),
        ("failures/99999", 404, "no such failure group"),
        ("failures/x", 404, "no such failure group"),
        ("nodes/none", 404, "no such node"),
        ("actions/0", 404, "no such action"),
        ("rules/none", 404, "no such rule"),
        ("nothing", 404, "no such page"),
        ("jobs?before=x", 400, "not a place"),
        ("jobs/job123?attempt=7", 404, "no attempt 7"),
    ],
)
def test_what_is_not_there_is_said(page: Any, path: str, status: int, words: str) -> None:
    answer = page.goto(path)
    assert answer.status == status
    assert words in page.inner_text("main").lower()
    page.click("text=To the overview")
    page.wait_for_url("**/ui/")


def test_it_works_behind_a_prefix(chromium: Any, tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--root-path", "/clusters/alps") as running:
        running.push("one", b"hello\n")
        answer = running.client.get("/clusters/alps/ui/jobs/one")
        text = answer.text if answer.status_code == 200 else running.client.get("/ui/jobs/one").text
        addresses = re.findall(r'(?:href|src|action)="([^"]+)"', text)
        assert addresses
        assert [one for one in addresses if one.startswith("/") and not one.startswith("/clusters/alps/")] == []


def test_the_source_that_is_meant_is_chosen_among_many(page: Any, server: Server) -> None:
    for number in range(204):
        server.push("wide", b"starting\n", source=f"rank-{number}", offset=0)
    server.push(
        "wide", b"starting\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n", source="<b>  last", offset=0
    )
    server.end("wide", 1)
    assert server.get("/v1/jobs/wide/report")["diagnosis"]["root_cause"]["source"] == "<b>  last"
    page.goto("jobs/wide")
    assert page.locator("select[name=source]").input_value() == "<b>  last"
    assert page.locator("select[name=source] option:not(:disabled)").count() == 200
    assert page.locator("select[name=source] option:disabled").inner_text() == "5 more: through the API"
    page.goto("jobs/wide/raw?source=rank-203")
    assert page.locator("select[name=source]").input_value() == "rank-203"
    page.click("button:text('Show')")
    assert "source=rank-203" in page.url
