"""Flags over environment over one file over the defaults -> ``Settings``, each with the place that it came from.

Everything is checked before anything is opened: unknown names, values out of range, missing files. A refusal is one sentence
that names the flag, the variable or the line of the file.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from diagnose.errors import DiagnoseError, nearest
from diagnose.quantities import allowed, unit_of
from service.settings import Apart, Settings

PREFIX: Final = "DIAGNOSE_SERVE_"
_FILE = f"{PREFIX}CONFIG"
"""names the configuration file if no flag does"""
_SECRETS = ("key", "token", "password", "secret")
_FILES = ("tls_certificate", "tls_key", "policy", "executors", "sign_in", "identities")


@dataclass(frozen=True, slots=True)
class _Layer:
    """The settings that one place gives, and where in it each of them is. The first layer that has a setting counts."""

    values: Mapping[str, Any]
    places: Mapping[str, str]


class _Environment(BaseSettings, Settings):
    """``Settings`` as they are read from the environment."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings, and the places of those that are not defaults."""

    settings: Settings
    places: Mapping[str, str]

    def check_files(self) -> None:
        """Refuse if a file that a setting names does not exist."""
        for name in _FILES:
            path: Path | None = getattr(self.settings, name)
            if path is not None and not path.is_file():
                raise DiagnoseError(f"{name}: no such file: {path}", where=self.places.get(name), remedy="check the path")

    def text(self) -> str:
        """As YAML for ``--config``, without secrets, with a comment that says where each value comes from."""
        rows = [(self._line(name, field), self.places.get(name, "default")) for name, field in Settings.model_fields.items()]
        width = min(60, max(len(line) for line, _ in rows))
        return "".join(f"{line:<{width}}  # {place}\n" for line, place in rows)

    def _line(self, name: str, field: FieldInfo) -> str:
        value = getattr(self.settings, name)
        if not field.repr and value and _has_secret(str(value)):
            return f"# {name}: it has a secret in it, which is not shown"
        return f"{name}: {_yaml(value, field)}".rstrip()


def load(flags: Mapping[str, Any], file: Path | None = None) -> Configuration:
    """The settings from ``flags`` (name of a setting -> given value), the environment and a file."""
    _only_known_variables()
    if file is None and os.environ.get(_FILE):
        file = Path(os.environ[_FILE])
    layers = (_of_flags(flags), _of_environment(), *([_of_file(file)] if file is not None else []))

    places = {name: place for layer in reversed(layers) for name, place in layer.places.items()}
    given = {name: value for layer in reversed(layers) for name, value in layer.values.items()}
    try:
        return Configuration(Settings.model_validate(given), places)
    except ValidationError as error:
        raise _refused(error, given, places) from None


# --- the layers ------------------------------------------------------------------------------------------------------------


def _of_flags(flags: Mapping[str, Any]) -> _Layer:
    given = {name: value for name, value in flags.items() if value is not None}
    return _Layer(given, {name: f"--{name.replace('_', '-')}" for name in given})


def _of_environment() -> _Layer:
    found = EnvSettingsSource(_Environment)()
    places = {name: PREFIX + name.upper() for name in found}
    if "executors" not in found and os.environ.get("DIAGNOSE_EXECUTORS"):  # runners also read it
        found["executors"], places["executors"] = os.environ["DIAGNOSE_EXECUTORS"], "DIAGNOSE_EXECUTORS"
    return _Layer(found, places)


def _only_known_variables() -> None:
    known = ["CONFIG", *(name.upper() for name in Settings.model_fields)]
    for name in os.environ:
        rest = name.upper().removeprefix(PREFIX)
        if name.upper() != rest and rest not in known:
            raise _unknown(name, "environment variable", nearest(rest, known), PREFIX, None)


def _of_file(path: Path) -> _Layer:
    from diagnose.knowledge import documents

    try:
        document = documents.parse(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        what = (error.strerror if isinstance(error, OSError) else None) or "not UTF-8"
        raise DiagnoseError(f"cannot be read: {what}", where=str(path), remedy="give a readable YAML file") from None
    table = document.value or {}
    if not isinstance(table, dict):
        raise DiagnoseError(
            "is not a mapping of settings", where=str(path), remedy="write one setting per line, as NAME: VALUE"
        )
    values, places = {}, {}
    for name, value in table.items():
        place = f"{path}:{document.line(name)}"
        if name not in Settings.model_fields:
            near = nearest(name.replace("-", "_").lower(), Settings.model_fields)
            raise _unknown(name, "setting", near, "", place)
        if not isinstance(value, str):
            raise DiagnoseError(f"{name} takes one value", where=place, remedy=_give(name))
        values[name], places[name] = value, place
    return _Layer(values, places)


# --- what is refused -------------------------------------------------------------------------------------------------------


def _unknown(name: str, kind: str, near: str | None, prefix: str, where: str | None) -> DiagnoseError:
    remedy = f"did you mean {prefix}{near}?" if near else "diagnose serve --print-config shows those that there are"
    return DiagnoseError(f"there is no {kind} {name!r}", where=where, remedy=remedy)


def _refused(error: ValidationError, given: Mapping[str, Any], places: Mapping[str, str]) -> DiagnoseError:
    """The first mistake, as a sentence."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Apart):
        what, remedy = f"{cause.name} {cause.what}", cause.remedy
        return DiagnoseError(what, where=places.get(cause.name) or places.get(cause.other), remedy=remedy)
    name = str(first["loc"][0])
    value = given.get(name)
    secret = not Settings.model_fields[name].repr
    what = f"the value of {name} cannot be used" if secret else f"{name} cannot be {str(value)[:200]!r}"
    return DiagnoseError(what, where=places.get(name), remedy=_give(name))


def _give(name: str) -> str:
    return f"give {allowed(Settings.model_fields[name])}"


# --- as YAML ---------------------------------------------------------------------------------------------------------------


def _yaml(value: Any, field: FieldInfo) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    unit = unit_of(field)
    if unit is not None:
        return unit.show(value)
    if isinstance(value, int | float):
        return str(value)
    import yaml

    text: str = yaml.safe_dump(str(value), default_style='"', allow_unicode=True, width=1 << 30)
    return text.strip()


def _has_secret(text: str) -> bool:
    """Whether it has a password or a token in an address, or a key among flags. What cannot be parsed might."""
    try:
        parts = urlsplit(text)
        names = [word.partition("=")[0].lower() for word in shlex.split(text) if word.startswith("-")]
    except ValueError:
        return True
    names += [name.lower() for name, _ in parse_qsl(parts.query)]
    of_a_web_address = parts.scheme.startswith("http") and parts.username is not None
    return bool(parts.password) or of_a_web_address or any(name.endswith(_SECRETS) for name in names)
