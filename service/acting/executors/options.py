"""The options of one executor -> typed values. Each mistake is collected with its file and line."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from diagnose.decision.clauses import Clauses
from diagnose.errors import DiagnoseError
from service.acting.executors.executor import Executor
from service.acting.executors.http import Server
from service.net.guarded import Network

SERVER = ("timeout", "ca", "certificate", "key")
_SECRETS = ("token", "secret", "password", "key_data")
_YES, _NO = ("true", "yes"), ("false", "no", "")


@dataclass(frozen=True, slots=True)
class Options:
    """The part of the file about one executor."""

    clauses: Clauses
    at: str
    """such as ``executors.0``"""
    networks: tuple[Network, ...] = ()
    """private networks that the whole service may reach"""

    def only(self, names: tuple[str, ...]) -> None:
        """Nothing else may be in the file, above all no secret."""
        for name in self.clauses.names(self.at):
            if name in _SECRETS and name not in names:
                self.wrong(name, "secrets do not belong in this file", f"give {name}_file: PATH or {name}_env: NAME")
            elif name not in names:
                self.wrong(name, "there is no such option", f"those here are {', '.join(names)}")

    def wrong(self, name: str, what: str, remedy: str) -> None:
        self.clauses.wrong(self._place(name), what, remedy)

    def has(self, name: str) -> bool:
        return self.clauses.has(self._place(name))

    def text(self, name: str) -> str | None:
        """The value; None if the option is missing or empty."""
        return self.clauses.text(self._place(name)) or None

    def needed(self, name: str, example: str) -> str:
        found = self.text(name)
        if found is None:
            self.wrong(name, "is missing", f"write   {name}: {example}")
        return found or ""

    def path(self, name: str) -> Path | None:
        """A path, relative to the file."""
        found = self.text(name)
        return Path(self.clauses.path).parent / os.path.expanduser(found) if found else None

    def seconds(self, name: str, default: float) -> float:
        found = self.clauses.seconds(self._place(name), default)
        if not found:
            self.wrong(name, "is no time at all", "write a number and s, m, h or d, as 30s")
        return found or default

    def whole(self, name: str, least: int, default: int) -> int:
        return self.clauses.whole(self._place(name), least, default)

    def flag(self, name: str, default: bool = False) -> bool:
        found = self.clauses.get(self._place(name))
        if found is None:
            return default
        if found not in (*_YES, *_NO):
            self.wrong(name, f"{found!r} is neither true nor false", f"write   {name}: true   or false")
        return found in _YES

    def words(self, name: str) -> tuple[str, ...]:
        return self.clauses.words(self._place(name))

    def labels(self, name: str) -> dict[str, str]:
        """A table of patterns. The names of labels may have dots, so they are not read as clauses."""
        self.clauses.names(self._place(name))
        found = self.clauses.get(self._place(name))
        table = found if isinstance(found, dict) else {}
        if not all(isinstance(pattern, str) for pattern in table.values()):
            self.wrong(name, "a label's value is no text", "write   {NAME: 'PATTERN'}")
            return {}
        return dict(table)

    def table(self, name: str, names: tuple[str, ...]) -> Options | None:
        """The options below one option."""
        if not self.has(name):
            return None
        below = Options(self.clauses, self._place(name), self.networks)
        below.only(names)
        return below

    def secret(self, name: str) -> tuple[Path | None, str | None]:
        """Where a secret is: in a file, or in the environment."""
        path, variable = self.path(f"{name}_file"), self.text(f"{name}_env")
        if (path is None) == (variable is None):
            what = "is missing" if path is None else "is given twice"
            self.wrong(f"{name}_file", what, f"write   {name}_file: PATH   or   {name}_env: NAME")
        return path, variable

    def server(self, url: str) -> Server | None:
        """A server with JSON at ``url``. Its other options are those in ``SERVER``."""
        timeout_s, ca = self.seconds("timeout", 30.0), self.path("ca")
        try:
            return Server(url, timeout_s=timeout_s, ca=ca, certificate=self.path("certificate"), key=self.path("key"))
        except DiagnoseError as error:
            self.wrong("url", f"{error.where}: {error.what}", error.remedy or "see its options")
            return None

    def _place(self, name: str) -> str:
        return f"{self.at}.{name}"


@dataclass(frozen=True, slots=True)
class Type:
    """A kind of executor: which options it has, and how it is built."""

    options: tuple[str, ...]
    build: Callable[[Options], Executor]
    """raises DiagnoseError if an option cannot be used"""
    repeatable: bool = True
    """given the same order again, it looks first and only does what is not done"""
