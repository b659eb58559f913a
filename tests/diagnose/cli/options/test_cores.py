"""Several jobs on all cores: the same is printed, in the same order, whatever they are."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pytest

from diagnose.cli.options.cores import each
from diagnose.errors import SourceError
from tests.conftest import Run


def jobs(folder: Path, count: int) -> None:
    for number in range(count):
        end = f"Traceback (most recent call last):\nKeyError: 'k{number}'\n" if number % 2 else "done\n"
        (folder / f"run{number}.out").write_text("".join(f"step {n} loss {9 / n}\n" for n in range(1, 50)) + end)
    (folder / "cut.log.gz").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\x03not the rest")


@pytest.mark.parametrize("form", ["text", "json", "markdown", "html"])
def test_what_is_printed_does_not_depend_on_the_cores(diagnose: Run, tmp_path: Path, form: str) -> None:
    jobs(tmp_path, 7)
    one, many = (diagnose("replay", "--each", ".", "--format", form, "--cores", cores) for cores in ("1", "3"))
    assert (one.stdout, one.stderr, one.returncode) == (many.stdout, many.stderr, many.returncode)
    assert one.returncode == 1
    assert "cut.log.gz" in one.stderr


@pytest.mark.parametrize("cores", ["0", "-1", "two"])
def test_cores_are_a_number(diagnose: Run, cores: str) -> None:
    done = diagnose("replay", "x", f"--cores={cores}")
    assert (done.returncode, "is not a number of cores; write 1 or more" in done.stderr) == (2, True)


def test_the_work_is_done_elsewhere_and_comes_back_in_order() -> None:
    found = list(each(lambda number: (number, os.getpid()), 20, 2))
    assert [number for number, _ in found] == list(range(20))
    processes = {process for _, process in found}
    assert os.getpid() not in processes
    assert len(processes) <= 2
    assert {process for _, process in each(lambda _: (0, os.getpid()), 3, 1)} == {os.getpid()}


def test_an_error_keeps_its_place_and_remedy() -> None:
    def work(number: int) -> None:
        raise SourceError("odd", where=f"file{number}", remedy="mend it")

    with pytest.raises(SourceError, match="file0: odd; mend it"):
        list(each(work, 2, 2))


def test_a_process_that_is_killed_is_said() -> None:
    with pytest.raises(Exception, match="ended from outside; if memory was short, use fewer with --cores 1"):
        list(each(lambda _: os._exit(9), 4, 2))


def test_the_files_of_one_job_are_read_on_all_cores_too(diagnose: Run, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for rank in range(4):
        steps = "".join(
            f"[rank{rank}]: step {n} loss {9 / n:.6f} text of some length that fills the file\n" for n in range(1, 40_000)
        )
        (tmp_path / "job" / f"rank{rank}.log").write_text(f"{steps}[rank{rank}]: KeyError: 'k{rank}'\n")
    (tmp_path / "job" / "rank9.log.gz").write_bytes(gzip.compress(b"the start of it\n" * 1000)[:60])
    one, many = (diagnose("replay", "job", "--json", "--cores", cores) for cores in ("1", "3"))
    assert (one.stdout, one.stderr, one.returncode) == (many.stdout, many.stderr, many.returncode)
    report = json.loads(many.stdout)
    assert report["compression"]["bytes_in"] > 8 << 20
    assert report["problems"][0]["source"].endswith("rank9.log.gz")
    assert report["job"]["fingerprint"] is not None


def test_one_large_file_is_read_on_all_cores_too(diagnose: Run, tmp_path: Path) -> None:
    dice, lines = random.Random(3), []
    for n in range(1, 9_000):
        loss = 900.0 if n % 2000 == 0 else 2 + dice.random()
        lines.append(f"[rank{n % 8}]: iteration {n}/ 90000 | lm loss: {loss:.6E} | grad norm: {dice.random():.3f} |\n")
        if n % 50 == 0:
            lines.append(
                f"gpu{n % 64:03d}:3101:3360 [3] NCCL INFO comm 0x7f{n:06x} rank 3 nranks 8 cudaDev 3 - Init COMPLETE\n"
            )
            lines.append(f"shard {n} of the daemon is parked after {dice.randrange(9)} tries\n{n % 100:3d}%|##   | {n}/90000\r")
    end = "Traceback (most recent call last):\nKeyError: 'shard'"
    (tmp_path / "large.log").write_text("".join(lines) * 12 + end)
    assert (tmp_path / "large.log").stat().st_size > 8 << 20
    one, many = (diagnose("replay", "large.log", "--json", "--kept", f"kept{cores}", "--cores", cores) for cores in ("1", "3"))
    assert (one.stdout, one.stderr, one.returncode) == (many.stdout, many.stderr, many.returncode)
    assert (tmp_path / "kept1").read_bytes() == (tmp_path / "kept3").read_bytes()
    assert json.loads(many.stdout)["diagnosis"]["reason"] == "key_error"
