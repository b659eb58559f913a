"""``diagnose tokens``: who may use a service."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime

from diagnose.cli import action, database, printable
from diagnose.cli.serve import settings_of


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = action(actions, "create", "create a token and print it; it is never shown again")
    create.add_argument("name", metavar="NAME", help="name that says whose token it is, or what it is for")
    create.add_argument(
        "--role",
        metavar="ROLE",
        required=True,
        help="what the token allows: ingest (send logs), read (look at everything), operate (also decide), admin (all)",
    )
    create.add_argument("--days", type=float, metavar="N", help="days until the token expires (default: never)")
    create.add_argument(
        "--quota",
        type=int,
        metavar="BYTES",
        help="log bytes per second that the token may send (default: the quota of the service)",
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
            print(
                store.write(
                    lambda connection: stored.create(
                        connection, arguments.name, arguments.role, expires=expires, quota=arguments.quota
                    )
                )
            )
        elif arguments.action == "revoke":
            store.write(lambda connection: stored.revoke(connection, arguments.name))
        else:
            for token in store.read(stored.listed):
                state = "valid" if token.valid(time.time()) else "revoked" if token.revoked else "expired"
                made = datetime.fromtimestamp(token.created, UTC).date()
                print(f"{printable(token.name)}\t{token.role}\t{state}\tcreated {made}")
    return 0
