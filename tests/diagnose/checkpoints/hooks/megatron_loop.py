"""The loop of Megatron-LM as far as it concerns checkpoints, by the real writer of Megatron Core, on processors.

``megatron.training`` is in no package, and asks for a GPU in most of its functions. These functions have the names, the order
of words and the calls of core_v0.16.1; what writes, waits for all ranks and finishes is Megatron Core's own.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

ARGS = SimpleNamespace(save=None, load=None, async_save=False, ckpt_step=None, save_interval=4, save_retain_interval=None)
QUEUE: Any = None


def get_args() -> SimpleNamespace:
    return ARGS


def on_processors() -> None:
    """Megatron Core asks which GPU is the present one, and waits for it. Here it is told of the processor."""
    global QUEUE
    import megatron.core.dist_checkpointing.strategies.async_utils as behind

    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    torch.cuda.synchronize = lambda device=None: None
    QUEUE = behind.AsyncCallsQueue()


def schedule_async_save(request: Any) -> None:
    QUEUE.schedule_async_request(request)


def maybe_finalize_async_save(blocking: bool = False) -> None:
    if ARGS.async_save:
        QUEUE.maybe_finalize_async_calls(blocking, no_dist=False)


def _sharded(model: torch.nn.Linear) -> dict[str, Any]:
    """Each rank has its own rows."""
    from megatron.core.dist_checkpointing import ShardedTensor

    offset = (0, dist.get_rank(), dist.get_world_size())
    return {"weight": ShardedTensor.from_rank_offsets("weight", model.weight.data, offset)}


def save_checkpoint(iteration: int, model: Any, *_: Any, non_persistent_ckpt: bool = False, **__: Any) -> None:
    from megatron.core import dist_checkpointing

    folder = Path(ARGS.save) / ("non_persistent" if non_persistent_ckpt else "") / f"iter_{iteration:07d}"
    if dist.get_rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    state = {**_sharded(model), "iteration": iteration}
    request = dist_checkpointing.save(state, str(folder), async_sharded_save=ARGS.async_save)

    def finish() -> None:
        (folder.parent / "latest_checkpointed_iteration.txt").write_text(str(iteration))

    if ARGS.async_save:
        assert request is not None
        if dist.get_rank() == 0:
            request.add_finalize_fn(finish)
        schedule_async_save(request)
        return
    if dist.get_rank() == 0:
        finish()
    dist.barrier()


def save_checkpoint_and_time(iteration: int, model: Any, *words: Any, **how: Any) -> None:
    save_checkpoint(iteration, model, *words, **how)


def load_checkpoint(model: Any, optimizer: Any, scheduler: Any, load_arg: str = "load", **_: Any) -> tuple[int, int]:
    from megatron.core import dist_checkpointing

    tracker = Path(getattr(ARGS, load_arg)) / "latest_checkpointed_iteration.txt"
    iteration = ARGS.ckpt_step or (int(tracker.read_text()) if tracker.exists() else 0)
    if not iteration:
        return 0, 0
    state = dist_checkpointing.load(_sharded(model), str(tracker.parent / f"iter_{iteration:07d}"))
    model.weight.data.copy_(state["weight"])
    return int(state["iteration"]), 0


def train_step(model: Any, iteration: int) -> tuple[dict[str, Any], ...]:
    with torch.no_grad():
        model.weight += 1
    return {"lm loss": torch.tensor(1.0 / (iteration + 1))}, {}


def checkpoint_and_decide_exit(
    model: Any, optimizer: Any, scheduler: Any, iteration: int, operations: Any, context: Any, data: Any
) -> bool:
    if ARGS.save and iteration % ARGS.save_interval == 0:
        save_checkpoint_and_time(iteration, model, optimizer, scheduler, operations, context, train_data_iterator=data)
    return False


def pretrain(steps: int, model: Any, each: Any = None) -> int:
    """Returns the iteration that it began after."""
    begun, _ = load_checkpoint(model, None, None, checkpointing_context={})
    for iteration in range(begun, steps):
        maybe_finalize_async_save(blocking=False)
        if each is not None:
            each(iteration)
        train_step(model, iteration)
        if checkpoint_and_decide_exit(model, None, None, iteration + 1, 0, {}, None):
            break
    maybe_finalize_async_save(blocking=True)
    return begun
