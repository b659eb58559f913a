"""``diagnose policy check | explain`` as people run it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import Run
from tests.support.cases import NODES, NOW, report, xid
from tests.support.logs import shipped_matcher

A = NODES[0]


def test_check_says_what_it_read(diagnose: Run) -> None:
    done = diagnose("policy", "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert "mode observe: no objections" in done.stdout


def test_check_names_every_line_that_is_wrong(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("mode: off\nlimits:\n  isolation_per_hour: 9\n")
    done = diagnose("policy", "check", "site.yaml")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].startswith("site.yaml:1: mode: 'off' is no mode; use observe")
    assert done.stdout.splitlines()[1].startswith(
        "site.yaml:3: limits.isolation_per_hour: there is no such clause; did you mean isolations_per_hour? those here are"
    )
    told = [json.loads(line) for line in diagnose("policy", "check", "site.yaml", "--json").stdout.splitlines()]
    assert [one["where"] for one in told] == ["site.yaml:1", "site.yaml:3"]


def test_what_cannot_be_read(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"schema": "diagnose.report/1", "job": 3}\n')
    (tmp_path / "good.json").write_text(report().as_json() + "\n")
    (tmp_path / "history.json").write_text('{"history": {"atempts": []}}')
    (tmp_path / "bad.json").write_text("{")
    for words, said in (
        (["check", "none.yaml"], "none.yaml: cannot be read"),
        (["explain", "none.json"], "none.json: no such file"),
        (["explain", "report.json"], "report.json:1: this is not a report: "),
        (["explain", "good.json", "--history", "none.json"], "none.json: cannot be read: No such file"),
        (["explain", "good.json", "--history", "history.json"], "history.json: history.atempts: unexpected keyword"),
        (["explain", "good.json", "--history", "bad.json"], "bad.json: invalid JSON"),
        (["explain", "good.json", "--policy", "none.yaml"], "none.yaml: cannot be read"),
    ):
        done = diagnose("policy", *words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_explain_says_which_line_decided_and_what_would_change_it(diagnose: Run, tmp_path: Path) -> None:
    told_by_the_node = report("ecc_error", nodes=(A,), root=xid(48, A)).as_json().replace(f"{A}.log", f"node:{A}/kern.log")
    (tmp_path / "report.json").write_text(told_by_the_node + "\n")
    (tmp_path / "site.yaml").write_text("modes: {isolate_and_restart: auto}\nlimits: {isolated_share: 5%}\n")
    situation = {
        "now": NOW,
        "history": {"nodes": [A, NODES[1]], "gpus": 16},
        "cluster": {"nodes": {node: "isolated" if n > 93 else "ok" for n, node in enumerate(NODES)}},
    }
    (tmp_path / "history.json").write_text(json.dumps(situation))
    words = ["policy", "explain", "report.json", "--history", "history.json", "--policy", "site.yaml"]
    done = diagnose(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "job attempt 1: restart  mode observe  class -"
    for said in (
        "isolated-share: Blast radius: 6 of 100 nodes are isolated",
        "-> a person isolates by hand, time passes, nodes are released, or limits.isolated_share in the policy",
        "site.yaml:2",
        f"{A}: its kernel reports Xid 48",
        "avoid",
    ):
        assert said in " ".join(done.stdout.split()), said
    assert max(len(line) for line in done.stdout.splitlines()) <= 100
    told = json.loads(diagnose(*words, "--json").stdout)
    assert (told["action"]["kind"], told["wanted"], told["avoid"]) == ("restart", "isolate_and_restart", [A])


def test_explain_takes_logs_and_many_reports(diagnose: Run, tmp_path: Path) -> None:
    shipped_matcher()  # where rules were never compiled it takes minutes
    (tmp_path / "train.log").write_text(
        "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\nKeyError: 'x'\n"
    )
    one = json.loads(diagnose("policy", "explain", "train.log", "--json").stdout)
    assert (one["job"], one["reason"], one["action"]["kind"], one["tell"]) == ("train", "key_error", "fix_code", "owner")
    reports = diagnose("replay", "train.log", "--json").stdout
    (tmp_path / "reports.json").write_text(reports * 3)
    assert len(diagnose("policy", "explain", "reports.json", "--json").stdout.splitlines()) == 3
    assert len(diagnose("policy", "explain", "-", "--json", stdin=reports.encode()).stdout.splitlines()) == 1


def test_what_a_log_says_cannot_paint_the_terminal(diagnose: Run, tmp_path: Path) -> None:
    hostile = "gpu\x1b[2J\x1b]0;x\x07"
    (tmp_path / "report.json").write_text(report("cuda_error", job=f"job{hostile}", nodes=(hostile,)).as_json() + "\n")
    done = diagnose("policy", "explain", "report.json")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
