"""One node's part in a test of the node check: matmul and all-gather, with results that are checked. Runs on the node.

    python -m diagnose.nodecheck.probe --node gpu-17 --rank 0 --size 2 --address gpu-16 --port 29400

A supervisor without torch starts one worker per GPU (one if there are none), reads what they say, ends them when time is up,
and prints one JSON object. So a hang inside NCCL, a crash of the driver or a missing torch still gives an answer. It needs only
the standard library; the workers need torch.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import glob
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

_LINE_LIMIT = 1 << 16
_SPAN = 16
"""matrices hold whole numbers below this, so that float32 is exact and every wrong bit shows"""
_MATMULS, _GATHERS = 10, 5
_LEAVE_S = 5.0
"""for leaving the group, after all results are out"""


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="diagnose.nodecheck.probe", description="One node's part in a test of the node check."
    )
    parser.add_argument("--node", required=True)
    parser.add_argument("--rank", type=int, required=True, help="this node's number in its group")
    parser.add_argument("--size", type=int, required=True, help="nodes in the group")
    parser.add_argument("--address", required=True, help="of the group's first node")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--per-node", type=int, default=0, help="processes; 0: one for each GPU, one without GPUs")
    parser.add_argument("--backend", choices=("auto", "nccl", "gloo"), default="auto")
    parser.add_argument("--matrix", type=int, default=0, help="rows; 0: 4096 on a GPU, 512 without")
    parser.add_argument("--mib", type=int, default=0, help="that each process gives; 0: 64 on a GPU, 4 without")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--supervisor", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    if arguments.worker is not None:
        _end_with(arguments.supervisor)
        work(arguments)
    else:
        _say(supervise(arguments, list(sys.argv[1:] if argv is None else argv)))
    return 0


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


# The supervisor


def gpus() -> int:
    """GPUs of this node, counted without asking a driver that may hang."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([one for one in visible.split(",") if one.strip() not in ("", "-1", "NoDevFiles")])
    return len(glob.glob("/dev/nvidia[0-9]*"))


def supervise(arguments: argparse.Namespace, words: list[str]) -> dict[str, Any]:
    """Start the workers, and sum up what they said in time."""
    found = 0 if arguments.backend == "gloo" else gpus()
    arguments.per_node = arguments.per_node or found or 1
    words = [*words, "--per-node", str(arguments.per_node)]  # the last one counts
    began = time.monotonic()
    workers = [
        subprocess.Popen(  # noqa: S603  # this interpreter, and the words it was started with
            [
                sys.executable,
                "-m",
                "diagnose.nodecheck.probe",
                *words,
                "--worker",
                str(number),
                "--supervisor",
                str(os.getpid()),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # so that all that it started ends with it
        )
        for number in range(arguments.per_node)
    ]
    try:
        said = _answers(workers, began + arguments.timeout)
    finally:
        for worker in workers:
            _end(worker)
    wrong = [f"process {number}: {answer['what']}" for number, answer in enumerate(said) if not answer["ok"]]
    timed = [answer for answer in said if answer["ok"]]
    return {
        "node": arguments.node,
        "ok": not wrong,
        "what": "; ".join(wrong[:3]) or None,
        "gpus": found,
        "processes": arguments.per_node,
        "compute_s": max((answer["compute_s"] for answer in timed), default=None),
        "gather_s": max((answer["gather_s"] for answer in timed), default=None),
        "took_s": round(time.monotonic() - began, 3),
    }


def _answers(workers: Sequence[subprocess.Popen[bytes]], deadline: float) -> list[dict[str, Any]]:
    """One answer per worker, bounded in time and size."""
    out = [bytearray() for _ in workers]
    err = [bytearray() for _ in workers]
    with selectors.DefaultSelector() as selector:
        for number, worker in enumerate(workers):
            for stream, kept in ((worker.stdout, out[number]), (worker.stderr, err[number])):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, kept)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                data = os.read(key.fd, _LINE_LIMIT)
                if data:
                    key.data.extend(data)
                    del key.data[:-_LINE_LIMIT]
                else:
                    selector.unregister(key.fileobj)
            if all(_said(one) is not None for one in out):
                deadline = min(deadline, time.monotonic() + _LEAVE_S)
    return [_answer(worker, out[number], err[number], deadline) for number, worker in enumerate(workers)]


def _said(out: bytearray) -> dict[str, Any] | None:
    for line in reversed(out.decode("utf-8", "replace").splitlines()):
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and isinstance(answer.get("ok"), bool):
            return answer
    return None


def _answer(worker: subprocess.Popen[bytes], out: bytearray, err: bytearray, deadline: float) -> dict[str, Any]:
    answer = _said(out)
    if answer is not None:
        return answer
    try:
        status = worker.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return {"ok": False, "what": "no answer in time"}
    last = next((line for line in reversed(err.decode("utf-8", "replace").splitlines()) if line.strip()), "")
    ended = f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
    return {"ok": False, "what": f"{ended}{': ' + last[:300] if last else ''}"}


def _end(worker: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(worker.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    worker.wait()


# A worker


def _end_with(supervisor: int | None) -> None:
    """End this worker if its supervisor is killed.

    A worker that stayed would wait for its group. The next group that meets at that port could take it for a member, and a good
    node would hang there.
    """
    with contextlib.suppress(OSError, AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if supervisor is not None and os.getppid() != supervisor:  # it ended before that
        sys.exit(1)


def work(arguments: argparse.Namespace) -> None:
    """Both tests in this process, and what is to be said of them."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        _say({"ok": False, "what": f"torch cannot be imported ({error}); pip install 'diagnose-train[check]'"})
        return
    from datetime import timedelta

    on_gpu = torch.cuda.is_available() and arguments.backend != "gloo"
    device = torch.device("cuda", arguments.worker) if on_gpu else torch.device("cpu")
    backend = ("nccl" if on_gpu else "gloo") if arguments.backend == "auto" else arguments.backend
    try:
        if on_gpu:
            torch.cuda.set_device(device)
            torch.backends.cuda.matmul.allow_tf32 = False  # whole numbers below 2**24 are exact in float32, not in TF32
        else:
            torch.set_num_threads(1)
        dist.init_process_group(
            backend,
            init_method=f"tcp://{_bracketed(arguments.address)}:{arguments.port}",
            rank=arguments.rank * arguments.per_node + arguments.worker,
            world_size=arguments.size * arguments.per_node,
            timeout=timedelta(seconds=arguments.timeout),
        )
        compute_s, compute_wrong = _matmul(torch, device, arguments.matrix or (4096 if on_gpu else 512))
        gather_s, gather_wrong = _gather(torch, dist, device, arguments.mib or (64 if on_gpu else 4))
        wrong = compute_wrong or gather_wrong
    except Exception as error:  # whatever torch, NCCL or the driver raises is the answer
        _say({"ok": False, "what": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"})
        return
    _say({"ok": wrong is None, "what": wrong, "compute_s": compute_s, "gather_s": gather_s})
    # All leave together: the first to leave takes the group's store with it, and its neighbour would fail. Leaving sometimes
    # hangs. That says nothing about a node: the tests are over.
    with contextlib.suppress(Exception):
        dist.barrier()
        dist.destroy_process_group()


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _wait(torch: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _matmul(torch: Any, device: Any, rows: int) -> tuple[float, str | None]:
    """(time of some products, what is wrong with the result).

    The check is cheap: (A B) v = A (B v) for a random v, in whole numbers, on the CPU (Freivalds, 1977).
    """
    rows = min(rows, (1 << 24) // (_SPAN * _SPAN))  # sums stay exact
    generator = torch.Generator().manual_seed(rows)
    a, b = (torch.randint(0, _SPAN, (rows, rows), generator=generator).float() for _ in range(2))
    on_a, on_b = a.to(device), b.to(device)
    product = torch.matmul(on_a, on_b)  # the first one loads libraries
    _wait(torch, device)
    began = time.perf_counter()
    for _ in range(_MATMULS):
        product = torch.matmul(on_a, on_b)
    _wait(torch, device)
    took = time.perf_counter() - began
    v = torch.randint(0, 2, (rows, 4), generator=generator)
    left, right = product.cpu().long() @ v, a.long() @ (b.long() @ v)
    bad = int((left != right).any(dim=1).sum())
    return took, f"matmul: {bad} of {rows} rows are wrong" if bad else None


def _gather(torch: Any, dist: Any, device: Any, mib: int) -> tuple[float, str | None]:
    """(time of some all-gathers, whose part arrived wrong)."""
    rank, world = dist.get_rank(), dist.get_world_size()
    count = mib * (1 << 20) // 4
    base = torch.arange(count, dtype=torch.int32)
    mine = (base * (2 * rank + 3)).to(device)
    parts = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(parts, mine)  # the first one opens connections
    dist.barrier()
    _wait(torch, device)
    began = time.perf_counter()
    for _ in range(_GATHERS):
        dist.all_gather(parts, mine)
    _wait(torch, device)
    took = time.perf_counter() - began
    wrong = [other for other in range(world) if not torch.equal(parts[other].cpu(), base * (2 * other + 3))]
    return took, f"all-gather: the part of rank {', '.join(map(str, wrong[:8]))} is wrong" if wrong else None


if __name__ == "__main__":
    sys.exit(main())
