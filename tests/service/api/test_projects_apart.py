"""Two projects in one service: whoever has one sees nothing of the other, on any route of the API or the dashboard.

Both have a job of the same name. All that is said in one of them has its word in it: names of nodes, users, sources, lines.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from service.store.tokens import ROLES
from tests.conftest import ROOT
from tests.support.attacker import STEPS, Sender, Service, until
from tests.support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]
WORDS = {"apes": "quokka", "bees": "zebrafish"}
"""project -> what stands in all that is of it"""
NOT_OF_JOBS = {
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/webhooks",
    "/v1/webhooks/{webhook}/deliveries",
    "/v1/actions/orders",
    "/elastic/",
    "/elastic/_license",
    "/elastic/_cluster/health",
    "/services/collector/health",
}
"""that have nothing of a job in them"""
LATER = {"/v1/events", "/v1/corrections/corpus"}
"""tested apart"""
NOTHING = {"/v1/rules"}
"""that have nothing of these jobs in them yet"""


@dataclass
class Two:
    """A service with two projects in it."""

    service: Service
    tokens: dict[tuple[str, str], Sender] = field(default_factory=dict)
    """(project, role) -> its holder"""
    places: dict[str, dict[str, Any]] = field(default_factory=dict)
    """project -> what stands for the parts of an address"""

    @property
    def server(self) -> Server:
        return self.service.server


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    folder = tmp_path_factory.mktemp("two")
    (folder / "policy.yaml").write_text("mode: approve\nbursts: {jobs: 500}\n")
    words = "--policy", str(folder / "policy.yaml"), "--raw-logs", str(folder / "raw")
    with Server(folder / "data", *words, DIAGNOSE_SERVE_RAW_WAIT_S="0") as server:
        found = Two(Service(server))
        admin = found.service.token("admin", "--role", "admin")
        server.client.headers["Authorization"] = admin.client.headers["Authorization"]
        until(lambda: httpx.get(f"{server.url}/v1/jobs").status_code == 401, "the service to be closed")
        for project, word in WORDS.items():
            for role in ("ingest", "read", "operate"):
                named = f"{project}-{role}", "--role", role, "--project", project
                found.tokens[project, role] = found.service.token(*named)
            _fails(found, project, word)
        yield found


def _fails(two: Two, project: str, word: str) -> None:
    """A job that fails of a node's fault, is corrected, and has an action; always of the same name."""
    sender, operator = two.tokens[project, "ingest"], two.tokens[project, "operate"]
    fault = f"Nov 21 10:00:01 {word}-1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus. {word}\n"
    about = {"node": f"{word}-1", "source": f"{word}.log", "label.user": word, "label.cluster": word}
    assert sender.push("run7", STEPS + f"{word} begins\n" + fault, **about) == 200
    assert sender.end("run7") == 200
    job = f"{project}~run7"
    (action,) = until(lambda: two.server.get("/v1/actions", job=job)["actions"], "an action")
    correction = {"category": "infrastructure", "reason": "ecc_error", "note": f"{word} says so"}
    assert operator.client.post("/v1/jobs/run7/corrections", json=correction).status_code == 201
    (group,) = [one for one in two.server.get("/v1/failures")["failures"] if word in json.dumps(one)]
    node = f"{word}-1"
    two.places[project] = {"job": "run7", "action": action["id"], "group": group["id"], "node": node, "webhook": 1, "rule": "x"}


def _gets(two: Two) -> list[str]:
    paths = two.server.get("/openapi.json")["paths"]
    return sorted(path for path, ways in paths.items() if "get" in ways)


def _asked(two: Two, path: str, project: str, who: httpx.Client, job: str | None = None) -> tuple[int, str]:
    place = {**two.places[project], **({"job": job} if job else {})}
    answer = who.get(path.format(**place), params={"executor": "r"} if path.endswith("orders") else {})
    return answer.status_code, answer.text


def test_every_get_route_keeps_projects_apart(two: Two) -> None:
    tried = 0
    for path in _gets(two):
        if path in LATER:
            continue
        for own, other in (("apes", "bees"), ("bees", "apes")):
            for role in ("ingest", "read", "operate"):
                who = two.tokens[own, role].client
                for job in (None, f"{other}~run7"):
                    status, text = _asked(two, path, other, who, job)
                    assert status in (200, 403, 404, 503), (path, role, status, text)
                    if "{group}" in path or "{action}" in path:
                        assert status in (403, 404), (path, role, text)
                    if status == 200:  # a refusal says what was asked for
                        assert not {WORDS[other], other} & set(re.findall("[a-z]+", text)), (path, role, text)
                    tried += 1
    assert tried > 200


def test_everybody_sees_their_own_and_an_administrator_all(two: Two) -> None:
    for path in _gets(two):
        if path in LATER | NOT_OF_JOBS | NOTHING:
            continue
        role = "ingest" if path in ("/v1/jobs/{job}/sources", "/v1/jobs/{job}/stacks", "/v1/jobs/{job}/resume") else "operate"
        for own in WORDS:
            status, text = _asked(two, path, own, two.tokens[own, role].client)
            assert (status, WORDS[own] in text or own in text) == (200, True), (path, text)
            status, text = _asked(two, path, own, two.server.client, f"{own}~run7")
            assert (status, WORDS[own] in text or own in text) == (200, True), (path, text)
    both = two.server.client.get("/v1/jobs").text
    assert all(f"{project}~run7" in both for project in WORDS)


def test_every_page_keeps_projects_apart(two: Two) -> None:
    of_job = ("", "/log", "/download", "/raw", "/raw/download")
    others = ("", "failures", "failures/{group}", "jobs", "nodes", "nodes/{node}", "actions", "actions/{action}", "rules")
    pages = (*others, *(f"jobs/{{job}}{part}" for part in of_job))
    for page in pages:
        for own, other in (("apes", "bees"), ("bees", "apes")):
            who = two.tokens[own, "operate"].client
            for job in (None, f"{other}~run7"):
                status, text = _asked(two, f"/ui/{page}", other, who, job)
                assert status in (200, 403, 404), (page, status)
                assert status != 200 or not {WORDS[other], other} & set(re.findall(r"[a-z]+", text)), (page, text)
            if page != "rules":
                status, text = _asked(two, f"/ui/{page}", own, who)
                assert (status, WORDS[own] in text) == (200, True), (page, status, text)


def test_a_corpus_has_the_jobs_of_its_projects(two: Two) -> None:
    for own, word in WORDS.items():
        packed = two.tokens[own, "read"].client.get("/v1/corrections/corpus").content
        with tarfile.open(fileobj=io.BytesIO(packed)) as corpus:
            files = [one for one in corpus.getmembers() if one.isfile()]
            text = "".join(corpus.extractfile(one).read().decode() + one.name for one in files)  # type: ignore[union-attr]
        assert word in text
        assert not any(other in text for other in WORDS.values() if other != word)


def test_nothing_can_be_done_to_what_is_of_another_project(two: Two) -> None:
    who, theirs = two.tokens["apes", "operate"].client, two.places["bees"]
    for path, body in (
        (f"/v1/actions/{theirs['action']}/approve", None),
        (f"/v1/actions/{theirs['action']}/reject", {"why": "x"}),
        (f"/v1/actions/{theirs['action']}/claim", {"executor": "r"}),
        (f"/v1/actions/{theirs['action']}/start", {"executor": "r", "fence": 1}),
        (f"/v1/actions/{theirs['action']}/result", {"executor": "r", "fence": 1, "succeeded": True}),
        ("/v1/jobs/bees~run7/corrections", {"category": "infrastructure", "reason": "ecc_error"}),
        (f"/v1/nodes/{theirs['node']}/isolate", {"why": "it is broken"}),
        (f"/v1/nodes/{theirs['node']}/reboot", {"why": "it hangs"}),
    ):
        assert who.post(path, json=body).status_code in (403, 404), path
    assert who.patch(f"/v1/failures/{theirs['group']}", json={"note": "it is known"}).status_code == 404
    sender = two.tokens["apes", "ingest"]
    assert (sender.push("bees~run7", "x\n"), sender.end("bees~run7")) == (403, 403)
    assert two.server.get(f"/v1/actions/{theirs['action']}")["state"] == "proposed"


def test_what_the_whole_cluster_is_asked_is_for_its_operators(two: Two) -> None:
    own = two.tokens["apes", "read"].client.get("/metrics").text
    assert 'diagnose_project_accepted_bytes_total{project="apes"}' in own
    assert {"bees", "diagnose_live_jobs"} & set(re.findall("[a-z_]+", own)) == set()
    cluster = two.service.token("cluster", "--role", "operate").client
    assert cluster.get("/metrics").status_code == 200
    assert {one["name"] for one in cluster.get("/v1/nodes").json()["nodes"]} == {"quokka-1", "zebrafish-1"}
    assert all(one["failures"] == 0 for one in cluster.get("/v1/nodes").json()["nodes"])
    assert cluster.get("/v1/jobs").json()["jobs"] == []


def test_a_stream_has_the_events_of_its_projects(two: Two) -> None:
    heard: list[str] = []

    def listen() -> None:
        with two.tokens["apes", "read"].client.stream("GET", "/v1/events") as stream:
            for line in stream.iter_lines():
                heard.append(line)
                if "run8" in line:
                    return

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    until(lambda: heard, "the stream")
    for project in ("bees", "apes"):
        assert two.tokens[project, "ingest"].push("run8", "hello\n") == 200
    listener.join(30)
    told = [json.loads(line.removeprefix("data: ")) for line in heard if line.startswith("data: ")]
    assert {one["job"] for one in told if one.get("job")} == {"apes~run8"}


# --- the matrix: each route of the API's document, for each role, in one's own project and in another one. It comes last,
# because whoever has the right to send makes jobs by it.


RIGHT_OF = dict(re.findall(r"^\| `([A-Z]+ /\S*)` \| ([a-z]*) ?\|", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE))
"""route -> right, as docs/api.md says it; ``test_api_document`` holds it to the program"""
BODIES: dict[str, dict[str, Any]] = {
    "end": {"exit_code": 1}, "reject": {"why": "x"}, "claim": {"executor": "r"}, "resume": {"executor": "r"},
    "start": {"executor": "r", "fence": 1}, "renew": {"executor": "r", "fence": 1},
    "result": {"executor": "r", "fence": 1, "succeeded": True}, "isolate": {"why": "it is broken"},
    "release": {"why": "mended"}, "reboot": {"why": "it hangs"},
    "corrections": {"category": "infrastructure", "reason": "ecc_error"},
    "{group}": {"note": "known"}, "comments": {"text": "known"},
    "checkpoints": {"path": "/ckpt/1", "step": 1}, "progress": {"step": 1},
    "scores": {"step": 1, "data_set": "d", "score": 0.5},
}  # fmt: skip


UNHEALTHY = [{"component": "x", "states": [{"time": "2026-11-24T10:00:00Z", "health": "Unhealthy"}]}]
"""of gpud; also who has the right to send may tell it of the own node only"""
VIOLATED = {"lines": ["XID error 79 detected."]}
"""of DCGM, likewise"""


def _routes(two: Two) -> list[tuple[str, str]]:
    paths = two.server.get("/openapi.json")["paths"]
    return sorted((method.upper(), path) for path, ways in paths.items() for method in ways)


def _status(who: httpx.Client, method: str, path: str, places: dict[str, Any], **more: Any) -> int:
    """The status alone: a stream of events would never end."""
    body = None if method == "GET" else {**BODIES, **more}.get(path.rpartition("/")[2], {})
    params = {"executor": "r"} if path.endswith("orders") else {}
    with who.stream(method, path.format(**places), json=body, params=params) as answer:
        return answer.status_code


def test_every_route_asks_for_its_right(two: Two) -> None:
    """On things that do not exist: whoever has the right is told so, and nobody else."""
    names = dict.fromkeys(("job", "node", "rule", "index"), "none")
    nothing = {**names, **dict.fromkeys(("action", "group", "webhook"), 1 << 40)}
    holders: dict[str, httpx.Client] = {"admin": two.server.client}
    for role in ROLES.keys() - {"admin"}:
        words = ("--node", "gpu-1") if role == "node" else ()
        holders[role] = two.service.token(f"matrix-{role}", "--role", role, *words).client
    wrong = httpx.Client(base_url=two.server.url, headers={"authorization": "Bearer dgn_" + "A" * 43})
    nobody = httpx.Client(base_url=two.server.url)
    tried = 0
    for method, path in _routes(two):
        right = RIGHT_OF[f"{method} {path}"]
        for who in (nobody, wrong):
            assert (_status(who, method, path, nothing) == 401) is bool(right), (method, path)
        for role, who in holders.items():
            status = _status(who, method, path, nothing)
            assert status != 401, (method, path, role)
            of_nodes = "/findings" in path and method == "POST"  # the right to send is not enough
            allowed = role in ("node", "admin") if of_nodes else right in {*ROLES[role], ""}
            assert (status == 403) is not allowed, (method, path, role, status)
            tried += 1
    assert tried >= 5 * 45


def test_no_route_touches_another_project_whatever_the_role(two: Two) -> None:
    def all_of_it(project: str) -> list[Any]:
        places = two.places[project]
        paths = f"/v1/actions/{places['action']}", f"/v1/failures/{places['group']}", f"/v1/jobs/{project}~run7"
        return [two.server.get(path) for path in (*paths, f"/v1/jobs/{project}~run7/report")]

    before = all_of_it("bees")
    tried = 0
    for method, path in _routes(two):
        named = re.findall(r"{(\w+)}", path)
        if not named or method == "GET" or named[0] in ("webhook", "rule", "index"):
            continue
        for role in ("ingest", "read", "operate"):
            places = {**two.places["bees"], "job": "bees~run7"}
            status = _status(two.tokens["apes", role].client, method, path, places, gpud=UNHEALTHY, dcgm=VIOLATED)
            assert status in (403, 404), (method, path, role, status)
            tried += 1
    assert tried >= 40
    assert all_of_it("bees") == before
