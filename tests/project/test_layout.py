"""The layout holds: small folders, packages with a face, tests beside what they test."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

MOST_MODULES = 25
PACKAGES = sorted(path.parent for name in ("diagnose", "service") for path in (ROOT / name).glob("*/__init__.py"))
FACES = [path for path in PACKAGES if "__all__" in (path / "__init__.py").read_text()]
IMPORT = re.compile(r"^[ \t]*from (?:diagnose|service)\b[\w.]* import (?:\([^)]*\)|[^\n]*)", re.MULTILINE)
"""a statement is parsed alone: trees of whole modules take seconds"""


def modules(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.py") if path.name != "__init__.py"]


@functools.cache
def imported(path: Path) -> list[str]:
    """Every module, or name of a module, that ``path`` imports from the project."""
    return [
        f"{node.module}.{name.name}"
        for statement in IMPORT.findall(path.read_text())
        for node in ast.walk(ast.parse(statement.strip()))
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
    ]


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("top", ["diagnose", "service", "tests", "benchmarks"])
def test_no_folder_is_a_drawer(top: str) -> None:
    folders = {path.parent for path in (ROOT / top).rglob("*.py") if ".cache" not in path.parts}
    crowded = {dotted(folder): len(modules(folder)) for folder in folders if len(modules(folder)) > MOST_MODULES}
    assert crowded == {}


@pytest.mark.parametrize("package", PACKAGES, ids=dotted)
def test_a_package_says_in_its_first_sentence_what_it_is_for(package: Path) -> None:
    said = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert said is not None
    assert said.splitlines()[0].endswith(".")


@pytest.mark.parametrize("package", FACES, ids=dotted)
def test_others_use_only_what_a_package_names(package: Path) -> None:
    name = dotted(package)
    public = set(importlib.import_module(name).__all__)
    assert public <= {path.stem for path in modules(package)} | {path.name for path in package.iterdir() if path.is_dir()}
    behind = {
        f"{dotted(path)} -> {target}"
        for top in ("diagnose", "service")
        for path in (ROOT / top).rglob("*.py")
        if package not in path.parents
        for target in imported(path)
        if target.startswith(f"{name}.") and target.removeprefix(f"{name}.").split(".")[0] not in public
    }
    assert behind == set()


def test_tests_stand_where_what_they_test_stands() -> None:
    """A folder of tests for each folder of code, and none for a folder that went."""
    for top in ("diagnose", "service"):
        for tests in (ROOT / "tests" / top).rglob("test_*.py"):
            assert (ROOT / tests.parent.relative_to(ROOT / "tests")).is_dir(), tests


def test_every_package_is_in_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    here = {dotted(path.parent) for top in ("diagnose", "service") for path in (ROOT / top).rglob("__init__.py")}
    assert here <= set(listed)
