"""Runs pytest many times, each time in a child of one process that has already imported what is slow to import.

Only installed packages are imported, nothing of the checkout: each child reads that again. A request is one line of JSON on
standard input, ``{"words": [...], "environment": {...}, "output": PATH, "seconds": N or null}``. The answer is one line: the
exit status, or "time" if it took longer.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
from typing import Any

PRELOADED = (
    "alembic.autogenerate",
    "alembic.command",
    "fastapi",
    "httpcore",
    "hyperscan",
    "hypothesis",
    "jinja2",
    "jsonschema",
    "numpy",
    "openai",
    "prometheus_client",
    "pydantic_settings",
    "pytest",
    "pytest_timeout",
    "regex",
    "sqlalchemy",
    "uvicorn",
    "yaml",
    "zstandard",
)


def main() -> None:
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        print(run(json.loads(line)), flush=True)


def run(asked: dict[str, Any]) -> str:
    """Wait for one child, and end what it leaves behind."""
    child = os.fork()
    if child == 0:
        _become_pytest(asked)
    ended = os.pidfd_open(child)
    try:
        in_time = select.select([ended], [], [], asked["seconds"])[0]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(ended)
    return str(status) if in_time else "time"


def _become_pytest(asked: dict[str, Any]) -> None:
    status = 70
    try:
        os.setsid()
        output = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(asked["environment"])
        sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in asked["environment"]
        import pytest

        status = int(pytest.main(asked["words"]))
        sys.stdout.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
