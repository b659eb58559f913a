"""All that can be configured: what each setting is for, its unit and its range.

Everything has a default: ``diagnose serve`` alone gives a service on this machine, with SQLite in the user's data folder.
``configuration`` reads the values from flags, environment and file; docs/service.md has the table.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from diagnose.quantities import DAY_S, GIB, KIB, MIB, TIB, Bytes, Days, Seconds, is_optional

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SECOND_DAYS = 1 / DAY_S
_CENTURY_DAYS = 36_500
_MONTH_S = 30 * DAY_S
_EIB = 1 << 60
_MOST = 1_000_000_000


def default_folder() -> Path:
    """The default data folder of the service."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(base) / "diagnose" / "service"


def _path(value: object) -> object:
    """``~`` stands for the home folder, even if no shell has seen it."""
    if isinstance(value, str) and (not value or not value.isprintable()):
        raise ValueError("not a path")
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
    """folder of the journal and of the SQLite database"""
    database: str | None = Field(
        default=None,
        pattern=r"^(sqlite|postgres|postgresql|postgresql\+psycopg)://.+$",
        examples=["postgresql://USER@HOST/NAME or sqlite:///PATH"],
        repr=False,
    )
    """PostgreSQL database to use instead of SQLite in the data folder, as postgresql://USER@HOST/NAME"""
    host: str = Field(default="127.0.0.1", pattern=r"^[\w.:%-]+$", examples=["an address or a name"])
    """address to listen on; if other machines can reach it, create a token first"""
    port: int = Field(default=8321, ge=0, le=65535)
    """port to listen on; 0 takes any free port"""
    tls_certificate: Location | None = None
    """certificate file to serve HTTPS with"""
    tls_key: Location | None = None
    """file of the certificate's private key"""
    clients_ca: Location | None = None
    """file of the authority that signs the certificates of clients of syslog, forward and gRPC, which must then show one"""
    syslog_port: int | None = Field(default=None, ge=0, le=65535)
    """port that takes syslog over TCP, or over TLS if there is a certificate; without it, there is none"""
    syslog_as: str | None = Field(default=None, pattern=r"^\S.*$", examples=["the name of a token"])
    """name of the token in whose name syslog lines are taken that show no token"""
    forward_port: int | None = Field(default=None, ge=0, le=65535)
    """port that takes the forward protocol of Fluentd and Fluent Bit, as syslog_port does"""
    forward_as: str | None = Field(default=None, pattern=r"^\S.*$", examples=["the name of a token"])
    """name of the token in whose name these records are taken, as their senders cannot show one"""
    grpc_port: int | None = Field(default=None, ge=0, le=65535)
    """port that takes OTLP over gRPC; its clients show a token as over HTTP"""
    root_path: str = Field(default="", pattern=r"^(/[^\s/?#]+)*$", examples=["a path like /diagnose"])
    """path under which a proxy in front shows the service, such as /diagnose"""
    allowed_hosts: str = Field(
        default="",
        pattern=r"^[\w.:*\[\]-]+(\s*,\s*[\w.:*\[\]-]+)*$|^$",
        examples=["names, such as logs.example.org,.svc.cluster.local"],
    )
    """names of the service besides its address and loopback; one that begins with a dot stands for all below it, * for any"""
    public_url: str | None = Field(
        default=None, pattern=r"^https?://[^\s/?#]+(/[^\s/?#]+)*$", examples=["an address such as https://logs.example.org"]
    )
    """address at which people's browsers find the service; the reasons of drained nodes link to it"""
    traces: str | None = Field(
        default=None, pattern=r"^https?://\S+$", examples=["an address like http://localhost:4318/v1/traces"], repr=False
    )
    """OTLP/HTTP address to which the service sends traces of its own work (docs/service.md)"""
    links: str = Field(
        default="",
        pattern=r"^(\s*[^\s=]+=https?://\S+)*\s*$",
        examples=["Grafana=https://grafana/d/gpu?var-node={node}&from={from_ms}&to={to_ms}"],
    )
    """links that the pages of jobs and nodes show to other tools, NAME=TEMPLATE with spaces between (docs/dashboard.md)"""
    trusted_proxies: Networks = Field(default="", examples=["networks, such as 10.20.0.0/16,127.0.0.0/8"])
    """networks of the proxies in front, which are believed what they say of the client's address and protocol"""
    head_limit: Bytes = Field(default=64 * KIB, ge=4 * KIB, le=MIB)
    """maximum size of the head of a request"""
    head_s: Seconds = Field(default=20.0, ge=0.1, le=3600)
    """longest wait for the head of a request, for a token over syslog, and for a call on a connection of gRPC"""
    request_s: Seconds = Field(default=60.0, ge=0.1, le=DAY_S)
    """longest wait for the whole body of a request that has shown no token"""
    most_strangers: int = Field(default=1024, ge=1, le=1_000_000)
    """maximum number of connections that have shown no token yet; beyond it, the oldest are closed"""
    most_strangers_address: int = Field(default=256, ge=1, le=1_000_000)
    """maximum number of such connections from one address; it does not hold for trusted proxies"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """least severe messages that the service writes to its own log"""

    policy: Location | None = None
    """policy file, which says what is done about failures (docs/policy.md); without it, the shipped policy only observes"""
    authority: Literal["labels", "confirmed"] = "confirmed"
    """whose word is enough to act without a person (docs/service.md): the scheduler's (confirmed), or a sender's (labels)"""
    executors: Location | None = None
    """file of the executors that carry out approved actions (docs/executors.md); without it, actions wait for a runner"""
    sign_in: Location | None = None
    """file that says which people sign in at an OpenID provider, and which service accounts come in (docs/sign-in.md)"""
    identities: Location | None = None
    """file that tells which labels name job, attempt, source, rank and node; it is written like rules/identity.yaml"""

    raw_logs: Location | None = None
    """folder in which raw logs are kept; without it, the service forgets a raw log once it has read it"""
    raw_wait_s: Seconds = Field(default=20.0, ge=0, le=3600)
    """how long small pieces of raw logs are collected before they are written"""
    raw_job_limit: Bytes | None = Field(default=None, ge=0, le=_EIB)
    """maximum disk space for the raw logs of one job; beyond it, the oldest parts are deleted"""
    raw_leave_free: Bytes = Field(default=GIB, ge=0, le=_EIB)
    """disk space that raw logs leave free"""
    keep_raw_days: Days | None = Field(default=None, ge=_SECOND_DAYS, le=_CENTURY_DAYS)
    """days from the end of an attempt until its raw logs are deleted; without it, they are deleted with the job"""
    keep_lines_days: Days | None = Field(default=None, ge=_SECOND_DAYS, le=_CENTURY_DAYS)
    """days from the end of an attempt until its kept lines are deleted; without it, they are deleted with the job"""
    keep_jobs_days: Days | None = Field(default=None, ge=_SECOND_DAYS, le=_CENTURY_DAYS)
    """days from the last news of a job until all of it is deleted; without it, jobs are kept for ever"""
    raw_limit: Bytes | None = Field(default=None, ge=0, le=_EIB)
    """maximum disk space for all raw logs; beyond it, the raw logs of the attempts that ended first are deleted"""
    sweep_s: Seconds = Field(default=600.0, ge=0.1, le=DAY_S)
    """time between two searches for data to delete"""

    nvrx_root: Location | None = None
    """folder whose logs the NVIDIA resiliency extension may ask about; without it, its routes do not exist"""
    nvrx_from: Networks = Field(default="127.0.0.0/8,::1/128", examples=["networks, such as 10.20.0.0/16,127.0.0.0/8"])
    """networks that need no token for these routes, because the extension's clients have none"""

    fold_after: int = Field(default=3, ge=0, le=1000)
    """number of lines that repeat each other which are kept before the next ones are folded; 0 folds none"""
    scanners: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=256)
    """number of threads that read logs"""
    queue_job: Bytes = Field(default=32 * MIB, ge=64 * KIB, le=TIB)
    """maximum number of log bytes of one job that are accepted and not read yet"""
    queue_all: Bytes = Field(default=256 * MIB, ge=64 * KIB, le=TIB)
    """maximum number of log bytes of all jobs that are accepted and not read yet"""
    unstored_job: Bytes = Field(default=16 * MIB, ge=64 * KIB, le=TIB)
    """maximum size of the kept lines of one job that wait for the database"""
    unstored_all: Bytes = Field(default=128 * MIB, ge=64 * KIB, le=TIB)
    """maximum size of the kept lines of all jobs that wait for the database"""
    journal_limit: Bytes = Field(default=16 * GIB, ge=MIB, le=_EIB)
    """maximum disk space for the journal, which grows while the database is away"""
    segment: Bytes = Field(default=64 * MIB, ge=4096, le=16 * GIB)
    """size of one file of the journal"""
    unpacked_limit: Bytes = Field(default=4 * GIB, ge=MIB, le=TIB)
    """maximum size to which one compressed request body may unpack"""
    body_limit: Bytes = Field(default=64 * MIB, ge=64 * KIB, le=TIB)
    """maximum size of a request body that is read as a whole (OTLP, Loki)"""
    most_sources: int = Field(default=32_768, ge=1, le=1_000_000)
    """maximum number of sources per attempt"""
    most_live: int = Field(default=2000, ge=1, le=1_000_000)
    """maximum number of attempts in memory"""
    quota: Bytes | None = Field(default=None, ge=1, le=TIB)
    """log bytes per second that one token may send, unless the token has a quota of its own"""
    duplicates_s: Seconds = Field(default=600.0, ge=0, le=DAY_S)
    """how long a batch without an offset is remembered, so that it is recognized when it is sent again"""
    duplicates: int = Field(default=512, ge=1, le=1_000_000)
    """how many such batches are remembered per source"""

    webhooks_to: Networks = Field(default="", examples=["networks, such as 10.20.0.0/16,127.0.0.0/8"])
    """private networks that webhooks may reach besides public addresses"""
    webhook_retry_s: Seconds = Field(default=5.0, ge=0.01, le=3600)
    """time until a failed delivery is tried again; each further wait is three times as long, up to one hour"""

    with_vllm: str | None = Field(default=None, pattern=r"^\S+$", examples=["the name of a model"])
    """model for a vLLM server that the service starts and watches (docs/vllm.md)"""
    vllm_flags: str = Field(default="", repr=False)
    """more flags for that vLLM server, written as in a shell"""

    learn: Flag = False
    """learn filter rules from lines of live jobs that no rule matches; a model writes them if one is set"""
    llm: str | None = Field(
        default=None, pattern=r"^https?://\S+$", examples=["an address like http://localhost:8000/v1"], repr=False
    )
    """OpenAI-compatible endpoint, asked about failures and doubtful successes; its key is read from DIAGNOSE_LLM_KEY"""
    model: str | None = Field(default=None, pattern=r"^\S+$", examples=["the name of a model"])
    """model to use at that endpoint; without it, the first that the endpoint lists"""
    larger_llm: str | None = Field(
        default=None, pattern=r"^https?://\S+$", examples=["an address like http://localhost:8001/v1"], repr=False
    )
    """endpoint of a larger model, asked where the first one leaves doubt; its key is read from DIAGNOSE_LARGER_LLM_KEY"""
    larger_model: str | None = Field(default=None, pattern=r"^\S+$", examples=["the name of a model"])
    """model to use at that endpoint; without it, the first that the endpoint lists"""
    redact_hosts: Flag = False
    """take names and addresses of machines out of questions to a model too; then a model cannot name nodes"""
    agent_calls_per_job: int = Field(default=50, ge=1, le=_MOST)
    """maximum number of questions to the model about one job"""
    agent_tokens_per_job: int = Field(default=200_000, ge=1, le=_MOST)
    """maximum number of tokens that the questions about one job may cost"""
    agent_calls_per_hour: int = Field(default=1000, ge=1, le=_MOST)
    """maximum number of questions to the model per hour"""
    agent_tokens_per_hour: int = Field(default=4_000_000, ge=1, le=_MOST)
    """maximum number of tokens that the questions of one hour may cost"""
    agent_timeout_s: Seconds = Field(default=60.0, ge=0.1, le=DAY_S)
    """longest wait for one answer of the endpoint"""
    lesson_s: Seconds = Field(default=5.0, ge=0.1, le=DAY_S)
    """time between two rounds of learning while lines come in"""
    workload_matchers: int = Field(default=8, ge=0, le=1000)
    """maximum number of workloads whose own learned rules are in memory, about 30 MB each; other workloads do without"""

    flush_s: Seconds = Field(default=2.0, ge=0.01, le=3600)
    """longest wait of what was read until it is stored, when few jobs run"""
    settle_s: Seconds = Field(default=5.0, ge=0, le=3600)
    """silence after a message that the job was ended, before it counts as ended"""
    hang_s: Seconds = Field(default=900.0, ge=0.1, le=_MONTH_S)
    """silence after which a job that made steps counts as hung; the time of 20 steps, if that is longer"""
    silence_s: Seconds = Field(default=7200.0, ge=0.1, le=_MONTH_S)
    """silence after which a job counts as ended"""
    redact: Flag = False
    """remove secrets from kept lines, reports and raw logs before they are stored"""

    @property
    def on_loopback(self) -> bool:
        return self.host in LOOPBACK

    @field_validator("*", mode="before")
    @classmethod
    def _nothing(cls, value: object, info: Any) -> object:
        """An empty text counts as not set, if a setting may be unset."""
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
    """Two settings that do not go together."""

    def __init__(self, name: str, other: str, what: str, remedy: str) -> None:
        super().__init__(f"{name} {what}")
        self.name, self.other, self.what, self.remedy = name, other, what, remedy


def described(name: str) -> str:
    """What a setting is for, and its default, as ``--help`` says it."""
    field = Settings.model_fields[name]
    words = str(field.description)
    if get_origin(field.annotation) is Literal:
        words += f": {' or '.join(', '.join(get_args(field.annotation)).rsplit(', ', 1))}"
    if name == "data":
        return f"{words} (default: ~/.local/share/diagnose/service)"
    if field.default in (None, "", False):
        return words
    is_large = isinstance(field.default, int) and field.default >= 10_000
    return f"{words} (default: {field.default:,})" if is_large else f"{words} (default: {field.default})"
