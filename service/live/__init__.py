"""The journal's batches in; the state and the diagnosis of each job that runs, in memory and in the database, out."""

__all__ = ["attempt", "jobs", "matchers", "stream", "verdict"]
