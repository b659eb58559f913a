"""The failure agent against an endpoint over a socket, whose model says what a test wants, right or wrong."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnose.agent.explain import Improved, improve, incident_id
from diagnose.agent.facts import facts
from diagnose.agent.gate import why_ask
from diagnose.agent.incidents import Incident, SqliteIncidents, Vectors
from diagnose.agent.retrieval import Material
from diagnose.agent.witnesses import RULES, Record
from diagnose.diagnosis.status import Told
from diagnose.job import Job
from diagnose.model.model import Model
from diagnose.reading.sources import find
from tests.conftest import Run
from tests.diagnose.model.test_model import Endpoint, Fault, answer, endpoint, no_key, settings  # noqa: F401 - fixtures
from tests.support.logs import job_of, shipped_matcher, steps

STALE = "[rank 9] FlashStore on gpu-04: shard-0117 came up short, 0 of 1048576 bytes by /fs0"
LAUNCHER = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
UNEXPLAINED = f"{steps(1, 40)}[rank 9] FlashStore on gpu-04: mount /fs0 is 3 epochs behind\n{STALE}\nbye\n{LAUNCHER}\n"
ECHO = f"""\
{steps(1, 40)}{STALE}
[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, \
OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.
"""
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
FALLEN = f"{steps(1, 40)}{XID}\n"
QUIET = f"{steps(1, 40)}ERROR the lease of the cache could not be renewed\n" + "".join(
    f"wrote part {'abcdefghijklmnopqrstuvwx'[n] * 3} of it\n" for n in range(20)
)


def asked(body: dict[str, Any]) -> str:
    """Which prompt a request is of."""
    return "failure-read" if "What else should be read?" in body["messages"][-1]["content"] else "failure-cause"


def lines_in(body: dict[str, Any]) -> dict[str, str]:
    """The lines that a request shows, by id: the last fence."""
    fence = body["messages"][-1]["content"].rsplit("<<<DATA ", 1)[1]
    return dict(re.findall(r"^(L\d+)\| (.*)$", fence, re.MULTILINE))


def cause(body: dict[str, Any], root: str | None, reason: str = "storage_error", **more: Any) -> str:
    """An answer whose root line is the one with ``root`` in it (or is that id); without one, that it cannot tell."""
    if root is None:
        return said("cannot_tell", needs="The log of rank 9.")
    shown = lines_in(body)
    line = root if re.fullmatch(r"L\d+", root) else next((k for k, text in shown.items() if root in text), "L1")
    value = {
        "root_line": line,
        "reason": reason,
        "confidence": 1.0,
        "evidence_lines": [],
        "suspects": {"nodes": [], "ranks": [], "gpus": []},
        "summary": "Rank 9 read nothing from a stale mount.",
        "mitigation": "Mount it again.",
    }
    return said("failed", [{**value, **more}])


def said(verdict: str, hypotheses: list[dict[str, Any]] | None = None, needs: str | None = None) -> str:
    return json.dumps({"analysis": "The lines say so.", "verdict": verdict, "hypotheses": hypotheses or [], "needs": needs})


NOTHING_MORE = '{"why": "It is all here.", "reads": []}'


def improved(job: Job, at: Endpoint, incidents: SqliteIncidents | None = None, **more: Any) -> Improved:
    """What becomes of a job's report."""
    wanted = {
        name: more.pop(name)
        for name in ("record", "replay", "timeout_s", "retries", "calls_per_job", "redact_hosts")
        if name in more
    }

    async def run() -> Improved:
        async with Model(settings(at, **wanted)) as model:
            return await improve(job.report(), job.evidence(), model, incidents, **more)

    return asyncio.run(run())


# --- when it is asked -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (UNEXPLAINED, "nothing explains the failure"),
        (ECHO, "only an echo of a fault elsewhere tells of it"),
        (FALLEN, "every failure gets a second opinion"),
        (
            steps(1, 40) + "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\nKeyError: 'x'\n",
            "only an exception or a general rule tells of it",
        ),
        (QUIET, "nothing says that the job ended well, and a line sounds like a failure"),
        (QUIET + "training finished\n", None),
        (steps(1, 40), None),
    ],
    ids=["unknown", "echo", "driver", "exception", "healthy without proof", "healthy", "quiet"],
)
def test_every_failure_and_every_doubtful_success_is_asked_about(log: str, why: str | None, endpoint: Endpoint) -> None:  # noqa: F811
    job = job_of(log)
    assert why_ask(job.report(), job.evidence().rules) == why
    endpoint.text = lambda body, k: cause(body, None, "unknown")
    found = improved(job, endpoint)
    assert found.asked is (why is not None)
    assert len(endpoint.asked) == (why is not None)


def test_a_job_that_runs_is_not_asked_about() -> None:
    job = job_of(UNEXPLAINED)
    assert why_ask(job.report(running=True), job.evidence().rules) is None


# --- what is believed -------------------------------------------------------------------------------------------------------


def test_a_grounded_answer_stands_where_rules_said_nothing(endpoint: Endpoint) -> None:  # noqa: F811
    suspects = {"nodes": ["gpu-04", "gpu-99"], "ranks": [9, 77], "gpus": ["GPU 5"]}
    endpoint.text = lambda body, k: cause(body, "came up short", evidence_lines=["L1", "L9999"], suspects=suspects)
    job = job_of(UNEXPLAINED)
    report = improved(job, endpoint).report
    diagnosis = report.diagnosis
    assert (diagnosis.by, diagnosis.reason, diagnosis.category) == ("agent", "storage_error", "infrastructure")
    assert diagnosis.root_cause is not None
    assert (diagnosis.root_cause.text, diagnosis.root_cause.line) == (STALE, 42)
    assert [(line.line, line.role) for line in diagnosis.evidence[:2]] == [(42, "root_cause"), (41, "context")]
    assert (diagnosis.suspects.nodes, diagnosis.suspects.ranks, diagnosis.suspects.gpus) == (["gpu-04"], [9], [])
    assert diagnosis.mitigation == "Mount it again."
    assert any("3 suspects of the model were dropped" in note for note in diagnosis.notes)
    assert 0.5 < diagnosis.confidence < 0.75, "nobody has seen this model yet"
    assert diagnosis.group != job.report().diagnosis.group
    assert report.agent is not None
    assert (report.agent.samples, report.agent.agreed, report.agent.model) == (5, 5, "tiny")
    assert re.fullmatch("[0-9a-f]{12}", report.agent.prompts["failure-cause"])
    assert type(report).model_validate_json(report.as_json()) == report


def _never(body: dict[str, Any], k: int) -> str:
    return cause(body, "L4000")


@pytest.mark.parametrize(
    ("says", "note"),
    [
        (_never, "a line that it was not shown"),
        (lambda body, k: cause(body, "came up short", ("hang", "key_error", "os_error", "preempted")[k % 4]), "says"),
        (lambda body, k: cause(body, None, "unknown"), "does not know"),
        (lambda body, k: "I think it is the disk.", "has no JSON object in it"),
        (lambda body, k: cause(body, "came up short", "bad luck"), "does not fit the schema"),
        (lambda body, k: cause(body, "came up short", "healthy"), "does not fit the schema"),
        (lambda body, k: "", "is empty"),
    ],
    ids=["line that is not there", "no agreement", "unknown", "no JSON", "foreign reason", "healthy", "empty"],
)  # fmt: skip
def test_an_answer_that_does_not_hold_changes_nothing_but_the_notes(
    says: Callable[[dict[str, Any], int], str],
    note: str,
    endpoint: Endpoint,  # noqa: F811
) -> None:
    endpoint.text = says
    job = job_of(UNEXPLAINED)
    before = job.report()
    report = improved(job, endpoint).report
    assert any(note in one for one in [*report.diagnosis.notes, *report.diagnosis.doubt]), report.diagnosis.notes
    told = {name: getattr(before.diagnosis, name) for name in ("notes", "doubt", "alternatives")}
    same = report.diagnosis.model_copy(update=told)
    assert same == before.diagnosis
    assert report.action == before.action


@pytest.mark.parametrize(
    "fault",
    [
        Fault(500, b"{}"),
        Fault(429, b'{"error": {"message": "slow down"}}'),
        Fault(200, b"<html>busy</html>"),
        answer(["{"]),
        Fault(hang=True),
        Fault(endless=True),
        Fault(200, json.dumps({"choices": [{"message": {"content": "x"}}]}).encode(), cut=20),
    ],
    ids=["500", "429", "html", "half", "slow", "endless", "cut"],
)
def test_whatever_the_endpoint_does_the_rules_answer_stands(fault: Fault, endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.always = fault
    job = job_of(UNEXPLAINED)
    found = improved(job, endpoint, timeout_s=0.5, retries=1)
    before = job.report()
    assert found.report.diagnosis.model_copy(update={"notes": []}) == before.diagnosis
    assert found.report.action == before.action
    assert any("gave no usable answer" in note for note in found.report.diagnosis.notes)
    assert sum(note.startswith("The model: ") for note in found.report.diagnosis.notes) >= 1


def test_an_endpoint_that_is_down_leaves_the_rules_answer(endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.close()
    job = job_of(UNEXPLAINED)
    report = improved(job, endpoint, retries=0).report
    assert report.diagnosis.reason == "unknown"
    assert any("gave no usable answer" in note for note in report.diagnosis.notes)


# --- two witnesses ----------------------------------------------------------------------------------------------------------


def test_an_echo_is_overruled_by_the_line_that_nearly_all_samples_name(endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.text = lambda body, k: cause(body, "came up short", "storage_error" if k else "hang")
    job = job_of(ECHO)
    before = job.report().diagnosis
    assert before.reason == "nccl_timeout"
    trusted = {"tiny": Record({"echo": [40.0, 1.0]})}
    report = improved(job, endpoint, records=trusted).report
    assert (report.diagnosis.by, report.diagnosis.reason) == ("agent", "storage_error")
    watchdog = next(line for line in report.diagnosis.evidence if "Watchdog caught" in line.text)
    assert watchdog.role == "consequence"
    assert any("The rules say nccl_timeout" in sentence for sentence in report.diagnosis.doubt)
    rules = next(one for one in report.diagnosis.alternatives if one.reason == "nccl_timeout")
    assert rules.line is not None
    assert "Watchdog caught" in rules.line.text


def test_a_model_that_has_often_been_wrong_overrules_nothing(endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.text = lambda body, k: cause(body, "came up short")
    job = job_of(ECHO)
    report = improved(job, endpoint, records={"tiny": Record({"echo": [1.0, 40.0]})}).report
    assert (report.diagnosis.by, report.diagnosis.reason) == ("rule", "nccl_timeout")
    assert report.diagnosis.confidence <= job.report().diagnosis.confidence
    assert any("A model that was asked says storage_error" in sentence for sentence in report.diagnosis.doubt)


def test_what_rules_are_sure_of_tells_whether_a_model_is_right(endpoint: Endpoint) -> None:  # noqa: F811
    job = job_of(FALLEN)
    assert job.report().diagnosis.confidence >= 0.95
    records: dict[str, Record] = {}
    endpoint.text = lambda body, k: cause(body, "fallen off the bus", "hang")
    found = improved(job, endpoint, records=records)
    assert found.report.diagnosis.reason == "gpu_fell_off_bus"
    untested = Record()
    once = records["tiny"].trust("echo")
    assert once < untested.trust("echo")
    endpoint.text = lambda body, k: cause(body, "fallen off the bus", "gpu_fell_off_bus")
    for n in range(2):  # another log, else the answer would come from the cache
        improved(job_of(f"part {word(n)}\n{FALLEN}"), endpoint, records=records)
    assert records["tiny"].trust("echo") > once


def test_what_models_always_agreed_with_is_asked_no_more(endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.text = lambda body, k: cause(body, "fallen off the bus", "gpu_fell_off_bus")
    records: dict[str, Record] = {}
    asked = [improved(job_of(FALLEN), endpoint, records=records).asked for _ in range(5)]
    assert asked == [True, True, True, False, False]
    endpoint.text = lambda body, k: cause(body, "came up short")
    assert improved(job_of(UNEXPLAINED), endpoint, records=records).asked, "what no rule is sure of is asked about for ever"
    (rule,) = records[RULES].seen
    records[RULES].note(rule, right=False)
    assert improved(job_of(FALLEN), endpoint, records=records).asked, "an objection opens the question again"


@pytest.mark.parametrize("log", [UNEXPLAINED, ECHO], ids=["unexplained", "echo"])
def test_a_sample_that_was_cut_or_never_came_counts_in_the_vote(log: str, endpoint: Endpoint, tmp_path: Path) -> None:  # noqa: F811
    job = job_of(log)
    endpoint.text = lambda body, k: cause(body, "came up short") if k == 3 else '{"analysis": "L4'
    cut = improved(job, endpoint)
    endpoint.ignores = {"n"}
    endpoint.text = lambda body, k: cause(body, "came up short")
    unpaid = improved(job, endpoint, calls_per_job=1, record=tmp_path)
    endpoint.close()
    for found in (cut, unpaid, improved(job, endpoint, replay=tmp_path)):
        assert found.opinion is not None
        assert (found.opinion.votes, found.opinion.of, found.replaced) == (1, 5, False)
        assert found.opinion.chances == {"storage_error": 0.2}


def test_agreement_raises_confidence_and_takes_the_better_line_and_words(endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.text = lambda body, k: cause(
        body, "came up short", "nccl_timeout", suspects={"nodes": [], "ranks": [9], "gpus": []}
    )
    job = job_of(ECHO)
    before = job.report().diagnosis
    report = improved(job, endpoint).report
    assert report.diagnosis.by == "rule"
    assert report.diagnosis.confidence > before.confidence
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.text == STALE
    assert report.diagnosis.summary == "Rank 9 read nothing from a stale mount."
    assert report.diagnosis.mitigation == before.mitigation, "a rule's own help stands"
    assert any("agrees (5 of 5" in note for note in report.diagnosis.notes)
    assert any("The root line is the model's" in note for note in report.diagnosis.notes)


RAISED = (
    f"{steps(1, 40)}settings come from part seven\n"
    "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nKeyError: 'lanes'\n"
)


@pytest.mark.parametrize("proved", [False, True])
def test_a_line_that_tells_of_a_failure_is_not_given_up_for_one_that_does_not(proved: bool, endpoint: Endpoint) -> None:  # noqa: F811
    """A model that repeats the rules' reason and names any line. Only one that has proved itself objects with such a line."""
    job = job_of(RAISED)
    before = job.report().diagnosis
    records = {"tiny": Record({"generic": [40.0, 1.0]})} if proved else {}
    endpoint.text = lambda body, k: cause(body, "part seven", "key_error")
    agreed = improved(job, endpoint, records=records).report.diagnosis
    assert (agreed.reason, agreed.root_cause) == ("key_error", before.root_cause)
    endpoint.text = lambda body, k: cause(body, "part seven", "storage_error")
    objected = improved(job_of(f"again\n{RAISED}"), endpoint, records=records).report.diagnosis
    assert objected.reason == ("storage_error" if proved else "key_error")


def test_agreement_does_not_make_surer_what_isolates_a_node(endpoint: Endpoint) -> None:  # noqa: F811
    job = job_of(
        f"{steps(1, 40)}Nov 22 10:00:00 gpu-07 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
    )
    before = job.report()
    assert before.action.nodes == ["gpu-07"]
    endpoint.text = lambda body, k: cause(body, "fallen off the bus", "gpu_fell_off_bus")
    report = improved(job, endpoint).report
    assert report.diagnosis.confidence == before.diagnosis.confidence
    assert report.action == before.action


def test_a_doubtful_success_may_be_a_failure_and_a_failure_may_be_none(endpoint: Endpoint) -> None:  # noqa: F811
    job = job_of(QUIET)
    assert job.report().outcome == "healthy"
    trusted = {"tiny": Record({"quiet": [60.0, 1.0], "line": [60.0, 1.0]})}
    endpoint.text = lambda body, k: cause(body, "could not be renewed", "connection_error")
    failed = improved(job, endpoint, records=trusted).report
    assert (failed.outcome, failed.diagnosis.by, failed.diagnosis.reason) == ("failed", "agent", "connection_error")
    assert failed.action.kind != "none"
    endpoint.text = lambda body, k: said("finished_well")
    well = improved(job_of(QUIET + "part two\n"), endpoint, records=trusted).report
    assert (well.outcome, well.diagnosis.reason) == ("healthy", "healthy")
    job = job_of(QUIET)
    job.told = Told()
    told = improved(job, endpoint, records=trusted).report
    assert told.outcome == "failed", "whoever ran it knows that it failed"


def test_what_a_model_would_need_is_told(endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.text = lambda body, k: cause(body, None)
    report = improved(job_of(UNEXPLAINED), endpoint).report
    assert any("It would need: The log of rank 9." in note for note in report.diagnosis.notes)
    assert report.agent is not None
    assert (report.agent.said, report.agent.analysis, report.agent.needs) == (
        "unknown",
        "The lines say so.",
        "The log of rank 9.",
    )


def test_samples_that_name_the_same_message_of_other_ranks_agree_and_the_first_counts(endpoint: Endpoint) -> None:  # noqa: F811
    ranks = "".join(f"[rank{rank}]: FlashStore gave nothing back for shard {rank}\n" for rank in range(4))
    endpoint.text = lambda body, k: cause(body, f"shard {(k + 1) % 4}")
    report = improved(job_of(f"{steps(1, 30)}{ranks}{LAUNCHER}\n"), endpoint).report
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.line == 31
    assert report.agent is not None
    assert report.agent.agreed == 5


# --- a larger model ---------------------------------------------------------------------------------------------------------


def with_larger_one(job: Job, small: Endpoint, large: Endpoint, **more: Any) -> Improved:
    """What becomes of a job's report if a larger model stands behind the first one."""

    async def run() -> Improved:
        async with Model(replace(settings(small), model="small", larger=settings(large, model="large"))) as model:
            found = await improve(job.report(), job.evidence(), model, **more)
            assert model.usage.calls == len(small.asked) + len(large.asked), "what both cost is counted"
            return found

    return asyncio.run(run())


@pytest.fixture
def larger() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("small", "why"),
    [
        (lambda body, k: cause(body, None), "it cannot tell"),
        (lambda body, k: cause(body, "came up short", "storage_error" if k < 2 else "hang"), "its samples differ"),
        (lambda body, k: cause(body, "came up short", "hang"), "it objects"),
        (lambda body, k: "no idea", "it gives no answer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_larger_model_is_asked_where_the_first_one_leaves_doubt(
    small: Callable[[dict[str, Any], int], Any],
    why: str,
    endpoint: Endpoint,  # noqa: F811
    larger: Endpoint,
) -> None:
    endpoint.text = small
    larger.text = lambda body, k: cause(body, "came up short")
    records = {"small": Record({"specific": [50.0, 0.0]})}
    report = with_larger_one(job_of(UNEXPLAINED), endpoint, larger, records=records).report
    assert report.diagnosis.reason == "storage_error"
    assert report.agent is not None
    assert report.agent.model == "large"
    assert [body["model"] for body in larger.asked] == ["large"] * len(larger.asked) != []


def test_a_larger_model_is_not_asked_where_the_first_one_agrees(endpoint: Endpoint, larger: Endpoint) -> None:  # noqa: F811
    endpoint.text = lambda body, k: cause(body, "fallen off the bus", "gpu_fell_off_bus")
    report = with_larger_one(job_of(FALLEN), endpoint, larger).report
    assert report.agent is not None
    assert (report.agent.model, larger.asked) == ("small", [])


def test_a_larger_model_that_is_down_leaves_the_first_one_s_answer(endpoint: Endpoint, larger: Endpoint) -> None:  # noqa: F811
    larger.always = Fault(status=500)
    endpoint.text = lambda body, k: cause(body, "came up short")
    report = with_larger_one(job_of(UNEXPLAINED), endpoint, larger).report
    assert report.diagnosis.reason == "storage_error"
    assert report.agent is not None
    assert report.agent.model == "small"
    assert any("answers 500" in note for note in report.diagnosis.notes)


# --- the action -------------------------------------------------------------------------------------------------------------


def test_no_node_is_isolated_by_a_model_s_word(endpoint: Endpoint) -> None:  # noqa: F811
    suspects = {"nodes": ["gpu-04"], "ranks": [9], "gpus": []}
    endpoint.text = lambda body, k: cause(body, "came up short", "ecc_error", suspects=suspects)
    report = improved(job_of(UNEXPLAINED), endpoint).report
    assert report.diagnosis.reason == "ecc_error"
    assert report.diagnosis.suspects.nodes == ["gpu-04"]
    assert report.action.kind == "isolate_and_restart"
    assert report.action.nodes == []
    assert "Nothing is isolated on its word" in report.action.why


# --- reading more -----------------------------------------------------------------------------------------------------------


def word(n: int) -> str:
    """A word for a number, so that no two lines have one shape."""
    return "".join("abcdefghij"[int(digit)] for digit in str(n + 100))


LONG = (
    "".join(f"unit {word(n)} of section {word(n * 7 % 113)} was laid down\n" for n in range(700))
    + "[rank 9] quietly the wheel came off\n"
    + "".join(f"item {word(n)} in aisle {word(n * 3 % 101)} is expected here\n" for n in range(700))
    + LAUNCHER
    + "\n"
)


def long_job(text: str = LONG) -> Job:
    """All of its lines are kept, so that there is more than a model is shown at once."""
    return job_of(text, fold_after=0)


@pytest.mark.parametrize(
    "read",
    [
        {"kind": "search", "words": "wheel quietly", "line": None, "rank": None, "file": None},
        {"kind": "rank", "words": None, "line": None, "rank": 9, "file": None},
    ],
    ids=["search", "rank"],
)
def test_a_model_may_read_more_and_cite_it(read: dict[str, Any], endpoint: Endpoint) -> None:  # noqa: F811
    def says(body: dict[str, Any], k: int) -> str:
        if asked(body) == "failure-cause":
            return cause(body, "wheel came off", "node_failure")
        here = any("wheel came off" in text for text in lines_in(body).values())
        return json.dumps({"why": "More, please.", "reads": [] if here else [read]})

    endpoint.text = says
    report = improved(long_job(), endpoint).report
    assert [asked(body) for body in endpoint.asked] == ["failure-read", "failure-read", "failure-cause"]
    assert not any("wheel came off" in text for text in lines_in(endpoint.asked[0]).values())
    assert report.diagnosis.reason == "node_failure"
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.text == "[rank 9] quietly the wheel came off"
    assert report.agent is not None
    assert set(report.agent.prompts) == {"failure-read", "failure-cause"}


def test_reading_is_bounded_and_what_makes_no_sense_reads_nothing(endpoint: Endpoint) -> None:  # noqa: F811
    greedy = [
        {"kind": "search", "words": "unit item section aisle", "line": None, "rank": None, "file": None},
        {"kind": "around", "words": None, "line": "L1300", "rank": None, "file": None},
        {"kind": "around", "words": None, "line": "L999999", "rank": None, "file": None},
        {"kind": "search", "words": '" OR rowid:1 NEAR( ; drop table lines --', "line": None, "rank": None, "file": None},
    ]
    endpoint.text = lambda body, k: (
        json.dumps({"why": "All of it.", "reads": greedy}) if asked(body) == "failure-read" else cause(body, None, "unknown")
    )
    improved(long_job(), endpoint)
    shown = [lines_in(body) for body in endpoint.asked]
    assert [asked(body) for body in endpoint.asked] == ["failure-read", "failure-read", "failure-cause"]
    assert 0 < len(shown[1]) - len(shown[0]) <= 4 * 30
    assert sum(len(text) for text in shown[2].values()) < 3.0 * (5000 + 2500)
    assert all(shown[0].items() <= later.items() for later in shown[1:]), "a line keeps its id over the rounds"


def test_a_model_that_cannot_read_on_is_asked_for_the_cause_all_the_same(endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.text = lambda body, k: "no" if asked(body) == "failure-read" else cause(body, "L1401", "hang")
    report = improved(long_job(), endpoint).report
    assert [asked(body) for body in endpoint.asked][-1] == "failure-cause"
    assert report.diagnosis.by == "agent"


# --- what leaves ------------------------------------------------------------------------------------------------------------


def test_secrets_do_not_leave_and_are_counted(endpoint: Endpoint) -> None:  # noqa: F811
    key = ["-----BEGIN RSA PRIVATE KEY-----", *(["MIIEpAIBAAKCAQEAr1" + "Zq7Kp0" * 7] * 3), "-----END RSA PRIVATE KEY-----"]
    log = (
        f"{steps(1, 30)}FlashStore: opened with HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345 of old\n"
        + "\n".join(key)
        + f"\nFlashStore: for /home/alice/run, tell alice@example.com\n{STALE}\n{LAUNCHER}\n"
    )
    endpoint.text = lambda body, k: cause(body, "came up short")
    report = improved(job_of(log), endpoint).report
    sent = json.dumps([body for _, _, body in endpoint.seen])
    for secret in ("hf_AbCd", "MIIEpAIB", "alice", "example.com"):
        assert secret not in sent
    assert "came up short" in sent
    assert report.agent is not None
    assert report.agent.redacted == {"token": 1, "private_key": 3, "user": 1, "email": 1}
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.text == STALE, "the report is not redacted: it stays here"


def test_names_of_machines_leave_only_if_they_may(endpoint: Endpoint) -> None:  # noqa: F811
    suspects = {"nodes": ["<host1>", "gpu-04"], "ranks": [], "gpus": []}
    endpoint.text = lambda body, k: cause(body, "came up short", suspects=suspects)
    log = UNEXPLAINED.replace("mount /fs0", "mount 10.1.2.3:/fs0")
    report = improved(job_of(log), endpoint, redact_hosts=True).report
    sent = json.dumps([body["messages"][-1] for body in endpoint.asked])
    assert "gpu-04" not in sent
    assert "10.1.2.3" not in sent
    assert "<host1>" in sent
    assert report.diagnosis.reason == "storage_error"
    assert report.diagnosis.suspects.nodes == [], "a placeholder names nobody"
    assert report.agent is not None
    assert report.agent.redacted.get("host", 0) > 0
    improved(job_of(log), endpoint)
    assert "gpu-04" in json.dumps(endpoint.asked[-1]["messages"][-1])


def test_what_is_embedded_is_redacted_with_the_lines_before_it_in_sight(endpoint: Endpoint, tmp_path: Path) -> None:  # noqa: F811
    incidents = SqliteIncidents(tmp_path / "incidents.db")
    incidents.remember(incident("far#1", "quite other words"))
    endpoint.text = lambda body, k: cause(body, None, "unknown")
    log = f"{steps(1, 30)}- name: HF_PASSWORD\n  value: CorrectHorse\n{STALE}\n{LAUNCHER}\n"
    improved(job_of(log), endpoint, incidents)
    (embedded,) = (body["input"] for path, _, body in endpoint.seen if path == "/v1/embeddings")
    assert any("HF_PASSWORD" in text for text in embedded)
    assert not any("CorrectHorse" in text for text in embedded)


def test_two_files_are_told_apart_and_the_names_in_their_paths_stay_here(endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.text = lambda body, k: cause(body, "came up short")
    names = ("/home/alice/logs/rank0.log", "/home/alice/logs/rank9.log")
    report = improved(job_of(f"{steps(1, 9)}{LAUNCHER}\n", f"{STALE}\n", names=names), endpoint).report
    assert any(text.startswith("rank9.log:1: [rank 9] ") for text in lines_in(endpoint.asked[-1]).values())
    assert "alice" not in json.dumps(endpoint.asked)
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.source == names[1]


# --- past incidents ---------------------------------------------------------------------------------------------------------


def incident(name: str, line: str, reason: str = "storage_error") -> Incident:
    return Incident(name, reason, line, "A mount was stale.", "Mount it again.")


def test_a_past_incident_is_shown_and_its_like_too(tmp_path: Path, endpoint: Endpoint) -> None:  # noqa: F811
    incidents = SqliteIncidents(tmp_path / "incidents.db")
    incidents.remember(incident("old#1", "the wheel of the cart quietly came off"))
    incidents.remember(incident("other#1", "a thing that has nothing to do with it"))
    endpoint.text = lambda body, k: NOTHING_MORE if asked(body) == "failure-read" else cause(body, None, "unknown")
    endpoint.embeds = False
    improved(long_job(LONG.replace("[rank 9] quietly", "ERROR: rank 9 quietly")), endpoint, incidents)
    said = endpoint.asked[0]["messages"][-1]["content"]
    assert "storage_error: the wheel of the cart quietly came off — A mount was stale. (then: Mount it again.)" in said
    assert "nothing to do with it" not in said


def test_meaning_is_asked_of_the_endpoint_where_it_has_embeddings(tmp_path: Path, endpoint: Endpoint) -> None:  # noqa: F811
    incidents = SqliteIncidents(tmp_path / "incidents.db")
    incidents.remember(incident("far#1", "quite other words"), Vectors("tiny", [[4.0, 1.0, 0.5]]))
    endpoint.text = lambda body, k: cause(body, None, "unknown")
    improved(job_of(UNEXPLAINED), endpoint, incidents)
    assert any(path == "/v1/embeddings" for path, _, _ in endpoint.seen)
    assert "quite other words" in endpoint.asked[0]["messages"][-1]["content"]


def test_the_same_incident_is_no_witness_of_itself(tmp_path: Path, endpoint: Endpoint) -> None:  # noqa: F811
    job = job_of(UNEXPLAINED)
    incidents = SqliteIncidents(tmp_path / "incidents.db")
    incidents.remember(incident(incident_id(job.report()), "FlashStore: shard-0117 came up short, 0 of 1048576 bytes by /fs0"))
    endpoint.text = lambda body, k: cause(body, None, "unknown")
    improved(job, endpoint, incidents)
    assert "Earlier failures" not in endpoint.asked[0]["messages"][-1]["content"]


# --- record, answer from outside, replay ------------------------------------------------------------------------------------


def test_somebody_outside_can_answer_round_by_round(tmp_path: Path, endpoint: Endpoint) -> None:  # noqa: F811
    folder = tmp_path / "asked"
    folder.mkdir()

    def again() -> Improved:
        return improved(long_job(), endpoint, record=folder, replay=folder)

    def open_questions() -> list[Path]:
        return [file for file in folder.glob("*.json") if not json.loads(file.read_text())["answers"]]

    def fill(value: dict[str, Any]) -> None:
        (file,) = open_questions()
        content = json.loads(file.read_text())
        assert {"messages", "schema", "n"} <= set(content)
        file.write_text(json.dumps({**content, "answers": [value]}))

    first = again()
    assert first.opinion is None
    assert any("no recorded answer to failure-read" in note for note in first.report.diagnosis.notes)
    fill({"why": "A wheel?", "reads": [{"kind": "search", "words": "wheel", "line": None, "rank": None, "file": None}]})
    again()
    fill({"why": "Enough.", "reads": []})
    again()
    (file,) = open_questions()
    body = json.loads(file.read_text())
    fill(json.loads(cause(body, "wheel came off", "node_failure")))
    last = again()
    assert last.report.diagnosis.reason == "node_failure"
    assert not open_questions()
    assert not endpoint.asked, "nothing was sent"


# --- the command line -------------------------------------------------------------------------------------------------------


def test_replay_prints_the_rules_report_and_then_the_model_s(diagnose: Run, tmp_path: Path, endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.text = lambda body, k: cause(body, "came up short")
    (tmp_path / "job.log").write_text(UNEXPLAINED)
    done = diagnose("replay", "job.log", "--llm", endpoint.url)
    assert done.returncode == 1, done.stderr
    first, second = done.stdout.split("The model was asked:")
    assert "unknown" in first
    assert "storage_error" in second
    assert "redacted before: nothing" in second
    assert "4 of 4" not in second
    assert "(5 of 5 samples)" in second


def test_replay_json_is_one_report_a_job(diagnose: Run, tmp_path: Path, endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.text = lambda body, k: cause(body, "came up short")
    (tmp_path / "a.log").write_text(UNEXPLAINED)
    (tmp_path / "b.log").write_text(steps(1, 30))
    done = diagnose("replay", "a.log", "b.log", "--json", "--llm", endpoint.url)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["diagnosis"]["by"] for report in reports] == ["agent", "none"]
    assert reports[0]["agent"]["redacted"] == {}
    assert reports[1]["agent"] is None


def test_replay_with_an_endpoint_that_is_down_exits_as_without(diagnose: Run, tmp_path: Path, endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.close()
    (tmp_path / "job.log").write_text(UNEXPLAINED)
    plain, asked_too = diagnose("replay", "job.log"), diagnose("replay", "job.log", "--llm", endpoint.url)
    assert plain.returncode == asked_too.returncode == 3
    assert asked_too.stdout.startswith(plain.stdout.rstrip("\n"))
    assert "gave no usable answer" in asked_too.stdout


def test_commands_keep_how_often_a_model_was_right(diagnose: Run, tmp_path: Path, endpoint: Endpoint) -> None:  # noqa: F811
    def record() -> Any:
        return json.loads(diagnose("llm", "record", "--json").stdout)

    assert record() == {}
    endpoint.text = lambda body, k: cause(body, "fallen off the bus", "gpu_fell_off_bus")
    (tmp_path / "a.log").write_text(FALLEN)
    (tmp_path / "b.log").write_text(FALLEN.replace("3b:00", "5e:00"))
    for log, times in (("a.log", 1), ("a.log", 1), ("b.log", 2)):  # a log that is read again is no new case
        done = diagnose("replay", log, "--json", "--llm", endpoint.url, "--model", "tiny")
        right, wrong = record()["tiny"]["kinds"]["specific"]
        assert (round(right), wrong) == (times, 0), done.stderr
    (tmp_path / "report.json").write_text(done.stdout)
    for _ in range(2):
        diagnose(
            "rules", "learn", "--confirm", "report.json", "--reason", "cuda_error", "--store", "s.db", "--incidents", "i.db"
        )
        right, wrong = record()["tiny"]["kinds"]["specific"]
        assert (round(right), wrong) == (2, 1), "a person knows better, and is counted once"
    assert "a rule for this message" in diagnose("llm", "record").stdout


def test_half_of_the_options_is_an_error_with_a_remedy(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(UNEXPLAINED)
    done = diagnose("replay", "job.log", "--model", "tiny")
    assert done.returncode == 2
    assert "--llm URL" in done.stderr


def corpus(folder: Path) -> None:
    folder.mkdir()
    (folder / "one.log").write_text(UNEXPLAINED)
    (folder / "two.log").write_text(ECHO)
    (folder / "three.log").write_text(steps(1, 40))
    header = "file\tcategory\treason\troot_cause_line\twhere\taction\tnote\n"
    rows = [
        "one.log\tinfrastructure\tstorage_error\t42\t-\tretry_later\t-",
        "two.log\tinfrastructure\tnccl_timeout\t42\t-\trestart\t-",
        "three.log\tnone\thealthy\t-\t-\tnone\t-",
    ]
    (folder / "labels.tsv").write_text(header + "\n".join(rows) + "\n")


def test_eval_counts_what_asking_came_to(diagnose: Run, tmp_path: Path, endpoint: Endpoint) -> None:  # noqa: F811
    corpus(tmp_path / "corpus")
    endpoint.text = lambda body, k: NOTHING_MORE if asked(body) == "failure-read" else cause(body, "came up short")
    done = diagnose("eval", "corpus", "--json", "--llm", endpoint.url, "--record", "pairs")
    result = json.loads(done.stdout)
    wanted = {"asked": 2, "answered": 2, "followed": 1, "improved": 1, "worse": 0, "reason": 1, "with_line": 2, "line": 1}
    assert result["asked"] == wanted
    assert len(list((tmp_path / "pairs").glob("*.json"))) == 2, "the cause: small logs are shown whole"
    endpoint.close()
    again = diagnose("eval", "corpus", "--json", "--replay", "pairs")
    assert json.loads(again.stdout)["asked"] == wanted
    shown = diagnose("eval", "corpus", "--replay", "pairs").stdout
    assert re.search(r"2 of 3 +2 +1 +1 +0 +50.0% +50.0%", shown), shown


def test_a_model_may_read_what_was_dropped(endpoint: Endpoint, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "train.log").write_text(f"{steps(1, 300)}{STALE}\n{LAUNCHER}\n")
    job = Job("train", find([str(tmp_path / "train.log")]).sources, shipped_matcher())
    for number, source in enumerate(job.sources):
        for chunk in source.chunks():
            job.feed(number, chunk)
        job.close(number)

    def says(body: dict[str, Any], k: int) -> str:
        if asked(body) == "failure-cause":
            return cause(body, "came up short")
        stale = next(number for number, text in lines_in(body).items() if "came up short" in text)
        more = not any("(dropped)" in text for text in lines_in(body).values())
        return json.dumps({"why": "What came before?", "reads": [{**DROPPED, "line": stale}] if more else []})

    endpoint.text = says
    report = improved(job, endpoint).report
    assert [asked(body) for body in endpoint.asked] == ["failure-read", "failure-read", "failure-cause"]
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.text == STALE
    last = lines_in(endpoint.asked[-1])
    assert any(text.startswith("line 300 (dropped): ") for text in last.values()), "the last step before it"
    places = [int(found[1]) for text in last.values() if (found := re.match(r"line (\d+)", text))]
    assert places == sorted(places), "in the order of the file"
    assert len(places) > 10


def job_in(path: Path, text: str) -> Job:
    """A job that was read from a file."""
    path.write_text(text)
    job = Job(path.stem, find([str(path)]).sources, shipped_matcher())
    for number, source in enumerate(job.sources):
        for chunk in source.chunks():
            job.feed(number, chunk)
        job.close(number)
    return job


def test_a_small_log_is_shown_whole_and_nothing_is_asked_of_it(endpoint: Endpoint, tmp_path: Path) -> None:  # noqa: F811
    endpoint.text = lambda body, k: cause(body, "came up short")
    improved(job_in(tmp_path / "train.log", f"{steps(1, 12)}\n\n{STALE}\n{LAUNCHER}\n"), endpoint)
    (body,) = endpoint.asked
    assert asked(body) == "failure-cause"
    shown = list(lines_in(body).values())
    assert sum("(dropped)" in text for text in shown) == 12, "the steps, and no blank line"


def test_what_came_of_a_search_is_told_in_the_next_round(endpoint: Endpoint) -> None:  # noqa: F811
    read = {"words": None, "line": None, "rank": None, "file": None}

    def says(body: dict[str, Any], k: int) -> str:
        if asked(body) == "failure-cause":
            return cause(body, "L1401", "hang")
        reads = [{**read, "kind": "search", "words": "quux"}, {**read, "kind": "rank", "rank": 77}]
        return json.dumps({"why": "Is it there?", "reads": reads})

    endpoint.text = says
    improved(long_job(), endpoint)
    assert [asked(body) for body in endpoint.asked] == ["failure-read", "failure-cause"]
    first, last = (body["messages"][-1]["content"] for body in endpoint.asked)
    assert "read already" not in first
    assert "read already: search for 'quux': there is nothing" in last
    assert "read already: rank 77: there is nothing" in last


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Epoch 0:  16%|#   | 7395/45743 [13:13:43<68:36:00,  6.44s/it]", "phase: unknown, last step: see L1"),
        ("zorb: iteration 300 of the inner solver is over", "phase: unknown, last step: see L1"),
        ("zorb: the tables are read", "phase: start-up, last step: none seen"),
        ("  0%|          | 0/55990 [00:00<?, ?it/s]", "phase: start-up, last step: none seen"),
    ],
    ids=["a bar that moved", "steps of an unknown program", "no step", "a bar that did not move"],
)
def test_start_up_is_not_said_where_a_line_shows_steps(line: str, told: str) -> None:
    report = job_of(f"{STALE}\nKeyError: 'zorb'\n").report()
    diagnosis = report.diagnosis.model_copy(update={"phase": "start-up", "step": None})
    job = job_of(f"{line}\n{STALE}\nKeyError: 'zorb'\n")
    material = Material(job.evidence())
    material.plain[0] = line  # also where diagnosis knows the line
    (first, *_) = facts(report.model_copy(update={"diagnosis": diagnosis, "metrics": {}}), material, "why", {0, 1}, [])
    assert first.endswith(told)


def test_a_message_that_models_agreed_on_is_asked_about_no_more(endpoint: Endpoint) -> None:  # noqa: F811
    endpoint.text = lambda body, k: cause(body, "KeyError", "key_error")
    records: dict[str, Record] = {}
    trace = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    a["zorb"]\nKeyError: \'zorb\'\n'
    asked_ = [improved(job_of(f"{steps(1, 40)}part {n}\n{trace}"), endpoint, records=records).asked for n in range(5)]
    assert asked_ == [True, True, True, False, False]
    (about,) = records[RULES].seen
    assert about.startswith("group ")
    other = trace.replace("zorb", "quux plan")
    assert improved(job_of(f"{steps(1, 40)}{other}"), endpoint, records=records).asked, "another message"


DROPPED = {"kind": "dropped", "words": None, "rank": None, "file": None}


def test_eval_can_ask_about_every_case_without_following(diagnose: Run, tmp_path: Path, endpoint: Endpoint) -> None:  # noqa: F811
    corpus(tmp_path / "corpus")
    endpoint.text = lambda body, k: cause(body, "came up short")
    result = json.loads(diagnose("eval", "corpus", "--json", "--llm", endpoint.url, "--ask", "all").stdout)
    # Of the third nothing was kept, so there is nothing to ask about.
    assert result["asked"]["asked"] == 2
    assert next(case for case in result["cases"] if case["file"] == "three.log")["said"] == "healthy"
