"""The kept lines in; the root cause, what only followed from it, and the suspects out."""

__all__ = [
    "candidates",
    "detectors",
    "doubt",
    "evidence",
    "explain",
    "finding",
    "hypotheses",
    "likeness",
    "reporting",
    "signals",
    "silence",
    "status",
    "topology",
    "tracebacks",
    "weights",
    "wording",
]
