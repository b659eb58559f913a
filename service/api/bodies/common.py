"""What the bodies of all routes share: the one form of an error, and what holds for whatever is sent."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from service.names import STORABLE

MOST: Final = 10**15
"""largest number of a step, a line or a fence: exact also where numbers are floating-point, as in many clients"""


Text = Annotated[str, Field(pattern=STORABLE)]
"""text that a database can hold; pydantic takes no lone surrogates either"""


class Sent(BaseModel):
    """A body that clients send. ``true`` is no number here, although it is one in Python; ``"1"`` and ``1`` are no flags."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_other_kind(cls, value: Any, info: ValidationInfo) -> Any:
        takes = str(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(value, bool) and "bool" not in takes:
            raise ValueError("a flag is no number")
        if isinstance(value, str) and "str" not in takes and "Literal" not in takes:
            raise ValueError("a text is no number and no flag")
        if isinstance(value, int) and "bool" in takes and not isinstance(value, bool):
            raise ValueError("a number is no flag")
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
