"""Do the tests notice when the code is wrong? ``python -m benchmarks.mutation``.

Seeded changes are made to one module at a time: a comparison is turned, ``and`` becomes ``or``, ``not`` goes, a constant
moves, a return gives nothing, a sum becomes a difference. Each change is put into a copy of the checkout, and the tests of that
module are run against it. Printed is the share of the changes that a test noticed, and the survivors. A person looks at those:
some change nothing that anybody could see, others show a test that is missing.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

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
AREAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "diagnosis": ("diagnose/diagnosis/*.py", ("tests/diagnose/diagnosis",)),
    "detectors": ("diagnose/diagnosis/detectors/*.py", ("tests/diagnose/diagnosis",)),
    "tracebacks": ("diagnose/diagnosis/tracebacks.py", ("tests/diagnose/diagnosis",)),
    "decision": ("diagnose/decision/*.py", ("tests/diagnose/decision", "tests/project/test_simulation.py")),
    "verification": ("diagnose/verification/*.py", ("tests/diagnose/verification", "tests/diagnose/learning")),
    "compression": ("diagnose/compression/*.py", ("tests/diagnose/compression", "tests/diagnose/matching")),
    "redaction": ("diagnose/redaction/*.py", ("tests/diagnose/redaction",)),
    "auth": ("service/auth.py", ("tests/service/test_auth.py", "tests/service/store")),
    "journal": ("service/journal.py", ("tests/service/test_journal.py",)),
    "actions": (
        "service/acting/actions.py",
        ("tests/service/acting",),
    ),
}
"""name -> the modules, and the tests that ought to notice"""
OURS = "not server and not browser and not model"
PATIENCE = 6.0
"""a change that makes the tests this many times slower was noticed: something waits for ever"""

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


@dataclass(frozen=True, slots=True)
class Change:
    """One change to one module."""

    path: str
    line: int
    kind: str
    before: str
    after: str
    source: str
    """of the whole module, changed"""


@dataclass(frozen=True, slots=True)
class Area:
    """What became of the changes to one area."""

    name: str
    changes: int
    survivors: tuple[Change, ...]

    @property
    def noticed(self) -> float:
        return 1 - len(self.survivors) / self.changes if self.changes else 1.0


def sites(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """(kind, node) of what can be changed: code that runs, not annotations, texts or what only type checkers read."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        skipped: list[ast.AST | None] = []
        if isinstance(node, ast.AnnAssign):
            skipped = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            skipped = [node.returns, *(one.annotation for one in arguments), *node.decorator_list]
        elif (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING") or (
            isinstance(node, ast.Call) and ast.unparse(node.func).startswith("log.")
        ):
            skipped = [node]
        left_out |= {id(inner) for one in skipped if one is not None for inner in ast.walk(one)}
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
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield "return", node


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _make(node: ast.AST) -> None:
    """Change ``node`` where it stands."""
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
    """All changes that can be made to a module, in an order that the seed decides, the kinds taking turns."""
    text = (ROOT / path).read_text()
    count = sum(1 for _ in sites(ast.parse(text)))
    found: dict[str, list[Change]] = {}
    for number in range(count):
        tree = ast.parse(text)
        kind, node = next(site for index, site in enumerate(sites(tree)) if index == number)
        before = ast.unparse(node)
        _make(node)
        source = ast.unparse(tree)
        found.setdefault(kind, []).append(Change(path, node.lineno, kind, before, ast.unparse(node), source))  # type: ignore[attr-defined]
    for group in found.values():
        chance.shuffle(group)
    groups = sorted(found.values(), key=lambda group: group[0].kind)
    return [group[turn] for turn in range(max(map(len, groups), default=0)) for group in groups if turn < len(group)]


def chosen(pattern: str, wanted: int, seed: int) -> list[Change]:
    """``wanted`` changes over the modules of an area, each module in turn."""
    chance = random.Random(seed)
    paths = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))
    modules = [changes(path, chance) for path in paths]
    turns = max(map(len, modules), default=0)
    return [module[turn] for turn in range(turns) for module in modules if turn < len(module)][:wanted]


class Copy:
    """A copy of the checkout, in which one change stands at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(
                    ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".cache", "node_modules")
                )
            else:
                shutil.copy(ROOT / name, folder / name)

    def passes(self, tests: Sequence[str], timeout_s: float | None = None) -> bool:
        """Do the tests pass? What takes too long does not."""
        there = [test for test in tests if (self.folder / test).exists()]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", OURS, *there]
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=environment, capture_output=True, timeout=timeout_s, check=False, text=True
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def survives(self, change: Change, tests: Sequence[str], timeout_s: float) -> bool:
        """Does nobody notice?"""
        path = self.folder / change.path
        as_it_is = path.read_text()
        path.write_text(change.source)
        try:
            return self.passes(tests, timeout_s)
        finally:
            path.write_text(as_it_is)


def measure(name: str, wanted: int, seed: int, copies: Sequence[Copy]) -> Area:
    """The tests of one area against its changes, on as many copies as there are at once."""
    pattern, tests = AREAS[name]
    made = chosen(pattern, wanted, seed)
    began = time.monotonic()
    if not copies[0].passes(tests):
        sys.exit(f"mutation: the tests of {name} fail without any change; run: pytest {' '.join(tests)}")
    timeout_s = 30 + PATIENCE * (time.monotonic() - began)
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def survives(change: Change) -> bool:
        copy = free.get()
        try:
            return copy.survives(change, tests, timeout_s)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        lived = list(pool.map(survives, made))
    return Area(name, len(made), tuple(change for change, alive in zip(made, lived, strict=True) if alive))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutation", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"which of {', '.join(AREAS)}; all if none is named")
    parser.add_argument("--changes", type=int, default=20, metavar="N", help="changes per area (20)")
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other changes (1)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many at once (all cores)")
    parser.add_argument("--json", action="store_true", help="one object per area")
    arguments = parser.parse_args()
    unknown = set(arguments.areas) - set(AREAS)
    if unknown:
        parser.error(f"no such area: {', '.join(sorted(unknown))}; there are {', '.join(AREAS)}")
    noticed = made = 0
    with tempfile.TemporaryDirectory() as folder:
        copies = [Copy(Path(folder, str(number))) for number in range(arguments.workers)]
        for name in arguments.areas or AREAS:
            area = measure(name, arguments.changes, arguments.seed, copies)
            made += area.changes
            noticed += area.changes - len(area.survivors)
            show(area, as_json=arguments.json)
    if not arguments.json and made:
        print(f"{'all':14} {made:4} changes  {noticed / made:6.1%} noticed")


def show(area: Area, *, as_json: bool) -> None:
    """One line per area, and one per survivor."""
    if as_json:
        survivors = [
            {"path": one.path, "line": one.line, "kind": one.kind, "before": one.before, "after": one.after}
            for one in area.survivors
        ]
        print(
            json.dumps({"area": area.name, "changes": area.changes, "noticed": area.noticed, "survivors": survivors}),
            flush=True,
        )
        return
    print(f"{area.name:14} {area.changes:4} changes  {area.noticed:6.1%} noticed", flush=True)
    for one in area.survivors:
        print(f"    {one.path}:{one.line}  {one.kind}: {_short(one.before)}  ->  {_short(one.after)}", flush=True)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:59]}…"


if __name__ == "__main__":
    main()
