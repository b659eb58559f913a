"""A failure that the rules are unsure of in; a cause with evidence, as a model sees it, out.

Imported only where it is called: without this folder logs are still compressed and diagnosed.
"""

__all__ = ["explain", "incidents"]
