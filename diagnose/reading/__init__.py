"""Bytes of files, archives and streams in; lines, and who said them, out."""

__all__ = ["binary", "grouping", "lines", "prefixes", "sources", "transport"]
