"""YAML under rules/ in; checked rules, reasons and shipped documents out, each with the line that it stands on."""

__all__ = ["documents", "metrics", "rules", "shipped", "taxonomy"]
