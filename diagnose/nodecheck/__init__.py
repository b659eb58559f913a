"""Nodes in; which of them fail a collective with partners that pass it, out."""

__all__ = ["accuse", "launchers", "probe", "rounds"]
