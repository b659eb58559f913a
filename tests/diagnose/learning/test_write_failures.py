"""From a confirmed diagnosis to a failure rule that may act, with a model that is right, wrong, mad or not there."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from diagnose.agent.incidents import Incident, SqliteIncidents
from diagnose.errors import DiagnoseError
from diagnose.knowledge.rules import Example, Rule, RuleSet, load
from diagnose.learning.learned_rule import LearnedRule
from diagnose.learning.rule_store import RuleFile, RuleStore
from diagnose.learning.write_failures import Confirmation, compare, confirm, taught, teach, template, watch
from diagnose.model.model import Model
from diagnose.report import AgentFigures, Report
from diagnose.verification.rules import body_of
from tests.conftest import Run
from tests.diagnose.agent.test_explain import LAUNCHER
from tests.diagnose.model.test_model import Endpoint, endpoint, no_key, settings  # noqa: F401 - fixtures
from tests.support.logs import job_of, steps

ROOT_LINE = "FlashStore: shard-0117 came up short, 0 of 1048576 bytes by /fs0"
LOG = f"{steps(1, 40)}[rank9]: {ROOT_LINE}\n{LAUNCHER}\n"
HEALTHY = [
    "FlashStore: shard-0117 complete, 1048576 of 1048576 bytes by /fs0",
    "FlashStore: mount /fs0 was stale, mounted again",
]
PATTERN = r"FlashStore: \S+ came up short, \d+ of \d+ bytes by (?P<path>\S+)"


def report_of_it() -> Report:
    """The report on LOG, as a person confirmed it: the root line is what no rule knew."""
    report = job_of(LOG).report()
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.text.endswith(ROOT_LINE)
    return report


def value(pattern: str | None, **more: Any) -> str:
    """What a model answers."""
    rule = {
        "why": "The words say it.",
        "pattern": pattern,
        "layer": "storage",
        "severity": "fatal",
        "symptom": False,
        "title": "A shard came up short",
        "mitigation": "Mount it again.",
        "misses": [HEALTHY[0]],
    }
    return json.dumps({**rule, **more})


@pytest.fixture
def store(tmp_path: Path) -> RuleStore:
    return RuleStore(RuleFile(tmp_path / "learned.db"))


@pytest.fixture
def incidents(tmp_path: Path) -> SqliteIncidents:
    return SqliteIncidents(tmp_path / "incidents.db")


def learned(
    store: RuleStore,
    incidents: SqliteIncidents,
    at: Endpoint | None = None,
    reason: str | None = "storage_error",
    report: Report | None = None,
    healthy: list[str] = HEALTHY,
) -> Confirmation:
    """What confirming the report comes to."""

    async def run() -> Confirmation:
        if at is None:
            return await confirm(report or report_of_it(), store, incidents, 1.0, healthy=healthy, reason=reason)
        async with Model(settings(at)) as model:
            return await confirm(report or report_of_it(), store, incidents, 1.0, model=model, healthy=healthy, reason=reason)

    return asyncio.run(run())


# --- from the line itself ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "same", "other"),
    [
        (ROOT_LINE, "FlashStore: shard-9 came up short, 17 of 99 bytes by /mnt/a/b", "FlashStore: shard-9 complete"),
        ("vendor: error 802 on gpu-17", "vendor: error 802 on gpu-3", "vendor: error 803 on gpu-17"),
        ("odd (thing) [x] {y} a|b ^c$ 1.5 *?+\\", "odd (thing) [x] {y} a|b ^c$ 2.7 *?+\\", "odd thing x y ab c 1.5"),
        ("lost 10.0.0.7:29500 at 0xdeadbeef", "lost 10.1.2.3:4 at 0x1f", "found 10.0.0.7:29500 at 0xdeadbeef"),
        ("réseau perdu: 接続 12", "réseau perdu: 接続 7", "reseau perdu 12"),
    ],
)
def test_a_template_knows_the_message_with_other_values_and_no_other(line: str, same: str, other: str) -> None:
    pattern = template(line)
    assert re.search(pattern.encode(), line.encode())
    assert re.search(pattern.encode(), same.encode())
    assert not re.search(pattern.encode(), other.encode())


def test_without_a_model_the_root_line_makes_the_rule(store: RuleStore, incidents: SqliteIncidents) -> None:
    lesson = learned(store, incidents)
    assert lesson.rule is not None, lesson
    known = store.find(lesson.rule.id)
    assert known is not None
    assert (known.state, known.rule.reason, known.rule.layer) == ("shadow", "storage_error", "storage")
    assert known.provenance == {"by": "template", "job": "job", "confirmed": "person"}
    assert [one.reason for one in incidents.incidents()] == ["storage_error"]


# --- from a model's answer ---------------------------------------------------------------------------------------------------


def answered(reason: str = "storage_error", *, job: str = "job", agreed: int = 5) -> Report:
    """The report of a failure whose reason a model has said."""
    report = report_of_it()
    told = {"model": "m", "why": "nothing explains the failure", "kind": "line", "prompts": {}, "samples": 5, "agreed": agreed}
    told |= {"said": reason, "lines_shown": 3, "redacted": {}, "tokens_in": 1, "tokens_out": 1, "seconds": 1.0}
    diagnosis = report.diagnosis.model_copy(update={"reason": reason, "by": "agent"})
    asked = AgentFigures.model_validate(told)
    identity = report.job.model_copy(update={"id": job})
    return report.model_copy(update={"job": identity, "diagnosis": diagnosis, "agent": asked, "outcome": "failed"})


def test_an_answer_makes_a_rule_that_waits_for_a_second_failure(store: RuleStore, incidents: SqliteIncidents) -> None:
    assert taught(answered())
    assert not taught(answered(agreed=2)), "too few samples agree"
    made = asyncio.run(teach(answered(), store, incidents, 1.0, healthy=HEALTHY))
    assert made.rule is not None
    assert incidents.incidents() == [], "what nobody has confirmed is no past incident"

    def state() -> str:
        known = store.find(made.rule.id) if made.rule is not None else None
        return known.state if known is not None else ""

    again = ROOT_LINE.replace("1048576", "99")
    for _ in range(3):
        watch(store, ["all is well"], 2.0, well=True)
    watch(store, [again], 2.5, well=False)
    assert state() == "shadow", "that a failed job has the line is not yet an agreement"
    compare(store, answered(), [again], 3.0)
    assert state() == "shadow", "the job that it was made of is no second one"
    compare(store, answered(job="other"), ["another line"], 4.0)
    assert state() == "shadow"
    compare(store, answered(job="other"), [again], 5.0)
    assert state() == "active"


def test_a_rule_of_an_answer_is_refuted_by_another_reason(store: RuleStore, incidents: SqliteIncidents) -> None:
    asyncio.run(teach(answered(), store, incidents, 1.0, healthy=HEALTHY))
    compare(store, answered("hang", job="other"), [ROOT_LINE], 2.0)
    assert [known.state for known in store.rules()] == ["retired"]


def test_a_person_s_word_counts_for_a_rule_of_an_answer(store: RuleStore, incidents: SqliteIncidents) -> None:
    asyncio.run(teach(answered(), store, incidents, 1.0, healthy=HEALTHY))
    learned(store, incidents, report=answered())
    for _ in range(3):
        watch(store, ["all is well"], 2.0, well=True)
    assert [known.state for known in store.rules()] == ["active"]


def test_what_a_rule_knows_already_is_only_remembered(store: RuleStore, incidents: SqliteIncidents) -> None:
    report = job_of(steps(1, 40) + "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n").report()
    lesson = learned(store, incidents, reason=None, report=report)
    assert lesson.known is not None
    assert "driver.yaml" in lesson.known
    assert store.rules() == []
    assert len(incidents.incidents()) == 1


def test_where_other_rules_than_the_shipped_ones_are_used_they_are_what_is_known(
    store: RuleStore, incidents: SqliteIncidents
) -> None:
    report = job_of(steps(1, 40) + "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n").report()
    few = RuleSet(tuple(load(examples=True).rules[-20:]))
    lesson = asyncio.run(confirm(report, store, incidents, 1.0, healthy=HEALTHY, rules=few))
    assert lesson.known is None
    assert lesson.rule is not None
    assert lesson.rule.reason == report.diagnosis.reason


def test_healthy_lines_are_redacted_with_the_lines_before_them_in_sight(
    store: RuleStore,
    incidents: SqliteIncidents,
    endpoint: Endpoint,  # noqa: F811
) -> None:
    endpoint.text = lambda body, k: value(PATTERN)
    healthy = ["- name: HF_PASSWORD", "  value: hunter2correct", *HEALTHY]
    assert learned(store, incidents, endpoint, healthy=healthy).rule is not None
    sent = json.dumps(endpoint.asked)
    assert "HF_PASSWORD" in sent
    assert "mounted again" in sent
    assert "hunter2correct" not in sent


@pytest.mark.parametrize("reason", [None, "unknown", "healthy", "bad luck"])
def test_nothing_is_learned_from_a_reason_that_explains_nothing(
    reason: str | None, store: RuleStore, incidents: SqliteIncidents
) -> None:
    with pytest.raises(DiagnoseError, match="explains nothing"):
        learned(store, incidents, reason=reason)
    assert incidents.incidents() == []


# --- by a model -------------------------------------------------------------------------------------------------------------


def test_a_model_s_rule_keeps_its_provenance(store: RuleStore, incidents: SqliteIncidents, endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.text = lambda body, k: value(PATTERN)
    lesson = learned(store, incidents, endpoint)
    assert lesson.rule is not None, lesson
    known = store.find(lesson.rule.id)
    assert known is not None
    assert known.rule.pattern == PATTERN
    assert known.provenance["by"] == "model"
    assert known.provenance["votes"] == "3 of 3"
    assert re.fullmatch("[0-9a-f]{12}", known.provenance["version"])
    assert known.provenance["model"] == "tiny"


@pytest.mark.parametrize(
    ("pattern", "more", "refusal"),
    [
        (".{3,}", {}, "catch-all"),
        ("Error|Traceback|FlashStore", {"misses": ["something else"]}, "catch-all"),
        (r"FlashStore: \S+", {"misses": ["something else"]}, "catch-all"),
        (r"FlashStore: shard-\d+ ", {"misses": ["something else"]}, "alarms-on-healthy"),
        (r"\bmay not\b|came up short", {"misses": ["something else"]}, "catch-all"),
        (r"\bcame up\b", {"misses": ["something else"]}, "catch-all"),
        (r"FlashStore: \S+ came up short", {"misses": [ROOT_LINE]}, "matches-own-miss"),
        ("came up long", {}, "misses-own-example"),
        (r"(FlashStore(\w+)*)*: \S+ came up short!", {}, "expensive|misses-its-lines|misses-own-example"),
        (r"(?=F)FlashStore: \S+ came up", {}, "expensive"),
        (r"FlashStore: \S+ came up short(", {}, "does-not-compile"),
        (r"(FlashStore came.{50}){90,99}", {}, "expensive"),
        (r"FlashStore: \S+ came up (?P<cause>short)", {}, "unknown-name"),
    ],
)
def test_a_bad_rule_never_acts(
    pattern: str,
    more: dict[str, Any],
    refusal: str,
    store: RuleStore,
    incidents: SqliteIncidents,
    endpoint: Endpoint,  # noqa: F811
) -> None:
    endpoint.text = lambda body, k: value(pattern, **more)
    lesson = learned(store, incidents, endpoint)
    assert re.fullmatch(refusal, lesson.refused[0][1].name), lesson.refused
    states = {known.rule.pattern: (known.state, known.provenance["by"]) for known in store.rules()}
    assert states == {pattern: ("retired", "model"), template(ROOT_LINE): ("shadow", "template")}


def test_the_second_pattern_is_tried_where_the_first_is_refused(
    store: RuleStore,
    incidents: SqliteIncidents,
    endpoint: Endpoint,  # noqa: F811
) -> None:
    endpoint.text = lambda body, k: value("FlashStore" if k else PATTERN)
    lesson = learned(store, incidents, endpoint)
    assert lesson.rule is not None
    assert lesson.rule.pattern == PATTERN
    assert [rule.pattern for rule, _ in lesson.refused] == ["FlashStore"]


def test_a_line_that_tells_too_little_makes_no_rule(
    store: RuleStore,
    incidents: SqliteIncidents,
    endpoint: Endpoint,  # noqa: F811
) -> None:
    endpoint.text = lambda body, k: value(None)
    lesson = learned(store, incidents, endpoint)
    assert lesson.rule is None
    assert "the model says that the root line alone does not tell this failure from others" in lesson.notes


def test_an_endpoint_that_is_down_costs_nothing_but_a_note(
    store: RuleStore,
    incidents: SqliteIncidents,
    endpoint: Endpoint,  # noqa: F811
) -> None:
    endpoint.close()
    lesson = learned(store, incidents, endpoint)
    assert lesson.rule is not None
    assert any("the rule is made of the root line" in note for note in lesson.notes)


def test_the_reason_is_the_confirmed_one_and_secrets_stay(
    store: RuleStore,
    incidents: SqliteIncidents,
    endpoint: Endpoint,  # noqa: F811
) -> None:
    log = LOG.replace("by /fs0", "by /home/alice/fs0 password=hunter2hunter2")
    endpoint.text = lambda body, k: value(PATTERN)
    lesson = learned(store, incidents, endpoint, report=job_of(log).report())
    assert lesson.rule is not None
    sent = json.dumps(endpoint.asked)
    assert "hunter2" not in sent
    assert "alice" not in sent
    assert "hunter2" not in lesson.rule.matches[0].line
    assert "hunter2" not in incidents.incidents()[0].line


def test_a_rule_that_alarms_on_another_failure_is_refused(store: RuleStore, incidents: SqliteIncidents) -> None:
    other = "FlashStore: shard-3 came up short, 9 of 10 bytes by /fs0"
    incidents.remember(Incident("old#1", "host_out_of_memory", other, "Memory ran out."))
    lesson = learned(store, incidents)
    assert lesson.rule is None
    assert [refusal.name for _, refusal in lesson.refused] == ["alarms-on-another-failure"]


# --- shadow -----------------------------------------------------------------------------------------------------------------


def test_silence_on_jobs_that_went_well_makes_it_act(store: RuleStore, incidents: SqliteIncidents) -> None:
    lesson = learned(store, incidents)
    assert lesson.rule is not None
    assert watch(store, ["quite another line"], 2.0, well=True) == []
    assert watch(store, [ROOT_LINE], 3.0, well=False) == [], "a match on a failed job neither helps nor harms"
    assert watch(store, [], 4.0, well=True) == []
    (changed,) = watch(store, ["more"], 5.0, well=True)
    assert changed.state == "active"


def test_one_alarm_on_a_job_that_went_well_retires_it_also_when_it_acts(store: RuleStore, incidents: SqliteIncidents) -> None:
    lesson = learned(store, incidents)
    assert lesson.rule is not None
    for now in (2.0, 3.0, 4.0):
        watch(store, ["fine"], now, well=True)
    body = body_of("FlashStore: shard-5 came up short, 0 of 7 bytes by /fs1").decode()
    (changed,) = watch(store, [body], 5.0, well=True)
    assert changed.state == "retired"
    assert learned(store, incidents).rule is None, "a pattern that was retired is not proposed again"


# --- the command line -------------------------------------------------------------------------------------------------------


def test_a_person_names_the_line_that_began_it(diagnose: Run, tmp_path: Path) -> None:
    log = steps(1, 9) + "XtraFabric: lane 7 went away for good\nKeyError: 'x'\n"
    (tmp_path / "bad.log").write_text(log)
    where = {"DIAGNOSE_RULE_STORE": str(tmp_path / "b.db"), "DIAGNOSE_INCIDENTS": str(tmp_path / "i.db")}
    (tmp_path / "report.json").write_text(diagnose("replay", "bad.log", "--json", **where).stdout)
    words = ("rules", "learn", "--confirm", "report.json", "--reason", "network_error", "--json", "--line")
    for wrong in ("bad.log:99999", "other.log:3", "bad.log:x", "0"):
        refused = diagnose(*words, wrong, **where)
        assert refused.returncode == 2
        assert "--line" in refused.stderr
    done = diagnose(*words, f"bad.log:{log.count(chr(10)) - 1}", **where)
    rule = json.loads(done.stdout)["rule"]
    assert diagnose("rules", "promote", rule, **where).returncode == 0
    after = json.loads(diagnose("replay", "bad.log", "--json", "--learned", **where).stdout)["diagnosis"]
    assert (after["reason"], after["rule"]) == ("network_error", f"learned:{rule}")


def test_confirm_learn_promote_and_use(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.log").write_text(LOG)
    (tmp_path / "good.log").write_text(steps(1, 40) + "\n".join(HEALTHY) + "\n")
    where = {"DIAGNOSE_RULE_STORE": str(tmp_path / "b.db"), "DIAGNOSE_INCIDENTS": str(tmp_path / "i.db")}
    before = diagnose("replay", "bad.log", "--json", **where)
    assert before.returncode == 3
    (tmp_path / "report.json").write_text(before.stdout)
    refused = diagnose("rules", "learn", "--confirm", "report.json", **where)
    assert refused.returncode == 2
    assert "--reason" in refused.stderr
    words = ("rules", "learn", "--confirm", "report.json", "--reason", "storage_error", "--healthy", "good.log")
    done = diagnose(*words, "--json", **where)
    rule = json.loads(done.stdout)["rule"]
    assert rule, done.stdout + done.stderr
    assert diagnose("rules", "promote", rule, **where).returncode == 0
    after = diagnose("replay", "bad.log", "--json", "--learned", **where)
    assert after.returncode == 1
    assert json.loads(after.stdout)["diagnosis"]["rule"] == f"learned:{rule}"
    assert diagnose("replay", "good.log", "--learned", **where).returncode == 0
    exported = diagnose("rules", "export", "--failures", **where).stdout
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / "learned.yaml").write_text(exported)
    assert diagnose("rules", "check", "failures/learned.yaml").returncode == 0
    assert diagnose("rules", "retire", rule, **where).returncode == 0
    assert diagnose("replay", "bad.log", "--learned", **where).returncode == 3


def test_jobs_that_go_well_make_a_rule_act_by_the_command(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.log").write_text(LOG)
    where = {"DIAGNOSE_RULE_STORE": str(tmp_path / "b.db"), "DIAGNOSE_INCIDENTS": str(tmp_path / "i.db")}
    (tmp_path / "report.json").write_text(diagnose("replay", "bad.log", "--json", **where).stdout)
    diagnose("rules", "learn", "--confirm", "report.json", "--reason", "storage_error", **where)
    for number in range(3):
        (tmp_path / f"good{number}.log").write_text(steps(1, 40))
    done = diagnose("rules", "learn", "good0.log", "good1.log", "good2.log", "--json", **where)
    assert [change["state"] for change in json.loads(done.stdout)["failures"]] == ["active"]
    assert diagnose("replay", "bad.log", "--learned", **where).returncode == 1


# --- beside learned filters


def test_a_filter_that_would_drop_the_root_line_is_retired(store: RuleStore, incidents: SqliteIncidents) -> None:
    for name, pattern in (("drops", r"^FlashStore: shard-\d+ came up short, .*"), ("other", r"^FlashStore: shard-\d+ closed$")):
        store.add(LearnedRule(Rule(name, "filters", pattern, kind="debug"), "shadow"))
    store.add(LearnedRule(Rule("broken", "filters", "^FlashStore: (", kind="debug"), "active"))
    assert learned(store, incidents).rule is not None
    states = {known.rule.id: (known.state, known.why) for known in store.rules(family="filters")}
    assert states == {
        "drops": ("retired", f"it matches the root line of {report_of_it().job.id}"),
        "other": ("shadow", None),
        "broken": ("active", None),
    }


def test_a_failure_rule_may_not_know_what_a_learned_filter_drops(
    store: RuleStore,
    incidents: SqliteIncidents,
    endpoint: Endpoint,  # noqa: F811
) -> None:
    shown = (Example("FlashStore: shard-12 went to the fast tier"),)
    store.add(LearnedRule(Rule("tier", "filters", r"^FlashStore: shard-\d+ went to", kind="debug", matches=shown), "active"))
    endpoint.text = lambda body, k: value(r"FlashStore: shard-\d+ (?:came|went) ")
    lesson = learned(store, incidents, endpoint)
    assert [(refusal.name, refusal.line) for _, refusal in lesson.refused] == [("alarms-on-healthy", shown[0].line)]
