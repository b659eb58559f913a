"""What the bodies of all routes share: the one form of an error, and what holds for whatever is sent."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

MOST: Final = 10**15
"""largest number of a step, a line or a fence: exact also where numbers are floating-point, as in many clients"""


class Sent(BaseModel):
    """A body that clients send. ``true`` is no number here, although it is one in Python."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and "bool" not in str(cls.model_fields[str(info.field_name)].annotation):
            raise ValueError("a flag is no number")
        return value


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
