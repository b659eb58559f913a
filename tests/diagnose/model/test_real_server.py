"""The client against a real engine: vLLM on a CPU with a model of 135 million parameters (model_server/).

The model is nearly always wrong, so nothing here asks for a right answer. What is asked: the protocol, answers that fit their
schema, votes, accounts, recordings; and that whatever such a model says does no harm.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from diagnose.agent.explain import Improved, improve
from diagnose.learning.rule_store import RuleFile, RuleStore
from diagnose.model.model import Answer, Ask, Model, Settings, Usage
from diagnose.model.prompts import load, names
from tests.conftest import ModelServer, Run
from tests.diagnose.agent.test_explain import UNEXPLAINED
from tests.support.lessons import learn
from tests.support.logs import job_of

pytestmark = [pytest.mark.model, pytest.mark.timeout(1200)]

SCHEMA = {
    "type": "object",
    "properties": {"reason": {"type": "string", "enum": ["ecc_error", "hang"]}, "rank": {"type": "integer", "maximum": 99}},
    "required": ["reason", "rank"],
    "additionalProperties": False,
}
ASK = Ask(
    "why",
    "v1",
    (("system", "You read logs."), ("user", "rank 3 stopped. Why, and which?")),
    SCHEMA,
    n=3,
    seed=7,
    max_tokens=200,
)


def settings(server: ModelServer, **more: object) -> Settings:
    return replace(Settings(server.url, model=server.model, timeout_s=180, cache=False), **more)  # type: ignore[arg-type]


def ask(wanted: Settings, *asks: Ask) -> tuple[list[Answer], Usage]:
    async def run() -> tuple[list[Answer], Usage]:
        async with Model(wanted) as model:
            return [await model.ask(one, job="job1") for one in asks], model.usage

    return asyncio.run(run())


# -- protocol -----------------------------------------------------------------------------------------------------------------


def test_the_check_says_what_this_server_can_do(model_server: ModelServer, diagnose: Run) -> None:
    done = diagnose("llm", "check", "--llm", model_server.url, "--timeout", "120", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["model"], found["context"], found["usable"]) == (model_server.model, 8192, True)
    can = {name: found[name]["works"] for name in ("chat", "json_schema", "n", "seed", "logprobs", "embeddings")}
    assert can == {"chat": True, "json_schema": True, "n": True, "seed": True, "logprobs": True, "embeddings": False}


def test_a_check_for_a_model_that_is_not_served_says_so(model_server: ModelServer, diagnose: Run) -> None:
    done = diagnose("llm", "check", "--llm", model_server.url, "--model", "gpt-nowhere", "--timeout", "120")
    assert done.returncode == 2
    assert "gpt-nowhere" in done.stderr
    assert model_server.model in done.stderr


def test_three_samples_of_one_request_fit_the_schema_and_are_accounted(model_server: ModelServer) -> None:
    (answer,), usage = ask(settings(model_server), ASK)
    assert answer.problems == ()
    assert len(answer.values) == 3
    for value in answer.values:
        jsonschema.validate(value, SCHEMA)
    assert answer.model == model_server.model
    assert (usage.calls, usage.tokens_in, usage.tokens_out) == (1, answer.tokens_in, answer.tokens_out)
    assert answer.tokens_in > 20
    assert answer.tokens_out >= 3 * len('{"reason":"hang"}') / 8, "the tokens of all three samples"


def test_a_seed_gives_the_same_samples_again_and_another_seed_others(model_server: ModelServer) -> None:
    free = replace(ASK, schema={"type": "object", "properties": {"a": {"type": "string", "maxLength": 60}}, "required": ["a"]})
    (one, again, other), _ = ask(settings(model_server), free, free, replace(free, seed=99))
    assert one.values == again.values
    assert one.values != other.values


@pytest.mark.parametrize("name", names())
def test_the_schemas_of_the_shipped_prompts_are_taken_by_the_engine(model_server: ModelServer, name: str) -> None:
    prompt = load(name)
    messages = prompt.render(**prompt.examples[-1].input)
    question = Ask(name, prompt.version, messages, prompt.schema, n=2, seed=1, max_tokens=200)
    (answer,), usage = ask(settings(model_server, retries=0), question)
    assert usage.calls == 1, f"taken as it was sent: {answer.problems}"
    # A small model may talk until it is cut off. What is whole fits.
    assert all("was cut at" in problem for problem in answer.problems)
    for value in answer.values:
        jsonschema.validate(value, prompt.schema)


def test_there_are_no_embeddings_and_that_is_no_error(model_server: ModelServer) -> None:
    async def run() -> list[list[float]] | None:
        async with Model(settings(model_server)) as model:
            return await model.embed(["rank 3 stopped"], job="job1")

    assert asyncio.run(run()) is None


def test_a_question_longer_than_the_context_is_a_problem_and_the_server_goes_on(model_server: ModelServer) -> None:
    long = replace(ASK, messages=(("user", "rank 3 stopped. " * 4000),))
    (refused, after), _ = ask(settings(model_server), long, ASK)
    assert refused.values == ()
    assert any("8192" in problem for problem in refused.problems), refused.problems
    assert len(after.values) == 3


def test_questions_side_by_side_are_all_answered(model_server: ModelServer) -> None:
    async def run() -> list[Answer]:
        async with Model(settings(model_server)) as model:
            asks = [replace(ASK, seed=100 + k) for k in range(6)]
            return await asyncio.gather(*(model.ask(one, job="job1") for one in asks))

    assert [len(answer.values) for answer in asyncio.run(run())] == [3] * 6


# -- what is kept -------------------------------------------------------------------------------------------------------------


def test_an_answer_is_cached(model_server: ModelServer) -> None:
    wanted = settings(model_server, cache=True)
    question = replace(ASK, seed=4711)
    (first,), _ = ask(wanted, question)
    (second,), usage = ask(wanted, question)
    assert (first.cached, second.cached) == (False, True)
    assert first.values == second.values
    assert (usage.calls, usage.cached) == (0, 1)


def test_what_was_recorded_is_replayed_without_the_server(model_server: ModelServer, tmp_path: Path) -> None:
    (said,), _ = ask(settings(model_server, record=tmp_path), ASK)
    (file,) = tmp_path.glob("*.json")
    record = json.loads(file.read_text())
    assert record["model"] == model_server.model
    assert [json.loads(text) for text in record["answers"]] == list(said.values)
    nowhere = Settings("http://127.0.0.1:9/v1", replay=tmp_path, cache=False)
    (replayed,), usage = ask(nowhere, ASK)
    assert (replayed.values, replayed.problems) == (said.values, ())
    assert usage.calls == 0


# -- what such a model may do -------------------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_rules_that_it_writes_drop_no_failure(model_server: ModelServer, diagnose: Run, tmp_path: Path) -> None:
    lanes = [f"lane keeper chose lane {n} for pass {n % 7}" for n in range(60)]
    errors = [f"lane keeper lost lane {n}: unrecoverable error, aborting" for n in range(6)]
    store = RuleStore(RuleFile(tmp_path / "b.db"))
    asked = settings(model_server, timeout_s=400, record=tmp_path / "answers")
    lesson = learn([job_of("\n".join(lanes + errors) + "\n")], store, settings=asked)
    records = [json.loads(file.read_text()) for file in (tmp_path / "answers").glob("*.json")]
    assert any(record["answers"] for record in records), f"the engine answered: {lesson.problems}"
    assert lesson.active, "what the model could not say, the template said"

    (tmp_path / "bad.log").write_text("\n".join([*lanes, *errors, "KeyError: 'lane'"]) + "\n")
    (report,) = [json.loads(line) for line in diagnose("replay", "bad.log", "--json").stdout.splitlines()]
    learned = diagnose("replay", "bad.log", "--json", "--learned", "--kept", "kept.txt", DIAGNOSE_RULE_STORE="b.db")
    (with_rules,) = [json.loads(line) for line in learned.stdout.splitlines()]
    assert with_rules["diagnosis"]["reason"] == report["diagnosis"]["reason"]
    assert with_rules["diagnosis"]["root_cause"] == report["diagnosis"]["root_cause"]
    kept = (tmp_path / "kept.txt").read_text()
    assert all(line in kept for line in [*errors, "KeyError: 'lane'"])
    assert with_rules["compression"]["lines_kept"] < report["compression"]["lines_kept"]


@pytest.mark.timeout(900)
def test_a_cause_that_it_names_is_grounded_or_the_rules_answer_stands(model_server: ModelServer, tmp_path: Path) -> None:
    job = job_of(UNEXPLAINED)
    before = job.report()
    assert before.diagnosis.reason == "unknown"

    async def run() -> Improved:
        async with Model(settings(model_server, timeout_s=400, record=tmp_path)) as model:
            return await improve(before, job.evidence(), model, samples=2)

    after = asyncio.run(run()).report
    records = [json.loads(file.read_text()) for file in tmp_path.glob("*.json")]
    assert any(record["answers"] for record in records), "the engine answered"
    if after.diagnosis.by != "agent":
        told = {name: getattr(before.diagnosis, name) for name in ("notes", "doubt", "alternatives")}
        assert after.diagnosis.model_copy(update=told) == before.diagnosis
        assert after.diagnosis.notes[: len(before.diagnosis.notes)] == before.diagnosis.notes
        return
    lines = UNEXPLAINED.splitlines()
    for cited in after.diagnosis.evidence:
        assert lines[cited.line - 1] == cited.text, "a cited line is a line of the log"
