"""Which kept lines of a failed job a model is shown, and what more it may read.

``Material`` has a job's kept lines as a model may see them: redacted, each with an id (``L17`` is the 17th line that diagnosis
reads), its source, rank and node. ``likely`` says how much each line looks like a cause, by many weak signs together, none of
which needs a rule to know the line; ``choose`` takes the best within a budget and gives them in the order of the log.

What a model reads later (``search``, ``around``, ``of_rank``) is bounded, and reads only.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from diagnose.agent.incidents import Similar, fts_query
from diagnose.diagnosis.evidence import Event, Evidence, normal
from diagnose.diagnosis.tracebacks import assemble
from diagnose.model.prompts import MOST_CHARACTERS, shown
from diagnose.reading.prefixes import clock
from diagnose.redaction.text import LEFT_OUT, Redactor, may_hide

_LONGEST = 2000
"""characters of a line that are looked at; ``shown`` leaves out more"""
_MOST_TELLING = 1200
"""characters of a line that are shown where it sounds like a failure"""
_CHARACTERS_A_TOKEN = 3.0
"""of logs, which are full of numbers and paths: fewer than in prose"""
_PLACEHOLDER = re.compile(r"<(token|private_key|email|user|host)\d*>")
_WORD = re.compile(r"[A-Za-z0-9_]{2,40}")

# Plain words of failure: rules know more of them, and know which are harmless. Here a line too many costs a few tokens.
_STRONG = re.compile(
    r"(?i)\b(?:\w*(?:error|exception|failure)|fail(?:ed|s|ing)?|fatal|panic|abort(?:ed|ing)?|crash\w*|killed|kill|sig[a-z]{3,5}"
    r"|segfault|segmentation|timed[ -]?out|time-?out|denied|refused|reset by peer|unreachable|unhealthy|corrupt\w*|cannot|can't"
    r"|could not|unable|not found|no such|invalid|illegal|unsupported|unrecognized|undefined|mismatch\w*|missing|not enough"
    r"|out of (?:memory|range|bounds|space)|oom\w*|no space|exceed\w*|expired|lost|dead|died|hung|hang|stuck|stall\w*|stale"
    r"|giving up|gave up|terminated|preempt\w*|cancell?ed|evict\w*|nan|diverg\w*|xid|ecc|uncorrectable|rejected|violat\w*"
    r"|must be|should be|expected|unexpected|not (?:a|an|supported|allowed|implemented|available|defined|permitted|ready))\b"
)
_SOFT = re.compile(
    r"(?i)\b(?:warn(?:ing)?|retry\w*|slow|deprecated|disabled|skipp\w*|ignor\w*|exit\w*|stop\w*|shut\w*|signal)\b"
)

_RULE = {"fatal": 3.0, "error": 2.5, "warning": 0.8}
_ECHO, _WELL, _RAISED, _FRAME = 1.2, 0.4, 2.5, 0.4
_FIRST, _AFTER_FIRST, _END, _STOPPED, _RARE, _LINKED, _KNOWN = 1.5, 1.0, 1.2, 0.7, 1.0, 0.8, 2.5
_NEAR_FIRST, _NEAR_END, _STOPPED_LINES = 12, 12, 20
_SAME_SHAPE = 2
"""lines of one shape, besides the first of it"""
_NEIGHBOURS, _BESIDE_ROOT = 2, 3
_BEGINNING = 2
_WITH_NEIGHBOURS, _THEN_BEGINNING = 12, 24
"""lines: so many bring their neighbours; after so many the beginning is taken"""
_FEW_SOURCES = 4
_SHORTEST = 20
"""tokens: with fewer left, no line fits"""
_LAST_WORDS = 6
_STOPPED_EARLIER_S = 1.0


class Material:
    """The kept lines of one job, as a model may see them."""

    def __init__(self, evidence: Evidence, *, hosts: bool = False) -> None:
        self.evidence = evidence
        self.events = _in_time(evidence)
        self.number = {id(event): number for number, event in enumerate(self.events)}
        known = [name for event in self.events if (name := evidence.node_of(event)) is not None] if hosts else []
        self._redactor = Redactor(hosts=hosts, names=known)
        self.plain, self.texts = _redacted(evidence, self.events, self._redactor, hosts=hosts)
        """the redacted text of each event; and the same with source, rank and node before it"""
        self._index: sqlite3.Connection | None = None
        self._places: dict[int, tuple[int, int]] = {}
        """for a line that was read from the file afterwards: (the kept line before it, its line number)"""
        self._kept = len(self.events)

    def __len__(self) -> int:
        """How many lines were kept."""
        return self._kept

    def find(self, source: str, line: int) -> int | None:
        """The number of a line, by its source and its place there."""
        sources = self.evidence.sources
        return next((n for n, e in enumerate(self.events) if e.line == line and sources[e.source].name == source), None)

    def order(self, number: int) -> tuple[int, int]:
        """Sorts lines by when they came."""
        return self._places.get(number, (number, 0))

    def after(self, number: int, other: int) -> bool:
        """Whether a line came after another."""
        return self.order(number) > self.order(other)

    def add(self, source: int, lines: Sequence[tuple[int, str]], first: int) -> list[int]:
        """Add the lines of a file from ``first`` on, kept or not. Returns their numbers.

        The lines before ``first`` only help to find secrets.
        """
        own = {event.line: number for number, event in enumerate(self.events) if event.source == source}
        name = _names(self.evidence)[source]
        found, before = [], -1
        texts = self._redactor.lines([text[:_LONGEST] for _, text in lines])
        for (line, text), told in zip(lines, texts, strict=True):
            if line < first or not text.strip():
                continue
            if line not in own:
                before = max((n for at, n in own.items() if at < line and n < self._kept), default=before)
                own[line] = len(self.events)
                self._places[own[line]] = (before, line)
                self.events.append(Event(-1, source, line, text, -1, 0))
                self.plain.append(told)
                self.texts.append(f"{name}{line} (dropped): {told}")
            found.append(own[line])
        return found

    def id_of(self, number: int) -> str:
        return f"L{number + 1}"

    def number_of(self, line: str) -> int | None:
        """The number of the line with the id ``line``; None if there is none."""
        number = int(line[1:]) - 1 if re.fullmatch(r"L[1-9][0-9]{0,5}", line) else -1
        return number if 0 <= number < len(self.events) else None

    def rows(self, numbers: Iterable[int]) -> list[dict[str, Any]]:
        """The lines for a prompt, in the order of the log."""
        placed = sorted(set(numbers), key=self.order)
        return [{"id": self.id_of(n), "text": self.texts[n], "most": self._most(n)} for n in placed]

    def tokens(self, number: int) -> int:
        """About what a line costs."""
        return int(len(shown(self.texts[number], self._most(number))) / _CHARACTERS_A_TOKEN) + 4

    def _most(self, number: int) -> int:
        """How many characters of a line are shown. A line about a failure often says at its end what failed."""
        event = self.events[number]
        telling = event.rule >= 0 or _STRONG.search(event.body[:_LONGEST])
        return _MOST_TELLING if telling else MOST_CHARACTERS

    def told(self, text: str) -> str:
        """Any text about the job, redacted as its lines are."""
        return self._redactor.redact(text).text

    def redacted(self, numbers: Iterable[int]) -> Counter[str]:
        """What was taken out of these lines, by kind."""
        counts: Counter[str] = Counter()
        for number in set(numbers):
            counts.update(_PLACEHOLDER.findall(self.texts[number]))
            counts.subtract(_PLACEHOLDER.findall(self.events[number].text[:_LONGEST]))
        return +counts

    # --- reading more

    def search(self, text: str, k: int) -> list[int]:
        """The lines that have words of ``text``, best first (BM25)."""
        terms = list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))[:32]
        return [number for number, _ in self.ranked(terms, k)]

    def ranked(self, terms: Sequence[str], k: int) -> list[tuple[int, float]]:
        """(line, score) of those with any of the words, best first."""
        if not terms:
            return []
        if self._index is None:
            self._index = sqlite3.connect(":memory:", check_same_thread=False)
            self._index.execute(
                "create virtual table lines using fts5(text, content='', tokenize=\"unicode61 tokenchars '_'\")"
            )
            rows = ((number, text) for number, text in enumerate(self.texts))
            self._index.executemany("insert into lines (rowid, text) values (?,?)", rows)
        found = self._index.execute(
            "select rowid, -bm25(lines) from lines where lines match ? order by bm25(lines), rowid limit ?",
            (fts_query(terms), k),
        )
        return [(int(number), float(score)) for number, score in found]

    def around(self, number: int, before: int, after: int) -> list[int]:
        """The line and its neighbours in its own source."""
        source = self.events[number].source
        of_source = [other for other, event in enumerate(self.events) if event.source == source]
        at = of_source.index(number)
        return of_source[max(0, at - before) : at + after + 1]

    def of_rank(self, rank: int, k: int) -> list[int]:
        """The last lines of a rank, likely ones before plain ones."""
        own = [number for number, event in enumerate(self.events) if self.evidence.rank_of(event) == rank]
        telling = [number for number in own if _STRONG.search(self.events[number].body) or self.events[number].rule >= 0]
        return sorted({*telling[: k // 2], *own[-(k - min(k // 2, len(telling))) :]})

    def end_of(self, name: str, k: int) -> list[int]:
        """The last lines of a file, named as the lines name it."""
        wanted = name.strip().rstrip(":")
        named = {number for number, one in enumerate(_names(self.evidence)) if wanted and one.rstrip(":").endswith(wanted)}
        return [number for number, event in enumerate(self.events[: self._kept]) if event.source in named][-k:]


def likely(material: Material, similar: Sequence[tuple[int, Similar]] = ()) -> list[float]:
    """How much each line looks like a cause. ``similar``: (line, the past incident that it resembles)."""
    events, evidence = material.events, material.evidence
    scores = [0.0] * len(events)
    strong = [False] * len(events)
    shapes = [_shape(event) for event in events]
    often = Counter(shapes)
    for number, event in enumerate(events):
        rule = evidence.rule(event)
        if rule is not None:
            well = rule.reason == "healthy"
            scores[number] += _WELL if well else _ECHO if rule.symptom else _RULE.get(rule.severity, 0.8)
            strong[number] = not well and (rule.severity != "warning" or rule.id == "words-of-failure")
        elif event.rule == -1:
            scores[number] += 0.2
        body = event.body[:_LONGEST]
        if rule is None or rule.reason != "healthy":
            if _STRONG.search(body):
                scores[number] += 1.8
                strong[number] = True
            elif _SOFT.search(body):
                scores[number] += 0.6
        scores[number] += _RARE / (1.0 + math.log2(often[shapes[number]]))
    by_source = _by_source(events)
    for numbers in by_source.values():
        _raised(material, numbers, scores, strong)
        _placed(numbers, scores, strong)
    _stopped_first(material, scores)
    _linked(material, by_source, scores)
    for number, found in similar:
        scores[number] += _KNOWN * found.score
    return scores


def choose(material: Material, scores: Sequence[float], budget: int, roots: Sequence[int] = ()) -> list[int]:
    """The lines to show, in the order of the log: the likely ones with their neighbours, for ``budget`` tokens."""
    everything = range(len(material))
    if sum(material.tokens(number) for number in everything) <= budget:
        return list(everything)
    choice = _Choice(material, budget)
    for number in roots:
        choice.take(number)
        choice.take_beside(number, _BESIDE_ROOT)
    for number in sorted(everything, key=lambda number: (-scores[number], number)):
        if choice.has_enough_like(number):
            continue
        if not choice.take_likely(number) and choice.left < _SHORTEST:
            break
        if len(choice.taken) <= _WITH_NEIGHBOURS:
            choice.take_beside(number, _NEIGHBOURS)
        if len(choice.taken) == _THEN_BEGINNING:
            choice.take_beginning()
    return sorted(choice.taken)


class _Choice:
    """The lines that were taken so far, and the tokens that are left for more."""

    def __init__(self, material: Material, budget: int) -> None:
        self.taken: set[int] = set()
        self.left = budget
        self._material = material
        self._by_source = _by_source(material.events)
        self._beside = {number: (numbers, at) for numbers in self._by_source.values() for at, number in enumerate(numbers)}
        self._shapes = [_shape(event) for event in material.events]
        self._shown: Counter[str] = Counter()
        self._first: dict[str, int] = {}
        for number, shape in enumerate(self._shapes):
            self._first.setdefault(shape, number)

    def take(self, number: int) -> bool:
        """Take a line, if there is room for it."""
        if number in self.taken:
            return True
        cost = self._material.tokens(number)
        if cost > self.left:
            return False
        self.left -= cost
        self.taken.add(number)
        return True

    def has_enough_like(self, number: int) -> bool:
        """Whether lines of the same shape were taken, and enough of them."""
        return self._shown[self._shapes[number]] >= _SAME_SHAPE

    def take_likely(self, number: int) -> bool:
        """Take a line and the first of its shape. False: there is no room for the line."""
        shape = self._shapes[number]
        self._shown[shape] += 1
        self.take(self._first[shape])  # ranks say the same after each other, and the first of them is the cause
        return self.take(number)

    def take_beside(self, number: int, distance: int) -> None:
        """Take the lines of the same source next to a line."""
        numbers, at = self._beside[number]
        for other in numbers[max(0, at - distance) : at + distance + 1]:
            self.take(other)

    def take_beginning(self) -> None:
        """Take how the log begins, which says what was started, with which settings."""
        if len(self._by_source) <= _FEW_SOURCES:
            for numbers in self._by_source.values():
                for other in numbers[:_BEGINNING]:
                    self.take(other)


def _shape(event: Event) -> str:
    return normal(event.body[:400])[:200]


def _by_source(events: Sequence[Event]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number, event in enumerate(events):
        found.setdefault(event.source, []).append(number)
    return found


def _raised(material: Material, numbers: Sequence[int], scores: list[float], strong: list[bool]) -> None:
    """Exceptions, and the frames next to them."""
    own = {material.events[number].line: number for number in numbers}
    tracebacks, _ = assemble(material.events[number] for number in numbers)
    for traceback in tracebacks:
        if traceback.exception is None:
            continue
        number = material.number[id(traceback.exception)]
        scores[number] += _RAISED * (0.4 if traceback.where == "ignored" else 1.0)
        strong[number] = True
        for line in range(max(traceback.begin, traceback.end - 4), traceback.end):
            if line in own:
                scores[own[line]] += _FRAME


def _placed(numbers: Sequence[int], scores: list[float], strong: list[bool]) -> None:
    """Near the first sign of failure of a source, and near its end."""
    first = next((at for at, number in enumerate(numbers) if strong[number]), None)
    for at, number in enumerate(numbers):
        if first is not None:
            if at == first:
                scores[number] += _FIRST
            elif abs(at - first) <= _NEAR_FIRST:
                scores[number] += _AFTER_FIRST * (1 - abs(at - first) / (_NEAR_FIRST + 1))
        scores[number] += _END * math.exp((at - len(numbers) + 1) / _NEAR_END)


def _stopped_first(material: Material, scores: list[float]) -> None:
    """The last lines of each rank that fell silent before the others."""
    last: dict[tuple[int, int | None], tuple[float, list[int]]] = {}
    for number, event in enumerate(material.events):
        speaker = event.source, material.evidence.rank_of(event)
        before = last.get(speaker)
        moment = clock(event.time) if event.time else None
        if moment is None and before is None:
            continue
        last[speaker] = (
            moment if moment is not None else before[0] if before else 0.0,
            [*(before[1] if before else [])[-_STOPPED_LINES + 1 :], number],
        )
    if len(last) < 2:
        return
    ends = sorted(last.values())
    if ends[1][0] - ends[0][0] < _STOPPED_EARLIER_S:
        return
    for number in ends[0][1]:
        scores[number] += _STOPPED


def _linked(material: Material, by_source: dict[int, list[int]], scores: list[float]) -> None:
    """Lines that share rare words with the end of the log. They are often about its end."""
    ends = [number for numbers in by_source.values() for number in numbers[-_LAST_WORDS:]][-40:]
    counts = Counter(word.lower() for number in ends for word in _WORD.findall(material.events[number].body[:400]))
    terms = [word for word, count in counts.most_common() if count <= 4 and not word.isdigit()][:40]
    ranked = material.ranked(terms, 200)
    most = max((score for _, score in ranked), default=0.0)
    for number, score in ranked:
        if most > 0:
            scores[number] += _LINKED * score / most


def _in_time(evidence: Evidence) -> list[Event]:
    """The events in the order in which they happened: by the clock where all sources have one, else as they were read."""
    if len(evidence.sources) < 2:
        return list(evidence.events)
    placed: list[tuple[float, int, Event]] = []
    for events in evidence.by_source():
        now: float | None = None
        for event in events:
            if event.time and (moment := clock(event.time)) is not None:
                now = moment if now is None else max(now, moment)
            placed.append((now if now is not None else float("-inf"), event.order, event))
        if now is None:
            return list(evidence.events)
    placed.sort(key=lambda one: one[:2])
    return [event for _, _, event in placed]


def _redacted(evidence: Evidence, events: Sequence[Event], redactor: Redactor, *, hosts: bool) -> tuple[list[str], list[str]]:
    """The events' texts without secrets; and the same after what is known of their speakers."""
    names = _names(evidence)
    plain: dict[int, str] = {}
    texts: dict[int, str] = {}
    for own in evidence.by_source():
        for event, text in zip(own, _in_place(own, redactor), strict=True):
            plain[id(event)] = text
            origin = evidence.sources[event.source].origin
            rank = f" rank {origin.rank}" if event.rank is None and origin.rank is not None else ""
            node = f" {origin.node}" if event.node is None and origin.node is not None else ""
            texts[id(event)] = f"{names[event.source]}{event.line}{rank}{node}: {text}"
    # Names of files and nodes come from outside too. Text that was redacted before changes only in these names.
    told = [redactor.redact(texts[id(event)]).text if hosts else texts[id(event)] for event in events]
    return [plain[id(event)] for event in events], told


def _in_place(own: Sequence[Event], redactor: Redactor) -> list[str]:
    """The texts of one file's events without secrets: what a value is of may stand in a line before it that was not kept."""
    lines: list[str] = []
    places: list[int] = []
    before = 0
    for event in own:
        if event.line > before + 1 and may_hide(event.text):
            lines.append(LEFT_OUT)
        before = event.line
        places.append(len(lines))
        lines.append(event.text[:_LONGEST])
    told = redactor.lines(lines)
    return [told[place] for place in places]


def _names(evidence: Evidence) -> list[str]:
    """A short name for each source: its file's, with the folder where two are alike. People's names in paths go."""
    short = [os.path.basename(source.name) for source in evidence.sources]
    often = Counter(short)
    names = [
        name if often[name] == 1 else "/".join(source.name.rsplit("/", 2)[-2:])
        for name, source in zip(short, evidence.sources, strict=True)
    ]
    return [f"{Redactor().redact(name[-120:]).text}:" for name in names] if len(names) > 1 else ["line "]
