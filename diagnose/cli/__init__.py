"""The command line: the table of commands, and the edge where errors become one line and an exit status.

Modules of commands are imported when they are called, so that ``diagnose --help`` is quick.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from diagnose import __version__
from diagnose.errors import DiagnoseError

COMMANDS = {
    "replay": "read the logs of a job and say what happened",
    "serve": "run the service: take the logs of many jobs over HTTP, diagnose them live, and act",
    "demo": "start a temporary service with a week of sample jobs, and open its dashboard",
    "tokens": "create, list and revoke the tokens of a service",
    "webhooks": "say who is told of failures and actions, by Slack or signed CloudEvents",
    "rules": "list, check, test, explain and learn rules",
    "policy": "check the policy, and explain what it decides about a job",
    "executors": "check the file that says who carries actions out, and whether each of them can",
    "eval": "measure how often the diagnosis is right, on labelled cases",
    "send": "send whole logs to a service; what it already has is not sent again",
    "runner": "ship growing logs, or what a command prints, to a service; or carry out its orders",
    "nodes": "find the bad node: pairs of nodes run a matrix product and an all-gather",
    "llm": "check what the endpoint of a language model can do",
}
"""name -> help; ``diagnose/cli/<name>.py`` has ``configure(parser)`` and ``run(arguments) -> exit status``"""
WRAPPING = ("runner",)
"""those that take another command behind ``--``, as ``arguments.command_to_run``"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line and the remedy, instead of the whole usage."""
        sys.stderr.write(f"{self.prog}: {message}; see {self.prog} --help\n")
        sys.exit(2)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from diagnose.matching.matcher import best_engine, engine_text

        print(f"diagnose {__version__} ({engine_text(best_engine())})")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """The console script."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _Parser(
        prog="diagnose",
        description="Why did the training job die? Reads its logs and says what failed, where, and what to do.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and the regex engine in use")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    behind: list[str] = []
    if "--" in words and words[0] in WRAPPING:
        at = words.index("--")
        words, behind = words[:at], words[at + 1 :]
    asked = next((word for word in words if not word.startswith("-")), None)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name == asked:
            importlib.import_module(f"diagnose.cli.{name}").configure(command)
    try:
        arguments = parser.parse_args(words)
        arguments.command_to_run = behind
        if arguments.command is None:
            parser.print_help()
            return 2
        status: int = importlib.import_module(f"diagnose.cli.{arguments.command}").run(arguments)
        sys.stdout.flush()
        return status
    except DiagnoseError as error:
        sys.stderr.write(f"diagnose: {printable(str(error))}\n")
        return 2
    except BrokenPipeError:
        # The reader went away (head, less): nothing more to say, and nothing to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return 130


def printable(text: str) -> str:
    """``text`` with what a terminal would act upon made visible."""
    return "".join(c if c.isprintable() or c == "\t" else _escaped(c) for c in text)


def _escaped(c: str) -> str:
    if "\udc80" <= c <= "\udcff":
        return f"\\x{ord(c) - 0xDC00:02x}"
    return c.encode("unicode_escape").decode()
