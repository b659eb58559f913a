"""Ray: a task for each piece of work, on the node that the dispatch chose. Ray retries nothing: the coordinator does."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diagnose.errors import DiagnoseError
from diagnose.evaluate.carry import Order
from diagnose.evaluate.fleets.fleet import Ended
from diagnose.evaluate.suite import Node

_FRESH_S = 2.0
"""how old what is known of the nodes may be"""


def _run(text: str) -> tuple[int, float, float]:
    """On the node: (status, begin, end)."""
    begin = time.time()
    process = subprocess.Popen(  # our own program
        [sys.executable, "-m", "diagnose.evaluate.carry", "-"],
        stdin=subprocess.PIPE,
        env={**os.environ, "DIAGNOSE_COORDINATOR": str(os.getpid())},
    )
    process.communicate(text.encode())
    return process.returncode, begin, time.time()


def _forget(memory: str) -> None:
    import shutil

    shutil.rmtree(memory, ignore_errors=True)


class Ray:
    """A Ray cluster. ``address``: of an existing one, or None for one of our own on this machine."""

    def __init__(self, address: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise DiagnoseError("this needs the package ray", remedy="pip install 'diagnose-train[ray]'") from None
        self._ray: Any = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            try:
                # Workers find the program where this process finds it.
                environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}}
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=environment)
            except (ConnectionError, RuntimeError, ValueError) as error:
                what = f"no Ray cluster answers: {str(error).splitlines()[0]}"
                raise DiagnoseError(what, where=address, remedy="start one with   ray start --head") from None
        self._ids: dict[str, str] = {}
        self._running: dict[Any, str] = {}
        self._known: list[Node] = []
        self._at = -_FRESH_S

    def nodes(self) -> Sequence[Node]:
        """A place for each GPU; without any in the cluster, one for each node."""
        if time.monotonic() - self._at < _FRESH_S:
            return self._known
        alive = [one for one in self._ray.nodes() if one["Alive"]]
        with_gpus = any(one["Resources"].get("GPU") for one in alive)
        found = []
        for one in alive:
            name = f"{one['NodeManagerHostname']}-{one['NodeID'][:6]}"
            self._ids[name] = one["NodeID"]
            places = int(one["Resources"].get("GPU", 0)) if with_gpus else 1
            processors = int(one["Resources"].get("CPU", 0)) - places
            if places or processors > 0:
                found.append(Node(name, places, max(processors, 1)))
        self._known, self._at = found, time.monotonic()
        return found

    def start(self, order: Order, node: str, *, on_place: bool) -> None:
        has_gpu = on_place and bool(self._resources(node).get("GPU"))
        task = self._task(_run, node, num_cpus=1 if on_place else order.processors, num_gpus=1 if has_gpu else 0)
        self._running[task.remote(order.text())] = order.key

    def _resources(self, node: str) -> dict[str, float]:
        return next((dict(one["Resources"]) for one in self._ray.nodes() if one["NodeID"] == self._ids[node]), {})

    def _task(self, function: Any, node: str, **resources: float) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(self._ids[node], soft=False)
        most = self._resources(node).get("CPU", 0)
        resources["num_cpus"] = min(resources["num_cpus"], most)
        return self._ray.remote(function).options(max_retries=0, scheduling_strategy=there, **resources)

    def ended(self, patience_s: float) -> list[Ended]:
        if not self._running:
            time.sleep(patience_s)
            return []
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=patience_s)
        return [self._end(one) for one in done]

    def _end(self, one: Any) -> Ended:
        key, now = self._running.pop(one), time.time()
        try:
            status, begin, end = self._ray.get(one)
        except self._ray.exceptions.RayError:  # its worker or its node is gone
            return Ended(key, None, now, now)
        return Ended(key, status if status >= 0 else None, begin, end)

    def forget(self, memory: Path) -> None:
        waiting = [self._task(_forget, node.name, num_cpus=0).remote(str(memory)) for node in self.nodes()]
        if waiting:
            self._ray.wait(waiting, num_returns=len(waiting), timeout=30)

    def stop(self) -> None:
        for one in self._running:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(one, force=True)
        if self._running:
            self._ray.wait(list(self._running), num_returns=len(self._running), timeout=30)
        self._running.clear()

    def close(self) -> None:
        if self._ours:
            self._ray.shutdown()
