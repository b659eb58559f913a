"""A diagnosis in; a decision, its order, and the outcome of the order out."""

__all__ = ["actions", "authority", "dispatch", "executors", "finders", "findings", "kernelwatch", "nodecheck", "remote"]
