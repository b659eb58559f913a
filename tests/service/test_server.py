"""The service from outside: a real process, a real socket; on SQLite and on PostgreSQL."""

from __future__ import annotations

import gzip
import json
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

from tests.conftest import ROOT
from tests.support.servers import Server

pytestmark = pytest.mark.server
LOGS = ROOT / "fixtures" / "logs"
GPU13 = (LOGS / "job123" / "gpu-13.log").read_bytes()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    words: list[str] = []
    if request.param == "postgresql":
        words = ["--database", request.getfixturevalue("postgres").database("serve")]
    with Server(tmp_path_factory.mktemp("serve") / "data", *words) as running:
        yield running


def refused(answer: httpx.Response, status: int, error: str) -> Any:
    """Every refusal has one shape, and says what to do."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["error"] == error
    assert body["what"]
    assert set(body) >= {"error", "what", "remedy"}
    assert "Traceback" not in answer.text
    return body


# --- a job, from its first byte to its diagnosis


def test_a_failed_job_is_diagnosed_as_the_library_does(server: Server, diagnose: Any) -> None:
    folder = LOGS / "job123"
    for path in sorted(folder.glob("*.log")):
        server.push("job123", path.read_bytes(), source=path.name, offset=0)
    server.end("job123", 1)
    report = server.get("/v1/jobs/job123/report")
    expected = json.loads(diagnose("replay", "--json", str(folder)).stdout)
    assert report["outcome"] == expected["outcome"] == "failed"
    for name in ("reason", "category", "suspects", "rule", "group", "confidence"):
        assert report["diagnosis"][name] == expected["diagnosis"][name], name
    assert report["diagnosis"]["root_cause"]["text"] == expected["diagnosis"]["root_cause"]["text"]
    assert report["diagnosis"]["root_cause"]["line"] == expected["diagnosis"]["root_cause"]["line"]
    assert report["compression"] == expected["compression"]
    assert report["action"] == expected["action"]
    job = server.get("/v1/jobs/job123")
    assert (job["state"], job["outcome"], job["reason"]) == ("ended", "failed", "ecc_error")
    assert job["attempts"][0]["exit_code"] == 1
    assert len(server.lines("job123")) == 58


def test_a_running_job_answers_live(server: Server) -> None:
    for step in range(1, 40):
        server.push("live", f"iteration {step}/100 | lm loss: {3 - step / 100:.3f} |\n".encode(), source="log")
    report = server.get("/v1/jobs/live/report")
    assert report["outcome"] == "running"
    assert report["compression"]["lines_in"] == 39
    job = server.get("/v1/jobs/live")
    assert job["state"] == "running"
    assert job["attempts"][0]["lines_in"] == 39


def test_a_failure_is_known_before_anybody_says_that_the_job_ended(server: Server) -> None:
    server.push("sudden", b"step 1\n" + GPU13, source="gpu-13.log", offset=0)
    deadline = time.monotonic() + 10
    while (job := server.get("/v1/jobs", name="sudden")["jobs"][0])["reason"] != "ecc_error":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert job["state"] == "running"


def test_an_exit_code_that_no_line_explains(server: Server) -> None:
    server.push("odd", b"hello\n", source="log", offset=0)
    server.end("odd", 137, signal=9)
    report = server.get("/v1/jobs/odd/report")
    assert report["outcome"] == "failed"
    assert report["diagnosis"]["reason"] == "host_out_of_memory"
    assert "SIGKILL ended the job" in report["diagnosis"]["summary"]


def test_attempts_are_apart_and_a_new_one_ends_the_one_before(server: Server) -> None:
    server.push("twice", GPU13, source="gpu-13.log", offset=0, attempt=1)
    server.push("twice", b"step 1\nall is well\n", source="gpu-13.log", offset=0, attempt=2)
    server.get("/v1/jobs/twice/report", attempt=2)
    deadline = time.monotonic() + 10
    while (attempts := server.get("/v1/jobs/twice")["attempts"])[1]["state"] != "ended":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert [one["number"] for one in attempts] == [2, 1]
    assert attempts[1]["ended_by"] == "superseded"
    assert server.get("/v1/jobs/twice/report", attempt=1)["diagnosis"]["reason"] == "ecc_error"
    assert server.get("/v1/jobs/twice/report")["outcome"] == "running"


def test_lines_are_found_by_text_rank_node_and_source(server: Server) -> None:
    text = b"[rank3]: ValueError: p\xc3\xa4th 100%_x\n[rank4]: ValueError: other\n"
    server.push("search", text, source="a.log", offset=0, node="n1")
    server.push("search", b"KeyError: 'z'\n\xff\xfe raw\n", source="b.log", offset=0, node="n2", rank=7)
    assert [line["text"] for line in server.lines("search", search="PäTH 100%_")] == ["[rank3]: ValueError: päth 100%_x"]
    assert [line["rank"] for line in server.lines("search", rank=4)] == [4]
    assert {line["source"] for line in server.lines("search", node="n2")} == {"b.log"}
    assert {line["rank"] for line in server.lines("search", source="b.log")} == {7}
    assert server.lines("search", search="%%") == []
    assert [line["text"] for line in server.lines("search", search="raw")] == ["\ufffd\ufffd raw"]


# --- exactly once


def test_pieces_of_any_size_with_overlaps_are_one_log(server: Server) -> None:
    whole = (LOGS / "job123" / "gpu-11.log").read_bytes()
    at = 0
    for size in (1, 0, 7, 1000, 333, 4096, 10_000, len(whole)):
        begin = max(0, at - 50)
        taken = server.push("pieces", whole[begin : at + size], source="s", offset=begin)
        at = min(len(whole), at + size)
        assert taken["next_offset"] == at
    server.push("whole", whole, source="s", offset=0)
    one, other = server.get("/v1/jobs/pieces/report"), server.get("/v1/jobs/whole/report")
    assert one["compression"] == other["compression"]
    assert one["diagnosis"] == other["diagnosis"]
    assert server.push("pieces", whole[:100], source="s", offset=0)["duplicate"] is True


def test_a_gap_is_refused_with_the_offset_that_is_wanted(server: Server) -> None:
    server.push("gap", b"0123456789", source="s", offset=0)
    answer = server.client.post("/v1/jobs/gap/logs", params={"source": "s", "offset": 20}, content=b"x")
    assert refused(answer, 409, "offset_gap")["expected_offset"] == 10
    assert server.get("/v1/jobs/gap/sources")["sources"][0]["received"] == 10


def test_another_file_under_the_same_name_is_refused(server: Server) -> None:
    server.push("two", b"I am the first writer\n", source="s", offset=0)
    answer = server.client.post("/v1/jobs/two/logs", params={"source": "s", "offset": 0}, content=b"I am another one\n")
    refused(answer, 409, "conflict")


def test_without_offset_a_key_names_what_was_sent(server: Server) -> None:
    assert server.push("keyed", b"a\n", source="s", key="1")["duplicate"] is False
    assert server.push("keyed", b"a\n", source="s", key="1")["duplicate"] is True
    assert server.push("keyed", b"a\n", source="s", key="2")["next_offset"] == 4


def test_many_writers_of_one_source_at_once_lose_nothing(server: Server) -> None:
    def write(number: int) -> None:
        with httpx.Client(base_url=server.url, timeout=30) as client:
            for part in range(20):
                data = f"KeyError: 'writer {number} part {part}'\n".encode()
                answer = client.post("/v1/jobs/crowd/logs", params={"source": "s", "key": f"{number}.{part}"}, content=data)
                assert answer.status_code == 200

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = [line["text"] for line in server.lines("crowd")]
    assert len(texts) == len(set(texts)) == 160
    for number in range(8):  # of one writer, in its order
        own = [text for text in texts if f"writer {number} " in text]
        assert own == [f"KeyError: 'writer {number} part {part}'" for part in range(20)]


# --- bodies


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "identity"])
def test_compressed_bodies(server: Server, encoding: str) -> None:
    pack: Any = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "zstd": zstandard.ZstdCompressor().compress,
        "identity": bytes,
    }[encoding]
    answer = server.client.post(
        f"/v1/jobs/packed-{encoding}/logs",
        params={"source": "s", "offset": 0},
        content=pack(GPU13),
        headers={"content-encoding": encoding},
    )
    assert answer.json()["next_offset"] == len(GPU13), answer.text


def test_a_truncated_gzip_is_refused_and_says_what_was_stored(server: Server) -> None:
    packed = gzip.compress(bytes(range(256)) * 4000, compresslevel=0)
    params = {"source": "s", "offset": 0}
    answer = server.client.post(
        "/v1/jobs/cut/logs", params=params, content=packed[: len(packed) // 2], headers={"content-encoding": "gzip"}
    )
    stored = refused(answer, 400, "bad_body")["next_offset"]
    assert 0 < stored < 256 * 4000
    assert server.get("/v1/jobs/cut/sources")["sources"][0]["received"] == stored


def test_a_zip_bomb_stops_at_its_bound(tmp_path: Path) -> None:
    with Server(tmp_path / "data", DIAGNOSE_SERVE_UNPACKED_LIMIT="10000000") as running:
        bomb = gzip.compress(b"\n" * 100_000_000)
        answer = running.client.post(
            "/v1/jobs/bomb/logs", params={"source": "s"}, content=bomb, headers={"content-encoding": "gzip"}
        )
        refused(answer, 413, "too_large")


@pytest.mark.parametrize(
    ("path", "headers", "body", "status", "error"),
    [
        ("/v1/jobs/..%2f..%2fetc/logs", {}, b"x", 404, "not_found"),
        ("/v1/jobs/a%20b/logs", {}, b"x", 400, "bad_name"),
        ("/v1/jobs/%00/logs", {}, b"x", 400, "bad_name"),
        ("/v1/jobs/x/logs?rank=-1", {}, b"x", 400, "bad_name"),
        ("/v1/jobs/x/logs?offset=99999999999999999999", {}, b"x", 400, "bad_name"),
        ("/v1/jobs/x/logs?source=%1b[31m", {}, b"x", 400, "bad_name"),
        ("/v1/jobs/x/logs", {"content-encoding": "br"}, b"x", 415, "unsupported"),
        ("/v1/jobs/x/logs", {"content-type": "image/png"}, b"x", 415, "unsupported"),
        ("/v1/jobs/x/logs", {"content-encoding": "gzip"}, b"not gzip", 400, "bad_body"),
        ("/v1/jobs/x/logs", {"content-encoding": "zstd"}, b"not zstd", 400, "bad_body"),
        ("/v1/jobs/x/end", {"content-type": "application/json"}, b"{", 422, "not_valid"),
        ("/v1/jobs/x/end", {"content-type": "application/json"}, b'{"exit_code": "x"}', 422, "not_valid"),
        ("/v1/nothing", {}, b"x", 404, "not_found"),
        ("/v1/jobs", {}, b"x", 405, "method_not_allowed"),
    ],
)
def test_bad_requests(server: Server, path: str, headers: dict[str, str], body: bytes, status: int, error: str) -> None:
    refused(server.client.post(path, headers=headers, content=body), status, error)


@pytest.mark.parametrize(
    "path",
    ["/v1/jobs/none", "/v1/jobs/none/report", "/v1/jobs/none/lines", "/v1/jobs/none/sources", "/v1/failures/99999",
     "/v1/nodes/none", "/v1/jobs/none/series"],
)  # fmt: skip
def test_what_is_not_there_is_said_so(server: Server, path: str) -> None:
    refused(server.client.get(path), 404, "not_found")


def test_a_streamed_log_is_taken_in_while_it_is_written(server: Server) -> None:
    seen = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"KeyError: 'first'\n"
        assert seen.wait(20)
        yield b"KeyError: 'second'\n"

    def send() -> None:
        with httpx.Client(base_url=server.url, timeout=30) as client:
            client.post("/v1/jobs/streamed/logs", params={"source": "s", "offset": 0}, content=pieces()).raise_for_status()

    sender = threading.Thread(target=send)
    sender.start()
    deadline = time.monotonic() + 15
    while True:
        answer = server.client.get("/v1/jobs/streamed/lines")
        if answer.status_code == 200 and answer.json()["lines"]:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    seen.set()
    sender.join()
    assert len(server.lines("streamed")) == 2


def test_records_of_json(server: Server) -> None:
    body = b'{"message": "KeyError: 1", "rank": 3}\n{"message": "KeyError: 2", "rank": 4}\nnot json\n'
    answer = server.client.post("/v1/jobs/records/logs", content=body, headers={"content-type": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["rejected"] == 1
    assert {(line["text"], line["rank"]) for line in server.lines("records")} == {("KeyError: 1", 3), ("KeyError: 2", 4)}


HOSTILE = b"\x1b[31m<script>alert(1)</script>\x00\xff\xfe ${jndi:ldap://x} ' OR 1=1; -- \xe2\x80\xae RuntimeError: boom\r\n"


def test_hostile_text_is_data(server: Server) -> None:
    server.push("hostile", HOSTILE * 3 + b"A" * 3_000_000 + b"\n", source="<b>' OR ''='", offset=0, node="a'b")
    assert server.get("/v1/jobs/hostile/report")["compression"]["lines_in"] == 4
    lines = server.lines("hostile")
    assert any("<script>" in line["text"] for line in lines)
    assert lines[-1]["cut"] == 3_000_000 - 65536
    assert lines[0]["source"] == "<b>' OR ''='"
    answer = server.client.get("/v1/jobs/hostile/lines")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "access-control-allow-origin" not in answer.headers


# --- groups, corrections, nodes, actions


def test_the_same_failure_is_one_group_that_can_regress(server: Server) -> None:
    text = (
        b"Traceback (most recent call last):\n  File \"/x/train.py\", line 3, in <module>\n    go()\nKeyError: 'same-group'\n"
    )
    for job in ("g1", "g2"):
        server.push(job, text, source="log", offset=0, **{"label.user": "kim", "label.gpus": "8"})
        server.end(job, 1)
        server.get(f"/v1/jobs/{job}/report")
    number = server.get("/v1/jobs/g1")["group_id"]
    assert number == server.get("/v1/jobs/g2")["group_id"]
    group = server.get(f"/v1/failures/{number}")
    assert (group["count"], group["state"], group["regressed"]) == (2, "open", False)
    assert group["users"] == [{"user": "kim", "count": 2}]
    assert {one["job"] for one in group["occurrences"]} == {"g1", "g2"}
    answer = server.client.patch(f"/v1/failures/{number}", json={"state": "resolved", "note": "mended"})
    assert answer.json()["state"] == "resolved"
    server.push("g3", text, source="log", offset=0)
    server.end("g3", 1)
    server.get("/v1/jobs/g3/report")
    group = server.get(f"/v1/failures/{number}")
    assert (group["count"], group["state"], group["regressed"], group["note"]) == (3, "open", True, "mended")
    assert number in [one["id"] for one in server.get("/v1/failures", reason="key_error")["failures"]]
    # What is judged again is not counted again.
    server.push("g3", b"more\n", source="log")
    server.get("/v1/jobs/g3/report")
    assert server.get(f"/v1/failures/{number}")["count"] == 3


def test_many_jobs_that_begin_at_once_are_one_each(server: Server) -> None:
    """They are opened together; two sources of one job are still one job."""
    answers: list[int] = []

    def begin(number: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            for source in ("out", "err"):
                params = {"source": source, "offset": 0, "label.user": f"user-{number // 2}"}
                answer = client.post(f"/v1/jobs/crowd-{number // 2}/logs", params=params, content=b"x\n")
                answers.append(answer.status_code)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(80)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 160
    found = server.get("/v1/jobs", name="crowd-", limit=1000)["jobs"]
    assert sorted((job["name"], job["user"], job["attempt"]) for job in found) == sorted(
        (f"crowd-{number}", f"user-{number}", 1) for number in range(40)
    )
    assert [one["name"] for one in server.get("/v1/jobs/crowd-7/sources")["sources"]] == ["out", "err"]


def test_a_person_corrects_a_diagnosis(server: Server) -> None:
    server.push("wrong", b"KeyError: 'x'\n", source="log", offset=0)
    server.end("wrong", 1)
    server.get("/v1/jobs/wrong/report")
    body = {"category": "infrastructure", "reason": "storage_error", "source": "log", "line": 1, "note": "NFS was gone"}
    answer = server.client.post("/v1/jobs/wrong/corrections", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.json()["was"]["reason"] == "key_error"
    assert server.get("/v1/corrections")["corrections"][0]["note"] == "NFS was gone"
    refused(server.client.post("/v1/jobs/wrong/corrections", json={**body, "category": "script"}), 400, "bad_request")
    refused(server.client.post("/v1/jobs/none/corrections", json=body), 404, "not_found")


def test_nodes_and_actions_come_of_reports(server: Server) -> None:
    server.push("node-job", GPU13, source="gpu-13.log", offset=0, node="gpu-13")
    server.end("node-job", 1)
    server.get("/v1/jobs/node-job/report")
    node = server.get("/v1/nodes/gpu-13")
    assert node["state"] == "suspect"
    assert "node-job" in [one["job"] for one in node["history"]]
    deadline = time.monotonic() + 20
    while not (rows := server.get("/v1/actions", job="node-job")["actions"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # Of the few nodes that this service knows none may be isolated by itself: the job goes on without it.
    assert (rows[0]["kind"], rows[0]["avoid"], rows[0]["state"]) == ("restart", ["gpu-13"], "proposed")
    decision = server.get("/v1/jobs/node-job/decision")
    assert (decision["wanted"], decision["limits"][0]["name"]) == ("isolate_and_restart", "isolated-share")


def test_pages_go_on_where_they_ended(server: Server) -> None:
    for number in range(7):
        server.push(f"page-{number}", b"x\n", source="log", offset=0)
        server.get(f"/v1/jobs/page-{number}")
    names: list[str] = []
    before: dict[str, str] = {}
    while True:
        page = server.get("/v1/jobs", name="page-", limit=3, **before)
        names += [job["name"] for job in page["jobs"]]
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert sorted(names) == [f"page-{number}" for number in range(7)]
    rules: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = server.get("/v1/rules", limit=300, **after)
        rules += [rule["id"] for rule in page["rules"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert len(rules) == len(set(rules)) > 600


# --- events, health, documents


def test_events_are_streamed_and_go_on_behind_the_last_one(server: Server) -> None:
    def read(until: str, last: str | None) -> tuple[list[str], str]:
        kinds, number = [], ""
        headers = {"last-event-id": last} if last else {}
        with server.client.stream("GET", "/v1/events", params={"job": "eventful"}, headers=headers) as stream:
            begun.set()
            for line in stream.iter_lines():
                if line.startswith("id: "):
                    number = line[4:]
                if line.startswith("event: "):
                    kinds.append(line[7:])
                if line.startswith("data: ") and kinds[-1] == until:
                    return kinds, number
        raise AssertionError(kinds)

    begun = threading.Event()
    found: list[tuple[list[str], str]] = []
    reader = threading.Thread(target=lambda: found.append(read("job.started", None)))
    reader.start()
    assert begun.wait(10)
    time.sleep(0.2)
    with httpx.Client(base_url=server.url, timeout=30) as client:
        client.post("/v1/jobs/eventful/logs", params={"source": "s", "offset": 0}, content=GPU13).raise_for_status()
        client.post("/v1/jobs/eventful/end", json={"exit_code": 1}).raise_for_status()
    reader.join(20)
    kinds, number = found[0]
    assert kinds == ["job.started"]
    kinds, _ = read("action.proposed", number)
    assert "job.started" not in kinds
    assert kinds.index("job.diagnosed") < kinds.index("job.ended") < kinds.index("action.proposed")
    assert read("reset", "1")[0] == ["reset"]


def test_health_metrics_documents(server: Server) -> None:
    assert server.get("/healthz") == {"status": "ok"}
    assert server.get("/readyz")["ready"] is True
    server.push("counted", b"x\n", source="s")
    metrics = server.client.get("/metrics").text
    assert "diagnose_accepted_bytes_total" in metrics
    document = server.get("/openapi.json")
    assert "/v1/jobs/{job}/logs" in document["paths"]
    page = server.client.get("/docs")
    assert "/v1/jobs/{job}/report" in page.text
    assert "<script" not in page.text


# --- who may


def test_roles(tmp_path: Path, diagnose: Any) -> None:
    data = str(tmp_path / "data")
    secrets = {role: diagnose("tokens", "create", role, "--role", role, "--data", data).stdout.strip() for role in
               ("ingest", "read", "operate", "admin")}  # fmt: skip
    assert all(secret.startswith("dgn_") for secret in secrets.values())
    base = (tmp_path / "data" / "diagnose.db").read_bytes()
    assert not any(secret.encode() in base for secret in secrets.values())
    with Server(tmp_path / "data") as running:

        def status(role: str | None, method: str, path: str, **more: Any) -> int:
            headers = {"authorization": f"Bearer {secrets.get(role, role)}"} if role else {}
            return running.client.request(method, path, headers=headers, **more).status_code

        assert status("ingest", "POST", "/v1/jobs/j/logs", content=b"KeyError: 1\n") == 200
        assert status("ingest", "GET", "/v1/jobs/j/sources") == 200
        assert status("ingest", "GET", "/v1/jobs") == 403
        assert status("read", "GET", "/v1/jobs") == 200
        assert status("read", "POST", "/v1/jobs/j/logs", content=b"x\n") == 403
        assert status("read", "PATCH", "/v1/failures/1", json={"note": "x"}) == 403
        assert status("ingest", "GET", "/v1/jobs/j/raw") == 403
        assert status("operate", "DELETE", "/v1/jobs/j") == 403
        assert status("admin", "DELETE", "/v1/jobs/j") == 409  # it runs
        assert status("operate", "PATCH", "/v1/failures/1", json={"note": "x"}) in (200, 404)
        assert status("admin", "POST", "/v1/jobs/j/logs", content=b"x\n") == 200
        refused(running.client.get("/v1/jobs"), 401, "unauthorised")
        assert status("wrong", "GET", "/v1/jobs") == 401
        assert status(None, "GET", "/metrics") == 401
        assert status(None, "GET", "/healthz") == 200
        assert diagnose("tokens", "revoke", "read", "--data", data).returncode == 0
        assert "revoked" in diagnose("tokens", "list", "--data", data).stdout
        deadline = time.monotonic() + 15
        while status("read", "GET", "/v1/jobs") != 401:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_it_is_not_reachable_by_others_without_a_token(tmp_path: Path, diagnose: Any) -> None:
    done = diagnose("serve", "--host", "0.0.0.0", "--port", "0", "--data", str(tmp_path / "data"))
    assert done.returncode == 2
    assert "diagnose tokens create" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--database", "mysql://x"], "give postgresql://USER@HOST/NAME or sqlite:///PATH"),
        (["--database", "postgresql://127.0.0.1:1/x?password=hunter2"], "cannot be used"),
        (["--tls-key", "x"], "belong together"),
        (["--tls-key", "x", "--tls-certificate", "y"], "no such file"),
        (["--data", "/proc/nothing"], "cannot be written"),
        (["--port", "70000"], "give a whole number from 0 to 65,535"),
    ],
)
def test_what_cannot_start_says_why(tmp_path: Path, diagnose: Any, words: list[str], says: str) -> None:
    done = diagnose("serve", *([] if "--data" in words else ["--data", str(tmp_path / "data")]), *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stderr


def test_tls(tmp_path: Path) -> None:
    import subprocess

    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")],
        check=True, capture_output=True,
    )  # fmt: skip
    with Server(tmp_path / "data", "--tls-certificate", str(tmp_path / "cert"), "--tls-key", str(tmp_path / "key")) as running:
        assert running.url.startswith("https://")
        assert httpx.get(f"{running.url}/healthz", verify=False).status_code == 200


# --- load


def test_a_full_queue_says_when_to_come_back_and_a_small_job_goes_on(tmp_path: Path) -> None:
    """Scanning is held up by a database that takes nothing: kept lines may pile up to a bound, then the job is refused."""
    with Server(tmp_path / "data", DIAGNOSE_SERVE_QUEUE_JOB="2000000", DIAGNOSE_SERVE_QUOTA="3000000") as running:
        chunk = b"KeyError: 'x'\n" * 70_000
        answers = [
            running.client.post("/v1/jobs/big/logs", params={"source": "s"}, content=b"%d" % n + chunk) for n in range(20)
        ]
        busy = [answer for answer in answers if answer.status_code == 429]
        assert busy
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in busy)
        refused(busy[0], 429, "busy")
        assert {answer.status_code for answer in answers} == {200, 429}


def test_secrets_are_taken_out_of_what_is_stored(tmp_path: Path) -> None:
    secret = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
    with Server(tmp_path / "data", "--redact") as running:
        running.push("secret", f"ValueError: HF_TOKEN={secret} was refused\n".encode(), source="log", offset=0)
        running.end("secret", 1)
        assert running.get("/v1/jobs/secret/report")["diagnosis"]["reason"] == "value_error"
        answers = running.client.get("/v1/jobs/secret/report").text + running.client.get("/v1/jobs/secret/lines").text
        assert "was refused" in answers
        assert secret not in answers
