"""Stack -> where its process stands: in a collective, in the data loader, in a checkpoint, at a lock, in its own code.

The frames are tried from the innermost outwards. A frame that says much (a collective, a data loader) counts wherever it
stands. A frame that may belong to anything (a lock, a socket, a sleep) counts only if no other frame says more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    """it waits for other ranks here, so it is a witness"""
    telling: bool
    """it says what the process was doing, wherever it stands in the stack"""
    function: re.Pattern[str] | None = None
    file: re.Pattern[str] | None = None

    def holds(self, frame: Frame) -> bool:
        """Whether the frame is of this sort."""
        if self.file is not None and self.file.search(frame.file) is None:
            return False
        return self.function is None or self.function.search(frame.function) is not None


def _kind(name: str, words: str, *, functions: Sequence[str] = (), files: Sequence[str] = ()) -> Kind:
    """A kind: its frames have one of these functions (if any are named) and are in one of these files (if any are named)."""
    waits, telling = name in ("collective", "store", "GPU"), name not in _MERELY
    function, file = (re.compile("|".join(words)) if words else None for words in (functions, files))
    return Kind(name, words, waits, telling, function, file)


COLLECTIVE: Final = "collective"
WORKER: Final = "data worker"
_MERELY: Final = ("process", "GIL", "network", "queue", "lock", "file", "sleep", "poll")
"""a process only waits here, whatever it is doing"""
_IN_COLLECTIVE, _AT_STORE = "waits in a collective", "waits for the other ranks at the store"
_AT_CHECKPOINT, _FOR_GPU, _FOR_NETWORK = "is at a checkpoint", "waits for the GPU", "waits for the network"
_FOR_LOCK, _FOR_INPUT = "waits for a lock", "waits for input"
_WORKER = _kind(
    WORKER, "is a worker of the data loader", functions=[r"^_worker_loop$"], files=[r"torch/utils/data/", r"worker\.py"]
)
_KINDS: Final = (
    _kind(
        COLLECTIVE,
        _IN_COLLECTIVE,
        functions=[
            r"^(?:all_?reduce|all_?gather\w*|_all_gather_base|reduce_?scatter\w*|_reduce_scatter_base|all_?to_?all\w*)$",
            r"^(?:broadcast\w*|barrier|monitored_barrier|reduce|gather\w*|scatter\w*)$",
            r"^(?:i?send|i?recv|batch_isend_irecv|_communicate)$",
        ],
        files=[r"distributed_c10d\.py", r"deepspeed/comm/", r"p2p_communication\.py", r"c10d_logger"],
    ),
    _kind(
        COLLECTIVE,
        _IN_COLLECTIVE,
        functions=[
            r"^P?MPI_(?:All|Bar|Bcast|Reduce|Gather|Scatter|Wait|Recv|Send)\w*",
            r"^(?:nccl|rccl|hccl|Hccl)[A-Z]\w*",
            r"c10d::\w*ProcessGroup(?:NCCL|Gloo|HCCL|MPI)?::",
            r"ProcessGroup(?:NCCL|Gloo|HCCL)::(?:Work\w+::)?(?:wait|sync|all|reduce|broad|barrier)",
            r"\bc10d::Work::(?:wait|synchronize)",
            r"^gloo::(?:allreduce|allgather|broadcast|barrier|reduce|alltoall)",
        ],
    ),
    _kind(
        COLLECTIVE,
        _IN_COLLECTIVE,
        functions=[r"synchronize", r"wait"],
        files=[r"horovod/", r"distributed/_functional_collectives\.py"],
    ),
    _kind("store", _AT_STORE, functions=[r"store_based_barrier", r"^rendezvous$", r"_rendezvous", r"TCPStore", r"TCPClient"]),
    _kind("store", _AT_STORE, files=[r"torch/distributed/(?:rendezvous|elastic/(?:rendezvous|utils/store))"]),
    _kind(
        "data",
        "is in the data loader",
        files=[
            r"torch/utils/data/",
            r"webdataset/",
            r"(?:^|/)datasets/(?:arrow|iterable|dataset|load|builder)",
            r"nvidia/dali/",
            r"tensorflow/python/data/",
            r"litdata/",
            r"streaming/base/",
            r"data_?loader\.py$",
        ],
    ),
    _kind(
        "checkpoint",
        _AT_CHECKPOINT,
        files=[
            r"torch/serialization\.py",
            r"torch/distributed/checkpoint/",
            r"safetensors/",
            r"dist_checkpointing/",
            r"checkpoint_engine/",
            r"orbax/checkpoint",
        ],
    ),
    _kind("checkpoint", _AT_CHECKPOINT, functions=[r"(?:^|_|\.)(?:save|load|write)_(?:checkpoint|pretrained|state|model)\w*$"]),
    _kind(
        "compiler",
        "compiles a kernel",
        files=[
            r"torch/_(?:inductor|dynamo)/",
            r"triton/(?:compiler|runtime)",
            r"torch/utils/cpp_extension\.py",
            r"jax/_src/(?:compiler|interpreters/pxla)",
        ],
    ),
    _kind("import", "imports modules", files=[r"<frozen importlib", r"importlib/"]),
    _kind("collector", "collects garbage", functions=[r"^gc_collect", r"^collect$"], files=[r"gcmodule\.c", r"^gc"]),
    _kind(
        "GPU",
        _FOR_GPU,
        functions=[
            r"^(?:cuda|cu|hip|aclrt)(?:rt)?(?:\w*Synchronize\w*|MemcpyD\w+|Memcpy)\w*",
            r"_local_scalar_dense",
            r"(?:^|::)(?:stream|device|event)_?[sS]ynchronize",
        ],
    ),
    _kind(
        "GPU",
        _FOR_GPU,
        functions=[r"^(?:Event\.|Stream\.)?synchronize$"],
        files=[r"torch/(?:cuda|npu|xpu|hpu)/", r"torch_npu/"],
    ),
    _kind(
        "process",
        "waits for a process that it started",
        functions=[r"^(?:Popen\.)?(?:communicate|wait|_wait|_try_wait)$"],
        files=[r"subprocess\.py"],
    ),
    _kind("process", "waits for a process that it started", functions=[r"^(?:__)?(?:GI___)?wait(?:pid|4|id)(?:@|$)"]),
    _kind(
        "GIL",
        "waits for the lock of the interpreter (GIL)",
        functions=[r"^take_gil$", r"^PyEval_(?:RestoreThread|AcquireThread)", r"^PyGILState_Ensure"],
    ),
    _kind(
        "network",
        _FOR_NETWORK,
        files=[
            r"(?:^|/)(?:socket|ssl)\.py$",
            r"http/client\.py",
            r"urllib3/",
            r"requests/",
            r"aiohttp/",
            r"botocore/",
            r"grpc/",
        ],
    ),
    _kind(
        "network", _FOR_NETWORK, functions=[r"^(?:__)?(?:libc_)?(?:recv|recvfrom|recvmsg|connect|accept4?|SSL_read)(?:@|$|_)"]
    ),
    _kind(
        "queue",
        "waits for a queue",
        functions=[r"(?:^|\.)(?:get|put|poll|recv\w*|_recv\w*)$"],
        files=[r"queues?\.py", r"multiprocessing/connection\.py"],
    ),
    _kind(
        "lock",
        _FOR_LOCK,
        functions=[
            r"pthread_(?:mutex_lock|cond_(?:timed|clock)?wait|rwlock)",
            r"lll_lock_wait",
            r"futex",
            r"sem_(?:clock)?(?:timed)?wait",
            r"PyThread_acquire_lock",
            r"^acquire$",
            r"(?:Condition|Event|Lock|RLock|Semaphore)\.(?:wait|acquire|__enter__)$",
        ],
    ),
    _kind(
        "lock",
        _FOR_LOCK,
        functions=[r"(?:^|\.)(?:wait|acquire|__enter__|_wait_for_tstate_lock|join)$"],
        files=[r"threading\.py", r"multiprocessing/synchronize\.py", r"filelock"],
    ),
    _kind(
        "file",
        "is in the file system",
        functions=[
            r"^(?:__)?(?:GI___?)?(?:libc_)?(?:p?read|p?write|fsync|fdatasync|open|openat|stat|statx|fstatat|close|rename)"
            r"(?:64|v)?(?:@|$|_nocancel)"
        ],
    ),
    _kind(
        "sleep", "sleeps", functions=[r"nanosleep", r"^time_sleep$", r"^pysleep$", r"^sleep$", r"^java\.lang\.Thread\.sleep"]
    ),
    _kind(
        "poll",
        _FOR_INPUT,
        functions=[r"^(?:select_)?(?:e?poll|select|ppoll|epoll_wait)(?:_\w+)?$", r"^(?:__)?(?:GI___)?poll", r"select_poll"],
    ),
    _kind("poll", _FOR_INPUT, files=[r"(?:^|/)selectors\.py", r"asyncio/base_events\.py"]),
)
_OWN = Kind("own code", "is in its own code", False, False)
_COMPILED = Kind("compiled code", "is in compiled code", False, False)
_JAVA_BLOCKED = Kind("lock", "waits for a lock", False, False)
_NEAR = 3
"""a place where a process only waits must be among so many innermost frames"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thread stands."""

    kind: Kind
    at: int
    """number of the frame that shows it"""
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
    """Where the thread stands; None if it has no frames."""
    frames = thread.frames
    if not frames:
        return None
    own = next((frame for frame in frames if not frame.library), None)
    worker = next((at for at, frame in enumerate(frames) if _WORKER.holds(frame)), None)
    if worker is not None:
        return Place(_WORKER, worker, frames[worker], own)
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
    """The outermost frame of this sort close by: the function that the program called."""
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
