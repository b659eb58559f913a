"""A request to somebody else in; its answer, guarded against addresses that nobody allowed, out."""

__all__ = ["client", "guarded", "signing"]
