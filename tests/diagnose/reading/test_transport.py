"""What all lines of a source share is set aside; line numbers stay; plain logs pass untouched."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.reading.records import printed
from diagnose.reading.transport import Transport
from tests.support.strategies import cuts, logs

JOB = [
    "loading the data set",
    "step 1 | loss 2.31",
    "step 2 | loss 2.30",
    "node-3: NCCL is up",
    "Traceback (most recent call last):",
    '  File "/opt/train.py", line 12, in <module>',
    "    train(cfg)",
    'RuntimeError: CUDA error: "an illegal memory access", was encountered',
    "srun: error: gpu-017: task 3: Exited with exit code 1",
]


def undressed(data: bytes) -> bytes:
    transport = Transport()
    return transport.feed(data) + transport.close()


def dressed(write: Callable[[int, str], str], lines: list[str] = JOB) -> bytes:
    return "".join(write(number, line) + "\n" for number, line in enumerate(lines, 1)).encode()


TIME = "2026-03-04T05:06:07.123Z"
DRESSES: dict[str, tuple[Callable[[int, str], str], str]] = {
    "docker's log file": (lambda n, line: json.dumps({"log": line + "\n", "stream": "stderr", "time": TIME}), f"{TIME} "),
    "JSON with msg": (lambda n, line: json.dumps({"level": "info", "msg": line}), ""),
    "JSON with rank and host": (
        lambda n, line: json.dumps({"ts": TIME, "rank": 3, "hostname": "gpu-017", "message": line}),
        f"{TIME} [rank3]: gpu-017: ",
    ),
    "JSON with a key of its own": (lambda n, line: json.dumps({"sequence": n, "job": "j-1", "what was said": line}), ""),
    "JSON inside JSON": (lambda n, line: json.dumps({"severity": "INFO", "jsonPayload": {"message": line}}), ""),
    "journal as JSON": (lambda n, line: json.dumps({"_HOSTNAME": "gpu-017", "PRIORITY": "6", "MESSAGE": line}), "gpu-017: "),
    "logfmt": (lambda n, line: f"time={TIME} level=info msg={json.dumps(line)}", f"{TIME} "),
    "RFC 5424": (lambda n, line: f'<134>1 {TIME} gpu-017 job 12 - [a@1 b="c"] {line}', f"{TIME} gpu-017: "),
    "dmesg -T": (lambda n, line: f"[Wed Mar  4 05:06:07 2026] {line}", "2026-03-04 05:06:07 "),
    "grep -n": (lambda n, line: f"{n}:{line}", ""),
    "grep -n of a part": (lambda n, line: f"{n * 7 + 400}:{line}", ""),
    "grep -Hn": (lambda n, line: f"logs/rank3.out:{n}:{line}", ""),
    "cat -n": (lambda n, line: f"{n:6d}\t{line}", ""),
    "quoted": (lambda n, line: json.dumps(line), ""),
    "a list of strings": (lambda n, line: f"    {line + chr(10)!r},", ""),
    "Python's bytes": (lambda n, line: repr(line.encode() + b"\n"), ""),
    "wrapper that names the stream": (lambda n, line: f"{TIME} [INFO] stdout: {line}", f"{TIME} "),
    "colours as ^[[31m": (lambda n, line: f"^[[1;31m{line}^[[0m", ""),
    "colours as #033[31m": (lambda n, line: f"#033[31m{line}#033[0m", ""),
    r"colours as \x1b[31m": (lambda n, line: rf"\x1b[31m{line}\x1b[0m", ""),
    r"colours as \u001b[31m": (lambda n, line: rf"\u001b[38;5;196m{line}\u001b[m", ""),
    r"colours as \033[31m": (lambda n, line: rf"\033[31m{line}\033[0m", ""),
    "colours without escape": (lambda n, line: f"[31m{line}[0m", ""),
}


@pytest.mark.parametrize(("write", "stays"), DRESSES.values(), ids=DRESSES)
def test_what_was_printed_comes_out(write: Callable[[int, str], str], stays: str) -> None:
    assert undressed(dressed(write)).decode().splitlines() == [stays + line for line in JOB]


@pytest.mark.parametrize("quote", ["minimal", "all"])
@pytest.mark.parametrize("header", [True, False])
def test_the_text_column_of_a_table(quote: str, header: bool) -> None:
    def cell(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if quote == "all" or '"' in text or "," in text else text

    data = dressed(lambda n, line: ",".join(map(cell, (TIME, "INFO", line))))
    expected = [f"{TIME} {line}" for line in JOB]
    if header:
        assert undressed(b"timestamp,level,message\n" + data).decode().splitlines()[1:] == expected
    else:
        assert undressed(data).decode().splitlines() == expected


HEADS = {
    "INFO:__main__:": "",
    "2026-03-04 05:06:07,123 - launcher - ERROR - ": "2026-03-04 05:06:07,123 ",
    "INFO | job | ": "",
    "WARNING:launcher:": "",
    "2026-03-04 05:06:07,123 - launcher - WARNING - ": "2026-03-04 05:06:07,123 ",
    "[2026-03-04 05:06:07] [INFO] job: ": "[2026-03-04 05:06:07] ",
}


@pytest.mark.parametrize(("head", "time"), HEADS.items())
def test_a_wrappers_level_goes_where_it_carries_what_others_print(head: str, time: str) -> None:
    out = undressed(dressed(lambda n, line: head + line)).decode().splitlines()
    assert out[4:] == [time + line for line in JOB[4:]]


def test_a_wrapper_is_noticed_long_after_the_beginning() -> None:
    steps = [f"step {n} | loss 2.31" for n in range(5000)]
    out = undressed(dressed(lambda n, line: "INFO:__main__:" + line, steps + JOB)).decode().splitlines()
    assert out[-5:] == JOB[-5:]
    assert out[100] == "INFO:__main__:step 100 | loss 2.31"  # until then it might have been the program's own logger


PLAIN = {
    "a logger's traceback": ["INFO:root:loading", "step 1", "ERROR:root:Traceback (most recent call last):", *JOB[5:]],
    "a logger that says the same level": [f"INFO:__main__:step {n}" for n in range(40)],
    "levels that vary": ["INFO:a:x", "WARNING:a:y", "ERROR:a:RuntimeError: z", "INFO:a:x"],
    "a program that warns of what it handled": [
        f"WARNING:job:{line}" for line in ["a", "b", "c", JOB[4], '  File "/opt/fetch.py", line 9, in fetch', *JOB[6:8]]
    ],
    "a logger of one line of many": ["one", "two", "three", "INFO:a:Traceback (most recent call last):", *JOB[5:]],
    "srun -l": [f"{n % 8}: line {n}" for n in range(40)],
    "srun -l, each task once": [f"{n}: the same" for n in range(1, 9)],
    "times": [f"12:{n:02d}:01 said" for n in range(40)],
    "a table of epochs": [f"{n}\t0.{n}" for n in range(1, 40)],
    "rows of equal length": [f"{n:06d} | {'loss 2.0':60} | {n:07d}x" for n in range(40)],
    "lines of minus signs": ["-" * 80, "text", "=" * 80, "more text", "-" * 80],
    "metrics as JSON": [json.dumps({"loss": 2.0, "step": n}) for n in range(40)],
    "brackets that are no colours": ["[5m 30s] done", "[31m", "a[0m]"],
    "Python's loggers": [f"2026-03-04 05:06:{n:02d},123 INFO said, done" for n in range(40)],
    "lines with tabs": [f"2026-03-04 05:06:{n:02d}\tINFO\tsaid" for n in range(40)],
    "NCCL": [f"gpu-1:12:13 [{n % 8}] NCCL INFO Channel {n:02d} : 0 1" for n in range(40)],
    "settings": [f"NAME_{n}=value" for n in range(20)],
    "numbers that nobody counts to": [f"1{'0' * 5000}{n:02d}: said" for n in range(40)],
    "such numbers in a column": [f"1{'0' * 5000}{n:02d}\tsaid" for n in range(40)],
}


@pytest.mark.parametrize("lines", PLAIN.values(), ids=PLAIN)
def test_plain_lines_stay_as_they_are(lines: list[str]) -> None:
    data = dressed(lambda n, line: line, lines)
    assert undressed(data) == data


def test_a_level_from_error_up_stays_where_the_message_has_none() -> None:
    lines = [{"level": "info", "msg": "reconciled"}, {"level": "error", "msg": "no such node"}]
    assert undressed(b"".join(json.dumps(line).encode() + b"\n" for line in lines)) == b"reconciled\nERROR no such node\n"


def test_a_message_of_several_lines_stays_one_line() -> None:
    record = {"level": "error", "message": "failed", "exc_info": "Traceback (most recent call last):\n  File x\nValueError: y"}
    out = undressed((json.dumps(record) + "\n").encode())
    assert out == b"ERROR failed\rTraceback (most recent call last):\r  File x\rValueError: y\n"


def test_an_export_of_the_journal_keeps_its_line_numbers() -> None:
    data = b"".join(b"__CURSOR=s=1;i=%d\n_HOSTNAME=gpu-017\nMESSAGE=%b\n\n" % (n, line.encode()) for n, line in enumerate(JOB))
    out = undressed(data).decode().split("\n")
    assert [(number, line) for number, line in enumerate(out) if line] == [(4 * n + 2, line) for n, line in enumerate(JOB)]


def test_what_is_not_dressed_in_a_dressed_source_stays() -> None:
    data = b"plain words before\n" + dressed(DRESSES["docker's log file"][0]) + b"plain words behind\n"
    out = undressed(data).splitlines()
    assert (out[0], out[1], out[-1]) == (b"plain words before", f"{TIME} {JOB[0]}".encode(), b"plain words behind")


def test_a_dress_that_ends_is_given_up_and_another_is_found() -> None:
    first, second = dressed(lambda n, line: f"{n:6d}\t{line}", JOB * 3), dressed(DRESSES["logfmt"][0], JOB * 3)
    plain = b"".join(b"a plain line %d\n" % n for n in range(200))
    assert undressed(first + plain + second).decode().splitlines() == [
        *JOB * 3,
        *plain.decode().splitlines(),
        *(f"{TIME} {line}" for line in JOB * 3),
    ]


# --- lines that a terminal broke --------------------------------------------------------------------------------------------

LONG = [
    "short",
    "step 1 | the loss of the language model is 2.3012345678 and the gradient norm is 1.234567890123456789 | 12345 tokens/s | "
    "the learning rate is 0.0003",
    'RuntimeError: CUDA error: device-side assert seen; compile with "TORCH_USE_CUDA_DSA" to enable device-side assertions '
    "for debugging, then run the job again and look at the first of them",
    "the end",
]


@pytest.mark.parametrize("width", [80, 100, 120, 132])
def test_broken_lines_are_joined_and_keep_their_numbers(width: int) -> None:
    parts = [[line[at : at + width] for at in range(0, len(line), width)] for line in LONG]
    out = undressed("".join(part + "\n" for line in parts for part in line).encode()).decode().split("\n")
    expected = [text for line, full in zip(parts, LONG, strict=True) for text in [full, *[""] * (len(line) - 1)]]
    assert out == [*expected, ""]


def test_a_longer_line_shows_that_nothing_was_broken() -> None:
    lines = ["a" * 40 + " b" * 20, "continues perhaps", "c" * 300]
    data = dressed(lambda n, line: line, lines)
    assert undressed(data) == data


@pytest.mark.parametrize("pushed", [b"a" * 40 + b" b" * 20 + b"\ncontinues perhaps\n", b"1: one\n2: two\n", b"no line end"])
def test_what_waits_for_the_next_lines_goes_on_in_a_pause(pushed: bytes) -> None:
    transport = Transport()
    before = transport.feed(pushed)
    assert transport.holds == (b"\n" in pushed)
    whole = before + transport.pause()
    assert not transport.holds
    assert whole.count(b"\n") == pushed.count(b"\n"), "but for the last line, which has not ended"
    assert transport.pause() == b""
    assert (whole + transport.feed(b"more\n") + transport.close()).count(b"\n") == pushed.count(b"\n") + 1


@pytest.mark.parametrize("write", [DRESSES["cat -n"][0], lambda n, line: repr(line)], ids=["numbers", "quotes"])
def test_a_dress_is_learned_of_lines_that_each_went_on_in_a_pause(write: Callable[[int, str], str]) -> None:
    transport = Transport()
    out = b""
    for number, line in enumerate(JOB * 2, 1):
        out += transport.feed((write(number, line) + "\n").encode()) + transport.pause()
    assert (out + transport.close()).decode().splitlines()[-1] == JOB[-1]


def test_a_column_is_learned_of_lines_that_each_went_on_in_a_pause() -> None:
    transport = Transport()
    out = b""
    for line in LONG * 20:
        parts = [line[at : at + 80] for at in range(0, len(line), 80)]
        out += transport.feed("".join(f"{part}\n" for part in parts).encode()) + transport.pause()
    told = (out + transport.close()).decode().splitlines()
    assert [line for line in told if line][-len(LONG) :] == LONG


def test_the_last_part_of_a_broken_line_is_there_if_it_fills_its_line() -> None:
    whole = max(LONG, key=len)[:160].ljust(160, "x")
    broken = [line[at : at + 80] for line in [*LONG, whole] for at in range(0, len(line), 80)]
    out = undressed("".join(part + "\n" for part in broken).encode()).decode()
    assert out.count("\n") == len(broken)
    assert [line for line in out.splitlines() if line][-1] == whole


def test_a_pause_neither_joins_what_may_have_been_whole_nor_ends_what_is_known_to_be_broken() -> None:
    transport = Transport()
    perhaps = b"a" * 40 + b" b" * 20 + b"\nc, d\n"
    assert transport.feed(perhaps) + transport.pause() == perhaps
    broken = [line[at : at + 80] + "\n" for line in LONG for at in range(0, len(line), 80)]
    known = Transport()
    out = known.feed("".join(broken * 20).encode()) + known.pause()
    assert out.decode().count(LONG[0]) == 20
    assert (known.feed("".join(broken).encode()) + known.close()).decode().count(LONG[0]) == 1


# --- whatever the cuts ------------------------------------------------------------------------------------------------------

SAMPLES = [
    *(dressed(write) for write, _ in DRESSES.values()),
    *(dressed(lambda n, line, head=head: head + line) for head in HEADS),
    *(dressed(lambda n, line: line, lines) for lines in PLAIN.values()),
    "".join(line[at : at + 80] + "\n" for line in LONG for at in range(0, len(line), 80)).encode(),
    dressed(DRESSES["cat -n"][0], JOB * 3) + dressed(DRESSES["logfmt"][0], JOB * 20),
]


def in_pieces(chunks: list[bytes]) -> bytes:
    """The same, with the state taken out and put into a new one after each chunk."""
    transport = Transport()
    out = b""
    for chunk in chunks:
        out += transport.feed(chunk)
        again = Transport()
        again.state = json.loads(json.dumps(transport.state))
        transport = again
    return out + transport.close()


@pytest.mark.parametrize("sample", range(len(SAMPLES)))
@settings(max_examples=15)
@given(data=st.data())
def test_any_chunking_gives_what_one_chunk_gives(sample: int, data: st.DataObject) -> None:
    log = SAMPLES[sample]
    assert in_pieces(data.draw(cuts(log))) == undressed(log)


@given(logs.flatmap(lambda log: st.tuples(st.just(log), cuts(log))))
def test_lines_are_neither_lost_nor_made(pair: tuple[bytes, list[bytes]]) -> None:
    log, chunks = pair
    out = in_pieces(chunks)
    assert out == undressed(log)
    if not log.startswith(b"\0") and b"\0" not in log[:4]:
        assert out.count(b"\n") == log.count(b"\n")


def test_a_long_plain_log_passes_as_it_is_in_any_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    from diagnose.reading import transport

    monkeypatch.setattr(transport, "_EVERY", 100_000)
    log = b"".join(b"a plain line of a training log, number %d\n" % n for n in range(20_000)) + b"x" * 200_000 + b"\nthe end"
    late = b"\n" + dressed(DRESSES["docker's log file"][0], JOB * 300)
    expected = undressed(log + late)
    assert expected.startswith(log)
    assert f"{TIME} {JOB[-1]}".encode() in expected[len(log) :]
    for size in (997, 65_536, 100_000, 100_001, 777_777):
        data = log + late
        assert in_pieces([data[at : at + size] for at in range(0, len(data), size)]) == expected, size


def test_a_chunk_that_needs_nothing_is_not_copied() -> None:
    transport = Transport()
    transport.feed(b"a plain line\n" * 10_000)
    chunk = b"another plain line\n" * 1000
    assert transport.feed(chunk) is chunk


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('time=2026-01-02T03:04:05Z level=ERROR msg="cannot load" error="out of memory"', "cannot load: out of memory"),
        ('{"level": "error", "msg": "cannot load", "err": "no such node"}', "ERROR cannot load: no such node"),
        ('{"level": "warn", "msg": "cannot load", "error": ""}', "cannot load"),
        ('{"level": "error", "msg": "cannot load: no such node", "error": "no such node"}', "ERROR cannot load: no such node"),
        ('{"level": "info", "msg": "tried", "error": "no such node"}', "tried"),
    ],
    ids=["logfmt", "JSON", "empty", "said already", "information"],
)  # fmt: skip
def test_what_failed_is_read_from_the_field_beside_the_message(line: str, said: str) -> None:
    text = printed(line.encode())
    assert text is not None
    assert text.decode().endswith(said)
