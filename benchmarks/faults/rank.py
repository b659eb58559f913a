"""One rank that trains over gloo on the processor, and the faults that it can meet.

torchrun --nproc-per-node 4 benchmarks/faults/rank.py segfault 2      # rank 2 fails before step 6
"""

from __future__ import annotations

import ctypes
import datetime
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

_STEPS, _FAILS_AT = 12, 6
_TIMEOUT = datetime.timedelta(seconds=10)
"""after which those who wait give up: half an hour by default"""


def _send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _segfault() -> None:
    ctypes.string_at(1)


def _fail() -> None:
    raise RuntimeError("a bug of the training script")


def _fail_from_elsewhere() -> None:
    """Another thread raises an error in the one that trains, as a watchdog in the process does."""
    main = ctypes.c_ulong(threading.main_thread().ident or 0)
    thread = threading.Thread(target=lambda: ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(TimeoutError)))
    thread.start()
    thread.join()


def _hold_the_interpreter() -> None:
    """Sleeps in compiled code that does not let go of the interpreter: no thread of the rank goes on."""
    ctypes.PyDLL(None).sleep(600)


FAULTS: dict[str, Callable[[], None]] = {
    "kill": _send(signal.SIGKILL),
    "terminate": _send(signal.SIGTERM),
    "segfault": _segfault,
    "abort": os.abort,
    "exception": _fail,
    "asynchronous": _fail_from_elsewhere,
    "stop": _send(signal.SIGSTOP),
    "hang": _hold_the_interpreter,
}


def train(fault: str, victim: int) -> None:
    """Rank and addresses are in the environment."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # ranks that come late to a busy machine are no fault
    dist.distributed_c10d._set_pg_timeout(_TIMEOUT)
    rank, model = dist.get_rank(), torch.nn.Linear(4, 1)
    for step in range(1, _STEPS + 1):
        if step == _FAILS_AT and rank == victim:
            FAULTS[fault]()
        loss = model(torch.ones(4)).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        print(f"step {step}/{_STEPS} | loss {loss.item():.4f}", flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]))
