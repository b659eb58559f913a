"""The file of ``--sign-in`` -> who may come in: groups and service accounts, with their roles, projects and grants.

The list is read from above. The first entry that fits decides the role. Further ones of the same role add to what it is for;
those of another role add nothing, because nobody has two roles.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from diagnose.decision.clauses import Clauses
from diagnose.errors import DiagnoseError, RuleError
from diagnose.knowledge import documents
from service.acting.executors.http import secret
from service.acting.executors.options import Options
from service.projects import DEFAULT, Grant, matches
from service.sign_in.issuer import Issuer
from service.store.tokens import ROLES, check_grant

_PEOPLE: Final = (
    "issuer", "client_id", "secret_file", "secret_env", "ca", "scopes", "name", "groups", "session", "button", "allow",
)  # fmt: skip
_ACCOUNTS: Final = ("issuer", "audience", "keys", "keys_file", "ca", "token_file", "allow")
_ROLE: Final = ("role", "projects")
_GRANTS: Final = ("jobs", "clusters", "users", "namespaces", "nodes")
_SESSION_S: Final = 12 * 3600.0
_LONGEST_SESSION_S: Final = 30 * 86400.0
_FOR_PEOPLE: Final = ("read", "operate", "admin")


@dataclass(frozen=True, slots=True)
class Allowed:
    """Whom an entry is for, and what those may do."""

    pattern: str
    role: str
    grant: Grant
    own_namespace: bool = False
    """it speaks for the namespace that it is of, and no other"""


@dataclass(frozen=True, slots=True)
class Provider:
    """Where people sign in."""

    issuer: Issuer
    client_id: str
    secret: Callable[[], str | None]
    """read at each use, because it may be renewed; None: the provider wants none"""
    allow: tuple[Allowed, ...]
    scopes: str = "openid profile email groups"
    name: str = "email"
    """the claim that people are called by"""
    groups: str = "groups"
    """the claim that has their groups"""
    session_s: float = _SESSION_S
    button: str = "Sign in with your organisation"


@dataclass(frozen=True, slots=True)
class Cluster:
    """An issuer of tokens for service accounts."""

    issuer: Issuer
    audience: str
    allow: tuple[Allowed, ...]


@dataclass(frozen=True, slots=True)
class Access:
    people: Provider | None = None
    clusters: tuple[Cluster, ...] = ()


def load(path: Path) -> Access:
    """What the file says. Raises the first mistake in it."""
    try:
        document = documents.parse(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or error
        raise RuleError(f"cannot be read: {what}", where=str(path), remedy="give a readable YAML file") from None
    if not isinstance(document.value, dict):
        raise RuleError("the file lets nobody in", where=str(path), remedy="write people: or accounts: (docs/sign-in.md)")
    lines = {".".join(map(str, place)): f"{path}:{line}" for place, line in document.lines.items()}
    clauses = Clauses(document.value, lines, str(path))
    clauses.only("", ("people", "accounts"))
    people = _provider(Options(clauses, "people")) if clauses.has("people") else None
    clusters = tuple(_cluster(Options(clauses, f"accounts.{index}")) for index in range(clauses.length("accounts")))
    if clauses.errors:
        raise clauses.errors[0]
    return Access(people, clusters)


def role_of(entries: Iterable[Allowed], fits: Callable[[str], bool], namespace: str | None = None) -> tuple[str, Grant] | None:
    """(role, grant) of who ``fits`` the patterns of some entries; None: nobody who may come in."""
    found = [one for one in entries if fits(one.pattern)]
    if not found:
        return None
    role = found[0].role
    grants = [_own(one, namespace) for one in found if one.role == role]
    joined: dict[str, Any] = {
        name: tuple(dict.fromkeys(value for one in grants for value in getattr(one, name))) for name in _LISTS
    }
    return role, replace(grants[0], **joined)


_LISTS: Final = ("projects", *_GRANTS)


def _own(one: Allowed, namespace: str | None) -> Grant:
    if not one.own_namespace:
        return one.grant
    # A namespace is a name of Kubernetes, which has nothing in it that a pattern would read as more.
    return replace(one.grant, namespaces=(namespace,) if namespace else ())


def in_group(groups: Sequence[str]) -> Callable[[str], bool]:
    return lambda pattern: any(matches(group, (pattern,)) for group in groups)


# --- the parts of the file ---------------------------------------------------------------------------------------------------


def _provider(options: Options) -> Provider:
    options.only(_PEOPLE)
    session_s = options.seconds("session", _SESSION_S)
    if session_s > _LONGEST_SESSION_S:
        options.wrong("session", "is longer than 30 days", "write a shorter time, as 12h")
    found = {name: said for name in ("scopes", "name", "groups", "button") if (said := options.text(name))}
    return Provider(
        _issuer(options),
        options.needed("client_id", "diagnose"),
        _secret(options),
        _allowed(options, ("group",), _FOR_PEOPLE),
        session_s=session_s,
        **found,
    )


def _cluster(options: Options) -> Cluster:
    options.only(_ACCOUNTS)
    audience = options.needed("audience", "diagnose")
    return Cluster(_issuer(options), audience, _allowed(options, ("account", "subject"), tuple(ROLES)))


def _issuer(options: Options) -> Issuer:
    url = options.needed("issuer", "https://login.example.org")
    try:
        return Issuer(
            url or "https://nobody.invalid",
            ca=options.path("ca"),
            keys=options.text("keys"),
            keys_file=options.path("keys_file"),
            token_file=options.path("token_file"),
        )
    except DiagnoseError as error:
        options.wrong("issuer", f"{error.where}: {error.what}", error.remedy or "see docs/sign-in.md")
        return Issuer("https://nobody.invalid")


def _secret(options: Options) -> Callable[[], str | None]:
    if not options.has("secret_file") and not options.has("secret_env"):
        return lambda: None
    path, variable = options.secret("secret")
    return lambda: secret(path, variable, "the client's secret", os.environ)


def _allowed(options: Options, names: tuple[str, ...], roles: tuple[str, ...]) -> tuple[Allowed, ...]:
    """The entries of ``allow``."""
    place = f"{options.at}.allow"
    count = options.clauses.length(place)
    if not count:
        options.wrong("allow", "lets nobody in", f"write   - {{{names[0]}: NAME, role: read}}   under it")
    return tuple(_entry(Options(options.clauses, f"{place}.{index}"), names, roles) for index in range(count))


def _entry(options: Options, names: tuple[str, ...], roles: tuple[str, ...]) -> Allowed:
    for_people = names == ("group",)
    options.only((*names, *_ROLE, *(() if for_people else (*_GRANTS, "own_namespace"))))
    given = [name for name in names if options.has(name)]
    if len(given) != 1:
        options.wrong(names[0], "says nobody" if not given else "is said twice", f"write   {names[0]}: NAME")
    pattern = options.needed(given[0], "NAME") if given else None
    if given == ["account"]:
        pattern = _subject(pattern or "", options)
    role = options.needed("role", roles[0])
    if role and role not in roles:
        options.wrong("role", f"{role!r} cannot be the role here", f"use one of: {', '.join(roles)}")
    said: dict[str, Any] = {} if for_people else {name: options.words(name) for name in _GRANTS}
    grant = Grant(projects=options.words("projects") or (DEFAULT,), everything=role == "admin", kernel=role == "node", **said)
    try:
        check_grant(grant, role)
    except DiagnoseError as error:
        options.wrong("role", error.what, error.remedy or "see docs/sign-in.md")
    own = not for_people and options.flag("own_namespace")
    return Allowed(pattern or "", role, grant, own)


def _subject(account: str, options: Options) -> str:
    """How Kubernetes calls an account NAMESPACE/NAME."""
    namespace, mark, name = account.partition("/")
    if not mark or not namespace or not name:
        options.wrong("account", f"{account!r} is no account", "write   account: NAMESPACE/NAME; * and ? are allowed")
    return f"system:serviceaccount:{namespace}:{name}"
