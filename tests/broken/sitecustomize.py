"""Break the probe's process on purpose, from outside: Python runs this at start where the folder is on its path.

NODE_FAULT says how. Only the probe's worker is changed, or its supervisor for ``vanish`` and ``frozen``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

_fault = os.environ.get("NODE_FAULT", "")
_is_probe = "diagnose.nodecheck.probe" in sys.orig_argv
_is_worker = _is_probe and "--worker" in sys.orig_argv

if _is_worker and _fault in ("hang", "slow", "wrong", "corrupt", "linger"):
    import torch
    import torch.distributed as dist

    _matmul, _all_gather = torch.matmul, dist.all_gather

    def _wrong(*tensors: Any) -> Any:
        product = _matmul(*tensors)
        product[7, 3] += 1  # one number in a hundred thousand
        return product

    def _slow(*tensors: Any) -> Any:
        time.sleep(0.5)
        return _matmul(*tensors)

    def _hang(*_: Any) -> None:
        time.sleep(3600)

    def _corrupt(parts: Any, mine: Any) -> Any:
        mine = mine.clone()
        mine[12345] ^= 1 << 9  # a bit that flips on the way out
        return _all_gather(parts, mine)

    if _fault == "hang":
        dist.all_gather = _hang
    elif _fault == "corrupt":
        dist.all_gather = _corrupt
    elif _fault == "linger":
        dist.destroy_process_group = _hang
    else:
        torch.matmul = {"slow": _slow, "wrong": _wrong}[_fault]
elif _is_worker and _fault == "exit":
    sys.stderr.write("cuInit failed: \x1b[31mno device\n")
    sys.stderr.flush()
    os._exit(3)
elif _is_worker and _fault == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
elif _is_probe and not _is_worker and _fault == "vanish":
    os.kill(os.getpid(), signal.SIGKILL)
elif _is_probe and not _is_worker and _fault == "frozen":
    os.kill(os.getpid(), signal.SIGSTOP)
