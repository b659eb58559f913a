"""The client, against an endpoint that speaks the protocol over a socket and fails as it is told.

A real model server cannot be made to send half an answer or a wrong status, so the endpoint here is a small HTTP server of
our own: real connections, real bytes, no model. ``Endpoint`` is for the other suites of the agent too.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from diagnose.errors import DiagnoseError
from diagnose.model.model import Answer, Ask, Model, Settings, Usage, base_url, shown_url
from tests.conftest import ROOT, Run

SCHEMA = {
    "type": "object",
    "properties": {"reason": {"type": "string", "enum": ["ecc_error", "hang"]}, "line": {"type": "integer"}},
    "required": ["reason", "line"],
    "additionalProperties": False,
}
GOOD = '{"reason": "hang", "line": 3}'
ASK = Ask("why", "v1", (("system", "You read logs."), ("user", "rank 3 stopped")), SCHEMA)


# -- an endpoint --------------------------------------------------------------------------------------------------------------


@dataclass
class Fault:
    """What happens to one request instead of a good answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    """send so many bytes of the body that was announced, then break the connection"""
    hang: bool = False
    """say nothing until the endpoint is closed"""
    drip: bool = False
    """a byte now and then, for ever: each read is in time, the whole is not"""
    endless: bool = False
    """bytes without end, as fast as they are taken"""


def completion(texts: Sequence[Any], finish: str = "stop", usage: Any = None, **message: Any) -> dict[str, Any]:
    """A body as ``/v1/chat/completions`` sends it."""
    choices = [
        {"index": k, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
        for k, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 20, "completion_tokens": 7 * len(texts)} if usage is None else usage
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}


def answer(texts: Sequence[Any], **more: Any) -> Fault:
    """A completion of these texts, where another than the endpoint's own is wanted."""
    return Fault(body=json.dumps(completion(texts, **more)).encode())


class Endpoint:
    """``/v1/models``, ``/v1/chat/completions`` and ``/v1/embeddings`` on a port of this machine."""

    def __init__(self) -> None:
        self.models: list[dict[str, Any]] = [{"id": "tiny", "object": "model", "max_model_len": 2048}]
        self.text: Callable[[dict[str, Any], int], Any] = lambda body, k: GOOD
        """(request, number of the sample) -> what the model says"""
        self.refuses: set[str] = set()
        """parameters, or forms of response_format, that are answered with 400"""
        self.named: bool = True
        """whether a refusal names the parameter"""
        self.ignores: set[str] = set()
        self.embeds = True
        self.faults: deque[Fault] = deque()
        """what happens to the next chat requests, one each"""
        self.always: Fault | None = None
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.together = self.most_together = 0
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.arrived = threading.Event()
        """a chat request is here"""
        self.pace_s = 0.0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                endpoint.serve(self, {})

            def do_POST(self) -> None:
                endpoint.serve(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The bodies of the chat requests so far."""
        return [body for path, _, body in self.seen if path == "/v1/chat/completions"]

    def serve(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        with self.lock:
            self.seen.append((handler.path, {k.lower(): v for k, v in handler.headers.items()}, body))
            chat = handler.path == "/v1/chat/completions"
            fault = (self.faults.popleft() if self.faults else self.always) if chat else None
            self.together += 1
            self.most_together = max(self.together, self.most_together)
        if chat:
            self.arrived.set()
        try:
            if self.pace_s:
                self.closing.wait(self.pace_s)
            self._send(handler, fault or self._good(handler.path, body))
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True
        finally:
            with self.lock:
                self.together -= 1

    def _good(self, path: str, body: dict[str, Any]) -> Fault:
        if path == "/v1/models":
            return self._json({"object": "list", "data": self.models})
        if path == "/v1/embeddings" and self.embeds:
            vectors = [[float(len(text)), 1.0, 0.5] for text in body["input"]]
            rows = [{"object": "embedding", "index": k, "embedding": vector} for k, vector in enumerate(vectors)]
            return self._json({"object": "list", "data": rows[::-1], "usage": {"prompt_tokens": 5, "total_tokens": 5}})
        if path != "/v1/chat/completions":
            return self._json({"error": {"message": "Not Found", "code": 404}}, 404)
        form = body.get("response_format", {}).get("type")
        for name in self.refuses:
            if (name in body and (name != "n" or body["n"] > 1)) or name == form:
                parameter = "response_format" if name == form else name
                text = f"{parameter} is not supported" + (": use max_completion_tokens" if name == "max_tokens" else "")
                error = {"message": text, "type": "invalid_request_error", "param": parameter}
                plain = {"message": "bad request", "type": "invalid_request_error", "param": None}
                return self._json({"error": error if self.named else plain}, 400)
        count = 1 if "n" in self.ignores else body.get("n", 1)
        said = completion([self.text(body, k) for k in range(count)])
        if body.get("logprobs") and "logprobs" not in self.ignores:
            for choice in said["choices"]:
                choice["logprobs"] = {"content": [{"token": "yes", "logprob": -0.1, "top_logprobs": []}]}
        return self._json(said)

    @staticmethod
    def _json(value: Any, status: int = 200) -> Fault:
        return Fault(status, json.dumps(value).encode())

    def _send(self, handler: BaseHTTPRequestHandler, said: Fault) -> None:
        if said.hang:
            self.closing.wait(30)
            handler.close_connection = True
            return
        handler.send_response(said.status)
        headers = {"Content-Type": "application/json", **said.headers}
        if said.drip or said.endless:
            handler.close_connection = True
            headers["Connection"] = "close"
        else:
            headers["Content-Length"] = str(len(said.body))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if said.cut is not None:
            handler.wfile.write(said.body[: said.cut])
            handler.wfile.flush()
            # A reset, and not a tidy end: what a server that was killed leaves behind.
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.close_connection = True
            handler.connection.close()
            return
        while said.drip and not self.closing.wait(0.05):
            handler.wfile.write(b" ")
        while said.endless and not self.closing.is_set():
            handler.wfile.write(b" " * 65536)
        handler.wfile.write(said.body)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIAGNOSE_LLM_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def settings(endpoint: Endpoint, **more: Any) -> Settings:
    """Quick ones: short pauses, and nothing remembered between tests."""
    return Settings(**{"url": endpoint.url, "model": "tiny", "backoff_s": 0.001, "cache": False, "timeout_s": 5, **more})


def ask(wanted: Settings, *asks: Ask, job: str = "job1") -> list[Answer]:
    """The answers to ``asks``, one after the other, from one model."""

    async def run() -> list[Answer]:
        async with Model(wanted) as model:
            return [await model.ask(one, job=job) for one in asks]

    return asyncio.run(run())


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# -- questions and answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "reused"),
    [
        ({"prompt_tokens": 20, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 16}}, 16),
        ({"prompt_tokens": 20, "completion_tokens": 7, "prompt_cache_hit_tokens": 12}, 12),
        ({"prompt_tokens": 20, "completion_tokens": 7, "prompt_tokens_details": None}, 0),
        ({"prompt_tokens": 20, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 900}}, 20),
    ],
    ids=["details", "another name", "none", "more than were read"],
)
def test_tokens_that_an_endpoint_had_read_before_are_counted(endpoint: Endpoint, usage: Any, reused: int) -> None:
    endpoint.always = answer([GOOD], usage=usage)

    async def spent() -> Usage:
        async with Model(settings(endpoint)) as model:
            await model.ask(ASK, job="job1")
            return model.usage

    found = asyncio.run(spent())
    assert (found.tokens_in, found.tokens_reused) == (20, reused)


def test_the_fixed_part_is_marked_where_a_gateway_wants_it(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(settings(endpoint), ASK)
    monkeypatch.setenv("DIAGNOSE_LLM_MARK_PREFIX", "1")
    ask(settings(endpoint), ASK)
    (_, _, plain), (_, _, marked) = endpoint.seen
    *fixed, last = plain["messages"]
    content = [{"type": "text", "text": fixed[-1]["content"], "cache_control": {"type": "ephemeral"}}]
    assert marked["messages"] == [*fixed[:-1], {**fixed[-1], "content": content}, last]
    monkeypatch.setenv("DIAGNOSE_LLM_MARK_PREFIX", "yes")
    with pytest.raises(DiagnoseError, match="DIAGNOSE_LLM_MARK_PREFIX cannot be 'yes'"):
        ask(settings(endpoint), ASK)


def test_what_is_sent_and_what_comes_back(endpoint: Endpoint) -> None:
    (got,) = ask(settings(endpoint, key="sk-of-this-test"), replace(ASK, n=3, seed=11))
    value = {"reason": "hang", "line": 3}
    assert (got.values, got.problems) == ((value, value, value), ())
    assert (got.tokens_in, got.tokens_out, got.cached, got.model) == (20, 21, False, "tiny")
    assert got.seconds > 0
    ((path, headers, body),) = endpoint.seen
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == "Bearer sk-of-this-test"
    assert body == {
        "model": "tiny",
        "messages": [{"role": "system", "content": "You read logs."}, {"role": "user", "content": "rank 3 stopped"}],
        "n": 3,
        "seed": 11,
        "temperature": 0.7,
        "max_tokens": 1024,
        "response_format": {"type": "json_schema", "json_schema": {"name": "why", "schema": SCHEMA, "strict": True}},
    }


def test_the_first_model_that_can_chat_is_taken_and_asked_for_once(endpoint: Endpoint) -> None:
    endpoint.models = [{"id": "BAAI/bge-m3"}, {"id": "big"}, {"id": "tiny"}]
    first, second = ask(settings(endpoint, model=None), ASK, replace(ASK, seed=1))
    assert (first.model, second.model) == ("big", "big")
    assert [path for path, _, _ in endpoint.seen] == ["/v1/models", "/v1/chat/completions", "/v1/chat/completions"]


@pytest.mark.parametrize(
    ("environment", "sent"),
    [
        ({}, "none"),
        ({"OPENAI_API_KEY": "second"}, "second"),
        ({"OPENAI_API_KEY": "second", "DIAGNOSE_LLM_KEY": "first"}, "first"),
    ],
)
def test_the_key_is_from_the_environment(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], sent: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ask(settings(endpoint), ASK)
    assert endpoint.seen[0][1]["authorization"] == f"Bearer {sent}"


def test_models_that_think_get_room_and_fields_of_their_own(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIAGNOSE_LLM_THINKING_TOKENS", "4000")
    monkeypatch.setenv("DIAGNOSE_LLM_EXTRA", '{"chat_template_kwargs": {"enable_thinking": true}, "reasoning_effort": "low"}')
    ask(settings(endpoint), ASK)
    ask(settings(endpoint, thinking_tokens=0, extra={}), ASK)
    thinks, plain = endpoint.asked
    assert (thinks["max_tokens"] - plain["max_tokens"], thinks["reasoning_effort"]) == (4000, "low")
    assert thinks["chat_template_kwargs"] == {"enable_thinking": True}
    assert "reasoning_effort" not in plain


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DIAGNOSE_LLM_THINKING_TOKENS", "many", "cannot be 'many'"),
        ("DIAGNOSE_LLM_EXTRA", "[1]", "no JSON object"),
        ("DIAGNOSE_LLM_EXTRA", "{", "no JSON object"),
        ("DIAGNOSE_LLM_EXTRA", '{"messages": []}', "'messages' of a question cannot be set"),
    ],
)
def test_what_is_wrong_with_these_is_said(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(DiagnoseError, match=said):
        ask(settings(endpoint), ASK)


def test_a_key_is_never_shown(endpoint: Endpoint) -> None:
    wanted = settings(endpoint, key="sk-secret-of-this-test")
    endpoint.always = Fault(401, b'{"error": {"message": "Incorrect API key: sk-secret-of-this-test"}}')
    (got,) = ask(wanted, ASK)
    assert got.problems == (
        "the endpoint answers 401: Incorrect API key: (key); the key is DIAGNOSE_LLM_KEY or OPENAI_API_KEY",
    )
    assert "secret" not in repr(wanted)
    assert len(endpoint.asked) == 1  # a key does not get better by itself


def test_equal_questions_have_equal_keys_and_others_have_not() -> None:
    changed = [
        replace(ASK, messages=(("system", "You read logs."), ("user", "rank 4 stopped"))),
        replace(ASK, messages=(("system", "You read logs.user"), ("", "rank 3 stopped"))),
        replace(ASK, schema={**SCHEMA, "required": ["reason"]}),
        replace(ASK, schema={**SCHEMA, "properties": dict(reversed(list(SCHEMA["properties"].items())))}),  # type: ignore[attr-defined]
        replace(ASK, n=2),
        replace(ASK, temperature=0.8),
        replace(ASK, seed=1),
        replace(ASK, max_tokens=10),
    ]
    assert len({one.key for one in [ASK, *changed]}) == len(changed) + 1
    assert replace(ASK, prompt="other", version="v2").key == ASK.key
    assert replace(ASK, temperature=1).key == replace(ASK, temperature=1.0).key


def test_bytes_of_a_log_that_are_no_text_are_sent_all_the_same(endpoint: Endpoint) -> None:
    (got,) = ask(settings(endpoint), replace(ASK, messages=(("user", b"rank \xff".decode("utf-8", "surrogateescape")),)))
    assert got.problems == ()
    assert endpoint.asked[0]["messages"] == [{"role": "user", "content": "rank ?"}]


@pytest.mark.parametrize(
    "broken",
    [replace(ASK, schema={"type": "thing"}), replace(ASK, messages=()), replace(ASK, n=0)],
    ids=["schema", "empty", "n"],
)
def test_a_broken_question_is_the_askers_fault(endpoint: Endpoint, broken: Ask) -> None:
    with pytest.raises(ValueError, match="why: "):
        ask(settings(endpoint), broken)
    assert endpoint.seen == []


# -- endpoints that fail ------------------------------------------------------------------------------------------------------

TRANSIENT = {
    "500": (Fault(500, b"out of memory"), "the endpoint answers 500: out of memory"),
    "502, a page": (
        Fault(502, b"<html>\n bad\x1b[31m gateway</html>"),
        "the endpoint answers 502: <html> bad [31m gateway</html>",
    ),
    "503": (Fault(503, b'{"detail": "loading"}'), "the endpoint answers 503: loading"),
    "429": (Fault(429, b'{"error": "slow down"}', {"Retry-After": "0"}), "the endpoint answers 429: slow down"),
    "429, a date": (Fault(429, b"{}", {"Retry-After": formatdate(0)}), "the endpoint answers 429: {}"),
    "429, nonsense": (Fault(429, b"", {"Retry-After": "soon"}), "the endpoint answers 429"),
    "half an answer": (
        Fault(body=json.dumps(completion([GOOD])).encode(), cut=40),
        "the connection broke within the answer (Connection reset by peer)",
    ),
    "half a JSON": (Fault(body=b'{"choices": [{"mess'), 'the answer is no JSON: {"choices": [{"mess'),
    "nothing": (Fault(), "the answer is empty"),
    "a page": (Fault(body=b"<html>log in</html>"), "the answer is no JSON: <html>log in</html>"),
    "a list": (Fault(body=b"[1]"), "the answer is no JSON object"),
    "no choices": (Fault(body=b'{"choices": []}'), "the answer has no choices in it"),
    "choices are no list": (Fault(body=b'{"choices": {"a": 1}}'), "the answer has no choices in it"),
    "an error with 200": (
        Fault(body=b'{"error": {"message": "overloaded", "code": 529}}'),
        "the endpoint reports an error: overloaded",
    ),
    "deep JSON": (Fault(body=b"[" * 200_000), "the answer is no JSON: " + "[" * 199 + "…"),
}


@pytest.mark.parametrize(("fault", "said"), TRANSIENT.values(), ids=TRANSIENT)
def test_what_may_pass_is_tried_again(endpoint: Endpoint, fault: Fault, said: str) -> None:
    endpoint.faults.extend([fault, fault])
    (got,) = ask(settings(endpoint, retries=2), ASK)
    assert (len(got.values), got.problems, len(endpoint.asked)) == (1, (), 3)


@pytest.mark.parametrize(("fault", "said"), TRANSIENT.values(), ids=TRANSIENT)
def test_what_does_not_pass_is_said(endpoint: Endpoint, fault: Fault, said: str) -> None:
    endpoint.always = fault
    (got,) = ask(settings(endpoint, retries=1), ASK)
    assert (got.values, got.problems, len(endpoint.asked)) == ((), (f"{said} (2 tries)",), 2)


LASTING = {
    "403": (Fault(403, b""), "the endpoint answers 403; the key is DIAGNOSE_LLM_KEY or OPENAI_API_KEY"),
    "404": (Fault(404, b'{"message": "no model x"}'), "the endpoint answers 404: no model x"),
    "413": (Fault(413, b""), "the question is too long for the endpoint: "),
    "redirect": (
        Fault(307, b"", {"Location": "http://127.0.0.1:1/steal"}),
        "the endpoint answers 307; redirects are not followed, name the place itself",
    ),
    "too long": (
        Fault(400, b'{"error": {"message": "This model\'s maximum context length is 2048 tokens."}}'),
        "the question is too long for the model: This model's maximum context length is 2048 tokens.",
    ),
    "a long pause": (Fault(429, b"", {"Retry-After": "600"}), "the endpoint answers 429"),
    "a large answer": (Fault(body=b" " * 2000), "the answer has more than 1000 bytes"),
    "an endless answer": (Fault(endless=True), "the answer has more than 1000 bytes"),
}


@pytest.mark.parametrize(("fault", "said"), LASTING.values(), ids=LASTING)
def test_what_will_not_pass_is_not_tried_again(endpoint: Endpoint, fault: Fault, said: str) -> None:
    endpoint.always = fault
    (got,) = ask(settings(endpoint, answer_bytes=1000), ASK)
    assert (got.values, got.problems, len(endpoint.asked)) == ((), (said,), 1)


def test_an_endless_error_page_is_not_read_to_its_end(endpoint: Endpoint) -> None:
    endpoint.always = Fault(500, endless=True)
    (got,) = ask(settings(endpoint, retries=0), ASK)
    assert got.problems == ("the endpoint answers 500",)


@pytest.mark.parametrize("fault", [Fault(hang=True), Fault(drip=True)], ids=["silent", "a byte now and then"])
def test_a_slow_endpoint_is_given_up_after_one_more_try(endpoint: Endpoint, fault: Fault) -> None:
    endpoint.always = fault
    (got,) = ask(settings(endpoint, timeout_s=0.3), ASK)
    assert got.problems == ("no answer within 0.3 s (2 tries)",)
    assert len(endpoint.asked) == 2


def test_an_endpoint_that_is_down() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        wanted = Settings(url, backoff_s=0.001, retries=1)
        (got,) = ask(wanted, ASK)
        assert (got.values, got.model) == ((), None)
        assert got.problems == ("not reachable (Connection refused) (2 tries)",)


def test_a_host_that_has_no_address() -> None:
    (got,) = ask(Settings("http://nowhere.invalid", backoff_s=0.001, retries=0), ASK)
    (problem,) = got.problems
    assert problem.startswith("not reachable (")
    assert "known" in problem or "resol" in problem  # the words are the system's


# -- answers that are of no use -----------------------------------------------------------------------------------------------

ANSWERS = {
    "fenced": ("```json\n" + GOOD + "\n```", None),
    "with words around it": ("The cause is {here}: " + GOOD + " I am sure.", None),
    "after thoughts": ('<think>maybe {"reason": "ecc_error", "line": 1}?</think>\n' + GOOD, None),
    "after thoughts whose beginning stands in the question": ('so {"reason": "ecc_error", "line": 1}?</think>' + GOOD, None),
    "after thoughts of other families": ("[THINK]hm[/THINK]" + GOOD, None),
    "after a channel for thoughts": ("<|channel|>analysis<|message|>hm<|channel|>final<|message|>" + GOOD, None),
    "thoughts alone": ("<think>it may be", "has only thoughts"),
    "a refusal in words": ("I'm sorry, but I can't help with that.", "is a refusal: I'm sorry, but"),
    "said twice": (GOOD + "\n" + GOOD, None),
    "no JSON": ("I think it hangs.", "has no JSON object in it: I think it hangs."),
    "a list": ("[1, 2]", "has no JSON object in it: [1, 2]"),
    "another schema": ('{"reason": "love", "line": 3}', "does not fit the schema: $.reason: 'love' is not one of"),
    "a member too many": ('{"reason": "hang", "line": 3, "do": "rm"}', "does not fit the schema: Additional properties"),
    "a member missing": ('{"reason": "hang"}', "does not fit the schema: 'line' is a required property"),
    "empty": ("", "is empty"),
    "null": (None, "is empty"),
    "a number": (7, "is empty"),
    "half an object": ('{"reason": "hang", "more": [{"reason": "hang", "line": 3}', "has no JSON object in it"),
    "not a number": ('{"reason": "hang", "line": NaN}', "has no JSON object in it"),
    "half a character": ('{"reason": "\\ud800", "line": 1}', "is no usable JSON"),
    "two that differ": (GOOD + ' or {"reason": "ecc_error", "line": 4}', "has 2 objects that fit, and they differ"),
    "deep": ('{"a":' * 100_000, "has no JSON object in it"),
    "a number of many digits": ('{"reason": "hang", "line": ' + "9" * 5000 + "}", "has no JSON object in it"),
}


@pytest.mark.parametrize(("text", "wrong"), ANSWERS.values(), ids=ANSWERS)
def test_only_what_fits_the_schema_is_a_value(endpoint: Endpoint, text: Any, wrong: str | None) -> None:
    endpoint.faults.append(answer([GOOD, text]))
    (got,) = ask(settings(endpoint), replace(ASK, n=2))
    good = {"reason": "hang", "line": 3}
    assert got.values == ((good, good) if wrong is None else (good,))
    assert len(got.problems) == (wrong is not None)
    assert "".join(got.problems).startswith("" if wrong is None else f"answer 2 of 2 {wrong}")
    assert len(endpoint.asked) == 1


def test_samples_of_no_use_are_drawn_once_more_with_other_seeds(endpoint: Endpoint) -> None:
    endpoint.text = lambda body, k: "no idea" if body["seed"] == 0 else GOOD
    (got,) = ask(settings(endpoint), ASK)
    assert (len(got.values), got.problems) == (1, ())
    assert (got.tokens_in, got.tokens_out) == (40, 14)  # both were paid for
    endpoint.text = lambda body, k: "no idea"
    (got,) = ask(settings(endpoint), ASK)
    assert got.problems == ("the answer has no JSON object in it: no idea",)
    assert [body["seed"] for body in endpoint.asked] == [0, 1000, 0, 1000]


def test_without_chance_nothing_is_drawn_again(endpoint: Endpoint) -> None:
    endpoint.text = lambda body, k: "no idea"
    ask(settings(endpoint), replace(ASK, temperature=0))
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (answer([GOOD[:20]], finish="length"), "the answer was cut at 1024 tokens (has no JSON object in it: "),
        (answer([None], refusal="I cannot\nhelp."), "the answer is a refusal: I cannot help."),
        (answer([None], finish="content_filter"), "the answer was held back by the endpoint's content filter"),
        (answer(["I cannot help."]), "the answer is a refusal: I cannot help."),
        (
            answer(["<think>well"], finish="length"),
            "the answer was cut at 1024 tokens (has only thoughts); a model that thinks first needs DIAGNOSE_LLM_THINKING",
        ),
    ],
    ids=["length", "refusal", "filter", "refusal in words", "thoughts"],
)
def test_an_answer_that_another_draw_would_not_mend(endpoint: Endpoint, said: Fault, problem: str) -> None:
    endpoint.always = said
    (got,) = ask(settings(endpoint), ASK)
    assert got.values == ()
    assert [one.startswith(problem) for one in got.problems] == [True]
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    "usage", [{}, "much", {"prompt_tokens": -1, "completion_tokens": True}, {"prompt_tokens": 1e99, "completion_tokens": None}]
)
def test_without_an_account_the_tokens_are_reckoned(endpoint: Endpoint, usage: Any) -> None:
    endpoint.always = answer([GOOD], usage=usage)
    (got,) = ask(settings(endpoint), ASK)
    assert len(got.values) == 1
    assert got.tokens_in == len("You read logs.") // 3 + len("rank 3 stopped") // 3 + 16
    assert got.tokens_out == len(GOOD) // 3


def test_an_answer_in_parts_is_put_together(endpoint: Endpoint) -> None:
    endpoint.always = answer([[{"type": "text", "text": GOOD[:9]}, {"type": "text", "text": GOOD[9:]}, None]])
    assert len(ask(settings(endpoint), ASK)[0].values) == 1


@pytest.mark.parametrize(
    ("message", "usable"),
    [
        ({"parsed": {"reason": "hang", "line": 3}}, True),
        ({"tool_calls": [{"type": "function", "function": {"name": "answer", "arguments": GOOD}}]}, True),
        ({"reasoning_content": GOOD}, True),
        ({"reasoning": f" {GOOD}\n"}, True),
        ({"reasoning_content": f"it may be {GOOD}"}, False),
        ({"reasoning_content": f'{GOOD} is one, {{"reason": "ecc_error", "line": 1}}'}, False),
    ],
    ids=["parsed", "tool call", "reasoning_content", "reasoning", "thoughts", "two objects"],
)
def test_an_answer_in_another_field_is_read(endpoint: Endpoint, message: dict[str, Any], usable: bool) -> None:
    endpoint.always = answer([None], **message)
    assert len(ask(settings(endpoint), replace(ASK, temperature=0))[0].values) == usable


# -- endpoints that can do less -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
@pytest.mark.parametrize(
    ("refuses", "forms"),
    [
        ({"json_schema"}, ["json_schema", "json_object", "json_object"]),
        ({"json_schema", "json_object"}, ["json_schema", "json_object", None, None]),
        ({"response_format"}, ["json_schema", "json_object", None, None]),
    ],
)
def test_without_schemas_the_answer_is_asked_for_in_words(
    endpoint: Endpoint, refuses: set[str], forms: list[str | None], named: bool
) -> None:
    endpoint.refuses, endpoint.named = refuses, named
    first, second = ask(settings(endpoint), ASK, replace(ASK, seed=1))
    assert (first.problems, second.problems) == ((), ())
    # The second question knows already what the endpoint takes.
    assert [body.get("response_format", {}).get("type") for body in endpoint.asked] == forms
    system, user = endpoint.asked[-1]["messages"]
    assert json.dumps(SCHEMA) in system["content"]
    assert system["content"].startswith("You read logs.")
    assert user["content"] == "rank 3 stopped"


def test_one_schema_that_does_not_compile_leaves_the_others(endpoint: Endpoint) -> None:
    endpoint.faults.append(Fault(500, b'{"error": {"message": "xgrammar: unsupported feature"}}'))
    ask(settings(endpoint), ASK, replace(ASK, schema={"type": "object"}))
    forms = [body["response_format"]["type"] for body in endpoint.asked]
    assert forms == ["json_schema", "json_object", "json_schema"]


def test_without_a_system_message_the_schema_is_one(endpoint: Endpoint) -> None:
    endpoint.refuses = {"json_schema"}
    ask(settings(endpoint), replace(ASK, messages=(("user", "rank 3 stopped"),)))
    assert [message["role"] for message in endpoint.asked[-1]["messages"]] == ["system", "user"]


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_where_n_is_refused_each_sample_is_a_request(endpoint: Endpoint, named: bool) -> None:
    endpoint.refuses, endpoint.named = {"n"}, named
    (got,) = ask(settings(endpoint), replace(ASK, n=3, seed=5))
    assert (len(got.values), got.problems) == (3, ())
    single = [body for body in endpoint.asked if "n" not in body]
    assert sorted(body["seed"] for body in single) == [5, 6, 7]
    assert got.tokens_in == 60


def test_where_n_is_ignored_the_missing_samples_are_asked_for(endpoint: Endpoint) -> None:
    endpoint.ignores = {"n"}
    first, second = ask(settings(endpoint), replace(ASK, n=3), replace(ASK, n=2, seed=9))
    assert (len(first.values), len(second.values)) == (3, 2)
    assert [body.get("n") for body in endpoint.asked] == [3, None, None, None, None]
    assert [body["seed"] for body in endpoint.asked[:1]] + sorted(body["seed"] for body in endpoint.asked[1:3]) == [0, 1, 2]


def test_samples_that_do_not_come_are_said(endpoint: Endpoint) -> None:
    endpoint.ignores = {"n"}
    endpoint.faults.extend([answer([GOOD]), answer([GOOD]), Fault(404, b"gone")])
    (got,) = ask(settings(endpoint), replace(ASK, n=3))
    assert len(got.values) == 2
    assert got.problems == ("the endpoint answers 404: gone", "2 of 3 answers came")


@pytest.mark.parametrize(
    ("refused", "instead"), [("seed", None), ("temperature", None), ("max_tokens", "max_completion_tokens")]
)
def test_a_parameter_that_is_refused_is_left_out(endpoint: Endpoint, refused: str, instead: str | None) -> None:
    endpoint.refuses = {refused}
    first, second = ask(settings(endpoint), ASK, replace(ASK, seed=1))
    assert (first.problems, second.problems, len(endpoint.asked)) == ((), (), 3)
    assert all(refused not in body for body in endpoint.asked[1:])
    assert instead is None or endpoint.asked[2][instead] == 1024
    assert endpoint.asked[2]["response_format"]["type"] == "json_schema"


def test_an_endpoint_that_refuses_everything(endpoint: Endpoint) -> None:
    endpoint.always = Fault(400, b'{"error": {"message": "no"}}')
    (got,) = ask(settings(endpoint), replace(ASK, n=2))
    assert got.values == ()
    assert got.problems == ("the endpoint answers 400: no",)
    assert len(endpoint.asked) <= 6


# -- what it may cost ---------------------------------------------------------------------------------------------------------


def asks(count: int) -> list[Ask]:
    return [replace(ASK, seed=k) for k in range(count)]


def test_calls_of_a_job_are_bounded_and_other_jobs_go_on(endpoint: Endpoint) -> None:
    async def run() -> list[Answer]:
        async with Model(settings(endpoint, calls_per_job=2)) as model:
            return [await model.ask(one, job=job) for one, job in zip(asks(4), ["a", "a", "a", "b"], strict=True)]

    got = asyncio.run(run())
    assert [one.problems for one in got] == [(), (), ("the job's budget of 2 calls is spent",), ()]
    assert len(endpoint.asked) == 3


def test_retries_are_paid_for(endpoint: Endpoint) -> None:
    endpoint.always = Fault(500)
    (got,) = ask(settings(endpoint, calls_per_job=2, retries=5), ASK)
    assert got.problems == ("the job's budget of 2 calls is spent (3 tries)",)
    assert len(endpoint.asked) == 2


def test_tokens_of_a_job_are_bounded_by_what_an_answer_may_cost(endpoint: Endpoint) -> None:
    small = [replace(one, max_tokens=100) for one in asks(10)]
    got = ask(settings(endpoint, tokens_per_job=200), *small)
    # 24 + 100 are reserved and 27 are used: 3 answers leave 119, which is not enough for another.
    assert [bool(one.values) for one in got] == [True, True, True] + [False] * 7
    assert got[3].problems == ("about 124 tokens are needed, 119 are left of the job's budget",)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"calls_per_hour": 2}, "the budget of 2 calls per hour is spent; some is free again in 3600 s"),
        ({"tokens_per_hour": 1100}, "the budget of 1100 tokens per hour is spent; some is free again in 3600 s"),
    ],
    ids=["calls", "tokens"],
)
def test_an_hour_is_bounded_and_rolls(endpoint: Endpoint, limit: dict[str, int], said: str) -> None:
    clock = Clock()

    async def run() -> None:
        async with Model(settings(endpoint, **limit), clock) as model:
            first, second, third = [await model.ask(one, job=one.key) for one in asks(3)]
            assert (first.problems, second.problems, third.problems) == ((), (), (said,))
            clock.now += 3599
            assert not (await model.ask(ASK, job="d")).values
            clock.now += 2
            assert (await model.ask(ASK, job="d")).values

    asyncio.run(run())


def test_so_many_requests_at_a_time_and_no_more(endpoint: Endpoint) -> None:
    endpoint.pace_s = 0.05

    async def run() -> list[Answer]:
        async with Model(settings(endpoint, concurrency=3)) as model:
            return await asyncio.gather(*(model.ask(one, job="a") for one in asks(12)))

    assert all(one.values for one in asyncio.run(run()))
    assert endpoint.most_together == 3


def test_what_was_spent(endpoint: Endpoint) -> None:
    async def run() -> None:
        async with Model(settings(endpoint, cache=True, retries=1)) as model:
            wanted = replace(ASK, prompt="judge", messages=(("user", "what was spent"),), n=2)
            endpoint.faults.append(Fault(500))
            await model.ask(wanted, job="a")
            await model.ask(wanted, job="a")
            await model.ask(replace(ASK, messages=(("user", "spent on another"),)), job="b")
            await model.embed(["x"], job="b")
            usage = model.usage
            assert (usage.calls, usage.cached, usage.failed, usage.tokens_in, usage.tokens_out) == (5, 1, 1, 45, 21)
            judge = usage.by_prompt["judge"]
            assert (judge.calls, judge.cached, judge.failed, judge.tokens_in, judge.tokens_out) == (2, 1, 1, 20, 14)
            assert sum(part.seconds for part in usage.by_prompt.values()) == pytest.approx(usage.seconds)
            assert usage.seconds > 0

    asyncio.run(run())


# -- the circuit breaker ------------------------------------------------------------------------------------------------------


def test_an_endpoint_that_fails_again_and_again_is_left_alone_and_tried_after_a_pause(endpoint: Endpoint) -> None:
    clock = Clock()
    endpoint.always = Fault(500)

    async def run() -> None:
        async with Model(settings(endpoint, retries=1, breaker_failures=3, breaker_pause_s=60), clock) as model:
            first = await model.ask(ASK, job="a")
            assert (first.problems, model.breaker) == (("the endpoint answers 500 (2 tries)",), "closed")
            second = await model.ask(ASK, job="b")
            assert (second.problems, model.breaker) == (("the endpoint answers 500",), "open")
            clock.now += 20
            third = await model.ask(ASK, job="c")
            left_alone = "the endpoint is left alone after 3 failures in a row; it is tried again in 40 s"
            assert (third.problems, len(endpoint.asked)) == ((left_alone,), 3)
            clock.now += 41
            assert model.breaker == "half open"
            await model.ask(ASK, job="d")  # one request, and no retry
            assert (model.breaker, len(endpoint.asked)) == ("open", 4)
            clock.now += 61
            endpoint.always = None
            assert (await model.ask(ASK, job="e")).values
            assert model.breaker == "closed"

    asyncio.run(run())


def test_after_the_pause_only_one_of_many_tries(endpoint: Endpoint) -> None:
    clock = Clock()
    endpoint.always = Fault(500)

    async def run() -> None:
        async with Model(settings(endpoint, retries=0, breaker_failures=1, concurrency=8), clock) as model:
            await model.ask(ASK, job="a")
            clock.now += 61
            endpoint.pace_s = 0.1
            got = await asyncio.gather(*(model.ask(one, job="b") for one in asks(5)))
            assert len(endpoint.asked) == 2
            waiting = "the endpoint is left alone after a failure; one request is trying it"
            assert [one.problems for one in got[1:]] == [(waiting,)] * 4

    asyncio.run(run())


def test_a_request_that_tries_and_is_cancelled_lets_the_next_one_try(endpoint: Endpoint) -> None:
    clock = Clock()
    endpoint.faults.extend([Fault(500), Fault(hang=True)])

    async def run() -> None:
        async with Model(settings(endpoint, retries=0, breaker_failures=1, concurrency=1), clock) as model:
            await model.ask(ASK, job="a")
            clock.now += 61
            endpoint.arrived.clear()
            trying = asyncio.create_task(model.ask(ASK, job="b"))
            await asyncio.to_thread(endpoint.arrived.wait, 5)
            trying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await trying
            assert (await model.ask(ASK, job="c")).values
            assert model.breaker == "closed"

    asyncio.run(run())


def test_an_endpoint_that_asks_for_a_long_pause_gets_it(endpoint: Endpoint) -> None:
    clock = Clock()
    endpoint.faults.append(Fault(429, b"", {"Retry-After": "600"}))

    async def run() -> None:
        async with Model(settings(endpoint), clock) as model:
            await model.ask(ASK, job="a")
            clock.now += 599
            said = ("the endpoint is left alone after a failure; it is tried again in 1 s",)
            assert (await model.ask(ASK, job="a")).problems == said
            clock.now += 2
            assert (await model.ask(ASK, job="a")).values

    asyncio.run(run())


def test_bad_questions_do_not_open_the_breaker(endpoint: Endpoint) -> None:
    endpoint.always = Fault(400, b'{"error": {"message": "maximum context length is 10 tokens"}}')
    got = ask(settings(endpoint, breaker_failures=2), *asks(5))
    assert len(endpoint.asked) == 5
    assert all("too long" in one.problems[0] for one in got)


def test_cancelling_gives_back_what_was_held(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.always = Fault(hang=True)

    async def run() -> None:
        async with Model(settings(endpoint, concurrency=1, calls_per_job=2, record=tmp_path)) as model:
            asking = asyncio.create_task(model.ask(replace(ASK, n=2), job="a"))
            await asyncio.to_thread(endpoint.arrived.wait, 5)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            endpoint.always = None
            assert (await model.ask(ASK, job="a")).values  # the gate is open
            assert not (await model.ask(ASK, job="a")).values  # and the cancelled call was one of the two

    asyncio.run(run())
    assert [path.name for path in tmp_path.iterdir()] == [f"{ASK.key}.json"]


def test_a_model_survives_its_event_loop(endpoint: Endpoint) -> None:
    model = Model(settings(endpoint))
    assert asyncio.run(model.ask(ASK, job="a")).values
    assert asyncio.run(model.ask(ASK, job="a")).values
    asyncio.run(model.close())


# -- what is kept -------------------------------------------------------------------------------------------------------------


def test_an_answer_is_kept_and_costs_nothing_again(endpoint: Endpoint) -> None:
    wanted = replace(ASK, messages=(("user", "kept"),))
    (first,) = ask(settings(endpoint, cache=True), wanted)
    second, other = ask(settings(endpoint, cache=True), wanted, replace(wanted, seed=1))
    assert (first.cached, second.cached, other.cached) == (False, True, False)
    assert (second.values, second.tokens_in, second.tokens_out, second.model) == (first.values, 0, 0, "tiny")
    (elsewhere,) = ask(settings(endpoint, cache=True, model="other"), wanted)
    assert not elsewhere.cached
    (off,) = ask(settings(endpoint), wanted)
    assert not off.cached


def test_bad_answers_are_not_kept(endpoint: Endpoint) -> None:
    wanted = replace(ASK, messages=(("user", "bad"),), n=2)
    endpoint.faults.append(answer([GOOD, "no"]))
    first, second = ask(settings(endpoint, cache=True), wanted, wanted)
    assert (len(first.values), len(second.values), second.cached) == (1, 2, False)


def test_record_and_replay(endpoint: Endpoint, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "record"
    wanted = replace(ASK, n=2)
    endpoint.faults.append(answer([GOOD, "no"]))
    (first,) = ask(settings(endpoint, record=folder), wanted)
    (path,) = folder.iterdir()
    recorded = json.loads(path.read_text())
    assert path.name == f"{wanted.key}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert recorded.pop("seconds") >= 0
    assert recorded == {
        "format": "diagnose.ask/1",
        "key": wanted.key,
        "prompt": "why",
        "version": "v1",
        "model": "tiny",
        "messages": [{"role": "system", "content": "You read logs."}, {"role": "user", "content": "rank 3 stopped"}],
        "schema": SCHEMA,
        "n": 2,
        "temperature": 0.7,
        "seed": 0,
        "max_tokens": 1024,
        "answers": [GOOD, "no"],
        "finish": ["stop", "stop"],
        "problems": ["answer 2 of 2 has no JSON object in it: no"],
        "tokens_in": 20,
        "tokens_out": 14,
    }
    count = len(endpoint.seen)
    (again,) = ask(settings(endpoint, replay=folder), wanted)
    assert (again.values, again.problems, again.model) == (first.values, first.problems, "tiny")
    assert (again.tokens_in, again.tokens_out, len(endpoint.seen)) == (0, 0, count)


def test_a_recorded_file_asks_the_same_question_again(endpoint: Endpoint, tmp_path: Path) -> None:
    ask(settings(endpoint, record=tmp_path), ASK)
    (path,) = tmp_path.iterdir()
    said = json.loads(path.read_text())
    messages = tuple((message["role"], message["content"]) for message in said["messages"])
    same = Ask(said["prompt"], said["version"], messages, said["schema"], said["n"], said["temperature"], said["seed"])
    assert same.key == ASK.key


def test_what_was_not_recorded_is_said_and_nothing_is_sent(tmp_path: Path) -> None:
    (got,) = ask(Settings("", replay=tmp_path), ASK)
    assert got.values == ()
    wanted = tmp_path / f"{ASK.key}.json"
    assert got.problems == (f"no recorded answer to why: there is no such file; wanted is {wanted}",)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"answers": []}', b'{"answers": 3}', b"\xff", b"[" * 100_000])
def test_a_recorded_file_that_is_of_no_use(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{ASK.key}.json").write_bytes(content)
    (got,) = ask(Settings("", replay=tmp_path), ASK)
    assert got.values == ()
    (problem,) = got.problems
    assert problem.startswith("no recorded answer to why: ")
    assert ASK.key in problem


def test_questions_can_be_answered_by_hand(tmp_path: Path) -> None:
    """Replay from an empty folder with --record writes the questions; a person or another program answers them."""
    ask(Settings("", replay=tmp_path, record=tmp_path), replace(ASK, n=2))
    (path,) = tmp_path.iterdir()
    question = json.loads(path.read_text())
    assert question["answers"] == []
    question["answers"] = [{"reason": "ecc_error", "line": 1}, GOOD]
    path.write_text(json.dumps(question))
    (got,) = ask(Settings("", replay=tmp_path, record=tmp_path), replace(ASK, n=2))
    assert (got.values, got.problems) == (({"reason": "ecc_error", "line": 1}, {"reason": "hang", "line": 3}), ())
    assert json.loads(path.read_text()) == question


def test_recorded_answers_outlive_an_endpoint_that_is_down(endpoint: Endpoint, tmp_path: Path) -> None:
    ask(settings(endpoint, record=tmp_path), ASK)
    endpoint.always = Fault(404)
    ask(settings(endpoint, record=tmp_path), ASK)
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["answers"] == [GOOD]


def test_a_cached_answer_is_recorded_too(endpoint: Endpoint, tmp_path: Path) -> None:
    wanted = replace(ASK, messages=(("user", "cached and recorded"),))
    ask(settings(endpoint, cache=True), wanted)
    ask(settings(endpoint, cache=True, record=tmp_path), wanted)
    (got,) = ask(Settings("", replay=tmp_path), wanted)
    assert (len(got.values), len(endpoint.asked)) == (1, 1)


def test_a_record_that_cannot_be_written_is_said_and_the_answer_stands(endpoint: Endpoint, tmp_path: Path) -> None:
    folder = tmp_path / "record"

    async def run() -> Answer:
        async with Model(settings(endpoint, record=folder)) as model:
            folder.rmdir()
            return await model.ask(ASK, job="a")

    got = asyncio.run(run())
    assert len(got.values) == 1
    assert got.problems == (f"the answer could not be recorded: {folder / ASK.key}.json: No such file or directory",)


def test_folders_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiagnoseError, match="cannot be made"):
        Model(Settings("http://localhost", record=tmp_path / "file" / "x"))
    with pytest.raises(DiagnoseError, match="no such folder"):
        Model(Settings("", replay=tmp_path / "nothing"))


# -- embeddings ---------------------------------------------------------------------------------------------------------------


def embed(wanted: Settings, texts: list[str]) -> list[list[float]] | None:
    async def run() -> list[list[float]] | None:
        async with Model(wanted) as model:
            return await model.embed(texts, job="a")

    return asyncio.run(run())


def test_a_vector_for_each_text_in_order_and_in_portions(endpoint: Endpoint) -> None:
    endpoint.models = [{"id": "tiny"}, {"id": "nomic-embed-text"}]
    texts = ["x" * k for k in range(150)]
    assert embed(settings(endpoint), texts) == [[float(k), 1.0, 0.5] for k in range(150)]
    sent = [body for path, _, body in endpoint.seen if path == "/v1/embeddings"]
    assert [len(body["input"]) for body in sent] == [64, 64, 22]
    assert {(body["model"], body["encoding_format"]) for body in sent} == {("nomic-embed-text", "float")}


def test_without_embeddings_there_are_none_and_it_is_not_asked_again(endpoint: Endpoint) -> None:
    endpoint.embeds = False

    async def run() -> None:
        async with Model(settings(endpoint)) as model:
            assert await model.embed(["x"], job="a") is None
            count = len(endpoint.seen)
            assert await model.embed(["x"], job="a") is None
            assert await model.embed([], job="a") == []
            assert (len(endpoint.seen), model.breaker) == (count, "closed")

    asyncio.run(run())


def test_embeddings_of_a_run_are_replayed(endpoint: Endpoint, tmp_path: Path) -> None:
    vectors = embed(settings(endpoint, record=tmp_path), ["loss is nan", "hang"])
    assert vectors == [[11.0, 1.0, 0.5], [4.0, 1.0, 0.5]]
    assert embed(Settings("", replay=tmp_path), ["loss is nan", "hang"]) == vectors
    assert embed(Settings("", replay=tmp_path), ["another"]) is None


# -- diagnose llm check -------------------------------------------------------------------------------------------------------


def model_text(body: dict[str, Any], k: int) -> str:
    """A model that is held to a schema, where one is sent."""
    form = body.get("response_format", {})
    return (
        json.dumps({"word": form["json_schema"]["schema"]["properties"]["word"]["enum"][0]}) if "json_schema" in form else "yes"
    )


def check(wanted: Settings) -> dict[str, bool]:
    async def run() -> dict[str, bool]:
        async with Model(wanted) as model:
            found = await model.check()
            assert found.usable
            assert model.usage.by_prompt["check"].calls == model.usage.calls
            return {name: getattr(found, name).works for name in ("json_schema", "n", "seed", "logprobs", "embeddings")}

    return asyncio.run(run())


ALL = {"json_schema": True, "n": True, "seed": True, "logprobs": True, "embeddings": True}


def test_an_endpoint_that_can_do_everything(endpoint: Endpoint) -> None:
    endpoint.text = model_text
    assert check(settings(endpoint, model=None)) == ALL


@pytest.mark.parametrize("lacking", ["json_schema", "n", "seed", "logprobs"])
@pytest.mark.parametrize("how", ["refuses", "ignores"])
def test_what_an_endpoint_lacks_is_found_out(endpoint: Endpoint, lacking: str, how: str) -> None:
    getattr(endpoint, how).add(lacking)
    draws = iter(range(100))

    def text(body: dict[str, Any], k: int) -> str:
        if lacking == "seed" and "seed" in body:
            return str(next(draws))
        return "a word" if lacking == "json_schema" else model_text(body, k)

    endpoint.text = text
    assert check(settings(endpoint, model=None)) == {**ALL, lacking: False}


def test_an_endpoint_without_embeddings(endpoint: Endpoint) -> None:
    endpoint.text, endpoint.embeds = model_text, False
    assert check(settings(endpoint)) == {**ALL, "embeddings": False}


def test_check_as_a_person_sees_it(endpoint: Endpoint, diagnose: Run) -> None:
    endpoint.text, endpoint.embeds = model_text, False
    endpoint.ignores = {"n"}
    done = diagnose("llm", "check", "--llm", endpoint.url)
    assert (done.returncode, done.stderr) == (0, "")
    rows = done.stdout.splitlines()
    took = next(row.split()[2] for row in rows if row.startswith("chat"))
    assert rows == [
        f"{endpoint.url}  tiny",
        "",
        "can               seen",
        "models       yes  tiny; 2,048 tokens of context",
        f"chat         yes  {took} s for a few words",
        "json_schema  yes  answers are held to the schema",
        "n            no   asked for 2 samples, got 1",
        "seed         yes  the same answer twice",
        "logprobs     yes  given for each token",
        "embeddings   no   the endpoint answers 404: Not Found",
        "",
        "without     what is worse",
        "n           each sample is a request of its own: more calls, and the question is read n times",
        "embeddings  past incidents and likely lines are found by words alone",
    ]


def test_check_as_json(endpoint: Endpoint, diagnose: Run) -> None:
    endpoint.text = model_text
    done = diagnose("llm", "check", "--llm", endpoint.url, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["usable"], found["models"], found["context"]) == (0, True, ["tiny"], 2048)
    assert found["json_schema"] == {"works": True, "seen": "answers are held to the schema", "degraded": None}


def test_check_of_what_is_not_there(diagnose: Run) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://user:secret@127.0.0.1:{free.getsockname()[1]}"
        done = diagnose("llm", "check", "--llm", url)
    place = shown_url(base_url(url))
    remedy = "start the endpoint, as with 'vllm serve MODEL', or name another with --llm"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"diagnose: {place}: not reachable (Connection refused); {remedy}\n"


def test_check_with_a_model_that_is_not_served(endpoint: Endpoint, diagnose: Run) -> None:
    endpoint.always = Fault(404, b'{"error": {"message": "The model `x` does not exist."}}')
    done = diagnose("llm", "check", "--llm", endpoint.url, "--model", "x", "--json")
    said = "the endpoint answers 404: The model `x` does not exist."
    assert (done.returncode, json.loads(done.stdout)["usable"]) == (2, False)
    assert done.stderr == f"diagnose: {endpoint.url}: {said}; it serves tiny: name one of these with --model\n"


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("http://h:8000", "http://h:8000/v1"),
        ("http://h:8000/", "http://h:8000/v1"),
        (" https://h/v1/ ", "https://h/v1"),
        ("https://h/openai/v2", "https://h/openai/v2"),
        ("http://h/v1/chat/completions", "http://h/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ],
)
def test_an_address_is_completed(given: str, root: str) -> None:
    assert base_url(given) == root


@pytest.mark.parametrize(
    "given", ["", "localhost:8000", "ftp://h", "http://a..b", "http://", "http://h:99999", "http://[::1", "http://h?a=1"]
)
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(DiagnoseError, match="is not the address of an endpoint"):
        base_url(given)


def test_reading_logs_needs_no_client(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("KeyError: 'x'\n")
    script = "\n".join(
        [
            "import sys",
            "from diagnose.cli import main",
            "main(['replay', 'log', '--json'])",
            "for name in ('openai', 'httpx', 'httpx2', 'jsonschema', 'diagnose.agent'):",
            "    assert name not in sys.modules, name",
        ]
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0
