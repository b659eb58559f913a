"""Writes rules/fragments and rules/full from the templates, each rule with a match and a near miss that were both tried.

Run it after a change to templates/: ``python -m benchmarks.mixed.write_rules``. ``--check`` only says what is not up to date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.mixed.templates import Filler, Node, Number, Template, failures, filters

RULES = Path(__file__).resolve().parent / "rules"
STYLES = {"fragments": "fragment", "full": "full"}
_BY = "text of {}, as the benchmark's log has it (benchmarks/mixed/templates)"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not up to date")
    options = parser.parse_args(arguments)
    stale = []
    for path, text in files().items():
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale.append(path)
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    for path in stale:
        print(f"{'stale' if options.check else 'wrote'} {path.relative_to(RULES.parent)}")
    return 1 if options.check and stale else 0


def files() -> dict[Path, str]:
    """Every rule file with its text."""
    found = {}
    for style, attribute in STYLES.items():
        for family, templates in (("failures", list(failures())), ("filters", list(filters()))):
            for section in dict.fromkeys(template.section for template in templates):
                own = [template for template in templates if template.section == section]
                found[RULES / style / family / f"{section}.yaml"] = _file(own, attribute)
    return found


def _file(templates: list[Template], attribute: str) -> str:
    section = templates[0].section
    head = "" if len(templates[0].about) == 3 else f"framework: {section}\n"
    head += f"printed_by: {_quoted(_BY.format(section))}\nrules:\n"
    return "# Written by benchmarks/mixed/write_rules.py\n" + head + "".join(_rule(each, attribute) for each in templates)


def _rule(template: Template, attribute: str) -> str:
    keys = ("layer", "reason", "severity") if len(template.about) == 3 else ("kind",)
    matches, misses = examples(template)
    lines = [
        f"  - id: {template.id}",
        f"    title: {_quoted(template.id.replace('-', ' ').capitalize())}",
        *(f"    {key}: {value}" for key, value in zip(keys, template.about, strict=True)),
        f"    pattern: {_quoted(getattr(template, attribute))}",
        "    examples:",
        *_listed("matches", matches),
        *_listed("misses", misses),
    ]
    return "\n".join(lines) + "\n"


def examples(template: Template) -> tuple[list[str], list[str]]:
    """(bodies that the template's patterns match in both styles, near ones that neither matches)."""
    patterns = [re.compile(text.encode()) for text in (template.fragment, template.full)]

    def known(line: str) -> bool:
        return any(pattern.search(line.encode()) for pattern in patterns)

    filler = Filler(template.id)
    match = filler.line(template.body)()
    if not all(pattern.search(match.encode()) for pattern in patterns):
        raise ValueError(f"{template.id}: {match!r} does not match {template.fragment!r} or {template.full!r}")
    misses = []
    if any(isinstance(node, Number) for node in template.body):
        misses.append(Filler(template.id).line(tuple(_next_number(node) for node in template.body))())
    cut = len(match)
    while cut and known(match[:cut]):
        cut -= 1
    misses.append(match[: max(cut - 1, 1)])
    for miss in misses:
        if known(miss):
            raise ValueError(f"{template.id}: no near miss, {miss!r} matches")
    return [match], misses


def _next_number(node: Node) -> Node:
    return Number(str(int(node.digits) + 1)) if isinstance(node, Number) else node


def _listed(name: str, lines: Iterable[str]) -> list[str]:
    return [f"      {name}:", *(f"        - {_quoted(line)}" for line in lines)]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


if __name__ == "__main__":
    sys.exit(main())
