"""Tracebacks as they really come: chained, prefixed, interleaved, logged, cut, boxed."""

from __future__ import annotations

import textwrap

import pytest

from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.tracebacks import Traceback, assemble
from diagnose.reading.prefixes import body_start
from tests.support.logs import RAISED, report_of, said


def events_of(text: str, known: frozenset[int] = frozenset()) -> list[Event]:
    """``known``: the lines that a rule matches."""
    lines = textwrap.dedent(text).splitlines()
    return [
        Event(number, 0, number, line, 0 if number in known else -1, body_start(line.encode()))
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def tracebacks(text: str) -> list[Traceback]:
    return assemble(events_of(text))[0]


def shown(text: str) -> list[tuple[int, int, str, str]]:
    return [(one.begin, one.end, one.type, one.message) for one in tracebacks(text)]


PLAIN = """\
    Traceback (most recent call last):
      File "/app/train.py", line 9, in <module>
        main()
      File "/env/lib/python3.11/site-packages/torch/x.py", line 3, in f
        raise KeyError(key)
    KeyError: 'x'
"""


def test_a_traceback_ends_with_its_exception() -> None:
    (one,) = tracebacks(PLAIN)
    assert (one.begin, one.end, one.type, one.message) == (1, 6, "KeyError", "'x'")
    assert [frame.function for frame in one.frames] == ["<module>", "f"]
    assert one.own_frame is not None
    assert (one.own_frame.path, one.own_frame.line) == ("/app/train.py", 9)


def test_a_bare_exception_and_one_with_a_module() -> None:
    frames = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
    assert shown(frames + "AssertionError\n" + frames + "pkg.mod.SomeError: no\n") == [
        (1, 3, "AssertionError", ""),
        (4, 6, "pkg.mod.SomeError", "no"),
    ]
    assert shown(frames + "pkg._C._SomeError: no\n") == [(1, 3, "pkg._C._SomeError", "no")]


@pytest.mark.parametrize(
    ("phrase", "link"),
    [
        ("During handling of the above exception, another exception occurred:", "context"),
        ("The above exception was the direct cause of the following exception:", "cause"),
    ],
)
def test_chains_are_linked(phrase: str, link: str) -> None:
    first, second = tracebacks(
        f"""\
        Traceback (most recent call last):
          File "a.py", line 1, in <module>
        KeyError: 'x'

        {phrase}

        Traceback (most recent call last):
          File "a.py", line 2, in <module>
        ValueError: no x
        """
    )
    assert (second.link, second.previous) == (link, first)


def test_a_worker_of_the_dataloader_raises_again() -> None:
    outer, inner = tracebacks(
        """\
        Traceback (most recent call last):
          File "a.py", line 1, in <module>
        KeyError: Caught KeyError in DataLoader worker process 3.
        Original Traceback (most recent call last):
          File "data.py", line 7, in __getitem__
        KeyError: 'text'
        """
    )
    assert (inner.link, inner.previous, inner.message) == ("original", outer, "'text'")


def test_a_message_that_quotes_another_process() -> None:
    outer, inner = tracebacks(
        """\
        Traceback (most recent call last):
          File "actor.py", line 1, in call
        RuntimeError: the actor failed to import on the worker:

        Traceback (most recent call last):
          File "pkg.py", line 7, in <module>
        ImportError: libx.so: undefined symbol: y
        """
    )
    assert (inner.link, inner.previous) == ("remote", outer)


def test_ranks_with_prefixes_never_mix() -> None:
    lines = PLAIN.splitlines()
    mixed = "\n".join(f"[rank{rank}]: {line[4:]}" for line in lines for rank in (0, 1, 2))
    assert shown(mixed) == [(1, 16, "KeyError", "'x'"), (2, 17, "KeyError", "'x'"), (3, 18, "KeyError", "'x'")]


def test_ranks_without_prefixes_all_end() -> None:
    mixed = "\n".join(line[4:] for line in PLAIN.splitlines() for _ in range(3))
    assert [(one.type, one.message) for one in tracebacks(mixed)] == [("KeyError", "'x'")] * 3


def test_a_logger_writes_before_every_line() -> None:
    (one,) = tracebacks(
        """\
        ERROR 06-02 12:00:09 [core.py:710] Traceback (most recent call last):
        ERROR 06-02 12:00:09 [core.py:710]   File "a.py", line 1, in run
        ERROR 06-02 12:00:10 [core.py:710]     pm.run(mod)
        ERROR 06-02 12:00:10 [core.py:710] RuntimeError: PassManager::run failed
        """
    )
    assert (one.begin, one.end, one.message) == (1, 4, "PassManager::run failed")
    assert one.lead == "ERROR 06-02 12:00:09 [core.py:710]"


def test_a_logger_writes_before_the_header_only() -> None:
    (one,) = tracebacks(
        """\
        2026-01-02 03:04:05,678 - app - ERROR - it broke Traceback (most recent call last):
          File "a.py", line 1, in run
        ValueError: x
        """
    )
    assert (one.end, one.type) == (3, "ValueError")


def test_compose_names_the_service_before_every_line() -> None:
    (one,) = tracebacks(
        """\
        queue_worker        | Traceback (most recent call last):
        queue_worker        |   File "a.py", line 1, in run
        queue_worker        |     raise OSError(x)
        queue_worker        | OSError: x
        """
    )
    assert (one.begin, one.end, one.type) == (1, 4, "OSError")


def test_the_log_begins_inside_a_traceback() -> None:
    (one,) = tracebacks('  File "a.py", line 1, in run\n    x()\nTypeError: x() takes no arguments\n')
    assert (one.begin, one.end, one.type) == (1, 3, "TypeError")


def test_the_log_ends_inside_a_traceback() -> None:
    (one,) = tracebacks('Traceback (most recent call last):\n  File "a.py", line 1, in run\n    x()\n')
    assert (one.exception, one.end) == (None, 2)


def test_the_line_that_raised_it_names_what_the_log_lacks() -> None:
    begun = 'Traceback (most recent call last):\n  File "a.py", line 1, in run\n    raise {what}(\n'
    (one,) = tracebacks(begun.format(what="errors.ValueError") + "You cannot train this model.\n")
    assert (one.exception, one.raised_type) == (None, "ValueError")
    (one,) = tracebacks(begun.format(what="ValueError") + "KeyError: 'x'\n")
    assert (one.type, one.raised_type) == ("KeyError", None)
    (one,) = tracebacks(begun.format(what="ValueError") + '  File "b.py", line 2, in get\n    get()\n')
    assert one.raised_type is None


def test_a_class_with_its_module_right_behind_the_frames_is_an_exception_whatever_it_is_called() -> None:
    begun = 'Traceback (most recent call last):\n  File "error.pxi", line 1, in check\n'
    assert shown(begun + "pyarrow.lib.ArrowInvalid: offset overflow\n") == [
        (1, 3, "pyarrow.lib.ArrowInvalid", "offset overflow")
    ]
    (one,) = tracebacks(begun + "saving\npyarrow.lib.ArrowInvalid: offset overflow\n")
    assert one.exception is None
    for other in ("app.trainer: step 3\n", "paddle.fluid.core_avx.EnforceNotMet: \n"):  # the message stands elsewhere
        (one,) = tracebacks(begun + other)
        assert one.exception is None


def test_other_output_in_between_is_not_the_exception() -> None:
    (one,) = tracebacks(
        """\
        Traceback (most recent call last):
          File "a.py", line 1, in run
        saving to /tmp/x
        Epoch: 3
          File "a.py", line 2, in save
        MemoryError
        """
    )
    assert (one.end, one.type) == (6, "MemoryError")


def test_rich_draws_a_box() -> None:
    (one,) = tracebacks(
        """\
        ╭───────────── Traceback (most recent call last) ─────────────╮
        │ /app/train.py:31 in main                                    │
        │                                                             │
        │   30     if bad:                                            │
        │ ❱ 31         raise ValueError(msg)                          │
        ╰─────────────────────────────────────────────────────────────╯
        ValueError: bad
        """
    )
    assert (one.begin, one.end, one.type) == (1, 7, "ValueError")
    assert [(frame.path, frame.line) for frame in one.frames] == [("/app/train.py", 31)]


def test_exception_groups_are_indented() -> None:
    found = shown(
        """\
          + Exception Group Traceback (most recent call last):
          |   File "a.py", line 1, in <module>
          | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
          +-+---------------- 1 ----------------
            | Traceback (most recent call last):
            |   File "a.py", line 9, in work
            | ZeroDivisionError: division by zero
            +------------------------------------
        """
    )
    assert ("ZeroDivisionError", "division by zero") in [(kind, message) for _, _, kind, message in found]


def test_a_thread_and_an_ignored_exception_are_marked() -> None:
    frames = 'Traceback (most recent call last):\n  File "a.py", line 1, in run\nEOFError\n'
    thread, ignored = tracebacks(f"Exception in thread Thread-1:\n{frames}Exception ignored in: <f>\n{frames}")
    assert (thread.where, ignored.where) == ("thread", "ignored")


def test_a_rank_that_speaks_in_the_middle_of_a_line_is_not_swallowed() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in run',
        "    x = y",
        "        ^^^[rank1]:[E1003 18:37:01.8 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout",
    ]
    events = [Event(number, 0, number, line, 0, 0) for number, line in enumerate(lines, 1)]
    assert 4 not in assemble(events)[1]


def test_very_many_open_tracebacks_are_bounded() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n' * 500
    assert len(tracebacks(text)) == 500


def test_a_traceback_of_very_many_frames_keeps_its_ends() -> None:
    frames = "".join(f'  File "a.py", line {n}, in f{n}\n' for n in range(5000))
    (one,) = tracebacks(f"Traceback (most recent call last):\n{frames}RecursionError: maximum recursion depth exceeded\n")
    assert len(one.frames) <= 65
    assert (one.frames[0].function, one.frames[-1].function) == ("f0", "f4999")


# --- which lines are its own


@pytest.mark.parametrize("known", [frozenset(), frozenset({3, 6})], ids=["no rule", "a rule knows two of them"])
def test_all_its_lines_are_its_own_and_no_other(known: frozenset[int]) -> None:
    text = PLAIN + "    saving to /tmp/x\n    Epoch: 3\n"
    assert assemble(events_of(text, known))[1] == {1, 2, 3, 4, 5, 6}


def test_output_in_between_is_not_its_own() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in run\nsaving to /tmp/x\nMemoryError\n'
    assert assemble(events_of(text))[1] == {1, 2, 4}


@pytest.mark.parametrize(("foreign", "ends"), [(60, "MemoryError"), (61, "")])
def test_it_is_given_up_when_so_many_lines_were_not_its_own(foreign: int, ends: str) -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in run\n'
    (one,) = tracebacks(text + "saving to /tmp/x\n" * foreign + "MemoryError\n")
    assert one.type == ends


def test_each_of_its_lines_makes_it_patient_again() -> None:
    part = '  File "a.py", line 1, in run\n' + "saving to /tmp/x\n" * 50
    (one,) = tracebacks("Traceback (most recent call last):\n" + part * 3 + "MemoryError\n")
    assert (one.type, len(one.frames)) == ("MemoryError", 3)


def test_a_class_that_only_a_rule_knows_ends_it() -> None:
    """Exceptions have any name. One that looks like none, behind other output, needs a rule that knows the line."""
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in run\nsaving\npkg.NoRoom: 3 missing\n'
    assert [one.type for one in assemble(events_of(text, frozenset({4})))[0]] == ["pkg.NoRoom"]
    assert [one.type for one in assemble(events_of(text))[0]] == [""]


def test_the_older_of_two_loggers_tracebacks_goes_on_when_the_newer_does_not_know_the_line() -> None:
    first, second = tracebacks(
        """\
        [worker A] failed: Traceback (most recent call last):
        [worker A] failed:   File "a.py", line 1, in run
        [worker B] failed: Traceback (most recent call last):
        [worker B] failed:   File "b.py", line 2, in run
        [worker A] failed: KeyError: 'a'
        [worker B] failed: ValueError: b
        """
    )
    assert (first.type, first.frames[0].path, second.type, second.frames[0].path) == ("KeyError", "a.py", "ValueError", "b.py")


# --- chains


def test_tracebacks_that_nothing_links_stand_for_themselves() -> None:
    first, second = tracebacks(textwrap.dedent(PLAIN) * 2)
    assert (first.previous, first.link, second.previous, second.link) == (None, None, None, None)


def test_a_chain_whose_beginning_the_log_has_lost() -> None:
    (one,) = tracebacks("During handling of the above exception, another exception occurred:\n\n" + textwrap.dedent(PLAIN))
    assert (one.previous, one.link, list(one.chain())) == (None, None, [one])


@pytest.mark.parametrize(("between", "link"), [(2, "remote"), (3, None)])
def test_a_message_that_ends_in_a_colon_quotes_only_what_follows_at_once(between: int, link: str | None) -> None:
    quoting = 'Traceback (most recent call last):\n  File "actor.py", line 1, in call\nRuntimeError: it failed there:\n'
    _, inner = tracebacks(quoting + "\n" * between + textwrap.dedent(PLAIN))
    assert inner.link == link


@pytest.mark.parametrize(
    ("text", "uncaught"),
    [
        pytest.param('Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nKeyError\n', True, id="module"),
        pytest.param('Traceback (most recent call last):\n  File "a.py", line 1, in save\nKeyError\n', False, id="function"),
        pytest.param('  File "a.py", line 1, in save\nKeyError\n', True, id="its beginning is lost"),
        pytest.param("Traceback (most recent call last):\nKeyError\n", True, id="no frame"),
    ],
)
def test_one_that_begins_where_programs_begin_was_caught_by_nobody(text: str, uncaught: bool) -> None:
    (one,) = tracebacks(text)
    assert bool(one.from_top) is uncaught


def test_of_two_without_a_prefix_only_the_newer_loses_patience() -> None:
    text = "".join(f'Traceback (most recent call last):\n  File "{name}.py", line 1, in run\n' for name in "ab")
    newer, older = tracebacks(text + "saving to /tmp/x\n" * 70 + "KeyError: 'a'\n")
    assert (newer.frames[0].path, newer.type, older.frames[0].path, older.type) == ("b.py", "", "a.py", "KeyError")


def test_the_plainest_class_of_all_ends_a_traceback_too() -> None:
    frames = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    raise Exception(\n'
    assert shown(frames + "Exception: no more parts\n") == [(1, 4, "Exception", "no more parts")]
    assert shown(frames + "zorch.shelf.Error: no more parts\n") == [(1, 4, "zorch.shelf.Error", "no more parts")]


def test_two_ranks_that_raise_the_same_do_not_quote_each_other() -> None:
    own = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nzorch.ZorchError: missing file:\n grid.cli\n'
    first, second = tracebacks(own + own)
    assert second.previous is None
    quoted = own.replace("line 1", "line 7")
    first, second = tracebacks(own + quoted)
    assert second.previous is first


SERVED = """\
    Traceback (most recent call last):
      File "/env/lib/python3.11/site-packages/{first}", line 3, in run
        answer()
      File "/app/answer.py", line 9, in answer
    ValueError: too long
"""


@pytest.mark.parametrize(("first", "of_request"), [("uvicorn/protocols/http/h11_impl.py", True), ("torch/x.py", False)])
def test_a_server_calls_the_program_once_for_each_request(first: str, of_request: bool) -> None:
    (one,) = tracebacks(SERVED.format(first=first))
    assert one.of_request is of_request


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


IMPORTED = """\
Could not load native library: {said}
Traceback (most recent call last):
  File "{path}", line 85, in <module>
    lib = get_native_library()
  File "{path}", line 64, in get_native_library
    cuda_specs = get_cuda_specs()
AttributeError: 'NoneType' object has no attribute 'split'
"""
LIBRARY, OWN = "/opt/env/lib/python3.12/site-packages/fastlib/cextension.py", "/home/me/train.py"


@pytest.mark.parametrize(
    ("said", "path", "caught"),
    [
        ("'NoneType' object has no attribute 'split'", LIBRARY, True),
        ("'NoneType' object has no attribute 'split'", OWN, False),
        ("see below", LIBRARY, False),
    ],
    ids=["caught while it was imported", "said, and raised again by the program", "nothing tells that it was caught"],
)
def test_what_a_library_catches_while_it_is_imported_is_no_failure(said: str, path: str, caught: bool) -> None:
    calm = "".join(f"the {name} of the model is ready\n" for name in ("encoder", "decoder", "head", "tokenizer", "cache")) * 3
    found = report_of(IMPORTED.format(said=said, path=path) + calm).diagnosis
    assert [one.line for one in found.recovered] == ([7] if caught else [])
    assert (found.reason == "attribute_error") is not caught


DETACH = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 88, in <module>\n    for batch in loader:\n'
    '  File "/opt/torch/multiprocessing/reductions.py", line 355, in {0}\n    fd = df.detach()\n'
    '  File "/usr/lib/python3.10/multiprocessing/connection.py", line 630, in SocketClient\n    s.connect(address)\n{1}\n'
)


@pytest.mark.parametrize(
    ("function", "what", "reason"),
    [
        ("rebuild_storage_fd", "ConnectionRefusedError: [Errno 111] Connection refused", "dataloader_killed"),
        ("rebuild_storage_fd", "ConnectionResetError: [Errno 104] Connection reset by peer", "dataloader_killed"),
        ("rebuild_storage_fd", "EOFError", "dataloader_killed"),
        ("rebuild_storage_filename", "FileNotFoundError: [Errno 2] No such file or directory", "dataloader_killed"),
        ("rebuild_storage_fd", "RuntimeError: received 0 items of ancdata", "os_error"),
        ("connect", "ConnectionRefusedError: [Errno 111] Connection refused", "connection_error"),
    ],
)
def test_a_tensor_of_a_worker_that_is_gone_is_no_fault_of_a_network(function: str, what: str, reason: str) -> None:
    found = said(DETACH.format(function, what))
    assert found[0] == reason or (reason == "os_error" and found[0] != "dataloader_killed")


def test_the_output_of_another_program_is_indented() -> None:
    log = (
        "  error: subprocess-exited-with-error\n      Traceback (most recent call last):\n"
        '        File "/tmp/x/setup.py", line 20, in <module>\n          import torch\n'
        "      ModuleNotFoundError: No module named 'torch'\n      [end of output]\nerror: metadata-generation-failed\n"
    )
    assert said(log) == ("import_error", 5)
