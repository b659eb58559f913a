"""What was received of logs, how a job ended, and which sources there are."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from service.api.bodies.common import Sent


class Taken(BaseModel):
    """The answer when a body is on disk."""

    job: str
    attempt: int
    source: str
    next_offset: int
    """how many bytes of this source were received; send from here next"""
    received: int
    """bytes of this body, unpacked"""
    duplicate: bool
    """all of it had been received before"""
    rejected: int = 0
    """JSON records that could not be read"""
    why: str | None = None
    """why the first of them could not be read"""


class Finish(Sent):
    """How the job's process ended."""

    model_config = ConfigDict(extra="forbid")
    exit_code: int | None = Field(None, ge=-(1 << 31), lt=1 << 32, examples=[1])
    signal: int | None = Field(None, ge=0, le=128, examples=[9])
    state: str | None = Field(
        None, pattern="^[A-Z_]{1,32}$", examples=["TIMEOUT"], description="Slurm's last state of the job (JobState)"
    )
    attempt: int | None = Field(None, ge=0, le=1_000_000)
    at: float | None = Field(None, ge=0, le=4e9, description="when it ended; now if it is not given")


class Finished(BaseModel):
    job: str
    attempt: int


class Source(BaseModel):
    name: str
    rank: int | None
    node: str | None
    received: int
    """send from here next"""
    last_seen: float
    missing: list[tuple[int, int]] = Field(default_factory=list)
    """bytes that were accepted and then damaged on the service's disk: (from, to)"""


class Sources(BaseModel):
    job: str
    attempt: int | None
    sources: list[Source]
