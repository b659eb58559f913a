"""What the API takes and answers, as the OpenAPI document shows it. Times are seconds since 1970, UTC."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


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


class Taken(BaseModel):
    """A body is on disk."""

    job: str
    attempt: int
    source: str
    next_offset: int
    """what to send next: bytes of this source that were received"""
    received: int
    """bytes of this body, unpacked"""
    duplicate: bool
    """all of it had been received before"""
    rejected: int = 0
    """JSON records that could not be read"""
    why: str | None = None
    """why the first of them could not"""


class Finish(BaseModel):
    """How the job's process ended."""

    model_config = ConfigDict(extra="forbid")
    exit_code: int | None = Field(None, ge=-(1 << 31), lt=1 << 32, examples=[1])
    signal: int | None = Field(None, ge=0, le=128, examples=[9])
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
    """send on from here"""
    last_seen: float


class Sources(BaseModel):
    job: str
    attempt: int | None
    sources: list[Source]


class JobRow(BaseModel):
    """A job with its latest attempt."""

    name: str
    state: Literal["running", "ended"]
    outcome: Literal["running", "failed", "healthy"]
    category: str | None
    reason: str | None
    group_id: int | None
    cluster: str | None
    user: str | None
    framework: str | None
    gpus: int | None
    labels: dict[str, str]
    attempt: int
    first_seen: float
    last_seen: float
    step: float | None
    loss: float | None
    phase: str | None
    started_at: float
    ended_at: float | None
    exit_code: int | None
    lines_in: int
    bytes_in: int
    lines_kept: int
    bytes_kept: int


class JobPage(BaseModel):
    jobs: list[JobRow]
    next: str | None
    """give it as ``before`` for the next page"""


class AttemptRow(BaseModel):
    number: int
    state: Literal["running", "ended"]
    outcome: Literal["running", "failed", "healthy"]
    started_at: float
    last_seen: float
    ended_at: float | None
    ended_by: str | None
    exit_code: int | None
    signal: int | None
    lines_in: int
    bytes_in: int
    lines_kept: int
    bytes_kept: int
    dropped: dict[str, int] | None
    phase: str | None
    step: float | None
    loss: float | None
    training_at: float | None
    """when its first step was seen"""
    progress_at: float | None
    category: str | None
    reason: str | None
    confidence: float | None
    summary: str | None
    final: bool | None
    lines_deleted: float | None
    """when the compressed log was deleted, its time being over"""
    raw_deleted: float | None


class JobDetail(BaseModel):
    name: str
    state: Literal["running", "ended"]
    outcome: Literal["running", "failed", "healthy"]
    category: str | None
    reason: str | None
    group_id: int | None
    cluster: str | None
    user: str | None
    framework: str | None
    gpus: int | None
    labels: dict[str, str]
    attempt: int
    first_seen: float
    last_seen: float
    attempts: list[AttemptRow]


class Line(BaseModel):
    ord: int
    source: str
    line: int
    text: str
    rule: str | None
    cut: int
    rank: int | None
    node: str | None


class LinePage(BaseModel):
    job: str
    lines: list[Line]
    next: int | None
    """give it as ``after`` for the next page"""


class Deleted(BaseModel):
    """What was deleted."""

    job: str
    attempts: int
    lines: int
    """kept ones"""
    raw_bytes: int
    """on disk"""


class RawLine(BaseModel):
    line: int | None
    """null: it is not known how many lines came before it"""
    offset: int | None
    """null: secrets were taken out, so that bytes are not where they were"""
    text: str
    cut: int
    """bytes of it beyond those"""
    torn: bool
    """a part of it is not kept"""


class RawGap(BaseModel):
    """Bytes of the source that are not kept."""

    offset: int | None
    """null: somewhere before the lines that were asked for"""
    end: int


class RawPage(BaseModel):
    job: str
    attempt: int
    source: str
    redacted: bool
    lines: list[RawLine]
    gaps: list[RawGap]
    next_line: int | None
    """give it as ``from_line`` for the next page"""
    next_offset: int | None
    """where lines cannot be counted: give it as ``offset``"""


class RawSource(BaseModel):
    source: str
    rank: int | None
    node: str | None
    received: int
    kept_from: int
    """the first byte that is kept"""
    kept_to: int
    lines: int | None
    """that end in what was seen; null: it is not known"""
    stored_bytes: int
    """on disk, compressed"""
    redacted: bool


class RawSourceList(BaseModel):
    job: str
    attempt: int
    sources: list[RawSource]


class SeriesRow(BaseModel):
    name: str
    count: int
    last: float | None
    at_step: float | None
    least: float | None
    most: float | None
    points: list[list[float | None]]
    """[step, mean, least, most] of neighbouring values, oldest first"""


class SeriesList(BaseModel):
    job: str
    series: list[SeriesRow]


class Group(BaseModel):
    id: int
    fingerprint: str
    category: str
    reason: str
    title: str
    rule: str | None
    root_text: str | None
    mitigation: str | None
    first_seen: float
    last_seen: float
    count: int
    gpu_seconds_lost: float
    state: Literal["open", "resolved", "ignored"]
    regressed: bool
    state_changed: float | None
    note: str | None


class GroupPage(BaseModel):
    failures: list[Group]
    next: str | None


class NodeCount(BaseModel):
    node: str
    count: int
    last_seen: float


class UserCount(BaseModel):
    user: str
    count: int


class Occurrence(BaseModel):
    job: str
    attempt: int
    at: float
    user: str | None
    cluster: str | None
    gpu_seconds: float


class GroupDetail(Group):
    nodes: list[NodeCount]
    users: list[UserCount]
    occurrences: list[Occurrence]
    """the latest 50"""


class OccurrencePage(BaseModel):
    occurrences: list[Occurrence]


class GroupChange(BaseModel):
    model_config = ConfigDict(extra="forbid")
    state: Literal["open", "resolved", "ignored"] | None = None
    note: str | None = Field(None, max_length=10_000, examples=["fixed in driver 570.86"])


class Correct(BaseModel):
    """A person's word on what failed."""

    model_config = ConfigDict(extra="forbid")
    category: str = Field(max_length=100, examples=["infrastructure"])
    reason: str = Field(max_length=100, examples=["ecc_error"])
    source: str | None = Field(None, max_length=1000, examples=["rank0.log"])
    line: int | None = Field(None, ge=1, lt=1 << 62, examples=[4711])
    note: str | None = Field(None, max_length=10_000)
    attempt: int | None = Field(None, ge=0, le=1_000_000)


class Correction(BaseModel):
    id: int
    job: str
    attempt: int
    at: float
    who: str
    category: str
    reason: str
    source: str | None
    line: int | None
    note: str | None
    was: dict[str, Any]
    lesson: dict[str, Any] | None = None
    """what was learned from it: rule (in shadow from now on), known (the rule that knew it), refused, problem; null: not yet"""


class CorrectionList(BaseModel):
    corrections: list[Correction]


class Node(BaseModel):
    name: str
    state: Literal["ok", "suspect", "isolated"]
    why: str | None
    first_seen: float
    last_seen: float
    last_failure: float | None
    failures: int
    changed: float | None


class NodePage(BaseModel):
    nodes: list[Node]
    next: str | None


class NodeFailure(BaseModel):
    job: str
    attempt: int
    at: float
    group_id: int
    category: str
    reason: str


class NodeCheck(BaseModel):
    """What a node check said of a node."""

    at: float
    result: Literal["good", "slow", "suspect", "faulty"]
    why: str | None
    who: str
    """the token that told of it"""
    tested: int
    """nodes in that check"""
    rounds: int


class NodeDetail(Node):
    history: list[NodeFailure]
    checks: list[NodeCheck]
    """the latest 50"""


NodeName = Annotated[str, Field(min_length=1, max_length=200)]
Nodes = Annotated[list[NodeName], Field(max_length=20_000)]


class CheckVerdict(BaseModel):
    """The last line of `diagnose nodes check --json`, as it is. What a later version adds is left aside."""

    model_config = ConfigDict(populate_by_name=True)
    schema_: Literal["diagnose.nodecheck/1"] = Field(alias="schema")
    kind: Literal["verdict"]
    good: Nodes = []
    faulty: Nodes = []
    slow: Nodes = []
    suspects: Nodes = []
    links: list[Annotated[list[NodeName], Field(max_length=100)]] = Field([], max_length=20_000)
    why: dict[NodeName, Annotated[str, Field(max_length=10_000)]] = {}
    rounds: int = Field(1, ge=0, le=100_000)
    time: float | None = Field(None, ge=0, lt=1e12, description="When it was, in seconds since 1970; now, if it is not given")


class CheckTaken(BaseModel):
    at: float
    good: int
    slow: list[str]
    suspect: list[str]
    faulty: list[str]


class Action(BaseModel):
    id: int
    key: str
    job: str | None
    attempt: int | None
    group_id: int | None
    kind: str
    nodes: list[str]
    restart_from: dict[str, Any] | None
    skip_batches: list[int] | None
    why: str
    state: Literal["proposed", "approved", "dispatched", "running", "succeeded", "failed", "expired", "rejected"]
    mode: str | None
    decided_by: str | None
    executor: str | None
    claimed_by: str | None
    fence: int
    lease_until: float | None
    result: dict[str, Any] | None
    created: float
    changed: float
    expires: float | None
    not_before: float
    claims: int
    late: bool
    """the result came after the lease had lapsed"""
    notes: list[str] | None
    reason: str | None
    incident: str | None
    avoid: list[str] | None
    """nodes that the restart leaves out, without isolating them"""


class Reject(BaseModel):
    model_config = ConfigDict(extra="forbid")
    why: str = Field("", max_length=2000, examples=["the node was replaced an hour ago"])


class Claim(BaseModel):
    """Who takes it: an executor that polls."""

    model_config = ConfigDict(extra="forbid")
    executor: str = Field(min_length=1, max_length=200, pattern=r"^[\w.:@-]+$", examples=["runner@login-1"])


class ClaimNext(Claim):
    kinds: list[str] = Field(min_length=1, max_length=20, examples=[["restart", "isolate_and_restart"]])


class Fence(Claim):
    """The number that the claim gave: an older one is refused."""

    fence: int = Field(ge=1, lt=1 << 62, examples=[1])


class Result(Fence):
    succeeded: bool
    said: str = Field("", max_length=2000, examples=["drained gpu-17, requeued 8812"])
    isolated: list[str] | None = Field(None, max_length=4096, examples=[["gpu-17"]])
    """the order's nodes that were taken out of service, also where the rest failed; null: all if it succeeded, else none"""


class Order(BaseModel):
    """What is to be done."""

    id: int
    key: str
    """do nothing that was done under this key before"""
    kind: str
    job: str | None
    attempt: int | None
    labels: dict[str, str]
    nodes: list[str]
    avoid: list[str]
    check: list[str]
    """nodes to be tested against each other before the restart"""
    restart_from: dict[str, Any] | None
    skip_batches: list[int] | None
    why: str
    last_seen: float | None
    """when the attempt was last heard of before it was decided: a job begun after that is not the one that failed"""


class InHand(BaseModel):
    """An action in an executor's hands."""

    id: int
    fence: int
    lease_until: float
    lease_s: float
    """for how long its executor may be silent"""
    order: Order


class HeldAction(BaseModel):
    """An action that an executor has taken and not finished."""

    id: int
    claimed_by: str
    begun: bool


class Orders(BaseModel):
    waiting: list[Order]
    """oldest first"""
    in_hand: list[HeldAction]
    """of the executor that asks"""


class NodeRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    why: str = Field(min_length=3, max_length=500, examples=["Xid 79 twice since yesterday"])


class ActionPage(BaseModel):
    actions: list[Action]
    next: int | None


class RuleRow(BaseModel):
    """A rule: shipped with the program, or learned."""

    id: str
    family: Literal["failures", "filters"]
    file: str
    title: str
    pattern: str
    kind: str | None
    reason: str | None
    layer: str | None
    severity: str | None
    framework: str | None
    mitigation: str | None
    reference: str | None
    state: Literal["shipped", "proposed", "shadow", "active", "retired"]
    scope: str | None = None
    why: str | None = None
    matched: int | None = None
    dirty: int | None = None
    provenance: dict[str, Any] | None = None


class RuleChange(BaseModel):
    """Why a person put a rule into another state."""

    model_config = ConfigDict(extra="forbid")
    why: str | None = Field(None, max_length=2000, examples=["matches nothing but progress of our own loader"])


class RulePage(BaseModel):
    rules: list[RuleRow]
    next: str | None


class Readiness(BaseModel):
    ready: bool
    database: bool
    journal: bool
    raw_logs: bool | None
    """whether they can be written, where they are kept; readiness does not depend on it"""
    raw_logs_problem: str | None
    rules: bool
    queued_bytes: int
    live_jobs: int
    model: Literal["stopped", "starting", "ready", "waiting"] | None
    """the vLLM of --with-vllm; readiness does not depend on it"""
    model_problem: str | None


class Saved(BaseModel):
    """A checkpoint, complete on storage."""

    model_config = ConfigDict(extra="ignore")
    step: int = Field(ge=0, lt=1 << 62, description="Steps done", examples=[1200])
    path: str = Field(min_length=1, max_length=4096, examples=["/ckpt/step1200"])
    healthy: bool | None = Field(None, description="false: known to be bad; null: nobody looked")
    attempt: int | None = Field(
        None, ge=0, le=1_000_000, description="The run of this job; the latest, or 1, if it is not given"
    )
    time: float | None = Field(None, ge=0, le=4e9)


class Progress(BaseModel):
    model_config = ConfigDict(extra="ignore")
    step: int = Field(ge=0, lt=1 << 62, examples=[1234])
    loss: float | None = Field(None, allow_inf_nan=False, examples=[2.31])
    loss_is: Literal["nan", "inf", "-inf"] | None = Field(None, description="Where the loss is not a number")
    attempt: int | None = Field(None, ge=0, le=1_000_000)
    time: float | None = Field(None, ge=0, le=4e9)


class Reported(BaseModel):
    job: str
    attempt: int
    stored: bool


class LatestProgress(BaseModel):
    attempt: int
    step: int
    loss: float | None
    loss_is: str | None
    at: float


class Resume(BaseModel):
    """Where the next attempt starts."""

    job: str
    attempt: int
    """the latest so far"""
    step: int | None
    """steps done in the checkpoint; null: no checkpoint is known that can be used"""
    path: str | None
    skip_batches: list[tuple[int, int]]
    """first and last number of batches to leave out; batch n is the one that step n trains on, from 0"""
    why: str
    actions: list[int]
    """the roll-backs that this follows"""
    proposed: list[int]
    """roll-backs that wait for a yes and are not followed here"""
    progress: LatestProgress | None


# --- webhooks -----------------------------------------------------------------------------------------------------------------

Told = Literal["failures", "alarms", "regressions", "actions"]


class WebhookWanted(BaseModel):
    """Who is to be told."""

    model_config = ConfigDict(extra="forbid")
    url: str = Field(max_length=2000, examples=["https://hooks.slack.com/services/T0/B0/secret"])
    format: Literal["cloudevents", "slack"] = "cloudevents"
    events: list[Told] = Field(["failures", "alarms", "regressions", "actions"], min_length=1, max_length=8)
    secret: str | None = Field(None, max_length=200, description="`whsec_` and base64 of 24 to 64 bytes; made if not given")


class WebhookMade(BaseModel):
    id: int
    to: str
    """without its path, which may be secret"""
    format: str
    events: list[str]
    active: bool
    created: float
    secret: str
    """what deliveries are signed with; not shown again"""


class WebhookRow(BaseModel):
    id: int
    to: str
    format: str
    events: list[str]
    active: bool
    off_because: str | None
    created: float
    waiting: int
    """deliveries that did not arrive yet"""
    last_status: str | None


class WebhookList(BaseModel):
    webhooks: list[WebhookRow]


class DeliveryRow(BaseModel):
    id: int
    event: str
    state: Literal["waiting", "delivered", "given_up"]
    tries: int
    next_at: float
    last_status: str | None
    created: float


class DeliveryList(BaseModel):
    deliveries: list[DeliveryRow]


class WebhookTested(BaseModel):
    delivered: bool
    status: int | None
    """of its answer; null: it did not answer"""
    why: str | None
