"""The kept log in; what failed first, what only followed from it, and who is suspected, out."""

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
    "topology",
    "tracebacks",
    "weights",
    "wording",
]
