"""``diagnose tokens``: who may use a service."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from diagnose.cli import action, printable
from diagnose.cli.options import database
from diagnose.cli.serve import settings_of

if TYPE_CHECKING:
    from service.projects import Grant

_FIRST = (
    "This is the service's first token. Within seconds everybody needs one, also for the pages, where it is typed in: "
    "use one of the role read, operate or admin."
)


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = action(actions, "create", "create a token and print it; it is never shown again")
    create.add_argument("name", metavar="NAME", help="name that says whose token it is, or what it is for")
    create.add_argument(
        "--role",
        metavar="ROLE",
        required=True,
        help="what the token allows: ingest (send logs), node (send logs, and a node's kernel log in its name), "
        "read (look at its projects), operate (also decide there), admin (everything)",
    )
    create.add_argument("--days", type=float, metavar="N", help="days until the token expires (default: never)")
    create.add_argument(
        "--quota",
        type=int,
        metavar="BYTES",
        help="log bytes per second that the token may send (default: the quota of the service)",
    )
    names = create.add_argument_group("what the token may name", "patterns with * and ?; each may be given several times")
    names.add_argument(
        "--project",
        metavar="NAME",
        action="append",
        default=[],
        help="project whose jobs it may see and send; a job that names none (PROJECT~JOB) is of the first "
        "(default: the project default, which also sees the nodes and numbers of the whole cluster)",
    )
    names.add_argument("--job", metavar="PATTERN", action="append", default=[], help="jobs that it may send (default: any)")
    names.add_argument(
        "--cluster", metavar="PATTERN", action="append", default=[], help="clusters that it may name (default: any)"
    )
    names.add_argument(
        "--user",
        metavar="PATTERN",
        action="append",
        default=[],
        help="users of Slurm whose jobs may be acted on because of what it sends (default: nobody's)",
    )
    names.add_argument(
        "--namespace", metavar="PATTERN", action="append", default=[], help="likewise namespaces of Kubernetes (default: none)"
    )
    names.add_argument(
        "--node", metavar="PATTERN", action="append", default=[], help="nodes that its logs may accuse (default: none)"
    )
    listing = action(actions, "list", "list the tokens, without their secrets")
    revoke = action(actions, "revoke", "make a token invalid")
    revoke.add_argument("name", metavar="NAME", help="name of the token")
    for one in (create, listing, revoke):
        database.options(one)


def run(arguments: argparse.Namespace) -> int:
    from service.store import tokens as stored

    with database.opened(settings_of(arguments)) as store:
        if arguments.action == "create":
            expires = time.time() + 86_400 * arguments.days if arguments.days is not None else None
            first = not store.read(stored.listed)
            secret = store.write(
                lambda connection: stored.create(
                    connection,
                    arguments.name,
                    arguments.role,
                    expires=expires,
                    quota=arguments.quota,
                    grant=_grant(arguments),
                )
            )
            print(secret)
            if first:
                print(_FIRST, file=sys.stderr)
        elif arguments.action == "revoke":
            store.write(lambda connection: stored.revoke(connection, arguments.name))
        else:
            for token in store.read(stored.listed):
                state = "valid" if token.valid(time.time()) else "revoked" if token.revoked else "expired"
                made = datetime.fromtimestamp(token.created, UTC).date()
                print(f"{printable(token.name)}\t{token.role}\t{state}\tcreated {made}{_named(token.binding or {})}")
    return 0


def _grant(arguments: argparse.Namespace) -> Grant:
    from service.projects import DEFAULT, Grant

    return Grant(
        projects=tuple(arguments.project) or (DEFAULT,),
        jobs=tuple(arguments.job),
        clusters=tuple(arguments.cluster),
        users=tuple(arguments.user),
        namespaces=tuple(arguments.namespace),
        nodes=tuple(arguments.node),
    )


def _named(binding: Mapping[str, Sequence[str]]) -> str:
    """What it may name."""
    return "".join(f"\t{name}: {printable(', '.join(patterns))}" for name, patterns in sorted(binding.items()))
