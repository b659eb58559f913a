"""A plan file: what it means, and what each mistake in it is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.errors import DiagnoseError
from diagnose.evaluate import plan_file

GOOD = """\
checkpoint: ckpt/step-41000
results: out
trial: python infer.py {checkpoint} --task {dataset} --first {first} --count {count} --out {outputs}
metric: python score.py {outputs} {scores}
datasets:
  - name: gsm8k
    samples: 1319
    expected: {trial: 20m}
  - name: judged
    samples: 80
    split: false
    metric: {command: 'judge {outputs} {shard} {scores}', split: true, at_once: 8, processors: 2}
nodes:
  - {name: gpu-1, places: 8, processors: 64}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(text)
    return path


def test_a_plan_is_read(tmp_path: Path) -> None:
    file = plan_file.read(written(tmp_path, GOOD))

    gsm8k, judged = file.suite.datasets
    assert (gsm8k.samples, gsm8k.trial_s, gsm8k.split, gsm8k.metric.split) == (1319, 1200, True, False)
    assert (judged.split, judged.metric.at_once, judged.metric.processors) == (False, 8, 2)
    assert file.checkpoint == tmp_path / "ckpt/step-41000"
    assert [(node.name, node.places) for node in file.machines()] == [("gpu-1", 8)]


def test_without_nodes_it_is_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    file = plan_file.read(written(tmp_path, GOOD[: GOOD.index("nodes:")]))

    assert [(node.name, node.places) for node in file.machines()] == [("localhost", 2)]


@pytest.mark.parametrize(
    ("old", "new", "line", "what", "remedy"),
    [
        ("samples: 1319", "sampels: 1319", 6, "samples is missing", "add   samples: a whole number"),
        ("samples: 80", "samples: many", 10, "'many' is no samples", "a whole number from 1"),
        ("samples: 80", "samples: 0", 10, "'0' is no samples", "a whole number from 1"),
        ("{trial: 20m}", "{trial: soon}", 8, "'soon' is no trial", "a time"),
        ("{trial: 20m}", "20m", 8, "expected is not a mapping", "an example"),
        ("name: judged", "name: gsm8k", 9, "gsm8k is there twice", "a name of its own"),
        ("name: judged", "name: ../judged", 9, "'../judged' is no name", "letters, digits"),
        ("name: judged", "name: -rf", 9, "'-rf' is no name", "letters, digits"),
        ("{first}", "{fist}", 3, "there is no {fist}", "did you mean {first}?"),
        ("{dataset}", "{dataset.__class__}", 3, "there is no {dataset.__class__}", "there are"),
        ("--first {first}", "", 3, "cannot run a part of the samples", "split: false"),
        ("{outputs} {scores}", "{outputs}", 4, "the command has no {scores}", "write where"),
        ("python score.py", "python 'score.py", 4, "cannot be parted into words", "close quotes"),
        ("{shard} {scores}", "{scores}", 12, "cannot run a part of the samples", "split: false"),
        ("places: 8", "places: 0", 14, "no node has a place", "places: 1"),
        ("processors: 64", "processors: 0", 14, "no node has processors", "processors: 1"),
        ("trial: python", "trail: python", 6, "gsm8k has no trial", "trial: COMMAND"),
        ("nodes:\n  - {", "nodes:\n  {", 14, "nodes is not a list", "an example"),
        ("results: out", "results: [out", 3, "not valid YAML", ""),
    ],
)
def test_a_mistake_names_its_line_and_what_to_write(
    tmp_path: Path, old: str, new: str, line: int, what: str, remedy: str
) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))

    with pytest.raises(DiagnoseError) as refused:
        plan_file.read(path)

    if "trail" in new:  # a misspelt clause is the first mistake
        line, what, remedy = 3, "there is no trail", "did you mean trial?"
    assert what in refused.value.what
    assert remedy in (refused.value.remedy or "")
    assert (refused.value.where or "").startswith(f"{path}:")
    assert int((refused.value.where or "").rpartition(":")[2]) == line


def test_no_trial_at_all(tmp_path: Path) -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith("trial:")]

    with pytest.raises(DiagnoseError, match="gsm8k has no trial"):
        plan_file.read(written(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize("content", [b"\xff\xfe", b"- a\n", b"", b"x" * (5 << 20)], ids=["no text", "list", "empty", "large"])
def test_what_is_no_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(content)

    with pytest.raises(DiagnoseError, match=r"plan\.yaml"):
        plan_file.read(path)
