"""The same on a real Ray cluster: the coordinator, a worker of Ray or what it runs, or a whole node is killed.

The nodes are simulated ones of one cluster on this machine. A node that is killed loses all its processes at once; another one
takes its place.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.evaluation import clusters
from benchmarks.evaluation.killed import below_of, killed

_WORKS = ("ray::_run", "diagnose.evaluate.carry", "trial.py", "metric.py")
"""what processes are called that run pieces of work"""


class OnRay:
    who: Sequence[str] = ("coordinator", "worker", "node")

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.options: Sequence[str] = ("--on", "ray", "--address", cluster.address)

    def kill(self, who: str, process: subprocess.Popen[bytes], dice: random.Random) -> bool:
        nodes = sorted(self._cluster.worker_nodes, key=lambda node: str(node.unique_id))
        if who == "coordinator":
            return killed([process.pid])
        if who == "worker":
            working = [pid for node in nodes for pid in below_of(_raylets(node)) if _works(pid)]
            return killed(dice.sample(working, min(1, len(working))))
        node = dice.choice(nodes)
        own = _raylets(node)
        hit = killed([*own, *below_of(own)])
        self._cluster.remove_node(node, allow_graceful=False)
        add(self._cluster)
        return hit


@contextmanager
def cluster_of(nodes: int) -> Iterator[Any]:
    made = clusters.empty()
    try:
        for _ in range(nodes):
            add(made)
        yield made
    finally:
        made.shutdown()


def add(cluster: Any) -> None:
    clusters.patiently(lambda: cluster.add_node(num_cpus=2, num_gpus=1))


def _raylets(node: Any) -> list[int]:
    return [one.process.pid for one in node.all_processes.get("raylet", ())]


def _works(pid: int) -> bool:
    try:
        said = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return any(word in said for word in _WORKS)
