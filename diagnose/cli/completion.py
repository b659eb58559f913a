"""``diagnose completion SHELL``: the script with which a shell completes commands, options, choices and paths."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from diagnose.cli import COMMANDS, parser_of

SHELLS = {
    "bash": "diagnose completion bash > ~/.local/share/bash-completion/completions/diagnose",
    "zsh": "diagnose completion zsh > ~/.zfunc/_diagnose, where ~/.zfunc is in $fpath",
    "fish": "diagnose completion fish > ~/.config/fish/completions/diagnose.fish",
}
"""shell -> how its script is installed"""
_FILES = ("FILE", "PATH", "LOG", "REPORT", "CORPUS")
_FOLDERS = ("DIR",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=sorted(SHELLS), metavar="SHELL", help="bash, zsh or fish")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "To install it:\n" + "\n".join(f"  {how}" for how in SHELLS.values())


def run(arguments: argparse.Namespace) -> int:
    import shtab

    parser = parser_of(COMMANDS)
    for action in _actions(parser):
        if action.choices is None and action.metavar in (*_FILES, *_FOLDERS):
            action.complete = shtab.DIRECTORY if action.metavar in _FOLDERS else shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=arguments.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every option and argument of the command, and of the commands below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)
