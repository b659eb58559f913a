"""A question in; an answer that fits its schema, or the reason why there is none, out. Only this package speaks to a model."""

__all__ = ["answers", "model", "prompts", "settings"]
