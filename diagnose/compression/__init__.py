"""Verdicts in; the kept log, counts of what was dropped, and what kind of job it is, out."""

__all__ = ["folds", "kept_log", "snapshot", "workload"]
