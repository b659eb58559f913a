"""A request of any protocol in; batches that are on disk before the answer, out."""

__all__ = ["batch", "ingest", "protocols"]
