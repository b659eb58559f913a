"""Which changes benchmarks.mutation makes to the code, and what it remembers of them."""

from __future__ import annotations

import ast
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.mutation import AREAS, FIRST, Book, changes, chosen, pytest_collection_modifyitems, sites
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("a < b", ["comparison"]),
        ("a and b", ["and/or"]),
        ("not a", ["not"]),
        ("a + b", ["sum"]),
        ("f(3)", ["constant"]),
        ("def f(): return a", ["return"]),
        ("def f(): return True", ["return", "constant"]),
        # What follows does not change what anybody sees.
        ("def f(): return None", []),
        ("'a text'", []),
        ("def f(a: Literal[3] = b) -> Literal[4]: pass", []),
        ("def f(*a: Literal[3], **b: Literal[4]): pass", []),
        ("a: Literal[3] = b", []),
        ("log.info('%d', a + 1)", []),
        ("@dataclass(frozen=True)\nclass A: pass", []),
        ("@cache(maxsize=8)\ndef f(): pass", []),
        ("zip(a, b, strict=True)", []),
        ("if TYPE_CHECKING:\n    a = 3", []),
    ],
)
def test_what_is_changed_is_code_that_runs(source: str, found: list[str]) -> None:
    assert [kind for kind, _ in sites(ast.parse(source))] == found


def test_every_change_makes_another_module_that_is_still_python() -> None:
    path = "service/auth.py"
    as_it_is = ast.unparse(ast.parse((ROOT / path).read_text()))
    for change in changes(path, random.Random(1)):
        before, after, source = change.made()
        assert before != after
        assert source != as_it_is
        compile(source, path, "exec")


@pytest.mark.parametrize("name", AREAS)
def test_an_area_has_twenty_changes_and_tests_that_are_there(name: str) -> None:
    area = AREAS[name]
    assert len(chosen(area, 20, seed=1)) == 20
    assert all((ROOT / test.partition("::")[0]).exists() for test in (*area.tests, *area.deselected))


def test_a_seed_always_makes_the_same_changes() -> None:
    area = AREAS["auth"]
    assert chosen(area, 20, seed=1) == chosen(area, 20, seed=1) != chosen(area, 20, seed=2)


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    first, second, third = chosen(AREAS["auth"], 3, seed=1)
    book = Book(tmp_path / "results.json")
    book.write(first, {"noticed_by": "tests/test_a.py::test_b"})
    book.write(second, {"noticed_by": None})
    again = Book(tmp_path / "results.json")
    assert [bool(again.find(one, survivors_again=False)) for one in (first, second, third)] == [True, True, False]
    assert [bool(again.find(one, survivors_again=True)) for one in (first, second, third)] == [True, False, False]
    assert again.noticers(first.path) == ["tests/test_a.py::test_b", "tests/service/test_auth.py"]
    assert again.noticers("diagnose/job.py") == ["tests/diagnose/test_job.py", "tests/test_a.py::test_b"]


def test_what_noticed_something_runs_first_and_then_the_file_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FIRST, "tests/test_b.py::test_known tests/test_c.py")
    names = ["test_a.py::test_x", "test_b.py::test_other", "test_b.py::test_known[1]", "test_c.py::test_x", "test_c.py::test_y"]
    items = [SimpleNamespace(nodeid=f"tests/{name}") for name in names]
    pytest_collection_modifyitems(items)
    order = [item.nodeid.removeprefix("tests/") for item in items]
    assert order == [names[2], names[3], names[4], names[0], names[1]]


def test_what_is_known_about_another_text_of_the_module_does_not_count(tmp_path: Path) -> None:
    (change,) = chosen(AREAS["auth"], 1, seed=1)
    book = Book(tmp_path / "results.json")
    book.write(change, {"noticed_by": None})
    book.modules[change.path]["digest"] = "of another text"
    assert book.find(change, survivors_again=False) is None
