"""Where the data is that ships with the program: ``rules/`` and ``prompts/``.

In a wheel they are inside the package (``diagnose/_shipped``); in a checkout they are beside it.
"""

from __future__ import annotations

from pathlib import Path

from diagnose.errors import DiagnoseError

_PACKAGE = Path(__file__).resolve().parent.parent


def folder(name: str) -> Path:
    """The folder of shipped data called ``name``."""
    for candidate in (_PACKAGE / "_shipped" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise DiagnoseError(
        f"the shipped folder {name}/ is missing",
        where=str(_PACKAGE),
        remedy="the installation is damaged: pip install --force-reinstall diagnose-train",
    )
