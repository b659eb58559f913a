"""Which logs of a folder are one job, mechanism by mechanism."""

from __future__ import annotations

import pytest

from diagnose.reading.grouping import Log, group, look

ONE_JOB = {
    "ranks": "rank0.log rank1.log rank2.log rank10.log",
    "nodes": "gpu-11.log gpu-12.log dmesg-gpu-11.log",
    "nodes as folders": "node-0/rank0.log node-0/rank1.log node-1/rank2.log node-1/rank3.log",
    "nodes as folders with local ranks": "node0/rank0.log node0/rank1.log node1/rank0.log node1/rank1.log",
    "hosts as folders": "r7i4n4/train.log r7i4n5/train.log",
    "addresses as folders": "10.0.0.1/train.log 10.0.0.2/train.log",
    "output and errors": "train.out train.err",
    "output and errors as folders": "stdout/rank0.log stdout/rank1.log stderr/rank0.log stderr/rank1.log",
    "one number": "slurm-8811.out slurm-8811.err train-8811.log",
    "rotated pieces": "train.log train.log.1 train.log.2.gz",
    "daily pieces": "train.log train.log-20260103.gz train.log-20260104.gz",
    "ranks by endings": "train.log.0 train.log.1 train.log.2",
    "tasks of Slurm": "job.0.out job.1.out job.2.out",
    "ranks beyond a thousand": " ".join(f"train-{rank}.log" for rank in range(1020, 1030)) + " train-0.log train-7.log",
    "ranks with zeros before them": "train-0001.log train-0002.log train-1003.log",
    "ranks with their processes": "rank0_12345.log rank1_12346.log rank2_12399.log",
    "files of NCCL by process": "nccl.gpu01.12345.log nccl.gpu01.12346.log nccl.gpu02.4711.log",
    "workers of Ray": "raylet.out raylet.err python-core-driver-01000000_1234.log python-core-worker-ab_4711.log",
    "files of glog": "train.gpu01.me.log.INFO.20260103-120000.1234 train.gpu02.me.log.INFO.20260103-150000.4711",
    "torchrun's folders": "attempt_0/0/stdout.log attempt_0/0/stderr.log attempt_0/1/stdout.log attempt_1/0/stdout.log",
    "torchrun's folders of two agents": "8811_ab12cd34/attempt_0/0/stderr.log 8811_zz12_d34/attempt_0/0/stderr.log",
    "torchrun's folders of nobody knows which run": "none_ab12cd34/attempt_0/0/stderr.log none_zz12_d34/attempt_0/0/stderr.log",
    "attempts": "train_attempt1.log train_attempt2.log",
    "steps and sizes": "eval-step1000.log eval-step2000.log convert_iter_4000.log llama-seq4096.log llama-seq8192.log",
    "components as folders": "trainer/stdout.log rollout/stdout.log reward/stdout.log",
    "folders that hold different ranks": "alpha/rank0.log alpha/rank1.log beta/rank2.log beta/rank3.log",
    "words": "preprocess.log train.log evaluate.log notes.txt",
    "small numbers": "train_1.log train_2.log train_3.log",
    "started seconds apart": "train_20260103_120001.log train_20260103_120007.log",
    "dates only": "train-20260103.log train-20260104.log",
    "one job and what lies beside it": "slurm-8811.out dmesg.log train.sh",
}


@pytest.mark.parametrize("names", ONE_JOB.values(), ids=ONE_JOB)
def test_one_job(names: str) -> None:
    (only,) = group([Log(name) for name in names.split()])
    assert only.name is None
    assert sorted(only.logs) == list(range(len(names.split())))


SEVERAL = {
    "Slurm's own names": "slurm-8811.out | slurm-8812.out | slurm-12.out",
    "pairs of a named job": "train-8811.out train-8811.err | train-8812.out train-8812.err",
    "pairs in folders": "out/8811.log err/8811.log | out/8812.log err/8812.log",
    "job and node": "train-8811-gpu01.out train-8811-gpu02.out | train-8812-gpu01.out",
    "job and task": "log_8811_0.out log_8811_1.out | log_8812_0.out log_8812_1.out",
    "steps of a job": "slurm-8811.0.out slurm-8811.1.out | slurm-8812.0.out",
    "an array": "slurm-8811_3.out | slurm-8811_4.out | slurm-8812_3.out",
    "pieces of several jobs": "slurm-8811.out.1 slurm-8811.out | slurm-8812.out",
    "PBS": "train.o123 train.e123 | train.o124 train.e124",
    "an array of PBS": "train.o123.1 train.e123.1 | train.o123.2 train.e123.2",
    "the spool of PBS": "123.pbs01.OU 123.pbs01.ER | 124.pbs01.OU 124.pbs01.ER",
    "LSF": "lsf-8811.out lsf-8811.err | lsf-8812.out",
    "an array of LSF": "8811[1].out 8811[1].err | 8811[2].out",
    "numbers alone": "8811.out 8811.err | 8812.out",
    "numbers after the stream": "out.8811 err.8811 | out.8812 err.8812",
    "job words": "job7.log | job8.log | job-9.log",
    "folders of jobs": "job-7/rank0.log job-7/rank1.log | job-8/rank0.log job-8/rank1.log",
    "folders of numbers": "8811/rank0.log 8811/rank1.log | 8812/rank0.log",
    "folders of numbers with processes in them": "8811/x-20017.log 8811/x-20018.log | 8812/x-31000.log",
    "folders with names": "baseline/rank0.log baseline/rank1.log | wide/rank0.log wide/rank1.log",
    "folders below one": "jobs/baseline/train.log | jobs/wide/train.log | jobs/job-a/train.log",
    "torchrun's folders": "8811_ab12cd34/attempt_0/0/stdout.log | 8812_zz12cd34/attempt_0/0/stdout.log",
    "another's log with a known number": "slurm-8811.out dmesg-8811.log | slurm-8812.out",
    "runs": "llama-run1.log | llama-run2.log | gpt-run1.log",
    "runs with ranks": "run1_rank0.log run1_rank1.log | run2_rank0.log run2_rank1.log",
    "versions of Lightning": "version_0/train.log version_0/hparams.yaml | version_1/train.log",
    "times of start": "train_2026-01-03_12-00-00.log | train_2026-01-03_13-10-00.log",
    "times of start as folders": "2026-01-03/12-00-00/train.log | 2026-01-03/15-30-00/train.log",
    "times of start since 1970": "train_1767441600.log | train_1767459999.log",
    "runs of wandb": "run-20260103_120000-ab1/files/output.log | run-20260103_180000-cd2/files/output.log",
    "what lies beside": "slurm-8811.out | slurm-8812.out | dmesg.log syslog.log",
    "what lies in the folder of a job": "8811/rank0.log 8811/dmesg.log | 8812/rank0.log 8812/notes.txt",
    "packed": "slurm-8811.out.gz slurm-8811.err | slurm-8812.out.zst",
}


def grouped(logs: list[Log]) -> str:
    return " | ".join(" ".join(logs[number].name for number in one.logs) for one in group(logs))


@pytest.mark.parametrize("expected", SEVERAL.values(), ids=SEVERAL)
def test_several_jobs(expected: str) -> None:
    assert expected == grouped([Log(name) for name in expected.replace("| ", "").split()])


STATED = {
    "a script's echo": b"SLURM_JOB_ID=%d\n",
    "Python's environment": b"{'SLURM_JOB_ID': '%d', 'SLURM_NTASKS': '8'}\n",
    "a cancelled job": b"slurmstepd: error: *** JOB %d ON gpu01 CANCELLED AT 2026-01-03T12:00:00 DUE TO TIME LIMIT ***\n",
    "a cancelled step": b"slurmstepd-gpu01: error: *** STEP %d.0 ON gpu01 CANCELLED AT 2026-01-03T12:00:00 ***\n",
    "a queue": b"srun: job %d queued and waiting for resources\n",
    "a step": b"srun: Terminating StepId=%d.0\n",
    "PBS": b"PBS_JOBID=%d.pbs01\n",
    "LSF": b"Subject: Job %d: <train> in cluster <big> Exited\n",
    "a header": b"\x1b[1mJob ID: %d\x1b[0m\n",
}


@pytest.mark.parametrize("line", STATED.values(), ids=STATED)
def test_jobs_that_their_own_lines_tell_apart(line: bytes) -> None:
    logs = [look(f"{name}.log", b"begin\n", line % job + b"end\n") for name, job in (("a", 8811), ("b", 8811), ("c", 8812))]
    assert grouped(logs) == "a.log b.log | c.log"


def test_a_line_that_only_speaks_of_a_job_is_none() -> None:
    assert look("a.log", b"resumed from job 8811, job id: see 8812; SLURM_ARRAY_JOB_ID=3\n").stated == frozenset()


def test_tasks_of_a_job_that_are_named_like_an_array() -> None:
    tasks = [Log(f"slurm-8811_{task}.out", stated=frozenset({"8811"})) for task in range(3)]
    array = [Log(f"slurm-8811_{task}.out", stated=frozenset({str(8811 + task)})) for task in range(3)]
    assert (len(group(tasks)), len(group(array))) == (1, 3)


def test_errors_go_with_the_output_that_names_the_job() -> None:
    stated = [Log("a.out", stated=frozenset({"8811"})), Log("a.err"), Log("b.err"), Log("b.out", stated=frozenset({"8812"}))]
    assert grouped(stated) == "a.out a.err | b.err b.out"


def at(minute: int, until: int) -> tuple[bytes, bytes]:
    line = b"2026-01-03 %02d:%02d:00,123 INFO step\n"
    return line % divmod(minute, 60), line % divmod(until, 60)


@pytest.mark.parametrize(
    ("minutes", "jobs"),
    [
        ([(0, 60), (120, 180)], 2),
        ([(0, 60), (1, 59)], 1),
        ([(0, 60), (62, 180)], 1),
        ([(0, 60), (30, 90), (200, 300)], 2),
    ],
    ids=["long after each other", "at the same time", "an attempt right after", "two ranks and a later run"],
)
@pytest.mark.parametrize("name", ["train_%d.log", "none_ab12cd3%d/attempt_0/0/stderr.log", "%d/train.log"])
def test_time_tells_runs_with_like_names_apart(name: str, minutes: list[tuple[int, int]], jobs: int) -> None:
    assert len(group([look(name % number, *at(*one)) for number, one in enumerate(minutes)])) == jobs


def test_time_does_not_part_logs_with_unlike_names() -> None:
    assert len(group([look("prepare.log", *at(0, 10)), look("train.log", *at(100, 200))])) == 1


def test_what_has_no_sign_goes_with_the_job_that_ran_then() -> None:
    logs = [
        look("slurm-8811.out", *at(0, 60)),
        look("slurm-8812.out", *at(120, 180)),
        look("dmesg.log", *at(130, 140)),
        look("monitor.log", *at(10, 170)),
    ]
    assert grouped(logs) == "slurm-8811.out | slurm-8812.out dmesg.log | monitor.log"


def test_a_folder_that_lines_name_as_a_node_is_none_of_a_job() -> None:
    line = b"alpha:4711:4711 [0] NCCL INFO Bootstrap\n"
    assert len(group([look("alpha/train.log", line), look("beta/train.log", line.replace(b"alpha", b"beta"))])) == 1


def test_older_pieces_come_first() -> None:
    (only,) = group([Log(name) for name in ("train.log", "train.log.1", "train.log.10.gz", "train.log.2.gz", "x.log")])
    assert only.logs == [2, 3, 1, 0, 4]


def test_a_job_is_named_by_its_file_its_number_or_its_folder() -> None:
    names = "slurm-8811.out slurm-8811.err 8812/rank0.log 8812/rank1.log run1/rank0.log run1/rank1.log".split()
    assert [one.name for one in group([Log(name) for name in names])] == ["slurm-8811.out", "8812", "run1"]


@pytest.mark.parametrize(
    ("names", "jobs"),
    [
        ("rank0.log rank1.log", 2),
        ("a.out a.err b.out", 2),
        ("a/train.out b/train.err", 2),
        ("train.log train.log.1", 1),
        ("slurm-8811.out dmesg-8811.log", 1),
        ("run1.log run1b.log", 2),
        ("x/slurm-8811.out y/slurm-8811.out", 2),
    ],
)
def test_files_that_are_named_one_by_one_are_apart_but_for_what_is_one_log(names: str, jobs: int) -> None:
    assert len(group([Log(name) for name in names.split()], folder=False)) == jobs


def test_scripts_and_settings_beside_several_jobs_are_nobodys_logs() -> None:
    names = "slurm-8811.out slurm-8812.out train.sbatch model.yaml"
    assert grouped([Log(name) for name in names.split()]) == "slurm-8811.out | slurm-8812.out"
    assert len(group([Log(name) for name in "slurm-8811.out train.sbatch".split()])[0].logs) == 2


def test_no_logs_are_no_jobs() -> None:
    assert group([]) == []
