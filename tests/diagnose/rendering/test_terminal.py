"""The report on a terminal: as wide as it is, with links where it shows them. A real pseudo-terminal is between."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import struct
import termios
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from diagnose.rendering.terminal import Style, columns_of, shortened_before, shows_links, table
from tests.conftest import ROOT
from tests.support.commands import Commands

LINK = re.compile(r"\x1b\]8;;(.*?)\x1b\\")
PAINT = re.compile(r"\x1b\[[0-9;]*m")
LOG = ROOT / "fixtures" / "logs" / "job123"
ROOT_LINE = "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 3."


Shown = Callable[..., str]


@pytest.fixture
def shown(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What ``diagnose`` prints on a terminal of so many columns."""
    for name in ("COLUMNS", "NO_COLOR", "VTE_VERSION"):
        monkeypatch.delenv(name, raising=False)

    def on_terminal(columns: int, *words: str, **variables: str) -> str:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = {"TERM": "xterm-256color", **variables}
        with ThreadPoolExecutor(1) as reader:
            said = reader.submit(_read, ours)
            try:
                commands.run(words, cwd=tmp_path, environment=environment, terminal=os.ttyname(theirs))
            finally:
                os.close(theirs)
            return said.result().decode().replace("\r\n", "\n")

    return on_terminal


def _read(terminal: int) -> bytes:
    """Until nobody has its other side open."""
    said = b""
    with contextlib.suppress(OSError):
        while data := os.read(terminal, 65536):
            said += data
    os.close(terminal)
    return said


def test_colours_can_be_asked_for_in_a_pipe_and_refused_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for variables, coloured in (({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "0"}, False)):
        with monkeypatch.context() as here:
            here.delenv("NO_COLOR", raising=False)
            for name, value in variables.items():
                here.setenv(name, value)
            assert (Style(io.StringIO()).bold("x") != "x") is coloured, variables
            here.setenv("NO_COLOR", "1")
            assert Style(io.StringIO()).bold("x") == "x"


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 160])
def test_a_report_is_as_wide_as_its_terminal(shown: Shown, columns: int) -> None:
    lines = PAINT.sub("", shown(columns, "replay", str(LOG))).splitlines()
    widths = [columns_of(line) for line in lines]
    assert max(widths) <= columns
    assert max(widths) > columns * 0.9


def test_the_root_line_is_wrapped_and_nothing_of_it_is_lost(shown: Shown) -> None:
    said = PAINT.sub("", shown(50, "replay", str(LOG)))
    wrapped = " ".join(re.findall(r"^ *(?:> 49)? *\| (.*)$", said, re.MULTILINE))
    assert ROOT_LINE in wrapped


@pytest.mark.slow
def test_places_are_links_where_the_terminal_shows_them(shown: Shown) -> None:
    said = shown(100, "replay", str(LOG), TERM="xterm-kitty")
    addresses = [address for address in LINK.findall(said) if address]
    assert addresses[0].endswith("/fixtures/logs/job123/gpu-13.log#49")
    assert all(address.startswith("file://") for address in addresses)
    assert "\x1b]8;;\x1b\\" in said
    plain = shown(100, "replay", str(LOG))
    assert "\x1b]8" not in plain
    assert PAINT.sub("", LINK.sub("", said)) == PAINT.sub("", plain)


@pytest.mark.parametrize(
    ("variables", "links"),
    [
        ({"TERM": "xterm-256color"}, False),
        ({"VTE_VERSION": "4902"}, False),
        ({"VTE_VERSION": "7200"}, True),
        ({"TERM_PROGRAM": "iTerm.app"}, True),
        ({"WT_SESSION": "x"}, True),
        ({"TERM": "xterm-kitty", "FORCE_HYPERLINK": "0"}, False),
        ({"TERM": "linux", "FORCE_HYPERLINK": "1"}, True),
    ],
)
def test_which_terminals_show_links(variables: dict[str, str], links: bool) -> None:
    assert shows_links(variables) is links


def test_a_file_name_cannot_end_a_link(shown: Shown, tmp_path: Path) -> None:
    path = tmp_path / "a\x1b\\b\x07c d.log"
    path.write_bytes(b"Traceback (most recent call last):\nKeyError: 'x'\n")
    addresses = [address for address in LINK.findall(shown(100, "replay", str(path), TERM="xterm-kitty")) if address]
    assert addresses
    assert all("%1B%5Cb%07c%20d.log" in address for address in addresses)


def test_of_a_path_the_end_is_shown() -> None:
    assert shortened_before("/a/long/path/gpu-13.log:49", 15) == "…/gpu-13.log:49"


def test_numbers_stand_to_the_right_however_they_are_written() -> None:
    rows = [("name", "last"), ("lr", "9e-05"), ("loss", "10.7763"), ("left", "-3"), ("odd", "nan")]
    assert table(rows, Style(io.StringIO()), header=True).split("\n")[1:] == [
        "lr      9e-05",
        "loss  10.7763",
        "left       -3",
        "odd       nan",
    ]
