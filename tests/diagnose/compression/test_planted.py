"""News that is planted into regular streams stays visible, whatever the stream and whatever the lines are dressed in."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from diagnose.compression.folds import Folding
from diagnose.compression.kept_log import Compression
from diagnose.diagnosis.likeness import sounds
from diagnose.knowledge.rules import RuleSet
from diagnose.matching.databases import core
from diagnose.matching.matcher import Matcher
from tests.support.logs import shipped_matcher

pytestmark = pytest.mark.skipif(core is None, reason="folds need the native core")

PERIODS = 60
HOST, OTHER_HOST = "gpu-017", "gpu-018"
WORDS = (
    "river stone window lamp seven green walked under because slowly market bread answer number tall quiet winter "
    "garden bridge paper told against music yellow during early machine letter"
).split()


# --- regular streams: what they print in one period -------------------------------------------------------------------------

Period = Callable[[int, str, str, random.Random], list[str]]
"""(number of the period, loss, host, dice) -> its lines"""


def prose(dice: random.Random) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(dice.randrange(4, 14)))


def lines(n: int, loss: str, host: str, dice: random.Random) -> list[str]:
    return [f"stride {n} of 9000 its loss {loss} on {host} in {dice.uniform(1, 1.1):.2f} s"]


def block(n: int, loss: str, host: str, dice: random.Random) -> list[str]:
    pace = dice.uniform(40, 41)
    return [
        f"stride {n}:",
        f"    loss = {loss}",
        f"    pace = {pace:.3f}",
        "    kind = plain",
        f"    host = {host}",
        "",
        "=" * 9,
    ]


def table(n: int, loss: str, host: str, dice: random.Random) -> list[str]:
    rows = [f"| {part:<8} | {dice.uniform(0, 1):.4f} | {dice.randrange(100, 200)} |" for part in ("wheel", "axle", "hub")]
    return [f"| {'part':<8} | wear | count |", "|----------|------|-------|", *rows, f"| {'loss':<8} | {loss} | {host} |"]


def samples(n: int, loss: str, host: str, dice: random.Random) -> list[str]:
    return [f"sample {n} from {host}:", f"question: {prose(dice)}", f"answer: {prose(dice)}", f"score {loss}"]


def glued(n: int, loss: str, host: str, dice: random.Random) -> list[str]:
    one = f"stride {n} its loss {loss} on {host}"
    return [one * dice.randrange(1, 4)]


def of_json(n: int, loss: str, host: str, dice: random.Random) -> list[str]:
    return [f'{{"stride": {n}, "loss": {loss}, "host": "{host}", "wear": {{"wheel": {dice.uniform(0, 1):.4f}}}}}']


STREAMS: tuple[Period, ...] = (lines, block, table, samples, glued, of_json)

# --- what is planted ---------------------------------------------------------------------------------------------------------

NEWS = {
    "traceback": [
        "Traceback (most recent call last):",
        '  File "/opt/run/walk.py", line 31, in stride',
        "    return self.legs[side].forward(pace)",
        "KeyError: 'left'",
    ],
    "xid": ["NVRM: Xid (PCI:0000:3b:00): 79, pid=4321, name=python, GPU has fallen off the bus."],
    "error sentence": ["the gearbox refused to turn: a tooth of wheel 3 is broken"],
    "oom kill": ["Out of memory: Killed process 4321 (python) total-vm:93022208kB, anon-rss:66178340kB"],
    "time-out": ["Watchdog caught collective operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE) ran for 600000 ms"],
    "signal": ["worker 3 was killed by signal SIGBUS"],
    "last word": ["all wheels locked, that was it"],
}
"""in lines of their own; the other two kinds are a period of the stream with another loss or another host"""

# --- dresses -----------------------------------------------------------------------------------------------------------------


def clock(n: int) -> str:
    return f"2026-02-03 {4 + n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}"


def in_json(n: int, text: str) -> str:
    return json.dumps({"timestamp": clock(n), "level": "info", "logger": "walk", "message": text})


DRESSES: dict[str, Callable[[int, str], str]] = {
    "bare": lambda n, text: text,
    "time": lambda n, text: f"{clock(n)},123 {text}",
    "rank": lambda n, text: f"[rank3]: {text}",
    "logger": lambda n, text: f"{clock(n)},123 - walk.strides - INFO - {text}",
    "json": in_json,
    "node": lambda n, text: f"gpu-017: {text}",
    "ansi": lambda n, text: f"\x1b[32m{text}\x1b[0m",
    "torchrun": lambda n, text: f"[default3]:{text}",
}


@cache
def no_rules() -> Matcher:
    return Matcher(RuleSet.of([]))


def planted(stream: Period, dice: random.Random) -> Iterator[tuple[str, str]]:
    """(name of the news or "", line): a regular stream with each kind of news once, the last word at its end."""
    kinds = ["loss that is not a number", "another host", *(name for name in NEWS if name != "last word")]
    dice.shuffle(kinds)
    at = dict(zip(sorted(dice.sample(range(15, PERIODS), len(kinds))), kinds, strict=True))
    for n in range(PERIODS):
        kind = at.get(n, "")
        loss = f"{2 - n / PERIODS + dice.random() / 9:.4f}" if kind != "loss that is not a number" else "NaN"
        period = stream(n, loss, OTHER_HOST if kind == "another host" else HOST, dice)
        place = dice.randrange(len(period) + 1)  # news also comes amid a block
        own = NEWS.get(kind, [])
        for line in period[:place]:
            yield (kind if "NaN" in line or OTHER_HOST in line else ""), line
        yield from ((kind, line) for line in own)
        for line in period[place:]:
            yield (kind if "NaN" in line or OTHER_HOST in line else ""), line
    yield "last word", NEWS["last word"][0]


@pytest.mark.parametrize("rules", [no_rules, shipped_matcher], ids=["no rules", "shipped rules"])
@pytest.mark.parametrize("dress", DRESSES)
@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.__name__)
def test_planted_news_is_kept(stream: Period, dress: str, rules: Callable[[], Matcher]) -> None:
    for seed in range(3):
        dice = random.Random(f"{stream.__name__} {dress} {seed}")
        told = list(planted(stream, dice))
        assert len({kind for kind, _ in told} - {""}) == len(NEWS) + 2
        compression = Compression(rules(), Folding(sounds))
        log = "".join(DRESSES[dress](n, line) + "\n" for n, (_, line) in enumerate(told)).encode()
        compression.feed(0, log)
        compression.close(0)
        kept = {line.line for line in compression.kept}
        lost = [(kind, line) for n, (kind, line) in enumerate(told, 1) if kind and n not in kept]
        assert lost == []
