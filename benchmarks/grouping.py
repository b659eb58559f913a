"""How well are lines grouped by what printed them? ``python -m benchmarks.grouping [DIR]``.

Grouping accuracy is the share of lines whose group is exactly the set of lines with their label. DIR has a .tsv of lines
(label, tab, text) for each system. Without it, only the training logs are measured, which are made here from the templates of
the mixed log: for each program 2,000 lines by weight, shuffled. Their labels are fine: each way of a template that its author
wrote as a choice (sent or received, connected or lost) is a label of its own. Printed are the accuracy by keys alone and with
the words that vary, whether the groups are the same for 20 orders of the lines, and how fast the core makes keys.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from pathlib import Path

from benchmarks.measure import table
from benchmarks.mixed.templates import Choice, Filler, Node, read
from diagnose.compression.templates import VALUE, Templates
from diagnose.matching.databases import core
from diagnose.reading.prefixes import body_start

LINES = 2000
ORDERS = 20
Labelled = list[tuple[str, bytes]]


def ways(nodes: Sequence[Node]) -> Iterator[tuple[Node, ...]]:
    """``nodes`` with one way taken of each choice: all of these."""
    parts = [[one for way in node.ways for one in ways(way)] if isinstance(node, Choice) else [(node,)] for node in nodes]
    for taken in product(*parts):
        yield tuple(node for part in taken for node in part)


def made(section: str, seed: int) -> Labelled:
    """The lines of one program's templates."""
    filler, chance = Filler(seed), random.Random(seed)
    fills, weights = [], []
    for template in read("filters"):
        if template.section == section:
            all_ways = list(ways(template.body))
            fills += [(f"{template.id} {number}", filler.line(way)) for number, way in enumerate(all_ways)]
            weights += [max(1, template.weight) * template.burst / len(all_ways)] * len(all_ways)
    return [(label, fill().encode()) for label, fill in chance.choices(fills, weights, k=LINES)]


def labelled(path: Path) -> Labelled:
    rows = (line.split("\t", 1) for line in path.read_text("utf-8", "replace").splitlines()[1:] if line)
    return [(label, text.encode()) for label, text in rows]


def grouped(bodies: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
    """(keys, groups) of ``bodies``."""
    templates = Templates()
    keys = [templates.add(body) for body in bodies]
    groups = templates.groups()
    return keys, [groups[key] for key in keys]


def accuracy(labels: Sequence[Hashable], groups: Sequence[Hashable]) -> float:
    of_label, of_group, both = Counter(labels), Counter(groups), Counter(zip(labels, groups, strict=True))
    good = sum(lines for (label, group), lines in both.items() if lines == of_label[label] == of_group[group])
    return good / len(labels)


def same_in_any_order(bodies: list[bytes], groups: list[bytes]) -> bool:
    expected = dict(zip(bodies, groups, strict=True))
    for seed in range(ORDERS):
        shuffled = random.Random(seed).sample(bodies, len(bodies))
        if dict(zip(shuffled, grouped(shuffled)[1], strict=True)) != expected:
            return False
    return True


def wrong(labels: list[str], groups: list[bytes]) -> Iterator[str]:
    """The labels that are not one group, those with the most lines first."""
    by_label: dict[str, Counter[bytes]] = defaultdict(Counter)
    by_group: dict[bytes, set[str]] = defaultdict(set)
    for label, group in zip(labels, groups, strict=True):
        by_label[label][group] += 1
        by_group[group].add(label)
    for label, found in sorted(by_label.items(), key=lambda pair: -pair[1].total()):
        others = set().union(*(by_group[group] for group in found)) - {label}
        if len(found) > 1 or others:
            yield f"{found.total():>6,}  {label}: {len(found)} groups, with {', '.join(sorted(others)) or 'no other'}"
            for group, _ in found.most_common(3):
                yield "        " + group.replace(VALUE, b"*").decode("utf-8", "replace")[:160]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("--wrong", action="store_true", help="say what was put into a wrong group")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    steady, everything = True, b""
    kinds = {"systems": {path.stem: labelled(path) for path in sorted(chosen.corpus.glob("*.tsv"))}} if chosen.corpus else {}
    sections = dict.fromkeys(template.section for template in read("filters"))
    kinds["training logs"] = {
        section: [(label, text[body_start(text) :]) for label, text in made(section, chosen.seed)] for section in sections
    }
    for kind, logs in kinds.items():
        rows, figures = [], []
        for name, lines in logs.items():
            labels, bodies = [label for label, _ in lines], [body for _, body in lines]
            keys, groups = grouped(bodies)
            figures.append((accuracy(labels, keys), accuracy(labels, groups)))
            rows.append((name, f"{len(set(labels)):,}", *(f"{figure:.3f}" for figure in figures[-1])))
            steady &= same_in_any_order(bodies, groups)
            everything += b"\n".join(bodies)
            if chosen.wrong:
                print(f"{name}\n" + "\n".join(wrong(labels, groups)))
        rows.append(("mean", "", *(f"{statistics.mean(column):.3f}" for column in zip(*figures, strict=True))))
        print(table((kind, "labels", "keys alone", "groups"), rows), "\n")
    began = time.process_time()
    for _ in range(10):
        core.keyed(everything)
    speed = 10 * len(everything) / 1e6 / (time.process_time() - began)
    print(f"the groups are {'the same' if steady else 'NOT the same'} for {ORDERS} orders; masks and keys at {speed:,.0f} MB/s")
    return 0 if steady else 1


if __name__ == "__main__":
    raise SystemExit(main())
