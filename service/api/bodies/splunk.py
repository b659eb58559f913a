"""What Splunk's clients ask."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field


class Acks(BaseModel):
    """Whether what got these numbers is stored."""

    acks: list[Annotated[int, Field(strict=True)]] = Field([], max_length=100_000, examples=[[1, 2]])
