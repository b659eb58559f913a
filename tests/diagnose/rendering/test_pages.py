"""Reports that travel: Markdown for a ticket, HTML that stands alone. Log text can neither act in them nor leave its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from diagnose.rendering import markdown
from diagnose.rendering.plots import plot
from tests.conftest import ROOT, Run

LOG = str(ROOT / "fixtures" / "logs" / "job123")
HOSTILE = [
    "```` </textarea></pre><script>alert(1)</script> ````` ~~~ `x`",
    "<img src=x onerror=alert(1)> [a](http://evil.example) ![b](http://evil.example/x.png) @everyone #1 | a | b |",
    "]]> --> {{ 7*7 }} {% raw %} &lt;b&gt; \u202egnp.exe \x1b]0;title\x07 \x9b31m",
]
FAILED = "".join(
    f"{line}\n" for line in [*HOSTILE, "Traceback (most recent call last):", f"KeyError: '{HOSTILE[0]}{HOSTILE[1]}'"]
)


class Tags(HTMLParser):
    """What a page holds, as a parser sees it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile(folder: Path) -> str:
    (folder / "a`b|<i>.log").write_text(FAILED)
    return "a`b|<i>.log"


def inner(tokens: list[object]) -> Iterator[object]:
    for token in tokens:
        yield token
        yield from inner(getattr(token, "children", None) or [])


@pytest.mark.slow
def test_html_has_the_answer_the_plots_and_the_folded_log(diagnose: Run) -> None:
    done = diagnose("replay", LOG, "--format", "html")
    assert done.returncode == 1
    page = Tags(done.stdout)
    assert sum(tag == "svg" for tag, _ in page.tags) == 4
    assert "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer" in page.text
    assert "48 lines left out" in page.text
    assert "5 more like it" in page.text
    roots = [attributes for tag, attributes in page.tags if attributes.get("id") == "job-1-root"]
    assert len(roots) == 1
    assert any(attributes.get("href") == "#job-1-root" for _, attributes in page.tags)


def test_html_stands_alone_and_log_text_stays_text(diagnose: Run, tmp_path: Path) -> None:
    page = Tags(diagnose("replay", hostile(tmp_path), "--format", "html").stdout)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "img", "link", "iframe", "object", "form", "i", "b"})
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "action", "data")]
        assert (attributes.get("href") or "#").startswith("#")
    policy = [attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert HOSTILE[0] in page.text
    assert "{{ 7*7 }}" in page.text
    assert not re.search(r"[\x1b\x9b\u202e]", page.text)


@pytest.mark.slow
def test_the_lines_of_a_long_log_are_those_around_the_root_and_the_last(diagnose: Run, tmp_path: Path) -> None:
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
    noise = [
        f"{words[n % 6]} {words[n // 6 % 6]} {words[n // 36 % 6]} {words[n // 216 % 6]} {words[n // 1296 % 6]}"
        for n in range(7000)
    ]
    lines = [*noise, "Traceback (most recent call last):", "KeyError: 'x'", *(f"{line} after" for line in noise)]
    (tmp_path / "long.log").write_text("\n".join(lines) + "\n")
    text = Tags(diagnose("replay", "long.log", "--format", "html", "--failed", "--no-folds").stdout).text
    assert "KeyError: 'x'" in text
    assert f"{noise[-1]} after" in text
    assert text.count("\n") < 30_000
    assert "lines left out" in text


def test_markdown_keeps_lines_in_a_fence_that_they_cannot_end(diagnose: Run, tmp_path: Path) -> None:
    done = diagnose("replay", hostile(tmp_path), "--format", "markdown")
    tokens = list(inner(MarkdownIt("gfm-like", {"linkify": False}).parse(done.stdout)))
    fences = [token for token in tokens if token.type == "fence"]
    assert len(fences) == 1
    assert HOSTILE[0] in fences[0].content
    kinds = {token.type for token in tokens}
    assert kinds.isdisjoint({"html_block", "html_inline", "link_open", "image"})
    outside = " ".join(token.content for token in tokens if token.type == "text")
    assert "@everyone" not in outside
    assert "http://" not in outside
    assert not re.search(r"[\x1b\x9b\u202e]", done.stdout)


@pytest.mark.parametrize(
    "text", [*HOSTILE, "# a", "- a", "1. a", "a\n\n---\n# b", "www.evil.example a_b_c _d_ *e* ~~f~~ $g$", "`"]
)
def test_markdown_sentences_say_what_they_said_and_nothing_acts(text: str) -> None:
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown.prose(text))
    assert {token.type for token in inner(tokens)} <= {"paragraph_open", "inline", "text", "text_special", "paragraph_close"}
    spoken = "".join(token.content for token in inner(tokens) if token.type in ("text", "text_special"))
    shown = " ".join(map(markdown.printable, text.split("\n"))).strip()
    assert spoken.replace("\u200b", "") == shown


@pytest.mark.parametrize("text", ["`", "a`b", "``", "a``b```c", "x|y", "<b>", "\\"])
def test_markdown_code_says_what_it_said(text: str) -> None:
    tokens = list(inner(MarkdownIt("gfm-like", {"linkify": False}).parse(f"so {markdown.code(text)}.")))
    assert [token.content for token in tokens if token.type == "code_inline"] == [text]


def test_a_cell_of_a_table_ends_where_it_should() -> None:
    rows = [("a", "b"), (markdown.code("x\\|y|z"), markdown.code("|"))]
    tokens = list(inner(MarkdownIt("gfm-like", {"linkify": False}).parse(markdown.table(rows))))
    assert sum(token.type == "td_open" for token in tokens) == 2


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_several_jobs_are_a_table_and_a_section_for_each(diagnose: Run, tmp_path: Path, form: str) -> None:
    (tmp_path / "slurm-1.out").write_text("step 1 loss 2.0\n" * 5 + "Traceback (most recent call last):\nKeyError: 'x'\n")
    (tmp_path / "slurm-2.out").write_text("step 1 loss 2.0\n" * 5 + "Training finished successfully\n")
    done = diagnose("replay", ".", "--each", "--format", form)
    assert done.returncode == 1
    assert "2 jobs, 1 failed" in done.stdout
    assert "slurm-1.out:7" in done.stdout
    assert done.stdout.index("key_error") < done.stdout.rindex("slurm-2")


@pytest.mark.slow
def test_json_is_a_format_too(diagnose: Run) -> None:
    first, second = (json.loads(diagnose("replay", LOG, *words).stdout) for words in (["--json"], ["--format", "json"]))
    assert first == second


def test_a_plot_breaks_where_there_is_no_number() -> None:
    points = [[1, 2.0, 1.0, 3.0], [2, 2.5, 2.0, 3.0], [3, None, None, None], [4, 2.0, 2.0, 2.0], [5, 1.0, 1.0, 1.0]]
    drawn = plot("<loss>", points, failed_at=4)
    assert drawn.count("<polyline") == 2
    assert "not a number at step 3" in drawn
    assert "last step before the failure: 4" in drawn
    assert "<loss>" not in drawn
    assert plot("flat", [[1, 1.0, 1.0, 1.0]]) == ""
