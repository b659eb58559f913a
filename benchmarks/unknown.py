"""How good is the diagnosis of software without rules? ``python -m benchmarks.unknown CORPUS...``.

Every case of a labelled corpus is diagnosed with all failure rules that match in it switched off. What is left are Python's own
classes of exceptions, the words of the lines, the numbers and the times: an unknown program shows no more. Counted are the
failures in which a rule had matched, and the healthy logs.

    python -m benchmarks.unknown ../shared/corpus/cases
    python -m benchmarks.unknown --wrong ../shared/corpus/cases       # list what comes out wrong
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from diagnose.accuracy import Label, Verdict, job_of, judge, labels
from diagnose.diagnosis.candidates import is_generic
from diagnose.diagnosis.evidence import Evidence
from diagnose.job import Job
from diagnose.knowledge.rules import load
from diagnose.matching.matcher import Matcher


def without_rules(evidence: Evidence) -> int:
    """Switch off the failure rules that match, except those for a class of exceptions. Returns how many lines lost one."""
    lost = 0
    for event in evidence.events:
        rule = evidence.rule(event)
        if rule is not None and rule.reason != "healthy" and not is_generic(rule):
            event.rule = -1
            lost += 1
    return lost


class Unknown(Job):
    """A job whose failure rules are switched off."""

    lost = 0

    def evidence(self) -> Evidence:
        found = super().evidence()
        self.lost = without_rules(found)
        return found


def verdicts(corpus: Path, matcher: Matcher) -> Iterator[Verdict]:
    """The verdicts on the clear cases of a corpus that lost a rule, and on the healthy ones."""
    for label in labels(corpus):
        if "AMBIGUOUS" in label.note:
            continue
        known = job_of(corpus, label, matcher)
        job = Unknown(label.file, known.sources, matcher)
        job.compression = known.compression
        report = job.report()
        if job.lost or label.reason == "healthy":
            yield judge(label, report, job.sources)
        known.compression.kept.close()


def told(corpus: str, found: Sequence[Verdict]) -> str:
    """The counts, as text."""
    failed = [one for one in found if one.label.reason != "healthy"]
    well = [one for one in found if one.label.reason == "healthy"]
    sure = [one for one in found if one.confidence >= 0.9]

    def share(count: int) -> str:
        return f"{100 * count / max(1, len(failed)):.1f} %"

    return (
        f"{corpus}: {len(failed)} failures of software without rules: category {share(sum(v.category_right for v in failed))},"
        f" reason {share(sum(v.reason_right for v in failed))}, in the first two {share(sum(v.guessed for v in failed))},"
        f" line {share(sum(v.near for v in failed))}, called healthy {share(sum(v.reason == 'healthy' for v in failed))},"
        f" unexplained {share(sum(v.reason == 'unknown' for v in failed))};"
        f" alarms {sum(not v.reason_right for v in well)} of {len(well)}; said 0.9 or more: {len(sure)}, right"
        f" {sum(v.reason_right for v in sure)}"
    )


def _line(label: Label, verdict: Verdict) -> str:
    wanted = label.root_cause_line[1] if label.root_cause_line else "-"
    said = verdict.line[1] if verdict.line else "-"
    return f"  {label.file:28} {label.reason:22} {verdict.reason:22} {verdict.confidence:.2f}  line {wanted} said {said}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", metavar="CORPUS")
    parser.add_argument("--wrong", action="store_true", help="list the cases whose reason or line comes out wrong")
    chosen = parser.parse_args(arguments)
    matcher = Matcher(load())
    for corpus in chosen.corpora:
        found = list(verdicts(Path(corpus), matcher))
        print(told(corpus, found))
        if chosen.wrong:
            for one in found:
                if not one.reason_right or (one.label.root_cause_line is not None and not one.near):
                    print(_line(one.label, one))
    return 0


if __name__ == "__main__":
    sys.exit(main())
