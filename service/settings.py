"""All configuration in one value; the service's only reader of the environment.

Everything has a default: ``diagnose serve`` alone gives a service on this machine, with SQLite in the user's data folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from diagnose.errors import DiagnoseError

MIB = 1 << 20
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def default_folder() -> Path:
    """Where the service keeps what it knows unless told otherwise."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(base) / "diagnose" / "service"


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be configured. Sizes in bytes, times in seconds."""

    data: Path = field(default_factory=default_folder)
    database: str | None = None
    """None: SQLite in ``data``"""
    host: str = "127.0.0.1"
    port: int = 8321
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    root_path: str = ""
    """the prefix under which a proxy shows the service"""

    policy: Path | None = None
    """what is done about failures, and on whose word; None: the shipped one, which only observes"""
    executors: Path | None = None
    """who carries approved actions out; None: nobody here, they wait for runners that poll; see docs/executors.md"""
    identities: Path | None = None
    """a file of the shape of rules/identity.yaml: which labels name job, attempt, source, rank, node here"""

    raw_logs: Path | None = None
    """keep raw logs below this folder; None: the journal forgets them once they are read"""
    raw_wait_s: float = 20.0
    """how long small pieces wait for others before they are written there"""
    raw_job_limit: int | None = None
    """what one job's raw logs may take on disk; beyond that their oldest parts go"""
    raw_leave_free: int = 1 << 30
    """on their disk; with less than that nothing is added"""

    keep_raw_days: float | None = None
    """raw logs of an attempt, from its end on; None: as long as the job"""
    keep_lines_days: float | None = None
    """its compressed log"""
    keep_jobs_days: float | None = None
    """all of a job, since something was heard of it; None: for ever"""
    raw_limit: int | None = None
    """what all raw logs may take on disk; beyond that those go that ended first"""
    sweep_s: float = 600.0
    """between two looks at what may be deleted"""

    nvrx_root: Path | None = None
    """logs below it may be named by the NVIDIA resiliency extension; None: its routes are not there"""
    nvrx_from: str = "127.0.0.0/8,::1/128"
    """networks whose hosts need no token on those routes: its clients have none"""

    scanners: int = field(default_factory=lambda: min(4, os.cpu_count() or 1))
    """threads that read logs"""
    queue_job: int = 32 * MIB
    """accepted and not yet read, per job"""
    queue_all: int = 256 * MIB
    unstored_job: int = 16 * MIB
    """kept lines that wait for the database, per job"""
    unstored_all: int = 128 * MIB
    journal_limit: int = 16 << 30
    """the journal may grow so far while the database is away"""
    segment: int = 64 * MIB
    unpacked_limit: int = 4 << 30
    """what one compressed body may unpack to"""
    body_limit: int = 64 * MIB
    """a body that is read as a whole (OTLP, Loki)"""
    most_sources: int = 4096
    """per attempt"""
    most_live: int = 2000
    """jobs in memory"""
    quota: int | None = None
    """bytes a second that one token may send, unless it has its own"""
    duplicates_s: float = 600.0
    """how long a batch without offset is remembered"""
    duplicates: int = 512
    """how many of them, per source"""

    webhooks_to: str = ""
    """networks beside the public ones that webhooks may reach: 10.20.0.0/16,127.0.0.0/8"""
    webhook_retry_s: float = 5.0
    """before a delivery is tried again, at first; three times as long each time, up to an hour"""

    with_vllm: str | None = None
    """a model that a vLLM of our own serves; see docs/vllm.md"""
    vllm_flags: str = ""
    """more flags for it, as a shell splits them"""

    learn: bool = False
    """learn filter rules from what no rule knows in live jobs: mined templates, or a model's where there is one"""
    llm: str | None = None
    """an OpenAI-compatible endpoint: asked about failures that rules explain weakly; see docs/service.md"""
    model: str | None = None
    """one of its models; None: the first"""
    agent_calls_per_job: int = 50
    agent_tokens_per_job: int = 200_000
    agent_calls_per_hour: int = 1000
    agent_tokens_per_hour: int = 4_000_000
    agent_timeout_s: float = 60.0
    """for one request to the endpoint"""
    lesson_s: float = 5.0
    """between two lessons while lines come in"""
    workload_matchers: int = 8
    """matchers for workloads that have rules of their own, about 30 MB each; beyond that their jobs do without these rules"""

    flush_s: float = 2.0
    """how long what was read may wait for the database, when few jobs run"""
    settle_s: float = 5.0
    """quiet after a message that the job was ended, before it counts as ended"""
    hang_s: float = 900.0
    """no byte for so long, where there were steps before: a hang (20 steps' time if that is longer)"""
    silence_s: float = 7200.0
    """no byte for so long: the job has ended"""
    redact: bool = False
    """take secrets out of the kept lines and reports that are stored"""

    @property
    def on_loopback(self) -> bool:
        return self.host in _LOOPBACK

    def with_environment(self, environment: Mapping[str, str]) -> Settings:
        """``DIAGNOSE_SERVE_QUEUE_JOB=1000000`` and the like, over what is set already."""
        changes: dict[str, object] = {}
        for known in fields(self):
            name = f"DIAGNOSE_SERVE_{known.name.upper()}"
            if name in environment:
                changes[known.name] = _value(name, str(known.type), environment[name])
        if "executors" not in changes and environment.get("DIAGNOSE_EXECUTORS"):  # runners read it too
            changes["executors"] = Path(environment["DIAGNOSE_EXECUTORS"])
        return replace(self, **changes)  # type: ignore[arg-type]


def _value(name: str, kind: str, text: str) -> object:
    try:
        if kind.startswith("Path"):
            return Path(text)
        if kind == "bool":
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}[text.lower()]
        if kind.startswith("int"):
            return int(text)
        if kind.startswith("float"):
            return float(text)
    except (ValueError, KeyError):
        raise DiagnoseError(f"{text!r} is not a value for it", where=name, remedy=f"give {kind}") from None
    return text
