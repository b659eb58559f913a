"""What works, what does not, and what to do: against real parts, and against parts that are really broken."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from diagnose import cache
from diagnose.cli import doctor
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import Matcher
from tests.conftest import Run
from tests.support.servers import Server


def checks(done: Any) -> dict[str, dict[str, str]]:
    answer = json.loads(done.stdout)
    assert answer["broken"] == sum(check["state"] == "broken" for check in answer["checks"])
    return {check["name"]: check for check in answer["checks"]}


def test_a_machine_on_which_all_works(diagnose: Run) -> None:
    done = diagnose("doctor", "--json")
    found = checks(done)
    assert done.returncode == 0
    assert found["rules"]["state"] == "works"
    assert "a sample is diagnosed as it should be" in found["rules"]["seen"]
    assert found["cache"]["state"] == "works"
    assert found["model"]["state"] == found["service"]["state"] == found["executors"]["state"] == "not set up"


def test_people_get_a_line_for_each_with_what_to_do(diagnose: Run) -> None:
    done = diagnose("doctor", DIAGNOSE_ENGINE="wheel", DIAGNOSE_CACHE="")
    assert done.returncode == 0
    assert "DIAGNOSE_ENGINE chooses it; unset it for the fastest" in done.stdout
    assert "unset DIAGNOSE_CACHE, so that what is slow to make is kept" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("words", "environment", "name", "seen", "remedy"),
    [
        ([], {"DIAGNOSE_ENGINE": "abacus"}, "engine", "DIAGNOSE_ENGINE=abacus is not an engine", "use one of: core"),
        (["--to", "localhost:9"], {}, "service", "localhost:9 does not answer", "check the address"),
        (["--to", "gopher://x"], {}, "service", "gopher://x is not the address", "give it as https://host:8321"),
        (["--llm", "http://localhost:9/v1"], {}, "model", "http://localhost:9/v1: not reachable", "start the endpoint"),
        (["--executors", "none.yaml"], {}, "executors", "none.yaml: cannot be read", "give a readable YAML file"),
        ([], {"DIAGNOSE_EXECUTORS": "odd.yaml"}, "executors", "odd.yaml", ""),
    ],
)
def test_what_is_broken_says_what_to_do(
    diagnose: Run, tmp_path: Path, words: list[str], environment: dict[str, str], name: str, seen: str, remedy: str
) -> None:
    (tmp_path / "odd.yaml").write_text("executors: 7\n")
    done = diagnose("doctor", "--json", *words, **environment)
    found = checks(done)
    assert done.returncode == 1
    assert found[name]["state"] == "broken"
    assert seen in found[name]["seen"]
    assert remedy in found[name]["remedy"]


def test_rules_that_came_compiled_are_told_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.yaml").write_text(f"rules:\n  - {{id: own-{tmp_path.name}, kind: debug, pattern: '{tmp_path.name}'}}\n")
    monkeypatch.setenv("DIAGNOSE_CACHE", str(tmp_path / "cache"))
    matcher = Matcher(load([str(tmp_path / "rules.yaml")]))
    assert not matcher.came_ready
    monkeypatch.setattr(cache, "READY", tmp_path / "cache")
    assert matcher.came_ready


@pytest.mark.server
def test_a_service_that_is_ready(diagnose: Run, tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        done = diagnose("doctor", "--json", "--to", server.url)
    assert checks(done)["service"] == {"name": "service", "state": "works", "seen": f"{server.url} is ready", "remedy": None}
    gone = checks(diagnose("doctor", "--json", "--to", server.url))["service"]
    assert gone["state"] == "broken"


@pytest.mark.server
def test_a_service_that_wants_a_token(diagnose: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = diagnose("tokens", "create", "me", "--role", "ingest", "--data", str(data)).stdout.split()[-1]
    with Server(data) as server:
        asked = [
            diagnose("doctor", "--json", "--to", server.url, *words) for words in ((), ("--token", "x"), ("--token", made))
        ]
    seen = [(one["state"], one["seen"].removeprefix(server.url)) for one in (checks(done)["service"] for done in asked)]
    assert seen == [
        ("limited", " is ready, but: it wants a token"),
        ("limited", " is ready, but: it does not know this token"),
        ("works", " is ready"),
    ]


@contextmanager
def ready_but(status: int) -> Iterator[str]:
    """A fake: it says that it is ready, and answers everything else with ``status``, as a proxy may that leads elsewhere."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"ready": true, "problems": []}'
            self.send_response(200 if self.path == "/readyz" else status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "words", "state"),
    [(200, (), "works"), (403, ("--token", "x"), "works"), (403, (), "limited")]
    + [(status, ("--token", "x"), "limited") for status in (401, 404, 421, 500, 503)],
)
def test_only_what_knows_the_token_works(status: int, words: tuple[str, ...], state: str) -> None:
    parser = argparse.ArgumentParser()
    doctor.configure(parser)
    with ready_but(status) as url:
        check = doctor._service(parser.parse_args(["--to", url, *words]))
    assert check.state == state
    seen = check.seen.replace(url, "")  # a port may have these digits, too
    assert (str(status) in seen) == (state == "limited" and status != 401)
