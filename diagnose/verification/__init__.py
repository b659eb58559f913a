"""A rule in; the objections to it out. A rule with objections may not drop a line."""

__all__ = ["numbers", "proposals", "rules"]
