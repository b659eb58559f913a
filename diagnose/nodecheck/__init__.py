"""Nodes in; those that fail a collective with partners that pass it out."""

__all__ = ["accuse", "launchers", "probe", "rounds"]
