"""Shared by the suites: a cache of their own, and the part of the command line that every test of a command needs."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from model_server.run import MODEL, Server, default_folder
from tests.support.commands import COMMANDS, Commands

if TYPE_CHECKING:
    from service.store import Store
    from tests.support.servers import Postgres

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
# For ./test quick: the whole suite tries more.
settings.register_profile("quick", settings.get_profile("suite"), max_examples=15)
settings.register_profile("long", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=5000)
# For benchmarks/mutation.py: the same examples each time, and no smaller one is searched once a test has failed.
settings.register_profile("mutation", settings.get_profile("suite"), derandomize=True, phases=[Phase.explicit, Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

ROOT = Path(__file__).resolve().parent.parent


def examples(count: int) -> int:
    """``count``, for a property that needs more or fewer than others; in ./test quick as much less as for those."""
    whole = settings.get_profile("suite").max_examples
    return max(1, min(count, count * settings().max_examples // whole))


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A cluster of a module's own."""
    from tests.support.servers import Postgres

    cluster = Postgres()
    if not cluster.here:
        pytest.skip("PostgreSQL is not installed")
    cluster.start()
    yield cluster
    cluster.stop()
    cluster.remove()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Of each kind, empty."""
    from service.store import Store
    from tests.support.live import store_in

    if request.param == "sqlite":
        made = store_in(tmp_path / "database")
    else:
        made = Store(request.getfixturevalue("postgres").database(f"t{time.time_ns()}"))
        made.migrate()
    yield made
    made.close()


def pytest_configure(config: pytest.Config) -> None:
    """What is kept between runs is what was compiled. An answer of a model would be one that this run did not ask for.

    A core that was built before its sources changed fails anywhere, such as in the set-up of all tests of a page.
    """
    gc.disable()  # until all tests are collected: a third of the time that takes
    if not hasattr(config, "workerinput") and (old := _old_core(ROOT / "diagnose" / "matching")) is not None:
        config.issue_config_time_warning(UserWarning(old), stacklevel=2)
    kept = os.environ.get("DIAGNOSE_TEST_CACHE")
    if kept and not hasattr(config, "workerinput"):
        for path in Path(kept).glob("answer-*"):
            path.unlink(missing_ok=True)


def _old_core(folder: Path) -> str | None:
    """What to do if the native core was built before its sources changed."""
    built = [path.stat().st_mtime for path in folder.glob("_core*.so")]
    changed = max(path.stat().st_mtime for path in folder.glob("*.[ch]"))
    if not built or max(built) >= changed:
        return None
    return "the native core is older than its sources: pip install -e . --no-deps --no-build-isolation"


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The suite neither uses nor fills the cache of the person who runs it. Processes side by side share one.

    ``./test`` keeps one between its runs (DIAGNOSE_TEST_CACHE): compiling rules takes longer than most tests.
    """
    before = os.environ.get("DIAGNOSE_CACHE")
    base = tmp_path_factory.getbasetemp()
    kept = os.environ.get("DIAGNOSE_TEST_CACHE")
    if kept:
        folder = Path(kept)
    else:
        folder = base.parent / "cache" if "PYTEST_XDIST_WORKER" in os.environ else tmp_path_factory.mktemp("cache")
    os.environ["DIAGNOSE_CACHE"] = str(folder)
    COMMANDS.serve = True
    if "PYTEST_XDIST_WORKER" in os.environ:
        _compile_rules(folder)
    yield
    COMMANDS.close()
    if before is None:
        del os.environ["DIAGNOSE_CACHE"]
    else:
        os.environ["DIAGNOSE_CACHE"] = before


def pytest_collection_finish() -> None:
    """Modules and tests stay: looking through them again and again for what can be thrown away takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def _compile_rules(folder: Path) -> None:
    """Processes side by side would all compile the same rules first, for each engine: one compiles, the others do the next."""
    folder.mkdir(parents=True, exist_ok=True)
    for how in (fcntl.LOCK_NB, 0):
        for engine in ("", "wheel"):
            done = folder / f".compiled-{engine}"
            with done.with_suffix(".lock").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | how)
                except BlockingIOError:
                    continue
                if not done.exists():
                    command = [sys.executable, "-m", "diagnose", "replay", "-"]
                    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DIAGNOSE_ENGINE": engine}
                    subprocess.run(command, input=b"hello\n", env=environment, capture_output=True, timeout=280)
                    done.touch()


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def commands(own_cache: None) -> Commands:
    return COMMANDS


@pytest.fixture
def diagnose(commands: Commands, tmp_path: Path) -> Run:
    """Run ``diagnose`` as a person does; in an empty folder."""

    def run(*words: str, stdin: bytes | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        record = str(tmp_path.with_name(f"{tmp_path.name}-model-record.db"))  # what one test learns of a model is its own
        environment = {"DIAGNOSE_MODEL_RECORD": record, **environment}
        return commands.run(words, cwd=tmp_path, stdin=stdin, environment=environment)

    return run


@dataclass(frozen=True)
class ModelServer:
    """A real engine with a tiny model; see model_server/."""

    url: str
    model: str
    python: Path
    """of the environment that the engine is installed in"""


@pytest.fixture(scope="session")
def engine() -> Server:
    """A real engine and a tiny model, set up and not started; for tests that are marked ``model``."""
    server = Server(default_folder())
    if not server.ready:
        pytest.skip("no model server: model_server/run.py --set-up makes one")
    return server


@pytest.fixture(scope="session")
def model_server(engine: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """That engine at work, started once."""
    log = tmp_path_factory.mktemp("model-server") / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            ["nice", sys.executable, ROOT / "model_server" / "run.py"],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        until = time.monotonic() + 400
        while not _healthy(url.removesuffix("/v1") + "/health"):
            assert process.poll() is None, f"the model server ended: {log.read_text()[-3000:]}"
            assert time.monotonic() < until, f"the model server does not answer: {log.read_text()[-3000:]}"
            time.sleep(0.5)
        yield ModelServer(url, MODEL, engine.python)
    finally:
        # Its processes are a group of their own: none outlives the suite.
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


SLOW = (
    "diagnose/agent/",
    "diagnose/cli/",
    "diagnose/compression/test_workload.py",
    "diagnose/evaluate/test_carry.py",
    "diagnose/evaluate/test_falls.py",
    "diagnose/knowledge/test_shipped_rules.py",
    "diagnose/learning/",
    "diagnose/matching/test_core_memory.py",
    "diagnose/matching/test_engines.py",
    "diagnose/matching/test_shapes.py",
    "diagnose/model/test_model.py",
    "diagnose/nodecheck/",
    "diagnose/reading/dumps/test_documents.py",
    "diagnose/reading/dumps/test_text.py",
    "diagnose/reading/test_transport.py",
    "diagnose/redaction/test_gate.py",
    "diagnose/shipping/",
    "diagnose/test_accuracy.py",
    "diagnose/test_client.py",
    "diagnose/test_corpus.py",
    "diagnose/test_ready.py",
    "diagnose/verification/test_proposals.py",
    "project/test_docs.py",
    "project/test_mutation.py",
    "project/test_removable.py",
    "project/test_simulation.py",
    "project/test_wheel.py",
    "service/acting/executors/",
    "service/acting/test_dispatch.py",
    "service/intake/test_encodings.py",
    "service/intake/test_protocols.py",
    "service/learning/",
    "service/raw/",
    "service/sign_in/test_people.py",
    "service/store/test_lease.py",
    "service/test_retention.py",
)
"""what ./test quick leaves out: whole processes, many examples, real time-outs"""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of which no test would run is not read: with what they import, such as torch, those take most of the time until
    the first test runs, and each process beside another reads all.
    """
    return True if collection_path.suffix == ".py" and marks(collection_path) & unwanted(config.option.markexpr) else None


def unwanted(expression: str) -> set[str]:
    """What ``-m`` leaves out whatever else a test is marked with; nothing if it asks for more than that."""
    words = [re.fullmatch(r"not (\w+)", part.strip()) for part in expression.split(" and ")]
    return {word[1] for word in words if word is not None} if all(words) else set()


def marks(path: Path) -> set[str]:
    """Of all tests of a file: by where it stands, and by its ``pytestmark``."""
    stands = path.relative_to(ROOT / "tests").as_posix() if path.is_relative_to(ROOT / "tests") else ""
    slow = {"slow"} if stands.startswith(SLOW) else set()
    said = re.search(r"^pytestmark = (\[\n.*?^\]|[^\n]*)", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return slow | (set(re.findall(r"pytest\.mark\.(\w+)", said[1])) if said is not None else set())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, by where it stands. Files that may take longest begin first: with a file per process, none of them is
    what all wait for in the end.
    """
    longest: dict[Path, float] = {}
    for item in items:
        if item.path.relative_to(ROOT / "tests").as_posix().startswith(SLOW):
            item.add_marker(pytest.mark.slow)
        limit = item.get_closest_marker("timeout")
        longest[item.path] = max(longest.get(item.path, 0), limit.args[0] if limit is not None else 0)
    items.sort(key=lambda item: -longest[item.path])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI nothing may be missing: a test that is skipped there is a failure."""
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        reporter.write_line("skipped tests are failures in CI", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
