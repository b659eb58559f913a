"""Kept lines and confirmed failures in; learned rules and a model's diagnoses out, by a process of its own."""

__all__ = ["corpus", "host", "vllm"]
