"""A site's history of jobs -> what failed, what it cost, and what would have saved most."""

__all__ = ["kubernetes", "logs", "runs", "sacct", "tables"]
