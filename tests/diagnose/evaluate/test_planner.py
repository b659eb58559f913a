"""The plan: what goes first, what is cut, what is put together, and what is said about it."""

from __future__ import annotations

from diagnose.evaluate.estimates import MEASURED, Belief, Estimates, Overheads, expected
from diagnose.evaluate.planner import plan, uncertainty
from diagnose.evaluate.printed import headline, rows
from diagnose.evaluate.suite import DataSet, Metric, Node, Suite
from diagnose.evaluate.work import Load, Scoring, Trial

OVER = Overheads(load_s=30, start_s=10, prepare_s=1, metric_s=1)
NODE = [Node("a", 4, 8)]


def suite(*datasets: DataSet, joined: str | None = ",", load: str = "none") -> Suite:
    return Suite(datasets, joined, "copy" if load == "copy" else "none")


def dataset(name: str, *, split: bool = True, whole: bool = True, at_once: int | None = None) -> DataSet:
    return DataSet(name, 100, "t", Metric("m", not whole, at_once), split)


def known(**seconds: tuple[float, float]) -> Estimates:
    """(trial, metric) of all samples together"""
    return Estimates(
        {name: Belief(one / 100, MEASURED) for name, (one, _) in seconds.items()},
        {name: Belief(one / 100, MEASURED) for name, (_, one) in seconds.items()},
        OVER,
    )


def test_a_long_data_set_is_shared_out() -> None:
    found = plan(suite(dataset("long")), known(long=(4000, 1)), NODE)

    trials = [span for span in found.spans if isinstance(span.piece, Trial)]
    assert len(trials) >= 4
    assert found.expected_s < 4000 / 4 * 1.15


def test_what_cannot_be_shared_out_is_not() -> None:
    found = plan(suite(dataset("long", split=False)), known(long=(4000, 1)), NODE)

    assert sum(isinstance(span.piece, Trial) for span in found.spans) == 1


def test_short_ones_share_a_trial_if_their_command_takes_several() -> None:
    many = [dataset(f"s{number}") for number in range(40)]
    times = known(**{one.name: (5.0, 1.0) for one in many})

    together, apart = plan(suite(*many), times, NODE), plan(suite(*many, joined=None), times, NODE)

    assert sum(isinstance(span.piece, Trial) for span in together.spans) < 20
    assert sum(isinstance(span.piece, Trial) for span in apart.spans) == 40
    assert together.expected_s < 0.7 * apart.expected_s


def test_the_longest_metric_begins_first() -> None:
    many = [dataset(f"s{number}") for number in range(12)]
    times = known(**{one.name: (200.0, 1.0) for one in many}, judged=(50.0, 900.0))

    found = plan(suite(*many, dataset("judged")), times, NODE)

    assert found.expected_s < 50 + 900 + 60
    scoring = [span for span in found.spans if isinstance(span.piece, Scoring)]
    assert min(scoring, key=lambda span: span.begin_s).piece.key.startswith("metric/judged")


def test_a_metric_that_can_be_is_split() -> None:
    found = plan(suite(dataset("judged", whole=False, at_once=4)), known(judged=(50, 800)), NODE)

    assert found.expected_s < 50 + 800 / 4 * 1.5 + 30


def test_the_model_is_loaded_once_on_each_node() -> None:
    nodes = [Node("a", 2, 4), Node("b", 2, 4)]
    found = plan(suite(dataset("x"), load="copy"), known(x=(1000, 1)), nodes)

    assert sorted(span.node for span in found.spans if isinstance(span.piece, Load)) == ["a", "b"]


def test_the_same_question_has_the_same_answer() -> None:
    asked = (suite(dataset("x"), dataset("y")), known(x=(1000, 1), y=(30, 70)), NODE)

    assert plan(*asked) == plan(*asked)


def test_what_is_unknown_is_tried_first_with_few_samples() -> None:
    whole = suite(dataset("x"), dataset("new"))
    estimates = expected(whole, known(x=(3000, 1)))

    found = plan(whole, estimates, NODE)

    first = next(span.piece for span in found.spans if isinstance(span.piece, Trial))
    assert first.key == "trial/new/0-6"
    assert sum("new" in span.piece.key for span in found.spans if span.begin_s == 0) == 1


def test_the_uncertainty_is_larger_where_less_is_known() -> None:
    one = suite(dataset("x", split=False))
    sure, unsure = known(x=(1000, 1)), Estimates({"x": Belief(10, 1.2)}, {"x": Belief(0.01, 1.2)}, OVER)

    a, b = (uncertainty(one, each, NODE, plan(one, each, NODE)).between_s for each in (sure, unsure))

    assert a is not None
    assert b is not None
    assert b[0] < a[0] < 1011 < a[1] < b[1]


def test_it_is_told() -> None:
    one = suite(dataset("x"), dataset("y"))
    estimates = known(x=(1000, 1), y=(30, 70))
    found = uncertainty(one, estimates, NODE, plan(one, estimates, NODE))

    assert "2 data sets with 200 samples on 1 node: 4 places for trials, 8 processors for metrics." in headline(
        one, NODE, found
    )
    assert {row[0]: row[-1] for row in rows(one, estimates, found)[1:]} == {"x": "measured", "y": "measured"}
