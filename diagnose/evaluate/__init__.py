"""Checkpoints and data sets in; the scores that the harness itself would give out, sooner.

Commands do the work: a *trial* runs a model over samples, a *metric* scores what it wrote. This package decides when and where
each runs.

    plan_file    YAML -> suite
    priors       earlier runs -> how long each data set takes
    planner      suite, estimates, nodes -> plan: pieces of work, in order
    dispatch     plan, what is free, what ended -> what starts now, and where
    expectation  plan -> how long it will take, and how sure that is
    coordinator  carries the plan out: starts what the dispatch says, notes what ended
    fleets       where pieces of work run
    carry        one piece of work, as a process on its node
    results      the folder with all that is finished
    merging      scores of parts -> scores of all samples
    falls        scores of a checkpoint and of earlier ones -> what fell by more than chance
    spent        what ran -> where the time went
    summary      all of it -> scores.json
    telling      that -> the service
    arrivals     a folder, or the list of a service -> the checkpoints of a training, and which can be evaluated
    watching     those -> which one is next
    adapters     harnesses -> the two commands of a plan
    trouble      the log of what failed -> why, and whether to try again
    timeline     what ran -> a picture

Nothing else imports this package, so it can be deleted whole.
"""

__all__ = [
    "adapters", "arrivals", "carry", "coordinator", "dispatch", "estimates", "expectation", "fleets", "plan_file", "planner",
    "printed", "priors", "results", "spent", "suite", "summary", "telling",
    "timeline", "watching", "work",
]  # fmt: skip
