"""How schemathesis writes bodies of kinds that it does not know: loaded by ``test_schemathesis`` through SCHEMATHESIS_HOOKS."""

from __future__ import annotations

import json

import schemathesis
from hypothesis import strategies as st

_DOCUMENTS = st.builds(
    lambda more, text: {**more, "message": text, "job": "run7"},
    st.dictionaries(st.text(), st.integers(), max_size=3),
    st.text(),
)


def _lines(documents: list[dict[str, object]]) -> bytes:
    """An action before each document: the one form that all routes with lines of JSON take, as each line is a record too."""
    return b"".join(json.dumps(one).encode() + b"\n" for document in documents for one in ({"create": {}}, document))


schemathesis.openapi.media_type("application/x-ndjson", st.lists(_DOCUMENTS, min_size=1, max_size=5).map(_lines))
