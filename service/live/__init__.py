"""Batches from the journal in; state and diagnosis of each running job out, in memory and in the database."""

__all__ = ["attempt", "inbox", "jobs", "matchers", "stream", "verdict"]
