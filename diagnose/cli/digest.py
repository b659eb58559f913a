"""``diagnose digest``: what a service saw and did in a shift, as a text for a mail, or to a webhook."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, Final

from diagnose.cli import printable
from diagnose.cli.options import database
from diagnose.cli.options.destination import count
from diagnose.cli.serve import settings_of
from diagnose.errors import DiagnoseError

if TYPE_CHECKING:
    from service.store import Store
    from service.store.webhooks import Notice, Webhook

_UNITS: Final = {"m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_S: Final = 366 * 86400.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Say what failed in a shift, what was done and by whom, what came of it, and what waits."
    parser.epilog = "For example in cron, at eight each morning: diagnose digest --mail ops@example.org | sendmail -t"
    parser.add_argument(
        "--since",
        type=_length,
        default=_length("24h"),
        metavar="TIME",
        help="how long ago it begins: 90m, 12h, 7d (default: 24h)",
    )
    out = parser.add_mutually_exclusive_group()
    out.add_argument("--mail", metavar="ADDRESS", help="print it as a message to this address, which sendmail -t takes")
    out.add_argument("--webhook", metavar="ID", type=count, help="send it to a webhook, as diagnose webhooks list shows it")
    out.add_argument("--json", action="store_true", help="print it as one line of JSON, which also has the numbers")
    parser.add_argument("--url", metavar="URL", help="address of the service in links (default: its setting public_url)")
    parser.add_argument(
        "--webhooks-to",
        metavar="NETWORKS",
        help="private networks that webhooks may reach, for example 10.20.0.0/16 (default: as the service is configured)",
    )
    database.options(parser)


def run(arguments: argparse.Namespace) -> int:
    from service.notify import digest
    from service.store.pages.shift import shift

    settings, now = settings_of(arguments), time.time()
    since, address = now - arguments.since, arguments.url or settings.public_url
    if arguments.mail is not None and not re.fullmatch(r"[^\s@<>,;:]+@[^\s@<>,;:]+", arguments.mail):
        raise DiagnoseError("is not an address", where=printable(arguments.mail), remedy="give one, as ops@example.org")
    with database.opened(settings) as store:
        webhook = _webhook(store, arguments.webhook) if arguments.webhook is not None else None
        projects = webhook.projects if webhook is not None else None
        found = store.read(lambda connection: shift(connection, since, now, settings.hang_s), projects)
        if webhook is not None:
            return asyncio.run(_send(webhook, digest.notice(found, since, now, address), settings.webhooks_to))
    if arguments.mail is not None:
        print(digest.mail(found, since, now, address, arguments.mail), end="")
    elif arguments.json:
        print(json.dumps(digest.notice(found, since, now, address).data))
    else:
        print("\n".join(printable(line) for line in digest.lines(found, since, now, address)))
    return 0


def _webhook(store: Store, webhook: int) -> Webhook:
    from service.store import webhooks as stored

    found = store.read(lambda connection: stored.find(connection, webhook))
    if found is None:
        raise DiagnoseError("there is no such webhook", where=str(webhook), remedy="diagnose webhooks list shows them")
    if found.format == "alertmanager":
        remedy = "choose a webhook of the format cloudevents or slack"
        raise DiagnoseError("a digest is no alert, so Alertmanager gets none", where=f"webhook {webhook}", remedy=remedy)
    return found


async def _send(webhook: Webhook, notice: Notice, private: str) -> int:
    from service.net.client import Unreachable
    from service.net.guarded import Outgoing, networks
    from service.notify.courier import send

    outgoing = Outgoing(networks(private))
    try:
        answer = await send(outgoing, webhook, notice, time.time())
    except Unreachable as error:
        remedy = "check its address, and send it again"
        raise DiagnoseError(f"not delivered: {error}", where=f"webhook {webhook.id}", remedy=remedy) from None
    finally:
        await outgoing.close()
    print(f"HTTP {answer.status}")
    return 0 if 200 <= answer.status < 300 else 1


def _length(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,6})([mhd])", text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < seconds <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90m, 12h or 7d, up to a year")
    return seconds
