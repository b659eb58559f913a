"""What checkpoints cost, and whether every damage is found: ``python -m benchmarks.checkpoints PART``."""
