"""Do the tests notice wrong code? ``python -m benchmarks.mutation``.

Seeded changes are made to one module at a time: a comparison is turned, ``and`` becomes ``or``, a ``not`` is removed, a
constant changes, a return gives nothing, a sum becomes a difference. Each change is put into a copy of the checkout, and the
tests of that module run against it, up to the first that fails. Printed are the share of the changes that a test noticed, and
the survivors. A person looks at those: some change nothing that anybody could see, others show that a test is missing.

Results are written to a file after each change, so a run that was stopped goes on there. After new tests were written,
``--survivors`` only runs the changes that nobody had noticed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from benchmarks.measure import ROOT

COPIED = (
    "diagnose",
    "service",
    "tests",
    "rules",
    "prompts",
    "fixtures",
    "benchmarks",
    "model_server",
    "docs",
    "pyproject.toml",
    "README.md",
)


@dataclass(frozen=True, slots=True)
class Area:
    """Modules, and the tests that ought to notice if one of them is wrong."""

    modules: str
    tests: tuple[str, ...]
    """the quick ones that know these modules best come first"""
    without: tuple[str, ...] = ()
    """modules that are in another area"""
    deselected: tuple[str, ...] = ()
    """tests that take long, or measure time"""

    def paths(self) -> list[str]:
        found = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(self.modules))
        return [path for path in found if path not in self.without]


_ROOT_CAUSE = "tests/diagnose/diagnosis/test_root_cause.py"
_TRACEBACKS = "diagnose/diagnosis/tracebacks.py"
AREAS: dict[str, Area] = {
    "auth": Area("service/auth.py", ("tests/service/test_auth.py",)),
    "actions": Area(
        "service/acting/actions.py",
        tuple(f"tests/service/acting/test_{name}.py" for name in ("actions", "standing", "nodecheck")),
    ),
    "journal": Area("service/journal.py", ("tests/service/test_journal.py",)),
    "segments": Area("service/segments.py", ("tests/service/test_journal.py", "tests/service/live/test_damage.py")),
    "redaction": Area(
        "diagnose/redaction/*.py",
        ("tests/diagnose/redaction",),
        deselected=("tests/diagnose/redaction/test_text.py::test_the_time_is_linear",),
    ),
    "verification": Area("diagnose/verification/*.py", ("tests/diagnose/verification",)),
    "decision": Area("diagnose/decision/*.py", ("tests/diagnose/decision", "tests/project/test_simulation.py")),
    "compression": Area(
        "diagnose/compression/*.py",
        ("tests/diagnose/compression", "tests/diagnose/matching/test_series.py"),
        deselected=("tests/diagnose/compression/test_workload.py::test_a_resubmitted_job_starts_with_its_rules",),
    ),
    "tracebacks": Area(_TRACEBACKS, ("tests/diagnose/diagnosis/test_tracebacks.py",)),
    "diagnosis": Area(
        "diagnose/diagnosis/*.py",
        ("tests/diagnose/diagnosis",),
        without=(_TRACEBACKS,),
        deselected=(f"{_ROOT_CAUSE}::test_very_many_faults", f"{_ROOT_CAUSE}::test_whatever_the_log_holds"),
    ),
    "weighing": Area(
        "diagnose/diagnosis/weighing/*.py",
        ("tests/diagnose/diagnosis",),
        deselected=(f"{_ROOT_CAUSE}::test_very_many_faults", f"{_ROOT_CAUSE}::test_whatever_the_log_holds"),
    ),
    "detectors": Area(
        "diagnose/diagnosis/detectors/*.py",
        ("tests/diagnose/diagnosis/test_detectors.py", "tests/diagnose/compression/test_contradiction.py"),
    ),
}
OURS = "not server and not browser and not model"
RESULTS = ROOT / "benchmarks" / ".cache" / "mutation.json"
PLUGINS = ("pytest_timeout", "benchmarks.mutation")
"""of pytest; other installed plugins take seconds to import"""
FIRST = "DIAGNOSE_MUTATION_FIRST"
PATIENCE = 5.0
"""a change that makes the tests so many times slower was noticed: something waits for ever"""
LEAST_S = 30.0

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


_UNSEEN = {"strict", "daemon", "maxsize", "slots", "frozen", "kw_only", "repr"}
"""keyword arguments that change nothing that a user could see"""
_LOGS = ("log", "_log", "logger", "logging", "warnings")


@dataclass(frozen=True, slots=True)
class Change:
    """One change to one module."""

    path: str
    number: int
    """of the place in the module"""
    line: int
    kind: str

    @property
    def key(self) -> str:
        return f"{self.path}#{self.number}"

    def made(self) -> tuple[str, str, str]:
        """(before, after, source of the whole module)."""
        tree = ast.parse((ROOT / self.path).read_text())
        node = next(node for number, (_, node) in enumerate(sites(tree)) if number == self.number)
        before = ast.unparse(node)
        _make(node)
        return before, ast.unparse(node), ast.unparse(tree)


def sites(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """(kind, node) of what can be changed: code that runs, not annotations, texts or what only type checkers read."""
    left_out = {id(inner) for node in ast.walk(tree) for one in _unseen(node) for inner in ast.walk(one)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _TURNED:
            yield "comparison", node
        elif isinstance(node, ast.BoolOp):
            yield "and/or", node
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield "not", node
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            yield "sum", node
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield "constant", node
        elif isinstance(node, ast.Return) and node.value is not None and not _is_nothing(node.value):
            yield "return", node


def _unseen(node: ast.AST) -> list[ast.AST]:
    """The parts of ``node`` in which a change would have no effect."""
    parts: list[ast.AST | None] = []
    if isinstance(node, ast.AnnAssign | ast.arg):
        parts = [node.annotation]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        parts = [node.returns, *node.decorator_list]
    elif isinstance(node, ast.ClassDef):
        parts = [*node.decorator_list]
    elif isinstance(node, ast.keyword) and node.arg in _UNSEEN:
        parts = [node.value]
    elif (isinstance(node, ast.If) and _root(node.test) == "TYPE_CHECKING") or (
        isinstance(node, ast.Call) and _root(node.func) in _LOGS
    ):
        parts = [node]
    return [part for part in parts if part is not None]


def _root(node: ast.expr) -> str:
    """The first name of ``a.b.c``."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_nothing(node: ast.expr) -> bool:
    """None, or False, which acts like None."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def _make(node: ast.AST) -> None:
    """Change ``node`` in place."""
    if isinstance(node, ast.Compare):
        node.ops[0] = _TURNED[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp):
        node.operand = ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.BinOp):
        node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
    elif isinstance(node, ast.Return):
        node.value = ast.Constant(None)


def changes(path: str, chance: random.Random) -> list[Change]:
    """All changes that can be made to a module. The seed decides the order, and the kinds take turns."""
    found: dict[str, list[Change]] = {}
    for number, (kind, node) in enumerate(sites(ast.parse((ROOT / path).read_text()))):
        found.setdefault(kind, []).append(Change(path, number, node.lineno, kind))  # type: ignore[attr-defined]
    for group in found.values():
        chance.shuffle(group)
    return _in_turns([found[kind] for kind in sorted(found)])


def _in_turns(groups: Sequence[Sequence[Change]]) -> list[Change]:
    return [group[turn] for turn in range(max(map(len, groups), default=0)) for group in groups if turn < len(group)]


def chosen(area: Area, wanted: int, seed: int) -> list[Change]:
    """``wanted`` changes over the modules of an area, each module in turn."""
    chance = random.Random(seed)
    return _in_turns([changes(path, chance) for path in area.paths()])[:wanted]


class Copy:
    """A copy of the checkout, with one change at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            if (ROOT / name).is_dir():
                left_out = shutil.ignore_patterns("__pycache__", ".cache", "node_modules")
                shutil.copytree(ROOT / name, folder / name, ignore=left_out)
            else:
                shutil.copy(ROOT / name, folder / name)

        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        for name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):  # with these a forgotten flush is never noticed
            environment.pop(name, None)
        self._pytest = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.children.forked"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        assert self._pytest.stdin is not None
        self._pytest.stdin.close()
        self._pytest.wait()

    def noticed(self, area: Area, first: Sequence[str] = (), timeout_s: float | None = None) -> str | None:
        """The first test that fails, or "time" if they take too long; None if all pass.

        Without a time limit, Python's compiled files are kept for later runs.
        """
        words = ["-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-m", OURS]
        words += [word for plugin in PLUGINS for word in ("-p", plugin)]
        words += [f"--deselect={name}" for name in area.deselected]
        environment = {
            "DIAGNOSE_TEST_CACHE": os.environ.get("DIAGNOSE_TEST_CACHE", str(RESULTS.parent / "mutation-rules")),
            "HYPOTHESIS_PROFILE": "mutation",
            FIRST: " ".join(first),
        }
        if timeout_s is not None:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        output = self.folder / "said"
        asked = {
            "words": [*words, *area.tests],
            "environment": environment,
            "output": str(output),
            "seconds": timeout_s,
        }
        assert self._pytest.stdin is not None
        assert self._pytest.stdout is not None
        print(json.dumps(asked), file=self._pytest.stdin, flush=True)
        answer = self._pytest.stdout.readline().strip()
        if not answer:
            sys.exit("mutation: what runs the tests has ended")
        if answer == "time":
            return "time"
        return None if answer == "0" else _who_failed(output.read_text(errors="replace"))

    def judge(self, change: Change, area: Area, first: Sequence[str], timeout_s: float) -> dict[str, Any]:
        """Make the change, run the tests, and undo the change."""
        path = self.folder / change.path
        as_it_is, times = path.read_text(), path.stat()
        before, after, source = change.made()
        path.write_text(source)
        # The copy's compiled module has another time stamp, so it is not taken for this text.
        os.utime(path, (times.st_atime, times.st_mtime + 60))
        try:
            by = self.noticed(area, first, timeout_s)
        finally:
            path.write_text(as_it_is)
            os.utime(path, (times.st_atime, times.st_mtime))
        return {"line": change.line, "kind": change.kind, "before": _short(before), "after": _short(after), "noticed_by": by}


def _who_failed(said: str) -> str:
    found = re.search(r"^(?:FAILED|ERROR) (.*?)(?:\[| - |$)", said, re.M)
    return found[1] if found else "import"


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """As a plugin of pytest: tests that noticed something before run first, then the files that are named."""
    first = os.environ.get(FIRST, "").split()
    places = {name: place for place, name in enumerate(first)}

    def place(item: Any) -> int:
        name, file = item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]
        return places.get(name, places.get(file, len(first)))

    items.sort(key=place)


class Book:
    """What became of each change, in a file that is written after each of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.modules: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def find(self, change: Change, *, survivors_again: bool) -> dict[str, Any] | None:
        """What is known about a change to the module as it is now."""
        module = self.modules.get(change.path)
        found = module["changes"].get(change.key) if module and module["digest"] == _digest(change.path) else None
        return None if found and survivors_again and found["noticed_by"] is None else found

    def write(self, change: Change, result: dict[str, Any]) -> None:
        with self._lock:
            digest = _digest(change.path)
            if self.modules.get(change.path, {}).get("digest") != digest:
                self.modules[change.path] = {"digest": digest, "changes": {}}
            self.modules[change.path]["changes"][change.key] = result
            whole = self.path.with_suffix(".new")
            whole.write_text(json.dumps(self.modules, indent=1))
            whole.replace(self.path)

    def noticers(self, path: str) -> list[str]:
        """The tests that noticed most. Those that noticed something in this module come first, and then those of its file."""
        by = {module: [one["noticed_by"] for one in found["changes"].values()] for module, found in self.modules.items()}
        here, anywhere = Counter(by.get(path, ())), Counter(name for names in by.values() for name in names)
        names = {name for name in anywhere if name and "::" in name}
        known = sorted(names, key=lambda name: (-here[name], -anywhere[name], name))
        module = Path("tests", path)
        own = str(module.with_name(f"test_{module.name}"))
        return [*(name for name in known if here[name]), own, *(name for name in known if not here[name])][:30]


def _digest(path: str) -> str:
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()[:16]


def measure(name: str, made: Sequence[Change], book: Book, copies: Sequence[Copy], *, survivors_again: bool) -> None:
    """Run the tests of one area on its changes, in as many copies at once as there are."""
    area = AREAS[name]
    asked = [change for change in made if book.find(change, survivors_again=survivors_again) is None]
    if not asked:
        return
    timeout_s = LEAST_S
    for copy in copies:
        began = time.monotonic()
        if by := copy.noticed(area):
            sys.exit(f"mutation: {by} fails without any change; run: pytest {' '.join(area.tests)}")
        timeout_s = max(timeout_s, PATIENCE * (time.monotonic() - began))
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def judge(change: Change) -> None:
        copy = free.get()
        try:
            book.write(change, copy.judge(change, area, book.noticers(change.path), timeout_s))
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        for _ in pool.map(judge, asked):
            pass


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutation", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"which of {', '.join(AREAS)}; all if none is named")
    parser.add_argument("--changes", type=int, default=20, metavar="N", help="changes per area (20)")
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other changes (1)")
    parser.add_argument("--workers", type=int, default=1, help="how many at once (1)")
    parser.add_argument("--survivors", action="store_true", help="ask again about the changes that no test had noticed")
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="FILE",
        help="what is known already, and where to write what is found (benchmarks/.cache/mutation.json)",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.areas) - set(AREAS):
        parser.error(f"no such area: {', '.join(sorted(unknown))}; there are {', '.join(AREAS)}")
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    book = Book(arguments.results)
    noticed = total = 0
    with tempfile.TemporaryDirectory() as folder:
        copies = [Copy(Path(folder, str(number))) for number in range(arguments.workers)]
        for name in arguments.areas or AREAS:
            made = chosen(AREAS[name], arguments.changes, arguments.seed)
            measure(name, made, book, copies, survivors_again=arguments.survivors)
            total += len(made)
            noticed += show(name, made, book)
        for copy in copies:
            copy.close()
    if total:
        print(_line("all", noticed, total))


def show(name: str, made: Sequence[Change], book: Book) -> int:
    """Print one line per area and one per survivor. Returns how many were noticed."""
    found = [(change, book.find(change, survivors_again=False) or {}) for change in made]
    survivors = [(change, result) for change, result in found if result.get("noticed_by") is None]
    print(_line(name, len(made) - len(survivors), len(made)), flush=True)
    for change, result in survivors:
        print(f"    {change.path}:{change.line}  {change.kind}: {result['before']}  ->  {result['after']}", flush=True)
    return len(made) - len(survivors)


def _line(name: str, noticed: int, total: int) -> str:
    return f"{name:14} {noticed:4} of {total:4} noticed  {noticed / total:6.1%}"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 100 else f"{flat[:99]}…"


if __name__ == "__main__":
    main()
