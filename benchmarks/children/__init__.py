"""Programs that a benchmark starts, each in a process of its own."""
