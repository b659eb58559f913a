"""``rules/policy.yaml``, and a site's file laid over it -> a ``Policy``. Each mistake is reported with its line.

Durations are written ``90s``, ``10m``, ``24h``, ``7d``, shares ``5%``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from diagnose import cache
from diagnose.decision.clauses import Clauses
from diagnose.decision.policy import CHECK, HOLD, ISOLATE, REBOOT, RELEASE, JobClass, Policy
from diagnose.decision.written import LINES, PLACE, Known, Written, in_file, meant
from diagnose.errors import RuleError
from diagnose.knowledge import shipped
from diagnose.knowledge.taxonomy import Taxonomy, shipped_taxonomy


@functools.cache
def shipped_policy() -> Policy:
    """The policy that ships with the program."""
    return read(_shipped_path())


def strict_path() -> Path:
    """The file that is laid over the shipped policy if the scheduler confirms what logs say."""
    return shipped.folder("rules") / "policy-confirmed.yaml"


def _shipped_path() -> Path:
    return shipped.folder("rules") / "policy.yaml"


def read(path: Path, taxonomy: Taxonomy | None = None) -> Policy:
    """The whole policy in the file ``path``."""
    return _policy(_clauses(path), taxonomy or shipped_taxonomy())


def over_shipped(*paths: Path, taxonomy: Taxonomy | None = None) -> Policy:
    """The shipped policy with a site's files laid over it: tables are merged, lists and single values replaced."""
    clauses = functools.reduce(lambda under, path: under.under(_clauses(path)), paths, _clauses(_shipped_path()))
    return _policy(clauses, taxonomy or shipped_taxonomy())


def in_force(site: Path | None, *, confirmed: bool, schedulers: bool = False) -> tuple[Policy, bool]:
    """(the policy of a service, whether what a log says must be confirmed).

    If the policy does nothing without a person, the person is asked, unless there are ``schedulers`` that know better. If it
    only observes, nothing is done.
    """
    own = () if site is None else (site,)
    policy = over_shipped(*own)
    acts = policy.modes_used()
    if not confirmed or not ("auto" in acts or (schedulers and "approve" in acts)):
        return policy, False
    return over_shipped(strict_path(), *own), True


def objections(path: Path | None = None, taxonomy: Taxonomy | None = None) -> list[RuleError]:
    """All that is wrong with a site's file (or with the shipped ones), by line."""
    clauses = _clauses(_shipped_path()).under(_clauses(strict_path()))
    if path is not None:
        clauses = clauses.under(_clauses(path))
    _validated(clauses, taxonomy or shipped_taxonomy())
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
    found = _validated(clauses, taxonomy)
    if clauses.errors:
        raise clauses.errors[0]
    assert found is not None
    return found


def _validated(c: Clauses, taxonomy: Taxonomy) -> Policy | None:
    """The policy from the clauses. Mistakes in them are in ``c.errors``."""
    if not isinstance(c.value.get("actions"), dict):
        c.wrong("actions", "a policy must be a mapping that has the key actions", "see docs/policy.md")
        return None
    given = _placed(c, taxonomy)
    if c.errors and not c.has("budgets"):
        return None  # not a complete policy: the first objection says more than the rest
    known = Known(taxonomy.category_of, (*taxonomy.actions, ISOLATE, RELEASE, CHECK, HOLD, REBOOT))
    try:
        policy = _schema().validate_python(given | {LINES: c.lines_by_name()}, context=known)
    except ValidationError as refused:
        for error in refused.errors(include_url=False):
            _say(c, error)
        return None
    _distinct(c, policy.classes)
    return policy


@functools.cache
def _schema() -> TypeAdapter[Policy]:
    return TypeAdapter(Policy)


# --- what the types cannot know: the lines, and what one clause inherits from another ----------------------------------------


def _placed(c: Clauses, taxonomy: Taxonomy) -> dict[str, Any]:
    """The clauses in the form that the types want: with their places, and each budget with what it inherits."""
    budgets = _budgets(c, "budgets", {})
    classes: Any = c.value.get("classes", "")
    if isinstance(classes, list):
        classes = [_class(c, f"classes.{index}", one, taxonomy, budgets) for index, one in enumerate(classes)]
    given = {**c.value, "actions": _remedies(c, "actions", taxonomy), "budgets": budgets, "classes": classes}
    hours = c.value.get("quiet_hours", "")
    if isinstance(hours, list):
        given["quiet_hours"] = [_with_place(c, f"quiet_hours.{index}", one) for index, one in enumerate(hours)]
    return given


def _with_place(c: Clauses, at: str, value: Any) -> Any:
    return value | {PLACE: c.where(at)} if isinstance(value, dict) else value


def _remedies(c: Clauses, at: str, taxonomy: Taxonomy) -> Any:
    """In the whole policy every reason has one."""
    table = c.get(at) or {}
    if not isinstance(table, dict):
        return table
    found = {}
    for reason in (*table, *(one for one in taxonomy.category_of if at == "actions" and one not in table)):
        remedy = table.get(reason)
        kind, why = (remedy.get("kind"), remedy.get("why")) if isinstance(remedy, dict) else (None, None)
        if reason in taxonomy.category_of and (not why or kind not in taxonomy.actions):
            example = f"add   {reason}: {{kind: …, why: …}}   with a kind of: {', '.join(taxonomy.actions)}"
            c.wrong(f"{at}.{reason}", f"no action for the reason {reason}", example)
        else:
            found[reason] = _with_place(c, f"{at}.{reason}", remedy)
    return found


def _budgets(c: Clauses, at: str, parent: Mapping[str, Any]) -> Any:
    """reason -> budget. What one leaves out comes from the same reason one level up, or from the default."""
    table = c.get(at) or {}
    if not isinstance(table, dict):
        return table
    found: dict[str, Any] = {} if parent and "default" not in table else {"default": {}}
    for reason in (*found, *(name for name in table if name != "default")):
        base = parent.get(reason) or found.get("default") or parent.get("default", {})
        own = table.get(reason, {})
        found[reason] = _with_place(c, f"{at}.{reason}", base | own if isinstance(own, dict) else own)
    return found


def _class(c: Clauses, at: str, value: Any, taxonomy: Taxonomy, budgets: Any) -> Any:
    if not isinstance(value, dict):
        return value
    name = c.text(f"{at}.name")
    if not name:
        c.wrong(at, "a class needs a name", "add   name: WORD")
    if not c.names(f"{at}.match"):
        c.wrong(at, "the class matches every job", "add   match: {job: 'PATTERN'}   or labels or gpus_at_least")
    c.alias(at, f"classes.{name}")
    own = {"name": name or "?", "match": value.get("match") or {}, "actions": _remedies(c, f"{at}.actions", taxonomy)}
    if c.has(f"{at}.budgets"):
        own["budgets"] = _budgets(c, f"{at}.budgets", budgets if isinstance(budgets, dict) else {})
    return _with_place(c, at, value | own)


def _distinct(c: Clauses, classes: Sequence[JobClass]) -> None:
    for index, one in enumerate(classes):
        for before in classes[:index]:
            if before.name == one.name:
                c.wrong(f"classes.{index}", f"there are two classes {one.name}", "give each its own name")
            elif before.match == one.match:
                c.wrong(f"classes.{index}", f"{one.name} matches what {before.name} matches before it", "it is never reached")


# --- what is wrong, as a sentence --------------------------------------------------------------------------------------------


def _say(c: Clauses, error: ErrorDetails) -> None:
    loc = tuple(name for name in error["loc"] if name != "[key]")
    if _is_inherited(c, loc):
        return
    at, name, within = ".".join(map(str, loc)), str(loc[-1]), loc[:-1]
    match error["type"]:
        case "objection":
            c.wrong(at, error["msg"], error["ctx"]["remedy"])
        case "missing":
            how = next((one for one in get_args(_names_in(_type_at(within))[name]) if isinstance(one, Written)), _A_TABLE)
            c.wrong(at, f"the {how.noun} is missing", how.remedy)
        case "unexpected_keyword_argument":
            names = _names_in(_type_at(within))
            c.wrong(at, "there is no such clause", meant(name, names, f"those here are {', '.join(names)}"))
        case "tuple_type":
            c.wrong(at, "is no list", "write   - ...   lines under it, or []")
        case _:
            c.wrong(at, "is no table", f"{_A_TABLE.remedy}, or {{}}")


_A_TABLE = Written("table", "write   NAME: VALUE   lines under it", str)


def _is_inherited(c: Clauses, loc: tuple[str | int, ...]) -> bool:
    """Whether the objection is about the budget from which this one inherits the value."""
    if len(loc) < 3 or loc[-3] != "budgets" or loc == ("budgets", "default", loc[-1]):
        return False
    own = c.get(".".join(map(str, loc[:-1])))
    return isinstance(own, dict) and loc[-1] not in own


def _type_at(loc: tuple[str | int, ...]) -> Any:
    """The type of the value there."""
    found: Any = Policy
    for name in loc:
        found = _names_in(found)[str(name)] if is_dataclass(found) else get_args(found)[0 if isinstance(name, int) else -1]
        while get_origin(found) is Annotated or NoneType in get_args(found):
            found = get_args(found)[0]
    return found


def _names_in(kind: Any) -> dict[str, Any]:
    """The names that a table of the file may have, and the type of each."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        alias = next((one.alias for one in get_args(hint) if isinstance(one, FieldInfo)), None)
        if alias not in (PLACE, LINES):
            found[alias or in_file(name)] = hint
    return found
