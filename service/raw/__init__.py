"""Batches from the journal in; raw logs on disk out, for as long as the settings say."""

__all__ = ["archive", "parts"]
