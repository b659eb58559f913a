"""A question in; an answer that fits its schema, or a named trouble, out. The only door to a model."""

__all__ = ["answers", "model", "prompts", "settings"]
