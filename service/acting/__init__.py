"""A diagnosis in; a decision, its order, and what came of it, out."""

__all__ = ["actions", "authority", "dispatch", "executors", "nodecheck", "remote"]
