"""A finding -> the report: which lines stand beside the root cause."""

from __future__ import annotations

from tests.support.logs import report_of

BROKE = "RuntimeError: CUDA error: an illegal memory access was encountered"


def test_the_neighbours_of_the_root_cause_are_the_nearest_lines_of_its_own_log() -> None:
    lines = [
        "amber falls",
        "a birch by the lake",
        "cedar, dune and ember",
        "fjords freeze",
        BROKE,
        "grove of oaks",
        "heath",
        "an islet",
    ]
    other = ["jetty", "knolls are low", "larch and moor", "a nook", "oasis in sand", "pine, quay", "reefs and shoals", "tarn"]
    report = report_of("\n".join(lines) + "\n", "\n".join(other) + "\n", names=("rank0.log", "rank1.log"))
    (root, *beside) = report.diagnosis.evidence
    assert (root.source, root.line) == ("rank0.log", 5)
    assert [(line.source, line.line) for line in beside if line.role == "context"] == [
        ("rank0.log", 3),
        ("rank0.log", 4),
        ("rank0.log", 6),
        ("rank0.log", 7),
    ]


def test_a_line_far_away_in_the_file_is_no_neighbour() -> None:
    dropped = "".join(f" iteration {n:8d}/  900000 | elapsed time per iteration (ms): 812.5 |\n" for n in range(1, 80))
    report = report_of("the amber of the loom\n" + dropped + f"the birch of the loom\n{BROKE}\n")
    assert [line.line for line in report.diagnosis.evidence if line.role == "context"] == [81]
