"""The picture: valid, with a row for what runs beside each other, and safe for names from anywhere."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from diagnose.evaluate.timeline import Bar, picture

SVG = "{http://www.w3.org/2000/svg}"


def test_bars_that_overlap_are_in_rows_of_their_own() -> None:
    bars = [Bar("trial/a", "n", 0, 10), Bar("trial/b", "n", 5, 15), Bar("trial/c", "n", 10, 20), Bar("metric/a", "n", 10, 12)]
    found = ElementTree.fromstring(picture("x", bars, 18.0))

    rows: dict[str, list[str]] = {}
    for rect in found.iter(f"{SVG}rect"):
        title = rect.find(f"{SVG}title")
        if title is not None and title.text is not None:
            rows.setdefault(rect.attrib["y"], []).append(title.text.partition(":")[0])
    assert sorted(rows.values()) == [["metric/a"], ["trial/a", "trial/c"], ["trial/b"]]
    assert any(text.text == "expected" for text in found.iter(f"{SVG}text"))


def test_names_cannot_become_markup() -> None:
    text = picture("<script>", [Bar('trial/"><script>', "<b>", 0, 1, well=False)])
    ElementTree.fromstring(text)
    assert "<script>" not in text


def test_nothing_is_a_picture_too() -> None:
    ElementTree.fromstring(picture("x", []))
