"""Bodies that a stranger sends, and bodies that are too large, to routes that read them as a whole. Against a real service."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.api.common import Asking, AskingMuch
from tests.service.intake.test_streams import token
from tests.support.servers import Server

pytestmark = pytest.mark.server

_PIECE = b"[]," * (1 << 18)
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("large") / "data"
    admin, sender = token(data, "admin", "--role", "admin"), token(data, "sender", "--role", "ingest")
    with Server(data) as running:
        running.client.headers["Authorization"] = f"Bearer {admin}"
        running.environment["SENDER"] = sender
        yield running


def routes(server: Server) -> list[tuple[str, str]]:
    """(method, path) of each route that takes JSON and reads it as a whole."""
    found = []
    for path, methods in server.get("/openapi.json")["paths"].items():
        for method, route in methods.items():
            content = route.get("requestBody", {}).get("content", {})
            if set(content) == {"application/json"} and "shippers" not in route["tags"]:
                found.append((method.upper(), re.sub(r"\{[a-z]+\}", "1", path)))
    return found


def peak(server: Server) -> int:
    """The most memory that it has taken, in megabytes."""
    told = Path(f"/proc/{server.pid}/status").read_text()
    return next(int(line.split()[1]) // 1024 for line in told.splitlines() if line.startswith("VmHWM"))


def sent(server: Server, method: str, path: str, head: dict[str, str], body: Iterator[bytes]) -> httpx.Response | None:
    """The answer; None if the connection was closed while the body was on its way."""
    with contextlib.suppress(httpx.TransportError):
        return httpx.request(method, server.url + path, content=body, headers=head, timeout=60)
    return None


def test_a_stranger_is_asked_who_it_is_before_its_body_is_read(server: Server) -> None:
    """Two hundred megabytes once stood everybody still for minutes: they were read and parsed first."""
    asked, answered = [], []

    def body() -> Iterator[bytes]:
        yield b'{"a": ['
        for number in range(60):
            asked.append(number)
            answered.append(server.client.get("/healthz").status_code)
            yield _PIECE
        yield b"1]}"

    before, known = peak(server), routes(server)
    assert len(known) > 15
    for method, path in known[:4]:
        answer = sent(server, method, path, JSON, body())
        assert answer is None or answer.status_code == 401, (method, path)
    assert peak(server) - before < 40
    assert answered == [200] * len(asked), "others are answered while it is on its way"
    assert asked


def test_no_route_looks_at_the_body_of_a_stranger(server: Server) -> None:
    """No right to anything, and no JSON either."""
    for method, path in routes(server):
        for shown in ("", "Bearer dgn_wrong"):
            answer = server.client.request(method, path, content=b"{", headers=JSON | {"Authorization": shown})
            assert answer.status_code == 401, (method, path)


def test_who_may_not_is_told_before_the_body_is_read(server: Server) -> None:
    head = JSON | {"Authorization": f"Bearer {server.environment['SENDER']}"}
    for path in ("/v1/nodes/gpu-1/isolate", "/v1/nodes/findings/kubernetes", "/v1/nodes/gpu-1/findings/gpud", "/v1/webhooks"):
        assert server.client.post(path, content=b"{", headers=head).status_code == 403, path


@pytest.mark.parametrize(
    ("path", "largest"), [("/v1/nodes/1/isolate", Asking.largest), ("/v1/nodes/findings/kubernetes", AskingMuch.largest)]
)
def test_a_body_is_bounded(server: Server, path: str, largest: int) -> None:
    head = JSON | dict(server.client.headers)
    before = peak(server)
    answer = sent(server, "POST", path, head, (b" " * (1 << 20) for _ in range((largest >> 20) + 40)))
    assert answer is None or answer.status_code == 413
    assert peak(server) - before < (largest >> 20) * 2 + 40


@pytest.mark.parametrize("value", [b"[]", b"1", b'"ab"', b'{"":0}'])
@pytest.mark.parametrize(
    ("path", "kind"), [("/v1/nodes/1/isolate", Asking), ("/v1/nodes/findings/kubernetes", AskingMuch)], ids=["little", "much"]
)
def test_the_values_of_a_body_are_bounded(server: Server, path: str, kind: type[Asking], value: bytes) -> None:
    """Twelve megabytes of short strings took two hundred of memory."""
    body = b"[" + b",".join([value] * (kind.most_values + 1)) + b"]"
    assert len(body) <= kind.largest
    answer = server.client.post(path, content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
    assert "values" in answer.text


def test_a_form_of_a_stranger_is_bounded(server: Server) -> None:
    before = peak(server)
    answer = sent(server, "POST", "/ui/sign-in", FORM, (b"a=b&" * (1 << 18) for _ in range(100)))
    assert answer is None or answer.status_code in (400, 413)
    parted = {"Content-Type": "multipart/form-data; boundary=x"}
    begun = b'--x\r\nContent-Disposition: form-data; name="token"\r\n\r\n'
    answer = sent(server, "POST", "/ui/sign-in", parted, (begun if number == 0 else b"a" * (1 << 20) for number in range(100)))
    assert answer is None or answer.status_code in (400, 413)
    assert peak(server) - before < 30
