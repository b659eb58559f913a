"""The mixed training log that benchmarks read: made from a seed, from templates, with rules for the same templates."""
