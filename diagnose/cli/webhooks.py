"""``diagnose webhooks``: who is told of failures and actions."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.cli import action, printable
from diagnose.cli.options import database
from diagnose.cli.options.destination import count
from diagnose.cli.serve import settings_of
from diagnose.errors import DiagnoseError

if TYPE_CHECKING:
    from service.store import Store

_EVENTS = ("failures", "alarms", "regressions", "actions")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = action(actions, "add", "add a webhook, and print the secret that signs its messages; it is never shown again")
    add.add_argument("url", metavar="URL", help="address to which messages are sent, as https://HOST/PATH")
    add.add_argument(
        "--format",
        choices=("cloudevents", "slack", "alertmanager"),
        default="cloudevents",
        help="format of the messages (default: cloudevents)",
    )
    add.add_argument(
        "--events",
        metavar="LIST",
        default=",".join(_EVENTS),
        help=f"events to send, separated by commas (default: {','.join(_EVENTS)})",
    )
    add.add_argument(
        "--project",
        metavar="NAME",
        action="append",
        default=[],
        help="project whose events to send; may be given several times (default: everybody's)",
    )
    add.add_argument(
        "--secret-file", metavar="FILE", type=Path, help="file that has the secret, whsec_… (default: a new secret)"
    )
    listing = action(actions, "list", "list the webhooks, and whether their messages arrive")
    remove = action(actions, "remove", "remove a webhook")
    test = action(actions, "test", "send a test message to a webhook now")
    for one in (remove, test):
        one.add_argument("id", metavar="ID", type=count, help="number of the webhook, as diagnose webhooks list shows it")
    for one in (add, test):
        one.add_argument(
            "--webhooks-to",
            metavar="NETWORKS",
            help="private networks that webhooks may reach, for example 10.20.0.0/16 (default: as the service is configured)",
        )
    for one in (add, listing, remove, test):
        database.options(one)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    with database.opened(settings) as store:
        return asyncio.run(_ACTIONS[arguments.action](arguments, store, settings.webhooks_to))


async def _add(arguments: argparse.Namespace, store: Store, private: str) -> int:
    from service.net.guarded import Outgoing, networks
    from service.notify.courier import settled_secret
    from service.store import webhooks as stored

    events = tuple(dict.fromkeys(part.strip() for part in arguments.events.split(",") if part.strip()))
    unknown = [event for event in events if event not in _EVENTS]
    if unknown or not events:
        raise DiagnoseError(
            f"unknown events: {', '.join(unknown)}" if unknown else "no event is named",
            remedy=f"give --events with some of {','.join(_EVENTS)}",
        )
    Outgoing(networks(private)).check(arguments.url)
    given = None
    if arguments.secret_file is not None:
        try:
            given = arguments.secret_file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise DiagnoseError("cannot be read", where=str(arguments.secret_file), remedy="check the path") from None
    secret = settled_secret(given)
    projects, now = tuple(dict.fromkeys(arguments.project)) or None, time.time()
    made = store.write(
        lambda connection: stored.add(
            connection, arguments.url, arguments.format, secret, events, "command line", now, projects
        )
    )
    print(f"{made}\t{secret if given is None else 'signed with the secret given'}")
    return 0


async def _list(arguments: argparse.Namespace, store: Store, private: str) -> int:
    from service.net.guarded import shown
    from service.store import webhooks as stored

    standing = store.read(stored.standing)
    for one in store.read(stored.listed):
        how = standing.get(one.id, {})
        of = f"of {','.join(one.projects)}" if one.projects else "of all projects"
        state = "on" if one.active else f"off ({one.off_because})"
        words = [str(one.id), shown(one.url), one.format, ",".join(one.events), of, state, f"{how.get('waiting', 0)} waiting"]
        print("\t".join(printable(word) for word in [*words, how.get("last_status") or "nothing sent yet"]))
    return 0


async def _remove(arguments: argparse.Namespace, store: Store, private: str) -> int:
    from service.store import webhooks as stored

    if not store.write(lambda connection: stored.remove(connection, arguments.id, "command line", time.time())):
        raise _unknown(arguments.id)
    return 0


async def _test(arguments: argparse.Namespace, store: Store, private: str) -> int:
    from service.net.client import Unreachable
    from service.net.guarded import Outgoing, networks
    from service.notify.courier import notice_of_test, send
    from service.store import webhooks as stored

    found = store.read(lambda connection: stored.find(connection, arguments.id))
    if found is None:
        raise _unknown(arguments.id)
    outgoing = Outgoing(networks(private))
    now = time.time()
    try:
        answer = await send(outgoing, found, notice_of_test(found.id, now), now)
    except Unreachable as error:
        raise DiagnoseError(f"not delivered: {error}", where=f"webhook {found.id}", remedy="check its address") from None
    finally:
        await outgoing.close()
    print(f"HTTP {answer.status}")
    return 0 if 200 <= answer.status < 300 else 1


_ACTIONS = {"add": _add, "list": _list, "remove": _remove, "test": _test}


def _unknown(webhook: int) -> DiagnoseError:
    return DiagnoseError("there is no such webhook", where=str(webhook), remedy="diagnose webhooks list shows them")
