"""``diagnose rules test | explain``: which rules match a log, or one line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable

from diagnose.cli import printable
from diagnose.errors import RuleError, nearest
from diagnose.knowledge.rules import Rule, RuleSet, load
from diagnose.rendering.printed_rule import as_dict
from diagnose.rendering.terminal import Style, table


def test(arguments: argparse.Namespace) -> int:
    from collections import Counter

    from diagnose.matching.matcher import EARLY, Matcher
    from diagnose.matching.scan import Cursor
    from diagnose.matching.shapes import shape
    from diagnose.reading import sources
    from diagnose.reading.lines import Blocks
    from diagnose.verification.rules import body_of

    rules = load(arguments.paths or None)
    matcher = Matcher(rules, reserved=EARLY)
    hits: Counter[int] = Counter()
    unknown: Counter[bytes] = Counter()
    sample: dict[bytes, bytes] = {}
    lines_in = bytes_kept = bytes_in = 0
    for source in sources.find([arguments.log]).sources:
        blocks, cursor = Blocks(), Cursor()
        for group in (*map(blocks.feed, source.chunks()), blocks.close()):
            for block in group:
                scan = matcher.scan(block, cursor)
                cursor = scan.cursor
                lines_in += scan.lines
                bytes_kept += scan.bytes_kept
                hits.update(dict(scan.dropped))
                for kept, text in scan.segments():
                    hits[kept.rule] += 1
                    if kept.rule < 0:
                        key = shape(body_of(text.decode("utf-8", "surrogateescape")))[:300]
                        if key in sample or len(sample) < 20_000:
                            sample.setdefault(key, text)
                            unknown[key] += len(text) + 1
        bytes_in += blocks.bytes_in
    rows = [(matcher.rules[number].id, count) for number, count in hits.most_common() if number >= 0]
    shapes = [(sample[key][:160].decode("utf-8", "replace"), count) for key, count in unknown.most_common(60)]
    if arguments.json:
        print(
            json.dumps(
                {
                    "lines_in": lines_in,
                    "bytes_in": bytes_in,
                    "bytes_kept": bytes_kept,
                    "hits": dict(rows),
                    "unknown": [{"line": line, "bytes": count} for line, count in shapes],
                },
                ensure_ascii=False,
            )
        )
        return 0
    style = Style(sys.stdout)
    if arguments.unknown:
        print(
            table(
                [("bytes", "a line of the shape"), *((f"{n:,}", printable(line)) for line, n in shapes)],
                style,
                header=True,
            )
        )
    else:
        print(table([("lines", "rule"), *((f"{n:,}", rule) for rule, n in rows)], style, header=True))
    share = 100 * bytes_kept / bytes_in if bytes_in else 0.0
    print(style.dim(f"{lines_in:,} lines, {bytes_in:,} bytes; {bytes_kept:,} bytes kept ({share:.2f} %)"))
    return 0


def explain(arguments: argparse.Namespace) -> int:
    from diagnose.compression.folds import available, masked
    from diagnose.matching.matcher import EARLY, Matcher
    from diagnose.reading.prefixes import origin
    from diagnose.verification.rules import body_of, captures_of, how_far

    rules = load(arguments.rules)
    if arguments.rule:
        rule = rules.find(arguments.rule)
        if rule is None:
            meant = nearest(arguments.rule, (rule.id for rule in rules))
            remedy = "diagnose rules list shows them all"
            raise RuleError(
                f"there is no rule {arguments.rule!r}", remedy=f"did you mean {meant}? {remedy}" if meant else remedy
            )
        rules = RuleSet((rule,))
    matcher = Matcher(rules, "plain", reserved=EARLY)
    style = Style(sys.stdout)
    for line in _lines(arguments.line):
        body = body_of(line)
        hits = matcher.matches(body)
        who = origin(line.encode("utf-8", "surrogateescape"))
        about = {name: value for name in ("rank", "node", "gpu", "time") if (value := getattr(who, name)) is not None}
        first = matcher.rules[hits[0]] if hits else None
        verdict = _verdict(first)
        folds = available() and (first is None or first.left)
        if arguments.json:
            print(
                json.dumps(
                    {
                        "line": line,
                        "body": body.decode("utf-8", "replace"),
                        "verdict": verdict,
                        "rules": [
                            as_dict(matcher.rules[hit]) | {"captures": captures_of(matcher.rules[hit], body)} for hit in hits
                        ],
                        **({"mask": masked(body)} if folds else {}),
                        **about,
                    },
                    ensure_ascii=False,
                )
            )
            continue
        print(f"{style.bold(verdict)}")
        print(f"  body   {printable(body.decode('utf-8', 'replace'))}")
        for name, value in about.items():
            print(f"  {name:6} {printable(str(value))}")
        for hit in hits:
            rule = matcher.rules[hit]
            print(f"  {style.cyan(rule.name)}  {rule.title}")
            for name, value in captures_of(matcher.rules[hit], body).items():
                print(f"      {name} = {printable(value)}")
        if folds:
            print(f"  folds  {printable(masked(body))}")
            print(f"  {_why(line)}")
        if not hits:
            near = []
            for rule in rules if arguments.rule else ():
                reached, wanted = how_far(rule.pattern, body)
                near.append(f"  {rule.id} matched up to column {reached + 1}, then wanted {wanted!r}")
            print("\n".join(near), end="\n" if near else "")
    return 0


def _verdict(first: Rule | None) -> str:
    """What becomes of a line; ``first``: the rule that decides about it."""
    if first is None:
        return "kept: no rule knows it"
    if first.left:
        return "kept: left to folds, which read its numbers"
    return f"kept: failure evidence, {first.reason}" if first.family == "failures" else f"dropped: {first.kind}"


def _why(line: str) -> str:
    """When a line folds that no rule knows."""
    from diagnose.compression.folds import KEEP
    from diagnose.diagnosis.likeness import sounds
    from diagnose.reading.prefixes import body_start

    text = line.encode("utf-8", "surrogateescape")
    if sounds(text, body_start(text)):
        return f"it sounds like a failure: only exact copies of it fold, from number {KEEP + 1} on"
    return (
        f"from number {KEEP + 1} on, lines of this mask fold, unless a number or who says it is new; "
        "where new lines always follow the line before, the first one folds, too (docs/folds.md)"
    )


def _lines(word: str) -> Iterable[str]:
    if word != "-":
        return [word]
    return (line.rstrip("\n") for line in sys.stdin)
