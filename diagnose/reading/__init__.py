"""Bytes of files, archives and streams in; lines, each with the rank and node that printed it, out."""

__all__ = ["binary", "dumps", "encodings", "grouping", "lines", "prefixes", "sources", "transport"]
