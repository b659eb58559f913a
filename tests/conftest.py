"""Shared by the suites: a cache of their own, and the part of the command line that every test of a command needs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=150)
settings.register_profile("long", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The suite neither uses nor fills the cache of the person who runs it."""
    before = os.environ.get("DIAGNOSE_CACHE")
    os.environ["DIAGNOSE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["DIAGNOSE_CACHE"]
    else:
        os.environ["DIAGNOSE_CACHE"] = before


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def diagnose(tmp_path: Path) -> Run:
    """Run ``diagnose`` as a person does; in an empty folder."""

    def run(*words: str, stdin: bytes | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "diagnose", *words],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            timeout=120,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        )

    return run


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI nothing may be missing: a test that is skipped there is a failure."""
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        reporter.write_line("skipped tests are failures in CI", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
