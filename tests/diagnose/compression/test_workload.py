"""A resubmitted job is known again, a foreign one is not."""

from __future__ import annotations

import json
from pathlib import Path

from diagnose.compression.workload import Fingerprint, nearest, sketch
from tests.conftest import Run
from tests.support.logs import job_of


def trainer(name: str, seed: int) -> str:
    head = f"srun python {name}.py --lr 0.1\n"
    kinds = [
        f"{name} stage {word} took {seed * n + 3} ms on lane {n}" for n, word in enumerate(("load", "pack", "sort", "emit"))
    ]
    return head + "".join(f"{kinds[n % 4]}\n" for n in range(80))


def test_likeness() -> None:
    one, again, other = (job_of(trainer(*row)).fingerprint for row in (("lanes", 3), ("lanes", 70), ("other", 3)))
    assert dict(one.metadata) == {"script": "lanes.py"}
    assert one.likeness(again) == 1.0
    assert str(one) == str(again)
    assert one.likeness(other) == 0.0
    assert nearest(again, {"x": other, "y": one}) == "y"
    assert nearest(Fingerprint(), {"y": one}) is None


def test_sketches_that_were_stored_stay_comparable() -> None:
    """They lie in databases: a version that makes others would know no job again."""
    found = sketch({1, 2, 3})
    assert (len(found), found[:3], sum(found)) == (64, (3155897207, 3388742625, 2018855515), 129966643312)


def test_jobs_are_of_one_workload_from_one_half_on() -> None:
    half, less = (Fingerprint(sketch=(1,) * same + (2,) * (64 - same)) for same in (32, 31))
    whole = Fingerprint(sketch=(1,) * 64)
    assert nearest(whole, {"x": half}) == "x"
    assert nearest(whole, {"x": less}) is None


def test_what_was_told_counts_before_what_the_log_shows() -> None:
    job = job_of("")
    job.metadata = {"script": "b.py", "colour": "red"}
    job.feed(0, b"srun python a.py\n")
    assert dict(job.fingerprint.metadata) == {"script": "b.py"}


def test_a_resubmitted_job_starts_with_its_rules_and_a_foreign_one_does_not(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "first.log").write_text(trainer("lanes", 3))
    (tmp_path / "again.log").write_text(trainer("lanes", 9))
    # The same lines, but of another script: what was learned elsewhere does not act here.
    (tmp_path / "foreign.log").write_text(trainer("lanes", 5).replace("lanes.py", "foreign.py"))
    learned = json.loads(diagnose("rules", "learn", "first.log", "--store", "b.db", "--json").stdout)
    assert learned["active"]

    def kept(name: str) -> int:
        report = json.loads(diagnose("replay", name, "--learned", "b.db", "--no-folds", "--json").stdout)
        assert len(report["job"]["fingerprint"]) == 17
        return int(report["compression"]["lines_kept"])

    assert kept("again.log") == 0
    assert kept("foreign.log") == 80
    for rule in learned["active"]:
        diagnose("rules", "promote", rule, "--store", "b.db")
    assert kept("foreign.log") == 0
