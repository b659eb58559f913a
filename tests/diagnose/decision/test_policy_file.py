"""rules/policy.yaml and what a site lays over it: what is read, and what is said about what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.decision.policy_file import in_force, objections, over_shipped, read, shipped_policy, strict_path
from diagnose.errors import RuleError
from tests.conftest import ROOT

SHIPPED = ROOT / "rules" / "policy.yaml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("actions: 3", "a policy must be a mapping that has the key actions"),
        ("actions: {hang: {kind: restart, why: x}}", "no action for the reason"),
    ],
)
def test_a_bad_policy_says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "policy.yaml").write_text(text)
    with pytest.raises(RuleError, match=said):
        read(tmp_path / "policy.yaml")


def test_an_unknown_reason_in_the_policy(tmp_path: Path) -> None:
    shipped = (ROOT / "rules" / "policy.yaml").read_text()
    (tmp_path / "policy.yaml").write_text(shipped + "  bad_luck: {kind: restart, why: x}\n")
    with pytest.raises(RuleError, match="unknown reason 'bad_luck'"):
        read(tmp_path / "policy.yaml")


def site(folder: Path, text: str) -> Path:
    path = folder / "site.yaml"
    path.write_text(text)
    return path


def test_the_shipped_policy_observes_and_nothing_is_wrong_with_it() -> None:
    assert objections() == []
    policy = shipped_policy()
    assert policy.mode == "observe"
    assert policy.modes == {}
    assert policy.signals.needed >= 2


def test_a_site_says_only_what_differs(tmp_path: Path) -> None:
    policy = over_shipped(site(tmp_path, "modes: {restart: auto}\nlimits: {isolations_per_hour: 1}\n"))
    assert policy.modes == {"restart": "auto"}
    assert policy.limits.isolations_per_hour == 1
    assert policy.limits.isolated_share == shipped_policy().limits.isolated_share
    assert policy.line("limits.isolations_per_hour") == f"{tmp_path}/site.yaml:2"
    assert policy.line("limits.isolated_share").startswith(str(SHIPPED))


def test_a_budget_takes_what_it_leaves_out_from_above(tmp_path: Path) -> None:
    text = """
budgets: {default: {attempts: 2}, hang: {backoff: 7m}}
classes:
  - {name: big, match: {gpus_at_least: 64}, budgets: {hang: {attempts: 9}}}
"""
    policy = over_shipped(site(tmp_path, text))
    shipped = shipped_policy().budgets["default"]
    big = policy.class_of("x", {}, 64)
    assert (policy.budget("hang").attempts, policy.budget("hang").backoff_s) == (2, 420)
    assert policy.budget("storage_error").attempts == 8
    assert (policy.budget("hang", big).attempts, policy.budget("hang", big).backoff_s) == (9, 420)
    assert policy.budget("key_error", big).backoff_s == shipped.backoff_s


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        pytest.param("mode: off", 1, "mode: 'off' is no mode; use observe, approve or auto", id="mode"),
        pytest.param("\nmodes: {restrat: auto}", 2, "neither a reason nor an action; did you mean restart?", id="modes"),
        pytest.param(
            "limits:\n  isolation_per_hour: 9",
            2,
            "no such clause; did you mean isolations_per_hour? those here",
            id="typo",
        ),
        pytest.param(
            "limits: {isolated_share: 0.05}", 1, "'0.05' is no share that can be used; write a percentage", id="share"
        ),
        pytest.param("limits: {isolated_share: 500%}", 1, "is no share", id="share-over-all"),
        pytest.param("limits: {nodes_at_once: -1}", 1, "'-1' is no whole number", id="negative"),
        pytest.param("limits: {isolations_of_a_node: 0}", 1, "'0' is no whole number", id="less-than-one"),
        pytest.param("limits: {nodes_at_once: 1e9}", 1, "'1e9' is no whole number", id="exponent"),
        pytest.param(
            "budgets: {hang: {backoff: 5}}",
            1,
            "'5' is no duration that can be used; write a number and s, m, h or d",
            id="unit",
        ),
        pytest.param("budgets: {ecc_eror: {attempts: 5}}", 1, "did you mean ecc_error?", id="budget-near"),
        pytest.param("limits: {isolated_share: nan}", 1, "'nan' is no share", id="share-nan"),
        pytest.param("confidence: {default: nan}", 1, "'nan' is no confidence", id="confidence-nan"),
        pytest.param("budgets: {hang: {backoff: nans}}", 1, "is no duration", id="duration-nan"),
        pytest.param("limits: {node_cool_down: 99999d}", 1, "is no duration that can be used", id="duration-of-centuries"),
        pytest.param("budgets: {bad_luck: {attempts: 5}}", 1, "unknown reason 'bad_luck'", id="budget-reason"),
        pytest.param("budgets: {hang: {tries: 5}}", 1, "budgets.hang.tries: there is no such clause", id="budget-typo"),
        pytest.param("signals: {needed: 1}", 1, "one signal alone would isolate a node", id="one-signal"),
        pytest.param("signals: {strong_xids: [x]}", 1, "holds something else than whole numbers", id="xids"),
        pytest.param("bursts: {hold_most: 1s}", 1, "is shorter than hold", id="hold"),
        pytest.param("bursts: {families: {a: [hang], b: [hang]}}", 1, "hang is in two families", id="families"),
        pytest.param("approvers: {default: [operators]}", 1, "'operators' names nobody", id="approver"),
        pytest.param("confidence: {default: 75}", 1, "'75' is no confidence", id="confidence"),
        pytest.param(
            "quiet_hours:\n  - {from: '22:00', to: '07:00', zone: Mars/Base, at_most: approve}", 2, "is no time zone", id="zone"
        ),
        pytest.param(
            "quiet_hours: [{from: '22:00', to: '07:00', zone: ../../etc/passwd, at_most: approve}]",
            1,
            "is no time zone",
            id="path",
        ),
        pytest.param(
            "quiet_hours: [{from: '25:00', to: '07:00', zone: UTC, at_most: approve}]", 1, "'25:00' is no time", id="time"
        ),
        pytest.param(
            "quiet_hours: [{from: '07:00', to: '07:00', zone: UTC, at_most: approve}]", 1, "is the same as from", id="empty"
        ),
        pytest.param(
            "quiet_hours: [{from: '22:00', to: '07:00', zone: UTC, at_most: auto}]", 1, "auto holds nothing back", id="auto"
        ),
        pytest.param(
            "quiet_hours: [{days: [sunday], from: '22:00', to: '07:00', zone: UTC, at_most: approve}]", 1, "is no day", id="day"
        ),
        pytest.param("classes: [{name: a, mode: auto}]", 1, "the class matches every job", id="class-of-all"),
        pytest.param("classes: [{match: {job: x}}]", 1, "a class needs a name", id="class-name"),
        pytest.param(
            "classes:\n- {name: a, match: {job: x}}\n- {name: b, match: {job: x}}",
            3,
            "b matches what a matches before it",
            id="shadowed",
        ),
        pytest.param("actions: {hang: {kind: reboot, why: x}}", 1, "no action for the reason hang", id="action"),
        pytest.param("limits: [1, 2]", 1, "is no table", id="a-list-for-a-table"),
        pytest.param("classes: {a: b}", 1, "is no list", id="a-table-for-a-list"),
        pytest.param("limits: {nodes_at_once: [1]}", 1, "['1'] is no whole number", id="a-list-for-a-number"),
        pytest.param("mode: auto\nmode: observe", 2, "the key 'mode' is there twice", id="twice"),
        pytest.param("[]", None, "a policy must be a mapping", id="no-mapping"),
        pytest.param("limits:\n  never: node-1", 2, "limits.never: is no list of words", id="a-word-for-a-list"),
        pytest.param("limits: {where: x}", 1, "limits.where: there is no such clause", id="a-name-of-our-own"),
        pytest.param("lines: {a: b}", 1, "lines: there is no such clause; those here are", id="a-section-of-our-own"),
        pytest.param("budgets: {hang: 3}", 1, "budgets.hang: is no table", id="a-number-for-a-budget"),
        pytest.param("rollback: {skip_most: 0}", 1, "write a whole number of 1 or more", id="least"),
        pytest.param("bursts: {families: {a: [hnag]}}", 1, "unknown reason 'hnag'; did you mean hang?", id="family-near"),
        pytest.param(
            "quiet_hours:\n- {from: '22:00', to: '07:00', at_most: approve}",
            2,
            "quiet_hours.0.zone: the time zone is missing",
            id="no-zone",
        ),
        pytest.param(
            "classes: [{name: a, match: {labels: {a.b: [1]}}}]", 1, "match.labels: a label's value is no text", id="label"
        ),
        pytest.param(
            "classes:\n- name: a\n  match: {job: x}\n  mod: auto",
            4,
            "classes.0.mod: there is no such clause; did you mean mode?",
            id="class-typo",
        ),
    ],
)
def test_what_is_wrong_with_a_site_file_is_said_with_its_line(tmp_path: Path, text: str, line: int | None, said: str) -> None:
    path = site(tmp_path, text)
    with pytest.raises(RuleError) as caught:
        over_shipped(path)
    assert said in str(caught.value)
    assert caught.value.where == (f"{path}:{line}" if line else str(path))
    assert caught.value.remedy


def test_all_that_is_wrong_is_found_at_once(tmp_path: Path) -> None:
    found = objections(site(tmp_path, "mode: off\nlimits: {nodes_at_once: x}\nsignals: {needed: 1}\n"))
    assert [one.where for one in found] == [f"{tmp_path}/site.yaml:{line}" for line in (1, 2, 3)]


def test_a_mistake_in_the_default_budget_is_said_once_and_not_of_each_that_takes_it(tmp_path: Path) -> None:
    found = objections(site(tmp_path, "budgets: {default: {attempts: x}, hang: {backoff: 5m}, ecc_error: {attempts: y}}"))
    assert [one.what.partition(":")[0] for one in found] == ["budgets.default.attempts", "budgets.ecc_error.attempts"]


def test_what_a_whole_policy_lacks_is_named_with_how_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(SHIPPED.read_text().replace("  nodes_at_once: 2 ", "", 1))
    with pytest.raises(RuleError, match=r"limits.nodes_at_once: the whole number is missing; write a whole"):
        read(path)


def test_a_name_with_nothing_behind_it_is_an_empty_table_or_list(tmp_path: Path) -> None:
    policy = over_shipped(site(tmp_path, "modes:\nquiet_hours:\nclasses:\n"))
    assert (policy.modes, policy.quiet_hours, policy.classes) == ({}, (), ())


def test_a_whole_policy_of_its_own_is_read_without_the_shipped_one(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(SHIPPED.read_text().replace("mode: observe\n", "mode: approve\n", 1))
    assert read(path).mode == "approve"


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1m", 60), ("1.5h", 5400), ("2d", 172_800), ("0s", 0)])
def test_a_duration_is_read_in_seconds(tmp_path: Path, text: str, seconds: float) -> None:
    policy = over_shipped(site(tmp_path, f"budgets: {{hang: {{backoff: {text}}}}}"))
    assert policy.budget("hang").backoff_s == seconds


def test_a_hold_that_never_grows_is_allowed(tmp_path: Path) -> None:
    policy = over_shipped(site(tmp_path, "bursts: {hold: 10m, hold_most: 10m}"))
    assert policy.bursts.hold_most_s == policy.bursts.hold_s == 600


def test_the_line_of_what_a_clause_leaves_out_is_that_of_the_clause(tmp_path: Path) -> None:
    policy = over_shipped(site(tmp_path, "mode: auto\nlimits:\n  isolations_per_hour: 1\n"))
    assert policy.line("limits.isolations_per_hour.too.deep") == f"{tmp_path}/site.yaml:3"


def test_the_smallest_numbers_are_read_too(tmp_path: Path) -> None:
    limits = over_shipped(site(tmp_path, "limits: {isolations_of_a_node: 1, nodes_at_once: 0, restarts_per_day: 0}")).limits
    assert (limits.isolations_of_a_node, limits.nodes_at_once, limits.restarts_per_day) == (1, 0, 0)


def test_what_the_scheduler_confirms_is_judged_more_strictly_unless_the_site_says_otherwise(tmp_path: Path) -> None:
    assert (shipped_policy().signals.kernel_sources, shipped_policy().limits.isolated_at_least) == (("*",), 0)
    strict = over_shipped(strict_path())
    assert (strict.signals.kernel_sources, strict.limits.isolated_at_least) == (("node:*",), 1)
    own = over_shipped(strict_path(), site(tmp_path, "signals: {kernel_sources: ['*/kern.log']}\n"))
    assert (own.signals.kernel_sources, own.limits.isolated_at_least) == (("*/kern.log",), 1)


@pytest.mark.parametrize(
    ("text", "schedulers", "strict"),
    [
        ("", True, False),
        ("mode: approve\n", False, False),
        ("mode: approve\n", True, True),
        ("mode: auto\n", False, True),
        ("modes: {restart: auto}\n", False, True),
        ("classes:\n  - {name: a, match: {job: 'a-*'}, mode: auto}\n", False, True),
        ("classes:\n  - {name: a, match: {job: 'a-*'}, modes: {restart: auto}}\n", False, True),
    ],
)
def test_what_acts_by_itself_must_be_confirmed(tmp_path: Path, text: str, schedulers: bool, strict: bool) -> None:
    own = site(tmp_path, text or "limits: {never: ['login*']}\n")
    policy, asks = in_force(own, confirmed=True, schedulers=schedulers)
    assert (asks, policy.signals.kernel_sources == ("node:*",)) == (strict, strict)
    assert in_force(own, confirmed=False, schedulers=schedulers) == (over_shipped(own), False)
