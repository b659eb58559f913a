"""What repeats folds; what is new, moves or sounds like a failure stays."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.compression.folds import KEEP, Folding, masked
from diagnose.compression.kept_log import FOLDED, Compression
from diagnose.compression.snapshot import restored, snapshot, stored
from diagnose.diagnosis.evidence import Event
from diagnose.diagnosis.likeness import HEARD, likeness, sounds
from diagnose.diagnosis.tracebacks import assemble
from diagnose.errors import DiagnoseError
from diagnose.knowledge.rules import Rule, RuleSet
from diagnose.matching.databases import core
from diagnose.matching.matcher import Matcher
from diagnose.reading.prefixes import body_start
from service.settings import Settings
from tests.conftest import examples
from tests.support.logs import job_of, shipped_matcher
from tests.support.patterns import texts
from tests.support.strategies import cuts

pytestmark = pytest.mark.skipif(core is None, reason="folds need the native core")

RULES = RuleSet.of(
    [
        Rule("bar", "filters", r"^\d+%", kind="progress"),
        Rule("oops", "failures", "oops", reason="runtime_error", layer="user"),
    ]
)
MATCHER = Matcher(RULES)
FOLDING = Folding(sounds)
LOGS = Path(__file__).parents[3] / "fixtures" / "logs"


def compressed(chunks: list[bytes], folding: Folding | None = FOLDING) -> Compression:
    compression = Compression(MATCHER, folding)
    for chunk in chunks:
        compression.feed(0, chunk)
    compression.close(0)
    return compression


def kept(log: bytes) -> list[bytes]:
    return [line.text for line in compressed([log]).kept]


def numbered(text: str, count: int, start: int = 0) -> list[str]:
    """``count`` regular lines: {n} rises, {x} is about 2."""
    dice = random.Random(text)
    return [text.format(n=n, x=round(2 + dice.random() / 10, 4)) for n in range(start, start + count)]


def joined(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


# --- what folds ---------------------------------------------------------------------------------------------------------------


def test_the_first_and_the_last_stay() -> None:
    compression = compressed([joined(numbered("[{n}/400] velocity {x} m/s", 400))])
    assert [line.line for line in compression.kept] == [1, 2, 3, 400]
    assert compression.counts.folded == 396
    assert compression.dropped_by_kind() == {FOLDED: 396}
    (fold,) = compression.folds()
    assert (fold.first, fold.last, fold.lines, fold.folded) == (1, 400, 400, 397)
    assert fold.text.startswith(b"[399/400] velocity")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("took 4.5ms for 1,234,567 rows", "took 0.25ms for 7 rows"),
        ("saved /data/run1/a.pt", "saved /data/run22/b/c.pt"),
        ("at 2024-01-02 03:04:05,678 from 10.0.0.1:29500", "at 2025-11-12T13:14:15Z from 10.1.22.3:1"),
        ("id 0f8fad5b-d9cb-469f-a165-70867728950e", "id 7c9e6679-7425-40de-944b-e07fc1f90ae7"),
        ("hash deadbeef01234567", "hash 0123456789abcdef"),
        ("sizes [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "sizes [5, 5, 5, 5, 5, 5, 5, 5, 5]"),
        ("said 'how are you today' to him", "said 'fine, and how are you' to him"),
        ("cc -c crypto/rsa.c", "cc -c lib/tls/io.c"),
        ("\u2588\u2588\u258f   | done", "\u2588\u2588\u2588\u2588\u2588 | done"),
    ],
)
def test_lines_of_one_mask(one: str, other: str) -> None:
    assert masked(one.encode()) == masked(other.encode())


@pytest.mark.parametrize("between", [" a ", ",a,", "-b-"])
def test_a_long_list_may_have_a_word_between_its_numbers(between: str) -> None:
    lists = [between.join(map(str, range(length, 2 * length))) for length in range(9, 69)]
    assert len({masked(f"values {one} of run".encode()) for one in lists}) == 1
    assert len(kept(joined([f"values {one} of run" for one in lists]))) < 10


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("loss 2.5", "loss nan"),
        ("loss 2.5", "loss inf"),
        ("[1.0, 2.0]", "[1.0, nan]"),
        ("used 3 MB", "used 3 GB"),
        ("used 3MB", "used 3GB"),
        ('{"loss": 1.0}', '{"norm": 1.0}'),
        ("state 'ok'", "state 'gone'"),
        ("step 1", "  step 1"),
        ("digest verified", "digest skipped"),
    ],
)
def test_lines_of_two_masks(one: str, other: str) -> None:
    assert masked(one.encode()) != masked(other.encode())


def test_a_person_sees_what_was_masked() -> None:
    line = "step 12 at 10:30:01 id 3f9a1c07be52d841 said 'what is this all about, my friend?' in /data/a/b.txt"
    assert masked(line.encode()) == "step <number> at <time> id <id> said <text> in <path>"
    assert masked("done ███▌ of it".encode()).startswith("done <bar>")
    assert masked(b"loss......... 2") == "loss.<more> <number>"


def test_a_word_of_many_values_folds_and_one_of_few_does_not() -> None:
    names = ["anna", "berta", "carla", "dora", "emma", "frieda", "gerda", "hanna"]
    lines = [f"loaded shard of {name} from the store" for name in names]
    assert kept(joined(lines)) == [line.encode() for line in [*lines[:5], lines[-1]]]
    digests = ["weights digest verified", "weights digest skipped"] * 200
    log = joined([*digests[:300], "weights digest diverged", *digests[300:], "weights digest unverifiable", *digests])
    assert b"weights digest diverged" in kept(log)
    assert b"weights digest unverifiable" in kept(log)


def test_the_last_line_of_a_fold_is_told_when_its_source_ends() -> None:
    compression = Compression(MATCHER, FOLDING)
    compression.feed(0, joined(numbered("moved block {n} to the store", 40)))
    (scan,) = compression.close(0)
    assert scan.lines_kept == 1
    assert [line.text for line in compression.kept][-1] == b"moved block 39 to the store"


# --- what stays ---------------------------------------------------------------------------------------------------------------

PLANTED = [
    "iter {n} velocity nan m/s lr 0.001",
    "iter {n} velocity inf m/s lr 0.001",
    "iter {n} velocity 250.0 m/s lr 0.001",
    "iter {n} velocity 0.0 m/s lr 0.001",
    "iter {n} velocity 2.05 m/s lr 0.01",
    "iter 3 velocity 2.05 m/s lr 0.001",
    "iter {n} velocity 2.05 km/h lr 0.001",
    "iter {n} velocity 2.05 m/s lr 0.001 diverged",
    "iter {n} velocity withheld m/s lr 0.001",
    "[rank7]: iter {n} velocity 2.05 m/s lr 0.001",
    "worker {n} was killed",
    "CRITICAL worker {n} sleeps",
    "exit code 1 of worker {n}",
    "exit code {n} of worker 1",
]


@pytest.mark.parametrize("seed", range(12))
def test_nothing_planted_is_lost(seed: int) -> None:
    dice = random.Random(seed)
    lines: list[str] = []
    expected: list[str] = []
    once = dice.sample(PLANTED, len(PLANTED))
    for part in range(len(once) + 1):
        start = 100 + part * 100
        lines += numbered("iter {n} velocity {x} m/s lr 0.001", dice.randrange(40, 99), start)
        lines += numbered("reader {n} asleep", dice.randrange(0, 20), start)
        if part < len(once):
            planted = once[part].format(n=start + 99)
            lines.append(planted)
            expected.append(planted)
    found = kept(joined(lines))
    assert [line for line in expected if line.encode() not in found] == []
    assert len(found) < len(lines) / 4


def test_a_step_that_stands_is_told() -> None:
    lines = numbered("step {n} of the walk, {x} m", 200)
    stands = [f"step 199 of the walk, 2.0{n % 10} m" for n in range(60)]
    compression = compressed([joined([*lines, *stands, *numbered("step {n} of the walk, {x} m", 200, 200)])])
    assert any(200 < line.line <= 205 for line in compression.kept)


def test_a_leap_is_measured_against_what_came_of_late() -> None:
    """A number that fell from 90 to 2 leaps at 20, though 20 is in its range."""
    dice = random.Random(1)
    course = [90 * 0.97**n + 2 + dice.random() / 10 for n in range(400)]
    course[380] = 20.0
    compression = compressed([joined([f"stride {n} is {value:.4f} m" for n, value in enumerate(course)])])
    assert 381 in [line.line for line in compression.kept]


@given(
    st.lists(st.integers(1000, 1_000_000), min_size=2, max_size=7, unique=True),
    st.integers(11, 10_000),
    st.booleans(),
)
def test_a_leap_among_the_first_lines_stays(values: list[int], widths: int, falls: bool) -> None:
    """Also where a line equals an earlier one but for large numbers, which may be those of processes."""
    wide = max(values) - min(values)
    leap = min(values) - widths * wide if falls else max(values) + widths * wide
    lines = [f"worker holds {value} pages" for value in [*values, leap, values[-1], values[0]]]
    assert 1 + len(values) in kept_behind_a_page([*lines, "the end of it"])


def test_a_number_that_stood_for_long_is_news_when_it_moves() -> None:
    alive = [64] * 300 + [63] * 300 + [64] * 300 + [62] * 20
    compression = compressed([joined([f"stride {n} with {count} of 64" for n, count in enumerate(alive)])])
    assert {301, 601, 901} <= {line.line for line in compression.kept}


def test_what_comes_again_after_a_long_silence_is_kept() -> None:
    banner = ["begin of the walk"] * 6
    strides = numbered("stride {n}", 3020)
    compression = compressed([joined([*banner, *strides[:3000], "begin of the walk", *strides[3000:]])])
    assert 3007 in [line.line for line in compression.kept]


def test_failures_fold_with_their_copies_only() -> None:
    same = ["ERROR: cannot write to the disk"] * 50
    other = numbered("ERROR: cannot write block {n}", 50)
    found = kept(joined([*same, *other]))
    assert found.count(b"ERROR: cannot write to the disk") <= 4
    assert [line.encode() for line in other] == [line for line in found if b"block" in line]


def test_who_says_it_is_kept_once_each() -> None:
    lines = [f"[rank{rank}]: ERROR: cannot write to the disk" for rank in range(16) for _ in range(5)]
    found = kept(joined(lines))
    assert set(found) == {line.encode() for line in lines}
    assert len(found) < len(lines) / 2


TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 7, in main',
    "    run()",
    '  File "train.py", line 3, in run',
    "    raise ValueError('bad shape')",
    "ValueError: bad shape",
]
FOLDED_TRACEBACK = [TRACEBACK[0], *TRACEBACK[3:]]


def of_tracebacks(lines: list[str]) -> list[list[str]]:
    """Each from its header on, without the regular lines."""
    found = [line.decode() for line in kept(joined(lines)) if not line.startswith(b"stride")]
    starts = [at for at, line in enumerate(found) if "Traceback" in line]
    return [found[at:end] for at, end in pairwise([*starts, len(found)])]


def test_copies_of_a_traceback_lose_their_frames_but_the_deepest() -> None:
    lines = [line for n in range(9) for line in [*TRACEBACK, *numbered("stride {n}", 30, 30 * n)]]
    assert of_tracebacks(lines) == [TRACEBACK] * 3 + [FOLDED_TRACEBACK] * 6


@pytest.mark.parametrize(
    "other",
    [
        [*TRACEBACK[:3], '  File "train.py", line 4, in run', *TRACEBACK[4:]],
        [TRACEBACK[0], '  File "train.py", line 8, in main', *TRACEBACK[2:]],
        [*TRACEBACK[:5], "ValueError: bad depth"],
        [*TRACEBACK[:3], *TRACEBACK[5:]],
        TRACEBACK[:5],
        [f"[rank7]: {line}" for line in TRACEBACK],
    ],
    ids=["deepest frame", "first frame", "exception", "fewer frames", "no exception", "rank"],
)
def test_a_traceback_that_is_no_copy_stays_whole(other: list[str]) -> None:
    lines = [line for n in range(9) for line in [*TRACEBACK, *numbered("stride {n}", 30, 30 * n)]]
    assert of_tracebacks([*lines, *other])[-1] == other


def test_the_diagnosis_knows_the_frames_that_folded() -> None:
    log = "\n".join([*TRACEBACK * 8, "  running on", *TRACEBACK]) + "\n"
    whole, folded = (
        [
            Event(order, 0, line.line, line.text.decode(), line.rule, 0)
            for order, line in enumerate(job_of(log, fold_after=keep).compression.kept)
        ]
        for keep in (0, KEEP)
    )
    assert len(folded) < len(whole)
    of_whole, of_folded = (
        [(one.type, one.frames, one.begin, one.end) for one in assemble(events)[0]] for events in (whole, folded)
    )
    assert of_folded == of_whole


def test_the_line_before_a_failure_is_kept() -> None:
    lines = [*numbered("stride {n}", 100), "the oops of the day", *numbered("stride {n}", 100, 100)]
    assert [line.line for line in compressed([joined(lines)]).kept] == [1, 2, 3, 100, 101, 201]


def test_a_dump_of_stacks_is_kept_whole() -> None:
    stack = ["Thread 0x{n:08x} (most recent call first):", '  File "a.py", line 3 in wait']
    dump = [line.format(n=n) for n in range(12) for line in stack]
    lines = [*numbered("stride {n}", 50), *dump]
    assert kept(joined(lines))[-len(dump) :] == [line.encode() for line in dump]


_words = ["error", "Failed", "KILLED", "NCCLTimeoutError:", "exit code 3", "E0102 10:00:00", "timed out", "at rest", "[E]", "7"]


@pytest.mark.parametrize(
    "line",
    [
        "INFO {TaskSetManager} Starting task 0.0 in stage 4.0 (TID 4, localhost)",
        "loader thread 12 is ready",
        "Thread 0x7f21 has joined the pool",
        "ignored: size mismatch for the head, the checkpoint is incomplete",
    ],
)
def test_what_only_has_words_of_a_dump_keeps_nothing_else(line: str) -> None:
    """Spark numbers its tasks as a debugger does its threads: not one line of its log was folded."""
    regular = numbered("worker {n} has read its part of the shard", 60)
    assert len(kept(joined([line, *regular]))) < 10


@pytest.mark.parametrize("head", ["TID 4:", "TID 4 python3:", "Thread 12 (LWP 7):", 'Thread 0x7f21 (idle): "MainThread"'])
def test_the_head_of_a_stack_keeps_the_stack(head: str) -> None:
    frames = numbered("    run_{n} in pool.py", 60)
    assert len(kept(joined([head, *frames]))) == 61


@given(st.lists(st.sampled_from(_words), max_size=4).map(" ".join))
def test_what_the_core_calls_calm_sounds_like_nothing(line: str) -> None:
    assert core.masked(line.encode(), 0)[2] & 1 or not likeness(line, line).sounds


@pytest.mark.parametrize("pattern", HEARD, ids=["grave", "exit", "words"])
def test_the_core_knows_a_beginning_of_all_that_sounds_like_a_failure(pattern: str) -> None:
    """The core has a list of its own. A word that it lacks would fold with the regular lines."""
    spoken = [said for words in texts(re.compile(pattern)) for said in (words, words.capitalize(), words.upper())]
    lines = [line for said in spoken if likeness(line := f"the thing {said} now", line).sounds]
    assert [line for line in lines if not core.masked(line.encode(), 0)[2] & 1] == []
    assert len(lines) > len(spoken) / 2  # edges of words inside a pattern, and counts of none, leave out some


def test_what_the_core_calls_calm_sounds_like_nothing_in_the_samples() -> None:
    loud = 0
    for path in sorted(LOGS.rglob("*.log"))[:80]:
        for line in path.read_bytes().splitlines():
            if len(line) < 4000 and sounds(line, body_start(line)):
                loud += 1
                assert core.masked(line, 0)[2] & 1, line
    assert loud > 100


# --- what always follows a line ---------------------------------------------------------------------------------------------

TELLING = "river stone window lamp seven green walked under because slowly market bread answer tall quiet winter garden".split()


def told(dice: random.Random) -> str:
    return " ".join(dice.choice(TELLING) for _ in range(dice.randrange(6, 12)))


def tales(count: int, dice: random.Random, lines: int = 2) -> list[list[str]]:
    """Regular heads, each with some lines that never stood there before."""
    return [[f"tale {n} of the day", *(told(dice) for _ in range(lines))] for n in range(count)]


def flat(blocks: list[list[str]]) -> list[str]:
    return [line for block in blocks for line in block]


def test_what_always_follows_a_line_folds() -> None:
    compression = compressed([joined([*flat(tales(100, random.Random(1))), "the end of it"])])
    assert [line.line for line in compression.kept] == [*range(1, 10), 11, 12, 14, 15, 301]


@pytest.mark.parametrize(
    "news",
    [
        "the disk cannot be written",
        "worker 3 was killed",
        "its worth is nan",
        "its worth is withheld",
        "weather is stormy",
        "[rank7]: the gate is open to all who come",
    ],
)
@pytest.mark.parametrize("place", [1, 2, 3], ids=["first", "between", "last"])
def test_news_in_what_always_follows_a_line_stays(news: str, place: int) -> None:
    dice = random.Random(news)
    blocks = [[*block, f"its worth is {dice.random():.3f}", "weather is calm"] for block in tales(60, dice)]
    blocks[40].insert(place, news)
    found = kept(joined(flat(blocks)))
    assert news.encode() in found
    assert len(found) < 50


def test_what_follows_a_line_only_at_times_stays() -> None:
    dice = random.Random(3)
    blocks = tales(60, dice, 0)
    for n in range(0, 60, 2):
        blocks[n].append(told(dice))
    found = kept(joined(flat(blocks)))
    assert sum(not line.startswith(b"tale") for line in found) == 30


def test_what_is_much_longer_than_what_followed_before_stays() -> None:
    dice = random.Random(4)
    blocks = tales(40, dice)
    blocks[30] += [told(dice) for _ in range(30)]
    found = kept(joined(flat(blocks)))
    assert all(line.encode() in found for line in blocks[30][-22:])


# --- long lines ---------------------------------------------------------------------------------------------------------------

NAMES = [f"blocks.{n}.attn.weight" for n in range(300)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"lacks {NAMES} so far", f"lacks {str(NAMES[:8])[:-1]}, [... 291 more ...], '{NAMES[-1]}'] so far"),
        (f"ids={list(range(900))}, end", f"ids={str(list(range(8)))[:-1]}, [... 891 more ...], 899], end"),
        (f"{list(range(30))} {'x' * 3000}", f"{list(range(30))} {'x' * 3000}"),
        (f"{NAMES[:40]}", f"{NAMES[:40]}"),
    ],
    ids=["names", "numbers", "few", "no long line"],
)
def test_a_long_line_loses_the_middle_of_its_lists(line: str, expected: str) -> None:
    assert kept(joined([line])) == [expected.encode()]


@pytest.mark.parametrize("entry", ["nan", "-inf", "NodeNotReady", "'killed by signal 9'", "'node3: timed out'"])
def test_an_entry_of_a_list_that_sounds_like_a_failure_stays(entry: str) -> None:
    (line,) = kept(joined([f"said: {', '.join([*NAMES[:150], entry, *NAMES[150:]])}"]))
    assert entry.encode() in line
    assert len(line) < 1000


def test_a_line_of_a_failure_rule_keeps_its_lists() -> None:
    line = f"oops: ranks {list(range(2000))}"
    assert kept(joined([line])) == [line.encode()]


@given(
    st.lists(st.sampled_from(["7", "a.b", "'q w'", ",", ", ", " ", "[", "]", "'", "=", "fatal", "\\"]), min_size=1, max_size=60)
)
def test_what_a_long_line_loses_is_said_and_calm(parts: list[str]) -> None:
    line = ("".join(parts) * 2200)[: 2200 + len(parts)].strip()
    for text in kept(joined([line])):
        assert len(text) <= len(line.encode())
        assert len(re.findall(rb"\bfatal\b", text)) == len(re.findall(r"\bfatal\b", line))
        assert text == line.encode() or b" more ...], " in text


# --- counts, chunks, snapshots -----------------------------------------------------------------------------------------------


def outcome(compression: Compression) -> tuple[Any, ...]:
    counts = compression.counts
    return (
        [(line.line, line.text, line.rule) for line in compression.kept],
        (counts.lines_in, counts.lines_kept, counts.bytes_kept, counts.blank, counts.folded),
        sorted(fold[1:] for fold in compression.folds()),
        {rule: lines for rule, lines in counts.dropped.items() if lines},
    )


PROSE = [f"{word} {other} told\n".encode() for word, other in pairwise(TELLING[:9])]
_lines = st.sampled_from(
    [b"stride 1 of 2\n", b"stride 2 of 2\n", b"stride 70000 of 2\n", b"stride 3 of 2\r", b"[rank1]: stride 3 of 2\n", b"text\n",
     b"ERROR no disk\n", b"ERROR no disk\r", b"the oops\n", b"5%\r", b"6%\n", b"\n", b"rest\r", b"\0", b"  File x\n", b"rest\n",
     b"Traceback (most recent call last):\n", b"  File y\n", b"OSError: disk\n", *PROSE]
)  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(_lines, max_size=90).map(b"".join).flatmap(lambda data: st.tuples(st.just(data), cuts(data))))
def test_folds_do_not_depend_on_the_chunks(pair: tuple[bytes, list[bytes]]) -> None:
    data, chunks = pair
    whole = compressed([data])
    assert outcome(compressed(chunks)) == outcome(whole)
    counts = whole.counts
    assert counts.lines_in == counts.lines_kept + counts.blank + counts.folded + sum(counts.dropped.values())
    assert counts.bytes_kept == sum(len(line.text) + 1 for line in whole.kept)
    every = [(line.line, line.text, line.rule) for line in compressed([data], None).kept]
    left = iter(every)
    assert all(line in left for line in outcome(whole)[0])  # what is kept is in order, and nothing else


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(_lines, max_size=60).map(b"".join).flatmap(lambda data: st.tuples(st.just(data), cuts(data))))
def test_folds_go_on_from_a_snapshot(pair: tuple[bytes, list[bytes]]) -> None:
    data, chunks = pair
    broken = Compression(MATCHER, FOLDING)
    for chunk in chunks:
        broken.feed(0, chunk)
        lines = [stored(line, MATCHER.rules) for line in broken.kept]
        broken = restored(snapshot(broken), MATCHER, lines, FOLDING)
    broken.close(0)
    assert outcome(broken) == outcome(compressed([data]))


def test_a_damaged_state_is_refused() -> None:
    state = core.Folds(3, 1, b"", b"loss").state()
    for cut in (state[:-1], state + b"x", b"\xff" * len(state)):
        with pytest.raises(ValueError, match="not the state of folds"):
            core.Folds(3, 1, cut, b"loss")
    compression = compressed([b"one\n"])
    compression.streams[0].folds = type("Folds", (), {"state": lambda self: b"nothing"})()
    lines = [stored(line, MATCHER.rules) for line in compression.kept]
    with pytest.raises(DiagnoseError, match="is damaged"):
        restored(snapshot(compression), MATCHER, lines, FOLDING)


def test_more_kinds_than_are_remembered() -> None:
    words = ["".join(letters) for letters in pairwise("abcdefghijklmnopqrstuvwxyz" * 4)]
    lines = [f"{a} {b} {a}{b}: ready" for a in words[:80] for b in words[:80]]
    compression = compressed([joined(lines)])
    assert compression.counts.lines_in == len(lines)
    assert len(compression.streams[0].folds.state()) < 4 << 20


def test_a_source_that_begins_anew_keeps_its_first_lines_again() -> None:
    compression = Compression(MATCHER, FOLDING)
    log = joined(numbered("stride {n}", 10))
    compression.feed(0, log)
    compression.restart(0)
    compression.feed(0, log)
    compression.close(0)
    assert [line.line for line in compression.kept] == [1, 2, 3, 10, 1, 2, 3, 10]


# --- copies -------------------------------------------------------------------------------------------------------------------


def test_a_copy_of_the_first_line_folds_at_once() -> None:
    block = ["    kind = plain", "    'width': 512, 'path': '/data/words'", "====== done ======"]
    assert kept_behind_a_page([*block, *block, *block, "the end of it"]) == [1, 2, 3, 10]
    assert [line.line for line in compressed([joined([*block, *block, *block, *block, "the end of it"])]).kept] == [
        *range(1, 10),
        13,
    ]


def test_behind_a_failure_copies_stay() -> None:
    block = ["reading the words of the garden", "setting up the wheel"]
    assert kept_behind_a_page([*block, "oops", *block, *block, "the end of it"]) == [*range(1, 6), 8]


def kept_behind_a_page(lines: list[str]) -> list[int]:
    """Which of the lines are kept, where so many stand before them that the log is no short one."""
    page = numbered("stride {n} of the walk", 61)
    return [line.line - 61 for line in compressed([joined([*page, *lines])]).kept if line.line > 61]


@pytest.mark.parametrize(
    ("lines", "stay"),
    [
        (["width is 512", "width is 512", "width is 640", "width is 640"], [1, 3, 4]),
        (["saved /a/1.pt", "saved /b/2.pt", "saved /b/2.pt", "saved /c/3.pt", "saved /d/4.pt"], [1, 2, 5]),
        (["worker 48213 has begun", "worker 48355 has begun", "worker 48901 has begun", "worker 49012 has begun"], [1, 2, 4]),
        (["cannot open the gate"] * 5, [1, 2, 3, 5]),
    ],
    ids=["a number that moves", "what a mask hides", "ids", "what sounds like a failure"],
)
def test_what_is_a_copy(lines: list[str], stay: list[int]) -> None:
    """The last line always stays."""
    assert kept_behind_a_page(lines) == stay


def test_details_stay_behind_the_first_failures_of_a_rule_and_behind_a_rare_one() -> None:
    common = [line for n in range(200) for line in (f"oops number {n}", f"    in part {n % 7} of the garden")]
    rare = ["cannot open the gate", "    in part 3 of the garden"]
    lines = [line.line for line in compressed([joined([*common, *rare, "all is calm", "the end"])]).kept]
    assert [n for n in range(2, 129, 2) if n not in lines] == []
    assert not any(n % 2 == 0 for n in lines if 180 < n < 400)
    assert {401, 402} <= set(lines)


# --- runs in one source -------------------------------------------------------------------------------------------------------

_BANNER = [
    "Preparing wheel of garden {job}",
    "host gpu-{host} has 8 devices",
    "arguments: width=512 depth=12 seed=7",
    "loading words from /data/{job}/words.bin",
    "vocabulary of 50257 words",
]


def run_of(number: int, strides: int, *end: str) -> list[str]:
    banner = [line.format(job=88123 + 17 * number, host=number % 3) for line in _BANNER]
    return [*banner, *numbered("stride {n} of 9000 wear {x}", strides), *end]


def test_each_run_of_a_source_keeps_its_first_lines_and_its_failure() -> None:
    runs = [run_of(number, 80 + 30 * number, "cannot open the gate: refused by keeper") for number in range(8)]
    begins = [1 + sum(map(len, runs[:number])) for number in range(8)]
    compression = compressed([joined([line for run in runs for line in run])])
    assert compression.runs(0) == begins[1:]
    left = {line.line: line.text for line in compression.kept}
    assert all(left[begin].startswith(b"Preparing wheel") for begin in begins)
    assert sum(text.startswith(b"cannot open") for text in left.values()) == 8
    assert len(left) < 100


def test_without_folding_runs_and_numbers_are_found_and_all_is_kept() -> None:
    runs = [
        run_of(number, 80 + 30 * number, f"loss is 2.{number}", "cannot open the gate: refused by keeper")
        for number in range(4)
    ]
    log = joined([line for run in runs for line in run])
    folded, whole, plain = (compressed([log], folding) for folding in (FOLDING, Folding(sounds, drops=False), None))
    assert whole.runs(0) == folded.runs(0) != []
    assert whole.series_names == folded.series_names == ["loss"]
    assert list(whole.kept) == list(plain.kept)
    assert (whole.counts, whole.folds()) == (plain.counts, [])


@pytest.mark.parametrize(
    "lines",
    [
        [line for number in range(9) for line in run_of(number, 100)],
        [line for _ in range(8) for line in run_of(0, 1)],
        [f"[rank{rank}] {line}" for rank in range(8) for line in run_of(0, 90)],
        [*run_of(0, 90), *(f"arguments: width={n} depth={n}" for n in range(90)), *run_of(0, 0)[2:3]],
    ],
    ids=["what comes again after as many lines", "one after the other", "ranks", "one of them alone"],
)
def test_what_is_no_new_run(lines: list[str]) -> None:
    assert compressed([joined(lines)]).runs(0) == []


FAILED_SHORT, FAILED_LONG = ((strides, "oops, it is over") for strides in (70, 100))
WENT_WELL = (90, "all is done")


@pytest.mark.parametrize(
    ("kinds", "begin"),
    [
        ([FAILED_SHORT, FAILED_LONG, WENT_WELL, WENT_WELL, WENT_WELL], [1, 2]),
        ([FAILED_SHORT, FAILED_LONG, *[WENT_WELL] * 6], [1, 2]),
        ([FAILED_SHORT, FAILED_LONG, *[WENT_WELL] * 3, FAILED_LONG, FAILED_SHORT], [1, 2, 6]),
        ([*[WENT_WELL] * 3, FAILED_SHORT, FAILED_LONG, WENT_WELL], [4, 5]),
        ([*[WENT_WELL] * 3, (90, "oops, it is over"), WENT_WELL], [4]),
        ([*[WENT_WELL] * 3, (76, "oops, it is over", *["all goes on"] * 14), WENT_WELL], []),
    ],
    ids=[
        "failures, then good ones",
        "failures, then many good ones",
        "failures behind them, too",
        "good ones, then failures",
        "a failure as long as they are",
        "an epoch that went on behind a failure",
    ],
)
def test_runs_that_went_well_do_not_hide_those_that_failed(kinds: list[tuple[int, str]], begin: list[int]) -> None:
    """Runs of one length that went well look like epochs. ``begin``: which of the runs begin one, as it is known at the end."""
    runs = [run_of(number, strides, *end) for number, (strides, *end) in enumerate(kinds)]
    begins = [1 + sum(map(len, runs[:number])) for number in begin]
    compression = compressed([joined([line for run in runs for line in run])])
    assert compression.runs(0) == begins
    assert compression.run_count(0) == len(begins)


def test_epochs_keep_no_first_lines() -> None:
    kept = compressed([joined([line for number in range(60) for line in run_of(number, 100)])]).kept
    assert len([line for line in kept if line.line > 6 * 105]) < 8


def test_all_runs_are_counted_though_only_the_latest_are_remembered() -> None:
    runs = [run_of(number, 70 + number * 37 % 90, "oops, it is over") for number in range(100)]
    compression = compressed([joined([line for run in runs for line in run])])
    assert compression.run_count(0) == 99
    assert compression.runs(0) == [1 + sum(map(len, runs[:number])) for number in range(36, 100)]


def test_details_of_a_failure_stay_in_each_of_very_many_runs() -> None:
    end = ["oops, it is over", "    in part 3 of the garden", "    by the old keeper"]
    runs = [run_of(number, 70 + number * 37 % 90, *end) for number in range(90)]
    last = sum(map(len, runs))
    lines = {line.line for line in compressed([joined([line for run in runs for line in run])]).kept}
    assert {last - 2, last - 1, last} <= lines


def test_a_first_line_that_came_alone_begins_nothing_later() -> None:
    """It is none of the first lines any more, also where the line that shows so is the same one again."""
    lines = [*run_of(0, 90), run_of(1, 0)[0], *run_of(1, 130)[5:], *run_of(2, 90), "oops, it is over", *run_of(3, 80)]
    compression = compressed([joined(lines)])
    starts = {lines[line - 1] for line in compression.runs(0)}
    assert not any(line.startswith("Preparing wheel") for line in starts)


@given(st.integers(0, 1), st.lists(st.integers(1, 4000), max_size=6))
def test_runs_are_the_same_for_any_cuts_and_from_a_snapshot(broken: int, places: list[int]) -> None:
    log = joined([line for number in range(4) for line in run_of(number, 70 + 20 * number, *["cannot open the gate"] * broken)])
    whole = compressed([log])
    parts = [log[a:b] for a, b in pairwise([0, *sorted(places), len(log)])]
    compression = Compression(MATCHER, FOLDING)
    for part in parts:
        compression.feed(0, part)
        lines = [stored(line, MATCHER.rules) for line in compression.kept]
        compression = restored(snapshot(compression), MATCHER, lines, FOLDING)
    compression.close(0)
    assert compression.runs(0) == whole.runs(0) != []
    assert [line.line for line in compression.kept] == [line.line for line in whole.kept]


def test_the_service_folds_as_replay_does() -> None:
    assert Settings().fold_after == KEEP


BAR = " 50%|\u2588\u2588\u2588\u2588\u2588     | {n}/900 [00:01<00:01,  4.2it/s{more}]"
GLUED = ["CRITICAL - cannot save checkpoint", "Skip batch 7 due to non-finite gradients", "Out of memory", "Quota exceeded"]


@pytest.mark.parametrize("text", GLUED)
@pytest.mark.parametrize(
    "glue",
    ["{bar}{text}", "{text} {bar}", "{bar}{bar}{text}", "{bar}\r{text}", "{text}\r{bar}", "Epoch 3: {bar}{text}"],
    ids=["behind", "before", "behind two", "behind a return", "before a return", "behind an epoch"],
)
def test_what_is_glued_to_a_progress_bar_is_kept(glue: str, text: str) -> None:
    """With the shipped rules, in the middle of bars that are dropped."""
    compression = Compression(shipped_matcher(), FOLDING)
    bars = [BAR.format(n=n, more=", loss=2.5" if n % 2 else "") for n in range(200)]
    bars[150] = glue.format(bar=bars[150], text=text)
    compression.feed(0, joined(bars))
    compression.close(0)
    assert [line.line for line in compression.kept] == [151]
    assert text.encode() in b"".join(line.text for line in compression.kept)
