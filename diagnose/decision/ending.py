"""The scheduler's word on how an attempt ended, joined with what its log says. The scheduler knows that; the log knows why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal

from diagnose.decision.policy_file import shipped_policy
from diagnose.knowledge.taxonomy import shipped_taxonomy
from diagnose.report import Action, Diagnosis, Report, Suspects

Kind = Literal["completed", "failed", "cancelled", "time_limit", "preempted", "node_failure", "out_of_memory"]

OF_SLURM: Final[dict[str, Kind]] = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node_failure",
    "BOOT_FAIL": "node_failure",
    "OUT_OF_MEMORY": "out_of_memory",
}
"""https://slurm.schedmd.com/job_state_codes.html"""
_REASONS: Final[dict[Kind, str]] = {
    "cancelled": "preempted",
    "time_limit": "preempted",
    "preempted": "preempted",
    "node_failure": "node_failure",
    "out_of_memory": "host_out_of_memory",
}
_SUMMARIES: Final[dict[Kind, str]] = {
    "cancelled": "Somebody cancelled the job.",
    "time_limit": "The job reached its time limit.",
    "preempted": "The scheduler preempted the job.",
    "node_failure": "A node of the job failed.",
    "out_of_memory": "The job used more memory than it was given.",
}
_CANCELLED: Final = {"owner": "Its user cancelled the job.", "other": "Somebody else than its user cancelled the job."}
_CONFIDENCE: Final = 0.99
_LOOKED_AT: Final = 2000
"""characters of a line"""
# What follows are forms of schedulers and platforms. A program's own words (it got SIGTERM, "preemption or scancel", it is
# draining its queues) only guess at who ended it, and a person may have.
_OWN_WORDS: Final = re.compile(r"(?<!sending )\bSIG[A-Z]{2,}\d?\b|\bscancel\b")
_TIME_OVER: Final = re.compile(
    r"\bDUE TO TIME LIMIT(?: \*|$)|\bJobState=(?:TIMEOUT|DEADLINE)\b|\bReason=TimeLimit\b"
    r"|\b[Ss]tate *[:=] *(?:TIMEOUT|DEADLINE)\b|^ *[\d_.]+(?:\.\w+)? .* TIMEOUT +\d+:\d+|Time limit exhausted for JobId"
    r"|\bTERM_RUNLIMIT\b|PBS: job killed: walltime\b|^Job exceeded (?:resource walltime|its walltime limit)"
    r'|exceeds? job (?:hard|soft) limit "[hs]_rt"|exceeded (?:hard|soft) wallclock time|qmaster enforced h_rt'
    r"|job\.exception .*type=timeout\b|type=timeout severity=\d|\bresource allocation expired$"
    r'|\b(?:Warning|Normal) +DeadlineExceeded\b|\b[Rr]eason"?[:=] *"?DeadlineExceeded\b'
    r"|Pod was active on the node longer than the specified deadline|\bwas active longer than specified deadline"
    r'|\bMaxRuntimeExceeded - |"?SecondaryStatus"?: ?"?MaxRuntimeExceeded\b'
    r"|\.(?:service|scope): Service reached runtime time limit"
    r"|^The user-provided time limit for job execution has been reached:"
)
_MADE_ROOM: Final = re.compile(
    # Slurm, LSF, HTCondor, Flux, Ray
    r"\bDUE TO (?:PREEMPTION|JOB REQUEUE|NODE REBOOT|NODE FAILURE|MAINTENANCE)(?:,| \*|$)|\bJobState=PREEMPTED\b"
    r"|\b[Ss]tate *[:=] *\"?PREEMPTED\b|^ *[\d_.]+(?:\.\w+)? .* PREEMPTED +\d+:\d+|\bpreempt(?:ed|ing) JobId=\S+"
    r"|(?:srun|salloc|slurm\w+): (?:error: )?[Jj]ob \d\S* (?:was|has been) (?:preempted|requeued)"
    r"|\b(?:slurmctld|kubelet|systemd-logind)(?:\[\d+\])?: .*(?:[Pp]reempt|[Rr]equeu|[Dd]rain|[Rr]eboot|[Ee]vict|[Ss]hut)"
    r"|\bTERM_(?:PREEMPT|REQUEUE_\w+|RC\w*)\b|^0?04 \([\d.]+\) .*\bJob was evicted\b|job\.exception .*type=preempt"
    r"|\b(?:actor's|its) node was (?:preempted|drained)|\bNode \S+ .*marked dead because .{0,200}(?:drain|preempt)"
    # Kubernetes: rows of events, reasons and messages of its controllers
    r"|\b(?:Warning|Normal) +(?:Evict(?:ed|ion\w*)?|Preempt(?:ed|ing)|TaintManagerEviction|NodeShutdown|SpotInterrupt\w+"
    r"|Disruption(?:Terminating|Target)|TerminatingOnInterruption|Instance(?:Terminating|Stopping|Terminated)|ScaleDown|Drain\w*)\b"
    r'|\b[Rr]eason"?[:=] *"?(?:Evicted|Preempt(?:ed|ing)|NodeShutdown|Terminated by NodeShutdown|PreemptionByScheduler)\b'
    r"|The node was low on resource: |The node had condition: \[|Pod is evicted, because of |PreemptionByScheduler"
    r"|Preempted (?:by (?:\S+/)?(?:a )?(?:pod|workload) |to accommodate a )|preempting to accommodate a higher priority pod"
    r"|DeletionByTaintManager|Taint manager: deleting due to|Marking for deletion Pod \S+|TerminationByKubelet"
    r"|in response to imminent node shutdown|Pod was rejected as the node is shutting down|\bDisruptionTarget\b"
    r"|EvictionByEvictionAPI|Eviction API: evicting|\bevicting pod \S+/\S+|\bpod/\S+ evicted|\bnode/\S+ drained"
    r"|\bEvictedDueTo(?:Preempt\w*|NodeFailures|PodsReadyTimeout|AdmissionCheck)\b|\bDisrupting Node(?:Claim)?\b"
    r"|Spot interruption warning was triggered|[Dd]eleting pod for node scale down|ToBeDeletedByClusterAutoscaler"
    # clouds: their events, their codes, and their notices
    r"|compute\.instances\.(?:preempted|(?:migrate|terminate)OnHostMaintenance|upcomingMaintenance)"
    r"|(?:TERMINATE|MIGRATE)_ON_HOST_MAINTENANCE|active-node-maintenance=ONGOING"
    r"|maintenance event (?:SCHEDULED|STARTED|PENDING|ONGOING)|\bCluster \S+ (?:is|was) preempted"
    r'|"EventType": ?"(?:Preempt|Terminate|Freeze|Reboot|Redeploy)"|"action": ?"(?:terminate|stop|hibernate)", ?"time"'
    r"|instance-terminated-(?:by-price|no-capacity|capacity-oversubscribed)|Server\.SpotInstance(?:Shutdown|Termination)"
    r"|EC2 Spot Instance [Ii]nterruption|\bAWS_EC2_(?:SPOT_INTERRUPTION|INSTANCE_|PERSISTENT_INSTANCE_)\w+"
    r"|RebalanceRecommendation|[Ss]pot (?:[Ii]nstance )?(?:[Ii]nterruption|[Tt]ermination) (?:[Nn]otice|[Ww]arning)"
    r"|\bTerminationNotice\b|instance-(?:retirement|reboot|stop) (?:is )?scheduled"
    r"|Instance(?: \S+)? (?:terminated by Compute Engine|was preempted)"
    r"|Queued resource \S+ .*SUSPEND(?:ED|ING)"
    r"|[Tt]raining job (?:was )?(?:interrupted|stopped) (?:due to|because of) (?:a )?spot"
)
_OF_PLATFORMS: Final = frozenset({"cloud-capacity", "kubernetes-taint-evicted", "lsf-reclaimed"})
"""rules that match nothing else than platforms' words of this kind"""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Kind
    said: str
    """in the scheduler's words, for people"""
    by: Literal["owner", "other"] | None = None
    """who cancelled it; None: nobody did, or nobody knows who"""
    nodes: tuple[str, ...] = ()
    """the nodes that failed, if it says so"""
    by_hand: bool = False
    """it ended by a signal by which people stop programs, and nobody says who sent it"""


def ending_of_slurm(state: str, reason: str = "", exit_code: str = "", of_steps: str = "") -> Ending | None:
    """None if the job is not over, or the state is not known. ``exit_code``: as Slurm writes it, such as 3:0 or 0:9;
    ``of_steps``: the highest one of its steps.
    """
    kind = OF_SLURM.get(state)
    words = [reason if reason != "None" else "", *_told(exit_code)]
    if of_steps != exit_code and (worse := _told(of_steps)):
        words.append(f"a step ended with {' and '.join(worse)}")
    told = f" ({', '.join(filter(None, words))})" if any(words) else ""
    by_hand = kind == "failed" and any(map(_of_a_stop, (exit_code, of_steps)))
    return Ending(kind, f"Slurm says {state}{told}", by_hand=by_hand) if kind is not None else None


def failed_nodes(ending: Ending, nodes: Sequence[str]) -> Ending:
    """The ending, with the nodes of the job that the scheduler itself has found dead."""
    return replace(ending, said=f"{ending.said}; {', '.join(nodes)} is down", nodes=tuple(nodes)) if nodes else ending


def _told(exit_code: str) -> list[str]:
    code, _, signal = exit_code.partition(":")
    return [f"{what} {number}" for what, number in (("exit code", code), ("signal", signal)) if number not in ("", "0")]


def _of_a_stop(exit_code: str) -> bool:
    """Whether it is that of SIGINT or SIGTERM: ``scancel --signal`` and ``kill`` leave FAILED, not CANCELLED."""
    code, _, signal = exit_code.partition(":")
    return code in ("130", "143") or signal in ("2", "15")


def cancelled_by(ending: Ending, who: str, *, own: bool) -> Ending:
    """The ending, with who cancelled the job. ``own``: its user."""
    said = f"{ending.said}; its user {who} cancelled it" if own else f"{ending.said}; {who} cancelled it, who is not its user"
    return replace(ending, said=said, by="owner" if own else "other")


def ending_of_log(report: Report) -> Ending | None:
    """How it ended by its log alone, where no scheduler was asked: only a scheduler's line that its time was over counts."""
    root = report.diagnosis.root_cause
    if not _was_stopped(report) or root is None or report.diagnosis.by == "agent" or not _says(_TIME_OVER, root.text):
        return None
    return Ending("time_limit", "Its log says that its time was over")


def stopped_by_somebody(report: Report) -> bool:
    """Whether it was told to stop, and no scheduler or platform says in its log that this was to make room, or for the
    machine's sake: it may have been a person. What merely stands near the stop says nothing about it.
    """
    if not _was_stopped(report):
        return False
    root = report.diagnosis.root_cause
    told = [(root.text, report.diagnosis.rule)] if root is not None else []
    told += [(line.text, line.rule) for line in report.diagnosis.evidence if line.role != "context"]
    return not any(rule in _OF_PLATFORMS or _says(_MADE_ROOM, text) for text, rule in told)


def _says(form: re.Pattern[str], text: str) -> bool:
    return form.search(text[:_LOOKED_AT]) is not None and not _OWN_WORDS.search(text[:_LOOKED_AT])


def _was_stopped(report: Report) -> bool:
    return report.outcome == "failed" and shipped_taxonomy().has(report.diagnosis.reason, "stop")


def joined(report: Report, ending: Ending | None) -> Report:
    """The report, with the reason that the scheduler gives where the log has none or only tells what followed."""
    if ending is None or (reason := _REASONS.get(ending.kind)) is None or not _gives_way(report, ending.kind, reason):
        return report
    before = report.diagnosis
    same = before.reason == reason
    named = list(ending.nodes)
    diagnosis = Diagnosis(
        category=shipped_taxonomy().category_of[reason],
        reason=reason,
        confidence=_CONFIDENCE,
        by="detector",
        summary=f"{_CANCELLED.get(ending.by or '', _SUMMARIES[ending.kind])} {ending.said}.",
        root_cause=before.root_cause if same else None,
        suspects=Suspects(nodes=named) if named or not same else before.suspects,
        culprits=named if named or not same else before.culprits,
        evidence=before.evidence,
        group=f"scheduler-{ending.kind}",
        phase=before.phase,
        step=before.step,
        others=before.others,
        recovered=before.recovered,
        notes=before.notes,
    )
    remedy = shipped_policy().remedy(reason)
    action = Action(why=ending.said) if ending.kind == "cancelled" else Action(kind=remedy.kind, why=remedy.why)
    return report.model_copy(update={"outcome": "failed", "diagnosis": diagnosis, "action": action})


def _gives_way(report: Report, kind: Kind, reason: str) -> bool:
    """Whether what the log says follows from how the job ended. A hang until the time limit and a bug before it do not."""
    said, taxonomy = report.diagnosis.reason, shipped_taxonomy()
    if report.outcome != "failed" or said in ("unknown", "healthy", reason):
        return True
    if kind == "node_failure":
        return taxonomy.has(said, "soft") or taxonomy.has(said, "of_a_stop")
    if kind == "out_of_memory":
        return taxonomy.has(said, "kills") or taxonomy.has(said, "of_a_stop")
    return taxonomy.has(said, "of_a_stop")
