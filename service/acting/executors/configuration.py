"""The executors of a site: one YAML file -> executors. docs/executors.md explains it.

Labels, nodes and kinds decide which executor gets an order: the first that fits. An executor never gets an order that it is not
clearly for: if its conditions only name jobs, it gets no orders about nodes alone.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from diagnose.decision.clauses import Clauses
from diagnose.errors import DiagnoseError, RuleError
from diagnose.knowledge import documents
from service.acting.executors.command import Command
from service.acting.executors.executor import CHECK, Executor, Order
from service.acting.executors.kubernetes import Kubernetes, Settings
from service.acting.executors.kubernetes_nodes import Ways, wrong_condition, wrong_label
from service.acting.executors.nodecheck import NodeCheck
from service.acting.executors.options import SERVER, Options, Type
from service.acting.executors.slurm import Door, Slurm
from service.acting.executors.slurm_commands import Commands
from service.acting.executors.slurm_rest import Rest
from service.acting.executors.slurm_spares import RESERVATION, Spares
from service.acting.executors.webhook import Webhook
from service.net.guarded import Network, networks

_SHARED: Final = ("name", "type", "jobs", "nodes", "kinds", "dry_run", "patience", "at_once", "check")
_PATIENCE_S = 600.0
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Which:
    """Which orders an executor is for. A condition that is not given is always met."""

    job: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()

    def fits(self, order: Order) -> bool:
        """Whether the order meets all conditions."""
        if self.nodes and not all(any(fnmatch.fnmatchcase(node, one) for one in self.nodes) for node in order.nodes):
            return False
        if order.job is None:
            return bool(self.nodes) or not (self.job or self.labels)
        if self.job is not None and not fnmatch.fnmatchcase(order.job, self.job):
            return False
        return all(fnmatch.fnmatchcase(order.labels.get(name, ""), pattern) for name, pattern in self.labels.items())


@dataclass(frozen=True, slots=True)
class Configured:
    """An executor, and what it is for."""

    name: str
    type: str
    executor: Executor
    kinds: frozenset[str]
    which: Which = field(default_factory=Which)
    dry_run: bool = False
    repeatable: bool = True
    """an order that may have been done may be given to it again, because it looks first"""
    patience_s: float = _PATIENCE_S
    """how long a failed order is tried again"""
    at_once: int = _AT_ONCE
    check: NodeCheck | None = None
    """how nodes are tested, before a restart or by themselves, if the policy wants it"""

    def is_for(self, order: Order) -> bool:
        """Whether this executor is for the order."""
        return order.kind in self.kinds and self.which.fits(order)


def choose(executors: Iterable[Configured], order: Order) -> Configured | None:
    """The first executor that is for the order."""
    return next((one for one in executors if one.is_for(order)), None)


def of_command(words: Sequence[str], repeatable: bool) -> Configured:
    """A program as the executor for every order."""
    return Configured("command", "command", Command(words), Command.kinds, repeatable=repeatable)


def load(path: Path, private: Iterable[Network] = ()) -> tuple[Configured, ...]:
    """The executors of a file. Raises the first mistake in it."""
    clauses, found = _read(path, tuple(private))
    if clauses.errors:
        raise clauses.errors[0]
    return found


def objections(path: Path, private: Iterable[Network] = ()) -> list[RuleError]:
    """All that is wrong with a file."""
    return _read(path, tuple(private))[0].errors


def _read(path: Path, private: tuple[Network, ...]) -> tuple[Clauses, tuple[Configured, ...]]:
    try:
        document = documents.parse(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or error
        raise RuleError(f"cannot be read: {what}", where=str(path), remedy="give a readable YAML file") from None
    if not isinstance(document.value, dict):
        raise RuleError(
            "the file names no executors", where=str(path), remedy="write executors: and below it a list (docs/executors.md)"
        )
    lines = {".".join(map(str, place)): f"{path}:{line}" for place, line in document.lines.items()}
    clauses = Clauses(document.value, lines, str(path))
    clauses.only("", ("executors",))
    found = [_executor(Options(clauses, f"executors.{index}", private)) for index in range(clauses.length("executors"))]
    if not found and not clauses.errors:
        clauses.wrong("executors", "there are none", "write   - {name: NAME, type: slurm, commands: true}   under it")
    names: set[str] = set()
    for index, one in enumerate(found):
        if one is not None and one.name in names:
            clauses.wrong(f"executors.{index}.name", f"there are two executors {one.name}", "give each its own name")
        names |= {one.name} if one is not None else set()
    return clauses, tuple(one for one in found if one is not None)


def _executor(options: Options) -> Configured | None:
    before = len(options.clauses.errors)
    name = options.needed("name", "WORD")
    if name and not (name.isascii() and name.replace("-", "").replace("_", "").isalnum() and len(name) <= 60):
        options.wrong("name", f"{name[:80]!r} is no word", "use letters, digits, - and _")
    kind = TYPES.get(options.text("type") or "")
    if kind is None:
        options.wrong("type", f"{options.text('type')!r} is no type", f"use {', '.join(TYPES)}")
        return None
    options.only((*_SHARED, *kind.options))
    jobs = options.table("jobs", ("job", "labels"))
    which = Which(jobs.text("job") if jobs else None, jobs.labels("labels") if jobs else {}, options.words("nodes"))
    patience_s, at_once = options.seconds("patience", _PATIENCE_S), options.whole("at_once", 1, _AT_ONCE)
    dry_run, wanted = options.flag("dry_run"), options.words("kinds")
    repeatable = options.flag("repeatable", kind.repeatable) if "repeatable" in kind.options else kind.repeatable
    test = options.table("check", ("command", "timeout"))
    check = _check(test) if test is not None else None
    try:
        executor = kind.build(options) if len(options.clauses.errors) == before else None
    except DiagnoseError as error:
        place = "url" if options.has("url") else "name"
        options.wrong(place, f"{error.where}: {error.what}" if error.where else error.what, error.remedy or "see its options")
        return None
    if executor is None:
        return None
    able = executor.kinds if check is None else executor.kinds | {CHECK}
    for word in wanted:
        if word not in able:
            options.wrong("kinds", f"{word!r} is nothing that it does", f"use {', '.join(sorted(able))}")
    kinds = frozenset(wanted) if wanted else able
    return Configured(name, options.text("type") or "", executor, kinds, which, dry_run, repeatable, patience_s, at_once, check)


def _check(options: Options) -> NodeCheck:
    words = options.words("command")
    if not words or not any("{nodes}" in word for word in words[1:]):
        options.wrong("command", "no nodes are given to it", "write   command: [PROGRAM, --nodes, '{nodes}', --json]")
    return NodeCheck(words, options.seconds("timeout", 900.0))


def _slurm(options: Options) -> Executor:
    doors: list[Door] = []
    commands: Commands | None = None
    if rest := options.table("slurmrestd", ("url", "user", "token_file", "token_env", *SERVER)):
        token_file, token_env = rest.secret("token")
        url, user = rest.needed("url", "https://HOST:6820"), rest.needed("user", "NAME")
        if url and user and (server := rest.server(url)):
            doors.append(Rest(server, user=user, token_file=token_file, token_env=token_env))
    if isinstance(options.clauses.get(f"{options.at}.commands"), dict):
        below = options.table("commands", ("folder", "configuration", "timeout"))
        assert below is not None
        timeout_s = below.seconds("timeout", 30.0)
        commands = Commands(folder=below.path("folder"), configuration=below.path("configuration"), timeout_s=timeout_s)
    elif options.flag("commands"):
        commands = Commands()
    doors += [commands] if commands is not None else []
    if not doors:
        options.wrong("type", "there is no way to reach Slurm", "write   commands: true   or   slurmrestd: {url: …, user: …}")
    return Slurm(doors, _spares(options, commands))


def _spares(options: Options, commands: Commands | None) -> Spares | None:
    if not options.has("spares"):
        return None
    reservation = options.text("spares") or ""
    if not RESERVATION.fullmatch(reservation):
        options.wrong("spares", f"{reservation[:80]!r} is no name of a reservation", "use letters, digits, ., - and _")
    elif commands is None:
        options.wrong("spares", "slurmrestd changes no reservation", "write also   commands: true")
    else:
        return Spares(reservation, commands)
    return None


def _webhook(options: Options) -> Executor:
    secret_file, secret_env = options.secret("secret")
    own = networks(",".join(options.words("networks")))
    return Webhook(
        options.needed("url", "https://HOST/PATH"),
        secret_file=secret_file,
        secret_env=secret_env,
        private=(*options.networks, *own),
        timeout_s=options.seconds("timeout", 30.0),
    )


def _command(options: Options) -> Executor:
    words = options.words("command")
    if not words or not words[0]:
        options.wrong("command", "there is none", "write   command: [/usr/local/bin/act, --flag]")
        words = ("/nowhere",)
    return Command(words, timeout_s=options.seconds("timeout", 300.0))


def _kubernetes(options: Options) -> Executor:
    if url := options.text("url"):
        token_file, certificate = options.path("token_file"), options.path("certificate")
        if token_file is None and certificate is None:
            options.wrong("token_file", "is missing", "write   token_file: PATH   or   certificate: PATH and key: PATH")
        found = Settings(url, ca=options.path("ca"), token_file=token_file, certificate=certificate, key=options.path("key"))
    else:
        found = Settings.in_cluster(os.environ)
    ways = _ways(options)
    return Kubernetes(
        replace(
            found,
            namespace=options.text("namespace") or found.namespace,
            namespaces=options.words("namespaces"),
            timeout_s=options.seconds("timeout", found.timeout_s),
            patience_s=options.seconds("wait", found.patience_s),
        ),
        ways,
        hold=options.flag("hold"),
    )


def _ways(options: Options) -> Ways:
    """By what nodes are isolated: ``[cordon, taint, {label: {KEY: VALUE}}, {condition: TYPE}]``."""
    if not options.has("isolate_by"):
        return Ways()
    labels: dict[str, str] = {}
    flags: set[str] = set()
    conditions: list[str] = []
    count = options.clauses.length(f"{options.at}.isolate_by")
    for index in range(count):
        at, one = f"isolate_by.{index}", options.clauses.get(f"{options.at}.isolate_by.{index}")
        match one:
            case "cordon" | "taint":
                flags.add(one)
            case {"label": dict(told)} if len(one) == 1 and told:
                for key, value in told.items():
                    if (why := wrong_label(str(key), str(value))) is not None:
                        options.wrong(at, why, "write   - label: {example.com/broken: 'true'}")
                    labels[str(key)] = str(value)
            case {"condition": str(kind)} if len(one) == 1:
                if (why := wrong_condition(kind)) is not None:
                    options.wrong(at, why, "write   - condition: DiagnoseIsolated   , a type that nobody else writes")
                conditions.append(kind)
            case _:
                options.wrong(at, "is no way to isolate", "write cordon, taint, label: {KEY: VALUE} or condition: TYPE")
    if not count:
        options.wrong("isolate_by", "there is no way", "write   [cordon, taint]   , or leave it out")
    if len(conditions) > 1:
        options.wrong("isolate_by", f"there are {len(conditions)} conditions", "one says it")
    return Ways("cordon" in flags, "taint" in flags, labels, conditions[0] if conditions else None)


TYPES: Final[Mapping[str, Type]] = {  # one per line, so that a new type is one more line
    "slurm": Type(("slurmrestd", "commands", "spares"), _slurm),
    "webhook": Type(("url", "secret_file", "secret_env", "networks", "timeout"), _webhook),
    "command": Type(("command", "timeout", "repeatable"), _command, repeatable=False),
    "kubernetes": Type(("url", "token_file", "namespace", "namespaces", "wait", "isolate_by", "hold", *SERVER), _kubernetes),
}
