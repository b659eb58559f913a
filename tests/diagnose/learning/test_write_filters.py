"""The agent that asks for filter rules, against an endpoint over a socket: votes, a judge, refusals, faults."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from diagnose.learning.miner import Miner
from diagnose.learning.rule_store import RuleFile, RuleStore
from diagnose.learning.write_filters import LogAgent, Written
from diagnose.model.model import Model
from tests.conftest import Run
from tests.diagnose.model.test_model import Endpoint, Fault, endpoint, no_key, settings  # noqa: F401 - fixtures
from tests.support.lessons import learn
from tests.support.logs import job_of

LANES = [f"lane keeper chose lane {n} for user alice@example.com" for n in range(12)]
OPEN = [line.replace("alice@example.com", "seven") for line in LANES]
"""nothing in them is redacted, so rules may be learned from them"""
GOOD = r"^lane keeper chose lane \d+ for user \S+$"


def rule(pattern: str, group: str = "G1", kind: str = "debug", captures: Sequence[Any] = ()) -> dict[str, Any]:
    return {"group": group, "pattern": pattern, "kind": kind, "title": "A lane was chosen", "captures": list(captures)}


def said(*rules: dict[str, Any], refused: str | None = None) -> str:
    return json.dumps({"rules": list(rules), "refused": [{"group": "G1", "why": refused}] if refused else []})


def write(endpoint: Endpoint, text: Callable[[dict[str, Any], int], str], lines: Sequence[str] = LANES, **more: Any) -> Written:
    endpoint.text = text
    miner = Miner()
    for line in lines:
        miner.add(line)

    async def asked() -> Written:
        async with Model(settings(endpoint, **more)) as model:
            return await LogAgent(model).write([template for _, template in miner.proposals()], "job", 7)

    return asyncio.run(asked())


def test_what_most_samples_agree_on_is_proposed_with_where_it_comes_from(endpoint: Endpoint) -> None:
    other = r"^lane keeper chose lane [0-9]+ for user .+$"
    (proposal,) = write(endpoint, lambda body, k: said(rule([GOOD, other, GOOD][k]))).proposals
    assert proposal.rule.pattern == GOOD
    source = proposal.provenance
    assert {name: source[name] for name in ("by", "model", "prompt", "votes", "job", "segment")} == {
        "by": "model", "model": "tiny", "prompt": "filter-rules", "votes": "2 of 3", "job": "job", "segment": 7,
    }  # fmt: skip
    assert len(source["version"]) == 12
    assert len(endpoint.seen) == len([path for path, _, _ in endpoint.seen if "chat" in path])


def test_lines_are_redacted_and_held_back_lines_are_never_sent(endpoint: Endpoint) -> None:
    written = write(endpoint, lambda body, k: said(rule(GOOD)))
    sent = json.dumps([body for _, _, body in endpoint.seen])
    assert "alice@example.com" not in sent
    assert written.redacted["email"] > 0
    (proposal,) = written.proposals
    assert any("alice@example.com" in line for line in proposal.lines)
    held = [line for line in proposal.lines if line not in proposal.lines[:6]]
    assert held
    assert not any(line.split(" for ")[0] in sent for line in held)


def test_samples_that_differ_go_to_the_judge(endpoint: Endpoint) -> None:
    patterns = [GOOD, r"^lane keeper chose lane 0 for user \S+$", r"^lane keeper chose lane 2 for user \S+$"]

    def text(body: dict[str, Any], k: int) -> str:
        if body.get("n", 1) == 1:
            return json.dumps({"why": "it takes all values", "choice": "C1"})
        return said(rule(patterns[k]))

    (proposal,) = write(endpoint, text).proposals
    assert proposal.rule.pattern == GOOD
    assert proposal.provenance["votes"] == "1 of 3"
    assert "judge" in proposal.provenance


@pytest.mark.parametrize("why", ["error-like", "instruction"])
def test_what_the_model_calls_evidence_is_proposed_by_nobody(endpoint: Endpoint, why: str) -> None:
    written = write(endpoint, lambda body, k: said(refused=why))
    assert written.proposals == []
    assert written.refused == {why: 1}


def test_what_the_model_calls_evidence_is_not_asked_about_again_and_kept_when_it_is_down(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    store = RuleStore(RuleFile(tmp_path / "b.db"))
    endpoint.text = lambda body, k: said(refused="error-like")
    first = learn([job_of("\n".join(OPEN) + "\n")], store, settings=settings(endpoint))
    assert first.forwarded == {"error-like": 1}
    asked = len(endpoint.asked)
    endpoint.always = Fault(status=500)
    again = learn([job_of("\n".join(OPEN * 2) + "\n")], store, settings=settings(endpoint))
    assert (again.proposed, len(endpoint.asked)) == (0, asked)
    # A template that takes other lines as well would drop them too.
    words = "left took kept saw held gave won lost used met".split()
    wider = [line.replace("chose", word) for line in OPEN for word in words]
    lesson = learn([job_of("\n".join([*OPEN, *wider]) + "\n")], store, settings=settings(endpoint, retries=0))
    assert [refusal.name for _, refusal in lesson.refused] == ["drops-evidence"]
    assert store.rules("shadow", "active") == []
    (known,) = (known for known in store.rules("retired") if "forwarded" in known.provenance)
    assert (known.why, known.provenance["model"]) == ("forwarded: error-like", "tiny")


def test_a_model_that_obeys_the_log_teaches_nothing_about_lines_that_nobody_printed(endpoint: Endpoint, tmp_path: Path) -> None:
    """The log says what else the filter should drop: the last words of the jobs of others. They were dropped once."""
    wish = r"^lane (?:keeper chose lane \d+ for user \S+|guard ends here)$"
    endpoint.text = lambda body, k: said(rule(wish))
    store = RuleStore(RuleFile(tmp_path / "b.db"))
    lesson = learn([job_of("\n".join(OPEN) + "\n")], store, settings=settings(endpoint))
    assert [refusal.name for _, refusal in lesson.refused] == ["untried"]
    (mined,) = store.rules("shadow", "active")
    assert mined.provenance["by"] == "miner"
    assert not re.search(mined.rule.pattern, "lane guard ends here")


def test_one_voice_for_evidence_is_heard_even_when_the_judge_has_no_choice(endpoint: Endpoint) -> None:
    def text(body: dict[str, Any], k: int) -> str:
        if body.get("n", 1) == 1:
            return json.dumps({"why": "evidence of trouble", "choice": "none"})
        return said(refused="error-like") if k == 0 else said(rule(GOOD))

    assert write(endpoint, text).refused == {"error-like": 1}


@pytest.mark.parametrize("why", ["too-general", "mixed"])
def test_where_the_model_gives_up_the_template_is_proposed(endpoint: Endpoint, why: str) -> None:
    (proposal,) = write(endpoint, lambda body, k: said(refused=why)).proposals
    assert (proposal.provenance["by"], proposal.provenance["because"]) == ("miner", f"the model said {why}")


@pytest.mark.parametrize(
    "fault",
    [Fault(status=500), Fault(status=429, headers={"Retry-After": "0"}), Fault(body=b"{"), Fault(cut=3, body=b"{}" * 9)],
)
def test_an_endpoint_that_fails_loses_nothing(endpoint: Endpoint, fault: Fault) -> None:
    endpoint.always = fault
    written = write(endpoint, lambda body, k: "", retries=1)
    (proposal,) = written.proposals
    assert proposal.provenance["by"] == "miner"
    assert written.problems


@pytest.mark.parametrize("pattern", ["(", r"^(?:a|aa)+$", "^lane \\", "x{3,1}"])
def test_patterns_that_break_do_not_break_the_agent(endpoint: Endpoint, pattern: str) -> None:
    lines = ["lane " + "a" * 70 + f" {n}!" for n in range(8)]
    (proposal,) = write(endpoint, lambda body, k: said(rule(pattern)), lines).proposals
    assert proposal.provenance["by"] == "miner"


def test_a_rule_of_the_model_passes_the_door_and_reads_its_numbers(endpoint: Endpoint, tmp_path: Path) -> None:
    lines = [f"custom trainer tick {n} mean objective {2 + n / 7:.3f} units" for n in range(30)]
    pattern = r"^custom trainer tick \d+ mean objective [\d.]+ units$"
    captures = [{"name": "step", "pattern": r"tick (\d+)"}, {"name": "loss", "pattern": r"objective ([\d.]+)"}]
    endpoint.text = lambda body, k: said(rule(pattern, kind="metric", captures=captures))
    store = RuleStore(RuleFile(tmp_path / "b.db"))
    lesson = learn([job_of("\n".join(lines) + "\n")], store, settings=settings(endpoint))
    (known,) = lesson.active
    assert known.rule.pattern == pattern
    assert known.rule.metrics == (("step", r"tick (\d+)"), ("loss", r"objective ([\d.]+)"))


@pytest.mark.parametrize("pattern", ["^.*$", r"^lane.*$|Error", r"^lane keeper chose lane \d$", "lane keeper"])
def test_a_rule_of_the_model_that_the_door_refuses_makes_room_for_the_template(
    endpoint: Endpoint, tmp_path: Path, pattern: str
) -> None:
    endpoint.text = lambda body, k: said(rule(pattern)) if body.get("n", 1) > 1 else '{"why": "none fits", "choice": "none"}'
    lesson = learn([job_of("\n".join(OPEN) + "\n")], RuleStore(RuleFile(tmp_path / "b.db")), settings=settings(endpoint))
    assert [known.provenance["by"] for known in lesson.active] == ["miner"]


def test_answers_are_recorded_and_replayed_by_the_command(endpoint: Endpoint, diagnose: Run, tmp_path: Path) -> None:
    endpoint.text = lambda body, k: said(rule(GOOD))
    (tmp_path / "job.log").write_text("\n".join(OPEN) + "\n")
    words = ("rules", "learn", "job.log", "--json")
    first = json.loads(diagnose(*words, "--store", "a.db", "--llm", endpoint.url, "--record", "answers").stdout)
    endpoint.always = Fault(status=500)
    again = json.loads(diagnose(*words, "--store", "b.db", "--replay", "answers").stdout)
    assert first["active"] == again["active"]
    assert first["active"][0].startswith("asked-")
