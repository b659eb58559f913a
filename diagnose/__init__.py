"""diagnose: log diagnosis and recovery for GPU clusters that train large language models.

The map, in reading order; a module imports only what stands above it, and ``job`` is the place to begin:

    errors shipped cache documents taxonomy report      what the others stand on, and what the outside sees
    sources lines prefixes                              bytes -> lines
    rules shapes metrics databases scan engines matcher lines -> verdicts and numbers (and ``_core.c``, the fast twin)
    verification                                        rules -> objections
    watch compression snapshot                          verdicts -> the kept log, and its state as bytes
    evidence tracebacks topology detectors faults       the kept log -> what failed, and who is who
    suspects diagnosis                                  faults -> root cause
    clauses hours policy                                what may be done, how often and with whose yes
    history checkpoints advice wording                  root cause -> what one log speaks for, and words for people
    fingerprint job                                     what kind of job it is; the path for one job, top to bottom
    action bursts signals recurrence decision           report, history, cluster -> what is done; the life of an action
    evaluation                                          labelled cases -> accuracy
    learned book                                        rules that are learned: states, what they must pass, what keeps them
    nodecheck launchers rounds probe                    which node is bad: the rule, and how it is run on the nodes
    rollback client                                     where training goes on after a spike; what its scripts call
    agent                                               the model's side; imported only where it is called
    learning learner                                    unknown lines -> learned rules: of logs, and beside a running job
    shipping guard                                      logs on their way to a service; a folder that one process has
    cli                                                 one module a command
"""

from __future__ import annotations

__version__ = "0.1.0"
