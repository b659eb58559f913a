"""What the weighing promises: healthy is a finding, what ended a process needs a new start, and every signal has a sign."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.decision.advice import advise
from diagnose.decision.policy_file import shipped_policy
from diagnose.decision.signals import accuses
from diagnose.diagnosis import weighing
from diagnose.diagnosis.calibration import Calibration
from diagnose.diagnosis.candidates import transport_level
from diagnose.diagnosis.doubt import NO_END
from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.explain import answer_kind
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.likeness import likeness
from diagnose.diagnosis.signals import BY_NAME, SIGNALS
from diagnose.diagnosis.weighing import by_kernel
from diagnose.diagnosis.weights import read, shipped_weights, spread
from diagnose.errors import RuleError
from diagnose.knowledge import shipped
from diagnose.knowledge.taxonomy import read as read_taxonomy
from diagnose.knowledge.taxonomy import shipped_taxonomy
from tests.support.logs import job_of, report_of, said, steps

RAISED = 'Traceback (most recent call last):\n  File "/app/train.py", line 9, in <module>\n{what}\n'


# --- healthy is a finding ---------------------------------------------------------------------------------------------


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


BEGUN = 'Traceback (most recent call last):\n  File "/app/train.py", line 9, in <module>\n    run()\n'


@pytest.mark.parametrize(
    ("log", "reason", "line"),
    [
        # A worker's header names the class, and its own traceback is cut.
        (
            f"{BEGUN}ConnectionError: Caught ConnectionError in DataLoader worker process 8.\nOriginal {BEGUN}",
            "connection_error",
            4,
        ),
        # What followed from an exception is cut.
        (
            f"{BEGUN}KeyError: 'x'\n\nThe above exception was the direct cause of the following exception:\n\n{BEGUN}",
            "key_error",
            4,
        ),
        # The line of the exception is lost; the line of the program that raised it is there.
        (BEGUN + '  File "/app/model.py", line 3, in run\n    raise ValueError(\n', "value_error", 5),
    ],
)
def test_what_a_cut_traceback_still_tells(log: str, reason: str, line: int) -> None:
    report = report_of(log)
    assert report.diagnosis.reason == reason
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.line == line


def test_a_traceback_that_the_end_of_the_log_cut_off_is_a_failure() -> None:
    report = report_of(
        steps(1, 30) + 'Traceback (most recent call last):\n  File "/app/train.py", line 9, in <module>\n    main()\n'
    )
    assert (report.outcome, report.diagnosis.reason) == ("failed", "unknown")
    assert any("within the traceback" in sentence for sentence in report.diagnosis.doubt)


def test_a_bar_that_never_moved_is_no_progress_behind_the_death_of_a_process() -> None:
    full = RAISED.format(what="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.")
    log = "".join(
        "".join(f"[rank{rank}]: {line}\n" for line in full.splitlines())
        + f"[rank{rank}]:   0%|          | 0/1000 [00:29<?, ?it/s]\n"
        for rank in range(8)
    )
    assert (report_of(log).outcome, report_of(log).diagnosis.reason) == ("failed", "out_of_memory")
    anew = "".join(f"{n / 10:.0f}%|#         | {n}/1000 [00:29<01:00, 2.0it/s, loss=2.1]\n" for n in range(1, 60))
    assert report_of(log + anew).outcome == "healthy"


@pytest.mark.parametrize(("ranks", "failed"), [(8, True), (1, False)])
def test_what_each_rank_says_once_is_not_said_often(ranks: int, failed: bool) -> None:
    said = "Status message: 1 worker(s) were killed due to the node running low on memory."
    tail = "".join(f"[rank{n % 8}]: {n} 0.{n} python -m ray.util.client.server\n" for n in range(40))
    log = "".join(f"[rank{n % ranks}]: {said}\n" for n in range(8)) + tail
    assert (report_of(log).outcome == "failed") is failed


def test_what_good_runs_print_too_begins_no_attempt() -> None:
    lost = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    job = job_of(steps(1, 30) + lost)
    assert job.report().diagnosis.reason == "gpu_fell_off_bus"
    job.learn(job_of(steps(1, 30) + lost))
    report = job.report()
    assert (report.outcome, report.job.attempt) == ("healthy", 1)


def test_a_program_that_ends_well_says_nothing_of_its_numbers() -> None:
    losses = [1 / (n + 1) + 0.1 * (n % 3) for n in range(120)] + [3000.0 * n for n in range(120, 160)]
    spiked = "".join(f"step: {n} | loss: {loss:.6f} | lr: 0.02\n" for n, loss in enumerate(losses))
    report = report_of(spiked + "training finished\n")
    assert (report.outcome, report.diagnosis.reason) == ("failed", "loss_anomaly")


STARTED = "starting up\nloading the tokenizer\nbuilding the model\n"


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("zorch: a label is missing\nmerging what is there\nclosing the writers\nrun complete, total time 33 s\n", "healthy"),
        ("zorch: a label is missing\nmerging what is there\nclosing the writers\n", "failed"),
        ("zorch: a label is missing\n" + "".join(f"taking part {n} of the cake\n" for n in range(6)), "healthy"),
        ("zorch: a label is missing\n" + "taking part of the cake\n" * 6, "failed"),
        ("zorch: crashed, exit code 3\nrun complete, total time 33 s\n", "failed"),
    ],
    ids=["says that it is done", "says nothing", "counts on", "repeats itself", "a script goes on after a death"],
)
def test_trouble_is_overcome_by_work_that_is_completed(end: str, outcome: str) -> None:
    assert report_of(STARTED + end).outcome == outcome


@pytest.mark.parametrize("lead", ["Error in atexit._run_exitfuncs:", "--- Logging error ---"])
def test_a_traceback_that_python_only_shows_ended_nothing(lead: str) -> None:
    shown = RAISED.format(what="ValueError: I/O operation on closed file").replace("<module>", "shutdown")
    assert report_of(f"{STARTED}{lead}\n{shown}").outcome == "healthy"


def test_of_one_message_the_line_that_says_plainly_what_failed_is_shown() -> None:
    report = report_of(STARTED + "error: zorch did not come\nzorch: could not connect to the frobnicator\n")
    assert report.diagnosis.reason == "connection_error"


@pytest.mark.parametrize("raised", [True, False], ids=["raised", "logged"])
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("RuntimeError: the engine at 10.0.0.4:80 is not healthy after 60 s", "connection_error"),
        ("OSError: timed out trying to connect to the frobnicator", "connection_error"),
        ("RuntimeError: the frobnicator is unhappy", "runtime_error"),
        ("KeyError: 'could not connect'", "key_error"),
    ],
)
def test_the_message_says_what_failed_if_the_class_says_nothing(what: str, reason: str, raised: bool) -> None:
    line = RAISED.format(what=what) if raised else f"{what}\n"
    assert report_of(STARTED + line).diagnosis.reason == reason


def test_what_an_exception_says_again_was_said_first_by_the_line_before_it() -> None:
    said_first = "E0102 03:04:05.678901 27487 pjrt_stream_executor_client.cc:2826] Execution of replica 0 failed: {}\n"
    words = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2110783616 bytes."
    log = said_first.format(words) + RAISED.format(what=f"ValueError: {words}")
    assert report_of(log).diagnosis.root_cause.line == 1  # type: ignore[union-attr]


def test_a_message_below_a_summary_explains_a_bare_memory_error() -> None:
    """Paddle raises MemoryError without a word, and says below the C++ stack that it was the device's memory."""
    summary = (
        "\n--------\nC++ Traceback (most recent call last):\n--------\n0   paddle::add()\n\n--------\nError Message Summary:\n"
    )
    summary += (
        "--------\nResourceExhaustedError: \n\nOut of memory error on GPU 1. Cannot allocate 4.88GB memory on GPU 1, 19.9GB"
    )
    log = RAISED.format(what="MemoryError: ") + summary + " memory has been allocated and available memory is only 3.73GB.\n"
    assert said(log)[0] == "out_of_memory"
    assert said(RAISED.format(what="MemoryError: "))[0] == "host_out_of_memory"


@pytest.mark.parametrize(
    "line",
    [
        "[{step}/60] train_loss {loss} acc 0.3",
        "epoch 1 step {step}/60 loss {loss} lr 0.0100",
        "Epoch {step}: Loss = {loss}",
        "INFO:root:[step {step}/60] avg_loss {loss}",
        "2026-01-02 03:04:05,678 - INFO - __main__ - step {step}/60 loss: {loss}",
    ],
)
def test_a_loss_that_is_no_number_to_the_last_step_is_no_good_end(line: str) -> None:
    log = "".join(line.format(step=step, loss=f"{2 / step:.4f}" if step < 15 else "nan") + "\n" for step in range(1, 61))
    assert said(log)[0] == "loss_anomaly"
    assert report_of(log.replace("nan", "0.1212")).outcome == "healthy"


def test_steps_of_a_list_of_things_to_do_are_no_progress() -> None:
    said_so = "The log shows no step, no loss and no progress bar."
    things = ("load the data", "train the tokenizer", "build the model", "check it 4 times")
    log = "".join(f"INFO:root:Step {number}: {what}\n" for number, what in enumerate(things, 1))
    assert said_so in report_of(log).diagnosis.doubt
    assert said_so not in report_of(log + "".join(f"INFO:root:Step {n}: loss {2 / n}\n" for n in range(1, 9))).diagnosis.doubt


def test_a_quiet_log_is_healthy_and_says_what_it_has_not_seen() -> None:
    report = report_of(steps(1, 60))
    assert (report.outcome, report.diagnosis.reason) == ("healthy", "healthy")
    assert NO_END in report.diagnosis.doubt


def _often(fails: int, ends: str = "", at: int = 7) -> str:
    """140 episodes of which every seventh fails, up to ``fails``."""
    return ends.join(
        f"[rollout][ERROR] episode {n} tool call failed: TimeoutError: no answer in 30s\n"
        if n % at == 0 and n <= fails
        else f"[rollout][INFO] episode {n} gave its reward\n"
        for n in range(1, 141)
    )


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


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (f"{steps(1, 40)}Killed\n", "unknown"),
        (f"{steps(1, 40)}host memory: 99 % used\nKilled\n", "host_out_of_memory"),
        ("Loading the model\nKilled\n", "host_out_of_memory"),
    ],
    ids=["amid the work", "memory is spoken of", "at the start"],
)
def test_a_sigkill_amid_the_work_says_only_that(log: str, reason: str) -> None:
    diagnosis = report_of(log).diagnosis
    assert (diagnosis.reason, diagnosis.root_cause and diagnosis.root_cause.text) == (reason, "Killed")
    assert reason != "unknown" or [one.reason for one in diagnosis.alternatives][:2] == ["host_out_of_memory", "preempted"]


def test_the_page_names_every_signal() -> None:
    page = (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text("utf-8")
    assert [
        one.name for one in SIGNALS if f"| `{one.name}` | {'+' if one.weight > 0 else '−'} | {one.says} |" not in page
    ] == []


@pytest.mark.parametrize(
    "line",
    ["val: 0 errors, 0 failed", "retrying in 3 s after a failed upload", "error: 0.0123 at epoch 3"],
)
def test_words_of_failure_that_take_themselves_back_are_none(line: str) -> None:
    assert not likeness(line, line).words


@pytest.mark.parametrize(("between", "possible"), [(8, True), (9, False)])
def test_a_line_of_a_list_of_possibilities_speaks_less_while_the_list_lasts(between: int, possible: bool) -> None:
    """That is for nine lines behind its head."""
    items = "amber birch cedar dune ember fjord grove heath islet".split()[:between]
    job = job_of("Possible causes:\n" + "".join(f"  - {word}\n" for word in items) + "  - Connection refused\n")
    (said,) = (one for one in job.finding(job.evidence()).weighed if one.reason == "connection_error")
    assert ("listed" in said.signals) == possible


# --- what ended a process is overcome by a new start only -------------------------------------------------------------


def test_two_late_iterations_do_not_overcome_a_time_limit() -> None:
    end = "slurmstepd: error: *** JOB 881234 ON gpu001 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n"
    assert said(steps(1, 30) + end + steps(31, 33))[0] == "preempted"


def test_ranks_that_print_on_do_not_overcome_the_one_that_raised() -> None:
    assert said(steps(1, 30) + RAISED.format(what="KeyError: 'x'") + steps(31, 35))[0] == "key_error"


def test_steps_that_fall_back_are_a_new_start() -> None:
    report = report_of(steps(1, 30) + RAISED.format(what="KeyError: 'x'") + steps(21, 60))
    assert (report.outcome, report.job.attempt) == ("healthy", 2)
    twice = report_of(
        steps(1, 30) + RAISED.format(what="KeyError: 'x'") + steps(21, 60) + RAISED.format(what="KeyError: 'y'") + steps(51, 90)
    )
    assert (twice.outcome, twice.job.attempt) == ("healthy", 3)


def test_what_python_held_back_until_its_exit_is_no_new_start() -> None:
    """Standard output into a file comes in buffers of 8 KiB, the last of them behind the traceback."""
    raised = RAISED.format(what="KeyError: 'x'")
    report = report_of("loading shard 3\n" + raised + steps(1, 30))
    assert (report.diagnosis.reason, report.diagnosis.step, report.job.attempt) == ("key_error", 30, 1)
    assert (
        said(raised + "reading the data\n" + steps(1, 30) + "srun: error: n1: task 0: Exited with exit code 1\n")[0]
        == "key_error"
    )
    assert said(steps(1, 200) + raised + steps(201, 250))[0] == "key_error"


@pytest.mark.parametrize(
    "later",
    [
        steps(1, 600),
        steps(1, 30) + "Training completed.\n",
        "".join(f"step {step}/30 loss 2.1\n" for step in range(1, 31)),
        steps(1, 30, clock="2026-01-02 03:04:05"),
        "".join(f"INFO step {step} loss 2.1\n" for step in range(1, 60)),
        "".join(f"{step}%|#  | {step}/100 [00:01<00:02, 2.0it/s, loss=2.1]\n" for step in range(1, 60)),
    ],
    ids=["more than a buffer", "a good end", "the last step", "with time stamps", "by a logger", "a bar"],
)
def test_what_was_not_held_back_is_a_new_start(later: str) -> None:
    assert report_of(RAISED.format(what="KeyError: 'x'") + later).outcome == "healthy"


# --- what is no evidence ----------------------------------------------------------------------------------------------


def test_a_warning_of_the_interpreter_explains_no_exception() -> None:
    warning = (
        "/lib/torch/cuda/__init__.py:141: UserWarning: CUDA initialization: CUDA unknown error\n  return torch._C._cuda()\n"
    )
    assert said(warning + RAISED.format(what="IndexError: too many indices for tensor of dimension 2"))[0] == "index_error"


def test_a_level_that_every_line_carries_is_the_transports() -> None:
    job = job_of("".join(f"svc ERROR the worker says {n} of many things\n" for n in range(40)))
    events = job.evidence().events
    assert transport_level(events, job.compression) == "error"
    assert transport_level(events[:5], job.compression) is None
    mixed = job_of("".join(f"svc {'INFO' if n % 8 == 7 else 'ERROR'} the worker says {n} of many things\n" for n in range(40)))
    assert transport_level(mixed.evidence().events, mixed.compression) is None


def test_the_errno_that_a_fabric_prints_is_the_fabrics() -> None:
    log = "[gpu-3:4711] UCX  ERROR   ibv_create_qp(mlx5_0) failed: OSError: [Errno 5] Input/output error\n"
    assert said(log)[0] == "network_error"


# --- the report says what else it may be, and what is missing ---------------------------------------------------------


def test_alternatives_stand_without_the_answer_best_first() -> None:
    report = report_of(RAISED.format(what="KeyError: 'x'") + RAISED.format(what="ValueError: bad shard"))
    reasons = [one.reason for one in report.diagnosis.alternatives]
    assert report.diagnosis.reason not in reasons
    assert "value_error" in reasons
    told = [one.confidence for one in report.diagnosis.alternatives]
    assert told == sorted(told, reverse=True)
    assert sum(told) + report.diagnosis.confidence <= 1.01


def test_a_failure_is_no_consequence_of_itself() -> None:
    job = job_of(RAISED.format(what="KeyError: 'x'"))
    finding = job.finding(job.evidence())
    assert finding.root is not None
    assert (finding.others, finding.consequences) == ([], [])


def test_told_that_the_job_failed_a_quiet_log_is_not_called_healthy() -> None:
    job = job_of(steps(1, 30))
    job.exit_code = 9
    report = job.report()
    assert (report.outcome, report.diagnosis.reason) == ("failed", "unknown")


# --- whose fault ------------------------------------------------------------------------------------------------------


def test_the_faults_own_line_names_the_node_before_a_neighbour_does() -> None:
    log = (
        "2m31s  Normal  NodeReady  node/ip-10-0-100-214.ec2.internal  Node ip-10-0-100-214 status is now: NodeReady\n"
        "2m23s  Normal  NodeNotReady  node/ip-10-0-101-136.ec2.internal  Node ip-10-0-101-136 status is now: NodeNotReady\n"
    )
    report = report_of(log)
    assert report.diagnosis.reason == "node_failure"
    assert report.action.nodes == ["ip-10-0-101-136.ec2.internal"]


def test_a_peer_that_a_connection_names_is_not_isolated() -> None:
    log = (
        "gpu-12:4103:5203 [3] NCCL WARN NET/IB : Got completion from peer 10.8.0.14<41212> with status=12 opcode=0 len=0"
        " vendor err 129 (Recv)\n"
    )
    for before, kind in (("", "fix_config"), (steps(1, 30), "restart")):
        report = report_of(before + log)
        assert (report.diagnosis.reason, report.action.kind, report.action.nodes) == ("network_error", kind, [])


def test_a_loop_back_address_is_no_suspect() -> None:
    report = report_of(steps(1, 30) + "NCCL WARN Net : Connection closed by remote peer 127.0.0.1<41212>\n")
    assert report.diagnosis.suspects.nodes == []


# --- a site's own reason ----------------------------------------------------------------------------------------------


@pytest.fixture
def own_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A few of the shipped rules, with a reason of a site's own, which is a machine's."""
    folder = tmp_path / "rules"
    real = shipped.folder("rules")
    others = [path.name for path in real.glob("*/*.yaml") if path.name not in ("python.yaml", "megatron.yaml")]
    shutil.copytree(real, folder, ignore=shutil.ignore_patterns(*others))
    taxonomy = folder / "taxonomy.yaml"
    text = taxonomy.read_text().replace("infrastructure: [", "infrastructure: [cooling_error, ")
    text = text.replace("  machine: [", "  machine: [cooling_error, ")
    taxonomy.write_text(text)
    policy = folder / "policy.yaml"
    policy.write_text(
        policy.read_text().replace(
            "\nactions:\n", "\nactions:\n  cooling_error: {kind: isolate_and_restart, why: 'The node is too hot.'}\n"
        )
    )
    monkeypatch.setattr(shipped, "folder", lambda name: folder if name == "rules" else real.parent / name)
    shipped_taxonomy.cache_clear()
    shipped_policy.cache_clear()
    yield folder
    monkeypatch.undo()
    shipped_taxonomy.cache_clear()
    shipped_policy.cache_clear()


def test_a_sites_own_reason_works_through_diagnosis_decision_and_isolation(own_rules: Path) -> None:
    from diagnose.job import Job
    from diagnose.knowledge.rules import load
    from diagnose.matching.matcher import Matcher
    from diagnose.reading.sources import Source

    (own_rules / "failures" / "site.yaml").write_text(
        "layer: hardware\nprinted_by: the site's chillers\nreference: https://site.example/chillers\nrules:\n"
        "  - id: chiller\n    reason: cooling_error\n    severity: fatal\n    title: The chiller of a node failed\n"
        "    pattern: 'CHILLER: node (?P<node>[\\w-]+) over temperature'\n    mitigation: Call the site.\n"
        "    examples:\n      matches: ['CHILLER: node gpu-7 over temperature']\n      misses: ['CHILLER: all well']\n"
    )
    job = Job("job", [Source("log", None)], Matcher(load([own_rules])))
    job.feed(0, (steps(1, 30) + "CHILLER: node gpu-7 over temperature\n" + RAISED.format(what="KeyError: 'x'")).encode())
    job.close(0)
    report = job.report()
    assert (report.diagnosis.category, report.diagnosis.reason) == ("infrastructure", "cooling_error")
    assert (report.action.kind, report.action.nodes) == ("isolate_and_restart", ["gpu-7"])
    assert accuses("cooling_error")
    assert advise(job.finding(job.evidence()), shipped_policy()).nodes == ["gpu-7"]


def test_a_property_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    text = (shipped.folder("rules") / "taxonomy.yaml").read_text()
    path = tmp_path / "taxonomy.yaml"
    path.write_text(text.replace("properties:\n", "properties:\n  mahcine: [ecc_error]\n"))
    with pytest.raises(RuleError, match="mahcine"):
        read_taxonomy(path)


# --- the weights ------------------------------------------------------------------------------------------------------


def test_shipped_weights_name_every_signal_and_keep_their_signs() -> None:
    data = json.loads((shipped.folder("rules") / "weights.json").read_text())
    assert set(data["weights"]) == set(BY_NAME)
    for signal in SIGNALS:
        assert data["weights"][signal.name] * signal.weight >= 0


def test_a_weight_of_the_wrong_sign_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    path.write_text('{"weights": {"echo": 1.0}, "calibration": {"slope": 1.0, "offsets": {}, "ceiling": 0.99}}')
    with pytest.raises(RuleError, match="echo"):
        read(path)


def test_probabilities_sum_to_one_and_are_the_sums_of_the_weights() -> None:
    job = job_of(RAISED.format(what="KeyError: 'x'"))
    weighed = job.finding(job.evidence()).weighed
    weights = shipped_weights()
    assert sum(one.probability for one in weighed) == pytest.approx(1.0)
    for one in weighed:
        assert one.score == pytest.approx(sum(weights.of[name] * value for name, value in one.signals.items()))
    nothing: list[Hypothesis] = []
    spread(nothing, weights)


def test_confidence_rises_with_the_odds_within_a_kind() -> None:
    calibration = Calibration(0.5, {"line": -1.0}, 0.98)
    said = [calibration.confidence(p, "line") for p in (0.1, 0.5, 0.9, 1.0)]
    assert said == sorted(said)
    assert said[-1] <= 0.98


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("job ended with exit code 3", True),
        ("worker 7 exited with status 137", True),
        ("main: return code = 2", True),
        ("process 4711 was killed by signal 9", True),
        ("exited with code 0", False),
        ("They ended with 90 - 27 = 63 muffins", False),
        ("finished 45 of 90 files", False),
    ],
)
def test_an_exit_status_is_one_that_a_program_gave(line: str, ends: bool) -> None:
    assert likeness(line, line).exit == int(ends)


# --- software that nobody wrote rules for -----------------------------------------------------------------------------


def test_a_line_that_no_rule_knows_is_named_by_its_words_and_no_node_is_isolated_for_it() -> None:
    report = report_of("starting zorch 0.3\nERROR zorchd on node gpu-7: uncorrectable error in arena 3, giving up\n")
    assert (report.outcome, report.diagnosis.reason, report.diagnosis.by) == ("failed", "ecc_error", "none")
    assert report.action.nodes == []


def test_an_error_from_which_the_next_line_falls_back_is_overcome() -> None:
    log = (
        "ERROR - zorch: Failed to initialize the fast path\nINFO - zorch: Falling back to the slow path\n"
        + "INFO - working\n" * 12
    )
    assert report_of(log).outcome == "healthy"


def test_a_thing_that_is_back_is_no_failure() -> None:
    log = "WARN zorch: connection to shard-0007 was lost\n" + "INFO working\n" * 3 + "INFO zorch: shard-0007 reconnected\n"
    assert report_of(log + "INFO working\n" * 3).outcome == "healthy"
    other = job_of(log.replace("shard-0007 reconnected", "shard-0009 reconnected") + "INFO working\n" * 3)
    assert "well_again" not in {name for one in other.finding(other.evidence()).weighed for name in one.signals}


def test_overflows_to_the_floor_are_an_anomaly_and_a_few_are_not() -> None:
    def run(scales: list[float]) -> str:
        return "".join(f"| WARNING: overflow detected, setting loss scale to: {scale}\n" for scale in scales)

    assert report_of(run([2.0**-n for n in range(12)])).diagnosis.reason == "loss_anomaly"
    assert report_of(run([2.0**-n for n in range(12)] + [2.0**-11] * 12)).diagnosis.reason == "loss_anomaly"
    assert report_of(run([2.0**n for n in range(16, 4, -1)])).outcome == "healthy"
    few = [1.0, 0.5, 0.25, 0.125]
    assert report_of(run(few) + steps(1, 5) + run(few)).outcome == "healthy"  # two short rows are not one long row
    assert report_of(run(few + few)).outcome == "healthy"  # it rose again


def test_a_node_that_says_it_was_taken_for_dead_by_mistake_stays_in() -> None:
    dead = "The node with node id: 9b1c22 and address: 10.1.0.14 and node name: 10.1.0.14 has been marked dead"
    dead += " because the detector has missed too many heartbeats from it.\n"
    alive = "[Timeout] Exiting because this node manager has mistakenly been marked as dead by the GCS: health check failed\n"
    assert report_of(dead).action.nodes == ["10.1.0.14"]
    assert report_of(dead + alive).action.nodes == []


# --- stops ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("=>> PBS: job killed: walltime 28871 exceeded limit 28800", "preempted"),
        ("slurmstepd: error: *** JOB 4711 ON gpu-01 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***", "preempted"),
    ],
)  # fmt: skip
def test_a_time_limit_is_no_work_of_a_small_error_before_it(stop: str, reason: str) -> None:
    small = "/var/spool/pbs/mom_priv/jobs/4711.SC: line 276: /work/hosts_4711.txt: No such file or directory\n"
    assert report_of(small + steps(1, 30) + stop + "\n").diagnosis.reason == reason


# --- work that no rule knows ------------------------------------------------------------------------------------------

_DEAD = RAISED.format(what="AttributeError: 'Reader' object has no attribute 'size'")


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("[train] it {n} of 900: took 3{n}.1 ms, cost {n}.7", "healthy"),
        ("[rank3]: [train] it {n} of 900: took 3{n}.1 ms, cost {n}.7", "failed"),
        ("[main] closed handler {n} of the web page, port 90{n}", "failed"),
        ("[train] worker {n} says goodbye after 31.5 s", "failed"),
        ("[main] 4711 waits, 12.5 s", "failed"),
    ],
    ids=["work", "ranks", "handlers", "workers", "waiting"],
)
def test_lines_that_count_up_behind_a_death_are_a_new_run_and_farewells_are_not(line: str, outcome: str) -> None:
    report = report_of(_DEAD + "".join(line.format(n=n) + "\n" for n in range(100, 400)))
    assert report.outcome == outcome


def test_work_that_ended_before_the_log_does_is_no_new_run() -> None:
    work = "".join(f"[train] it {n} of 900: took 3{n}.1 ms, cost {n}.7\n" for n in range(100, 200))
    assert report_of(_DEAD + work + "nothing more\n" * 20).outcome == "failed"


# --- quoted tracebacks ------------------------------------------------------------------------------------------------


def test_an_exception_whose_message_quotes_a_traceback_with_escaped_line_ends_is_read() -> None:
    quoted = (
        "KeyError: 'DataLoader worker(1) caught KeyError with message:\\nTraceback (most recent call last):\\n  File \"a.py\"'"
    )
    thread = "Exception in thread Thread-2:\n" + RAISED.format(what=quoted)
    late = RAISED.format(what="SystemError: (Fatal) Blocking queue is killed because the data reader raises an exception.")
    report = report_of(thread + late)
    assert report.diagnosis.reason == "key_error"
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.line == 4


def test_a_job_whose_regular_lines_counted_up_did_not_fail_before_the_first_step() -> None:
    work = "".join(f"[train] it {n} of 900: took 3{n}.1 ms, cost {n}.7\n" for n in range(100, 200))
    assert report_of(work + _DEAD).diagnosis.phase == "training"
    assert "before the first step" not in report_of(work + _DEAD).diagnosis.summary
    assert report_of("loading\n" * 100 + _DEAD).diagnosis.phase == "start-up"


RUN = "\n".join(f"Architecture of the network, part {name}" for name in "ABCDEFGHIJ") + "\n"
AGAIN = "\n".join(f"what is evaluated, {name}" for name in "ABCDEFGH") + "\n"
ENDED = RAISED.format(what="AssertionError: Given dir x/best.pdparams not exist.")


@pytest.mark.parametrize(
    ("log", "outcome"),
    [
        (RUN + ENDED + RUN + AGAIN, "healthy"),
        (RUN + ENDED + AGAIN, "failed"),
        (RUN + RUN + ENDED + RUN + AGAIN, "failed"),
        ("[rank0]: " + RUN + ENDED + RUN + AGAIN, "failed"),
    ],
    ids=["called again", "went on elsewhere", "two ranks in one file", "ranks are named"],
)
def test_a_run_whose_own_lines_stand_again_behind_its_failure_was_started_anew(log: str, outcome: str) -> None:
    assert report_of(log).outcome == outcome


@pytest.mark.parametrize(
    ("behind", "outcome"),
    [
        ("".join(f"reading part {n} of the table {n * 7 % 13}\n" for n in range(120)), "healthy"),
        ("reading the table\n" * 5, "failed"),
        ("".join(f"reading part {n} of the table {n * 7 % 13}\n" for n in range(120)) + ENDED, "failed"),
    ],
    ids=["much", "little", "a failure"],
)
def test_a_helper_of_a_script_that_fails_is_overcome_by_what_follows(behind: str, outcome: str) -> None:
    report = report_of("mkdir: cannot create directory '/data/out': Permission denied\n" + behind)
    assert report.outcome == outcome
    if "Assertion" in behind:
        assert report.diagnosis.reason == "assertion_error"


@pytest.mark.parametrize(("code", "outcome"), [("0", "healthy"), ("3", "failed")])
def test_who_leaves_with_0_has_not_failed(code: str, outcome: str) -> None:
    assert report_of("serving\n" * 3 + RAISED.format(what=f"SystemExit: {code}")).outcome == outcome


def test_what_an_interpreters_warning_says_in_more_lines_is_the_warning() -> None:
    told = "In addition, using fork() is a recipe for\ndeadlocks and crashes.\n"
    warning = "/usr/lib/python3.10/popen_fork.py:66: RuntimeWarning: Using fork() can cause a deadlock.\n" + told
    assert report_of("serving\n" * 3 + warning + "  self.pid = os.fork()\n").outcome == "healthy"
    assert report_of("serving\n" * 3 + told).outcome == "failed"


def test_a_clock_of_a_library_is_not_the_kernels() -> None:
    def kernels(line: str) -> bool:
        return by_kernel(Hypothesis(Event(0, 0, 1, line, -1, 0), None, "unknown", 0, False, False))

    assert not kernels("[1620306933.125286] [b-an01:921717:0]  ib_md.c:1140 UCX  ERROR the device failed")
    assert kernels("[ 6933.125286] mlx5_core 0000:01:00.0: the device failed")


def test_a_task_that_crashed_explains_who_tells_that_it_is_gone() -> None:
    crashed = "srun: error: gpu003: task 15: Segmentation fault"
    told = (
        "2023-03-07 16:06:30.684022: E external/tsl/coordination_service.cc:956] /job:jax_worker/replica:0/task:15 "
        "has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:15 heartbeat timeout."
    )
    assert report_of(f"loading\n{crashed}\n{told}\n").diagnosis.reason == "native_crash"
    assert report_of(f"loading\n{told}\n{crashed}\n").diagnosis.reason == "nccl_remote_error"


def test_a_record_of_many_lines_that_its_logger_calls_a_warning_is_no_wrapper() -> None:
    lead = "[2026-01-02 03:04:05,925] torch._dynamo.convert_frame: [WARNING]"
    handled = [
        "WON'T CONVERT forward model.py line 126",
        "due to:",
        "Traceback (most recent call last):",
        '  File "/opt/torch/_dynamo/utils.py", line 1397, in run_node',
        "    return node.target(*args, **kwargs)",
        "torch._dynamo.exc.TorchRuntimeError: Failed running call_function ones",
        "",
    ]
    log = "".join(f"{lead} {line}\n" for line in handled) + "TERM_RUNLIMIT: job killed after reaching LSF run time limit.\n"
    report = report_of(log)
    assert (report.diagnosis.reason, report.diagnosis.root_cause and report.diagnosis.root_cause.line) == ("preempted", 8)


def test_a_script_goes_on_behind_what_conda_could_not_activate() -> None:
    report = report_of(
        "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
        "  0%|          | 0/1 [00:00<?, ?it/s]/var/spool/job: line 2: 4711 Bus error    (core dumped) python train.py\n"
    )
    assert report.diagnosis.reason == "native_crash"


def test_a_cause_that_is_only_listed_is_not_the_reason() -> None:
    report = report_of(
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker exit type:"
        " SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."
        " Some common causes include: (1) the process was killed by the OOM killer due to high memory usage,"
        " (2) ray stop --force was called.\n"
    )
    assert report.diagnosis.reason == "native_crash"


# --- what somebody handled ----------------------------------------------------------------------------------------------

ROLLOUT = "[2026-01-02 03:0{0}:00] INFO rollout: episode 10{0} reward 12.{0}\n"
CAUGHT = (
    "[2026-01-02 03:04:30] ERROR env_worker: environment step failed, resetting\nTraceback (most recent call last):\n"
    '  File "/app/worker.py", line 88, in {0}\n    env.step(a)\nRuntimeError: physics diverged\n'
)


def test_what_a_logger_shows_of_a_caught_exception_is_overcome_where_the_program_talks_on() -> None:
    calm = "".join(ROLLOUT.format(n) for n in range(5, 9))
    assert report_of(ROLLOUT.format(1) + (CAUGHT.format("_loop") + calm) * 2).outcome == "healthy"
    assert report_of(ROLLOUT.format(1) + CAUGHT.format("_loop")).diagnosis.reason == "runtime_error"  # nothing after it
    assert report_of(ROLLOUT.format(1) + CAUGHT.format("<module>") + calm).diagnosis.reason == "runtime_error"  # not caught


def test_a_failure_of_another_kind_after_it_leaves_a_caught_exception_a_suspect() -> None:
    calm = "".join(ROLLOUT.format(n) for n in range(5, 9))
    report = report_of(CAUGHT.format("_loop") + calm + "[2026-01-02 03:09:30] ERROR pool: worker 4 is gone, giving up\n")
    assert report.outcome == "failed"


def test_what_stands_below_a_warning_of_another_language_was_handled_with_it() -> None:
    boxed = '┌ Warning: failed to save plot, continuing\n│   exception = SystemError: opening file "/a": Permission denied\n'
    calm = "└ @ Main train.jl:88\n[ Info: Test accuracy: 0.921\n[ Info: wrote the table\n[ Info: bye\n"
    assert report_of(boxed + calm).outcome == "healthy"
    java = "2026-01-02 03:04:05 WARN Checkpoint: cannot delete the old one\njava.nio.file.NoSuchFileException: /ckpt/old\n"
    calm = "".join(f"2026-01-02 03:04:0{n} INFO Main: iteration {n}\n" for n in range(6, 9))
    assert report_of(java + "\tat trainer.Checkpoint.delete(Checkpoint.java:88)\n" + calm).outcome == "healthy"


def test_an_exception_that_the_interpreter_ignores_is_none_without_a_traceback_too() -> None:
    ignored = "Exception ignored in atexit callback: <function teardown at 0x7f2>\nConnectionResetError: [Errno 104] reset\n"
    assert report_of(steps(1, 30) + ignored).outcome == "healthy"


def test_a_node_of_a_list_that_responds_again_is_back() -> None:
    lost = "[2026-01-02 03:04:05] error: Nodes gpu[017,019] not responding\n"
    back = "[2026-01-02 03:05:05] Node gpu019 now responding\n"
    assert report_of(lost + back + steps(1, 3)).outcome == "healthy"
    assert report_of(lost + back.replace("019", "021")).outcome == "failed"


def test_a_harmless_line_is_no_failure_and_vouches_for_nothing() -> None:
    harmless = (
        "2026-01-02 03:04:05: W tensorflow/core/framework/local_rendezvous.cc:404] Local rendezvous is aborting with status"
    )
    end = harmless + ": OUT_OF_RANGE: End of sequence\n"
    assert report_of("Epoch 1/2\n" + end).outcome == "healthy"
    assert report_of("FATAL [scheduler] giving up on worker group 7\n" + end).outcome == "failed"


# --- what a runtime only carries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('ERROR: LoadError: SystemError: opening file "/opt/depot/x.ji": Permission denied', "permission_error"),
        ('ERROR: LoadError: SystemError: opening file "/opt/depot/x.jl": No such file or directory', "file_not_found_error"),
        ("ERROR: LoadError: This line of code cannot be reached", "runtime_error"),
        ('Exception in thread "main" java.io.IOException: No space left on device', "os_error"),
        ("thread 'main' panicked at src/storage.rs:131:87:\nno space left on device (os error 28)", "os_error"),
        (
            "terminate called after throwing an instance of 'Zorch'\n  what():  insufficient device memory\nAborted",
            "out_of_memory",
        ),
        ("thread 'main' panicked at src/lib.rs:7:5:\ncalled `Option::unwrap()` on a `None` value", "runtime_error"),
        ("thread 'main' panicked at src/b.rs:47:83:\nCuda(Cublas(CublasError(CUBLAS_STATUS_ALLOC_FAILED)))", "out_of_memory"),
    ],
    ids=[
        "julia, permission",
        "julia, file",
        "julia, no words",
        "java",
        "rust, next line",
        "c++",
        "rust, no words",
        "rust, a rule's line",
    ],
)
def test_the_message_says_more_than_the_runtime_that_prints_it(lines: str, reason: str) -> None:
    assert report_of("loading the model\nreading the settings\n" + lines + "\n").diagnosis.reason == reason


def test_what_was_tried_again_with_success_is_no_failure() -> None:
    talk = "".join(f"served request {n} of client {n % 7} in {n % 5}.25 s\n" for n in range(200))
    failed = "Request timed out: HTTPConnectionPool(host='10.0.0.7', port=11500): Read timed out. (read timeout=600)\n"
    limit = "slurmstepd: error: *** JOB 4711 ON gpu014 CANCELLED AT 2026-01-02T00:45:57 DUE TO TIME LIMIT ***\n"
    assert report_of(talk + failed + "retrying due to an error\n" + talk + limit).diagnosis.reason == "preempted"
    assert report_of(talk + failed + "giving up\n").diagnosis.reason == "connection_error"


# --- how sure an answer of this kind is ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("zorch: timed out trying to connect\n", "plain"),
        ("zorch: timed out trying to connect\nzorchd: the node gpu-7 has died\n", "contested"),
        ("zorch: bad news of the GPU\n", "vague"),
        ("reading the settings\nbuilding the model\n", "silent"),
        ("reading the settings\nall work is done\n", "quiet"),
        ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n", "specific"),
        ("Request timed out: HTTPConnectionPool(host='10.0.0.7', port=80): Read timed out. (read timeout=600)\n", "noted"),
    ],
)
def test_an_answer_says_what_kind_of_evidence_it_rests_on(text: str, kind: str) -> None:
    job = job_of(text)
    finding = job.finding(job.evidence())
    assert answer_kind(max(finding.weighed, key=lambda one: one.probability)) == kind


def test_a_program_that_refuses_to_continue_does_not_end_well() -> None:
    last = "zorch: fatal error in bracketing\nplease copy the positions\n---> I REFUSE TO CONTINUE WITH THIS JOB ... BYE!!!\n"
    assert report_of("step by step\n" * 12 + last).outcome == "failed"


def test_the_second_guess_is_what_the_words_say_without_the_rule() -> None:
    job = job_of("zorch.sh: line 4: zorch: command not found\n")
    finding = job.finding(job.evidence())
    assert finding.reason == "called_process_error"
    assert finding.alternatives[0].reason == "file_not_found_error"


# --- a process that ends itself, and what succeeds later -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("zorch::Error::0::Couldn't open file: part.7 !!!", "file_not_found_error"),
        ("ASSERTION_FAILED (zorch:Rows():grid.cc:8) Assertion failed: (rows == columns)", "assertion_error"),
    ],
)
def test_who_aborts_says_why_before(said: str, reason: str) -> None:
    report = report_of(steps(1, 9) + f"{said}\n  [0x55d0c1a2b3c0] run + 0x12\nAborted (core dumped)\n")
    assert report.diagnosis.reason == reason
    assert report.diagnosis.root_cause is not None
    assert report.diagnosis.root_cause.text == said


def test_who_crashes_may_have_said_anything_before() -> None:
    report = report_of(steps(1, 9) + "zorch: couldn't open file: part.7\nSegmentation fault (core dumped)\n")
    assert report.diagnosis.reason == "native_crash"


RETRIED = "zorch: push failed: connection refused\nzorch: push failed: connection refused\n"


def test_what_succeeds_later_did_not_fail_the_job() -> None:
    assert report_of("up\n" * 5 + RETRIED + "zorch: push succeeded\nwaiting for work\nwaiting for more\n").outcome == "healthy"
    assert report_of("up\n" * 5 + RETRIED + "zorch: pull succeeded\nwaiting for work\nwaiting for more\n").outcome == "failed"
    assert report_of("up\n" * 5 + RETRIED + "zorch: push succeeded 0 times, error\n").outcome == "failed"


@pytest.mark.parametrize(
    ("later", "outcome"),
    [("trial 5 finished", "healthy"), ("part 5 finished", "failed"), ("trial 5 never finished", "failed")],
)
def test_of_trials_another_one_may_succeed_but_not_of_parts(later: str, outcome: str) -> None:
    noun = later.split()[0]
    report = report_of("up\n" * 5 + f"{noun} 4 failed: cannot open file x\n{later}\nlooking at the best\nwaiting\n")
    assert report.outcome == outcome


def test_a_failure_without_a_reason_could_be_the_programs_own() -> None:
    report = report_of("up\n" * 5 + "ERROR: the width of the grid is wrong\n")
    assert report.diagnosis.reason == "unknown"
    assert "runtime_error" in [one.reason for one in report.diagnosis.alternatives]


# --- what others do after it ---------------------------------------------------------------------------------------------

ANSWERED = '(Zorch pid=1) INFO:     10.0.0.1:4711 - "POST /v1/zorch HTTP/1.1" 200 OK\n'
REFUSED = """(Zorch pid=1) ERROR:    Exception in ASGI application
(Zorch pid=1) Traceback (most recent call last):
(Zorch pid=1)   File "/usr/lib/python3/dist-packages/uvicorn/protocols/http/h11_impl.py", line 403, in {function}
(Zorch pid=1)     result = await app(
(Zorch pid=1)   File "/app/zorch/checks.py", line 9, in check
(Zorch pid=1)     raise ZorchError("too long")
(Zorch pid=1) zorch.errors.ZorchError: too long
"""


def test_a_server_that_refuses_a_request_answers_the_next_one() -> None:
    refused = REFUSED.format(function="run_asgi")
    assert report_of(ANSWERED * 20 + refused + ANSWERED * 20).outcome == "healthy"
    elsewhere = REFUSED.replace("uvicorn/protocols", "zorch/runner").format(function="<module>")
    assert report_of(ANSWERED * 20 + elsewhere + ANSWERED * 20).outcome == "failed"


CANCELLED = "slurmstepd: error: *** JOB 4711 ON gpu014 CANCELLED AT 2026-01-02T03:04:05 ***\n"


def test_what_is_written_long_after_a_stop_is_another_run() -> None:
    more = "".join(f"zorch warns about part {n % 7}\n" for n in range(1200))
    assert report_of(more + CANCELLED + more).outcome == "healthy"
    assert said(more + CANCELLED + more[:2000])[0] == "preempted"
    failed = RAISED.format(what="ValueError: bad part")
    assert report_of(more + CANCELLED + more + failed).outcome == "failed"


def test_a_shell_goes_on_after_a_line_that_it_cannot_do() -> None:
    shell, much = "my_zorch.sh: line 14: zork: command not found\n", "".join(f"zorch loads part {n}\n" for n in range(40))
    failed = RAISED.format(what="RuntimeError: no label of a node was found")
    assert said(shell + much + failed) == ("runtime_error", 44)
    assert said(shell) == ("called_process_error", 1)
    assert said(shell + failed) == ("called_process_error", 1)  # the program may need what is missing


def test_a_program_that_warns_of_an_exception_caught_it() -> None:
    warned = "Warning: Failed to load part 'a'. Error: [Errno 2] No such file or directory: '/data/a'\n" + "loading\n" * 12
    thread = "Exception in thread Thread-3 (_run):\n" + RAISED.format(what="AttributeError: it has no part")
    assert said(warned + thread)[0] == "attribute_error"


def test_of_two_lines_about_a_peer_the_first_that_names_it_counts() -> None:
    recv = "gpu01:90114:90328 [1] misc/socket.cc:518 NCCL WARN Net : Call to recv from 10.1.0.15<41902> failed : Broken pipe\n"
    closed = "gpu01:90114:90289 [1] misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer gpu01.x.local<52217>\n"
    assert said(recv + "gpu01:90114:90328 [1] NCCL INFO proxy.cc:991 -> 6\n" * 6 + closed) == ("nccl_remote_error", 1)


STOPPED = "(EngineCore pid=2) INFO 08-01 23:37:28 [core.py:1214] [shutdown] EngineCore: trigger received signal=SIGTERM\n"
DEAD = "(Server pid=1) ERROR 08-01 23:37:28 [async_llm.py:704] AsyncLLM output_handler failed.\n"


def test_an_engine_that_was_told_to_end_did_not_die() -> None:
    served = ANSWERED * 30
    ending = "".join(f"(Server pid=1) the shelf of part {word} is put away\n" for word in WORDS_OF_A_FILM[:12])
    assert report_of(served + STOPPED + DEAD + ending).outcome == "healthy"
    assert report_of(served + DEAD + ending).outcome == "failed"


def test_a_helper_of_a_script_does_not_end_it() -> None:
    missing = "rm: *.so: No such file or directory\nrm: *.d: No such file or directory\n"
    assert report_of(missing + "".join(f"the fit of part {n} is good\n" for n in range(30))).outcome == "healthy"
    assert report_of("building\n" * 5 + missing).outcome == "failed"


TEXT = (
    "the old man who had failed at sea told his friends that nothing was ever lost, and that a broken heart is no reason to"
    " stay at home when there are so many good things to see and so little time left\n"
)


def test_a_text_for_readers_is_no_message() -> None:
    assert report_of("sampling\n" * 12 + TEXT).outcome == "healthy"
    assert report_of("sampling\n" * 12 + "zorch: the mesh has failed and is lost\n").outcome == "failed"


def test_a_log_with_words_of_failure_everywhere_holds_texts() -> None:
    sentences = "".join(f"{n % 3} ||| {word} is a bad and broken film\n" for n, word in enumerate(WORDS_OF_A_FILM))
    assert report_of(sentences).outcome == "healthy"
    assert report_of("starting\n" * 12 + sentences[:160]).outcome == "failed"


WORDS_OF_A_FILM = [
    f"{first}{second}" for first in ("Sun", "Moon", "Rain", "Snow", "Wind") for second in ("rise", "fall", "light")
] + [f"{first} {second}" for first in ("Red", "Blue", "Green", "Grey", "White") for second in ("river", "garden", "window")]


def test_a_rule_of_dashes_with_a_letter_in_it_costs_nothing() -> None:
    """What looks for a level at a line's beginning once tried each way to read the dashes as words: such a log took minutes."""
    text = f"""\
        Traceback (most recent call last):
          File "/opt/venv/bin/torchrun", line 8, in step
            sys.exit(main())
        torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
        /workspace/train.py FAILED
        {"-" * 60}m{"-" * 60}
        Root Cause (first observed failure):
        [0]:
          exitcode  : 1 (pid: 4100)
        """
    assert said(text)[0] == "called_process_error"


@pytest.mark.parametrize(
    ("line", "calm"),
    [
        ("INFO ready", True),
        ("[INFO] ready", True),
        ("2026-03-04 05:06:07,123 - launcher - INFO - ready", True),
        ("2026-03-04T05:06:07-INFO ready", True),
        ("a:INFO - DEBUG", True),
        ("[rank0] 05:06:07 | INFO | ready", True),
        ("--- INFO", True),
        ("[ Info: ready", True),
        ("one two three four INFO", False),
        ("INFORMATION", False),
        ("-" * 5000, False),
        ("a-" * 5000, False),
    ],
)
def test_a_calm_line_has_its_level_near_its_beginning(line: str, calm: bool) -> None:
    assert bool(weighing._CALM.match(line)) is calm
