"""Recordings of the terminal, made by running the commands: ``python -m benchmarks.recordings [DIR]``.

Each command runs in a real terminal of its own (a pty). What it drew becomes a picture (SVG) by ``rich``, with the command
above it, and with ``--casts`` also a recording that ``asciinema play`` shows in the time that it took. Without DIR the pictures
of the documents are made anew.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.measure import ROOT

IMAGES: Final = ROOT / "docs" / "images"
_ROWS: Final = 50
_LONGEST_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Scene:
    """One command, as a person types it, in a terminal of some columns."""

    name: str
    command: str
    columns: int = 100
    service: bool = False
    """it asks the service of ``diagnose demo``"""


SCENES: Final = (
    Scene("terminal-replay", "diagnose replay logs/job123"),
    Scene("terminal-compare", "diagnose compare logs/healthy-megatron.log logs/spike.log"),
    Scene("terminal-top", "diagnose top --once", 110, service=True),
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=IMAGES)
    parser.add_argument(
        "--scenes", nargs="*", default=[scene.name for scene in SCENES], choices=[scene.name for scene in SCENES]
    )
    parser.add_argument("--casts", action="store_true", help="also write what asciinema plays")
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for scene in SCENES:
        if scene.name not in chosen.scenes:
            continue
        with contextlib.ExitStack() as stack:
            more = stack.enter_context(_demo()) if scene.service else {}
            drawn = recorded(scene.command, scene.columns, more)
        text = b"".join(data for _, data in drawn).decode("utf-8", "replace")
        (chosen.folder / f"{scene.name}.svg").write_text(picture(scene.command, text, scene.columns) + "\n")
        if chosen.casts:
            (chosen.folder / f"{scene.name}.cast").write_text(cast(scene.command, drawn, scene.columns))
        print(chosen.folder / f"{scene.name}.svg")
    return 0


def recorded(command: str, columns: int, more: dict[str, str]) -> list[tuple[float, bytes]]:
    """(seconds since the start, what was drawn then) of a command in a terminal, in the folder of the fixtures."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
    plain = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "FORCE_HYPERLINK": "0", "PYTHONPATH": str(ROOT)}
    known = {name: os.environ[name] for name in ("PATH", "HOME", "DIAGNOSE_CACHE") if name in os.environ}
    words = [sys.executable, "-m", *command.split()]
    began = time.monotonic()
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower, env={**known, **plain, **more}, cwd=ROOT / "fixtures"
    )
    os.close(follower)
    found = []
    try:
        while time.monotonic() - began < _LONGEST_S:
            try:
                data = os.read(leader, 1 << 16)
            except OSError:  # the last one with the terminal open has ended
                break
            if not data:
                break
            found.append((time.monotonic() - began, data))
        process.wait(10)
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    return found


def picture(command: str, drawn: str, columns: int) -> str:
    """What a terminal shows at the end, as SVG that fetches nothing from anywhere."""
    from rich.console import Console
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text

    theme = TerminalTheme(
        (24, 28, 33),
        (214, 219, 226),
        [(72, 79, 88), (247, 118, 108), (87, 201, 120), (224, 175, 104), (108, 166, 245), (188, 140, 246), (86, 194, 208),
         (214, 219, 226)],
        [(139, 148, 158), (255, 150, 142), (126, 231, 135), (240, 200, 130), (150, 195, 255), (210, 170, 255), (120, 215, 225),
         (255, 255, 255)],
    )  # fmt: skip
    with open(os.devnull, "w") as nowhere:
        console = Console(
            file=nowhere, record=True, width=columns, force_terminal=True, color_system="truecolor", legacy_windows=False
        )
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")), soft_wrap=True)
        console.print(Text.from_ansi(_settled(drawn)), soft_wrap=True)
        console.print()  # else the last line is cut
        return console.export_svg(title="", theme=theme, code_format=_without_fonts(), unique_id="t")


def _settled(drawn: str) -> str:
    """What is left when lines were drawn over (a bar that went), without moves of the cursor."""
    lines = []
    for line in drawn.replace("\r\n", "\n").split("\n"):
        last = line.split("\x1b[K")[-1] if "\x1b[K" in line else line
        lines.append(last.rpartition("\r")[2] or last)
    return re.sub(r"\x1b\[[0-9;?]*[A-HJKhl]", "", "\n".join(lines)).rstrip("\n")


def _without_fonts() -> str:
    from rich._export_format import CONSOLE_SVG_FORMAT

    form = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return form.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace")


def cast(command: str, drawn: list[tuple[float, bytes]], columns: int) -> str:
    """The recording in asciinema's format, version 2."""
    head = {"version": 2, "width": columns, "height": _ROWS, "title": command}
    events = [(0.0, f"$ {command}\r\n".encode()), *drawn]
    rows = [head, *([round(at, 3), "o", data.decode("utf-8", "replace")] for at, data in events)]
    return "".join(json.dumps(row) + "\n" for row in rows)


@contextlib.contextmanager
def _demo() -> Iterator[dict[str, str]]:
    """A service with a week of sample jobs; the variables with which commands find it."""
    words = [sys.executable, "-m", "diagnose", "demo", "--no-browser", "--jobs", "60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            base = process.stdout.readline().strip()
            yield {"DIAGNOSE_URL": base.removesuffix("/").removesuffix("/ui")}
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
