"""A request to another server in; its answer out. Addresses that nobody allowed are refused."""

__all__ = ["client", "guarded", "signing"]
