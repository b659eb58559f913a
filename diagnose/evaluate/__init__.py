"""Checkpoints and data sets in; the scores that the harness itself would give out, sooner.

Commands do the work: a *trial* runs a model over samples, a *metric* scores what it wrote. This package decides when and where
each runs.

    plan_file    YAML -> suite
    priors       earlier runs -> how long each data set takes
    planner      suite, estimates, nodes -> plan: pieces of work, in order
    dispatch     plan, what is free, what ended -> what starts now, and where
    expectation  plan -> how long it will take, and how sure that is

Nothing else imports this package, so it can be deleted whole.
"""

__all__ = ["dispatch", "estimates", "expectation", "plan_file", "planner", "printed", "priors", "suite", "work"]
