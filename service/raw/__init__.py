"""The journal's batches in; raw logs on disk, for as long as the settings say, out."""

__all__ = ["archive", "parts"]
