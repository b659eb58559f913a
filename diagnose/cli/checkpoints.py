"""``diagnose checkpoints``: which checkpoints are there, which are whole, and why the others are not."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from diagnose.checkpoints.found import Found, find
from diagnose.checkpoints.verify import Checked, check
from diagnose.cli import action, printable
from diagnose.errors import DiagnoseError, nearest_path
from diagnose.rendering.terminal import Progress, Style, human_bytes, table

SCHEMA: Final = "diagnose.checkpoints/1"
_MOST_REASONS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Which checkpoints are in a folder, which are whole, and why the others are not. It reads what diagnose, PyTorch DCP, "
        "Megatron, DeepSpeed, the Hugging Face Trainer, safetensors and torch.save write. "
        "It runs nothing of it, and needs no torch."
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    told = {
        "list": "list the checkpoints, the newest first, by names and sizes only",
        "verify": "read the checkpoints, and compare every byte that has a checksum",
        "why": "say which checkpoint a training can start from, and why not from a newer one",
    }
    for name, text in told.items():
        one = action(actions, name, text)
        one.add_argument("path", metavar="PATH", type=Path, help="folder of checkpoints, or one checkpoint")
        one.add_argument("--json", action="store_true", help="print one JSON object per checkpoint")
        if name != "list":
            one.add_argument(
                "--threads", type=int, default=0, metavar="N", help="threads that read (default: 0, which is one per core)"
            )
            one.epilog = (
                "Exit status: 0 if all checkpoints are usable, 1 if some are damaged or unfinished, 2 if it could not look."
                if name == "verify"
                else "Exit status: 0 if there is one to start from, 1 if there is none, 2 if it could not look."
            )


def run(arguments: argparse.Namespace) -> int:
    found = _found(arguments.path)
    if arguments.action == "list":
        _print_list([check(one, read=False) for one in found], arguments)
        return 0
    looked = _until_usable(found, arguments) if arguments.action == "why" else _all(found, arguments)
    checked = []
    for one in looked:
        checked.append(one)
        print(json.dumps(_as_dict(one)) if arguments.json else _told(one, arguments), flush=True)
    if arguments.action == "verify":
        return 0 if all(one.usable for one in checked) else 1
    if not arguments.json:
        print(_start(checked))
    return 0 if checked[-1].usable else 1


def _found(path: Path) -> list[Found]:
    try:
        found = find(path)
    except FileNotFoundError:
        near = nearest_path(str(path))
        remedy = f"did you mean {near}?" if near else "check the path"
        raise DiagnoseError("there is no such file or folder", where=str(path), remedy=remedy) from None
    except OSError as error:
        raise DiagnoseError(f"it cannot be read: {error.strerror}", where=str(path), remedy="check its rights") from None
    if not found:
        raise DiagnoseError(
            "there is no checkpoint that diagnose knows", where=str(path), remedy="give the folder that the training saves to"
        )
    return found


def _all(found: list[Found], arguments: argparse.Namespace) -> Iterator[Checked]:
    for one in found:
        progress = Progress(one.path.name, None, "bytes")
        done = 0

        def passed(count: int, progress: Progress = progress) -> None:
            nonlocal done
            done += count
            progress.at(done)

        try:
            checked = check(one, threads=max(0, arguments.threads), passed=passed)
        except OSError as error:
            raise DiagnoseError(
                f"it cannot be read: {error.strerror}", where=str(error.filename or one.path), remedy="check its rights"
            ) from None
        progress.done()
        yield checked


def _until_usable(found: list[Found], arguments: argparse.Namespace) -> Iterator[Checked]:
    """From the newest on, to the first that can be used."""
    for one in _all(found, arguments):
        yield one
        if one.usable:
            return


def _print_list(checked: list[Checked], arguments: argparse.Namespace) -> None:
    if arguments.json:
        for one in checked:
            print(json.dumps(_as_dict(one)))
        return
    style = Style(sys.stdout)
    rows = [("step", "state", "size", "age", "written by", "path")]
    for one in checked:
        rows.append(
            (
                f"{one.step}" if one.step is not None else "-",
                one.state,
                human_bytes(one.size),
                _age(one.found.path),
                one.found.what,
                printable(str(one.found.path)),
            )
        )
    print(table(rows, style, header=True))


def _age(path: Path) -> str:
    seconds = max(0.0, time.time() - path.stat().st_mtime)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _told(one: Checked, arguments: argparse.Namespace) -> str:
    style = Style(sys.stdout)
    paint = style.green if one.usable else style.red
    lines = [f"{paint(one.state)}  {printable(str(one.found.path))}  ({one.found.what}, {human_bytes(one.size)})"]
    for reason in one.reasons[:_MOST_REASONS]:
        lines.append(f"    {printable(f'{reason.file}: {reason.what}' if reason.file else reason.what)}")
    if len(one.reasons) > _MOST_REASONS:
        lines.append(f"    and {len(one.reasons) - _MOST_REASONS} more")
    if one.usable:
        lines.append(f"    {one.why}")
    if arguments.action == "why":
        lines += [f"    note: {printable(note)}" for note in one.notes]
    return "\n".join(lines)


def _start(checked: list[Checked]) -> str:
    last = checked[-1]
    if not last.usable:
        return "There is none to start from."
    step = f" of step {last.step}" if last.step is not None else ""
    newer = len(checked) - 1
    because = f": {newer} newer {'is' if newer == 1 else 'are'} not usable" if newer else ", the newest"
    return f"Start from the checkpoint{step}{because}."


def _as_dict(one: Checked) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "path": os.fspath(one.found.path),
        "writer": one.found.writer,
        "sealed": one.found.sealed,
        "step": one.step,
        "state": one.state,
        "bytes": one.size,
        "covered": one.covered,
        "files": one.files,
        "why": one.why,
        "reasons": [{"state": reason.state, "file": reason.file, "what": reason.what} for reason in one.reasons],
        "notes": list(one.notes),
    }
