"""How a test is started on a node: the command of each launcher that runs a command there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

from diagnose.errors import DiagnoseError

_NODE = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9_])?")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,253}")
_RANGE = re.compile(r"([^\[\],]*)\[([0-9,-]+)\]([^\[\],]*)")
_MOST = 4096

Words = Sequence[str]


def _local(node: str, words: Words) -> list[str]:
    return [*words]


def _ssh(node: str, words: Words) -> list[str]:
    # BatchMode: a prompt for a password would wait for ever
    return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", node, shlex.join(words)]


def _srun(node: str, words: Words) -> list[str]:
    # --overlap: runs inside the job's allocation, whose resources may be in use by its own step
    return ["srun", "--nodes=1", "--ntasks=1", "--overlap", f"--nodelist={node}", *words]


LAUNCHERS: dict[str, Callable[[str, Words], list[str]]] = {"local": _local, "srun": _srun, "ssh": _ssh}


def from_template(template: str) -> Callable[[str, Words], list[str]]:
    """A launcher from a template such as ``kubectl exec job/{node} -- {probe}``, without a shell.

    ``{probe}`` alone becomes many words; inside a word it becomes one text.
    """
    try:
        parts = shlex.split(template)
    except ValueError as error:
        raise DiagnoseError(f"cannot be split into words: {error}", where="--command", remedy="close every quote") from None
    if not any("{probe}" in part for part in parts) or not parts or "{probe}" in parts[0]:
        raise DiagnoseError(
            "the command does not run the probe", where="--command", remedy="write it as   'pdsh -N -w {node} {probe}'"
        )

    def launch(node: str, words: Words) -> list[str]:
        made: list[str] = []
        for part in parts:
            part = part.replace("{node}", node)
            made.extend(words if part == "{probe}" else [part.replace("{probe}", shlex.join(words))])
        return made

    return launch


def node_list(text: str) -> list[tuple[str, str | None]]:
    """Names, with addresses if given, from ``gpu-[01-03,7],head=10.0.0.1``."""
    parts = [part for part in re.split(r",(?![^\[]*\])", text) if part.strip()]
    return [found for part in parts for found in _expanded(part.strip())]


def hostfile(text: str, where: str) -> list[tuple[str, str | None]]:
    """One node per line, with its address after it if the name is not enough. ``slots=8`` and the like are ignored."""
    nodes = []
    for number, line in enumerate(text.splitlines(), 1):
        words = [word for word in line.split("#")[0].split() if not re.match(r"(?:slots|max[-_]slots)=", word)]
        if len(words) > 2:
            raise DiagnoseError(
                f"{words[2]!r} is more than a node and its address",
                where=f"{where}:{number}",
                remedy="write one node per line, and its address after it if it needs one",
            )
        if words:
            nodes.append(_checked(words[0], words[1] if len(words) == 2 else None, f"{where}:{number}"))
    return nodes


def _expanded(part: str) -> list[tuple[str, str | None]]:
    """Expands Slurm's brackets."""
    match = _RANGE.fullmatch(part)
    if match is None:
        name, _, address = part.partition("=")
        return [_checked(name, address or None, "--nodes")]
    before, ranges, after = match.groups()
    found = []
    for span in ranges.split(","):
        first, _, last = span.partition("-")
        if not first.isdigit() or not (last or first).isdigit() or int(last or first) - int(first) >= _MOST:
            raise DiagnoseError(f"{span!r} is not a range of numbers", where=part, remedy="write gpu-[01-16]")
        found += [
            _checked(f"{before}{number:0{len(first)}}{after}", None, "--nodes")
            for number in range(int(first), int(last or first) + 1)
        ]
    return found


def _checked(name: str, address: str | None, where: str) -> tuple[str, str | None]:
    """Refuses a name that could be an option: it becomes a word of a command line."""
    if not _NODE.fullmatch(name):
        raise DiagnoseError(f"{name!r} is not the name of a node", where=where, remedy="use letters, digits, . _ -")
    if address is not None and not _ADDRESS.fullmatch(address):
        raise DiagnoseError(f"{address!r} is not an address", where=where, remedy="give a host name or an IP address")
    return name, address
