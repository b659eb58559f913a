"""Lines and rules in; a verdict per line, and the numbers of metric lines, out. ``_core.c`` is the fast twin of ``engines``."""

__all__ = ["databases", "engines", "matcher", "scan", "series", "shapes"]
