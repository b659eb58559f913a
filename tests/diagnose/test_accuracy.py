"""Labelled cases -> accuracy: the sample jobs come out right, and the counting itself is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagnose.accuracy import COLUMNS, Results, evaluate, labels, of_one_case
from diagnose.errors import SourceError
from tests.conftest import ROOT, Run
from tests.support.logs import shipped_matcher

HEADER = "\t".join(COLUMNS) + "\n"


def corpus(folder: Path, *rows: str, **logs: str) -> Path:
    (folder / "labels.tsv").write_text(HEADER + "".join(row + "\n" for row in rows))
    for name, text in logs.items():
        (folder / f"{name}.log").write_text(text)
    return folder


def results(folder: Path) -> Results:
    found = Results(str(folder))
    found.verdicts = list(evaluate(folder, shipped_matcher()))
    return found


LOG = "hello\n[rank3]: Traceback (most recent call last):\n[rank3]:   File \"a.py\", line 1, in f\n[rank3]: KeyError: 'x'\n"


def test_the_sample_jobs_come_out_right() -> None:
    found = results(ROOT / "fixtures")
    wrong = [v.label.file for v in found.verdicts if not (v.category_right and v.reason_right and v.action_right)]
    assert wrong == []
    assert [v.label.file for v in found.verdicts if v.label.root_cause_line is not None and not v.exact] == []
    assert found.whole.alarms == 0


def test_what_is_counted(tmp_path: Path) -> None:
    found = results(
        corpus(
            tmp_path,
            "right.log\tscript\tkey_error\t4\trank 3\tfix_code\t",
            "near.log\tscript\tkey_error\t3\trank 4\tfix_code\t",
            "wrong.log\tscript\tvalue_error\t1\t-\tfix_config\t",
            "alarm.log\tnone\thealthy\t-\t-\tnone\t",
            "missed.log\tscript\ttype_error\t1\t-\tfix_code\t",
            right=LOG,
            near=LOG,
            wrong=LOG,
            alarm=LOG,
            missed="hello\n",
        )
    )
    score = found.whole
    assert (score.cases, score.category, score.reason, score.action) == (5, 3, 2, 2)
    assert (score.with_line, score.exact, score.near) == (4, 1, 2)
    assert (score.healthy, score.alarms, score.unknown) == (1, 1, 1)
    assert (score.with_suspects, score.suspects_found, score.suspects_right, score.suspects_said) == (2, 1, 1, 2)
    assert found.confusion() == [("value_error", "key_error", 1), ("healthy", "key_error", 1), ("type_error", "healthy", 1)]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("rank 3", (1, 1)),
        ("rank 0,1,2,3", (1, 4)),
        ("ranks 2-4", (1, 3)),
        ("gpu-13", (1, 1)),
        ("GPU 0000:8A:00.0", (1, 1)),
        ("GPU3 0000:8a:00 on gpu-13", (2, 3)),
        ("rank 9", (0, 1)),
        ("-", None),
        ("the network", None),
    ],
)
def test_suspects_are_read_out_of_the_label(tmp_path: Path, where: str, found: tuple[int, int] | None) -> None:
    log = "Mar 04 07:09:47 gpu-13 kernel: NVRM: Xid (PCI:0000:8a:00): 79, pid=1\n[rank3]: RuntimeError: CUDA error: unknown error\n"
    if where.startswith("rank"):
        log = LOG
    (verdict,) = results(corpus(tmp_path, f"x.log\tscript\tkey_error\t1\t{where}\tfix_code\t", x=log)).verdicts
    assert (verdict.suspects[:2] if verdict.suspects else None) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("file\treason\n", "the first line is not the header of labels.tsv"),
        (HEADER + "a.log\tscript\n", "2 fields where 7 are wanted"),
        (HEADER + "a.log\tscript\tkey_error\tsoon\t-\tfix_code\t\n", "'soon' is not a line number"),
    ],
)
def test_bad_labels_name_the_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "labels.tsv").write_text(text)
    with pytest.raises(SourceError, match=said):
        labels(tmp_path)


def test_the_command(diagnose: Run, tmp_path: Path) -> None:
    corpus(tmp_path, "x.log\tscript\tkey_error\t4\trank 3\tfix_code\t", x=LOG)
    report = json.loads(diagnose("eval", ".", "--json").stdout)
    assert (report["whole"]["reason"], report["cases"][0]["said"], report["calibration"][0]["right"]) == (1, "key_error", 1)
    assert "100.0%" in diagnose("eval", ".").stdout
    assert "| all | 1 |" in diagnose("eval", ".", "--markdown").stdout
    assert "action  wanted\n\nrules that" in diagnose("eval", ".", "--wrong").stdout  # none is wrong


def test_confidence_is_compared_with_what_was_right_by_its_tenths(tmp_path: Path) -> None:
    found = results(
        corpus(
            tmp_path,
            "right.log\tscript\tkey_error\t4\t-\tfix_code\t",
            "wrong.log\tscript\tvalue_error\t4\t-\tfix_code\t",
            right=LOG,
            wrong=LOG,
        )
    )
    (level,) = found.reliability()
    assert (level.least, level.cases, level.right) == (0.9, 2, 1)
    assert level.said == found.verdicts[0].confidence


def test_an_action_that_no_label_tells_is_not_counted(tmp_path: Path) -> None:
    rows = ("told.log\tscript\tkey_error\t4\t-\tfix_code\t", "untold.log\tscript\tkey_error\t4\t-\t-\t")
    score = results(corpus(tmp_path, *rows, told=LOG, untold=LOG)).whole
    assert (score.cases, score.with_action, score.action, score.action_kind) == (2, 1, 1, 1)


def test_rules_that_speak_in_one_case_only_are_named(diagnose: Run, tmp_path: Path) -> None:
    for name, log in (("one", LOG), ("other", LOG + LOG.replace("KeyError: 'x'", "ValueError: y"))):
        (tmp_path / name).mkdir()
        corpus(tmp_path / name, "a.log\tscript\tkey_error\t4\t-\tfix_code\t", a=log)
    both = [results(tmp_path / name) for name in ("one", "other")]
    assert of_one_case(both) == {"rules/failures/python.yaml:py-value": "a.log"}
    assert "rules/failures/python.yaml:py-key" in of_one_case(both[:1])
    said = diagnose("eval", str(tmp_path / "one"), str(tmp_path / "other"), "--wrong").stdout
    assert "rules that speak in one case only: 1 of the 3 that speak\n" in said
    assert "py-value" in said.rpartition("one case only")[2]
    page = diagnose("eval", str(tmp_path / "one"), str(tmp_path / "other"), "--markdown").stdout
    assert page.rstrip().endswith("together: `py-value`.")
