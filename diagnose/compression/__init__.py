"""Verdicts in; kept lines, counts of the dropped lines, and what kind of job it is out."""

__all__ = ["ahead", "folds", "kept_log", "parts", "snapshot", "templates", "workload"]
