"""A request to another server in; its answer out. Addresses that nobody allowed are refused. And whose a connection is."""

__all__ = ["client", "guarded", "owners", "signing"]
