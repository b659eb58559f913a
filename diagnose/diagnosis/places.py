"""A stack -> where its process stands: in a collective, in the data loader, in a checkpoint, at a lock, in its own code.

The frames are asked from the innermost outwards. What says much (a collective, a data loader) is believed wherever it
stands; what may belong to anything (a lock, a socket, a sleep) only where nothing else says more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from diagnose.reading.dumps.stacks import Frame, Thread


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of place."""

    name: str
    words: str
    """continues 'the process …'"""
    waits: bool
    """for other ranks: whoever stands there is a witness"""
    telling: bool
    """it says what the process was about, wherever it stands in the stack"""
    function: re.Pattern[str] | None = None
    file: re.Pattern[str] | None = None

    def holds(self, frame: Frame) -> bool:
        """Whether the frame is of this sort."""
        if self.file is not None and self.file.search(frame.file) is None:
            return False
        return self.function is None or self.function.search(frame.function) is not None


def _kind(name: str, words: str, *, waits: bool = False, telling: bool = True, function: str = "", file: str = "") -> Kind:
    return Kind(name, words, waits, telling, re.compile(function) if function else None, re.compile(file) if file else None)


_OPS = (
    r"(?:all_?reduce|all_?gather\w*|_all_gather_base|reduce_?scatter\w*|_reduce_scatter_base|all_?to_?all\w*|broadcast\w*"
    r"|barrier|monitored_barrier|reduce|gather\w*|scatter\w*|i?send|i?recv|batch_isend_irecv|_communicate)$"
)
COLLECTIVE: Final = "collective"
WORKER: Final = "data worker"
_KINDS: Final = (
    _kind(WORKER, "is a worker of the data loader", function=r"^_worker_loop$", file=r"torch/utils/data/|worker\.py"),
    _kind(COLLECTIVE, "waits in a collective", waits=True, function=_OPS, file=r"distributed_c10d\.py|deepspeed/comm/|p2p_communication\.py|c10d_logger"),
    _kind(
        COLLECTIVE, "waits in a collective", waits=True,
        function=r"^P?MPI_(?:All|Bar|Bcast|Reduce|Gather|Scatter|Wait|Recv|Send)\w*|^(?:nccl|rccl|hccl|Hccl)[A-Z]\w*"
        r"|c10d::\w*ProcessGroup(?:NCCL|Gloo|HCCL|MPI)?::|ProcessGroup(?:NCCL|Gloo|HCCL)::(?:Work\w+::)?(?:wait|sync|all|reduce|broad|barrier)"
        r"|^gloo::(?:allreduce|allgather|broadcast|barrier|reduce|alltoall)",
    ),
    _kind(COLLECTIVE, "waits in a collective", waits=True, function=r"synchronize|wait", file=r"horovod/|distributed/_functional_collectives\.py"),
    _kind("store", "waits for the other ranks at the store", waits=True, function=r"store_based_barrier|^rendezvous$|_rendezvous|TCPStore|TCPClient", file=r""),
    _kind("store", "waits for the other ranks at the store", waits=True, file=r"torch/distributed/(?:rendezvous|elastic/(?:rendezvous|utils/store))"),
    _kind("data", "is in the data loader", file=r"torch/utils/data/|webdataset/|(?:^|/)datasets/(?:arrow|iterable|dataset|load|builder)|nvidia/dali/|tensorflow/python/data/|litdata/|streaming/base/|data_loader\.py$|dataloader\.py$"),
    _kind("checkpoint", "is at a checkpoint", file=r"torch/serialization\.py|torch/distributed/checkpoint/|safetensors/|dist_checkpointing/|checkpoint_engine/|orbax/checkpoint"),
    _kind("checkpoint", "is at a checkpoint", function=r"(?:^|_|\.)(?:save|load|write|async_save)_(?:checkpoint|pretrained|state|model)\w*$|^save_checkpoint|^load_checkpoint"),
    _kind("compiler", "compiles a kernel", file=r"torch/_(?:inductor|dynamo)/|triton/(?:compiler|runtime)|torch/utils/cpp_extension\.py|jax/_src/(?:compiler|interpreters/pxla)"),
    _kind("import", "imports modules", file=r"<frozen importlib|importlib/"),
    _kind("collector", "collects garbage", function=r"^gc_collect|^gc\.collect|^collect$", file=r"gcmodule\.c|^gc"),
    _kind(
        "GPU", "waits for the GPU", waits=True,
        function=r"^(?:cuda|cu|hip|aclrt)(?:rt)?(?:\w*Synchronize\w*|MemcpyD\w+|Memcpy)\w*|_local_scalar_dense|^libcuda_"
        r"|(?:^|::)(?:stream|device|event)_?[sS]ynchronize",
    ),
    _kind("GPU", "waits for the GPU", waits=True, function=r"^(?:Event\.|Stream\.)?synchronize$", file=r"torch/(?:cuda|npu|xpu|hpu)/|torch_npu/"),
    _kind("process", "waits for a process that it started", telling=False, function=r"^(?:Popen\.)?(?:communicate|wait|_wait|_try_wait)$|^waitpid|^wait4|^__waitpid", file=r"subprocess\.py|wait|^$|\.so|\.c$"),
    _kind("GIL", "waits for the lock of the interpreter (GIL)", telling=False, function=r"^take_gil$|^PyEval_(?:RestoreThread|AcquireThread)|^PyGILState_Ensure"),
    _kind("network", "waits for the network", telling=False, file=r"(?:^|/)(?:socket|ssl)\.py$|http/client\.py|urllib3/|requests/|aiohttp/|botocore/|grpc/"),
    _kind("network", "waits for the network", telling=False, function=r"^(?:__)?(?:libc_)?(?:recv|recvfrom|recvmsg|connect|accept4?|SSL_read)(?:@|$|_)"),
    _kind("queue", "waits for a queue", telling=False, function=r"(?:^|\.)(?:get|put|poll|recv\w*|_recv\w*)$", file=r"queues?\.py|multiprocessing/connection\.py"),
    _kind(
        "lock", "waits for a lock", telling=False,
        function=r"pthread_(?:mutex_lock|cond_(?:timed|clock)?wait|rwlock)|lll_lock_wait|futex|sem_(?:clock)?(?:timed)?wait|PyThread_acquire_lock"
        r"|lock_PyThread_acquire|^acquire$|(?:Condition|Event|Lock|RLock|Semaphore)\.(?:wait|acquire|__enter__)$",
    ),
    _kind("lock", "waits for a lock", telling=False, function=r"(?:^|\.)(?:wait|acquire|__enter__|_wait_for_tstate_lock|join)$", file=r"threading\.py|multiprocessing/synchronize\.py|filelock"),
    _kind("file", "is in the file system", telling=False, function=r"^(?:__)?(?:GI___?)?(?:libc_)?(?:p?read|p?write|fsync|fdatasync|open|open64|openat|stat|statx|fstatat|close|rename|getdents)(?:64|v)?(?:@|$|_nocancel|_64)"),
    _kind("sleep", "sleeps", telling=False, function=r"nanosleep|^time_sleep$|^pysleep$|^sleep$"),
    _kind("poll", "waits for input", telling=False, function=r"^(?:select_)?(?:e?poll|select|ppoll|epoll_wait)(?:_\w+)?$|^(?:__)?(?:GI___)?poll|select_poll", file=r""),
    _kind("poll", "waits for input", telling=False, file=r"(?:^|/)selectors\.py|asyncio/base_events\.py"),
)  # fmt: skip
_OWN = Kind("own code", "is in its own code", False, False)
_COMPILED = Kind("compiled code", "is in compiled code", False, False)
_JAVA_BLOCKED = Kind("lock", "waits for a lock", False, False)
_NEAR = 3
"""so many of the innermost frames may show what merely waits"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thread stands."""

    kind: Kind
    at: int
    """the number of the frame that tells"""
    frame: Frame
    own: Frame | None
    """the innermost frame of the job's own code"""

    @property
    def op(self) -> str | None:
        """The collective, in capitals."""
        if self.kind.name != COLLECTIVE:
            return None
        name = re.sub(
            r"^.*(?:::|\.)|^(?:nccl|rccl|hccl|Hccl|P?MPI_)|_coalesced$|_(?:tensor|into_tensor|single|base)$",
            "",
            self.frame.function,
        )
        return re.sub(r"[^A-Za-z]", "", name).upper() or None

    @property
    def where(self) -> str:
        """``torch.serialization.save at train.py:210``."""
        own = self.own
        place = f"{own.file.rpartition('/')[2]}:{own.line}" if own is not None else ""
        if own == self.frame:
            return f"{own.function} at {place}" if own is not None else ""
        called = _dotted(self.frame)
        return f"{called} at {place}" if place else called


def place_of(thread: Thread) -> Place | None:
    """Where the thread stands; None where it has no frames."""
    frames = thread.frames
    if not frames:
        return None
    own = next((frame for frame in frames if not frame.library), None)
    if frames and any(_KINDS[0].holds(frame) for frame in frames):
        at = next(number for number, frame in enumerate(frames) if _KINDS[0].holds(frame))
        return Place(_KINDS[0], at, frames[at], own)
    found: tuple[int, Kind] | None = None
    for at, frame in enumerate(frames):
        kind = next((kind for kind in _KINDS if kind.telling and kind.holds(frame)), None)
        if kind is None:
            continue
        if found is None or (found[1].name == "GPU" and kind.name == COLLECTIVE):
            found = at, kind
        if found[1].name != "GPU":
            break
    if found is not None:
        at = _outermost_of(frames, *found)
        return Place(found[1], at, frames[at], own)
    if thread.state == "BLOCKED":
        return Place(_JAVA_BLOCKED, 0, frames[0], own)
    at_own = frames.index(own) if own is not None else len(frames)
    for at, frame in enumerate(frames[: max(_NEAR, at_own)]):
        kind = next((kind for kind in _KINDS if not kind.telling and kind.holds(frame)), None)
        if kind is not None:
            at = _outermost_of(frames[: max(at + 1, at_own)], at, kind)
            return Place(kind, at, frames[at], own)
    if own is not None:
        return Place(_OWN, at_own, own, own)
    return Place(_COMPILED, 0, frames[0], None)


def _outermost_of(frames: list[Frame], at: int, kind: Kind) -> int:
    """The outermost frame of the same sort that follows soon: what the program called."""
    further = at + 1
    while further < len(frames) and further - at <= _NEAR and frames[further].library:
        if any(one.name == kind.name and one.holds(frames[further]) for one in _KINDS):
            at = further
        further += 1
    return at


def _dotted(frame: Frame) -> str:
    """A function with its module: ``torch.serialization.save``."""
    file = frame.file
    for mark in ("site-packages/", "dist-packages/"):
        file = file.rpartition(mark)[2]
    if not file.endswith(".py") or file.startswith("/"):
        return frame.function
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"{module}.{frame.function}"
