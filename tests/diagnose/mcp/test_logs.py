"""What another agent may read of log files: only below the given folders, and never secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from diagnose.errors import DiagnoseError
from diagnose.mcp.answers import brief, clear
from diagnose.mcp.logs import Logs

SECRET = "hf_" + "aBcD1234" * 4
STEPS = "".join(f"step {step}/900 | loss 2.{step:03} | lr 1e-4\n" for step in range(1, 301))
FAILED = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nKeyError: 'x'\n"
LOG = f"login with token={SECRET}\n{STEPS}{FAILED}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("logs")
    (made / "train.log").write_text(LOG)
    return made


@pytest.fixture(scope="module")
def logs(folder: Path) -> Logs:
    return Logs([folder])


def test_a_report_names_the_cause_and_its_line(logs: Logs) -> None:
    (report,) = logs.reports("train.log")

    assert report["diagnosis"]["reason"] == "key_error"
    assert report["diagnosis"]["root_cause"]["line"] == 304
    assert all("points" not in figures for figures in report["metrics"].values())


def test_what_is_known_of_the_job_counts_for_one_question_only(logs: Logs, folder: Path) -> None:
    (folder / "fine.log").write_text(STEPS)
    assert logs.reports("fine.log", failed=True)[0]["outcome"] == "failed"
    assert logs.reports("fine.log")[0]["outcome"] != "failed"


def test_a_file_that_grew_is_read_again(logs: Logs, folder: Path) -> None:
    path = folder / "growing.log"
    path.write_text(STEPS)
    assert logs.reports(str(path))[0]["outcome"] != "failed"
    path.write_text(LOG)
    assert logs.reports(str(path))[0]["diagnosis"]["reason"] == "key_error"


def test_kept_lines_come_in_pages(logs: Logs) -> None:
    first = logs.kept("train.log", limit=2)
    rest = logs.kept("train.log", after=first["next"])

    assert [row["line"] for row in first["lines"]] == [1, 302]
    assert rest["lines"][-1] == {"source": rest["lines"][-1]["source"], "line": 304, "text": "KeyError: 'x'"}
    assert rest["next"] is None
    assert [row["line"] for row in logs.kept("train.log", contains="keyerror")["lines"]] == [304]


def test_search_finds_lines_that_filters_dropped(logs: Logs) -> None:
    found = logs.search("train.log", r"step 1\d\d/900.*2\.150")
    assert [(row["line"], row["text"][:12]) for row in found["lines"]] == [(151, "step 150/900")]
    assert logs.search("train.log", "loss", limit=3)["more"] is True
    assert logs.search("train.log", "$", limit=3)["lines"]  # matches nothing but ends of lines


@pytest.mark.parametrize("text", ["a", "one\ntwo", "one\ntwo\n", "one\r\ntwo\r\n"])
def test_the_last_line_needs_no_end(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.log").write_bytes(text.encode())
    found = Logs([tmp_path]).lines("x.log", 1, 9)["lines"]
    assert [row["text"] for row in found] == text.split()


def test_an_expression_that_never_ends_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.log").write_text("ok\n" + "a" * 4000 + "!\n")
    monkeypatch.setattr("diagnose.mcp.logs._SEARCH_S", 0.2)
    found = Logs([tmp_path]).search("x.log", r"ok|(a|aa)+$")
    assert [row["line"] for row in found["lines"]] == [1]
    assert "not all was searched" in found["problem"]


def test_no_expression_is_an_error_with_a_sentence(logs: Logs) -> None:
    with pytest.raises(DiagnoseError, match="no regular expression"):
        logs.search("train.log", "(")


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret.log", "link.log", "linked/"])
def test_nothing_outside_the_folders_is_read(tmp_path: Path, path: str) -> None:
    inside = tmp_path / "logs"
    inside.mkdir()
    (tmp_path / "secret.log").write_text("KeyError: 'x'\n")
    os.symlink(tmp_path / "secret.log", inside / "link.log")
    (inside / "linked").mkdir()
    os.symlink(tmp_path / "secret.log", inside / "linked" / "a.log")

    for ask in (Logs([inside]).reports, Logs([inside]).kept, lambda p: Logs([inside]).search(p, "x")):
        with pytest.raises(DiagnoseError):
            ask(path)


def test_without_folders_there_are_no_files(folder: Path) -> None:
    with pytest.raises(DiagnoseError, match="none"):
        Logs([]).reports(str(folder / "train.log"))
    assert Logs([]).report_of_text(LOG)["diagnosis"]["reason"] == "key_error"


def test_secrets_are_taken_out_of_whatever_is_answered(logs: Logs) -> None:
    for answer in (logs.kept("train.log"), logs.lines("train.log", 1, 2), logs.search("train.log", "login"), {"x": [[LOG]]}):
        assert SECRET in str(answer)
        assert SECRET not in str(clear(answer))


def test_names_to_ask_on_with_stay(folder: Path) -> None:
    row = {"source": f"/home/jane/{SECRET}.log", "text": f"/home/jane/x token={SECRET}", "line": 3}
    told = clear({"lines": [row], "next": 7})
    assert told["lines"][0]["source"] == row["source"]
    assert "jane" not in told["lines"][0]["text"]
    assert (told["lines"][0]["line"], told["next"]) == (3, 7)


def test_hosts_go_if_that_is_wanted() -> None:
    text = "connect to gpu-17.cluster.local:29500 failed"
    assert "gpu-17" in clear({"text": text})["text"]
    assert "gpu-17" not in clear({"text": text}, hosts=True)["text"]


def test_a_report_is_brief() -> None:
    line = {"source": "a", "line": 1, "text": "x", "rank": None}
    report = {"diagnosis": {"evidence": [line] * 90, "notes": []}, "metrics": {f"m{n}": {"points": [1]} for n in range(50)}}
    told = brief(report)
    assert told == {"diagnosis": {"evidence": [{"source": "a", "line": 1, "text": "x"}] * 20}}
