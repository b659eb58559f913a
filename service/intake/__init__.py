"""Requests of all protocols in; batches, which are on disk before the answer, out."""

__all__ = ["batch", "ingest", "protocols"]
