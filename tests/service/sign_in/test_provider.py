"""Sign-in with a real OpenID provider, over HTTP and in a browser; service accounts with tokens that an issuer signed."""

from __future__ import annotations

import html
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

from tests.conftest import ROOT
from tests.support.browser import chromium, program
from tests.support.issuer import Provider
from tests.support.live import until
from tests.support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]
CLIENTS = ROOT / "tests" / "clients"
GROUPS = {"kim": ["vision"], "lee": ["ops"], "mallory": ["guests"]}
FILE = """
people:
  issuer: {people}
  client_id: diagnose
  secret_file: secret
  scopes: openid email groups
  button: Sign in at the lab
  allow:
    - {{group: vision, role: operate, projects: [vision]}}
    - {{group: ops, role: admin}}
accounts:
  - issuer: {accounts}
    audience: diagnose
    allow:
      - {{account: 'vision/*', role: ingest, projects: [vision], own_namespace: true}}
"""


@dataclass
class Site:
    server: Server
    issuer: Provider
    """of service accounts"""

    def browser(self) -> httpx.Client:
        return httpx.Client(base_url=self.server.url, follow_redirects=True, timeout=60)


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if shutil.which("node") is None or not (CLIENTS / "node_modules" / "oidc-provider").is_dir():
        pytest.skip("node, or `npm ci --prefix tests/clients`, is missing")
    folder = tmp_path_factory.mktemp("sign-in")
    server = Server(folder / "data", "--sign-in", str(folder / "sign-in.yaml"))
    server.port = free_port()  # the provider must know it first
    words = ["node", "oidc-provider.mjs", f"http://127.0.0.1:{server.port}/ui/sign-in/back", json.dumps(GROUPS)]
    with subprocess.Popen(words, cwd=CLIENTS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as provider:
        try:
            assert provider.stdout is not None
            people = provider.stdout.readline().strip()
            (folder / "secret").write_text("a+secret/with:signs\n")
            with Provider() as issuer:
                (folder / "sign-in.yaml").write_text(FILE.format(people=people, accounts=issuer.url))
                with server:
                    until(lambda: httpx.get(f"{server.url}/ui/sign-in/begin").status_code == 303)
                    yield Site(server, issuer)
        finally:
            provider.terminate()


def form_of(page: httpx.Response) -> tuple[str, dict[str, str]]:
    """(address, hidden fields) of the form on a page of the provider."""
    action = re.search(r'action="([^"]+)"', page.text)
    assert action is not None, page.text
    hidden = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text)
    return urljoin(str(page.url), html.unescape(action[1])), dict(hidden)


def sign_in(browser: httpx.Client, login: str, target: str = "jobs") -> httpx.Response:
    """Through all forms of the provider, and back."""
    page = browser.get("/ui/sign-in/begin", params={"next": target})
    for more in ({"login": login, "password": "any"}, {}):
        address, hidden = form_of(page)
        page = browser.post(address, data={**hidden, **more})
    return page


def test_who_is_not_signed_in_is_led_to_the_provider_and_nobody_comes_in_without(site: Site) -> None:
    with site.browser() as browser:
        assert "Sign in at the lab" in browser.get("/ui/jobs").text
        assert browser.get("/v1/jobs").status_code == 401


def test_somebody_signs_in_sees_their_project_and_is_out_after_signing_out(site: Site) -> None:
    with site.browser() as browser:
        arrived = sign_in(browser, "kim")
        assert (arrived.status_code, "signed in as kim@example.org" in arrived.text) == (200, True), arrived.text
        assert "url=/ui/jobs" in arrived.text
        kept = browser.cookies["diagnose"]
        jobs = browser.get("/ui/jobs")
        assert 'title="signed in as kim@example.org (operate read)"' in jobs.text
        mine = {"authorization": f"Bearer {kept}"}
        assert browser.get("/v1/projects", headers=mine).status_code == 200
        assert browser.post("/v1/jobs/x/logs", params={"source": "s"}, content=b"x", headers=mine).status_code == 403
        word = re.search(r'name="csrf" value="(\w+)"', jobs.text)
        assert word is not None
        assert browser.post("/ui/sign-out", data={"csrf": word[1]}).status_code == 200
        assert browser.get("/v1/projects", headers=mine).status_code == 401
    until(lambda: "kim@example.org signed in" in site.server.log)
    assert kept not in site.server.log


def test_who_is_in_no_group_of_ours_is_told_and_not_let_in(site: Site) -> None:
    with site.browser() as browser:
        refused = sign_in(browser, "mallory")
        assert (refused.status_code, "is in no group that may use this service" in refused.text) == (403, True)
        assert "diagnose" not in browser.cookies


def test_an_answer_of_the_provider_is_of_no_use_in_another_browser(site: Site) -> None:
    with site.browser() as browser, httpx.Client(base_url=site.server.url) as other:
        sign_in(browser, "lee")
        begun = browser.get("/ui/sign-in/begin", follow_redirects=False).headers["location"]
        back = browser.get(begun, follow_redirects=False).headers["location"]  # the provider knows lee: no form
        assert "/ui/sign-in/back?" in back
        assert other.get(back).status_code == 401
        assert "signed in as lee@example.org" in browser.get(back).text


def test_a_service_account_sends_into_its_project_and_others_do_not(site: Site) -> None:
    def push(**claims: Any) -> httpx.Response:
        token = site.issuer.token(**claims)
        headers = {"authorization": f"Bearer {token}"}
        return site.server.client.post("/v1/jobs/run/logs", params={"source": "s"}, content=b"hello\n", headers=headers)

    until(lambda: push(sub="system:serviceaccount:vision:trainer").status_code == 200)
    assert push(sub="system:serviceaccount:speech:trainer").status_code == 403
    assert push(sub="system:serviceaccount:vision:trainer", aud="https://kubernetes.default.svc").status_code == 401
    with site.browser() as browser:
        sign_in(browser, "lee")
        found = browser.get("/v1/jobs", headers={"authorization": f"Bearer {browser.cookies['diagnose']}"}).json()["jobs"]
    assert [one["name"] for one in found] == ["vision~run"]


@pytest.mark.browser
def test_in_a_browser_the_way_leads_to_the_provider_and_back_to_the_page(site: Site) -> None:
    pytest.importorskip("playwright.sync_api")
    if program() is None:
        pytest.skip("Chromium is not installed")
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{site.server.url}/ui/nodes?range=7d")
        page.click("text=Sign in at the lab")
        page.fill('[name="login"]', "lee")
        page.fill('[name="password"]', "any")
        page.click("button[type=submit]")
        page.click("text=Continue")
        page.wait_for_url("**/ui/nodes?range=7d")
        assert page.locator("h1").inner_text() == "Nodes"
        page.click("text=Sign out")
        page.wait_for_url("**/ui/sign-in")
        browser.close()
