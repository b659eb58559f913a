"""A question in; an answer that fits its schema, or the reason why it failed, out. Nothing else speaks to a model."""

__all__ = ["answers", "model", "prompts", "settings"]
