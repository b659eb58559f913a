"""What the pages show, part by part: filters, live numbers, timelines, node checks, evidence, great groups, tokens that end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from service.store import Store, tables
from service.store.tokens import create
from tests.service.dashboard.test_dashboard import chromium  # noqa: F401 - the fixture
from tests.support.servers import Server

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser

ECC = (
    b"[gpu-1] NVRM: Xid (PCI:0000:8a:00): 48, pid=4711, name=python, Ch 00000008\nRuntimeError: CUDA error: uncorrectable ECC\n"
)
NAME = b"""Traceback (most recent call last):
  File "train.py", line 3, in <module>
    run(x)
NameError: name 'x' is not defined
"""
STEPS = b"".join(b"step %d loss %.3f\n" % (number, 5 / number) for number in range(1, 40))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two jobs that failed and two that run, on two clusters."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "policy.yaml").write_text("mode: approve\n")
    with Server(folder / "data", "--policy", str(folder / "policy.yaml")) as running:
        for job, log, cluster, user, node, exit_code in (
            ("lost-ecc", STEPS + ECC, "alps", "kim", "gpu-1", 1),
            ("lost-name", NAME, "delta", "bo", "gpu-2", 1),
            ("runs-a", STEPS, "alps", "kim", "gpu-1", None),
            ("runs-b", STEPS, "delta", "bo", "gpu-2", None),
        ):
            labels = {"label.cluster": cluster, "label.user": user, "label.gpus": "8", "label.image": "train:1"}
            running.push(job, log, source=f"{node}.log", node=node, **labels)
            if exit_code is not None:
                running.end(job, exit_code)
                running.get(f"/v1/jobs/{job}/report")
        eventually(lambda: len(running.get("/v1/actions")["actions"]) >= 1)
        for job in ("runs-a", "runs-b"):  # what the filters ask for is stored
            eventually(lambda job=job: running.get(f"/v1/jobs/{job}")["attempts"][0]["step"] == 39)
        yield running


@pytest.fixture
def page(chromium: Any, server: Server) -> Iterator[Any]:  # noqa: F811
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, base_url=f"{server.url}/ui/")
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("dialog", accept)
    yield opened
    context.close()
    assert wrong == []


def accept(dialog: Any) -> None:
    dialog.accept()


def eventually(ready: Any, within_s: float = 120.0) -> None:
    """The set-up of all tests here waits so, on a machine that may be busy with other tests: patience costs nothing."""
    deadline = time.monotonic() + within_s
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def figure(page: Any, name: str) -> str:
    found = page.locator(f"#figures dt:text-is('{name}') + dd").inner_text().split()
    return str(found[0])


def links(page: Any, part: str) -> set[str]:
    return {text.strip() for text in page.locator(f"#{part} [data-row] td:first-child a").all_inner_texts()}


CLIPPED = """() => [...document.querySelectorAll("main button, .top nav a")].filter((one) => {
  const its = one.getBoundingClientRect();
  const room = (one.closest(".panel, .top") || document.body).getBoundingClientRect();
  const lines = its.height / parseFloat(getComputedStyle(one).lineHeight);
  const hidden = one.matches("nav a") && one.parentNode.scrollWidth > one.parentNode.clientWidth + 1;
  return its.width > 0 && (its.left < room.left - 1 || its.right > room.right + 1 || hidden || lines > 2.9);
}).map((one) => one.textContent)"""
"""controls that are cut off, or broken into several lines"""


@pytest.mark.parametrize("width", [390, 599, 768, 900, 1001, 1100, 1170, 1280, 1920])
def test_no_control_is_cut_off_at_any_width(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for path in ("", "actions", "nodes/gpu-1", "jobs", "failures"):
        page.goto(path)
        assert (path, page.evaluate(CLIPPED)) == (path, [])
        assert page.evaluate("document.documentElement.scrollWidth") <= width


LONG_NAMES = """() => {
  for (const one of document.querySelectorAll("td[data-name=job] a")) one.textContent = "moe-8x22b-dmitri-4169";
  for (const one of document.querySelectorAll("td .line")) one.textContent = "[rank0]: RuntimeError: CUDA error: ".repeat(9);
}"""
"""as long as they are where many jobs run"""
LINES_OF_NAMES = """() => [...document.querySelectorAll("td[data-name=job] a")].map(
  (one) => Math.round(one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight)))"""


@pytest.mark.parametrize("width", [390, 768, 1001, 1201, 1280, 1401, 1920])
def test_with_names_of_usual_length_nothing_of_an_action_is_cut_off(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("actions")
    page.evaluate(LONG_NAMES)
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width in (768, 1920):
        assert set(page.evaluate(LINES_OF_NAMES)) == {1}, "there is room for a name in one line"


ALONE = """() => [...document.querySelectorAll("table.cards tbody tr")].filter((row) => {
  if (row.querySelector(".full, .acts, .twice")) return false;
  const tops = [...row.cells].slice(1).map((cell) => Math.round(cell.getBoundingClientRect().top));
  return tops.length > 2 && tops.filter((top) => top === tops.at(-1)).length === 1;
}).map((row) => row.innerText)"""
"""rows of a table whose last cell stands alone in a line"""


@pytest.mark.parametrize("width", [620, 768, 900])
def test_no_cell_of_a_row_stands_alone_in_a_line(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for path in ("", "rules", "breakdowns", "jobs", "failures", "failures/1", "search?q=e", "jobs/lost-ecc"):
        page.goto(path)
        assert (path, page.evaluate(ALONE)) == (path, [])


ROOM = """() => [...document.querySelectorAll("td .line")].filter((one) => {
  const cell = one.parentNode, inner = getComputedStyle(cell);
  const room = cell.clientWidth - parseFloat(inner.paddingLeft) - parseFloat(inner.paddingRight);
  return Math.abs(one.clientWidth - room) > 1;
}).map((one) => one.textContent)"""
"""lines of logs that are cut off although their cell has room, or that are wider than it"""


@pytest.mark.parametrize("width", [390, 768, 1280, 1920])
def test_a_line_in_a_table_takes_the_room_that_its_cell_has(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for path in ("", "failures", "actions", "rules", "jobs/lost-ecc"):
        page.goto(path)
        assert page.locator("td .line").count() or path.startswith("jobs"), path
        assert (path, page.evaluate(ROOM)) == (path, [])


PAST_THE_EDGE = """() => [...document.querySelectorAll(".plot")].filter((one) => {
  const inner = getComputedStyle(one), its = one.getBoundingClientRect();
  return one.querySelector(".uplot").getBoundingClientRect().right > its.right - parseFloat(inner.paddingRight) + 1;
}).length"""


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_a_plot_ends_where_its_panel_does(page: Any, width: int) -> None:
    """The last step's number and the checkpoint above it were cut off."""
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("jobs/lost-ecc")
    page.wait_for_selector(".plot canvas")
    assert page.evaluate(PAST_THE_EDGE) == 0


def test_a_list_without_times_has_no_older_page(page: Any) -> None:
    page.goto("rules")
    page.locator("a[rel=next]", has_text="More").click()
    page.wait_for_url("**before=**")
    assert page.locator("a[rel=prev]").inner_text() == "← First"
    page.goto("rules/xid-ecc")
    assert page.locator("#facts a[href='https://docs.nvidia.com/deploy/xid-errors/']").count() == 1


def test_on_paper_there_is_nothing_to_press_or_to_open(page: Any) -> None:
    page.emulate_media(media="print")
    page.goto("jobs/lost-ecc")
    assert page.get_by_text("What to do").is_visible()
    assert not page.get_by_text("Is this wrong?").is_visible(), "a form without its fields"
    assert page.locator("details:not([open])").first.evaluate("one => one.getClientRects().length") == 0
    page.goto("shift")
    assert page.locator("#over-time svg").is_visible()
    assert not page.get_by_text("A bar leads to its failures").is_visible()


def test_colours_of_bars_are_told_wherever_failures_are_drawn(page: Any) -> None:
    for path in ("", "shift", "breakdowns", "failures"):
        page.goto(path)
        assert page.locator("#over-time .legend").inner_text().split() == ["infrastructure", "framework", "script", "unknown"]


def accessible(page: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")] == []


@pytest.mark.parametrize(
    ("asked", "failures", "reasons", "running"),
    [
        ("", 2, {"ecc error", "name error"}, {"runs-a", "runs-b"}),
        ("?cluster=alps", 1, {"ecc error"}, {"runs-a"}),
        ("?user=bo", 1, {"name error"}, {"runs-b"}),
        ("?category=script", 1, {"name error"}, {"runs-a", "runs-b"}),
        ("?reason=ecc_error", 1, {"ecc error"}, {"runs-a", "runs-b"}),
        ("?node=gpu-1", 1, {"ecc error"}, {"runs-a"}),
        ("?cluster=alps&user=bo", 0, set(), set()),
        ("?range=1h", 2, {"ecc error", "name error"}, {"runs-a", "runs-b"}),
    ],
)
def test_filters_hold_for_all_of_the_overview(
    page: Any, asked: str, failures: int, reasons: set[str], running: set[str]
) -> None:
    page.goto(asked)
    assert figure(page, "Failures") == str(failures)
    assert figure(page, "Open incidents") == str(failures)
    assert figure(page, "GPU time lost") == ("0" if not failures else figure(page, "GPU time lost"))
    assert links(page, "pareto") == reasons
    assert page.locator("#incidents [data-row]").count() == failures
    assert figure(page, "Running jobs") == str(len(running))
    assert links(page, "running") == running
    waiting = page.locator("#waiting [data-row]").count()
    assert figure(page, "Waiting for approval") == str(waiting)
    assert waiting == (1 if "ecc error" in reasons else 0)


def test_filters_live_in_the_address(page: Any) -> None:
    page.goto("")
    page.select_option("[name=cluster]", "delta")
    page.wait_for_url("**cluster=delta**")
    page.select_option("[name=category]", "script")
    page.wait_for_url("**category=script**")
    assert "cluster=delta" in page.url
    assert figure(page, "Failures") == "1"
    page.select_option("[name=range]", "24h")
    page.wait_for_url("**range=24h**")
    page.reload()
    assert page.input_value("[name=cluster]") == "delta"
    assert page.input_value("[name=range]") == "24h"


def test_a_bar_leads_to_the_failures_of_its_time(page: Any) -> None:
    page.goto("?range=24h&cluster=alps")
    bars = page.locator("#over-time svg a")
    assert bars.count() in (1, 2)
    accessible(page)
    bars.last.click()
    page.wait_for_url("**/failures?cluster=alps&from=*&to=*")
    assert page.locator("#groups [data-row]").count() == 1
    assert "ecc error" in page.locator("#groups [data-row]").inner_text()
    page.goto("?range=24h")
    page.locator("#pareto a", has_text="name error").click()
    page.wait_for_url("**/failures?range=24h&reason=name_error")
    assert page.locator("#groups [data-row]").count() == 1


def test_a_time_that_is_drawn_over_the_chart_stands_in_the_address(page: Any) -> None:
    page.goto("?range=7d&cluster=alps")
    box = page.locator("#over-time svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.4)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.4, steps=4)
    assert page.locator("#over-time .drawn").count() == 1
    page.mouse.up()
    page.wait_for_url("**from=*")
    asked = dict(re.findall(r"(\w+)=([^&]+)", page.url))
    assert set(asked) == {"from", "to", "cluster"}
    assert (int(asked["to"]) - int(asked["from"])) % 21600 == pytest.approx(0, abs=2)  # whole bars of six hours
    assert 86400 < int(asked["to"]) - int(asked["from"]) < 2 * 86400
    assert figure(page, "Failures") == "0"
    accessible(page)
    page.locator("#period a", has_text="after").click()
    page.locator("#period a", has_text="after").click()
    eventually(lambda: figure(page, "Failures") == "1")
    page.select_option("[name=range]", "24h")  # a named time takes its place
    page.wait_for_url("**range=24h**")
    assert figure(page, "Failures") == "1"


def test_without_script_the_chosen_time_holds_when_filters_change(server: Server, chromium: Any) -> None:  # noqa: F811
    context = chromium.new_context(base_url=f"{server.url}/ui/", java_script_enabled=False)
    page = context.new_page()
    now = int(time.time())
    page.goto(f"?from={now - 3600}&to={now + 60}")
    assert figure(page, "Failures") == "2"
    page.select_option("[name=cluster]", "alps")
    page.click("form.filters[aria-label=Filters] button")
    assert f"from={now - 3600}" in page.url
    assert figure(page, "Failures") == "1"
    page.goto(f"?from={now - 7200}&to={now - 3600}")
    assert figure(page, "Failures") == "0"
    for wrong in (f"?from={now}&to=x", "?from=9&to=1", f"?from={10**15}&to={10**16}", f"?from=0&to={10**18}"):
        assert page.goto(wrong).status == 200
    context.close()


def test_what_the_logs_became_is_told(page: Any, server: Server) -> None:
    page.goto("")
    store = Store.in_folder(server.data)
    a = tables.attempts.c
    whole, kept = store.read(lambda connection: connection.execute(select(func.sum(a.bytes_in), func.sum(a.bytes_kept))).one())
    store.close()
    shown = page.locator("#figures dt:text-is('Logs kept') + dd").inner_text().replace("\u00a0", " ")
    assert float(shown.split("%")[0]) == pytest.approx(100 * kept / whole, rel=0.06)


def test_a_job_that_goes_well_shows_its_loss_without_a_report(page: Any, server: Server) -> None:
    store = Store.in_folder(server.data)
    a, j = tables.attempts.c, tables.jobs.c
    reports = select(func.count()).select_from(tables.diagnoses).join(tables.attempts, tables.diagnoses.c.attempt_id == a.id)
    reports = reports.join(tables.jobs, j.id == a.job_id).where(j.name == "runs-b")
    found = store.read(lambda connection: connection.execute(reports).scalar())
    store.close()
    assert found == 0
    page.goto("")
    row = page.locator("#running [data-row]", has=page.locator("a:text-is('runs-b')"))
    row.locator("svg.spark").wait_for()
    assert row.locator("[data-name=step]").inner_text() == "39"
    assert "from 5 to 0.128" in row.locator("svg.spark").get_attribute("aria-label")
    assert row.locator(".tag").inner_text() == "running"


def test_a_job_is_followed_by_what_its_training_tells(page: Any, server: Server) -> None:
    answer = server.client.post("/v1/jobs/told/progress", json={"step": 712, "loss": 1.25})
    assert answer.status_code == 200, answer.text
    page.goto("jobs/told")
    assert figure(page, "Step") == "712"
    assert figure(page, "Loss") == "1.25"


def test_checkpoints_stand_on_the_timeline_and_in_the_plot(page: Any, server: Server) -> None:
    saved = b"  successfully saved checkpoint at iteration    20 to /ckpt/<b>a</b>\n"
    server.push("saves", STEPS.partition(b"step 25")[0] + saved, attempt=1)
    server.end("saves", 1, attempt=1)
    server.push("saves", STEPS + saved, attempt=2)
    for step, healthy in ((10, None), (30, False)):
        told = {"step": step, "path": f"/ckpt/{step}", "healthy": healthy, "attempt": 2}
        assert server.client.post("/v1/jobs/saves/checkpoints", json=told).status_code == 200
    page.goto("jobs/saves")
    page.wait_for_selector("#live:not(.lost)")
    lanes = page.locator("#timeline .lane")
    assert lanes.count() == 2
    assert (lanes.first.locator("path.saved").count(), lanes.first.locator("path.spoilt").count()) == (2, 1)
    assert lanes.last.locator("path.saved").count() == 1
    data = json.loads(page.locator("#plots script").first.text_content())
    assert data["saved"] == [[10, "saved"], [20, "saved"], [30, "spoilt"]]
    page.click("#timeline summary")
    rows = page.locator("#timeline tbody tr").all_inner_texts()
    assert ["30" in rows[0], "spoilt" in rows[0], "the training" in rows[0]] == [True] * 3
    assert "/ckpt/<b>a</b>" in rows[1]
    # What comes while one reads does not close what was opened.
    told = {"step": 35, "path": "/ckpt/35", "attempt": 2}
    assert server.client.post("/v1/jobs/saves/checkpoints", json=told).status_code == 200
    server.push("saves", b"step 40 loss 0.1\nsomething new\n", attempt=2)
    page.wait_for_selector("#timeline summary >> text=the last of step 35")
    assert page.locator("#timeline details").get_attribute("open") is not None
    server.push("saves", b"step 41 loss nan\nRuntimeError: it broke\n", attempt=2)
    server.end("saves", 1, attempt=2)
    page.wait_for_selector("#timeline .lane path.onset", state="attached")


def test_node_checks_are_on_the_grid_and_lead_to_an_action(page: Any, server: Server) -> None:
    page.goto("nodes")
    page.wait_for_selector("#live:not(.lost)")
    good = [f"n{number:02}" for number in range(40)]
    verdict = {
        "schema": "diagnose.nodecheck/1",
        "kind": "verdict",
        "rounds": 2,
        "good": good,
        "faulty": ["n99"],
        "why": {"n99": "<script>its</script> matmul was wrong"},
    }
    assert server.client.post("/v1/nodes/checks", json=verdict).status_code == 201
    page.wait_for_selector("#nodes li.suspect:has-text('n99') .check.faulty")
    page.select_option("[name=check]", "faulty")
    page.wait_for_url("**check=faulty**")
    assert page.locator("#nodes li").count() == 1
    page.click("#nodes a")
    page.wait_for_url("**/nodes/n99")
    told = page.locator("#checks [data-row], #checks tbody tr").first.inner_text()
    assert "<script>its</script> matmul was wrong" in told
    assert "40" in told
    assert "decided.isolate" in page.inner_text("#record")
    page.goto("actions?state=proposed")
    page.click("#queue a:text-is('isolate')")
    assert "the node check found it faulty" in page.inner_text("#evidence")
    assert re.search(r"Job\s+none", page.inner_text("#facts"))
    accessible(page)
    page.wait_for_selector("#nobody >> text=Nothing can act.")
    assert re.search(r"placed on n99; \d+ of \d+ known nodes are left", page.inner_text("#meant"))
    assert "nobody: the service has no executor" in page.inner_text("#meant")
    assert "It expires in" in page.inner_text("#meant")
    page.goto("nodes/n99")
    page.click("button:text('Isolate: approve what waits')")
    page.wait_for_selector("text=Approved, but nothing can carry it out")
    page.click("#actions [data-row] a >> nth=0")
    page.wait_for_selector("#record >> text=action.approved")
    for path in ("nodes", "nodes/n99"):
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.goto(path)
            accessible(page)


def test_a_node_is_taken_out_and_given_back_after_a_question(page: Any, server: Server) -> None:
    asked: list[str] = []
    page.remove_listener("dialog", accept)
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.goto("nodes/gpu-2")
    page.click("button:text('Isolate')")
    assert asked == ["Isolate gpu-2? Jobs will no longer be placed on it."]
    assert not [one for one in server.get("/v1/actions")["actions"] if one["nodes"] == ["gpu-2"]]
    page.on("dialog", accept)
    page.fill("[name=why]", "its fan is loud")
    page.click("button:text('Isolate')")
    page.wait_for_selector("text=Approved, but nothing can carry it out")
    action = server.get("/v1/actions")["actions"][0]
    there, executor = f"/v1/actions/{action['id']}", {"executor": "slurm"}
    held = {**executor, "fence": server.client.post(f"{there}/claim", json=executor).json()["fence"]}
    assert server.client.post(f"{there}/start", json=held).status_code == 200
    assert server.client.post(f"{there}/result", json={**held, "succeeded": True, "said": "drained"}).status_code == 200
    page.wait_for_selector("#record >> text=node.isolated")
    page.reload()
    page.click("button:text('Reboot')")
    page.wait_for_selector("text=Asked for: the node is rebooted as soon as no job runs there.")
    assert server.get("/v1/actions")["actions"][0]["kind"] == "reboot"
    page.click("button:text('Return to service')")
    page.wait_for_selector("text=Asked for: the node will be returned to service.")
    released = server.get("/v1/actions")["actions"][0]
    assert (released["kind"], released["nodes"], released["state"]) == ("release", ["gpu-2"], "approved")


def test_an_action_shows_what_it_rests_on(page: Any) -> None:
    page.goto("actions")
    page.locator("#queue [data-row]", has=page.locator("a:text-is('lost-ecc')")).locator("a").first.click()
    assert "Xid (PCI:0000:8a:00): 48" in page.inner_text("#evidence li.root")
    page.fill("[name=why]", "it is <i>known</i>")
    page.click("button:text('Reject')")
    page.wait_for_selector("text=Rejected: nothing will be done.")
    record = page.inner_text("#record")
    assert "action.rejected" in record
    assert "action.proposed" in record


def test_a_rules_hits_and_precision_follow_corrections(page: Any, server: Server) -> None:
    page.goto("jobs/lost-name")
    rule = page.inner_text("#verdict header .small").partition("(")[2].rstrip(")").rpartition(":")[2]
    page.goto(f"rules?q={rule}")
    page.wait_for_selector("#live:not(.lost)")
    row = page.locator("#rules [data-row]", has=page.locator(f"a:text-is('{rule}')"))
    assert (row.locator("[data-name=hits]").inner_text(), row.locator("[data-name=precision]").inner_text()) == (
        "1",
        "100\u00a0%",
    )
    group = next(one["id"] for one in server.get("/v1/failures")["failures"] if one["reason"] == "name_error")
    other = page.context.new_page()
    other.goto(f"failures/{group}")
    other.click("summary:text('Is the diagnosis wrong?')")
    other.select_option("details select[name=reason]", "import_error")
    other.fill("details textarea", "the module was not there")
    other.click("button:text('Correct the diagnosis')")
    other.wait_for_selector("text=the correction is stored")
    # The list of rules hears of it by itself.
    page.wait_for_function("() => document.querySelector('#rules [data-name=precision]').textContent.startsWith('0')")
    page.goto(f"rules/{rule}")
    assert "1 failures, 1 of them corrected" in page.inner_text("#facts")


def test_what_a_policy_only_observes_nobody_is_asked_about(chromium: Any, tmp_path: Path) -> None:  # noqa: F811
    with Server(tmp_path / "data") as running:
        running.push("one", ECC, node="gpu-1")
        running.end("one", 1)
        eventually(lambda: len(running.get("/v1/actions")["actions"]) == 1)
        page = chromium.new_page()
        page.goto(f"{running.url}/ui/")
        assert figure(page, "Waiting for approval") == "0"
        page.goto(f"{running.url}/ui/actions")
        assert "only observed" in page.inner_text("#queue")
        assert page.locator("button:text('Approve')").count() == 0
        page.close()


def test_a_group_of_a_hundred_thousand(chromium: Any, tmp_path: Path) -> None:  # noqa: F811
    data = tmp_path / "data"
    data.mkdir()
    store = Store.in_folder(data)
    store.migrate()
    many(store, 100_000, time.time())
    store.close()
    with Server(data) as running:
        page = chromium.new_page()
        plain = _cost(running, "jobs")
        for path, words in (("failures", "100 k"), ("failures/1", "100 k"), ("", "An uncorrectable ECC error")):
            # Who counts row by row takes far longer than a page that shows fifty of them.
            assert _cost(running, path) < 40 * plain, plain
            assert len(running.client.get(f"/ui/{path}").content) < 300_000
            page.goto(f"{running.url}/ui/{path}")
            assert words in page.inner_text("main").replace("\u00a0", " ")
        page.goto(f"{running.url}/ui/failures/1")
        first = page.locator("#jobs [data-row] a").first.inner_text()
        page.click("a[rel=next]")
        assert page.locator("#jobs [data-row] a").first.inner_text() != first
        page.close()


def _cost(running: Server, path: str) -> float:
    """What a page takes of the processor: ten times, as the clock of a process is coarse, and not for the first time."""
    running.client.get(f"/ui/{path}")
    began = _processor_s(running.pid)
    for _ in range(10):
        running.client.get(f"/ui/{path}")
    return _processor_s(running.pid) - began


def _processor_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


_MANY = """
insert into groups(id, fingerprint, category, reason, title, first_seen, last_seen, count, gpu_seconds_lost, state, regressed)
values (1, 'g', 'infrastructure', 'ecc_error', 'An uncorrectable ECC error', :now - 6e6, :now, :count, 36e5, 'open', 0);
insert into jobs(id, name, user, labels, attempt, state, outcome, category, reason, first_seen, last_seen) ROWS
select i, 'job-' || i, 'u' || (i % 500), '{}', 1, 'ended', 'failed', 'infrastructure', 'ecc_error', :now - i * 60, :now - i * 60
from n;
insert into attempts(id, job_id, number, state, outcome, started_at, last_seen, ended_at, lsn, lines_in, bytes_in, lines_kept,
bytes_kept) ROWS
select i, i, 1, 'ended', 'failed', :now - i * 60, :now - i * 60, :now - i * 60, 0, 9, 999, 1, 99 from n;
insert into occurrences(attempt_id, group_id, job_id, at, category, reason, user, gpu_seconds) ROWS
select i, 1, i, :now - i * 60, 'infrastructure', 'ecc_error', 'u' || (i % 500), 36 from n;
insert into occurrence_nodes(attempt_id, node, group_id, at) ROWS
select i, 'gpu-' || (i % 2000), 1, :now - i * 60 from n
""".replace("ROWS", "with recursive n(i) as (select 1 union all select i + 1 from n where i < :count)")


def many(store: Store, count: int, now: float) -> None:
    """One group, each job once."""
    with store.engine.begin() as connection:
        cursor: Any = connection.connection.cursor()
        for statement in _MANY.split(";"):
            cursor.execute(statement, {"count": count, "now": now})


def test_a_token_that_expires_while_a_page_is_open(chromium: Any, tmp_path: Path) -> None:  # noqa: F811
    data = tmp_path / "data"
    data.mkdir()
    store = Store.in_folder(data)
    store.migrate()
    sender = store.write(lambda connection: create(connection, "sender", "ingest"))
    lasting = store.write(lambda connection: create(connection, "lasting", "read"))
    secret = store.write(lambda connection: create(connection, "short", "read", expires=time.time() + 3600))
    with Server(data) as running:
        headers = {"Authorization": f"Bearer {sender}"}
        running.client.post("/v1/jobs/one/logs", content=b"hello\n", headers=headers)
        context = chromium.new_context(base_url=f"{running.url}/ui/")
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto("jobs/one")
        page.fill("[name=token]", secret)
        page.click("main button")
        page.wait_for_selector("#live:not(.lost)")
        over = update(tables.tokens).where(tables.tokens.c.name == "short").values(expires=time.time() - 1)
        store.write(lambda connection: connection.execute(over))
        store.close()
        refused = {"Authorization": f"Bearer {secret}"}
        eventually(lambda: running.client.get("/v1/jobs", headers=refused).status_code == 401, within_s=60)
        running.client.post("/v1/jobs/one/logs", content=b"something new\n", headers=headers)
        page.click("text=signed out: sign in again")
        page.wait_for_url("**/ui/sign-in?next=jobs**")
        page.fill("[name=token]", secret)
        page.click("main button")
        page.wait_for_selector("main >> text=did not work")
        page.fill("[name=token]", lasting)
        page.click("main button")
        page.wait_for_url("**/ui/jobs/one")
        page.wait_for_selector("#tail >> text=something new")
        context.close()


def test_a_filters_hits_are_the_lines_that_it_dropped(page: Any, server: Server) -> None:
    page.goto("rules?q=megatron-step-marks")
    hits = page.locator("#rules [data-row] [data-name=hits]")
    before = int(hits.inner_text())
    lines = b" > building train, validation, and test datasets for GPT ...\n" * 40
    server.push("forty-marks", lines, source="log", offset=0)
    server.end("forty-marks", 0)
    page.wait_for_selector("#live:not(.lost)")
    deadline = time.monotonic() + 30
    while int(hits.inner_text()) == before and time.monotonic() < deadline:
        time.sleep(0.2)
        page.reload()
    assert int(hits.inner_text()) == before + 40


def test_the_timeline_tells_how_long_an_attempt_took_to_its_first_step(page: Any, server: Server) -> None:
    server.push("slow-start", b"loading the model\n", source="log", offset=0)
    time.sleep(1.5)
    server.push("slow-start", b" iteration 1/ 500 | lm loss: 7.1E+00 |\n", source="log", offset=18)
    server.end("slow-start", 0)
    page.goto("jobs/slow-start")
    page.wait_for_selector("#live:not(.lost)")
    page.wait_for_selector("#timeline [data-name=startup]")
    told = page.inner_text("#timeline [data-name=startup]")
    seconds = float(told.partition("\u00a0")[0].partition(" ")[0])
    assert "to its first step" in told
    assert 1 <= seconds < 60


def test_a_job_that_is_deleted_leaves_an_open_page(page: Any, server: Server) -> None:
    server.push("goes", STEPS)
    server.end("goes", 0)
    server.get("/v1/jobs/goes/report")
    # Each page renews itself once when it is connected: behind that only an event does it.
    with page.expect_response(lambda answer: answer.request.resource_type == "fetch"):
        page.goto("jobs?q=goes")
    assert page.locator("[data-row]").count() == 1
    assert server.client.delete("/v1/jobs/goes").status_code == 200
    page.wait_for_selector("[data-row]", state="detached", timeout=10_000)


@pytest.mark.parametrize(
    "text", ["x" * 7_700 + " {}", "x" * 600 + " {}", "    {}  "], ids=["long", "longer than a word", "indented"]
)
def test_a_line_is_tried_as_it_stands(server: Server, text: str) -> None:
    line = text.format("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")
    answer = server.client.get("/ui/rules", params={"line": line})
    assert "kept, as evidence" in answer.text
    assert f'value="{line}"' in answer.text


def test_what_is_too_long_is_refused_and_not_cut(server: Server) -> None:
    for path, name, most in (("rules", "line", 8_000), ("rules", "q", 500), ("jobs", "q", 500), ("jobs/runs-a/log", "q", 500)):
        assert server.client.get(f"/ui/{path}", params={name: "x" * most}).status_code == 200
        answer = server.client.get(f"/ui/{path}", params={name: "x" * (most + 1)})
        assert (answer.status_code, f"at most {most:,}" in answer.text) == (413, True)


def test_a_job_of_thousands_of_checkpoints_stays_small_and_tells_of_each(page: Any, server: Server) -> None:
    now, folder = time.time(), "/lustre/fsw/teams/nlp/checkpoints/llama-70b-pretrain/run-2026-11"
    job = {"name": "thousands", "labels": {}, "attempt": 12, "state": "ended", "outcome": "healthy"}
    times = {"started_at": now - 9000, "last_seen": now - 60, "ended_at": now - 60}
    attempt = {"state": "ended", "outcome": "healthy", "step": 30_000.0, "lsn": 0, **times}
    store = Store.in_folder(server.data)
    with store.engine.begin() as connection:
        jobs, attempts = tables.jobs, tables.attempts
        insert = jobs.insert().values(first_seen=now - 9000, last_seen=now - 60, **job).returning(jobs.c.id)
        job_id = connection.execute(insert).scalar_one()
        for number in range(1, 13):
            insert = attempts.insert().values(job_id=job_id, number=number, **attempt).returning(attempts.c.id)
            attempt_id = connection.execute(insert).scalar_one()
            rows = [
                {"step": step, "path": f"{folder}/global_step{step:07d}", "healthy": step != 15_000, "at": now}
                for step in range(100, 30_001, 100)
            ]
            connection.execute(tables.checkpoints.insert(), [{"attempt_id": attempt_id, **row} for row in rows])
    store.close()
    answer = page.goto("jobs/thousands")
    assert len(answer.body()) < 240_000  # plots and a log of failures are beside it in others
    lanes = page.locator("#timeline .lane")
    assert lanes.count() == 12
    told = lanes.last.locator("path title").all_text_contents()
    assert len(told) <= 151
    assert sum(int(count or 1) for text in told for count in re.findall(r"(\d*) (?:saved|spoilt)", text)) == 300
    assert [text for text in told if "spoilt" in text] == ["1 saved, 1 spoilt: steps 14,900 to 15,000"]
    assert lanes.last.locator("path.spoilt").count() == 1
    # The table goes on from part to part.
    paths = []
    page.click("#timeline summary")
    while True:
        paths += page.locator("#timeline tbody code").all_inner_texts()
        if not page.locator("#timeline a[rel=next]").count():
            break
        with page.expect_navigation():
            page.click("#timeline a[rel=next]")
    assert paths == [f"{folder}/global_step{step:07d}" for step in range(30_000, 0, -100)]


def test_who_loses_most_is_sorted_and_leads_to_the_failures(page: Any) -> None:
    page.goto("breakdowns?by=cluster&sort=count")
    names = [cell.split("\n")[0] for cell in page.locator("#rows tbody td:first-child").all_inner_texts()]
    assert {"alps", "delta"} <= set(names)  # jobs of other tests may have failed before, and named no cluster
    # The service is as old as the test: that nothing failed before is no news.
    assert set(page.locator("#rows td[data-name=change]").all_inner_texts()) == {"–"}
    assert "there is nothing to compare with" in page.inner_text("#rows header")
    page.get_by_role("link", name="alps").click()
    assert "cluster=alps" in page.url
    for address in ("shift", ""):
        page.goto(address)
        assert "no job is known from the time before" in page.inner_text("#figures")


def test_a_shift_shows_what_waits_what_is_new_and_what_it_cost(page: Any) -> None:
    page.goto("shift")
    page.wait_for_selector("#fresh tbody tr >> nth=1")
    page.wait_for_selector("#costs tbody tr >> nth=1")
    # One question to the page, because it renews itself between two.
    clipped = """() => {
      const edge = document.querySelector("#waits")?.getBoundingClientRect().right;
      return [...document.querySelectorAll("#waits button")].filter((one) => one.getBoundingClientRect().right > edge).length;
    }"""
    assert page.evaluate(clipped) == 0


def test_a_job_says_whose_fault_it_was_and_leads_to_the_line(page: Any) -> None:
    page.goto("jobs/lost-ecc")
    fault = page.inner_text("#fault")
    assert re.search(r"fault\? (yes|no|cannot tell)", fault)
    assert "gpu-1: 0 infrastructure failures of other jobs, no check after it" in fault
    ticket = page.request.get(page.locator("a[data-copy]").get_attribute("href")).text()
    assert ticket.startswith("## `lost-ecc`: `ecc_error`")
    assert ticket.rstrip().endswith("/ui/jobs/lost-ecc?attempt=1>")
    page.click("a:text-is('Root line')")
    assert "Xid (PCI:0000:8a:00): 48" in page.inner_text(".log li.at")
    page.click(".log li >> nth=-1 >> .no a")
    page.wait_for_url("**#here")


def test_everything_is_searched_from_any_page(page: Any) -> None:
    page.goto("rules")
    page.keyboard.press("Control+k")
    page.keyboard.type("lost-e")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=lost-e")
    assert page.locator("#jobs [data-row] a").all_inner_texts() == ["lost-ecc"]
    accessible(page)
    page.goto("search?q=gpu-1")
    assert "gpu-1" in page.locator("#nodes [data-row] a").all_inner_texts()
    page.goto("search?q=nothing-is-called-so")
    assert "Nothing is called so" in page.inner_text("main")


def test_a_failure_has_somebody_who_looks_after_it_and_comments(page: Any, server: Server) -> None:
    page.goto("failures?reason=name_error")
    page.click("#groups [data-row] a >> nth=0")
    page.fill("[name=assignee]", "<b>kim</b>")
    page.fill("[name=said]", "a typo, see !12")
    page.click("button:text('Save')")
    page.wait_for_selector("#comments >> text=a typo, see !12")
    group = page.url.partition("?")[0].rpartition("/")[2]
    said = server.get(f"/v1/failures/{group}")
    assert (said["assignee"], [one["text"] for one in said["comments"]]) == ("<b>kim</b>", ["a typo, see !12"])
    page.goto("failures?assignee=%3Cb%3Ekim%3C%2Fb%3E")
    assert "<b>kim</b>" in page.inner_text("#groups")
    posted = server.client.post(f"/v1/failures/{group}/comments", json={"text": "done"})
    assert [one["text"] for one in posted.json()["comments"]] == ["done", "a typo, see !12"]


def test_what_a_model_said_is_shown_with_what_came_of_it(page: Any, server: Server) -> None:
    """The questions are entered as the learning process enters them: it is tested elsewhere, with an endpoint."""
    store = Store.in_folder(server.data)

    def work(connection: Any) -> None:
        jobs = dict(connection.execute(select(tables.jobs.c.name, tables.attempts.c.id).join(tables.attempts)).all())
        now = time.time()
        for number, (job, said) in enumerate((("lost-ecc", "ecc_error"), ("lost-name", "type_error")), 9000):
            rules = connection.execute(
                select(tables.diagnoses.c.reason).where(tables.diagnoses.c.attempt_id == jobs[job])
            ).scalar_one()
            result = {"asked": True, "replaced": False, "rules": ["failed", "rule", rules, None], "tokens": 1200, "said": said}
            row = {"id": number, "kind": "ask", "attempt_id": jobs[job], "ref": "test", "detail": {}, "state": "done"}
            connection.execute(tables.tasks.insert().values(**row, created=now, changed=now, result={**result, "model": "big"}))
        record = {"model": "big", "kind": "specific", "right": 11.0, "wrong": 1.0}
        connection.execute(tables.witnesses.insert().values(**record))

    try:
        store.write(work)
    finally:
        store.close()
    page.goto("model")
    figures = page.locator("#figures").inner_text()
    assert re.search(r"Questions\s+2\s+2 with an answer", figures), figures
    assert re.search(r"Agreed with the rules\s+1\s+of 2", figures), figures
    assert re.search(r"Tokens\s+2\.4\sk", figures), figures
    differ = page.locator("#differ [data-row]")
    assert differ.count() == 1
    assert [word in differ.inner_text() for word in ("lost-name", "name error", "type error")] == [True] * 3
    assert "11" in page.locator("#record [data-row]").inner_text()
    differ.locator("a").click()
    page.locator("h1", has_text="lost-name").wait_for()


def test_the_map_of_ranks_says_who_stopped_first_and_leads_to_its_lines(page: Any, server: Server) -> None:
    line = b"Watchdog caught collective operation timeout: ran for 600000 milliseconds before timing out.\n"
    for rank in range(12):
        log = b"".join(b"step %d loss %.3f\n" % (step, 5 / step) for step in range(1, 31 if rank == 6 else 41))
        words = b"loading shard 7 of the data for rank 6\n" if rank == 6 else line
        server.push("ranks", log + words, source=f"rank{rank}.log", node=f"gpu-{rank // 4}", rank=str(rank))
    server.end("ranks", 1)
    server.get("/v1/jobs/ranks/report")
    page.goto("jobs/ranks")
    rows = page.locator("#ranks [data-row]")
    assert [text.split("\n")[0].split("\t")[0] for text in rows.all_inner_texts()] == ["gpu-1", "gpu-0 and 1 alike"]
    late = page.locator("#ranks a.first")
    assert late.count() == 1
    assert "rank 6; stopped first; step 30, 10 behind" in late.get_attribute("aria-label")
    assert "loading shard 7" in late.get_attribute("aria-label")
    accessible(page)
    for width in (390, 768, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    server.push("alike", b"[rank0]: out of luck\n[rank1]: out of luck\n", source="all.log")
    server.end("alike", 1)
    server.get("/v1/jobs/alike/report")
    assert "2 without a step of their own" in server.client.get("/ui/jobs/alike").text
    late.click()
    page.wait_for_url("**rank=6**")
    assert "loading shard 7" in page.locator("#lines").inner_text()
    assert "Watchdog" not in page.locator("#lines").inner_text()


def test_a_plot_that_is_not_drawn_anew_yet_widens_no_page(page: Any, server: Server) -> None:
    server.push("wide", b"".join(b"step %d loss %.3f\n" % (step, 5 / step) for step in range(1, 60)))
    server.end("wide", 1)
    server.get("/v1/jobs/wide/report")
    page.add_init_script("window.ResizeObserver = class { observe() {} }")  # a browser that has no time for it
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto("jobs/wide")
    page.wait_for_selector(".plot canvas")
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_charts_of_other_pages_are_drawn_over_too(page: Any) -> None:
    for address, part in (("breakdowns?by=cluster&range=24h", "over-time"), ("failures?range=24h&cluster=alps", "over-time"),
                          ("shift", "over-time"), ("nodes/gpu-1", "axis")):  # fmt: skip
        page.goto(address)
        box = page.locator(f"#{part} svg.chart").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.4)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.997, box["y"] + box["height"] * 0.4, steps=4)
        page.mouse.up()
        page.wait_for_url("**from=*")
        kept = dict(re.findall(r"([a-z]+)=([^&]+)", address))
        asked = dict(re.findall(r"([a-z]+)=([^&]+)", page.url))
        assert {name: asked.get(name) for name in kept if name != "range"} == {
            name: value for name, value in kept.items() if name != "range"
        }
        assert "range" not in asked
        accessible(page)
        page.locator("#period a", has_text="before").click()
        page.wait_for_url(lambda url, to=asked["from"]: f"to={to}" in url)


def place_of(page: Any, what: str) -> dict[str, float]:
    """Where the first such element stands once it is in sight, in one turn of the page: a page may renew itself in between."""
    place: dict[str, float] = page.evaluate(
        """what => {
            const one = document.querySelector(what);
            one.scrollIntoView({ block: 'center' });
            const { x, y, width, height } = one.getBoundingClientRect();
            return { x, y, width, height };
        }""",
        what,
    )
    return place


WIDE_PICTURES = (("breakdowns", "#over-time > .body"), ("nodes/gpu-1", "#axis > .scroll"))
"""what is wider than a phone: where it stands, and what is scrolled"""


@pytest.mark.parametrize(("address", "scroller"), WIDE_PICTURES)
def test_on_a_phone_a_wide_picture_shows_its_end_first_and_is_scrolled_by_a_finger(
    chromium: Any,  # noqa: F811
    server: Server,
    address: str,
    scroller: str,
) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    context = chromium.new_context(**phone, base_url=f"{server.url}/ui/")
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#live:text-is('live')")
    left = page.evaluate_handle("what => document.querySelector(what)", scroller)
    shown = "one => [one.scrollWidth - one.clientWidth, one.querySelector('svg.chart').getBoundingClientRect().right]"
    wider, right = left.evaluate(shown)
    assert wider > 100
    assert right <= 390, "the latest stands on the screen"
    box = place_of(page, scroller)
    finger = context.new_cdp_session(page)
    for kind, across in (("touchStart", 0), *(("touchMove", 30 * step) for step in range(1, 6)), ("touchEnd", None)):
        at = [] if across is None else [{"x": box["x"] + 150 + across, "y": box["y"] + box["height"] / 2}]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})
    page.wait_for_function("what => document.querySelector(what).scrollLeft < -50", arg=scroller)
    assert "from=" not in page.url
    if "axis" in scroller:
        names = page.evaluate("document.querySelector('#axis .names').getBoundingClientRect().left")
        assert names >= 0, "the names of the rows stay"
    # What is renewed under it stays where somebody scrolled it.
    page.evaluate("what => document.querySelector(what).closest('[data-renew]').dataset.was = ''", scroller)
    page.evaluate("what => document.querySelector(what).classList.add('old')", scroller)
    page.evaluate("fetchParts()")
    page.wait_for_selector(f"{scroller}:not(.old)")
    assert page.evaluate("what => document.querySelector(what).scrollLeft", scroller) < -50
    context.close()


@pytest.mark.parametrize("width", [390, 768])
@pytest.mark.parametrize("address", ["", "breakdowns", "nodes/gpu-1"])
def test_that_one_can_draw_is_said_where_a_finger_draws(
    chromium: Any,  # noqa: F811
    server: Server,
    address: str,
    width: int,
) -> None:
    screen = {"viewport": {"width": width, "height": 844}, "has_touch": True, "is_mobile": True}
    context = chromium.new_context(**screen, base_url=f"{server.url}/ui/")
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#live:text-is('live')")
    draws = width > 700 or address == ""
    assert page.get_by_text("Draw over the chart").is_visible() == draws
    finger = context.new_cdp_session(page)

    def drawn() -> bool:
        box = place_of(page, "svg[data-brush]")
        right = min(width, box["x"] + box["width"]) - 40.0
        for step in range(6):
            at = {"x": right - 20 * step, "y": box["y"] + 40}
            finger.send("Input.dispatchTouchEvent", {"type": "touchMove" if step else "touchStart", "touchPoints": [at]})
        found = page.locator(".drawn").count() == 1
        finger.send("Input.dispatchTouchEvent", {"type": "touchCancel", "touchPoints": []})
        return found

    if draws:
        eventually(drawn)  # what is renewed meanwhile may move it
    else:
        assert not drawn()
    context.close()


def test_a_failures_jobs_of_a_time_are_listed(page: Any) -> None:
    page.goto("failures?reason=ecc_error")
    page.click("#groups [data-row] a >> nth=0")
    page.wait_for_selector("#trend svg a")
    page.locator("#trend svg a").last.click()
    page.wait_for_url("**from=*")
    assert "lost-ecc" in page.inner_text("#jobs")
    page.locator("#period a", has_text="before").click()
    page.wait_for_url("**from=*")
    assert page.locator("#jobs tbody tr").count() == 0
    accessible(page)


def test_another_run_is_laid_over_the_plots(page: Any) -> None:
    page.goto("jobs/runs-a")
    page.fill("[name=over]", "lost-ecc")
    page.click("#overlay button")
    page.wait_for_url("**over=lost-ecc*")
    page.wait_for_selector("#plots .u-legend")
    assert "run lost-ecc" in page.inner_text("#plots .u-legend >> nth=0")
    assert "lost-ecc" in page.locator("#alike option").evaluate_all("all => all.map(one => one.value)")
    page.goto("jobs/runs-a?over=no-such-job")
    assert "There is no job of this name" in page.inner_text("#overlay")
    accessible(page)


def test_a_job_at_risk_is_at_risk_in_every_list(page: Any, server: Server) -> None:
    log = b"step 1 loss 2.0\nstep 2 loss nan\nstep 3 loss nan\nstep 4 loss nan\nstep 5 loss nan\n"
    server.push("goes-wrong", log, source="gpu-9.log", node="gpu-9", **{"label.user": "risky", "label.image": "train:9"})
    page.goto("jobs?state=at_risk")
    eventually(lambda: (page.reload(), page.locator("#jobs [data-row]").count())[1] == 1, 60.0)
    for address, where in (
        ("search?q=goes-wr", "#jobs"),
        ("?user=risky", "main"),
        ("shift", "#risky"),
        ("jobs?q=goes", "#jobs"),
    ):
        page.goto(address)
        assert "at risk" in page.locator(f"{where} [data-row]", has_text="goes-wrong").first.inner_text()
    page.goto("jobs/goes-wrong")
    assert "at risk" in page.inner_text("#head")


@pytest.mark.parametrize(
    ("clicks", "answer"),
    [
        (["nav >> text=Shift"], "text=What was done"),
        (["nav >> text=Shift"], "text=It was right"),
        (["nav >> text=Model"], "text=Its record"),
        (["nav >> text=Failures", "#groups [data-row]:has-text('name error') a >> nth=0"], "text=began with the image train:1"),
        (["nav >> text=Breakdowns"], "text=Who loses most, by user"),
        (["nav >> text=Breakdowns"], "#rows td[data-name=change] >> nth=0"),
        (["nav >> text=Jobs", "#jobs >> text=lost-ecc"], "text=Was it the node's fault?"),
        (["nav >> text=Nodes", "a:has-text('gpu-1') >> nth=0"], "text=What happened"),
    ],
    ids=["what was done last night", "was it right", "what did the model learn", "is it new with an image", "who loses most",
         "is it getting better", "was it the node's fault", "what did the node do before"],
)  # fmt: skip
def test_what_a_shift_asks_is_at_most_two_clicks_away(page: Any, clicks: list[str], answer: str) -> None:
    page.goto("rules")
    for where in clicks:
        page.click(where)
    page.wait_for_selector(answer)
