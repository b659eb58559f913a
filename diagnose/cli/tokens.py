"""``diagnose tokens``: who may use a service."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime

from diagnose.cli import database, printable
from diagnose.cli.serve import settings_of


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="create a token and show it, this once")
    create.add_argument("name", help="a name that says whose token it is, or what it is for")
    create.add_argument(
        "--role", required=True, help="ingest (send logs), read (look), operate (also change), or admin (everything)"
    )
    create.add_argument("--days", type=float, metavar="N", help="the token expires after N days (default: never)")
    create.add_argument(
        "--quota", type=int, metavar="BYTES", help="log bytes per second that it may send (default: the service's quota)"
    )
    listing = actions.add_parser("list", help="show the tokens, without their secrets")
    revoke = actions.add_parser("revoke", help="make a token invalid")
    revoke.add_argument("name", help="the name of the token")
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
