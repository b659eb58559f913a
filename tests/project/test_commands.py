"""The process that runs commands for the suite: no test may get what belongs to another."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.commands import Commands

pytestmark = pytest.mark.slow


@pytest.fixture
def own(own_cache: None) -> Iterator[Commands]:
    made = Commands(ROOT)
    yield made
    made.close()


def said(own: Commands, cwd: Path, *words: str, terminal: str | None = None) -> str:
    return own.run(words or ("--version",), cwd=cwd, environment={}, terminal=terminal).stdout


def test_an_answer_that_nobody_read_is_nobody_elses(own: Commands, tmp_path: Path) -> None:
    """A test that reached its time limit stops in the middle of a question."""
    assert said(own, tmp_path).startswith("diagnose ")
    assert own._server is not None
    assert own._server.stdin is not None
    question = {"number": 0, "what": "start", "words": ["--version"], "cwd": str(tmp_path), "environment": dict(os.environ)}
    print(json.dumps({**question, "streams": [os.devnull] * 3}), file=own._server.stdin, flush=True)
    assert said(own, tmp_path).startswith("diagnose ")


def test_a_stream_that_cannot_be_opened_is_told_and_the_next_command_runs(own: Commands, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="No such file"):
        said(own, tmp_path, terminal=str(tmp_path / "nowhere" / "terminal"))
    assert said(own, tmp_path).startswith("diagnose ")


def test_what_still_runs_ends_with_it(own: Commands, tmp_path: Path) -> None:
    words = ["replay", "--follow", str(tmp_path / "log")]
    (tmp_path / "log").write_text("hello\n")
    running = own.start(words, cwd=tmp_path, log=tmp_path / "errors", environment={})
    assert own.status_of(running.pid, 0.0) is None
    assert own._server is not None
    own._server.kill()
    running.stdout.read()  # until nobody writes any more
    running.stdout.close()
    assert said(own, tmp_path).startswith("diagnose ")
