"""Logs and rules made up by Hypothesis, with a taste for what breaks scanners."""

from __future__ import annotations

import itertools
import re

from hypothesis import strategies as st

from diagnose.knowledge.rules import Rule, RuleSet

_PIECES = [
    b"a", b"b", b"loss", b" ", b"  ", b":", b"=", b".", b"-", b"1", b"7", b"79", b"137", b"2024", b"0", b"3.14", b"1e-5",
    b"e", b"nan", b"Xid", b"error", b"iteration ", b"\xc3\xa9", b"\xe2\x96\x88", b"\xff", b"\xe4\xb8\xad\xe6\x96\x87", b"\t",
    b"[rank3]: ", b"[default12]:", b"3: ", b" 12: ", b"gpu-017: ", b"node3: ", b"fp16: ", b"n20.cluster: ", b"worker-1  | ",
    b"(Worker pid=12, ip=10.0.0.1) ", b"(raylet) ", b"[1,3]<stderr>:", b"2024-01-02 03:04:05,678 ", b"[2024-01-02 03:04:05] ",
    b"2024-01-02T03:04:05.1Z stdout F ", b"[pod/a/b] ", b"\x1b[31m", b"\x1b[0m", b"\x1b]0;t\x07", b"\x1b[", b"\x1b",
]  # fmt: skip
_ENDS = [b"\n", b"\n", b"\n", b"\r\n", b"\r", b"\0", b"\n\n", b"\r\r", b"\0\0\0"]

segments = st.lists(st.sampled_from(_PIECES) | st.binary(max_size=3), max_size=9).map(b"".join)
bodies = segments.map(lambda data: re.sub(rb"[\n\r\0]", b"", data))
logs = st.lists(st.tuples(segments, st.sampled_from(_ENDS)), max_size=30).map(
    lambda parts: b"".join(text + end for text, end in parts)
)


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """``data`` cut into chunks anywhere."""
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    edges = [0, *places, len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


_ATOMS = [
    "a", "b", "loss", " ", ":", "=", r"\.", "-", "1", "7", "79", "137", r"\d", r"\d", "[0-9]", "[1-9]", "[0-9a-f]", r"\w",
    r"\S", r"\s", ".", "[^:]", "[^0-9]", r"\D", r"[\d.]", "é", r"[\x80-\xff]", r"\xe2\x96", "e", "nan", "Xid",
]  # fmt: skip
_REPEATS = ["", "", "", "+", "+", "*", "?", "{2}", "{1,3}", "{2,}", "+?", "*?"]


def _patterns(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.tuples(inner, st.sampled_from(_REPEATS)).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
    branches = st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(?:" + "|".join(parts) + ")")
    return st.lists(repeated | branches | inner, min_size=1, max_size=4).map("".join)


def _repeated(atom: str, repeat: str) -> str:
    whole = len(atom) == 1 or atom[0] == "[" or (atom[0] == "\\" and len(atom) == 2)
    return (atom if whole else f"(?:{atom})") + repeat


_simple = st.tuples(st.sampled_from(_ATOMS), st.sampled_from(_REPEATS)).map(lambda pair: _repeated(*pair))
_ends = st.sampled_from(["", "", "", "^", r"\b"])


def _compiles(pattern: str) -> bool:
    try:
        return re.compile(pattern.encode()).search(b"") is None  # Hyperscan takes no pattern that matches nothing
    except (re.error, OverflowError):
        return False


patterns = (
    st.tuples(_ends, st.recursive(_simple, _patterns, max_leaves=6), st.sampled_from(["", "", "", "$", r"\b"]))
    .map("".join)
    .filter(_compiles)
)


@st.composite
def rule_sets(draw: st.DrawFn) -> RuleSet:
    """A few random rules of both families."""
    chosen = draw(st.lists(st.tuples(patterns, st.booleans(), st.integers(0, 3)), min_size=1, max_size=5))
    rules = []
    for number, (pattern, failure, kind) in enumerate(chosen):
        if failure:
            rules.append(Rule(f"f{number}", "failures", pattern, reason="runtime_error", layer="user"))
        else:
            metrics = (("loss", r"([-+.\dEe]+|nan)"), ("step", r"\b(\d+)")) if kind == 1 else ()
            rules.append(
                Rule(f"d{number}", "filters", pattern, kind="debug", metrics=metrics, left=kind == 2, yields=kind == 3)
            )
    return RuleSet.of(rules)


@st.composite
def siblings(draw: st.DrawFn, body: bytes) -> bytes:
    """Another line of the same shape: each run of digits or of high bytes replaced by another."""

    def other(run: re.Match[bytes]) -> bytes:
        if run[0] < b"\x80":
            return draw(st.sampled_from([b"0", b"1", b"7", b"79", b"137", b"2024", b"00", b"5555555"]))
        return draw(st.sampled_from([b"\x80", b"\xff", b"\xc3\xa9", b"\xe2\x96\x88\xe2\x96"]))

    return re.sub(rb"[0-9]+|[\x80-\xff]+", other, body)
