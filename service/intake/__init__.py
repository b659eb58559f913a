"""Requests of all protocols in; batches out, which are on disk before the answer is sent."""

__all__ = ["batch", "ingest", "protocols", "sockets", "storing"]
