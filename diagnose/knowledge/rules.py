"""Rules as data: what regular output looks like (filters), and what evidence of a failure looks like (failures).

``load`` reads YAML files or folders into a :class:`RuleSet`. Their order is also their precedence: failures before filters,
lower layers before higher ones, then by the name of the file, then as written. docs/rules.md describes the format, and
``verification`` says what makes a rule acceptable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from diagnose import __version__, cache
from diagnose.errors import RuleError, nearest, nearest_path
from diagnose.knowledge import shipped
from diagnose.knowledge.taxonomy import Taxonomy, shipped_taxonomy

Family = Literal["failures", "filters"]

_FILE_KEYS = {"layer", "framework", "printed_by", "reference", "gaps", "rules"}
_SHARED_KEYS = {"id", "title", "pattern", "examples", "printed_by", "reference", "gaps"}
_FAILURE_KEYS = _SHARED_KEYS | {"reason", "layer", "severity", "symptom", "carries", "action", "category", "mitigation"}
_FILTER_KEYS = _SHARED_KEYS | {"kind", "framework", "metrics", "facts", "left", "yields"}


@dataclass(frozen=True, slots=True)
class Example:
    """A line that a rule must match, or must not."""

    line: str
    at: int = 0
    captures: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    id: str
    family: Family
    pattern: str
    file: str = ""
    at: int = 0
    title: str = ""
    printed_by: str | None = None
    reference: str | None = None
    # filters
    kind: str | None = None
    framework: str | None = None
    metrics: tuple[tuple[str, str], ...] = ()
    facts: bool = False
    """its lines say who is who: they are dropped and counted like others, but their text is set aside"""
    left: bool = False
    """its lines count as unknown, unless another filter knows them that does not yield: folds read their numbers"""
    yields: bool = False
    """it knows a logger and not what is said: lines that another rule leaves to folds are not its own"""
    # failures
    reason: str | None = None
    layer: str | None = None
    severity: str = "error"
    symptom: bool = False
    carries: bool = False
    """it knows only how a runtime prints an error; the error itself is what the line, or the next one, goes on to say"""
    action: str | None = None
    category: str | None = None
    """if it is not that of the reason"""
    mitigation: str | None = None
    matches: tuple[Example, ...] = ()
    misses: tuple[Example, ...] = ()

    @property
    def name(self) -> str:
        """Its name in reports: ``rules/failures/driver.yaml:xid-79``."""
        return f"{self.file}:{self.id}"

    @property
    def place(self) -> str:
        """Where a person finds it: ``rules/failures/driver.yaml:14``."""
        return f"{self.file}:{self.at}"


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules in order of precedence. The index of a rule is its number everywhere else."""

    rules: tuple[Rule, ...]

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __getitem__(self, index: int) -> Rule:
        return self.rules[index]

    def find(self, rule_id: str) -> Rule | None:
        return next((rule for rule in self.rules if rule.id == rule_id), None)

    @staticmethod
    def of(rules: Iterable[Rule]) -> RuleSet:
        """A set in order of precedence: failures by layer, from the hardware up, then filters; otherwise as given.

        A lower layer explains a higher one, so the driver's rule for a line comes before that for a general exception. What is
        left to folds comes after other filters, and those that yield to it come last. An id that is used twice is an error.
        """
        depth = {layer: number for number, layer in enumerate(shipped_taxonomy().layers)}
        ordered = sorted(
            rules, key=lambda rule: (rule.family != "failures", depth.get(rule.layer or "", 0), rule.left + 2 * rule.yields)
        )
        seen: dict[str, Rule] = {}
        for rule in ordered:
            if (other := seen.setdefault(rule.id, rule)) is not rule:
                raise RuleError(
                    f"the rule id {rule.id!r} is taken by {other.place}", where=rule.place, remedy="choose another id"
                )
        return RuleSet(tuple(ordered))


def load(paths: Sequence[str | Path] | None = None, *, examples: bool = False) -> RuleSet:
    """The shipped rules, or those under ``paths`` (files, or folders that hold ``filters/`` and ``failures/``).

    Without ``examples`` the parsed rules come from the cache if their files have not changed.
    """
    files = _files(paths)
    if examples:
        return RuleSet.of(rule for file, name, text in files for rule in _parsed(text, name, _family(file)))
    key = cache.key_of(__version__, *_CACHED, *(part for _, name, text in files for part in (name, text)))
    known = cache.fetch("rules", key)
    if known is None:
        full = RuleSet.of(rule for file, name, text in files for rule in parse(text, name, _family(file)))
        known = json.dumps([[getattr(rule, field) for field in _CACHED] for rule in full]).encode()
        cache.store("rules", key, known)
    return RuleSet(tuple(_cached(row) for row in json.loads(known)))


@lru_cache(128)
def _parsed(text: str, name: str, family: Family | None) -> tuple[Rule, ...]:
    """The rules of one file: each verification of a rule asks for all of them, and to read them takes half a second."""
    return tuple(parse(text, name, family))


_CACHED = [field for field in Rule.__dataclass_fields__ if field not in ("matches", "misses")]


def _cached(row: list[Any]) -> Rule:
    fields = dict(zip(_CACHED, row, strict=True))
    fields["metrics"] = tuple((name, pattern) for name, pattern in fields["metrics"])
    return Rule(**fields)


def rule_files(paths: Sequence[str | Path] | None = None) -> list[Path]:
    """The rule files under ``paths``, or the shipped ones."""
    found: list[Path] = []
    for path in [shipped.folder("rules")] if paths is None else [Path(path) for path in paths]:
        if path.is_dir():
            files = sorted(path.glob("failures/*.yaml")) + sorted(path.glob("filters/*.yaml"))
            files = files or sorted(path.glob("*.yaml"))
            if not files:
                raise RuleError(
                    "the folder has no rule files", where=str(path), remedy="put rules into filters/*.yaml and failures/*.yaml"
                )
            found += files
        elif path.is_file():
            found.append(path)
        else:
            near = nearest_path(str(path))
            remedy = f"did you mean {near}?" if near is not None else "give a .yaml file or a folder"
            raise RuleError("no such rule file or folder", where=str(path), remedy=remedy)
    return found


def _files(paths: Sequence[str | Path] | None) -> list[tuple[Path, str, str]]:
    """(path, name in messages, text) of every rule file."""
    found: list[tuple[Path, str, str]] = []
    root = shipped.folder("rules").resolve()
    for file in rule_files(paths):
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RuleError(f"cannot be read: {error}", where=str(file), remedy="save it as UTF-8") from None
        full = file.resolve()
        name = f"rules/{full.relative_to(root)}" if full.is_relative_to(root) else str(file)
        found.append((file, name, text))
    return found


def _family(path: Path) -> Family | None:
    return {"failures": "failures", "filters": "filters"}.get(path.resolve().parent.name)  # type: ignore[return-value]


def parse(text: str, where: str, family: Family | None = None, taxonomy: Taxonomy | None = None) -> list[Rule]:
    """The rules in one file's ``text``. ``where`` is the name of the file in messages.

    The folder gives the family. Any other folder leaves it to the fields: ``reason`` or ``kind``.
    """
    from diagnose.knowledge import documents

    document = documents.parse(text, where)
    data = document.value
    if not isinstance(data, dict) or not isinstance(data.get("rules"), list):
        raise RuleError("a rule file must be a mapping that has a list called rules", where=where, remedy="see docs/rules.md")
    _known_keys(data, _FILE_KEYS, f"{where}:1")
    taxonomy = taxonomy or shipped_taxonomy()
    rules = []
    for number, entry in enumerate(data["rules"]):
        at = document.line("rules", number)
        place = f"{where}:{at}"
        if not isinstance(entry, dict):
            raise RuleError("a rule must be a mapping with id, pattern and more", where=place, remedy="see docs/rules.md")
        reader = _Entry(entry, data, place)
        own = family or ("failures" if "reason" in entry else "filters")
        _known_keys(entry, _FAILURE_KEYS if own == "failures" else _FILTER_KEYS, place)
        examples = reader.mapping("examples")
        _known_keys(examples, {"matches", "misses"}, place)
        lines = {
            key: tuple(
                _example(example, document.line("rules", number, "examples", key, index), where)
                for index, example in enumerate(examples.get(key) or [])
            )
            for key in ("matches", "misses")
        }
        common: dict[str, Any] = {
            "id": reader.text("id", required=True),
            "family": own,
            "pattern": reader.text("pattern", required=True),
            "file": where,
            "at": at,
            "title": reader.text("title") or "",
            "printed_by": reader.text("printed_by", inherit=True),
            "reference": reader.text("reference", inherit=True),
            "matches": lines["matches"],
            "misses": lines["misses"],
        }
        if own == "failures":
            rules.append(
                Rule(
                    **common,
                    reason=reader.choice("reason", tuple(taxonomy.category_of)),
                    layer=reader.choice("layer", taxonomy.layers, inherit=True),
                    severity=reader.choice("severity", taxonomy.severities, default="error"),
                    symptom=reader.flag("symptom"),
                    carries=reader.flag("carries"),
                    action=reader.choice("action", taxonomy.actions) if "action" in entry else None,
                    category=reader.choice("category", sorted(set(taxonomy.category_of.values())))
                    if "category" in entry
                    else None,
                    mitigation=reader.text("mitigation"),
                )
            )
        else:
            rules.append(
                Rule(
                    **common,
                    kind=reader.choice("kind", taxonomy.kinds),
                    framework=reader.text("framework", inherit=True),
                    metrics=tuple((name, str(pattern)) for name, pattern in reader.mapping("metrics").items()),
                    facts=reader.flag("facts"),
                    left=reader.flag("left"),
                    yields=reader.flag("yields"),
                )
            )
            _left_alone(rules[-1])
    return rules


def _left_alone(rule: Rule) -> None:
    """Numbers and facts are read of what a rule drops itself."""
    if (rule.left or rule.yields) and (rule.metrics or rule.facts or (rule.left and rule.yields)):
        what = "a rule that leaves lines to folds has no metrics and no facts, and either left or yields"
        raise RuleError(what, where=rule.place, remedy="take one of them away, or write two rules")


class _Entry:
    """One rule as written, with the defaults of its file."""

    def __init__(self, entry: dict[str, Any], file: dict[str, Any], place: str) -> None:
        self.entry, self.file, self.place = entry, file, place

    def text(self, key: str, *, required: bool = False, inherit: bool = False) -> str | None:
        value = self.entry.get(key, self.file.get(key) if inherit else None)
        if value is None or value == "":
            if required:
                raise RuleError(f"the rule has no {key}", where=self.place, remedy=f"add {key}:")
            return None
        if not isinstance(value, str):
            raise RuleError(f"{key} must be a text", where=self.place, remedy="quote it with single quotes")
        return value

    def choice(self, key: str, allowed: Sequence[str], *, default: str | None = None, inherit: bool = False) -> str:
        value = self.text(key, inherit=inherit) or default
        if value is None or value not in allowed:
            what = f"the rule has no {key}" if value is None else f"{key} {value!r} is not known"
            near = nearest(value, allowed) if value is not None else None
            meant = f"did you mean {near}? " if near is not None else ""
            raise RuleError(what, where=self.place, remedy=f"{meant}use one of: {', '.join(allowed)}")
        return value

    def flag(self, key: str) -> bool:
        return self.choice(key, ("true", "false"), default="false") == "true"

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.entry.get(key) or {}
        if not isinstance(value, dict):
            raise RuleError(f"{key} must be a mapping", where=self.place, remedy="see docs/rules.md")
        return value


def _example(example: Any, at: int, where: str) -> Example:
    if isinstance(example, str):
        return Example(example, at)
    if isinstance(example, dict) and isinstance(example.get("line"), str) and set(example) <= {"line", "captures"}:
        captures = example.get("captures") or {}
        if isinstance(captures, dict) and all(isinstance(value, str) for value in captures.values()):
            return Example(example["line"], at, tuple(captures.items()))
    raise RuleError("an example must be a line, or {line: …, captures: {…}}", where=f"{where}:{at}", remedy="quote it")


def _known_keys(data: dict[str, Any], allowed: set[str], place: str) -> None:
    unknown = sorted(set(data) - allowed)
    if unknown:
        raise RuleError(
            f"unknown field {unknown[0]!r}", where=place, remedy=f"the fields here are: {', '.join(sorted(allowed))}"
        )
