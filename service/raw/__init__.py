"""The journal's batches in; raw logs on disk, for as long as they are wanted, out."""

__all__ = ["archive", "parts"]
