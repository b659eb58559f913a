"""This machine: a process for each piece of work, and a GPU for each place, if there are any."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diagnose.evaluate.carry import Order
from diagnose.evaluate.fleets.fleet import Ended
from diagnose.evaluate.plan_file import gpus
from diagnose.evaluate.suite import Node


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    key: str
    place: int | None
    begin_s: float


class Local:
    """Node names are only names here: all of them are this machine."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = list(nodes)
        self._gpus = gpus()
        self._free = {node.name: list(range(node.places)) for node in nodes}
        self._running: dict[int, tuple[str, _Running]] = {}  # by the descriptor of its process
        self._selector = selectors.DefaultSelector()
        self._folder = tempfile.TemporaryDirectory(prefix="diagnose-evaluate-")
        self._count = 0

    def nodes(self) -> Sequence[Node]:
        return self._nodes

    def start(self, order: Order, node: str, *, on_place: bool) -> None:
        place = self._free[node].pop(0) if on_place else None
        visible = self._gpus[place % len(self._gpus)] if place is not None and self._gpus else ""
        order = replace(order, environment={**order.environment, "CUDA_VISIBLE_DEVICES": visible})
        self._count += 1
        path = Path(self._folder.name, f"{self._count}.json")
        path.write_text(order.text())
        process = subprocess.Popen(  # noqa: S603  # our own program
            [sys.executable, "-m", "diagnose.evaluate.carry", str(path)],
            env={**os.environ, "DIAGNOSE_COORDINATOR": str(os.getpid())},
            start_new_session=True,  # Ctrl-C is for the coordinator, which stops it in order
        )
        handle = os.pidfd_open(process.pid)
        self._running[handle] = (node, _Running(process, order.key, place, time.time()))
        self._selector.register(handle, selectors.EVENT_READ)

    def ended(self, patience_s: float) -> list[Ended]:
        return [self._end(int(key.fd)) for key, _ in self._selector.select(patience_s)]

    def _end(self, handle: int) -> Ended:
        self._selector.unregister(handle)
        os.close(handle)
        node, one = self._running.pop(handle)
        if one.place is not None:
            self._free[node].append(one.place)
            self._free[node].sort()
        status = one.process.wait()
        return Ended(one.key, status if status >= 0 else None, one.begin_s, time.time())

    def forget(self, memory: Path) -> None:
        shutil.rmtree(memory, ignore_errors=True)

    def stop(self) -> None:
        for _, one in self._running.values():
            one.process.terminate()
        for handle in list(self._running):
            self._end(handle)

    def close(self) -> None:
        self._selector.close()
        self._folder.cleanup()
