"""Where the model is, with which key, and what it may cost."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from diagnose.errors import DiagnoseError


@dataclass(frozen=True)
class Settings:
    """Where the model is and what it may cost."""

    url: str
    model: str | None = None
    """None: the first that ``/v1/models`` names"""
    key: str | None = field(default=None, repr=False)
    """None: ``DIAGNOSE_LLM_KEY``, else ``OPENAI_API_KEY``, else "none" (a local server wants something there)"""
    timeout_s: float = 60
    """for one request, from first byte sent to last byte read"""
    retries: int = 3
    concurrency: int = 4
    calls_per_job: int = 50
    tokens_per_job: int = 200_000
    calls_per_hour: int = 1000
    tokens_per_hour: int = 4_000_000
    breaker_failures: int = 5
    breaker_pause_s: float = 60
    cache: bool = True
    record: Path | str | None = None
    """a folder that gets each question with its answers"""
    replay: Path | str | None = None
    """a folder of recorded answers; nothing is sent then"""
    backoff_s: float = 0.5
    """the first pause before a retry; it doubles"""
    answer_bytes: int = 1_000_000
    embedding_model: str | None = None
    """None: the model whose name says so, else ``model``"""


def base_url(url: str) -> str:
    """``url`` as the protocol's root: ``/v1`` is added where there is no path."""
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0 and not parts.query
        usable = usable and bool((parts.hostname or "").encode("idna"))
    except ValueError:
        usable = False
    if not usable:
        raise DiagnoseError(
            f"{url!r} is no address of an endpoint", remedy="give one like http://localhost:8000/v1, with http or https"
        )
    path = parts.path.rstrip("/")
    for tail in ("/chat/completions", "/models"):
        path = path.removesuffix(tail)
    return urlunsplit((parts.scheme, parts.netloc, path or "/v1", "", ""))


def shown_url(url: str) -> str:
    """``url`` without what may be secret in it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def endpoint_key(key: str | None) -> str:
    """``key``, else what the environment has; see ``Settings.key``."""
    found = key or os.environ.get("DIAGNOSE_LLM_KEY") or os.environ.get("OPENAI_API_KEY") or "none"
    found = found.strip()
    if not found.isascii() or not found.isprintable():
        raise DiagnoseError("the endpoint's key has characters that no key has", remedy="set DIAGNOSE_LLM_KEY anew")
    return found
