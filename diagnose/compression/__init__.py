"""Verdicts in; kept lines, counts of the dropped lines, and what kind of job it is out."""

__all__ = ["ahead", "contradiction", "folds", "kept_log", "numbers", "parts", "snapshot", "templates", "workload"]
