"""The commands about learned rules."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import Run
from tests.support.rules import LINES


def test_the_commands(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("\n".join(LINES) + "\nKeyError: 'x'\n")
    learned = json.loads(diagnose("rules", "learn", "job.log", "--store", "b.db", "--json").stdout)
    (name,) = learned["active"]
    before = json.loads(diagnose("replay", "job.log", "--no-folds", "--json").stdout)
    after = json.loads(diagnose("replay", "job.log", "--json", "--learned", "b.db").stdout)
    assert (before["compression"]["lines_kept"], after["compression"]["lines_kept"]) == (41, 1)
    assert after["diagnosis"]["reason"] == "key_error"
    assert name in diagnose("rules", "learned", "--store", "b.db").stdout
    assert f"id: {name}" in diagnose("rules", "export", "--store", "b.db").stdout
    assert diagnose("rules", "retire", name, "--store", "b.db").stdout == f"{name} is retired\n"
    assert diagnose("rules", "promote", "none", "--store", "b.db").returncode == 2


def test_explain_says_when_a_line_folds(diagnose: Run) -> None:
    calm = diagnose("rules", "explain", "walker 12 took 3.4 ms").stdout
    assert "walker <number> took <number> ms" in calm
    assert "from number 4 on" in calm
    assert "only exact copies of it fold" in diagnose("rules", "explain", "walker 12: unable to go").stdout
    assert json.loads(diagnose("rules", "explain", "walker 12", "--json").stdout)["mask"] == "walker <number>"
