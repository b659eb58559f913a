"""The command line: the table of commands, and the edge where errors become one line and an exit status.

Modules of commands are imported when they are called, so that ``diagnose --help`` is quick.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NoReturn

from diagnose import __version__
from diagnose.errors import DiagnoseError, nearest
from diagnose.rendering.characters import printable as printable

COMMANDS = {
    "replay": "read the logs of jobs, and report what failed, where, and what to do",
    "compare": "say what differs between a run that went well and one that did not",
    "report": "study a site's history: why jobs failed, what it cost, and what would have saved most",
    "evaluate": "evaluate a checkpoint on many data sets, so planned that its scores are known sooner",
    "serve": "run the service, which receives the logs of many jobs over HTTP and diagnoses them as they run",
    "demo": "start a temporary service with a week of sample jobs, and open its dashboard",
    "top": "show running jobs, what fails and what waits, as a terminal page that renews itself",
    "send": "send whole log files to a service",
    "runner": "send logs to a service as they grow, or carry out its approved actions",
    "checkpoints": "list the checkpoints of a training, and say which of them are whole and why the others are not",
    "nodes": "find a bad node, by tests that pairs of nodes run together",
    "rules": "list, check, test and learn the rules that recognize log lines",
    "policy": "check a policy, and explain what it decides about a job",
    "executors": "check the executors, which carry out approved actions",
    "tokens": "create, list and revoke the tokens that give access to a service",
    "projects": "limit what each project may use of a service",
    "backup": "write all that a service has into one file, while it runs",
    "restore": "make a service from a backup, or check one",
    "webhooks": "choose the addresses that a service notifies of failures and actions",
    "digest": "say what a service saw and did in a shift, as a text for a mail, or to a webhook",
    "mcp": "let other agents ask about logs and about a service, with the Model Context Protocol",
    "llm": "check what the endpoint of a language model can do, and show how often models were right",
    "doctor": "say what of this installation works, what does not, and what to do about it",
    "completion": "print the script with which a shell completes commands and options",
    "man": "print the manual page, made from the same descriptions as the help",
    "eval": "measure how often the diagnosis is right, on labelled cases",
}
"""name -> help; ``diagnose/cli/<name>.py`` has ``configure(parser)`` and ``run(arguments) -> exit status``"""
WRAPPING = ("runner",)
"""commands that take another command after ``--``, as ``arguments.command_to_run``"""


class _Parser(argparse.ArgumentParser):
    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Report an unknown option as an error of the command that it was given to, which knows its own options."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            first = next((word for word in unknown if word.startswith("-")), unknown[0]).partition("=")[0]
            meant = nearest(first, self._option_string_actions) if first.startswith("-") else None
            self.error(f"unrecognized arguments: {' '.join(unknown)}{_did_you_mean(meant)}")
        return known, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            meant = nearest(str(value), map(str, action.choices or ()))
            if meant is None:
                raise
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{_did_you_mean(meant)}") from error

    def error(self, message: str) -> NoReturn:
        """One line with the remedy, instead of the whole usage."""
        sys.stderr.write(f"{self.prog}: {printable(message)}; see {self.prog} --help\n")
        sys.exit(2)


def _did_you_mean(meant: str | None) -> str:
    return f"; did you mean {meant}?" if meant is not None else ""


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from diagnose.matching.matcher import best_engine, engine_text

        print(f"diagnose {__version__} ({engine_text(best_engine())})")
        parser.exit()


def parser_of(commands: Collection[str]) -> argparse.ArgumentParser:
    """The parser. It only knows the options of ``commands``, because their modules take a while to import."""
    parser = _Parser(
        prog="diagnose",
        description="Why did the training job fail? diagnose reads its logs, and says what failed, where, and what to do.",
        epilog="Begin with: diagnose replay LOG. The options of a command are shown by: diagnose COMMAND --help",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and the regex engine in use")
    listed = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for name, text in COMMANDS.items():
        command = action(listed, name, text)
        if name in commands:
            importlib.import_module(f"diagnose.cli.{name}").configure(command)
    return parser


@contextlib.contextmanager
def imports() -> Iterator[None]:
    """Do not look for garbage while modules are imported: there is none, and looking takes an eighth of the time of a start."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def main(argv: Sequence[str] | None = None) -> int:
    """The console script."""
    words = list(sys.argv[1:] if argv is None else argv)
    behind: list[str] = []
    if "--" in words and words[0] in WRAPPING:
        at = words.index("--")
        words, behind = words[:at], words[at + 1 :]
    asked = next((word for word in words if not word.startswith("-")), None)
    with imports():
        parser = parser_of([asked] if asked in COMMANDS else [])
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
        # The reader has gone (head, less): print nothing more, not even an error at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return 130


def action(actions: argparse._SubParsersAction[Any], name: str, text: str) -> argparse.ArgumentParser:
    """A command, or what a command can do: ``text`` says it in the list of all, and at the top of its own help."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    return parser
