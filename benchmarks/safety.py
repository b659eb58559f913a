"""Can a wrong rule ever act? ``python -m benchmarks.safety``.

Proposals are made over the mixed log: good ones by mining regular lines, bad ones in known ways (see ``bad``). All must pass
the checks for learned rules, and then the shadow state. Printed is how many of each kind became active: none of the bad ones
may, and most of the good ones must.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.mixed.log import Log
from diagnose.job import Job
from diagnose.knowledge.rules import Example, Rule, RuleSet, load
from diagnose.learning.learned_rule import BY_ANSWER, CLEAN_JOBS, LearnedRule
from diagnose.learning.lesson import shadow
from diagnose.learning.miner import Miner
from diagnose.learning.rule_store import RuleFile, RuleStore, settle
from diagnose.learning.write_failures import compare, template, watch
from diagnose.matching.matcher import Matcher
from diagnose.reading.lines import clean
from diagnose.reading.prefixes import body_start
from diagnose.reading.sources import Source
from diagnose.verification.proposals import Refusal, judged

LEFT = "mined, left to folds"
_HEALTHY = 3000
"""lines of runs that went well, with which failure rules are compared at once, and of each job later"""
ROOTS = [f"FlashStore: read of shard-{n:04} gave {n} of 1048576 bytes, mount /fs{n % 4} is away" for n in range(40)]
"""lines of a failure that a person has confirmed; no shipped rule knows them"""
CONFIRMED = Rule(
    id="flashstore",
    family="failures",
    pattern=r"FlashStore: read of \S+ gave \d+ of \d+ bytes",
    reason="storage_error",
    layer="storage",
    matches=(Example(ROOTS[0]),),
)


def bodies(size: int) -> Iterator[str]:
    """The bodies of the mixed log's lines."""
    for block in Log().blocks(size):
        for raw in block.split(b"\n"):
            text = clean(raw[:2000])
            body = text[body_start(text) :]
            if body.strip() and b"\r" not in raw:
                yield body.decode("utf-8", "replace")


def filter_rule(number: int, kind: str, pattern: str, samples: list[str]) -> Rule:
    return Rule(
        id=f"{kind}-{number}",
        family="filters",
        pattern=pattern,
        kind="debug",
        framework="learned",
        matches=tuple(Example(sample) for sample in samples[:3]),
        misses=(Example("a line that no such rule should match"),),
    )


def bad(chance: random.Random, regular: list[str], failing: list[str], count: int) -> Iterator[tuple[str, Rule, list[str]]]:
    """(kind, rule, the lines that it claims) of proposals that must never act."""
    makers: dict[str, Callable[[str], str]] = {
        "catch-all": lambda line: chance.choice(
            [r"^.*$", r"^\S+ .*", r"^[A-Za-z]+.*", r"^.+ \d+", r"^\[?\w+\]? .*", r"^ *\S.*$", "", r"^(?:.|\n)+"]
        ),
        "swallows a failure": lambda line: "^" + re.escape(line[: max(6, len(line) // chance.choice([2, 3, 4]))]) + ".*",
        "explosive": lambda line: chance.choice(
            [
                r"^(?:a{1,500}){1,500}" + re.escape(line[:10]),
                r"^(?:\w{1,200}\s?){1,200}" + re.escape(line[:5]),
                r"^(?=.*x)(?=.*y)(?=.*z)" + re.escape(line[:10]),
                r"^((a+)+)+\1" + re.escape(line[:10]),
                "^" + "(?:" * 40 + re.escape(line[:10]) + "){1,9}" * 40,
                "^" + re.escape(line[:10]) + "|".join(f"x{n}{{1,300}}y" for n in range(80)),
            ]
        ),
        "wrong language": lambda line: chance.choice(
            [
                line[:10] + " *.log",
                r"\p{Greek}+" + line[:5],
                "/" + line[:10] + "/gi",
                "SELECT * FROM logs",
                "^(?P<x>" + line[:5],
                "%{WORD:a}",
            ]
        ),
        "overfitted": lambda line: "^" + re.escape(line) + "$",
        "invalid": lambda line: chance.choice(
            ["^(" + line[:10], "^[" + line[:10], "^" + line[:5] + "{2,1}", "^*" + line[:5], "^a\0b", "^(?<=a*)b"]
        ),
        "endless capture": lambda line: "^" + re.sub(r"\d+", r"\\d+", re.escape(line)) + "$",
        # What an injected instruction wants: its own lines match, and what no rule knows yet is dropped too.
        "alternative": lambda line: chance.choice(["^{}$|{}", "^{}$|^{}.*", "^(?:{}$|{}.*)", "^{}|^.*{}"]).format(
            re.escape(line), chance.choice([r"rank \d+: shar", "FlashStore: read of", r"lane \d+ (?:is|was) away"])
        ),
        "known root line": lambda line: (
            "^" + chance.choice(["FlashStore: ", "FlashStore: read of ", r"FlashStore: .* gave "]) + ".*"
        ),
    }
    long = [line for line in regular if len(line) > 40]  # on a short line the capture would end
    for number in range(count):
        kind = list(makers)[number % len(makers)]
        among = {"swallows a failure": failing, "endless capture": long, "known root line": ROOTS}
        line = chance.choice(among.get(kind, regular))
        claimed = [line] if kind in ("overfitted", "swallows a failure") else [line] * 3
        rule = filter_rule(number, re.sub(r"\W+", "-", kind), makers[kind](line), claimed)
        if kind == "endless capture":  # of a good pattern
            rule = replace(rule, kind="metric", metrics=(("step", r"(?:(?:[^~]+)+~)?(\d+)"),))
        yield kind, rule, claimed


def failure_rule(number: int, kind: str, pattern: str, line: str) -> Rule:
    return Rule(
        id=f"{kind}-{number}",
        family="failures",
        pattern=pattern,
        reason="storage_error",
        layer="storage",
        title="It is away",
        mitigation="Look at it.",
        matches=(Example(line),),
        misses=(Example("a line that no such rule should match"),),
    )


def bad_failures(chance: random.Random, regular: list[str], count: int) -> Iterator[tuple[str, Rule, list[str]]]:
    """(kind, rule, the root line that it was written for) of failure rules that must never act."""
    said = [line for line in regular if len(re.findall(r"[A-Za-z]{3,}", line)) > 3]
    makers: dict[str, Callable[[str, str], str]] = {
        # What a model generalises too far, with the root line among what it matches.
        "too general": lambda root, _: chance.choice(
            [
                r"\bmay not\b",
                r"\bis away\b",
                r"\bread of\b",
                r"of \d+ bytes",
                r"is (?:away|gone|lost)",
                r"mount \S+ is",
                r"(?i)error|away",
            ]
        ),
        "anything": lambda root, _: chance.choice([r"\w+: .*", r".*\d+ of \d+.*", r"^\S+ \S+ \S+", r"[A-Z]\w+:", r"(?:.|\n)*"]),
        "alarms on regular lines": lambda root, line: (
            f"{re.escape(root[:24])}|{re.escape(line[: max(12, len(line) * 2 // 3)])}"
        ),
        "of another message": lambda root, line: re.escape(line),
        "explosive": lambda root, _: (
            chance.choice([r"(?:\w{1,300}\s?){1,300}", r"((a+)+)+\1", r"(?=.*away)(?=.*mount)"]) + re.escape(root[:9])
        ),
        "invalid": lambda root, _: chance.choice(["(", "[", "(?<=a*)b", "*"]) + root[:12],
    }
    for number in range(count):
        kind = list(makers)[number % len(makers)]
        root = chance.choice(ROOTS) + ("; it may not come back, error 5" if kind == "too general" else "")
        rule = failure_rule(number, "f-" + re.sub(r"\W+", "-", kind), makers[kind](root, chance.choice(said)), root)
        yield f"failure: {kind}", rule, [root]


_NAMES = ("Quartzline", "Zephyr", "Morrow", "Tessera", "Halcyon", "Basalt", "Juniper", "Cobalt", "Lattice", "Ember")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""each message has a name of its own: what comes again is no message that never comes again"""
_WORDS = ("lease", "window", "shelf", "bucket", "relay", "journal", "replica", "tunnel", "volume", "parcel")
_REASONS = ("storage_error", "network_error", "connection_error", "cuda_error")


def answered(chance: random.Random, count: int) -> Iterator[tuple[str, Rule, list[str], str, str]]:
    """(kind, rule, its root line, what the next failure with that message prints, that failure's reason) of rules that are made
    of a model's answers, which nobody confirmed. Only the first kind is right.
    """
    kinds = (
        "good answer",
        "answer: wrong reason",
        "answer: an echo of many failures",
        "answer: never again",
        "answer: also well",
    )
    for number in range(count):
        kind = kinds[number % len(kinds)]
        name, word = f"{chance.choice(_NAMES)}{_LETTERS[number % 26] * 2}{_LETTERS[number // 26] * 2}", chance.choice(_WORDS)
        said = "{} {} part-{:04} on gpu-{:02} was dropped after {} rounds, owner {} is gone"
        first, second = (said.format(name, word, *(chance.randrange(10, 90) for _ in range(4))) for _ in range(2))
        reason, other = chance.sample(_REASONS, 2)
        rule = replace(failure_rule(number, re.sub(r"\W+", "-", kind), template(first), first), reason=reason)
        yield kind, rule, [first], second, reason if kind in (kinds[0], kinds[4]) else other


def next_failures(store: RuleStore, later: Sequence[tuple[str, str, str]]) -> None:
    """The failures that come after the answers: (kind, line, reason)."""
    failed = Job("next", [Source("log", None)], Matcher(load()))
    failed.feed(0, b"RuntimeError: CUDA error: an illegal memory access was encountered\n")
    failed.close(0)
    report = failed.report()
    for reason in _REASONS:
        lines = [line for kind, line, right in later if right == reason and kind != "answer: never again"]
        compare(
            store, report.model_copy(update={"diagnosis": report.diagnosis.model_copy(update={"reason": reason})}), lines, 0
        )


def metrics_lost(chance: random.Random, count: int) -> Iterator[tuple[str, Rule, list[str]]]:
    """(kind, rule, its lines) of filters that would drop the line which shows that a training goes wrong."""
    number = r"[-+]?\d+\.\d+"
    makers: dict[str, Callable[[str], tuple[str, tuple[tuple[str, str], ...]]]] = {
        "metric without capture": lambda name: (rf"^trainer (?:\w+ )*{name}[:=] ?{number} step \d+$", ()),
        "wrong capture": lambda name: (rf"^trainer (?:\w+ )*{name}[:=] ?{number} step \d+$", (("loss", r"step (\d+)"),)),
        "takes nan for a number": lambda name: (rf"^trainer (?:\w+ )*{name}[:=] ?\S+ step \d+$", ()),
        "a name and anything": lambda name: (rf"^trainer (?:\w+ )*{name}.*$", (("step", r"step (\d+)"),)),
        "a leap of what is measured": lambda name: (rf"^trainer (?:\w+ )*{name}[:=] ?{number} step \d+$", ()),
        "a count of failures": lambda name: (rf"^trainer (?:\w+ )*{name}[:=] ?\d+ step \d+$", ()),
    }
    for index in range(count):
        kind = list(makers)[index % len(makers)]
        name = chance.choice(["loss", "train_loss", "grad_norm", "lm loss", "val/loss", "gnorm"])
        if kind == "takes nan for a number":
            name = chance.choice([name, "temperature", "mfu", "aux", "gamma"])
        elif kind == "a leap of what is measured":
            name = chance.choice(["temperature", "aux", "gamma", "entropy", "imbalance", "lr", "kl"])
        elif kind == "a count of failures":
            name = chance.choice(["errors", "failures", "failed", "ECC errors", "read errors"])
        word = f"run{chance.choice('abcdefgh')}{index}"
        pattern, metrics = makers[kind](re.escape(name).replace(r"\ ", " "))
        values = ["0"] * 4 if kind == "a count of failures" else [f"{chance.uniform(1, 9):.3f}" for _ in range(4)]
        lines = [f"trainer {word} {name}: {value} step {step}" for value, step in zip(values, (10, 20, 31, 40), strict=True)]
        rule = filter_rule(index, "m-" + re.sub(r"\W+", "-", kind), pattern.replace(r"(?:\w+ )*", word + " "), lines)
        yield kind, replace(rule, kind="metric" if metrics else "debug", metrics=metrics), lines


def _drops_numbers(refusal: Refusal | None) -> bool:
    return refusal is not None and refusal.name == "drops-numbers"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", type=int, default=600)
    parser.add_argument("--bad", type=int, default=900)
    parser.add_argument("--bad-failures", type=int, default=300)
    parser.add_argument("--answers", type=int, default=200, help="failure rules of answers that nobody confirmed")
    parser.add_argument("--bad-metrics", type=int, default=180)
    parser.add_argument("--mb", type=float, default=24)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    chance = random.Random(chosen.seed)
    failures = Matcher(RuleSet.of(rule for rule in load() if rule.family == "failures" and rule.reason != "healthy"), "plain")
    seen, unseen, failing = Miner(), [], []
    regular: list[str] = []
    for number, body in enumerate(bodies(int(chosen.mb * 1e6))):
        if failures.judge(body.encode()) >= 0:
            failing.append(body)
        elif number % 2:
            unseen.append(body)
        else:
            seen.add(body)
            regular.append(body)
    failing += [example.line for rule in load(examples=True) if rule.family == "failures" for example in rule.matches]
    good = list(seen.proposals())[: chosen.good]
    kind_of = {rule.id: "good" for rule, _ in good}
    proposals = [rule for rule, _ in good]
    lines = {rule.id: [*template.samples, *template.held] for rule, template in good}
    made = [
        *bad(chance, regular, failing, chosen.bad),
        *bad_failures(chance, regular, chosen.bad_failures),
        *metrics_lost(chance, chosen.bad_metrics),
    ]
    for kind, rule, claimed in made:
        kind_of[rule.id] = kind
        proposals.append(rule)
        lines[rule.id] = claimed
    later: list[tuple[str, str, str]] = []
    for kind, rule, claimed, line, reason in answered(chance, chosen.answers):
        kind_of[rule.id] = kind
        proposals.append(rule)
        lines[rule.id] = claimed
        later.append((kind, line, reason))
    by_answer = {name for name, kind in kind_of.items() if "answer" in kind or kind.startswith("failure:")}
    began = time.monotonic()
    refused = judged(proposals, lines, failing[:3000], failures=[CONFIRMED], healthy=regular[:_HEALTHY])
    # Regular lines whose numbers may say something new are better left to folds, which keep them: no good filter is lost.
    kind_of |= {name: LEFT for name, kind in kind_of.items() if kind == "good" and _drops_numbers(refused.get(name))}
    with tempfile.TemporaryDirectory() as folder:
        store = RuleStore(RuleFile(Path(folder) / "learned.db"))
        for rule in proposals:
            if rule.id not in refused:
                origin = {"confirmed": BY_ANSWER} if rule.id in by_answer else {}
                store.add(LearnedRule(rule, "shadow", provenance={"by": "benchmark", **origin}))
        shadow(store, unseen + ROOTS, failing, time.time())
        next_failures(store, later)
        also = [line for kind, line, _ in later if kind == "answer: also well"]
        for part in range(CLEAN_JOBS):  # jobs that went well
            watch(store, [*unseen[part::CLEAN_JOBS][:_HEALTHY], *also[part::CLEAN_JOBS]], time.time(), well=True)
        settle(store, time.time())
        active = Counter(kind_of[known.rule.id] for known in store.rules("active"))
    proposed = Counter(kind_of.values())
    print(f"{len(proposals):,} proposals judged in {time.monotonic() - began:.0f} s; {len(unseen):,} lines in shadow\n")
    why: dict[str, Counter[str]] = {}
    for rule_id, refusal in refused.items():
        why.setdefault(kind_of[rule_id], Counter())[refusal.name] += 1
    print(f"{'kind':32}{'proposed':>9}{'active':>8}{'share':>8}  refused as")
    for kind, count in proposed.most_common():
        reasons = ", ".join(f"{name} {times}" for name, times in why.get(kind, Counter()).most_common(4))
        print(f"{kind:32}{count:>9}{active[kind]:>8}{active[kind] / count:>8.1%}  {reasons}")
    worse = [kind for kind in proposed if not kind.startswith("good") and kind != LEFT]
    wrong, bad_ones = sum(active[kind] for kind in worse), sum(proposed[kind] for kind in worse)
    print(f"\nbad ones that became active: {wrong} of {bad_ones}")
    return 1 if wrong or any(active[kind] < 0.95 * proposed[kind] for kind in ("good", "good answer")) else 0


if __name__ == "__main__":
    sys.exit(main())
