"""Two runs, one that went well and one that did not -> what differs between them."""

__all__ = ["differences", "runs"]
