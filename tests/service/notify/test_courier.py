"""Webhooks from outside: a real service, a real receiver, and the libraries that receivers use."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cloudevents.v1.http import from_http
from sqlalchemy import Connection
from standardwebhooks.webhooks import Webhook

from service.errors import Unavailable
from service.events import Events
from service.net.guarded import Outgoing, networks
from service.notify.courier import Courier, settled_secret
from service.store import Store, reading
from service.store import webhooks as stored
from service.telemetry import Telemetry
from tests.conftest import ROOT
from tests.support.receivers import Receiver
from tests.support.servers import Server

pytestmark = pytest.mark.server
GPU13 = (ROOT / "fixtures" / "logs" / "job123" / "gpu-13.log").read_bytes()
KEY_ERROR = (
    b"Traceback (most recent call last):\n  File \"/x/train.py\", line 3, in <module>\n    go()\nKeyError: '<!channel> `x`'\n"
)
SHORT = {"DIAGNOSE_SERVE_WEBHOOK_RETRY_S": "0.2"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def add(server: Server, url: str, **more: Any) -> Any:
    answer = server.client.post("/v1/webhooks", json={"url": url, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def fail(server: Server, job: str, text: bytes = KEY_ERROR) -> None:
    server.push(job, text, source="log", offset=0)
    server.end(job, 1)
    assert server.get(f"/v1/jobs/{job}/report")["outcome"] == "failed"


def only(server: Server) -> Any:
    (row,) = server.get("/v1/webhooks")["webhooks"]
    return row


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_failures_regressions_and_actions_are_told_signed_and_once(
    tmp_path: Path, receiver: Receiver, database: str, request: pytest.FixtureRequest
) -> None:
    words = ["--database", request.getfixturevalue("postgres").database("hooks")] if database == "postgresql" else []
    with Server(tmp_path / "data", "--webhooks-to", "127.0.0.0/8", *words, **SHORT) as server:
        fail(server, "before")  # what was before the webhook is not told
        made = add(server, receiver.url)
        fail(server, "g1", GPU13)
        group = server.get("/v1/jobs/g1")["group_id"]
        assert server.client.patch(f"/v1/failures/{group}", json={"state": "resolved"}).status_code == 200
        fail(server, "g2", GPU13)
        receiver.wait(5)  # two failures, two proposed actions, one regression
        time.sleep(1)
        events = []
        for _, headers, body in receiver.got:
            Webhook(made["secret"]).verify(body, headers)
            events.append(from_http(headers, body))
        kinds = Counter(event["type"] for event in events)
        assert kinds["diagnose.job.failed"] == 2
        assert kinds["diagnose.failure.regressed"] == 1
        assert kinds["diagnose.action.proposed"] == 2
        assert len({headers["webhook-id"] for _, headers, _ in receiver.got}) == len(receiver.got)
        told = next(event.data for event in events if event["type"] == "diagnose.job.failed")
        assert (told["job"], told["attempt"], told["reason"], told["group"]) == ("g1", 1, "ecc_error", group)
        assert "double bit error" in told["root_cause"]["text"]
        proposed = next(event.data for event in events if event["type"] == "diagnose.action.proposed")
        assert proposed["job"] == "g1"
        assert proposed["why"]
        row = only(server)
        assert (row["waiting"], row["last_status"], row["to"]) == (0, "HTTP 204", f"http://127.0.0.1:{receiver.port}/…")
        assert made["secret"] not in server.client.get("/v1/webhooks").text
        states = {one["state"] for one in server.get(f"/v1/webhooks/{made['id']}/deliveries")["deliveries"]}
        assert states == {"delivered"}
        assert server.client.delete(f"/v1/webhooks/{made['id']}").status_code == 204
        count = len(receiver.got)
        fail(server, "g3")
        time.sleep(1)
        assert len(receiver.got) == count


def test_a_message_in_slack_holds_log_text_as_text(tmp_path: Path, receiver: Receiver) -> None:
    with Server(tmp_path / "data", "--webhooks-to", "127.0.0.0/8") as server:
        add(server, receiver.url, format="slack", events=["failures"])
        fail(server, "job-1")
        ((_, headers, body),) = receiver.wait(1)
        assert headers["content-type"] == "application/json"
        text = json.loads(body)["text"]
        assert "key_error" in text.replace("\uff3f", "_")
        assert "&lt;!channel&gt;" in text
        assert "<!channel>" not in text


def test_what_does_not_arrive_is_tried_again_over_a_kill(tmp_path: Path) -> None:
    receiver = Receiver(answers=lambda number: (500, {}))
    try:
        with Server(tmp_path / "data", "--webhooks-to", "127.0.0.0/8", **SHORT) as server:
            made = add(server, receiver.url, events=["failures"])
            fail(server, "lost")
            receiver.wait(2)
            assert only(server)["waiting"] == 1
            server.kill()
            before = len(receiver.got)
            receiver.answers = lambda number: (200, {})
            server.start()
            receiver.wait(before + 1)
            ids = {headers["webhook-id"] for _, headers, _ in receiver.got}
            assert len(ids) == 1, "each try has the same id"
            for _, headers, body in receiver.got:
                Webhook(made["secret"]).verify(body, headers)
            deadline = time.monotonic() + 10
            while only(server)["waiting"]:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            count = len(receiver.got)
            time.sleep(1)
            assert len(receiver.got) == count
    finally:
        receiver.close()


def test_a_failure_that_nobody_was_told_of_when_the_service_was_killed_is_told_after_it(tmp_path: Path) -> None:
    receiver = Receiver()
    port = receiver.port
    receiver.close()
    with Server(tmp_path / "data", "--webhooks-to", "127.0.0.0/8", **SHORT) as server:
        add(server, receiver.url, events=["failures"])
        for number in range(5):
            fail(server, f"job-{number}")
        server.kill()
        server.start()
        receiver = Receiver(port=port)
        try:
            receiver.wait(5)
            jobs = {from_http(headers, body).data["job"] for _, headers, body in receiver.got}
            assert jobs == {f"job-{number}" for number in range(5)}
        finally:
            receiver.close()


def test_a_receiver_that_does_not_answer_holds_up_neither_others_nor_logs(tmp_path: Path, receiver: Receiver) -> None:
    stuck = Receiver(slow_s=8)
    try:
        with Server(tmp_path / "data", "--webhooks-to", "127.0.0.0/8", **SHORT) as server:
            add(server, stuck.url, events=["failures"])
            add(server, receiver.url, events=["failures"])
            began = time.monotonic()
            for number in range(5):
                fail(server, f"job-{number}", GPU13)
            receiver.wait(5, within_s=15)
            assert len(stuck.got) == 1
            assert time.monotonic() - began < 15
            assert server.get("/readyz")["ready"] is True
    finally:
        stuck.close()


class Full(Store):
    """A database that can be read and not written: a full disk, which cannot be had here."""

    full = False

    async def awrite(self, work: Any) -> Any:
        if self.full:
            raise Unavailable("the database does not answer")
        return await super().awrite(work)


def test_a_receiver_is_not_told_again_and_again_while_nothing_can_be_noted(tmp_path: Path, receiver: Receiver) -> None:
    store, now = Full(f"sqlite:///{tmp_path / 'x.db'}"), [1000.0]

    def told(connection: Connection) -> None:
        stored.add(connection, receiver.url, "cloudevents", secret_for_tests, ("failures",), "kim", now[0])
        reading.record(connection, "policy", "job.failed", "job/x", {"job": "x"}, now[0])

    async def go() -> None:
        outgoing = Outgoing(networks("127.0.0.0/8"))
        courier = Courier(store, Events(), Telemetry(), outgoing, 5.0, clock=lambda: now[0])
        for step in range(30):
            if step == 1:
                store.full = True
            with contextlib.suppress(Unavailable):
                await courier.round()
            await asyncio.sleep(0.02)
            now[0] += 2.0
        assert 1 <= len(receiver.got) <= 4, "after 5, 15 and 45 seconds"
        store.full = False
        now[0] += 600.0
        await courier.round()
        await asyncio.sleep(0.3)
        assert store.read(stored.standing)[1].get("waiting", 0) == 0
        await courier.stop()

    secret_for_tests = settled_secret(None)
    try:
        store.migrate()
        store.write(told)
        asyncio.run(go())
    finally:
        store.close()


def test_the_receiver_says_when_to_come_back_and_when_never(tmp_path: Path) -> None:
    receiver = Receiver(answers=lambda number: (429, {"retry-after": "2"}) if number == 1 else (410, {}))
    try:
        with Server(tmp_path / "data", "--webhooks-to", "127.0.0.0/8", **SHORT) as server:
            add(server, receiver.url, events=["failures"])
            fail(server, "job-1")
            receiver.wait(2)
            assert receiver.got[1][0] - receiver.got[0][0] >= 1.9
            deadline = time.monotonic() + 10
            while only(server)["active"]:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert "410" in only(server)["off_because"]
            fail(server, "job-2")
            time.sleep(1)
            assert len(receiver.got) == 2
    finally:
        receiver.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"url": "https://127.0.0.1/"}, 400),
        ({"url": "https://169.254.169.254/latest"}, 400),
        ({"url": "http://example.com/"}, 400),
        ({"url": "https://x/", "format": "teams"}, 422),
        ({"url": "https://x/", "events": ["everything"]}, 422),
        ({"url": "https://x/", "events": []}, 422),
        ({"url": "https://x/", "secret": "short"}, 400),
        ({"url": "https://x/", "more": 1}, 422),
        ({}, 422),
    ],
)
def test_what_is_refused(closed: Server, body: Any, status: int) -> None:
    answer = closed.client.post("/v1/webhooks", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["remedy"]


def test_nothing_is_sent_to_this_machine_unless_allowed(
    closed: Server, receiver: Receiver, tmp_path: Path, diagnose: Any
) -> None:
    """The command line may have been told of other networks than the service: the service goes by its own."""
    data = ["--data", str(closed.data)]
    done = diagnose("webhooks", "add", receiver.url, "--webhooks-to", "127.0.0.0/8", *data)
    number = int(done.stdout.split()[0])
    answer = closed.client.post(f"/v1/webhooks/{number}/test").json()
    assert answer["delivered"] is False
    assert "--webhooks-to" in answer["why"]
    assert receiver.got == []
    assert diagnose("webhooks", "test", str(number), *data).returncode == 2
    assert diagnose("webhooks", "test", str(number), "--webhooks-to", "127.0.0.0/8", *data).returncode == 0
    assert len(receiver.got) == 1
    assert receiver.url.split("/")[2] in diagnose("webhooks", "list", *data).stdout
    assert "secret-path" not in diagnose("webhooks", "list", *data).stdout
    assert diagnose("webhooks", "remove", str(number), *data).returncode == 0
    assert diagnose("webhooks", "remove", str(number), *data).returncode == 2
    assert diagnose("webhooks", "add", "https://10.0.0.1/", *data).returncode == 2
    assert diagnose("webhooks", "add", "https://x/", "--events", "all", *data).returncode == 2


def test_a_webhook_of_a_project_is_told_of_its_jobs_only(tmp_path: Path, diagnose: Any) -> None:
    data = ["--data", str(tmp_path / "data")]
    wanted = {
        ("vision",): ["vision~theirs"],
        ("default",): ["mine"],
        ("vision", "default"): ["mine", "vision~theirs"],
        None: ["mine", "vision~theirs"],
    }
    receivers = [Receiver() for _ in wanted]
    with Server(tmp_path / "data", "--webhooks-to", "127.0.0.0/8", **SHORT) as server:
        for projects, receiver in zip(wanted, receivers, strict=True):
            made = add(server, receiver.url, events=["failures"], **({"projects": projects} if projects else {}))
            assert made["projects"] == (list(projects) if projects else None)
        fail(server, "mine")
        fail(server, "vision~theirs", KEY_ERROR.replace(b"KeyError", b"ValueError"))
        for jobs, receiver in zip(wanted.values(), receivers, strict=True):
            assert sorted(json.loads(body)["data"]["job"] for _, _, body in receiver.wait(len(jobs))) == jobs
        made = [one["projects"] for one in server.get("/v1/webhooks")["webhooks"]]
        assert made == [["vision"], ["default"], ["vision", "default"], None]
        listed = diagnose("webhooks", "list", *data).stdout
        assert "of vision,default" in listed
        assert "of all projects" in listed
    assert [len(receiver.got) for receiver in receivers] == [1, 1, 2, 2], "nor later"
    assert diagnose("digest", "--webhook", "1", "--webhooks-to", "127.0.0.0/8", *data).returncode == 0
    digest = receivers[0].got[-1][2].decode()
    assert "ValueError" in digest
    assert "KeyError" not in digest
    wrong = diagnose("webhooks", "add", receivers[0].url, "--project", "a b", "--webhooks-to", "127.0.0.0/8", *data)
    assert "not the name of a project" in wrong.stderr
    for receiver in receivers:
        receiver.close()


def test_only_administrators_see_or_make_them(tmp_path: Path, diagnose: Any) -> None:
    data = str(tmp_path / "data")
    secrets = {role: diagnose("tokens", "create", role, "--role", role, "--data", data).stdout.strip() for role in
               ("ingest", "read", "operate", "admin")}  # fmt: skip
    with Server(tmp_path / "data") as server:
        for role, secret in secrets.items():
            headers = {"authorization": f"Bearer {secret}"}
            expected = 200 if role == "admin" else 403
            assert server.client.get("/v1/webhooks", headers=headers).status_code == expected
            made = server.client.post("/v1/webhooks", headers=headers, json={"url": "https://example.invalid/"})
            assert made.status_code == (201 if role == "admin" else 403)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that may not send to private networks."""
    with Server(tmp_path_factory.mktemp("closed") / "data") as running:
        yield running
