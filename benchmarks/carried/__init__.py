"""What one process carries, and what it costs: ``python -m benchmarks.carried [PART ...] [--against COMMIT]``.

- ``failing``: many jobs fail again and again, in pieces. MB of their logs per second of the server's processor time, and how
  long after its last byte each has its last verdict.
- ``burst``: the mixed log, as fast as four clients can send it, until all of it is scanned, judged and stored.
- ``pushes``: bodies of 1 kB, one after the other on many connections.
- ``opening``: new jobs over four connections: one per request, and a hundred in one request of Loki's protocol.
- ``memory``: what a live job takes, and what stays of one that has ended.
- ``stop``: from SIGTERM to the end of the process, with many live jobs.
- ``sources``: one job with many sources, which fails in the end.
- ``shares``: what a job of ``failing`` costs in its scanner, step by step, in a process of its own without a server.

``--against COMMIT`` also measures a checkout of that commit, in turns, and prints ratios: of processor time where both did the
same work. The clock's figures depend on what else the machine does.
"""
