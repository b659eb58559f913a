"""A request to another server in; its answer out. Addresses that nobody allowed are refused.

And whose a connection is, and who may wait at a door.
"""

__all__ = ["client", "crowd", "guarded", "handshakes", "owners", "signing"]
