"""Text or a stream of bytes in; the same without secrets out."""

__all__ = ["gate", "stream", "text"]
