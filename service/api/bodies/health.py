"""Whether the service is ready."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class Readiness(BaseModel):
    ready: bool
    problems: list[str]
    """what is wrong, in sentences"""
    database: bool
    """whether it can be written"""
    journal: bool
    """whether it can be written, and is within its limit"""
    scanners: bool
    """whether all of them make progress"""
    raw_logs: bool | None
    """whether they can be written, if they are kept; readiness does not depend on it"""
    raw_logs_problem: str | None
    lost_bytes: int
    """bytes since the start that were accepted, and that the disk damaged before they were read"""
    damaged_segments: int
    """files of the journal that are damaged, in use or set aside; readiness does not depend on it"""
    rules: bool
    queued_bytes: int
    live_jobs: int
    model: Literal["stopped", "starting", "ready", "waiting"] | None
    """the vLLM of --with-vllm; readiness does not depend on it"""
    model_problem: str | None
