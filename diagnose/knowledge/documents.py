"""YAML -> plain values. Scalars stay strings, and every value knows its line, so that a message can name file and line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from diagnose.errors import RuleError


@dataclass(slots=True)
class Document:
    """Plain dicts, lists and strings, and the line (from 1) of each by its path of keys: ``('rules', 3, 'pattern')``."""

    value: Any
    lines: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def line(self, *path: Any) -> int:
        """The line of a value, or of its nearest parent that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse(text: str, where: str) -> Document:
    """``text`` as a Document. If it is not YAML, a RuleError names the line."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        # The parser finds an open quote at the end of the file, but it must be closed where it began.
        open_quote = error.context_mark and "end of stream" in (error.problem or "")
        mark = error.context_mark if open_quote else error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        raise RuleError(
            f"not valid YAML: {error.problem or error.context}",
            where=place,
            remedy="quote patterns with single quotes, or use a literal block (|-)",
        ) from None
    except yaml.YAMLError as error:
        raise RuleError(f"not valid YAML: {error}", where=where, remedy="remove control characters; save as UTF-8") from None
    document = Document(None)
    if root is not None:
        document.value = _plain(root, (), document, where)
    return document


def _plain(node: yaml.Node, path: tuple[Any, ...], document: Document, where: str) -> Any:
    document.lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(child, (*path, index), document, where) for index, child in enumerate(node.value)]
    result: dict[str, Any] = {}
    assert isinstance(node, yaml.MappingNode)
    for key_node, value_node in node.value:
        key = key_node.value
        if not isinstance(key, str):
            raise RuleError("a key must be a plain word", where=f"{where}:{key_node.start_mark.line + 1}")
        if key in result:
            raise RuleError(
                f"the key {key!r} is there twice",
                where=f"{where}:{key_node.start_mark.line + 1}",
                remedy="keep one of the two",
            )
        result[key] = _plain(value_node, (*path, key), document, where)
    return result
