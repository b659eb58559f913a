"""Samples of a model -> its opinion: answers with their chances, and for each the line that supports it.

Every sample counts alike. A sample that never came, or that fails the checks, counts for nothing. So the chances sum to less
than one if samples are missing, are in doubt, or cite lines that the model was not shown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from diagnose.agent.retrieval import Material
from diagnose.agent.witnesses import HEALTHY, UNKNOWN
from diagnose.diagnosis.evidence import normal
from diagnose.model.answers import Answer

_SAID_PLAINLY = 0.9
"""the chance that a verdict without a number gives: "finished well", "cannot tell\""""
_CITED = 12
_RANKS = re.compile(r"(?i)\b(?:rank|task|proc(?:ess)?|worker)s?[ =:_#\[]{0,3}(\d{1,6})\b")


@dataclass(frozen=True, slots=True)
class Believed:
    """What the samples say for one reason."""

    root: int
    """number of the line in the material"""
    share: float
    """of the samples that name the reason, those that name this message"""
    evidence: tuple[int, ...]
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    gpus: tuple[str, ...]
    summary: str
    mitigation: str | None


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the samples say."""

    reason: str
    """the likeliest answer: a reason, "healthy", or "unknown" if the samples cannot tell"""
    chances: Mapping[str, float]
    """answer -> its chance by the samples"""
    votes: int
    """samples whose first answer is ``reason``"""
    of: int
    believed: Mapping[str, Believed] = field(default_factory=dict)
    """reason -> what supports it; not for "healthy"
    """
    analysis: str = ""
    needs: str | None = None
    """what would show the cause"""

    @property
    def share(self) -> float:
        return self.votes / self.of if self.of else 0.0

    @property
    def root(self) -> int | None:
        """The line of the likeliest answer."""
        return self.believed[self.reason].root if self.reason in self.believed else None


class Voices:
    """Reads samples against the lines that the model was shown."""

    def __init__(self, material: Material, shown: Collection[int]) -> None:
        self._material, self._shown = material, shown
        self.notes: list[str] = []
        self._texts = "\n".join(material.texts[number] for number in sorted(shown))

    def opinion(self, answer: Answer) -> Opinion | None:
        """The opinion. None if no sample says anything that its lines support."""
        chances: dict[str, float] = {}
        first: list[tuple[str, Mapping[str, Any]]] = []
        named: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
        for value in answer.values:
            said = self._said(value, named)
            if not said:
                continue
            for reason, chance in said.items():
                chances[reason] = chances.get(reason, 0.0) + chance / answer.of
            first.append((max(said, key=lambda reason: said[reason]), value))
        if not chances:
            return None
        best = max(chances, key=lambda reason: chances[reason])
        speaks = next((value for reason, value in first if reason == best), answer.values[0])
        return Opinion(
            best,
            chances,
            sum(1 for reason, _ in first if reason == best),
            answer.of,
            {reason: self._believed(roots) for reason, roots in named.items()},
            plain(speaks["analysis"])[:1000],
            plain(speaks["needs"]) if speaks["needs"] else None,
        )

    def _said(self, value: Mapping[str, Any], named: dict[str, list[tuple[int, Mapping[str, Any]]]]) -> dict[str, float]:
        """The answers of one sample with their chances. The lines that it names are added to ``named``."""
        if value["verdict"] == "finished_well":
            return {HEALTHY: _SAID_PLAINLY} if not value["hypotheses"] else {}
        if value["verdict"] == "cannot_tell" or not value["hypotheses"]:
            return {UNKNOWN: _SAID_PLAINLY}
        total = max(1.0, sum(one["confidence"] for one in value["hypotheses"]))
        said: dict[str, float] = {}
        for one in value["hypotheses"]:
            root = self._line(one["root_line"])
            if root is None:
                self._note("A hypothesis of the model was dropped: it cites a line that it was not shown as the root cause.")
                continue
            said[one["reason"]] = said.get(one["reason"], 0.0) + one["confidence"] / total
            named.setdefault(one["reason"], []).append((root, one))
        return said

    def _believed(self, roots: list[tuple[int, Mapping[str, Any]]]) -> Believed:
        """The line that most samples give for this reason, and the words of one of those samples."""
        groups: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
        for root, one in roots:
            groups.setdefault(normal(self._material.events[root].body), []).append((root, one))
        most = max(groups.values(), key=len)
        first = min((root for root, _ in most), key=self._material.order)
        one = next(one for root, one in most if root == first)
        lines = dict.fromkeys(self._line(line) for _, other in most for line in other["evidence_lines"])
        evidence = tuple(number for number in lines if number is not None and number != first)
        nodes, ranks, gpus = self._suspects(one["suspects"])
        return Believed(
            first,
            len(most) / len(roots),
            evidence[:_CITED],
            nodes,
            ranks,
            gpus,
            plain(one["summary"]),
            plain(one["mitigation"]) or None,
        )

    def _line(self, line: str) -> int | None:
        """The line that an id cites, if the model was shown it."""
        number = self._material.number_of(line)
        return number if number in self._shown else None

    def _suspects(self, said: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]:
        """The suspects that the model names and that a shown line names too."""
        evidence, events = self._material.evidence, self._material.events
        ranks = {int(found) for found in _RANKS.findall(self._texts)}
        ranks |= {rank for number in self._shown if (rank := evidence.rank_of(events[number])) is not None}
        nodes = tuple(dict.fromkeys(node for node in said["nodes"] if _occurs(node, self._texts)))
        gpus = tuple(dict.fromkeys(gpu for gpu in said["gpus"] if _occurs(gpu, self._texts)))
        known = tuple(sorted({rank for rank in said["ranks"] if rank in ranks}))
        if (dropped := len(said["nodes"]) + len(said["ranks"]) + len(said["gpus"]) - len(nodes) - len(gpus) - len(known)) > 0:
            self._note(f"{dropped} suspects of the model were dropped: no line that it was shown names them.")
        return nodes, known, gpus

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def _occurs(name: str, texts: str) -> bool:
    """Whether the name occurs in the texts as a whole word. What stands there for a redacted one names nobody."""
    return len(name.strip()) > 0 and "<" not in name and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", texts) is not None


def plain(text: str) -> str:
    """A model's words on one line, without characters that a terminal would obey."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
