"""The kept log in; what failed first, what only followed from it, and who is suspected, out."""

__all__ = ["detectors", "evidence", "faults", "root_cause", "topology", "tracebacks", "wording"]
