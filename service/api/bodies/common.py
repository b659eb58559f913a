"""The body of an error, which is the same for every route."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Problem(BaseModel):
    """Every refusal."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "error": "offset_gap",
                    "what": "rank0.log: the source was received up to byte 4096, and this begins at 8192",
                    "remedy": "send again from offset 4096",
                    "expected_offset": 4096,
                }
            ]
        },
    )
    error: str
    what: str
    remedy: str | None = None
