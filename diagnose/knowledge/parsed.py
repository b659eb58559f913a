"""A YAML file -> its data, from the cache if the same text was parsed before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from diagnose import cache
from diagnose.errors import RuleError


def parsed(kind: str, path: Path) -> Any:
    """The data in the file ``path``. ``kind``: the name under which it is kept in the cache."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"cannot be read: {error}", where=str(path)) from None
    key = cache.key_of(kind, text)
    known = cache.fetch(kind, key)
    if known is None:
        from diagnose.knowledge import documents  # PyYAML takes a while to import, and most runs find the answer in the cache

        known = json.dumps(documents.parse(text, str(path)).value).encode()
        cache.store(kind, key, known)
    return json.loads(known)
