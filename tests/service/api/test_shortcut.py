"""What goes past the router is answered as the router answers it: the same requests, with and without the shortcut."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.shortcut import Shortcut
from service.app import create_app
from service.errors import Busy
from service.runtime import Service
from service.settings import Settings

_PUSH = "/v1/jobs/j/logs"
_LINE = b"step 1\n"

REQUESTS: dict[str, dict[str, Any]] = {
    "a line": {"content": _LINE},
    "a line by its offset": {"params": {"offset": 0, "source": "s"}, "content": _LINE},
    "the same again": {"params": {"offset": 0, "source": "s"}, "content": _LINE},
    "a gap": {"params": {"offset": 99, "source": "s"}, "content": _LINE},
    "other bytes from the beginning": {"params": {"offset": 0, "source": "s"}, "content": b"STEP 1\n"},
    "nothing": {"content": b""},
    "records": {"content": b'{"message": "x"}\n', "headers": {"content-type": "application/x-ndjson"}},
    "no records": {"content": b"{\n", "headers": {"content-type": "application/x-ndjson"}},
    "packed": {"content": gzip.compress(_LINE), "headers": {"content-encoding": "gzip"}},
    "not packed": {"content": _LINE, "headers": {"content-encoding": "gzip"}},
    "a picture": {"content": _LINE, "headers": {"content-type": "image/png"}},
    "no number": {"params": {"rank": "two"}, "content": _LINE},
    "a name that is none": {"path": "/v1/jobs/a%20b/logs", "content": _LINE},
    "no name": {"path": "/v1/jobs//logs", "content": _LINE},
    "two names": {"path": "/v1/jobs/a/b/logs", "content": _LINE},
    "a slash in a name": {"path": "/v1/jobs/a%2Fb/logs", "content": _LINE},
    "another project": {"path": "/v1/jobs/p~j/logs", "content": _LINE},
    "a slash at the end": {"path": "/v1/jobs/j/logs/", "content": _LINE},
    "another method": {"method": "PUT", "content": _LINE},
    "reading": {"method": "GET"},
    "another host": {"content": _LINE, "headers": {"host": "example.org"}},
    "another site": {"content": _LINE, "headers": {"origin": "https://example.org"}},
}


async def _bytes() -> AsyncIterator[bytes]:
    yield _LINE


async def _answers(data: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, Any, Any]]:
    service = Service(Settings(data=data))
    app = create_app(service)
    await service.start()
    answers = {}
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:

            async def ask(name: str, method: str = "POST", path: str = _PUSH, **rest: Any) -> None:
                answer = await client.request(method, path, **rest)
                headers = dict(answer.headers)
                answers[name] = answer.status_code, headers, answer.text

            for name, request in REQUESTS.items():
                await ask(name, **request)
            await ask("a stream", content=_bytes())

            async def busy(*_: Any, **__: Any) -> None:
                raise Busy("too much", remedy="later", retry_after_s=7)

            with monkeypatch.context() as patch:
                patch.setattr(service.ingest, "begin", busy)
                await ask("too much", content=_LINE)
    finally:
        await service.stop()
    return answers


@pytest.mark.server
def test_the_shortcut_answers_as_the_router_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    gone: list[str] = []
    found = Shortcut._job

    def noted(scope: Any) -> str | None:
        job = found(scope)
        gone.append(scope["path"]) if job is not None else None
        return job

    with monkeypatch.context() as patch:
        patch.setattr(Shortcut, "_job", staticmethod(noted))
        quick = asyncio.run(_answers(tmp_path / "with", monkeypatch))
    with monkeypatch.context() as patch:
        patch.setattr(Shortcut, "_job", staticmethod(lambda scope: None))
        plain = asyncio.run(_answers(tmp_path / "without", monkeypatch))
    assert quick == plain
    assert {status for status, _, _ in plain.values()} >= {200, 400, 403, 404, 405, 409, 415, 421, 429}
    assert len(gone) > len(REQUESTS) / 2
