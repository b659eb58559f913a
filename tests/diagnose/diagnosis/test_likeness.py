"""How a line sounds that no rule knows."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from diagnose.diagnosis import likeness as module
from diagnose.diagnosis.likeness import CALM, heard, is_warning, level, likeness, says_done, takes_back
from diagnose.reading.prefixes import body_start

LEVELS = ("fatal", "error", "soft", "info")
AT = "2026-01-01 10:00:00"


@pytest.mark.parametrize(
    ("text", "sounds", "loud"),
    [
        (f"{AT} FATAL trainer: the disk is full", {"fatal"}, True),
        (f"{AT} CRITICAL ERROR trainer: the disk is full", {"fatal"}, True),
        (f"{AT} ERROR trainer: the disk is full", {"error"}, True),
        ('level=error msg="no room"', {"error"}, True),
        (f"{AT} WARNING trainer: failed to open x", {"soft"}, False),
        (f"{AT} INFO trainer: failed to open x", {"info"}, False),
        (f"{AT} INFO trainer: all is well", set(), False),
        ("the disk is out of space", {"words"}, False),
        ("rank 0 failed to join", {"words"}, False),
        ("12 passed, 0 failed", set(), False),
        ("no more room on /scratch", {"words"}, False),
        ("volume scratch-3 ran out of storage", {"words"}, False),
        ("there is no space between its words", set(), False),
        ("KeyError: 'x'", {"exception"}, True),
        ("process exited with exit code 1", {"exit"}, True),
        ("process exited with exit code 0", set(), False),
        ("Segmentation fault (core dumped)", {"grave"}, True),
        ("step 1 loss 2.0", set(), False),
        ("val: 0 errors, 0 failed", set(), False),
        (f"{AT}.123456: E tensorflow/core/a.cc:55] the disk is full", {"error"}, True),
        (f"{AT}.123456: W tensorflow/core/a.cc:55] failed to open x", {"soft"}, False),
        ("[2026-01-01 10:00:00,123 W 411 412] exporter.cc:207: Export failed", {"soft"}, False),
        ("[2026-01-01 10:00:00,123 E 411 412] exporter.cc:207: Export failed", {"error"}, True),
        ("[W 2026-01-01 10:00:00,123] Trial 0 failed to open x", {"soft"}, False),
        ("[E 2026-01-01 10:00:00,123] Trial 0 failed: no room", {"error"}, True),
        ("libZorch warning: failed to open x", {"soft"}, False),
        ('10.0.0.9:1 - "GET /favicon.ico HTTP/1.1" 404 Not Found', set(), False),
        ("pi is approximately 3.1415926, Error is 0.0000000000000347", set(), False),
        ("done: sent=12 txFailed=0 dropped=0", set(), False),
        ("INFO: task python:1234 blocked for more than 120 seconds.", {"words"}, False),
        ("the replica ended with a non-zero status of 137", {"exit"}, True),
        (f"{AT}.546630 error 33677 pid[2441] [ZLink zlink.h:504] no room", {"error"}, True),
        (f"{AT} fatal: no room", {"fatal"}, True),
        (f"{AT} warn [zlink] failed to open x", {"soft"}, False),
        (f"{AT} info [zlink] failed to open x", {"info"}, False),
        (f"{AT} error: 0.0123 at epoch 3", set(), False),
        (f"{AT} | ERROR | stderr | INFO:     Started server process [4711]", set(), False),
        (f"{AT} | ERROR | stderr | loading shards: 100%", set(), False),
        (f"{AT} | ERROR | stderr | KeyError: 'x'", {"exception"}, True),
        (f"{AT} | ERROR | stdlib | no room", {"error"}, True),
        ("ERROR: stdout closed by the consumer", {"error"}, True),
        (f"{AT} | ERROR | stderr | FATAL: no room", {"fatal"}, True),
    ],
)
def test_a_line_has_one_level_and_is_loud_if_it_sounds_like_an_end(text: str, sounds: set[str], loud: bool) -> None:
    found = likeness(text, text[body_start(text.encode()) :])
    wanted = (*LEVELS, "exception", "exit", "grave", *(sounds & {"words"}))
    assert {name for name in wanted if getattr(found, name)} - ({"grave"} if sounds & {*LEVELS} else set()) == sounds
    assert bool(found.loud) is loud
    assert bool(found.sounds) is bool(sounds)
    of_a_logger = sounds & {*LEVELS}
    if of_a_logger:
        assert level(text) in of_a_logger


@pytest.mark.parametrize(
    ("line", "words"),
    [("3 failed, 0 errors", True), ("failed=2 skipped=0", True), ("failed=0 skipped=0", False), ("0 failed, 0 errors", False)],
)
def test_a_count_of_none_speaks_for_itself_and_not_for_the_rest_of_its_line(line: str, words: bool) -> None:
    assert bool(likeness(line, line).words) is words


@pytest.mark.parametrize(
    ("line", "heard"),
    [
        ("Error on total charges =  0.01412", False),
        ("Error on total charges, see below", True),
        ("-- Performing Test HAVE_STRERROR_R - Failed", False),
        ("checking for error_at_line... not found", False),
        ("configure: error: no acceptable C compiler found", True),
        ("run.rb:4:in `run': no width (ZorchError)", True),
        ("Reason: Unhandled zorch in user code.", True),
        ("Testing success rate: 0.92, collision rate: 0.07, timeout rate: 0.01, nav time: 15.42", False),
        ("failure rate = 3", False),
        ("failure rate: high, the timeout is over", True),
        ("Timeout cases: 49 of gpu-3 did not answer, unreachable", True),
        ("timed out on shards: 49, 299", True),
        ("failed request ids: 17, 18", True),
        ("uncorrectable ECC error ids: 48, 63", True),
        ("NCCL failure ids: 4", True),
        ("FAILED samples: 128", True),
    ],
)
def test_a_number_and_a_check_of_a_build_are_no_failures(line: str, heard: bool) -> None:
    assert likeness(line, line).sounds is heard


def test_a_compiler_warns_of_code() -> None:
    assert is_warning("/src/error.cc:12:6: warning: 'void fatal_error(int)' defined but not used")
    assert not is_warning("/src/error.cc:12:6: error: 'width' was not declared")


@pytest.mark.parametrize(
    ("line", "done"),
    [
        ("Done.", True),
        ("zorch: run complete @ step 5223", True),
        ("[INFO] process 47 exits successfully.", True),
        ("saved the model to ./out", True),
        ("GPU 0: OK", True),
        (" Normal termination of Zorch 16 at noon.", True),
        ("[100%] Built target zorch", True),
        ("Simulation finished at t = 1.0", True),
        ("Executing transaction: done", True),
        ("2 of 2 steps (100%) done", True),
        ("1 of 2 steps (50%) done", False),
        ("the run was not completed", False),
        ("zorch: unsuccessful", False),
        ("loading the model", False),
    ],
)
def test_a_line_says_that_something_was_completed(line: str, done: bool) -> None:
    assert says_done(line) is done


ASCII = st.characters(codec="ascii")
TAKES_BACK = [*module._NOTHING.patterns, *module._OF_NO_ERROR.patterns]
FAILS = module._WORDS.patterns
OF_LEVELS = [pattern for _, pattern, _ in module._LEVELS]
IS_NONE = (module._NONE, module._IS_NONE, module._AN_ERROR_RATE)


@given(data=st.data())
def test_a_quick_look_for_words_misses_no_line_that_takes_itself_back(data: st.DataObject) -> None:
    pattern = re.compile(data.draw(st.sampled_from(TAKES_BACK)), re.IGNORECASE)
    text = data.draw(st.from_regex(pattern, alphabet=ASCII))
    assume(pattern.search(text) is not None)
    assert takes_back(text)


@given(data=st.data())
def test_a_quick_look_for_words_misses_no_word_of_failure(data: st.DataObject) -> None:
    text = data.draw(st.from_regex(re.compile(data.draw(st.sampled_from(FAILS)), re.IGNORECASE)))
    assert module._WORDS.any(text) is (re.search(module.HEARD[2], text) is not None)


@given(data=st.data())
def test_a_quick_look_for_levels_misses_none(data: st.DataObject) -> None:
    text = data.draw(st.from_regex(data.draw(st.sampled_from(OF_LEVELS)), alphabet=ASCII))[: module.HEAD]
    names = [name for name, pattern, _ in module._LEVELS if pattern.search(text) is not None]
    assert level(text) == (names[0] if names else None)


@pytest.mark.parametrize("pattern", IS_NONE)
@given(data=st.data())
def test_a_quick_look_for_signs_misses_nothing_that_is_none(data: st.DataObject, pattern: re.Pattern[str]) -> None:
    text = data.draw(st.from_regex(pattern, alphabet=ASCII))
    without = text
    for one in IS_NONE:
        without = one.sub("", without)
    assert module._without_none(text) == without


def test_a_level_may_stand_behind_a_bar_of_progress() -> None:
    bar = " 45%|####      | 450/1000 [01:23<02:34,  3.45it/s]"
    line = f"{bar}[rank5]:[E604 20:40:13.410053341 zorch.cpp:632] [Rank 5] the watcher caught a coll"
    assert heard(line, line).error
    assert heard(f"{bar}WARNING:zorch:all is slow", f"{bar}WARNING:zorch:all is slow") == CALM
    assert not heard(bar, bar).sounds


def test_words_in_the_middle_of_much_data_say_nothing() -> None:
    data = f"done: text='{'word ' * 300}errors were not found{' word' * 300}'"
    assert not heard(data, data).sounds
    assert heard(data + " failed", data + " failed").words


@pytest.mark.parametrize(
    ("line", "heard"),
    [
        ("Optimization terminated successfully.", False),
        ("the job terminated of its own accord", False),
        ("the job terminated normally, but one process failed", True),
        ('mapped "/global/error" onto the handler', False),
        ("see https://zorch.org/elastic/errors.html", False),
        ("cannot open /data/part.7", True),
    ],
)
def test_names_and_good_ends_are_no_failure(line: str, heard: bool) -> None:
    assert likeness(line, line).sounds is heard


@pytest.mark.parametrize(
    "line",
    ["val: 0 errors, 0 failed", "retrying in 3 s after a failed upload", "error: 0.0123 at epoch 3"],
)
def test_words_of_failure_that_take_themselves_back_are_none(line: str) -> None:
    assert not likeness(line, line).words


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


@pytest.mark.parametrize(
    ("line", "loud"),
    [
        ('zorch fatal: upload failed, aborting: "PUT /ckpt HTTP/1.1" 403', True),
        ('ERROR: worker crashed with signal 11 while serving "POST /generate HTTP/1.1"', True),
        ('10.0.0.7 - - [01/May/2024 10:00:00] "POST /v1/chat HTTP/1.1" 500 -', False),
        ("rank 0 failed", True),
        ("finished the job 0 errors 0 warnings", False),
        ("scan of each device 0 errors found", False),
    ],
)
def test_requests_and_counts(line: str, loud: bool) -> None:
    found = likeness(line, line)
    assert bool(found.words or found.grave or found.fatal) is loud
