"""The options of all commands that talk to a service."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from diagnose.errors import DiagnoseError
from diagnose.shipping.destination import Destination


def add_job(group: argparse._ArgumentGroup) -> None:
    """The options that describe the job, and not one of its logs."""
    group.add_argument("--attempt", type=count, metavar="N", help="number of the job's run, from 1 (default: the latest)")
    group.add_argument(
        "--label", action="append", type=label, metavar="NAME=VALUE", default=[], help="label of the job; may be repeated"
    )


def add_service(
    parser: argparse.ArgumentParser,
    title: str = "the service",
    what: str = "address of the service, for example http://diagnose.example:8321 (default: $DIAGNOSE_URL)",
) -> None:
    """Where the service is, and with which token it is used."""
    group = parser.add_argument_group(title)
    group.add_argument("--to", metavar="URL", help=what)
    group.add_argument(
        "--token-file", metavar="FILE", type=Path, help="file that has the token (default: the token in $DIAGNOSE_TOKEN)"
    )
    group.add_argument("--token", metavar="TEXT", help="the token itself, which other users of this machine can see with ps")
    group.add_argument("--ca", metavar="FILE", help="file of certificates to trust for https (default: those of the system)")


def destination(arguments: argparse.Namespace) -> Destination:
    return Destination(address(arguments), token(arguments), ca=arguments.ca)


def address(arguments: argparse.Namespace) -> str:
    url: str | None = arguments.to or os.environ.get("DIAGNOSE_URL")
    if not url:
        raise DiagnoseError("the address of the service is missing", remedy="give it with --to URL, or set DIAGNOSE_URL")
    return url


def token(arguments: argparse.Namespace) -> str | None:
    if arguments.token_file is not None:
        try:
            found = arguments.token_file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise DiagnoseError(
                f"cannot be read: {getattr(error, 'strerror', None) or error}",
                where=str(arguments.token_file),
                remedy="check the path and its permissions",
            ) from None
    else:
        found = arguments.token or os.environ.get("DIAGNOSE_TOKEN") or ""
    if not found.isprintable() or " " in found:
        raise DiagnoseError(
            "this is not a token",
            where=str(arguments.token_file) if arguments.token_file else None,
            remedy="give the one word that `diagnose tokens create` printed",
        )
    return found or None


def count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
