"""All that can be configured, in one value: what each setting is for, its unit and its range.

Everything has a default: ``diagnose serve`` alone gives a service on this machine, with SQLite in the user's data folder.
``configuration`` reads the value from flags, environment and file; docs/service.md has the table.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from diagnose.quantities import DAY_S, GIB, KIB, MIB, TIB, Bytes, Days, Seconds, is_optional

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SECOND_DAYS = 1 / DAY_S
_CENTURY_DAYS = 36_500
_MONTH_S = 30 * DAY_S
_EIB = 1 << 60
_MOST = 1_000_000_000


def default_folder() -> Path:
    """Where the service keeps what it knows unless told otherwise."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(base) / "diagnose" / "service"


def _path(value: object) -> object:
    """``~`` stands for the home folder, also where no shell has seen it."""
    if isinstance(value, str) and (not value or not value.isprintable()):
        raise ValueError("no path")
    return os.path.expanduser(value) if isinstance(value, str) else value


def _networks(text: str) -> str:
    for part in text.split(","):
        if part.strip():
            ipaddress.ip_network(part.strip())
    return text


def _flag(value: object) -> object:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, str):
        if value.lower() not in words:
            raise ValueError("neither true nor false")
        return words[value.lower()]
    return value


Location = Annotated[Path, BeforeValidator(_path)]
Networks = Annotated[str, AfterValidator(_networks)]
Flag = Annotated[bool, BeforeValidator(_flag)]


class Settings(BaseModel):
    """What can be configured. Sizes in bytes, times in seconds."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True, use_attribute_docstrings=True
    )

    data: Location = Field(default_factory=default_folder)
    """where journal and database lie"""
    database: str | None = Field(
        default=None,
        pattern=r"^(sqlite|postgres|postgresql|postgresql\+psycopg)://.+$",
        examples=["postgresql://USER@HOST/NAME or sqlite:///PATH"],
        repr=False,
    )
    """PostgreSQL instead of SQLite in the data folder"""
    host: str = Field(default="127.0.0.1", pattern=r"^[\w.:%-]+$", examples=["an address or a name"])
    """address to listen on; others than this machine's own need a token first"""
    port: int = Field(default=8321, ge=0, le=65535)
    """port to listen on; 0: any free one"""
    tls_certificate: Location | None = None
    """serve HTTPS with this certificate"""
    tls_key: Location | None = None
    """its private key"""
    root_path: str = Field(default="", pattern=r"^(/[^\s/?#]+)*$", examples=["a path like /diagnose"])
    """the prefix under which a proxy shows the service"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """how much its own log tells"""

    policy: Location | None = None
    """what is done about failures, and on whose word (policy.md); not set: the shipped policy, which only observes"""
    executors: Location | None = None
    """who carries approved actions out (executors.md); not set: they wait for runners that poll"""
    identities: Location | None = None
    """which labels name job, attempt, source, rank and node here; a file like rules/identity.yaml"""

    raw_logs: Location | None = None
    """keep raw logs below this folder; not set: the journal forgets them once they are read"""
    raw_wait_s: Seconds = Field(default=20.0, ge=0, le=3600)
    """how long small pieces of raw logs wait for others before they are written"""
    raw_job_limit: Bytes | None = Field(default=None, ge=0, le=_EIB)
    """what one job's raw logs may take on disk; beyond that their oldest parts go"""
    raw_leave_free: Bytes = Field(default=GIB, ge=0, le=_EIB)
    """what raw logs leave free on their disk"""
    keep_raw_days: Days | None = Field(default=None, ge=_SECOND_DAYS, le=_CENTURY_DAYS)
    """raw logs of an attempt are deleted so long after its end; not set: with the job"""
    keep_lines_days: Days | None = Field(default=None, ge=_SECOND_DAYS, le=_CENTURY_DAYS)
    """its compressed log, likewise"""
    keep_jobs_days: Days | None = Field(default=None, ge=_SECOND_DAYS, le=_CENTURY_DAYS)
    """a job is deleted so long after something was last heard of it; not set: never"""
    raw_limit: Bytes | None = Field(default=None, ge=0, le=_EIB)
    """what all raw logs may take on disk; beyond that those go that ended first"""
    sweep_s: Seconds = Field(default=600.0, ge=0.1, le=DAY_S)
    """between two looks at what may be deleted"""

    nvrx_root: Location | None = None
    """logs below this folder may be named by the NVIDIA resiliency extension; not set: its routes are not there"""
    nvrx_from: Networks = Field(default="127.0.0.0/8,::1/128", examples=["networks, such as 10.20.0.0/16,127.0.0.0/8"])
    """networks whose hosts need no token on those routes: its clients have none"""

    scanners: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=256)
    """threads that read logs"""
    queue_job: Bytes = Field(default=32 * MIB, ge=64 * KIB, le=TIB)
    """accepted and not yet read, per job"""
    queue_all: Bytes = Field(default=256 * MIB, ge=64 * KIB, le=TIB)
    """accepted and not yet read, of all jobs"""
    unstored_job: Bytes = Field(default=16 * MIB, ge=64 * KIB, le=TIB)
    """kept lines that wait for the database, per job"""
    unstored_all: Bytes = Field(default=128 * MIB, ge=64 * KIB, le=TIB)
    """kept lines that wait for the database, of all jobs"""
    journal_limit: Bytes = Field(default=16 * GIB, ge=MIB, le=_EIB)
    """the journal may grow so far while the database is away"""
    segment: Bytes = Field(default=64 * MIB, ge=4096, le=16 * GIB)
    """size of one file of the journal"""
    unpacked_limit: Bytes = Field(default=4 * GIB, ge=MIB, le=TIB)
    """what one compressed body may unpack to"""
    body_limit: Bytes = Field(default=64 * MIB, ge=64 * KIB, le=TIB)
    """a body that is read as a whole (OTLP, Loki)"""
    most_sources: int = Field(default=4096, ge=1, le=1_000_000)
    """sources per attempt"""
    most_live: int = Field(default=2000, ge=1, le=1_000_000)
    """jobs in memory"""
    quota: Bytes | None = Field(default=None, ge=1, le=TIB)
    """bytes per second that one token may send, unless it has its own quota"""
    duplicates_s: Seconds = Field(default=600.0, ge=0, le=DAY_S)
    """how long a batch without offset is remembered"""
    duplicates: int = Field(default=512, ge=1, le=1_000_000)
    """how many of them, per source"""

    webhooks_to: Networks = Field(default="", examples=["networks, such as 10.20.0.0/16,127.0.0.0/8"])
    """networks beside the public ones that webhooks may reach"""
    webhook_retry_s: Seconds = Field(default=5.0, ge=0.01, le=3600)
    """before a delivery is tried again, at first; three times as long each time, up to an hour"""

    with_vllm: str | None = Field(default=None, pattern=r"^\S+$", examples=["the name of a model"])
    """a model that a vLLM of our own serves (vllm.md)"""
    vllm_flags: str = Field(default="", repr=False)
    """more flags for it, as a shell splits them"""

    learn: Flag = False
    """learn filter rules from what no rule knows in live jobs: mined templates, or a model's where there is one"""
    llm: str | None = Field(
        default=None, pattern=r"^https?://\S+$", examples=["an address like http://localhost:8000/v1"], repr=False
    )
    """an OpenAI-compatible endpoint, asked about failures that rules explain weakly; its key is in DIAGNOSE_LLM_KEY"""
    model: str | None = Field(default=None, pattern=r"^\S+$", examples=["the name of a model"])
    """one of its models; not set: the first"""
    agent_calls_per_job: int = Field(default=50, ge=1, le=_MOST)
    """questions to the model, per job"""
    agent_tokens_per_job: int = Field(default=200_000, ge=1, le=_MOST)
    """tokens that asking may cost, per job"""
    agent_calls_per_hour: int = Field(default=1000, ge=1, le=_MOST)
    """questions to the model, per hour"""
    agent_tokens_per_hour: int = Field(default=4_000_000, ge=1, le=_MOST)
    """tokens that asking may cost, per hour"""
    agent_timeout_s: Seconds = Field(default=60.0, ge=0.1, le=DAY_S)
    """for one request to the endpoint"""
    lesson_s: Seconds = Field(default=5.0, ge=0.1, le=DAY_S)
    """between two lessons while lines come in"""
    workload_matchers: int = Field(default=8, ge=0, le=1000)
    """matchers for workloads that have rules of their own, about 30 MB each; beyond that their jobs do without these rules"""

    flush_s: Seconds = Field(default=2.0, ge=0.01, le=3600)
    """how long what was read may wait for the database, when few jobs run"""
    settle_s: Seconds = Field(default=5.0, ge=0, le=3600)
    """quiet after a message that the job was ended, before it counts as ended"""
    hang_s: Seconds = Field(default=900.0, ge=0.1, le=_MONTH_S)
    """no byte for so long, where there were steps before: a hang (20 steps' time if that is longer)"""
    silence_s: Seconds = Field(default=7200.0, ge=0.1, le=_MONTH_S)
    """no byte for so long: the job has ended"""
    redact: Flag = False
    """take secrets out of the kept lines and reports that are stored"""

    @property
    def on_loopback(self) -> bool:
        return self.host in _LOOPBACK

    @field_validator("*", mode="before")
    @classmethod
    def _nothing(cls, value: object, info: Any) -> object:
        """An empty text is nothing, where nothing may be."""
        return None if value == "" and is_optional(cls.model_fields[info.field_name]) else value

    @model_validator(mode="after")
    def _together(self) -> Self:
        for small, large in (("queue_job", "queue_all"), ("unstored_job", "unstored_all"), ("segment", "journal_limit")):
            if getattr(self, small) > getattr(self, large):
                raise Apart(small, large, f"is larger than {large}", f"give {large} as much or more")
        if (self.tls_certificate is None) != (self.tls_key is None):
            there, missing = ("tls_key", "tls_certificate") if self.tls_key else ("tls_certificate", "tls_key")
            raise Apart(there, missing, f"is set and {missing} is not", "a certificate and its key belong together")
        return self


class Apart(ValueError):
    """A setting that does not go with another one."""

    def __init__(self, name: str, other: str, what: str, remedy: str) -> None:
        super().__init__(f"{name} {what}")
        self.name, self.other, self.what, self.remedy = name, other, what, remedy
