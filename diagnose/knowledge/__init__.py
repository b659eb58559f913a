"""YAML under rules/ in; rules, reasons and shipped documents, checked and with the line that each stands on, out."""

__all__ = ["documents", "metrics", "rules", "shipped", "taxonomy"]
