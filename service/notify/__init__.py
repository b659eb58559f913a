"""Events in; signed webhooks out, each at least once."""

__all__ = ["courier", "digest"]
