"""The prompts in ``prompts/`` (one Markdown file each, rendered by Jinja) -> the messages that a model gets; see
docs/prompts.md.

Text from a log is data, and must never be read as our words. So outside of a fence, the variables of a prompt can only put
numbers, our own ids (``G1``, ``L17``) and words of the taxonomy. Everything else is refused unless it goes through the filter
``fenced``, which

- numbers lines with ids, so that an answer can cite them and every citation can be checked;
- draws a border that does not occur in the text and is the same for the same text (for the prefix caches);
- cuts long lines in their middle, and escapes what a terminal, a tokenizer or an eye could mistake: control characters,
  bidirectional and zero-width characters, and the marks of chat templates (``<|im_start|>``).

The fixed part of a prompt stands first and the variable part last, so that requests share a long prefix.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import jinja2.sandbox
import yaml

from diagnose.errors import DiagnoseError
from diagnose.knowledge import shipped
from diagnose.knowledge.taxonomy import shipped_taxonomy

MOST_CHARACTERS = 400
"""of a line that is shown; the middle of a longer one is left out"""

ROLES = ("system", "user")
_FIELDS = {"name", "purpose", "answer", "examples", "defaults"}
_EXAMPLE_FIELDS = {"input", "answer", "shown"}
_FRONT = re.compile(r"---\n(.*?)\n---\n(.*)\Z", re.DOTALL)
_PART = re.compile(r"^--- (\w+) *\n", re.MULTILINE)
_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")
_ID = re.compile(r"[A-Z]{1,3}[0-9]{1,6}(?:\.[0-9]{1,6})?\Z")
_PREFIX = re.compile(r"[A-Z]{1,3}(?:[0-9]{1,6}\.)?\Z")


class PromptError(DiagnoseError):
    """A prompt's file cannot be used, or a variable that it needs is missing."""


@dataclass(frozen=True, slots=True)
class Example:
    """Variables for a prompt, and a right answer to it. If it is shown, the prompt has it as an earlier exchange."""

    input: dict[str, Any]
    answer: Any
    shown: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    name: str
    purpose: str
    version: str
    """12 hex digits of the hash of everything that the model is told and its answer is checked against"""
    schema: dict[str, Any]
    """the JSON schema of an answer"""
    examples: tuple[Example, ...]
    parts: tuple[tuple[str, str], ...]
    """(role, template), as they stand in the file"""
    defaults: dict[str, Any]
    where: str

    def render(self, **variables: Any) -> tuple[tuple[str, str], ...]:
        """The messages as (role, text). A missing variable is a PromptError."""
        *first, (role, last) = self.parts
        messages = [(part, self._filled(template, variables)) for part, template in first]
        for example in self.examples:
            if example.shown:
                messages.append((role, self._filled(last, example.input)))
                messages.append(("assistant", json.dumps(example.answer, ensure_ascii=False)))
        return (*messages, (role, self._filled(last, variables)))

    def _filled(self, template: str, variables: Mapping[str, Any]) -> str:
        try:
            return _template(template).render({**self.defaults, **variables}).strip() + "\n"
        except jinja2.UndefinedError as error:
            named = re.findall(r"'([^']*)'", error.message or "")
            raise PromptError(
                f"the prompt {self.name} needs the variable {named[-1] if named else '?'!r}: {error.message}",
                where=self.where,
                remedy=f"give it to render(); the examples in {Path(self.where).name} show what each variable looks like",
            ) from None
        except _Unfenced as error:
            raise PromptError(
                f"the prompt {self.name} would say {error.text!r} outside of a fence",
                where=self.where,
                remedy="write {{ … | fenced }}: text that is not ours must stay recognisable as data",
            ) from None
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise PromptError(
                f"the prompt {self.name} cannot be rendered: {error}",
                where=self.where,
                remedy=f"compare what render() was given with the examples in {Path(self.where).name}",
            ) from None


def names(folder: Path | None = None) -> list[str]:
    """The names of all prompts."""
    return sorted(file.stem for file in (folder or shipped.folder("prompts")).glob("*.md") if _NAME.match(file.stem))


def load(name: str, folder: Path | None = None) -> Prompt:
    """The prompt called ``name``, from the shipped ones or from ``folder``."""
    base = folder or shipped.folder("prompts")
    file = base / f"{name}.md"
    if not _NAME.match(name) or not file.is_file():
        raise PromptError(f"there is no prompt {name!r}", where=str(base), remedy=f"use one of: {', '.join(names(base))}")
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"cannot be read: {error}", where=str(file), remedy="save it as UTF-8") from None
    return parse(text, str(file))


def parse(text: str, where: str) -> Prompt:
    """The prompt in the ``text`` of a file. ``where`` is the name of the file in messages."""
    front = _FRONT.match(text.replace("\r\n", "\n"))
    if not front:
        raise PromptError("a prompt begins with YAML between two lines of ---", where=where, remedy="see docs/prompts.md")
    try:
        data = yaml.safe_load(front[1])
    except yaml.YAMLError as error:
        raise PromptError(f"not valid YAML: {error}", where=where, remedy="quote texts with single quotes") from None
    if not isinstance(data, dict) or not {"name", "purpose", "answer", "examples"} <= set(data) <= _FIELDS:
        raise PromptError(
            "the YAML has name, purpose, answer and examples, and may have defaults", where=where, remedy="see docs/prompts.md"
        )
    if data["name"] != Path(where).stem:
        raise PromptError(
            f"the prompt in this file is called {data['name']!r}", where=where, remedy="give the prompt the name of its file"
        )
    pieces = _PART.split(front[2])
    parts = tuple(zip(pieces[1::2], pieces[2::2], strict=True))
    roles = [role for role, _ in parts]
    if pieces[0].strip() or not roles or roles[-1] != "user" or set(roles) - set(ROLES) or len(set(roles)) != len(roles):
        raise PromptError(
            "the text has the parts '--- system' and '--- user', in this order, and nothing before them",
            where=where,
            remedy="what is the same in every request belongs to system, what differs to user",
        )
    for _, template in parts:
        try:
            _template(template)
        except jinja2.TemplateSyntaxError as error:
            raise PromptError(f"not a valid template: {error.message}", where=where, remedy="see docs/prompts.md") from None
    schema = _with_words(data["answer"], where)
    digest = hashlib.blake2b(text.encode(), digest_size=6)
    digest.update(json.dumps(schema, sort_keys=True).encode())  # words of the taxonomy, which are not in this file
    return Prompt(
        name=data["name"],
        purpose=str(data["purpose"]).strip(),
        version=digest.hexdigest(),
        schema=schema,
        examples=tuple(_example(entry, where) for entry in data["examples"] or ()),
        parts=parts,
        defaults=data.get("defaults") or {},
        where=where,
    )


def _example(entry: Any, where: str) -> Example:
    if not isinstance(entry, dict) or not {"input", "answer"} <= set(entry) <= _EXAMPLE_FIELDS:
        raise PromptError("an example has input and answer, and may say shown: true", where=where, remedy="see docs/prompts.md")
    return Example(entry["input"], entry["answer"], bool(entry.get("shown", False)))


# --- Words that stand elsewhere ---------------------------------------------------------------------------------------------


@functools.cache
def _words() -> dict[str, tuple[str, ...]]:
    """What ``enum: $reasons`` and the like stand for. The words come from the taxonomy and from the names of series."""
    from diagnose.knowledge.metrics import shipped_metrics

    taxonomy = shipped_taxonomy()
    return {
        "reasons": tuple(reason for reason in taxonomy.category_of if reason != "healthy"),
        "categories": tuple(dict.fromkeys(c for reason, c in taxonomy.category_of.items() if reason != "healthy")),
        "layers": taxonomy.layers,
        "kinds": taxonomy.kinds,
        "severities": taxonomy.severities,
        "metrics": tuple(shipped_metrics().quantities),
    }


def _with_words(schema: Any, where: str) -> Any:
    if isinstance(schema, list):
        return [_with_words(part, where) for part in schema]
    if not isinstance(schema, dict):
        return schema
    filled = {}
    for key, value in schema.items():
        if key == "enum" and isinstance(value, str):
            if value.removeprefix("$") not in _words():
                raise PromptError(f"unknown words {value!r}", where=where, remedy=f"use ${', $'.join(_words())}, or a list")
            value = list(_words()[value.removeprefix("$")])
        filled[key] = _with_words(value, where)
    return filled


# --- Templates --------------------------------------------------------------------------------------------------------------


class _Unfenced(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text[:80]


class _Fence(str):
    """Text that has been fenced. Any operation on it gives a plain text again, which is refused."""

    __slots__ = ()


def _finalized(value: Any) -> Any:
    """Checks whatever ``{{ … }}`` puts into a prompt: numbers, ids, words of the taxonomy and fences pass, nothing else."""
    if isinstance(value, (_Fence, int, float, jinja2.Undefined)):
        return value
    if isinstance(value, str) and (_ID.match(value) or any(value in words for words in _words().values())):
        return value
    raise _Unfenced(str(value))


def _rows(rows: Iterable[Mapping[str, Any]], *keys: str) -> list[str]:
    """The filter ``rows('kind', 'pattern')``: one line per mapping, with its values side by side."""
    lines = []
    for row in rows:
        for key in keys:
            if key not in row:
                raise jinja2.UndefinedError(f"a row has no {key!r}")
        lines.append("  ".join(str(row[key]) for key in keys))
    return lines


@functools.cache
def _environment() -> jinja2.sandbox.SandboxedEnvironment:
    environment = jinja2.sandbox.SandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        finalize=_finalized,
        autoescape=False,  # no HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["fenced"] = fenced
    environment.filters["rows"] = _rows
    return environment


@functools.cache
def _template(text: str) -> jinja2.Template:
    return _environment().from_string(text)


# --- Fences -----------------------------------------------------------------------------------------------------------------


def fenced(
    lines: str | Sequence[str | Mapping[str, Any]],
    prefix: str = "L",
    first: int = 1,
    *,
    most: int = MOST_CHARACTERS,
) -> str:
    """``lines`` as data: numbered ``L1``, ``L2``, … between two borders that do not occur in them.

    A line is a text, or a mapping with ``text``, optionally an ``id``, and ``most`` if more of it is to be shown. A line end
    inside a line is shown as an escape, so one line stays one line.
    """
    if not _PREFIX.match(prefix):
        raise ValueError(f"{prefix!r} cannot begin an id")
    if isinstance(lines, str):
        lines = lines.split("\n")
    rows = []
    for number, line in enumerate(lines, first):
        name: Any = f"{prefix}{number}"
        text: Any = line
        room = most
        if isinstance(line, Mapping):
            name, text, room = line.get("id"), line.get("text"), line.get("most", most)
        if not isinstance(text, str) or not isinstance(name, str) or not _ID.match(name):
            raise ValueError("a line is a text, or has an id like L17 and a text")
        rows.append(f"{name}| {shown(text, room)}")
    body = "\n".join(rows)
    border = _border(body)
    return _Fence("\n".join([f"<<<DATA {border}", *rows, f"{border} DATA>>>"]))


def _border(body: str) -> str:
    """A border that looks random, is the same for the same text, and does not occur in the text."""
    attempt = 0
    while True:
        border = hashlib.blake2b(f"{attempt}\n{body}".encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        if border not in body:
            return border
        attempt += 1


def shown(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""``text`` on one line, in at most about ``most`` characters, with escapes (``\x1b``) for what does not print."""
    if len(text) <= most:
        whole = _escaped(text)
        if len(whole) <= most:
            return whole
    # Escapes are longer than what they stand for, so the cut is made between shown characters.
    head_room, tail_room = most // 2, most * 5 // 12
    head = _taken(_units(text[:most]), head_room)
    tail = _taken(_units(text[max(len(head), len(text) - most) :])[::-1], tail_room)[::-1]
    left_out = len(text) - len(head) - len(tail)
    return f"{''.join(head)} …[{left_out} characters left out]… {''.join(tail)}"


def _taken(units: list[str], room: int) -> list[str]:
    taken = []
    for unit in units:
        room -= len(unit)
        if room < 0:
            break
        taken.append(unit)
    return taken


# A chat template or a tokenizer takes these for the border of a message. One character of each is escaped. They are known by
# their form, because every new family of models brings names of its own. What logs print in this form is excepted.
_PRINTED = (
    "module|lambda|listcomp|dictcomp|setcomp|genexpr|locals|stdin|stdout|stderr|string|console|unknown|anonymous|void|bool|char"
    "|int|long|float|double|half|auto|u?int[0-9]{1,2}(?:_t)?|b?float[0-9]{1,3}|token|private_key|email|(?:user|host)[0-9]{0,6}"
)
"""names that Python, C++ and our own redaction put between angle brackets"""
_LEVELS = "NOTSET|TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERR|ERROR|CRIT|CRITICAL|FATAL|OK|FAILED|SKIP|DONE|NCCL|GPU|CPU|RANK"
"""words that logs put between square brackets"""
_BARS = "|\uff5c"
_MARKS = re.compile(
    rf"[<\[](?=[{_BARS}])|(?<=[{_BARS}])[>\]]"  # <|im_start|>, [|user|], and the same with full-width bars
    rf"|<(?!(?:{_PRINTED})>)(?=/?(?:[A-Za-z_]|0x)[\w.:=-]{{0,60}}>)"  # <s>, </s>, <start_of_turn>, <unused99>, <function=read>
    rf"|<(?=<{{1,3}}/?[A-Z])|(?<=[A-Z]>)>(?=>)"  # <<SYS>>, and our own borders
    rf"|\[(?!(?:{_LEVELS})\])(?=/?[a-z]?[A-Z_]{{2,40}}\])|\[(?=/[A-Za-z_]{{1,40}}\])"  # [INST], [/INST], [gMASK]
    r"|[\[\]](?=[a-z]?~)|[\u25c1\u25b7]"  # ]~b], [e~[, and triangles for brackets
)


def _units(text: str) -> list[str]:
    """``text`` as a list with the shown form of each character."""
    marks = {found.start() for found in _MARKS.finditer(text)}
    return [_escape(character) if place in marks or _hidden(character) else character for place, character in enumerate(text)]


def _escaped(text: str) -> str:
    if text.isascii() and text.isprintable() and not _MARKS.search(text):
        return text
    return "".join(_units(text))


_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\u2800"


def _hidden(character: str) -> bool:
    if character.isascii():
        return not character.isprintable()
    category = unicodedata.category(character)
    if category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return True
    # Variation selectors, fillers and odd blanks: they print as nothing, or look like an ordinary blank.
    return category == "Zs" or character in _BLANK or unicodedata.name(character, "").startswith("VARIATION SELECTOR")


def _escape(character: str) -> str:
    known = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}.get(character)
    if known:
        return known
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
