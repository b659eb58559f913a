"""What the outside sees: one JSON object per job, schema ``diagnose.report/1``. Unknown is null, never "" or 0."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA: Final = "diagnose.report/1"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class JobIdentity(_Part):
    id: str
    sources: list[str]
    attempt: int = 1
    fingerprint: str | None = None


class EvidenceLine(_Part):
    source: str
    line: int
    text: str
    role: Literal["root_cause", "consequence", "context"] = "context"
    rank: int | None = None
    node: str | None = None
    time: str | None = None
    rule: str | None = None
    count: int = 1
    """how many lines say the same; this is the first"""
    title: str | None = None
    """what it says, in words"""
    ranks: list[int] = Field(default_factory=list)
    """all ranks that said the same"""
    later_s: float | None = None
    """time from the root cause to it"""
    frame: str | None = None
    """the job's own code that raised it: file:line in function"""


class Suspects(_Part):
    """Whom a failure points at."""

    nodes: list[str] = Field(default_factory=list)
    ranks: list[int] = Field(default_factory=list)
    gpus: list[str] = Field(default_factory=list)


class Witnesses(_Part):
    """Who only tells of a failure: they waited for somebody else."""

    nodes: list[str] = Field(default_factory=list)
    ranks: list[int] = Field(default_factory=list)


class Steps(_Part):
    """The steps of a training that something affects."""

    first: float
    last: float | None = None


class Failure(_Part):
    """A failure beside the diagnosed one."""

    category: str
    reason: str
    line: EvidenceLine


class Alternative(_Part):
    """Another answer that was weighed."""

    category: str
    reason: str
    confidence: float
    line: EvidenceLine | None = None
    """null for the answer that nothing failed"""


class StackGroup(_Part):
    """Processes whose stacks are equal in the dumps."""

    count: int
    """processes"""
    ranks: list[int] = Field(default_factory=list)
    processes: list[str] = Field(default_factory=list)
    """the first of those whose ranks are not known, by what is known of them"""
    place: str
    """collective, store, GPU, data, data worker, checkpoint, compiler, lock, network, file, own code …"""
    waits: bool
    """for other ranks"""
    where: str
    """the call, and the line of the job's own code that makes it"""
    frames: list[str]
    """the innermost first; of a deep stack only the innermost"""
    tool: str
    """the tool that took the dump"""
    source: str
    line: int
    """of the frame that shows where it stands, in the first of the dumps"""


class StandingCollective(_Part):
    """A collective, or a message between two ranks, that does not end, by the dumps of flight recorders."""

    group: str
    description: str | None = None
    number: int
    op: str
    sizes: str
    members: int
    waiting: list[int]
    late: list[int] = Field(default_factory=list)
    """members that have not come to it"""
    behind: list[int] = Field(default_factory=list)
    """members whose devices have not finished what others have"""
    no_dump: list[int] = Field(default_factory=list)
    """members without a dump"""
    differing: dict[str, list[int]] = Field(default_factory=dict)
    """what they bring -> the ranks that bring it, if these differ and should not"""


class Dumps(_Part):
    """What stack dumps and flight recorders in the log show."""

    summary: str
    stacks: list[StackGroup] = Field(default_factory=list)
    """the most common first"""
    collectives: list[StandingCollective] = Field(default_factory=list)
    """the one where it began comes first"""


class Diagnosis(_Part):
    category: str = "unknown"
    reason: str = "unknown"
    confidence: float = 0.0
    """how often an answer like this one is right"""
    by: Literal["rule", "agent", "detector", "none"] = "none"
    rule: str | None = None
    root_cause: EvidenceLine | None = None
    evidence: list[EvidenceLine] = Field(default_factory=list)
    suspects: Suspects = Field(default_factory=Suspects)
    culprits: list[str] = Field(default_factory=list)
    """those nodes among the suspects that a machine's fault names itself"""
    witnesses: Witnesses = Field(default_factory=Witnesses)
    summary: str = "No diagnosis was made."
    mitigation: str | None = None
    group: str | None = None
    phase: str | None = None
    """start-up, load data, load a checkpoint, training, evaluate, save a checkpoint"""
    step: float | None = None
    """the last step before the failure"""
    affected: Steps | None = None
    """the steps that an anomaly of the loss lasted"""
    others: list[Failure] = Field(default_factory=list)
    """failures that do not follow from the root cause, in order"""
    recovered: list[EvidenceLine] = Field(default_factory=list)
    """what failed and was survived"""
    alternatives: list[Alternative] = Field(default_factory=list)
    """other answers, the likeliest first"""
    doubt: list[str] = Field(default_factory=list)
    """sentences: what speaks against the answer, and what is missing"""
    dumps: Dumps | None = None
    """null if the log has none"""
    notes: list[str] = Field(default_factory=list)
    lines_not_read: int = 0
    """kept lines that the diagnosis left out, because there were too many"""


class RestartFrom(_Part):
    step: int | None = None
    path: str | None = None


class Action(_Part):
    kind: str = "none"
    nodes: list[str] = Field(default_factory=list)
    restart_from: RestartFrom | None = None
    skip_batches: tuple[int, int] | None = None
    why: str = ""


class SavedCheckpoint(_Part):
    """A checkpoint that the log mentions."""

    step: int
    path: str | None = None
    complete: bool = True
    """False: the log says that it began, and not that it ended"""


class FoldFigures(_Part):
    """Lines of a source that repeat each other: the first ones were kept, most of the others folded."""

    source: str
    first_line: int
    last_line: int
    lines: int
    folded: int


class CompressionFigures(_Part):
    lines_in: int
    bytes_in: int
    lines_kept: int
    bytes_kept: int
    ratio: float | None
    """bytes kept / bytes in; null if nothing came in"""
    dropped_by_kind: dict[str, int]
    folds: list[FoldFigures] = Field(default_factory=list)
    """the folds with most lines"""


class MetricFigures(_Part):
    count: int
    first: float | None
    last: float | None
    at_step: float | None
    """the step of the last value"""
    min: float | None
    min_at_step: float | None
    max: float | None
    max_at_step: float | None
    not_finite: int
    """values that were nan or inf"""
    source: str
    points: list[list[float | None]]
    """[step, mean, least, most] of neighbouring values, oldest first"""


class AgentFigures(_Part):
    """What a model was asked about the failure, and what left the process for it."""

    model: str | None
    why: str
    """why it was asked"""
    kind: str = "line"
    """the kind of evidence of the rules' answer; the model's record is kept per kind"""
    prompts: dict[str, str]
    """name -> version of the prompts"""
    samples: int
    """usable answers"""
    agreed: int
    """how many of those say the same"""
    said: str | None = None
    """the model's likeliest answer, whether the report follows it or not"""
    analysis: str | None = None
    """in the model's words"""
    needs: str | None = None
    """what it says would show the cause"""
    lines_shown: int
    redacted: dict[str, int]
    """kind -> what was taken out of the lines before the model saw them"""
    tokens_in: int
    tokens_out: int
    seconds: float


class Problem(_Part):
    """An input that could not be read, or not to its end."""

    source: str
    what: str


class Report(_Part):
    schema_: Literal["diagnose.report/1"] = Field(SCHEMA, alias="schema")
    job: JobIdentity
    outcome: Literal["failed", "healthy", "running"]
    diagnosis: Diagnosis
    action: Action = Field(default_factory=Action)
    compression: CompressionFigures
    metrics: dict[str, MetricFigures] = Field(default_factory=dict)
    checkpoints: list[SavedCheckpoint] = Field(default_factory=list)
    """oldest first; if there are many, the newest"""
    problems: list[Problem] = Field(default_factory=list)
    agent: AgentFigures | None = None
    """null if no model was asked"""

    def as_json(self) -> str:
        """One line."""
        return self.model_dump_json(by_alias=True)

    def as_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)
