"""Lines that no rule knows in; verified rules with a record of where they come from out."""

__all__ = [
    "ended",
    "learned_rule",
    "lesson",
    "live",
    "miner",
    "rule_store",
    "school",
    "wire",
    "worker",
    "worker_process",
    "write_failures",
    "write_filters",
]
