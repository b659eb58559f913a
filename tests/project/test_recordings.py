"""Recordings of the terminal are what a command drew, and fetch nothing from anywhere."""

from __future__ import annotations

import json

import pytest

from benchmarks.recordings.__main__ import IMAGES, SCENES, cast, picture, recorded

pytest.importorskip("rich")


def test_a_command_is_recorded_as_a_terminal_shows_it() -> None:
    drawn = recorded("diagnose completion zsh --no-such-option", 60, {})
    text = b"".join(data for _, data in drawn).decode()
    assert "--no-such-option" in text
    assert "\r\n" in text, "a terminal, and not a pipe"
    shown = picture("diagnose completion zsh", text, 60)
    assert shown.startswith("<svg")
    assert "url(http" not in shown
    head, *events = map(json.loads, cast("diagnose completion", drawn, 60).splitlines())
    assert (head["version"], head["width"], events[0][1]) == (2, 60, "o")
    assert [at for at, _, _ in events] == sorted(at for at, _, _ in events)


def test_lines_that_were_drawn_over_are_gone() -> None:
    shown = picture("x", "\r reading 10 %\r reading 90 %\r\x1b[Kdone\r\n\x1b[31mred\x1b[0m\r\n", 40)
    assert "reading" not in shown
    assert "done" in shown


@pytest.mark.parametrize("scene", SCENES, ids=[scene.name for scene in SCENES])
def test_the_documents_have_each_picture(scene: object) -> None:
    assert (IMAGES / f"{scene.name}.svg").is_file()  # type: ignore[attr-defined]
