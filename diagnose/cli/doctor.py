"""``diagnose doctor``: what of this installation works, what does not, and what to do about it."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from diagnose import __version__, cache
from diagnose.cli import printable
from diagnose.cli.options import endpoint
from diagnose.cli.options.destination import add_service, token
from diagnose.errors import DiagnoseError
from diagnose.rendering.terminal import Style, columns_of, human_bytes, wrapped

if TYPE_CHECKING:
    from service.acting.executors.configuration import Configured

_EXTRAS: Final = {
    "postgres": ("psycopg", "a service that stores in PostgreSQL"),
    "check": ("torch", "node checks of GPUs"),
    "docs": ("mkdocs", "the site of these documents"),
    "vllm": ("vllm", "a model server of your own"),
}
"""extra -> a module of it, and what it is for"""
_SAMPLE: Final = (
    b"step 1 loss 2.0\nTraceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nKeyError: 'shard'\n"
)
_SAMPLE_REASON: Final = "key_error"
_REINSTALL: Final = "pip install --force-reinstall diagnose-train"
_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 1 << 16

State = Literal["works", "limited", "broken", "not set up"]
_MARKS: Final[dict[State, str]] = {"works": "ok", "limited": "!", "broken": "x", "not set up": "-"}


@dataclass(frozen=True, slots=True)
class Check:
    """One part, and what was found."""

    name: str
    state: State
    seen: str
    remedy: str | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Say what of this installation works, what does not, and what to do about it."
    parser.epilog = "Exit status: 0 if nothing is broken, 1 if something is. What is not set up is not broken."
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    beside = parser.add_argument_group("what else is checked", "Without these, only this machine is looked at.")
    beside.add_argument("--llm", metavar="URL", help="endpoint of a language model, for example http://localhost:8000/v1")
    beside.add_argument("--model", metavar="NAME", help="model to use (default: the first that the endpoint lists)")
    beside.add_argument("--executors", metavar="FILE", type=Path, help="file of executors (default: $DIAGNOSE_EXECUTORS)")
    add_service(parser)


def run(arguments: argparse.Namespace) -> int:
    found = list(_checks(arguments))
    broken = sum(check.state == "broken" for check in found)
    if arguments.json:
        print(json.dumps({"version": __version__, "broken": broken, "checks": [asdict(check) for check in found]}))
    else:
        print(_text(found, Style(sys.stdout)))
    return 1 if broken else 0


def _checks(arguments: argparse.Namespace) -> Iterator[Check]:
    parts: dict[str, Callable[[], Check | list[Check]]] = {
        "engine": _engine,
        "rules": _rules,
        "cache": _cache,
        "learned rules": lambda: _data_file("learned rules", endpoint.rule_file(None), "diagnose rules learn writes them"),
        "past incidents": lambda: _data_file(
            "past incidents", endpoint.incidents_file(None), "diagnose rules learn --confirm writes them"
        ),
        "model": lambda: _model(arguments),
        "service": lambda: _service(arguments),
        "executors": lambda: _executors(arguments),
        "extras": _extras,
    }
    yield Check(
        "program", "works", f"diagnose {__version__}, Python {platform.python_version()}, {platform.platform(terse=True)}"
    )
    for name, part in parts.items():
        try:
            checked = part()
        except DiagnoseError as error:
            what = f"{error.where}: {error.what}" if error.where else error.what
            yield Check(name, "broken", what, error.remedy)
        except Exception as error:  # a doctor is for parts that are broken in a way that nobody foresaw
            yield Check(name, "broken", f"{type(error).__name__}: {error}", f"install it again: {_REINSTALL}")
        else:
            yield from checked if isinstance(checked, list) else [checked]


def _engine() -> Check:
    from diagnose.matching.databases import core, libhs
    from diagnose.matching.matcher import best_engine, engine_text

    engine = best_engine()
    seen = engine_text(engine).removeprefix("engine: ").partition(";")[0]
    if core is None:
        remedy = (
            "it is much faster with the native core: install a C compiler, then pip install --force-reinstall diagnose-train"
        )
        return Check("engine", "limited", f"{seen}; the native core is missing", remedy)
    if not libhs():
        return Check("engine", "limited", seen, "it is faster with libhs.so.5; on Debian: apt-get install libhyperscan5")
    if engine != "core":
        return Check("engine", "limited", seen, "DIAGNOSE_ENGINE chooses it; unset it for the fastest")
    return Check("engine", "works", seen)


def _rules() -> list[Check]:
    from diagnose.job import Job
    from diagnose.knowledge.rules import load
    from diagnose.matching.matcher import EARLY, Matcher
    from diagnose.reading.sources import Source

    rules = load()
    failures = sum(rule.family == "failures" for rule in rules)
    matcher = Matcher(rules, reserved=EARLY)
    job = Job("sample", [Source("sample", None)], matcher)
    job.feed(0, _SAMPLE)
    job.close(0)
    reason = job.report().diagnosis.reason
    counted = f"{failures:,} failure rules, {len(rules) - failures:,} filters"
    if reason != _SAMPLE_REASON:
        seen = f"{counted}; a sample is called {reason}, and not {_SAMPLE_REASON}"
        return [Check("rules", "broken", seen, f"install it again: {_REINSTALL}")]
    ready = Check("ready rules", "works", f"the rules came compiled for {matcher.library}")
    if not matcher.came_ready:
        seen = f"the rules did not come compiled for {matcher.library}, so the first run compiled them into the cache"
        remedy = f"have them compiled once: python setup.py build_ext --inplace in a checkout, else {_REINSTALL}"
        ready = Check("ready rules", "limited", seen, remedy)
    return [Check("rules", "works", f"{counted}; a sample is diagnosed as it should be"), ready]


def _cache() -> Check:
    folder = cache.where()
    if folder is None:
        return Check("cache", "limited", "switched off", "unset DIAGNOSE_CACHE, so that what is slow to make is kept")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        size = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(folder))
    except OSError as error:
        remedy = "make it writable, or name another folder in DIAGNOSE_CACHE"
        return Check("cache", "limited", f"{folder} cannot be written: {error.strerror}", remedy)
    return Check("cache", "works", f"{folder}, {human_bytes(size)}")


def _data_file(name: str, path: Path, how: str) -> Check:
    if not path.exists():
        return Check(name, "not set up", f"{path} is not there; {how}")
    if not os.access(path, os.R_OK | os.W_OK):
        return Check(name, "broken", f"{path} cannot be read and written", "give it to the user that runs diagnose")
    return Check(name, "works", f"{path}, {human_bytes(path.stat().st_size)}")


def _model(arguments: argparse.Namespace) -> Check:
    if arguments.llm is None:
        return Check("model", "not set up", "none was named; --llm URL checks one")
    from diagnose.model.model import Model
    from diagnose.model.settings import Settings

    async def check() -> Check:
        async with Model(Settings(arguments.llm, model=arguments.model, timeout_s=_TIMEOUT_S)) as model:
            found = await model.check()
        if found.problem is not None:
            return Check("model", "broken", f"{found.url}: {found.problem}", found.remedy)
        names = ("json_schema", "n", "seed", "logprobs", "embeddings")
        lacking = [name for name in names if not getattr(found, name).works]
        if lacking:
            seen = f"{found.url}: {found.model}; it lacks {', '.join(lacking)}"
            return Check("model", "limited", seen, "diagnose llm check says what is worse without")
        return Check("model", "works", f"{found.url}: {found.model}")

    return asyncio.run(check())


def _service(arguments: argparse.Namespace) -> Check:
    url = arguments.to or os.environ.get("DIAGNOSE_URL")
    if not url:
        return Check("service", "not set up", "none was named; --to URL or DIAGNOSE_URL checks one")
    import ssl
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    base = url.rstrip("/") if "://" in url else f"http://{url}"
    address = f"{base}/readyz"
    if not address.startswith(("http://", "https://")):
        return Check("service", "broken", f"{url} is not the address of a service", "give it as https://host:8321")
    word = token(arguments)
    headers = {"Authorization": f"Bearer {word}"} if word else {}
    context = ssl.create_default_context(cafile=arguments.ca) if address.startswith("https:") else None
    try:
        with urlopen(Request(address, headers=headers), timeout=_TIMEOUT_S, context=context) as answer:  # noqa: S310 - see above
            body = answer.read(_MOST_BYTES)
    except HTTPError as error:
        body = error.read(_MOST_BYTES)
        remedy = "see its log" if error.code == 503 else "check that a service of diagnose listens there"
        return Check("service", "broken", f"{url}: {error.code} {error.reason}{_problems(body) or ''}", remedy)
    except (URLError, OSError, ValueError) as error:
        said = getattr(error, "reason", error)
        return Check("service", "broken", f"{url} does not answer: {said}", "check the address, and that the service runs")
    problems = _problems(body)
    if problems is None:
        return Check("service", "broken", f"{url}: what answers is no service of diagnose", "check the address")
    if problems:
        return Check("service", "limited", f"{url} is ready{problems}", "see its log")
    # Anybody may ask whether it is ready. A token that may not read is a token all the same.
    try:
        with urlopen(Request(f"{base}/v1/jobs?limit=1", headers=headers), timeout=_TIMEOUT_S, context=context):  # noqa: S310
            pass
    except HTTPError as error:
        if error.code == 401:
            what = "it does not know this token" if word else "it wants a token"
            return Check("service", "limited", f"{url} is ready, but: {what}", "diagnose tokens create makes one; --token-file")
        if error.code != 403 or not word:
            seen = f"{url} is ready, but answers {error.code} {error.reason} when it is asked for its jobs"
            return Check("service", "limited", seen, "see its log, and that of a proxy before it")
    except (URLError, OSError, ValueError) as error:
        said = getattr(error, "reason", error)
        return Check("service", "limited", f"{url} is ready, but does not answer: {said}", "see its log")
    return Check("service", "works", f"{url} is ready")


def _problems(body: bytes) -> str | None:
    """What ``/readyz`` objects to, to follow a sentence; None if this is no such answer."""
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    if not isinstance(answer, dict) or "ready" not in answer:
        return None
    problems = answer.get("problems")
    return f", but: {'; '.join(map(str, problems))}" if isinstance(problems, list) and problems else ""


def _executors(arguments: argparse.Namespace) -> Check | list[Check]:
    named = os.environ.get("DIAGNOSE_EXECUTORS")
    path: Path | None = arguments.executors or (Path(named) if named else None)
    if path is None:
        return Check("executors", "not set up", "no file was named; --executors FILE or DIAGNOSE_EXECUTORS checks one")
    from service.acting.executors import configuration

    wrong = configuration.objections(path, ())
    if wrong:
        return [Check("executors", "broken", f"{one.where}: {one.what}", one.remedy) for one in wrong]
    return asyncio.run(_asked(configuration.load(path, ())))


async def _asked(executors: tuple[Configured, ...]) -> list[Check]:
    found = []
    for one in executors:
        problems = await one.executor.check()
        name = f"executor {one.name}"
        kinds = f"{one.type}{', dry run' if one.dry_run else ''}: {', '.join(sorted(one.kinds))}"
        if problems:
            found.append(Check(name, "broken", f"{kinds}; {'; '.join(problems)}", "diagnose executors check says more"))
        else:
            found.append(Check(name, "works", kinds))
    return found or [Check("executors", "not set up", "the file names none")]


def _extras() -> list[Check]:
    found = []
    for name, (module, purpose) in _EXTRAS.items():
        if find_spec(module) is not None:
            found.append(Check(f"extra {name}", "works", purpose))
        else:
            found.append(Check(f"extra {name}", "not set up", f"for {purpose}: pip install 'diagnose-train[{name}]'"))
    return found


def _text(found: list[Check], style: Style) -> str:
    width = max(columns_of(check.name) for check in found)
    paint = {"works": style.green, "limited": style.yellow, "broken": style.red, "not set up": style.dim}
    lines = []
    for check in found:
        head = f"  {paint[check.state](f'{_MARKS[check.state]:<3}')} {check.name:<{width}}  "
        indent = " " * (width + 8)
        told = wrapped(printable(check.seen), style.prose - len(indent))
        told += (
            [style.bold(line) for line in wrapped(printable(check.remedy), style.prose - len(indent))] if check.remedy else []
        )
        lines.append(head + f"\n{indent}".join(told))
    counted = {state: sum(check.state == state for check in found) for state in paint}
    many = {"works": "work"}
    said = ", ".join(f"{count} {many.get(state, state) if count > 1 else state}" for state, count in counted.items() if count)
    return "\n".join([*lines, "", f"  {said}"])
