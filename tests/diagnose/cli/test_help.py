"""The help of every command: each option is described in one sentence, with its default, and fits a narrow terminal."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from diagnose import cli

_COLUMNS = 80


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A command and what it can do."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from commands(below)


def every_command() -> list[argparse.ArgumentParser]:
    """All but the one at the top."""
    return list(commands(cli.parser_of(cli.COMMANDS)))[1:]


EVERY = every_command()
OPTIONS = [
    pytest.param(action, id=f"{parser.prog} {'/'.join(action.option_strings) or action.dest}")
    for parser in EVERY
    for action in parser._actions
    if not isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
]


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_says_what_it_is_for_and_what_it_is_without(option: argparse.Action) -> None:
    assert option.help, "it has no description"
    assert not option.help.endswith("."), "descriptions are one sentence without a full stop"
    if option.default not in (None, False, "", []) and option.option_strings:
        assert "default: " in option.help


@pytest.mark.parametrize("parser", EVERY, ids=lambda parser: parser.prog)
def test_the_help_of_a_command_begins_with_a_sentence_and_fits_the_terminal(
    parser: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(_COLUMNS))
    assert parser.description is not None
    assert parser.description.endswith(".")
    assert parser.description[0].isupper()
    assert [line for line in parser.format_help().splitlines() if len(line) > _COLUMNS] == []


def test_commands_that_nobody_described_would_be_noticed() -> None:
    assert {parser.prog for parser in EVERY} >= {"diagnose replay", "diagnose rules check", "diagnose webhooks test"}
    assert len(OPTIONS) > 100
