"""How schemathesis writes bodies of kinds that it does not know: loaded by ``test_schemathesis`` through SCHEMATHESIS_HOOKS."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def ndjson(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
