"""A report and its evidence in; the same after a model was asked, as a second witness, out.

Imported only where it is called: without this folder logs are still compressed and diagnosed.
"""

__all__ = ["explain", "gate", "incidents", "records", "window", "witnesses"]
