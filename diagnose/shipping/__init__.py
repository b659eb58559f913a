"""Logs on their way to a service: what ``diagnose send`` and ``diagnose runner`` do, without their command lines.

    destination     one service: pieces of sources over HTTP, its answers, when to try again
    patterns        Slurm's output patterns: which files, and whose
    stacks          a process that stands still: the stacks of it and its children
    spool           the runner's memory on disk: how far each file was read, and what waits for the service
    tails           growing files, rotated and truncated ones
    send runner     a whole source once; many for ever

Everything is sent with its offset in its source, and the service takes every byte once. So after a crash of either side, the
sender goes on from the offset that the service has.
"""

__all__ = ["destination", "patterns", "pipes", "runner", "send", "spool", "stacks"]
