"""Reading ``rules/policy.yaml``, and a site's file laid over it, into a ``Policy``; what is wrong is said with its line.

Durations are written ``90s``, ``10m``, ``24h``, ``7d``, shares ``5%``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from diagnose import cache
from diagnose.decision.clauses import Clauses, Mode
from diagnose.decision.policy import (
    ISOLATE,
    RELEASE,
    Budget,
    Bursts,
    JobClass,
    LifeSpans,
    Limits,
    Match,
    Policy,
    Remedy,
    Rollback,
    Signals,
)
from diagnose.decision.quiet_hours import QuietHours
from diagnose.errors import RuleError, nearest
from diagnose.knowledge import shipped
from diagnose.knowledge.taxonomy import Taxonomy, shipped_taxonomy


@functools.cache
def shipped_policy() -> Policy:
    """The policy that ships with the program."""
    return read(_shipped_path())


def _shipped_path() -> Path:
    return shipped.folder("rules") / "policy.yaml"


def read(path: Path, taxonomy: Taxonomy | None = None) -> Policy:
    """The whole policy in the file ``path``."""
    return _policy(_clauses(path), taxonomy or shipped_taxonomy())


def over_shipped(path: Path, taxonomy: Taxonomy | None = None) -> Policy:
    """The shipped policy with a site's file laid over it: tables are merged, lists and single values replaced."""
    return _policy(_clauses(_shipped_path()).under(_clauses(path)), taxonomy or shipped_taxonomy())


def objections(path: Path | None = None, taxonomy: Taxonomy | None = None) -> list[RuleError]:
    """All that is wrong with a site's file (or with the shipped one), by line."""
    clauses = _clauses(_shipped_path())
    if path is not None:
        clauses = clauses.under(_clauses(path))
    _filled(clauses, taxonomy or shipped_taxonomy())
    return sorted(clauses.errors, key=_place)


def _place(error: RuleError) -> tuple[str, int]:
    path, _, line = (error.where or "").rpartition(":")
    return (path, int(line)) if line.isdigit() else (error.where or "", 0)


def _clauses(path: Path) -> Clauses:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"cannot be read: {error}", where=str(path), remedy="give a readable YAML file") from None
    key = cache.key_of("policy clauses", text)
    known = cache.fetch("policy", key)
    if known is None:
        from diagnose.knowledge import documents  # PyYAML takes a while to import; most runs find the answer in the cache

        document = documents.parse(text, str(path))
        lines = {".".join(map(str, place)): line for place, line in document.lines.items()}
        known = json.dumps([document.value, lines]).encode()
        cache.store("policy", key, known)
    value, lines = json.loads(known)
    if not isinstance(value, dict):
        raise RuleError("a policy must be a mapping that has the key actions", where=str(path), remedy="see docs/policy.md")
    return Clauses(value, {place: f"{path}:{line}" for place, line in lines.items()}, str(path))


def _policy(clauses: Clauses, taxonomy: Taxonomy) -> Policy:
    found = _filled(clauses, taxonomy)
    if clauses.errors:
        raise clauses.errors[0]
    assert found is not None
    return found


_SECTIONS = (
    "mode", "modes", "approvers", "confidence", "budgets", "limits", "signals", "bursts", "rollback", "life", "quiet_hours",
    "classes", "actions",
)  # fmt: skip
_BUDGET = ("attempts", "within", "backoff", "backoff_most", "at_startup", "progress")
_CLASS = ("name", "match", "mode", "modes", "actions", "budgets", "approvers", "confidence")


def _filled(c: Clauses, taxonomy: Taxonomy) -> Policy | None:
    """The policy that the clauses make; what is wrong with them is in ``c.errors``."""
    if not isinstance(c.value.get("actions"), dict):
        c.wrong("actions", "a policy must be a mapping that has the key actions", "see docs/policy.md")
        return None
    kinds = (*taxonomy.actions, ISOLATE, RELEASE)
    c.only("", _SECTIONS)
    actions = _remedies(c, "actions", taxonomy)
    for reason in taxonomy.category_of:
        if reason not in actions and not c.has(f"actions.{reason}"):
            remedy = f"add   {reason}: {{kind: …, why: …}}   with a kind of: {', '.join(taxonomy.actions)}"
            c.wrong("actions", f"no action for the reason {reason}", remedy)
    if c.errors and not c.has("budgets"):
        return None  # not a whole policy: the first objection says more than the rest
    for section, keys in _KEYS.items():
        c.only(section, keys)
    budgets = _budgets(c, "budgets", taxonomy, None)
    hours = []
    for index in range(c.length("quiet_hours")):
        hours.append(_quiet_hours(c, f"quiet_hours.{index}", kinds))
    classes = [_class(c, f"classes.{index}", taxonomy, kinds, budgets) for index in range(c.length("classes"))]
    _distinct(c, classes)
    families: dict[str, str] = {}
    for family in c.names("bursts.families"):
        for reason in c.words(f"bursts.families.{family}"):
            if reason not in taxonomy.category_of:
                c.wrong(
                    f"bursts.families.{family}",
                    f"unknown reason {reason!r}",
                    _meant(reason, taxonomy.category_of, "use one of rules/taxonomy.yaml"),
                )
            elif families.setdefault(reason, family) != family:
                c.wrong(f"bursts.families.{family}", f"{reason} is in two families", "a failure belongs to one incident")
    policy = Policy(
        actions=actions,
        mode=c.mode("mode") or "observe",
        modes=_modes(c, "modes", taxonomy, kinds),
        approvers=_approvers(c, "approvers", kinds),
        confidence=_confidence(c, "confidence", kinds),
        budgets=budgets,
        limits=Limits(
            isolations_per_hour=c.whole("limits.isolations_per_hour", 0),
            isolated_share=c.share("limits.isolated_share"),
            nodes_at_once=c.whole("limits.nodes_at_once", 0),
            restarts_per_day=c.whole("limits.restarts_per_day", 0),
            job_cool_down_s=c.seconds("limits.job_cool_down"),
            node_cool_down_s=c.seconds("limits.node_cool_down"),
            isolations_of_a_node=c.whole("limits.isolations_of_a_node", 1),
            never=c.words("limits.never"),
        ),
        signals=Signals(
            needed=c.whole("signals.needed", 1),
            within_s=c.seconds("signals.within"),
            strong_xids=frozenset(c.numbers("signals.strong_xids")),
            kernel_sources=c.words("signals.kernel_sources"),
            named_most=c.whole("signals.named_most", 1),
            check_within_s=c.seconds("signals.check_within"),
        ),
        bursts=Bursts(
            jobs=c.whole("bursts.jobs", 2),
            within_s=c.seconds("bursts.within"),
            hold_s=c.seconds("bursts.hold"),
            hold_most_s=c.seconds("bursts.hold_most"),
            family_of=families,
        ),
        rollback=Rollback(
            back_share=c.share("rollback.back_share"),
            back_least=c.whole("rollback.back_least", 0),
            skip_most=c.whole("rollback.skip_most", 1),
            same_step=c.whole("rollback.same_step", 0),
        ),
        life=LifeSpans(
            approve_within_s=c.seconds("life.approve_within"),
            start_within_s=c.seconds("life.start_within"),
            lease_s=c.seconds("life.lease"),
            claims=c.whole("life.claims", 1),
        ),
        quiet_hours=tuple(one for one in hours if one is not None),
        classes=tuple(classes),
        lines=c.lines_by_name(),
    )
    if c.has("signals.needed") and policy.signals.needed < 2:
        c.wrong("signals.needed", "one signal alone would isolate a node", "say 2 or more: a single diagnosis may be wrong")
    if policy.bursts.hold_most_s < policy.bursts.hold_s:
        c.wrong("bursts.hold_most", "is shorter than hold", "make it as long or longer")
    return policy


_KEYS = {
    "limits": (
        "isolations_per_hour", "isolated_share", "nodes_at_once", "restarts_per_day", "job_cool_down", "node_cool_down",
        "isolations_of_a_node", "never",
    ),
    "signals": ("needed", "within", "strong_xids", "kernel_sources", "named_most", "check_within"),
    "bursts": ("jobs", "within", "hold", "hold_most", "families"),
    "rollback": ("back_share", "back_least", "skip_most", "same_step"),
    "life": ("approve_within", "start_within", "lease", "claims"),
}  # fmt: skip


def _meant(name: str, known: Iterable[str], remedy: str) -> str:
    near = nearest(name, known)
    return f"did you mean {near}? {remedy}" if near else remedy


def _remedies(c: Clauses, at: str, taxonomy: Taxonomy) -> dict[str, Remedy]:
    found = {}
    for reason in c.names(at):
        if reason not in taxonomy.category_of:
            c.wrong(
                f"{at}.{reason}",
                f"unknown reason {reason!r}",
                _meant(reason, taxonomy.category_of, "use one of rules/taxonomy.yaml"),
            )
            continue
        c.only(f"{at}.{reason}", ("kind", "why", "check_nodes"))
        kind, why = c.text(f"{at}.{reason}.kind"), c.text(f"{at}.{reason}.why")
        if not kind or not why or kind not in taxonomy.actions:
            remedy = f"add   {reason}: {{kind: …, why: …}}   with a kind of: {', '.join(taxonomy.actions)}"
            c.wrong(f"{at}.{reason}", f"no action for the reason {reason}", remedy)
            continue
        found[reason] = Remedy(kind, why, c.where(f"{at}.{reason}"), c.flag(f"{at}.{reason}.check_nodes"))
    return found


def _budgets(c: Clauses, at: str, taxonomy: Taxonomy, parent: Mapping[str, Budget] | None) -> dict[str, Budget]:
    """reason -> budget; what one leaves out it takes from that of the same reason one level up, or from the default."""
    found: dict[str, Budget] = {}
    for reason in ("default", *(name for name in c.names(at) if name != "default")):
        if reason != "default" and reason not in taxonomy.category_of:
            c.wrong(
                f"{at}.{reason}",
                f"unknown reason {reason!r}",
                _meant(reason, taxonomy.category_of, "use default, or a reason of rules/taxonomy.yaml"),
            )
            continue
        if reason == "default" and parent is not None and not c.has(f"{at}.default"):
            continue
        base = (parent.get(reason) or found.get("default") or parent["default"]) if parent else found.get("default")
        place = f"{at}.{reason}"
        c.only(place, _BUDGET)
        found[reason] = Budget(
            attempts=c.whole(f"{place}.attempts", 0, base.attempts if base else None),
            within_s=c.seconds(f"{place}.within", base.within_s if base else None),
            backoff_s=c.seconds(f"{place}.backoff", base.backoff_s if base else None),
            backoff_most_s=c.seconds(f"{place}.backoff_most", base.backoff_most_s if base else None),
            at_startup=c.whole(f"{place}.at_startup", 1, base.at_startup if base else None),
            progress_s=c.seconds(f"{place}.progress", base.progress_s if base else None),
            where=c.where(place),
        )
    return found


def _modes(c: Clauses, at: str, taxonomy: Taxonomy, kinds: Collection[str]) -> dict[str, Mode]:
    found: dict[str, Mode] = {}
    for name in c.names(at):
        if name not in taxonomy.category_of and name not in kinds:
            c.wrong(
                f"{at}.{name}",
                f"{name!r} is neither a reason nor an action",
                _meant(name, (*taxonomy.category_of, *kinds), f"use a reason, or {', '.join(kinds)}"),
            )
        elif (mode := c.mode(f"{at}.{name}")) is not None:
            found[name] = mode
    return found


def _approvers(c: Clauses, at: str, kinds: Collection[str]) -> dict[str, tuple[str, ...]]:
    found = {}
    for kind in c.names(at):
        if kind != "default" and kind not in kinds:
            c.wrong(f"{at}.{kind}", f"unknown action {kind!r}", _meant(kind, kinds, f"use default, or {', '.join(kinds)}"))
        found[kind] = c.words(f"{at}.{kind}")
        for name in found[kind]:
            if name != "owner" and not (name.startswith(("role:", "user:")) and len(name) > 5):
                c.wrong(f"{at}.{kind}", f"{name!r} names nobody", "write role:NAME, user:NAME or owner")
    return found


def _confidence(c: Clauses, at: str, kinds: Collection[str]) -> dict[str, float]:
    found = {}
    for kind in c.names(at):
        if kind != "default" and kind not in kinds:
            c.wrong(f"{at}.{kind}", f"unknown action {kind!r}", _meant(kind, kinds, f"use default, or {', '.join(kinds)}"))
        found[kind] = c.fraction(f"{at}.{kind}")
    return found


def _quiet_hours(c: Clauses, at: str, kinds: Collection[str]) -> QuietHours | None:
    c.only(at, ("days", "from", "to", "zone", "at_most", "actions"))
    found = QuietHours.read(c, at)
    for kind in c.words(f"{at}.actions"):
        if kind not in kinds:
            c.wrong(f"{at}.actions", f"unknown action {kind!r}", _meant(kind, kinds, f"use {', '.join(kinds)}"))
    return found


def _class(c: Clauses, at: str, taxonomy: Taxonomy, kinds: Collection[str], budgets: Mapping[str, Budget]) -> JobClass:
    c.only(at, _CLASS)
    c.only(f"{at}.match", ("job", "labels", "gpus_at_least"))
    name = c.text(f"{at}.name")
    if not name:
        c.wrong(at, "a class needs a name", "add   name: WORD")
    if not c.names(f"{at}.match"):
        c.wrong(at, "the class matches every job", "add   match: {job: 'PATTERN'}   or labels or gpus_at_least")
    c.alias(at, f"classes.{name}")
    return JobClass(
        name=name or "?",
        match=Match(
            job=c.text(f"{at}.match.job"),
            labels=_labels(c, f"{at}.match.labels"),
            gpus_at_least=c.whole(f"{at}.match.gpus_at_least", 1) if c.has(f"{at}.match.gpus_at_least") else None,
        ),
        where=c.where(at),
        mode=c.mode(f"{at}.mode") if c.has(f"{at}.mode") else None,
        modes=_modes(c, f"{at}.modes", taxonomy, kinds),
        actions=_remedies(c, f"{at}.actions", taxonomy),
        budgets=_budgets(c, f"{at}.budgets", taxonomy, budgets) if c.has(f"{at}.budgets") and budgets else {},
        approvers=_approvers(c, f"{at}.approvers", kinds),
        confidence=_confidence(c, f"{at}.confidence", kinds),
    )


def _labels(c: Clauses, at: str) -> dict[str, str]:
    c.names(at)
    found = c.get(at)  # names of labels have dots in them: they are no clauses
    labels = found if isinstance(found, dict) else {}
    if not all(isinstance(pattern, str) for pattern in labels.values()):
        c.wrong(at, "a label's value is no text", "write   {NAME: 'PATTERN'}")
        return {}
    return dict(labels)


def _distinct(c: Clauses, classes: list[JobClass]) -> None:
    for index, one in enumerate(classes):
        for before in classes[:index]:
            if before.name == one.name:
                c.wrong(f"classes.{index}", f"there are two classes {one.name}", "give each its own name")
            elif before.match == one.match:
                c.wrong(f"classes.{index}", f"{one.name} matches what {before.name} matches before it", "it is never reached")
