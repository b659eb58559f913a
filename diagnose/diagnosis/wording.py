"""Finding -> the sentences that people read."""

from __future__ import annotations

import re

from diagnose.diagnosis.finding import Finding
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.status import remedy

_PLAIN = {
    "loss_anomaly": "The loss went wrong",
    "hang": "The job stood still",
    "unknown": "The job failed, and nothing in the log explains why",
}


def title(fault: Hypothesis) -> str:
    """What happened, without where and when."""
    if fault.detector is not None:
        return fault.detector.sentence.rstrip(".")
    if fault.traceback is not None and (fault.rule is None or fault.rule.layer == "user"):
        if fault.traceback.raised_type is not None:
            return f"{fault.traceback.raised_type} was raised, and the log lacks its message"
        name = fault.traceback.type.rpartition(".")[2]
        message = fault.traceback.message.split("\n")[0].strip()
        return f"{name}: {message}" if message else name
    text = re.sub(r" \((?:SXid|Xid) [^()]*\)$", "", fault.rule.title) if fault.rule else ""
    return text or _PLAIN.get(fault.reason, fault.reason.replace("_", " "))


def summary(finding: Finding) -> str:
    """The finding in one sentence."""
    if finding.told is not None and finding.reason == "unknown":
        begin = "" if finding.root is None else " The last line before that is below."
        return f"{finding.told.end[0].upper()}{finding.told.end[1:]}, and nothing in its log says why.{begin}"
    if not finding.failed or finding.root is None:
        return (
            "The log says that the job ended well." if finding.ended_well else "No line of the log says that anything failed."
        )
    root = finding.root
    if finding.reason == "unknown":
        where = "the last line that no rule knows is below" if root.rule is None else f"the first sign is: {title(root)}"
        return f"{_PLAIN['unknown']}; {where}."
    if root.kind == "dump":
        return f"{title(root)}."
    words = [_shortened(title(root), 160)]
    if (who := whom(finding)) is not None:
        words.append(who)
    if finding.step is not None:
        words.append(f"after step {finding.step:,.0f}")
    elif finding.phase == "start-up":
        words.append("before the first step")
    followed = sum(many.count for many in finding.consequences)
    if finding.picture is not None and finding.picture.apart and finding.ranks and finding.ranks == finding.picture.late:
        return f"{words[0]}; {finding.picture.sentence}."
    end = f"; {followed:,} other {'line follows' if followed == 1 else 'lines follow'} from it" if followed else ""
    return f"{words[0]} ({', '.join(words[1:])}){end}." if len(words) > 1 else f"{words[0]}{end}."


def what_to_do(finding: Finding) -> str | None:
    """What a person should do about an answer that comes from dumps, or from the end of the job alone."""
    seen = finding.picture
    if finding.told is not None:
        return remedy(finding.root)
    if seen is None or finding.root is None or finding.root.kind != "dump":
        return None
    if seen.late and any(one.behind for one in seen.standing):
        return (
            "The programs came to the collective, a device did not go on: look at the kernel log (Xid) and the GPU of the "
            "ranks named, and run the node check before you blame a node."
        )
    if seen.late:
        return (
            "The ranks named are late; that does not make their machines bad. See where they stand: take a stack of them "
            "(py-spy dump --pid) if there is none, and compare two that were taken a minute apart."
        )
    if seen.together:
        return "No program is late: check the network between the ranks (NCCL_DEBUG=INFO, ncclras -v) and their GPUs."
    return "Take stacks of all ranks at the same time (py-spy dump --pid): the ranks that are not in the collective are it."


def whom(finding: Finding) -> str | None:
    """Ranks, GPUs and nodes, in short."""
    parts = []
    if finding.ranks:
        parts.append(f"rank {finding.ranks[0]}" if len(finding.ranks) == 1 else f"ranks {ranges(finding.ranks)}")
    if finding.gpus:
        parts.append(f"GPU {', '.join(finding.gpus[:3])}" + ("…" if len(finding.gpus) > 3 else ""))
    if finding.nodes:
        parts.append("on " + ", ".join(finding.nodes[:3]) + ("…" if len(finding.nodes) > 3 else ""))
    if not parts and finding.witness_ranks:
        ranks = finding.witness_ranks
        parts.append(f"told by rank {ranks[0]}" if len(ranks) == 1 else f"told by ranks {ranges(ranks)}")
    return " ".join(parts) or None


def ranges(numbers: list[int], most: int = 6) -> str:
    """``0-3, 7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:most]]
    return ", ".join(shown) + ("…" if len(runs) > most else "")


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
