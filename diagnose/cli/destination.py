"""The options of all commands that talk to a service."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from diagnose.errors import DiagnoseError
from diagnose.shipping.destination import Destination


def add_options(parser: argparse.ArgumentParser) -> None:
    add_service(parser, "the address of the service, for example http://diagnose.example:8321 (or DIAGNOSE_URL)")
    parser.add_argument(
        "--attempt", type=count, metavar="N", help="the number of the run of the job, from 1 (default: the latest)"
    )
    parser.add_argument(
        "--label", action="append", type=label, metavar="NAME=VALUE", default=[], help="a label of the job; may be repeated"
    )


def add_service(parser: argparse.ArgumentParser, what: str) -> None:
    """Where it is, and who asks."""
    parser.add_argument("--to", metavar="URL", help=what)
    parser.add_argument(
        "--token", metavar="TEXT", help="the token; ps shows it to others, so prefer DIAGNOSE_TOKEN or --token-file"
    )
    parser.add_argument("--token-file", metavar="FILE", type=Path, help="a file that holds the token")
    parser.add_argument("--ca", metavar="FILE", help="certificates to trust for https (default: the system's)")


def destination(arguments: argparse.Namespace) -> Destination:
    return Destination(address(arguments), token(arguments), ca=arguments.ca)


def address(arguments: argparse.Namespace) -> str:
    url: str | None = arguments.to or os.environ.get("DIAGNOSE_URL")
    if not url:
        raise DiagnoseError("where to?", remedy="give the address of the service with --to or DIAGNOSE_URL")
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
        raise DiagnoseError("not a token", remedy="give one word, as `diagnose serve` printed it")
    return found or None


def count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0")
    return int(text)


def label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
