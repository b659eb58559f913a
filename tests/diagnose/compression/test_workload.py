"""A resubmitted job is known again, a foreign one is not."""

from __future__ import annotations

import json
import random
from pathlib import Path

from diagnose.compression.workload import Fingerprint, nearest, sketch, unnamed
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


def test_a_job_belongs_to_the_workload_that_it_is_most_like() -> None:
    known = {name: Fingerprint(sketch=(1,) * same + (2,) * (64 - same)) for name, same in (("a", 40), ("b", 50), ("c", 45))}
    assert nearest(Fingerprint(sketch=(1,) * 64), known) == "b"
    assert nearest(Fingerprint(sketch=(1,) * 64), {}) is None


def test_jobs_of_other_scripts_or_images_are_never_alike() -> None:
    said = (1,) * 64
    for key in ("script", "image"):
        one, other = (Fingerprint(((key, name),), said) for name in ("x", "y"))
        assert (one.likeness(other), one.likeness(one), one.likeness(Fingerprint((), said))) == (0.0, 1.0, 1.0)
    users = (Fingerprint((("user", name),), said) for name in ("ann", "bob"))
    assert Fingerprint.likeness(*users) == 1.0


def named(seed: int, script: str = "zeta.py") -> str:
    """A log in which nearly every line has a name that no other line has."""
    draw = random.Random(seed)

    def name() -> str:
        return "".join(draw.choice("bcdfghjklm") for _ in range(8))

    lines = [f"+ srun python3 {script}", f"SLURM_JOB_USER=ann of job {seed}"]
    for _ in range(100):
        lines += [f"keeper opened vault {name()} in {draw.randint(1, 90)} ms", f"quill {name()} took over from {name()}"]
        lines += [f"{name()}: is parked at bay {draw.randint(1, 40)}"]
    return "\n".join(lines) + "\n"


def test_what_has_a_new_name_in_every_line_counts_once() -> None:
    one, again = (job_of(named(seed), fold_after=0).fingerprint for seed in (1, 2))
    assert one.likeness(again) >= 0.9
    assert {b"keeper opened vault * in 0 ms"} == unnamed(
        [b"keeper opened vault %s in 0 ms" % bytes([65 + n]) for n in range(20)]
    )
    prose = [b"%s went %s by" % (bytes([65 + n]), bytes([97 + n])) for n in range(8)]
    assert unnamed(prose) == set(prose), "a few lines that are alike stay what they are"
    strangers = [b"%s a%s b%s" % ((bytes([65 + n]),) * 3) for n in range(20)]
    assert unnamed(strangers) == set(strangers), "lines that share no word are of no kind"


def test_the_same_script_of_the_same_user_needs_few_lines_in_common() -> None:
    told = (("script", "train.py"), ("user", "ann"))
    known = Fingerprint(told, (1,) * 64)
    few, fewer = (Fingerprint(told, (1,) * same + (2,) * (64 - same)) for same in (8, 1))
    assert nearest(few, {"x": known}) == "x"
    assert nearest(fewer, {"x": known}) is None, "a name alone says nothing: many scripts are called so"
    assert nearest(Fingerprint(told[:1], few.sketch), {"x": known}) is None
    assert nearest(Fingerprint((), few.sketch), {"x": known}) is None


def test_a_second_run_drops_what_the_first_one_learned(diagnose: Run, tmp_path: Path) -> None:
    for run in (1, 2):
        (tmp_path / f"run{run}.log").write_text(named(run))
    (tmp_path / "foreign.log").write_text(named(3, "other.py"))
    assert json.loads(diagnose("rules", "learn", "run1.log", "--store", "b.db", "--json").stdout)["active"]

    def kept(name: str, *learned: str) -> float:
        report = json.loads(diagnose("replay", name, *learned, "--no-folds", "--json").stdout)
        return float(report["compression"]["bytes_kept"] / report["compression"]["bytes_in"])

    assert kept("run2.log") > 0.9
    first, second = (kept(name, "--learned", "b.db") for name in ("run1.log", "run2.log"))
    assert second <= first + 0.02, "it drops what the first one drops by now"
    assert second < 0.4
    assert kept("foreign.log", "--learned", "b.db") > 0.9


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
