"""A rule in; the objections to it out. Nothing that objections stand against may drop a line."""

__all__ = ["proposals", "rules"]
