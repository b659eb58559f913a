"""Simulated nodes of one Ray cluster on this machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_TRIES = 4


def empty() -> Any:
    """A cluster without nodes for work."""
    from ray.cluster_utils import Cluster

    return patiently(lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "num_gpus": 0}))


def patiently(start: Callable[[], Any]) -> Any:
    """On a busy machine something may not come up in the time that Ray gives it."""
    for left in reversed(range(_TRIES)):
        try:
            return start()
        except Exception:  # Ray raises nothing more precise
            if not left:
                raise
    return None


@contextmanager
def cluster(nodes: int, places: int, processors: int) -> Iterator[None]:
    """A cluster that this process uses, and that has been in use: its processes run already."""
    made = empty()
    import ray

    for _ in range(nodes):
        patiently(lambda: made.add_node(num_cpus=places + processors, num_gpus=places))
    ray.init(made.address, log_to_driver=False)
    try:
        _warm(nodes * places, nodes * processors)
        yield
    finally:
        ray.shutdown()
        made.shutdown()


def _warm(places: int, processors: int) -> None:
    """A process for each place and each processor. They wait for each other, else one would do the work of several.

    Ray keeps processes that had a GPU apart from the others.
    """
    import ray

    @ray.remote  # type: ignore[untyped-decorator,unused-ignore]  # ray may be missing where types are checked
    def meet(folder: str, name: str, many: int) -> None:
        Path(folder, name).touch()
        while len(list(Path(folder).iterdir())) < many:
            time.sleep(0.1)

    with tempfile.TemporaryDirectory() as folder:
        waits: Any = meet
        all_ = places + processors
        asked = [waits.options(num_cpus=1, num_gpus=1).remote(folder, f"place{number}", all_) for number in range(places)]
        asked += [waits.options(num_cpus=1).remote(folder, f"processor{number}", all_) for number in range(processors)]
        ray.get(asked)
