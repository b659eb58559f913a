"""Labelled cases -> accuracy.

A corpus is a folder with ``labels.tsv`` (file, category, reason, root_cause_line, where, action, note) and the logs that it
names. Every case is read like ``diagnose replay`` reads it. Only the label says what a log should give.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from diagnose.diagnosis.evidence import Event, Evidence
from diagnose.diagnosis.topology import plain_pci
from diagnose.diagnosis.tracebacks import assemble
from diagnose.errors import SourceError
from diagnose.job import Job
from diagnose.matching.matcher import Matcher
from diagnose.reading.lines import clean
from diagnose.reading.prefixes import body_start
from diagnose.reading.sources import Source, find
from diagnose.report import Report

COLUMNS = ("file", "category", "reason", "root_cause_line", "where", "action", "note")


@dataclass(frozen=True, slots=True)
class Label:
    """What a case is known to be."""

    file: str
    category: str
    reason: str
    root_cause_line: tuple[str | None, int] | None
    """(source, line); None if there is none"""
    where: str
    action: str
    note: str


@dataclass(frozen=True, slots=True)
class Second:
    """The answer of a model to a report, if one was asked."""

    report: Report
    asked: bool
    reason: str | None = None
    """the reason that the model gave, whether the report follows it or not; None: no usable answer"""
    line: tuple[str, int] | None = None
    followed: bool = False
    """the report follows the model's answer"""
    before: Verdict | None = None
    """the verdict on the report without the model"""
    line_near: bool = False
    """the answer's line is the labelled one, or in its traceback"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A report compared with the label of its case."""

    label: Label
    category: str
    reason: str
    line: tuple[str, int] | None
    action: str
    confidence: float
    exact: bool
    near: bool
    """the right line, or another line of the same traceback"""
    within: bool
    """at most three lines from the right one: a person who looks there sees it"""
    suspects: tuple[int, int, int] | None
    """(found, named by the label, named by the report); None if the label names none"""
    guesses: tuple[str, ...] = ()
    """the reasons that the report gives, the likeliest first"""
    isolated: tuple[int, int] = (0, 0)
    """nodes that the report would isolate: (those that the label names, others)"""
    second: Second | None = None
    """the answer of a model, if one could be asked"""
    rules: frozenset[str] = frozenset()
    """the rules of the lines that the report shows as evidence"""

    @property
    def category_right(self) -> bool:
        return self.category == self.label.category

    @property
    def reason_right(self) -> bool:
        return self.reason == self.label.reason

    @property
    def action_right(self) -> bool:
        return self.action == self.label.action

    @property
    def action_kind_right(self) -> bool:
        """Whether the kind of the action is right. "Fix the code" and "fix the configuration" count as one: most logs do not
        say which.
        """
        return _kind(self.action) == _kind(self.label.action)

    @property
    def guessed(self) -> bool:
        """Whether one of the first two reasons is right."""
        return self.label.reason in self.guesses[:2]

    @property
    def ambiguous(self) -> bool:
        """Whether the label says that another answer would also be right."""
        return "AMBIGUOUS" in self.label.note


@dataclass(slots=True)
class Score:
    """Counts over cases."""

    cases: int = 0
    category: int = 0
    reason: int = 0
    with_action: int = 0
    action: int = 0
    with_line: int = 0
    exact: int = 0
    near: int = 0
    within: int = 0
    healthy: int = 0
    alarms: int = 0
    unknown: int = 0
    with_suspects: int = 0
    suspects_found: int = 0
    suspects_right: int = 0
    suspects_said: int = 0
    action_kind: int = 0
    guessed: int = 0
    """right in the first two guesses"""
    failures: int = 0
    missed: int = 0
    """failures that were called healthy"""
    isolated_right: int = 0
    isolated_wrong: int = 0
    """nodes that would be isolated although the label does not name them, or although nothing should be isolated"""

    def add(self, verdict: Verdict) -> None:
        label = verdict.label
        self.cases += 1
        self.category += verdict.category_right
        self.reason += verdict.reason_right
        if label.action not in ("-", ""):
            self.with_action += 1
            self.action += verdict.action_right
            self.action_kind += verdict.action_kind_right
        self.guessed += verdict.guessed
        self.isolated_right += verdict.isolated[0]
        self.isolated_wrong += verdict.isolated[1]
        if label.root_cause_line is not None:
            self.with_line += 1
            self.exact += verdict.exact
            self.near += verdict.near
            self.within += verdict.within
        if label.reason == "healthy":
            self.healthy += 1
            self.alarms += verdict.reason != "healthy"
        else:
            self.unknown += verdict.reason in ("unknown", "healthy")
            self.failures += 1
            self.missed += verdict.reason == "healthy"
        if verdict.suspects is not None:
            found, _, said = verdict.suspects
            self.with_suspects += 1
            self.suspects_found += found > 0
            self.suspects_right += found
            self.suspects_said += said


@dataclass(slots=True)
class Asked:
    """Counts over the cases that a model was asked about."""

    asked: int = 0
    answered: int = 0
    """those with a usable answer, which may be "unknown"
    """
    followed: int = 0
    improved: int = 0
    worse: int = 0
    reason: int = 0
    """share of all answers, whether the report follows them or not"""
    with_line: int = 0
    line: int = 0

    def add(self, verdict: Verdict) -> None:
        second = verdict.second
        if second is None or not second.asked:
            return
        assert second.before is not None
        self.asked += 1
        self.answered += second.reason is not None
        self.followed += second.followed
        self.improved += verdict.reason_right and not second.before.reason_right
        self.worse += second.before.reason_right and not verdict.reason_right
        self.reason += second.reason == verdict.label.reason
        if verdict.label.root_cause_line is not None and second.reason is not None:
            self.with_line += 1
            self.line += second.line_near


class Level(NamedTuple):
    """What was said with a confidence of this tenth."""

    least: float
    cases: int
    said: float
    """the mean confidence"""
    right: int


@dataclass(slots=True)
class Results:
    """The results of one corpus."""

    corpus: str
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def whole(self) -> Score:
        return _score(self.verdicts)

    def asked(self) -> Asked | None:
        """What a model changed; None if no model could be asked."""
        if all(verdict.second is None for verdict in self.verdicts):
            return None
        counts = Asked()
        for verdict in self.verdicts:
            counts.add(verdict)
        return counts

    def by_category(self) -> dict[str, Score]:
        """A score for each category in the labels."""
        groups: dict[str, list[Verdict]] = {}
        for verdict in self.verdicts:
            groups.setdefault(verdict.label.category, []).append(verdict)
        return {category: _score(groups[category]) for category in sorted(groups)}

    def confusion(self) -> list[tuple[str, str, int]]:
        """(labelled, said, how often), the most frequent first."""
        counts = Counter((v.label.reason, v.reason) for v in self.verdicts if not v.reason_right)
        return [(wanted, said, count) for (wanted, said), count in counts.most_common()]

    def apart(self) -> tuple[Results, Results]:
        """(the clear cases, those whose label could be another)."""
        clear = [verdict for verdict in self.verdicts if not verdict.ambiguous]
        return Results(self.corpus, clear), Results(self.corpus, [verdict for verdict in self.verdicts if verdict.ambiguous])

    def sure(self) -> tuple[int, int]:
        """(cases, right) of those with a confidence of 0.9 or more."""
        right = [verdict.reason_right for verdict in self.verdicts if verdict.confidence >= _SURE]
        return len(right), sum(right)

    def calibration_error(self) -> float | None:
        """How far confidence is from the share that is right: the mean over ten levels of confidence, weighted by their cases.

        An answer that nothing explains the failure has no confidence, and is left out.
        """
        levels = self.reliability()
        cases = sum(level.cases for level in levels)
        return sum(abs(level.said * level.cases - level.right) for level in levels) / cases if cases else None

    def reliability(self) -> list[Level]:
        """Ten levels of confidence, the highest first, as far as something was said with it."""
        levels: dict[int, list[Verdict]] = {}
        for verdict in self.verdicts:
            if verdict.reason != "unknown":
                levels.setdefault(min(9, int(verdict.confidence * 10)), []).append(verdict)
        return [
            Level(at / 10, len(some), sum(v.confidence for v in some) / len(some), sum(v.reason_right for v in some))
            for at, some in sorted(levels.items(), reverse=True)
        ]

    def rules(self) -> dict[str, list[str]]:
        """Rule -> the cases in which it speaks."""
        found: dict[str, list[str]] = {}
        for verdict in self.verdicts:
            for rule in sorted(verdict.rules):
                found.setdefault(rule, []).append(verdict.label.file)
        return found

    def calibration(self) -> list[tuple[float, int, int]]:
        """(confidence, cases, right) of each level of confidence."""
        levels: dict[float, list[bool]] = {}
        for verdict in self.verdicts:
            levels.setdefault(round(verdict.confidence, 2), []).append(verdict.reason_right)
        return [(level, len(right), sum(right)) for level, right in sorted(levels.items(), reverse=True)]


_SURE = 0.9


def of_one_case(corpora: Sequence[Results]) -> dict[str, str]:
    """Rule -> the only case in which it speaks, of all corpora together: nobody has seen yet that it holds elsewhere."""
    cases: dict[str, list[str]] = {}
    for results in corpora:
        for rule, files in results.rules().items():
            cases.setdefault(rule, []).extend(files)
    return {rule: files[0] for rule, files in sorted(cases.items()) if len(files) == 1}


def _kind(action: str) -> str:
    return "fix" if action in ("fix_code", "fix_config") else action


def _score(verdicts: Sequence[Verdict]) -> Score:
    score = Score()
    for verdict in verdicts:
        score.add(verdict)
    return score


def labels(corpus: Path) -> list[Label]:
    """The labels of a corpus."""
    path = corpus / "labels.tsv"
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "a corpus is a folder with labels.tsv and the logs that it names; see docs/diagnosis.md"
        raise SourceError(f"cannot be read: {getattr(error, 'strerror', error)}", where=str(path), remedy=remedy) from None
    rows = list(csv.reader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    if not rows or tuple(rows[0]) != COLUMNS:
        raise SourceError(
            "the first line is not the header of labels.tsv", where=f"{path}:1", remedy=f"use: {' <tab> '.join(COLUMNS)}"
        )
    found = []
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != len(COLUMNS):
            raise SourceError(
                f"{len(row)} fields where {len(COLUMNS)} are wanted", where=f"{path}:{number}", remedy="separate them by tabs"
            )
        file, category, reason, line, where, action, note = row
        found.append(Label(file, category, reason, _line(line, f"{path}:{number}"), where, action, note))
    return found


def _line(text: str, where: str) -> tuple[str | None, int] | None:
    if text in ("-", ""):
        return None
    source, _, number = text.rpartition(":")
    if not number.isdigit():
        raise SourceError(f"{text!r} is not a line number", where=where, remedy="write a number, FILE:NUMBER, or -")
    return source or None, int(number)


def evaluate(
    corpus: Path, matcher: Matcher, *, only: str = "", ask: Callable[[Report, Evidence], Second] | None = None
) -> Iterator[Verdict]:
    """The verdict on each case of a corpus. ``ask``: called with each report, for example to ask a model."""
    for label in labels(corpus):
        if only not in label.file:
            continue
        job = job_of(corpus, label, matcher)
        report = job.report()
        verdict = judge(label, report, job.sources)
        if ask is not None:
            second = ask(report, job.evidence())
            near = second.line is not None and placed(label, second.line, job.sources)
            second = replace(second, before=verdict, line_near=near)
            verdict = replace(judge(label, second.report, job.sources), second=second)
        yield verdict
        job.compression.kept.close()


def job_of(corpus: Path, label: Label, matcher: Matcher) -> Job:
    """The job of a case, read to its end."""
    found = find([str(corpus / label.file)])
    if not found.sources:
        problem = found.problems[0] if found.problems else None
        raise problem or SourceError(
            "no such log", where=str(corpus / label.file), remedy="correct the file name in labels.tsv"
        )
    job = Job(label.file, found.sources, matcher)
    for number, source in enumerate(found.sources):
        for chunk in source.chunks():
            job.feed(number, chunk)
        job.close(number)
    return job


def placed(label: Label, line: tuple[str, int], sources: Sequence[Source]) -> bool:
    """Whether a line is the one that the label names, or is in the same traceback."""
    return _placed(label, line, sources)[1]


def judge(label: Label, report: Report, sources: Sequence[Source]) -> Verdict:
    """A report compared with its label."""
    diagnosis = report.diagnosis
    root = diagnosis.root_cause
    exact, near, within = _placed(label, (root.source, root.line) if root else None, sources)
    suspects, witnesses = diagnosis.suspects, diagnosis.witnesses
    return Verdict(
        label=label,
        category=diagnosis.category,
        reason=diagnosis.reason,
        line=(root.source, root.line) if root else None,
        action=report.action.kind,
        confidence=diagnosis.confidence,
        exact=exact,
        near=near,
        within=within,
        # a label says where a failure shows: with a witness, if nobody knows for whom it waited
        suspects=_suspects(label.where, suspects.nodes or witnesses.nodes, suspects.ranks or witnesses.ranks, suspects.gpus),
        guesses=(diagnosis.reason, *(one.reason for one in diagnosis.alternatives)),
        isolated=_isolated(label, report.action.nodes),
        rules=frozenset(line.rule for line in diagnosis.evidence if line.rule is not None),
    )


def _isolated(label: Label, nodes: Sequence[str]) -> tuple[int, int]:
    """Of the nodes that would be isolated: (how many the label names, how many it does not)."""
    if label.action != "isolate_and_restart":
        return 0, len(nodes)
    named = [word for word in re.split(r"[\s,;]+", _GPU.sub(" ", _RANKS.sub(" ", label.where))) if word not in _NO_NAMES]
    if not named:
        return len(nodes), 0  # the label names a GPU or a rank, and does not know its node
    right = sum(any(_same_node(node, one) for one in named) for node in nodes)
    return right, len(nodes) - right


_NO_NAMES = {"", "-", "and", "GPU", "GPUs", "rank", "ranks", "local", "node", "nodes", "all"}


_WITHIN = 3


def _placed(label: Label, found: tuple[str, int] | None, sources: Sequence[Source]) -> tuple[bool, bool, bool]:
    """(it is the labelled line, it is that or another line of its traceback, it is close to it)."""
    if label.root_cause_line is None or found is None:
        return False, False, False
    name, line = label.root_cause_line
    if name is not None and not found[0].endswith(name):
        return False, False, False
    exact = found[1] == line
    near = exact or _one_traceback(next(s for s in sources if s.name == found[0]), line, found[1])
    return exact, near, abs(found[1] - line) <= _WITHIN


def _one_traceback(source: Source, one: int, other: int) -> bool:
    """Whether both lines are in one chain of tracebacks, or in one block of them if ranks interleave."""
    events = []
    last = max(one, other) + 400
    rest = b""
    for chunk in source.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        events += lines
        if len(events) > last:
            break
    else:
        events.append(rest)
    tracebacks, _ = assemble(
        Event(number, 0, number, text.decode("utf-8", "replace"), -1, body_start(text))
        for number, text in ((number, clean(line)) for number, line in enumerate(events[:last], 1))
    )
    for traceback in tracebacks:
        chain = list(traceback.chain())
        begin, end = min(part.begin for part in chain), max(part.end for part in chain)
        if begin <= min(one, other) and max(one, other) <= end:
            return True
    return False


_RANKS = re.compile(r"\b(?:local )?ranks? (?P<ranks>\d+(?:\s*(?:,|-|and)\s*\d+)*)|\btask (?P<task>\d+)")
_GPU = re.compile(
    r"(?:\bGPU )?\b(?P<pci>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.\d)?)\b|\b[GN]PU ?(?P<gpu>\d+)\b"
)
_HOST = re.compile(r"\b(?:[a-z][\w-]*\d[\w.-]*|\d+(?:\.\d+){3})\b")


def _suspects(where: str, nodes: Sequence[str], ranks: Sequence[int], gpus: Sequence[str]) -> tuple[int, int, int] | None:
    """(found, named by the label, named by the report) for the suspects."""
    if where in ("-", ""):
        return None
    named_ranks: set[int] = set()
    rest = where
    for found in _RANKS.finditer(where):
        text = found["ranks"] or found["task"]
        for part in re.split(r",|and", text):
            first, _, last = part.partition("-")
            named_ranks.update(range(int(first), int(last or first) + 1))
        rest = rest.replace(found[0], " ")
    named_gpus = {found["pci"] or found["gpu"] for found in _GPU.finditer(where)}
    rest = _GPU.sub(" ", rest)
    named_nodes = set(_HOST.findall(rest))
    named = len(named_ranks) + len(named_gpus) + len(named_nodes)
    if not named:
        return None
    right = len(named_ranks & set(ranks))
    right += sum(any(_same_gpu(gpu, said) for said in gpus) for gpu in named_gpus)
    right += sum(any(_same_node(node, said) for said in [*nodes, *gpus]) for node in named_nodes)
    return right, named, len(ranks) * bool(named_ranks) + len(gpus) * bool(named_gpus) + len(nodes) * bool(named_nodes)


def _same_node(one: str, other: str) -> bool:
    """Whether both are one node: its name may have a domain."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _same_gpu(one: str, other: str) -> bool:
    return plain_pci(one) == plain_pci(other) if ":" in one and ":" in other else one == other


def as_dict(results: Results) -> dict[str, Any]:
    """The results as JSON."""

    def score(one: Score) -> dict[str, Any]:
        return {name: getattr(one, name) for name in Score.__dataclass_fields__}

    def part(one: Results) -> dict[str, Any]:
        sure, right = one.sure()
        return {**score(one.whole), "calibration_error": one.calibration_error(), "sure": sure, "sure_right": right}

    clear, other = results.apart()
    return {
        "corpus": results.corpus,
        "whole": score(results.whole),
        "by_category": {category: score(one) for category, one in results.by_category().items()},
        "confusion": [{"labelled": a, "said": b, "cases": n} for a, b, n in results.confusion()],
        "asked": asdict(asked) if (asked := results.asked()) else None,
        "clear": part(clear),
        "ambiguous": part(other),
        "calibration_error": results.calibration_error(),
        "sure": {"cases": results.sure()[0], "right": results.sure()[1]},
        "calibration": [{"confidence": c, "cases": n, "right": r} for c, n, r in results.calibration()],
        "reliability": [level._asdict() for level in results.reliability()],
        "rules": results.rules(),
        "cases": [
            {
                "file": v.label.file,
                "labelled": v.label.reason,
                "said": v.reason,
                "category": v.category,
                "line": v.line[1] if v.line else None,
                "labelled_line": v.label.root_cause_line[1] if v.label.root_cause_line else None,
                "action": v.action,
                "labelled_action": v.label.action,
                "confidence": v.confidence,
                "guesses": list(v.guesses),
                "isolated": list(v.isolated),
                "ambiguous": v.ambiguous,
                "exact": v.exact,
                "near": v.near,
                "within": v.within,
                "suspects": v.suspects,
                "asked": None if v.second is None or not v.second.asked else _second_as_dict(v.second),
            }
            for v in results.verdicts
        ],
    }


def _second_as_dict(second: Second) -> dict[str, Any]:
    assert second.before is not None
    return {
        "answered": second.reason,
        "line": second.line[1] if second.line else None,
        "near": second.line_near,
        "followed": second.followed,
        "before": second.before.reason,
        "notes": second.report.diagnosis.notes,
    }
