"""``diagnose man``: the manual page of all commands, made from the parser."""

from __future__ import annotations

import argparse
import re

from diagnose import __version__
from diagnose.cli import COMMANDS, parser_of
from diagnose.errors import DiagnoseError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "To read it:     diagnose man | man -l -\nTo install it:  diagnose man > ~/.local/share/man/man1/diagnose.1\n"
        "It needs:       pip install 'diagnose-train[man]'"
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        from argparse_manpage.manpage import Manpage
    except ImportError:
        raise DiagnoseError(
            "this needs the package argparse-manpage, which is not installed", remedy="pip install 'diagnose-train[man]'"
        ) from None
    parser = parser_of(COMMANDS)
    parser.man_short_description = "read the logs of training jobs and say why they failed"  # type: ignore[attr-defined]
    page = Manpage(parser, format="single-commands-section")
    page.source, page.manual = f"diagnose {__version__}", "Commands of diagnose"
    # A line that begins with a quotation mark would be taken for a command of the formatter, and not be shown.
    print(re.sub(r"^'", r"\\&'", str(page), flags=re.MULTILINE))
    return 0
