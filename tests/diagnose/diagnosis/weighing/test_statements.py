"""What the statements promise: what sounds like a failure is told from one."""

from __future__ import annotations

import pytest

from tests.support.logs import RAISED, job_of, report_of, said, steps


def _often(fails: int, ends: str = "", at: int = 7) -> str:
    """140 episodes of which every seventh fails, up to ``fails``."""
    return ends.join(
        f"[rollout][ERROR] episode {n} tool call failed: TimeoutError: no answer in 30s\n"
        if n % at == 0 and n <= fails
        else f"[rollout][INFO] episode {n} gave its reward\n"
        for n in range(1, 141)
    )


@pytest.mark.parametrize(
    "last",
    [
        "2026-01-02 03:04:05 FATAL [scheduler] giving up on worker group 7",
        "F0304 05:06:07.123456 4711 allreduce_engine.cc:88] ring broken",
        "thread 'main' panicked at src/loader.rs:41:10",
        "job 4711 ended with exit code 3",
        "level=fatal msg=\"fleet controller lost the lease\"",
    ],
    ids=["logger", "glog", "rust", "exit code", "logfmt"],
)  # fmt: skip
def test_error_like_last_words_are_a_failure_whoever_says_them(last: str) -> None:
    report = report_of("starting up\nloading the tokenizer\nbuilding the model\n" * 5 + last + "\n")
    assert report.outcome == "failed"
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.line >= 15  # where a launcher only says that something ended: the line before it


@pytest.mark.parametrize(
    ("log", "outcome"),
    [
        (_often(140), "healthy"),
        (_often(7) + "[rollout][ERROR] tool call failed: TimeoutError: no answer in 30s\n", "failed"),
        (
            "/opt/lib/python3.11/site-packages/lightning/loops/fetch.py:302: Couldn't infer the batch indices\n",
            "healthy",
        ),
        ("/opt/lib/python3.11/site-packages/lightning/loops/fetch.py:302: RuntimeError: bad batch\n", "failed"),
        (
            "".join(f"INFO {{ContextHandler}} Stopped o.s.j.s.Servlet@{n:x}f{{/{n},null,UNAVAILABLE}}\n" for n in range(9)),
            "healthy",
        ),
        (
            f"{steps(1, 40)}ERROR shard 2 failed: HTTP 503 (attempt 1/5)\nshard 2 is here\nshards are ready\nall read\n",
            "healthy",
        ),
        (f"{steps(1, 40)}ERROR shard 2 failed: HTTP 503 (attempt 5/5)\nshard 2 is lost\n", "failed"),
        ("stopping early: EarlyStopping, patience exhausted at epoch 15\nTest accuracy: 0.88\n", "healthy"),
        ("开始训练\n错误：无法打开文件 /data/train.bin\n", "failed"),
        ("开始训练\n错误: 0, 失败: 0\n", "healthy"),
        ("Lade Daten\nFehler: Datei nicht gefunden: /daten/train.bin\n", "failed"),
        ("kernel: NVRM: GPU 0000:3b:00.0: reset or reboot required\n", "failed"),
    ],
    ids=[
        "errors among work",
        "errors where work ends",
        "a library's warning without a class",
        "a library's error",
        "lines that begin alike",
        "a try of five",
        "the last try of five",
        "an early stop",
        "Chinese",
        "Chinese counts of none",
        "German",
        "a device that wants a reset",
    ],
)
def test_what_sounds_like_a_failure_is_told_from_one(log: str, outcome: str) -> None:
    assert report_of(log).outcome == outcome


@pytest.mark.parametrize(("between", "possible"), [(8, True), (9, False)])
def test_a_line_of_a_list_of_possibilities_speaks_less_while_the_list_lasts(between: int, possible: bool) -> None:
    """That is for nine lines behind its head."""
    items = "amber birch cedar dune ember fjord grove heath islet".split()[:between]
    job = job_of("Possible causes:\n" + "".join(f"  - {word}\n" for word in items) + "  - Connection refused\n")
    (said,) = (one for one in job.finding(job.evidence()).weighed if one.reason == "connection_error")
    assert ("listed" in said.signals) == possible


def test_a_warning_of_the_interpreter_explains_no_exception() -> None:
    warning = (
        "/lib/torch/cuda/__init__.py:141: UserWarning: CUDA initialization: CUDA unknown error\n  return torch._C._cuda()\n"
    )
    assert said(warning + RAISED.format(what="IndexError: too many indices for tensor of dimension 2"))[0] == "index_error"


def test_what_an_interpreters_warning_says_in_more_lines_is_the_warning() -> None:
    told = "In addition, using fork() is a recipe for\ndeadlocks and crashes.\n"
    warning = "/usr/lib/python3.10/popen_fork.py:66: RuntimeWarning: Using fork() can cause a deadlock.\n" + told
    assert report_of("serving\n" * 3 + warning + "  self.pid = os.fork()\n").outcome == "healthy"
    assert report_of("serving\n" * 3 + told).outcome == "failed"


def test_a_cause_that_is_only_listed_is_not_the_reason() -> None:
    report = report_of(
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker exit type:"
        " SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."
        " Some common causes include: (1) the process was killed by the OOM killer due to high memory usage,"
        " (2) ray stop --force was called.\n"
    )
    assert report.diagnosis.reason == "native_crash"


def _signals(log: str) -> dict[str, set[str]]:
    """reason -> what speaks for and against it"""
    job = job_of(log)
    return {one.reason: set(one.signals) for one in job.finding(job.evidence()).weighed}


def test_a_symptom_states_an_exit_status_only_where_its_line_has_one() -> None:
    cleaned = "NVRM: Xid (PCI:0000:07:00): 45, pid=4711, name=python, Ch 00000008\n"
    assert "exit_status" not in _signals(cleaned)["cuda_error"]
    assert "exit_status" in _signals(cleaned.replace("Ch 00000008", "exited with exit code 1"))["cuda_error"]


def test_what_a_rule_knows_is_no_prose_also_while_the_kernel_starts() -> None:
    boot = "".join(f"[    {n}.123456] pci 0000:00:{n:02d}.0: enabling device\n" for n in range(3, 9))
    lost = "[    9.123456] nvidia 0000:3b:00.0: AER: can't recover (no error_detected callback)\n"
    assert "prose" not in _signals(boot + lost)["gpu_fell_off_bus"]
    assert "prose" in _signals(boot + "[    9.123456] zorch: the link has failed\n" + boot)["unknown"]


@pytest.mark.parametrize("mark", ["", "<3>"], ids=["dmesg", "dmesg --raw"])
def test_what_a_service_prints_among_the_kernels_lines_is_not_the_jobs(mark: str) -> None:
    calm = "".join(f"{mark}[    {n}.185529] tps6591x: regulator {n} is on\n" for n in range(1, 10))
    service = f"{mark}[   12.856555] init: /init.rc: 473: invalid option '-iwlan0'\n"
    xid = f"{mark}[   13.670000] NVRM: Xid (PCI:0000:8a:00): 79, pid=4105, name=python, GPU has fallen off the bus.\n"
    later = "".join(f"{mark}[   4{n}.185529] cpu-tegra: CPU{n} is booted\n" for n in range(9))
    assert said(calm + service + later)[0] == "healthy"
    assert said(calm + service + xid + later)[0] == "gpu_fell_off_bus"
    assert said(service.removeprefix(mark).split("] ")[1])[0] == "argument_error"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("[  812.670000] python[4105]: segfault at 0 ip 00007f error 4 in libtorch.so[7f0000+1000]\n", "native_crash"),
        ("building\nERROR: could not build the kernel: ModuleNotFoundError: No module named 'ninja'\n", "import_error"),
        ("[6.103371] loading\n[6.203371] train.py: error: unrecognized arguments: --lrr\n", "argument_error"),
    ],
    ids=["the kernel of a program", "a kernel of another kind", "what stamps the lines of a job"],
)
def test_what_is_about_a_program_stays_a_failure_beside_a_kernel(log: str, reason: str) -> None:
    assert said(log)[0] == reason


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("Unable to init server: Could not connect: Connection refused", "healthy"),
        (
            "(train.py:28): Gdk-CRITICAL **: 09:50:03.229: gdk_cursor_new: assertion 'GDK_IS_DISPLAY (display)' failed",
            "healthy",
        ),
        ("(train.py:28): Gdk-CRITICAL **: cannot load module torch: out of memory", "failed"),
        ("Unable to init server: Could not connect: rendezvous store at node7:29500 refused", "failed"),
    ],
)
def test_a_window_without_a_screen_is_no_failure(line: str, outcome: str) -> None:
    assert report_of(f"reading the settings\n{line}\n").outcome == outcome
