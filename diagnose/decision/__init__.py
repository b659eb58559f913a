"""A report, the past and the policy in; what is to be done about it, and why, out. Nothing here acts."""

__all__ = [
    "action",
    "advice",
    "checkpoints",
    "clauses",
    "decide",
    "ending",
    "history",
    "lost",
    "node",
    "policy",
    "policy_file",
    "result",
    "scores",
    "signals",
]
