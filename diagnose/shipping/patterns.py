"""Slurm's output patterns (sbatch --output): which files they mean, and whose they are."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass

from diagnose.errors import DiagnoseError

_WORD = r"[A-Za-z0-9_.@+=-]+?"
_SYMBOLS = {
    "A": ("array", r"\d+"),
    "a": ("index", r"\d+"),
    "j": ("job", r"\d+"),
    "J": ("step_job", r"\d+(?:\.\w+)?"),
    "s": ("step", r"\w+"),
    "t": ("rank", r"\d+"),
    "n": ("node_number", r"\d+"),
    "N": ("node", _WORD),
    "u": ("user", _WORD),
    "x": ("name", _WORD),
}
_SYMBOL = re.compile(r"%(?P<width>\d{0,2})(?P<symbol>[A-Za-z%])")


@dataclass(frozen=True, slots=True)
class Fields:
    """What the name of a file says."""

    job: str | None = None
    rank: int | None = None
    node: str | None = None
    user: str | None = None


class Pattern:
    """``/logs/%x-%j.out`` as a glob and as a regular expression. Besides the symbols, the text may be a glob itself."""

    def __init__(self, text: str) -> None:
        self.text = text
        globbed, expression, at = "", "", 0
        seen: set[str] = set()
        for found in _SYMBOL.finditer(text):
            before = text[at : found.start()]
            globbed += before
            expression += _glob_expression(before)
            at = found.end()
            symbol = found["symbol"]
            if symbol == "%":
                globbed += "%"
                expression += "%"
                continue
            if symbol not in _SYMBOLS:
                raise DiagnoseError(
                    f"Slurm has no pattern %{symbol}", where=text, remedy=f"use some of {', '.join('%' + s for s in _SYMBOLS)}"
                )
            name, shape = _SYMBOLS[symbol]
            globbed += "*"
            expression += f"(?P={name})" if name in seen else f"(?P<{name}>{shape})"
            seen.add(name)
        globbed += text[at:]
        expression += _glob_expression(text[at:])
        self.glob = globbed
        self.names_jobs = bool(seen & {"job", "step_job"}) or seen >= {"array", "index"}
        self._expression = re.compile(expression)

    def files(self) -> list[str]:
        """The files that exist."""
        return sorted(path for path in glob.glob(self.glob, recursive=True) if self._expression.fullmatch(path))

    def fields(self, path: str) -> Fields:
        """What the name of one of them says."""
        found = self._expression.fullmatch(path)
        said = found.groupdict() if found else {}
        job = said.get("job") or (said.get("step_job") or "").partition(".")[0] or None
        if said.get("array") and said.get("index"):
            job = f"{said['array']}_{said['index']}"  # as squeue shows it
        rank = int(said["rank"]) if said.get("rank") else None
        return Fields(job, rank, said.get("node"), said.get("user"))


def _glob_expression(text: str) -> str:
    out, at = "", 0
    while at < len(text):
        if text.startswith("**/", at):
            out += "(?:.*/)?"
            at += 3
        elif text[at] == "*":
            out += "[^/]*"
            at += 1
        elif text[at] == "?":
            out += "[^/]"
            at += 1
        elif text[at] == "[" and (end := text.find("]", at + 2)) > 0:
            inner = text[at + 1 : end].replace("\\", "\\\\")
            out += f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
            at = end + 1
        else:
            out += re.escape(text[at])
            at += 1
    return out
