"""Is the root line among the lines that a model would see, if no failure rule knows it?

    python -m benchmarks.retrieval [--cases ../shared/corpus/cases] [--noise ../shared/corpus/whole/NAME.log.gz] [--missed N]

Every labelled failure is read in three ways: alone, with the filters only (without failure rules nothing knows its root line);
and twice without any rules, inside the raw lines of a job that went well, like the log of an unknown framework: at their end,
and in their middle, as if the other ranks had gone on. For several budgets of tokens it counts how often the labelled line is
among the chosen ones (in brackets: that line or another of its traceback). Next to it stands what the last lines of the log, or
the last lines with plain words of failure, would have given for the same budget.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from diagnose.accuracy import Label, labels
from diagnose.agent.retrieval import _STRONG, Material, choose, likely
from diagnose.diagnosis.evidence import Event, Evidence, gather
from diagnose.diagnosis.tracebacks import assemble
from diagnose.job import Job
from diagnose.knowledge.rules import RuleSet, load
from diagnose.matching.matcher import Matcher
from diagnose.reading.lines import clean
from diagnose.reading.prefixes import body_start
from diagnose.reading.sources import Source, find

_BUDGETS = (250, 500, 1000, 2000, 5000)
_NOISE = 4000


def read(path: Path, matcher: Matcher) -> tuple[Evidence, Source]:
    """The kept lines of one file."""
    source = find([str(path)]).sources[0]
    job = Job(path.name, [source], matcher)
    for chunk in source.chunks():
        job.feed(0, chunk)
    job.close(0)
    evidence = gather(job.compression.kept, job.compression.matcher.rules, job.sources)
    job.compression.kept.close()
    return evidence, source


def last_lines(material: Material, budget: int) -> list[int]:
    """As many of the last lines as fit into the budget."""
    return _filled(material, range(len(material) - 1, -1, -1), budget)


def last_words_of_failure(material: Material, budget: int) -> list[int]:
    """The last lines with plain words of failure."""
    return _filled(material, [n for n in range(len(material) - 1, -1, -1) if _STRONG.search(material.events[n].body)], budget)


def ours(material: Material, budget: int) -> list[int]:
    """What ``retrieval`` chooses."""
    return choose(material, likely(material), budget)


def _filled(material: Material, numbers: Iterator[int] | range | list[int], budget: int) -> list[int]:
    taken = []
    for number in numbers:
        budget -= material.tokens(number)
        if budget < 0:
            break
        taken.append(number)
    return taken


CHOICES: dict[str, Callable[[Material, int], list[int]]] = {
    "chosen": ours,
    "last lines": last_lines,
    "last words of failure": last_words_of_failure,
}


def placed(case: Path, noise: list[bytes], where: str, folder: Path) -> tuple[Path, int]:
    """(the case's log, alone or inside the noise; the number of lines before its first line)."""
    if where == "alone":
        return case, 0
    lines = case.read_bytes().splitlines()
    before = noise if where == "at the end" else noise[: len(noise) // 2]
    after = [] if where == "at the end" else noise[len(noise) // 2 :]
    path = folder / case.name
    path.write_bytes(b"\n".join([*before, *lines, *after]) + b"\n")
    return path, len(before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, default=Path("../shared/corpus/cases"))
    parser.add_argument(
        "--noise", type=Path, help="a log of a job that went well (default: the first of ../shared/corpus/whole)"
    )
    parser.add_argument("--missed", type=int, metavar="N", help="name the cases that this budget misses")
    arguments = parser.parse_args()
    filters = Matcher(RuleSet.of(rule for rule in load() if rule.family == "filters"))
    noisy = arguments.noise or next(
        Path("../shared/corpus/whole") / label.file
        for label in labels(Path("../shared/corpus/whole"))
        if label.reason == "healthy"
    )
    nothing = Matcher(RuleSet(()))
    kept, _ = read(noisy, nothing)
    noise = [event.text.encode() for event in kept.events][:_NOISE]
    wanted = [one for one in labels(arguments.cases) if one.root_cause_line is not None and one.root_cause_line[0] is None]
    print(f"{len(wanted)} failures with a labelled root line; noise: {len(noise):,} lines of {noisy.name}\n")
    for where in ("alone", "at the end", "in the middle"):
        _table(where, wanted, arguments, noise, filters if where == "alone" else nothing)


def _table(where: str, wanted: list[Label], arguments: argparse.Namespace, noise: list[bytes], matcher: Matcher) -> None:
    hits = {(name, budget): [0, 0] for name in CHOICES for budget in _BUDGETS}
    seconds = 0.0
    kept = 0
    with tempfile.TemporaryDirectory() as folder:
        for label in wanted:
            path, above = placed(arguments.cases / label.file, noise, where, Path(folder))
            assert label.root_cause_line is not None
            root = label.root_cause_line[1] + above
            evidence, source = read(path, matcher)
            began = time.process_time()
            material = Material(evidence)
            likely(material)
            seconds += time.process_time() - began
            kept += len(material)
            spans = _tracebacks(source)
            for name, choice in CHOICES.items():
                for budget in _BUDGETS:
                    lines = [material.events[number].line for number in choice(material, budget)]
                    found = root in lines
                    near = found or any(root in spans[line] for line in lines if line in spans)
                    hits[name, budget][0] += found
                    hits[name, budget][1] += near
                    if not found and name == "chosen" and budget == arguments.missed:
                        print(f"missed {where}: {label.file}:{label.root_cause_line[1]} {label.reason}")
    print(
        f"{where}: {kept / len(wanted):.0f} kept lines a case, {1000 * seconds / len(wanted):.0f} ms to redact and weigh them\n"
    )
    n = len(wanted)
    print(f"| tokens | {' | '.join(CHOICES)} |\n| ---: | {' | '.join('---:' for _ in CHOICES)} |")
    for budget in _BUDGETS:
        print(f"| {budget:,} | {' | '.join(_cell(hits[name, budget], n) for name in CHOICES)} |")
    print()


def _cell(hits: list[int], n: int) -> str:
    exact, near = hits
    return f"{100 * exact / n:.1f} % ({100 * near / n:.1f} %)"


def _tracebacks(source: Source) -> dict[int, range]:
    """Each line of a chain of tracebacks -> the lines of the whole chain."""
    events = []
    text = b"".join(source.chunks()).split(b"\n")
    for number, line in enumerate(text, 1):
        body = clean(line)
        events.append(Event(number, 0, number, body.decode("utf-8", "replace"), -1, body_start(body)))
    spans: dict[int, range] = {}
    for traceback in assemble(events)[0]:
        chain = list(traceback.chain())
        span = range(min(part.begin for part in chain), max(part.end for part in chain) + 1)
        spans.update(dict.fromkeys(span, span))
    return spans


if __name__ == "__main__":
    main()
